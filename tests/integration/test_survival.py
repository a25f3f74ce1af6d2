"""What survives what: every daemon killed in the middle of a task; take-over; nothing left behind."""
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import threading

import pytest

import harness
from leftovers import leftovers, leftovers_at_rest


@pytest.fixture
def daemon_sh(make_daemon):
    return make_daemon(default_agent="sh")


def start_waiting_task(sandbox):
    """A task that ends when /workspace/repo/go is there."""
    assert sandbox.clone().status == 200
    script = "echo begun; while [ ! -e go ]; do read -t 0.05 <> <(:); done; echo ended"
    assert sandbox.start_task(script).status == 202


def let_go(sandbox):
    sandbox.sh("touch /workspace/repo/go")


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_task_outlives_the_supervisor(daemon_sh, how):
    sandbox = daemon_sh.sandbox("outlives")
    start_waiting_task(sandbox)
    boot_id = sandbox.exec("/bin/cat", "/proc/sys/kernel/random/boot_id")["stdout"]
    getattr(daemon_sh, how)()
    daemon_sh.start()
    assert sandbox.task()["state"] == "running"
    assert sandbox.exec("/bin/cat", "/proc/sys/kernel/random/boot_id")["stdout"] == boot_id
    let_go(sandbox)
    assert sandbox.finish()["state"] == "succeeded"
    assert daemon_sh.get(f"{sandbox.path}/task/log").body == b"begun\nended\n"


def test_a_task_that_ends_while_no_supervisor_is_there_is_told(daemon_sh):
    sandbox = daemon_sh.sandbox("ends-alone")
    start_waiting_task(sandbox)
    daemon_sh.kill()
    go = daemon_sh.state / "sandboxes/ends-alone/workspace/repo/go"
    go.touch()
    task = pathlib.Path(f"{daemon_sh.state}/sandboxes/ends-alone/task/exit-code")
    harness.wait_for(task.exists, 10, "exit-code")
    daemon_sh.start()
    assert sandbox.task()["state"] == "succeeded"


def test_a_task_is_lost_when_its_init_died(daemon_sh):
    sandbox = daemon_sh.sandbox("init-dies")
    start_waiting_task(sandbox)
    os.kill(sandbox.init_pid(), signal.SIGKILL)
    harness.wait_for(lambda: sandbox.task()["state"] == "lost", 10, "lost")
    assert sandbox.exec("/bin/cat", "/workspace/repo/README")["stdout"] == "Hello World!\n"
    assert sandbox.task()["state"] == "lost"


def test_a_task_is_lost_when_init_died_with_the_supervisor_away(daemon_sh):
    sandbox = daemon_sh.sandbox("both-die")
    start_waiting_task(sandbox)
    init = sandbox.init_pid()
    daemon_sh.kill()
    os.kill(init, signal.SIGKILL)
    daemon_sh.start()
    assert sandbox.task()["state"] == "lost"


@pytest.mark.parametrize("program", ["paddock-api", "paddock-egress"])
def test_a_child_that_dies_is_started_again(daemon_sh, program):
    sandbox = daemon_sh.sandbox("child-dies")
    start_waiting_task(sandbox)
    pid = daemon_sh.pid_of(program)
    os.kill(pid, signal.SIGKILL)
    harness.wait_for(lambda: daemon_sh.pid_of(program) not in (None, pid), 10, "a new one")
    harness.wait_for(daemon_sh.is_ready, 10, "ready")
    assert sandbox.task()["state"] == "running"
    fetched = sandbox.sh("git -C /workspace/repo ls-remote origin HEAD")
    assert fetched["exitCode"] == 0 and "HEAD" in fetched["stdout"], fetched
    let_go(sandbox)
    assert sandbox.finish()["state"] == "succeeded"


