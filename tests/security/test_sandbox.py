"""What the agent, and root of the namespace, cannot do; and what they can."""
import contextlib
import os
import pathlib
import re
import resource
import signal
import subprocess
import time

import pytest

import harness

DAEMONS = ("paddock-api", "paddock-egress")


@pytest.fixture(scope="module")
def box(sh_daemon):
    sandbox = sh_daemon.sandbox("isolation")
    assert sandbox.clone().status == 200
    yield sandbox
    sandbox.remove()


def status_of(box, **more):
    text = box.exec("/bin/cat", "/proc/self/status", **more)["stdout"]
    return dict(re.findall(r"^(\w+):\s+(.*)$", text, re.M))


def test_the_agent_has_nothing(box):
    status = status_of(box)
    assert status["Uid"].split() == ["1000"] * 4 and status["Gid"].split() == ["1000"] * 4
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[kind], 16) == 0, kind


def test_root_of_the_namespace_has_the_short_table(box):
    status = status_of(box, user="root")
    assert status["Uid"].split() == ["0"] * 4 and status["NoNewPrivs"] == "1"
    bounding = int(status["CapBnd"], 16)
    for number, name in ((21, "SYS_ADMIN"), (19, "SYS_PTRACE"), (12, "NET_ADMIN"), (13, "NET_RAW"),
                         (16, "SYS_MODULE"), (27, "MKNOD"), (39, "BPF"), (2, "DAC_READ_SEARCH")):
        assert not bounding >> number & 1, name
    kernel = pathlib.Path(f"/proc/{box.init_pid()}/status").read_text()
    assert int(re.search(r"^Uid:\s+(\d+)", kernel, re.M).group(1)) >= 1879048192 + 65536


@pytest.mark.parametrize("user", ["agent", "root"])
@pytest.mark.parametrize("name, call", [
    ("unshare user", "$r = syscall(272, 0x10000000)"), ("unshare mount", "$r = syscall(272, 0x20000)"),
    ("clone user", "$r = syscall(56, 0x10000011, 0, 0, 0, 0)"), ("bpf", "$r = syscall(321, 0, 0, 0)"),
    ("io_uring_setup", "$r = syscall(425, 1, 0)"), ("userfaultfd", "$r = syscall(323, 0)"),
    ("perf_event_open", "$r = syscall(298, 0, 0, 0, 0, 0)"), ("keyctl", "$r = syscall(250, 0, 0)"),
    ("mount", '($a, $b, $c) = ("a", "/tmp", "tmpfs"); $r = syscall(165, $a, $b, $c, 0, 0)'),
    ("fsopen", '($a) = ("tmpfs"); $r = syscall(430, $a, 0)'),
    ("open_tree", '($a) = ("/"); $r = syscall(428, -100, $a, 1)'), ("setns", "$r = syscall(308, 0, 0)"),
    ("ptrace init", "$r = syscall(101, 16, 1, 0, 0)"), ("TIOCSTI", "$r = syscall(16, 0, 0x5412, 0)"),
    ("init_module", "$r = syscall(175, 0, 0, 0)"), ("reboot", "$r = syscall(169, 0, 0, 0, 0)")])
def test_dangerous_calls_are_refused(box, user, name, call):
    result = box.exec("/usr/bin/perl", "-e", f"{call}; exit($r == -1 ? $!+0 : 255)", user=user)
    assert result["exitCode"] in (1, 13, 38), (name, result)  # EPERM, EACCES, ENOSYS


def test_clone3_is_told_to_be_missing_so_that_flags_can_be_seen(box):
    result = box.exec("/usr/bin/perl", "-e", "syscall(435, 0, 0); exit $!+0")
    assert result["exitCode"] == 38


def test_the_view_of_the_file_system(box):
    mounts = box.exec("/bin/cat", "/proc/self/mounts")["stdout"]
    points = [line.split()[1] for line in mounts.splitlines()]
    assert "/sys" not in points and "/workspace" in points and "/workspace/task" in points
    task = next(line for line in mounts.splitlines() if " /workspace/task " in line)
    assert " ro," in task or " ro " in task
    for line in mounts.splitlines():
        if line.split()[1] in ("/", "/workspace", "/tmp", "/dev/shm"):
            assert "nosuid" in line and "nodev" in line, line
    assert box.sh("ls /sys 2>/dev/null | wc -l")["stdout"].strip() == "0"
    devices = set(box.sh("ls /dev")["stdout"].split())
    assert {"null", "zero", "full", "random", "urandom", "tty", "pts", "ptmx", "shm", "fd"} <= devices
    assert not devices & {"mem", "kmsg", "kvm", "vda", "fuse", "console"}


