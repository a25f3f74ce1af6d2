"""The upstream server U of the tests: TLS with its own CA, every byte of an answer under control."""
import contextlib
import dataclasses
import socket
import ssl
import threading

import harness
from tls import make_certificates, server_context

HOSTS = ("u.test", "other.test", "only.test", "github.test", "secret.test", "get.test")


@dataclasses.dataclass
class Request:
    method: str
    target: str
    version: str
    headers: list  # (name as sent, value)
    body: bytes = b""
    raw_head: bytes = b""

    def get(self, name):
        values = [v for n, v in self.headers if n.lower() == name.lower()]
        return values[0] if len(values) == 1 else values or None


class Upstream:
    """Serves until closed. `routes[path]` is called with (server, sock, request) and writes the
    answer; returning "keep" keeps the connection. Unknown paths get 200 and the path as body."""

    def __init__(self, namespace, folder, name="u", hosts=HOSTS, address="127.0.0.1", port=0):
        self.ca, leaf = make_certificates(str(folder), hosts, name)
        self.context = server_context(leaf)
        self.context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF  # the loss of a close_notify is seen
        self.requests = []
        self.connections = 0
        self.routes = {}
        self.closing = False
        self.lock = threading.Lock()

        def listen():
            return socket.create_server((address, port), backlog=256)
        self.listener = harness.in_namespace(namespace.fd, listen)
        self.address, self.port = self.listener.getsockname()
        threading.Thread(target=self.accept, daemon=True).start()

    def rule(self, host, ca_name, **more):
        return {"name": f"rule-{host}", "host": host, "upstream": f"{self.address}:{self.port}",
                "upstream_ca": ca_name, **more}

    def close(self):
        self.closing = True
        self.listener.close()

    def accept(self):
        while not self.closing:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.connection, args=(sock,), daemon=True).start()

    def connection(self, plain):
        with contextlib.suppress(OSError, ssl.SSLError, ValueError):
            plain.settimeout(harness.patient(60))
            with self.context.wrap_socket(plain, server_side=True) as sock:
                with self.lock:
                    self.connections += 1
                while self.one(sock) == "keep":
                    pass

    def one(self, sock):
        head = read_until(sock, b"\r\n\r\n")
        if not head:
            return None
        lines = head.decode("latin-1").split("\r\n")
        method, target, version = lines[0].split(" ", 2)
        headers = [tuple(part.strip() for part in line.split(":", 1)) for line in lines[1:] if line]
        request = Request(method, target, version, headers, raw_head=head)
        route = self.routes.get(target.split("?")[0])
        if not (route and getattr(route, "reads_body", False)):
            request.body = read_body(sock, request)
        with self.lock:
            self.requests.append(request)
        return (route or default_route)(self, sock, request)

    def seen(self, target):
        with self.lock:
            return [request for request in self.requests if request.target == target]


def default_route(_server, sock, request):
    body = b"" if request.method == "HEAD" else request.target.encode()
    sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" %
                 (len(request.target), body))
    return "keep"


def read_until(sock, mark):
    data = b""
    while not data.endswith(mark):
        part = sock.recv(1)
        if not part:
            return b""
        data += part
    return data


def read_exactly(sock, count):
    data = bytearray()
    while len(data) < count:
        part = sock.recv(min(1 << 16, count - len(data)))
        if not part:
            raise OSError("the connection ended in the body")
        data += part
    return bytes(data)


def read_body(sock, request):
    if (request.get("transfer-encoding") or "").lower() == "chunked":
        return b"".join(read_chunks(sock))
    return read_exactly(sock, int(request.get("content-length") or 0))


def read_chunks(sock):
    while True:
        size = int(read_until(sock, b"\r\n").split(b";")[0], 16)
        if size == 0:
            while read_until(sock, b"\r\n") != b"\r\n":
                pass
            return
        yield read_exactly(sock, size)
        read_exactly(sock, 2)


def read_answer(sock, method="GET"):
    """One answer from inside the sandbox: (status, headers, body). Raises if it is cut short."""
    head = read_until(sock, b"\r\n\r\n")
    if not head:
        raise OSError("no answer")
    lines = head.decode("latin-1").split("\r\n")
    status = int(lines[0].split()[1])
    headers = {}
    for line in filter(None, lines[1:]):
        name, value = line.split(":", 1)
        headers.setdefault(name.lower(), value.strip())
    if method == "HEAD" or status in (204, 304) or status < 200:
        return status, headers, b""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return status, headers, b"".join(read_chunks(sock))
    if "content-length" in headers:
        return status, headers, read_exactly(sock, int(headers["content-length"]))
    return status, headers, read_to_close_notify(sock)


def read_to_close_notify(sock):
    """Everything up to a clean end of the TLS stream; an end without close_notify raises."""
    data = b""
    while part := sock.recv(1 << 16):
        data += part
    return data
