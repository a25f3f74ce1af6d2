"""What each row of the table in docs/rootless.md can do, and what it says of what it cannot."""
import json
import os
import pathlib
import re
import signal
import socket
import stat

import pytest

import harness

PROMPT = "Add a file NOTES.md with a one-sentence summary of this repository. Do not commit."


def status_of(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


# ------------------------------------------------------------------------------ the main job


def test_clone_run_diff_with_claude(daemon, sandbox, demo):
    before = len(demo.record("gateway"))
    clone = sandbox.clone()
    assert clone.status == 200, clone
    assert sandbox.start_task(PROMPT).status == 202
    state = sandbox.finish(90)
    assert state["state"] == "succeeded", (state, daemon.log()[-3000:])
    assert "NOTES.md" in state["result"]
    diff = sandbox.diff()
    assert diff.status == 200 and diff.text.startswith("diff --git a/NOTES.md b/NOTES.md\nnew file")
    assert daemon.get(f"{sandbox.path}/task/log").body
    calls = demo.record("gateway")[before:]
    assert calls and all(c["headers"]["cf-aig-authorization"].startswith("Bearer demo-")
                         for c in calls)


def test_a_second_clone_takes_the_place_of_the_first_ones_commit(daemon, sh_sandbox):
    assert sh_sandbox.clone().status == 200
    assert sh_sandbox.sh("rm -rf /workspace/repo/* /workspace/repo/.git; "
                         "rmdir /workspace/repo")["exitCode"] == 0
    again = sh_sandbox.clone()
    assert again.status == 200, (again, daemon.log()[-2000:])
    harness.wait_for(lambda: not [name for name in os.listdir(daemon.state / "trash")
                                  if name.startswith("base")], 30, "the old commit is removed")
    assert sh_sandbox.diff().text == ""


def test_removing_leaves_nothing(daemon, sh_sandbox):
    assert sh_sandbox.clone().status == 200
    assert sh_sandbox.sh("mkdir -p /workspace/a/b && touch /workspace/a/b/c && chmod 000 "
                         "/workspace/a/b /workspace/a")["exitCode"] == 0
    sh_sandbox.run_task("echo x")
    assert sh_sandbox.remove().status in (200, 204)
    harness.wait_for(lambda: not os.listdir(daemon.state / "trash"), 30, "the trash is empty")
    assert not (daemon.state / "sandboxes" / sh_sandbox.name).exists()


# ------------------------------------------------------------------------------- who runs


def test_every_process_is_the_users(daemon, sandbox, row):
    sandbox.exec("/bin/true")
    uid = daemon.user.uid
    assert uid != 0
    assert status_of(daemon.process.pid)["Uid"].split()[0] == str(uid)
    for program in ("paddock-api", "paddock-egress"):
        status = status_of(daemon.pid_of(program))
        assert set(status["Uid"].split()) == {str(uid)}, program
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status[kind], 16) == 0, (program, kind)
        assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
        assert len(status["NSpid"].split()) == 2, "a pid namespace of its own"
    for pid in (daemon.process.pid, daemon.pid_of("paddock-api"), daemon.pid_of("paddock-egress")):
        # The files in /proc of an undumpable process are root's, of the namespace that it was
        # executed in.
        assert os.stat(f"/proc/{pid}/status").st_uid == (uid if row == "unshare" else 0)


def test_ids_of_the_sandbox(daemon, sandbox, row):
    assert sandbox.sh("id -u; id -g; echo $HOME; cat /proc/self/uid_map | tr -s ' '")[
        "stdout"].split("\n")[:3] == ["1000", "1000", "/home/agent"]
    init = sandbox.init_pid()
    user = daemon.user
    with open(f"/proc/{init}/uid_map", encoding="ascii") as file:
        maps = [tuple(map(int, line.split())) for line in file]
    if row == "subordinate":
        assert maps == [(0, user.first, 65536)], "our own id has no number inside"
    else:
        assert maps == [(1000, user.uid, 1)]
    made = sandbox.sh("touch /workspace/mine && stat -c '%u %g' /workspace/mine")
    assert made["stdout"] == "1000 1000\n"
    on_disk = os.stat(daemon.state / "sandboxes" / sandbox.name / "workspace/mine")
    assert on_disk.st_uid == (user.first + 1000 if row == "subordinate" else user.uid)


