"""A8: a clone of a repository with a pack over 100 MB completes, and the memory of egress stays flat."""
import os
import pathlib
import re

import pytest

import gitserver
import harness

MIB = 1 << 20
SMALL, LARGE = "https://github.com/acme/small", "https://github.com/acme/large"


@pytest.fixture(scope="module")
def daemon(make_daemon, demo):
    for name, count in (("acme/small", 1), ("acme/large", 110)):
        gitserver.make_repository(f"{demo.folder}/repositories", name, {
            f"file{i}": os.urandom(MIB) for i in range(count)})  # they do not compress
    return make_daemon(default_agent="sh")


def peak_kib(pid, work):
    """The most memory that the process has had while work() ran: clear_refs in proc(5)."""
    pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
    work()
    return int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1])


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])
def test_a8_a_clone_of_a_pack_over_100_mb_leaves_egress_small(daemon, version):
    box = daemon.sandbox("large-" + re.sub(r"\W", "-", version.lower()))
    pid = daemon.pid_of("paddock-egress")

    def clone(url):
        result = box.sh(f"git -c http.version={version} clone -q {url} /workspace/x && "
                        "cd /workspace/x && git fsck && git count-objects -v && rm -rf /workspace/x")
        assert result["exitCode"] == 0, result
        return int(re.search(r"size-pack: (\d+)", result["stdout"])[1]) * 1024

    sizes = []
    before = peak_kib(pid, lambda: sizes.append(clone(SMALL)))
    after = peak_kib(pid, lambda: sizes.append(clone(LARGE)))
    assert sizes[0] < 2 * MIB and sizes[1] > 100e6, sizes
    assert after < before + 4096, (before, after)
    line = harness.wait_for(lambda: [line for line in daemon.get(f"{box.path}/egress?limit=1000").json
                                     if line["path"] == "/acme/large/git-upload-pack" and
                                     line["bytes_in"] > 100e6], 10, "its line of the audit")[-1]
    assert line["protocol"] == {"HTTP/1.1": "http/1.1", "HTTP/2": "h2"}[version], line
    box.remove()
