"""The diff equals git's, byte for byte; nothing of the agent's configuration acts; the clone is kept.

The built paddock-jail runs in a root of its own, as in the jail: read-only /usr, /dev/null, /tmp, and the
folders of the job. Reference: a temporary index with every untracked, not ignored file intent-to-add, then
`git diff --no-renames --no-ext-diff --no-textconv`, without system and global configuration.

PADDOCK_BUILD: the build folder. PADDOCK_DIFF_SEED, PADDOCK_DIFF_EDITS: of the random test.
"""
import os
import pathlib
import random
import shutil
import subprocess
import threading
import time

import pytest

import harness

pytestmark = pytest.mark.portable

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("PADDOCK_BUILD", TOP / "build")).resolve()
JAIL = BUILD / "src" / "main" / "paddock-jail"
SEED = int(os.environ.get("PADDOCK_DIFF_SEED", "20260701"))
EDITS = int(os.environ.get("PADDOCK_DIFF_EDITS", "200"))

# $1 a folder for the root, $2 the binary, $3 workspace, $4 base.git or "", $5 out or "", then argv.
ENTER = r"""
set -e
root=$1 binary=$2 workspace=$3 base=$4 out=$5; shift 5
mount -t tmpfs -o mode=755 tmpfs "$root"
cd "$root"
mkdir -p usr dev tmp in/workspace
ln -s usr/bin bin; ln -s usr/lib lib; ln -s usr/lib64 lib64
mount --bind /usr usr; mount -o remount,bind,ro usr
for device in null urandom; do touch dev/$device; mount --bind /dev/$device dev/$device; done
mount -t tmpfs -o mode=700,nosuid,nodev,size=256m tmpfs tmp
mount --bind "$workspace" in/workspace; mount -o remount,bind,ro in/workspace
if [ "$base" ]; then mkdir in/base.git; mount --bind "$base" in/base.git; mount -o remount,bind,ro in/base.git; fi
if [ "$out" ]; then mkdir out; mount --bind "$out" out; fi
touch paddock-jail; mount --bind "$binary" paddock-jail
mount -o remount,ro .
exec chroot . /paddock-jail "$@"
"""

ENVIRONMENT = {
    "PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC", "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_ATTR_NOSYSTEM": "1",
    "GIT_ALLOW_PROTOCOL": "file",
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.test", "GIT_AUTHOR_DATE": "1700000000 +0000",
    "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.test",
    "GIT_COMMITTER_DATE": "1700000000 +0000",
}


def git(folder, *args, data=None, check=True, **variables):
    run = subprocess.run(["git", *args], cwd=folder, input=data, capture_output=True,
                         env={**ENVIRONMENT, **variables})
    if check and run.returncode:
        raise AssertionError(f"git {args}: {run.returncode} {run.stderr!r}")
    return run.stdout


class Sandbox:
    """A clone at workspace/repo, its base.git, and the jobs over them."""

    def __init__(self, folder):
        self.folder = folder
        self.workspace = folder / "workspace"
        self.repo = self.workspace / "repo"
        self.base = folder / "base.git"
        self.root = folder / "root"
        for path in (self.workspace, self.base, self.root):
            path.mkdir()
        self.has_base = False
        self.commit = None

    def job(self, *args, out=None):
        command = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
        command += ["sh", "-c", ENTER, "sh", self.root, JAIL, self.workspace,
                    self.base if self.has_base else "", out or "", *args]
        return subprocess.run(command, capture_output=True, env={"PATH": os.environ["PATH"]},
                              stdin=subprocess.DEVNULL, timeout=harness.patient(200))

    def clone(self, origin):
        git(self.workspace, "clone", "-q", "--depth", "1", f"file://{origin}", "repo")
        self.save()

    def save(self):
        run = self.job("base", out=self.base)
        assert run.returncode == 0, run.stderr
        self.has_base = True
        self.commit = git(self.repo, "rev-parse", "-q", "--verify", "HEAD", check=False).decode().strip()

    def diff(self, against="clone", renames=False, revision=None, binary=False):
        run = self.job("diff", against, str(int(renames)), str(int(binary)), *([revision] if revision else []))
        assert run.returncode == 0, run.stderr
        return run.stdout

    def reference(self, revision, renames=False, binary=False):
        """revision None: against the index."""
        index = self.folder / "index"
        index.unlink(missing_ok=True)
        if (self.repo / ".git/index").exists():
            shutil.copy2(self.repo / ".git/index", index)
        use = {"GIT_INDEX_FILE": str(index), "GIT_LITERAL_PATHSPECS": "1"}
        if revision:
            self.rebuild(index, revision, use)
        names = git(self.repo, "ls-files", "-z", "--others", "--exclude-standard", **use)
        git(self.repo, "add", "-N", "--ignore-errors", "--pathspec-from-file=-", "--pathspec-file-nul",
            data=names, check=False, **use)
        return git(self.repo, "diff", "--find-renames" if renames else "--no-renames", "--no-ext-diff",
                   "--no-textconv", *(["--binary", "--full-index"] if binary else []), *([revision] if revision else []), "--", **use)

    def rebuild(self, index, revision, use):
        """The index has what the commit has and what the agent added, and nothing else of the agent's:
        no flag and no time hides a change."""
        unmerged = {}
        added = [line for line in git(self.repo, "ls-files", "-z", "--stage", **use).split(b"\0") if line]
        for line in added:
            head, path = line.split(b"\t", 1)
            if not head.endswith(b" 0"):
                unmerged[path] = b"0 " + b"1" * 40 + b"\t" + path
        index.unlink(missing_ok=True)
        tree = git(self.repo, "ls-tree", "-r", "-z", "--full-tree", revision).split(b"\0")
        git(self.repo, "update-index", "-z", "--index-info", **use,
            data=b"".join(line + b"\0" for line in [*tree, *unmerged.values(), *added] if line))
        git(self.repo, "update-index", "-q", "--unmerged", "--refresh", check=False, **use)

    def check(self, note=""):
        expected = self.reference(self.commit)
        assert self.diff() == expected, note
        return expected


