"""Ports beside 80 and 443: open where the sandbox's policy names them, at once after a reload too, and
kept while egress or the supervisor is away."""
import json
import os
import signal
import socket

import pytest

import harness
import upstream as u
from test_egress import get
from test_upstream_kinds import PlainUpstream


@pytest.fixture(scope="module")
def servers(namespace, folder):
    tls = u.Upstream(namespace, folder, name="ports", hosts=("tls.test",))
    plain = PlainUpstream(namespace, folder, name="ports-plain", hosts=("plain.test",))
    yield tls, plain
    tls.close()
    plain.close()


@pytest.fixture(scope="module")
def box(make_daemon, servers):
    tls, plain = servers
    daemon = make_daemon(default_agent="sh", start=False, extra_rules=[
        tls.rule("tls.test", "ports-ca.pem", port=8443),
        plain.plain_rule("plain.test", port=8080)])
    (daemon.folder / "policy/ports-ca.pem").write_bytes(open(tls.ca, "rb").read())
    (daemon.folder / "policy/none.json").write_text('{"rules": []}')
    daemon.start()
    harness.wait_for(lambda: " is in force" in daemon.log(), 20, "the policies")
    sandbox = daemon.sandbox("ports")
    assert sandbox.exec("/bin/true")["exitCode"] == 0
    yield sandbox
    sandbox.remove()


def ask_tls(box, path="/x", port=8443, named=8443):
    with box.connect_tls("tls.test", port=port) as sock:
        sock.sendall(get(path, f"tls.test:{named}"))
        return u.read_answer(sock)


def ask_plain(box, path="/x", port=8080):
    with box.connect("plain.test", port) as sock:
        sock.sendall(get(path, f"plain.test:{port}"))
        return u.read_answer(sock)


def change_rules(box, change):
    path = box.daemon.config["policy"]
    rules = json.loads(open(path, encoding="utf-8").read())["rules"]
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"rules": change(rules)}, file)
    box.daemon.cli("policy", "reload")


def both_serve(box):
    assert ask_tls(box)[::2] == (200, b"/x") and ask_plain(box)[::2] == (200, b"/x")


def test_a_port_that_a_rule_names_is_served_as_the_rule_says(box, servers):
    both_serve(box)
    tls, plain = servers
    assert tls.seen("/x")[-1].get("host") == "tls.test:8443"
    assert plain.seen("/x")[-1].get("host") == "plain.test:8080"


def test_a_request_counts_for_the_port_that_it_came_to(box):
    assert ask_tls(box, port=443, named=8443)[0] == 421  # not around a rule for another port
    assert ask_tls(box, port=8443, named=443)[0] == 421
    with box.connect_tls("tls.test") as sock:
        sock.sendall(get("/x", "tls.test"))
        assert u.read_answer(sock)[0] == 403
    for port in (8444, 8081):
        with pytest.raises(ConnectionRefusedError):
            box.connect("tls.test", port)


def test_the_ports_are_kept_while_egress_or_the_supervisor_is_away(box):
    daemon = box.daemon
    egress = daemon.pid_of("paddock-egress")
    os.kill(egress, signal.SIGKILL)
    both_serve(box)  # waits in the backlog for the next one
    network = box.network()
    daemon.kill()
    sock = harness.in_namespace(network, lambda: socket.create_connection(
        ("127.0.0.1", 8080), harness.patient(20)))
    os.close(network)
    daemon.start()
    with sock:
        sock.sendall(get("/x", "plain.test:8080"))
        assert u.read_answer(sock)[0] == 200
    both_serve(box)


def test_a_reload_opens_and_closes_ports_at_once(box):
    change_rules(box, lambda rules: [{**rule, "port": 9443} if rule["host"] == "tls.test" else rule
                                     for rule in rules])
    harness.wait_for(lambda: served(box, 9443), 10, "the new port")
    harness.wait_for(lambda: not served(box, 8443), 10, "the end of the old port")
    assert ask_plain(box)[0] == 200
    change_rules(box, lambda rules: [{**rule, "port": 8443} if rule["host"] == "tls.test" else rule
                                     for rule in rules])
    harness.wait_for(lambda: served(box, 8443), 10, "the old port again")


def served(box, port):
    try:
        return ask_tls(box, port=port, named=port)[0] == 200
    except OSError:
        return False


def test_a_port_of_another_policy_is_closed(box):
    assert box.daemon.call("PUT", box.path, {"policy": "none"}).status == 200
    assert not served(box, 8443)
    assert box.daemon.call("PUT", box.path, {"policy": "test"}).status == 200
    assert served(box, 8443)


def test_a_port_below_1024_and_one_that_the_agent_has(box):
    held = box.sh("perl -MSocket -e 'socket(S,AF_INET,SOCK_STREAM,0); bind(S,sockaddr_in(9999,INADDR_ANY)) "
                  "or die; listen(S,5); if(fork){exit} close STDOUT; close STDERR; sleep 60'")
    assert held["exitCode"] == 0, held
    change_rules(box, lambda rules: [*rules, *({**rule, "name": f"p{port}", "port": port}
                                               for rule in rules if rule["host"] == "tls.test"
                                               for port in (993, 9999))])
    harness.wait_for(lambda: served(box, 993), 10, "the port 993")
    assert "port 9999 of the policies is taken by a program in it" in box.daemon.log()
