"""Tokens of the API over loopback TCP, with the real daemon: who is let in, to what, for how long."""
import http.client
import json
import os
import pathlib
import signal
import time

import pytest

import harness

PORT = 7411


def call(daemon, method, path, token=None, body=None, host=None, **headers):
    """One request over TCP, from inside the daemon's network namespace."""
    def work():
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=harness.patient(30))
        try:
            if token:
                headers["Authorization"] = f"Bearer {token}"
            if host:
                headers["Host"] = host
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            return harness.Answer(response.status,
                                  {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()
    return harness.in_namespace(daemon.namespace.fd, work)


@pytest.fixture(scope="module")
def tcp(make_daemon):
    daemon = make_daemon(default_agent="sh", start=False)
    daemon.config["listen"] = [f"unix:{daemon.socket}", f"tcp:127.0.0.1:{PORT}"]
    return daemon.start()


def make(daemon, **limits):
    answer = daemon.post("/tokens", limits)
    assert answer.status == 200, answer
    return answer.json["id"], answer.json["token"]


def test_a_token_a_loopback_host_and_no_origin_are_needed(tcp):
    _, token = make(tcp)
    for path in ("/healthz", "/sandboxes", "/none"):
        answer = call(tcp, "GET", path)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert call(tcp, "GET", "/healthz", token + "0").status == 401
    answer = call(tcp, "GET", "/healthz", token)
    assert answer.status == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert call(tcp, "GET", "/healthz", token, host=f"localhost:{PORT}").status == 200
    assert call(tcp, "GET", "/healthz", token, host="evil.example").status == 403
    assert call(tcp, "GET", "/healthz", token, Origin="http://localhost").status == 403
    assert call(tcp, "OPTIONS", "/healthz", Origin="http://localhost").status == 403


def test_a_prefix_and_read_only_limit_what_a_token_may(tcp):
    _, mine = make(tcp, prefix="mine-")
    _, reader = make(tcp, readOnly=True)
    body = {"argv": ["/bin/true"]}
    try:
        for name in ("mine-1", "other-1"):
            assert tcp.post(f"/sandboxes/{name}/exec", body).status == 200
        assert [box["name"] for box in call(tcp, "GET", "/sandboxes", mine).json] == ["mine-1"]
        assert {box["name"] for box in call(tcp, "GET", "/sandboxes", reader).json} == {
            "mine-1", "other-1"}
        assert call(tcp, "POST", "/sandboxes/mine-1/exec", mine, body).status == 200
        assert call(tcp, "POST", "/sandboxes/other-1/exec", mine, body).status == 403
        assert call(tcp, "GET", "/sandboxes/other-1", mine).status == 403
        assert call(tcp, "GET", "/sandboxes/other-1", reader).status == 200
        for method, path in (("POST", "/sandboxes/mine-1/stop"), ("DELETE", "/sandboxes/mine-1")):
            assert call(tcp, method, path, reader).status == 403
        for token in (mine, reader):
            assert call(tcp, "GET", "/tokens", token).status == 403
            assert call(tcp, "POST", "/tokens", token, {}).status == 403
    finally:
        for name in ("mine-1", "other-1"):
            tcp.sandbox(name).remove()


def test_an_expired_and_a_removed_token_are_refused_at_once(tcp):
    begun = time.time()
    _, short = make(tcp, expiresIn=2)
    assert call(tcp, "GET", "/healthz", short).status == 200
    assert call(tcp, "POST", "/tokens", short, {}).status == 403  # it could outlive itself
    harness.wait_for(lambda: call(tcp, "GET", "/healthz", short).status == 401, 20, "its end")
    assert time.time() - begun >= 2
    number, token = make(tcp)
    assert call(tcp, "DELETE", f"/tokens/{number}", token).status == 204
    assert call(tcp, "GET", "/healthz", token).status == 401
    assert tcp.call("DELETE", f"/tokens/{number}").status == 404


def test_tokens_outlive_the_api_and_the_daemon_and_are_nowhere_in_clear(tcp):
    number, token = make(tcp)
    api = tcp.pid_of("paddock-api")
    os.kill(api, signal.SIGKILL)
    harness.wait_for(lambda: tcp.pid_of("paddock-api") not in (None, api) and tcp.is_ready(), 30,
                     "a new api")
    assert call(tcp, "GET", "/healthz", token).status == 200
    tcp.stop()
    tcp.start()
    assert call(tcp, "GET", "/healthz", token).status == 200
    listed = tcp.get("/tokens")
    assert number in [entry["id"] for entry in listed.json]
    files = [path for path in pathlib.Path(tcp.state).iterdir() if path.is_file()]
    assert (tcp.state / "tokens.json") in files
    assert (tcp.state / "tokens.json").stat().st_mode & 0o777 == 0o600
    secret = token.removeprefix("paddock_").encode()
    for path in files + [tcp.log_path]:
        assert secret not in path.read_bytes(), path
    assert secret not in listed.body and b"hash" not in listed.body


def test_the_command_line_makes_lists_and_removes_them_and_works_with_one(tcp):
    token = tcp.cli("token", "create").stdout.decode().strip()
    number = max(tcp.get("/tokens").json, key=lambda entry: entry["created"])["id"]
    limited = tcp.cli("token", "create", "--prefix", "p-", "--read-only", "--expires", "1h")
    assert limited.stdout.startswith(b"paddock_")
    assert number.encode() in tcp.cli("token", "ls").stdout
    assert tcp.cli("token", "create", "--expires", "1w", check=False).returncode == 2
    environment = {"PATH": os.environ["PATH"], "PADDOCK_URL": f"http://127.0.0.1:{PORT}"}
    argv = tcp.namespace.argv(str(harness.BIN / "paddock"), "ls", "--json")
    assert harness.run(*argv, env={**environment, "PADDOCK_TOKEN": token}).stdout.startswith(b"[")
    refused = harness.run(*argv, env=environment, check=False)
    assert refused.returncode == 1 and b"PADDOCK_TOKEN" in refused.stderr
    tcp.cli("token", "rm", number)
    assert harness.run(*argv, env={**environment, "PADDOCK_TOKEN": token}, check=False).returncode == 1


def test_bad_limits_and_an_address_that_is_not_loopback_are_refused(tcp, make_daemon):
    for limits in ({"prefix": "-a"}, {"prefix": ""}, {"expiresIn": 0}, {"readOnly": 1}, {"more": 1}):
        assert tcp.post("/tokens", limits).status == 400, limits
    daemon = make_daemon(start=False)
    good = daemon.config["listen"]
    daemon.config["listen"] = ["tcp:0.0.0.0:7412"]
    daemon.start(wait=False)
    assert daemon.process.wait(harness.patient(30)) != 0
    assert "put a TLS proxy in front" in daemon.log()
    daemon.config["listen"] = good
