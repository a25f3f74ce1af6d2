"""The audit: its files turn by size without losing a line."""
import json

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
