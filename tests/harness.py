"""Runs the real daemon, in a network namespace of its own, and talks to it as users do.

Every check here is made against the binaries under PADDOCK_BUILD. The daemon's namespace has
loopback alone: a fault cannot send a packet to a real address. Waiting is always for an event or a
state, with a deadline.
"""
import contextlib
import ctypes
import dataclasses
import http.client
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("PADDOCK_BUILD", ROOT / "build")).resolve()
BIN = BUILD / "src" / "main"
sys.path.insert(0, str(ROOT / "tools" / "demo"))
CLONE_NEWNET = 0x40000000
HELLO = "https://github.com/octocat/Hello-World"
VARS = {"AI_GATEWAY_ACCOUNT_ID": "demo-account", "AI_GATEWAY_ID": "default",
        "MODEL": "claude-sonnet-5"}
SH_AGENT = {"image": "claude", "command": ["/bin/bash", "-c", "${PROMPT}"], "env": {},
            "outcome": "exit-code"}
NUMBERS = itertools.count(1)
DAEMONS = itertools.count()
# What a program of a build with sanitizers says when it fails; init has no words, only a signal.
REPORT = re.compile(rb"==\d+==ERROR: |==\d+==\w+Sanitizer|: runtime error: |its init ended by signal ")


# How many times slower than a usual one the machine is: tools/vm-test says so of its emulated ones.
PATIENCE = float(os.environ.get("PADDOCK_TEST_PATIENCE", "1"))


def patient(seconds):
    """A limit of a test on this machine."""
    return seconds * PATIENCE


def wait_for(predicate, seconds=30, what="condition", interval=0.02):
    """Polls until the predicate is true and returns its value; a failure names what was awaited."""
    seconds = patient(seconds)
    deadline = time.monotonic() + seconds
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(interval)


def run(*argv, check=True, **options):
    return subprocess.run([str(part) for part in argv], check=check, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, **options)


class HostNetwork:
    """In the place of a Namespace where the package registries are needed: the daemon starts no sandbox there."""

    @staticmethod
    def argv(*command):
        return list(command)


class Namespace:
    """A network namespace with loopback alone, held by a descriptor."""

    def __init__(self):
        prefix = os.environ.get("PADDOCK_TEST_NAME", "paddock-test")  # tools/check removes by it
        self.name = f"{prefix}-{os.getpid()}-{time.monotonic_ns() % 1000000}"
        run("ip", "netns", "add", self.name)
        self.path = f"/run/netns/{self.name}"
        self.fd = os.open(self.path, os.O_RDONLY)
        run(*self.argv("ip", "link", "set", "lo", "up"))

    def argv(self, *command):
        return ["nsenter", f"--net={self.path}", "--", *command]

    def close(self):
        os.close(self.fd)
        run("ip", "netns", "del", self.name)


class Mounted:
    """The namespace, for programs that see other files: {where: what}."""

    def __init__(self, namespace, files):
        self.namespace = namespace
        self.script = "".join(f"mount --bind {what} {where} && " for where, what in files.items())

    def argv(self, *command):
        return self.namespace.argv("unshare", "-m", "--", "/bin/sh", "-c", self.script + 'exec "$@"', "sh",
                                   *command)


