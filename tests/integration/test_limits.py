"""The limits of a sandbox: each is held, and what was hit is told in the task's state, the metrics and the log."""
import concurrent.futures
import re

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
