"""A WebSocket client of the daemon: frames as they are on the wire, so that wrong ones can be sent too."""
import base64
import hashlib
import json
import os
import socket
import struct
import urllib.parse

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Refused(Exception):
    """The handshake was answered otherwise."""

    def __init__(self, status, head, body):
        super().__init__(status, body)
        self.status, self.head, self.body = status, head, body


class Client:
    def __init__(self, path, target, headers=None, timeout=15, **changed):
        """`changed`: headers of the handshake with "_" for "-"; None: without it."""
        key = base64.b64encode(os.urandom(16)).decode()
        wanted = {"Host": "localhost", "Upgrade": "websocket", "Connection": "Upgrade",
                  "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key, **(headers or {}),
                  **{name.replace("_", "-"): value for name, value in changed.items()}}
        if isinstance(path, tuple):
            self.sock = socket.create_connection(path, timeout)
        else:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(timeout)
            self.sock.connect(str(path))
        lines = "".join(f"{name}: {value}\r\n" for name, value in wanted.items() if value is not None)
        self.sock.sendall(f"GET {target} HTTP/1.1\r\n{lines}\r\n".encode())
        self.bytes = b""
        while b"\r\n\r\n" not in self.bytes:
            self.more()
        head, _, self.bytes = self.bytes.partition(b"\r\n\r\n")
        status = int(head.split()[1])
        if status != 101:
            self.sock.shutdown(socket.SHUT_WR)
            while self.more(may_end=True):
                pass
            self.sock.close()
            raise Refused(status, head.decode(), self.bytes.decode())
        accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest())
        assert b"Sec-WebSocket-Accept: " + accept in head

    def more(self, may_end=False):
        data = self.sock.recv(65536)
        if not data and not may_end:
            raise EOFError("the connection broke off")
        self.bytes += data
        return data

    def take(self, count):
        while len(self.bytes) < count:
            self.more()
        data, self.bytes = self.bytes[:count], self.bytes[count:]
        return data

    def frame(self):
        """The next one: opcode and payload."""
        first, length = self.take(2)
        assert first & 0xf0 == 0x80 and length < 128  # whole, without reserved bits, not masked
        if length >= 126:
            length = int.from_bytes(self.take(2 if length == 126 else 8), "big")
        return first & 15, self.take(length)

    def send(self, data, opcode=BINARY, first=0x80):
        mask = os.urandom(4)
        size = (bytes([128 | len(data)]) if len(data) < 126 else
                b"\xfe" + struct.pack(">H", len(data)) if len(data) < 65536 else b"\xff" + struct.pack(">Q", len(data)))
        pad = (mask * (len(data) // 4 + 1))[:len(data)]
        masked = (int.from_bytes(data, "big") ^ int.from_bytes(pad, "big")).to_bytes(len(data), "big")
        self.sock.sendall(bytes([first | opcode]) + size + mask + masked)

    def control(self, **message):
        self.send(json.dumps(message).encode(), TEXT)

    def until(self, mark):
        """What the program printed, up to the mark."""
        data = b""
        while mark not in data:
            opcode, payload = self.frame()
            assert opcode in (BINARY, PING), (opcode, payload, data)
            data += payload if opcode == BINARY else b""
        return data

    def rest(self):
        """What is still printed, the exit message (None: there was none), the code of the close."""
        data, end = b"", None
        while True:
            opcode, payload = self.frame()
            if opcode == BINARY:
                data += payload
            elif opcode == TEXT:
                end = json.loads(payload)["exit"]
            elif opcode == CLOSE:
                return data, end, int.from_bytes(payload[:2], "big")

    def close(self):
        self.sock.close()


def terminal(path, name, *command, headers=None, **query):
    pairs = [("command", word) for word in command] + list(query.items())
    return Client(path, f"/sandboxes/{name}/terminal?{urllib.parse.urlencode(pairs)}", headers)
