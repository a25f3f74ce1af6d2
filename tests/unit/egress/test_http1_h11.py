#!/usr/bin/env python3
"""Requests are framed by egress as by another reader of HTTP/1.1, Python's h11: whatever egress takes
h11 takes too, and finds the same method, target, fields, body and trailers in the same bytes. Egress
may refuse more; never less.

usage: test_http1_h11.py PRINT_HTTP1 [COUNT [SEED]]      COUNT: how many requests are made, 4000 in CI
"""
import json
import random
import subprocess
import sys

import h11

PRINTER = sys.argv[1]
COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 4000
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1

HOST = b"Host: a.test\r\n"
SEEDS = [
    b"GET / HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /a?b=c HTTP/1.0\r\n\r\n",
    b"GET http://a.test/x HTTP/1.1\r\n" + HOST + b"Accept: */*\r\nX-Empty:\r\nX-Tab:\ta\tb \r\n\r\n",
    b"POST /a HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n\r\nhello",
    b"PUT /a HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 0\r\n\r\n",
    b"POST /a HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"POST /a HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: Chunked\r\nTrailer: X-T\r\n\r\n"
    b"a;x=y\r\n0123456789\r\n1\r\n!\r\n000\r\nX-T: 1\r\nX-U:  2 \r\n\r\n",
    b"POST /a HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nConnection: close\r\n\r\nabc",
    b"DELETE /a HTTP/1.1\r\n" + HOST + b"Cookie: a=b; c=d\r\nX-High: \xc3\xa9\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\n" + HOST + b"Connection: keep-alive, x-a\r\nX-A: 1\r\n\r\n",
]
# What is put in, or in the place of something else.
WORDS = [
    b"\r\n", b"\r", b"\n", b"\n\n", b"\r\r\n", b"\0", b" ", b"\t", b":", b",", b";", b"\x0b", b"\x7f", b"\x80",
    b"\r\n ", b"0", b"1", b"-1", b"+5", b"0x5", b"5, 5", b"00005", b"5;", b"99999999999999999999",
    b"Content-Length: 5\r\n", b"Content-Length: 6\r\n", b"Content-Length:\r\n", b"content-length : 5\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding:\tchunked\t\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n", b"Transfer-Encoding: chunked, chunked\r\n",
    b"Transfer_Encoding: chunked\r\n", b"Transfer-Encoding : chunked\r\n", b"X-A: b\r\n c\r\n", b"X: y\r\n", b"Host: b\r\n",
    b"Connection: close\r\n", b"Upgrade: websocket\r\n", b"HTTP/1.0", b"HTTP/1.1", b"HTTP/2.0", b"http/1.1",
    b"HTTP/1.01", b"GET", b"PRI", b"CONNECT", b"0\r\n\r\n", b"5\r\nhello\r\n", b"5 \r\nhello\r\n", b"5\nhello\n",
    b"5;a=\"b\r\nhello\r\n", b"X-T: 1\r\n", b"\xff",
]
ENDS = [b"\n", b"\r", b"\r\r\n", b"\n\r\n", b" \r\n", b"\t\r\n", b"\r\n ", b"\r\n\t", b";\r\n", b"\r\n\r\n", b"\0\r\n", b""]


def mutate(rng, data):
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.choice((0, 1, 1, 2, 4, 16)))
    kind = rng.randrange(8)
    if kind == 0:
        return data[:at] + data[end:]
    if kind == 1 and at < len(data):
        return data[:at] + bytes([rng.randrange(256)]) + data[at + 1:]
    if kind == 2:  # a line as a whole
        lines = data.split(b"\r\n")
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(WORDS).removesuffix(b"\r\n"))
        return b"\r\n".join(lines)
    if kind == 3:
        lines = data.split(b"\r\n")
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
        return b"\r\n".join(lines)
    if kind in (4, 5):  # the end of a line
        lines = data.split(b"\r\n")
        cut = rng.randrange(len(lines))
        return b"\r\n".join(lines[:cut]) + rng.choice(ENDS) + b"\r\n".join(lines[cut:])
    if kind == 6:
        return data[:at] + rng.choice(WORDS) + data[end:]
    other = rng.choice(SEEDS)
    return data[:at] + other[rng.randrange(len(other)):]