def write(path, data, mode=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    if mode is not None:
        path.chmod(mode)


def raw(folder, name):
    """A path with a name of any bytes."""
    return pathlib.Path(os.fsdecode(os.fsencode(folder) + b"/" + name))


C_TEXT = "".join(f"int f{i}(int a)\n{{\n\tif (a) {{\n\t\treturn {i};\n\t}}\n\n\treturn a;\n}}\n\n" for i in range(12))
PY_TEXT = "".join(f"class C{i}:\n    def m{i}(self):\n        x = {i}\n\n        return x\n\n" for i in range(12))


def make_origin(folder):
    origin = folder / "origin"
    origin.mkdir()
    git(origin, "init", "-q", "-b", "main")
    write(origin / "a.c", C_TEXT)
    write(origin / "p.py", PY_TEXT)
    write(origin / "text", "one\ntwo\nthree\nfour\nfive\n")
    write(origin / "crlf.txt", "one\r\ntwo\r\nthree\r\n")
    write(origin / "no-newline", "one\ntwo")
    write(origin / "binary", bytes(range(256)))
    write(origin / "empty", "")
    write(origin / "run.sh", "#!/bin/sh\n", 0o755)
    write(origin / "dir/sub/file", "deep\n")
    write(origin / "gone", "bye\n" * 5)
    write(origin / "moved", "move me\n" * 20)
    write(origin / "becomes-link", "file\n")
    write(origin / "becomes-dir", "file\n")
    write(origin / ".gitignore", "*.o\nignored/\n")
    write(origin / "tracked.o", "tracked although ignored\n")
    write(raw(origin, b"sp ace"), "x\n")
    write(raw(origin, b"q\"uote\ttab"), "x\n")
    os.symlink("text", origin / "link")
    git(origin, "add", "-A", "-f")
    git(origin, "commit", "-qm", "first")
    return origin


@pytest.fixture
def sandbox(tmp_path):
    return Sandbox(tmp_path)


@pytest.fixture
def cloned(sandbox, tmp_path):
    sandbox.clone(make_origin(tmp_path))
    return sandbox


def test_nothing_changed_is_an_empty_diff(cloned):
    assert cloned.check() == b""


def test_every_kind_of_change(cloned):
    repo = cloned.repo
    write(repo / "new", "new\n")
    write(repo / "new-empty", "")
    write(repo / "new-no-newline", "x")
    write(repo / "new-binary", b"\0\1\2" * 50)
    write(repo / "new.sh", "#!/bin/sh\n", 0o755)
    write(repo / "a.c", C_TEXT.replace("return 7;", "return 77;"))
    write(repo / "p.py", PY_TEXT.replace("x = 5", "x = 55"))
    write(repo / "crlf.txt", "one\r\nzwei\r\nthree\n")
    write(repo / "no-newline", "one\nzwei")
    write(repo / "binary", bytes(reversed(range(256))))
    write(repo / "empty", "no longer\n")
    (repo / "run.sh").chmod(0o644)
    (repo / "gone").unlink()
    (repo / "moved").rename(repo / "moved-to")
    (repo / "becomes-link").unlink()
    os.symlink("/etc/shadow", repo / "becomes-link")
    (repo / "becomes-dir").unlink()
    write(repo / "becomes-dir/file", "inside\n")
    (repo / "link").unlink()
    write(repo / "link", "now a file\n")
    write(repo / "tracked.o", "changed although ignored\n")
    write(repo / "untracked.o", "ignored\n")
    write(repo / "ignored/x", "ignored\n")
    write(repo / "intended", "intent to add\n")
    git(repo, "add", "-N", "intended")
    text = cloned.check()
    for part in (b"new file mode 100755", b"deleted file mode", b"old mode 100755", b"Binary files",
                 b"\\ No newline at end of file", b"+/etc/shadow", b"b/intended", b"b/new-empty",
                 b"@@ int f6(int a)", b"zwei\r\n"):
        assert part in text, part
    assert b"untracked.o" not in text and b"b/ignored/" not in text
    renamed = cloned.diff(renames=True)
    assert renamed == cloned.reference(cloned.commit, renames=True)
    assert b"rename from moved\nrename to moved-to" in renamed
    assert cloned.diff("index") == cloned.reference(None)
    full = cloned.diff(binary=True)
    assert full == cloned.reference(cloned.commit, binary=True)
    assert b"GIT binary patch" in full and b"Binary files" not in full
    git(repo, "commit", "-qam", "work")
    cloned.check()
    assert cloned.diff("head") == cloned.reference("HEAD")
    assert cloned.diff("revision", revision="HEAD~0") == cloned.reference("HEAD~0")


def test_a_diff_with_renames_and_binary_files_applies(cloned, tmp_path):
    write(cloned.repo / "binary", bytes(reversed(range(256))))
    (cloned.repo / "moved").rename(cloned.repo / "moved-to")
    write(cloned.repo / "text", "one\nzwei\n")
    patch = cloned.diff(renames=True, binary=True)
    fresh = tmp_path / "fresh"
    git(tmp_path, "clone", "-q", f"file://{tmp_path}/origin", "fresh")
    git(fresh, "apply", data=patch)
    for name in ("moved-to", "text", "binary"):
        assert (fresh / name).read_bytes() == (cloned.repo / name).read_bytes()
    assert not (fresh / "moved").exists()


@pytest.mark.parametrize("name", [
    b"a b", b'q"q', b"new\nline", b"tab\tx", "é".encode(), b"\xff", b"back\\slash", b"trail ", b"-dash", b":(top)x",
    b"*", b"[a]", b"\x01\x7f", b"dir with space/f"])
def test_names_are_quoted_as_git_quotes_them(cloned, name):
    write(raw(cloned.repo, name), "new\n")
    assert cloned.check().count(b"diff --git") == 1
    assert cloned.diff("index") == cloned.reference(None)
    git(cloned.repo, "add", "-A")
    git(cloned.repo, "commit", "-qm", "x")
    cloned.check()
    write(raw(cloned.repo, name), "changed\n")
    assert cloned.diff("head") == cloned.reference("HEAD")


def test_a_name_that_git_refuses_does_not_stop_the_diff(cloned):
    """What only other systems mind is shown, so that an agent cannot hide a file by its name."""
    write(cloned.repo / ".GIT/x", "git cannot hold this\n")
    write(cloned.repo / "git~1", "refused for the sake of NTFS\n")
    write(cloned.repo / "other", "x\n")
    for against in ("clone", "index"):
        text = cloned.diff(against)
        assert text.count(b"diff --git") == 2 and b"b/git~1" in text and b"b/other" in text


@pytest.mark.parametrize("attributes", [
    "*.c diff=cpp\n*.py diff=python\n", "*.c -diff\n", "*.c binary\n", "* text=auto\n", "*.txt text eol=crlf\n",
    "*.txt text eol=lf\n", "*.c diff=unknown\n", "*.c filter=unknown ident\n", "*.c working-tree-encoding=UTF-16LE text\n",
    "* -text\n", "*.c whitespace=cr-at-eol\n", "binary diff\n", "[attr]mine -diff\n*.py mine\n"])
def test_attributes_count(cloned, attributes):
    write(cloned.repo / ".gitattributes", attributes)
    text = C_TEXT.replace("return 7;", "return 77; /* $Id$ */")
    write(cloned.repo / "a.c", text.encode("utf-16le") if "UTF-16" in attributes else text)
    write(cloned.repo / "p.py", PY_TEXT.replace("x = 5", "x = 55"))
    write(cloned.repo / "crlf.txt", "one\r\nzwei\r\nthree\n")
    write(cloned.repo / "binary", bytes(reversed(range(256))))
    cloned.check(attributes)
    (cloned.repo / ".gitattributes").rename(cloned.repo / ".git/info/attributes")
    cloned.check(attributes)


@pytest.mark.parametrize("setting", ["core.autocrlf=true", "core.autocrlf=input", "core.eol=crlf", "core.filemode=false",
                                     "core.symlinks=false", "core.ignorecase=true"])
def test_the_kept_settings_count(cloned, setting):
    git(cloned.repo, "config", *setting.split("="))
    write(cloned.repo / ".gitattributes", "* text=auto\n")
    write(cloned.repo / "text", "one\r\ntwo\r\n")
    write(cloned.repo / "new.sh", "x\r\n", 0o755)
    (cloned.repo / "run.sh").chmod(0o644)
    os.symlink("a", cloned.repo / "new-link")
    (cloned.repo / "link").unlink()
    write(cloned.repo / "link", "text")
    cloned.check(setting)


def test_odd_indexes(cloned):
    repo = cloned.repo
    write(repo / "text", "changed\n")
    git(repo, "update-index", "--assume-unchanged", "text")
    write(repo / "a.c", "changed\n")
    git(repo, "update-index", "--skip-worktree", "a.c")
    git(repo, "rm", "-q", "--cached", "p.py")
    cloned.check("flags")
    git(repo, "update-index", "--index-version", "4")
    cloned.check("version 4")
    git(repo, "update-index", "--split-index")
    write(repo / "new", "x\n")
    git(repo, "add", "new")
    cloned.check("split")
    assert cloned.diff("index") == cloned.reference(None)
    (repo / ".git/index").unlink()
    for shared in (repo / ".git").glob("sharedindex.*"):
        shared.unlink()
    cloned.check("none")


def test_unmerged_entries(cloned):
    repo = cloned.repo
    git(repo, "checkout", "-q", "-b", "side")
    write(repo / "text", "side\n")
    (repo / "gone").unlink()
    git(repo, "commit", "-qam", "side")
    git(repo, "checkout", "-q", "main")
    write(repo / "text", "main\n")
    write(repo / "gone", "main\n")
    git(repo, "commit", "-qam", "main")
    git(repo, "merge", "-q", "side", check=False)
    assert b"<<<<<<<" in cloned.check()
    (repo / "text").unlink()
    cloned.check("unmerged and gone")
    git(repo, "checkout", "-q", "--ours", "text")
    assert cloned.diff("index") == cloned.reference(None)
    assert b"diff --cc text" in cloned.diff("index")


def make_submodule(cloned, tmp_path):
    """Commits a submodule `sub` with a submodule `inner`, and clones the result anew."""
    for name in ("inner", "sub"):
        git(tmp_path, "init", "-q", "-b", "main", name)
        write(tmp_path / name / "file", "one\n")
        if name == "sub":
            git(tmp_path / name, "submodule", "-q", "add", f"file://{tmp_path}/inner", "in ner")
        git(tmp_path / name, "add", "-A")
        git(tmp_path / name, "commit", "-qm", "first")
    git(cloned.repo, "submodule", "-q", "add", f"file://{tmp_path}/sub", "s/sub")
    git(cloned.repo, "submodule", "-q", "update", "--init", "--recursive")
    git(cloned.repo, "commit", "-qam", "submodule")
    shutil.rmtree(cloned.base)
    cloned.base.mkdir()
    cloned.has_base = False
    cloned.save()
    return cloned.repo / "s/sub"


def test_submodules(cloned, tmp_path):
    sub = make_submodule(cloned, tmp_path)
    assert cloned.check("clean") == b""
    write(sub / "untracked", "x\n")
    cloned.check("untracked in it")
    write(sub / "file", "dirty\n")
    assert b"-dirty" in cloned.check("dirty")
    git(sub, "commit", "-qam", "moved on")
    assert b"+Subproject commit" in cloned.check("moved")
    write(sub / "in ner/file", "dirty\n")
    assert b"-dirty" in cloned.check("dirty within")
    git(cloned.repo, "config", "-f", ".gitmodules", "submodule.s/sub.ignore", "dirty")
    cloned.check("ignore = dirty")
    git(cloned.repo, "config", "-f", ".gitmodules", "submodule.s/sub.ignore", "none")
    write(sub / "other", "x\n")
    cloned.check("ignore = none")
    shutil.rmtree(sub)
    cloned.check("removed")


def test_nested_clones(cloned, tmp_path):
    git(cloned.repo, "clone", "-q", f"file://{tmp_path}/origin", "nested")
    git(cloned.repo, "init", "-q", "unborn")
    git(cloned.repo, "clone", "-q", f"file://{tmp_path}/origin", "x/y/deep er")
    assert cloned.check().count(b"new file mode 160000") == 2
    write(cloned.repo / "nested/text", "dirty\n")
    cloned.check("dirty")
    assert cloned.diff("index") == cloned.reference(None)


def test_a_clone_without_a_commit_shows_everything(sandbox, tmp_path):
    git(tmp_path, "init", "-q", "-b", "main", "origin")
    git(sandbox.workspace, "clone", "-q", f"file://{tmp_path}/origin", "repo")
    sandbox.save()
    write(sandbox.repo / "a", "a\n")
    empty = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
    for against in ("clone", "head"):
        assert sandbox.diff(against) == sandbox.reference(empty) != b""
    git(sandbox.repo, "add", "-A")
    git(sandbox.repo, "commit", "-qm", "first")
    assert sandbox.diff() == sandbox.reference(empty) != b""


def test_without_a_repository_the_user_is_told(sandbox):
    run = sandbox.job("diff", "clone", "0", "0")
    assert run.returncode == 1 and b"no repository" in run.stderr and run.stdout == b""
    sandbox.repo.mkdir()
    run = sandbox.job("diff", "clone", "0", "0")
    assert run.returncode == 1 and b"no repository" in run.stderr


@pytest.mark.parametrize("target", ["link", "file", "absolute"])
def test_a_git_folder_elsewhere_is_refused(cloned, tmp_path, target):
    (cloned.repo / ".git").rename(cloned.workspace / "other.git")
    if target == "link":
        os.symlink("../other.git", cloned.repo / ".git")
    else:
        write(cloned.repo / ".git", f"gitdir: {'..' if target == 'file' else '/in/workspace'}/other.git\n")
    run = cloned.job("diff", "clone", "0", "0")
    assert run.returncode == 1 and run.stdout == b""


@pytest.mark.parametrize("revision", ["--output=/tmp/x", "nothing", "HEAD..HEAD", "HEAD^{tree}:", "-p", "@{upstream", "a\nb"])
def test_a_revision_that_is_none_is_refused(cloned, revision):
    run = cloned.job("diff", "revision", "0", "0", revision)
    assert run.returncode == 1 and run.stdout == b""


def trap(repo, mark):
    """Everything that makes a git run something, in one configuration and its includes."""
    command = f"/usr/bin/touch {mark}"  # no PATH needed
    write(repo / ".git/evil", f"[core]\n\tfsmonitor = {command}\n[filter \"evil\"]\n\tclean = {command}; /usr/bin/cat\n"
          f"\tprocess = {command}\n\trequired = true\n")
    write(repo / ".git/attributes-elsewhere", "* filter=evil diff=evil\n")
    with open(repo / ".git/config", "a", encoding="ascii") as config:
        config.write(f"""
[core]
\tfsmonitor = {command}
\thooksPath = {repo}/.git/evil-hooks
\tattributesFile = {repo}/.git/attributes-elsewhere
\texcludesFile = {repo}/.git/attributes-elsewhere
\tpager = {command}
\teditor = {command}
\tsshCommand = {command}
\talternateRefsCommand = {command}
\tworktree = /
[diff]
\texternal = {command}
\tcolorMoved = zebra
\tnoprefix = true
[color]
\tui = always
[diff "evil"]
\ttextconv = {command}; /usr/bin/cat
\tcommand = {command}
[filter "evil"]
\tclean = {command}; /usr/bin/cat
\tsmudge = {command}; /usr/bin/cat
\tprocess = {command}
\trequired = true
[include]
\tpath = evil
[alias]
\tstatus = !{command}
\tdiff = !{command}
[submodule]
\trecurse = true
""")
    write(repo / ".git/evil-hooks/post-index-change", f"#!/bin/sh\n{command}\n", 0o755)
    write(repo / ".git/hooks/post-index-change", f"#!/bin/sh\n{command}\n", 0o755)
    write(repo / ".gitattributes", "* filter=evil diff=evil\n")


def test_nothing_that_the_agent_configured_leaves_a_mark(cloned, tmp_path):
    sub = make_submodule(cloned, tmp_path)
    nested = cloned.repo / "nested"
    git(cloned.repo, "clone", "-q", f"file://{tmp_path}/origin", "nested")
    write(cloned.repo / "text", "changed\n")
    write(nested / "text", "changed\n")
    write(cloned.repo / ".gitattributes", "* filter=evil diff=evil\n")
    write(nested / ".gitattributes", "* filter=evil diff=evil\n")
    expected = cloned.check()
    # A mark that could be left in spite of the read-only folders: mark the one folder that is writable.
    marks = cloned.workspace / "marks"
    marks.mkdir(mode=0o777)
    trap(cloned.repo, "/in/marks/mark")
    trap(nested, "/in/marks/mark")
    # A submodule's git folder is elsewhere: its configuration is what counts.
    folder = cloned.repo / ".git/modules/s/sub"
    with open(folder / "config", "a", encoding="ascii") as config:
        config.write("[core]\n\tfsmonitor = /usr/bin/touch /in/marks/mark\n[filter \"evil\"]\n\tclean = /usr/bin/touch /in/marks/mark\n")
    global ENTER
    saved = ENTER
    try:
        ENTER = saved.replace("touch paddock-jail", f"mkdir in/marks; mount --bind '{marks}' in/marks; touch paddock-jail")
        assert cloned.diff() == expected
        for against in ("index", "head"):
            cloned.diff(against)
        cloned.diff(renames=True)
        shutil.rmtree(cloned.base)
        cloned.base.mkdir()
        cloned.has_base = False
        assert cloned.job("base", out=cloned.base).returncode == 0
    finally:
        ENTER = saved
    assert list(marks.iterdir()) == []
    assert sub.exists()


def test_the_index_is_never_written(cloned):
    index = cloned.repo / ".git/index"
    before = (index.read_bytes(), index.stat().st_mtime_ns, sorted(os.listdir(cloned.repo / ".git")))
    write(cloned.repo / "new", "x\n")
    os.utime(cloned.repo / "text")
    cloned.diff()
    cloned.diff("index")
    assert before == (index.read_bytes(), index.stat().st_mtime_ns, sorted(os.listdir(cloned.repo / ".git")))


def test_whatever_the_agent_does_to_history_the_clone_is_compared(cloned):
    repo = cloned.repo
    write(repo / "text", "one\nzwei\n")
    write(repo / "new", "new\n")
    expected = cloned.check()
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "work")
    assert cloned.diff() == expected
    git(repo, "commit", "-q", "--amend", "-m", "amended")
    git(repo, "checkout", "-q", "--orphan", "other")
    git(repo, "commit", "-qm", "orphan")
    git(repo, "branch", "-qD", "main")
    git(repo, "remote", "remove", "origin")
    (repo / ".git/shallow").unlink()
    git(repo, "reflog", "expire", "--expire=now", "--all")
    git(repo, "gc", "-q", "--prune=now")
    assert git(repo, "cat-file", "-t", cloned.commit, check=False) == b""
    assert cloned.diff() == expected
    shutil.rmtree(repo / ".git/objects")
    (repo / ".git/objects").mkdir()
    assert cloned.diff() == expected


