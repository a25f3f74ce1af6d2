"""An upgrade under running tasks: programs of another version, whose sandboxes the present daemon takes
over. Those of each version of the messages are built from the repository's own history; and the present
ones with another IPC_VERSION, for the way back too."""
import json
import os
import pathlib
import re
import subprocess

import pytest

import harness
import websocket
from leftovers import leftovers_at_rest

# The last commit of each version of the messages between the processes: the one before IPC_VERSION was
# raised in src/ipc/messages.def. "first": the first one whose daemon ran the main job
# (tests/integration/test_main_job.py). meta.json's schema 1 is that of first, 1 and 2. "1" is the last one
# before 60dacba, which put a message between others: inits of the five commits from there to before 32238d2, which
# took it back, cannot be taken over.
HISTORY = {
    "first": "a0ca692", "1": "1c9e7c6", "2": "63b4cad", "3": "ce3d55e", "4": "e1103d2", "5": "ae7c7eb",
    "6": "f0d9de8", "7": "de1504a", "8": "39c411d", "9": "15e4b6a", "10": "0e39b45",
    "11": "fdb97fa"}
# The first version whose init knows them
LISTEN, APART, TERMINAL = 8, 9, 11
PORT = 8443

# Prints a line, waits for a file, asks through egress, prints another.
PROMPT = ("echo before; until [ -e /workspace/go ]; do sleep 0.1; done; "
          "git ls-remote https://github.com/octocat/Hello-World >/dev/null && echo after")


def build_programs(build, source, *options):
    """The folder with the programs of the tree `source`, built in `build`."""
    for argv in (["meson", "setup", build, source, *options],
                 ["ninja", "-C", build, *(f"src/main/{path.name}" for path in harness.BIN.iterdir()
                                          if path.name.startswith("paddock") and path.is_file())]):
        made = subprocess.run([str(part) for part in argv], stdout=subprocess.PIPE, check=False,
                              stderr=subprocess.STDOUT)
        assert made.returncode == 0, made.stdout[-3000:].decode()
    return build / "src/main"


@pytest.fixture(scope="module")
def other_build(folder):
    return build_programs(folder / "other-version", harness.ROOT, "-Dc_args=-DIPC_VERSION=1")


