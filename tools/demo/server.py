"""A threading HTTPS/1.1 server with what both demo servers need: bodies, chunked answers, a record."""
import http.server
import json
import socket
import socketserver
import threading
import time

from tls import server_context


class Record:
    """Requests as JSON lines in a file, and in memory for whoever imports this."""

    def __init__(self, path):
        self.path = path
        self.lock = threading.Lock()

    def add(self, **fields):
        line = json.dumps({"time": time.time(), **fields}) + "\n"
        with self.lock, open(self.path, "a", encoding="utf-8") as file:
            file.write(line)

    def entries(self):
        try:
            with open(self.path, encoding="utf-8") as file:
                return [json.loads(line) for line in file]
        except FileNotFoundError:
            return []


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "paddock-demo"
    disable_nagle_algorithm = True

    def log_message(self, format, *args):  # noqa: A002 (the base class's name)
        pass

    def body_parts(self):
        """The request's body, part by part."""
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            while True:
                size = int(self.rfile.readline().split(b";")[0], 16)
                if size == 0:
                    while self.rfile.readline().strip():
                        pass
                    return
                yield self.rfile.read(size)
                self.rfile.readline()
        left = int(self.headers.get("content-length") or 0)
        while left:
            part = self.rfile.read(min(left, 1 << 16))
            if not part:
                return
            left -= len(part)
            yield part

    def body(self):
        return b"".join(self.body_parts())

    def answer(self, status, data=b"", content_type="application/json", headers=()):
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(data)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def begin_stream(self, status, content_type, headers=()):
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("transfer-encoding", "chunked")
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()

    def chunk(self, data):
        if data:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

    def end_stream(self):
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def cut(self):
        """Ends the connection in the middle: no end of the body, no close_notify."""
        self.close_connection = True
        self.wfile.flush()
        self.connection.unwrap = lambda: None
        socket.socket.shutdown(self.connection, socket.SHUT_RDWR)


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 512
    allow_reuse_address = True

    def __init__(self, port, leaf, handler):
        super().__init__(("127.0.0.1", port), handler)
        self.tls = server_context(leaf)

    def get_request(self):
        sock, address = super().get_request()
        sock.settimeout(600)
        return self.tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, request, client_address):
        pass  # a client that goes away is no news

    @property
    def port(self):
        return self.server_address[1]

    def start(self):
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05},
                         daemon=True).start()
        return self