@pytest.mark.parametrize("path", ["/proc/kcore", "/proc/keys", "/proc/sysrq-trigger", "/proc/kallsyms",
                                  "/proc/timer_list", "/proc/sched_debug", "/proc/1/environ",
                                  "/proc/1/mem", "/proc/1/root/etc/passwd"])
@pytest.mark.parametrize("user", ["agent", "root"])
def test_proc_tells_nothing_of_the_host(box, path, user):
    assert box.sh(f"head -c 1 {path} | wc -c", user=user)["stdout"].strip() == "0"


@pytest.mark.parametrize("user", ["agent", "root"])
def test_sysctls_cannot_be_written(box, user):
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger",
                 "/proc/sys/net/ipv4/ip_forward", "/proc/sys/kernel/random/boot_id"):
        assert box.sh(f"echo 1 > {path}", user=user)["exitCode"] != 0, path


def test_every_start_has_a_fresh_boot_id_and_keeps_the_files(sh_daemon):
    box = sh_daemon.sandbox("boot-id")
    first = box.sh("touch /home/agent/kept /workspace/kept; cat /proc/sys/kernel/random/boot_id")["stdout"]
    assert re.fullmatch(r"[0-9a-f-]{36}\n", first)
    assert first != pathlib.Path("/proc/sys/kernel/random/boot_id").read_text()
    sh_daemon.post(f"{box.path}/stop")
    second = box.sh("ls /home/agent/kept /workspace/kept; cat /proc/sys/kernel/random/boot_id")["stdout"]
    assert second.startswith("/home/agent/kept\n/workspace/kept\n") and first not in second
    box.remove()


def test_no_descriptor_and_no_environment_of_the_daemon(box):
    listing = box.sh("ls -l /proc/self/fd | tail -n +2 | sed 's/.*[0-9] \\([0-9]* -> .*\\)/\\1/'")["stdout"]
    numbers = [int(line.split()[0]) for line in listing.splitlines()]
    assert max(numbers) <= 3, listing  # 3 is ls's own
    environment = box.exec("/usr/bin/env")["stdout"]
    names = {line.split("=")[0] for line in environment.splitlines()}
    assert {"NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "CURL_CA_BUNDLE", "SSL_CERT_FILE",
            "REQUESTS_CA_BUNDLE", "HOME", "PATH", "LANG", "TZ"} <= names
    assert not names & set(os.environ) - {"HOME", "PATH", "LANG", "TERM", "PWD", "SHLVL", "_", "OLDPWD",
                                         "USER", "TZ", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO",
                                         "CURL_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE",
                                         "PIP_CERT", "AWS_CA_BUNDLE", "SHELL", "LOGNAME", "NODE_OPTIONS",
                                         "HOSTNAME"}


def test_c5_our_ca_is_where_each_kind_of_program_looks(box):
    """tests/slow/test_toolchains.py tries them all; a start writes anew what was changed."""
    places = ("/etc/ssl/certs/ca-certificates.crt /usr/lib/ssl/cert.pem "
              "/usr/local/share/ca-certificates/paddock.crt")
    own = box.daemon.state.joinpath("ca.crt").read_text()
    for name in places.split():
        assert box.sh(f"cat {name}")["stdout"] == own, name
    java = box.sh("od -An -tx1 -N8 /etc/ssl/certs/java/cacerts && stat -c %a:%u /etc/ssl/certs/java/cacerts")
    assert java["stdout"].split() == "fe ed fe ed 00 00 00 02 644:0".split(), java


def test_d12_the_task_folder_is_out_of_reach(box):
    prompt = ("cd /workspace; mv task t2; rm -rf task; ln -s /etc task/x; echo 0 > task/exit-code; "
              "kill -9 1; kill -9 -1 2>/dev/null; : > /proc/self/fd/1; truncate -s0 task/stdout.log; "
              "mkfifo task/end.json; echo done; exit 5")
    state = box.run_task("trap '' KILL; (" + prompt + ")")
    assert state["state"] == "failed", state
    again = box.run_task("mv /workspace/task /workspace/t2; rm -rf /workspace/task; "
                         "mount -o remount,rw /workspace/task; echo 0 > /workspace/task/exit-code; "
                         "kill -9 1; echo real; exit 5")
    assert again["state"] == "failed" and "exited with 5" in again["error"], again
    assert box.daemon.get(f"{box.path}/task/log").text.endswith("real\n")


