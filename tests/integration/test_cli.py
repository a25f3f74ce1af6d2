"""The command line against a scripted daemon: what it asks, prints, and with what status it ends."""
import contextlib
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import threading

import pytest

import harness

from scripted_daemon import PADDOCK, ROOT, Daemon, paddock

pytestmark = pytest.mark.portable

TASK = "/sandboxes/a/task"
LOG = "/sandboxes/a/task/log?from=0&follow=1"
EVIL = "\x1b]0;owned\x07\u202e"


@pytest.fixture
def daemon(tmp_path):
    daemon = Daemon(tmp_path)
    yield daemon
    daemon.server.shutdown()
    daemon.server.server_close()


def event(**fields):
    return json.dumps(fields) + "\n"


def text(words):
    return event(type="assistant", message={"content": [{"type": "text", "text": words}]})


def test_run_follows_and_tells_the_outcome(daemon):
    daemon.on("POST", TASK, (202, {"state": "running"}))
    daemon.on("GET", LOG, (200, [text("working"), event(
        type="assistant", message={"content": [{"type": "tool_use", "name": "Bash",
                                                "input": {"command": "make"}}]})]))
    daemon.on("GET", TASK, (200, {"state": "succeeded", "result": "done"}))
    result = daemon.run("run", "a", "fix", "it")
    assert (result.returncode, result.stdout) == (0, b"working\n> Bash make\n")
    assert b"succeeded" in result.stderr
    assert daemon.asked[0][:3] == ("POST", TASK, b"fix it")


@pytest.mark.parametrize("state, status, says", [
    ({"state": "failed", "error": "claude exited with 3"}, 1, b"claude exited with 3"),
    ({"state": "failed", "error": "sh exited with 3: oops\n"}, 1, b"sh exited with 3: oops\n"),
    ({"state": "lost"}, 3, b"lost"),
    ({"state": "failed", "error": EVIL}, 1, b"\\x1b]0;owned\\x07\\u202e"),
])
def test_run_exit_status_tells_how_it_ended(daemon, state, status, says):
    daemon.on("POST", TASK, (202, {"state": "running"}))
    daemon.on("GET", LOG, (200, ["plain\n"]))
    daemon.on("GET", TASK, (200, state))
    result = daemon.run("run", "a", "x")
    assert result.returncode == status and says in result.stderr and b"\x1b" not in result.stderr
    assert not result.stderr.endswith(b"\n\n")


def test_run_goes_on_after_the_daemon_was_restarted(daemon):
    first, rest = text("one"), text("two")
    daemon.on("POST", TASK, (202, {"state": "running"}))
    daemon.on("GET", LOG, (200, [first, None]))
    daemon.on("GET", f"/sandboxes/a/task/log?from={len(first)}&follow=1", (200, [rest]))
    daemon.on("GET", TASK, (200, {"state": "succeeded", "result": "two"}))
    result = daemon.run("run", "a", "x")
    assert (result.returncode, result.stdout) == (0, b"one\ntwo\n")


def test_run_detached_and_from_standard_input(daemon):
    daemon.on("POST", TASK, (202, {"state": "running"}))
    result = daemon.run("run", "a", "-", "--detach", input="--long\nprompt é".encode())
    assert result.returncode == 0 and len(daemon.asked) == 1
    assert daemon.asked[0][2] == "--long\nprompt é".encode()
    result = daemon.run("run", "a", "-", "-d", input=b"x" * (128 * 1024))
    assert result.returncode == 2 and b"longer than 131071 bytes" in result.stderr


def test_run_refused(daemon):
    daemon.on("POST", TASK, (409, "A task is already running\n"))
    result = daemon.run("run", "a", "x")
    assert result.returncode == 1
    assert result.stderr == b"paddock: a: A task is already running\n"


