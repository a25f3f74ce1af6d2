"""The limits of a sandbox: each is held, and what was hit is told in the task's state, the metrics and the log."""
import concurrent.futures
import json
import re
import subprocess

import pytest

import harness


@pytest.fixture(scope="module")
def box_daemon(make_daemon):
    daemon = make_daemon(default_agent="sh", limits={"memory_mib": 128, "pids": 40, "open_files": 100, "log_mib": 1})
    yield daemon
    daemon.close()


@pytest.fixture(scope="module")
def box(box_daemon):
    box = box_daemon.sandbox("limited")
    assert box.clone().status == 200
    return box


def count(daemon, limit):
    return int(re.search(rf'^paddock_limit_hits_total{{limit="{limit}"}} (\d+)$', daemon.get("/metrics").text,
                         re.M).group(1))


def lines(daemon, limit):
    return len(re.findall(rf" warn .*sandbox=\S+ has hit its limit of {limit} \(", daemon.log()))


@pytest.fixture
def told(box_daemon):
    """Called with a limit: that since the test's begin it was counted, and is in the log, once."""
    names = ("memory", "pids", "disk", "log", "deadline")
    before = {name: (count(box_daemon, name), lines(box_daemon, name)) for name in names}

    def check(*limits):
        for name in names:
            now = count(box_daemon, name), lines(box_daemon, name)
            more = 1 if name in limits else 0
            assert now == (before[name][0] + more, before[name][1] + more), (name, now, before)
    return check


FORKS = """my @made; for (1..100) { my $pid = fork; last unless defined $pid;
if (!$pid) { sleep 60; exit } push @made, $pid } kill 9, @made; waitpid $_, 0 for @made; exit(@made < 100 ? 7 : 0)"""


def test_a_task_that_hits_nothing_tells_none(box, told):
    state = box.run_task("exit 3")
    assert state["state"] == "failed" and "limitsHit" not in state, state
    assert "limit" not in state["error"]
    told()


@pytest.mark.parametrize("script, state, error", [
    ("exec perl -e '$x = \"x\" x (300 << 20)'", "failed", "ran out of memory: the sandbox's limit is 128 MiB"),
    ("perl -e '$x = \"x\" x (300 << 20)' || exit 5", "failed", "ran out of memory meanwhile: its limit is 128 MiB"),
    ("perl -e '$x = \"x\" x (300 << 20)'; echo fine", "succeeded", None)])
def test_memory(box, told, script, state, error):
    found = box.run_task(script)
    assert found["state"] == state and found["limitsHit"] == ["memory"] and found["oomKills"] == 1, found
    assert error is None or error in found["error"], found
    told("memory")


def test_processes(box, told):
    found = box.run_task(f"exec perl -e '{FORKS}'")
    assert found["exitCode"] == 7 and found["limitsHit"] == ["pids"], found
    assert "came to its limit of processes meanwhile (limits.pids)" in found["error"]
    told("pids")


def test_processes_that_are_refused_before_init_has_looked_around(box, told):
    """The counts from before the task are read before it is started."""
    with subprocess.Popen(["strace", "-p", str(box.init_pid()), "-e", "trace=pread64", "-e",
                           "inject=pread64:delay_enter=500000"], stderr=subprocess.PIPE, text=True) as slow:
        try:
            assert "attached" in slow.stderr.readline()
            found = box.run_task(f"exec perl -e '{FORKS}'")
        finally:
            slow.terminate()
            slow.communicate()
    assert found["exitCode"] == 7 and found["limitsHit"] == ["pids"], found
    told("pids")


def test_an_exec_is_told_too(box, told):
    result = box.exec("/usr/bin/perl", "-e", FORKS)
    assert result["exitCode"] == 7 and "paddock: the sandbox came to its limit of processes" in result["stderr"]
    told("pids")
    result = box.exec("/usr/bin/perl", "-e", '$x = "x" x (300 << 20)')
    assert result["exitCode"] == 137, result
    assert "paddock: the sandbox ran out of memory: its limit is 128 MiB" in result["stderr"]
    told("pids", "memory")
    assert box.exec("/bin/sleep", "60", timeout_ms=100)["exitCode"] == 124
    told("pids", "memory", "deadline")


