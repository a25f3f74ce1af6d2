"""What runs out in one sandbox (memory, processes, files, inodes, its log) runs out there alone: its neighbour and
the daemon go on, and so does it, once the attack has ended. Each as the agent and as root of the namespace."""
import contextlib
import re
import threading
import time

import pytest

import harness

MEMORY_MIB, PIDS, DISK_MIB, INODES = 128, 64, 64, 5000


@pytest.fixture(scope="module")
def tight_daemon(make_daemon):
    daemon = make_daemon(default_agent="sh", disk_check_ms=200, limits={
        "memory_mib": MEMORY_MIB, "cpus": 1, "pids": PIDS, "disk_mib": DISK_MIB, "inodes": INODES, "log_mib": 1})
    yield daemon
    harness.wait_for(lambda: not list((daemon.state / "trash").iterdir()), 60, "an empty trash")
    daemon.close()


@pytest.fixture(scope="module")
def neighbour(tight_daemon):
    """A sandbox whose task goes on through all of it."""
    box = tight_daemon.sandbox("neighbour")
    assert box.clone().status == 200
    assert box.start_task("while [ ! -e /workspace/go ]; do sleep 0.1; done; echo unharmed").status == 202
    yield box
    assert box.sh("touch /workspace/go")["exitCode"] == 0
    assert box.finish()["result"] == "unharmed\n"
    assert "limitsHit" not in box.task()
    box.remove()


@pytest.fixture(params=["agent", "root"])
def attacker(tight_daemon, request):
    name = re.sub(r"[^a-z0-9]+", "-", f"{request.node.originalname}-{request.node.callspec.id}".lower())
    box = tight_daemon.sandbox(name[5:60].strip("-"))
    assert box.clone().status == 200
    box.user = request.param
    yield box
    assert box.remove().status == 204


@contextlib.contextmanager
def others_go_on(daemon, neighbour):
    """Meanwhile the neighbour runs programs, and the daemon answers; none waits long."""
    over, slowest, failures = threading.Event(), [], []

    def look():
        while not over.is_set():
            begun = time.monotonic()
            try:
                result = neighbour.exec("/bin/echo", "fine")
                if result["stdout"] != "fine\n" or daemon.get("/healthz").status != 200:
                    failures.append(result)
            except Exception as error:  # told by the one who waits
                failures.append(error)
            slowest.append(time.monotonic() - begun)
            over.wait(0.1)
    watch = threading.Thread(target=look)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()
    assert slowest and not failures, failures
    assert max(slowest) < harness.patient(10), slowest


BOMBS = {
    "shell": "b() { b | b & }; b; sleep 60",
    "new sessions": "exec perl -e 'while (1) { my $p = fork; if (defined $p && !$p) { setpgrp; fork } }'",
    "no signals": "trap '' TERM HUP INT; exec perl -e '$SIG{$_} = \"IGNORE\" for qw(TERM HUP INT); "
                  "while (1) { fork }'"}


def test_d7_a_fork_bomb(tight_daemon, neighbour, attacker, bomb):
    """Its time ends it with all that it started, and then there is room again."""
    with others_go_on(tight_daemon, neighbour):
        result = attacker.sh(BOMBS[bomb], user=attacker.user, timeout_ms=2000)
    assert result["exitCode"] == 124, result
    forks = "my @made; for (1..40) { my $p = fork; die unless defined $p; if (!$p) { sleep 60; exit } push @made, $p } " \
            "kill 9, @made; print 'room'"
    harness.wait_for(lambda: attacker.exec("/usr/bin/perl", "-e", forks)["stdout"] == "room", 20, "room")
    assert re.search(rf"sandbox={attacker.name} has hit its limit of pids", tight_daemon.log())


MEMORY = {
    "one process": "exec perl -e '$x = \"a\" x (1 << 30)'",
    "many processes": "exec perl -e 'for (1..40) { if (!fork) { $x = \"a\" x (32 << 20); sleep 60 } } "
                      "1 while wait > 0'",
    "files in memory": "head -c 60M /dev/zero > /tmp/a; head -c 30M /dev/zero > /dev/shm/b; "
                       "exec perl -e '$x = \"a\" x (64 << 20)'",
    "inodes in memory": "exec perl -e 'for (my $i = 0; ; $i++) { open F, \">\", \"/tmp/$i\" or last } print $!'",
    "pipes": "exec perl -e '$^F = 1 << 20; while (pipe my $r, my $w) { fcntl $w, 1031, 1 << 20; "
             "syswrite $w, \"a\" x (1 << 20); "
             "push @p, $r, $w } sleep 60'"}


def test_memory(tight_daemon, neighbour, attacker, memory):
    with others_go_on(tight_daemon, neighbour):
        attacker.sh(MEMORY[memory], user=attacker.user, timeout_ms=8000)
    assert tight_daemon.post(f"{attacker.path}/stop").status == 204  # its files in memory go with it
    assert attacker.run_task("echo fine")["result"] == "fine\n"


FILES = {
    "bytes": "head -c 1G /dev/zero > $D/big; sleep 60",
    "100,000 small ones": "exec perl -e 'for (1..100000) { open F, \">\", \"$ENV{D}/$_\" } sleep 60'",
    "folders, deep": "exec perl -e 'chdir $ENV{D}; for (1..8000) { mkdir \"a\"; chdir \"a\" } sleep 60'"}


def test_d7_files(tight_daemon, neighbour, attacker, files):
    """In the workspace, and where root alone writes."""
    place = "/workspace" if attacker.user == "agent" else "/opt"
    with others_go_on(tight_daemon, neighbour):
        result = attacker.sh(f"export D={place}; {FILES[files]}", user=attacker.user, timeout_ms=60_000)
    assert result["exitCode"] in (137, 143) and "The sandbox was stopped" in result["stderr"], result
    assert attacker.start_task("true").status == 409
    assert tight_daemon.get(neighbour.path).json["state"] == "running"


def test_d7_a_file_of_endless_output(tight_daemon, neighbour):
    box = tight_daemon.sandbox("endless")
    assert box.clone().status == 200
    with others_go_on(tight_daemon, neighbour):
        assert tight_daemon.post(f"{box.path}/task?deadline_ms=3000", "yes & yes >&2").status == 202
        found = box.finish(60)
    assert found["limitsHit"] == ["log", "deadline"] and found["logCut"], found
    folder = tight_daemon.state / "sandboxes" / box.name / "task"
    for name in ("stdout.log", "stderr.log"):
        assert 1 << 20 <= (folder / name).stat().st_size < (1 << 20) + 100
    box.remove()


def pytest_generate_tests(metafunc):
    for name, table in (("bomb", BOMBS), ("memory", MEMORY), ("files", FILES)):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, table)