def test_interrupt_leaves_the_task_running(daemon):
    held = threading.Event()
    daemon.on("POST", TASK, (202, {"state": "running"}))
    daemon.on("GET", LOG, (200, [text("begun"), held, text("never seen")]))
    process = subprocess.Popen([PADDOCK, "--url", f"unix:{daemon.socket}", "run", "a", "x"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=harness.patient(20))
    held.set()
    assert process.returncode == 130 and out == b"" and b"paddock cancel a" in error
    assert ("DELETE", TASK) not in [asked[:2] for asked in daemon.asked]


def events(*pairs):
    return [":\n\n", *(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in pairs)]


def test_exec_prints_as_it_comes_and_exits_as_the_program(daemon):
    path = "/sandboxes/a/exec"
    held = threading.Event()
    said = events(("stdout", {"text": "o\0ut\n"}), ("stderr", {"text": "err"}), ("exit", {"exitCode": 7}))
    daemon.on("POST", path, (200, [*said[:2], held, *said[2:]]))
    process = subprocess.Popen([harness.BIN / "paddock", "exec", "a", "--root", "--cwd", "/tmp", "--env", "A=1=2",
                                "--timeout", "2m", "--", "ls", "-la"], env={"PADDOCK_URL": daemon.url},
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"o\0ut\n"  # before the rest is sent
    held.set()
    assert process.communicate(timeout=harness.patient(20)) == (b"", b"err") and process.returncode == 7
    assert json.loads(daemon.asked[0][2]) == {"argv": ["ls", "-la"], "cwd": "/tmp", "user": "root", "env": {"A": "1=2"},
                                              "timeout_ms": 120000, "end_with_client": True}
    assert daemon.asked[0][3]["Accept"] == "text/event-stream"
    daemon.on("POST", path, (200, events(("exit", {"exitCode": 124, "error": "its time was over"}))))
    result = daemon.run("exec", "a", "ls")
    assert (result.returncode, result.stdout, result.stderr) == (124, b"", b"its time was over\n")
    daemon.on("POST", path, (200, [*said[:2], None]))
    result = daemon.run("exec", "a", "ls")
    assert result.returncode == 125 and result.stdout == b"o\0ut\n" and result.stderr
    daemon.on("POST", path, (200, said[:2]))
    result = daemon.run("exec", "a", "ls")
    assert result.returncode == 125 and b"what became of the program is not known" in result.stderr
    daemon.on("POST", path, (400, "argv[0] is not there\n"))
    result = daemon.run("exec", "a", "ls")
    assert result.returncode == 125 and b"argv[0] is not there" in result.stderr
    assert paddock("exec", "a", "ls", url=f"unix:{daemon.socket}-no").returncode == 125


def test_exec_tells_all_of_it_as_json(daemon):
    path = "/sandboxes/a/exec"
    daemon.on("POST", path, (200, {"exitCode": 7, "stdout": "out\n", "stderr": "err"}))
    result = daemon.run("exec", "a", "--json", "ls")
    assert result.returncode == 7 and json.loads(result.stdout)["stdout"] == "out\n"
    assert json.loads(daemon.asked[0][2]) == {"argv": ["ls"], "user": "agent"}
    for wrong in (("--timeout", "5"), ("--timeout", "0s"), ("--env", "A"), ("--env", "=1")):
        result = daemon.run("exec", "a", *wrong, "ls")
        assert result.returncode == 125 and wrong[1].encode() in result.stderr, result
    assert len(daemon.asked) == 1


def test_run_has_a_deadline(daemon):
    daemon.on("POST", TASK + "?deadline_ms=5400000", (202, {"state": "running"}))
    assert daemon.run("run", "a", "-d", "--timeout", "90m", "do it").returncode == 0
    assert daemon.run("run", "a", "-d", "--timeout", "90", "do it").returncode == 2


def test_clone(daemon):
    path = "/sandboxes/a/repository"
    daemon.on("POST", path, (200, {"exitCode": 0, "stdout": "", "stderr": "Cloning...\n"}))
    result = daemon.run("clone", "a", "https://github.com/o/r", "--ref", "main")
    assert (result.returncode, result.stderr) == (0, b"Cloning...\n")
    assert json.loads(daemon.asked[0][2]) == {"url": "https://github.com/o/r", "ref": "main"}
    daemon.on("POST", path, (502, {"exitCode": 128, "stdout": "", "stderr": "fatal: no\n"}))
    result = daemon.run("clone", "a", "https://github.com/o/r")
    assert result.returncode == 1 and b"fatal: no\n" in result.stderr and b"128" in result.stderr
    daemon.on("POST", path, (502, {"exitCode": 128, "stdout": "", "stderr":
        "fatal: destination path '/workspace/repo' already exists and is not an empty directory.\n"}))
    result = daemon.run("clone", "a", "https://github.com/o/r")
    assert result.returncode == 1 and b"a has a repository already" in result.stderr
    assert b"`paddock rm a`" in result.stderr
    daemon.on("POST", path, (400, "The URL is not allowed\n"))
    assert b"The URL is not allowed" in daemon.run("clone", "a", "x").stderr


def test_status_diff_log(daemon):
    daemon.on("GET", TASK, (200, {"state": "failed", "error": "why"}))
    assert daemon.run("status", "a").stdout == b"a: failed\nwhy\n"
    for arguments in (("status", "a", "--json"), ("--json", "status", "a")):
        assert json.loads(daemon.run(*arguments).stdout)["state"] == "failed"
    daemon.on("GET", TASK, (200, {"state": "none"}))
    assert daemon.run("status", "a").stdout == b"a: no task was started here\n"
    daemon.on("GET", "/sandboxes/a/diff", (200, b"diff \xff\x1b[m\n"))
    assert daemon.run("diff", "a").stdout == b"diff \xff\x1b[m\n"  # to a pipe: byte for byte
    daemon.on("GET", "/sandboxes/a/diff?against=v1%2E0%26x&renames=1", (200, b"renamed\n"))
    assert daemon.run("diff", "a", "--against", "v1.0&x", "--renames").stdout == b"renamed\n"
    daemon.on("GET", "/sandboxes/a/diff", (502, {"exitCode": 1, "stdout": "", "stderr": "no repo"}))
    result = daemon.run("diff", "a")
    assert result.returncode == 1 and result.stderr == b"paddock: a: no repo\n"
    daemon.on("GET", "/sandboxes/a/task/log?from=0", (200, [text("hello")]))
    assert daemon.run("log", "a").stdout == text("hello").encode()
    assert daemon.run("log", "--events", "a").stdout == b"hello\n"
    daemon.on("GET", "/sandboxes/a/task/log?from=0&stream=stderr", (200, ["oops\n"]))
    assert daemon.run("log", "a", "--stderr").stdout == b"oops\n"


def git(folder, *arguments, **options):
    return subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.test", *arguments],
                          cwd=folder, check=True, stdout=subprocess.PIPE, **options).stdout


PICTURE = bytes(reversed(range(256)))


@pytest.fixture
def work_tree(tmp_path):
    """A clone with a file of forty lines, and the text of a change of its line 20 and a new file."""
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    git(tree, "init", "-q")
    (tree / "file").write_text("".join(f"{i}\n" for i in range(40)))
    (tree / "sub" / "other").write_text("other\n")
    (tree / "picture").write_bytes(bytes(range(256)))
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "one")
    changed = (tree / "file").read_text().replace("20\n", "twenty\n")
    (tree / "file").write_text(changed)
    (tree / "new").write_text("new\n")
    (tree / "picture").write_bytes(PICTURE)
    git(tree, "add", "-AN")
    patch = git(tree, "diff", "--binary", "--full-index")
    git(tree, "rm", "-q", "--cached", "new")
    (tree / "new").unlink()
    git(tree, "checkout", "-q", ".")
    return tree, patch


