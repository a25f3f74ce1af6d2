"""Bad input of the administrator and of the machine: each refusal is a message to go on with, nothing
half-made stays behind, and what was there before stays readable."""
import contextlib
import errno
import json
import os
import pathlib
import signal
import tempfile

import pytest

import harness

pytestmark = pytest.mark.portable


def start_refused(daemon):
    """Starts a daemon that must refuse to run; what it said."""
    daemon.start(wait=False)
    assert daemon.process.wait(harness.patient(20)) == 1, daemon.log()
    return daemon.log()


@pytest.fixture
def own_daemon(folder, namespace):
    """Daemons that the session's end must not start again, since they cannot run."""
    made = []

    def make(name, **config):
        daemon = harness.Daemon(folder / f"bad-{name}", namespace, config)
        made.append(daemon)
        return daemon

    yield make
    for daemon in made:
        daemon.stop()


# ------------------------------------------------------------------------------ configuration


@pytest.mark.parametrize("config, text", [
    ({"limts": {}}, "unknown key limts: did you mean limits?"),
    ({"limits": {"memory": 1}}, "unknown key limits.memory"),
    ({"policy": "default.json"}, "policy must be an absolute path"),
    ({"limits": {"pids": "many"}}, "limits.pids must be a whole number"),
    ({"upstream_proxy": "socks5://a:1"}, "upstream_proxy must be http://HOST:PORT"),
    ({"egress_processes": 2}, "egress_processes can only be 1 in this version"),
    ({"listen": ["tcp:0.0.0.0:7300"]}, "put a TLS proxy in front"),
])
def test_a_wrong_configuration_is_refused_with_its_place(own_daemon, config, text):
    daemon = own_daemon("config", **config)
    daemon.log_path.unlink(missing_ok=True)
    log = start_refused(daemon)
    assert text in log and f"{daemon.folder}/config.json:" in log, log
    assert not daemon.state.exists()


def test_a_configuration_that_is_no_json_is_refused_with_its_place(folder):
    path = folder / "broken.json"
    path.write_text('{\n  "state_dir": "/nowhere",,\n}\n')
    result = harness.run(harness.BIN / "paddockd", "--config", path, check=False)
    assert result.returncode == 1 and f"{path}:2:".encode() in result.stderr, result.stderr


def test_a_configuration_that_is_not_there_is_named():
    result = harness.run(harness.BIN / "paddockd", "--config", "/no/such.json", check=False)
    assert result.returncode == 1 and b"/no/such.json: No such file" in result.stderr


def test_an_agent_without_a_recipe_is_told(make_daemon):
    daemon = make_daemon(default_agent="nobody")
    answer = daemon.sandbox("no-recipe").clone()
    assert answer.status == 503 and "there is no agent nobody" in answer.text, answer
    assert daemon.get("/sandboxes/no-recipe").status == 404


def test_an_agent_whose_program_is_not_in_the_image_is_told(make_daemon):
    daemon = make_daemon(default_agent="broken", agents={"broken": {
        "image": "claude", "command": ["no-such-program", "${PROMPT}"], "outcome": "exit-code"}})
    sandbox = daemon.sandbox("no-program")
    harness.wait_for(lambda: "is in force" in daemon.log(), 20, "egress with its policy")
    assert sandbox.clone().status == 200
    answer = sandbox.start_task("go")
    assert answer.status == 503 and "The agent broken cannot be started" in answer.text, answer
    assert "no-such-program" in answer.text


# --------------------------------------------------------------------------------- the policy


@pytest.mark.parametrize("text, reason", [
    (None, "No such file"),
    ('{"rules": [{"hots": "example.org"}]}', 'unknown key "hots": did you mean "host"?'),
])
def test_without_a_policy_nothing_is_reached_and_the_reason_is_told(make_daemon, text, reason):
    daemon = make_daemon(default_agent="sh", start=False)
    with open(daemon.config["policy"], "w", encoding="utf-8") as file:
        file.write(text or "")
    if text is None:
        os.unlink(daemon.config["policy"])
    daemon.start()
    health = harness.wait_for(lambda: (h := daemon.get("/healthz").json)["hint"] and h, 20, "a hint")
    assert health["status"] == "degraded" and "no policy is in force" in health["hint"], health
    answer = daemon.sandbox("no-policy").clone()
    assert answer.status == 502 and "no policy is in force" in answer.json["stderr"], answer
    if text:
        assert reason in daemon.log() and reason in health["hint"], health


