"""What clients set of a sandbox with PUT, which ones they list, and under which policy each is."""
import base64
import json
import os
import pathlib
import shutil
import subprocess

import pytest

import harness


@pytest.fixture(scope="module")
def box_daemon(make_daemon):
    daemon = make_daemon(default_agent="sh", start=False, environment={"HUB_TOKEN": "ghs_0123456789"},
                         limits={"memory_mib": 2048, "cpus": 2, "pids": 512},
                         policy_prefixes={"ci-": "closed", "ci-open-": "test", "cilost": "nowhere"},
                         agents={"elsewhere": {"image": "elsewhere", "command": ["x", "${PROMPT}"],
                                               "outcome": "exit-code"}})
    closed = pathlib.Path(daemon.config["policy"]).with_name("closed.json")
    closed.write_text('{"rules": []}')
    strict = json.loads(pathlib.Path(daemon.config["policy"]).read_text())
    for rule in strict["rules"]:
        if rule["host"] == "github.com":
            rule["git"] = {"fetch": True, "repositories": ["@cloned"]}
            rule["headers"] = {"set": {"authorization": "Basic ${basic:x-access-token:HUB_TOKEN}"}}
    closed.with_name("parts.json").write_text(json.dumps(strict))
    closed.with_name("cloned.json").write_text('{"include": ["parts.json"]}')
    daemon.start()
    has_policies(daemon)
    return daemon


def has_policies(daemon):
    """After a start: a policy can be named once egress has read them."""
    harness.wait_for(lambda: daemon.get("/healthz").json["policy"], 30, "the policies")


FORKS = """my @made; for (1..100) { my $pid = fork; last unless defined $pid;
if (!$pid) { sleep 60; exit } push @made, $pid } print scalar @made; kill 9, @made"""


def forks(sandbox):
    """How many of 100 processes there may be at once, beside perl."""
    return int(sandbox.exec("/usr/bin/perl", "-e", FORKS)["stdout"])


def put(daemon, name, body=None, **headers):
    return daemon.call("PUT", f"/sandboxes/{name}", body if body is not None else {}, headers)


def test_what_is_put_is_shown_and_holds_inside(box_daemon):
    body = {"agent": "sh", "policy": "closed",
            "limits": {"memory_mib": 256, "cpus": 0.5, "pids": 100},
            "env": {"TEAM": "réd\n", "PATH": "/opt/own:/usr/bin:/bin"},
            "labels": {"team": "red", "example.org/stage": "a_b.c"}}
    answer = put(box_daemon, "set", body)
    assert answer.status == 201, answer
    shown = box_daemon.get("/sandboxes/set").json
    assert answer.json == {**shown, "lastActivity": answer.json["lastActivity"]}
    for key, value in body.items():
        assert shown[key] == value, (key, shown)
    assert shown["state"] == "stopped" and shown["stopped"] >= shown["created"]
    again = put(box_daemon, "set", body)
    assert again.status == 200 and again.json["created"] == shown["created"]
    sandbox = box_daemon.sandbox("set")
    found = sandbox.sh("echo $TEAM; echo $PATH; echo $HOME; cat /proc/self/cgroup")["stdout"].split("\n")
    assert found[:3] == ["réd", "/opt/own:/usr/bin:/bin", "/home/agent"], found
    assert sandbox.sh("echo $TEAM", user="root")["stdout"] == "réd\n"
    state = sandbox.meta()
    assert state["schema"] == 2 and state["limits"] == body["limits"]
    assert 50 < forks(sandbox) < 100
    box_daemon.stop()
    box_daemon.start()
    has_policies(box_daemon)
    after = box_daemon.get("/sandboxes/set").json
    assert {key: after[key] for key in body} == body
    sandbox.remove()


