"""--json on every verb, over a Unix socket and over TCP with a token: what is printed is one JSON
document; errors are JSON too. And the tables behind it."""
import json
import os
import subprocess

import pytest

from scripted_daemon import ROOT, Daemon, paddock

pytestmark = pytest.mark.portable

TOKEN = "t0ken"
DIFF = "diff --git a/f b/f\nnew file mode 100644\n--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n"
# verb: (arguments, [(method, path, status, answer)], what is printed or a check of it)
VERBS = {
    "clone": (["clone", "a", "https://github.com/o/r"],
              [("POST", "/sandboxes/a/repository", 200, {"exitCode": 0, "stdout": "", "stderr": "x"})],
              {"exitCode": 0, "stdout": "", "stderr": "x"}),
    "run": (["run", "a", "x"],
            [("POST", "/sandboxes/a/task", 202, {"state": "running"}),
             ("GET", "/sandboxes/a/task/log?from=0&follow=1", 200, ["words\n"]),
             ("GET", "/sandboxes/a/task", 200, {"state": "succeeded", "result": "r"})],
            {"state": "succeeded", "result": "r"}),
    "create": (["create", "a", "--agent", "claude"],
               [("PUT", "/sandboxes/a", 201, {"name": "a"})], {"name": "a"}),
    "set": (["set", "a", "--cpus", "2"], [("PATCH", "/sandboxes/a", 200, {"name": "a"})],
            {"name": "a"}),
    "policy ls": (["policy", "ls"], [("GET", "/policies", 200, {"policies": []})],
                  {"policies": []}),
    "policy reload": (["policy", "reload"], [("POST", "/policies/reload", 200, {"policies": []})],
                      {"policies": []}),
    "df": (["df"], [("GET", "/df", 200, {"sandboxes": []})], {"sandboxes": []}),
    "prune": (["prune", "--dry-run"], [("GET", "/sandboxes", 200, "[]"), ("GET", "/images", 200, "[]")],
              lambda said: isinstance(said, dict) and said),
    "status": (["status", "a"], [("GET", "/sandboxes/a/task", 200, {"state": "none"})],
               {"state": "none"}),
    "log": (["log", "a"], [("GET", "/sandboxes/a/task/log?from=0", 200,
                            [b'one "\n\xc3', b"\xa9\xff\x1b"])],
            {"log": 'one "\né\ufffd\x1b'}),
    "diff": (["diff", "a"], [("GET", "/sandboxes/a/diff", 200, DIFF)], {"diff": DIFF}),
    "apply": (["apply", "a"], [("GET", "/sandboxes/a/diff?binary=1", 200, DIFF)], {"applied": True}),
    "cancel": (["cancel", "a"], [("DELETE", "/sandboxes/a/task", 200, {"state": "failed"})],
               {"state": "failed"}),
    "exec": (["exec", "a", "true"], [("POST", "/sandboxes/a/exec", 200,
                                      {"exitCode": 0, "stdout": "o", "stderr": "e"})],
             {"exitCode": 0, "stdout": "o", "stderr": "e"}),
    "egress": (["egress", "a"], [("GET", "/sandboxes/a/egress?limit=100", 200, '[{"host":"h","path":"/"}]')], [{"host": "h", "path": "/"}]),
    "ls": (["ls"], [("GET", "/sandboxes", 200, "[]")], []),
    "stop": (["stop", "a"], [("POST", "/sandboxes/a/stop", 204, "")], {}),
    "rm": (["rm", "a", "b"], [("POST", "/sandboxes/a/stop?wait=0", 204, ""),
                              ("POST", "/sandboxes/b/stop?wait=0", 204, ""),
                              ("DELETE", "/sandboxes/a", 204, ""),
                              ("DELETE", "/sandboxes/b", 204, "")], {}),
    "image build": (["image", "build", "i"],
                    [("POST", "/images", 200, ["step\n", '{"exitCode":0}\n'])], {"exitCode": 0}),
    "image import": (["image", "import", "i", str(ROOT / "README.md")],
                     [("PUT", "/images/i", 200, {"name": "i"})], lambda said: isinstance(said, dict)),
    "image ls": (["image", "ls"], [("GET", "/images", 200, '[{"name":"i"}]\n')], [{"name": "i"}]),
    "image import": (["image", "import", "i", str(ROOT / "README.md")],
                     [("PUT", "/images/i", 201, {"name": "i", "sizeBytes": 1, "dropped": 0})],
                     {"name": "i", "sizeBytes": 1, "dropped": 0}),
    "image prune": (["image", "prune", "--yes"],
                    [("GET", "/images", 200, '[{"name":"i"},{"name":"d","default":true}]'),
                     ("GET", "/sandboxes", 200, "[]"), ("DELETE", "/images/i", 204, "")],
                    {"images": ["i"], "removed": True}),
    "image rm": (["image", "rm", "i"], [("DELETE", "/images/i", 204, "")], {}),
    "token create": (["token", "create"], [("POST", "/tokens", 200, {"id": "1", "token": "t"})],
                     {"id": "1", "token": "t"}),
    "token ls": (["token", "ls"], [("GET", "/tokens", 200, "[]")], []),
    "token rm": (["token", "rm", "1"], [("DELETE", "/tokens/1", 204, "")], {}),
    "policy check": (["policy", "check", str(ROOT / "policy/tutorial.json")], [],
                     lambda said: {rule["name"]: rule["active"] for rule in said["rules"]}
                     == {"ai-gateway": False, "github": True}
                     and "AI_GATEWAY_ACCOUNT_ID" in said["rules"][0]["reason"]),
    "policy explain": (["policy", "explain", str(ROOT / "policy/default.json"), "GET",
                        "https://github.com/a/b/info/refs?service=git-upload-pack"], [],
                       lambda said: said["decision"] == "allowed" and said["rule"] == "github"),
    "doctor": (["doctor"], [("GET", "/healthz", 200, "{}")], lambda said: isinstance(said["ok"], bool) and said["findings"]),
    "help": (["help"], [], lambda said: said["verbs"] and said["options"] and said["exitStatuses"]),
    "version": (["version"], [], lambda said: said["version"][0].isdigit()),
}
WITHOUT = {"shell"}  # what it prints is the terminal's: it refuses --json, in JSON
LOCAL = {"policy check", "policy explain", "doctor", "help", "version"}  # ask no daemon


