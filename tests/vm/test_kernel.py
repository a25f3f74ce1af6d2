"""The machine of tools/vm-test, whatever the variant."""
import os
import pathlib

import harness


def test_it_is_debians_kernel_and_systemd_on_ext4_without_a_wire(sh_daemon):
    assert os.uname().release.startswith("6.1.0-") and os.uname().release.endswith("-amd64")
    assert pathlib.Path("/proc/1/comm").read_text() == "systemd\n"
    mounts = [line.split() for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
    assert next(kind for _, place, kind, *_ in mounts if place == "/paddock") == "ext4"
    assert os.stat(sh_daemon.state).st_dev == os.stat("/paddock").st_dev
    assert os.listdir("/sys/class/net") == ["lo"]