def test_a_put_replaces_everything_but_the_agent(box_daemon):
    put(box_daemon, "whole", {"env": {"A": "1"}, "labels": {"a": "b"}, "limits": {"pids": 50}})
    answer = put(box_daemon, "whole")
    assert answer.status == 200 and answer.json["agent"] == "sh", answer
    assert not {"env", "labels", "limits", "policy"} & set(answer.json)
    assert put(box_daemon, "whole", **{"If-None-Match": "*"}).status == 412
    assert put(box_daemon, "whole", **{"If-None-Match": '"x"'}).status == 400
    box_daemon.sandbox("whole").remove()
    assert put(box_daemon, "whole", **{"If-None-Match": "*"}).status == 201
    box_daemon.sandbox("whole").remove()


def patch(daemon, name, body):
    return daemon.call("PATCH", f"/sandboxes/{name}", body)


def test_a_patch_changes_what_it_names_and_null_takes_away(box_daemon):
    assert patch(box_daemon, "patched", {"labels": {"a": "b"}}).status == 404
    assert box_daemon.get("/sandboxes/patched").status == 404
    put(box_daemon, "patched", {"policy": "closed", "limits": {"pids": 50, "cpus": 1}, "env": {"A": "1", "B": "2"},
                                "labels": {"x": "1", "y": "2"}})
    keys = ("policy", "limits", "env", "labels")

    def after(body):
        answer = patch(box_daemon, "patched", body)
        assert answer.status == 200, answer
        shown = box_daemon.get("/sandboxes/patched").json
        return {key: shown[key] for key in keys if key in shown}
    whole = {"policy": "closed", "limits": {"pids": 50, "cpus": 1}, "env": {"A": "1", "B": "2"},
             "labels": {"x": "1", "y": "2"}}
    assert after({}) == whole
    whole |= {"limits": {"memory_mib": 64, "pids": 50}, "env": {"B": "3", "C": ""}, "labels": {"y": "2"}}
    assert after({"limits": {"memory_mib": 64, "cpus": None}, "env": {"A": None, "B": "3", "C": "", "D": None},
                  "labels": {"x": None}}) == whole
    assert after({"policy": None, "env": None}) == {"limits": whole["limits"], "labels": {"y": "2"}}
    assert after({"limits": None, "labels": None, "policy": "closed"}) == {"policy": "closed"}
    for body, text in (({"agent": None}, '"agent" must be a name'), ({"limits": {"pids": 1}}, "limits.pids must be from"),
                       ({"labels": {"-": None}}, "is not a label"), ("x", "Send {")):
        answer = patch(box_daemon, "patched", body)
        assert answer.status == 400 and text in answer.text, answer
    assert after({"labels": {f"a{i}": "" for i in range(32)}})["labels"]
    answer = patch(box_daemon, "patched", {"labels": {"one-more": ""}})
    assert answer.status == 400 and '"labels" may have at most 32 members' in answer.text
    box_daemon.sandbox("patched").remove()


def test_changes_at_once_all_hold(box_daemon):
    put(box_daemon, "at-once", {"labels": {"first": "1"}})
    environment = {"PATH": os.environ["PATH"], "PADDOCK_URL": f"unix:{box_daemon.socket}"}
    changes = [subprocess.Popen([box_daemon.paddock, "set", "at-once", "--label", f"l{i}={i}", "--env", f"E{i}={i}"],
                                env=environment) for i in range(12)]
    assert [change.wait(harness.patient(60)) for change in changes] == [0] * 12
    shown = box_daemon.get("/sandboxes/at-once").json
    assert shown["labels"] == {"first": "1", **{f"l{i}": str(i) for i in range(12)}}
    assert shown["env"] == {f"E{i}": str(i) for i in range(12)}
    box_daemon.sandbox("at-once").remove()


