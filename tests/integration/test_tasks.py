"""Tasks: their ends, told truthfully; faults of the model; cancel; logs."""
import concurrent.futures
import http.client
import json
import re
import time

import pytest

import harness

CLONED = "agent-of-the-faults"


def script(*steps):
    return "Do it. SCRIPT:" + json.dumps(list(steps))


@pytest.fixture(scope="module")
def cloned(daemon):
    sandbox = daemon.sandbox(CLONED)
    assert sandbox.clone().status == 200
    yield sandbox
    sandbox.remove()


@pytest.fixture(scope="module")
def sh(sh_daemon):
    sandbox = sh_daemon.sandbox("sh-tasks")
    assert sandbox.clone().status == 200
    yield sandbox
    sandbox.remove()


@pytest.mark.parametrize("step, says", [
    ({"status": 402, "message": "Insufficient wholesale credits"},
     "API Error: 402 Insufficient wholesale credits"),
    ({"status": 401, "message": "Unauthorized"}, "401 Unauthorized"),
    ({"status": 429, "message": "slow down"}, "429"),
    ({"status": 500, "message": "broken"}, "500")])
def test_a_model_fault_is_told(cloned, step, says):
    state = cloned.run_task(script(step), 120)
    assert state["state"] == "failed" and says in state["error"], state


def test_a_stream_that_ends_too_early_is_never_a_success(cloned):
    state = cloned.run_task(script({"fault": "truncate"}), 120)
    assert state["state"] == "failed", state
    assert "claude ended without a complete answer (stop_reason" in state["error"], state


def test_a_dropped_stream_is_retried_and_then_told(cloned):
    state = cloned.run_task(script({"fault": "drop"}), 180)
    # The agent falls back to one answer that is not streamed; the script drops only streams.
    assert state["state"] == "succeeded" and state["result"] == "The whole answer, not streamed.", state


def test_a_slow_stream_is_followed_as_it_comes(cloned):
    state = cloned.run_task(script({"slow": {"events": 4, "interval_ms": 500, "text": "slow done"}}))
    assert state["state"] == "succeeded" and state["result"].endswith("slow done"), state


def test_tools_edit_files(cloned):
    state = cloned.run_task(script(
        {"tool": "Bash", "input": {"command": "echo more >> README; git rm -q --cached README; "
                                              "git add README"}},
        {"text": "edited"}))
    assert state["state"] == "succeeded" and state["result"] == "edited"
    assert "+more" in cloned.diff().text


@pytest.mark.slow
def test_a_wrong_token_is_told_after_the_agents_own_retries(make_daemon, folder):
    secrets = folder / "wrong-secrets"
    secrets.mkdir(mode=0o700)
    (secrets / "AI_GATEWAY_TOKEN").write_text("wrong")
    (secrets / "AI_GATEWAY_TOKEN").chmod(0o600)
    daemon = make_daemon(secrets_dir=str(secrets))
    sandbox = daemon.sandbox("wrong-token")
    assert sandbox.clone().status == 200
    state = sandbox.run_task("hello", 400)
    assert state["state"] == "failed"
    assert state["error"].startswith("Failed to authenticate. API Error: 401 Unauthorized"), state


def test_without_a_gateway_the_task_says_what_to_set(make_daemon, folder):
    empty = folder / "no-secrets"
    empty.mkdir(mode=0o700)
    daemon = make_daemon(claude_env={"CLAUDE_CODE_MAX_RETRIES": "0"}, secrets_dir=str(empty))
    harness.wait_for(lambda: "AI_GATEWAY_TOKEN" in daemon.log(), 10, "the daemon saying so")
    sandbox = daemon.sandbox("no-token")
    assert sandbox.clone().status == 200
    answer = sandbox.start_task("hello")
    state = sandbox.finish(120) if answer.status == 202 else {"error": answer.text}
    assert "AI_GATEWAY_TOKEN" in state["error"], state


