"""The proxy's framing and streaming (CASES A), from inside a sandbox to a server of the test."""
import json
import os
import re
import signal
import socket
import ssl
import threading
import time

import pytest

import harness
import upstream as u


@pytest.fixture(scope="module")
def box(make_daemon, server):
    """A running sandbox whose policy allows u.test, other.test (upstream: the test's server)."""
    daemon = make_daemon(default_agent="sh", extra_rules=[
        server.rule("u.test", "u-ca.pem"), server.rule("other.test", "u-ca.pem"),
        server.rule("get.test", "u-ca.pem", methods=["GET"]),
        {"name": "unreachable", "host": "closed.test", "upstream": "127.0.0.1:1"},
    ], start=False)
    (daemon.folder / "policy/u-ca.pem").write_bytes(open(server.ca, "rb").read())
    daemon.start()
    sandbox = daemon.sandbox("box")
    assert sandbox.exec("/bin/true")["exitCode"] == 0
    yield sandbox
    sandbox.remove()


def get(path, host="u.test", more=""):
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode()


def ask(box, raw, host="u.test", method="GET", **options):
    with box.connect_tls(host, **options) as sock:
        sock.sendall(raw)
        return u.read_answer(sock, method)


def test_a1_events_arrive_as_they_are_sent(box, server):
    """The next one is sent when the one before was received: whoever holds one back gets no other."""
    sent = []
    received = threading.Semaphore(1)

    def events(_server, sock, _request):
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                     b"transfer-encoding: chunked\r\n\r\n")
        for number in range(5):
            assert received.acquire(timeout=harness.patient(20))
            event = b"data: %d\n\n" % number
            sent.append(time.monotonic())
            sock.sendall(b"%x\r\n%s\r\n" % (len(event), event))
        sock.sendall(b"0\r\n\r\n")
    server.routes["/events"] = events
    with box.connect_tls("u.test") as sock:
        sock.sendall(get("/events"))
        assert b"text/event-stream" in u.read_until(sock, b"\r\n\r\n")
        late = []
        for number in range(5):
            chunk = u.read_until(sock, b"\n\n\r\n")
            late.append(time.monotonic() - sent[number])
            received.release()
            assert b"data: %d\n\n" % number in chunk
    assert sorted(late)[2] < 0.1, late


def test_a2_a_large_post_is_answered_after_its_body(box, server):
    body = bytes(range(256)) * (5 << 12)
    status, _, answer = ask(box, b"POST /echo-size HTTP/1.1\r\nHost: u.test\r\nContent-Length: %d\r\n"
                                 b"\r\n%s" % (len(body), body))
    assert status == 200 and answer == b"/echo-size"
    assert server.seen("/echo-size")[-1].body == body


def test_a3_two_gets_on_one_connection(box):
    with box.connect_tls("u.test") as sock:
        for path in ("/one", "/two"):
            sock.sendall(get(path))
            assert u.read_answer(sock)[2] == path.encode()


def test_a4_pipelined_requests_are_judged_one_by_one(box, server):
    with box.connect_tls("get.test") as sock:
        sock.sendall(get("/allowed", "get.test") +
                     b"POST /forbidden HTTP/1.1\r\nHost: get.test\r\nContent-Length: 0\r\n\r\n" +
                     get("/after", "get.test"))
        assert u.read_answer(sock)[:1] == (200,)
        status, _, body = u.read_answer(sock)
        assert (status, body) == (403, b"get.test is not reachable from this sandbox\n")
        assert u.read_answer(sock)[::2] == (200, b"/after")
    assert len(server.seen("/allowed")) == 1 and not server.seen("/forbidden")


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a6_framing_and_bytes_stay(box, server, framing):
    body = bytes(i * 7 % 251 for i in range(1 << 20))
    head = b"POST /frame HTTP/1.1\r\nHost: u.test\r\n"
    if framing == "length":
        raw = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    else:
        raw = head + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(
            b"%x\r\n%s\r\n" % (len(body[i:i + 9999]), body[i:i + 9999])
            for i in range(0, len(body), 9999)) + b"0\r\n\r\n"
    assert ask(box, raw)[0] == 200
    request = server.seen("/frame")[-1]
    assert request.body == body
    if framing == "length":
        assert request.get("content-length") == str(len(body))
        assert request.get("transfer-encoding") is None
    else:
        assert request.get("transfer-encoding") == "chunked"
        assert request.get("content-length") is None


def expecting(path, expect, length):
    return (f"POST {path} HTTP/1.1\r\nHost: u.test\r\nExpect: {expect}\r\n"
            f"Content-Length: {length}\r\n\r\n").encode()


