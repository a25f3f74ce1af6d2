"""What RFC 9113 (HTTP/2) demands of a server, frame by frame: a client inside a sandbox breaks one rule,
by hand. A test is named after its section; whole requests are in test_http2_client.py."""
import json

import pytest

import harness
import upstream as u
from client_h2 import Client

pytestmark = pytest.mark.portable
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
NO_ERROR, PROTOCOL, INTERNAL, FLOW, _, CLOSED, SIZE, REFUSED, _, COMPRESSION = range(10)
END, ACK, ENDS_HEAD, PADDED = 1, 1, 4, 8
GET = b"\x82\x87\x84\x41\x08one.test"  # GET https one.test /
POST = b"\x83\x87\x84\x41\x08one.test"


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def setting(number, value):
    return frame(SETTINGS, 0, 0, number.to_bytes(2, "big") + value.to_bytes(4, "big"))


@pytest.fixture(scope="module")
def server(namespace, folder):
    server = u.Upstream(namespace, folder, name="one", hosts=("one.test",))
    yield server
    server.close()


@pytest.fixture(scope="module")
def box(make_daemon, server):
    daemon = make_daemon(default_agent="sh", start=False, extra_rules=[server.rule("one.test", "one-ca.pem")])
    (daemon.folder / "policy/one-ca.pem").write_bytes(open(server.ca, "rb").read())
    daemon.start()
    sandbox = daemon.sandbox("rfc9113")
    assert sandbox.exec("/bin/true")["exitCode"] == 0
    yield sandbox
    sandbox.remove()


def frames_of(sock):
    """(kind, flags, stream, payload) until the connection's end."""
    data = harness.read_all(sock)
    while len(data) >= 9:
        size = int.from_bytes(data[:3], "big")
        yield data[3], data[4], int.from_bytes(data[5:9], "big"), data[9:9 + size]
        data = data[9 + size:]


def code_of(box, raw, preface=PREFACE + frame(SETTINGS, 0, 0)):
    """Of the GOAWAY by which the connection ends; None: it ends without."""
    with box.connect_tls("one.test", alpn=("h2",)) as sock:
        sock.sendall(preface + raw)
        codes = [int.from_bytes(payload[4:8], "big") for kind, _, _, payload in frames_of(sock)
                 if kind == GOAWAY]
    return codes[-1] if codes else None


OPEN = frame(HEADERS, ENDS_HEAD, 1, POST)
BROKEN = {
    "4_1 frame larger than allowed": (frame(DATA, 0, 1, bytes(16385)), SIZE),
    "4_3 compression that is none": (frame(HEADERS, ENDS_HEAD | END, 1, b"\xff\xff\xff\xff\xff\xff"), COMPRESSION),
    "5_1 DATA on an idle stream": (frame(DATA, 0, 1, b"x"), PROTOCOL),
    "5_1 WINDOW_UPDATE on an idle stream": (frame(WINDOW, 0, 1, b"\0\0\0\1"), PROTOCOL),
    "5_1 RST_STREAM on an idle stream": (frame(RST_STREAM, 0, 1, b"\0\0\0\0"), PROTOCOL),
    "5_1_1 a server's number": (frame(HEADERS, ENDS_HEAD | END, 2, GET), PROTOCOL),
    "5_1_2 more streams than was agreed (5.4.1: a stream's error may be the connection's)": (
        frame(SETTINGS, ACK, 0) + b"".join(frame(HEADERS, ENDS_HEAD, 2 * i + 1, POST) for i in range(101)), PROTOCOL),
    "6_1 DATA on stream 0": (frame(DATA, 0, 0, b"x"), PROTOCOL),
    "6_1 padding longer than the frame": (OPEN + frame(DATA, PADDED, 1, b"\x05x"), PROTOCOL),
    "6_2 HEADERS on stream 0": (frame(HEADERS, ENDS_HEAD, 0, GET), PROTOCOL),
    "6_4 RST_STREAM on stream 0": (frame(RST_STREAM, 0, 0, b"\0\0\0\0"), PROTOCOL),
    "6_4 RST_STREAM of another size": (OPEN + frame(RST_STREAM, 0, 1, b"\0\0\0"), SIZE),
    "6_5 SETTINGS on a stream": (frame(SETTINGS, 0, 1), PROTOCOL),
    "6_5 SETTINGS of another size": (frame(SETTINGS, 0, 0, b"\0\0\0\0\0"), SIZE),
    "6_5 an acknowledgement that says something": (frame(SETTINGS, ACK, 0, bytes(6)), SIZE),
    "6_5_2 ENABLE_PUSH of 2": (setting(2, 2), PROTOCOL),
    "6_5_2 a window beyond the largest": (setting(4, 1 << 31), FLOW),
    "6_5_2 frames smaller than the smallest": (setting(5, 16383), PROTOCOL),
    "6_5_2 frames larger than the largest": (setting(5, 1 << 24), PROTOCOL),
    "6_6 PUSH_PROMISE of a client": (OPEN + frame(PUSH_PROMISE, ENDS_HEAD, 1, b"\0\0\0\2" + GET), PROTOCOL),
    "6_7 PING on a stream": (frame(PING, 0, 1, bytes(8)), PROTOCOL),
    "6_7 PING of another size": (frame(PING, 0, 0, bytes(7)), SIZE),
    "6_8 GOAWAY on a stream": (frame(GOAWAY, 0, 1, bytes(8)), PROTOCOL),
    "6_9 WINDOW_UPDATE of another size": (frame(WINDOW, 0, 0, b"\0\0\1"), SIZE),
    "6_9 WINDOW_UPDATE of nothing": (frame(WINDOW, 0, 0, bytes(4)), PROTOCOL),
    "6_9_1 a window beyond the largest": (frame(WINDOW, 0, 0, b"\x7f\xff\xff\xff"), FLOW),
    "6_10 CONTINUATION of nothing": (frame(CONTINUATION, ENDS_HEAD, 1, GET), PROTOCOL),
    "6_10 another frame inside a head": (frame(HEADERS, END, 1, GET) + frame(PING, 0, 0, bytes(8)), PROTOCOL),
}


