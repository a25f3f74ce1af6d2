"""Connections to upstreams that are not made: names whose servers are silent, addresses where nobody says
anything. Everything leads to a namespace of the test's own, by its resolver."""
import contextlib
import time

import pytest

import harness
import upstream as u
from uplink import GATEWAY, Uplink

ADDRESS, SILENT_ADDRESS = "1.2.3.4", "1.2.3.5"
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
LOOKUPS = 2  # LIMIT_EGRESS_LOOKUPS


@pytest.fixture(scope="module")
def uplink():
    uplink = Uplink()
    harness.run(*uplink.outside.argv("ip", "route", "add", "blackhole", SILENT_ADDRESS))
    uplink.resolver.names = {"free.test": [ADDRESS], "late.test": [ADDRESS], "mute.test": [SILENT_ADDRESS]}
    uplink.resolver.silent = "hang.test"
    yield uplink
    uplink.close()


@pytest.fixture(scope="module")
def namespace(uplink):
    return uplink.inside


@pytest.fixture(scope="module")
def demo(folder, namespace):
    demo = harness.Demo(namespace, folder / "dial-demo")
    yield demo
    demo.close()


@pytest.fixture(scope="module")
def boxes(folder, namespace, demo, image_store, uplink):
    """Two sandboxes of one daemon."""
    server = u.Upstream(uplink.outside, folder, name="free", hosts=("free.test", "late.test"), address=ADDRESS,
                        port=443)
    bundle, resolver = folder / "dial-bundle.pem", folder / "dial-resolv.conf"
    bundle.write_bytes(open(BUNDLE, "rb").read() + open(server.ca, "rb").read())
    resolver.write_text(f"nameserver {GATEWAY}\n")
    with harness.daemons(folder, namespace, demo, image_store) as make:
        daemon = make(default_agent="sh", start=False, extra_rules=[
            {"name": host, "host": host} for host in ("free.test", "late.test", "mute.test", "*.hang.test")])
        daemon.namespace = harness.Mounted(daemon.namespace, {BUNDLE: bundle, "/etc/resolv.conf": resolver})
        daemon.start()
        both = [daemon.sandbox(name) for name in ("dial-one", "dial-other")]
        for box in both:
            assert box.exec("/bin/true")["exitCode"] == 0
        yield both
        for box in both:
            box.remove()
    server.close()


def ask(box, host):
    sock = box.connect_tls(host)
    sock.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    return sock


def test_names_that_nobody_answers_hold_up_their_own_sandbox_alone(boxes, uplink):
    """Also when those who asked for them are gone: their lookups go on."""
    one, other = boxes
    unanswered = uplink.resolver.unanswered
    for host in ("free.test", "late.test"):
        with contextlib.ExitStack() as stack:
            for number in range(40):
                stack.enter_context(ask(one, f"{host[:4]}{number}.hang.test"))
            harness.wait_for(lambda: len(unanswered) >= LOOKUPS, 20, "questions")
            with ask(other, host) as sock:
                assert u.read_answer(sock)[0] == 200
        assert len(unanswered) == LOOKUPS, unanswered


@pytest.mark.slow
@pytest.mark.parametrize("host", ["mute.test", "queued.hang.test"])
def test_a_connection_that_is_not_made_is_given_up(boxes, host):
    """Nobody answers to a SYN; or the name waits behind others."""
    one, other = boxes
    with contextlib.ExitStack() as stack:
        if host != "mute.test":
            for number in range(20):
                stack.enter_context(ask(one, f"before{number}.hang.test"))
        began = time.monotonic()
        with ask(one, host) as sock:
            sock.settimeout(harness.patient(60))
            status, headers, body = u.read_answer(sock)
        assert status == 504 and body == f"{host}: no connection was made within 30 s\n".encode(), body
        assert headers.get("x-should-retry") is None
        assert 29 < time.monotonic() - began < harness.patient(34)
    with ask(other, "free.test") as sock:
        assert u.read_answer(sock)[0] == 200