def test_the_real_agent_survives_all_three(make_daemon):
    daemon = make_daemon()
    sandbox = daemon.sandbox("claude-survives")
    assert sandbox.clone().status == 200
    prompt = ('Go on. SCRIPT:[{"tool":"Bash","input":{"command":"touch begun; while [ ! -e go ]; do '
              'sleep 0.1; done"}},{"text":"went on"}]')
    assert sandbox.start_task(prompt).status == 202
    harness.wait_for(lambda: sandbox.sh("test -e /workspace/repo/begun")["exitCode"] == 0, 30,
                     "the agent at work", interval=0.2)
    for program in ("paddock-egress", "paddock-api"):
        os.kill(daemon.pid_of(program), signal.SIGKILL)
    daemon.kill()
    daemon.start()
    let_go(sandbox)
    state = sandbox.finish(90)
    assert state["state"] == "succeeded" and state["result"] == "went on", state


def test_an_init_that_is_held_up_is_told_and_goes_on_later(daemon_sh):
    first, second = daemon_sh.sandbox("held-up"), daemon_sh.sandbox("held-up-too")
    start_waiting_task(first)
    assert second.clone().status == 200
    inits = [sandbox.init_pid() for sandbox in (first, second)]
    for pid in inits:
        os.kill(pid, signal.SIGSTOP)
    true = {"argv": ["/bin/true"]}
    asked = [("POST", f"{first.path}/exec", true), ("DELETE", f"{first.path}/task", None),
             ("POST", f"{second.path}/task", "echo later")]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answers = [job.result() for job in
                   [pool.submit(daemon_sh.call, *request, timeout=40) for request in asked]]
    for answer in answers:
        assert answer.status == 503 and "does not answer" in answer.text, answer
    again = daemon_sh.post(f"{first.path}/exec", true, timeout=5)
    assert again.status == 503 and "paddock stop held-up" in again.text, again
    for pid in inits:
        os.kill(pid, signal.SIGCONT)
    assert "cancelled" in first.finish()["error"]
    assert first.exec("/bin/echo", "back")["stdout"] == "back\n"
    later = second.finish()
    assert (later["state"], later["result"]) == ("succeeded", "later\n"), later
    os.kill(inits[0], signal.SIGSTOP)
    assert daemon_sh.post(f"{first.path}/stop", timeout=40).status in (200, 204)
    assert first.exec("/bin/echo", "new")["stdout"] == "new\n"


def killed_at(point, daemon, name):
    """Starts the sandbox and kills the supervisor as soon as point() is true."""
    def ask():
        with contextlib.suppress(OSError, http.client.HTTPException):
            daemon.post(f"/sandboxes/{name}/exec", {"argv": ["/bin/true"]})
    thread = threading.Thread(target=ask)
    thread.start()
    harness.wait_for(point, 20, "the point of the start", interval=0)
    daemon.kill()
    thread.join()


def processes(group):
    pids = []
    with contextlib.suppress(OSError):
        for path in [group, *group.glob("*/")]:
            pids += (path / "cgroup.procs").read_text().split()
    return pids


@pytest.mark.parametrize("when", ["folder", "group", "process", "record"])
def test_a_supervisor_killed_in_a_start_leaves_nothing_half_made(make_daemon, when):
    """A first start puts the sandbox on record after its process was made: none may be forgotten."""
    daemon = make_daemon(default_agent="sh")
    warm = daemon.sandbox("warm")
    init = str(warm.init_pid())
    groups = next(path.parent for path in
                  pathlib.Path("/sys/fs/cgroup").glob(f"**/paddock-*/{warm.group_name()}")
                  if init in processes(path))

    for number in range(3):
        name = f"killed-{when}-{number}"
        folder, known = daemon.state / "sandboxes" / name, set(groups.glob("*/"))

        def others(known=known):
            return set(groups.glob("*/")) - known

        def nothing_left(folder=folder, others=others):
            return not others() and not folder.exists()
        points = {"folder": folder.exists, "record": (folder / "meta.json").exists,
                  "group": others, "process": lambda others=others: any(map(processes, others()))}
        killed_at(points[when], daemon, name)
        daemon.start()
        if not (folder / "meta.json").exists():
            harness.wait_for(nothing_left, 20, "nothing left")
            assert daemon.get(f"/sandboxes/{name}").status == 404
        assert daemon.sandbox(name).exec("/bin/true")["exitCode"] == 0
        assert daemon.sandbox(name).remove().status in (200, 204)
        harness.wait_for(nothing_left, 20, "nothing left")
    daemon.close()