def test_the_same_environment_in_another_order_stops_nothing(box_daemon):
    sandbox = box_daemon.sandbox("order")
    put(box_daemon, "order", {"env": {"A": "1", "B": "2", "C": "3"}})
    assert sandbox.sh("echo $A$B$C")["stdout"] == "123\n"
    boot = box_daemon.get("/sandboxes/order").json["bootId"]
    answer = put(box_daemon, "order", {"env": {"C": "3", "A": "1", "B": "2"}})
    assert answer.status == 200 and answer.json["state"] == "running" and answer.json["bootId"] == boot
    assert put(box_daemon, "order", {"env": {"C": "3", "A": "2", "B": "1"}}).json["state"] == "stopped"
    sandbox.remove()


@pytest.mark.parametrize("is_started", [False, True])
def test_what_stays_is_not_judged_again(make_daemon, is_started):
    """Labels can be set when the recipe, the policy and the room for its limits are gone."""
    daemon = make_daemon(default_agent="sh", limits={"memory_mib": 2048, "pids": 512}, start=False)
    policy = pathlib.Path(daemon.config["policy"]).with_name("closed.json")
    policy.write_text('{"rules": []}')
    daemon.start()
    has_policies(daemon)
    assert put(daemon, "stays", {"policy": "closed", "limits": {"memory_mib": 1024, "pids": 512}}).status == 201
    if is_started:
        assert daemon.sandbox("stays").exec("/bin/true")["exitCode"] == 0
    daemon.stop()
    policy.unlink()
    shutil.rmtree(pathlib.Path(daemon.config["recipes_dir"], "sh"))
    daemon.config["limits"] = {"memory_mib": 512, "pids": 512}
    daemon.start()
    answer = patch(daemon, "stays", {"labels": {"a": "b"}})
    assert answer.status == 200 and answer.json["labels"] == {"a": "b"}, answer
    assert answer.json["limits"] == {"memory_mib": 1024, "pids": 512} and answer.json["image"] == "claude"
    body = {key: answer.json[key] for key in ("agent", "policy", "limits")}
    answer = put(daemon, "stays", {**body, "labels": {"a": "c"}})
    assert answer.status == 200 and answer.json["labels"] == {"a": "c"}, answer
    # what changes is
    assert patch(daemon, "stays", {"limits": {"memory_mib": 1023}}).status == 400
    assert "There is no agent elsewhere" in patch(daemon, "stays", {"agent": "elsewhere"}).text
    assert put(daemon, "other", {"agent": "sh"}).status == 400
    daemon.close()


@pytest.mark.parametrize("body, text", [
    ("{", "Send {"), ([], "Send {"), ({"agnt": "sh"}, "Send {"), ({"agent": "A"}, '"agent" must be a name'),
    ({"agent": "hs"}, "There is no agent hs: did you mean sh? There are: "),
    ({"agent": "nobody-at-all"}, "There is no agent nobody-at-all. There are: "),
    ({"policy": "clsoed"}, "There is no policy clsoed: did you mean closed? There are: "),
    ({"policy": "../x"}, '"policy" must be a name'),
    ({"policy": {"rules": []}}, '"policy" must be a name'),
    ({"size": "Small"}, '"size" must be a name'),
    ({"size": "smal"}, "There is no size smal: did you mean small? There are: small, standard, large"),
    ({"limits": {"memory_mib": 2049}}, "limits.memory_mib must be from 16 to 2048"),
    ({"limits": {"memory_mib": 15}}, "limits.memory_mib must be from 16 to 2048"),
    ({"limits": {"cpus": 2.001}}, "limits.cpus must be from 0.01 to 2"),
    ({"limits": {"pids": 513}}, "limits.pids must be from 16 to 512"),
    ({"limits": {"pids": 0}}, "limits.pids must be a whole number above 0"),
    ({"limits": {"pids": -1}}, "limits.pids must be a whole number above 0"),
    ({"limits": {"cpus": "2"}}, "limits.cpus must be a number"),
    ({"limits": {"disk": 1}}, "limits may have memory_mib, cpus, pids, disk_mib and inodes"),
    ({"env": {"1A": ""}}, 'env: "1A" is not a name of a variable'),
    ({"env": {"HOME": "/"}}, 'env: "HOME" is set by Paddock itself'),
    ({"env": {"SSL_CERT_FILE": "/"}}, 'env: "SSL_CERT_FILE" is set by Paddock itself'),
    ({"env": {"PADDOCK_X": "1"}}, 'env: "PADDOCK_X" is reserved for Paddock'),
    ({"env": {"A": 1}}, 'env: "A" must have a text'),
    ({"env": {"A": "x" * 4097}}, 'env: "A" has a value that is too long'),
    ({"env": {f"A{i}": "x" * 4096 for i in range(8)}}, '"env" is over 32768 bytes in all'),
    ({"env": {f"A{i}": "" for i in range(65)}}, '"env" may have at most 64 members'),
    ({"labels": {"-a": "b"}}, 'labels: "-a" is not a label'),
    ({"labels": {"a/b/c": "b"}}, "is not a label"),
    ({"labels": {"a": "b c"}}, 'labels: "a" has a value that is none of a label'),
    ({"labels": {"a": "x" * 64}}, "has a value that is none of a label"),
    ({"labels": {f"a{i}": "" for i in range(33)}}, '"labels" may have at most 32 members'),
])
def test_what_may_not_be_set_is_refused_and_nothing_is_made(box_daemon, body, text):
    answer = put(box_daemon, "refused", body)
    assert answer.status == 400 and text in answer.text, answer
    assert box_daemon.get("/sandboxes/refused").status == 404


