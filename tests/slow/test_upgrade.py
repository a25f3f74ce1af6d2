"""An upgrade under running tasks: programs of another version, with other messages, whose sandboxes the
present daemon takes over. A second build is made, of the same sources with another IPC_VERSION."""
import os
import pathlib
import subprocess

import pytest

import harness

# Prints a line, waits for a file, asks through egress, prints another.
PROMPT = ("echo before; until [ -e /workspace/go ]; do sleep 0.1; done; "
          "git ls-remote https://github.com/octocat/Hello-World >/dev/null && echo after")


@pytest.fixture(scope="module")
def other_build(folder):
    build = folder / "other-version"
    for argv in (["meson", "setup", build, harness.ROOT, "-Dc_args=-DIPC_VERSION=1"],
                 ["ninja", "-C", build, *(f"src/main/{path.name}" for path in harness.BIN.iterdir()
                                          if path.name.startswith("paddock") and path.is_file())]):
        made = subprocess.run([str(part) for part in argv], stdout=subprocess.PIPE, check=False,
                              stderr=subprocess.STDOUT)
        assert made.returncode == 0, made.stdout[-3000:].decode()
    return build / "src/main"


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
