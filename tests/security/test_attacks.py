"""The attacker has a prompt, and everything in the sandbox: what was tried, each named after the promise.

Perl is the sandbox's only interpreter; what needs sockets of a known shape is done from here, in the
sandbox's network namespace.
"""
import contextlib
import os
import pathlib
import re
import socket
import ssl
import threading
import time

import pytest

import harness
import upstream as u
import upstream_h2


@pytest.fixture(scope="module")
def box(sh_daemon):
    sandbox = sh_daemon.sandbox("attacker")
    assert sandbox.clone().status == 200
    yield sandbox
    sandbox.remove()


@pytest.fixture
def other(sh_daemon):
    sandbox = sh_daemon.sandbox("neighbour")
    assert sandbox.exec("/bin/true")["exitCode"] == 0
    yield sandbox
    sandbox.remove()


# ---------------------------------------------------------------------------------- the truth

HIDE = {
    "assume-unchanged": "git update-index --assume-unchanged README; echo hidden >> README",
    "skip-worktree": "git update-index --skip-worktree README; echo hidden >> README",
    # the index holds the times of the changed file and the name of the old content
    "forged times": "old=$(git rev-parse HEAD:README); echo hidden >> README; git add README; "
                    "sleep 1.1; git update-index --refresh; "
                    "new=$(git hash-object README); perl -0777 -pi -e "
                    "'BEGIN { ($o, $n) = map { pack \"H*\", $_ } @ENV{qw(old new)} } s/\\Q$n\\E/$o/' "
                    ".git/index",
    "untracked and ignored": "git rm -q --cached README; echo README >> .git/info/exclude; echo hidden >> README",
    "replaced object": "echo hidden >> README; git add README; git replace $(git rev-parse HEAD:README) $(git hash-object README)",
    "commit and amend": "echo hidden >> README; git -c core.hooksPath=/ commit -qam x; git update-ref refs/heads/master HEAD; "
                        "git reflog expire --expire=now --all; git gc -q --prune=now",
}


@pytest.mark.parametrize("script", HIDE.values(), ids=HIDE.keys())
def test_the_diff_shows_what_the_agent_hides(sh_daemon, request, script):
    box = sh_daemon.sandbox("hide-" + request.node.callspec.id.replace(" ", "-"))
    assert box.clone().status == 200
    done = box.sh(f"cd /workspace/repo && set -a && {script}")
    for query in ("", "?renames=1"):
        diff = box.diff(query)
        assert diff.status == 200 and "+hidden" in diff.text, (query, done, diff)
    box.remove()


@pytest.mark.parametrize("place", [".gitignore", ".gitattributes", ".git/objects/pack/x.idx", ".git/refs/heads/f",
                                   ".git/index", ".git/HEAD", ".git/config", ".git/info/exclude"])
def test_d12_a_fifo_in_the_place_of_a_file_holds_up_no_diff(box, place):
    box.sh(f"cd /workspace && rm -rf repo2 && cp -a repo repo2 && cd repo && rm -rf {place} && mkfifo {place}")
    began = time.monotonic()
    answers = {query: box.diff(query) for query in ("", "?against=head")}
    assert time.monotonic() - began < harness.patient(40)
    assert all(answer.status in (200, 502) for answer in answers.values()), answers
    box.sh("cd /workspace && rm -rf repo && mv repo2 repo")
    assert box.diff().status == 200


def test_nobody_inside_can_hold_up_init(box):
    """A child of PID 1 that is stopped before it executes its program: PID 1 goes on."""
    begun = pathlib.Path(f"/proc/{box.init_pid()}/root/tmp/begun")
    attack = threading.Thread(target=lambda: box.exec(
        "/usr/bin/perl", "-e", "$SIG{ALRM} = sub { exit }; alarm 8; open my $file, '>', '/tmp/begun'; "
        "while (1) { kill 'STOP', grep { $_ > 1 && $_ != $$ } map { m{/proc/(\\d+)$} } glob '/proc/[0-9]*'; }",
        user="root"))
    attack.start()
    harness.wait_for(begun.exists, 20, "the attack")
    threads = [threading.Thread(target=lambda: box.daemon.post(
        f"{box.path}/exec", {"argv": ["/bin/true"]}, timeout=60)) for _ in range(20)]
    for thread in threads:
        thread.start()
    attack.join(60)
    assert not attack.is_alive()
    assert box.exec("/bin/echo", "alive")["stdout"] == "alive\n"
    box.sh("kill -CONT -1", user="root")
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