def snapshot(tree):
    """Every file, git's own too; objects that nothing names are no change."""
    git(tree, "status")
    return {path: path.read_bytes() for path in tree.rglob("*")
            if path.is_file() and tree / ".git" / "objects" not in path.parents}


@pytest.mark.parametrize("below", [".", "sub"])
def test_apply(daemon, work_tree, below):
    tree, patch = work_tree
    daemon.on("GET", "/sandboxes/a/diff?binary=1", (200, patch))
    result = daemon.run("apply", "a", cwd=tree / below)
    assert result.returncode == 0, result
    assert "twenty\n" in (tree / "file").read_text() and (tree / "new").read_text() == "new\n"
    assert (tree / "picture").read_bytes() == PICTURE
    assert not git(tree, "diff", "--cached")


def test_apply_merges_where_the_tree_has_moved_on(daemon, work_tree):
    tree, patch = work_tree
    moved = (tree / "file").read_text().replace("18\n", "eighteen\n")
    (tree / "file").write_text(moved)
    git(tree, "commit", "-qam", "two")
    daemon.on("GET", "/sandboxes/a/diff?binary=1", (200, patch))
    result = daemon.run("apply", "a", cwd=tree)
    assert result.returncode == 0, result
    assert (tree / "file").read_text() == moved.replace("20\n", "twenty\n")
    assert (tree / "new").exists()


OUTSIDE = b"""diff --git a/%b b/%b
new file mode 100755
--- /dev/null
+++ b/%b
@@ -0,0 +1 @@
+evil
"""


@pytest.mark.parametrize("fault", ["conflict", "dirty", "outside", "hook", "cut", "502"])
def test_apply_changes_nothing_when_it_cannot_change_all(daemon, work_tree, fault):
    tree, patch = work_tree
    if fault in ("conflict", "dirty"):
        (tree / "file").write_text((tree / "file").read_text().replace("20\n", "zwanzig\n"))
    if fault == "conflict":
        git(tree, "commit", "-qam", "two")
    if fault in ("outside", "hook"):
        path = b"../evil" if fault == "outside" else b".git/hooks/post-checkout"
        patch += OUTSIDE % (path, path, path)
    answer = {"cut": (200, [patch, None]),
              "502": (502, {"exitCode": 128, "stdout": "", "stderr": "no repository"})}
    daemon.on("GET", "/sandboxes/a/diff?binary=1", answer.get(fault, (200, patch)))
    before = snapshot(tree)
    result = daemon.run("apply", "a", cwd=tree)
    assert result.returncode == (4 if fault == "cut" else 1), result
    says = {"cut": b"", "502": b"no repository"}.get(fault, b"nothing was changed")
    assert says in result.stderr and not result.stdout, result
    assert snapshot(tree) == before and not (tree.parent / "evil").exists()