def test_not_while_a_task_runs_and_no_other_image_under_what_was_installed(box_daemon):
    sandbox = box_daemon.sandbox("busy")
    assert sandbox.clone().status == 200
    assert sandbox.start_task("read x < <(sleep 60)").status == 202
    answer = put(box_daemon, "busy", {"labels": {"a": "b"}})
    assert answer.status == 409 and "A task is running" in answer.text
    assert box_daemon.call("DELETE", f"{sandbox.path}/task").status == 200
    assert put(box_daemon, "busy", {"labels": {"a": "b"}}).status == 200
    answer = put(box_daemon, "busy", {"agent": "elsewhere"})
    assert answer.status == 409 and "started with the image claude" in answer.text, answer
    boot = box_daemon.get("/sandboxes/busy").json["bootId"]
    assert put(box_daemon, "busy", {"env": {"NEW": "yes"}}).status == 200
    assert box_daemon.get("/sandboxes/busy").json["state"] == "stopped"  # its next start has it
    assert sandbox.run_task("echo $NEW")["result"] == "yes\n"
    assert box_daemon.get("/sandboxes/busy").json["bootId"] != boot
    sandbox.remove()
    # before its first start it may have any image
    assert put(box_daemon, "busy", {"agent": "elsewhere"}).status == 201
    assert put(box_daemon, "busy", {"agent": "sh"}).json["image"] == "claude"
    sandbox.remove()


def test_a_sandbox_has_the_lower_of_its_own_limit_and_the_daemons(box_daemon):
    sandbox = box_daemon.sandbox("small")
    put(box_daemon, "small", {"limits": {"memory_mib": 64, "pids": 400}})
    assert sandbox.clone().status == 200
    state = sandbox.run_task("exec tail /dev/zero")
    assert state["state"] == "failed" and "64 MiB" in state["error"], state
    assert forks(sandbox) == 100
    assert box_daemon.post(f"{sandbox.path}/stop").status == 204
    box_daemon.stop()
    box_daemon.config["limits"]["pids"] = 50  # since then
    box_daemon.start()
    try:
        assert forks(sandbox) < 50
    finally:
        box_daemon.config["limits"]["pids"] = 512
        box_daemon.stop()
        box_daemon.start()
        has_policies(box_daemon)
        sandbox.remove()