def in_namespace(fd, work):
    """Runs work() in a thread that is in the network namespace `fd`; sockets made there stay there."""
    result = []

    def body():
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            if libc.setns(fd, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            result.append((True, work()))
        except BaseException as error:  # pylint: disable=broad-except
            result.append((False, error))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    good, value = result[0]
    if not good:
        raise value
    return value


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("paddock", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


@dataclasses.dataclass
class Answer:
    status: int
    headers: dict
    body: bytes

    @property
    def text(self):
        return self.body.decode()

    @property
    def json(self):
        return json.loads(self.body)


def merge_policy(real, upstreams, folder, ca, extra_rules=()):
    """Writes FOLDER/test.json: the shipped policy with the test's servers as upstreams."""
    from policy import read_policy, with_upstreams
    os.makedirs(folder, exist_ok=True)
    shutil.copy(ca, f"{folder}/demo-ca.pem")
    policy = with_upstreams(read_policy(real), upstreams, "demo-ca.pem")
    policy["rules"] = list(extra_rules) + policy["rules"]
    path = f"{folder}/test.json"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(policy, file, indent=1)
    return path


class Demo:
    """The demo's gateway and git server, as their own process in the daemon's namespace."""

    def __init__(self, namespace, folder):
        self.folder = str(folder)
        self.process = subprocess.Popen(
            namespace.argv("/usr/bin/python3", str(ROOT / "tools/demo/demo.py"), "--folder",
                           self.folder), stdout=subprocess.PIPE)
        line = self.process.stdout.readline()
        assert line, "the demo's servers did not start"
        self.__dict__.update(json.loads(line))

    def record(self, which):
        path = pathlib.Path(self.folder) / f"{which}.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines()]

    def close(self):
        self.process.terminate()
        self.process.wait(patient(10))


def make_recipes(folder, claude_env=None, agents=None):
    """A recipes_dir: the shipped recipes, with more environment for claude and more agents."""
    shutil.copytree(ROOT / "images", folder)
    path = pathlib.Path(folder) / "claude" / "agent.json"
    from policy import read_policy
    agent = read_policy(path)
    agent["env"] = {**agent.get("env", {}), **(claude_env or {})}
    path.write_text(json.dumps(agent))
    for name, recipe in (agents or {}).items():
        os.makedirs(f"{folder}/{name}", exist_ok=True)
        pathlib.Path(f"{folder}/{name}/agent.json").write_text(json.dumps(recipe))
    return str(folder)


class Daemon:
    """One paddockd with its state folder. `config` overrides keys of the configuration."""
    paddockd, paddock = BIN / "paddockd", BIN / "paddock"  # a test may set others
    every = []  # each one made in this run, so that a failure can show what they logged

    def __init__(self, folder, namespace, config, environment=None, image_store=None):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.namespace = namespace
        self.socket = self.folder / "paddock.sock"
        self.state = self.folder / "state"
        self.config = {"state_dir": str(self.state), "listen": [f"unix:{self.socket}"], **config}
        self.environment = environment or {}
        self.process = None
        self.log_path = self.folder / "log"
        self.programs = BIN
        self.searched = 0  # so many bytes of the log
        Daemon.every.append(self)
        if image_store and not self.state.exists():
            self.state.mkdir(mode=0o700)
            run("cp", "-al", image_store, self.state / "images")

    def cgroup_name(self):
        """The name of its folder of control groups: state_name in src/supervisor/state.c."""
        status = self.state.stat()
        name = 2166136261
        for byte in struct.pack("<QQ", status.st_dev, status.st_ino):
            name = (name ^ byte) * 16777619 % (1 << 32)
        return f"paddock-{name:08x}"

    def note_cgroup(self):
        """tools/check removes the groups of daemons that were killed."""
        if "PADDOCK_TEST_NAME" in os.environ and self.state.exists():
            with open(f"{os.environ['TMPDIR']}/cgroups", "a", encoding="ascii") as file:
                file.write(self.cgroup_name() + "\n")

    def start(self, wait=True):
        self.note_cgroup()
        path = self.folder / "config.json"
        path.write_text(json.dumps(self.config, indent=1))
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.namespace.argv(str(self.paddockd), "--config", str(path)),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={"PATH": os.environ["PATH"], **self.environment})
        if wait:
            wait_for(self.is_ready, 30, f"daemon ready (log: {self.log()[-2000:]})")
            self.note_cgroup()  # it may have made its folder
        return self

    def is_ready(self):
        assert self.process.poll() is None, self.log()[-4000:]
        try:
            return self.get("/healthz").status == 200
        except (OSError, http.client.HTTPException):
            return False

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_size(self):
        return self.log_path.stat().st_size if self.log_path.exists() else 0

    def errors(self, offset=0):
        """The last lines of level error after `offset` bytes of the log: the reason of a 500."""
        log = self.log_path.read_bytes()[offset:] if self.log_path.exists() else b""
        return re.findall(r"^\S+Z \S+ error .*$", log.decode(errors="replace"), re.M)[-5:]

    def report(self):
        """A sanitizer's report that was logged since the last call, or None."""
        log = self.log_path.read_bytes()[self.searched:] if self.log_path.exists() else b""
        log = log[:log.rfind(b"\n") + 1]
        self.searched += len(log)
        found = REPORT.search(log)
        return found and log[found.start():][:8000].decode(errors="replace")

    def stop(self):
        """SIGTERM; instances go on, as in an upgrade. Api and egress end by themselves."""
        if self.process and self.process.poll() is None:
            helpers = [self.find(name) for name in ("paddock-api", "paddock-egress")]
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(patient(30))
            for pid in filter(None, helpers):
                wait_for(lambda pid=pid: not is_program(pid), 30, f"end of {pid}")

    def kill(self):
        self.process.kill()
        self.process.wait(patient(10))

    def close(self):
        """Ends every instance, then the daemon."""
        if self.process is None:
            return
        if self.process.poll() is not None:
            self.start()
        for sandbox in self.get("/sandboxes").json:
            self.call("DELETE", f"/sandboxes/{sandbox['name']}")
        self.stop()
        self.process = None

    def pid_of(self, program):
        """The pid of a child of the daemon by its program's name: a child that is being started has
        that of the daemon for a moment, so it is waited for."""
        return wait_for(lambda: self.find(program), 30, program)

    def find(self, program):
        """As pid_of, or None when there is none just now. The one that makes the CA is not meant."""
        for pid in children_of(self.process.pid):
            with contextlib.suppress(FileNotFoundError):
                if (os.path.basename(os.readlink(f"/proc/{pid}/exe")) == program and
                        b"--make-ca" not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()):
                    return pid
        return None

    def call(self, method, path, body=None, headers=None, timeout=120):
        connection = UnixConnection(self.socket, patient(timeout))
        try:
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
            if isinstance(body, str):
                body = body.encode()
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            answer = Answer(response.status, {k.lower(): v for k, v in response.getheaders()},
                            response.read())
            assert not REPORT.search(answer.body), answer.text  # of a jail
            return answer
        finally:
            connection.close()

    def get(self, path, **options):
        return self.call("GET", path, **options)

    def post(self, path, body=None, **options):
        return self.call("POST", path, body, **options)

    def sandbox(self, name):
        return Sandbox(self, name)

    def cli(self, *arguments, check=True, **options):
        environment = {"PATH": os.environ["PATH"], "PADDOCK_URL": f"unix:{self.socket}"}
        return run(self.paddock, *arguments, check=check, env=environment, **options)


@contextlib.contextmanager
def daemons(folder, namespace, demo, image_store):
    """A factory of daemons, which end with it. Keyword arguments override configuration keys."""
    made = []

    def make(claude_env=None, agents=None, extra_rules=(), environment=None, policy="default",
             start=True, **config):
        here = folder / f"daemon-{next(DAEMONS)}"
        here.mkdir()
        upstreams = {"gateway.ai.cloudflare.com": f"127.0.0.1:{demo.gateway_port}",
                     "github.com": f"127.0.0.1:{demo.git_port}"}
        policy_file = merge_policy(ROOT / f"policy/{policy}.json", upstreams, here / "policy", demo.ca,
                                   extra_rules)
        recipes = make_recipes(here / "images", claude_env, {"sh": SH_AGENT, **(agents or {})})
        daemon = Daemon(here, namespace, {
            "policy": policy_file, "recipes_dir": recipes, "vars": VARS,
            "secrets_dir": demo.secrets_dir, **config}, environment, image_store)
        made.append(daemon)
        return daemon.start() if start else daemon

    yield make
    for daemon in made:
        daemon.close()


def is_program(pid):
    """Whether the process still runs; a dead one that nobody has reaped has no program."""
    with contextlib.suppress(OSError):
        return bool(os.readlink(f"/proc/{pid}/exe"))
    return False


def is_init(pid, boot_id):
    """Whether it is PID 1 of the instance that has the boot id."""
    with contextlib.suppress(OSError):
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        inside = pathlib.Path(f"/proc/{pid}/root/proc/sys/kernel/random/boot_id")
        return (re.search(r"^NSpid:\s+\d+\s+1$", status, re.M) is not None and
                inside.read_text().strip() == boot_id)
    return False


def children_of(pid):
    with contextlib.suppress(FileNotFoundError):
        text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(part) for part in text.split()]
    return []