def test_init_is_out_of_the_agents_reach(sandbox):
    for script in ("ls /proc/1/fd/", "cat /proc/1/environ", "ls /proc/1/root/", "cat /proc/1/maps"):
        assert sandbox.sh(script)["exitCode"] != 0, script
    sandbox.sh("kill -9 1; kill -STOP 1; kill -TERM 1")
    assert sandbox.exec("/bin/echo", "alive")["stdout"] == "alive\n"
    assert sandbox.sh("echo x > /workspace/task/exit-code")["exitCode"] != 0
    assert sandbox.sh("grep -E '^Cap(Prm|Eff|Amb)' /proc/self/status | cut -f2 | sort -u")[
        "stdout"] == "0000000000000000\n"


def test_no_file_of_the_host_is_seen(daemon, sandbox):
    paths = [daemon.state, daemon.user.home, harness.ROOT / "meson.build", "/var/tmp/paddock-tests"]
    for path in paths:
        assert sandbox.exec("/bin/ls", "-d", str(path))["exitCode"] != 0, path
    mounts = sandbox.exec("/bin/cat", "/proc/self/mounts")["stdout"]
    points = {line.split()[1] for line in mounts.splitlines()}
    assert all(re.match(r"^/($|proc|dev|tmp|workspace)", point) for point in points), points


def test_no_way_out_beyond_the_policy(daemon, sandbox):
    refused = sandbox.sh("git ls-remote https://example.com/a/b")
    assert refused["exitCode"] != 0 and "403" in refused["stderr"], refused
    plain = sandbox.sh("exec 3<>/dev/tcp/github.com/80; printf 'GET / HTTP/1.1\\r\\nHost: "
                       "github.com\\r\\nConnection: close\\r\\n\\r\\n' >&3; cat <&3")
    assert "reachable only over HTTPS" in plain["stdout"], plain
    closed = sandbox.sh("exec 3<>/dev/tcp/10.0.0.1/22")
    assert closed["exitCode"] != 0
    links = sandbox.sh("cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '")
    assert links["stdout"] == "lo\n"


@pytest.mark.parametrize("call", ["unshare -Ur true", "unshare -p --fork true", "unshare -m true",
                                  "mount -t tmpfs x /tmp", "chroot / true", "mknod /tmp/n c 1 3"])
def test_no_new_namespace_and_no_mount(sandbox, call):
    for root in (False, True) if "subordinate" in sandbox.daemon.folder.name else (False,):
        found = sandbox.sh(call, **({"user": "root"} if root else {}))
        assert found["exitCode"] != 0, (call, root, found)


def test_a_task_may_do_no_more_than_an_exec(sh_sandbox):
    """Where the task has a pid namespace of its own, made by an init with more rights."""
    assert sh_sandbox.clone().status == 200
    script = ("unshare -Ur true && echo userns; unshare -m true && echo mounts; "
              "mount -t tmpfs x /tmp && echo mounted; "
              "grep -E '^(Cap(Prm|Eff|Amb)|NoNewPrivs|Seccomp)' /proc/self/status; "
              "ls /proc/1/fd/ && echo reached; cat /proc/sys/kernel/random/boot_id; "
              "echo 1 > /proc/sys/kernel/randomize_va_space && echo written; "
              "wc -c < /proc/kcore; echo \"$$ $(cut -d' ' -f1 /proc/self/stat)\"; true")
    state = sh_sandbox.run_task(script)
    assert state["state"] == "succeeded", state
    log = sh_sandbox.daemon.get(f"{sh_sandbox.path}/task/log").text
    lines = log.split("\n")
    assert not {"userns", "mounts", "mounted", "reached", "written"} & set(lines), log
    assert [line.split("\t")[1] for line in lines if line.startswith("Cap")] == 3 * ["0" * 16]
    assert "NoNewPrivs:\t1" in lines and "Seccomp:\t2" in lines
    assert sh_sandbox.exec("/bin/cat", "/proc/sys/kernel/random/boot_id")["stdout"].strip() in lines


