"""What the daemon does under systemd, without one: it tells its manager how it is doing, puts sandboxes
where the units say, and takes credentials from it. tests/vm/test_units.py has a real one."""
import os
import pathlib
import re
import signal
import socket
import subprocess

import pytest

import harness


@pytest.fixture
def manager(folder, request):
    """The manager's end of NOTIFY_SOCKET."""
    path = str(folder / f"notify-{request.node.name}")[:100]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(path)
        sock.settimeout(harness.patient(30))
        yield sock


def test_the_manager_is_told_of_start_reload_and_end(make_daemon, manager):
    daemon = make_daemon(environment={"NOTIFY_SOCKET": manager.getsockname()}, start=False)
    daemon.start(wait=False)
    assert manager.recv(200) == b"READY=1"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(daemon.socket))  # who waited for READY can connect
    assert manager.recv(200) == b"READY=1"  # the first policy
    daemon.process.send_signal(signal.SIGHUP)
    assert re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=\d+", manager.recv(200))
    assert manager.recv(200) == b"READY=1"
    pathlib.Path(daemon.config["policy"]).write_text("{ nonsense")
    daemon.process.send_signal(signal.SIGHUP)
    assert manager.recv(200).startswith(b"RELOADING=1\n")
    assert manager.recv(200) == b"READY=1"  # a bad policy ends the reload too
    daemon.stop()
    assert manager.recv(200) == b"STOPPING=1"


def test_the_abstract_name_of_a_manager_works(make_daemon, namespace):
    name = f"paddock-test-{os.getpid()}"
    sock = harness.in_namespace(namespace.fd, lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    with sock:
        sock.bind(f"\0{name}")
        sock.settimeout(harness.patient(30))
        daemon = make_daemon(environment={"NOTIFY_SOCKET": f"@{name}"})
        assert sock.recv(200) == b"READY=1"
        daemon.stop()


def v2_tree():
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return pathlib.Path(place)
    raise AssertionError("no cgroup2 file system is mounted")


@pytest.fixture
def unit_groups(daemon):
    """Groups as systemd makes them: of the daemon's unit, and of that for instances."""
    slice_group = v2_tree() / f"{daemon.cgroup_name()}.slice"  # a name of this test alone
    units = [slice_group / f"{name}.service" for name in ("paddock", "paddock-instances")]
    for unit in units:
        unit.mkdir(parents=True)
    yield units
    for unit in reversed(units):
        harness.wait_for(lambda unit=unit: "populated 0" in (unit / "cgroup.events").read_text(), 10,
                         f"the end of all in {unit.name}")
        unit.rmdir()
    slice_group.rmdir()


def group_of(pid):
    text = pathlib.Path(f"/proc/{pid}/cgroup").read_text()
    return re.search(r"^0::(.*)$", text, re.M)[1]


def test_sandboxes_live_in_the_unit_made_for_them(make_daemon, unit_groups):
    own, instances = unit_groups
    daemon = make_daemon(start=False)
    enter = f"echo 0 >{own}/cgroup.procs && exec \"$0\" \"$@\""
    outside = daemon.namespace
    daemon.namespace = type("InUnit", (), {"argv": staticmethod(
        lambda *command: outside.argv("/bin/sh", "-c", enter, *command))})
    daemon.start()
    try:
        sandbox = daemon.sandbox("unit")
        init = group_of(sandbox.init_pid())
        place = f"/{instances.relative_to(v2_tree())}/{daemon.cgroup_name()}/{sandbox.group_name()}/init"
        assert init == place
        assert group_of(daemon.process.pid) == f"/{own.relative_to(v2_tree())}"
        assert group_of(daemon.pid_of("paddock-egress")) == f"/{own.relative_to(v2_tree())}"
        daemon.stop()
        # api and egress end with their sockets, a moment after the supervisor
        harness.wait_for(lambda: not (own / "cgroup.procs").read_text(), 10,
                         "nothing stays in the daemon's unit")
        assert (instances / daemon.cgroup_name() / sandbox.group_name() / "init/cgroup.procs").read_text()
        daemon.start()  # it finds them there again
        assert sandbox.exec("/bin/true")["exitCode"] == 0
        assert group_of(sandbox.init_pid()) == place
    finally:
        daemon.close()
        daemon.namespace = outside
    assert [path.name for path in instances.iterdir() if path.is_dir()] == []


def test_a_secret_may_be_a_credential_of_systemd(make_daemon, folder, demo):
    credentials = folder / "credentials"
    credentials.mkdir()
    for secret in pathlib.Path(demo.secrets_dir).iterdir():
        (credentials / secret.name).write_bytes(secret.read_bytes())
        (credentials / secret.name).chmod(0o440)  # as systemd makes them
    daemon = make_daemon(secrets_dir=str(folder / "no-secrets"),
                         environment={"CREDENTIALS_DIRECTORY": str(credentials)})
    sandbox = daemon.sandbox("credential")
    assert sandbox.clone().status == 200
    assert sandbox.run_task("Say hello")["state"] == "succeeded", daemon.log()


@pytest.mark.parametrize("kind", ["system", "user"])
def test_systemd_finds_nothing_wrong_with_the_units(folder, kind):
    stage = folder / f"units-{kind}"
    harness.run("meson", "install", "-C", harness.BUILD, "--no-rebuild", "--quiet",
                env={**os.environ, "DESTDIR": str(stage)})
    units = sorted((stage / f"usr/local/lib/systemd/{kind}").iterdir())
    assert [unit.name for unit in units] == ["paddock-instances.service", "paddock.service"]
    for unit in units:  # what it names is not installed on this machine
        unit.write_text(unit.read_text().replace("/usr/local/", f"{stage}/usr/local/"))
    option = ["--user"] if kind == "user" else []
    verify = subprocess.run(["systemd-analyze", "verify", "--man=no", *option, *units],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                            env={**os.environ, "XDG_RUNTIME_DIR": str(stage)})
    assert (verify.returncode, verify.stdout) == (0, b"")
    text = "\n".join(unit.read_text() for unit in units)
    # with these a sandbox cannot mount its /proc, or gains no namespace
    assert not re.search(r"^(Protect|Restrict|ProcSubset|NoNewPrivileges|PrivateUsers|SystemCall)", text,
                         re.M)


def test_a_daemon_that_may_dump_no_core_starts_sandboxes(make_daemon):
    """0 is what a unit with LimitCORE=0 has; 1 is what keeps cores from the host's handler too, where
    root may raise it (CAP_SYS_RESOURCE)."""
    may_raise = harness.run("prlimit", "--core=0:0", "prlimit", "--core=1:1", "true",
                            check=False).returncode == 0
    daemon = make_daemon(start=False)
    outside = daemon.namespace
    daemon.namespace = type("NoCore", (), {"argv": staticmethod(
        lambda *command: outside.argv("prlimit", "--core=0:0", "--", *command))})
    daemon.start()
    sandbox = daemon.sandbox("no-core")
    limits = sandbox.exec("/bin/cat", "/proc/self/limits")["stdout"]
    assert re.search(rf"^Max core file size +{may_raise:d} +{may_raise:d} ", limits, re.M), limits
    sandbox.remove()
