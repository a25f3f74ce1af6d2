"""Images of an ordinary user's daemon: imported, built on, measured, removed, on each row."""
import contextlib
import json
import os

import pytest

import harness
from archives import Oci, Tar, imported, root, rootfs, shell_files

SH = {"image": "tiny", "command": ["/bin/sh", "-c", "${PROMPT}"], "outcome": "exit-code"}
LOWER = (shell_files(root()).folder("srv").file("srv/gone", b"gone").file("srv/kept", b"kept", uid=5, gid=7)
         .hard_link("srv/second", "srv/kept").folder("srv/shut", mode=0o000).file("srv/shut/in", b"in", mode=0)
         .folder("srv/mine", uid=1000, gid=1000).device("srv/null").done())
UPPER = Tar().file("srv/.wh.gone").folder("srv/mine", mode=0o700, uid=1000, gid=1000).done()


def tiny(**more):
    return Oci().image([LOWER, UPPER], Env=["OWN=yes"], WorkingDir="/srv", User="node", **more).done()


def write_recipe(daemon, name, **files):
    folder = daemon.folder / "images" / name
    folder.mkdir(exist_ok=True)
    for file, content in files.items():
        (folder / f"{file}.json").write_text(json.dumps(content))


@pytest.fixture(scope="module")
def tiny_daemon(make_user_daemon, row):
    """A daemon of the row whose default agent is a shell on an image of its own."""
    daemon = make_user_daemon(row, default_agent="tiny", start=False)
    write_recipe(daemon, "tiny", agent=SH)
    write_recipe(daemon, "copy", build={"from": "tiny"})
    daemon.start()
    assert daemon.call("PUT", "/images/tiny", tiny()).status == 201
    yield daemon
    daemon.close()


def names(daemon):
    return sorted(image["name"] for image in daemon.get("/images").json)


def no_trash(daemon):
    harness.wait_for(lambda: not os.listdir(daemon.state / "trash"), 30,
                     f"an empty trash, but {os.listdir(daemon.state / 'trash')}: {daemon.log()[-1000:]}")


def owners(daemon, row):
    """What the ids 0, 5, 7 and 1000 of an archive are on the disk."""
    user = daemon.user
    if row == "subordinate":
        return {number: user.first + number for number in (0, 5, 7, 1000)}
    return dict.fromkeys((0, 5, 7, 1000), user.uid)


def check_tree(daemon, row, name):
    """The files as the archive has them; the row decides whose they are."""
    top, ids = rootfs(daemon, name), owners(daemon, row)
    assert sorted(os.listdir(top / "srv")) == ["kept", "mine", "second", "shut"]
    kept, mine = os.lstat(top / "srv/kept"), os.lstat(top / "srv/mine")
    assert (top / "srv/kept").read_bytes() == b"kept" and kept.st_nlink == 2
    assert kept.st_uid == ids[5] and kept.st_gid == (ids[7] if row == "subordinate" else daemon.user.gid)
    assert mine.st_uid == ids[1000] and mine.st_mode & 0o777 == 0o700
    assert os.lstat(top / "srv/shut").st_mode & 0o777 == 0 and (top / "srv/shut/in").read_bytes() == b"in"
    assert os.lstat(top / "bin/sh").st_uid == ids[0]


@contextlib.contextmanager
def boxed(daemon, name):
    box = daemon.sandbox(name)
    try:
        yield box
    finally:
        box.remove()


def test_an_imported_image_is_the_rows_and_a_sandbox_runs_on_it(tiny_daemon, row):
    check_tree(tiny_daemon, row, "tiny")
    with boxed(tiny_daemon, "runs") as box:
        seen = box.exec("/bin/sh", "-c", "pwd; echo $OWN; echo x > mine/x && read -r y < mine/x && echo $y; "
                        "[ -e shut/in ] || echo shut; read -r k < kept; echo $k")
        # with a single id what is shut is the agent's own, and shut all the same
        assert seen["stdout"].split() == ["/srv", "yes", "x", "shut", "kept"], seen
    before = os.stat(rootfs(tiny_daemon, "tiny")).st_ino
    assert tiny_daemon.call("PUT", "/images/tiny", tiny()).json["dropped"] == 1
    assert os.stat(rootfs(tiny_daemon, "tiny")).st_ino != before
    check_tree(tiny_daemon, row, "tiny")
    no_trash(tiny_daemon)