def test_a_tasks_proc_shows_its_own_pids(sh_sandbox):
    assert sh_sandbox.clone().status == 200
    state = sh_sandbox.run_task(
        "test \"$(readlink /proc/self/exe)\" = \"$(readlink /proc/$BASHPID/exe)\" || true; "
        "test -d /proc/$$ && grep -q '^Name:.bash' /proc/$$/status")
    assert state["state"] == "succeeded", state


# ----------------------------------------------------------------------- ends and take-over


def test_cancel_ends_all_of_the_task_and_nothing_else(daemon, sh_sandbox):
    assert sh_sandbox.clone().status == 200
    beside = sh_sandbox.sh("setsid sleep 3001 >/dev/null 2>&1 & echo $!")["stdout"].strip()
    script = ("trap '' TERM; setsid sleep 3002 & (setsid bash -c 'trap \"\" TERM HUP; "
              "setsid sleep 3003 & sleep 3004' &) ; sleep 3005 & echo up; wait; sleep 3006")
    assert sh_sandbox.start_task(script).status == 202
    seconds = "3002 3003 3004 3005"

    def sleeping():
        found = sh_sandbox.sh("for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $f; echo; done")
        return {word for line in found["stdout"].splitlines() if line.startswith("sleep ")
                for word in line.split()[1:]}
    harness.wait_for(lambda: set(seconds.split()) <= sleeping(), 20, "the task's processes")
    daemon.kill()  # and by a daemon that did not start it
    daemon.start()
    answer = daemon.call("DELETE", f"{sh_sandbox.path}/task", timeout=60)
    assert answer.status in (200, 202, 204), answer
    state = sh_sandbox.finish(40)
    assert state["state"] == "failed" and "cancel" in state["error"].lower(), state
    harness.wait_for(lambda: sleeping() == {"3001"}, 10, "only what runs beside the task is left")
    assert sh_sandbox.sh(f"kill -0 {beside}")["exitCode"] == 0


def test_an_exec_whose_time_is_over_is_ended_with_all_it_started(sh_sandbox):
    """Also where no group can be made: in a pid namespace of its own."""
    beside = sh_sandbox.sh("setsid sleep 3021 >/dev/null 2>&1 & echo $!")["stdout"].strip()
    result = sh_sandbox.sh("trap '' TERM; (trap '' TERM; setsid sleep 3022) & sleep 3023", timeout_ms=300)
    assert result["exitCode"] == 124 and "300 ms were over" in result["stderr"], result

    def left():
        return sh_sandbox.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")["stdout"]
    harness.wait_for(lambda: "sleep 302" in left() and "3022" not in left() and "3023" not in left(), 10,
                     "what runs beside it is left alone")
    assert sh_sandbox.sh(f"kill -0 {beside}")["exitCode"] == 0
    assert sh_sandbox.sh("cat", stdin="read\n", timeout_ms=20_000)["stdout"] == "read\n"


def test_what_a_task_leaves_behind_outlives_it(sh_sandbox):
    assert sh_sandbox.clone().status == 200
    state = sh_sandbox.run_task("setsid sleep 3010 >/dev/null 2>&1 & echo done")
    assert state["state"] == "succeeded"
    left = sh_sandbox.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")["stdout"]
    assert "sleep 3010" in left
    assert sh_sandbox.run_task("echo again")["state"] == "succeeded"


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_task_outlives_the_daemon(daemon, sh_sandbox, how):
    assert sh_sandbox.clone().status == 200
    script = "echo begun; while [ ! -e go ]; do read -t 0.05 <> <(:); done; echo ended"
    assert sh_sandbox.start_task(script).status == 202
    boot_id = sh_sandbox.exec("/bin/cat", "/proc/sys/kernel/random/boot_id")["stdout"]
    getattr(daemon, how)()
    daemon.start()
    assert sh_sandbox.task()["state"] == "running"
    assert sh_sandbox.exec("/bin/cat", "/proc/sys/kernel/random/boot_id")["stdout"] == boot_id
    sh_sandbox.sh("touch /workspace/repo/go")
    assert sh_sandbox.finish()["state"] == "succeeded"
    assert daemon.get(f"{sh_sandbox.path}/task/log").body == b"begun\nended\n"


