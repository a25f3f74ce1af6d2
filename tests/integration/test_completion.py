"""Completion in real shells, and the manual. The shells ask the program, which asks the daemon."""
import json
import os
import pathlib
import pty
import re
import select
import subprocess
import time

import pytest

from scripted_daemon import BUILD, PADDOCK, ROOT, Daemon, paddock

pytestmark = pytest.mark.portable

SCRIPTS = ROOT / "src" / "cli" / "completion"
ESCAPE = re.compile("\x1b\\[[0-9;?]*[A-Za-z]")
PAGES = BUILD / "src" / "manual"


@pytest.fixture
def daemon(tmp_path):
    daemon = Daemon(tmp_path)
    daemon.on("GET", "/sandboxes", (200, json.dumps([
        {"name": "agent-1", "state": "running"}, {"name": "agent-2", "state": "stopped"},
        {"name": "other", "state": "\x1b[31mred"}, {"name": "$(touch evil)", "state": "running"}])))
    daemon.on("GET", "/images", (200, json.dumps([{"name": "claude"}, {"name": "base"}])))
    daemon.on("GET", "/agents", (200, json.dumps([{"name": "claude"}, {"name": "sh"}])))
    daemon.on("GET", "/policies", (200, json.dumps([{"name": "default"}, {"name": "strict"}])))
    daemon.on("GET", "/tokens", (200, json.dumps({"tokens": [{"id": "abc1"}]})))
    yield daemon
    daemon.close()


def complete(daemon, *words):
    result = daemon.run("complete", "--", *words)
    assert result.returncode == 0 and result.stderr == b"", result
    return [line.split("\t")[0] for line in result.stdout.decode().splitlines()]


@pytest.mark.parametrize("words, offered", [
    (["st"], ["status", "stop"]),
    (["statu"], ["status"]),
    (["image", ""], None),
    (["to"], ["token"]),
    (["token", "c"], ["create"]),
    (["status", ""], ["agent-1", "agent-2", "other"]),
    (["status", "agent-"], ["agent-1", "agent-2"]),
    (["status", "agent-1", ""], []),
    (["rm", "agent-1", ""], ["agent-2", "other"]),
    (["--json", "stop", "o"], ["other"]),
    (["image", "rm", ""], ["claude", "base"]),
    (["image", "build", "c"], ["claude"]),
    (["token", "rm", ""], ["abc1"]),
    (["log", "--f"], ["--follow"]),
    (["log", "--follow", "--f"], []),
    (["run", "agent-1", "--", "--d"], []),
    (["exec", "agent-1", "ls", "--"], []),
    (["diff", "--against", ""], ["index", "head"]),
    (["diff", "--against", "head", ""], ["agent-1", "agent-2", "other"]),
    (["create", "new", "--agent", ""], ["claude", "sh"]),
    (["set", "agent-1", "--policy", "st"], ["strict"]),
    (["--u"], ["--url"]),
    (["doctor", "--config", ""], [":files"]),
    (["policy", "check", ""], [":files"]),
    (["help", "vers"], ["version"]),
    (["frobnicate", ""], None),
    ([""], None)])
def test_what_comes_next(daemon, words, offered):
    found = complete(daemon, *words)
    if offered is None:
        assert "complete" not in found
        assert words == ["frobnicate", ""] or {"ls", "rm"} <= set(found)
        return
    assert found == offered


def test_nothing_is_offered_without_a_daemon(tmp_path):
    result = paddock("complete", "--", "status", "", url=f"unix:{tmp_path}/none")
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


def test_every_option_is_offered_by_its_verb(daemon):
    for verb in json.loads(paddock("help", "--json").stdout)["verbs"]:
        assert complete(daemon, *verb["name"].split(), "--") == [
            f"--{option}" for option in verb["options"]], verb