@pytest.mark.parametrize("user", ["agent", "root"])
def test_d12_what_the_agent_leaves_cannot_hang_or_lead_out(box, user):
    box.sh("cd /workspace && rm -rf evil && mkdir evil && mkfifo evil/fifo; ln -sf /etc/shadow evil/link; "
           "rm -rf /tmp/x; ln -s / /tmp/x", user=user)
    began = time.monotonic()
    assert box.diff().status == 200
    assert box.task()["state"] in ("none", "failed", "succeeded")
    assert box.daemon.get(f"{box.path}/task/log").status in (200, 404)
    assert time.monotonic() - began < harness.patient(20)


def test_e1_nothing_of_the_repositorys_configuration_runs(sh_daemon):
    box = sh_daemon.sandbox("e1")
    assert box.clone().status == 200
    mark = "/workspace/mark"
    script = f"""cd /workspace/repo; cat > /tmp/evil <<'X'
#!/bin/sh
touch {mark}
cat
X
chmod 755 /tmp/evil; cp /tmp/evil /workspace/evil
git config core.fsmonitor /workspace/evil; git config diff.external /workspace/evil
git config diff.d.textconv /workspace/evil; git config diff.d.command /workspace/evil
git config filter.f.clean /workspace/evil; git config filter.f.process /workspace/evil
git config core.hooksPath /workspace; git config include.path /workspace/inc
git config core.pager /workspace/evil; git config core.sshCommand /workspace/evil
printf '[core]\\n\\tfsmonitor = /workspace/evil\\n' > /workspace/inc
git config core.attributesFile /workspace/attr; echo '* diff=d filter=f' > /workspace/attr
echo '* diff=d filter=f' > .gitattributes; echo changed >> README; rm -f {mark}; rm -rf /tmp/evil"""
    assert box.sh(script)["exitCode"] == 0
    for query in ("", "?against=index", "?against=head", "?renames=1"):
        diff = box.diff(query)
        assert diff.status == 200 and "+changed" in diff.text, diff
    assert box.exec("/usr/bin/test", "-e", mark)["exitCode"] == 1
    box.remove()


def test_e2_links_are_shown_and_a_linked_git_folder_is_refused(sh_daemon):
    box = sh_daemon.sandbox("e2")
    assert box.clone().status == 200
    box.sh("cd /workspace/repo && ln -s /etc/shadow stolen")
    text = box.diff().text
    assert "new file mode 120000" in text and "+/etc/shadow\n\\ No newline at end of file\n" in text
    assert "root:" not in text
    box.sh("cd /workspace/repo && mv .git ../git && ln -s ../git .git")
    refused = box.diff()
    assert refused.status == 502 and refused.json["stderr"], refused
    box.remove()


def test_e5_a_repository_without_a_commit(sh_daemon, demo):
    import gitserver
    path = f"{demo.folder}/repositories/empty/none.git"
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        gitserver.git("init", "-q", "--bare", "-b", "master", path)
    box = sh_daemon.sandbox("e5")
    assert box.clone("https://github.com/empty/none").status == 200
    assert box.diff().status == 200 and box.diff().text == ""
    box.sh("echo new > /workspace/repo/f")
    assert "new file mode 100644" in box.diff().text and "+new" in box.diff().text
    box.remove()


def test_two_sandboxes_share_no_id_and_see_nothing_of_each_other(sh_daemon):
    first, second = (sh_daemon.sandbox(f"apart-{i}") for i in range(2))
    first.sh("sleep 300 >/dev/null 2>&1 & touch /tmp/secret /dev/shm/secret")
    uids = [re.search(r"^Uid:\s+(\d+)", pathlib.Path(f"/proc/{box.init_pid()}/status").read_text(), re.M)
            .group(1) for box in (first, second) if box.exec("/bin/true")]
    assert len(set(uids)) == 2
    seen = second.sh("ls /tmp /dev/shm; cat /proc/*/cmdline | tr '\\0' ' '")["stdout"]
    assert "secret" not in seen and "sleep 300" not in seen
    first.remove()
    second.remove()


def test_limits_hold(make_daemon):
    daemon = make_daemon(default_agent="sh", limits={"memory_mib": 64, "cpus": 1, "pids": 64})
    box = daemon.sandbox("limits")
    assert box.clone().status == 200
    state = box.run_task("perl -e '$x = \"a\" x (512 << 20); print length $x'; exit $?", 60)
    assert state["state"] == "failed", state
    forks = box.sh("for i in $(seq 200); do sleep 20 & done; wait")
    assert "fork" in forks["stderr"] or forks["exitCode"] != 0, forks
    assert daemon.sandbox("limits-other").exec("/bin/echo", "fine")["stdout"] == "fine\n"


