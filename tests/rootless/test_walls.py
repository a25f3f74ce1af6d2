"""What another user of the machine can do to a user's daemon."""
import os
import socket

import pytest

import harness

REACH = """import os, socket, sys
for path in sys.argv[1:]:
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        print("connected to", path)
    except OSError:
        pass
    for folder, folders, files in os.walk(path):
        print("read", folder, folders, files)
    try:
        print("read", path, len(open(path, "rb").read()))
    except OSError:
        pass
"""


@pytest.fixture
def other(users, daemon):
    """The user whose daemon this is not."""
    return next(user for user in users.values() if user.uid != daemon.user.uid)


@pytest.mark.parametrize("in_group", [False, True])
def test_another_user_reaches_nothing(daemon, sandbox, other, in_group):
    """Not even one with the same primary group, as accounts of many machines have ("users")."""
    sandbox.exec("/bin/true")
    gid = daemon.user.gid if in_group else other.gid
    state = daemon.state
    paths = [daemon.folder / "paddock.sock", state, state / "ca.key", state / "ca.crt", state / "lock",
             state / "images", state / "common", state / "sandboxes" / sandbox.name / "init.sock",
             state / "sandboxes" / sandbox.name / "workspace", daemon.folder / "secrets"]
    assert all(path.exists() for path in paths)
    found = harness.run("setpriv", "--reuid", other.uid, "--regid", gid, "--clear-groups", "--",
                        "/usr/bin/python3", "-c", REACH, *paths)
    assert found.stdout == b"", found
    own = harness.run("setpriv", "--reuid", daemon.user.uid, "--regid", gid, "--clear-groups", "--",
                      "/usr/bin/python3", "-c", REACH, *paths)
    assert b"connected to" in own.stdout and b"ca.key" in own.stdout, "the attack itself works"


@pytest.mark.parametrize("place", ["XDG_RUNTIME_DIR", "XDG_STATE_HOME"])
def test_another_users_socket_is_not_talked_to(users, programs, folder, place):
    """One in a folder where all may write, as /tmp is: the token of the API would go to them."""
    shared = folder / f"shared-{place}"
    shared.mkdir()
    shared.chmod(0o1777)
    trap = shared / "paddock"
    trap.mkdir()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(trap / "paddock.sock"))
    listener.listen()
    listener.setblocking(False)
    for path in (trap, trap / "paddock.sock"):
        path.chmod(0o777)
        os.chown(path, users["subordinate"].uid, users["subordinate"].gid)
    single = users["single"]
    result = single.run(programs / "paddock", "ls", check=False, env={
        "HOME": str(single.home), place: str(shared), "PADDOCK_TOKEN": "secret"}, timeout=60)
    assert result.returncode != 0 and str(trap).encode() not in result.stderr, result
    with pytest.raises(BlockingIOError):
        listener.accept()
    listener.close()


def test_a_user_without_a_daemon_is_told_of_their_own(users, programs):
    single = users["single"]
    result = single.run(programs / "paddock", "ls", check=False, env={"HOME": str(single.home)})
    assert result.returncode != 0 and b"of your own with `paddockd`" in result.stderr, result
