"""tools/bench density: a thousand idle sandboxes, each of which has answered one exec and one request
over HTTPS; beside a thousand of bubblewrap with sleep(1)."""
import concurrent.futures
import contextlib
import os
import pathlib
import statistics
import subprocess
import time

import harness
import tls
from bench import common, egress, peers

IDLE_SECONDS = 180
STARTS = 50
DAEMONS = ("paddock-api", "paddock-egress")


def available_kib():
    """MemAvailable without what could be dropped: proc_sys_vm(5)."""
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))


def start_times(daemon, prefix):
    """Milliseconds from the request to the answer of an exec in a sandbox that is new."""
    times = []
    for i in range(STARTS):
        sandbox = daemon.sandbox(f"{prefix}{i}")
        begun = time.monotonic()
        result = sandbox.exec(f"/{common.PROBE}", "up")
        times.append((time.monotonic() - begun) * 1000)
        assert result["exitCode"] == 0 and result["stdout"].startswith("up "), result
        assert sandbox.remove().status == 204  # its ids are free again
    return times


def own_cpu_seconds(pids):
    total = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def leftovers(daemon):
    """What is still there of sandboxes: processes, groups, folders, mounts."""
    trees = [tree for tree in pathlib.Path("/sys/fs/cgroup").iterdir() if tree.is_dir()]
    try:
        groups = [path for tree in trees for path in tree.glob(f"**/{daemon.cgroup_name()}/*/")]
    except FileNotFoundError as gone:  # while they were looked for
        groups = [gone]
    inits = [pid for pid in filter(str.isdigit, os.listdir("/proc")) if comm(pid) == "paddock-init"]
    folders = list((daemon.state / "sandboxes").iterdir()) + list((daemon.state / "trash").iterdir())
    mounts = [line for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
              if str(daemon.state) in line]
    return groups + inits + folders + mounts


def comm(pid):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def fill(bench, count):
    def one(number):
        way = bench.way_of(bench.daemon.sandbox(f"idle{number}"))
        result = way.client("load", "https://bench.test/", 1, 1)
        assert result["connections"] == 1, result
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(one, range(count)))


def bubblewraps(rootfs, count):
    """Memory of as many, in KiB."""
    command = ["bwrap", "--unshare-all", "--ro-bind", str(rootfs), "/", "--tmpfs", "/tmp", "--proc", "/proc",
               "--dev", "/dev", "/bin/sleep", "3600"]
    print("# peer: " + " ".join(command).replace(str(rootfs), "ROOTFS"))
    before = available_kib()
    running = [subprocess.Popen(command) for _ in range(count)]
    try:
        harness.wait_for(lambda: sum(comm(pid) == "sleep" for pid in filter(str.isdigit, os.listdir("/proc")))
                         >= count, 120, "all of them")
        return before - available_kib()
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()


def run(folder, count):
    common.build("tests/bench/bench_client", "tests/bench/bench_origin", "tests/bench/bench_probe")
    ca, leaf = tls.make_certificates(str(folder), peers.HOSTS, "server")
    rows = common.Rows()
    with common.daemon_for(folder, egress.rules(), [ca]) as (daemon, namespace):
        farm = peers.Peers(folder, namespace, ca, leaf)
        daemon.stop()
        before = available_kib()
        daemon.start()
        with farm.origin():
            bench = egress.Bench(folder, daemon, namespace, farm, 0)
            alone = start_times(daemon, "alone")
            fill(bench, count)
            ours = before - available_kib()
            among = start_times(daemon, "among")
            pids = [daemon.process.pid, *map(daemon.pid_of, DAEMONS)]
            cpu = own_cpu_seconds(pids)
            time.sleep(IDLE_SECONDS)  # what is measured
            cpu = own_cpu_seconds(pids) - cpu
            begun = time.monotonic()
            daemon.cli("rm", "--all", timeout=600)
            harness.wait_for(lambda: not leftovers(daemon), 120, "the end of what is left")
            removed = time.monotonic() - begun
        theirs = bubblewraps(daemon.state / "images/bench/rootfs", count)
    rows.add(f"memory of each of {count} idle sandboxes, bwrap with sleep", ours / count / 1024,
             theirs / count / 1024, (None, 1.0), " MiB")
    rows.add(f"memory of each of {count} idle sandboxes, absolute", ours / count / 1024, 0.7, (None, 1.0), " MiB")
    rows.add(f"start p50 beside {count}, alone", statistics.median(among), statistics.median(alone),
             (None, 1.2), " ms")
    rows.add(f"cpu of supervisor, api and egress beside {count} idle, of one core", cpu / IDLE_SECONDS * 100, 0.2,
             (None, 1.0), " %")
    print(f"# {count} stopped and removed in {removed:.1f} s; no process, group, folder or mount is left")
    return rows.end()