@pytest.mark.parametrize("expect", ["100-continue", "100-Continue"])
def test_a9_a_body_is_asked_for_before_it_is_sent(box, server, expect):
    def ask_for_it(_server, sock, request):
        assert request.get("expect").lower() == "100-continue"
        sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.body = u.read_body(sock, request)
        return u.default_route(_server, sock, request)
    ask_for_it.reads_body = True
    server.routes["/a9"] = ask_for_it
    with box.connect_tls("u.test") as sock:
        sock.sendall(expecting("/a9", expect, 5))
        assert u.read_answer(sock)[0] == 100
        sock.sendall(b"hello")
        assert u.read_answer(sock)[::2] == (200, b"/a9")
    assert server.seen("/a9")[-1].body == b"hello"


@pytest.mark.parametrize("status", [401, 417])
def test_a9_a_refusal_comes_before_the_body_is_sent(box, server, status):
    def refuse(_server, sock, _request):
        sock.sendall(b"HTTP/1.1 %d No\r\ncontent-length: 2\r\n\r\nno" % status)
        sock.unwrap()
    refuse.reads_body = True
    server.routes["/a9-no"] = refuse
    with box.connect_tls("u.test") as sock:
        sock.sendall(expecting("/a9-no", "100-continue", 1 << 30))
        answer = u.read_answer(sock)
        if answer[0] == 100:
            answer = u.read_answer(sock)
        assert answer[::2] == (status, b"no")


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd"])
def test_a14_content_codings_pass_unchanged(box, server, encoding):
    payload = bytes(range(256)) * 40  # not what the coding says: nobody may look inside

    def coded(_server, sock, _request):
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-encoding: %s\r\nX-Case: Kept\r\n"
                     b"content-length: %d\r\n\r\n%s" % (encoding.encode(), len(payload), payload))
        return "keep"
    server.routes["/coded"] = coded
    status, headers, body = ask(box, get("/coded", more=f"Accept-Encoding: {encoding}\r\n"))
    assert status == 200 and body == payload and headers["content-encoding"] == encoding
    assert server.seen("/coded")[-1].get("accept-encoding") == encoding


def test_a15_head_keeps_its_length_and_has_no_body(box):
    with box.connect_tls("u.test") as sock:
        sock.sendall(b"HEAD /head HTTP/1.1\r\nHost: u.test\r\n\r\n")
        status, headers, _ = u.read_answer(sock, "HEAD")
        assert status == 200 and headers["content-length"] == "5"
        sock.sendall(get("/next"))
        assert u.read_answer(sock)[2] == b"/next"


@pytest.mark.parametrize("status", [204, 304])
def test_a15_answers_without_a_body(box, server, status):
    server.routes["/none"] = lambda _s, sock, _r: sock.sendall(
        b"HTTP/1.1 %d X\r\netag: \"a\"\r\n\r\n" % status) or "keep"
    with box.connect_tls("u.test") as sock:
        sock.sendall(get("/none") + get("/next"))
        got, headers, _ = u.read_answer(sock)
        assert got == status and headers["etag"] == '"a"'
        assert u.read_answer(sock)[2] == b"/next"


