"""The world as a daemon under test sees it: one veth, at whose far end every packet is captured. Every
address leads there, answers by the programs of the test alone, and no packet goes any further."""
import contextlib
import dataclasses
import socket
import struct
import threading

import harness

ETH_P_ALL, ETH_P_IP, ETH_P_ARP, ETH_P_IPV6 = 3, 0x0800, 0x0806, 0x86DD
PACKET_OUTGOING, SOL_PACKET, PACKET_STATISTICS = 4, 263, 6
NEIGHBOUR_TYPES = (133, 134, 135, 136, 143)  # ICMPv6: discovery, and the groups it listens to
GATEWAY, NEAR = "192.0.2.1", "192.0.2.2"
CONTROL = "203.0.113.9"


@dataclasses.dataclass(frozen=True)
class Packet:
    protocol: str  # tcp, udp, arp, neighbour, or a number
    target: str = ""
    port: int = 0
    payload: bytes = b""


def read_packet(frame):
    kind, data = struct.unpack("!H", frame[12:14])[0], frame[14:]
    if kind == ETH_P_ARP:
        return Packet("arp")
    if kind == ETH_P_IP:
        number, target, rest = data[9], socket.inet_ntoa(data[16:20]), data[(data[0] & 15) * 4:]
    elif kind == ETH_P_IPV6:
        number, target, rest = data[6], socket.inet_ntop(socket.AF_INET6, data[24:40]), data[40:]
        if number == 0:  # hop by hop options, as of a report of groups
            number, rest = rest[0], rest[(rest[1] + 1) * 8:]
        if number == 58 and rest[0] in NEIGHBOUR_TYPES:
            return Packet("neighbour", target)
    else:
        return Packet(f"ethernet {kind:#x}")
    if number == 6:
        return Packet("tcp", target, int.from_bytes(rest[2:4], "big"))
    if number == 17:
        return Packet("udp", target, int.from_bytes(rest[2:4], "big"), rest[8:])
    return Packet(f"ip {number}", target)


def question_of(query):
    """Of a DNS query: the name, the type, where the question ends."""
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode("latin-1").lower())
        at += 1 + query[at]
    return ".".join(labels), int.from_bytes(query[at + 1:at + 3], "big"), at + 5


class Resolver:
    """`names[name]` is a list of addresses, or a list of such lists, one for each lookup. Questions for
    names below `silent` are never answered; `unanswered` has those names in their order."""

    def __init__(self, namespace):
        self.names = {}
        self.silent = None
        self.unanswered = []
        self.sock = harness.in_namespace(namespace.fd, lambda: bound(GATEWAY, 53))
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                query, peer = self.sock.recvfrom(4096)
                name = question_of(query)[0]
                if self.silent and name.endswith("." + self.silent):
                    self.unanswered += [name] if name not in self.unanswered else []
                else:
                    self.sock.sendto(self.answer(query), peer)

    def answer(self, query):
        name, kind, end = question_of(query)
        addresses = self.names.get(name, [])
        if addresses and isinstance(addresses[0], list):  # A is asked once a lookup
            addresses = addresses.pop(0) if kind == 1 and len(addresses) > 1 else addresses[0]
        found = [socket.inet_pton(socket.AF_INET6 if kind == 28 else socket.AF_INET, address)
                 for address in addresses if (":" in address) == (kind == 28) and kind in (1, 28)]
        flags = 0x8180 if name in self.names else 0x8183
        return (query[:2] + struct.pack("!HHHHH", flags, 1, len(found), 0, 0) + query[12:end] + b"".join(
            b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 0, len(data)) + data for data in found))


def bound(address, port):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((address, port))
    return sock


class Uplink:
    """`inside` is for the daemon, `outside` for the test's servers."""

    def __init__(self):
        self.inside, self.outside = harness.Namespace(), harness.Namespace()
        self.packets = []
        self.is_over = False
        self.changed = threading.Condition()

        def near(*command):
            harness.run(*self.inside.argv("ip", *command))

        def far(*command):
            harness.run(*self.outside.argv("ip", *command))
        near("link", "add", "uplink", "type", "veth", "peer", "name", "world", "netns", self.outside.name)
        far("address", "add", f"{GATEWAY}/24", "dev", "world")
        far("address", "add", "fd00:1::1/64", "dev", "world", "nodad")
        far("link", "set", "world", "up")
        self.sock = harness.in_namespace(self.outside.fd, capture)  # before anything can be sent
        far("route", "add", "local", "default", "dev", "lo", "table", "main")
        far("-6", "route", "add", "local", "default", "dev", "lo", "table", "main")
        near("address", "add", f"{NEAR}/24", "dev", "uplink")
        near("address", "add", "fd00:1::2/64", "dev", "uplink", "nodad")
        near("link", "set", "uplink", "up")
        near("route", "add", "default", "via", GATEWAY)
        near("-6", "route", "add", "default", "via", "fd00:1::1")
        self.resolver = Resolver(self.outside)
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        while True:
            try:
                frame, address = self.sock.recvfrom(1 << 16)
            except OSError:
                assert self.is_over, "the capture ended"
                return
            if address[2] == PACKET_OUTGOING:
                continue
            with self.changed:
                self.packets.append(read_packet(frame))
                self.changed.notify_all()

    def seen(self, **wanted):
        """Waits for such a packet."""
        def there():
            return [packet for packet in self.packets
                    if all(getattr(packet, name) == value for name, value in wanted.items())]
        with self.changed:
            assert self.changed.wait_for(there, harness.patient(20)), f"no packet like {wanted}"
            return there()

    def send_control(self, mark):
        """From the daemon's side, as whatever leaves it would go: the capture must see it."""
        def send():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.sendto(mark, (CONTROL, 9))
        harness.in_namespace(self.inside.fd, send)
        self.seen(protocol="udp", target=CONTROL, port=9, payload=mark)

    def strangers(self, upstreams):
        """The packets but those to the (address, port) of upstreams, and questions for names that the
        resolver knows. All of them are here: a last one is seen behind them, and none was lost."""
        self.send_control(b"last")
        _, lost = struct.unpack("II", self.sock.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        assert lost == 0
        for upstream in upstreams:
            self.seen(protocol="tcp", target=upstream[0], port=upstream[1])

        def is_known(packet):
            if packet.protocol == "tcp" and (packet.target, packet.port) in upstreams:
                return True
            if packet.protocol == "udp" and (packet.target, packet.port) == (GATEWAY, 53):
                return question_of(packet.payload)[0] in self.resolver.names
            return packet.protocol in ("arp", "neighbour") or packet.target == CONTROL
        return [packet for packet in self.packets if not is_known(packet)]

    def close(self):
        self.is_over = True
        self.inside.close()
        self.outside.close()


def capture():
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    sock.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
    sock.bind(("world", ETH_P_ALL))
    return sock
