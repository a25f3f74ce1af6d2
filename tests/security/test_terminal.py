"""JSON on a terminal: what an agent wrote means the same and makes the terminal do nothing. JSON's own
escapes cover what is below U+0020 alone, and U+009B is a terminal's CSI as much as ESC [ is."""
import json

import pytest

from scripted_daemon import Daemon

HOSTILE = "a\u009b2J\u0085\x7f\u202eb\u2066\u2028\U000e0041 \u00e9\u20ac\U0001f600\x1b[31m\\u009b\"\n"
FOREIGN = [c for c in HOSTILE if c in "\x7f\x1b\u0085\u009b\u2028\u202e\u2066\U000e0041"]


@pytest.fixture
def daemon(tmp_path):
    daemon = Daemon(tmp_path)
    yield daemon
    daemon.close()


def check(text, wanted):
    assert not [c for c in FOREIGN if c in text.decode()], text
    assert json.loads(text) == wanted and "\u00e9\u20ac\U0001f600" in text.decode()


def test_a_result_in_json_makes_a_terminal_do_nothing(daemon):
    said = {"state": "succeeded", "result": HOSTILE, HOSTILE: 1}
    daemon.on("GET", "/sandboxes/a/task", (200, json.dumps(said, ensure_ascii=False).replace("\\u007f", "\x7f")))
    check(daemon.run("--json", "status", "a").stdout, said)


@pytest.mark.parametrize("verb, path", [("log", "/sandboxes/a/task/log?from=0"), ("diff", "/sandboxes/a/diff")])
def test_a_log_and_a_diff_in_json_make_a_terminal_do_nothing(daemon, verb, path):
    data = HOSTILE.encode()
    daemon.on("GET", path, (200, [data[:2], data[2:20], data[20:]]))
    check(daemon.run("--json", verb, "a").stdout, {verb: HOSTILE})


def test_an_error_in_json_makes_a_terminal_do_nothing(daemon):
    daemon.on("GET", "/sandboxes/a/task", (400, HOSTILE.strip()))
    error = daemon.run("--json", "status", "a").stderr
    check(error, {"error": json.loads(error)["error"], "exitStatus": 1})
    assert "\u009b" in json.loads(error)["error"]
