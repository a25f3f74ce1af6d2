"""A host whose systemd has v1 hierarchies alone: limits go there, and killing goes through a v2 tree that
the supervisor mounts for itself."""
import json
import pathlib

import pytest

import harness

MIB = 1 << 20


def hierarchy(controller):
    """Where the v1 hierarchy of the controller is mounted."""
    for line in pathlib.Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup" and controller in options.split(","):
            return pathlib.Path(place)
    raise AssertionError(f"no hierarchy of {controller}")


@pytest.fixture(scope="module")
def limited(make_daemon):
    return make_daemon(default_agent="sh", limits={"memory_mib": 64, "cpus": 1.5, "pids": 64})


@pytest.fixture
def box(limited, request):
    sandbox = limited.sandbox(request.node.name.replace("_", "-")[:60].strip("-"))
    assert sandbox.clone().status == 200
    yield sandbox
    sandbox.remove()


def test_no_v2_tree_is_mounted_and_doctor_finds_all_limits(limited):
    assert "cgroup2" not in pathlib.Path("/proc/self/mounts").read_text()
    result = harness.run(harness.BIN / "paddockd", "--config", limited.folder / "config.json",
                         "--doctor", "--json", check=False)
    found = {finding["name"]: finding for finding in json.loads(result.stdout)["findings"]}
    assert found["cgroups"]["level"] == "ok", found["cgroups"]
    assert "memory, cpu and pids are limited" in found["cgroups"]["text"]


def test_limits_are_set_in_the_v1_hierarchies(limited, box):
    pid = str(box.init_pid())
    for controller, file, value in (("memory", "memory.limit_in_bytes", 64 * MIB),
                                    ("cpu", "cpu.cfs_quota_us", 150000), ("pids", "pids.max", 64)):
        group = hierarchy(controller) / limited.cgroup_name() / box.group_name()
        assert (group / file).read_text().strip() == str(value)
        assert pid in (group / "tasks").read_text().split()


def test_a_task_out_of_memory_says_so(box):
    state = box.run_task("exec perl -e '$x = \"a\" x (512 << 20)'")
    assert state["state"] == "failed" and "ran out of memory" in state["error"], state
    assert box.run_task("echo fine")["state"] == "succeeded"


def sleepers(box):
    """How many processes of the sandbox are sleep(1)."""
    count = "print scalar grep { /^sleep/ } map { open F, $_; <F> } glob '/proc/[0-9]*/comm'"
    return int(box.exec("/usr/bin/perl", "-e", count)["stdout"])


def test_a_cancel_ends_what_left_its_session(box):
    assert box.start_task("setsid sleep 999 & sleep 999").status == 202
    harness.wait_for(lambda: sleepers(box) == 2, 20, "the task's processes")
    assert box.daemon.call("DELETE", f"{box.path}/task").status in (200, 202, 204)
    assert "cancelled" in box.finish()["error"]
    assert sleepers(box) == 0