# ------------------------------------------------------------------------------ the neighbours

INOTIFY = "perl -e 'my $n = 0; $n++ while $n < 2000 && syscall(294, 0) >= 0; $| = 1; print \"$n\\n\"; sleep %d'"


def test_the_kernels_counters_of_a_sandbox_are_its_own(box, other):
    """inotify instances: without an owner of its own each user namespace counts for the host's root."""
    taken = box.sh(f"({INOTIFY % 5} & ) | head -1")["stdout"]
    assert 0 < int(taken) <= 1024, taken
    assert int(other.sh(INOTIFY % 0)["stdout"]) > 0
    host = harness.run("/usr/bin/python3", "-c", "import ctypes; print(ctypes.CDLL(None).inotify_init1(0))")
    assert int(host.stdout) >= 0


def test_a_flood_of_output_holds_up_no_answer(box, other):
    began = time.monotonic()
    result = box.sh("yes & sleep 0.5; exit 3")
    assert result["exitCode"] == 3 and time.monotonic() - began < harness.patient(10)
    assert other.exec("/bin/echo", "fine")["stdout"] == "fine\n"
    box.sh("kill -9 -1", user="root")


# -------------------------------------------------------------------------------- past egress

@pytest.fixture(scope="module")
def server(namespace, folder):
    server = u.Upstream(namespace, folder, name="attacks")
    yield server
    server.close()


@pytest.fixture(scope="module")
def server2(namespace, folder):
    server = upstream_h2.H2Upstream(namespace, folder, name="attacks2", hosts=("two.test",))
    yield server
    server.close()


@pytest.fixture(scope="module")
def mute(namespace):
    """A listener that says nothing."""
    with harness.in_namespace(namespace.fd, lambda: socket.create_server(("127.0.0.1", 0))) as listener:
        yield listener


@pytest.fixture(scope="module")
def egress_box(make_daemon, server, server2, mute):
    daemon = make_daemon(default_agent="sh", start=False, extra_rules=[
        server.rule("u.test", "u-ca.pem"), server.rule("get.test", "u-ca.pem", methods=["GET"]),
        server2.rule("two.test", "two-ca.pem"), server.rule("other.test", "u-ca.pem", usage="openai"),
        {"name": "mute", "host": "mute.test", "upstream": f"127.0.0.1:{mute.getsockname()[1]}"}])
    (daemon.folder / "policy/u-ca.pem").write_bytes(open(server.ca, "rb").read())
    (daemon.folder / "policy/two-ca.pem").write_bytes(open(server2.ca, "rb").read())
    daemon.start()
    sandbox = daemon.sandbox("past-egress")
    assert sandbox.exec("/bin/true")["exitCode"] == 0
    yield sandbox
    sandbox.remove()


H = b"Host: u.test\r\n"
C = b"POST /bad HTTP/1.1\r\n" + H + b"Transfer-Encoding: "
REFUSED = {
    "user in the target": b"GET https://a@u.test/bad HTTP/1.1\r\n" + H + b"\r\n",
    "backslash in the target": b"GET https://u.test\\@get.test/bad HTTP/1.1\r\n" + H + b"\r\n",
    "another scheme": b"GET http://u.test/bad HTTP/1.1\r\n" + H + b"\r\n",
    "authority form": b"GET u.test:443 HTTP/1.1\r\n" + H + b"\r\n",
    "port with a zero": b"GET /bad HTTP/1.1\r\nHost: u.test:0443\r\n\r\n",
    "empty port": b"GET /bad HTTP/1.1\r\nHost: u.test:\r\n\r\n",
    "list of hosts": b"GET /bad HTTP/1.1\r\nHost: u.test,get.test\r\n\r\n",
    "two hosts in odd case": b"GET /bad HTTP/1.1\r\nhOsT: u.test\r\nHOST: get.test\r\n\r\n",
    "xchunked": C + b"xchunked\r\n\r\n0\r\n\r\n",
    "vertical tab": C + b"\x0bchunked\r\n\r\n0\r\n\r\n",
    "quoted coding": C + b"\"chunked\"\r\n\r\n0\r\n\r\n",
    "two codings": C + b"chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "empty coding": C + b"\r\nContent-Length: 3\r\n\r\nabc",
    "chunks in 1.0": C.replace(b"1.1", b"1.0") + b"chunked\r\n\r\n0\r\n\r\n",
    "list of lengths": b"POST /bad HTTP/1.1\r\n" + H + b"Content-Length: 3, 3\r\n\r\nabc",
    "overflowing length": b"POST /bad HTTP/1.1\r\n" + H + b"Content-Length: 18446744073709551619\r\n\r\nabc",
    "lower-case method": b"get /bad HTTP/1.1\r\n" + H + b"\r\n",
    "HTTP/0.9": b"GET /bad\r\n\r\n",
    "a list of upgrades": b"GET /bad HTTP/1.1\r\n" + H + b"Upgrade: TLS/1.0, h2c\r\n\r\n",
    "header name that libcurl reads": b"GET /bad HTTP/1.1\r\n" + H + b"@x: @/etc/passwd\r\n\r\n",
    "semicolon in a name": b"GET /bad HTTP/1.1\r\n" + H + b"X-G;: a\r\n\r\n",
}


@pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_one_plain_request_is_refused_and_nothing_follows(egress_box, server, raw):
    before = len(server.requests)
    answer = egress_box.request("u.test", raw + b"GET /smuggled HTTP/1.1\r\n" + H + b"\r\n")
    assert re.match(rb"HTTP/1\.1 (400|505) ", answer), answer
    assert len(server.requests) == before


def test_b15_egress_killed_in_a_request_leaves_an_error_and_then_serves(egress_box, server):
    held = threading.Event()
    server.routes["/held"] = lambda _s, _sock, _r: held.wait(harness.patient(30)) and None
    daemon = egress_box.daemon
    with egress_box.connect_tls("u.test") as sock:
        sock.sendall(b"GET /held HTTP/1.1\r\n" + H + b"\r\n")
        harness.wait_for(lambda: server.seen("/held"), 10, "the request")
        os.kill(daemon.pid_of("paddock-egress"), 9)
        with pytest.raises((ssl.SSLError, OSError)):
            u.read_answer(sock)
    held.set()
    with egress_box.connect_tls("u.test") as sock:
        sock.sendall(b"GET /again HTTP/1.1\r\n" + H + b"\r\n")
        assert u.read_answer(sock)[0] == 200
    with egress_box.connect_tls("evil.test") as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n")
        assert u.read_answer(sock)[0] == 403


def test_a_request_under_way_when_the_daemon_ends_has_its_line(egress_box, server):
    held = threading.Event()
    server.routes["/at-the-end"] = lambda _s, _sock, _r: held.wait(harness.patient(30)) and None
    daemon = egress_box.daemon

    def lines():
        return [line for line in (daemon.state / "audit.jsonl").read_text().splitlines() if "/at-the-end" in line]
    with egress_box.connect_tls("u.test") as sock:
        sock.sendall(b"GET /at-the-end HTTP/1.1\r\n" + H + b"\r\n")
        harness.wait_for(lambda: server.seen("/at-the-end"), 10, "the request")
        daemon.stop()
        harness.wait_for(lambda: len(lines()) == 1, 10, "its line")
    held.set()
    daemon.start()
    harness.wait_for(lambda: daemon.get("/healthz").json["policy"], 20, "the policy")
    assert len(lines()) == 1


