"""Clients inside a sandbox that speak HTTP/2 (RFC 9113): python3-h2, frame by frame."""
import socket
import threading

import h2.errors
import pytest

import harness
import upstream as u
import upstream_h2
from client_h2 import Client

pytestmark = pytest.mark.portable
SECRET = "the-secret-of-h2-clients"


@pytest.fixture(scope="module")
def server1(namespace, folder):
    server = u.Upstream(namespace, folder, name="one", hosts=("one.test", "get.test"))
    yield server
    server.close()


@pytest.fixture(scope="module")
def server2(namespace, folder):
    server = upstream_h2.H2Upstream(namespace, folder, name="two", hosts=("two.test",))
    yield server
    server.close()


@pytest.fixture(scope="module")
def box(make_daemon, folder, server1, server2):
    secrets = folder / "h2-client-secrets"
    secrets.mkdir(mode=0o700)
    (secrets / "MARK").write_text(SECRET + "\n")
    (secrets / "MARK").chmod(0o600)
    headers = {"remove": ["x-api-key"], "set": {"authorization": "Bearer ${secret:MARK}"}}
    daemon = make_daemon(default_agent="sh", start=False, secrets_dir=str(secrets), extra_rules=[
        server1.rule("one.test", "one-ca.pem", headers=headers),
        server1.rule("get.test", "one-ca.pem", methods=["GET"]),
        server2.rule("two.test", "two-ca.pem", headers=headers),
        {"name": "unset", "host": "unset.test", "headers": {"set": {"x": "${secret:UNSET}"}}}])
    for server, name in ((server1, "one-ca.pem"), (server2, "two-ca.pem")):
        (daemon.folder / "policy" / name).write_bytes(open(server.ca, "rb").read())
    daemon.start()
    sandbox = daemon.sandbox("h2c")
    assert sandbox.exec("/bin/true")["exitCode"] == 0
    yield sandbox
    sandbox.remove()


@pytest.mark.parametrize("host", ["one.test", "two.test"])
def test_rfc9113_8_3_a_request_is_sent_as_judged(box, server1, server2, host):
    with Client(box, host) as client:
        answer = client.ask("/a/./b%7e?q=1", "GET", ("x-mine", "One"), ("x-api-key", "mine"),
                            ("authorization", "Bearer mine"), ("cookie", "a=1"), ("cookie", "b=2"))
    assert answer["status"] == 200 and answer["body"] == b"/a/b~?q=1"
    seen = (server1 if host == "one.test" else server2).seen("/a/b~?q=1")[-1]
    assert seen.get("x-mine") == "One" and seen.get("authorization") == f"Bearer {SECRET}"
    assert seen.get("x-api-key") is None and seen.get("cookie") == "a=1; b=2"
    names = [name for name, _ in answer["headers"]]
    assert names.count("date") == 1  # neither upstream tells one: RFC 9110, section 6.6.1
    assert names == [name.lower() for name in names] and "connection" not in names


@pytest.mark.parametrize("host", ["one.test", "two.test"])
def test_rfc9113_6_1_bodies_arrive_whole(box, server1, server2, host):
    body = bytes(range(256)) * 8192
    server1.routes["/echo"] = lambda _server, sock, request: sock.sendall(
        b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(request.body), request.body))
    server2.routes["/echo"] = lambda stream: stream.answer(200, stream.read())
    with Client(box, host) as client:
        for more in ((), (("content-length", str(len(body))),)):
            answer = client.ask("/echo", "POST", *more, data=body)
            assert answer["status"] == 200 and answer["body"] == body and answer["ended"]


def test_grpc_streams_both_ways_with_trailers(box, server2):
    """A bidirectional call: each message is answered before the next one is sent."""
    def route(stream):
        assert stream.get("te") == "trailers" and stream.get("content-type") == "application/grpc"
        stream.send_headers((":status", "200"), ("content-type", "application/grpc"))
        while (part := stream.body.get(timeout=harness.patient(30))) is not None:
            if part:
                stream.send(b"re:" + part)
        stream.end(("grpc-status", "0"), ("x-leak", SECRET))
    server2.routes["/pkg.Service/Chat"] = route
    with Client(box, "two.test") as client:
        number = client.head("/pkg.Service/Chat", "POST", ("te", "trailers"),
                             ("content-type", "application/grpc"), end=False)
        answer = client.answers[number]
        for index in range(5):
            client.body(number, b"message-%d;" % index, end=False)
            while not answer["body"].endswith(b"re:message-%d;" % index):
                client.step()
        client.h2.end_stream(number)
        client.flush()
        client.wait(number)
    assert answer["ended"] and answer["trailers"] == [("grpc-status", "0")]


