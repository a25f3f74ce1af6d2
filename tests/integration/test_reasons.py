"""Why a request was not answered by its upstream: each cause by its own words, over HTTP/1.1 and
HTTP/2, as text or as JSON."""
import json
import os

import pytest

import harness
import upstream as u
from client_h2 import Client
from tls import openssl, server_context

pytestmark = pytest.mark.portable
HOSTS = ("expired.test", "unknown-ca.test", "early.test", "plain.test")


def dated(folder, name, begin, end):
    """The server's leaf with other dates, under the same CA."""
    index = folder / f"{name}-index"
    index.mkdir()
    (index / "index.txt").write_text("")
    (index / "serial").write_text("77")
    config = index / "ca.cnf"
    config.write_text(f"""[ca]
default_ca=it
[it]
database={index}/index.txt
serial={index}/serial
new_certs_dir={index}
default_md=sha256
policy=any
[any]
commonName=supplied
""")
    openssl("ca", "-batch", "-notext", "-config", str(config), "-cert", str(folder / "why-ca.pem"),
            "-keyfile", str(folder / "why-ca.key"), "-in", str(folder / "why.csr"), "-out",
            str(index / "leaf.pem"), "-extfile", str(folder / "why.ext"), "-startdate", begin,
            "-enddate", end)
    whole = index / "whole.pem"
    whole.write_bytes((index / "leaf.pem").read_bytes() + (folder / "why.key").read_bytes())
    return server_context(str(whole))


@pytest.fixture(scope="module")
def box(make_daemon, namespace, folder):
    server = u.Upstream(namespace, folder, name="why", hosts=HOSTS)
    expired = u.Upstream(namespace, folder, name="why", hosts=HOSTS)
    expired.context = dated(folder, "expired", "20200102030405Z", "20210203040506Z")
    early = u.Upstream(namespace, folder, name="why", hosts=HOSTS)
    early.context = dated(folder, "early", "21200102030405Z", "21210203040506Z")
    unknown = server.rule("unknown-ca.test", "")
    del unknown["upstream_ca"]
    daemon = make_daemon(default_agent="sh", start=False, extra_rules=[
        expired.rule("expired.test", "why-ca.pem"), early.rule("early.test", "why-ca.pem"),
        server.rule("wrong-host.test", "why-ca.pem"), server.rule("mute.test", "why-ca.pem"),
        unknown, {"name": "name", "host": "name.test"}, {"name": "private", "host": "localhost.test",
                                                         "upstream": "127.0.0.1:2"},
        {"name": "closed", "host": "closed.test", "upstream": "127.0.0.1:1"},
        {**unknown, "name": "kept", "host": "kept.test",
         "headers": {"set": {"x": "${secret:AI_GATEWAY_TOKEN}"}}},
        {"name": "unset", "host": "unset.test", "headers": {"set": {"x": "${secret:UNSET}"}}}])
    (daemon.folder / "policy/why-ca.pem").write_bytes((folder / "why-ca.pem").read_bytes())
    daemon.start()
    sandbox = daemon.sandbox("why")
    assert sandbox.exec("/bin/true")["exitCode"] == 0
    yield sandbox
    sandbox.remove()
    for one in (server, expired, early):
        one.close()


CAUSES = {  # host: status, words of the reason, whether asking again is told to be useless
    "denied.test": (403, "denied.test is not reachable from this sandbox", True),
    "unset.test": (503, "rule unset is inactive: secret UNSET is not set", True),
    "name.test": (502, "name.test: the name name.test could not be resolved: ", False),
    "closed.test": (502, "closed.test: cannot connect to 127.0.0.1 port 1: Connection refused", False),
    "wrong-host.test": (502, "wrong-host.test: its certificate is not accepted: it is for another "
                        "host (expired.test, unknown-ca.test, early.test, plain.test)", True),
    "expired.test": (502, "it expired on 2021-02-03 04:05:06 UTC", True),
    "early.test": (502, "it is valid only from 2120-01-02 03:04:05 UTC on", True),
    "unknown-ca.test": (502, "it is signed by an unknown CA (Paddock demo CA)", True),
}


def test_a_secret_that_did_not_go_along_is_not_said_to_have(box):
    """What came instead of the upstream has seen nothing of it."""
    assert by_http1(box, "kept.test", [])[0] == 502
    line = json.loads([text for text in (box.daemon.state / "audit.jsonl").read_text().splitlines()
                       if "kept.test" in text][-1])
    assert line["decision"] == "error" and line["rule"] == "kept" and line["secrets"] == [], line


def by_http1(box, host, headers):
    with box.connect_tls(host) as sock:
        more = "".join(f"{name}: {value}\r\n" for name, value in headers)
        sock.sendall(f"GET /x HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode())
        return u.read_answer(sock)


def by_http2(box, host, headers):
    with Client(box, host) as client:
        answer = client.ask("/x", "GET", *headers)
        return answer["status"], dict(answer["headers"]), answer["body"]


@pytest.mark.parametrize("ask", [by_http1, by_http2])
@pytest.mark.parametrize("host", CAUSES)
def test_the_cause_is_told_in_the_form_that_was_asked_for(box, ask, host):
    status, words, is_final = CAUSES[host]
    for accept in ("*/*", "application/json"):
        got, headers, body = ask(box, host, [("accept", accept)])
        assert got == status, body
        assert headers.get("x-should-retry") == ("false" if is_final else None), headers
        reason = headers["x-paddock-reason"]
        assert words in reason and int(headers["content-length"]) == len(body)
        if accept == "*/*":
            assert headers["content-type"] == "text/plain; charset=utf-8"
            assert body.decode() == reason + "\n"
            continue
        assert headers["content-type"] == "application/json"
        error = json.loads(body)
        assert error["type"] == "error" and error["error"]["message"] == reason == error["message"]
        assert error["error"]["type"] in ("permission_error", "api_error")


def test_a_policy_that_is_refused_is_the_reason(make_daemon):
    daemon = make_daemon(default_agent="sh", start=False)
    with open(daemon.config["policy"], "w", encoding="utf-8") as file:
        file.write('{"rules": [{"hots": "example.org"}]}')
    with open(os.path.dirname(daemon.config["policy"]) + "/good.json", "w", encoding="utf-8") as file:
        file.write('{"rules": []}')
    daemon.start()
    sandbox = daemon.sandbox("refused")
    assert sandbox.exec("/bin/true")["exitCode"] == 0
    status, headers, body = by_http1(sandbox, "any.test", [])
    assert status == 503 and headers["x-should-retry"] == "false"
    assert body.decode() == ("no policy is in force, so that nothing may leave this sandbox: "
                             'test.json:1:21: unknown key "hots": did you mean "host"?\n')


def test_claude_code_shows_the_reason_once(make_daemon, demo):
    """The gateway's certificate is one of an unknown CA: Claude Code does not ask again, and says why."""
    gateway = "gateway.ai.cloudflare.com"
    daemon = make_daemon(extra_rules=[{"name": "gateway", "host": gateway,
                                       "upstream": f"127.0.0.1:{demo.gateway_port}"}])
    sandbox = daemon.sandbox("reason")
    assert sandbox.clone().status == 200
    state = sandbox.run_task("Say hello", 90)
    words = "its certificate is not accepted: it is signed by an unknown CA"
    assert state["state"] == "failed" and state["error"].count(words) == 1, state
    audit = [json.loads(line) for line in (daemon.state / "audit.jsonl").read_text().splitlines()]
    asked = [line for line in audit if line["host"] == gateway and "/messages" in line["path"]]
    assert len(asked) == 1, asked
