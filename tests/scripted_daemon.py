"""A scripted daemon for the tests of the command line: it answers by a table and keeps what it was
asked. And the command line itself, run as users run it."""
import http.server
import json
import os
import pathlib
import socketserver
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("PADDOCK_BUILD", ROOT / "build")).resolve()
PADDOCK = BUILD / "src" / "main" / "paddock"


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class TcpServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True


class Daemon:
    """Answers by a table: (method, path) -> list of (status, body), the last one for ever. A body
    that is a list is sent in chunks; None in it breaks the connection off, an Event is
    waited for; a number of seconds passes.
    With a token it listens on loopback TCP and answers 401 to whoever has not got it."""

    def __init__(self, folder, token=None):
        self.answers, self.asked = {}, []
        self.socket = str(folder / "s.sock")
        daemon = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                daemon.asked.append((self.command, self.path, body, dict(self.headers)))
                script = daemon.answers.get((self.command, self.path), [(404, "Not found\n")])
                status, reply = script.pop(0) if len(script) > 1 else script[0]
                if token and self.headers.get("Authorization") != f"Bearer {token}":
                    status, reply = 401, "Unauthorized\n"
                self.send_response(status)
                self.send_header("X-Request-Id", "17")
                if isinstance(reply, list):
                    self.stream(reply)
                    return
                reply = json.dumps(reply) if isinstance(reply, dict) else reply
                reply = reply.encode() if isinstance(reply, str) else reply
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def stream(self, chunks):
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for chunk in chunks:
                    if chunk is None:
                        self.close_connection = True
                        return
                    if isinstance(chunk, (int, float)):
                        time.sleep(chunk)  # what the client reckons with
                        continue
                    if isinstance(chunk, threading.Event):
                        chunk.wait(20)
                        continue
                    chunk = chunk.encode() if isinstance(chunk, str) else chunk
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

            def log_message(self, *arguments):
                pass

            def address_string(self):
                return "client"

        self.server = TcpServer(("127.0.0.1", 0), Handler) if token else Server(self.socket, Handler)
        self.url = (f"http://127.0.0.1:{self.server.server_address[1]}" if token
                    else f"unix:{self.socket}")
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def on(self, method, path, *script):
        self.answers[(method, path)] = list(script)

    def run(self, *arguments, **options):
        return paddock(*arguments, url=self.url, **options)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def paddock(*arguments, url=None, environment=None, **options):
    env = {"PATH": os.environ["PATH"], **({"PADDOCK_URL": url} if url else {}),
           **(environment or {})}
    return subprocess.run([PADDOCK, *arguments], env=env, capture_output=True, timeout=60, **options)
