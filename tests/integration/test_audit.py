"""The audit: its files turn by size without losing a line; each sandbox's lines by API and CLI."""
import json
import os
import signal

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
    ask(box, asked)
    harness.wait_for(lambda: paths(daemon, "/turn/")[-1:] == asked[-1:], 10, "the last line")
    assert paths(daemon, "/turn/") == asked
    assert len(files(daemon)) >= 3
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
    assert daemon.get("/sandboxes/box/egress?limit=1001").status == 400
    assert daemon.get("/sandboxes/none/egress").status == 404
    shown = daemon.cli("egress", "box-2").stdout.decode()
    assert "denied.test/other/2?key=…" in shown and "/own/" not in shown, shown
    assert json.loads(daemon.cli("--json", "egress", "box-2", "--limit", "1").stdout)[0]["status"] == 403
    # another sandbox of that name has nothing of it
    assert other.remove().status == 204
    other.exec("/bin/true")
    assert own(daemon, "box-2") == []


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
