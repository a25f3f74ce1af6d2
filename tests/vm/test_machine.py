"""What is otherwise only in the machine of tools/vm-test: limits in a pure v2 tree."""
import os
import pathlib

import pytest

import harness

MIB = 1 << 20
GROUPS = pathlib.Path("/sys/fs/cgroup")


def mounts():
    """[(place, file system, options)]"""
    lines = pathlib.Path("/proc/self/mounts").read_text().splitlines()
    return [tuple(line.split()[1:4]) for line in lines]


def test_there_is_one_tree_of_groups():
    assert [place for place, kind, _ in mounts() if kind.startswith("cgroup")] == [str(GROUPS)]
    assert "nsdelegate" in next(options for place, _, options in mounts() if place == str(GROUPS))


def test_doctor_finds_nothing_to_mend_in_kernel_groups_and_ids(sh_daemon):
    findings = {finding["name"]: finding for finding in doctor(sh_daemon)}
    for name in ("kernel", "user-namespaces", "idmapped-mounts", "overlay", "cgroups", "ipv6"):
        assert findings[name]["level"] == "ok", findings[name]
    assert findings["cgroups"]["text"] == "control groups: v2, memory, cpu and pids are limited"


def doctor(daemon):
    import json
    result = harness.run(harness.BIN / "paddockd", "--config", daemon.folder / "config.json",
                         "--doctor", "--json", check=False)
    return json.loads(result.stdout)["findings"]


@pytest.fixture(scope="module")
def limited(make_daemon):
    return make_daemon(default_agent="sh", limits={"memory_mib": 64, "cpus": 1.5, "pids": 64})


def test_limits_are_set_at_the_group_of_the_sandbox(limited):
    sandbox = limited.sandbox("limits")
    sandbox.exec("/bin/true")
    group = GROUPS / limited.cgroup_name() / sandbox.group_name()
    values = {name: (group / name).read_text().strip()
              for name in ("memory.max", "memory.swap.max", "cpu.max", "pids.max")}
    assert values == {"memory.max": str(64 * MIB), "memory.swap.max": "0",
                      "cpu.max": "150000 100000", "pids.max": "64"}
    assert not (group / "cgroup.procs").read_text()
    assert str(sandbox.init_pid()) in (group / "init/cgroup.procs").read_text().split()


def test_a_task_out_of_memory_says_so_and_the_sandbox_lives(limited):
    sandbox = limited.sandbox("memory")
    assert sandbox.clone().status == 200
    boot_id = sandbox.exec("/bin/cat", "/proc/sys/kernel/random/boot_id")["stdout"]
    state = sandbox.run_task("exec perl -e '$x = \"a\" x (512 << 20)'")
    assert state["state"] == "failed" and "memory" in state["error"], state
    again = sandbox.exec("/bin/cat", "/proc/sys/kernel/random/boot_id")["stdout"]
    assert again == boot_id and sandbox.run_task("echo fine")["state"] == "succeeded"


def test_no_more_processes_than_the_limit(limited):
    sandbox = limited.sandbox("pids")
    forks = sandbox.sh("for i in $(seq 200); do sleep 600 & done; kill $(jobs -p)")
    assert "fork" in forks["stderr"], forks
    events = (GROUPS / limited.cgroup_name() / sandbox.group_name() / "pids.events").read_text()
    assert int(events.split()[1]) > 0


def test_a_sandbox_gets_its_share_of_the_processor_and_no_more(limited):
    sandbox = limited.sandbox("cpu")
    spin = "timeout 10 sh -c 'while :; do :; done' & "
    sandbox.sh(spin * 4 + "wait")
    stat = (GROUPS / limited.cgroup_name() / sandbox.group_name() / "cpu.stat").read_text().split()
    values = dict(zip(stat[::2], map(int, stat[1::2])))
    assert values["nr_throttled"] > 0 and values["usage_usec"] > 1000000, values
