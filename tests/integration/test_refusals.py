"""What the API refuses, and in which words: of each text one request that brings it about."""
import harness
import pytest
from test_tokens import call, make, tcp  # noqa: F401  pylint: disable=unused-import

pytestmark = pytest.mark.portable

BIG = "x" * (512 * 1024 + 1)
REFUSED = [
    ("POST", "/sandboxes/a/exec", "{}", 400, 'Send {"argv": ["PROGRAM", ...], "cwd": '
     '"/FOLDER", "user": "agent" or "root", "env": {"NAME": "VALUE"}, "stdin": "TEXT", "timeout_ms": N, '
     '"end_with_client": BOOL}, all but argv optional'),
    ("POST", "/sandboxes/a/exec", BIG, 413, "Send a body smaller than 512 KiB"),
    ("POST", "/images", "{}", 400, 'Send {"name": "IMAGE"}'),
    ("POST", "/tokens", '{"expiresIn": 0}', 400,
     'Send {"prefix": "BEGINNING OF NAMES", "readOnly": true, "expiresIn": SECONDS}, each of '
     'which may be left out; the seconds are 1 to 315360000'),
    ("GET", "/sandboxes/a/task/log?from=x", None, 400,
     "The query may have from=OFFSET, follow=1 and stream=stdout or stream=stderr"),
    ("GET", "/sandboxes/a/diff?renames=7", None, 400,
     "The query may have against=index, head or a revision, renames=1 and binary=1"),
    ("POST", "/sandboxes/a/repository", '{"url": "https://github.com/o/r", "ref": "-x"}', 400,
     "The ref must be a branch or tag: no hyphen in front, no control characters, 255 bytes at most"),
    ("PUT", "/sandboxes/a", '{"agnet": "x"}', 400,
     'Send {"agent": "AGENT", "policy": "POLICY", "size": "SIZE", "limits": {"memory_mib": 1024, "cpus": 1.5, '
     '"pids": 256}, "budget": {"output_tokens": 100000, "requests": 200}, "env": {"NAME": "VALUE"}, "labels": {"NAME": "VALUE"}}, each of which may be '
     'left out'),
    ("GET", "/sandboxes?state=gone", None, 400,
     "The query may have state=stopped, starting, running or stopping, and label=NAME=VALUE or "
     "label=NAME, up to 8 times"),
    ("DELETE", "/sandboxes/a?state=running", None, 400, "The query may be state=stopped"),
]


@pytest.mark.parametrize("method, path, body, status, says", REFUSED,
                         ids=[f"{entry[0]} {entry[1]}" for entry in REFUSED])
def test_refused(sh_daemon, method, path, body, status, says):
    answer = sh_daemon.call(method, path, body)
    assert answer.status == status and says in answer.text, answer
    assert "The query may be " in says or "may be left out" in says or answer.text.strip() == says


def test_an_archive_that_is_too_large_is_refused_before_it_is_read(sh_daemon):
    connection = harness.UnixConnection(sh_daemon.socket, 60)
    try:
        connection.putrequest("PUT", "/images/large")
        connection.putheader("Content-Length", str(33 << 30))
        connection.endheaders()
        answer = connection.getresponse()
        assert answer.status == 413 and answer.read() == b"Send an archive smaller than 32 GiB"
    finally:
        connection.close()


def test_what_a_token_may_not(tcp):  # noqa: F811
    _, whole = make(tcp)
    _, mine = make(tcp, prefix="mine-")
    _, reader = make(tcp, readOnly=True)
    for token, method, path, says in [
            (reader, "POST", "/sandboxes/mine-1/stop", "The token is read-only"),
            (mine, "GET", "/tokens",
             "Only the Unix socket or a token without any limit may manage tokens"),
            (mine, "GET", "/df", "Only a token for all sandboxes may do this"),
            (mine, "DELETE", "/images/x", "The token is for some sandboxes only"),
            (mine, "GET", "/sandboxes/other-1", "The token is not for this sandbox")]:
        answer = call(tcp, method, path, token)
        assert (answer.status, answer.text.strip()) == (403, says), answer
    answer = call(tcp, "GET", "/healthz", whole, host="evil.example")
    assert answer.text.strip() == "The Host must be 127.0.0.1, [::1] or localhost"
    answer = call(tcp, "GET", "/healthz", whole, Origin="http://localhost")
    assert answer.text.strip() == "Requests of web pages (with the header Origin) are refused"
