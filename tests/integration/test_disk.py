"""What stopped sandboxes take and how it ends: df, prune, the time to live, stop and rm of all."""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import time

import pytest

import harness


def sizes(daemon):
    answer = daemon.get("/df")
    assert answer.status == 200, answer
    return answer.json, {box["name"]: box for box in answer.json["sandboxes"]}


@pytest.fixture(scope="module")
def disk_daemon(make_daemon):
    return make_daemon(default_agent="sh")


def test_df_tells_each_part_and_counts_what_an_agent_made(disk_daemon):
    sandbox = disk_daemon.sandbox("weighed")
    assert sandbox.clone().status == 200
    made = sandbox.sh("head -c 5000000 /dev/urandom > /workspace/five; ln /workspace/five /workspace/same; "
                      "mkdir -p '/workspace/a\nsandboxes/b'; ln -s / /workspace/root; "
                      "mkfifo /workspace/fifo; chmod 0 /workspace/five; sync")
    assert made["exitCode"] == 0, made
    assert sandbox.sh("head -c 3000000 /dev/urandom > /opt/three", user="root")["exitCode"] == 0
    whole, boxes = sizes(disk_daemon)
    box = boxes["weighed"]
    assert 5_000_000 <= box["workspaceBytes"] < 6_000_000, "a file of two names counts once"
    assert 3_000_000 <= box["overlayBytes"] < 4_000_000
    assert box["baseBytes"] > 0 and box["taskBytes"] > 0
    parts = sum(box[key] for key in ("workspaceBytes", "overlayBytes", "taskBytes", "baseBytes"))
    assert parts <= box["bytes"] < parts + 100_000 and whole["sandboxesBytes"] >= box["bytes"]
    assert [i["name"] for i in whole["images"]] == ["claude"] and whole["imagesBytes"] > 100_000_000
    disk = os.statvfs(disk_daemon.state)
    assert whole["disk"]["totalBytes"] == disk.f_blocks * disk.f_frsize
    assert set(boxes) == {s["name"] for s in disk_daemon.get("/sandboxes").json}
    table = disk_daemon.cli("df").stdout.decode()
    assert "weighed" in table and "FREE" in table and "claude" in table
    assert json.loads(disk_daemon.cli("df", "--json").stdout)["disk"]["totalBytes"] == disk.f_blocks * disk.f_frsize
    sandbox.remove()


def test_df_survives_a_tree_as_deep_and_wide_as_an_agent_can_make_it(disk_daemon):
    sandbox = disk_daemon.sandbox("deep")
    deep = sandbox.exec("/usr/bin/perl", "-e", "for (1..3000) { mkdir 'a' x 200; chdir 'a' x 200 } "
                        "chdir '/workspace'; mkdir 'wide'; for (1..20000) { open F, '>', \"wide/$_\" }")
    assert deep["exitCode"] == 0, deep
    _, boxes = sizes(disk_daemon)
    assert boxes["deep"]["workspaceBytes"] > 3000 * 4096
    sandbox.remove()


def test_removed_sandboxes_share_a_jail_that_steps_back(disk_daemon):
    boxes = [disk_daemon.sandbox(f"gone-{number}") for number in range(3)]
    for box in boxes:
        made = box.exec("/usr/bin/perl", "-e", "for (1..20000) { open F, '>', \"/workspace/$_\" }")
        assert made["exitCode"] == 0, made

    def jail():
        """Its words and its scheduling policy, once it is what it is to be."""
        for pid in harness.children_of(disk_daemon.process.pid):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
                if words[:2] == ["paddock-jail", "remove"]:
                    return words[2:], os.sched_getscheduler(pid)
        return None

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        assert [answer.status for answer in pool.map(lambda box: box.remove(), boxes)] == [204] * 3
    names, policy = harness.wait_for(jail, 20, "the jail")
    assert len([name for name in names if name.startswith("sandbox-")]) == 3, names
    assert policy == os.SCHED_IDLE
    harness.wait_for(lambda: not list((disk_daemon.state / "trash").iterdir()), 60, "the trash is empty")


