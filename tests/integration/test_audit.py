"""The audit: its files turn by size without losing a line; each sandbox's lines by API and CLI."""
import json
import os
import signal
import subprocess
import threading

import pytest

import harness
import upstream as u

MAX_BYTES, KEEP = 65536, 3


@pytest.fixture(scope="module")
def daemon(make_daemon):
    daemon = make_daemon(default_agent="sh", audit={"max_bytes": MAX_BYTES, "keep": KEEP})
    yield daemon
    daemon.close()


@pytest.fixture(scope="module")
def box(daemon):
    box = daemon.sandbox("box")
    assert box.exec("/bin/true")["exitCode"] == 0
    return box


def ask(box, paths, host="denied.test"):
    """Requests that the policy denies, on one connection."""
    with box.connect_tls(host) as sock:
        for path in paths:
            sock.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert u.read_answer(sock)[0] == 403


def files(daemon):
    """From the oldest to the newest."""
    names = [f"audit.jsonl.{number}" for number in range(KEEP + 3, 0, -1)] + ["audit.jsonl"]
    return [path for name in names if (path := daemon.state / name).exists()]


def lines(daemon):
    return [json.loads(line) for path in files(daemon) for line in path.read_text().splitlines()]


def paths(daemon, prefix):
    return [line["path"] for line in lines(daemon) if line["path"].startswith(prefix)]


def test_a_full_audit_goes_on_in_a_new_file_and_loses_nothing(daemon, box):
    asked = [f"/turn/{number}/" + "x" * 1800 for number in range(80)]
    for half, count in ((asked[:40], 2), (asked[40:], 3)):
        ask(box, half)  # more than a file's worth; it turns when the supervisor has made the next one
        harness.wait_for(lambda count=count: len(files(daemon)) == count, 10, f"{count} files")
    harness.wait_for(lambda: paths(daemon, "/turn/")[-1:] == asked[-1:], 10, "the last line")
    assert paths(daemon, "/turn/") == asked
    for path in files(daemon)[:-1]:
        assert MAX_BYTES <= path.stat().st_size < 4 * MAX_BYTES
        assert path.stat().st_mode & 0o777 == 0o600
    more = [f"/more/{number}/" + "x" * 1800 for number in range(160)]
    ask(box, more)
    harness.wait_for(lambda: paths(daemon, "/more/")[-1:] == more[-1:], 10, "the last line")
    harness.wait_for(lambda: len(files(daemon)) == KEEP + 1, 10, "the oldest to go")
    kept = paths(daemon, "/more/")
    assert kept == more[-len(kept):] and len(kept) > 80, len(kept)


def own(daemon, name, query=""):
    answer = daemon.get(f"/sandboxes/{name}/egress{query}")
    assert answer.status == 200 and answer.headers["content-type"] == "application/json", answer
    return answer.json


class Events:
    """GET /sandboxes/NAME/egress?follow=1, line by line."""

    def __init__(self, daemon, name, limit):
        self.connection = harness.UnixConnection(daemon.socket, harness.patient(30))
        self.connection.request("GET", f"/sandboxes/{name}/egress?follow=1&limit={limit}")
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200
        assert self.answer.getheader("content-type") == "text/event-stream"

    def path(self):
        line = self.answer.readline()
        assert line.startswith(b"data: ") and self.answer.readline() == b"\n", line
        return json.loads(line[6:])["path"]


def test_a_sandbox_has_its_own_lines(daemon, box):
    other = daemon.sandbox("box-2")
    other.exec("/bin/true")
    ask(other, ["/other/1", "/other/2?key=value"])
    ask(box, ["/own/1", "/own/2"])
    harness.wait_for(lambda: paths(daemon, "/own/2"), 10, "the lines")
    assert [line["path"] for line in own(daemon, "box-2")] == ["/other/1", "/other/2?key=…"]
    assert [line["path"] for line in own(daemon, "box", "?limit=2")] == ["/own/1", "/own/2"]
    every = own(daemon, "box", "?limit=1000")
    assert {line["sandbox"] for line in every} == {"box"} and len(every) > 80
    assert own(daemon, "box", "?limit=0") == []
    refused = daemon.get("/sandboxes/box/egress?limit=1001")
    assert (refused.status, refused.text) == (
        400, "The query may have limit=LINES, up to 1000, and follow=1")
    assert daemon.get("/sandboxes/none/egress").status == 404
    shown = daemon.cli("egress", "box-2").stdout.decode()
    assert "denied.test/other/2?key=…" in shown and "/own/" not in shown, shown
    assert json.loads(daemon.cli("--json", "egress", "box-2", "--limit", "1").stdout)[0]["status"] == 403
    # another sandbox of that name has nothing of it
    assert other.remove().status == 204
    other.exec("/bin/true")
    assert own(daemon, "box-2") == []