def make(rng):
    data = b"".join(rng.choice(SEEDS) for _ in range(rng.choice((1, 1, 1, 2, 3))))
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 5))):
        data = mutate(rng, data)
    return data[:rng.randrange(len(data))] if data and rng.randrange(8) == 0 else data


def framed_by_egress(cases):
    given = b"".join(len(case).to_bytes(4, "big") + case for case in cases)
    out = subprocess.run([PRINTER], input=given, stdout=subprocess.PIPE, check=True).stdout
    lines = out.splitlines()
    assert len(lines) == len(cases)
    return map(json.loads, lines)


def framed_by_h11(data):
    """As egress's list; "refused" behind what h11 does not take."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    connection.receive_data(data)
    requests = []
    try:
        while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Request):
                requests.append({"method": event.method, "target": event.target, "body": b"", "trailers": [],
                                 "fields": list(event.headers), "version": event.http_version, "end": "more"})
            elif isinstance(event, h11.Data):
                requests[-1]["body"] += event.data
            elif isinstance(event, h11.EndOfMessage):
                requests[-1].update(trailers=list(event.headers), end="whole")
                connection.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is not h11.DONE:
                    break
                connection.start_next_cycle()
            else:
                break
    except h11.RemoteProtocolError:
        if requests and requests[-1]["end"] == "more":
            requests[-1]["end"] = "refused"
        else:
            requests.append({"end": "refused"})
    return requests


def fields_of(pairs):
    """Names in small letters; and so the one value that h11 makes small."""
    pairs = [(name.lower(), value) for name, value in pairs]
    return [(name, value.lower() if name == b"transfer-encoding" else value) for name, value in pairs]


def decoded(pairs):
    return fields_of((bytes.fromhex(name), bytes.fromhex(value)) for name, value in pairs)


FRAMING = (b"content-length", b"transfer-encoding")

# Where h11 refuses, or goes another way, and egress is right, by the fields before and the request: a
# reason each.
EXCEPTIONS = {
    # RFC 9110, section 7.8: h11 waits with what follows a request that asks for another protocol, until
    # it is told that there will be none; egress does not read on either before it has answered.
    "behind an upgrade": lambda before, _: any(name == b"upgrade" for name, _ in before),
    # RFC 9110, section 6.5.1: no trailer says anything of framing. h11 judges it as if it did; egress
    # leaves it out of what goes on (call.c).
    "a trailer about framing":
        lambda _, request: any(name in FRAMING for name, _ in decoded(request["trailers"])),
}


def compare(data, ours, theirs, counts):
    before = []
    for number, request in enumerate(ours):
        if "method" not in request:
            return
        where = f"request {number} of {data!r}: egress {request}, h11 {theirs[number:number + 1]}"
        if any(applies(before, request) for applies in EXCEPTIONS.values()):
            counts["exceptions"] += 1
            return
        assert number < len(theirs) and "method" in theirs[number], where
        other = theirs[number]
        before = decoded(request["fields"])
        assert bytes.fromhex(request["method"]) == other["method"], where
        assert bytes.fromhex(request["target"]) == other["target"], where
        assert b"1.%d" % request["minor"] == other["version"], where
        assert before == fields_of(other["fields"]), where
        if request["end"] == "refused":
            return
        assert request["end"] == other["end"], where
        assert bytes.fromhex("".join(request["body"])) == other["body"], where
        assert decoded(request["trailers"]) == fields_of(other["trailers"]), where
        counts[request["end"]] += 1


def main():
    rng = random.Random(SEED)
    cases = SEEDS + [make(rng) for _ in range(COUNT)]
    counts = {"whole": 0, "more": 0, "exceptions": 0}
    for data, ours in zip(cases, framed_by_egress(cases)):
        compare(data, ours, framed_by_h11(data), counts)
    print(f"{len(cases)} connections, requests of them: {counts}")
    # else nothing was compared
    assert counts["whole"] > COUNT // 4 and counts["more"] > COUNT // 800, counts


main()
