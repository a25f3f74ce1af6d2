"""A policy that comes into force counts for what is under way, too: requests and tunnels that it does
not allow end, the others go on."""
import json

import pytest

import harness
import upstream as u
from client_h2 import Client
from test_egress import SWITCHED, get, upgrade
from test_push import refs_of

REF = "refs/heads/agent/x"


PUSH = "/me/repo/git-receive-pack"


def push_rule(server, host, branch):
    return server.rule(host, "reload-ca.pem", git={"push": True, "branches": [branch]})


@pytest.fixture(scope="module")
def server(namespace, folder):
    server = u.Upstream(namespace, folder, name="reload", hosts=("gone.test", "kept.test", "push.test", "same.test"))

    def echo(_server, sock, _request):
        sock.sendall(SWITCHED)
        while data := sock.recv(4096):
            sock.sendall(b"<" + data + b">")

    def endless(_server, sock, _request):
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nbegun")
        sock.recv(1)

    def receive(server, sock, request):
        u.read_exactly(sock, len(refs_of(REF)))
        server.begun.append(request)
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n" + u.read_exactly(sock, 4))
    receive.reads_body = True
    server.begun = []
    server.routes.update({PUSH: receive, "/ws": echo, "/endless": endless, "/silent": lambda _s, sock, _r: sock.recv(1)})
    yield server
    server.close()


@pytest.fixture
def box(make_daemon, server, request):
    daemon = make_daemon(default_agent="sh", start=False, extra_rules=[
        server.rule("gone.test", "reload-ca.pem"), server.rule("kept.test", "reload-ca.pem"),
        push_rule(server, "push.test", "agent/*"), push_rule(server, "same.test", "agent/*")])
    (daemon.folder / "policy/reload-ca.pem").write_bytes(open(server.ca, "rb").read())
    rules = json.loads(open(daemon.config["policy"], encoding="utf-8").read())["rules"]
    kept = [rule for rule in rules if rule["host"] not in ("gone.test", "push.test")]
    kept.append(push_rule(server, "push.test", "other/*"))
    (daemon.folder / "policy/narrow.json").write_text(json.dumps({"rules": kept}))
    daemon.start()
    sandbox = daemon.sandbox("reload")
    assert sandbox.exec("/bin/true")["exitCode"] == 0
    yield sandbox
    sandbox.remove()


def reload(box):
    """The narrow policy takes the main one's place."""
    narrow = (box.daemon.folder / "policy/narrow.json").read_bytes()
    with open(box.daemon.config["policy"], "wb") as file:
        file.write(narrow)
    box.daemon.cli("policy", "reload")


def put(box):
    assert box.daemon.call("PUT", box.path, {"policy": "narrow"}).status == 200


def open_tunnel(box, host):
    sock = box.connect_tls(host)
    sock.sendall(upgrade("/ws").replace(b"u.test", host.encode()))
    assert u.read_until(sock, b"\r\n\r\n").startswith(b"HTTP/1.1 101 ")
    return sock


@pytest.mark.parametrize("change", [reload, put])
def test_what_the_new_policy_does_not_allow_ends_and_the_rest_goes_on(box, change):
    gone, kept = open_tunnel(box, "gone.test"), open_tunnel(box, "kept.test")
    begun, silent = box.connect_tls("gone.test"), box.connect_tls("gone.test")
    begun.sendall(get("/endless", "gone.test"))
    assert u.read_until(begun, b"begun")
    silent.sendall(get("/silent", "gone.test"))
    with Client(box, "gone.test") as client:
        streams = [client.head("/endless"), client.head("/silent")]
        while client.answers[streams[0]]["body"] != b"begun":
            client.step()
        change(box)
        for sock in (gone, begun):  # what had begun is cut, never ended cleanly
            with pytest.raises(OSError):
                while sock.recv(100):
                    pass
        status, headers, body = u.read_answer(silent)
        assert status == 403 and body == b"gone.test is not reachable from this sandbox\n"
        cut, refused = (client.wait(number) for number in streams)
        assert cut["reset"] is not None and refused["status"] == 403
        assert client.ask("/again")["status"] == 403  # the next request on an open connection
    kept.sendall(b"still")
    assert u.read_exactly(kept, 7) == b"<still>"
    text = (box.daemon.state / "audit.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines() if "gone.test" in line]
    assert len(lines) == 6 and {line["ended_by"] for line in lines} == {"policy"}, lines
    assert {line["decision"] for line in lines} == {"denied"}
    kept.close()


def begin_push(box, host, data):
    sock = box.connect_tls(host)
    sock.sendall(f"POST {PUSH} HTTP/1.1\r\nHost: {host}\r\ncontent-length: "
                 f"{len(refs_of(REF)) + 4}\r\n\r\n".encode() + data)
    return sock


def test_a_push_is_judged_by_the_branches_that_are_in_force(box, server):
    """Held, or on its way already: its refs were never judged by the new patterns."""
    whole = refs_of(REF)
    same = begin_push(box, "same.test", whole)
    sent, held = begin_push(box, "push.test", whole), begin_push(box, "push.test", whole[:-4])
    harness.wait_for(lambda: len(server.begun) == 2, 20, "two pushes are on their way")
    reload(box)
    status, _, body = u.read_answer(held)
    assert status == 403 and b"were changed while this push came" in body, body
    status, _, body = u.read_answer(sent)  # no answer had begun
    assert status == 403 and b"were changed while this push came" in body, body
    same.sendall(b"pack")
    assert u.read_answer(same)[::2] == (200, b"pack")
    server.begun.clear()
    for sock in (same, sent, held):
        sock.close()


def test_a_policy_that_is_refused_ends_nothing(box):
    gone = open_tunnel(box, "gone.test")
    with open(box.daemon.config["policy"], "w", encoding="utf-8") as file:
        file.write("{")
    assert box.daemon.cli("policy", "reload", check=False).returncode == 1
    gone.sendall(b"still")
    assert u.read_exactly(gone, 7) == b"<still>"
    gone.close()