def ask(box, host, path="/"):
    with box.connect_tls(host) as sock:
        sock.sendall(b"GET %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (path.encode(), host.encode()))
        return u.read_answer(sock)


def test_two_sandboxes_share_no_connection_to_an_upstream(egress_box, server, server2):
    """What one makes an upstream think of its connection is nothing to the other: not even to a later one
    of its name."""
    for host, count in (("u.test", lambda: server.connections), ("two.test", lambda: len(server2.links))):
        assert ask(egress_box, host)[0] == 200
        before = count()
        assert ask(egress_box, host)[0] == 200
        assert count() == before
        for number in range(2):
            other = egress_box.daemon.sandbox("links-neighbour")
            other.exec("/bin/true")
            assert ask(other, host)[0] == 200
            other.remove()
            assert count() == before + number + 1


def test_a_connection_that_nobody_waits_for_is_not_made(egress_box, mute):
    """Who asks and leaves, again and again, leaves nothing behind that is being made."""
    mute.settimeout(harness.patient(10))
    with egress_box.connect_tls("mute.test") as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: mute.test\r\n\r\n")
        made, _ = mute.accept()
    with made:
        made.settimeout(harness.patient(10))  # far below LIMIT_EGRESS_CONNECT_MS
        while made.recv(4096):
            pass


def spend(sock, more=""):
    sock.sendall(f"GET /spend HTTP/1.1\r\nHost: other.test\r\n{more}\r\n".encode())


def test_a_budget_of_tokens_is_not_evaded_by_what_tells_nothing(egress_box, server):
    """A stream that was not asked for its usage, or that is left before it is told; a WebSocket."""
    chunk = b'data: {"choices":[{"delta":{"content":"word"}}],"usage":null}\n\n'

    def stream(_server, sock, _request):
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" %
                     (4 * len(chunk)) + 3 * chunk)
        sock.recv(1)  # the client leaves
    server.routes["/spend"] = stream
    box = egress_box.daemon.sandbox("spender")
    assert box.daemon.call("PUT", box.path, {"budget": {"output_tokens": 6}}).status == 201
    box.exec("/bin/true")
    with box.connect_tls("other.test") as sock:
        spend(sock, "Connection: Upgrade\r\nUpgrade: websocket\r\n")
        status, _, body = u.read_answer(sock)
        assert status == 403 and b"cannot be counted" in body, body
    for number, wanted in enumerate((200, 200, 402)):
        with box.connect_tls("other.test") as sock:
            spend(sock)
            assert u.read_until(sock, b"\r\n\r\n").startswith(b"HTTP/1.1 %d " % wanted)
            if wanted == 200:
                u.read_exactly(sock, 3 * len(chunk))
        harness.wait_for(lambda: len(box.daemon.get(f"{box.path}/egress").json) == number + 2, 10, "its line")
    box.remove()


def test_more_compressed_answers_than_are_read_are_not_asked_for(egress_box, server):
    held = threading.Event()

    def route(_server, sock, _request):
        held.wait(harness.patient(60))
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        return "keep"
    server.routes["/spend"] = route
    before = len(server.seen("/spend"))

    def codings():
        return [request.get("accept-encoding") for request in server.seen("/spend")[before:]]
    with contextlib.ExitStack() as stack:
        context = ssl.create_default_context(cafile=egress_box.ca())
        for sock in egress_box.connect_many(33, "other.test"):  # LIMIT_USAGE_DECODERS, and one
            sock = stack.enter_context(context.wrap_socket(sock, server_hostname="other.test"))
            spend(sock, "Accept-Encoding: gzip\r\n")
        harness.wait_for(lambda: len(codings()) == 33, 20, "the requests")
        assert codings().count("gzip") == 32 and codings().count(None) == 1
        held.set()
        assert u.read_answer(sock)[0] == 200
    with egress_box.connect_tls("other.test") as sock:
        spend(sock, "Accept-Encoding: gzip\r\n")
        assert u.read_answer(sock)[0] == 200 and codings()[-1] == "gzip"


def stalled_answer(_server, sock, _request):
    sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n")
    sock.sendall(bytes(1 << 22))  # nobody reads it; ends when the sandbox hangs up


def stalled_body(server, _sock, _request):
    server.released.wait(harness.patient(120))


stalled_body.reads_body = True  # by itself, that is never
CONNECTIONS = 256  # LIMIT_EGRESS_CONNECTIONS
STALLED = {  # what is sent, and the MiB that egress may grow by
    "answers that are not read": (b"GET /stalled-answer HTTP/1.1\r\n" + H + b"\r\n", 64),
    "bodies that are not taken": (b"POST /stalled-body HTTP/1.1\r\n" + H +
                                  b"Content-Length: 1073741824\r\n\r\n" + bytes(1 << 20), 56),
    "heads without an end": (b"GET /x HTTP/1.1\r\n" + H + b"".join(
        b"X-%d: %s\r\n" % (i, b"a" * 4000) for i in range(15)), 26),
}


@pytest.fixture
def small_socket_buffers(namespace):
    """What egress cannot send waits in egress, not in the kernel's megabytes."""
    def set_to(text):
        with open("/proc/sys/net/ipv4/tcp_wmem", "r+", encoding="ascii") as file:
            before = file.read()
            file.seek(0)
            file.write(text)
        return before
    before = harness.in_namespace(namespace.fd, lambda: set_to("4096 16384 65536"))
    yield
    harness.in_namespace(namespace.fd, lambda: set_to(before))


