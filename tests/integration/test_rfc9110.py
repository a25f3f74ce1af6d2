"""What RFC 9110 (HTTP) demands of an intermediary, whatever the version: fields, methods, expectations,
interim answers. A test is named after its section."""
import datetime
import email.utils

import pytest

import upstream as u
from test_egress import get
from test_rfc9112 import OK, answer_to, box, is_refused, says  # noqa: F401

pytestmark = pytest.mark.portable


def sent(server, target):
    """The fields of the last request to it, as (name, value)."""
    return [(name.lower(), value) for name, value in server.seen(target)[-1].headers]


def test_rfc9110_5_3_fields_keep_their_order_and_stay_apart(box, server):
    says(server, OK + b"X-A: 1\r\nX-B: 2\r\nx-a: 3\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"
                 b"Content-Length: 0\r\n\r\n")
    with box.connect_tls("u.test") as sock:
        sock.sendall(get("/answer", more="X-A: 1\r\nX-B: 2\r\nx-a: 3\r\nAccept: a\r\nAccept: b\r\n"))
        head = u.read_until(sock, b"\r\n\r\n")
    assert b"X-A: 1\r\nX-B: 2\r\nx-a: 3\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n" in head
    assert sent(server, "/answer")[1:] == [("x-a", "1"), ("x-b", "2"), ("x-a", "3"), ("accept", "a"),
                                           ("accept", "b")]


def test_rfc9110_5_5_values_go_on_as_they_are(box, server):
    raw = b"GET /values HTTP/1.1\r\nHost: u.test\r\nX-Odd:  caf\xe9\t\"a, b\";;q=\\ \t\r\nX-Empty:\r\n\r\n"
    assert answer_to(box, raw)[0] == 200
    fields = dict(sent(server, "/values"))
    assert fields["x-odd"] == "caf\xe9\t\"a, b\";;q=\\" and fields["x-empty"] == ""


def is_now(text):
    age = datetime.datetime.now(datetime.UTC) - email.utils.parsedate_to_datetime(text)
    return text.endswith(" GMT") and abs(age.total_seconds()) < 10


def test_rfc9110_6_6_1_an_answer_without_a_date_gets_one(box, server):
    says(server, OK + b"Content-Length: 0\r\n\r\n")
    assert is_now(answer_to(box, get("/answer"))[1]["date"])
    old = b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
    says(server, OK + old + b"Content-Length: 0\r\n\r\n")
    with box.connect_tls("u.test") as sock:
        sock.sendall(get("/answer"))
        assert u.read_until(sock, b"\r\n\r\n").lower().count(b"\r\ndate:") == 1
    assert answer_to(box, get("/answer"))[1]["date"] == old[6:-2].decode()


def test_rfc9110_6_6_1_our_own_answers_have_one(box):
    status, headers, _ = answer_to(box, b"BAD\r\n\r\n")
    assert status == 400 and is_now(headers["date"])


def test_rfc9110_7_6_1_what_connection_names_goes_no_further(box, server):
    says(server, OK + b"Connection: X-Own, x-other\r\nX-Own: 1\r\nX-Other: 2\r\nX-Stays: 3\r\n"
                 b"Keep-Alive: timeout=9\r\nProxy-Authenticate: Basic\r\nContent-Length: 2\r\n\r\nok")
    raw = (b"POST /answer HTTP/1.1\r\nHost: u.test\r\nConnection: x-own , X-Other\r\nConnection: te\r\n"
           b"X-Own: 1\r\nX-Other: 2\r\nX-Stays: 3\r\nKeep-Alive: 9\r\nProxy-Connection: keep-alive\r\n"
           b"Proxy-Authorization: Basic eDp5\r\nTE: gzip\r\nHTTP2-Settings: AAMAAABk\r\n"
           b"Content-Length: 2\r\n\r\nhi")
    status, headers, body = answer_to(box, raw)
    assert (status, body) == (200, b"ok") and headers["x-stays"] == "3"
    assert not {"connection", "x-own", "x-other", "keep-alive", "proxy-authenticate"} & set(headers)
    assert sent(server, "/answer") == [("host", "u.test"), ("x-stays", "3"), ("content-length", "2")]


