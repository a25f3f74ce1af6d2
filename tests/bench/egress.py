"""tools/bench egress: the way out of a sandbox beside squid, mitmproxy and nginx.

All in one network namespace (a sandbox's clients in the sandbox's), both legs TLS 1.3 with AES-128-GCM and
P-256 leaves (mitmproxy makes RSA ones), access log on, one header set by each, connections kept.
"""
import contextlib
import json
import os
import statistics
import subprocess

import gitserver
import harness
import tls
from bench import common, peers, svg

GIB = 1 << 30
IDLE_SANDBOXES, IDLE_CONNECTIONS = 40, 250  # LIMIT_EGRESS_CONNECTIONS is 256 of a sandbox


class Way:
    """A way from the client to the server: where it runs, whom it trusts, where it connects, and the
    process whose cost is counted."""

    def __init__(self, name, prefix, ca, options, pid=None):
        self.name, self.prefix, self.ca, self.options, self.pid = name, prefix, ca, options, pid

    def argv(self, mode, url, *numbers, more=()):
        return [*self.prefix, str(harness.BUILD / "tests/bench/bench_client"), mode, url,
                *map(str, numbers), "--ca", str(self.ca), *self.options, *more]

    def client(self, mode, url, *numbers, more=()):
        result = subprocess.run(self.argv(mode, url, *numbers, more=more), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, check=False)
        assert result.returncode == 0, (self.name, mode, url, result.stderr.decode())
        return json.loads(result.stdout)

    def load(self, requests, connections=64):
        before = common.cpu_seconds(self.pid) if self.pid else 0
        result = self.client("load", "https://bench.test/", connections, requests)
        result["cpu"] = common.cpu_seconds(self.pid) - before if self.pid else 0
        result["per_cpu"] = requests / result["cpu"] if result["cpu"] else 0
        return result


class Bench:
    def __init__(self, folder, daemon, namespace, farm, thousands):
        self.folder, self.daemon, self.namespace, self.farm = folder, daemon, namespace, farm
        self.thousands, self.rows = thousands, common.Rows()
        self.outside = namespace.argv()
        self.straight = Way("straight", self.outside, farm.values["ca"], ["--to", "127.0.0.1:443"])
        self.straight_bulk = Way("straight", self.outside, farm.values["ca"], ["--to", "127.0.0.1:8444"])
        self.sandbox = daemon.sandbox("bench")
        self.ours = self.way_of(self.sandbox)

    def way_of(self, sandbox):
        sandbox.exec(f"/{common.PROBE}", "up")
        inside = ["nsenter", f"--net=/proc/{sandbox.init_pid()}/ns/net", "--"]
        return Way("paddock-egress", inside, self.daemon.state / "ca.crt", ["--to", "198.18.0.1:443"],
                   self.daemon.pid_of("paddock-egress"))

    @contextlib.contextmanager
    def nginx(self):
        with self.farm.nginx() as pid:
            yield Way("nginx", self.outside, self.farm.values["ca"], ["--to", "127.0.0.1:9443"], pid)

    @contextlib.contextmanager
    def squid(self):
        with self.farm.squid() as pid:
            yield Way("squid", self.outside, self.farm.squid_ca, ["--proxy", "http://127.0.0.1:3128"], pid)

    @contextlib.contextmanager
    def mitmproxy(self):
        with self.farm.mitmproxy() as pid:
            yield Way("mitmproxy", self.outside, self.farm.mitmproxy_ca,
                      ["--proxy", "http://127.0.0.1:3129"], pid)


def say(way, result):
    print(f"# {way.name}: {result['count']} requests over 64 connections in {result['seconds']:.2f} s, "
          f"{result['connections']} connections made, cpu {result['cpu']:.2f} s, p50 {result['p50_us']} us, "
          f"p99 {result['p99_us']} us", flush=True)