def test_replaced_objects_and_forged_graphs_change_nothing(cloned):
    repo = cloned.repo
    write(repo / "text", "changed\n")
    expected = cloned.check()
    git(repo, "commit", "-qam", "work")
    git(repo, "replace", cloned.commit, "HEAD")
    git(repo, "commit-graph", "write", "--reachable", check=False)
    assert cloned.diff() == expected


def test_many_objects_lengthen_the_names(cloned):
    stream = b"".join(b"blob\nmark :%d\ndata 8\n%08d\n" % (i, i) for i in range(1, 17001))
    git(cloned.repo, "fast-import", "--quiet", data=stream + b"done\n")
    write(cloned.repo / "text", "changed\n")
    line = [row for row in cloned.check().split(b"\n") if row.startswith(b"index ")][0]
    assert len(line.split(b" ")[1]) == 8 + 2 + 8


def test_sha256_repositories(sandbox, tmp_path):
    git(tmp_path, "init", "-q", "-b", "main", "--object-format=sha256", "origin")
    write(tmp_path / "origin/a", "a\n")
    git(tmp_path / "origin", "add", "-A")
    git(tmp_path / "origin", "commit", "-qm", "first")
    shutil.copytree(tmp_path / "origin", sandbox.repo)
    sandbox.save()
    write(sandbox.repo / "a", "b\n")
    write(sandbox.repo / "new", "b\n")
    assert sandbox.check() != b""


