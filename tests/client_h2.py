"""A client that speaks HTTP/2 (python3-h2) from inside a sandbox."""
import h2.config
import h2.connection
import h2.events

import harness


class Client:
    """One connection. Answers are read event by event; DATA is acknowledged when `takes` is True."""

    def __init__(self, box, host, validate=True):
        self.host = host
        self.sock = box.connect_tls(host, alpn=("h2",))
        assert self.sock.selected_alpn_protocol() == "h2"
        self.sock.settimeout(harness.patient(30))
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(
            header_encoding="latin-1", validate_outbound_headers=validate,
            normalize_outbound_headers=validate))
        self.h2.initiate_connection()
        self.answers = {}
        self.takes = True
        self.is_over = False
        self.flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def flush(self):
        data = self.h2.data_to_send()
        if data:
            self.sock.sendall(data)

    def head(self, path="/", method="GET", *more, end=True, authority=None):
        number = self.h2.get_next_available_stream_id()
        self.h2.send_headers(number, [
            (":method", method), (":authority", authority or self.host), (":scheme", "https"),
            (":path", path), *more], end_stream=end)
        self.answers[number] = {"status": None, "headers": [], "body": b"", "trailers": None,
                                "interim": [], "ended": False, "reset": None}
        self.flush()
        return number

    def body(self, number, data, end=True):
        while data:
            while not (room := self.h2.local_flow_control_window(number)):
                self.step()
            part = min(room, len(data), self.h2.max_outbound_frame_size)
            self.h2.send_data(number, data[:part], end_stream=end and part == len(data))
            data = data[part:]
            self.flush()

    def step(self):
        data = self.sock.recv(1 << 16)
        if not data:
            self.is_over = True
            return
        for event in self.h2.receive_data(data):
            self.on_event(event)
        self.flush()

    def on_event(self, event):
        answer = self.answers.get(getattr(event, "stream_id", None))
        if answer is None:
            return
        if isinstance(event, h2.events.ResponseReceived):
            answer["status"] = int(dict(event.headers)[":status"])
            answer["headers"] = event.headers
        elif isinstance(event, h2.events.InformationalResponseReceived):
            answer["interim"].append(int(dict(event.headers)[":status"]))
        elif isinstance(event, h2.events.DataReceived):
            answer["body"] += event.data
            if self.takes and event.flow_controlled_length:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.TrailersReceived):
            answer["trailers"] = event.headers
        elif isinstance(event, h2.events.StreamEnded):
            answer["ended"] = True
        elif isinstance(event, h2.events.StreamReset):
            answer["reset"] = event.error_code

    def wait(self, number):
        answer = self.answers[number]
        while not (answer["ended"] or answer["reset"] is not None or self.is_over):
            self.step()
        return answer

    def ask(self, path="/", method="GET", *more, data=b"", authority=None):
        number = self.head(path, method, *more, end=not data, authority=authority)
        if data:
            self.body(number, data)
        return self.wait(number)
