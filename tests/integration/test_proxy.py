"""A proxy between Paddock and the world (`upstream_proxy`), with the whole daemon in front of it."""
import base64
import contextlib
import socket
import threading

import pytest

import harness
import upstream as u

pytestmark = pytest.mark.portable

BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


class ConnectProxy:
    """Tunnels to the server, whatever host is asked for: names are the proxy's business. A host in
    `refused` gets that status."""

    def __init__(self, namespace, target_port):
        self.heads = []
        self.refused = {}
        self.target_port = target_port
        self.listener = harness.in_namespace(
            namespace.fd, lambda: socket.create_server(("127.0.0.1", 0), backlog=64))
        self.namespace = namespace
        self.url = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self.listener.accept()
                threading.Thread(target=self.tunnel, args=(sock,), daemon=True).start()

    def tunnel(self, client):
        with client, contextlib.suppress(OSError):
            head = u.read_until(client, b"\r\n\r\n").decode()
            self.heads.append(head)
            method, target, _ = head.split("\r\n")[0].split(" ")
            status = self.refused.get(target.rsplit(":", 1)[0], 200 if method == "CONNECT" else 400)
            client.sendall(b"HTTP/1.1 %d The Proxy Says So\r\n\r\n" % status)
            if status != 200:
                return
            with harness.in_namespace(self.namespace.fd, lambda: socket.create_connection(
                    ("127.0.0.1", self.target_port))) as server:
                back = threading.Thread(target=copy, args=(server, client))
                back.start()
                copy(client, server)
                back.join()

    def connects(self, host):
        return [head for head in self.heads if head.startswith(f"CONNECT {host}:443 HTTP/1.1\r\n")]

    def close(self):
        self.listener.close()


def copy(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@pytest.fixture(scope="module")
def server(namespace, folder):
    server = u.Upstream(namespace, folder, name="proxied", hosts=("u.test", "other.test", "direct.test"))
    yield server
    server.close()


@pytest.fixture(scope="module")
def proxy(namespace, server):
    proxy = ConnectProxy(namespace, server.port)
    yield proxy
    proxy.close()


@pytest.fixture(scope="module")
def box(make_daemon, folder, server, proxy):
    """Rules without an upstream of their own; the test's CA is among the system's."""
    secrets = folder / "proxy-secrets"
    secrets.mkdir(mode=0o700)
    (secrets / "MARK").write_text("proxied-secret\n")
    (secrets / "MARK").chmod(0o600)
    daemon = make_daemon(default_agent="sh", start=False, secrets_dir=str(secrets),
                         upstream_proxy=f"http://me:secret@{proxy.url}", extra_rules=[
        {"name": "u", "host": "u.test",
         "headers": {"set": {"authorization": "Bearer ${secret:MARK}"}}},
        {"name": "closed", "host": "closed.test"}, {"name": "wrong", "host": "wrong.test"},
        server.rule("direct.test", "u-ca.pem")])
    (daemon.folder / "policy/u-ca.pem").write_bytes(open(server.ca, "rb").read())
    with_ca(daemon, server.ca)
    daemon.start()
    sandbox = daemon.sandbox("proxied")
    sandbox.exec("/bin/true")
    yield sandbox
    sandbox.remove()


def with_ca(daemon, ca):
    bundle = daemon.folder / "bundle.pem"
    bundle.write_bytes(open(BUNDLE, "rb").read() + open(ca, "rb").read())
    daemon.namespace = harness.Mounted(daemon.namespace, {BUNDLE: bundle})


def get(box, host, path="/x"):
    with box.connect_tls(host) as sock:
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nX-Mine: 1\r\n\r\n".encode())
        return u.read_answer(sock)


def test_requests_go_through_the_proxy_and_it_sees_nothing_of_them(box, server, proxy):
    for number in range(2):
        assert get(box, "u.test", f"/through/{number}")[0] == 200
        request = server.seen(f"/through/{number}")[-1]
        assert request.get("authorization") == "Bearer proxied-secret" and request.get("host") == "u.test"
        assert request.get("proxy-authorization") is None
    assert len(proxy.connects("u.test")) == 1  # the tunnel is kept
    head = proxy.connects("u.test")[0]
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'me:secret').decode()}\r\n" in head
    assert "proxied-secret" not in head and "X-Mine" not in head and "/through" not in head


def test_what_the_policy_denies_does_not_reach_the_proxy(box, proxy):
    before = len(proxy.heads)
    assert get(box, "evil.test")[0] == 403
    assert len(proxy.heads) == before


def test_an_upstream_of_a_rule_is_reached_without_the_proxy(box, server, proxy):
    assert get(box, "direct.test", "/direct")[0] == 200
    assert server.seen("/direct") and not proxy.connects("direct.test")


@pytest.mark.parametrize("status", [403, 407, 502])
def test_a_proxy_that_refuses_is_502_with_its_status(box, server, proxy, status):
    proxy.refused["closed.test"] = status
    before = server.connections
    got, headers, body = get(box, "closed.test")
    assert got == 502 and b"closed.test: " in body and str(status).encode() in body, body
    assert headers["x-paddock-reason"] == body.decode().strip()
    assert server.connections == before


def test_the_upstreams_certificate_is_checked_behind_the_proxy(box, server):
    before = len(server.requests)
    status, _, body = get(box, "wrong.test")  # the server has no certificate for it
    assert status == 502 and b"certificate" in body, body
    assert len(server.requests) == before


def test_a_proxy_that_is_gone_is_told(make_daemon):
    daemon = make_daemon(default_agent="sh", upstream_proxy="http://127.0.0.1:1",
                         extra_rules=[{"name": "u", "host": "u.test"}])
    sandbox = daemon.sandbox("no-proxy")
    sandbox.exec("/bin/true")
    status, _, body = get(sandbox, "u.test")
    assert status == 502 and b"u.test: " in body and b"127.0.0.1 port 1" in body, body
    sandbox.remove()