def test_the_next_daemon_ends_an_instance_that_does_not_answer(daemon, sh_sandbox):
    sh_sandbox.exec("/bin/true")
    init = sh_sandbox.init_pid()
    daemon.kill()
    os.kill(init, signal.SIGSTOP)
    daemon.start()
    harness.wait_for(lambda: not harness.is_program(init), 60, "the stopped init is killed")


def test_the_next_daemon_ends_an_instance_whose_socket_is_full(daemon, sh_sandbox):
    """As some daemons that were killed while it did not answer leave it."""
    sh_sandbox.exec("/bin/true")
    init = sh_sandbox.init_pid()
    daemon.kill()
    os.kill(init, signal.SIGSTOP)
    folder = os.open(daemon.state / "sandboxes" / sh_sandbox.name, os.O_PATH)
    waiting = []
    with pytest.raises(BlockingIOError):
        while len(waiting) < 100:
            waiting.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            waiting[-1].setblocking(False)
            waiting[-1].connect(f"/proc/self/fd/{folder}/init.sock")
    daemon.start()
    harness.wait_for(lambda: not harness.is_program(init), 20, "the stopped init is killed")
    for each in waiting:
        each.close()
    os.close(folder)
    assert sh_sandbox.exec("/bin/true")["exitCode"] == 0


def refuses(daemon):
    """Whether nobody listens on its socket any more."""
    try:
        harness.UnixConnection(daemon.socket, 10).connect()
    except ConnectionRefusedError:
        return True
    return False


def test_a_daemon_that_sees_other_pids_ends_what_the_former_one_left(make_user_daemon, image_tar):
    """Its record names a process that there is not: it would go on beside its successor."""
    daemon = make_user_daemon("single", default_agent="sh")
    daemon.cli("image", "import", "claude", image_tar, timeout=harness.patient(300))
    sandbox = daemon.sandbox("elsewhere")
    sandbox.exec("/bin/true")
    init = sandbox.init_pid()
    daemon.kill()
    plain = daemon.namespace.argv
    # The shell is the namespace's first process: one that changes its ids has no --kill-child.
    daemon.namespace.argv = lambda *command: [
        "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", "\"$@\"; exit $?", "sh",
        *plain(*command)]
    daemon.start()
    harness.wait_for(lambda: not harness.is_program(init), 20, "its init is ended")
    assert sandbox.exec("/bin/true")["exitCode"] == 0
    daemon.kill()  # unshare itself: the kernel ends what is in its namespace
    harness.wait_for(lambda: refuses(daemon), 20, "the end of the namespace")
    daemon.namespace.argv = plain
    daemon.close()


def test_an_instance_on_no_record_is_ended(daemon, sandbox):
    """A daemon that is killed between the start of an instance and the record of it."""
    sandbox.exec("/bin/true")
    init = sandbox.init_pid()
    daemon.kill()
    path = daemon.state / "sandboxes" / sandbox.name / "meta.json"
    meta = json.loads(path.read_text())
    assert meta.pop("lease")["pid"]
    path.write_text(json.dumps(meta))
    daemon.start()
    harness.wait_for(lambda: not harness.is_program(init), 20, "its init is ended")
    assert "on no record" in daemon.log()
    assert sandbox.exec("/bin/true")["exitCode"] == 0


def test_a_task_is_lost_when_its_init_died(daemon, sh_sandbox):
    assert sh_sandbox.clone().status == 200
    assert sh_sandbox.start_task("sleep 3030").status == 202
    os.kill(sh_sandbox.init_pid(), signal.SIGKILL)
    harness.wait_for(lambda: sh_sandbox.task()["state"] == "lost", 10, "lost")
    assert sh_sandbox.exec("/bin/cat", "/workspace/repo/README")["stdout"] == "Hello World!\n"


def test_a_stop_ends_all_and_keeps_the_files(daemon, sh_sandbox):
    assert sh_sandbox.clone().status == 200
    assert sh_sandbox.start_task("trap 'echo told; exit 3' TERM; echo up; sleep 3040 & wait").status == 202
    init = sh_sandbox.init_pid()
    harness.wait_for(lambda: daemon.get(f"{sh_sandbox.path}/task/log").body == b"up\n", 20, "the trap is set")
    assert daemon.post(f"{sh_sandbox.path}/stop", timeout=60).status in (200, 204)
    assert not harness.is_program(init)
    assert sh_sandbox.task()["state"] == "failed"
    assert b"told" in daemon.get(f"{sh_sandbox.path}/task/log").body
    assert sh_sandbox.exec("/bin/cat", "/workspace/repo/README")["exitCode"] == 0