def test_apply_wants_a_work_tree_and_something_to_apply(daemon, tmp_path, work_tree):
    daemon.on("GET", "/sandboxes/a/diff?binary=1", (200, ""))
    result = daemon.run("apply", "a", cwd=tmp_path)
    assert result.returncode == 1 and b"stand in a git work tree" in result.stderr, result
    assert not daemon.asked
    result = daemon.run("apply", "a", cwd=work_tree[0])
    assert result.returncode == 0 and b"nothing has changed" in result.stdout, result


def test_a_terminal_gets_no_escape_sequences(daemon):
    daemon.on("GET", "/sandboxes/a/diff", (200, f"+{EVIL}\n".encode() * 30000))
    daemon.on("GET", "/sandboxes/a/task/log?from=0", (200, [EVIL]))
    for verb in ("diff", "log"):
        master, slave = pty.openpty()
        process = subprocess.Popen([PADDOCK, "--url", f"unix:{daemon.socket}", verb, "a"],
                                   stdout=slave, stderr=slave, env={"NO_COLOR": "1", "TERM": "xterm"})
        os.close(slave)
        seen = b""
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:
                break
            seen += piece
        os.close(master)
        assert process.wait(harness.patient(20)) == 0
        assert b"\\x1b]0;owned\\x07\\u202e" in seen
        assert b"\x1b" not in seen and b"\x07" not in seen and "\u202e".encode() not in seen
        assert "\ufffd".encode() not in seen  # no character was cut in two


def test_policy_ls_tells_which_rules_are_inactive_and_what_is_refused(daemon):
    daemon.on("GET", "/policies", (200, json.dumps([
        {"name": "default", "default": True, "inForce": True, "rules": 2, "inactiveRules": 1,
         "hint": "rule github is inactive: why", "sandboxes": 1},
        {"name": "strict", "default": False, "inForce": True, "error": "strict.json:3:5: bad",
         "sandboxes": 0},
        {"name": "tutorial", "default": False, "inForce": True, "rules": 2, "sandboxes": 0}])))
    result = daemon.run("policy", "ls")
    assert len(result.stdout.splitlines()) == 4, result
    assert result.stderr == (b"default: rule github is inactive: why\n"
                             b"strict: strict.json:3:5: bad\n"), result


def test_lists(daemon):
    daemon.on("GET", "/sandboxes", (200, json.dumps([
        {"name": "agent-1", "state": "running", "task": "ended", "agent": "claude"},
        {"name": "b", "state": "stopped", "task": "none", "agent": "claude"}])))
    assert daemon.run("ls").stdout.decode().splitlines() == [
        "NAME     STATE    TASK   AGENT   CREATED (UTC)  LABELS",
        "agent-1  running  ended  claude  -              -",
        "b        stopped  none   claude  -              -"]
    assert len(json.loads(daemon.run("ls", "--json").stdout)) == 2
    daemon.on("GET", "/images", (200, json.dumps([
        {"name": "claude", "sizeBytes": 314572800, "built": 1780000000000, "stale": True,
         "usedBy": ["a", "b"]}])))
    assert "claude  300.0 MiB  2026-05-28 20:26  yes    -         -        a,b" in daemon.run("image", "ls").stdout.decode()
    daemon.on("GET", "/sandboxes", (200, "[]"))
    result = daemon.run("ls")
    assert result.returncode == 0 and result.stdout == b"" and b"paddock clone" in result.stderr


def test_stop_rm_cancel(daemon):
    daemon.on("POST", "/sandboxes/a/stop", (204, b""))
    daemon.on("DELETE", "/sandboxes/a", (204, b""))
    daemon.on("DELETE", TASK, (200, {"state": "failed", "error": "cancelled"}))
    for arguments in (("stop", "a"), ("cancel", "a"), ("rm", "a")):
        result = daemon.run(*arguments)
        assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
    result = daemon.run("rm", "missing", "a", "gone")
    assert result.returncode == 1
    assert b"missing: Not found" in result.stderr and b"gone: Not found" in result.stderr
    assert [asked[1] for asked in daemon.asked if asked[0] == "DELETE"][-3:] == [
        "/sandboxes/missing", "/sandboxes/a", "/sandboxes/gone"]