def test_rfc9110_7_6_1_connection_takes_neither_host_nor_framing_away(box, server):
    raw = (b"POST /framed HTTP/1.1\r\nHost: u.test\r\nConnection: host, content-length, close\r\n"
           b"Content-Length: 2\r\n\r\nhi")
    assert answer_to(box, raw)[0] == 200
    assert sent(server, "/framed") == [("host", "u.test"), ("content-length", "2")]
    assert server.seen("/framed")[-1].body == b"hi"


def read_trailers(sock):
    while u.read_until(sock, b"\r\n") != b"0\r\n":
        u.read_until(sock, b"\r\n")
    lines = []
    while (line := u.read_until(sock, b"\r\n")) != b"\r\n":
        lines.append(line)
    return lines


@pytest.mark.parametrize("more, kept", [(b"", [b"X-Sum: 1\r\n"]), (b"Connection: te, x-sum\r\n", [])])
def test_rfc9110_7_6_1_nor_do_trailers_that_connection_names(box, server, more, kept):
    trailers = []

    def route(_server, sock, _request):
        trailers.extend(read_trailers(sock))
        sock.sendall(OK + b"Transfer-Encoding: chunked\r\n" + more +
                     b"\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n")
        return "keep"
    route.reads_body = True
    server.routes["/hop-trailers"] = route
    with box.connect_tls("u.test") as sock:
        sock.sendall(b"POST /hop-trailers HTTP/1.1\r\nHost: u.test\r\nTransfer-Encoding: chunked\r\n" + more +
                     b"\r\n2\r\nhi\r\n0\r\nX-Sum: 1\r\n\r\n")
        assert u.read_until(sock, b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        assert read_trailers(sock) == kept
    assert trailers == kept


@pytest.mark.parametrize("hops", ["0", "1"])
def test_rfc9110_7_6_2_a_count_of_hops_is_not_passed_on_uncounted(box, server, hops):
    raw = f"OPTIONS /hops HTTP/1.1\r\nHost: u.test\r\nMax-Forwards: {hops}\r\n\r\n".encode()
    is_refused(box, server, raw, 501)
    assert answer_to(box, get("/hops", more="Max-Forwards: 0\r\n"))[0] == 200  # of others it says nothing


def test_rfc9110_7_6_3_no_via_is_added_and_one_that_came_stays(box, server):
    """A proxy MUST add itself; this one is not to be told from no proxy."""
    says(server, OK + b"Via: 1.1 cache\r\nContent-Length: 0\r\n\r\n")
    assert answer_to(box, get("/answer", more="Via: 1.0 mine\r\n"))[1]["via"] == "1.1 cache"
    assert sent(server, "/answer") == [("host", "u.test"), ("via", "1.0 mine")]


def test_rfc9110_7_8_an_upgrade_in_http_1_0_is_ignored(box, server):
    raw = b"GET /old HTTP/1.0\r\nHost: u.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert answer_to(box, raw)[0] == 200
    assert sent(server, "/old") == [("host", "u.test")]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_rfc9110_9_3_methods_go_on_with_their_content(box, server, method):
    raw = f"{method} /methods HTTP/1.1\r\nHost: u.test\r\nContent-Length: 2\r\n\r\nhi".encode()
    assert answer_to(box, raw)[0] == 200
    request = server.seen("/methods")[-1]
    assert (request.method, request.body) == (method, b"hi")


@pytest.mark.parametrize("raw", [b"CONNECT u.test:443 HTTP/1.1\r\nHost: u.test:443\r\n\r\n",
                                 b"TRACE /trace HTTP/1.1\r\nHost: u.test\r\n\r\n"], ids=["CONNECT", "TRACE"])
def test_rfc9110_15_5_6_a_405_names_the_methods_that_are_done(box, server, raw):
    is_refused(box, server, raw, 405)
    allowed = answer_to(box, raw)[1]["allow"].split(", ")
    assert "GET" in allowed and not {"CONNECT", "TRACE"} & set(allowed)


def expecting(path, more=""):
    return (f"POST {path} HTTP/1.1\r\nHost: u.test\r\nContent-Length: 2\r\nExpect: 100-continue\r\n{more}"
            "\r\n").encode()


def test_rfc9110_10_1_1_an_expectation_goes_on_and_its_answer_back(box, server):
    def route(_server, sock, request):
        assert request.get("expect") == "100-continue"
        sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        sock.sendall(OK + b"content-length: 2\r\n\r\n" + u.read_exactly(sock, 2))
        return "keep"
    route.reads_body = True
    server.routes["/expected"] = route
    with box.connect_tls("u.test") as sock:
        sock.sendall(expecting("/expected"))
        assert u.read_answer(sock)[0] == 100
        sock.sendall(b"hi" + get("/next"))
        assert u.read_answer(sock)[::2] == (200, b"hi")
        assert u.read_answer(sock)[::2] == (200, b"/next")


def test_rfc9110_10_1_1_a_final_answer_instead_ends_the_connection(box, server):
    def route(_server, sock, _request):
        sock.sendall(b"HTTP/1.1 401 No\r\ncontent-length: 2\r\n\r\nno")
    route.reads_body = True
    server.routes["/unexpected"] = route
    with box.connect_tls("u.test") as sock:
        sock.sendall(expecting("/unexpected"))
        status, headers, body = u.read_answer(sock)
        assert (status, headers["connection"], body) == (401, "close", b"no")
        assert u.read_to_close_notify(sock) == b""


def test_rfc9110_10_1_1_of_http_1_0_it_is_ignored_and_others_are_417(box, server):
    raw = b"POST /old-expect HTTP/1.0\r\nHost: u.test\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nhi"
    assert answer_to(box, raw)[0] == 200
    assert ("expect", "100-continue") not in sent(server, "/old-expect")
    is_refused(box, server, b"GET /bad HTTP/1.1\r\nHost: u.test\r\nExpect: miracles\r\n\r\n", 417)


@pytest.mark.parametrize("te, goes_on", [("trailers", "trailers"), ("gzip, Trailers", "trailers"), ("gzip", None)])
def test_rfc9110_10_1_4_of_te_nothing_goes_on_but_trailers(box, server, te, goes_on):
    assert answer_to(box, get("/te", more=f"TE: {te}\r\nConnection: TE\r\n"))[0] == 200
    fields = dict(sent(server, "/te"))
    assert fields.get("te") == goes_on and fields.get("connection") == (goes_on and "TE")


def test_rfc9110_15_2_interim_answers_go_on_all_and_in_their_order(box, server):
    """Also a 100 that the client did not ask for: the proxy did not either."""
    says(server, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\nX: 1\r\n\r\n"
                 b"HTTP/1.1 103 Early Hints\r\nX: 2\r\n\r\n" + OK + b"content-length: 2\r\n\r\nok")
    with box.connect_tls("u.test") as sock:
        sock.sendall(get("/answer"))
        assert [u.read_answer(sock)[0] for _ in range(4)] == [100, 102, 103, 200]


def test_rfc9110_15_2_none_of_them_to_http_1_0(box, server):
    says(server, b"HTTP/1.1 103 Early Hints\r\nX: 2\r\n\r\n" + OK + b"content-length: 2\r\n\r\nok")
    assert answer_to(box, b"GET /answer HTTP/1.0\r\nHost: u.test\r\n\r\n")[::2] == (200, b"ok")


@pytest.mark.parametrize("status", [205, 299, 300, 418, 499, 507, 599])
def test_rfc9110_15_a_status_that_nobody_knows_goes_on(box, server, status):
    says(server, b"HTTP/1.1 %d What\r\ncontent-length: 0\r\n\r\n" % status)
    assert answer_to(box, get("/answer"))[0] == status
