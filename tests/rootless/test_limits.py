"""Limits of files in each row of docs/rootless.md, where the daemon watches them as a user; and what is left of the
limits of memory and processes where no control group can be made: a bomb's time ends it, and the others go on."""
import pytest

import harness


@pytest.fixture(scope="module")
def tight(make_user_daemon, row, image_tar):
    daemon = make_user_daemon(row, default_agent="sh", disk_check_ms=200, limits={
        "memory_mib": 128, "pids": 100, "disk_mib": 64, "inodes": 5000})
    daemon.cli("image", "import", "claude", image_tar, timeout=harness.patient(300))
    yield daemon
    daemon.stop()


@pytest.fixture
def box(tight, request):
    yield from harness.fresh_sandbox(tight, request)


@pytest.mark.parametrize("script, key", [
    ("head -c 200M /dev/zero > /workspace/big; sleep 60", "limits.disk_mib"),
    ("exec perl -e 'mkdir \"/workspace/many\"; for (1..20000) { open F, \">\", \"/workspace/many/$_\" } sleep 60'",
     "limits.inodes")], ids=["bytes", "inodes"])
def test_d7_files(tight, box, script, key):
    assert box.clone().status == 200
    assert box.start_task(script).status == 202
    found = box.finish(60)
    assert found["end"] == "disk-limit" and found["limitsHit"] == ["disk"], found
    refused = box.start_task("true")
    assert refused.status == 409 and key in refused.text, refused.text
    assert box.sh("rm -rf /workspace/big /workspace/many")["exitCode"] == 0
    assert box.run_task("echo again")["result"] == "again\n"
    assert tight.get(box.path).json["limitsInForce"]["disk_mib"] == 64


@pytest.mark.parametrize("script", ["b() { b | b & }; b; sleep 60",
                                    "trap '' TERM; exec perl -e '$SIG{TERM} = \"IGNORE\"; while (1) { fork }'",
                                    "exec perl -e 'for (1..20) { fork or last } $x = \"a\" x (20 << 20); sleep 60'"],
                         ids=["fork bomb", "no signals", "memory"])
def test_d7_f4_what_takes_all_it_can_get(tight, box, script):
    other = tight.sandbox("beside")
    assert other.exec("/bin/true")["exitCode"] == 0
    result = box.sh(script, timeout_ms=2000)
    assert result["exitCode"] != 0, result
    assert other.exec("/bin/echo", "fine")["stdout"] == "fine\n"
    harness.wait_for(lambda: box.exec("/bin/echo", "fine")["stdout"] == "fine\n", 20, "room")
    other.remove()