def test_a_deadline(box, told):
    assert box.daemon.post(f"{box.path}/task?deadline_ms=200", "sleep 60").status == 202
    found = box.finish()
    assert found["end"] == "deadline" and found["limitsHit"] == ["deadline"], found
    told("deadline")


def test_logs(box, told):
    found = box.run_task("head -c 3000000 /dev/zero | tr '\\0' a; echo whole >&2; exit 4")
    assert found["logCut"] is True and found["limitsHit"] == ["log"] and "whole" in found["error"], found
    log = box.daemon.get(f"{box.path}/task/log").body
    mark = b"\n[paddock: the log ends here, the rest was dropped]\n"
    assert log == b"a" * (1 << 20) + mark, (len(log), log[-80:])
    assert box.daemon.get(f"{box.path}/task/log?stream=stderr").body == b"whole\n"
    told("log")


@pytest.mark.parametrize("user", ["agent", "root"])
def test_open_files(box, user):
    script = "ulimit -Sn; ulimit -Hn; ulimit -n 101 2>&1 || echo refused"
    assert box.sh(script, user=user)["stdout"].split("\n")[:2] == ["100", "100"]
    assert "refused" in box.sh(script, user=user)["stdout"]
    opened = box.exec("/usr/bin/perl", "-e", "my @f; while (open my $f, '<', '/dev/null') { push @f, $f } print \"$!\"",
                      user=user)
    assert opened["stdout"] == "Too many open files", opened
    if user == "agent":
        assert box.run_task("ulimit -Sn; ulimit -Hn")["result"] == "100\n100\n"


def test_the_limit_of_open_files_is_not_that_of_init(make_daemon):
    """It keeps a descriptor for each program that it may have to end."""
    daemon = make_daemon(default_agent="sh", limits={"open_files": 64})
    box = daemon.sandbox("many")
    assert box.exec("/bin/true")["exitCode"] == 0
    with concurrent.futures.ThreadPoolExecutor(80) as pool:
        runs = [pool.submit(box.sh, "touch /tmp/up.$$; while [ ! -e /tmp/go ]; do sleep 1; done", timeout_ms=120_000)
                for _ in range(80)]
        harness.wait_for(lambda: box.sh("ls /tmp/up.* | wc -l")["stdout"] == "80\n", 60, "all of them")
        box.sh("touch /tmp/go")
        assert [run.result()["exitCode"] for run in runs] == [0] * 80
    daemon.close()


# ------------------------------------------------------------------------------- files on the disk


@pytest.fixture(scope="module")
def disk_box_daemon(make_daemon):
    daemon = make_daemon(default_agent="sh", limits={"disk_mib": 200, "inodes": 20000}, disk_check_ms=200,
                         sizes={"tiny": {"disk_mib": 16, "inodes": 1024}})
    yield daemon
    daemon.close()


def cloned(daemon, name, **settings):
    box = daemon.sandbox(name)
    if settings:
        assert daemon.call("PUT", box.path, settings).status == 201
    assert box.clone().status == 200
    return box


FILES = {
    "bytes": ("head -c 260M /dev/zero > /workspace/big; sleep 60", "rm -r /workspace/big", "limits.disk_mib"),
    "many small ones": ("exec perl -e 'mkdir \"/workspace/many\"; for (1..25000) { open F, \">\", "
                        "\"/workspace/many/$_\" } sleep 60'", "rm -r /workspace/many", "limits.inodes"),
    "changed in the image": ("head -c 260M /dev/zero > $HOME/big; sleep 60", "rm -r /home/agent/big",
                             "limits.disk_mib")}