class Sandbox:
    """One sandbox of a daemon, by name."""

    def __init__(self, daemon, name):
        self.daemon = daemon
        self.name = name
        self.path = f"/sandboxes/{name}"
        self.init = None  # pid and boot id, when they were last looked for

    def clone(self, url=HELLO, **more):
        return self.daemon.post(f"{self.path}/repository", {"url": url, **more})

    def exec(self, *argv, **more):
        """The exec's JSON; the request itself must have succeeded."""
        answer = self.daemon.post(f"{self.path}/exec", {"argv": list(argv), **more})
        assert answer.status == 200, (answer.status, answer.body, self.daemon.log()[-3000:])
        return answer.json

    def sh(self, script, **more):
        return self.exec("/bin/bash", "-c", script, **more)

    def start_task(self, prompt):
        return self.daemon.post(f"{self.path}/task", prompt)

    def task(self):
        answer = self.daemon.get(f"{self.path}/task")
        assert answer.status == 200, answer
        return answer.json

    def finish(self, seconds=60):
        """Waits until the task no longer runs; returns its state."""
        return wait_for(lambda: (state := self.task())["state"] != "running" and state, seconds,
                        f"end of the task of {self.name}", interval=0.1)

    def run_task(self, prompt, seconds=60):
        answer = self.start_task(prompt)
        assert answer.status == 202, answer
        return self.finish(seconds)

    def diff(self, query=""):
        return self.daemon.get(f"{self.path}/diff{query}")

    def meta(self):
        return json.loads((self.daemon.state / "sandboxes" / self.name / "meta.json").read_text())

    def remove(self):
        return self.daemon.call("DELETE", self.path)

    def init_pid(self):
        """PID 1 of the sandbox, found by its boot id among the daemon's instances."""
        if self.init and is_init(*self.init):
            return self.init[0]
        boot_id = self.exec("/bin/cat", "/proc/sys/kernel/random/boot_id")["stdout"].strip()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if is_init(int(pid), boot_id):
                self.init = int(pid), boot_id
                return int(pid)
        raise AssertionError(f"no init of {self.name}")

    def group_name(self):
        """Of its control groups, below the daemon's: its boot id."""
        self.init_pid()
        return self.init[1]

    def network(self):
        """A descriptor of the sandbox's network namespace."""
        return os.open(f"/proc/{self.init_pid()}/ns/net", os.O_RDONLY)

    def ca(self):
        return str(self.daemon.state / "ca.crt")

    def connect(self, host, port=443, family=socket.AF_INET, address=None, timeout=20):
        """A TCP connection from inside the sandbox; the name is resolved by its own DNS."""
        return self.connect_many(1, host, port, family, address, timeout)[0]

    def connect_many(self, count, host, port=443, family=socket.AF_INET, address=None, timeout=20):
        network = self.network()
        try:
            def work():
                target = address or resolve(host, family)
                return [one(target) for _ in range(count)]

            def one(target):
                sock = socket.socket(family, socket.SOCK_STREAM)
                sock.settimeout(patient(timeout))
                sock.connect((target, port))
                return sock
            return in_namespace(network, work)
        finally:
            os.close(network)

    def connect_tls(self, host, sni=None, alpn=("http/1.1",), context=None, **options):
        context = context or ssl.create_default_context(cafile=self.ca())
        if alpn:
            context.set_alpn_protocols(list(alpn))
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        return context.wrap_socket(self.connect(host, **options), server_hostname=sni or host,
                                   suppress_ragged_eofs=False)  # an end without close_notify raises

    def request(self, host, raw, **options):
        """Sends raw bytes over TLS and reads until the end of the connection."""
        with self.connect_tls(host, **options) as sock:
            sock.sendall(raw)
            return read_all(sock)