def message(box, route="anthropic/v1/messages", more=""):
    """A request to the demo's gateway, not streamed."""
    host, body = "gateway.ai.cloudflare.com", b'{"model": "claude-x", "messages": []}'
    with box.connect_tls(host) as sock:
        sock.sendall(f"POST /v1/demo-account/default/{route} HTTP/1.1\r\nHost: {host}\r\n"
                     f"Content-Length: {len(body)}\r\n{more}\r\n".encode() + body)
        return u.read_answer(sock)


def test_a_budget_holds_until_it_is_raised(daemon):
    box = daemon.sandbox("budget")
    assert daemon.call("PUT", box.path, {"budget": {"requests": 2}}).status == 201
    box.exec("/bin/true")
    assert message(box)[0] == 200 and message(box, "openai/none")[0] == 404
    status, head, body = message(box)
    assert status == 402 and json.loads(body) == {"type": "error", "error": {
        "type": "billing_error", "message": "The budget of this sandbox is spent: 2 of 2 requests to "
        "models were made"}}, body
    assert "x-should-retry: false" in str(head).lower().replace("': '", ": "), head
    assert json.loads(message(box, "openai/chat/completions")[2])["error"]["code"] == "insufficient_quota"
    usage = harness.wait_for(lambda: daemon.get(box.path).json.get("usage"), 10, "the usage")
    assert {key: usage[key] for key in ("requests", "errors", "input_tokens", "output_tokens", "model")} == {
        "requests": 2, "errors": 1, "input_tokens": 100, "output_tokens": 20, "model": "claude-x"}, usage
    daemon.stop()
    daemon.start()
    harness.wait_for(lambda: daemon.get("/healthz").json["policy"], 20, "the policy")
    assert message(box)[0] == 402
    assert daemon.cli("set", "budget", "--budget-requests", "3").returncode == 0
    assert message(box)[0] == 200 and message(box)[0] == 402
    wanted = ['paddock_model_tokens_total{rule="ai-gateway",kind="output"} 20',
              'paddock_egress_requests_total{rule="ai-gateway",decision="denied"} 2',
              'paddock_egress_bytes_total{rule="ai-gateway",direction="out"} ',
              'paddock_model_requests_total{rule="ai-gateway",result="read"} 1']
    harness.wait_for(lambda: all(text in daemon.get("/metrics").text for text in wanted), 10, "the counters")
    answer = daemon.call("PATCH", box.path, {"budget": None})
    assert answer.status == 200 and "budget" not in answer.json
    assert message(box)[0] == 200
    assert daemon.cli("create", "tokens", "--budget-output-tokens", "5").returncode == 0
    assert daemon.get("/sandboxes/tokens").json["budget"] == {"output_tokens": 5}
    for budget in ({"requests": 0}, {"output_tokens": "1"}, {"euros": 1}, 5):
        assert daemon.call("PUT", box.path, {"budget": budget}).status == 400
    box.remove()


def test_following_goes_on_over_turns_and_a_new_egress(daemon, box):
    ask(box, ["/before/1", "/before/2"])
    harness.wait_for(lambda: paths(daemon, "/before/2"), 10, "the lines")
    events = Events(daemon, "box", 2)
    assert [events.path(), events.path()] == ["/before/1", "/before/2"]
    asked = [f"/follow/{number}/" + "x" * 1800 for number in range(60)]  # more than a file
    ask(box, asked)
    assert [events.path() for _ in asked] == asked
    egress = daemon.pid_of("paddock-egress")
    os.kill(egress, signal.SIGKILL)
    harness.wait_for(lambda: daemon.pid_of("paddock-egress") not in (None, egress), 20, "a new egress")
    ask(box, ["/after"])
    assert events.path() == "/after"
    box.remove()
    assert events.answer.read() == b""


def test_the_daemon_ends_after_the_line_of_what_was_under_way(make_daemon, namespace, folder):
    """Whoever ends the daemon may kill what it leaves behind at once."""
    server, over = u.Upstream(namespace, folder), threading.Event()

    def open_ended(_server, sock, _request):
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n")
        over.wait(harness.patient(30))
    server.routes["/open"] = open_ended
    daemon = make_daemon(default_agent="sh", extra_rules=[server.rule("u.test", "u-ca.pem")], start=False)
    (daemon.folder / "policy/u-ca.pem").write_bytes(open(server.ca, "rb").read())
    daemon.start()
    box = daemon.sandbox("open")
    box.exec("/bin/true")
    with box.connect_tls("u.test") as sock:
        sock.sendall(b"GET /open HTTP/1.1\r\nHost: u.test\r\n\r\n")
        u.read_until(sock, b"\r\n\r\n")
        egress = daemon.pid_of("paddock-egress")
        os.kill(egress, signal.SIGSTOP)
        try:
            daemon.process.send_signal(signal.SIGTERM)
            with pytest.raises(subprocess.TimeoutExpired):
                daemon.process.wait(0.3)
        finally:
            os.kill(egress, signal.SIGCONT)
        daemon.process.wait(harness.patient(30))
        assert paths(daemon, "/open") == ["/open"]
    over.set()
    daemon.close()
    server.close()
