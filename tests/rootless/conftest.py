"""The daemon of an ordinary user. pytest itself runs as root, as it must to make users; everything of
Paddock is started as one of them.

Rows (docs/rootless.md): "subordinate", a user with a range of /etc/subuid; "single", one without;
"unshare", the same user as uid 0 of a user namespace that has this one id (unshare --map-root-user).
"""
import contextlib
import os
import pathlib
import pwd
import shutil

import pytest

import harness

COUNT = 65536
# Of the subordinate ids: far from those that useradd gives, and not another run's.
FIRST = 1_200_000_000 + os.getpid() % 1000 * COUNT
ROWS = ("subordinate", "single", "unshare")
PROGRAMS = ("paddockd", "paddock-api", "paddock-egress", "paddock-init", "paddock-jail",
            "paddock-image-build", "paddock")


class User:
    """An account made for this run, with its home; `first` is its first subordinate id, or None."""

    def __init__(self, folder, kind, first):
        self.name = f"{os.environ.get('PADDOCK_TEST_NAME', f'paddock-{os.getpid()}')}-{kind}"[:32]
        self.first = first
        self.home = folder / f"home-{kind}"
        harness.run("useradd", "--no-log-init", "--create-home", "--home-dir", self.home,
                    "--shell", "/bin/bash", self.name)
        entry = pwd.getpwnam(self.name)
        self.uid, self.gid = entry.pw_uid, entry.pw_gid
        self.set_ranges()

    def set_ranges(self):
        """useradd gives ranges where /etc/login.defs says so: ours are the only ones."""
        for path in ("/etc/subuid", "/etc/subgid"):
            pathlib.Path(path).touch()
            lines = pathlib.Path(path).read_text().splitlines(keepends=True)
            lines = [line for line in lines if not line.startswith(f"{self.name}:")]
            if self.first:
                lines.append(f"{self.name}:{self.first}:{COUNT}\n")
            pathlib.Path(path).write_text("".join(lines))

    def argv(self, *command):
        """As a login makes it: the user's ids and groups, no capability."""
        return ["setpriv", "--reuid", str(self.uid), "--regid", str(self.gid), "--init-groups",
                "--inh-caps=-all", "--", *command]

    def run(self, *command, **options):
        return harness.run(*self.argv(*[str(part) for part in command]), **options)

    def close(self):
        self.first = None
        self.set_ranges()
        harness.run("userdel", "--force", self.name)


class UserNamespace:
    """harness.Namespace, and in it a user's processes."""

    def __init__(self, namespace, user, row):
        self.namespace, self.user, self.row = namespace, user, row

    def argv(self, *command):
        more = ["unshare", "--user", "--map-root-user", "--"] if self.row == "unshare" else []
        return self.namespace.argv(*self.user.argv(*more, *command))


@pytest.fixture(scope="session")
def users(folder):
    made = {"subordinate": User(folder, "sub", FIRST), "single": User(folder, "one", None)}
    made["unshare"] = made["single"]
    assert all(user.uid != 0 for user in made.values())
    yield made
    for user in {id(user): user for user in made.values()}.values():
        user.close()


@pytest.fixture(scope="session")
def programs(folder):
    """Copies that every user can reach, wherever the build lies."""
    here = folder / "bin"
    here.mkdir()
    for name in PROGRAMS:
        shutil.copy(harness.BIN / name, here / name)
    return here


def own(path, uid, gid):
    for at, folders, files in os.walk(path):
        for name in folders + files:
            os.chown(f"{at}/{name}", uid, gid, follow_symlinks=False)
    os.chown(path, uid, gid)


@pytest.fixture(scope="session")
def image_tar(folder, image_store):
    """The shipped image as a tar, for `paddock image import`."""
    path = folder / "claude.tar"
    harness.run("tar", "--numeric-owner", "-cf", path, "-C", f"{image_store}/claude/rootfs", ".")
    path.chmod(0o644)
    return path


@pytest.fixture(scope="session")
def make_user_daemon(folder, namespace, demo, users, programs):
    """A factory of daemons of a row. Keyword arguments override configuration keys."""
    made = []

    def make(row, claude_env=None, extra_rules=(), start=True, **config):
        user = users[row]
        here = folder / f"{row}-{len(made)}"
        here.mkdir()
        upstreams = {"gateway.ai.cloudflare.com": f"127.0.0.1:{demo.gateway_port}",
                     "github.com": f"127.0.0.1:{demo.git_port}"}
        policy = harness.merge_policy(harness.ROOT / "policy/default.json", upstreams,
                                      here / "policy", demo.ca, extra_rules)
        recipes = harness.make_recipes(here / "images", claude_env, {"sh": harness.SH_AGENT})
        shutil.copytree(demo.secrets_dir, here / "secrets")
        own(here, user.uid, user.gid)
        daemon = harness.Daemon(here, UserNamespace(namespace, user, row), {
            "policy": policy, "recipes_dir": recipes, "vars": harness.VARS,
            "secrets_dir": str(here / "secrets"), **config}, {"HOME": str(user.home)})
        daemon.programs = programs
        daemon.user = user
        made.append(daemon)
        return daemon.start() if start else daemon

    with contextlib.ExitStack() as ends:  # each, whatever becomes of the others
        yield make
        for daemon in made:
            ends.callback(daemon.close)


@pytest.fixture(scope="session", params=ROWS)
def row(request):
    return request.param


@pytest.fixture(scope="session")
def daemon(make_user_daemon, row, image_tar):
    """The daemon that the tests of a row share, with claude as its agent, and its image imported."""
    daemon = make_user_daemon(row, claude_env={"CLAUDE_CODE_MAX_RETRIES": "1"})
    daemon.cli("image", "import", "claude", image_tar, timeout=harness.patient(300))
    return daemon


@pytest.fixture
def sandbox(daemon, request):
    yield from harness.fresh_sandbox(daemon, request)


@pytest.fixture
def sh_sandbox(sandbox):
    """A sandbox whose agent is bash: the prompt is its script."""
    answer = sandbox.daemon.call("PUT", sandbox.path, {"agent": "sh"})
    assert answer.status in (200, 201, 204), answer
    return sandbox
