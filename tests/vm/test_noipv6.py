"""A kernel without IPv6 (ipv6.disable=1): IPv4 works alone."""
import json
import os
import socket

import pytest

import harness


def test_the_kernel_has_no_ipv6(sh_daemon):
    with pytest.raises(OSError):
        socket.socket(socket.AF_INET6)
    assert not os.path.exists("/proc/net/if_inet6")
    findings = json.loads(harness.run(harness.BIN / "paddockd", "--config",
                                      sh_daemon.folder / "config.json", "--doctor", "--json",
                                      check=False).stdout)["findings"]
    ipv6 = next(finding for finding in findings if finding["name"] == "ipv6")
    assert ipv6["level"] == "warn" and "no IPv6" in ipv6["text"], ipv6


def test_names_resolve_to_ipv4_alone_and_reach_egress(daemon, sandbox):
    assert sandbox.clone().status == 200
    found = sandbox.sh("getent ahosts github.com | cut -d' ' -f1 | sort -u")
    assert found["stdout"].startswith("198.1") and ":" not in found["stdout"], found
    answer = sandbox.request("github.com", b"GET /elsewhere HTTP/1.1\r\nHost: github.com\r\n"
                             b"Connection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403 "), answer


def test_f5_ports_without_a_listener_are_refused(sh_sandbox):
    with pytest.raises(ConnectionRefusedError):
        sh_sandbox.connect("x.test", 8080, address="192.0.2.1")