def test_a_second_daemon_on_the_same_state_refuses(daemon_sh):
    second = harness.Daemon(daemon_sh.folder / "second", daemon_sh.namespace,
                            {**daemon_sh.config, "listen": [f"unix:{daemon_sh.folder}/second.sock"]})
    second.start(wait=False)
    assert second.process.wait(harness.patient(20)) != 0
    assert "another paddockd works on" in second.log(), second.log()
    assert daemon_sh.is_ready()


def test_a_newer_meta_json_is_refused_with_a_message(daemon_sh):
    sandbox = daemon_sh.sandbox("newer")
    sandbox.exec("/bin/true")
    daemon_sh.post(f"{sandbox.path}/stop")
    daemon_sh.stop()
    path = daemon_sh.state / "sandboxes" / "newer" / "meta.json"
    text = path.read_text()
    path.write_text(json.dumps({**json.loads(text), "schema": 99}))
    daemon_sh.start(wait=False)
    try:
        assert daemon_sh.process.wait(harness.patient(20)) != 0
        assert "newer" in daemon_sh.log() and "99" in daemon_sh.log()
        assert json.loads(path.read_text())["schema"] == 99, "nothing was written over it"
    finally:
        path.write_text(text)


class SharedMounts:
    """The mounts of a machine under systemd: all of them are shared."""

    def __init__(self, namespace):
        self.namespace = namespace

    def argv(self, *command):
        return self.namespace.argv("unshare", "--mount", "--propagation", "shared", "--", *command)


def test_no_mount_of_a_sandbox_shows_outside(make_daemon):
    daemon = make_daemon(default_agent="sh", start=False)
    daemon.namespace = SharedMounts(daemon.namespace)
    daemon.start()
    sandbox = daemon.sandbox("inside-alone")
    sandbox.exec("/bin/true")
    mounts = pathlib.Path(f"/proc/{daemon.process.pid}/mountinfo").read_text()
    assert re.search(r" / / \S+ shared:", mounts), mounts
    assert str(daemon.state) not in mounts, mounts
    inside = pathlib.Path(f"/proc/{sandbox.init_pid()}/mountinfo").read_text()
    assert " /workspace/task " in inside
    sandbox.remove()


def test_nothing_is_left_after_stop_and_remove(daemon_sh):
    warm = daemon_sh.sandbox("leftover-warm")
    warm.exec("/bin/true")
    warm.remove()
    before = leftovers_at_rest(daemon_sh)
    for round_number in range(3):
        sandbox = daemon_sh.sandbox(f"leftover-{round_number}")
        sandbox.exec("/bin/true")
        assert daemon_sh.post(f"{sandbox.path}/stop").status in (200, 204)
        sandbox.exec("/bin/true")
        assert sandbox.remove().status in (200, 204)
    def as_before():
        found.append(leftovers(daemon_sh))
        mounts, groups, fds, folders, children = found[-1]
        # a descriptor of the warm one's end may still have been counted
        return (mounts, groups, folders, children) == before[:2] + before[3:] and fds <= before[2]
    found = []
    try:
        harness.wait_for(as_before, 20)
    except AssertionError as error:
        raise AssertionError(f"{found[-1]} is left, not {before}") from error
    harness.wait_for(lambda: not os.listdir(daemon_sh.state / "trash"), 30, "empty trash")


def test_an_idle_daemon_whose_control_groups_were_tidied_away_goes_on(make_daemon):
    """Its folder is empty while nothing runs: anyone's cleanup may remove it."""
    daemon = make_daemon(default_agent="sh")
    daemon.sandbox("tidy").exec("/bin/true")
    daemon.sandbox("tidy").remove()
    roots = [pathlib.Path("/sys/fs/cgroup"), *pathlib.Path("/sys/fs/cgroup").glob("*/")]
    folders = [root / daemon.cgroup_name() for root in roots]
    folders = [folder for folder in folders if folder.exists()]
    assert folders
    harness.wait_for(lambda: not any(list(folder.glob("*/")) for folder in folders), 20, "no group")
    for folder in folders:
        folder.rmdir()
    sandbox = daemon.sandbox("tidy-again")
    assert sandbox.exec("/bin/true")["exitCode"] == 0
    pid = str(sandbox.init_pid())
    assert any(pid in processes(folder / sandbox.group_name()) for folder in folders)
    daemon.close()


