#!/usr/bin/env python3
"""The built paddock-egress, started and driven as the supervisor does it, by the same messages and
with the same seccomp filter, in a network namespace where every address is local.

usage: test_egress_binary.py PADDOCK_EGRESS MESSAGES_DEF [PRINTER_OF_THE_FILTER]
"""
import ctypes
import json
import os
import re
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile

EGRESS, MESSAGES = sys.argv[1], sys.argv[2]
PRINTER = sys.argv[3] if len(sys.argv) > 3 else None
WAIT_S = 20
NOBODY = 65534
TOKEN = "t0ken-that-must-not-leave"
CLONE_NEWNET, CLONE_NEWUSER = 0x40000000, 0x10000000
HEADER = struct.Struct("=HHIQ")
IS_ROOT = os.geteuid() == 0

with open(MESSAGES) as lines:
    text = lines.read()
TYPES = {name: i + 1 for i, name in enumerate(re.findall(r"^IPC_MESSAGE\((\w+),", text, re.M))}
VERSION = int(re.search(r"define IPC_VERSION (\d+)", text)[1])


def enter_namespace():
    """A network without a wire, set up as a sandbox's is (docs/architecture.md)."""
    uid, gid = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    flags = CLONE_NEWNET if IS_ROOT else CLONE_NEWNET | CLONE_NEWUSER
    if libc.unshare(flags) != 0:
        print("skipped: no network namespace can be made here:", os.strerror(ctypes.get_errno()))
        sys.exit(77)
    if not IS_ROOT:
        for name, line in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            with open(f"/proc/self/{name}", "w") as out:
                out.write(line)
    commands = ["link set lo up", "addr add 100.64.0.2/32 dev lo",
                "route add local 0.0.0.0/0 dev lo src 100.64.0.2"]
    if os.path.exists("/proc/net/if_inet6"):
        commands += ["-6 addr add fd00::2/128 dev lo nodad", "-6 route add local ::/0 dev lo src fd00::2"]
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True)


def memfd(data=b"", seal=False):
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    if seal:
        import fcntl
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, 0xf)
    return fd


def contents(fd):
    return os.pread(fd, 1 << 20, 0)


def spawn(binary, argv, fds):
    """As src/supervisor/spawn.c: fds as 3, 4, ..., an id without privileges."""
    pid = os.fork()
    if pid:
        return pid
    try:
        high = [os.dup2(fd, 200 + i, inheritable=False) for i, fd in enumerate(fds)]
        for i, fd in enumerate(high):
            os.dup2(fd, 3 + i, inheritable=True)
        os.closerange(3 + len(fds), 200)
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        if IS_ROOT:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        # leaks cannot be looked for in a process that is not dumpable
        os.execve(binary, argv, {"ASAN_OPTIONS": "detect_leaks=0"})
    finally:
        os._exit(127)


