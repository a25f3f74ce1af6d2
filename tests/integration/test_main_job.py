"""The main job, end to end, with the real Claude Code: clone, task, poll, diff."""
import json
import os
import socket

import pytest

import harness

from harness import HELLO

PROMPT = "Add a file NOTES.md with a one-sentence summary of this repository. Do not commit."
DIFF = """diff --git a/NOTES.md b/NOTES.md
new file mode 100644
index 0000000..95da11e
--- /dev/null
+++ b/NOTES.md
@@ -0,0 +1 @@
+This repository is a minimal test/example repo containing only a "Hello World!" README file.
"""
BAD_URL = 'Send {"url": "https://github.com/OWNER/REPOSITORY"}'
BAD_NAME = ("The sandbox name must be 1-63 lowercase letters, digits, or hyphens, with no hyphen at "
            "either end")


def test_clone_task_poll_diff(daemon, sandbox, demo):
    before = len(demo.record("gateway"))
    clone = sandbox.clone()
    assert clone.status == 200, clone
    assert clone.json == {"exitCode": 0, "stdout": "",
                          "stderr": "Cloning into '/workspace/repo'...\n"}
    assert sandbox.task() == {"state": "none"}
    assert sandbox.exec("/usr/local/bin/claude", "--version")["stdout"] == "2.1.280 (Claude Code)\n"

    started = sandbox.start_task(PROMPT)
    assert (started.status, started.json) == (202, {"state": "running"})
    again = sandbox.start_task(PROMPT)
    assert (again.status, again.text) == (409, "A task is already running")

    state = sandbox.finish(60)
    assert state["state"] == "succeeded", state
    assert state["result"] == (
        "Created `NOTES.md` with a one-sentence summary. Left uncommitted as requested.")
    diff = sandbox.diff()
    assert diff.status == 200 and diff.headers["content-type"].startswith("text/plain")
    assert diff.text == DIFF

    calls = demo.record("gateway")[before:]
    assert len(calls) >= 2
    asked = sum(call["method"] == "POST" for call in calls)
    usage = state["usage"]
    assert usage["requests"] >= asked and usage["unread"] == 0, usage
    assert (usage["input_tokens"], usage["output_tokens"]) == (100 * asked, 20 * asked), (usage, asked)
    assert usage["model"].startswith("claude-") and usage["cache_read_tokens"] == 0, usage
    assert daemon.get(sandbox.path).json["usage"]["output_tokens"] == 20 * asked
    shown = daemon.cli("status", sandbox.name).stdout.decode()
    assert f"requests to {usage['model']}: {100 * asked} tokens in" in shown, shown
    for call in calls:
        assert call["headers"]["user-agent"].startswith("claude-cli/2.1.280 ")
        assert call["headers"]["cf-aig-authorization"].startswith("Bearer demo-")
        assert "x-api-key" not in call["headers"]


def test_a_spent_budget_fails_the_task_and_says_so(daemon, sandbox):
    assert sandbox.clone().status == 200
    answer = daemon.call("PATCH", sandbox.path, {"budget": {"output_tokens": 20}})
    assert answer.status == 200 and answer.json["budget"] == {"output_tokens": 20}, answer
    state = sandbox.run_task(PROMPT)
    assert state["state"] == "failed" and state["usage"]["output_tokens"] == 20, state
    assert f"The budget of {sandbox.name} is spent: 20 of 20 output tokens were used" in state["error"], state
    lines = daemon.get(f"{sandbox.path}/egress").json
    assert lines[-1]["status"] == 402 and lines[-1]["task"] == 1, lines[-1]


def test_a_clone_tells_gits_progress_when_asked(sandbox):
    answer = sandbox.daemon.post(f"{sandbox.path}/repository?progress=1", {"url": HELLO})
    told, _, last = answer.text.rstrip("\n").rpartition("\n")
    assert answer.status == 200 and "Receiving objects: 100%" in told and "\r" in told, told
    end = json.loads(last)
    assert end["exitCode"] == 0 and end["stderr"].startswith("Cloning into '/workspace/repo'...\n")
    assert "\r" not in end["stderr"] and ", done.\n" in end["stderr"]
    # an error of git is told in the last line too, after the status
    answer = sandbox.daemon.post(f"{sandbox.path}/repository?progress=1", {"url": HELLO})
    end = json.loads(answer.text.rstrip("\n").rpartition("\n")[2])
    assert answer.status == 200 and end["exitCode"] == 128 and "already exists" in end["stderr"]


def test_the_agent_is_an_ordinary_user_with_a_git_identity(sandbox):
    assert sandbox.sh("id -u; id -g; id -G; echo $HOME; pwd", cwd="/workspace")["stdout"] == (
        "1000\n1000\n1000\n/home/agent\n/workspace\n")
    made = sandbox.sh("cd /tmp && git init -q r && cd r && echo x > f && git add f && "
                      "git commit -qm m && git log -1 --format='%an <%ae>'")
    assert made["exitCode"] == 0 and "@" in made["stdout"], made


@pytest.mark.parametrize("name", ["", "a/b", "A", "-a", "a-", "..", "%2e%2e", "a" * 64, "a" * 108,
                                  "%C3%A9", "a_b", "a.b"])
def test_names_are_refused_as_the_pattern_says(daemon, name):
    answer = daemon.get(f"/sandboxes/{name}/task")
    if name in ("", "a/b"):
        assert (answer.status, answer.text) == (404, "Not found")
    else:
        assert (answer.status, answer.text) == (400, BAD_NAME)