def tables():
    return json.loads(paddock("help", "--json").stdout)


def test_every_verb_is_tried_here():
    assert {verb["name"] for verb in tables()["verbs"]} == set(VERBS) | WITHOUT


@pytest.fixture(params=[None, TOKEN], ids=["unix", "tcp"])
def daemon(request, tmp_path):
    daemon = Daemon(tmp_path, token=request.param)
    yield daemon
    daemon.close()


@pytest.mark.parametrize("verb", VERBS)
def test_json(daemon, verb, tmp_path):
    arguments, script, wanted = VERBS[verb]
    for method, path, status, answer in script:
        daemon.on(method, path, (status, answer))
    subprocess.run(["git", "init", "-q", tmp_path / "tree"], check=True)
    options = {"cwd": tmp_path / "tree", "environment": {"PADDOCK_TOKEN": TOKEN}}
    result = daemon.run("--json", *arguments, **options)
    said = json.loads(result.stdout)
    assert wanted(said) if callable(wanted) else said == wanted
    assert result.returncode == 0 or verb == "doctor", result
    assert {asked[:2] for asked in daemon.asked} == {step[:2] for step in script}
    if verb in LOCAL:
        return
    assert not result.stderr or verb == "image build", result
    # and without the token, or the daemon: JSON on standard error, nothing on standard output
    result = daemon.run("--json", *arguments, cwd=tmp_path / "tree")
    if daemon.url.startswith("http"):
        error = json.loads(result.stderr)
        assert "PADDOCK_TOKEN" in error["error"] and result.stdout == b""
        assert error["exitStatus"] == result.returncode == (125 if verb == "exec" else 1)
    daemon.close()
    result = daemon.run("--json", *arguments, **options)
    error = json.loads(result.stderr)
    assert "no daemon" in error["error"] and result.stdout == b""
    assert error["exitStatus"] == result.returncode == (125 if verb == "exec" else 4)