def test_a_size_gives_the_limits_that_a_sandbox_has_not_itself(make_daemon):
    daemon = make_daemon(default_agent="sh", limits={"memory_mib": 1024, "pids": 90},
                         sizes={"tiny": {"memory_mib": 64, "cpus": 0.5, "pids": 50}, "wide": {"pids": 4000}})
    box = daemon.sandbox("sized")
    assert put(daemon, "sized", {"size": "tiny"}).json["size"] == "tiny"
    assert "limits" not in daemon.get("/sandboxes/sized").json and forks(box) < 50
    assert box.clone().status == 200
    state = box.run_task("exec tail /dev/zero")
    assert state["state"] == "failed" and "64 MiB" in state["error"], state
    assert patch(daemon, "sized", {"limits": {"pids": 80}}).json["size"] == "tiny"
    assert 50 < forks(box) < 80
    daemon.cli("set", "sized", "--size", "wide", "--pids", "0")
    assert daemon.get("/sandboxes/sized").json["state"] == "stopped"  # its next start has them
    assert 50 < forks(box) < 90  # never more than the daemon's
    assert patch(daemon, "sized", {"size": None}).status == 200 and "size" not in box.meta()
    daemon.cli("set", "sized", "--size", "tiny")
    answer = put(daemon, "sized-2", {"size": "small"})
    assert answer.status == 400 and answer.text == "There is no size small. There are: tiny, wide", answer
    daemon.stop()
    daemon.config["sizes"] = {}
    daemon.start()
    answer = daemon.post(f"{box.path}/exec", {"argv": ["/bin/true"]})
    assert answer.status == 503 and "The size tiny of this sandbox is not in the daemon's configuration" in answer.text
    assert patch(daemon, "sized", {"labels": {"a": "b"}}).status == 200  # what stays is not judged again
    assert patch(daemon, "sized", {"size": None}).status == 200 and box.exec("/bin/true")["exitCode"] == 0
    daemon.close()


def test_lists_are_filtered_by_labels_and_state(box_daemon):
    names = {"l-1": {"team": "red", "stage": "a"}, "l-2": {"team": "red"}, "l-3": {"team": "blue"}}
    for name, labels in names.items():
        assert put(box_daemon, name, {"labels": labels}).status == 201
    assert box_daemon.sandbox("l-2").exec("/bin/true")["exitCode"] == 0

    def listed(query):
        return [s["name"] for s in box_daemon.get(f"/sandboxes?{query}").json
                if s["name"].startswith("l-")]
    try:
        assert listed("label=team=red") == ["l-1", "l-2"]
        assert listed("label=team%3Dred&label=stage=a") == ["l-1"]
        assert listed("label=stage") == ["l-1"] and listed("label=stage=b") == []
        assert listed("state=running") == ["l-2"] and listed("state=stopped") == ["l-1", "l-3"]
        assert listed("state=stopped&label=team=red") == ["l-1"]
        for query in ("state=none", "state=stopped&state=running", "label=", "label=a=b=c", "x=1",
                      "label=-a", "&".join(["label=a"] * 9), "label=%zz"):
            answer = box_daemon.get(f"/sandboxes?{query}")
            assert answer.status == 400 and "state=stopped" in answer.text, (query, answer)
        table = box_daemon.cli("ls", "--label", "team=red", "--state", "running").stdout.decode()
        assert table.split("\n")[1].split()[:2] == ["l-2", "running"] and len(table.split("\n")) == 3
    finally:
        for name in names:
            box_daemon.sandbox(name).remove()


# ---------------------------------------------------------------------------------- policies


def reaches_github(sandbox):
    answer = sandbox.request("github.com", b"GET /octocat/Hello-World/info/refs?service=git-upload-pack "
                             b"HTTP/1.1\r\nHost: github.com\r\nConnection: close\r\n\r\n")
    return int(answer.split()[1])