@pytest.mark.parametrize("kind", FILES)
def test_files_of_a_task(disk_box_daemon, kind):
    """The writer is stopped and says so; tasks and clones wait until there is room; the others go on."""
    daemon = disk_box_daemon
    write, free, key = FILES[kind]
    before = count(daemon, "disk")
    other = cloned(daemon, f"beside-{len(kind)}")
    assert other.start_task("while [ ! -e /workspace/go ]; do sleep 0.1; done; echo went on").status == 202
    box = cloned(daemon, f"writer-{len(kind)}")
    assert box.start_task(write).status == 202
    found = box.finish(60)
    assert found["state"] == "failed" and found["end"] == "disk-limit" and found["limitsHit"] == ["disk"], found
    assert "over its limit of files (limits.disk_mib, limits.inodes)" in found["error"], found
    harness.wait_for(lambda: daemon.get(box.path).json["state"] == "stopped", 20, "its end")
    assert daemon.get(box.path).json["overDisk"] is True and box.meta()["over_disk"] is True
    assert count(daemon, "disk") == before + 1
    assert re.search(rf"sandbox={box.name} is stopped: it.* its limit is .*\({key}\)", daemon.log())
    for refused in (box.start_task("true"), box.clone()):
        assert refused.status == 409 and key in refused.text and "Delete some" in refused.text, refused.text
    assert daemon.get(box.path).json["state"] == "stopped", "its refusals started nothing"
    assert box.sh(free)["exitCode"] == 0
    assert box.run_task("echo again")["result"] == "again\n"
    assert "overDisk" not in daemon.get(box.path).json and "over_disk" not in box.meta()
    assert other.sh("touch /workspace/go")["exitCode"] == 0 and other.finish()["result"] == "went on\n"
    for one in (box, other):
        one.remove()


@pytest.mark.parametrize("user", ["agent", "root"])
def test_files_of_an_exec(disk_box_daemon, user):
    box = cloned(disk_box_daemon, f"exec-{user}")
    before = count(disk_box_daemon, "disk")
    result = box.sh("trap '' TERM; head -c 260M /dev/zero > /workspace/big; while :; do sleep 1; done", user=user,
                    timeout_ms=60_000)
    assert result["exitCode"] != 0 and "limits.disk_mib" in result["stderr"], result
    assert count(disk_box_daemon, "disk") == before + 1
    box.remove()


def test_a_sandbox_over_its_limit_may_be_tidied_but_not_filled(disk_box_daemon):
    box = cloned(disk_box_daemon, "tidied")
    box.sh("head -c 260M /dev/zero > /workspace/big; sleep 60", timeout_ms=60_000)
    before = count(disk_box_daemon, "disk")
    kept = box.sh("sleep 2; wc -c < /workspace/big")
    assert int(kept["stdout"]) > 200 << 20, "nothing was deleted, and a program may look"
    assert count(disk_box_daemon, "disk") == before
    more = box.sh("head -c 100M /dev/zero > /workspace/more; sleep 60", timeout_ms=60_000)
    assert more["exitCode"] != 0 and "limits.disk_mib" in more["stderr"], more
    assert count(disk_box_daemon, "disk") == before + 1
    box.remove()


def test_a_size_limits_files_and_what_is_in_force_is_told(disk_box_daemon):
    box = cloned(disk_box_daemon, "sized", size="tiny")
    shown = disk_box_daemon.get(box.path).json["limitsInForce"]
    assert shown == {"memory_mib": 4096, "cpus": 2, "pids": 1024, "disk_mib": 16, "inodes": 1024}
    found = box.run_task("head -c 40M /dev/zero > /workspace/big; sleep 60")
    assert found["end"] == "disk-limit", found
    refused = box.start_task("true")
    assert refused.status == 409 and "its limit is 16 MiB" in refused.text
    assert disk_box_daemon.call("PATCH", box.path, {"size": None}).status == 200
    assert box.run_task("echo larger now")["result"] == "larger now\n"
    box.remove()


def test_hard_links_count_once_and_deep_trees_are_counted(disk_box_daemon):
    box = cloned(disk_box_daemon, "linked")
    found = box.run_task("head -c 60M /dev/zero > /workspace/a; for i in $(seq 100); do ln /workspace/a /workspace/a$i; "
                         "done; exec perl -e 'for (1..2000) { mkdir \"b\" x 100; chdir \"b\" x 100 } print \"deep\"'")
    assert found["result"] == "deep", found
    assert "overDisk" not in disk_box_daemon.get(box.path).json
    box.remove()