def test_nothing_is_left_after_a_failed_start(make_daemon):
    daemon = make_daemon(default_agent="noimage", agents={"noimage": {
        "image": "no-such-image", "command": ["/bin/true", "${PROMPT}"], "env": {},
        "outcome": "exit-code"}})
    harness.wait_for(lambda: "is in force" in daemon.log(), 20, "egress with its policy")

    def fail():
        answer = daemon.post("/sandboxes/leftover-fails/exec", {"argv": ["/bin/true"]})
        assert answer.status == 503 and "paddock image build no-such-image" in answer.text, answer
    fail()
    before = leftovers_at_rest(daemon)
    fail()
    harness.wait_for(lambda: leftovers(daemon) == before, 20, f"nothing left but {before}")
    assert daemon.get("/sandboxes/leftover-fails").status == 404


def test_a_start_that_fails_inside_leaves_nothing(make_daemon):
    daemon = make_daemon(default_agent="sh")
    sandbox = daemon.sandbox("leftover-broken")
    sandbox.exec("/bin/true")
    daemon.post(f"{sandbox.path}/stop")
    before = leftovers_at_rest(daemon)
    workspace = daemon.state / "sandboxes/leftover-broken/workspace"
    workspace.rename(workspace.with_name("moved"))
    answer = daemon.post(f"{sandbox.path}/exec", {"argv": ["/bin/true"]})
    assert answer.status == 500 and answer.text == "Sandbox request failed"
    assert answer.headers["x-request-id"] in daemon.log()
    workspace.with_name("moved").rename(workspace)
    harness.wait_for(lambda: leftovers(daemon) == before, 20, f"nothing left but {before}")
    assert sandbox.exec("/bin/echo", "again")["stdout"] == "again\n"


def groups_of(folder):
    """The control groups of a daemon, in every hierarchy; folder: its name in each."""
    return [path for path, _, _ in os.walk("/sys/fs/cgroup") if folder in path]


def test_a_daemon_that_ends_with_nothing_running_leaves_no_group(make_daemon):
    daemon = make_daemon(default_agent="sh")
    names = [f"groups-{i}" for i in range(4)]
    for name in names:
        sandbox = daemon.sandbox(name)
        made = sandbox.sh("cd /workspace && for i in $(seq 20); do mkdir $i; touch $i/{1..50}; done")
        assert made["exitCode"] == 0, made
    text = pathlib.Path(f"/proc/{sandbox.init_pid()}/cgroup").read_text()
    folder = re.search(r"/(paddock-[0-9a-f]{8})/", text)[1]
    assert groups_of(folder)
    for name in names:
        assert daemon.sandbox(name).remove().status in (200, 204)
    daemon.stop()
    assert os.listdir(daemon.state / "trash"), "no removal was under way: the test shows nothing"
    assert groups_of(folder) == []


def test_fifty_at_once_and_one_name_fifty_times(daemon_sh):
    """CASES D9: and nothing is left of them."""
    results = []
    warm = daemon_sh.sandbox("many-warm")
    warm.exec("/bin/true")
    warm.remove()

    def is_quiet():
        return not os.listdir(daemon_sh.state / "trash")
    before = leftovers_at_rest(daemon_sh, daemon_sh.cgroup_name() + "/")

    def one(name):
        results.append(daemon_sh.sandbox(name).exec("/bin/cat", "/proc/sys/kernel/random/boot_id"))

    for names in ([f"many-{i}" for i in range(50)], ["same"] * 50):
        results.clear()
        threads = [threading.Thread(target=one, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 50 and all(r["exitCode"] == 0 for r in results)
        assert len({r["stdout"] for r in results}) == len(set(names))
        for name in set(names):
            assert daemon_sh.sandbox(name).remove().status == 204
        harness.wait_for(is_quiet, 60, "empty trash")
        harness.wait_for(lambda: leftovers(daemon_sh, daemon_sh.cgroup_name() + "/") == before, 30,
                         f"nothing left but {before}")