def test_ends_are_told_as_they_were(sh):
    assert sh.run_task("echo out; echo err >&2")["state"] == "succeeded"
    failed = sh.run_task("echo the reason >&2; exit 7")
    assert failed["state"] == "failed"
    assert "exited with 7: the reason" in failed["error"], failed
    killed = sh.run_task("kill -KILL $$")
    assert killed["state"] == "failed" and re.search(r"signal 9|SIGKILL|killed", killed["error"]), killed


def test_a_prompt_is_one_argument_whatever_it_holds(sh):
    state = sh.run_task("echo '--help' $'a\\nb' > /workspace/repo/out; exit 0")
    assert state["state"] == "succeeded"


def test_cancel_ends_the_whole_group_and_nothing_else(sh):
    sh.sh("sleep 500 >/dev/null 2>&1 & echo $!")
    for prompt in ("setsid sleep 999 & sleep 999", "(setsid bash -c 'sleep 999 & sleep 999' &) ; sleep 999",
                   "trap '' TERM; while :; do sleep 1; done"):
        assert sh.start_task(prompt).status == 202
        harness.wait_for(lambda: "999" in sh.sh("cat /proc/*/cmdline | tr '\\0' ' '")["stdout"]
                         or "trap" in prompt, 10, "the task's processes")
        answer = sh.daemon.call("DELETE", f"{sh.path}/task")
        assert answer.status in (200, 202, 204), answer
        state = sh.finish(30)
        assert state["state"] == "failed" and "cancel" in state["error"], state
        left = sh.sh("cat /proc/*/cmdline | tr '\\0' ' '")["stdout"]
        assert "sleep 999" not in left and "sleep 500" in left, left


def test_cancel_of_a_task_that_ended_leaves_its_outcome(sh):
    assert sh.run_task("exit 0")["state"] == "succeeded"
    answer = sh.daemon.call("DELETE", f"{sh.path}/task")
    assert answer.status in (200, 204, 409), answer
    assert sh.task()["state"] == "succeeded"


def test_a_task_is_ended_at_its_deadline(make_daemon):
    """By its start's, else by the configuration's; with all that it started."""
    daemon = make_daemon(default_agent="sh", limits={"deadline_ms": 400})
    box = daemon.sandbox("deadline")
    assert box.clone().status == 200
    for query, ends in (("", True), ("?deadline_ms=60000", False), ("?deadline_ms=300", True)):
        assert daemon.post(f"{box.path}/task{query}", "sleep 600 & trap 'exit 9' TERM; echo up; "
                           f"{'wait' if ends else 'sleep 1; exit 0'}").status == 202
        state = box.finish(30)
        if ends:
            assert (state["state"], state["end"], state["error"]) == ("failed", "deadline", "the task's deadline passed")
            harness.wait_for(lambda: sleepers(box) == 0, 10, "nothing of it is left")
        else:
            assert state["state"] == "succeeded", state
            box.sh("kill $(cat /proc/[0-9]*/stat | awk '$2 == \"(sleep)\" { print $1 }')", user="root")
    for query in ("?deadline_ms=0", "?deadline_ms=604800001", "?deadline_ms=1&x=1", "?deadline_ms=1s"):
        answer = daemon.post(f"{box.path}/task{query}", "true")
        assert (answer.status, answer.text) == (400, "The query may have deadline_ms=MILLISECONDS, 1 to 604800000")
    daemon.close()


def test_exec_answers_when_the_main_process_ends(sh):
    began = time.monotonic()
    result = sh.exec("/bin/sh", "-c", "sleep 60 & echo hi")
    assert result["stdout"] == "hi\n" and time.monotonic() - began < harness.patient(10)
    assert "sleep\0" + "60" in sh.sh("cat /proc/*/cmdline")["stdout"]


def test_exec_keeps_the_last_mebibyte(sh):
    result = sh.sh("head -c 3000000 /dev/zero | tr '\\0' a; printf end; printf '\\xff' >&2; exit 3")
    assert result["exitCode"] == 3 and result["stderr"] == "\ufffd"
    assert len(result["stdout"]) == 1 << 20 and result["stdout"].endswith("aend")