def wait(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Supervisor:
    def __init__(self, binary, filter_fd, files):
        self.binary, self.filter_fd, self.files = binary, filter_fd, files

    def make_ca(self):
        out = memfd()
        pid = spawn(self.binary, ["paddock-egress", "--make-ca"], [*self.files, out, memfd(), self.filter_fd])
        return wait(pid), out

    def start(self):
        status, intermediate = self.make_ca()
        assert status == 0, status
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.setblocking(False)
        self.sock.settimeout(WAIT_S)
        self.pid = spawn(self.binary, ["paddock-egress", "--log=text"], [theirs.fileno(), self.filter_fd])
        theirs.close()
        self.audit = memfd()
        variables = memfd(json.dumps({"ACCOUNT": "acct"}).encode(), seal=True)
        self.send("EGRESS_START", struct.pack("=512sq", b"", 60000), [intermediate, self.audit, variables])

    def send(self, name, body, fds=(), ident=0):
        header = HEADER.pack(VERSION, TYPES[name], len(body), ident)
        socket.send_fds(self.sock, [header + body], list(fds))

    def receive(self, name):
        data, _, _, _ = socket.recv_fds(self.sock, 4096, 8)
        version, kind, size, ident = HEADER.unpack_from(data)
        assert (version, kind) == (VERSION, TYPES[name]), (version, kind)
        return ident, data[HEADER.size:]

    def attach(self):
        fds = [listener(kind, port) for kind, port in
               ((socket.SOCK_STREAM, 80), (socket.SOCK_STREAM, 443), (socket.SOCK_STREAM, 53),
                (socket.SOCK_DGRAM, 53))]
        self.send("SANDBOX_ATTACH", struct.pack("=64s40s64s256s", b"agent-1", b"boot", b"", b""), fds)
        for fd in fds:
            os.close(fd)

    def load(self, policy):
        self.send("POLICY_FILE", struct.pack("=256s", b"p.json"), [memfd(policy.encode(), seal=True)])
        self.send("POLICY_LOAD", struct.pack("=256s", b"p.json"), ident=5)
        ident, body = self.receive("SECRET_GET")
        assert body.rstrip(b"\0") == b"TOKEN", body
        self.send("SECRET", struct.pack("=I", 0), [memfd(TOKEN.encode() + b"\n", seal=True)], ident)
        assert self.receive("POLICY_STATE")[1].startswith(b"p\0")
        assert self.receive("POLICY_PORTS")[1] == bytes(20)
        ident, body = self.receive("POLICY_LOADED")
        ok, inactive, reason = struct.unpack("=iI2048s", body)
        assert (ident, ok, inactive) == (5, 1, 0), reason

    def end(self):
        self.sock.close()
        return wait(self.pid)


def listener(kind, port):
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    sock = socket.socket(family, kind)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.bind(("", port))
    if kind == socket.SOCK_STREAM:
        sock.listen(512)
    sock.setblocking(False)
    return sock.detach()


def query(name, kind):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)


def ask_udp(server, name, kind):
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.settimeout(WAIT_S)
        sock.connect((server, 53))  # an answer from another address would not arrive
        sock.send(query(name, kind))
        return sock.recv(4096)


def receive_exactly(sock, count):
    data = b""
    while len(data) < count:
        chunk = sock.recv(count - len(data))
        assert chunk, "the connection ended early"
        data += chunk
    return data