@pytest.mark.parametrize("client_protocol", ["h2", "http/1.1"])
def test_rfc9113_8_1_trailers_of_requests_are_relayed(box, server2, client_protocol):
    def route(stream):
        stream.read()
        stream.answer(200, repr(stream.trailers).encode())
    server2.routes["/request-trailers"] = route
    if client_protocol == "h2":
        with Client(box, "two.test") as client:
            number = client.head("/request-trailers", "POST", end=False)
            client.body(number, b"hello", end=False)
            client.h2.send_headers(number, [("x-sum", "42"), ("x-api-key", "mine")], end_stream=True)
            client.flush()
            body = client.wait(number)["body"]
    else:
        with box.connect_tls("two.test") as sock:
            sock.sendall(b"POST /request-trailers HTTP/1.1\r\nHost: two.test\r\nTransfer-Encoding: "
                         b"chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 42\r\nX-Api-Key: mine\r\n\r\n")
            body = u.read_answer(sock)[2]
    assert body == b"[(b'x-sum', b'42')]"


@pytest.mark.parametrize("size", [8 * 1024, 64 * 1024])
def test_rfc9113_8_1_trailers_that_do_not_fit_reach_nobody(box, server2, size):
    """Nor does one of them pass for another: the last value here would be a name behind half a field."""
    server2.routes["/large-trailers"] = lambda stream: (stream.read(), stream.answer(
        200, repr(stream.trailers).encode()))
    with Client(box, "two.test") as client:
        number = client.head("/large-trailers", "POST", end=False)
        client.body(number, b"hello", end=False)
        client.h2.send_headers(number, [("x-a", "a" * (size - 50)), ("x-b" * 10, "b" * 50),
                                        ("x-c", "authorization")], end_stream=True)
        client.flush()
        answer = client.wait(number)
        assert answer["status"] == 400 and b"trailers are too large" in answer["body"], answer
        assert client.ask("/after")["status"] == 200
    assert not any(stream.trailers for stream in server2.seen("/large-trailers"))


def test_refusals_are_answers_and_the_connection_goes_on(box):
    with Client(box, "unset.test") as client:
        answer = client.ask("/")
        assert answer["status"] == 503 and b"UNSET" in answer["body"]
        assert dict(answer["headers"])["x-should-retry"] == "false"
        assert client.ask("/")["status"] == 503
    with Client(box, "evil.test") as client:
        answer = client.ask("/")
        assert answer["status"] == 403 and "date" in dict(answer["headers"])
        assert answer["body"] == b"evil.test is not reachable from this sandbox\n"
    with Client(box, "get.test") as client:
        assert client.ask("/x", "POST", data=b"x")["status"] == 403
        assert client.ask("/x", "HEAD")["status"] == 403
        assert client.ask("/x")["status"] == 200


@pytest.mark.parametrize("authority", ["two.test", "one.test:8443", "one.test.evil.test", "[::1]"])
def test_rfc9113_9_1_1_another_authority_is_refused(box, server1, authority):
    before = len(server1.requests)
    with Client(box, "one.test") as client:
        assert client.ask("/misdirected", authority=authority)["status"] in (400, 403, 421)
    assert len(server1.requests) == before


def test_rfc9113_8_3_1_host_must_not_differ_from_the_authority(box, server1):
    before = len(server1.requests)
    with Client(box, "one.test", validate=False) as client:
        assert client.ask("/two-hosts", "GET", ("host", "two.test"))["status"] in (400, 421)
    assert len(server1.requests) == before


@pytest.mark.parametrize("more", [
    (("transfer-encoding", "chunked"),), (("connection", "x-a"), ("x-a", "1")),
    (("X-Upper", "1"),), (("x-split", "a\r\nx-b: c"),), ((":path", "/other"),),
    (("x-control", "a\x01b"),), (("x blank", "1"),),
    (("te", "gzip"),), (("content-length", "1"), ("content-length", "2"))])
def test_rfc9113_8_2_malformed_heads_reach_nobody(box, server1, more):
    before = len(server1.requests)
    with Client(box, "one.test", validate=False) as client:
        answer = client.ask("/malformed", "GET", *more)
        assert answer["reset"] == h2.errors.ErrorCodes.PROTOCOL_ERROR or answer["status"] == 400 or \
            client.is_over, answer
    assert len(server1.requests) == before


@pytest.mark.parametrize("method,path", [("CONNECT", "/"), ("TRACE", "/"), ("OPTIONS", "*"),
                                         ("GET", "http://one.test/"), ("GET", "/%00"), ("G ET", "/")])
def test_targets_and_methods_that_are_refused(box, server1, method, path):
    before = len(server1.requests)
    with Client(box, "one.test", validate=False) as client:
        answer = client.ask(path, method)
        assert answer["status"] in (400, 405) or answer["reset"] is not None or client.is_over
    assert len(server1.requests) == before


def test_rfc9113_8_1_1_a_wrong_length_reaches_nobody_whole(box, server2):
    lengths = []
    server2.routes["/short"] = lambda stream: (lengths.append(stream.read()), stream.answer(200))
    with Client(box, "two.test", validate=False) as client:
        number = client.head("/short", "POST", ("content-length", "10"), end=False)
        client.h2.send_data(number, b"short", end_stream=True)
        client.flush()
        answer = client.wait(number)
    assert answer["status"] is None and answer["reset"] is not None
    # it may have been broken before it went out at all
    harness.wait_for(lambda: all(s.reset is not None for s in server2.seen("/short")), 20,
                     "the upstream's stream is reset")


