"""tools/bench start: from the request for a new sandbox to its first output, and a program in a running
one; in turn with bubblewrap, runc and nsenter."""
import json
import statistics
import subprocess

import harness
from bench import common, svg

ROUNDS = 7  # of 50 at once


def runc_command(folder, rootfs):
    """runc's own default bundle, over the same root, without a terminal."""
    bundle = folder / "bundle"
    bundle.mkdir()
    harness.run("runc", "spec", "--bundle", bundle)
    path = bundle / "config.json"
    config = json.loads(path.read_text())
    config["process"].update(terminal=False, args=[f"/{common.PROBE}", "runc"])
    config["root"] = {"path": str(rootfs), "readonly": True}
    path.write_text(json.dumps(config))
    return ["runc", "--root", str(folder / "runc"), "run", "--bundle", str(bundle), "{id}"]


def measure(daemon, mode, count, warm_up, **peers):
    """Milliseconds of each, by name."""
    command = [str(harness.BUILD / "tests/bench/bench_start"), mode, str(daemon.socket), str(count), str(warm_up),
               *(f"{name}={' '.join(words)}" for name, words in peers.items())]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode()
    times = {name: [] for name in ("ours", *peers)}
    for line in output.splitlines():
        name, took = line.split("\t")
        times[name].append(int(took) / 1000)
    assert all(len(values) == count for values in times.values()), output
    return times


def run(folder, count):
    common.build("tests/bench/bench_start", "tests/bench/bench_probe")
    rows = common.Rows()
    with common.daemon_for(folder) as (daemon, _):
        rootfs = daemon.state / "images/bench/rootfs"
        running = daemon.sandbox("running")
        assert running.exec("/bin/true")["exitCode"] == 0
        bwrap = ["bwrap", "--unshare-all", "--ro-bind", str(rootfs), "/", "--tmpfs", "/tmp", "--proc", "/proc",
                 "--dev", "/dev", f"/{common.PROBE}", "{nonce}"]
        runc = runc_command(folder, rootfs)
        nsenter = ["nsenter", "--target", str(running.init_pid()), "--all", f"/{common.PROBE}", "{nonce}"]
        for version, words in (("bwrap", bwrap), ("runc", runc), ("nsenter", nsenter)):
            told = harness.run(version, "--version").stdout.decode().splitlines()[0]
            print(f"# peer: {told}: {' '.join(words)}".replace(str(rootfs), "ROOTFS").replace(str(folder), "FOLDER"))
        starts = measure(daemon, "start", count, 5, bwrap=bwrap, runc=runc)
        execs = measure(daemon, "exec", count, 5, nsenter=nsenter)
        many = measure(daemon, "many", ROUNDS, 1, bwrap=bwrap)
    for peer, most in (("bwrap", 0.6), ("runc", 0.12)):
        rows.add(f"start p50, {peer}", statistics.median(starts["ours"]), statistics.median(starts[peer]),
                 (None, most), " ms")
        rows.add(f"start p99, {peer}", common.percentile(starts["ours"], 0.99),
                 common.percentile(starts[peer], 0.99), (None, most), " ms")
    rows.add("exec in a running one p50, nsenter", statistics.median(execs["ours"]),
             statistics.median(execs["nsenter"]), (None, 1.0), " ms")
    rows.add("50 at once, all ready, bwrap", statistics.median(many["ours"]), statistics.median(many["bwrap"]),
             (None, 0.8), " ms")
    svg.distributions(common.ROOT / "docs/bench/start.svg",
                      f"Request to first output of a new sandbox, {count} runs each, in turn (ms)", starts)
    return rows.end()