def test_image_build(daemon):
    daemon.on("POST", "/images", (200, ["step 1\n", "{not the end}\n", "step", ' 2\n{"exit',
                                        'Code":0}\n']))
    result = daemon.run("image", "build", "claude")
    assert (result.returncode, result.stdout) == (0, b"step 1\n{not the end}\nstep 2\n")
    assert json.loads(daemon.asked[0][2]) == {"name": "claude"}
    daemon.on("POST", "/images", (200, ["step 1\n", '{"exitCode":4,"error":"no network"}\n']))
    result = daemon.run("image", "build", "claude", "--rebuild")
    assert result.returncode == 1 and b"exit 4): no network" in result.stderr
    assert json.loads(daemon.asked[1][2]) == {"name": "claude", "rebuild": True}
    daemon.on("POST", "/images", (200, ["step 1\n"]))
    result = daemon.run("image", "build", "claude")
    assert result.returncode == 1 and b"without an outcome" in result.stderr


def test_no_daemon(tmp_path):
    nothing = tmp_path / "none.sock"
    result = paddock("ls", url=f"unix:{nothing}")
    assert result.returncode == 4 and b"paddockd --config" in result.stderr
    assert str(nothing).encode() in result.stderr
    stale = Daemon(tmp_path)
    stale.server.shutdown()
    stale.server.server_close()
    result = paddock("ls", url=f"unix:{stale.socket}")
    assert result.returncode == 4 and b"Connection refused" in result.stderr
    result = paddock("ls", url="ftp://x")
    assert result.returncode == 2 and b"unix:PATH" in result.stderr


def test_no_permission(daemon, tmp_path):
    assert os.geteuid() == 0, "only root can become somebody else"
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder != pathlib.Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    os.chmod(daemon.socket, 0o600)
    result = daemon.run("ls", user=65534, group=65534, extra_groups=[])
    assert result.returncode == 4 and b"no permission" in result.stderr


def test_token(daemon):
    daemon.on("GET", "/sandboxes", (401, "Unauthorized\n"))
    result = daemon.run("ls")
    assert result.returncode == 1
    assert b"set PADDOCK_TOKEN to one that `paddock token create` printed" in result.stderr
    daemon.run("ls", environment={"PADDOCK_TOKEN": "t0ken"})
    assert daemon.asked[1][3]["Authorization"] == "Bearer t0ken"
    assert "Authorization" not in daemon.asked[0][3]


def test_mistakes_are_told(daemon):
    for arguments, says in ((("statsu", "a"), b'did you mean "status"?'),
                            (("run", "a", "b", "--detatch"), b'did you mean "--detach"?'),
                            (("help", "statsu"), b'no verb "statsu": did you mean "status"?'),
                            (("help", "imgae", "build"), b'did you mean "image build"?'),
                            (("image", "biuld"), b'did you mean "image build"?'),
                            (("image",), b'needs a second word: "image build", "image import"'),
                            (("qqqq",), b'no verb "qqqq": see `paddock --help`'),
                            (("status", "A_B"), b"is not a name"), ((), b"paddock --help")):
        result = daemon.run(*arguments)
        assert result.returncode == 2 and says in result.stderr and result.stdout == b""
    assert daemon.asked == []


def test_a_500_tells_where_the_reason_is(daemon):
    daemon.on("POST", "/sandboxes/a/stop", (500, "Sandbox request failed"))
    result = daemon.run("stop", "a")
    assert result.returncode == 1 and b"a: the daemon could not do it" in result.stderr
    assert result.stderr.endswith(b"request=17\n")


def test_help_and_a_full_disk():
    result = paddock("--help")
    assert result.returncode == 0 and b"Exit status:" in result.stdout
    verbs = result.stdout.partition(b"Verbs:\n")[2].partition(b"\n\n")[0].splitlines()
    assert {line[16:17] for line in verbs} == {b" "} and not any(line[17:18] == b" " for line in verbs)
    with open("/dev/full", "w", encoding="ascii") as full:
        result = subprocess.run([PADDOCK, "--help"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert result.returncode == 1 and b"could not be written" in result.stderr


def test_policy_check(tmp_path):
    shipped = ROOT / "policy" / "default.json"
    result = paddock("policy", "check", shipped)
    assert result.returncode == 0
    assert b"ai-gateway: inactive" in result.stdout and b"github: active" in result.stdout
    token = tmp_path / "AI_GATEWAY_TOKEN"
    token.write_text("t0ken")
    token.chmod(0o600)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"secrets_dir": str(tmp_path), "vars": {
        "AI_GATEWAY_ACCOUNT_ID": "a"}}))
    result = paddock("policy", "check", shipped, "--config", config, "--var", "AI_GATEWAY_ID=b")
    assert result.stdout == b"ai-gateway: active\ngithub: active\n"
    token.chmod(0o640)
    result = paddock("policy", "check", shipped, "--config", config, "--var", "AI_GATEWAY_ID=b")
    assert b"ai-gateway: inactive: secret AI_GATEWAY_TOKEN cannot be used: its file" in result.stdout
    bad = tmp_path / "bad.json"
    bad.write_text('{"rules": [\n  {"hots": "a.test"}]}')
    result = paddock("policy", "check", bad)
    assert result.returncode == 1 and b"bad.json:2:12: unknown key" in result.stderr
    assert b'did you mean "host"?' in result.stderr


    bad.write_text('{"rules": [\n  {"hots": "a.test"}, {"host": "*"}]}')
    result = paddock("policy", "check", bad)
    assert result.returncode == 1 and b"3 problems" in result.stderr
    places = [line.split(b": ")[0].rpartition(b"/")[2] for line in result.stderr.splitlines()[:3]]
    assert places == [b"bad.json:2:12", b"bad.json:2:3", b"bad.json:2:32"]
    result = paddock("policy", "check", "--json", bad)
    assert len(json.loads(result.stdout)["problems"]) == 3
    bad.write_text('{"rules": [{"host": "a.test", "path": "b"}]}')
    assert b'1:39: a path begins with "/"' in paddock("policy", "check", bad).stderr
    (tmp_path / "more.json").write_text('{"include": ["none.json"]}')
    bad.write_text('{"include": ["more.json"]}')
    result = paddock("policy", "check", bad)
    assert str(tmp_path / "more.json:1:14: none.json").encode() in result.stderr