def test_a_name_of_raw_utf8_is_no_name(daemon):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(daemon.socket))
        client.sendall("GET /sandboxes/é/task HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        assert harness.read_all(client).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("name", ["a", "0", "a--b", "a" * 63])
def test_names_are_accepted_as_the_pattern_says(daemon, name):
    sandbox = daemon.sandbox(name)
    try:
        assert sandbox.exec("/bin/echo", "hi") == {"exitCode": 0, "stdout": "hi\n", "stderr": ""}
        assert sandbox.exec("/bin/cat", "/etc/hostname")["stdout"].strip() == name
    finally:
        assert sandbox.remove().status in (200, 204)


def test_an_unknown_name_is_none_and_nothing_is_made(daemon):
    sandbox = daemon.sandbox("never-made")
    assert sandbox.task() == {"state": "none"}
    diff = sandbox.diff()
    assert diff.status == 502 and diff.json["exitCode"] != 0 and diff.json["stderr"]
    assert daemon.get("/sandboxes/never-made").status == 404
    assert not os.path.exists(daemon.state / "sandboxes" / "never-made")


@pytest.mark.parametrize("body", [
    "", "{", "[]", "{}", '{"url": 1}', '{"url": "https://github.com/a/b", "ref": 1}',
    '{"url": "https://github.com/a/b", "ref": ""}',
    *(json.dumps({"url": url}) for url in (
        "http://github.com/octocat/Hello-World", "git://github.com/octocat/Hello-World",
        "https://user:secret@github.com/octocat/Hello-World",
        "https://github.com.evil.test/octocat/Hello-World", "-https://github.com/octocat/x",
        "--upload-pack=touch /tmp/x", "file:///etc/passwd", "https://github.com:444/a/b",
        "https://github.com@evil.test/a/b", "ssh://git@github.com/a/b", "https://evil.test/a/b",
        "https://github.com/a/b\nc", "ext::sh -c id"))])
def test_a_bad_clone_body_is_400_and_nothing_is_made(daemon, body):
    answer = daemon.post("/sandboxes/bad-body/repository", body)
    assert (answer.status, answer.text) == (400, BAD_URL)
    assert not os.path.exists(daemon.state / "sandboxes" / "bad-body")


def test_git_failures_are_502_with_what_git_said(sandbox):
    missing = sandbox.clone("https://github.com/octocat/No-Such-Repository")
    assert missing.status == 502 and missing.json["exitCode"] == 128, missing
    no_ref = sandbox.clone(ref="no-such-branch")
    assert no_ref.status == 502
    assert "Remote branch no-such-branch not found" in no_ref.json["stderr"]
    assert sandbox.clone(ref="master").status == 200
    second = sandbox.clone()
    assert second.status == 502
    assert "already exists and is not an empty directory" in second.json["stderr"]


def test_a_ref_cannot_be_an_option(daemon, sandbox):
    answer = sandbox.clone(ref="--upload-pack=touch /tmp/mark")
    assert answer.status == 400, answer


def test_a_task_before_a_clone_is_409(sandbox):
    for make in (False, True):
        if make:
            sandbox.exec("/bin/true")
        answer = sandbox.start_task("hello")
        assert (answer.status, answer.text) == (409, "Clone a repository first")


@pytest.mark.parametrize("prompt, status, text", [
    (b"", 400, "Send a prompt"), (b" \n\t ", 400, "Send a prompt"),
    (b"a\0b", 400, "Send the prompt as UTF-8 text without NUL bytes"),
    (b"\xff", 400, "Send the prompt as UTF-8 text without NUL bytes"),
    (b"a" * (128 * 1024), 413, "Send a prompt smaller than 128 KiB"),
    (b"a" * (10 << 20), 413, "Send a prompt smaller than 128 KiB")],
    ids=["empty", "blank", "nul", "not UTF-8", "128 KiB", "10 MiB"])
def test_bad_prompts(daemon, prompt, status, text):
    try:
        answer = daemon.post("/sandboxes/bad-prompt/task", prompt)
    except (BrokenPipeError, ConnectionResetError):
        assert len(prompt) > 1 << 20  # refused before it was read: the client was still sending
        return
    assert (answer.status, answer.text) == (status, text)
    assert not os.path.exists(daemon.state / "sandboxes" / "bad-prompt")


def test_the_largest_prompt_arrives_whole(sh_sandbox):
    assert sh_sandbox.clone().status == 200
    prompt = "printf %s $0 | wc -c; : " + "a" * (128 * 1024 - 1 - 24)
    state = sh_sandbox.run_task(prompt)
    assert state["state"] == "succeeded", state


def test_other_methods_and_paths(daemon):
    assert (daemon.get("/").status, daemon.get("/").text) == (404, "Not found")
    assert daemon.get("/sandboxes/a/other").status == 404
    answer = daemon.call("PATCH", "/sandboxes/a/task")
    assert (answer.status, answer.text) == (405, "Method not allowed")
    assert {part.strip() for part in answer.headers["allow"].split(",")} >= {"GET", "POST", "DELETE"}
    assert daemon.get("/healthz").status == 200


def test_demo_and_real_policy_differ_only_in_upstream_and_ca(demo):
    from policy import read_policy
    real = read_policy(harness.ROOT / "policy/default.json")
    with open(demo.policy, encoding="utf-8") as file:
        made = json.load(file)
    for rule in made["rules"]:
        assert rule.pop("upstream").startswith("127.0.0.1:")
        assert rule.pop("upstream_ca") == "demo-ca.pem"
    assert made == real