class Shell:
    """An interactive shell on a terminal."""

    def __init__(self, folder, argv, daemon):
        self.seen = ""
        (folder / "bin").mkdir()
        (folder / "bin" / "paddock").symlink_to(PADDOCK)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(argv[0], argv, {
                "PATH": f"{folder}/bin:{os.environ['PATH']}", "HOME": str(folder), "TERM": "xterm",
                "PADDOCK_URL": daemon.url, "PS1": "READY> "})

    def type(self, text):
        os.write(self.fd, text.encode())

    def wait(self, text, seconds=30):
        """Reads on until the text comes; what came before it is forgotten."""
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self.fd], [], [], left)[0], (text, self.seen)
            self.seen = ESCAPE.sub("", self.seen + os.read(self.fd, 65536).decode(errors="replace"))
        self.seen = self.seen.split(text, 1)[1]

    def close(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_tab(daemon, tmp_path, shell):
    argv = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}[shell]
    terminal = Shell(tmp_path, argv, daemon)
    try:
        setup = {"bash": f"source {SCRIPTS}/paddock.bash",
                 "zsh": f"PROMPT='READY> '; autoload -U compinit; compinit -u -D; "
                        f"source {SCRIPTS}/paddock.zsh"}[shell]
        terminal.type(f"{setup}; echo loa''ded\n")
        terminal.wait("loaded")
        terminal.wait("READY> ")
        terminal.type("paddock statu\t")
        terminal.wait("paddock status ")
        terminal.type("oth\t")
        terminal.wait("other")
        terminal.type("--js\t\necho do''ne\n")
        terminal.wait("done")
        (tmp_path / "policy.json").write_text("{}")
        terminal.type("paddock policy check pol\t")
        terminal.wait("policy.json")
    finally:
        terminal.close()
    asked = [entry[:2] for entry in daemon.asked]
    assert ("GET", "/sandboxes") in asked  # for the names
    assert ("GET", "/sandboxes/other/task") in asked  # the completed line was run
    assert not (tmp_path / "evil").exists()


def test_zsh_loads_it_by_its_name(daemon, tmp_path):
    """As installed: autoloaded from a folder of fpath."""
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "_paddock").write_text((SCRIPTS / "paddock.zsh").read_text())
    terminal = Shell(tmp_path, ["zsh", "-f", "-i"], daemon)
    try:
        terminal.type(f"PROMPT='READY> '; fpath=({tmp_path}/functions $fpath); autoload -U compinit; "
                      "compinit -u -D; echo loa''ded\n")
        terminal.wait("loaded")
        terminal.wait("READY> ")
        terminal.type("paddock status oth\t")
        terminal.wait("other")
    finally:
        terminal.close()


def test_fish(daemon, tmp_path):
    """fish's own engine, asked as its terminal asks it."""
    (tmp_path / "policy.json").write_text("{}")
    (tmp_path / "paddock").symlink_to(PADDOCK)

    def ask(line):
        result = subprocess.run(
            ["fish", "--no-config", "-c", f"source {SCRIPTS}/paddock.fish; complete -C '{line}'"],
            capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path,
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path),
                 "PADDOCK_URL": daemon.url})
        return [entry.split("\t")[0] for entry in result.stdout.splitlines()]
    assert ask("paddock statu") == ["status"]
    assert ask("paddock status ") == ["agent-1", "agent-2", "other"]
    assert ask("paddock image b") == ["build"]
    assert "--follow" in ask("paddock log --")
    assert ask("paddock policy check pol") == ["policy.json"]


@pytest.mark.parametrize("page", ["paddock.1", "paddockd.8", "paddock.json.5"])
def test_manual(page):
    result = subprocess.run(["groff", "-ww", "-man", "-Tutf8", "-P-cbou", PAGES / page],
                            capture_output=True, check=True)
    assert result.stderr == b"", result
    text = " ".join(result.stdout.decode().replace("‐\n", "").split()).replace("−", "-")
    text = text.replace("‐", "-")
    if page == "paddock.1":
        tables = json.loads(paddock("help", "--json").stdout)
        for verb in tables["verbs"]:
            assert f"paddock {verb['name']} {verb['arguments']}".strip() in text, verb["name"]
        for entry in [f"--{option['name']}" for option in tables["options"]] + list(
                tables["environment"]) + [entry["text"][1:60] for entry in tables["exitStatuses"]]:
            assert entry in text, entry
        assert "paddock complete" not in text
    if page == "paddock.json.5":
        help_text = subprocess.run([BUILD / "src/main/paddockd", "--help"], capture_output=True,
                                   text=True, check=True).stdout
        keys = [line.split()[0] for line in help_text.split("comes with:")[1].splitlines() if line]
        assert len(keys) > 15 and all(key in text for key in keys)
    if page == "paddockd.8":
        for word in ("--config", "--doctor", "SIGHUP", "SIGTERM", "/etc/paddock/paddock.json"):
            assert word in text


def test_documents_are_up_to_date():
    subprocess.run([ROOT / "tools" / "gen-cli-docs", "--check"], check=True,
                   env={**os.environ, "PADDOCK_BUILD": str(BUILD)})
    assert pathlib.Path(ROOT / "docs" / "cli.md").read_text().count("### paddock ") == len(
        json.loads(paddock("help", "--json").stdout)["verbs"])