def explain(*arguments):
    result = paddock("policy", "explain", *arguments, environment={"HUB_TOKEN": "s3cret-value"})
    return result.returncode, (result.stdout + result.stderr).decode()


def test_policy_explain(tmp_path):
    policy = tmp_path / "p.json"
    policy.write_text(json.dumps({"rules": [
        {"name": "gw", "host": "gw.test", "path": "/v1", "upstream": "10.0.0.5:8443", "headers": {
            "remove": ["x-api-key"], "set": {"authorization": "Basic ${basic:u:HUB_TOKEN}"}}},
        {"name": "read", "host": "*.gw.test", "methods": ["GET"]},
        {"name": "hub", "host": "hub.test", "git": {"push": True, "branches": ["agent/*"]}},
        {"name": "none", "host": "none.test", "path": "/${NONE}"}]}))
    status, said = explain(policy, "POST", "https://GW.test/v1/../v1/x?q#f", "--header", "X-Api-Key: a",
                           "--header", "accept")
    assert status == 0 and "s3cret" not in said
    assert said.splitlines() == [
        'allowed by rule "gw"', "sent: POST /v1/x?q", "to: 10.0.0.5:8443, its certificate of a known CA",
        "headers removed: x-api-key", "headers set: authorization", "with secrets: HUB_TOKEN",
        "header X-Api-Key: removed", "header accept: kept"]
    for method, url, wanted in [
            ("POST", "https://gw.test/v1", "X-Original-URL through"),
            ("GET", "https://gw.test/v2", 'rule "gw" does not match: it is for /v1, or below it'),
            ("GET", "https://gw.test/v1/..%2fx", 'rule "gw" does not match: a server could take'),
            ("GET", "https://gw.test:444/v1", 'rule "gw" does not match: it is for port 443'),
            ("GET", "http://gw.test/v1", 'rule "gw" does not match: it is for HTTPS alone'),
            ("PUT", "https://a.gw.test/", 'rule "read" does not match: it is for other methods: GET'),
            ("GET", "https://hub.test/", "only git's smart HTTP"),
            ("GET", "https://none.test/", "inactive: rule none is inactive: variable NONE"),
            ("GET", "https://other.test/", "no rule names this host")]:
        status, said = explain(policy, method, url, "--header", "X-Original-URL")
        assert status == 1 and wanted in said, said
    fetch = "https://github.com/a/b/info/refs?service=git-upload-pack"
    for cloned, wanted in [("a/b", 0), ("a/c", 1)]:
        assert explain(ROOT / "policy/strict.json", "GET", fetch, "--cloned", cloned)[0] == wanted
    status, said = explain(policy, "POST", "https://hub.test/a/b/git-receive-pack", "--json")
    answer = json.loads(said)
    assert status == 0 and answer["branches"] == ["agent/*"] and answer["decision"] == "allowed"
    for url in ["ftp://a.test/", "https://127.0.0.1/", "https://a.test/../x"]:
        assert explain(policy, "GET", url)[0] == 2


