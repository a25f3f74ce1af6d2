"""Terminals: a program with a pty inside its sandbox, over a WebSocket."""
import fcntl
import hashlib
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import threading

import pytest

import harness
import websocket

pytestmark = pytest.mark.portable

PORT = 8747
FRAMES = [
    (b"\x82\x01a", 1002),  # not masked
    (b"\xc2\x80\0\0\0\0", 1002),  # a reserved bit
    (b"\x89\xfe\0\x7e\0\0\0\0", 1002),  # a ping that is too long
    (b"\x82\xff\0\0\0\0\0\x02\0\0\0\0\0\0a", 1009),
    (b"\x81\x81\0\0\0\0\xff", 1007),
    (b"\x81\x82\0\0\0\0{}", 1003),
]


def running(sandbox, command):
    """Whether a process inside has this command line."""
    script = r"""for file in /proc/[0-9]*/cmdline; do tr '\0' ' ' <$file; echo; done 2>/dev/null"""
    return command in [line.strip() for line in sandbox.sh(script)["stdout"].splitlines()]


def test_a_terminal_is_one_and_has_its_size(daemon, sandbox):
    client = websocket.terminal(daemon.socket, sandbox.name, "sh", "-c",
                                "tty; stty size; echo $TERM; read x; stty size; exit 7", rows=33, cols=77, term="vt220")
    begin = client.until(b"vt220")
    assert b"/dev/pts/" in begin and b"33 77" in begin
    client.control(resize={"rows": 50, "cols": 132})
    client.send(b"\n")
    data, end, code = client.rest()
    assert b"50 132" in data and end == {"exitCode": 7} and code == 1000


def test_without_a_command_it_is_a_shell_with_job_control(daemon, sandbox):
    client = websocket.terminal(daemon.socket, sandbox.name, cwd="/tmp")
    client.send(b"sleep 1000; echo $((40+2))-$PWD\n")
    harness.wait_for(lambda: running(sandbox, "sleep 1000"), what="the program")
    client.send(b"\x03")
    client.send(b"echo $((40+3))-$PWD; exit 3\n")
    client.until(b"43-/tmp")
    assert client.rest()[1:] == ({"exitCode": 3}, 1000)


def test_bytes_of_any_kind_pass_both_ways(daemon, sandbox):
    data = os.urandom(1 << 20)
    client = websocket.terminal(daemon.socket, sandbox.name, "sh", "-c",
                                "stty raw -echo; echo ready; head -c 1048576; sleep 1000")
    got = client.until(b"ready\n").partition(b"ready\n")[2]
    pieces = [data[at:at + 65536] for at in range(0, len(data), 65536)]
    sender = threading.Thread(target=lambda: [client.send(piece) for piece in pieces])
    sender.start()
    while len(got) < len(data):
        got += client.frame()[1]
    sender.join()
    assert hashlib.sha256(got).digest() == hashlib.sha256(data).digest()
    client.close()


def test_when_the_client_goes_all_that_was_started_goes(daemon, sandbox):
    client = websocket.terminal(daemon.socket, sandbox.name, "sh", "-c",
                                "trap '' HUP TERM; setsid sleep 4321 & echo ready; while :; do sleep 4321; done")
    client.until(b"ready")
    assert running(sandbox, "sleep 4321")
    client.close()
    harness.wait_for(lambda: not running(sandbox, "sleep 4321"), what="their end")


def test_a_client_that_reads_nothing_stops_the_program(daemon, sandbox):
    size = 64 << 20
    client = websocket.terminal(
        daemon.socket, sandbox.name, "sh", "-c", f"stty raw; echo ready; i=0; while [ $i -lt {size >> 16} ]; do "
        "head -c 65536 /dev/zero; i=$((i+1)); echo $i >/tmp/at; done; sleep 1000")

    def peak():
        with open(f"/proc/{daemon.pid_of('paddock-api')}/status", encoding="ascii") as file:
            return int(next(line for line in file if line.startswith("VmHWM")).split()[1]) << 10

    def printed():
        return int(sandbox.sh("cat /tmp/at")["stdout"] or 0) << 16

    def stands():
        """Where it is, once that is the same for twenty looks."""
        at = printed()
        return at if at and all(printed() == at for _ in range(20)) else None

    before = peak()
    got = len(client.until(b"ready\n").partition(b"ready\n")[2])
    harness.wait_for(lambda: sandbox.sh("test -s /tmp/at")["exitCode"] == 0, what="the first of it")
    assert harness.wait_for(stands, 60, "a standstill") < size >> 1
    while got < size:
        got += len(client.frame()[1])
    harness.wait_for(lambda: printed() == size, what="its end")
    assert got == size and peak() - before < 8 << 20
    client.close()


def test_a_sandbox_that_is_stopped_tells_so(daemon, sandbox):
    client = websocket.terminal(daemon.socket, sandbox.name, "sleep", "1000")
    assert daemon.post(f"/sandboxes/{sandbox.name}/stop").status == 204
    _, end, code = client.rest()
    assert end["exitCode"] in (128 + 9, 128 + 15, 128 + 1) and code == 1000


@pytest.mark.parametrize("frame, code", FRAMES)
def test_what_is_wrong_ends_it_with_its_code(daemon, sandbox, frame, code):
    client = websocket.terminal(daemon.socket, sandbox.name, "sh", "-c", "echo ready; exec sleep 1000")
    client.until(b"ready")
    client.sock.sendall(frame)
    assert client.rest()[1:] == (None, code)
    client.sock.settimeout(20)
    assert client.sock.recv(1) == b""


@pytest.mark.parametrize("change, status", [
    ({"Upgrade": None}, 426), ({"Connection": None}, 426), ({"Sec_WebSocket_Version": "8"}, 426),
    ({"Sec_WebSocket_Key": "short"}, 400)])