def test_only_what_is_still_stopped_is_pruned(disk_daemon):
    for name, label in (("p-old", "x"), ("p-run", "x"), ("p-other", "y")):
        assert disk_daemon.call("PUT", f"/sandboxes/{name}", {"labels": {"p": label}}).status == 201
    running = disk_daemon.sandbox("p-run")
    assert running.exec("/bin/true")["exitCode"] == 0
    answer = disk_daemon.call("DELETE", "/sandboxes/p-run?state=stopped")
    assert answer.status == 409 and "not stopped" in answer.text
    assert disk_daemon.call("DELETE", "/sandboxes/p-run?state=running").status == 400
    refused = disk_daemon.cli("prune", "--label", "p=x", check=False)
    assert refused.returncode == 2 and b"--yes" in refused.stderr
    dry = disk_daemon.cli("prune", "--label", "p=x", "--dry-run").stdout.decode()
    assert "p-old" in dry and "p-run" not in dry and "p-other" not in dry
    assert disk_daemon.get("/sandboxes/p-old").status == 200
    kept = json.loads(disk_daemon.cli("prune", "--label", "p", "--older", "1h", "--yes", "--json").stdout)
    assert kept["sandboxes"] == [] and kept["images"] == []
    gone = json.loads(disk_daemon.cli("prune", "--label", "p=x", "--yes", "--json").stdout)
    assert gone == {"sandboxes": ["p-old"], "images": [], "removed": True}
    names = {s["name"] for s in disk_daemon.get("/sandboxes").json}
    assert {"p-run", "p-other"} <= names and "p-old" not in names
    for name in ("p-run", "p-other"):
        disk_daemon.sandbox(name).remove()


def test_prune_takes_stopped_sandboxes_unused_images_and_the_trash(make_daemon):
    daemon = make_daemon(default_agent="sh")
    assert daemon.sandbox("stays").exec("/bin/true")["exitCode"] == 0
    assert daemon.call("PUT", "/sandboxes/goes").status == 201
    spare = daemon.state / "images" / "spare"
    (spare / "rootfs").mkdir(parents=True)
    info = json.loads((daemon.state / "images/claude/image.json").read_text())
    (spare / "image.json").write_text(json.dumps({**info, "name": "spare"}))
    left = daemon.state / "trash" / ".failed-sandbox-00"
    (left / "deep").mkdir(parents=True)
    gone = json.loads(daemon.cli("prune", "--yes", "--json").stdout)
    assert gone == {"sandboxes": ["goes"], "images": ["spare"], "removed": True}
    assert [s["name"] for s in daemon.get("/sandboxes").json] == ["stays"]
    assert [i["name"] for i in daemon.get("/images").json] == ["claude"]
    harness.wait_for(lambda: not left.exists() and not list((daemon.state / "trash").glob("sandbox-*")),
                     30, "an empty trash")
    daemon.close()