def test_a_sandbox_is_under_the_policy_it_was_put_under_from_the_next_request_on(box_daemon):
    sandbox = box_daemon.sandbox("under")
    put(box_daemon, "under", {"policy": "closed"})
    assert sandbox.exec("/bin/true")["exitCode"] == 0
    assert reaches_github(sandbox) == 403
    boot = box_daemon.get("/sandboxes/under").json["bootId"]
    put(box_daemon, "under")
    assert reaches_github(sandbox) == 200
    put(box_daemon, "under", {"policy": "closed"})
    assert reaches_github(sandbox) == 403
    assert box_daemon.get("/sandboxes/under").json["bootId"] == boot, "no new start was needed"
    egress = box_daemon.pid_of("paddock-egress")
    os.kill(egress, 9)  # the next one is told
    harness.wait_for(lambda: box_daemon.pid_of("paddock-egress") not in (None, egress)
                     and box_daemon.get("/healthz").json["policy"], 30, "a new egress")
    assert reaches_github(sandbox) == 403
    sandbox.remove()


def test_cloned_is_the_repository_that_the_api_cloned_and_no_other(box_daemon, demo):
    sandbox = box_daemon.sandbox("cloned")
    put(box_daemon, "cloned", {"policy": "cloned"})

    def fetches(repository):
        result = sandbox.sh(f"git ls-remote https://github.com/{repository}")
        return result["exitCode"] == 0, result["stderr"]

    assert not fetches("octocat/Hello-World")[0], "nothing is cloned yet"
    assert sandbox.clone().status == 200
    assert fetches("octocat/Hello-World")[0] and fetches("octocat/Hello-World.git")[0]
    ok, said = fetches("octocat/Hello-World2")
    assert not ok and "octocat/Hello-World2 is not reachable from this sandbox" in said, said
    sent = [call["headers"].get("authorization") for call in demo.record("git")]
    basic = base64.b64encode(b"x-access-token:ghs_0123456789").decode()
    assert sent[-1] == f"Basic {basic}", "what git at GitHub takes (C1)"
    held = sandbox.sh("cd repo; git remote -v; cat .git/config; env; cat /proc/self/environ",
                      cwd="/workspace")["stdout"]
    assert "octocat/Hello-World" in held and "ghs_" not in held and basic not in held
    assert basic not in box_daemon.log() and "ghs_" not in box_daemon.log()
    assert sandbox.clone("https://github.com/octocat/None").status == 502
    assert "octocat/Hello-World is not reachable" in fetches("octocat/Hello-World")[1], "the last one asked for"
    sandbox.remove()


def test_without_a_policy_of_its_own_a_sandbox_has_that_of_its_names_longest_prefix(box_daemon):
    sandbox = box_daemon.sandbox("ci-1")
    shown = put(box_daemon, "ci-1").json
    assert shown["policyByName"] == "closed" and "policy" not in shown
    assert reaches_github(sandbox) == 403
    shown = put(box_daemon, "ci-1", {"policy": "test"}).json
    assert shown["policy"] == "test" and "policyByName" not in shown
    assert reaches_github(sandbox) == 200, "what was put wins"
    box_daemon.call("PATCH", "/sandboxes/ci-1", {"policy": None}, {})
    assert reaches_github(sandbox) == 403
    put(box_daemon, "ci-open-1"), put(box_daemon, "cilost"), put(box_daemon, "other")
    shown = {row["name"]: row.get("policyByName") for row in box_daemon.get("/sandboxes").json}
    assert shown["ci-open-1"] == "test" and shown["ci-1"] == "closed" and shown["other"] is None
    users = {row["name"]: row["sandboxes"] for row in box_daemon.get("/policies").json}
    assert users["closed"] >= 1
    lost = box_daemon.sandbox("cilost")
    assert reaches_github(lost) == 503, "never the daemon's own instead"
    assert "policy_prefixes.cilost: the policy nowhere is not there" in box_daemon.log()
    for name in ("ci-1", "ci-open-1", "cilost", "other"):
        box_daemon.call("DELETE", f"/sandboxes/{name}", None, {})