def test_a15_interim_answers_are_relayed(box, server):
    server.routes["/hints"] = lambda _s, sock, _r: sock.sendall(
        b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok") or "keep"
    with box.connect_tls("u.test") as sock:
        sock.sendall(get("/hints"))
        assert u.read_answer(sock)[:2] == (103, {"link": "</a>"})
        assert u.read_answer(sock)[2] == b"ok"


def test_a15_an_answer_ended_by_close(box, server):
    server.routes["/close"] = lambda _s, sock, _r: sock.sendall(
        b"HTTP/1.1 200 OK\r\n\r\nall of it") or sock.unwrap() and None
    assert ask(box, get("/close"))[2] == b"all of it"


CUT = {"in a length": b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this",
       "in a chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n64\r\nonly this",
       "between chunks": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nonly this\r\n",
       "in a closed body": b"HTTP/1.1 200 OK\r\n\r\nonly this"}


@pytest.mark.parametrize("data", CUT.values(), ids=CUT.keys())
def test_a16_truncation_is_an_error_in_the_sandbox(box, server, data):
    def cut(_server, sock, _request):
        sock.sendall(data)
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # no close_notify
    server.routes["/cut"] = cut
    with box.connect_tls("u.test") as sock:
        sock.sendall(get("/cut"))
        with pytest.raises((ssl.SSLError, OSError)):
            status, _, body = u.read_answer(sock)
            if status == 502:  # nothing had been passed on yet: a clear refusal is right too
                raise OSError(body)


def test_an_upstream_that_is_not_there_is_502_with_the_cause(box):
    status, headers, body = ask(box, get("/", "closed.test"), "closed.test")
    assert status == 502 and body and headers.get("x-paddock-reason"), (headers, body)


def test_headers_reach_the_upstream_as_they_were(box, server):
    ask(box, get("/headers?q=a%20b", more="User-Agent: test/1\r\nX-Weird: a:b, c\r\n"
                                          "Connection: x-hop\r\nX-Hop: 1\r\nTE: trailers\r\n"))
    request = server.seen("/headers?q=a%20b")[-1]
    names = [name.lower() for name, _ in request.headers]
    assert request.get("user-agent") == "test/1" and request.get("x-weird") == "a:b, c"
    assert "x-hop" not in names and "accept" not in names and "via" not in names
    assert request.get("host") == "u.test"


def test_a_stalled_reader_does_not_fill_memory(box, server):
    """Back-pressure: what the sandbox does not read stays at the upstream."""
    sent = []
    ended, measured = threading.Event(), threading.Event()

    def endless(_server, sock, _request):
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n")
        sock.settimeout(harness.patient(3))  # no more is taken: the upstream is stalled
        try:
            while sum(sent) < 1 << 28:
                sent.append(sock.send(bytes(1 << 16)))
        except TimeoutError:
            ended.set()
        measured.wait(harness.patient(30))
    server.routes["/endless"] = endless
    with box.connect_tls("u.test") as sock:
        sock.sendall(get("/endless"))
        u.read_until(sock, b"\r\n\r\n")
        before = memory_kib(box.daemon.pid_of("paddock-egress"))
        assert ended.wait(harness.patient(60)), "the upstream was never stalled"
        assert sum(sent) < 1 << 26
        assert memory_kib(box.daemon.pid_of("paddock-egress")) - before < 8192
        measured.set()


def memory_kib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{pid}/status").read()).group(1))


@pytest.mark.portable  # 20 at once, each in its handshake for no longer than its limit
def test_c6_twenty_sandboxes_at_once_all_reach_the_gateway(make_daemon, demo):
    daemon = make_daemon(default_agent="sh")
    results = []

    def one(number):
        results.append(daemon.sandbox(f"c6-{number}").sh(
            "git ls-remote https://github.com/octocat/Hello-World HEAD"))
    threads = [threading.Thread(target=one, args=(i,)) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 20 and all(r["exitCode"] == 0 and "HEAD" in r["stdout"] for r in results)


def test_the_audit_has_a_line_for_each_request(box):
    ask(box, get("/audited?key=hidden"))
    ask(box, get("/", "denied.test"), "denied.test")
    def lines():
        text = (box.daemon.state / "audit.jsonl").read_text()
        return text if "/audited" in text and "denied.test" in text else None
    text = harness.wait_for(lines, 10, "audit lines")
    assert "hidden" not in text and '"box"' in text
    line = next(json.loads(line) for line in text.splitlines() if "/audited" in line)
    assert line["path"] == "/audited?key=…" and line["port"] == 443 and line["task"] is None, line
    assert (line["protocol"], line["upstream_protocol"]) == ("http/1.1", "http/1.1"), line
    assert (line["tls"], line["upstream_tls"], line["secrets"]) == ("TLSv1.3", "TLSv1.3", []), line


def upgrade(path, more="Sec-WebSocket-Protocol: chat, other\r\nSec-WebSocket-Extensions: x-ext\r\n"):
    return get(path, more="Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
                          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                          "Sec-WebSocket-Version: 13\r\n" + more)


SWITCHED = (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: chat\r\n"
            b"Sec-WebSocket-Extensions: x-ext\r\n\r\n")


def test_a10_websocket_is_relayed_both_ways_with_its_headers(box, server):
    ended = threading.Event()

    def echo(_server, sock, request):
        assert request.get("upgrade") == "websocket" and request.get("connection") == "Upgrade"
        assert request.get("sec-websocket-protocol") == "chat, other"
        sock.sendall(SWITCHED + b"first")
        while data := sock.recv(4096):
            sock.sendall(b"<" + data + b">")
        sock.unwrap()
        ended.set()
    server.routes["/ws"] = echo
    with box.connect_tls("u.test") as sock:
        sock.sendall(upgrade("/ws"))
        head = u.read_until(sock, b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
        for line in (b"upgrade: websocket", b"connection: upgrade", b"sec-websocket-protocol: chat",
                     b"sec-websocket-extensions: x-ext"):
            assert line in head.lower()
        assert u.read_exactly(sock, 5) == b"first"
        for number in range(5):
            sock.sendall(b"%d" % number)
            assert u.read_exactly(sock, 3) == b"<%d>" % number
        sock.unwrap()  # close_notify: one direction's end, and the upstream answers with its own
    assert ended.wait(harness.patient(20))


def test_a10_a_megabyte_over_a_websocket_comes_back(box, server):
    message = bytes(range(256)) * 4096

    def echo(_server, sock, _request):
        sock.sendall(SWITCHED)
        sock.sendall(u.read_exactly(sock, len(message)))
        sock.unwrap()
    server.routes["/ws-big"] = echo
    with box.connect_tls("u.test") as sock:
        sock.sendall(upgrade("/ws-big"))
        u.read_until(sock, b"\r\n\r\n")
        sock.sendall(message)
        assert u.read_exactly(sock, len(message)) == message


def test_a_websocket_that_is_refused_upstream_is_an_answer(box, server):
    def refuse(_server, sock, _request):
        sock.sendall(b"HTTP/1.1 426 Upgrade Required\r\ncontent-length: 3\r\n\r\nno\n")
    server.routes["/ws-refused"] = refuse
    assert ask(box, upgrade("/ws-refused"))[::2] == (426, b"no\n")


def test_a_websocket_to_a_denied_host_is_403(box):
    raw = upgrade("/ws").replace(b"u.test", b"evil.test")
    assert ask(box, raw, host="evil.test")[0] == 403


def test_a_websocket_that_is_cut_upstream_is_cut(box, server):
    def cut(_server, sock, _request):
        sock.sendall(SWITCHED + b"begun")
        sock.shutdown(socket.SHUT_RDWR)  # no close_notify
    server.routes["/ws-cut"] = cut
    with box.connect_tls("u.test") as sock:
        sock.sendall(upgrade("/ws-cut"))
        u.read_until(sock, b"\r\n\r\n")
        with pytest.raises(OSError):
            while sock.recv(4096):
                pass


def test_an_upgrade_that_nobody_asked_for_is_502(box, server):
    server.routes["/unasked"] = lambda _server, sock, _request: sock.sendall(SWITCHED)
    assert ask(box, get("/unasked"))[0] == 502


@pytest.mark.parametrize("more", ["Upgrade: foo\r\nConnection: Upgrade\r\n",
                                  "Upgrade: websocket, h2c\r\nConnection: Upgrade\r\n"])
def test_other_upgrades_are_refused(box, server, more):
    before = len(server.requests)
    assert ask(box, get("/other-upgrade", more=more))[0] in (400, 501)
    assert len(server.requests) == before


@pytest.mark.portable  # 260 at once, each in its handshake for no longer than its limit
def test_a_full_pool_of_idle_upstream_connections_keeps_nobody_out(box, server):
    """More are idle than are kept: a request to another host gets its connection all the same."""
    many = 260
    gate = threading.Barrier(many, timeout=harness.patient(60))

    def wait(_server, sock, _request):
        gate.wait()  # all are under way, each on a connection of its own
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        return "keep"
    server.routes["/gate"] = wait
    second = box.daemon.sandbox("box-2")
    assert second.exec("/bin/true")["exitCode"] == 0
    socks = [(box, second)[number % 2].connect_tls("u.test") for number in range(many)]
    for sock in socks:
        sock.sendall(get("/gate"))
    assert all(u.read_answer(sock)[2] == b"ok" for sock in socks)
    assert ask(second, get("/beside", host="other.test"), host="other.test")[0] == 200
    for sock in socks:
        sock.close()
    second.remove()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_upstream_connections_end_with_their_sandbox(box, server, how):
    """They are kept for its next request; without it nobody could use them."""
    ended = threading.Event()

    def hold(_server, sock, _request):
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        sock.settimeout(harness.patient(55))  # idle ones are closed after 60 s
        assert sock.recv(1) == b""
        ended.set()
    server.routes["/hold"] = hold
    second = box.daemon.sandbox(f"box-{how}")
    assert second.exec("/bin/true")["exitCode"] == 0
    assert ask(second, get("/hold"))[0] == 200
    assert not ended.wait(0.5)
    if how == "kill":
        os.kill(second.init_pid(), signal.SIGKILL)
    else:
        assert box.daemon.post(f"{second.path}/stop").status in (200, 204)
    assert ended.wait(harness.patient(20))
    second.remove()