# --------------------------------------------------------------------------------- the daemon


def test_a_500_leads_to_its_reason_in_the_log(make_daemon):
    daemon = make_daemon(default_agent="sh")
    sandbox = daemon.sandbox("broken")
    assert sandbox.exec("/bin/true")["exitCode"] == 0
    assert daemon.post(f"{sandbox.path}/stop").status == 204
    workspace = daemon.state / "sandboxes/broken/workspace"
    workspace.rename(daemon.folder / "aside")
    answer = daemon.post(f"{sandbox.path}/exec", {"argv": ["/bin/true"]})
    assert (answer.status, answer.text) == (500, "Sandbox request failed")
    mark = f"request={answer.headers['x-request-id']} sandbox=broken "
    lines = [line for line in daemon.log().splitlines() if mark in line]
    assert lines and "workspace" in lines[-1], daemon.log()
    result = daemon.cli("exec", "broken", "true", check=False)
    number = result.stderr.split(b"request=")[1].strip().decode()
    assert result.returncode == 125 and f"request={number} sandbox=broken " in daemon.log()
    (daemon.folder / "aside").rename(workspace)
    assert sandbox.exec("/bin/true")["exitCode"] == 0


def lock(path):
    path.chmod(0o644)


def empty(path):
    path.write_text("\n")