def test_what_is_no_handshake_is_refused(daemon, sandbox, change, status):
    with pytest.raises(websocket.Refused) as refused:
        websocket.Client(daemon.socket, f"/sandboxes/{sandbox.name}/terminal", **change)
    assert refused.value.status == status
    assert ("Sec-WebSocket-Version: 13" in refused.value.head) == (status == 426)


@pytest.mark.parametrize("query", ["rows=0", "cols=x", "user=bin", "cwd=tmp", "env=1=2", "what=1", "command="])
def test_a_query_that_is_wrong_is_refused(daemon, sandbox, query):
    with pytest.raises(websocket.Refused) as refused:
        websocket.Client(daemon.socket, f"/sandboxes/{sandbox.name}/terminal?{query}")
    assert refused.value.status == 400 and "command=WORD" in refused.value.body


def test_the_refusal_of_a_query_names_all_of_it(daemon):
    with pytest.raises(websocket.Refused) as refused:
        websocket.Client(daemon.socket, "/sandboxes/a/terminal?term=x%00")
    assert refused.value.body == (
        "The query of a terminal is command=WORD (again for more), cwd=/FOLDER, user=agent or root, env=NAME=VALUE, "
        "term=TERM, rows=N, cols=N, all optional")


def test_the_agent_cannot_type_for_its_user(daemon, sandbox):
    script = "$x = 'x'; print ioctl(STDIN, 0x5412, $x) ? 'typed' : 'refused ' . ($! + 0)"  # TIOCSTI
    client = websocket.terminal(daemon.socket, sandbox.name, "perl", "-e", script)
    data, end, _ = client.rest()
    assert (data, end) == (b"refused 1", {"exitCode": 0})


def test_a_token_has_the_rights_of_an_exec(make_daemon):
    daemon = make_daemon(policy="default")
    daemon.stop()
    daemon.config["listen"] = [f"unix:{daemon.socket}", f"tcp:127.0.0.1:{PORT}"]
    daemon.start()

    def ask(name="mine-1", token=None, **headers):
        if token:
            headers["Authorization"] = f"Bearer {token}"
        script = ("import json, sys; sys.path.insert(0, sys.argv[1]); import websocket\n"
                  "try: print(websocket.terminal(('127.0.0.1', int(sys.argv[2])), sys.argv[3], 'true',"
                  " headers=json.loads(sys.argv[4])).rest()[1]['exitCode'])\n"
                  "except websocket.Refused as refused: print(refused.status)")
        argv = daemon.namespace.argv("/usr/bin/python3", "-c", script, os.path.dirname(websocket.__file__), str(PORT),
                                     name, json.dumps(headers))
        return int(harness.run(*argv).stdout)

    mine = daemon.post("/tokens", {"prefix": "mine-"}).json["token"]
    reader = daemon.post("/tokens", {"readOnly": True}).json["token"]
    assert ask(token=mine) == 0
    assert ask(token=mine, name="other-1") == 403
    assert ask(token=reader) == 403
    assert ask() == 401
    assert ask(token=mine, Origin=f"http://localhost:{PORT}") == 403
    assert ask(token=mine, Host="evil.example") == 403


class Typist:
    """The command line on a terminal of its own."""

    def __init__(self, daemon, *arguments, rows=24, cols=80):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        self.slave, self.before = slave, termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            [str(daemon.paddock), *arguments], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={"PATH": os.environ["PATH"], "PADDOCK_URL": f"unix:{daemon.socket}", "TERM": "vt220"})
        self.seen = b""

    def until(self, mark):
        while mark not in self.seen:
            assert select.select([self.master], [], [], 20)[0], self.seen
            self.seen += os.read(self.master, 65536)
        self.seen = self.seen.partition(mark)[2]

    def type(self, data):
        os.write(self.master, data)

    def end(self):
        """The exit status; the terminal is as it was."""
        status = self.process.wait(20)
        assert termios.tcgetattr(self.slave) == self.before
        return status


def test_the_command_line_is_a_terminal_of_the_sandbox(daemon, sandbox):
    typist = Typist(daemon, "exec", "-it", sandbox.name, "--", "sh", "-c",
                    "stty size; echo $TERM; read x; echo got-$x; trap 'stty size' WINCH; echo now; read x; read x; exit 9",
                    rows=31, cols=99)
    typist.until(b"31 99\r\nvt220\r\n")
    typist.type(b"abc\r")
    typist.until(b"got-abc\r\nnow\r\n")
    fcntl.ioctl(typist.master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    typist.type(b"\r")
    typist.until(b"40 120")
    typist.type(b"\r\r")
    assert typist.end() == 9


def test_a_shell_is_left_as_any_other(daemon, sandbox):
    typist = Typist(daemon, "shell", sandbox.name)
    typist.type(b"sleep 1000\r")
    harness.wait_for(lambda: running(sandbox, "sleep 1000"), what="the program")
    typist.type(b"\x03")
    typist.type(b"echo $((41+1))-here; exit 5\r")
    typist.until(b"42-here")
    assert typist.end() == 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_leaves_the_terminal_as_it_was(daemon, sandbox, number):
    typist = Typist(daemon, "exec", "-t", sandbox.name, "--", "sh", "-c", "echo ready; sleep 1234")
    typist.until(b"ready")
    typist.process.send_signal(number)
    assert typist.end() == 130
    harness.wait_for(lambda: not running(sandbox, "sleep 1234"), what="its end")


def test_without_a_terminal_there_is_none(daemon, sandbox):
    done = daemon.cli("exec", "-t", sandbox.name, "--", "true", check=False)
    assert done.returncode == 125