def test_doctor_renders_findings(tmp_path):
    copy = tmp_path / "paddock"
    copy.write_bytes(PADDOCK.read_bytes())
    copy.chmod(0o755)
    fake = tmp_path / "paddockd"
    findings = {"ok": False, "findings": [
        {"name": "cgroups", "level": "ok", "text": "v2", "cure": ""},
        {"name": "user-namespaces", "level": "fail", "text": "forbidden " * 9,
         "lost": "all", "cure": "sysctl x=1"}]}
    fake.write_text(f"#!/bin/sh\ntest \"$*\" = \"--doctor --json\" && echo '{json.dumps(findings)}'\n"
                    "exit 1\n")
    fake.chmod(0o755)
    result = subprocess.run([copy, "doctor"], capture_output=True, check=False)
    assert result.returncode == 1
    assert result.stdout.decode().splitlines()[:5] == [
        "ok   cgroups         v2",
        "FAIL user-namespaces " + "forbidden " * 5 + "forbidden", " " * 21 + "forbidden " * 2 + "forbidden",
        " " * 21 + "lost: all", " " * 21 + "cure: sysctl x=1"]
    fake.write_text("#!/bin/sh\nexit 1\n")
    assert subprocess.run([copy, "doctor"], capture_output=True, check=False).returncode == 1


def test_a_mistyped_name_is_told_with_the_near_one(daemon):
    daemon.on("GET", "/sandboxes", (200, json.dumps([{"name": "agent-1"}, {"name": "zebra"}])))
    daemon.on("GET", "/images", (200, json.dumps([{"name": "claude"}])))
    daemon.on("GET", "/tokens", (200, json.dumps({"tokens": [{"id": "abcd1234"}]})))
    for arguments, says in ((("stop", "agnet-1"), "sandbox \"agnet-1\": did you mean \"agent-1\"?"),
                            (("exec", "agent-2", "ls"), "did you mean \"agent-1\"?"),
                            (("image", "rm", "cluade"), "image \"cluade\": did you mean \"claude\"?"),
                            (("image", "build", "claud"), "did you mean \"claude\"?"),
                            (("token", "rm", "abcd1243"), "did you mean \"abcd1234\"?")):
        result = daemon.run(*arguments)
        assert result.returncode in (1, 125) and says in result.stderr.decode(), result
    result = daemon.run("rm", "nothing-like-it", "zebar")
    assert b"nothing-like-it: Not found" in result.stderr and b'mean "zebra"?' in result.stderr
    # a sandbox that is not there has no repository; one that is there is not mistyped
    conflict = (409, "Clone a repository first\n")
    for name, says in (("zebar", b'did you mean "zebra"?'), ("zebra", b"zebra: Clone a repository")):
        daemon.on("POST", f"/sandboxes/{name}/task", conflict)
        daemon.on("GET", f"/sandboxes/{name}/diff", conflict)
        for arguments in (("run", name, "hello"), ("diff", name)):
            result = daemon.run(*arguments)
            assert result.returncode == 1 and says in result.stderr, result
    # the task of a sandbox that is not there is "none": it may be the next one's name
    daemon.on("GET", "/sandboxes/zebras/task", (200, {"state": "none"}))
    result = daemon.run("status", "zebras")
    assert result.returncode == 0 and b'did you mean "zebra"?' in result.stderr, result
    daemon.on("GET", "/sandboxes/zebra/task", (200, {"state": "none"}))
    assert daemon.run("status", "zebra").stderr == b""