def processes_of(daemon):
    """All that run as the daemon's user or as one of its subordinate ids: pid and command line."""
    first = daemon.user.first
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            uid = int(status_of(int(folder.name))["Uid"].split()[0])
            if uid == daemon.user.uid or (first and first <= uid < first + 65536):
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, KeyError, ProcessLookupError):
            continue
    return found


# Forked twice, in sessions of their own, deaf to all that can be ignored; one stops itself, one forks on.
HIDE = ("trap '' TERM HUP INT; for i in 1 2 3; do (setsid bash -c 'trap \"\" TERM HUP INT; "
        "(setsid sleep 3070 &) ; (setsid bash -c \"kill -STOP \\$\\$\" &); "
        "while :; do (:) & read -t 0.05 <> <(:); done' &); done; ")


@pytest.mark.parametrize("how", ["exec", "task"])
def test_a_stop_ends_whatever_hides(daemon, sh_sandbox, how):
    sh_sandbox.exec("/bin/true")
    before = set(processes_of(daemon))
    assert sh_sandbox.init_pid() in before
    if how == "task":
        assert sh_sandbox.clone().status == 200
        assert sh_sandbox.start_task(HIDE + "sleep 3071").status == 202
    else:
        assert sh_sandbox.sh(f"({HIDE}) >/dev/null 2>&1 </dev/null")["exitCode"] == 0
    harness.wait_for(lambda: sum(line.strip() == "sleep 3070" for line in processes_of(daemon).values()) == 3, 20,
                     "what hides")
    assert daemon.post(f"{sh_sandbox.path}/stop", timeout=60).status in (200, 204)
    left = {pid: line for pid, line in processes_of(daemon).items()
            if pid not in before or pid == sh_sandbox.init_pid()}
    assert not [line for line in left.values() if "sleep" in line or "bash" in line], left


def test_a_killed_daemon_leaves_its_instances_alone(daemon, sh_sandbox, image_tar):
    """Neither api nor egress nor a job over files, where no group is there to end them by."""
    sh_sandbox.exec("/bin/true")
    init = sh_sandbox.init_pid()

    def children():
        lines = processes_of(daemon)
        return {pid: lines[pid] for pid in harness.children_of(daemon.process.pid)
                if "paddock-init" not in lines.get(pid, "paddock-init")}
    with harness.subprocess.Popen([daemon.paddock, "image", "import", "cut-off", image_tar],
                                  stderr=harness.subprocess.DEVNULL,
                                  env={"PADDOCK_URL": f"unix:{daemon.socket}"}) as client:
        jail = harness.wait_for(lambda: [pid for pid, line in children().items() if "paddock-jail" in line],
                                20, "the job")
        os.kill(jail[0], signal.SIGSTOP)
        left = children()
        assert len(left) == 3, left
        daemon.kill()
        assert client.wait(harness.patient(20)) != 0
    harness.wait_for(lambda: not any(map(harness.is_program, left)), 10, "its other children end")
    assert harness.is_program(init)
    daemon.start()
    harness.wait_for(lambda: not [name for name in os.listdir(daemon.state / "images")
                                  if name.startswith(".build-")], 30, "what is half made is cleared away")


@pytest.mark.parametrize("program", ["paddock-api", "paddock-egress"])
def test_a_child_that_dies_is_started_again(daemon, sh_sandbox, program):
    sh_sandbox.exec("/bin/true")
    old = daemon.pid_of(program)
    os.kill(old, signal.SIGKILL)
    harness.wait_for(lambda: daemon.pid_of(program) not in (None, old), 20, "a new one")
    harness.wait_for(daemon.is_ready, 20, "ready")
    assert sh_sandbox.clone().status == 200


# ---------------------------------------------------------------------------- limits