def test_a_reload_is_answered_with_what_came_of_it(box_daemon):
    main = pathlib.Path(box_daemon.config["policy"])
    other = main.with_name("other.json")
    good, sandbox = main.read_text(), box_daemon.sandbox("reload")
    listed = {p["name"]: p for p in box_daemon.get("/policies").json}
    assert listed["test"]["default"] and listed["test"]["inForce"] and not listed["closed"]["default"]
    other.write_text('{"rules": []}')
    assert put(box_daemon, "reload", {"policy": "other"}).status == 400  # not read yet
    try:
        assert "other" in box_daemon.cli("policy", "reload").stdout.decode()
        assert put(box_daemon, "reload", {"policy": "other"}).status == 201
        assert sandbox.exec("/bin/true")["exitCode"] == 0
        assert reaches_github(sandbox) == 403
        other.write_text(good)
        assert box_daemon.post("/policies/reload").status == 200
        assert reaches_github(sandbox) == 200  # from the next request on

        other.write_text('{\n  "rules": 1 }')
        answer = box_daemon.post("/policies/reload")
        state = {p["name"]: p for p in answer.json}["other"]
        assert state["inForce"] and state["error"].startswith("other.json:2:"), state
        assert state["sandboxes"] == 1 and reaches_github(sandbox) == 200
        result = box_daemon.cli("policy", "reload", check=False)
        assert result.returncode == 1 and b"other.json:2:" in result.stderr, result

        main.write_text('{ "rules": [\n {"hots": "x"} ] }')
        answer = box_daemon.post("/policies/reload")
        assert answer.status == 409 and answer.text.startswith("test.json:2:"), answer
        assert 'did you mean "host"?' in answer.text
        result = box_daemon.cli("policy", "reload", check=False)
        assert result.returncode == 1 and b"test.json:2:" in result.stderr
        put(box_daemon, "reload")
        assert reaches_github(sandbox) == 200  # the one in force stayed
        main.rename(main.with_name("away"))
        assert "there is no such file" in box_daemon.post("/policies/reload").text
        main.with_name("away").rename(main)
    finally:
        main.write_text(good)
        other.unlink()
        assert box_daemon.post("/policies/reload").status == 200
        sandbox.remove()


# ------------------------------------------------------------------------- the command line


def test_the_command_line_creates_and_sets(box_daemon):
    made = box_daemon.cli("create", "by-cli", "--agent", "sh", "--policy", "closed", "--memory", "128",
                          "--cpus", "0.5", "--pids", "64", "--env", "A=b c", "--env", "Q=\"", "--label",
                          "team=red", "--label", "x=")
    assert made.stdout == b""
    shown = box_daemon.get("/sandboxes/by-cli").json
    assert shown["limits"] == {"memory_mib": 128, "cpus": 0.5, "pids": 64}
    assert shown["env"] == {"A": "b c", "Q": '"'} and shown["labels"] == {"team": "red", "x": ""}
    again = box_daemon.cli("create", "by-cli", check=False)
    assert again.returncode == 1 and b"already" in again.stderr and b"paddock set" in again.stderr
    box_daemon.cli("set", "by-cli", "--env", "A-", "--label", "team=blue", "--memory", "256",
                   "--policy", "")
    shown = box_daemon.get("/sandboxes/by-cli").json
    assert shown["limits"] == {"memory_mib": 256, "cpus": 0.5, "pids": 64} and "policy" not in shown
    assert shown["env"] == {"Q": '"'} and shown["labels"] == {"team": "blue", "x": ""}
    assert json.loads(box_daemon.cli("set", "by-cli", "--json", "--pids", "99").stdout)["limits"]["pids"] == 99
    assert box_daemon.cli("set", "nobody", "--pids", "99", check=False).returncode == 1
    assert box_daemon.get("/sandboxes/nobody").status == 404
    for wrong in (["--env", "A"], ["--memory", "1g"], ["--cpus", "x"], ["--label", "=b"]):
        assert box_daemon.cli("set", "by-cli", *wrong, check=False).returncode == 2, wrong
    refused = box_daemon.cli("create", "by-cli-2", "--agent", "hs", check=False)
    assert refused.returncode == 1 and b"did you mean sh?" in refused.stderr
    box_daemon.sandbox("by-cli").remove()


