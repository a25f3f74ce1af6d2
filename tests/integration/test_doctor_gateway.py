"""paddock doctor beside a daemon that runs: it asks the gateway as an agent would, from a sandbox."""
import json
import os
import pathlib
import signal
import socket
import subprocess

import pytest

import harness

pytestmark = pytest.mark.portable


def doctor(daemon, *more):
    result = daemon.cli("doctor", "--config", str(daemon.folder / "config.json"), "--json", *more,
                        check=False, timeout=120)
    said = json.loads(result.stdout)
    findings = {finding["name"]: finding for finding in said["findings"]}
    assert said["ok"] == (result.returncode == 0)
    return findings, result.stdout.decode()


def token_of(demo):
    return (pathlib.Path(demo.secrets_dir) / "AI_GATEWAY_TOKEN").read_text().strip()


def test_gateway_answers_and_takes_the_token(daemon, demo):
    before = len(demo.record("gateway"))
    findings, text = doctor(daemon)
    assert findings["daemon"]["level"] == "ok", findings
    assert findings["gateway-answer"]["level"] == "ok", findings
    asked = demo.record("gateway")[before:]
    assert [entry["method"] for entry in asked] == ["GET"]  # it costs nothing
    assert asked[0]["headers"]["cf-aig-authorization"] == f"Bearer {token_of(demo)}"
    assert token_of(demo) not in text and token_of(demo) not in daemon.log()
    assert not [one for one in daemon.get("/sandboxes").json if one["name"].startswith("paddock-d")]
    findings, _text = doctor(daemon)  # the daemon had just begun the first time: no CA yet
    assert findings["ca"]["level"] == "ok" and "valid until" in findings["ca"]["text"]
    for name in ("state", "ids", "image", "agent", "gateway", "policy"):
        assert findings[name]["level"] == "ok", findings[name]


def test_a_daemon_of_another_configuration_is_told_from_the_judged_one(daemon, tmp_path):
    """PADDOCK_URL names a daemon, and the machine's own configuration (here FILE) is another's."""
    url = f"unix:{daemon.socket}"
    found = doctor(daemon, "--url", url)[0]["daemon"]
    assert (found["level"], found["text"]) == ("ok", "the daemon answers")
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"listen": [f"unix:{tmp_path}/other.sock"]}))
    result = daemon.cli("doctor", "--config", path, "--url", url, "--json", check=False)
    found = [one for one in json.loads(result.stdout)["findings"] if one["name"] == "daemon"][0]
    assert found["level"] == "warn" and "--config FILE" in found["cure"], found
    assert found["text"] == (f"a daemon answers at {url}, but what was judged above listens at "
                             f"unix:{tmp_path}/other.sock")


@pytest.fixture(scope="module")
def other(make_daemon, tmp_path_factory):
    """Its token is not the gateway's."""
    secrets = tmp_path_factory.mktemp("secrets")
    (secrets / "AI_GATEWAY_TOKEN").write_text("wr0ng-t0ken")
    (secrets / "AI_GATEWAY_TOKEN").chmod(0o600)
    return make_daemon(secrets_dir=str(secrets))


def test_gateway_refuses_the_token(other):
    findings, text = doctor(other)
    found = findings["gateway-answer"]
    assert found["level"] == "fail" and "HTTP 401" in found["text"], found
    assert "AI_GATEWAY_TOKEN" in found["cure"] and "wr0ng" not in text
    assert found["lost"] == "agents reach no model"


def test_gateway_is_not_there(make_daemon):
    # a port of the daemon's own namespace where nobody listens
    daemon = make_daemon(start=False)
    path = pathlib.Path(daemon.config["policy"])
    policy = json.loads(path.read_text())
    for rule in policy["rules"]:
        if rule["name"] == "ai-gateway":
            rule["upstream"] = "127.0.0.1:9"
    path.write_text(json.dumps(policy))
    daemon.start()
    findings, _text = doctor(daemon)
    found = findings["gateway-answer"]
    assert found["level"] == "fail" and "cannot be reached" in found["text"], found
    # full: no sandbox can be made for it, which is told and is no failure of the gateway's
    daemon.stop()
    daemon.config["floor"] = {"disk_mib": 1 << 29}
    daemon.start()
    findings, _text = doctor(daemon)
    assert findings["gateway-answer"]["level"] == "warn", findings
    assert "was not asked" in findings["gateway-answer"]["text"]
    assert findings["state-disk"]["level"] == "fail"
    del daemon.config["floor"]
    daemon.stop()
    daemon.start()