@pytest.mark.parametrize("raw, code", BROKEN.values(), ids=BROKEN.keys())
def test_rfc9113_what_breaks_the_connection_is_told_by_its_code(box, server, raw, code):
    before = len(server.requests)
    assert code_of(box, raw) == code
    assert len(server.requests) == before


@pytest.mark.parametrize("raw", [b"GET / HTTP/1.1\r\nHost: one.test\r\n\r\n" + bytes(100),
                                 PREFACE[:-1] + b"X" + bytes(100), PREFACE + frame(PING, 0, 0, bytes(8))],
                         ids=["HTTP/1.1", "another end", "no SETTINGS"])
def test_rfc9113_3_4_what_does_not_begin_with_the_preface_is_ended(box, server, raw):
    before = len(server.requests)
    assert code_of(box, raw, b"") in (None, PROTOCOL)
    assert len(server.requests) == before


def lines_of(box):
    return [json.loads(line) for line in (box.daemon.state / "audit.jsonl").read_text().splitlines()]


MALFORMED = {
    "8_2 a name in capitals": GET + b"\x00\x05X-Two\x011",
    "8_2_2 a field of the connection": GET + b"\x00\x0aconnection\x05close",
    "8_3 a pseudo field behind others": b"\x82\x87\x84\x00\x05x-one\x011\x41\x08one.test",
    "8_3 a pseudo field twice": GET + b"\x84",
    "8_3 a pseudo field of answers": GET + b"\x88",
    "8_3_1 no path": b"\x82\x87\x41\x08one.test",
    "8_3_1 an empty path": b"\x82\x87\x04\x00\x41\x08one.test",
    "8_3_1 no scheme": b"\x82\x84\x41\x08one.test",
    "8_3_1 no method": b"\x87\x84\x41\x08one.test",
}


@pytest.mark.parametrize("end", [END, 0], ids=["whole", "with a body"])
@pytest.mark.parametrize("head", MALFORMED.values(), ids=MALFORMED.keys())
def test_rfc9113_8_1_1_a_malformed_head_resets_its_stream_and_is_in_the_audit(box, server, head, end):
    before, seen = len(lines_of(box)), len(server.requests)
    with box.connect_tls("one.test", alpn=("h2",)) as sock:
        sock.sendall(PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, ENDS_HEAD | end, 1, head) +
                     frame(HEADERS, ENDS_HEAD | END, 3, GET))
        there = [read_frame(sock)]
        while there[-1][0] != HEADERS or there[-1][2] != 3:  # another stream goes on
            there.append(read_frame(sock))
    assert [payload for kind, _, stream, payload in there if (kind, stream) == (RST_STREAM, 1)] == [
        PROTOCOL.to_bytes(4, "big")], there
    harness.wait_for(lambda: len(lines_of(box)) == before + 2, 20, "two lines")
    line = next(line for line in lines_of(box)[before:] if line["decision"] == "refused")
    assert line["reason"] == "the request's head is not understood" and line["status"] == 400, line
    assert line["protocol"] == "h2" and line["host"] == "" and line["ended_by"] == "policy", line
    assert len(server.requests) == seen + 1