def test_a_fifo_in_the_git_folder_is_refused_at_once(cloned):
    for name in ("index", "config", "HEAD", "info/exclude"):
        path = cloned.repo / ".git" / name
        saved = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        begin = time.monotonic()
        assert cloned.job("diff", "clone", "0", "0").returncode == 1
        assert time.monotonic() - begin < harness.patient(10)
        path.unlink()
        path.write_bytes(saved)


def test_diffs_while_the_agent_commits(cloned):
    """No torn answer: each holds one of the states that were, and git finds no lock of ours."""
    stop = threading.Event()
    failures = []

    def work():
        for i in range(100000):
            if stop.is_set():
                return
            write(cloned.repo / "text", f"state {i}\n" * 3)
            run = subprocess.run(["git", "commit", "-qam", str(i)], cwd=cloned.repo, env=ENVIRONMENT,
                                 capture_output=True)
            if run.returncode:
                failures.append(run.stderr)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        texts = [cloned.diff() for _ in range(40)]
    finally:
        stop.set()
        thread.join()
    assert not failures
    for text in texts:
        added = [row for row in text.split(b"\n") if row.startswith(b"+state")]
        assert len(set(added)) <= 1 and text.count(b"diff --git") <= 1


def test_remove_removes_the_entries_it_is_given(sandbox, tmp_path):
    out = tmp_path / "out"
    write(out / "a/b/c", "x")
    os.symlink("/", out / "a/root")
    write(out / "other/file", "x")
    write(tmp_path / "kept", "x")
    os.symlink(tmp_path, out / "up")
    run = sandbox.job("remove", "a", "gone", "up", out=out)
    assert run.returncode == 0, run.stderr
    assert [path.name for path in out.iterdir()] == ["other"] and (tmp_path / "kept").exists()
    assert (out / "other/file").exists()


