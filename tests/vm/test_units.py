"""Under a real systemd: the units as `meson install` puts them, of the system and of a user. The machine
is thrown away afterwards, so they are installed into it."""
import json
import os
import pathlib
import pwd
import shutil

import pytest

import harness

GROUPS = pathlib.Path("/sys/fs/cgroup")
USER = "paddock-vm-systemd"
FIRST = 1_300_000_000  # of the user's subordinate ids
CONFIG = {"default_agent": "sh", "limits": {"memory_mib": 128, "pids": 64},
          "recipes_dir": "/usr/local/share/paddock/images"}
SH = {"image": "claude", "command": ["/bin/bash", "-c", "${PROMPT}"], "env": {},
      "outcome": "exit-code"}


@pytest.fixture(scope="module", autouse=True)
def installed():
    harness.run("meson", "install", "-C", harness.BUILD, "--no-rebuild", "--quiet")
    recipe = pathlib.Path(CONFIG["recipes_dir"]) / "sh"
    recipe.mkdir(exist_ok=True)
    (recipe / "agent.json").write_text(json.dumps(SH))
    harness.run("systemd-sysusers")
    harness.run("systemctl", "daemon-reload")


def journal():
    return harness.run("journalctl", "--no-pager", "-n", "40", check=False).stdout.decode()


class Manager:
    """A systemd, its paddock.service, and the command line as its user calls it."""

    def __init__(self, image_store, home, config_folder, state, prefix=(), environment=None, *,
                 first=0, unit_group):
        self.prefix, self.environment = prefix, {**os.environ, **(environment or {})}
        self.systemctl_words = ["systemctl"] + (["--user"] if prefix else [])
        self.unit_group = GROUPS / unit_group
        self.last_boot_id = ""  # of the sandbox `box`
        status = os.stat(home)
        owner = (status.st_uid, status.st_gid)
        harness.run(*prefix, "mkdir", "-p", config_folder, state / "images", env=self.environment)
        os.chmod(state, 0o700)
        (config_folder / "paddock.json").write_text(json.dumps(CONFIG))
        shutil.copy(harness.ROOT / "policy/default.json", config_folder / "policy.json")
        harness.run("cp", "-a", image_store / "claude", state / "images/")
        os.chown(state / "images/claude", *owner)
        os.chown(state / "images/claude/image.json", *owner)
        if first:
            self.shift(state / "images/claude/rootfs", first)

    @staticmethod
    def shift(rootfs, first):
        """The image's files get the ids that the user's daemon would have given them."""
        for at, folders, files in os.walk(rootfs):
            for path in [f"{at}/{name}" for name in folders + files] + [at] * (at == str(rootfs)):
                info = os.lstat(path)
                os.chown(path, first + info.st_uid, first + info.st_gid, follow_symlinks=False)
                if not os.path.islink(path):
                    os.chmod(path, info.st_mode & 0o7777)

    def run(self, *words, check=True):
        return harness.run(*self.prefix, *words, check=check, env=self.environment)

    def systemctl(self, *words, check=True):
        return self.run(*self.systemctl_words, *words, check=check)

    def paddock(self, *words, check=True):
        result = self.run("/usr/local/bin/paddock", *words, check=False)
        assert not check or result.returncode == 0, f"{result}\n{journal()}"
        return result.stdout.decode()

    def start(self):
        result = self.systemctl("start", "paddock", check=False)
        assert result.returncode == 0, f"{result}\n{journal()}"

    def main_pid(self):
        return int(self.systemctl("show", "-P", "MainPID", "paddock").stdout)

    def boot_id(self):
        self.last_boot_id = self.paddock("exec", "box", "--", "cat", "/proc/sys/kernel/random/boot_id")
        return self.last_boot_id

    def group(self):
        """The group of the sandbox `box` as boot_id has last found it, or None."""
        found = list((self.unit_group / "paddock-instances.service").glob(f"paddock-*/{self.last_boot_id.strip()}"))
        return found[0] if found else None


