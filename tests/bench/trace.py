"""tools/bench trace: where the time of one start goes, system call by system call, as perf(1) sees it."""
import dataclasses
import os
import re
import shutil
import statistics
import subprocess

import harness
from bench import common, startup, svg

WARM, RUNS = 20, 7
LINE = re.compile(r"^\s*(.+?)\s+(\d+)\s+(\d+\.\d+):\s+\w+:(\w+): (.*)$")
WIDTH, LEFT, LANE = 1000, 130, 46


@dataclasses.dataclass
class Event:
    at: float  # seconds
    comm: str
    tid: int
    kind: str
    text: str

    def call(self):
        return int(self.text.split()[1])


def call_names():
    """Of this machine's system calls, by number."""
    text = subprocess.run(["gcc", "-E", "-dM", "-include", "asm/unistd.h", "-xc", os.devnull],
                          stdout=subprocess.PIPE, check=True).stdout.decode()
    return {int(number): name for name, number in re.findall(r"#define __NR_(\w+) (\d+)\n", text)}


def record(folder, command):
    data = str(folder / "perf.data")
    events = ("raw_syscalls:sys_enter,raw_syscalls:sys_exit,sched:sched_process_fork,sched:sched_process_exec")
    harness.run("perf", "record", "-a", "-m", "4096", "-o", data, "-e", events, *command)
    lines = harness.run("perf", "script", "-i", data, "-F", "comm,tid,time,event,trace").stdout.decode(errors="replace")
    found = [Event(float(m[3]), m[1], int(m[2]), m[4], m[5]) for m in map(LINE.match, lines.splitlines()) if m]
    return sorted(found, key=lambda event: event.at)


def windows(events, names):
    """Of each start: from the client's connect(2) to the write(2) of the probe and the client's read of it."""
    begun = None
    for event in events:
        if event.kind == "sys_enter" and event.comm == "bench_start" and names[event.call()] == "connect":
            begun = event.at
        wrote = event.kind == "sys_enter" and event.comm == "paddock-probe" and names[event.call()] == "write"
        if wrote and begun:
            end = next(e.at for e in events if e.at > event.at and e.kind == "sys_exit" and e.comm == "bench_start")
            yield begun, end
            begun = None


class Start:
    """What the processes of one start did."""

    def __init__(self, events, names, supervisor, begin, end):
        self.begin, self.end = begin, end
        self.calls = []  # (lane, name, begin, end)
        self.marks = {}
        self.child = self.probe = None
        events = [event for event in events if begin <= event.at <= end]
        self.find_processes(events, supervisor)
        open_calls = {}
        for event in events:
            if event.kind == "sys_enter":
                open_calls[event.tid] = event
                self.note_enter(event, names[event.call()], supervisor)
            elif event.kind == "sys_exit" and event.tid in open_calls:
                entered = open_calls.pop(event.tid)
                lane = self.lane(event, supervisor)
                if lane:
                    self.calls.append((lane, names[entered.call()], entered.at, event.at))

    def find_processes(self, events, supervisor):
        """The child of the supervisor that a program comes from; a jail may be made meanwhile, too."""
        made = {int(event.text.rsplit("child_pid=", 1)[1]): event.tid
                for event in events if event.kind == "sched_process_fork"}
        for probe, child in made.items():
            if made.get(child) == supervisor:
                self.child, self.probe = child, probe

    def note_enter(self, event, name, supervisor):
        if event.tid == supervisor:
            self.mark({"recvmsg": "api: request read, checked, passed on", "clone3": "supervisor: folders, mounts, cgroup"}
                      .get(name), event.at)
        elif event.tid == self.child:
            key = {"socket": "supervisor: clone3, all namespaces", "pivot_root": "child: network, maps, mounts",
                   "execveat": "child: files, limits, privileges", "epoll_wait": "init: exec and start"}.get(name)
            self.mark("init: asked by the supervisor, forks" if name == "clone" else key, event.at)
        elif event.tid == self.probe and name == "write":
            self.mark("program: privileges, exec and start", event.at)

    def mark(self, name, at):
        if name:
            self.marks.setdefault(name, at)

    def lane(self, event, supervisor):
        if event.tid == supervisor:
            return "paddockd"
        if event.tid == self.child:
            return "child, init"
        if event.tid == self.probe:
            return "program"
        return {"bench_start": "client", "paddock-api": "paddock-api", "paddock-egress": "paddock-egress"}.get(event.comm)

    def phases(self):
        """(name, milliseconds) in their order; what ends with the client's read comes last."""
        last, found = self.begin, []
        for name, at in sorted(self.marks.items(), key=lambda mark: mark[1]):
            found.append((name, (at - last) * 1000))
            last = at
        return found + [("output: to the client", (self.end - last) * 1000)]


def draw(path, start, title):
    lanes = ["client", "paddock-api", "paddockd", "child, init", "program", "paddock-egress"]
    span = start.end - start.begin
    parts = []
    for at, lane in enumerate(lanes):
        y = 50 + at * LANE
        parts.append(f'<text x="{LEFT - 8}" y="{y + 18}" text-anchor="end">{lane}</text>')
        for _, name, begin, end in (call for call in start.calls if call[0] == lane):
            x, width = LEFT + (begin - start.begin) / span * WIDTH, (end - begin) / span * WIDTH
            waits = name in ("epoll_wait", "poll", "read", "recvfrom") and end - begin > 1e-4
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{max(width, 0.4):.1f}" height="26" '
                         f'fill="{"#e5e7eb" if waits else svg.COLOURS[0]}"><title>{name} {(end - begin) * 1e3:.3f} ms'
                         '</title></rect>')
            if width > 8 * len(name) and not waits:
                parts.append(f'<text x="{x + 2:.1f}" y="{y + 17}" font-size="11" fill="white">{name}</text>')
    y = 50 + len(lanes) * LANE
    for step in range(11):
        parts.append(f'<text x="{LEFT + WIDTH * step / 10:.0f}" y="{y + 10}" text-anchor="middle" font-size="11">'
                     f'{span * step * 100:.2f}</text>')
    for at, (name, took) in enumerate(start.phases()):
        parts.append(f'<text x="{LEFT}" y="{y + 40 + at * 18}">{took:.2f} ms  {name}</text>')
    svg.write(path, LEFT + WIDTH + 40, y + 60 + 18 * len(start.phases()), title, parts)


def run(folder):
    assert shutil.which("perf"), "perf(1) is not installed: tools/packages bench"
    common.build("tests/bench/bench_start", "tests/bench/bench_probe")
    names = call_names()
    with common.daemon_for(folder) as (daemon, _):
        startup.measure(daemon, "start", WARM, 1)
        command = [str(harness.BUILD / "tests/bench/bench_start"), "start", str(daemon.socket), str(RUNS), "0"]
        events = record(folder, command)
        supervisor = daemon.process.pid
    starts = [Start(events, names, supervisor, *window) for window in windows(events, names)]
    assert len(starts) == 2 * RUNS, len(starts)  # each is looked at by a second program
    starts = [start for start in starts if start.child]
    assert len(starts) == RUNS, len(starts)
    middle = statistics.median_low(start.end - start.begin for start in starts)
    start = next(start for start in starts if start.end - start.begin == middle)
    for name, took in start.phases():
        print(f"{took:.3f} ms\t{name}")
    draw(common.ROOT / "docs/bench/start-trace.svg", start,
         f"One start, traced: the middle of {RUNS}; system calls, and waits in grey (ms)")
    return True