def test_rfc9113_8_1_malformed_trailers_are_the_reason(box, server):
    with Client(box, "one.test", validate=False) as client:
        number = client.head("/malformed-trailers", "POST", end=False)
        client.body(number, b"x", end=False)
        client.h2.send_headers(number, [("X-Capital", "1")], end_stream=True)
        client.flush()
        assert client.wait(number)["reset"] == PROTOCOL
    line = harness.wait_for(lambda: [line for line in lines_of(box) if line["path"] == "/malformed-trailers"], 20)[0]
    assert (line["decision"], line["ended_by"]) == ("error", "client"), line
    assert line["reason"] == "the request's trailers are too large or malformed"


def test_rfc9113_5_1_1_a_number_is_used_once_and_they_grow(box):
    with Client(box, "one.test") as client:
        assert client.ask("/first")["status"] == 200 and client.ask("/second")["status"] == 200
        client.sock.sendall(frame(HEADERS, ENDS_HEAD | END, 1, GET))
        assert [payload[4:8] for kind, _, _, payload in frames_of(client.sock) if kind in (GOAWAY, RST_STREAM)]


def read_frame(sock):
    head = u.read_exactly(sock, 9)
    return head[3], head[4], int.from_bytes(head[5:], "big"), u.read_exactly(sock, int.from_bytes(head[:3], "big"))


def test_rfc9113_5_1_2_one_stream_too_many_is_refused_and_the_others_go_on(box):
    """By a client that has not seen our settings yet."""
    with box.connect_tls("one.test", alpn=("h2",)) as sock:
        sock.sendall(PREFACE + frame(SETTINGS, 0, 0) + b"".join(
            frame(HEADERS, ENDS_HEAD, number, POST) for number in range(1, 203, 2)))
        there = [read_frame(sock)]
        while there[-1][0] != RST_STREAM:
            there.append(read_frame(sock))
        assert there[-1][2:] == (201, REFUSED.to_bytes(4, "big"))
        for number in (199, 1):
            sock.sendall(frame(DATA, END, number, b"x"))
            while there[-1][0] != HEADERS or there[-1][2] != number:
                there.append(read_frame(sock))
    assert [kind for kind, _, _, _ in there if kind in (GOAWAY, RST_STREAM)] == [RST_STREAM]


def test_rfc9113_5_5_what_is_unknown_is_ignored_and_a_ping_answered(box):
    with box.connect_tls("one.test", alpn=("h2",)) as sock:
        sock.sendall(PREFACE + frame(SETTINGS, 0, 0) + frame(0xfa, 0xff, 0, b"unknown") +
                     setting(0x7777, 7) + frame(PING, 0, 0, b"12345678"))
        there = [read_frame(sock)]
        assert there[0][0] == SETTINGS and not there[0][1] & ACK
        while there[-1] != (PING, ACK, 0, b"12345678"):
            there.append(read_frame(sock))
        while there.count((SETTINGS, ACK, 0, b"")) < 2:
            there.append(read_frame(sock))
    assert not [kind for kind, _, _, _ in there if kind in (GOAWAY, RST_STREAM)]


def test_rfc9113_6_9_no_more_is_sent_than_the_clients_window(box, server):
    server.routes["/window"] = lambda _s, sock, _r: sock.sendall(
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123456789") or "keep"
    with box.connect_tls("one.test", alpn=("h2",)) as sock:
        sock.sendall(PREFACE + setting(4, 4) + frame(HEADERS, ENDS_HEAD | END, 1,
                                                     b"\x82\x87\x04\x07/window\x41\x08one.test"))
        data = []
        while sum(map(len, data)) < 10:
            kind, _, _, payload = read_frame(sock)
            if kind == DATA:
                data.append(payload)
                sock.sendall(frame(WINDOW, 0, 1, len(payload).to_bytes(4, "big")))
    assert b"".join(data) == b"0123456789" and max(map(len, data)) <= 4