def test_limits_without_control_groups(daemon, sandbox):
    """This suite's daemons may make no control group: the limits are those of setrlimit(2)."""
    assert "no control group can be made here" in daemon.log()
    answer = daemon.call("PUT", sandbox.path, {"limits": {"memory_mib": 256, "pids": 60}})
    assert answer.status in (200, 201, 204), answer
    for limits in ({"cpus": 0.5}, {"memory_mib": 256, "pids": 60, "cpus": 0.5}):
        refused = daemon.call("PUT", sandbox.path, {"limits": limits})
        assert refused.status == 409 and "limits.cpus cannot be held here" in refused.text, refused
        assert "Delegate=yes" in refused.text
    found = sandbox.sh("ulimit -Hd; ulimit -Hu")["stdout"].split()
    assert found == [str(256 * 1024), "60"]
    hog = sandbox.exec("/usr/bin/perl", "-e", "my $x = 'a' x 300_000_000; print 'had'")
    assert hog["exitCode"] != 0 and hog["stdout"] == "" and "memory" in hog["stderr"], hog
    bomb = sandbox.exec("/usr/bin/perl", "-e", "my @c; for (1..100) { my $p = fork; if (!defined $p) { "
                        "print \"refused $_: $!\\n\"; last } if (!$p) { sleep 60; exit } push @c, $p } "
                        "kill 9, @c")
    refused = re.fullmatch(r"refused (\d+): Resource temporarily unavailable\n", bomb["stdout"])
    assert refused and 50 < int(refused[1]) <= 60, bomb


def test_a_user_who_may_dump_no_core_has_sandboxes(make_user_daemon, image_tar):
    daemon = make_user_daemon("single", start=False)
    inner = daemon.namespace.argv
    daemon.namespace.argv = lambda *command: inner("prlimit", "--core=0:0", "--", *command)
    daemon.start()
    daemon.cli("image", "import", "claude", image_tar, timeout=harness.patient(300))
    limits = daemon.sandbox("no-core").exec("/bin/cat", "/proc/self/limits")["stdout"]
    assert "Max core file size        0                    0 " in limits, limits
    daemon.close()


# --------------------------------------------------------------- what a row can and cannot


DEB_CONTROL = "Package: probe\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x>\nDescription: x\n"
INSTALL = (f"mkdir -p /tmp/p/DEBIAN /tmp/p/usr/share/probe && printf '{DEB_CONTROL}' > "
           "/tmp/p/DEBIAN/control && echo hi > /tmp/p/usr/share/probe/file && "
           "chown -R 5:7 /tmp/p/usr/share/probe && dpkg-deb -b /tmp/p /tmp/p.deb && "
           "dpkg -i /tmp/p.deb && stat -c '%u %g' /usr/share/probe/file && "
           "mv /usr/share/doc /usr/share/doc2 && rm -r /usr/share/doc2/base-files && "
           "update-ca-certificates >/dev/null && echo y >> /etc/hosts").replace("\n", "\\n")


def test_packages_can_be_installed_with_subordinate_ids_alone(sandbox, row):
    if row == "subordinate":
        done = sandbox.sh(INSTALL, user="root")
        assert done["exitCode"] == 0 and "5 7" in done["stdout"].split("\n"), done
        sandbox.daemon.post(f"{sandbox.path}/stop")
        assert sandbox.exec("/bin/cat", "/usr/share/probe/file")["stdout"] == "hi\n"
        return
    answer = sandbox.daemon.post(f"{sandbox.path}/exec", {"argv": ["/bin/true"], "user": "root"})
    assert answer.status == 409 and "single id" in answer.text, answer
    # the cure, as far as it is the user's
    assert ("usermod --add-subuids" in answer.text) == (row == "single"), answer
    assert sandbox.sh("dpkg -i /nothing.deb")["exitCode"] != 0


def test_an_image_is_built_with_subordinate_ids_alone(daemon, row):
    if row == "subordinate":
        return  # test_host.py builds one
    result = daemon.cli("image", "build", "--rebuild", "claude", check=False)
    text = (result.stdout + result.stderr).decode()
    assert result.returncode != 0 and "single id" in text and "paddock image import" in text, text


def test_the_row_is_said(daemon, row):
    log = daemon.log()
    if row == "subordinate":
        assert f"{daemon.user.uid} with the 65536 subordinate ids from {daemon.user.first}" in log
    else:
        assert "with this one id" in log
    result = daemon.user.run(daemon.programs / "paddockd", "--config", daemon.folder / "config.json",
                             "--doctor", check=False)
    line = [line for line in result.stdout.decode().splitlines() if " user " in line][0]
    if row == "subordinate":
        assert line.startswith("ok") and str(daemon.user.first) in line, line
    else:
        assert line.startswith("warn") and "/etc/subuid" in line, line