def on_terminal(daemon, *arguments, status=0, **environment):
    master, slave = pty.openpty()
    process = subprocess.Popen([PADDOCK, "--url", f"unix:{daemon.socket}", *arguments],
                               stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    seen = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while piece := os.read(master, 65536):
            seen += piece
    os.close(master)
    assert process.wait(20) == status, seen
    return seen.replace(b"\r\n", b"\n")


def test_a_clone_tells_its_progress_on_a_terminal_alone(daemon):
    path = "/sandboxes/a/repository"
    end = {"exitCode": 0, "stdout": "", "stderr": "Cloning...\n"}
    daemon.on("POST", path + "?progress=1", (200, [
        "Cloning...\nReceiving objects:  1% (1/100)\r", 0.5,
        f"Receiving objects:  50% (50/100), 1.20 MiB | 600 KiB/s{EVIL}\r",
        "Receiving objects: 100% (100/100), done.\n", json.dumps(end) + "\n"]))
    seen = on_terminal(daemon, "clone", "a", "https://github.com/o/r", TERM="xterm").decode()
    # what is left is reckoned from the beginning of this phase
    assert re.search(r"\rReceiving objects:  50% \(50/100\), 1.20 MiB \| 600 KiB/s\\x1b\]0;owned\\x07", seen), seen
    assert seen.endswith("\r\x1b[KCloning...\n") and "exitCode" not in seen
    daemon.on("POST", path + "?progress=1", (200, [
        "Resolving deltas:  1% (1/4)\r", 1, "Resolving deltas:  50% (2/4)\r",
        json.dumps({**end, "exitCode": 128, "stderr": "fatal: no\n"}) + "\n"]))
    seen = on_terminal(daemon, "clone", "a", "https://github.com/o/r", status=1).decode()
    assert re.search(r"\rResolving deltas:  50% \(2/4\), [1-9]\d* s left\x1b\[K", seen), seen
    assert "fatal: no\n" in seen and "git clone failed (exit 128)" in seen
    daemon.on("POST", path + "?progress=1", (409, "A task is running"))
    assert "a: A task is running" in on_terminal(daemon, "clone", "a", "https://github.com/o/r", status=1).decode()
    daemon.asked.clear()
    daemon.on("POST", path, (200, end))
    assert daemon.run("clone", "a", "https://github.com/o/r").stderr == b"Cloning...\n"
    assert [asked[1] for asked in daemon.asked] == [path]


def test_a_build_tells_its_step_and_its_time_on_a_terminal_alone(daemon):
    log = ["==> [1/2] image a: 3 packages\nI: inst", 1.5, "alling\n",
           '==> [2/2] image a: last\n{"exitCode":0}\n']
    daemon.on("POST", "/images", (200, log))
    seen = on_terminal(daemon, "image", "build", "a", TERM="xterm").decode()
    assert re.search(r"image a: 3 packages\n.*I: installing\n.*\rstep 1 of 2, 0:0[1-9]\x1b\[K", seen, re.S), seen
    assert "exitCode" not in seen and seen.endswith("\r\x1b[K==> [2/2] image a: last\n"), seen
    result = daemon.run("image", "build", "a")
    assert result.stdout == b"==> [1/2] image a: 3 packages\nI: installing\n==> [2/2] image a: last\n"
    assert result.stderr == b""


def test_an_import_tells_its_rate_and_what_is_left_on_a_terminal_alone(daemon, tmp_path):
    (tmp_path / "tar").write_bytes(bytes(64 << 20))
    daemon.on("PUT", "/images/a", (201, {"sizeBytes": 0, "dropped": 0}))
    seen = on_terminal(daemon, "image", "import", "a", tmp_path / "tar").decode()
    assert re.search(r"\r\d+ MiB sent, \d+\.\d MiB/s(, \d+ s left)?\x1b\[K", seen), seen
    assert daemon.run("image", "import", "a", tmp_path / "tar").stderr == b""


def test_colours_are_for_terminals_alone(daemon):
    daemon.on("GET", "/sandboxes/a/diff", (200, ["diff --git a/f b/f\n@@ -1 +1", " @@\n-a\n+b\n c",
                                                 "\n", f"+{EVIL}\n"]))
    daemon.on("GET", "/sandboxes", (200, json.dumps([{"name": "x"}])))
    assert on_terminal(daemon, "diff", "a", TERM="xterm") == (
        b"\x1b[1mdiff --git a/f b/f\x1b[0m\n\x1b[36m@@ -1 +1 @@\x1b[0m\n\x1b[31m-a\x1b[0m\n"
        b"\x1b[32m+b\x1b[0m\n c\x1b[0m\n\x1b[32m+\\x1b]0;owned\\x07\\u202e\x1b[0m\n")
    assert on_terminal(daemon, "ls", TERM="xterm").startswith(b"\x1b[1mNAME")
    for environment in ({"TERM": "dumb"}, {}, {"TERM": "xterm", "NO_COLOR": "1"}):
        for verb in (("diff", "a"), ("ls",)):
            assert b"\x1b" not in on_terminal(daemon, *verb, **environment)
    assert b"\x1b[" not in daemon.run("ls", environment={"TERM": "xterm"}).stdout


def test_set_sends_what_it_changes_and_no_more(daemon):
    daemon.on("PATCH", "/sandboxes/a", (200, {"name": "a"}))
    result = daemon.run("set", "a", "--env", "A=1", "--env", "B-", "--env", "A=x=y", "--label", "l-", "--label", "l=",
                        "--memory", "0", "--cpus", "1.5", "--policy", "")
    assert result.returncode == 0, result
    method, path, body, headers = daemon.asked[0]
    assert (method, path) == ("PATCH", "/sandboxes/a")
    assert headers["Content-Type"] == "application/merge-patch+json"
    assert json.loads(body) == {"policy": None, "limits": {"memory_mib": None, "cpus": 1.5},
                                "env": {"A": "x=y", "B": None}, "labels": {"l": ""}}
    assert len(daemon.asked) == 1


def test_prune_takes_no_sandbox_by_its_age_when_nobody_knows_it(daemon):
    daemon.on("GET", "/sandboxes", (200, json.dumps([
        {"name": "old", "state": "stopped", "stopped": 1}, {"name": "unknown", "state": "stopped"}])))
    daemon.on("GET", "/images", (200, "[]"))
    said = json.loads(daemon.run("prune", "--older", "1h", "--dry-run", "--json").stdout)
    assert said["sandboxes"] == ["old"]
    assert json.loads(daemon.run("prune", "--dry-run", "--json").stdout)["sandboxes"] == ["old", "unknown"]
