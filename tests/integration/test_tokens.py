"""Tokens of the API over loopback TCP, with the real daemon: who is let in, to what, for how long."""
import http.client
import json
import os
import pathlib
import signal
import socket
import time

import pytest

import harness

pytestmark = pytest.mark.portable

PORT = 7411


def call(daemon, method, path, token=None, body=None, host=None, address="127.0.0.1", **headers):
    """One request over TCP, from inside the daemon's network namespace."""
    def work():
        connection = http.client.HTTPConnection(address, PORT, timeout=harness.patient(30))
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
    daemon.config["listen"] = [f"unix:{daemon.socket}", f"tcp:127.0.0.1:{PORT}", f"tcp:[::1]:{PORT}"]
    yield daemon.start()
    daemon.close()  # the port is for the next module's


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
    box = tcp.sandbox("with-token")
    assert call(tcp, "POST", f"{box.path}/repository", token, {"url": harness.HELLO}).status == 200
    assert call(tcp, "POST", f"{box.path}/task", token, "echo done").status == 202
    box.finish()
    before = {path for path in (tcp.state / "images").rglob("*") if path.is_file()}
    files = {path for path in pathlib.Path(tcp.state).rglob("*")
             if path.is_file() and not path.is_symlink()} - before
    assert {tcp.state / "tokens.json", tcp.state / "audit.jsonl"} <= files
    assert (tcp.state / "tokens.json").stat().st_mode & 0o777 == 0o600
    secret = token.removeprefix("paddock_").encode()
    for path in files | {tcp.log_path}:
        assert secret not in path.read_bytes(), path
    box.remove()
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


def test_the_other_loopback_address_wants_a_token_too(tcp):
    _, token = make(tcp)
    for host in (None, f"[::1]:{PORT}", "localhost"):
        assert call(tcp, "GET", "/healthz", token, host=host, address="::1").status == 200
    assert call(tcp, "GET", "/healthz", address="::1").status == 401
    assert call(tcp, "GET", "/healthz", token, host="[::2]", address="::1").status == 403


def test_what_is_set_listed_and_measured_is_bound_by_prefix_and_read_only_too(tcp):
    _, mine = make(tcp, prefix="mine-")
    _, reader = make(tcp, readOnly=True)
    try:
        for name in ("mine-1", "other-1"):
            assert tcp.call("PUT", f"/sandboxes/{name}", {"labels": {"a": "b"}}).status == 201
        listed = call(tcp, "GET", "/sandboxes?label=a=b&state=stopped", mine).json
        assert [box["name"] for box in listed] == ["mine-1"]
        assert call(tcp, "PUT", "/sandboxes/mine-1", mine, {}).status == 200
        assert call(tcp, "PUT", "/sandboxes/other-1", mine, {}).status == 403
        assert call(tcp, "PUT", "/sandboxes/mine-1", reader, {}).status == 403
        assert call(tcp, "DELETE", "/sandboxes/other-1?state=stopped", mine).status == 403
        assert call(tcp, "POST", "/sandboxes/other-1/stop?wait=0", mine).status == 403
        for method, path in (("GET", "/df"), ("GET", "/policies"), ("POST", "/policies/reload"),
                             ("DELETE", "/trash")):
            assert call(tcp, method, path, mine).status == 403, path
            assert (call(tcp, method, path, reader).status == 200) == (method == "GET"), path
        _, whole = make(tcp)
        assert call(tcp, "POST", "/policies/reload", whole).status == 200
        assert call(tcp, "DELETE", "/trash", whole).status == 202
    finally:
        for name in ("mine-1", "other-1"):
            tcp.sandbox(name).remove()