def test_the_doctor_finds_nothing_that_fails(daemon):
    """It runs programs of ours as the daemon does: also as a user."""
    argv = daemon.namespace.argv(daemon.programs / "paddockd", "--config",
                                 daemon.folder / "config.json", "--doctor", "--json")
    result = harness.run(*[str(part) for part in argv], check=False)
    report = json.loads(result.stdout)
    failed = [finding for finding in report["findings"] if finding["level"] == "fail"]
    assert report["ok"] and not failed, failed
    ca = [finding["text"] for finding in report["findings"] if finding["name"] == "ca"]
    assert ca and ca[0].startswith("the CA is valid until"), ca


def test_a_state_of_another_row_is_refused(make_user_daemon, users):
    daemon = make_user_daemon("subordinate")
    daemon.close()
    first, users["subordinate"].first = users["subordinate"].first, None
    try:
        users["subordinate"].set_ranges()
        daemon.start(wait=False)
        assert daemon.process.wait(harness.patient(20)) == 1
    finally:
        users["subordinate"].first = first
        users["subordinate"].set_ranges()
    error = daemon.errors()[-1]
    assert "was made with subordinate ids" in error and "usermod --add-subuids" in error, error
    daemon.process = None


def test_user_namespaces_forbidden_is_refused_with_the_cure(make_user_daemon, folder):
    """F1. The limit of a user namespace of its own (user.max_user_namespaces) holds for what is below
    it; that of the machine is left alone."""
    daemon = make_user_daemon("unshare", start=False)
    script = "echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\""
    inner = daemon.namespace.argv
    daemon.namespace.argv = lambda *command: inner("sh", "-c", script, "sh", *command)
    daemon.start(wait=False)
    assert daemon.process.wait(harness.patient(20)) == 1
    error = daemon.errors()[-1]
    assert "user namespaces cannot be made here" in error, error
    assert "max_user_namespaces" in error, error
    daemon.process = None


# ---------------------------------------------------------------------------- the places


def test_default_places(make_user_daemon, users, namespace):
    """Without a configuration file all is below the user's XDG folders, and the command line finds it."""
    user = users["single"]
    daemon = make_user_daemon("single", start=False)
    runtime = daemon.folder / "runtime"
    runtime.mkdir(mode=0o700)
    os.chown(runtime, user.uid, user.gid)
    own = {"HOME": str(daemon.folder), "XDG_RUNTIME_DIR": str(runtime), "PATH": os.environ["PATH"]}
    below_state = daemon.folder / ".local/state/paddock/paddock.sock"
    for environment, where in ((own, runtime / "paddock/paddock.sock"),
                               ({**own, "XDG_RUNTIME_DIR": "/tmp"}, below_state),
                               ({k: v for k, v in own.items() if k != "XDG_RUNTIME_DIR"}, below_state)):
        with open(daemon.log_path, "ab") as log:
            process = harness.subprocess.Popen(
                namespace.argv(*user.argv(str(harness.BIN / "paddockd"))), env=environment,
                stdout=log, stderr=log, stdin=harness.subprocess.DEVNULL)
        try:
            harness.wait_for(where.exists, 20, f"{where} ({daemon.log()[-2000:]})")
            assert stat.S_IMODE((daemon.folder / ".local/state/paddock").stat().st_mode) == 0o700
            assert stat.S_IMODE(where.parent.stat().st_mode) == 0o700
            assert stat.S_IMODE(where.stat().st_mode) == 0o600
            # in the end it answers
            harness.wait_for(lambda: user.run(harness.BIN / "paddock", "ls", env=environment,
                                              check=False).returncode == 0, 20, "paddock ls")
        finally:
            process.terminate()
            assert process.wait(harness.patient(20)) == 0


def test_without_home_it_is_said(users, namespace):
    result = users["single"].run(harness.BIN / "paddockd", check=False, env={})
    assert result.returncode == 1 and b"HOME is not set" in result.stderr