@pytest.mark.parametrize("answer, is_gone", [(b"n\n", False), (b"\n", False), (b"y\n", True)])
def test_prune_asks_on_a_terminal(disk_daemon, answer, is_gone):
    assert disk_daemon.call("PUT", "/sandboxes/asked", {"labels": {"ask": "me"}}).status == 201
    ours, theirs = os.openpty()
    try:
        os.write(ours, answer)
        result = disk_daemon.cli("prune", "--label", "ask", stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"asked" in result.stderr and b"[y/N]" in result.stderr and not result.stdout
    assert disk_daemon.get("/sandboxes/asked").status == (404 if is_gone else 200)
    disk_daemon.sandbox("asked").remove()


# -------------------------------------------------------------------------------- the end of time


def test_a_stopped_sandbox_is_removed_when_its_time_is_over_and_no_other(make_daemon):
    daemon = make_daemon(default_agent="sh", stopped_ttl_ms=3000)
    for name in ("old", "used", "busy"):
        assert daemon.sandbox(name).clone().status == 200
    assert daemon.sandbox("busy").start_task("sleep 8; echo lived").status == 202
    begun = time.monotonic()
    for name in ("old", "used"):
        assert daemon.post(f"/sandboxes/{name}/stop").status == 204
    assert daemon.sandbox("used").exec("/bin/true")["exitCode"] == 0  # started again in time
    harness.wait_for(lambda: daemon.get("/sandboxes/old").status == 404, 20, "the end of old")
    assert time.monotonic() - begun >= 3
    assert "sandbox=old was stopped for 3 s (stopped_ttl_ms): it is removed" in daemon.log()
    assert daemon.get("/sandboxes/used").json["state"] == "running"
    assert daemon.sandbox("busy").finish(30)["result"] == "lived\n"
    harness.wait_for(lambda: not list((daemon.state / "trash").iterdir()), 30, "an empty trash")
    assert not (daemon.state / "sandboxes/old").exists()
    daemon.close()


def test_a_removal_that_fails_is_told_and_tried_again(make_daemon):
    daemon = make_daemon(default_agent="sh", stopped_ttl_ms=1000)
    trash = daemon.state / "trash"
    harness.wait_for(lambda: not list(trash.iterdir()), 30, "an empty trash")  # of the start
    trash.rmdir()
    assert daemon.call("PUT", "/sandboxes/kept").status == 201
    harness.wait_for(lambda: "sandbox=kept it cannot be removed: " in daemon.log(), 20, "the reason")
    assert daemon.get("/sandboxes/kept").json["state"] == "stopped"
    daemon.stop()
    daemon.start()
    harness.wait_for(lambda: daemon.get("/sandboxes/kept").status == 404, 20, "its end")
    daemon.close()


def test_the_time_goes_on_while_the_daemon_is_away_and_a_clock_put_back_ends_nothing(make_daemon):
    daemon = make_daemon(default_agent="sh", stopped_ttl_ms=600_000)
    for name in ("long-ago", "just-now", "future"):
        assert daemon.call("PUT", f"/sandboxes/{name}").status == 201
    daemon.stop()
    now = int(time.time() * 1000)
    for name, stopped in (("long-ago", now - 700_000), ("future", now + 10 ** 9)):
        path = daemon.state / "sandboxes" / name / "meta.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "stopped_ms": stopped}))
    daemon.start()
    harness.wait_for(lambda: daemon.get("/sandboxes/long-ago").status == 404, 20, "its end")
    assert daemon.get("/sandboxes/just-now").status == 200
    assert now <= daemon.get("/sandboxes/future").json["stopped"] <= time.time() * 1000
    daemon.close()


# -------------------------------------------------------------------------------------- of all


def test_all_are_stopped_and_removed_at_once(make_daemon):
    daemon = make_daemon(default_agent="sh")
    names = [f"all-{i}" for i in range(4)]
    for name in names:
        assert daemon.sandbox(name).clone().status == 200
        # it takes its whole grace: SIGTERM does not end it
        assert daemon.sandbox(name).start_task("trap '' TERM; while :; do sleep 1; done").status == 202
    begun = time.monotonic()
    daemon.cli("stop", "--all")
    assert time.monotonic() - begun < 30, "one after the other takes 40 s"
    assert all(s["state"] == "stopped" for s in daemon.get("/sandboxes").json)
    assert daemon.cli("stop", "--all", "all-1", check=False).returncode == 2
    assert daemon.cli("stop", check=False).returncode == 2
    result = daemon.cli("rm", "nobody", "all-0", check=False)
    assert result.returncode == 1 and b"nobody" in result.stderr
    daemon.cli("rm", "--all")
    assert daemon.get("/sandboxes").json == []
    assert daemon.post("/sandboxes/nobody/stop?wait=0").status == 202
    assert daemon.post("/sandboxes/nobody/stop?wait=1").status == 400
    daemon.close()