def get(ca, sni, host, address):
    context = ssl.create_default_context(cadata=ca)
    context.check_hostname = sni is not None
    with socket.create_connection((address, 443), timeout=WAIT_S) as plain:
        with context.wrap_socket(plain, server_hostname=sni) as tls:
            tls.sendall(f"GET /x HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            answer = b""
            while chunk := tls.recv(65536):
                answer += chunk
            return answer.decode()


def servers():
    return ["127.0.0.1", "8.8.8.8", "100.64.0.2"] + (
        ["::1", "2001:db8::53"] if socket.has_dualstack_ipv6() else [])


# ------------------------------------------------------------------------------ the promises

def test_the_process_is_confined(supervisor):
    with open(f"/proc/{supervisor.pid}/status") as lines:
        status = dict(line.split(":\t", 1) for line in lines.read().splitlines() if ":\t" in line)
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2", status
    if IS_ROOT:
        assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
        # owned by root though it runs as another: what is not dumpable is nobody's to look at
        assert os.stat(f"/proc/{supervisor.pid}/environ").st_uid == 0
    for name in ("environ", "cmdline"):
        with open(f"/proc/{supervisor.pid}/{name}", "rb") as data:
            assert TOKEN.encode() not in data.read()


def test_dns_is_answered_from_the_address_asked(supervisor):
    first = set()
    for server in servers():
        answer = ask_udp(server, "GitHub.com", 1)
        assert answer[-4] == 198 and answer[-3] in (18, 19), (server, answer)
        first.add(answer[-4:])
        assert ask_udp(server, "github.com", 28)[-16] == 0xfd
        for kind in (16, 255):
            assert ask_udp(server, "secret.attacker.test", kind)[6:8] == b"\0\0"
        with socket.create_connection((server, 53), timeout=WAIT_S) as sock:
            one = query("github.com", 1)
            framed = struct.pack(">H", len(one)) + one
            sock.sendall(framed + framed + framed[:9])  # two, and a part of a third
            for _ in range(2):
                size, = struct.unpack(">H", receive_exactly(sock, 2))
                first.add(receive_exactly(sock, size)[-4:])
            sock.sendall(framed[9:])
            receive_exactly(sock, 2)
    assert len(first) == 1, first


def test_too_many_dns_connections_wait_for_their_turn(supervisor):
    one = query("github.com", 1)
    framed = struct.pack(">H", len(one)) + one
    held = [socket.create_connection(("8.8.8.8", 53), timeout=WAIT_S) for _ in range(40)]
    for sock in held:
        sock.sendall(framed)
    receive_exactly(held[0], 2)
    assert ask_udp("8.8.8.8", "github.com", 1)
    for sock in held[:-1]:
        sock.close()
    receive_exactly(held[-1], 2)
    held[-1].close()


def test_requests_are_judged(supervisor, ca):
    for address in ("198.18.1.2", "2001:db8::1") if socket.has_dualstack_ipv6() else ("198.18.1.2",):
        answer = get(ca, "denied.example", "denied.example", address)
        assert answer.startswith("HTTP/1.1 403 "), answer
        assert answer.endswith("denied.example is not reachable from this sandbox\n"), answer
    with socket.create_connection(("198.18.1.2", 80), timeout=WAIT_S) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
        answer = b""
        while chunk := sock.recv(65536):
            answer += chunk
    assert answer.startswith(b"HTTP/1.1 403 ") and b"only over HTTPS" in answer, answer
    try:
        get(ca, None, "a.example", "198.18.1.2")
        raise AssertionError("no SNI was accepted")
    except ssl.SSLError:
        pass


def test_an_allowed_request_fails_closed_without_an_upstream(supervisor, ca):
    """The name resolves to nothing outside; egress's resolver and its thread run confined."""
    answer = get(ca, "a.example", "a.example", "198.18.1.2")
    assert re.match(r"HTTP/1.1 (403|50[234]) ", answer), answer
    with open(f"/proc/{supervisor.pid}/stat") as stat:
        assert stat.read().split(") ")[1][0] in "SR"


def test_the_audit_has_a_line_for_each(supervisor):
    lines = [json.loads(line) for line in contents(supervisor.audit).splitlines()]
    assert {line["sandbox"] for line in lines} == {"agent-1"}
    assert "denied" in {line["decision"] for line in lines}, lines
    assert TOKEN.encode() not in contents(supervisor.audit)


def test_make_ca_refuses_what_does_not_hold(supervisor):
    broken = Supervisor(supervisor.binary, supervisor.filter_fd, [memfd(b"rubbish"), memfd(b"rubbish")])
    status, out = broken.make_ca()
    assert status == 1 and contents(out) == b""


def test_make_ca_does_nothing_without_its_filter(supervisor):
    unconfined = Supervisor(supervisor.binary, memfd(b"no filter"), [memfd(), memfd()])
    status, out = unconfined.make_ca()
    assert status == 1 and contents(out) == b"" and contents(unconfined.files[0]) == b""


def make_filter():
    if PRINTER:
        return subprocess.run([PRINTER], check=True, stdout=subprocess.PIPE).stdout
    return struct.pack("=HBBI", 0x06, 0, 0, 0x7fff0000)  # allows all


POLICY = """{"rules": [{"name": "a", "host": "a.example", "path": "/",
    "headers": {"set": {"authorization": "Bearer ${secret:TOKEN}"}}}]}"""


def main():
    enter_namespace()
    folder = tempfile.mkdtemp(prefix="paddock-egress-test-")
    try:
        os.chmod(folder, 0o755)
        binary = shutil.copy(EGRESS, folder)
        supervisor = Supervisor(binary, memfd(make_filter(), seal=True), [memfd(), memfd()])
        supervisor.start()
        supervisor.attach()
        supervisor.load(POLICY)
        ca = contents(supervisor.files[1]).decode()
        test_the_process_is_confined(supervisor)
        test_dns_is_answered_from_the_address_asked(supervisor)
        test_too_many_dns_connections_wait_for_their_turn(supervisor)
        test_requests_are_judged(supervisor, ca)
        test_an_allowed_request_fails_closed_without_an_upstream(supervisor, ca)
        test_the_audit_has_a_line_for_each(supervisor)
        test_make_ca_refuses_what_does_not_hold(supervisor)
        test_make_ca_does_nothing_without_its_filter(supervisor)
        assert supervisor.end() == 0
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
