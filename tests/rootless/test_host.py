"""What of the host decides how a user's daemon runs: subordinate ids, control groups, namespaces."""
import json
import os
import pathlib
import re

import pytest

import harness
from filtered import killing_script
from harness import wait_for


@pytest.fixture
def group():
    """A group of a v2 tree that is a user's, as a service manager delegates one; removed in the end."""
    with open("/proc/self/mounts", encoding="ascii") as file:
        roots = [line.split()[1] for line in file if line.split()[2] == "cgroup2"]
    assert roots, "this machine has no cgroup2 mounted"
    path = pathlib.Path(roots[0]) / f"paddock-delegated-{os.getpid()}"
    path.mkdir()
    yield path
    for folder, _, _ in os.walk(path, topdown=False):
        wait_for(lambda folder=folder: not pathlib.Path(folder, "cgroup.procs").read_text(), 10,
                 f"{folder} is empty")
        os.rmdir(folder)


def delegate(path, user):
    for name in (".", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"):
        os.chown(path / name, user.uid, user.gid)


@pytest.mark.parametrize("row", ["subordinate", "single"])
def test_a_delegated_group_is_used(make_user_daemon, image_tar, group, row):
    daemon = make_user_daemon(row, default_agent="sh", start=False)
    delegate(group, daemon.user)
    plain = daemon.namespace.argv
    daemon.namespace.argv = lambda *command: [
        # a group whose processes are limited by controllers holds none itself, once the first has run
        "sh", "-c", f"into={group}/paddock-daemon; test -d $into || into={group}; "
        "echo $$ > $into/cgroup.procs && exec \"$@\"", "sh", *plain(*command)]
    daemon.start()
    assert "no control group can be made" not in daemon.log()
    daemon.cli("image", "import", "claude", image_tar, timeout=harness.patient(300))
    sandbox = daemon.sandbox("grouped")
    assert sandbox.clone().status == 200
    ours = group / daemon.cgroup_name() / sandbox.group_name()
    assert str(sandbox.init_pid()) in (ours / "init/cgroup.procs").read_text().split()
    assert str(daemon.process.pid) in (group / "paddock-daemon/cgroup.procs").read_text().split()
    assert sandbox.start_task("trap '' TERM; setsid sleep 3061 & sleep 3060; sleep 3060").status == 202
    wait_for(lambda: len((ours / "task/cgroup.procs").read_text().split()) == 3, 20, "the task's group")
    for how in ("kill", "stop"):  # the next one, started in the same group, goes on
        getattr(daemon, how)()
        daemon.start()
        assert sandbox.task()["state"] == "running"
    daemon.call("DELETE", f"{sandbox.path}/task", timeout=60)
    assert sandbox.finish(40)["state"] == "failed"
    wait_for(lambda: not (ours / "task").exists() or not (ours / "task/cgroup.procs").read_text(), 10,
             "all of the task is ended")
    assert sandbox.exec("/bin/true")["exitCode"] == 0
    daemon.close()


def test_root_of_a_namespace_with_a_range(make_user_daemon, users, image_tar):
    """uid 0 of a user namespace that maps more than itself has what a user with subordinate ids has,
    without newuidmap."""
    daemon = make_user_daemon("subordinate", default_agent="sh", start=False)
    plain = daemon.namespace.argv
    daemon.namespace.argv = lambda *command: plain(
        "unshare", "--map-root-user", "--map-auto", "--", *command)
    daemon.start()
    assert re.search(r"runs as uid 0 with the 6553[56] subordinate ids from 1 on", daemon.log())
    daemon.cli("image", "import", "claude", image_tar, timeout=harness.patient(300))
    sandbox = daemon.sandbox("inner")
    assert sandbox.clone().status == 200
    assert sandbox.run_task("id -u > n; test $(id -u) = 1000")["state"] == "succeeded"
    on_disk = os.stat(daemon.state / "sandboxes/inner/workspace/repo/n")
    assert on_disk.st_uid == users["subordinate"].first + 1000
    assert "diff --git a/n b/n" in sandbox.diff().text
    assert daemon.call("POST", f"{sandbox.path}/stop", timeout=60).status in (200, 204)
    daemon.stop()
    daemon.namespace.argv = plain  # the ids are the same, whoever mapped them
    daemon.start()
    assert sandbox.exec("/bin/cat", "/workspace/repo/n")["stdout"] == "1000\n"
    assert "diff --git a/n b/n" in sandbox.diff().text
    daemon.close()


def test_a_helper_that_is_killed_holds_up_nobody(make_user_daemon, image_tar):
    """As out of memory: while it writes the map of a sandbox's ids, whose first process is there already."""
    daemon = make_user_daemon("subordinate", default_agent="sh", start=False)
    plain = daemon.namespace.argv
    inside = ("unshare", "--map-root-user", "--map-auto", "--")
    daemon.namespace.argv = lambda *command: plain(*inside, *command)
    daemon.start()
    daemon.cli("image", "import", "claude", image_tar, timeout=harness.patient(300))
    size = len("0 1 65536\n")
    daemon.stop()
    daemon.namespace.argv = lambda *command: plain(
        *inside, "/usr/bin/python3", "-c", killing_script("write", size), *command)
    daemon.start()
    answer = daemon.post("/sandboxes/broken/exec", {"argv": ["/bin/true"]}, timeout=20)
    assert answer.status >= 500, answer
    assert "a process of our own broke off" in daemon.log()
    assert daemon.get("/sandboxes").status == 200
    daemon.stop()
    daemon.namespace.argv = lambda *command: plain(*inside, *command)
    daemon.close()


def with_subuid(daemon, lines):
    """The daemon is started where /etc/subuid and /etc/subgid have these lines."""
    path = daemon.folder / "subuid"
    path.write_text("".join(line + "\n" for line in lines))
    plain = daemon.namespace.argv
    daemon.namespace.argv = lambda *command: [
        "unshare", "--mount", "sh", "-c", f"mount --bind {path} /etc/subuid && mount --bind {path} "
        "/etc/subgid && exec \"$@\"", "sh", *plain(*command)]
    return plain


def test_odd_lines_of_subuid_are_passed_over(make_user_daemon, users):
    """A range with the user's own id would be no map at all (the kernel refuses it), and numbers with
    a sign are none."""
    user = users["subordinate"]
    daemon = make_user_daemon("subordinate", default_agent="sh", start=False)
    with_subuid(daemon, [f"{user.name}:{user.uid - 1}:65536", f"{user.name}:-1:65536", ":1:65536",
                         f"{user.name}:{user.first}:65536"])
    daemon.start()
    assert f"with the 65536 subordinate ids from {user.first} on" in daemon.log()
    assert "has ids of this range too" not in daemon.log()
    daemon.close()


def test_a_range_that_another_user_has_too_is_said(make_user_daemon, users):
    user, another = users["subordinate"], users["single"]
    daemon = make_user_daemon("subordinate", default_agent="sh", start=False)
    with_subuid(daemon, [f"{user.name}:{user.first}:65536", f"{another.name}:{user.first + 65535}:1"])
    daemon.start()
    assert f"{another.name} has ids of this range too" in daemon.log()
    argv = daemon.namespace.argv(daemon.programs / "paddockd", "--config",
                                 daemon.folder / "config.json", "--doctor", "--json")
    findings = json.loads(harness.run(*argv, check=False).stdout)["findings"]
    found = next(finding for finding in findings if finding["name"] == "user")
    assert found["level"] == "warn" and another.name in found["lost"], found
    daemon.close()


def test_the_range_is_that_of_the_host_inside_a_namespace_too(make_user_daemon, users):
    """Inside, every range begins at 1: what counts is who owns the files on disk."""
    user = users["subordinate"]
    daemon = make_user_daemon("subordinate", default_agent="sh", start=False)
    host = daemon.namespace.argv
    inside = ("unshare", "--map-root-user", "--map-auto", "--")
    daemon.namespace.argv = lambda *command: host(*inside, *command)
    daemon.start()
    daemon.stop()
    daemon.namespace.argv = host
    with_subuid(daemon, [f"{user.name}:{user.first + 100000}:65536"])
    other = daemon.namespace.argv
    daemon.namespace.argv = lambda *command: other(*inside, *command)
    daemon.start(wait=False)
    assert daemon.process.wait(20) == 1
    assert f"subordinate ids (from {user.first} on)" in daemon.errors()[-1], daemon.errors()
    daemon.process = None


def test_a_state_of_other_subordinate_ids_is_refused(make_user_daemon, users):
    """With other ids than its files have they could be neither read nor removed."""
    daemon = make_user_daemon("subordinate", default_agent="sh", start=False)
    first = users["subordinate"].first
    plain = with_subuid(daemon, [f"{users['subordinate'].name}:{first + 100000}:65536"])
    daemon.start()
    assert f"ids from {first + 100000} on" in daemon.log()
    daemon.stop()
    daemon.namespace.argv = plain
    daemon.start(wait=False)
    assert daemon.process.wait(20) == 1
    assert "was made with subordinate ids" in daemon.errors()[-1], daemon.errors()
    daemon.process = None


RECIPE = {"debian": {"suite": "bookworm", "packages": ["bash"]}}


@pytest.mark.slow
def test_an_image_is_built_with_subordinate_ids(folder, users, programs):
    """With the host's network, as the package client needs its registry; no sandbox is started."""
    user = users["subordinate"]
    here = folder / "builder"
    recipe = here / "images/tiny"
    recipe.mkdir(parents=True)
    (recipe / "build.json").write_text(json.dumps(RECIPE))

    class HostNetwork:
        argv = staticmethod(user.argv)

    os.chown(here, user.uid, user.gid)
    daemon = harness.Daemon(here, HostNetwork(), {"recipes_dir": str(here / "images"),
                                                  "policy": str(harness.ROOT / "policy/default.json")},
                            {"HOME": str(user.home)})
    daemon.programs = programs
    daemon.start()
    try:
        result = daemon.cli("image", "build", "tiny", check=False, timeout=900)
        assert result.returncode == 0, (result.stdout[-3000:], result.stderr[-3000:], daemon.log())
        root = daemon.state / "images/tiny/rootfs"
        assert os.stat(root / "bin/bash").st_uid == user.first
        assert os.stat(root / "home/agent").st_uid == user.first + 1000
        assert os.stat(root / "var/mail").st_gid == user.first + 8
        assert daemon.cli("image", "rm", "tiny").returncode == 0
        wait_for(lambda: not os.listdir(daemon.state / "trash"), 60, "the image is removed")
    finally:
        daemon.stop()
