"""What an upstream that the policy allows can do with a sandbox that helps it, each named after the promise."""
import contextlib
import json
import ssl
import threading

import pytest

import harness
import upstream as u
from client_h2 import Client


@pytest.fixture(scope="module")
def server(namespace, folder):
    server = u.Upstream(namespace, folder, name="ups", hosts=("git.test", "model.test"))
    yield server
    server.close()


@pytest.fixture(scope="module")
def box(make_daemon, server):
    daemon = make_daemon(default_agent="sh", start=False, extra_rules=[
        server.rule("git.test", "ups-ca.pem", git={"fetch": True, "lfs": True, "repositories": ["acme/notes"]}),
        server.rule("model.test", "ups-ca.pem", usage="openai")])
    (daemon.folder / "policy/ups-ca.pem").write_bytes(open(server.ca, "rb").read())
    daemon.start()
    sandbox = daemon.sandbox("upstreams")
    assert sandbox.exec("/bin/true")["exitCode"] == 0
    yield sandbox
    sandbox.remove()


def ask(box, host, path="/", more=""):
    with box.connect_tls(host) as sock:
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode())
        return u.read_answer(sock)


CLIMBS = ["..%2f..%2f..%2f..%2fother/private.git/info/refs", "x/..%2F..%2f..", "%252e%252e/x", "..%5c..%5cx", "..;/x"]


@pytest.mark.parametrize("rest", CLIMBS)
def test_lfs_opens_no_path_that_some_server_takes_for_another_repository(box, server, rest):
    before = len(server.requests)
    status, headers, _ = ask(box, "git.test", f"/acme/notes.git/info/lfs/{rest}")
    assert status == 403 and "smart HTTP" in headers["x-paddock-reason"], headers
    assert ask(box, "git.test", "/acme/notes.git/info/lfs/objects/a..b")[0] == 200
    assert len(server.requests) == before + 1


@pytest.fixture
def spender(box):
    """A sandbox that may use ten tokens."""
    sandbox = box.daemon.sandbox("spender")
    assert box.daemon.call("PUT", sandbox.path, {"budget": {"output_tokens": 10}}).status == 201
    sandbox.exec("/bin/true")
    yield sandbox
    sandbox.remove()


def lines(box):
    return len(box.daemon.get(f"{box.path}/egress").json)


def nested(depth):
    return {"a": nested(depth - 1)} if depth else [1]


def test_a_budget_is_not_evaded_by_what_the_sandbox_makes_an_answer_repeat(spender, server):
    """OpenAI's Responses hold the request's tools, and so schemas as deep as it likes, in front of the usage."""
    body = json.dumps({"object": "response", "model": "m", "tools": [{"parameters": nested(200)}],
                       "usage": {"input_tokens": 1, "output_tokens": 11}}).encode()

    def route(_server, sock, _request):
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" %
                     (len(body), body))
        return "keep"
    server.routes["/deep"] = route
    assert ask(spender, "model.test", "/deep")[0] == 200
    harness.wait_for(lambda: lines(spender) == 1, 10, "its line")
    assert ask(spender, "model.test", "/deep")[0] == 402


def test_a_budget_is_not_evaded_by_leaving_a_document_before_its_usage(spender, server):
    """The text of an answer stands in front of its usage."""
    left = threading.Event()

    def route(_server, sock, _request):
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n"
                     b'{"choices":[{"message":{"content":"' + b"word " * 200)
        sock.recv(1)
        left.set()
    server.routes["/left"] = route
    with spender.connect_tls("model.test") as sock:
        sock.sendall(b"GET /left HTTP/1.1\r\nHost: model.test\r\n\r\n")
        u.read_until(sock, b"word " * 200)
    assert left.wait(harness.patient(10))
    harness.wait_for(lambda: lines(spender) == 1, 10, "its line")
    assert ask(spender, "model.test", "/left")[0] == 402


def test_a_websocket_to_a_model_ends_when_a_budget_is_set(box, server):
    """What it uses cannot be counted, whether it was opened before or after."""
    def route(_server, sock, _request):
        sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        while data := sock.recv(100):
            sock.sendall(data)
    server.routes["/socket"] = route
    sandbox = box.daemon.sandbox("talker")
    sandbox.exec("/bin/true")
    with sandbox.connect_tls("model.test") as sock:
        sock.sendall(b"GET /socket HTTP/1.1\r\nHost: model.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        assert u.read_until(sock, b"\r\n\r\n").startswith(b"HTTP/1.1 101 ")
        for budget in ({"requests": 5}, {"output_tokens": 10}):
            sock.sendall(b"echo")
            assert u.read_exactly(sock, 4) == b"echo"
            assert box.daemon.call("PUT", sandbox.path, {"budget": budget}).status == 200
        with pytest.raises((ssl.SSLError, OSError)):
            u.read_exactly(sock, 1)
    line = box.daemon.get(f"{sandbox.path}/egress").json[-1]
    assert line["status"] == 101 and line["ended_by"] == "policy" and "cannot be counted" in line["reason"], line
    sandbox.remove()


def test_a_neighbour_is_served_while_a_sandbox_sends_what_costs_much(box, server):
    """Frames of one byte, on many connections: a turn of each is bounded by its time."""
    count, frames = 128, 60000  # a stream's first window
    left = {}

    def route(_server, sock, _request):
        me = threading.get_ident()
        left[me] = frames
        with contextlib.suppress(OSError, ssl.SSLError):
            while left[me] > 0 and (part := sock.recv(1 << 16)):
                left[me] -= part.count(b"x")
        left[me] = 0
    route.reads_body = True
    server.routes["/sink"] = route
    neighbour = box.daemon.sandbox("neighbour-of-frames")
    neighbour.exec("/bin/true")
    assert ask(neighbour, "model.test")[0] == 200
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(box, "model.test")) for _ in range(count)]
        numbers = [client.head("/sink", "POST", end=False) for client in clients]
        harness.wait_for(lambda: len(left) == count, 20, "the requests")
        for client, number in zip(clients, numbers):
            data = (b"\0\0\1\0\0" + number.to_bytes(4, "big") + b"x") * frames
            threading.Thread(target=client.sock.sendall, args=(data,), daemon=True).start()
        answers = 0
        while any(value > 0 for value in left.values()):
            assert ask(neighbour, "model.test")[0] == 200
            answers += 1
    neighbour.remove()
    assert answers > 2, answers