def fresh_sandbox(daemon, request):
    """For a fixture: a sandbox named after the test, removed after it."""
    name = request.node.name.lower().replace("_", "-")
    name = "".join(c for c in name if c.isalnum() or c == "-")[:50].strip("-")
    sandbox = daemon.sandbox(f"{name}-{next(NUMBERS)}")
    yield sandbox
    sandbox.remove()


def read_all(sock):
    data = b""
    with contextlib.suppress(ssl.SSLError, ConnectionResetError):  # an end that is none
        while part := sock.recv(1 << 16):
            data += part
    return data


def resolve(name, family=socket.AF_INET, server="127.0.0.1", transport="udp", kind=None):
    """One DNS question, asked by hand in the current network namespace; the first address."""
    answers = dns_query(name, kind or (1 if family == socket.AF_INET else 28), server, transport)
    assert answers, f"no address for {name}"
    return socket.inet_ntop(family, answers[0][1])


def dns_query(name, kind, server="127.0.0.1", transport="udp"):
    """[(type, rdata)] of the answer section; asserts that the reply fits the question."""
    question = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    query = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + question + b"\x00"
    query += kind.to_bytes(2, "big") + b"\x00\x01"
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    if transport == "udp":
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.settimeout(patient(10))
            sock.connect((server, 53))
            sock.send(query)
            reply = sock.recv(4096)
    else:
        with socket.create_connection((server, 53), patient(10)) as sock:
            sock.sendall(len(query).to_bytes(2, "big") + query)
            with sock.makefile("rb") as file:
                reply = file.read(int.from_bytes(file.read(2), "big"))
    assert reply[:2] == query[:2] and reply[2] & 0x80, reply
    count = int.from_bytes(reply[6:8], "big")
    at = len(query)
    found = []
    for _ in range(count):
        while reply[at] and reply[at] < 0xC0:
            at += reply[at] + 1
        at += 2 if reply[at] >= 0xC0 else 1
        rtype = int.from_bytes(reply[at:at + 2], "big")
        length = int.from_bytes(reply[at + 8:at + 10], "big")
        found.append((rtype, reply[at + 10:at + 10 + length]))
        at += 10 + length
    return found
