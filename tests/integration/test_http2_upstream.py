"""Upstreams that speak HTTP/2 (RFC 9113), asked by an HTTP/1.1 client from inside a sandbox."""
import contextlib
import socket
import threading

import h2.errors
import hyperframe.frame
import pytest

import harness
import upstream as u
import upstream_h2

pytestmark = pytest.mark.portable


@pytest.fixture(scope="module")
def server(namespace, folder):
    server = upstream_h2.H2Upstream(namespace, folder)
    yield server
    server.close()


@pytest.fixture(scope="module")
def box(make_daemon, folder, server):
    secrets = folder / "h2-secrets"
    secrets.mkdir(mode=0o700)
    (secrets / "MARK").write_text("the-secret-of-h2-tests\n")
    (secrets / "MARK").chmod(0o600)
    daemon = make_daemon(default_agent="sh", start=False, secrets_dir=str(secrets), extra_rules=[
        server.rule("h2.test", "h2-ca.pem", headers={
            "remove": ["x-api-key"], "set": {"authorization": "Bearer ${secret:MARK}"}})])
    (daemon.folder / "policy/h2-ca.pem").write_bytes(open(server.ca, "rb").read())
    daemon.start()
    sandbox = daemon.sandbox("h2")
    assert sandbox.exec("/bin/true")["exitCode"] == 0
    yield sandbox
    sandbox.remove()


def head_of(path, method="GET", more=""):
    return f"{method} {path} HTTP/1.1\r\nHost: h2.test\r\n{more}\r\n".encode()


def ask(box, raw, method="GET"):
    with box.connect_tls("h2.test") as sock:
        sock.sendall(raw)
        return u.read_answer(sock, method)


def test_rfc9113_8_3_a_request_is_sent_as_judged(box, server):
    status, headers, body = ask(box, head_of(
        "/a/./b%7e?q=1", more="X-Mine: One\r\nX-Api-Key: mine\r\nAuthorization: Bearer mine\r\n"
                              "Connection: x-hop\r\nX-Hop: 1\r\nTE: trailers\r\n"))
    assert status == 200 and body == b"/a/b~?q=1"
    assert headers["transfer-encoding"] == "chunked"
    seen = server.seen("/a/b~?q=1")[-1]
    assert seen.headers[:4] == [(":method", "GET"), (":scheme", "https"),
                                (":authority", "h2.test"), (":path", "/a/b~?q=1")]
    assert seen.get("x-mine") == "One" and seen.get("authorization") == "Bearer the-secret-of-h2-tests"
    for name in ("x-api-key", "connection", "x-hop", "host", "transfer-encoding"):
        assert seen.get(name) is None, name