@pytest.mark.parametrize("verb", sorted(set(VERBS) - {"doctor", "exec", "log"}))
def test_plain_output_has_no_escape_and_80_columns(daemon, verb, tmp_path):
    """Piped. A log and what a program prints are told byte for byte."""
    arguments, script, _wanted = VERBS[verb]
    for method, path, status, answer in script:
        daemon.on(method, path, (status, answer))
    subprocess.run(["git", "init", "-q", tmp_path / "tree"], check=True)
    result = daemon.run(*arguments, cwd=tmp_path / "tree", environment={"PADDOCK_TOKEN": TOKEN})
    assert result.returncode == 0, result
    for line in (result.stdout + result.stderr).decode(errors="replace").splitlines():
        assert len(line) <= 80 or verb == "policy check", line
        assert "\x1b[" not in line


def test_errors_are_json(daemon, tmp_path):
    environment = {"PADDOCK_TOKEN": TOKEN}
    for arguments, status, says in [
            (["statsu", "--json"], 2, 'did you mean "status"?'),
            (["--json", "status", "A"], 2, "is not a name"),
            (["--json", "rm", "a", "b"], 1, "a: Not found\nb: Not found"),
            (["exec", "--json", "a", "--", "ls"], 125, "Not found"),
            (["--json", "shell", "a"], 2, "neither --timeout nor --json"),
            (["--json", "exec", "-t", "a", "sh"], 2, "neither --timeout nor --json"),
            (["--json", "apply", "a"], 1, "stand in a git work tree"),
            (["--json", "policy", "check", "none.json"], 1, "none.json")]:
        result = daemon.run(*arguments, cwd=tmp_path, environment=environment)
        error = json.loads(result.stderr)
        assert result.stdout == b"" and says in error["error"], result
        assert error["exitStatus"] == result.returncode == status, result
    daemon.on("POST", "/sandboxes/a/repository", (502, {"exitCode": 128, "stderr": "\ud83d \x1b"}))
    result = daemon.run("--json", "clone", "a", "https://github.com/o/r", environment=environment)
    assert json.loads(result.stdout)["exitCode"] == 128
    assert json.loads(result.stderr)["exitStatus"] == result.returncode == 1


@pytest.mark.parametrize("answer", [[b"x", None], []])
def test_json_of_a_stream(daemon, answer):
    """An empty one is a whole document; one that breaks off is closed and told by the status."""
    daemon.on("GET", "/sandboxes/a/diff", (200, answer))
    result = daemon.run("diff", "a", "--json", environment={"PADDOCK_TOKEN": TOKEN})
    assert json.loads(result.stdout) == {"diff": "x" if answer else ""}
    assert result.returncode == (4 if answer else 0) and bool(result.stderr) == bool(answer)


def test_apply_uses_tmpdir(daemon, tmp_path):
    daemon.on("GET", "/sandboxes/a/diff?binary=1", (200, DIFF))
    environment = {"PADDOCK_TOKEN": TOKEN, "TMPDIR": str(tmp_path / "none")}
    result = daemon.run("apply", "a", environment=environment, cwd=tmp_path)
    assert result.returncode == 1 and b"temporary file" in result.stderr, result
    os.mkdir(tmp_path / "none")
    subprocess.run(["git", "init", "-q", tmp_path / "tree"], check=True)
    result = daemon.run("apply", "a", environment=environment, cwd=tmp_path / "tree")
    assert result.returncode == 0 and (tmp_path / "tree" / "f").read_text() == "x\n", result
    assert not list((tmp_path / "none").iterdir())


def test_exit_statuses_are_those_of_the_table():
    assert [entry["status"] for entry in tables()["exitStatuses"]] == [0, 1, 2, 3, 4, 125, 130]
    assert set(tables()["environment"]) >= {"PADDOCK_URL", "PADDOCK_TOKEN", "TMPDIR"}
