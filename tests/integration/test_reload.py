"""A policy that comes into force counts for what is under way, too: requests and tunnels that it does
not allow end, the others go on."""
import json

import pytest

import upstream as u
from test_egress import SWITCHED, get, upgrade
from test_http2_client import Client


@pytest.fixture(scope="module")
def server(namespace, folder):
    server = u.Upstream(namespace, folder, name="reload", hosts=("gone.test", "kept.test"))

    def echo(_server, sock, _request):
        sock.sendall(SWITCHED)
        while data := sock.recv(4096):
            sock.sendall(b"<" + data + b">")

    def endless(_server, sock, _request):
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nbegun")
        sock.recv(1)
    server.routes.update({"/ws": echo, "/endless": endless, "/silent": lambda _s, sock, _r: sock.recv(1)})
    yield server
    server.close()


@pytest.fixture
def box(make_daemon, server, request):
    daemon = make_daemon(default_agent="sh", start=False, extra_rules=[
        server.rule("gone.test", "reload-ca.pem"), server.rule("kept.test", "reload-ca.pem")])
    (daemon.folder / "policy/reload-ca.pem").write_bytes(open(server.ca, "rb").read())
    rules = json.loads(open(daemon.config["policy"], encoding="utf-8").read())["rules"]
    kept = [rule for rule in rules if rule["host"] != "gone.test"]
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


def test_a_policy_that_is_refused_ends_nothing(box):
    gone = open_tunnel(box, "gone.test")
    with open(box.daemon.config["policy"], "w", encoding="utf-8") as file:
        file.write("{")
    assert box.daemon.cli("policy", "reload", check=False).returncode == 1
    gone.sendall(b"still")
    assert u.read_exactly(gone, 7) == b"<still>"
    gone.close()