def test_exec_has_variables_and_an_input(sh):
    result = sh.sh("echo $A; cat; cat", env={"A": "1 2"}, stdin="a\0b\n" * 40_000)
    assert result["exitCode"] == 0 and result["stdout"] == "1 2\n" + "a\0b\n" * 40_000
    assert sh.sh("read x; echo $?")["stdout"] == "1\n"  # without one: /dev/null
    assert sh.sh("exec <&-; true", stdin="x" * 400_000)["exitCode"] == 0  # it need not read it
    assert sh.sh("cat /dev/stdin", stdin="opened\n")["stdout"] == "opened\n"
    assert sh.sh("cat", stdin="")["stdout"] == ""


HOLD_OUT = "trap '' TERM; (trap '' TERM; setsid sleep 1000) & echo begun; sleep 1000"


def sleepers(box):
    return int(box.sh("cat /proc/[0-9]*/comm | grep -cx sleep || true")["stdout"])


def test_exec_is_over_when_its_time_is(sh_daemon):
    """With all that it started, however it holds out; what another one started lives on."""
    box = sh_daemon.sandbox("timed")
    box.sh("sleep 999 >/dev/null 2>&1 &")
    result = box.sh(HOLD_OUT, timeout_ms=300)
    assert result["exitCode"] == 124 and result["stdout"] == "begun\n"
    assert result["stderr"] == "paddock: the program was ended: its 300 ms were over\n"
    harness.wait_for(lambda: sleepers(box) == 1, 10, "all that the program started is gone")
    assert box.sh("exit 3", timeout_ms=60_000)["exitCode"] == 3
    assert box.sh("sleep 999 >/dev/null 2>&1 & true", timeout_ms=60_000)["exitCode"] == 0
    assert sleepers(box) == 2  # its time counts for the program itself


def test_programs_with_a_time_come_and_go_beside_each_other(sh):
    """The group of one that has not joined it yet is not taken for one that nobody is in."""
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda _: sh.exec("/bin/true", timeout_ms=60_000), range(400)))
    assert {(result["exitCode"], result["stderr"]) for result in results} == {(0, "")}


def test_exec_tells_events_and_ends_with_its_client_if_asked(sh):
    for ends in (False, True):
        before = sleepers(sh)
        connection = harness.UnixConnection(sh.daemon.socket, 20)
        connection.request("POST", sh.path + "/exec", json.dumps(
            {"argv": ["/bin/bash", "-c", HOLD_OUT], "end_with_client": ends}),
            {"Accept": "text/event-stream"})
        answer = connection.getresponse()
        assert answer.status == 200 and answer.headers["content-type"] == "text/event-stream"
        while answer.fp.readline() != b'data: {"text":"begun\\n"}\n':
            pass
        harness.wait_for(lambda: sleepers(sh) == before + 2, 10, "both of its children")
        connection.close()
        answer.close()
        if ends:
            harness.wait_for(lambda: sleepers(sh) == before, 10, "all that the program started is gone")
        else:
            assert sleepers(sh) == before + 2


def test_exec_refuses_bad_bodies(sh_daemon):
    for body in ("", "{}", '{"argv": []}', '{"argv": "ls"}', '{"argv": [1]}', '{"argv": [""]}',
                 '{"argv": ["ls"], "user": "nobody"}', '{"argv": ["ls"], "cwd": 5}',
                 '{"argv": ["a\\u0000b"]}', '{"argv": ["ls"], "more": 1}'):
        answer = sh_daemon.post("/sandboxes/bad-exec/exec", body)
        assert answer.status == 400 and answer.text, (body, answer)
    assert sh_daemon.get("/sandboxes/bad-exec").status == 404


def test_exec_of_what_is_not_there_says_so(sh):
    result = sh.exec("/no/such/program")
    assert result["exitCode"] in (126, 127) and "/no/such/program" in result["stderr"], result