def test_the_supervisor_has_one_thread(sh_daemon):
    status = pathlib.Path(f"/proc/{sh_daemon.process.pid}/status").read_text()
    assert re.search(r"^Threads:\s+1$", status, re.M)


def confined(daemon, program):
    """The pid of a child that has shut itself in."""
    pid = daemon.pid_of(program)
    harness.wait_for(lambda: "\nSeccomp:\t2" in pathlib.Path(f"/proc/{pid}/status").read_text(), 30, program)
    return pid


@pytest.mark.parametrize("offset, program", enumerate(DAEMONS, 1))
def test_the_daemons_that_read_foreign_bytes_have_no_authority(sh_daemon, program, offset):
    pid = confined(sh_daemon, program)
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    assert re.search(rf"^Uid:\s+{1879048192 + offset}\s", status, re.M)
    assert re.search(r"^Groups:\s*$", status, re.M)
    for kind in ("CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert re.search(rf"^{kind}:\s+0+$", status, re.M), kind
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.M)
    assert os.stat(f"/proc/{pid}/environ").st_uid == 0  # not dumpable: its files are root's
    assert pathlib.Path(f"/proc/{pid}/environ").read_bytes() == b""


def crash(pid, parent=None):
    """Ends a process as a failed assertion does, its core of any size where this machine's root may raise limits.
    Returns whether the kernel wrote one, by the status of the dead one, which its parent, stopped, does not bury."""
    with contextlib.suppress(PermissionError):
        resource.prlimit(pid, resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2)
    if parent:
        os.kill(parent, signal.SIGSTOP)
    try:
        os.kill(pid, signal.SIGABRT)

        def fields():
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        harness.wait_for(lambda: fields()[0] == "Z", 30, f"end of {pid}")
        status = int(fields()[-1])  # exit_code: proc(5)
    finally:
        if parent:
            os.kill(parent, signal.SIGCONT)
    assert os.WTERMSIG(status) == signal.SIGABRT, status
    return os.WCOREDUMP(status)


def test_c3_a_crash_of_a_daemon_leaves_no_core(make_daemon, box, tmp_path):
    with subprocess.Popen(["sleep", "1000"], cwd=tmp_path) as other:
        assert crash(other.pid), "this machine writes no core of anything"
    daemon = make_daemon(default_agent="sh")  # whose supervisor has started nothing yet, else it is undumpable anyway
    supervisor = daemon.process.pid
    children = [confined(daemon, program) for program in DAEMONS]
    for pid in (supervisor, box.init_pid(), *children):
        limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
        # 1 keeps them from a handler of the machine's too: core(5)
        assert re.search(r"^Max core file size +[01] +[01] ", limits, re.M), limits
    for pid in children:
        assert not crash(pid, supervisor)
    assert not crash(supervisor)


def test_state_is_for_its_owner_alone(sh_daemon):
    assert os.stat(sh_daemon.state).st_mode & 0o777 == 0o700
    assert os.stat(sh_daemon.state / "ca.key").st_mode & 0o777 == 0o600
    assert os.stat(sh_daemon.socket).st_mode & 0o007 == 0
    assert harness.run("openssl", "x509", "-in", sh_daemon.state / "ca.crt", "-noout").returncode == 0


def test_files_in_memory_leave_room_for_programs(make_daemon):
    daemon = make_daemon(default_agent="sh",
                         limits={"memory_mib": 256, "cpus": 2, "pids": 256})
    box = daemon.sandbox("memory-files")
    boot_id = box.exec("/bin/cat", "/proc/sys/kernel/random/boot_id")["stdout"]
    filled = box.sh("cat /dev/zero > /tmp/full; cat /dev/zero > /dev/shm/full; "
                    "stat -c %s /tmp/full /dev/shm/full")
    assert filled["stdout"].split() == [str(128 << 20), str(64 << 20)], filled
    assert filled["stderr"].count("No space left on device") == 2, filled
    assert box.exec("/usr/bin/perl", "-e", "print length('x' x (16 << 20))")["stdout"] == str(16 << 20)
    assert box.exec("/bin/cat", "/proc/sys/kernel/random/boot_id")["stdout"] == boot_id
