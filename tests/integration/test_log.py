"""The log: a line for each event and each request, with the request's id, in the style asked for."""
import json
import os
import re

import pytest

import harness

pytestmark = pytest.mark.portable

ANSWERED = re.compile(r"^\S+Z paddock-api info request=(\d+) method=(\S+) path=(\S+) status=(\d+) "
                      r"ms=(\d+) token=(\S+) answered$", re.M)
# Field and level of each style's lines that begin with a priority
PRIORITIES = {"3": "error", "4": "warn", "6": "info"}


def line_of(daemon, answer):
    """The line of the request with this answer: (method, path, status, token)."""
    number = answer.headers["x-request-id"]
    found = harness.wait_for(lambda: [match for match in ANSWERED.finditer(daemon.log())
                                      if match[1] == number], 10, f"line of request {number}")
    assert len(found) == 1
    return found[0][2], found[0][3], int(found[0][4]), found[0][6]


@pytest.mark.parametrize("method, path, status", [
    ("GET", "/sandboxes", 200), ("GET", "/nothing/here?secret=of-mine", 404), ("GET", "/sandboxes/A/task", 400),
    ("DELETE", "/sandboxes", 405), ("GET", "/sandboxes/log-none/diff", 502)])
def test_each_request_has_an_id_and_a_line(daemon, method, path, status):
    answer = daemon.call(method, path)
    assert answer.status == status, answer
    assert line_of(daemon, answer) == (method, path.partition("?")[0], status, "-")
    assert "of-mine" not in daemon.log()


def test_an_id_is_never_used_again(make_daemon):
    daemon = make_daemon(policy="default")
    first = int(daemon.get("/sandboxes").headers["x-request-id"])
    second = int(daemon.get("/sandboxes", headers={"X-Request-Id": "7"}).headers["x-request-id"])
    assert second > first > 2**40  # a client's own is nothing to us
    pid = daemon.pid_of("paddock-api")
    os.kill(pid, 9)
    harness.wait_for(lambda: daemon.pid_of("paddock-api") not in (pid, None) and daemon.is_ready(), 30)
    assert int(daemon.get("/sandboxes").headers["x-request-id"]) > second + 1


def test_watching_the_daemon_writes_no_lines(daemon):
    for path in ("/healthz", "/metrics"):
        assert daemon.get(path).status == 200
    daemon.get("/sandboxes")
    assert not [match for match in ANSWERED.finditer(daemon.log()) if match[3] in ("/healthz", "/metrics")]


def test_the_id_goes_with_a_request_into_the_supervisor(make_daemon):
    daemon = make_daemon(agents={"no-program": {"image": "claude", "command": ["/no/such", "${PROMPT}"],
                                                "env": {}, "outcome": "exit-code"}},
                         default_agent="no-program")
    sandbox = daemon.sandbox("log-task")
    assert sandbox.clone().status == 200
    answer = sandbox.start_task("x")
    assert answer.status == 503, answer
    number = answer.headers["x-request-id"]
    assert re.search(rf"^\S+Z paddockd error request={number} sandbox=log-task the task cannot be started: ",
                     daemon.log(), re.M)


def test_json_lines_hold_the_same(make_daemon):
    daemon = make_daemon(log_format="json", start=False).start()
    sandbox = daemon.sandbox("log-json")
    answer = sandbox.exec("/bin/true") and daemon.get("/sandboxes/log-json")
    number = answer.headers["x-request-id"]

    def lines():
        text = daemon.log()
        return [json.loads(line) for line in text[:text.rfind("\n")].splitlines()]
    line = harness.wait_for(lambda: [line for line in lines() if line.get("request") == number], 10,
                            "line of the request")[0]
    ms, time = line.pop("ms"), line.pop("time")
    assert ms.isdigit() and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time)
    assert line == {"process": "paddock-api", "level": "info", "request": number, "method": "GET",
                    "path": "/sandboxes/log-json", "status": "200", "token": "-", "message": "answered"}
    processes = {"paddockd", "paddock-api", "paddock-egress"}
    harness.wait_for(lambda: {line["process"] for line in lines()} >= processes, 30, "lines of all")
    assert any(line.get("sandbox") == "log-json" and line["message"].startswith("runs, boot id ")
               for line in lines())


def test_lines_have_their_priority_under_the_journal(make_daemon):
    daemon = make_daemon(start=False)
    daemon.log_path.touch()
    status = daemon.log_path.stat()
    daemon.environment["JOURNAL_STREAM"] = f"{status.st_dev}:{status.st_ino}"
    daemon.start()
    daemon.get("/sandboxes")
    harness.wait_for(lambda: "is in force" in daemon.log(), 30, "the policy")  # told by egress
    daemon.stop()
    lines = re.findall(r"^(.*)$", daemon.log().rstrip("\n"), re.M)
    assert len(lines) > 5
    for line in lines:
        match = re.match(r"<(\d)>\S+Z (\S+) (\w+) ", line)
        assert match and PRIORITIES[match[1]] == match[3], line
    assert any(" paddock-egress " in line for line in lines)
    assert any(" answered" in line for line in lines)
    with open(daemon.log_path, "a", encoding="ascii") as file:
        file.write("\n")
    daemon.environment.clear()


def test_a_format_that_is_none_is_refused(make_daemon, folder):
    config = folder / "log-format.json"
    config.write_text('{\n "log_format": "xml" }')
    result = harness.run(harness.BIN / "paddockd", "--config", config, check=False)
    assert result.returncode == 1
    assert b'log-format.json:2:' in result.stderr and b"log_format must be text or json" in result.stderr