def test_rfc9113_5_many_requests_share_a_connection(box, server):
    before = len(server.links)
    gate = threading.Barrier(20, timeout=harness.patient(30))

    def route(stream):
        gate.wait()  # all are under way at once
        stream.answer(200, b"together")
    server.routes["/together"] = route
    results = []

    def one():
        results.append(ask(box, head_of("/together")))
    threads = [threading.Thread(target=one) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [r[0] for r in results] == [200] * 20 and {r[2] for r in results} == {b"together"}
    assert len(server.links) - before <= 1


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_rfc9113_6_1_bodies_arrive_whole(box, server, framing):
    body = bytes(range(256)) * 8192  # 2 MiB: more than any window
    path = f"/echo-{framing}"

    def echo(stream):
        stream.answer(200, stream.read())
    server.routes[path] = echo
    if framing == "length":
        raw = head_of(path, "POST", f"Content-Length: {len(body)}\r\n") + body
    else:
        raw = head_of(path, "POST", "Transfer-Encoding: chunked\r\n") + b"".join(
            b"%x\r\n%s\r\n" % (len(body[at:at + 70000]), body[at:at + 70000])
            for at in range(0, len(body), 70000)) + b"0\r\n\r\n"
    with box.connect_tls("h2.test") as sock:
        sock.sendall(raw)  # all of it is read before the answer begins
        status, _, answer = u.read_answer(sock)
    assert status == 200 and answer == body
    assert server.seen(path)[-1].get("content-length") == (
        str(len(body)) if framing == "length" else None)


def test_rfc9113_8_1_trailers_are_relayed(box, server):
    def route(stream):
        stream.send_headers((":status", "200"), ("trailer", "x-sum"))
        stream.send(b"hello")
        stream.end(("x-sum", "42"), ("x-leak", "the-secret-of-h2-tests"))
    server.routes["/trailers"] = route
    with box.connect_tls("h2.test") as sock:
        sock.sendall(head_of("/trailers"))
        head = u.read_until(sock, b"\r\n\r\n")
        assert b"200" in head.split(b"\r\n")[0]
        rest = b""
        while not rest.endswith(b"\r\n\r\n"):
            rest += sock.recv(4096)
    assert rest == b"5\r\nhello\r\n0\r\nx-sum: 42\r\n\r\n"  # and no secret


def test_rfc9113_8_1_an_early_answer_ends_the_request(box, server):
    def route(stream):
        stream.answer(413, b"too much")
        stream.rst(h2.errors.ErrorCodes.NO_ERROR)
    server.routes["/early"] = route
    with box.connect_tls("h2.test") as sock:
        sock.sendall(head_of("/early", "POST", "Content-Length: 1000000\r\n"))
        status, headers, body = u.read_answer(sock)
    assert status == 413 and body == b"too much" and headers["connection"] == "close"


def test_rfc9113_8_1_interim_answers_are_relayed(box, server):
    def route(stream):
        stream.send_headers((":status", "103"), ("link", "</x>"))
        stream.answer(200, b"ok")
    server.routes["/interim"] = route
    with box.connect_tls("h2.test") as sock:
        sock.sendall(head_of("/interim"))
        assert u.read_until(sock, b"\r\n\r\n").startswith(b"HTTP/1.1 103 ")
        assert u.read_answer(sock)[::2] == (200, b"ok")


@pytest.mark.parametrize("method,status", [("HEAD", 200), ("GET", 204), ("GET", 304)])
def test_rfc9113_8_1_answers_without_a_body_keep_the_connection(box, server, method, status):
    server.routes["/empty"] = lambda stream: stream.answer(status)
    with box.connect_tls("h2.test") as sock:
        for _ in range(2):
            sock.sendall(head_of("/empty", method))
            got, headers, body = u.read_answer(sock, "HEAD")
            assert got == status and body == b"" and "connection" not in headers


def test_rfc9113_8_7_a_refused_stream_is_sent_again(box, server):
    seen = []

    def route(stream):
        seen.append(stream)
        if len(seen) == 1:
            stream.rst(h2.errors.ErrorCodes.REFUSED_STREAM)
        else:
            stream.answer(200, b"second")
    server.routes["/refused"] = route
    assert ask(box, head_of("/refused", "POST", "Content-Length: 0\r\n"))[::2] == (200, b"second")
    assert len(seen) == 2


def go_away(stream, last):
    """By hand: python3-h2 says nothing more after its own."""
    stream.connection.send_raw(hyperframe.frame.GoAwayFrame(0, last_stream_id=last).serialize())


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_rfc9113_6_8_what_a_goaway_leaves_out_is_sent_again(box, server, method):
    path = f"/left-out-{method}"

    def route(stream):
        if len(server.seen(path)) == 1:
            go_away(stream, 0)
        else:
            stream.answer(200, b"second")
    server.routes[path] = route
    assert ask(box, head_of(path, method, "Content-Length: 0\r\n"))[::2] == (200, b"second")
    first, second = server.seen(path)
    assert first.connection is not second.connection


@pytest.mark.parametrize("refuse", [lambda stream: go_away(stream, 0),
                                    lambda stream: stream.rst(h2.errors.ErrorCodes.REFUSED_STREAM)],
                         ids=["goaway", "reset"])
@pytest.mark.parametrize("framing", ["Content-Length: 5\r\n\r\nhello",
                                     "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"],
                         ids=["length", "chunked"])
def test_rfc9113_8_7_a_request_whose_body_went_is_not_sent_without_it(box, server, refuse, framing):
    """The body came before there was a connection for it."""
    def route(stream):
        stream.read()
        refuse(stream)
    server.routes["/with-body"] = route
    server.routes["/last"] = lambda stream: (go_away(stream, stream.number), stream.answer(200))
    assert ask(box, head_of("/last"))[0] == 200
    before = len(server.seen("/with-body"))
    raw = f"POST /with-body HTTP/1.1\r\nHost: h2.test\r\n{framing}".encode()
    status, _, body = ask(box, raw)
    assert status == 502 and b"REFUSED_STREAM" in body, body
    assert len(server.seen("/with-body")) == before + 1


def test_rfc9113_6_8_after_goaway_another_connection_is_made(box, server):
    def route(stream):
        go_away(stream, stream.number)
        stream.answer(200, b"last")
    server.routes["/goaway"] = route
    ask(box, head_of("/one"))
    before = len(server.links)
    assert ask(box, head_of("/goaway"))[::2] == (200, b"last")
    assert ask(box, head_of("/after"))[::2] == (200, b"/after")
    assert len(server.links) == before + 1


def test_rfc9113_6_4_a_reset_before_the_answer_is_502(box, server):
    server.routes["/reset"] = lambda stream: stream.rst(h2.errors.ErrorCodes.INTERNAL_ERROR)
    status, headers, body = ask(box, head_of("/reset"))
    assert status == 502 and b"reset the stream: INTERNAL_ERROR" in body, body
    assert headers["x-paddock-reason"] == body.decode().strip()


def test_rfc9113_6_4_a_reset_in_the_answer_is_a_cut(box, server):
    def route(stream):
        stream.send_headers((":status", "200"))
        stream.send(b"begun")
        stream.rst(h2.errors.ErrorCodes.INTERNAL_ERROR)
    server.routes["/cut"] = route
    with pytest.raises(OSError):
        ask(box, head_of("/cut"))


def test_rfc9113_8_1_1_a_wrong_length_is_a_cut(box, server):
    def route(stream):
        stream.answer(200, b"short", ("content-length", "10"))
    server.routes["/short"] = route
    with pytest.raises(OSError):
        ask(box, head_of("/short"))


def test_rfc9113_10_5_1_a_head_that_is_too_large_is_502(box, server):
    server.routes["/huge"] = lambda stream: stream.answer(
        200, b"", *[(f"x-{i}", "v" * 1000) for i in range(90)])
    status, _, body = ask(box, head_of("/huge"))
    assert status == 502 and b"too large" in body, body


def test_rfc9113_8_2_1_forbidden_bytes_in_a_field_are_502(box, server):
    server.routes["/split"] = lambda stream: stream.answer(200, b"", ("x-bad", "a\r\nset-cookie: b"))
    assert ask(box, head_of("/split"))[0] == 502


def test_rfc9113_5_2_a_slow_client_holds_up_its_own_stream_alone(box, server):
    """What egress takes of an answer that nobody reads is bounded; the others on the connection go
    on."""
    sent = [0]
    stalled = threading.Event()

    def route(stream):
        stream.send_headers((":status", "200"))
        chunk = b"x" * 16384
        stream.connection.sock.settimeout(None)
        while sent[0] < 64 << 20:
            part = stream.connection.h2.local_flow_control_window(stream.number)
            if part < len(chunk):
                stalled.set()
            stream.send(chunk)
            sent[0] += len(chunk)
        stream.end()
    server.routes["/stall"] = route
    with box.connect_tls("h2.test") as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(head_of("/stall"))
        assert stalled.wait(harness.patient(30))
        for number in range(20):
            assert ask(box, head_of(f"/beside/{number}"))[0] == 200
        assert sent[0] < 3 << 20, sent
    stream = server.seen("/stall")[-1]
    harness.wait_for(lambda: stream.reset is not None, 20, "the stream is cancelled")
    assert stream.reset == h2.errors.ErrorCodes.CANCEL


def test_rfc9113_5_2_large_windows_of_a_sandbox_are_bounded(box, server):
    """Of so many answers that nobody reads, only some may be held up with half a megabyte each."""
    sent = {}

    def route(stream):
        stream.send_headers((":status", "200"))
        while sent.setdefault(stream.number, 0) < 4 << 20:
            stream.send(bytes(1 << 16))
            sent[stream.number] += 1 << 16
    server.routes["/held-up"] = route
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            sock = stack.enter_context(box.connect_tls("h2.test"))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.sendall(head_of("/held-up"))
        sums = []

        def is_steady():
            sums.append(sum(sent.values()))
            return len(sums) > 10 and len(sent) == 40 and sums[-1] == sums[-10]
        harness.wait_for(is_steady, 60, "all are held up", interval=0.1)
        assert sum(count > 500_000 for count in sent.values()) <= 32, sent  # LIMIT_EGRESS_WIDE_STREAMS
    assert ask(box, head_of("/fine"))[0] == 200


def test_rfc9113_5_4_1_an_upstream_that_breaks_the_protocol_is_502(box, server):
    def route(stream):
        stream.connection.send_raw(b"\x00\x00\x00\x00\x00\x00\x00\x00\x00")  # DATA on stream 0
    server.routes["/broken"] = route
    status, _, body = ask(box, head_of("/broken"))
    assert status == 502, body
    assert ask(box, head_of("/fine"))[0] == 200


def test_rfc9113_8_4_a_push_that_was_not_asked_for_ends_its_connection(box, server):
    def route(stream):  # stream 2 is promised: GET https h2.test /
        promise = b"\0\0\0\2\x82\x87\x84\x01\x07h2.test"
        stream.connection.send_raw(len(promise).to_bytes(3, "big") + b"\5\4" +
                                   stream.number.to_bytes(4, "big") + promise)
    server.routes["/push"] = route
    assert ask(box, head_of("/push", "POST", "Content-Length: 0\r\n"))[0] == 502
    pushing = server.seen("/push")[-1].connection
    harness.wait_for(lambda: pushing.is_over, 20, "the end of the connection")
    assert pushing.goaway == h2.errors.ErrorCodes.PROTOCOL_ERROR
    assert ask(box, head_of("/fine"))[0] == 200 and server.seen("/fine")[-1].connection is not pushing
