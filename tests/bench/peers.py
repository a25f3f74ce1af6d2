"""The servers and the peers of the egress bench; their configurations are in peers/."""
import contextlib
import os
import pathlib
import re
import subprocess

import harness
import tls

HERE = pathlib.Path(__file__).resolve().parent
HOSTS = ("bench.test", "*.bench.test", "bulk.test", "git.test")
BODY = "x" * 1024


def version(*argv):
    result = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
    return re.search(r"\d+\.\d+[.\d]*", result.stdout.decode()).group(0)


def versions():
    return {"nginx": version("nginx", "-v"), "squid": version("squid", "-v"),
            "mitmproxy": version("mitmdump", "--version")}


class Peers:
    """What they need in one network namespace: certificates, configurations, running processes."""

    def __init__(self, folder, namespace, ca, leaf):
        self.folder, self.namespace = folder, namespace
        self.values = {"folder": str(folder), "ca": str(ca), "leaf": str(leaf), "body": BODY}
        (folder / "hosts").write_text("".join(f"127.0.0.1 {host}\n" for host in HOSTS if "*" not in host))
        folder.chmod(0o777)  # squid's and nginx's workers write there

    def configuration(self, name):
        text = (HERE / "peers" / name).read_text()
        for key, value in self.values.items():
            text = text.replace(f"@{key}@", value)
        path = self.folder / name
        path.write_text(text)
        return str(path)

    @contextlib.contextmanager
    def process(self, *argv, ready):
        with open(self.folder / f"{os.path.basename(argv[0])}.out", "ab") as out:
            process = subprocess.Popen(self.namespace.argv(*argv), stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=out)
        try:
            harness.wait_for(lambda: process.poll() is not None or self.listens(ready), 30, argv[0])
            assert process.poll() is None, (argv, pathlib.Path(out.name).read_text()[-2000:])
            yield process.pid
        finally:
            process.terminate()
            process.wait(30)

    def listens(self, port):
        output = harness.run(*self.namespace.argv("ss", "-Hltn", f"sport = :{port}")).stdout
        return bool(output.strip())

    def origin(self):
        return self.process("nginx", "-e", "stderr", "-c", self.configuration("origin.conf"), ready=443)

    def bulk_origin(self):
        return self.process(str(harness.BUILD / "tests/bench/bench_origin"), "8444", self.values["leaf"],
                            ready=8444)

    def nginx(self):
        return self.process("nginx", "-e", "stderr", "-c", self.configuration("nginx.conf"), ready=9443)

    def squid(self):
        if not (self.folder / "ssl_db").exists():
            self.squid_ca, _ = tls.make_certificates(str(self.folder), ("unused.test",), "squid")
            (self.folder / "squid-ca-both").write_bytes(
                pathlib.Path(self.squid_ca).read_bytes() + (self.folder / "squid-ca.key").read_bytes())
            harness.run("/usr/lib/squid/security_file_certgen", "-c", "-s", self.folder / "ssl_db", "-M", "16MB")
            harness.run("chown", "-R", "proxy:proxy", self.folder / "ssl_db")
        return self.process("squid", "-N", "-f", self.configuration("squid.conf"), ready=3128)

    def mitmproxy(self):
        """Made to resolve the bench's names by an /etc/hosts of its own."""
        confdir = self.folder / "mitmproxy"
        confdir.mkdir(exist_ok=True)
        self.mitmproxy_ca = str(confdir / "mitmproxy-ca-cert.pem")
        (confdir / "config.yaml").write_text(pathlib.Path(self.configuration("mitmproxy.yaml")).read_text())
        return self.process("unshare", "--mount", "sh", "-c",
                            'mount --bind "$1" /etc/hosts && exec mitmdump --set confdir="$2"', "sh",
                            str(self.folder / "hosts"), str(confdir), ready=3129)