def row_cpu(bench):
    """Requests per cpu second. Each peer is measured alone first, and must reach 80 % of that again."""
    counts = {"squid": bench.thousands * 1000, "nginx": bench.thousands * 1000,
              "mitmproxy": max(1000, bench.thousands * 20)}
    makers = {"squid": bench.squid, "nginx": bench.nginx, "mitmproxy": bench.mitmproxy}
    alone = {}
    for name, make in makers.items():
        with make() as way:
            way.load(1000)
            alone[name] = way.load(counts[name])["per_cpu"]
    results = {}
    with contextlib.ExitStack() as stack:
        ways = [bench.straight, bench.ours, *(stack.enter_context(make()) for make in makers.values())]
        for way in ways:
            way.load(1000)  # connections to the server, certificates
            results[way.name] = way.load(counts.get(way.name, bench.thousands * 1000))
            say(way, results[way.name])
    for name, rate in alone.items():
        share = results[name]["per_cpu"] / rate
        print(f"# {name} alone: {rate:.0f} requests per cpu second; here {share:.2f} of that")
        assert share >= 0.8, f"{name} is held up by the bench"
    ours = results["paddock-egress"]["per_cpu"]
    for name, least in (("squid", 1.5), ("mitmproxy", 10), ("nginx", 0.5)):
        bench.rows.add(f"requests per cpu second, {name}", ours, results[name]["per_cpu"], (least, None))
    svg.bars(common.ROOT / "docs/bench/egress.svg",
             "Keep-alive HTTPS GETs of 1 KiB, 64 connections: requests per CPU second of the proxy",
             {name: result["per_cpu"] for name, result in results.items() if result["per_cpu"]})


def added(results, way, straight, key):
    """What a way adds to the straight one; at least a microsecond, which is what is measured."""
    return max(1, common.median_of(results[way], key) - common.median_of(results[straight], key))


def row_latency(bench):
    with bench.nginx() as nginx:
        ways = (bench.straight, bench.ours, nginx)
        results = {way.name: [] for way in ways}
        for way in ways:
            way.load(500, 1)
        for _ in range(9):
            for way in ways:
                results[way.name].append(way.load(1000, 1))
    for key in ("p50_us", "p99_us"):
        bench.rows.add(f"added latency, one connection, {key[:3]}",
                       added(results, "paddock-egress", "straight", key),
                       added(results, "nginx", "straight", key), (None, 1.5), " us")


def row_fresh(bench):
    """The first request to a new host, beside twice a plain connection, handshake and request."""
    url, results = "https://@.bench.test/", {"straight": [], "paddock-egress": []}
    for _ in range(5):
        for way in (bench.straight, bench.ours):
            results[way.name].append(way.client("fresh", url, 60))
    bench.rows.add("first request to a new host, p50", common.median_of(results["paddock-egress"], "p50_us"),
                   2 * common.median_of(results["straight"], "p50_us"), (None, 1.3), " us")


def row_bulk(bench):
    with bench.nginx() as nginx:
        for mode in ("bulk", "put"):
            for version, more in (("h1", ()), ("h2", ("--http2",))):
                url = f"https://bulk.test/bytes/{GIB}"
                results = {way.name: [way.client(mode, url, GIB, more=more) for _ in range(3)]
                           for way in (bench.ours, nginx)}
                rates = {name: GIB / 1e6 / common.median_of(runs, "seconds") for name, runs in results.items()}
                bench.rows.add(f"1 GiB {'download' if mode == 'bulk' else 'upload'}, {version}",
                               rates["paddock-egress"], rates["nginx"], (0.8, None), " MB/s")


CLONE = """set -e; from=$(date +%s%N); git -c http.curloptResolve="$3" clone -q "$1" "$2"; to=$(date +%s%N)
git -C "$2" count-objects -v | grep -q '^size-pack: 1[0-9]\\{5\\}$'; rm -rf "$2"; echo $(((to - from) / 1000))"""


def row_clone(bench):
    """A clone of 110 files of 1 MiB that do not compress."""
    gitserver.make_repository(f"{bench.folder}/repositories", "acme/large",
                              {f"file{i}": os.urandom(1 << 20) for i in range(110)})
    server = harness.in_namespace(bench.namespace.fd, lambda: gitserver.start(
        str(bench.folder), 8445, bench.farm.values["leaf"]))
    rootfs = bench.daemon.state / "images/bench/rootfs"
    work = bench.folder / "straight"
    work.mkdir()
    peer = bench.namespace.argv(
        "bwrap", "--ro-bind", str(rootfs), "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
        "--bind", str(work), "/mnt", "--ro-bind", bench.farm.values["ca"], "/tmp/ca.pem",
        "--setenv", "GIT_SSL_CAINFO", "/tmp/ca.pem", "--setenv", "HOME", "/tmp", "/bin/bash", "-c", CLONE, "sh",
        "https://git.test:8445/acme/large", "/mnt/clone", "git.test:8445:127.0.0.1")
    times = {"ours": [], "straight": []}
    for _ in range(9):
        times["straight"].append(int(harness.run(*peer).stdout))
        result = bench.sandbox.exec("/bin/bash", "-c", CLONE, "sh", "https://git.test/acme/large",
                                    "/workspace/large", "git.test:443:198.18.0.1")
        assert result["exitCode"] == 0, result
        times["ours"].append(int(result["stdout"]))
    server.shutdown()
    bench.rows.add("git clone of 110 MiB", statistics.median(times["ours"]) / 1e6,
                   statistics.median(times["straight"]) / 1e6, (None, 1.1), " s")


