"""Ways out by explicit rule: plain HTTP, and an upstream that wants to see a certificate."""
import contextlib
import json
import ssl

import pytest

import harness
import upstream as u
from client_h2 import Client
from test_egress import SWITCHED, get, upgrade
from tls import openssl


class PlainUpstream(u.Upstream):
    def connection(self, plain):
        with contextlib.suppress(OSError, ValueError), plain:
            plain.settimeout(harness.patient(60))
            while self.one(plain) == "keep":
                pass

    def plain_rule(self, host, **more):
        return {"name": f"rule-{host}", "host": host, "plain_http": True,
                "upstream": f"127.0.0.1:{self.port}", **more}


@pytest.fixture(scope="module")
def plain(namespace, folder):
    server = PlainUpstream(namespace, folder, name="plain", hosts=("plain.test",))
    yield server
    server.close()


def client_certificate(folder, ca, name):
    """A certificate for a client, under the CA of the server; (certificate, key) in PEM."""
    paths = [folder / f"client-{name}.{end}" for end in ("pem", "key", "csr")]
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
            str(paths[1]), "-out", str(paths[2]), "-subj", f"/CN={name}")
    openssl("x509", "-req", "-in", str(paths[2]), "-CA", ca, "-CAkey", ca.replace(".pem", ".key"),
            "-CAcreateserial", "-days", "30", "-out", str(paths[0]))
    return paths[0].read_bytes(), paths[1].read_bytes()


def who(_server, sock, _request):
    """The name in the certificate that egress showed."""
    name = dict(pair for part in sock.getpeercert()["subject"] for pair in part)["commonName"]
    sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(name), name.encode()))
    return "keep"


@pytest.fixture(scope="module")
def strict(namespace, folder):
    """A server that demands a certificate of its client."""
    server = u.Upstream(namespace, folder, name="strict",
                        hosts=("cert.test", "none.test", "wrong.test", "unset.test"))
    server.context.verify_mode = ssl.CERT_REQUIRED
    server.context.load_verify_locations(server.ca)
    server.routes.update({"/one": who, "/two": who, "/one/more": who})
    yield server
    server.close()


@pytest.fixture(scope="module")
def box(make_daemon, folder, plain, strict):
    secrets = folder / "kinds-secrets"
    secrets.mkdir(mode=0o700)
    pems = {}
    for name in ("one", "two"):
        pems[name], key = client_certificate(folder, strict.ca, name)
        (secrets / f"KEY_{name.upper()}").write_bytes(key)
        (secrets / f"KEY_{name.upper()}").chmod(0o600)

    def with_cert(host, cert, key, **more):
        return {**strict.rule(host, "strict-ca.pem"), "upstream_cert": f"{cert}.pem",
                "upstream_key": f"${{secret:{key}}}", **more}
    daemon = make_daemon(default_agent="sh", start=False, secrets_dir=str(secrets), extra_rules=[
        plain.plain_rule("plain.test", methods=["GET"], headers={"remove": ["x-api-key"]}),
        with_cert("cert.test", "one", "KEY_ONE", name="one", path="/one"),
        with_cert("cert.test", "two", "KEY_TWO", name="two", path="/two"),
        with_cert("wrong.test", "one", "KEY_TWO"), with_cert("unset.test", "one", "KEY_THREE"),
        strict.rule("none.test", "strict-ca.pem")])
    (daemon.folder / "policy/strict-ca.pem").write_bytes(open(strict.ca, "rb").read())
    for name, pem in pems.items():
        (daemon.folder / f"policy/{name}.pem").write_bytes(pem)
    daemon.start()
    sandbox = daemon.sandbox("kinds")
    assert sandbox.exec("/bin/true")["exitCode"] == 0
    yield sandbox
    sandbox.remove()


def ask_plain(box, raw, host="plain.test"):
    with box.connect(host, 80) as sock:
        sock.sendall(raw)
        return u.read_answer(sock)


