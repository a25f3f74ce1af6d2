"""An upstream that speaks HTTP/2 alone (python3-h2), every frame of an answer under control."""
import contextlib
import queue
import ssl
import threading

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings

import harness
import upstream


class Stream:
    """A request and the way to answer it. Calls wait for the flow control window where needed."""

    def __init__(self, connection, number, headers):
        self.connection = connection
        self.number = number
        self.headers = [(n.decode(), v.decode()) for n, v in headers]
        self.body = queue.Queue()  # bytes; None at the end
        self.trailers = None
        self.reset = None  # its error code

    def get(self, name):
        values = [v for n, v in self.headers if n == name]
        return values[0] if len(values) == 1 else values or None

    def read(self):
        parts = []
        while (part := self.body.get(timeout=harness.patient(30))) is not None:
            parts.append(part)
        return b"".join(parts)

    def send_headers(self, *headers, end=False):
        self.connection.do(lambda c: c.send_headers(self.number, headers, end_stream=end))

    def send(self, data, end=False):
        while data:
            part = self.connection.window(self.number, len(data))
            self.connection.do(lambda c, now=data[:part], last=end and part == len(data):
                               c.send_data(self.number, now, end_stream=last))
            data = data[part:]

    def end(self, *trailers):
        if trailers:
            self.connection.do(lambda c: c.send_headers(self.number, trailers, end_stream=True))
        else:
            self.connection.do(lambda c: c.end_stream(self.number))

    def rst(self, code):
        self.connection.do(lambda c: c.reset_stream(self.number, code))

    def answer(self, status, body=b"", *headers):
        self.send_headers((":status", str(status)), *headers, end=not body)
        if body:
            self.send(body, end=True)


class Connection:
    def __init__(self, server, sock):
        self.server = server
        self.sock = sock
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(
            client_side=False, header_encoding=None, validate_outbound_headers=False,
            normalize_outbound_headers=False))
        self.changed = threading.Condition(threading.RLock())
        self.streams = {}
        self.goaway = None  # the error code of the client's
        self.is_over = False

    def do(self, action):
        with self.changed:
            action(self.h2)
            self.flush()

    def send_raw(self, data):
        with self.changed:
            self.sock.sendall(data)

    def flush(self):
        data = self.h2.data_to_send()
        if data:
            self.sock.sendall(data)

    def window(self, number, wanted):
        """How much of `wanted` may go now, at least a byte: waits for that."""
        def there():
            return self.is_over or self.h2.local_flow_control_window(number) > 0
        with self.changed:
            if not self.changed.wait_for(there, harness.patient(30)) or self.is_over:
                raise OSError("no window came")
            return min(wanted, self.h2.local_flow_control_window(number),
                       self.h2.max_outbound_frame_size)

    def run(self):
        with self.changed:
            self.h2.initiate_connection()
            if self.server.settings:
                self.h2.update_settings(self.server.settings)
            self.flush()
        with contextlib.suppress(OSError, ssl.SSLError, h2.exceptions.ProtocolError):
            while data := self.sock.recv(1 << 16):
                with self.changed:
                    for event in self.h2.receive_data(data):
                        self.on_event(event)
                    self.flush()
                    self.changed.notify_all()
        with self.changed:
            self.is_over = True
            self.changed.notify_all()
            for stream in self.streams.values():
                stream.body.put(None)

    def on_event(self, event):
        if isinstance(event, h2.events.RequestReceived):
            stream = self.streams[event.stream_id] = Stream(self, event.stream_id, event.headers)
            self.server.take(stream)
        elif isinstance(event, h2.events.DataReceived):
            self.streams[event.stream_id].body.put(event.data)
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.ConnectionTerminated):
            self.goaway = event.error_code
        elif isinstance(event, h2.events.TrailersReceived):
            self.streams[event.stream_id].trailers = event.headers
        elif isinstance(event, h2.events.StreamEnded):
            self.streams[event.stream_id].body.put(None)
        elif isinstance(event, h2.events.StreamReset):
            self.streams[event.stream_id].reset = event.error_code
            self.streams[event.stream_id].body.put(None)


class H2Upstream(upstream.Upstream):
    """`routes[path]` is called in a thread of its own with a Stream. Unknown paths get 200 and the
    path as body."""

    def __init__(self, namespace, folder, name="h2", hosts=("h2.test",), settings=None):
        self.settings = settings
        self.links = []  # a Connection each
        super().__init__(namespace, folder, name, hosts)
        self.context.set_alpn_protocols(["h2"])

    def connection(self, plain):
        with contextlib.suppress(OSError, ssl.SSLError):
            with self.context.wrap_socket(plain, server_side=True) as sock:
                assert sock.selected_alpn_protocol() == "h2"
                connection = Connection(self, sock)
                self.links.append(connection)
                connection.run()

    def take(self, stream):
        self.requests.append(stream)
        route = self.routes.get(stream.get(":path").split("?")[0], default_route)

        def answer():
            with contextlib.suppress(OSError, h2.exceptions.ProtocolError):
                route(stream)
        threading.Thread(target=answer, daemon=True).start()

    def seen(self, path):
        return [stream for stream in self.requests if stream.get(":path") == path]


def default_route(stream):
    stream.answer(200, stream.get(":path").encode())