def test_what_is_over_its_limit_stays_so_under_the_next_daemon(make_daemon):
    daemon = make_daemon(default_agent="sh", limits={"disk_mib": 64}, disk_check_ms=200)
    box = cloned(daemon, "stays")
    running = cloned(daemon, "adopted")
    assert box.run_task("head -c 100M /dev/zero > /workspace/big; sleep 60")["end"] == "disk-limit"
    assert running.start_task("while [ ! -e /workspace/go ]; do sleep 0.1; done; head -c 100M /dev/zero "
                              "> /workspace/big; sleep 60").status == 202
    daemon.kill()
    daemon.start()
    assert daemon.get(box.path).json["overDisk"] is True
    refused = box.start_task("true")
    assert refused.status == 409 and "its files take" in refused.text, refused.text
    assert running.sh("touch /workspace/go")["exitCode"] == 0
    assert running.finish(60)["end"] == "disk-limit"
    daemon.close()


@pytest.mark.parametrize("is_on_record", [False, True])
def test_a_task_that_is_over_a_limit_is_ended_by_the_next_daemon(make_daemon, is_on_record):
    """The limit is new, or a former daemon died before it could stop the sandbox."""
    daemon = make_daemon(default_agent="sh", limits={"disk_mib": 0}, disk_check_ms=200)
    box = cloned(daemon, "over")
    assert box.start_task("head -c 100M /dev/zero > /workspace/big; touch /workspace/written; sleep 600").status == 202
    assert box.sh("until [ -e /workspace/written ]; do sleep 0.1; done", timeout_ms=60_000)["exitCode"] == 0
    daemon.kill()
    path = daemon.state / "sandboxes" / box.name / "meta.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "over_disk": is_on_record}))
    daemon.config["limits"] = {"disk_mib": 64}
    daemon.start()
    assert box.finish(60)["end"] == "disk-limit"
    daemon.close()


def test_a_sandbox_has_limits_of_files_of_its_own(disk_box_daemon):
    """Set while it runs: they need no new start."""
    box = cloned(disk_box_daemon, "own", limits={"disk_mib": 32, "inodes": 2000})
    assert disk_box_daemon.get(box.path).json["limits"] == {"disk_mib": 32, "inodes": 2000}
    init = box.init_pid()
    disk_box_daemon.cli("set", "own", "--disk", "48", "--inodes", "3000")
    shown = disk_box_daemon.get(box.path).json
    assert shown["limitsInForce"]["disk_mib"] == 48 and shown["limitsInForce"]["inodes"] == 3000
    assert box.meta()["limits"] == {"disk_mib": 48, "inodes": 3000} and box.init_pid() == init
    for limits, text in (({"disk_mib": 201}, "limits.disk_mib must be from 16 to 200"),
                         ({"inodes": 1023}, "limits.inodes must be from 1024 to 20000")):
        refused = disk_box_daemon.call("PATCH", box.path, {"limits": limits})
        assert refused.status == 400 and text in refused.text, refused.text
    found = box.run_task("head -c 100M /dev/zero > /workspace/big; sleep 60")
    assert found["end"] == "disk-limit", found
    assert "its limit is 48 MiB" in box.start_task("true").text
    disk_box_daemon.cli("set", "own", "--disk", "0", "--inodes", "0")
    assert "limits" not in box.meta()
    assert box.run_task("echo room")["result"] == "room\n"
    box.remove()


def test_while_no_ids_are_free_for_a_count_it_is_told_and_made_up_for(make_daemon):
    daemon = make_daemon(default_agent="sh", limits={"disk_mib": 64}, disk_check_ms=200, ids={"count": 4 * 65536})
    box = cloned(daemon, "counted")
    others = [daemon.sandbox(f"takes-{number}") for number in range(2)]
    assert all(other.exec("/bin/true")["exitCode"] == 0 for other in others)
    assert box.start_task("head -c 100M /dev/zero > /workspace/big; sleep 600").status == 202
    harness.wait_for(lambda: "sandbox=counted its files cannot be counted: " in daemon.log(), 20, "the reason")
    assert box.task()["state"] == "running"
    assert daemon.post(f"{others[0].path}/stop").status == 204
    assert box.finish(60)["end"] == "disk-limit"
    assert daemon.log().count("its files cannot be counted") == 1
    daemon.close()