@pytest.fixture(scope="module")
def system(image_store):
    manager = Manager(pathlib.Path(image_store), "/root", pathlib.Path("/etc/paddock"),
                      pathlib.Path("/var/lib/paddock"), unit_group="system.slice")
    yield manager
    manager.systemctl("stop", "paddock-instances", "paddock", check=False)


@pytest.fixture(scope="module")
def of_user(image_store):
    harness.run("useradd", "--create-home", USER)
    for path in ("/etc/subuid", "/etc/subgid"):
        lines = [line for line in pathlib.Path(path).read_text().splitlines()
                 if not line.startswith(f"{USER}:")]
        pathlib.Path(path).write_text("\n".join([*lines, f"{USER}:{FIRST}:65536", ""]))
    user = pwd.getpwnam(USER)
    runtime = f"/run/user/{user.pw_uid}"
    harness.run("loginctl", "enable-linger", USER)
    harness.wait_for(lambda: os.path.exists(f"{runtime}/bus"), 60, "the user's manager")
    home = pathlib.Path(user.pw_dir)
    manager = Manager(
        pathlib.Path(image_store), home, home / ".config/paddock", home / ".local/state/paddock",
        ("setpriv", "--reuid", USER, "--regid", str(user.pw_gid), "--init-groups", "--"),
        {"HOME": user.pw_dir, "USER": USER, "XDG_RUNTIME_DIR": runtime}, first=FIRST,
        unit_group=f"user.slice/user-{user.pw_uid}.slice/user@{user.pw_uid}.service/app.slice")
    yield manager
    manager.systemctl("stop", "paddock-instances", "paddock", check=False)
    harness.run("loginctl", "terminate-user", USER, check=False)


@pytest.fixture(params=["system", "of_user"])
def manager(request):
    manager = request.getfixturevalue(request.param)
    manager.start()
    return manager


def test_sandboxes_live_in_the_delegated_unit_with_their_limits(manager):
    manager.boot_id()
    group = manager.group()
    assert group, list((manager.unit_group / "paddock-instances.service").rglob("*"))
    limits = {name: (group / name).read_text().strip() for name in ("memory.max", "pids.max")}
    assert limits == {"memory.max": str(128 << 20), "pids.max": "64"}
    assert (group / "init/cgroup.procs").read_text()
    own = pathlib.Path(f"/proc/{manager.main_pid()}/cgroup").read_text().strip()
    assert own.endswith("/paddock.service"), own


def test_the_end_of_the_daemon_leaves_sandboxes_alone(manager):
    before = manager.boot_id()
    manager.systemctl("restart", "paddock")
    assert manager.boot_id() == before
    os.kill(manager.main_pid(), 9)
    harness.wait_for(lambda: manager.main_pid() and manager.paddock("ls", check=False), 30, "another")
    assert manager.boot_id() == before


def test_doctor_finds_the_limits(manager):
    found = json.loads(manager.paddock("doctor", "--json", check=False))["findings"]
    assert next(f for f in found if f["name"] == "user-namespaces")["level"] == "ok", found


def test_a_sandbox_out_of_memory_does_not_end_the_daemon(manager):
    pid = manager.main_pid()
    eat = "exec perl -e '$x = \"a\" x (512 << 20)'"
    result = manager.run("/usr/local/bin/paddock", "exec", "box", "--", "sh", "-c", eat, check=False)
    assert result.returncode not in (0, 125), result
    assert manager.main_pid() == pid
    assert manager.paddock("exec", "box", "--", "echo", "fine") == "fine\n"
    events = (manager.group() / "memory.events").read_text()
    assert int(events.split("oom_kill ")[1].split()[0]) > 0, events


def test_the_end_of_the_instances_unit_ends_all(manager):
    manager.boot_id()
    assert manager.group()
    manager.systemctl("stop", "paddock-instances")
    harness.wait_for(lambda: manager.group() is None, 30, "the end of the sandbox's group")
    assert manager.systemctl("is-active", "paddock", check=False).stdout == b"inactive\n"