def row_events(bench):
    """3,000 server-sent events, one a millisecond: how much later than straight."""
    url = "https://bulk.test/events/3000/1000"
    with bench.nginx() as nginx:
        ways = (bench.straight_bulk, bench.ours, nginx)
        results = {way.name: [] for way in ways}
        for _ in range(5):
            for way in ways:
                result = way.client("events", url)
                assert result["count"] == 3000, result
                results[way.name].append(result)
    bench.rows.add("added delay of an event, p99", added(results, "paddock-egress", "straight", "p99_us"),
                   added(results, "nginx", "straight", "p99_us"), (None, 1.5), " us")


@contextlib.contextmanager
def idle_clients(ways):
    """Clients that hold their connections."""
    clients = []
    try:
        for way in ways:
            clients.append(subprocess.Popen(way.argv("idle", "https://bench.test/", IDLE_CONNECTIONS),
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            result = json.loads(clients[-1].stdout.readline() or "{}")
            assert result.get("connections") == IDLE_CONNECTIONS, result
        yield
        assert all(client.poll() is None for client in clients)
    finally:
        for client in clients:
            client.stdin.close()
        for client in clients:
            client.wait(60)


def row_idle(bench):
    """Memory (PSS) with 10,000 idle connections that have answered one request each."""
    boxes = [bench.way_of(bench.daemon.sandbox(f"idle{i}")) for i in range(IDLE_SANDBOXES)]
    with idle_clients(boxes):
        ours = common.memory_kib(bench.ours.pid)
    with bench.nginx() as nginx, idle_clients([nginx] * IDLE_SANDBOXES):
        peer = common.memory_kib(nginx.pid)
    for i in range(IDLE_SANDBOXES):
        bench.daemon.call("DELETE", f"/sandboxes/idle{i}")
    bench.rows.add("memory of 10,000 idle connections, nginx", ours / 1024, peer / 1024, (None, 1.2), " MiB")


def row_memory(bench):
    bench.ours.load(10000)
    before = common.memory_kib(bench.ours.pid)
    bench.ours.load(990000)
    bench.rows.add("memory after 1,000,000 requests, after 10,000", common.memory_kib(bench.ours.pid) / 1024,
                   before / 1024, (None, 1.05), " MiB")


ROWS = {"memory": row_memory, "cpu": row_cpu, "latency": row_latency, "fresh": row_fresh, "bulk": row_bulk,
        "clone": row_clone, "events": row_events, "idle": row_idle}


def rules():
    def rule(host, port):
        return {"name": host.replace("*", "any"), "host": host, "upstream": f"127.0.0.1:{port}",
                "upstream_ca": "server-ca.pem", "headers": {"set": {"x-bench": "Bearer secret"}}}
    return [rule("bench.test", 443), rule("*.bench.test", 443), rule("bulk.test", 8444), rule("git.test", 8445)]


def run(folder, rows, thousands):
    """The rows in the order of ROWS, so that memory is read of a process that has done nothing else."""
    common.build("tests/bench/bench_client", "tests/bench/bench_origin", "tests/bench/bench_probe")
    ca, leaf = tls.make_certificates(str(folder), peers.HOSTS, "server")
    print("# peers: " + ", ".join(" ".join(pair) for pair in peers.versions().items()) +
          "; configurations in tests/bench/peers; one worker each")
    with common.daemon_for(folder, rules(), [ca]) as (daemon, namespace):
        farm = peers.Peers(folder, namespace, ca, leaf)
        with farm.origin(), farm.bulk_origin():
            bench = Bench(folder, daemon, namespace, farm, thousands)
            for name in (name for name in ROWS if name in rows):
                ROWS[name](bench)
    return bench.rows.end()