def test_plain_http_goes_where_a_rule_opens_it(box, plain):
    with box.connect("plain.test", 80) as sock:
        for _ in range(2):
            sock.sendall(get("/a/../b?c", "plain.test", "X-Api-Key: mine\r\nX-Mine: 1\r\n"))
            assert u.read_answer(sock)[::2] == (200, b"/b?c")
    for request in plain.seen("/b?c"):
        assert request.get("host") == "plain.test" and request.get("x-mine") == "1"
        assert request.get("x-api-key") is None
    audit = [json.loads(line) for line in
             (box.daemon.state / "audit.jsonl").read_text().splitlines() if "plain.test" in line]
    assert audit[-1]["decision"] == "allowed" and audit[-1]["upstream_tls"] is None


def test_plain_http_is_refused_where_no_rule_opens_it(box, plain):
    before = len(plain.requests)
    post = b"POST /x HTTP/1.1\r\nHost: plain.test\r\nContent-Length: 0\r\n\r\n"
    assert ask_plain(box, post)[0] == 403
    status, _, body = ask_plain(box, get("/x", "cert.test"), "cert.test")
    assert (status, body) == (403, b"cert.test is reachable only over HTTPS\n")
    with box.connect_tls("plain.test") as sock:  # nor is HTTPS where the rule is for plain HTTP
        sock.sendall(get("/x", "plain.test"))
        assert u.read_answer(sock)[0] == 403
    assert len(plain.requests) == before


def test_plain_http_streams_and_tunnels(box, plain):
    def echo(_server, sock, _request):
        sock.sendall(SWITCHED)
        while data := sock.recv(4096):
            sock.sendall(b"<" + data + b">")
    plain.routes["/ws"] = echo
    plain.routes["/close"] = lambda _s, sock, _r: sock.sendall(b"HTTP/1.1 200 OK\r\n\r\nall of it")
    plain.routes["/cut"] = lambda _s, sock, _r: sock.sendall(
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this")
    with box.connect("plain.test", 80) as sock:
        sock.sendall(upgrade("/ws").replace(b"u.test", b"plain.test"))
        assert u.read_until(sock, b"\r\n\r\n").startswith(b"HTTP/1.1 101 ")
        sock.sendall(b"hello")
        assert u.read_exactly(sock, 7) == b"<hello>"
    assert ask_plain(box, get("/close", "plain.test"))[2] == b"all of it"
    with pytest.raises(OSError):
        status, _, body = ask_plain(box, get("/cut", "plain.test"))
        if status == 502:
            raise OSError(body)


def ask(box, host, path):
    with box.connect_tls(host) as sock:
        sock.sendall(get(path, host))
        return u.read_answer(sock)


def test_an_upstream_sees_the_certificate_of_the_rule(box):
    for _ in range(2):  # the second time over the connections that were kept
        for path, name in (("/one", b"one"), ("/two", b"two"), ("/one/more", b"one")):
            assert ask(box, "cert.test", path)[::2] == (200, name)
    with Client(box, "cert.test") as client:
        numbers = [client.head(path) for path in ("/one", "/two")]
        assert [client.wait(number)["body"] for number in numbers] == [b"one", b"two"]


def test_without_a_certificate_the_upstream_refuses_and_that_is_told(box, strict):
    before = len(strict.requests)
    status, headers, body = ask(box, "none.test", "/one")
    assert status == 502 and b": it ended the connection: tlsv13 alert certificate required" in body, body
    assert headers["x-should-retry"] == "false"
    status, headers, body = ask(box, "wrong.test", "/one")
    assert status == 503 and body == (b"rule rule-wrong.test cannot be used: its upstream_key is not the "
                                      b"key of its upstream_cert\n"), body
    assert headers["x-should-retry"] == "false"
    status, headers, body = ask(box, "unset.test", "/one")
    assert status == 503 and b"rule rule-unset.test is inactive: secret KEY_THREE is not set" in body
    assert len(strict.requests) == before
    log = box.daemon.log()
    assert "PRIVATE KEY" not in log