def tree_of(commit, folder):
    """The tree of a commit of this repository."""
    folder.mkdir()
    git = ["git", "-C", str(harness.ROOT), "archive", commit]
    with subprocess.Popen(git, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as archive:
        unpacked = subprocess.run(["tar", "-x", "-C", str(folder)], stdin=archive.stdout, check=False)
        why = archive.stderr.read().decode()
    assert archive.returncode == 0 and unpacked.returncode == 0, (
        f"commit {commit} is not here ({why.strip()}): this test builds former versions from the "
        "repository's history, so it needs a clone that is not shallow: git fetch --unshallow")
    return folder


@pytest.fixture(scope="module", params=HISTORY)
def former(request, folder):
    """(number of its messages, its tree, its programs)"""
    tree = tree_of(HISTORY[request.param], folder / f"former-{request.param}")
    number = int(re.search(r"define IPC_VERSION (\d+)", (tree / "src/ipc/messages.def").read_text())[1])
    return number, tree, build_programs(tree / "build", tree)


def programs(daemon):
    """What the daemon's processes execute."""
    names = [f"/proc/{daemon.process.pid}/exe"]
    names += [f"/proc/{daemon.pid_of(name)}/exe" for name in ("paddock-api", "paddock-egress")]
    return {pathlib.Path(os.readlink(name)).parent for name in names}


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_task_goes_on_under_programs_of_another_version(make_daemon, other_build, how, direction):
    before, after = (other_build, harness.BIN) if direction == "up" else (harness.BIN, other_build)
    daemon = make_daemon(default_agent="sh", start=False)
    daemon.paddockd = before / "paddockd"
    daemon.start()
    sandbox = daemon.sandbox(f"upgrade-{direction}-{how}")
    assert sandbox.clone().status == 200
    assert sandbox.start_task(PROMPT).status == 202
    harness.wait_for(lambda: "before\n" in daemon.get(f"{sandbox.path}/task/log").text, 30, "first line")
    init = sandbox.init_pid()
    assert programs(daemon) == {before}

    getattr(daemon, how)()
    daemon.paddockd = after / "paddockd"
    daemon.start()
    harness.wait_for(lambda: programs(daemon) == {after}, 30, "programs of the other version")
    assert sandbox.task()["state"] == "running"
    assert sandbox.init_pid() == init  # an exec by the init of the other version
    assert sandbox.sh("echo x >/workspace/go")["exitCode"] == 0
    state = sandbox.finish(60)
    assert (state["state"], state["result"]) == ("succeeded", "before\nafter\n"), daemon.log()[-3000:]
    assert sandbox.diff().status == 200
    assert sandbox.run_task("echo again")["result"] == "again\n"
    assert daemon.post(f"{sandbox.path}/stop").status in (200, 204)
    assert not harness.is_program(init)


def test_a_history_that_is_not_whole_is_told(folder):
    with pytest.raises(AssertionError, match="git fetch --unshallow"):
        tree_of("0123456789abcdef0123456789abcdef01234567", folder / "not-there")


def test_no_former_version_is_left_out():
    number = int(re.search(r"define IPC_VERSION (\d+)", (harness.ROOT / "src/ipc/messages.def").read_text())[1])
    assert set(HISTORY) == {"first", *map(str, range(1, number))}, (
        "IPC_VERSION was raised: add the last commit before it to HISTORY")


def former_daemon(make_daemon, demo, former):
    """A daemon of the former version, with its own policy and recipes."""
    _, tree, former_programs = former
    daemon = make_daemon(default_agent="sh", start=False)
    upstreams = {"gateway.ai.cloudflare.com": f"127.0.0.1:{demo.gateway_port}",
                 "github.com": f"127.0.0.1:{demo.git_port}"}
    harness.merge_policy(tree / "policy/default.json", upstreams, daemon.folder / "policy", demo.ca)
    for recipe in (tree / "images").glob("*/*.json"):
        kept = daemon.folder / "images" / recipe.parent.name / recipe.name
        if kept.exists():
            kept.write_bytes(recipe.read_bytes())
    daemon.paddockd = former_programs / "paddockd"
    return daemon.start()


def ask_for_a_port(daemon):
    """One more rule, for another port: what an init before version 8 cannot listen on."""
    path = pathlib.Path(daemon.config["policy"])
    rules = json.loads(path.read_text())["rules"]
    path.write_text(json.dumps({"rules": [{"name": "other-port", "host": "port.test", "port": PORT},
                                          *rules]}))


def refused(answer):
    """What is told of a sandbox whose init is too old."""
    return (answer.status, getattr(answer, 'text', None) or answer.body) == (503, (
        "The sandbox upgraded was started by an older version, which knows no input, terminal or time "
        "limit of a program: stop it, and it starts anew"))


def check_new_abilities(sandbox, number):
    """Each is there, or refused in words."""
    daemon = sandbox.daemon
    cat = {"argv": ["/bin/cat"]}
    for more in ({"stdin": "in"}, {"timeout_ms": 60000}, {"end_with_client": True}):
        answer = daemon.post(f"{sandbox.path}/exec", {**cat, **more})
        if number < APART:
            assert refused(answer), answer
        else:
            assert (answer.status, answer.json["stdout"]) == (200, more.get("stdin", "")), answer
    try:
        client = websocket.terminal(daemon.socket, sandbox.name, "/bin/echo", "on a terminal")
    except websocket.Refused as answer:
        assert number < TERMINAL and refused(answer), answer
    else:
        assert number >= TERMINAL and b"on a terminal" in client.rest()[0]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_each_former_version_hands_over_under_a_running_task(make_daemon, demo, former, how):
    number, _, former_programs = former
    daemon = former_daemon(make_daemon, demo, former)
    sandbox = daemon.sandbox("upgraded")
    idle = daemon.sandbox("upgraded-stopped")
    assert sandbox.clone().status == 200 and idle.clone().status == 200
    assert idle.run_task("echo in the past")["result"] == "in the past\n"
    assert daemon.post(f"{idle.path}/stop").status in (200, 204)
    assert sandbox.start_task(PROMPT + "; echo changed >README").status == 202
    harness.wait_for(lambda: "before\n" in daemon.get(f"{sandbox.path}/task/log").text, 30, "first line")
    init = sandbox.init_pid()
    assert programs(daemon) == {former_programs}

    getattr(daemon, how)()
    ask_for_a_port(daemon)
    daemon.paddockd = harness.BIN / "paddockd"
    offset = daemon.log_size()
    daemon.start()
    harness.wait_for(lambda: programs(daemon) == {harness.BIN}, 30, "the present programs")
    harness.wait_for(lambda: " is in force" in daemon.log()[offset:], 30, "the policy")
    assert sandbox.task()["state"] == "running"
    assert sandbox.init_pid() == init
    assert sandbox.start_task("echo no").status == 409
    check_new_abilities(sandbox, number)
    told = "upgraded was started by an older version: the other ports of the policies" in daemon.log()
    assert told == (number < LISTEN), daemon.log()[offset:]
    assert sandbox.sh("echo x >/workspace/go")["exitCode"] == 0
    state = sandbox.finish(60)
    assert (state["state"], state["result"]) == ("succeeded", "before\nafter\n"), daemon.log()[-3000:]
    assert daemon.get(f"{sandbox.path}/task/log").text == "before\nafter\n"
    assert "+changed\n" in sandbox.diff().text
    assert sandbox.run_task("echo again")["result"] == "again\n"
    assert idle.task()["result"] == "in the past\n" and idle.diff().text == ""

    assert daemon.post(f"{sandbox.path}/stop").status in (200, 204)
    assert not harness.is_program(init)
    assert sandbox.task()["result"] == "again\n" and "+changed\n" in sandbox.diff().text
    check_new_abilities(sandbox, TERMINAL)
    assert idle.run_task("cat README")["state"] == "succeeded"
    assert {box.meta()["schema"] for box in (sandbox, idle)} == {2}
    for box in (sandbox, idle):
        assert box.remove().status in (200, 204)
    _, groups, _, folders, children = leftovers_at_rest(daemon, daemon.cgroup_name() + "/")
    assert (groups, folders, children) == ([], [], [])
    daemon.close()
