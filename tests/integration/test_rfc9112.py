"""What RFC 9112 (HTTP/1.1) demands of an intermediary, byte by byte: from a client inside a sandbox, and
from an upstream. A test is named after its section. What is refused here although the RFC would let it
pass says so: a message has one meaning, or it is none."""
import socket
import ssl

import pytest

import harness
import upstream as u
from test_egress import get

pytestmark = pytest.mark.portable
SMUGGLED = get("/smuggled")
POST = b"POST /bad HTTP/1.1\r\nHost: u.test\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def box(make_daemon, server):
    daemon = make_daemon(default_agent="sh", extra_rules=[
        server.rule("u.test", "u-ca.pem"), server.rule("get.test", "u-ca.pem", methods=["GET"])],
        start=False)
    (daemon.folder / "policy/u-ca.pem").write_bytes(open(server.ca, "rb").read())
    daemon.start()
    sandbox = daemon.sandbox("rfc9112")
    assert sandbox.exec("/bin/true")["exitCode"] == 0
    yield sandbox
    sandbox.remove()


def rows(table):
    return pytest.mark.parametrize("raw", table.values(), ids=table.keys())


def answer_to(box, *parts, host="u.test", method="GET"):
    with box.connect_tls(host) as sock:
        sock.sendall(b"".join(parts))
        return u.read_answer(sock, method)


def says(server, answer, then="keep"):
    """Whoever asks for /answer gets these bytes."""
    def route(_server, sock, _request):
        sock.sendall(answer)
        if then == "close":
            sock.unwrap()
        return then
    server.routes["/answer"] = route


def is_refused(box, server, raw, status=400):
    """One answer, a clean end, and nothing of it upstream, nor of what follows."""
    before = len(server.requests)
    with box.connect_tls("u.test") as sock:
        sock.sendall(raw + SMUGGLED)
        got, headers, body = u.read_answer(sock)
        assert got == status and body.decode() == headers["x-paddock-reason"] + "\n", (got, body)
        assert headers["connection"] == "close" and u.read_to_close_notify(sock) == b""
    assert len(server.requests) == before


# ------------------------------------------------------------------------------ requests' heads

LINES = {
    "LF alone": b"GET /bad HTTP/1.1\nHost: u.test\n\n",
    "LF alone in a field": b"GET /bad HTTP/1.1\r\nHost: u.test\r\nX-A: b\nX-C: d\r\n\r\n",
    "LF alone at the end": b"GET /bad HTTP/1.1\r\nHost: u.test\r\n\n",
    "CR alone in a field": b"GET /bad HTTP/1.1\r\nHost: u.test\r\nX-A: b\rc\r\n\r\n",
    "CR alone in the line": b"GET /bad\r HTTP/1.1\r\nHost: u.test\r\n\r\n",
    "CR CR LF": b"GET /bad HTTP/1.1\r\nHost: u.test\r\nX-A: b\r\r\n\r\n",
    "NUL": b"GET /bad HTTP/1.1\r\nHost: u.test\r\nX-A: b\0c\r\n\r\n",
    "blank before the first field": b"GET /bad HTTP/1.1\r\n Host: u.test\r\n\r\n",
    "tab before the first field": b"GET /bad HTTP/1.1\r\n\tX: y\r\nHost: u.test\r\n\r\n",
    # a server SHOULD skip it; what sends one has lost count of where its request ends
    "an empty line in front": b"\r\nGET /bad HTTP/1.1\r\nHost: u.test\r\n\r\n",
}


@rows(LINES)
def test_rfc9112_2_2_one_line_end_and_nothing_around_the_head(box, server, raw):
    is_refused(box, server, raw)


REQUEST_LINES = {
    "two blanks": b"GET  /bad HTTP/1.1\r\nHost: u.test\r\n\r\n",
    "tab": b"GET\t/bad\tHTTP/1.1\r\nHost: u.test\r\n\r\n",
    "blank in the target": b"GET /bad /x HTTP/1.1\r\nHost: u.test\r\n\r\n",
    "blank at the end": b"GET /bad HTTP/1.1 \r\nHost: u.test\r\n\r\n",
    "no version": b"GET /bad\r\nHost: u.test\r\n\r\n",
    "version in small letters": b"GET /bad http/1.1\r\nHost: u.test\r\n\r\n",
    "method that is no token": b"G(T /bad HTTP/1.1\r\nHost: u.test\r\n\r\n",
    "high byte": b"GET /bad\xe9 HTTP/1.1\r\nHost: u.test\r\n\r\n",
}