def test_rfc9113_5_4_a_cut_answer_is_a_reset_stream(box, server1):
    def cut(_server, sock, _request):
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nbegun")
    server1.routes["/cut"] = cut
    with Client(box, "one.test") as client:
        answer = client.ask("/cut")
        assert answer["status"] == 200 and not answer["ended"] and answer["reset"] is not None
        assert client.ask("/after")["status"] == 200


def test_rfc9113_6_4_a_reset_cancels_upstream(box, server2):
    begun = threading.Event()
    server2.routes["/endless"] = lambda stream: (stream.send_headers((":status", "200")), begun.set())
    with Client(box, "two.test") as client:
        number = client.head("/endless")
        assert begun.wait(harness.patient(20))
        client.h2.reset_stream(number, h2.errors.ErrorCodes.CANCEL)
        client.flush()
        stream = server2.seen("/endless")[-1]
        harness.wait_for(lambda: stream.reset is not None, 20, "a cancelled stream upstream")
        assert client.ask("/after")["status"] == 200


def test_rfc9113_5_2_a_stream_that_is_not_taken_holds_up_no_other(box, server2):
    sent = [0]

    def route(stream):
        stream.send_headers((":status", "200"))
        while sent[0] < 64 << 20:
            stream.send(b"x" * 16384)
            sent[0] += 16384
    server2.routes["/stall"] = route
    with Client(box, "two.test") as client:
        client.takes = False
        client.h2.increment_flow_control_window(10 << 20)  # the connection's, not the stream's
        client.flush()
        number = client.head("/stall")
        while len(client.answers[number]["body"]) < 65535:
            client.step()
        for index in range(20):
            assert client.ask(f"/beside/{index}")["status"] == 200
        assert sent[0] < 3 << 20, sent


def test_rfc9113_5_1_2_streams_are_bounded(box, server2):
    gate = threading.Event()
    server2.routes["/held"] = lambda stream: (gate.wait(harness.patient(60)), stream.answer(200))
    with Client(box, "two.test") as client:
        client.step()
        while client.h2.remote_settings.max_concurrent_streams > 1000:
            client.step()
        most = client.h2.remote_settings.max_concurrent_streams
        assert most == 100
        numbers = [client.head("/held") for _ in range(most)]
        gate.set()
        assert all(client.wait(number)["status"] == 200 for number in numbers)


def test_a_head_of_many_references_is_not_looked_at_to_its_end(box):
    """Each is a byte, and kilobytes of the connection's table (RFC 7541)."""
    with Client(box, "one.test") as client:
        field = ("x-large", "a" * 3900)
        assert client.ask("/large", "GET", *[field] * 40)["status"] == 431
        answer = client.ask("/endless", "GET", *[field] * 100)
        assert answer["reset"] == h2.errors.ErrorCodes.INTERNAL_ERROR and answer["status"] is None
        assert client.ask("/after")["status"] == 200  # the table is the one that it was
    refused = [line for line in box.daemon.get(f"{box.path}/egress").json if line["status"] == 431]
    assert len(refused) == 2 and all(line["decision"] == "refused" for line in refused), refused


def flood(client, frame, count):
    """Sends and reads nothing until the peer ends the connection or takes no more, so that its answers fill
    what the kernel keeps of them. False: all was taken, and it goes on."""
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    try:
        for number in range(count):
            client.sock.sendall(frame(number))
    except OSError:  # a timeout, too
        return True
    try:
        while client.sock.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


@pytest.mark.parametrize("kind", ["ping", "settings", "reset", "continuation", "refused"])
def test_rfc9113_10_5_floods_end_the_connection_and_nothing_else(box, server2, kind):
    def frame(number):
        if kind == "ping":
            return (b"\x00\x00\x08\x06\x00\x00\x00\x00\x00" + b"x" * 8) * 1000
        if kind == "settings":
            return b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x01\x00\x00" * 1000
        if kind == "continuation":
            if number == 0:
                return b"\x00\x00\x00\x01\x01\x00\x00\x00\x01"
            return b"\x00\x00\x00\x09\x00\x00\x00\x00\x01"
        stream = (2 * number + 1).to_bytes(4, "big")
        block = b"\x82\x87\x84\x41\x08two.test"
        if kind == "refused":  # streams that never end, and nobody reads what is said of them
            return len(block).to_bytes(3, "big") + b"\x01\x04" + stream + block
        return (len(block).to_bytes(3, "big") + b"\x01\x05" + stream + block +
                b"\x00\x00\x04\x03\x00" + stream + b"\x00\x00\x00\x08")
    with Client(box, "two.test") as client, Client(box, "two.test") as other:
        client.sock.settimeout(harness.patient(5))
        count = {"ping": 2000, "settings": 2000, "reset": 20000, "continuation": 1000,
                 "refused": 200000}[kind]
        assert flood(client, frame, count)
        assert other.ask("/other")["status"] == 200