class Agent:
    """Random edits of a repository."""

    NAMES = [b"a", b"b.c", b"p.py", b"x.txt", b"dir/a", b"dir/b.c", b"dir/sub/z", b"sp ace", b"n\nl", b"\xff\xfe",
             b"q\"q", "ü/ö.md".encode(), b"tab\t", b"-n", b"UP.TXT", b"deep/er/est/f.rb", b"m.o", b"ignored/q"]
    ATTRIBUTES = ["text", "-text", "text=auto", "eol=crlf", "eol=lf", "diff", "-diff", "binary", "diff=cpp", "diff=python",
                  "diff=ruby", "diff=markdown", "ident", "filter=x", "diff=none"]
    SETTINGS = [("core.autocrlf", ["true", "false", "input"]), ("core.eol", ["lf", "crlf", "native"]),
                ("core.filemode", ["true", "false"]), ("core.ignorecase", ["true", "false"])]

    def __init__(self, sandbox, origin, rng):
        self.repo, self.origin, self.rng = sandbox.repo, origin, rng
        self.edits = [self.write_text] * 4 + [self.change_text] * 6 + [
            self.write_binary, self.write_empty, self.delete, self.rename, self.mode, self.link, self.folder,
            self.attributes, self.ignore, self.add, self.add_all, self.intend, self.commit, self.amend, self.uncache,
            self.flag, self.setting, self.gc, self.nest, self.branch, self.merge, self.reset, self.index_format, self.touch]

    def path(self):
        return raw(self.repo, self.rng.choice(self.NAMES))

    def tracked(self):
        names = git(self.repo, "ls-files", "-z").split(b"\0")[:-1]
        return raw(self.repo, self.rng.choice(names)) if names else self.path()

    def clear(self, path):
        """Makes room for a file at the path."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        for parent in reversed(path.relative_to(self.repo).parents):
            folder = self.repo / parent
            if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
                folder.unlink()
        if path.is_symlink():
            path.unlink()

    def lines(self, count):
        words = ["int f(void)", "{", "}", "", "\treturn x;", "def g():", "    pass", "# Head", "class K:", "end", "ä\xa0é",
                 "module M", "  x += 1", "$Id$", "  }"]
        return [self.rng.choice(words) for _ in range(count)]

    def put(self, path, data):
        self.clear(path)
        write(path, data)

    def write_text(self):
        end = self.rng.choice(["\n", "\n", "\n", "\r\n"])
        text = end.join(self.lines(self.rng.randrange(1, 60))) + self.rng.choice([end, end, ""])
        self.put(self.path(), text.encode(self.rng.choice(["utf-8", "utf-8", "latin-1"])))

    def change_text(self):
        path = self.tracked()
        if not path.is_file() or path.is_symlink():
            return self.write_text()
        rows = path.read_bytes().split(b"\n")
        for _ in range(self.rng.randrange(1, 4)):
            at = self.rng.randrange(len(rows) + 1)
            new = [line.encode() for line in self.lines(self.rng.randrange(0, 4))]
            rows[at:at + self.rng.randrange(0, 3)] = new
        path.write_bytes(b"\n".join(rows))

    def write_binary(self):
        self.put(self.path(), self.rng.randbytes(self.rng.randrange(1, 9000)))

    def write_empty(self):
        self.put(self.path(), b"")

    def delete(self):
        path = self.tracked()
        if path.is_symlink() or path.is_file():
            path.unlink()

    def rename(self):
        source, target = self.tracked(), self.path()
        if source.is_file() and not source.is_symlink() and source != target:
            data = source.read_bytes()
            source.unlink()
            self.put(target, data)

    def mode(self):
        path = self.tracked()
        if path.is_file() and not path.is_symlink():
            path.chmod(self.rng.choice([0o644, 0o755, 0o600, 0o711]))

    def link(self):
        path = self.path()
        self.clear(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(self.rng.choice(["a", "/etc/passwd", "nowhere", "../..", "x y"]), path)

    def folder(self):
        path = self.path()
        self.clear(path)
        path.unlink(missing_ok=True)
        write(path / "inside", "\n".join(self.lines(5)))

    def attributes(self):
        rows = [f"{self.rng.choice(['*', '*.c', '*.txt', '*.py', 'dir/*', 'a'])} {self.rng.choice(self.ATTRIBUTES)}\n"
                for _ in range(self.rng.randrange(0, 4))]
        write(self.repo / self.rng.choice([".gitattributes", ".git/info/attributes"]), "".join(rows))

    def ignore(self):
        rows = [self.rng.choice(["*.o", "ignored/", "/a", "!*.o", "dir/*", "*.txt", "# no"]) + "\n"
                for _ in range(self.rng.randrange(0, 3))]
        write(self.repo / self.rng.choice([".gitignore", ".git/info/exclude"]), "".join(rows))

    def run(self, *args):
        git(self.repo, *args, check=False, GIT_LITERAL_PATHSPECS="1")

    def name(self, path):
        return os.fsencode(path.relative_to(self.repo))

    def add(self):
        self.run("add", "-f", "--", self.name(self.path()))

    def add_all(self):
        self.run("add", "-A")

    def intend(self):
        self.run("add", "-N", ".")

    def commit(self):
        self.run("commit", "-qam", "work")

    def amend(self):
        self.run("commit", "-qa", "--amend", "-m", "amended")

    def uncache(self):
        self.run("rm", "-q", "--cached", "--", self.name(self.tracked()))

    def flag(self):
        flag = self.rng.choice(["--assume-unchanged", "--no-assume-unchanged", "--skip-worktree", "--no-skip-worktree"])
        self.run("update-index", flag, "--", self.name(self.tracked()))

    def setting(self):
        name, values = self.rng.choice(self.SETTINGS)
        self.run("config", name, self.rng.choice(values))

    def gc(self):
        self.run("gc", "-q")

    def nest(self):
        path = self.repo / self.rng.choice(["nested", "dir/nested"])
        if path.exists():
            write(path / "text", "\n".join(self.lines(3)))
            if self.rng.random() < 0.3:
                shutil.rmtree(path)
        else:
            path.parent.mkdir(parents=True, exist_ok=True) if not path.parent.exists() else None
            if path.parent.is_dir():
                git(self.repo, "clone", "-q", f"file://{self.origin}", str(path), check=False)

    def branch(self):
        name = self.rng.choice(["main", "side", "third"])
        self.run("checkout", "-q", "-B", name)

    def merge(self):
        self.run("stash", "-q")
        self.run("checkout", "-q", "-B", "here")
        self.run("checkout", "-q", "-B", "there", "HEAD")
        self.change_text()
        self.run("commit", "-qam", "there")
        self.run("checkout", "-q", "here")
        self.change_text()
        self.run("commit", "-qam", "here")
        self.run("merge", "-q", "there")

    def reset(self):
        self.run("reset", "-q", self.rng.choice(["--mixed", "--hard"]), "HEAD")

    def index_format(self):
        self.run("update-index", *self.rng.choice([["--index-version", "4"], ["--index-version", "2"], ["--split-index"],
                                                   ["--no-split-index"]]))

    def touch(self):
        path = self.tracked()
        if path.is_file() and not path.is_symlink():
            os.utime(path)


def test_random_edits(cloned, tmp_path):
    print(f"seed {SEED}, {EDITS} edits")
    rng = random.Random(SEED)
    agent = Agent(cloned, tmp_path / "origin", rng)
    for number in range(EDITS):
        edit = rng.choice(agent.edits)
        edit()
        note = f"seed {SEED}, edit {number}: {edit.__name__}"
        cloned.check(note)
        if number % 7 == 0:
            assert cloned.diff("index") == cloned.reference(None), note
        if number % 11 == 0:
            assert cloned.diff("head", renames=True) == cloned.reference("HEAD", renames=True), note
