"""User namespaces are forbidden to users by Debian's sysctl, later to all: who may not make one is told
so, with the cause and the cure, and no daemon starts with weaker walls."""
import json
import os
import pathlib
import pwd
import subprocess

import pytest

import harness

CLONE = pathlib.Path("/proc/sys/kernel/unprivileged_userns_clone")
MAXIMUM = pathlib.Path("/proc/sys/user/max_user_namespaces")
USER = "paddock-vm-user"


@pytest.fixture(scope="module")
def user():
    harness.run("useradd", "--create-home", USER)
    yield pwd.getpwnam(USER)


@pytest.fixture
def no_namespaces():
    """Nobody may make one: not root either."""
    before = MAXIMUM.read_text()
    MAXIMUM.write_text("0")
    yield
    MAXIMUM.write_text(before)


def as_user(user, *argv):
    """The program as the user, with a home and a runtime folder; its end is awaited."""
    runtime = pathlib.Path(f"/run/user/{user.pw_uid}")
    runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chown(runtime, user.pw_uid, user.pw_gid)
    return subprocess.run(["setpriv", "--reuid", USER, "--regid", str(user.pw_gid), "--init-groups",
                           *map(str, argv)], check=False, capture_output=True, cwd=user.pw_dir,
                          timeout=harness.patient(30),
                          env={"PATH": os.environ["PATH"], "HOME": user.pw_dir, "LANG": "C.UTF-8",
                               "XDG_RUNTIME_DIR": str(runtime)})


def namespaces_of(result):
    findings = json.loads(result.stdout)["findings"]
    return next(finding for finding in findings if finding["name"] == "user-namespaces")


def test_the_user_may_make_no_namespace(user):
    assert CLONE.read_text() == "0\n"
    assert as_user(user, "unshare", "-U", "true").returncode != 0


def test_f1_the_daemon_of_a_user_refuses_to_start_and_says_the_cure(user):
    result = as_user(user, harness.BIN / "paddockd")
    text = result.stderr.decode()
    assert result.returncode not in (0, 124), text
    assert "user namespace" in text and "kernel.unprivileged_userns_clone" in text, text


def test_f1_doctor_tells_the_user_cause_and_cure(user):
    result = as_user(user, harness.BIN / "paddock", "doctor", "--json")
    finding = namespaces_of(result)
    assert result.returncode == 1 and finding["level"] == "fail", finding
    assert "kernel.unprivileged_userns_clone=1" in finding["cure"], finding


def test_root_may_and_its_sandboxes_work(sh_daemon, sh_sandbox):
    assert sh_sandbox.exec("/usr/bin/id", "-u")["stdout"] == "1000\n"
    result = harness.run(harness.BIN / "paddockd", "--config", sh_daemon.folder / "config.json",
                         "--doctor", "--json", check=False)
    assert namespaces_of(result)["level"] == "ok", result.stdout


def test_f1_where_root_may_not_either_its_daemon_refuses_too(make_daemon, no_namespaces):
    daemon = make_daemon(start=False)
    daemon.start(wait=False)
    assert daemon.process.wait(harness.patient(30)) != 0
    log = daemon.log()
    daemon.process = None  # there is nothing to close
    assert "user namespace" in log and "user.max_user_namespaces" in log, log
    result = harness.run(harness.BIN / "paddockd", "--config", daemon.folder / "config.json",
                         "--doctor", "--json", check=False)
    finding = namespaces_of(result)
    assert finding["level"] == "fail" and "user.max_user_namespaces=" in finding["cure"], finding
