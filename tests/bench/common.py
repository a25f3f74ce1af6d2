"""What the benches share: rows with their bars, a daemon of their own, cpu and memory of processes."""
import contextlib
import json
import os
import pathlib
import shutil
import statistics

import harness

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROBE = "usr/local/bin/paddock-probe"
VARS = {"AI_GATEWAY_ACCOUNT_ID": "bench", "AI_GATEWAY_ID": "default", "MODEL": "bench"}


class Rows:
    """Prints `name<TAB>ours<TAB>peer<TAB>ratio<TAB>bar<TAB>ok|MISSED`; ratio: ours divided by the peer's."""

    def __init__(self):
        self.missed = []

    def add(self, name, ours, peer, bar=None, unit=""):
        """`bar`: (least, None) or (None, most) of the ratio; None: it is only told."""
        ratio = ours / peer if peer else float("inf")
        least, most = bar or (None, None)
        good = (least is None or ratio >= least) and (most is None or ratio <= most)
        text = "-" if not bar else f">= {least}" if least is not None else f"<= {most}"
        print(f"{name}\t{ours:.4g}{unit}\t{peer:.4g}{unit}\t{ratio:.3f}\t{text}\t"
              f"{'-' if not bar else 'ok' if good else 'MISSED'}", flush=True)
        if not good:
            self.missed.append(name)
        return ratio

    def end(self):
        for name in self.missed:
            print(f"# missed its bar: {name}")
        return not self.missed


def percentile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def median_of(results, key):
    return statistics.median(result[key] for result in results)


def build(*targets):
    harness.run("ninja", "-C", harness.BUILD, *targets)


def image_with_probe(folder):
    """An image store whose image `bench` is the claude image and the probe; the image is built with
    the product's own build unless PADDOCK_TEST_IMAGES names a store that has it."""
    store = os.environ.get("PADDOCK_TEST_IMAGES")
    if not store or not pathlib.Path(store, "claude/image.json").exists():
        builder = harness.Daemon(folder / "builder", harness.HostNetwork(), {
            "recipes_dir": str(ROOT / "images"), "policy": str(ROOT / "policy/default.json")}).start()
        try:
            builder.cli("image", "build", "claude", timeout=900)
        finally:
            builder.stop()
        store = builder.state / "images"
    images = folder / "images"
    images.mkdir()
    harness.run("cp", "-al", f"{store}/claude", images / "bench")
    info = json.loads((images / "bench/image.json").read_text())
    (images / "bench/image.json").unlink()
    (images / "bench/image.json").write_text(json.dumps({**info, "name": "bench"}))
    shutil.copy(harness.BUILD / "tests/bench/bench_probe", images / "bench/rootfs" / PROBE)
    os.chmod(images / "bench/rootfs" / PROBE, 0o755)
    return images


@contextlib.contextmanager
def daemon_for(folder, rules=(), files=()):
    """A daemon in a namespace of its own with the image `bench` and an agent that is never used."""
    namespace = harness.Namespace()
    recipes = folder / "recipes"
    (recipes / "bench").mkdir(parents=True)
    (recipes / "bench/agent.json").write_text(json.dumps({
        "image": "bench", "command": ["/bin/true", "${PROMPT}"], "env": {}, "outcome": "exit-code"}))
    policy = folder / "policy"
    policy.mkdir()
    for path in files:
        shutil.copy(path, policy)
    (policy / "bench.json").write_text(json.dumps({"rules": list(rules)}))
    daemon = harness.Daemon(folder / "daemon", namespace, {
        "default_agent": "bench", "recipes_dir": str(recipes), "policy": str(policy / "bench.json"),
        "vars": VARS}, image_store=image_with_probe(folder))
    try:
        yield daemon.start(), namespace
    finally:
        daemon.close()
        namespace.close()


def processes(pid):
    """A process and all beneath it."""
    found, queue = [], [pid]
    while queue:
        found.append(queue.pop())
        queue.extend(harness.children_of(found[-1]))
    return found


def cpu_seconds(pid):
    """utime + stime of a process and all beneath it."""
    total = 0
    for one in processes(pid):
        with contextlib.suppress(FileNotFoundError):
            fields = pathlib.Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def memory_kib(pid):
    """Proportional set size of a process and all beneath it."""
    total = 0
    for one in processes(pid):
        with contextlib.suppress(FileNotFoundError):
            for line in pathlib.Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total