def test_a_policy_that_refuses_the_question_is_not_taken_for_the_gateway(make_daemon):
    daemon = make_daemon(start=False)
    path = pathlib.Path(daemon.config["policy"])
    whole = path.read_text()
    policy = json.loads(whole)
    for rule in policy["rules"]:
        if rule["name"] == "ai-gateway":
            rule["methods"] = ["POST"]
    path.write_text(json.dumps(policy))
    daemon.start()
    found = doctor(daemon)[0]["gateway-answer"]
    assert found["level"] == "warn" and "the policy refuses" in found["text"], found
    assert "AI_GATEWAY_TOKEN" not in found["cure"]
    path.write_text(whole)
    daemon.stop()
    daemon.start()


def boxes(daemon):
    return [one["name"] for one in daemon.get("/sandboxes").json if one["name"].startswith("paddock-doctor-")]


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_doctor_leaves_no_sandbox(make_daemon, end):
    """The gateway takes the connection and says nothing."""
    daemon = make_daemon(start=False)
    silent = harness.in_namespace(daemon.namespace.fd, lambda: socket.create_server(("127.0.0.1", 0)))
    path = pathlib.Path(daemon.config["policy"])
    policy = json.loads(path.read_text())
    for rule in policy["rules"]:
        if rule["name"] == "ai-gateway":
            rule["upstream"] = f"127.0.0.1:{silent.getsockname()[1]}"
    path.write_text(json.dumps(policy))
    daemon.start()
    with silent:
        silent.settimeout(harness.patient(30))
        process = subprocess.Popen([daemon.paddock, "doctor", "--config", daemon.folder / "config.json"],
                                   env={"PATH": os.environ["PATH"]}, stdout=subprocess.PIPE)
        connection, _ = silent.accept()
        with connection:
            assert len(boxes(daemon)) == 1
            process.send_signal(end)
            out, _ = process.communicate(timeout=harness.patient(40))
        assert process.returncode == 130 and out == b"" and boxes(daemon) == []
    daemon.close()


def test_a_program_of_the_image_cannot_say_that_the_gateway_answers(make_daemon, tmp_path):
    daemon = make_daemon(start=False)
    git = daemon.state / "images/claude/rootfs/usr/bin/git"
    git.unlink()  # a link of the store's
    git.write_text("#!/bin/sh\necho '<= Recv header: HTTP/2 200' >&2\n")
    git.chmod(0o755)
    daemon.start()
    found = doctor(daemon)[0]["gateway-answer"]
    assert found["level"] == "fail" and "no answer" in found["text"], found
    # who may not read the audit gets no "ok" of it
    (daemon.state / "audit.jsonl").rename(tmp_path / "audit")
    found = doctor(daemon)[0]["gateway-answer"]
    assert found["level"] == "warn" and "the audit cannot be read" in found["lost"], found
    daemon.close()


def test_a_configuration_tells_where_its_daemon_listens(daemon, other):
    config = str(other.folder / "config.json")
    findings = json.loads(daemon.cli("doctor", "--json", "--config", config, check=False).stdout)["findings"]
    # the other one's token is wrong, whatever PADDOCK_URL says
    assert {one["name"]: one for one in findings}["gateway-answer"]["level"] == "fail"
    result = daemon.cli("doctor", "--json", "--config", config, "--url", f"unix:{other.folder}/none", check=False)
    findings = {one["name"]: one for one in json.loads(result.stdout)["findings"]}
    assert "no daemon at" in findings["daemon"]["text"]


def test_daemon_does_not_run(other):
    result = other.cli("doctor", "--json", "--url", f"unix:{other.folder}/none", check=False)
    findings = {one["name"]: one for one in json.loads(result.stdout)["findings"]}
    assert findings["daemon"]["level"] == "warn" and "no daemon at" in findings["daemon"]["text"]
    assert "gateway-answer" not in findings
    lines = other.cli("doctor", check=False, timeout=120).stdout.decode().splitlines()
    # a single word, such as the path of a socket, is not broken
    assert not [line for line in lines if len(line) > 80 and " " in line.strip()], lines
    assert max(len(line) for line in lines) > 60, lines