@pytest.mark.parametrize("end", ["removed", "over"])
def test_a_stream_ends_with_its_token(tcp, end):
    box = tcp.sandbox(f"streamed-{end}")
    assert box.clone().status == 200
    assert box.start_task("echo begun; read x < <(sleep 300)").status == 202
    number, token = make(tcp, **({"expiresIn": 3} if end == "over" else {}))

    def follow():
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=harness.patient(20))
        connection.request("GET", f"{box.path}/task/log?follow=1", None,
                           {"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        assert response.status == 200 and response.readline() == b"begun\n"
        if end == "removed":
            assert tcp.call("DELETE", f"/tokens/{number}").status == 204
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            response.read()
    harness.in_namespace(tcp.namespace.fd, follow)
    assert box.task()["state"] == "running"  # which belongs to nobody's token
    box.remove()


def test_a_request_that_is_not_whole_ends_with_its_token(tcp):
    """Its head was let in; what its body says must not be done any more."""
    number, token = make(tcp)
    box = tcp.sandbox("late-body")
    body = json.dumps({"argv": ["/bin/true"]}).encode()
    build = tcp.state / "images/.build-late"

    def begin(head):
        sock = socket.create_connection(("127.0.0.1", PORT), harness.patient(30))
        sock.sendall(f"{head} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
                     "Expect: 100-continue\r\nContent-Length: ".encode())
        return sock

    def work():
        with begin("PUT /images/late") as upload, begin(f"POST {box.path}/exec") as command:
            upload.sendall(b"9000000\r\n\r\n")
            command.sendall(b"%d\r\n\r\n" % len(body))
            for sock in (upload, command):
                assert sock.recv(100).startswith(b"HTTP/1.1 100 ")
            assert build.exists()
            assert tcp.call("DELETE", f"/tokens/{number}").status == 204
            for sock in (upload, command):
                with pytest.raises(ConnectionError):
                    sock.sendall(body)
                    assert sock.recv(100)
                    raise AssertionError("it was answered")
    harness.in_namespace(tcp.namespace.fd, work)
    harness.wait_for(lambda: not build.exists(), what="the end of the import")
    assert box.name not in [entry["name"] for entry in tcp.get("/sandboxes").json]


def test_there_are_256_at_most_and_one_that_is_over_makes_room(make_daemon):
    daemon = make_daemon(default_agent="sh")
    first, _ = make(daemon)
    for _ in range(254):
        make(daemon)
    make(daemon, expiresIn=1)
    assert len(daemon.get("/tokens").json) == 256
    harness.wait_for(lambda: daemon.post("/tokens", {}).status == 200, 20, "room for one more")
    refused = daemon.post("/tokens", {})
    assert refused.status == 409 and "256 tokens already" in refused.text
    assert daemon.call("DELETE", f"/tokens/{first}").status == 204
    assert daemon.post("/tokens", {}).status == 200
    daemon.close()


def test_a_damaged_file_of_tokens_is_told_and_left_as_it_is(make_daemon):
    daemon = make_daemon(default_agent="sh")
    make(daemon)
    path = daemon.state / "tokens.json"
    good = path.read_text()
    for text in ("{", "{}", "[{}]", '[{"id": "x"}]', ""):
        daemon.stop()
        path.write_text(text)
        offset = daemon.log_size()
        daemon.start(wait=False)
        assert daemon.process.wait(harness.patient(30)) == 1
        assert "tokens.json is damaged: remove it, and make new tokens" in daemon.log()[offset:]
        assert path.read_text() == text
    path.write_text(good)
    daemon.start()
    assert len(daemon.get("/tokens").json) == 1
    daemon.close()


def test_a_removal_that_the_disk_refuses_is_told_and_holds_as_long_as_it_can(make_daemon):
    daemon = make_daemon(default_agent="sh", start=False)
    daemon.config["listen"] = [f"unix:{daemon.socket}", f"tcp:127.0.0.1:{PORT + 1}"]
    daemon.start()
    number, token = make(daemon)
    other, _ = make(daemon)

    def ask():
        def work():
            connection = http.client.HTTPConnection("127.0.0.1", PORT + 1, timeout=harness.patient(30))
            connection.request("GET", "/healthz", None, {"Authorization": f"Bearer {token}"})
            return connection.getresponse().status
        return harness.in_namespace(daemon.namespace.fd, work)
    assert ask() == 200
    block = daemon.state / "tokens.json.tmp"
    block.mkdir()  # the new file cannot be written
    answer = daemon.call("DELETE", f"/tokens/{number}")
    assert answer.status == 503 and "could not be taken off the disk" in answer.text, answer
    assert "the daemon's next start would let it in again" in answer.text
    assert ask() == 401
    api = daemon.pid_of("paddock-api")
    os.kill(api, signal.SIGKILL)
    harness.wait_for(lambda: daemon.pid_of("paddock-api") not in (None, api) and daemon.is_ready(), 30,
                     "a new api")
    assert ask() == 401, "the next api was not told of it"
    assert [t["id"] for t in daemon.get("/tokens").json if t.get("refused")] == [number]
    block.rmdir()
    assert daemon.call("DELETE", f"/tokens/{number}").status == 204
    daemon.stop()
    daemon.start()
    assert ask() == 401 and [t["id"] for t in daemon.get("/tokens").json] == [other]
    daemon.close()
