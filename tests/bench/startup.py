"""tools/bench start: from the request for a new sandbox to its first output, in turn with bubblewrap."""
import statistics
import subprocess

import harness
from bench import common, svg


def run(folder, count):
    common.build("tests/bench/bench_start", "tests/bench/bench_probe")
    with common.daemon_for(folder) as (daemon, _):
        rootfs = daemon.state / "images/bench/rootfs"
        peer = ["bwrap", "--unshare-all", "--ro-bind", str(rootfs), "/", "--tmpfs", "/tmp",
                "--proc", "/proc", "--dev", "/dev"]
        version = harness.run("bwrap", "--version").stdout.decode().strip()
        print(f"# peer: {version}: {' '.join(peer).replace(str(rootfs), 'ROOTFS')} /{common.PROBE} NONCE")
        result = subprocess.run([str(harness.BUILD / "tests/bench/bench_start"), str(daemon.socket),
                                 str(count), "5", *peer], stdout=subprocess.PIPE, check=True)
    lines = result.stdout.decode().split("measured\t0\n")[1].splitlines()
    times = {who: [int(line.split("\t")[1]) / 1000 for line in lines if line.startswith(who + "\t")]
             for who in ("ours", "bwrap")}
    assert len(times["ours"]) == len(times["bwrap"]) == count
    rows = common.Rows()
    rows.add("start p50", statistics.median(times["ours"]), statistics.median(times["bwrap"]),
             (None, 1.0), " ms")
    for part in (90, 99):
        rows.add(f"start p{part}", common.percentile(times["ours"], part / 100),
                 common.percentile(times["bwrap"], part / 100), unit=" ms")
    svg.distributions(common.ROOT / "docs/bench/start.svg",
                      f"Request to first output of a new sandbox, {count} runs each, in turn (ms)", times)
    return rows.end()