def test_an_import_that_fails_leaves_nothing(tiny_daemon):
    broken = tiny()[:-4000]
    answer = tiny_daemon.call("PUT", "/images/broken", broken[:len(broken) // 2])
    assert answer.status == 400 and "broken" in answer.text, answer
    assert os.listdir(tiny_daemon.state / "images") == ["tiny"]
    no_trash(tiny_daemon)


def test_an_image_is_built_on_another_where_there_are_subordinate_ids(tiny_daemon, row):
    result = tiny_daemon.cli("image", "build", "copy", check=False, timeout=harness.patient(120))
    text = (result.stdout + result.stderr).decode()
    if row != "subordinate":
        assert result.returncode == 1 and "single id" in text and "paddock image import" in text, text
        assert ("usermod --add-subuids" in text) == (row == "single"), text
        assert names(tiny_daemon) == ["tiny"]
        return
    assert result.returncode == 0, text
    check_tree(tiny_daemon, row, "copy")
    info = json.loads((tiny_daemon.state / "images/copy/image.json").read_text())
    assert info["env"] == ["OWN=yes"] and info["workdir"] == "/srv" and "imported" not in info
    assert tiny_daemon.call("DELETE", "/images/copy").status == 204
    no_trash(tiny_daemon)


def test_df_measures_what_is_shut_too(tiny_daemon):
    with boxed(tiny_daemon, "weighed") as box:
        made = box.exec("/bin/sh", "-c", "cd /workspace; x=0123456789abcdef0123456789abcdef; "
                        "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do x=$x$x; done; umask 777; echo $x > much")
        assert made["exitCode"] == 0, made
        usage = tiny_daemon.get("/df")
        assert usage.status == 200, (usage.text, tiny_daemon.log()[-2000:])
        boxes = {entry["name"]: entry for entry in usage.json["sandboxes"]}
        assert 1 << 20 <= boxes["weighed"]["workspaceBytes"] < 2 << 20, boxes
        assert [image["name"] for image in usage.json["images"]] == ["tiny"]
        size = tiny_daemon.get("/images").json[0]["sizeBytes"]
        assert size * 0.9 < usage.json["imagesBytes"] < size * 1.1 + 100_000
        disk = os.statvfs(tiny_daemon.state)
        assert usage.json["disk"]["totalBytes"] == disk.f_blocks * disk.f_frsize
        assert b"weighed" in tiny_daemon.cli("df").stdout


def test_a_used_image_is_kept_and_others_are_removed_or_pruned(tiny_daemon):
    with imported(tiny_daemon, "spare", tiny()), boxed(tiny_daemon, "user") as box:
        assert box.exec("/bin/sh", "-c", ":")["exitCode"] == 0
        refused = tiny_daemon.cli("image", "rm", "tiny", check=False)
        assert refused.returncode == 1 and b"used by these sandboxes: user" in refused.stderr, refused
        assert json.loads(tiny_daemon.cli("image", "prune", "--dry-run", "--json").stdout)["images"] == ["spare"]
        tiny_daemon.cli("image", "rm", "spare")
        assert names(tiny_daemon) == ["tiny"]
        assert tiny_daemon.call("PUT", "/images/spare", tiny()).status == 201
        with boxed(tiny_daemon, "stopped") as other:
            assert other.exec("/bin/sh", "-c", "umask 777; echo > /workspace/a")["exitCode"] == 0
            assert tiny_daemon.post("/sandboxes/stopped/stop").status == 204
            gone = json.loads(tiny_daemon.cli("prune", "--yes", "--json").stdout)
        assert gone == {"sandboxes": ["stopped"], "images": ["spare"], "removed": True}
        assert names(tiny_daemon) == ["tiny"] and not (tiny_daemon.state / "sandboxes/stopped").exists()
    no_trash(tiny_daemon)  # images go when no instance runs that may show them