def test_many_short_programs_all_recorded(sh):
    result = sh.sh("for i in $(seq 500); do (exit $((i % 7))) & p[$i]=$!; done; bad=0; "
                   "for i in $(seq 500); do wait ${p[$i]}; [ $? = $((i % 7)) ] || bad=1; done; "
                   "(sleep 0.1 &) ; (bash -c 'sleep 0.1 &') ; exit $bad")
    assert result["exitCode"] == 0
    harness.wait_for(lambda: " Z" not in sh.sh(
        "cat /proc/[0-9]*/stat | sed 's/.*) / /' | cut -c1-2")["stdout"], 10, "no zombie")


def test_the_log_is_followed_to_its_end(sh):
    assert sh.start_task("for i in 1 2 3; do echo line $i; sleep 0.3; done").status == 202
    connection = harness.UnixConnection(sh.daemon.socket, 30)
    connection.request("GET", f"{sh.path}/task/log?follow=1")
    response = connection.getresponse()
    assert response.status == 200
    first = response.read(len("line 1\n"))
    assert first == b"line 1\n" and sh.task()["state"] == "running"
    assert response.read() == b"line 2\nline 3\n"  # to the end of the task
    connection.close()
    later = sh.daemon.get(f"{sh.path}/task/log?from=7")
    assert later.body == b"line 2\nline 3\n"


def test_one_follower_too_many_is_told(sh):
    assert sh.start_task("echo begun; exec sleep 1000").status == 202
    followers = []

    def follow():
        connection = harness.UnixConnection(sh.daemon.socket, 20)
        connection.request("GET", f"{sh.path}/task/log?follow=1")
        answer = connection.getresponse()
        if answer.status == 200:
            assert answer.readline() == b"begun\n"
            followers.append((connection, answer))
        return answer
    for _ in range(16):
        assert follow().status == 200
    refused = follow()
    assert refused.status == 503 and b"16 clients follow" in refused.read()
    for connection, answer in followers[:8]:
        answer.close()
        connection.close()
    del followers[:8]
    for _ in range(8):
        harness.wait_for(lambda: follow().status == 200, 10, "a place for one more")
    assert sh.daemon.call("DELETE", f"{sh.path}/task").status == 200
    for connection, answer in followers:
        assert answer.read() == b"", "each of the others sees the end"
        connection.close()


def test_a_silent_task_outlives_the_inactivity_limit(make_daemon):
    daemon = make_daemon(default_agent="sh", inactivity_ms=1000, task_check_ms=300)
    sandbox = daemon.sandbox("silent")
    assert sandbox.clone().status == 200
    assert sandbox.start_task("sleep 4; echo lived").status == 202
    log = daemon.get(f"{sandbox.path}/task/log?follow=1")  # one request, open until the end
    assert log.body == b"lived\n" and sandbox.task()["state"] == "succeeded"
    harness.wait_for(lambda: daemon.get(sandbox.path).json["state"] == "stopped", 20,
                     "stop for inactivity")
    assert sandbox.task()["state"] == "succeeded"
    assert sandbox.exec("/bin/cat", "/workspace/repo/README")["stdout"] == "Hello World!\n"


def test_a_client_that_hangs_up_changes_nothing(sh):
    for path, method, body in (("/exec", "POST", '{"argv":["/bin/sleep","1"]}'),
                               ("/task/log?follow=1", "GET", None)):
        connection = harness.UnixConnection(sh.daemon.socket, 10)
        connection.request(method, sh.path + path, body)
        connection.close()
    assert sh.exec("/bin/echo", "still here")["stdout"] == "still here\n"
    with pytest.raises((http.client.HTTPException, TimeoutError, OSError)):
        connection = harness.UnixConnection(sh.daemon.socket, 0.2)
        connection.request("POST", sh.path + "/exec", '{"argv":["/bin/sleep","2"]}')
        connection.getresponse()