def test_the_agents_are_listed_and_a_mistyped_one_or_policy_is_told_with_the_near_one(box_daemon):
    bad = pathlib.Path(box_daemon.config["recipes_dir"], "bad")
    bad.mkdir()
    (bad / "agent.json").write_text("{")
    try:
        agents = box_daemon.get("/agents").json
        assert [agent["name"] for agent in agents] == sorted(agent["name"] for agent in agents)
        by_name = {agent.pop("name"): agent for agent in agents}
        assert by_name["sh"]["image"] == "claude" and "base" not in by_name
        assert [name for name, agent in by_name.items() if agent["default"]] == [box_daemon.config["default_agent"]]
        assert "agent.json" in by_name["bad"]["error"] and "image" not in by_name["bad"]
    finally:
        shutil.rmtree(bad)
    for option, wrong, near in (("--agent", "shh", "sh"), ("--policy", "clsoed", "closed")):
        result = box_daemon.cli("create", "near", option, wrong, check=False)
        assert result.returncode == 1 and f"did you mean {near}?" in result.stderr.decode()
        assert near in box_daemon.cli("complete", "--", "create", "near", option, near[:1]).stdout.decode()


def test_the_list_of_policies_tells_the_default_one(box_daemon):
    rows = [line.split() for line in box_daemon.cli("policy", "ls").stdout.decode().splitlines()]
    assert rows[0][:4] == ["NAME", "DEFAULT", "IN", "FORCE"]
    assert {row[0]: row[1] for row in rows[1:]} == {"test": "yes", "closed": "no", "cloned": "no", "parts": "no"}


# -------------------------------------------------------------------------- starts refused


@pytest.mark.parametrize("what, text", [
    ({"max_running": 1}, "1 sandboxes run already (max_running): stop one first"),
    ({"floor": {"disk_mib": 1 << 30}}, "(floor.disk_mib): stop one or free some"),
    ({"floor": {"disk_files": 1 << 40}}, "(floor.disk_files): stop one or free some"),
    ({"floor": {"memory_mib": 1 << 30}}, "(floor.memory_mib): stop one or free some")])
def test_every_kind_of_start_is_told_why_not_and_a_put_starts_nothing(make_daemon, what, text):
    daemon = make_daemon(default_agent="sh")
    stopped, running = daemon.sandbox("stopped"), daemon.sandbox("running")
    for box in (stopped, running):
        assert box.clone().status == 200
    assert daemon.post(f"{stopped.path}/stop").status == 204
    daemon.stop()
    daemon.config.update(what)
    daemon.start()
    assert running.exec("/bin/true")["exitCode"] == 0
    for answer in (stopped.start_task("true"), daemon.sandbox("new").clone(),
                   daemon.post(f"{stopped.path}/exec", {"argv": ["/bin/true"]})):
        assert answer.status == 503 and text in answer.text, answer
        assert answer.headers["retry-after"] == "1"
    assert put(daemon, "made", {"labels": {"a": "b"}}).status == 201
    assert put(daemon, "stopped", {"env": {"A": "b"}}).status == 200
    assert daemon.get("/sandboxes/new").status == 404
    assert stopped.diff().status == 200 and stopped.task()["state"] == "none"
    daemon.stop()
    daemon.config.update({"max_running": 0, "floor": {}})
    daemon.start()
    assert stopped.run_task("echo $A")["result"] == "b\n"
    daemon.close()