def link(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def folder_instead(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("spoil, reason", [
    (os.unlink, "is not set: put it in a file of that name in secrets_dir (mode 0600)"),
    (lock, "cannot be used: its file in secrets_dir must belong to uid 0 and have mode 0600"),
    (empty, "cannot be used: it is empty"),
    (link, "cannot be used: cannot open AI_GATEWAY_TOKEN: Too many levels of symbolic links"),
    (folder_instead, "cannot be used: AI_GATEWAY_TOKEN is not a regular file"),
])
def test_a_secret_that_fails_is_named_to_the_request_and_to_the_task(make_daemon, folder, spoil, reason):
    secrets = pathlib.Path(tempfile.mkdtemp(prefix="secrets-", dir=folder))
    token = secrets / "AI_GATEWAY_TOKEN"
    token.write_text("demo-t0ken\n")
    token.chmod(0o600)
    daemon = make_daemon(secrets_dir=str(secrets), claude_env={"CLAUDE_CODE_MAX_RETRIES": "1"})
    sandbox = daemon.sandbox("secret")
    assert sandbox.clone().status == 200
    host = "gateway.ai.cloudflare.com"

    def ask():
        return sandbox.request(host, b"GET /v1/demo-account/default/x HTTP/1.1\r\nHost: %s\r\n"
                                     b"Connection: close\r\n\r\n" % host.encode()).decode()
    assert "inactive" not in ask()
    spoil(token)
    daemon.process.send_signal(signal.SIGHUP)
    text = f"rule ai-gateway is inactive: secret AI_GATEWAY_TOKEN {reason}"
    harness.wait_for(lambda: "inactive" in ask(), 10, "the policy read again")
    answer = ask()
    assert answer.startswith("HTTP/1.1 503 ") and text in answer, answer
    assert str(secrets) not in answer and "x-should-retry: false" in answer
    state = sandbox.run_task("Say hello", 90)
    assert state["state"] == "failed" and text in state["error"], state
    assert text in daemon.get("/healthz").json["hint"]


def test_the_sockets_group_is_that_of_its_setgid_folder(folder, own_daemon):
    place = folder / "socket-folder"
    place.mkdir()
    os.chown(place, 0, 54321)
    place.chmod(0o2750)
    daemon = own_daemon("group", listen=[f"unix:{place}/paddock.sock"])
    daemon.socket = place / "paddock.sock"
    for _ in range(2):  # and again after a restart
        daemon.start()
        there = daemon.socket.stat()
        assert (there.st_uid, there.st_gid, there.st_mode & 0o7777) == (0, 54321, 0o660)
        daemon.stop()


def test_two_daemons_share_neither_state_nor_socket(sh_daemon, own_daemon):
    log = start_refused(own_daemon("state", state_dir=str(sh_daemon.state)))
    assert "another paddockd works on" in log, log
    log = start_refused(own_daemon("socket", listen=[f"unix:{sh_daemon.socket}"]))
    assert f"unix:{sh_daemon.socket}: another daemon does" in log, log
    assert sh_daemon.get("/healthz").status == 200


@pytest.mark.parametrize("command", [["ls"], ["status", "a"], ["image", "ls"], ["run", "a", "b"],
                                     ["exec", "a", "true"]])
def test_the_command_line_without_a_daemon_says_what_to_do(folder, command):
    url = f"unix:{folder}/nobody.sock"
    result = harness.run(harness.BIN / "paddock", "--url", url, *command, check=False)
    assert result.returncode == (125 if command[0] == "exec" else 4), result
    assert f"no daemon at {folder}/nobody.sock".encode() in result.stderr
    assert b"start it with" in result.stderr and not result.stdout


def test_doctor_before_the_first_start_finds_nothing_wrong_with_the_state(folder, own_daemon):
    daemon = own_daemon("doctor", secrets_dir=str(folder))
    path = daemon.folder / "config.json"
    path.write_text(json.dumps(daemon.config))
    result = harness.run(harness.BIN / "paddock", "doctor", "--json", "--config", path, check=False)
    found = {f["name"]: f for f in json.loads(result.stdout)["findings"]}
    assert len(found) == len(json.loads(result.stdout)["findings"]), "each is told once"
    assert found["idmapped-mounts"]["level"] == "ok" and found["agent"]["level"] == "ok"
    assert found["image"]["cure"] == "paddock image build claude"
    assert not daemon.state.exists()
    assert "policy-prefixes" not in found
    path.write_text(json.dumps({**daemon.config, "policy_prefixes": {"a": "strict", "ci-": "nowhere"}}))
    result = harness.run(harness.BIN / "paddock", "doctor", "--json", "--config", path, check=False)
    found = {f["name"]: f for f in json.loads(result.stdout)["findings"]}["policy-prefixes"]
    assert result.returncode == 1 and found["level"] == "fail", found
    assert "policy_prefixes.ci-" in found["text"] and "nowhere.json cannot be read" in found["text"]


# ----------------------------------------------------------------------------- a full disk


@pytest.fixture
def small_daemon(make_daemon, image_store):
    """A daemon whose state is a small ext4; the images are bound into it."""
    daemon = make_daemon(default_agent="sh", start=False, floor={"disk_mib": 0})
    state = daemon.state
    harness.run("rm", "-rf", state)
    state.mkdir()
    with contextlib.ExitStack() as undo:
        def mount(*argv):
            harness.run("mount", *argv)
            # the kernel gives back the mounts of a jail that was killed a moment after its end
            undo.callback(harness.wait_for, lambda: not harness.run("umount", argv[-1], check=False)
                          .returncode, 10, f"umount {argv[-1]}")
        disk = daemon.folder / "disk"
        with open(disk, "wb") as file:
            file.truncate(24 << 20)
        harness.run("mke2fs", "-q", "-t", "ext4", "-b", "4096", "-m", "0", "-N", "6000", "-O",
                    "^has_journal", disk)
        mount("-o", "loop", disk, state)
        state.chmod(0o700)
        (state / "images").mkdir(mode=0o700)
        mount("--bind", image_store, state / "images")
        undo.callback(daemon.close)
        yield daemon.start()
    daemon.process = None


def fill(folder):
    with open(folder / "filler", "wb", buffering=0) as file:
        for size in (1 << 16, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)
    with pytest.raises(OSError) as error:
        (folder / "more").write_bytes(b"x" * 8192)
    assert error.value.errno == errno.ENOSPC
    (folder / "more").unlink()


def test_a_full_disk_leaves_the_old_state_readable_and_is_told(small_daemon):
    daemon, old = small_daemon, small_daemon.sandbox("old")
    assert old.clone().status == 200
    assert old.run_task("echo done; echo more >> README")["state"] == "succeeded"
    task, diff = old.task(), old.diff().body
    old_log = daemon.get(f"{old.path}/task/log").body
    fill(daemon.state)

    answer = daemon.sandbox("new").clone()
    assert answer.status == 503 and "is full: free some space" in answer.text, answer
    assert daemon.get("/sandboxes/new").status == 404
    assert not (daemon.state / "sandboxes/new").exists()
    for _ in range(2):
        assert [s["name"] for s in daemon.get("/sandboxes").json] == ["old"]
        assert (old.task(), old.diff().body) == (task, diff)
        assert daemon.get(f"{old.path}/task/log").body == old_log == b"done\n"
        daemon.stop()
        daemon.start()
    daemon.post(f"{old.path}/stop")
    result = daemon.cli("exec", "old", "true", check=False)
    assert result.returncode == 125 and b"is full: free some space" in result.stderr, result

    (daemon.state / "filler").unlink()
    assert old.sh("cat README", cwd="/workspace/repo")["stdout"].endswith("more\n")
    assert daemon.sandbox("new").clone().status == 200


def test_a_disk_that_is_full_only_when_written_to_is_told(small_daemon):
    """Without an inode free the check for room finds room: only the write fails."""
    daemon, old = small_daemon, small_daemon.sandbox("old")
    assert old.clone().status == 200
    filler = daemon.state / "filler"
    filler.mkdir()
    with pytest.raises(OSError) as error:
        for number in range(9000):
            (filler / str(number)).touch()
    assert error.value.errno == errno.ENOSPC and os.statvfs(daemon.state).f_bfree
    answers = [old.start_task("true"), daemon.sandbox("new").clone()]
    for answer in answers:
        assert answer.status == 503 and "No space left" in answer.text, answers
    assert [s["name"] for s in daemon.get("/sandboxes").json] == ["old"]
    harness.run("rm", "-rf", filler)
    assert old.run_task("echo again")["result"] == "again\n"


def test_a_task_that_fills_the_disk_is_told_as_it_ended(small_daemon):
    daemon, sandbox = small_daemon, small_daemon.sandbox("filler")
    assert sandbox.clone().status == 200
    state = sandbox.run_task("dd if=/dev/zero of=/workspace/filler bs=4096; : > more && printf %9999s > more; "
                             "echo full >&2; exit 7")
    with pytest.raises(OSError) as error:
        (daemon.state / "more").write_bytes(b"x" * 8192)
    assert error.value.errno == errno.ENOSPC, "the disk is not full: the test shows nothing"
    assert state["state"] == "failed" and "exited with 7" in state["error"], state
    daemon.stop()
    daemon.start()
    assert sandbox.task() == state
    daemon.post(f"{sandbox.path}/stop")
    daemon.stop()
    daemon.start()
    assert sandbox.task() == state
    assert (daemon.state / "sandboxes/filler/task/exit-code").read_text() == "7\n"
    answer = sandbox.start_task("true")
    assert answer.status == 503 and "is full: free some space" in answer.text, answer
    assert sandbox.task() == state


@pytest.mark.parametrize("what", ["disk_mib", "disk_files", "memory_mib"])
def test_below_a_floor_nothing_is_started_and_what_runs_goes_on(make_daemon, what):
    daemon = make_daemon(default_agent="sh")
    running = daemon.sandbox("running")
    assert running.exec("/bin/true")["exitCode"] == 0
    daemon.stop()
    daemon.config["floor"] = {what: 1 << 30}
    daemon.start()
    assert running.exec("/bin/echo", "on")["stdout"] == "on\n"
    answer = daemon.sandbox("new").clone()
    assert answer.status == 503 and f"(floor.{what})" in answer.text, answer
    assert "retry-after" in answer.headers
    assert daemon.get("/sandboxes/new").status == 404
    daemon.stop()
    daemon.config["floor"] = {what: 0}
    daemon.start()
    assert daemon.sandbox("new").exec("/bin/true")["exitCode"] == 0
    daemon.close()