@pytest.mark.parametrize("raw, mib", STALLED.values(), ids=STALLED.keys())
def test_d7_stalled_connections_hold_little_of_egress(egress_box, server, small_socket_buffers, raw, mib):
    """As many as a sandbox may have: what they make egress grow by is bounded, and a neighbour is served."""
    server.routes.update({"/stalled-answer": stalled_answer, "/stalled-body": stalled_body})
    server.released = threading.Event()
    neighbour = egress_box.daemon.sandbox("egress-neighbour")
    neighbour.exec("/bin/true")
    egress = fresh_egress(neighbour)
    before = memory_kib(egress)
    with contextlib.ExitStack() as stack:
        stack.callback(server.released.set)
        socks = [stack.enter_context(sock) for sock in egress_box.connect_many(CONNECTIONS, "u.test")]
        context = ssl.create_default_context(cafile=egress_box.ca())
        socks = [stack.enter_context(context.wrap_socket(sock, server_hostname="u.test"))
                 for sock in socks]
        fill(socks, raw)
        sizes = []

        def is_steady():
            sizes.append(memory_kib(egress))
            return len(sizes) > 20 and sizes[-1] == sizes[-20]
        harness.wait_for(is_steady, 60, "no more growth", interval=0.1)
        grown = max(sizes) - before
        with neighbour.connect_tls("u.test") as sock:
            sock.sendall(b"GET /served HTTP/1.1\r\n" + H + b"\r\n")
            assert u.read_answer(sock)[0] == 200
    neighbour.remove()
    print("GROWN", grown)
    assert grown < mib * 1024 * sanitizer_factor()


def send_buffers(box):
    """Of egress's sockets in the sandbox's network: ss(8), skmem."""
    lines = harness.run("nsenter", "-t", str(box.init_pid()), "-n", "ss", "-tnmH", "sport", "=", ":443").stdout
    return [int(size) for size in re.findall(rb",tb(\d+),", lines)]


def test_d7_what_the_kernel_holds_of_stalled_answers_is_bounded(egress_box, server):
    """Eight sockets of a sandbox may grow, to 2 MiB; the others stay at twice 128 KiB."""
    server.routes["/stalled-answer"] = stalled_answer
    context = ssl.create_default_context(cafile=egress_box.ca())
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(sock) for sock in egress_box.connect_many(20, "u.test")]
        socks = [stack.enter_context(context.wrap_socket(sock, server_hostname="u.test")) for sock in socks]
        for sock in socks:
            sock.sendall(b"GET /stalled-answer HTTP/1.1\r\n" + H + b"\r\n")

        def large():
            sizes = send_buffers(egress_box)
            assert len(sizes) == 20 and max(sizes) <= 2 << 20, sizes
            return [size for size in sizes if size > 2 * 128 << 10]
        harness.wait_for(lambda: len(large()) >= 8, 20, "eight that grew")
        assert all(b" 200 " in u.read_until(sock, b"\r\n\r\n") for sock in socks)
        assert len(large()) == 8


def fresh_egress(box):
    """The pid of an egress that has served one request: an old one has memory to use again."""
    os.kill(box.daemon.pid_of("paddock-egress"), 9)

    def is_served():  # 503: its policy is not there yet
        with box.connect_tls("u.test") as sock:
            sock.sendall(b"GET /fresh HTTP/1.1\r\n" + H + b"\r\n")
            return u.read_answer(sock)[0] == 200
    harness.wait_for(is_served, 20, "the new egress")
    return box.daemon.pid_of("paddock-egress")


def sanitizer_factor():
    """ASan keeps what was freed, and a zone around each allocation."""
    return 5 if b"__asan_init" in (harness.BIN / "paddock-egress").read_bytes() else 1


def fill(socks, raw):
    """Sends to all until none takes any more for a second."""
    left = {sock: memoryview(raw) for sock in socks}
    for sock in socks:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        sock.setblocking(False)
    moved = time.monotonic()
    while left and time.monotonic() - moved < harness.patient(1):
        for sock in list(left):
            try:
                left[sock] = left[sock][sock.send(left[sock][:16384]):]
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                continue
            except OSError:  # it was answered and closed
                left[sock] = b""
            moved = time.monotonic()
            if not left[sock]:
                del left[sock]


def memory_kib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{pid}/status").read()).group(1))