@rows(REQUEST_LINES)
def test_rfc9112_3_the_request_line_has_one_form(box, server, raw):
    is_refused(box, server, raw)


@pytest.mark.parametrize("version", ["HTTP/2.0", "HTTP/1.2", "HTTP/0.9", "HTTP/3.0"])
def test_rfc9112_2_3_other_versions_are_refused(box, server, version):
    is_refused(box, server, f"GET /bad {version}\r\nHost: u.test\r\n\r\n".encode(), 505)


def test_rfc9112_2_3_each_message_goes_on_in_our_own_version(box, server):
    says(server, b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "close")
    with box.connect_tls("u.test") as sock:
        sock.sendall(b"GET /answer HTTP/1.0\r\nHost: u.test\r\n\r\n")
        assert u.read_until(sock, b"\r\n").startswith(b"HTTP/1.1 200 ")
    assert server.seen("/answer")[-1].version == "HTTP/1.1"


def test_rfc9112_3_a_long_target_is_414(box, server):
    is_refused(box, server, b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: u.test\r\n\r\n", 414)


HOSTS = {
    "none": b"GET /bad HTTP/1.1\r\n\r\n",
    "two": b"GET /bad HTTP/1.1\r\nHost: u.test\r\nHost: get.test\r\n\r\n",
    "the same twice": b"GET /bad HTTP/1.1\r\nHost: u.test\r\nhost: u.test\r\n\r\n",
    "empty": b"GET /bad HTTP/1.1\r\nHost:\r\n\r\n",
    "a list": b"GET /bad HTTP/1.1\r\nHost: u.test, get.test\r\n\r\n",
    "a path in it": b"GET /bad HTTP/1.1\r\nHost: u.test/x\r\n\r\n",
    "a user in it": b"GET /bad HTTP/1.1\r\nHost: me@u.test\r\n\r\n",
    "a blank in it": b"GET /bad HTTP/1.1\r\nHost: u.test get.test\r\n\r\n",
    "no name": b"GET /bad HTTP/1.1\r\nHost: [::1]\r\n\r\n",
    "absolute form without one": b"GET https://u.test/bad HTTP/1.1\r\n\r\n",
}


@rows(HOSTS)
def test_rfc9112_3_2_exactly_one_host_of_a_valid_form(box, server, raw):
    is_refused(box, server, raw)


def test_rfc9112_3_2_2_the_absolute_form_is_accepted_and_goes_on_as_a_path(box, server):
    raw = b"GET https://U.test:443/absolute?a=b HTTP/1.1\r\nHost: u.test\r\n\r\n"
    assert answer_to(box, raw)[::2] == (200, b"/absolute?a=b")
    request = server.seen("/absolute?a=b")[-1]
    assert request.raw_head.startswith(b"GET /absolute?a=b HTTP/1.1\r\nHost: u.test\r\n")
    assert answer_to(box, b"GET https://u.test HTTP/1.1\r\nHost: u.test\r\n\r\n")[::2] == (200, b"/")


TARGETS = {
    "absolute form of another host": b"GET https://get.test/bad HTTP/1.1\r\nHost: u.test\r\n\r\n",
    "absolute form of another port": b"GET https://u.test:8443/bad HTTP/1.1\r\nHost: u.test\r\n\r\n",
    "absolute form of another scheme": b"GET http://u.test/bad HTTP/1.1\r\nHost: u.test\r\n\r\n",
    "absolute form with a user": b"GET https://a@u.test/bad HTTP/1.1\r\nHost: u.test\r\n\r\n",
    "absolute form without a host": b"GET https:///bad HTTP/1.1\r\nHost: u.test\r\n\r\n",
    "authority form": b"GET u.test:443 HTTP/1.1\r\nHost: u.test\r\n\r\n",
    "asterisk form": b"OPTIONS * HTTP/1.1\r\nHost: u.test\r\n\r\n",
    "asterisk form of GET": b"GET * HTTP/1.1\r\nHost: u.test\r\n\r\n",
    "no slash": b"GET bad HTTP/1.1\r\nHost: u.test\r\n\r\n",
    "fragment": b"GET /bad#x HTTP/1.1\r\nHost: u.test\r\n\r\n",
    "broken escape": b"GET /bad%zz HTTP/1.1\r\nHost: u.test\r\n\r\n",
}


@rows(TARGETS)
def test_rfc9112_3_2_other_forms_of_a_target_are_refused(box, server, raw):
    is_refused(box, server, raw)


FIELDS = {
    "blank before the colon": b"GET /bad HTTP/1.1\r\nHost: u.test\r\nX-A : b\r\n\r\n",
    "blank in a name": b"GET /bad HTTP/1.1\r\nHost: u.test\r\nX A: b\r\n\r\n",
    "no name": b"GET /bad HTTP/1.1\r\nHost: u.test\r\n: b\r\n\r\n",
    "no colon": b"GET /bad HTTP/1.1\r\nHost: u.test\r\nX-A\r\n\r\n",
    "name with a high byte": b"GET /bad HTTP/1.1\r\nHost: u.test\r\nX-\xc3\xa9: b\r\n\r\n",
    "length with a blank before the colon": POST + b"Content-Length : 5\r\n\r\nhello",
}


@rows(FIELDS)
def test_rfc9112_5_1_a_name_ends_at_its_colon(box, server, raw):
    is_refused(box, server, raw)


@pytest.mark.parametrize("fold", [b"\r\n c", b"\r\n\tc", b"\r\n ", b" \r\n c"])
def test_rfc9112_5_2_folded_lines_are_refused(box, server, fold):
    is_refused(box, server, b"GET /bad HTTP/1.1\r\nHost: u.test\r\nX-A: b" + fold + b"\r\n\r\n")


# ------------------------------------------------------------------------------ requests' framing

CODINGS = {
    "with a length": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "before a length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "chunked is not the last": POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "another before": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "identity": POST + b"Transfer-Encoding: identity\r\n\r\n",
    "nothing": POST + b"Transfer-Encoding:\r\n\r\n0\r\n\r\n",
    "quoted": POST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "with a parameter": POST + b"Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n",
    "vertical tab": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "of HTTP/1.0": b"POST /bad HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
}


@rows(CODINGS)
def test_rfc9112_6_1_a_transfer_encoding_is_chunked_alone(box, server, raw):
    is_refused(box, server, raw)


@pytest.mark.parametrize("length", ["-1", "+5", "5 5", "5, 5", "5, 6", "0x5", "5x", "", "5.0", "1e1", "٥",
                                    "9" * 19, "18446744073709551621", "5\r\nContent-Length: 5",
                                    "5\r\nContent-Length: 50"])
def test_rfc9112_6_3_a_content_length_is_one_number(box, server, length):
    """Also a list of the same number, which a recipient MAY take for one."""
    is_refused(box, server, POST + f"Content-Length: {length}\r\n\r\nhello".encode())


def test_rfc9112_6_3_without_framing_there_is_no_body(box, server):
    with box.connect_tls("u.test") as sock:
        sock.sendall(b"POST /bodyless HTTP/1.1\r\nHost: u.test\r\n\r\n" + get("/behind"))
        assert u.read_answer(sock)[::2] == (200, b"/bodyless")
        assert u.read_answer(sock)[::2] == (200, b"/behind")
    request = server.seen("/bodyless")[-1]
    assert request.body == b"" and request.get("transfer-encoding") is None


CHUNKS = {
    "no size": b"\r\nhello\r\n0\r\n\r\n",
    "no digit": b"zz\r\nhello\r\n0\r\n\r\n",
    "sign": b"+5\r\nhello\r\n0\r\n\r\n",
    "minus": b"-5\r\nhello\r\n0\r\n\r\n",
    "prefix": b"0x5\r\nhello\r\n0\r\n\r\n",
    "blank in front": b" 5\r\nhello\r\n0\r\n\r\n",
    "blank behind": b"5 \r\nhello\r\n0\r\n\r\n",
    "blank before an extension": b"5 ;a=b\r\nhello\r\n0\r\n\r\n",  # MUST be read by 9110, 5.6.3: BWS
    "LF alone behind the size": b"5\nhello\r\n0\r\n\r\n",
    "LF alone behind the data": b"5\r\nhello\n0\r\n\r\n",
    "LF alone in an extension": b"5;a\nhello\r\n0\r\n\r\n",
    "CR alone behind the size": b"5\rhello\r\n0\r\n\r\n",
    "more data than the size": b"5\r\nhello!\r\n0\r\n\r\n",
    "overflow of 32 bits and of 64": b"10000000000000005\r\nhello\r\n0\r\n\r\n",
    "overflow with zeros": b"f" * 17 + b"\r\nhello\r\n0\r\n\r\n",
    "extensions without end": b"5;" + b"a" * 9000 + b"\r\nhello\r\n0\r\n\r\n",
    "sizes of zeros without end": b"0" * 9000 + b"\r\n\r\n",
    "trailers without end": b"0\r\n" + b"x: y\r\n" * 2000 + b"\r\n",
    "LF alone behind a trailer": b"0\r\nX: y\n\r\n",
    "trailer without a name": b"0\r\n: y\r\n\r\n",
    "folded trailer": b"0\r\nX: y\r\n z\r\n\r\n",
    "blank before a trailer's colon": b"0\r\nX : y\r\n\r\n",
}


@rows(CHUNKS)
def test_rfc9112_7_1_chunks_are_well_formed(box, server, raw):
    """The head is good and may have gone on already, but never a whole request."""
    with box.connect_tls("u.test") as sock:
        sock.sendall(CHUNKED + raw + SMUGGLED)
        status, headers, _ = u.read_answer(sock)
        assert status == 400 and headers["connection"] == "close"
        assert u.read_to_close_notify(sock) == b""
    assert not server.seen("/bad") and not server.seen("/smuggled")


def test_rfc9112_7_1_1_extensions_are_read_over_and_go_nowhere(box, server):
    """Nor does the way in which the chunks were cut mean anything."""
    chunks = []

    def route(_server, sock, _request):
        while (size := u.read_until(sock, b"\r\n")) != b"0\r\n":
            chunks.append((size, u.read_exactly(sock, int(size, 16) + 2)))
        assert u.read_until(sock, b"\r\n") == b"\r\n"
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        return "keep"
    route.reads_body = True
    server.routes["/extended"] = route
    raw = (b"POST /extended HTTP/1.1\r\nHost: u.test\r\nTransfer-Encoding: Chunked\r\n\r\n"
           b'5;a=b;c="d;e"\r\nhello\r\n00000A;x\r\n, my world\r\n000;last\r\n\r\n')
    assert answer_to(box, raw)[0] == 200
    assert b"".join(data[:-2] for _, data in chunks) == b"hello, my world"
    assert all(size.strip().isalnum() for size, _ in chunks), chunks


def test_rfc9112_7_1_2_trailers_go_on_but_those_that_decide(box, server):
    trailers = []

    def route(_server, sock, _request):
        while u.read_until(sock, b"\r\n") != b"0\r\n":
            u.read_until(sock, b"\r\n")
        while (line := u.read_until(sock, b"\r\n")) != b"\r\n":
            trailers.append(line.decode().lower().strip())
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        return "keep"
    route.reads_body = True
    server.routes["/trailers"] = route
    raw = (b"POST /trailers HTTP/1.1\r\nHost: u.test\r\nTransfer-Encoding: chunked\r\n\r\n"
           b"2\r\nhi\r\n0\r\nX-Sum: 1\r\nHost: get.test\r\nContent-Length: 5\r\n"
           b"Transfer-Encoding: chunked\r\nAuthorization: mine\r\nConnection: close\r\nTE: x\r\n"
           b"Trailer: x\r\nUpgrade: x\r\nCookie: x\r\nExpect: x\r\n\r\n")
    assert answer_to(box, raw)[0] == 200
    assert trailers == ["x-sum: 1"]


# ------------------------------------------------------------------------------ the end of requests

@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_rfc9112_8_a_request_that_is_cut_is_never_whole_upstream(box, server, framing):
    ended = []

    def route(_server, sock, request):
        try:
            ended.append(u.read_body(sock, request))
        except (OSError, ValueError) as error:
            ended.append(error)
    route.reads_body = True
    server.routes[f"/cut-{framing}"] = route
    head = f"POST /cut-{framing} HTTP/1.1\r\nHost: u.test\r\n".encode()
    with box.connect_tls("u.test") as sock:
        sock.sendall(head + (b"Content-Length: 10\r\n\r\nhello" if framing == "length" else
                             b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"))
        harness.wait_for(lambda: server.seen(f"/cut-{framing}"), 20, "the request upstream")
    harness.wait_for(lambda: ended, 20, "the end of the request upstream")
    assert isinstance(ended[0], (OSError, ValueError)), ended


def test_rfc9112_9_3_connections_persist_and_each_leg_by_itself(box, server):
    """Close and Keep-Alive are the connection's own affair."""
    answer_to(box, get("/persist"))
    before = server.connections
    for _ in range(3):
        with box.connect_tls("u.test") as sock:
            sock.sendall(get("/persist", more="Connection: close\r\nKeep-Alive: timeout=5\r\n"
                                              "Proxy-Connection: close\r\n"))
            status, headers, _ = u.read_answer(sock)
            assert status == 200 and headers["connection"] == "close"
            assert u.read_to_close_notify(sock) == b""
    assert server.connections == before
    request = server.seen("/persist")[-1]
    for name in ("connection", "keep-alive", "proxy-connection"):
        assert request.get(name) is None, name
    says(server, b"HTTP/1.1 200 OK\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=1\r\n"
                 b"Content-Length: 2\r\n\r\nok", "close")
    with box.connect_tls("u.test") as sock:
        for _ in range(2):
            sock.sendall(get("/answer"))
            status, headers, body = u.read_answer(sock)
            assert (status, body) == (200, b"ok")
            assert not {"connection", "keep-alive", "x-hop"} & set(headers)


def test_rfc9112_9_3_http_1_0_never_persists(box):
    with box.connect_tls("u.test") as sock:
        sock.sendall(b"GET /old HTTP/1.0\r\nHost: u.test\r\nConnection: keep-alive\r\n\r\n")
        status, headers, body = u.read_answer(sock)
        assert (status, body, headers["connection"]) == (200, b"/old", "close")
        assert u.read_to_close_notify(sock) == b""


@pytest.mark.parametrize("method, repeats", [("GET", True), ("PUT", True), ("POST", False), ("PATCH", False)])
def test_rfc9112_9_3_1_only_what_is_idempotent_is_sent_again(box, server, method, repeats):
    """The upstream ends a connection that was kept, instead of an answer."""
    path = f"/retried-{method}"
    seen = []

    def route(_server, sock, request):
        seen.append(request)
        if len(seen) > 1:
            sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            return "keep"
        return None
    answer_to(box, get("/kept"))  # there is such a connection
    server.routes[path] = route
    raw = f"{method} {path} HTTP/1.1\r\nHost: u.test\r\nContent-Length: 0\r\n\r\n".encode()
    status, _, body = answer_to(box, raw)
    assert (status, len(seen)) == ((200, 2) if repeats else (502, 1)), body


def test_rfc9112_9_3_2_pipelined_requests_are_answered_in_their_order(box, server):
    raw = b"".join(get(f"/pipe/{number}") for number in range(20))
    raw += b"POST /pipe/body HTTP/1.1\r\nHost: u.test\r\nContent-Length: 3\r\n\r\nabc" + get("/pipe/last")
    with box.connect_tls("u.test") as sock:
        sock.sendall(raw)
        for number in [*range(20), "body", "last"]:
            assert u.read_answer(sock)[::2] == (200, f"/pipe/{number}".encode())
    assert server.seen("/pipe/body")[-1].body == b"abc"


def test_rfc9112_9_6_nothing_behind_close_is_processed(box, server):
    with box.connect_tls("u.test") as sock:
        sock.sendall(get("/closing", more="Connection: x, Close\r\n") + SMUGGLED)
        assert u.read_answer(sock)[::2] == (200, b"/closing")
        assert u.read_to_close_notify(sock) == b""
    assert not server.seen("/smuggled")


def test_rfc9112_9_6_an_answer_before_the_bodys_end_is_not_lost(box, server):
    """We close in stages: the client goes on sending, and reads the answer all the same."""
    def early(_server, sock, _request):
        sock.sendall(b"HTTP/1.1 413 Too Large\r\ncontent-length: 3\r\n\r\nno\n")
        sock.unwrap()
    early.reads_body = True
    server.routes["/early"] = early
    with box.connect_tls("u.test") as sock:
        sock.sendall(b"POST /early HTTP/1.1\r\nHost: u.test\r\nContent-Length: 3000000\r\n\r\n")
        for _ in range(20):
            sock.sendall(bytes(100000))
        status, headers, body = u.read_answer(sock)
        assert (status, headers["connection"], body) == (413, "close", b"no\n")


def test_rfc9112_9_5_an_upstream_that_closes_an_idle_connection_is_not_held_against_it(box, server):
    says(server, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", None)  # closed behind the answer
    for _ in range(5):
        assert answer_to(box, get("/answer"))[::2] == (200, b"ok")


def test_rfc9112_9_8_both_legs_end_with_a_closure_alert(box, server):
    """A client (the leg to the upstream) MUST send one before it closes a connection."""
    ends = []

    def route(_server, sock, _request):
        sock.suppress_ragged_eofs = False
        sock.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\ncontent-length: 2\r\n\r\nok")
        try:
            ends.append(sock.recv(1))
        except (OSError, ssl.SSLError) as error:
            ends.append(error)
    server.routes["/alert"] = route
    with box.connect_tls("u.test") as sock:
        sock.sendall(get("/alert", more="Connection: close\r\n"))
        assert u.read_answer(sock)[2] == b"ok"
        assert u.read_to_close_notify(sock) == b""
    harness.wait_for(lambda: ends, 20, "the end of the connection upstream")
    assert ends == [b""], ends


# ------------------------------------------------------------------------------ answers

OK = b"HTTP/1.1 200 OK\r\n"
BAD_ANSWERS = {
    "2_2 LF alone": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "2_2 CR alone": OK + b"X-A: b\rc\r\nContent-Length: 2\r\n\r\nok",
    "2_2 NUL": OK + b"X-A: b\0c\r\nContent-Length: 2\r\n\r\nok",
    "2_2 blank before the first field": OK + b" X: y\r\nContent-Length: 2\r\n\r\nok",
    "4 another version": b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "4 no version": b"200 OK\r\nContent-Length: 2\r\n\r\nok",
    "4 two digits": b"HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\nok",
    "4 four digits": b"HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\nok",
    "4 no digits": b"HTTP/1.1 abc OK\r\nContent-Length: 2\r\n\r\nok",
    "4 below 100": b"HTTP/1.1 099 OK\r\nContent-Length: 2\r\n\r\nok",
    "5_1 blank before a colon": OK + b"Content-Length : 2\r\n\r\nok",
    "5_1 no colon": OK + b"Content-Length 2\r\n\r\nok",
    "5_2 folded": OK + b"X-A: b\r\n c\r\nContent-Length: 2\r\n\r\nok",
    "6_1 HTTP/1.0 in chunks": b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "6_1 chunked is not the last": OK + b"Transfer-Encoding: chunked, gzip\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "6_1 another coding": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "6_1 twice": OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "6_3 two lengths": OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok",
    "6_3 a list of lengths": OK + b"Content-Length: 2, 2\r\n\r\nok",
    "6_3 sign": OK + b"Content-Length: +2\r\n\r\nok",
    "6_3 minus": OK + b"Content-Length: -2\r\n\r\nok",
    "6_3 overflow": OK + b"Content-Length: 18446744073709551618\r\n\r\nok",
    "8 nothing": b"",
    "8 half a head": OK + b"Content-Le",
    "9_2 an interim answer alone": b"HTTP/1.1 103 Early\r\n\r\n",
}


@rows(BAD_ANSWERS)
def test_rfc9112_answers_that_are_malformed_are_502(box, server, raw):
    says(server, raw, "close")
    with box.connect_tls("u.test") as sock:
        sock.sendall(get("/answer"))
        status, headers, body = u.read_answer(sock)
        if status == 103:
            status, headers, body = u.read_answer(sock)
        assert status == 502 and body.startswith(b"u.test: "), (status, body)
        assert b"ok" not in body.split() and "x-a" not in headers
        sock.sendall(get("/after"))
        assert u.read_answer(sock)[::2] == (200, b"/after")


CUT_ANSWERS = {
    "7_1 no digit": b"zz\r\nok\r\n0\r\n\r\n", "7_1 prefix": b"0x2\r\nok\r\n0\r\n\r\n",
    "7_1 LF alone": b"2\nok\r\n0\r\n\r\n", "7_1 more than the size": b"2\r\nok!\r\n0\r\n\r\n",
    "7_1 overflow": b"10000000000000002\r\nok\r\n0\r\n\r\n",
    "7_1_1 extensions without end": b"2;" + b"a" * 9000 + b"\r\nok\r\n0\r\n\r\n",
    "7_1_2 broken trailer": b"2\r\nok\r\n0\r\nX : y\r\n\r\n",
    "7_1_2 trailers without end": b"2\r\nok\r\n0\r\n" + b"x: y\r\n" * 2000 + b"\r\n",
    "8 no last chunk": b"2\r\nok\r\n", "8 half a chunk": b"5\r\nok",
}


@rows(CUT_ANSWERS)
def test_rfc9112_7_1_an_answer_of_bad_chunks_never_ends_cleanly(box, server, raw):
    says(server, OK + b"Transfer-Encoding: chunked\r\n\r\n" + raw, "close")
    with pytest.raises((OSError, ValueError)):
        status, _, body = answer_to(box, get("/answer"))
        if status == 502:  # nothing of it had gone on
            raise OSError(body)


def test_rfc9112_6_3_of_an_answer_chunks_override_the_length(box, server):
    says(server, OK + b"Content-Length: 7\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\n\r\n")
    status, headers, body = answer_to(box, get("/answer"))
    assert (status, body) == (200, b"ok") and "content-length" not in headers


EMPTY = {
    "HEAD": ("HEAD", OK + b"Content-Length: 2\r\n\r\n", 200, "2"),
    "HEAD in chunks": ("HEAD", OK + b"Transfer-Encoding: chunked\r\n\r\n", 200, None),
    "204": ("GET", b"HTTP/1.1 204 None\r\n\r\n", 204, None),
    "204 with a length": ("GET", b"HTTP/1.1 204 None\r\nContent-Length: 0\r\n\r\n", 204, None),
    "304 with a length": ("GET", b"HTTP/1.1 304 Same\r\nContent-Length: 7\r\n\r\n", 304, "7"),
    "304 in chunks": ("GET", b"HTTP/1.1 304 Same\r\nTransfer-Encoding: chunked\r\n\r\n", 304, None),
}


@pytest.mark.parametrize("method, raw, status, length", EMPTY.values(), ids=EMPTY.keys())
def test_rfc9112_6_3_answers_without_a_body_end_with_their_head(box, server, method, raw, status, length):
    says(server, raw)
    with box.connect_tls("u.test") as sock:
        sock.sendall(f"{method} /answer HTTP/1.1\r\nHost: u.test\r\n\r\n".encode() + get("/next"))
        got, headers, _ = u.read_answer(sock, "HEAD")
        assert got == status and headers.get("content-length") == length, headers
        assert "transfer-encoding" not in headers
        assert u.read_answer(sock)[::2] == (200, b"/next")


@pytest.mark.parametrize("extra", [b"ok", OK + b"content-length: 4\r\n\r\nevil"], ids=["body", "answer"])
@pytest.mark.parametrize("method, head", [("HEAD", OK + b"content-length: 2\r\n\r\n"),
                                          ("GET", b"HTTP/1.1 204 None\r\n\r\n"),
                                          ("GET", OK + b"content-length: 2\r\n\r\nok")])
def test_rfc9112_6_3_bytes_behind_an_answer_are_nobodys(box, server, method, head, extra):
    says(server, head + extra)
    with box.connect_tls("u.test") as sock:
        sock.sendall(f"{method} /answer HTTP/1.1\r\nHost: u.test\r\n\r\n".encode())
        assert u.read_answer(sock, method)[0] in (200, 204)
        for number in range(3):
            sock.sendall(get(f"/whose/{number}"))
            assert u.read_answer(sock)[::2] == (200, f"/whose/{number}".encode())


def test_rfc9112_6_3_an_interim_answer_has_no_body_whatever_it_says(box, server):
    says(server, b"HTTP/1.1 103 Early\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n" +
         OK + b"Content-Length: 2\r\n\r\nok")
    with box.connect_tls("u.test") as sock:
        sock.sendall(get("/answer"))
        assert u.read_answer(sock) == (103, {"x": "y"}, b"")
        assert u.read_answer(sock)[::2] == (200, b"ok")


def test_rfc9112_9_8_without_an_alert_an_answer_until_the_end_is_incomplete(box, server):
    def cut(_server, sock, _request):
        sock.sendall(OK + b"\r\nall of it?")
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
    server.routes["/until-cut"] = cut
    with pytest.raises(OSError):
        status, _, body = answer_to(box, get("/until-cut"))
        if status == 502:
            raise OSError(body)
    says(server, OK + b"\r\nall of it", "close")
    assert answer_to(box, get("/answer"))[::2] == (200, b"all of it")
