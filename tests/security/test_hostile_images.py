"""Hostile archives: whatever they hold, nothing is written outside of the image, the daemon's memory
and disk stay bounded, and the image that was there before stays."""
import gzip
import io
import json
import lzma
import os
import pathlib
import tarfile

import pytest

import archives
import harness
from archives import Oci, Tar, docker_old, gnu_sparse, imported, root, rootfs

LAYER = root().file("usr/a", b"one").done()
MARK = "paddock-import-escape"


def outside(daemon):
    """Every place that a name of these archives could mean outside of the image."""
    places = ["/", "/tmp", "/etc", "/usr", daemon.state, daemon.state / "images",
              daemon.state / "images/hostile", daemon.state / "images/.build-hostile"]
    return [str(path) for place in places for path in pathlib.Path(place).glob(f"{MARK}*")]


def refused(daemon, archive, reason):
    before = sorted(os.listdir(daemon.state / "images"))
    answer = daemon.call("PUT", "/images/hostile", archive)
    assert answer.status == 400 and reason in answer.text, (answer.status, answer.text)
    assert sorted(os.listdir(daemon.state / "images")) == before and outside(daemon) == []


@pytest.mark.parametrize("name", [
    f"../{MARK}", f"usr/../../{MARK}", f"/../{MARK}", f"usr/../{MARK}", "..", f"./../{MARK}"])
def test_dots_that_lead_up_are_refused(sh_daemon, name):
    refused(sh_daemon, root().file(name, b"x").done(), '".." in it')
    refused(sh_daemon, root().hard_link("usr/x", name).done(), '".." in it')
    refused(sh_daemon, Oci().image([root().file(name, b"x").done()]).done(), '".." in it')


@pytest.mark.parametrize("target", ["/", "/tmp", "../../../../../../../..", "/proc/self/root",
                                    "/proc/1/root/tmp", "/etc/../..", "//tmp"])
def test_a_file_through_a_link_stays_inside(sh_daemon, target):
    """A link to anywhere, then a file, a folder and a link through it."""
    tar = (root().folder("tmp").folder("proc").symlink("usr/out", target)
           .file(f"usr/out/{MARK}", b"x"))
    answer = sh_daemon.call("PUT", "/images/hostile", tar.done())
    assert outside(sh_daemon) == []
    if answer.status == 201:  # inside the image its target is a place of the image
        found = [path for path in rootfs(sh_daemon, "hostile").rglob(MARK)]
        assert len(found) == 1
        assert sh_daemon.call("DELETE", "/images/hostile").status == 204
    else:
        assert answer.status == 400, answer


def test_links_to_links_and_loops(sh_daemon):
    tar = root().symlink("a", "b").symlink("b", "/c").symlink("c", "..").file(f"a/{MARK}", b"x")
    with imported(sh_daemon, "hostile", tar.done()):
        assert (rootfs(sh_daemon, "hostile") / MARK).read_bytes() == b"x" and not outside(sh_daemon)
    refused(sh_daemon, root().symlink("l", "m").symlink("m", "l").file("l/x").done(), "/l/x")
    refused(sh_daemon, root().symlink("nowhere", "/no/such").file("nowhere/x").done(), "nowhere")


def test_a_file_over_a_link_replaces_the_link(sh_daemon):
    """The classic: a link to a file of the host, then a file of that name."""
    victim = sh_daemon.folder / MARK
    victim.write_bytes(b"kept")
    tar = root().symlink("usr/x", str(victim)).file("usr/x", b"overwritten", mode=0o777)
    with imported(sh_daemon, "hostile", tar.done()):
        assert victim.read_bytes() == b"kept"
        assert (rootfs(sh_daemon, "hostile") / "usr/x").read_bytes() == b"overwritten"


@pytest.mark.parametrize("target", ["/etc/passwd", "/etc/hostname", "etc/shadow", "/proc/self/environ"])
def test_a_hard_link_to_a_file_of_the_host_is_none(sh_daemon, target):
    tar = Tar().folder("usr").hard_link("usr/x", target)
    refused(sh_daemon, tar.done(), "usr/x")
    tar = Tar().folder("usr").symlink("etc", "/etc").hard_link("usr/x", target)
    refused(sh_daemon, tar.done(), "usr/x")


def test_a_hard_link_to_a_link_leads_nowhere_else(sh_daemon):
    victim = sh_daemon.folder / MARK
    victim.write_bytes(b"kept")
    tar = root().symlink("usr/l", str(victim)).hard_link("usr/h", "usr/l").file("usr/h", b"x")
    with imported(sh_daemon, "hostile", tar.done()):
        assert victim.read_bytes() == b"kept"
    tar = root().symlink("usr/l", str(victim)).hard_link("usr/h", "usr/l").file("usr/h/x", b"x")
    refused(sh_daemon, tar.done(), "usr/h/x")


@pytest.mark.parametrize("name", [".wh...", ".wh..", ".wh."])
def test_whiteouts_of_no_name(sh_daemon, name):
    upper = Tar().file(f"usr/{name}").done()
    refused(sh_daemon, Oci().image([LAYER, upper]).done(), "takes away what is no name")


def test_whiteouts_through_a_link_stay_inside(sh_daemon):
    victim = sh_daemon.folder / f"{MARK}-folder"
    victim.mkdir()
    (victim / "file").write_bytes(b"kept")
    lower = root().symlink("usr/out", str(victim)).symlink("up", "../../..").done()
    upper = (Tar().file("usr/out/.wh.file").file("usr/out/.wh..wh..opq").file("up/.wh.etc")
             .folder("etc").file("etc/new").done())
    with imported(sh_daemon, "hostile", Oci().image([lower, upper]).done()):
        assert (victim / "file").read_bytes() == b"kept"
        assert os.listdir(rootfs(sh_daemon, "hostile") / "etc") == ["new"]


def test_the_root_itself_is_a_folder(sh_daemon):
    refused(sh_daemon, Tar().symlink(".", "/etc").folder("usr").done(), "root of the image")
    refused(sh_daemon, Tar().folder("usr").file(".", b"x").done(), "root of the image")


def test_duplicates_the_last_one_counts(sh_daemon):
    tar = root().file("usr/x", b"first").folder("usr/x").file("usr/x/y").file("usr/x", b"last")
    with imported(sh_daemon, "hostile", tar.done()):
        assert (rootfs(sh_daemon, "hostile") / "usr/x").read_bytes() == b"last"


# ----------------------------------------------------------------------------------- sizes

def test_a_huge_sparse_file_is_refused(sh_daemon):
    archive = root().done()[:-10240] + gnu_sparse("usr/huge", 1 << 60) + bytes(10240)
    refused(sh_daemon, archive, "more than 32 GiB")
    archive = root().done()[:-10240] + gnu_sparse("usr/half", 20 << 30) + gnu_sparse(
        "usr/other", 20 << 30) + bytes(10240)
    refused(sh_daemon, archive, "more than 32 GiB")


def test_a_file_that_claims_more_than_there_is(sh_daemon):
    info = tarfile.TarInfo("usr/liar")
    info.size = 1 << 40
    archive = root().done()[:-10240] + info.tobuf(tarfile.GNU_FORMAT) + b"little"
    refused(sh_daemon, archive, "broken")
    info.size = 1 << 20
    archive = root().done()[:-10240] + info.tobuf(tarfile.GNU_FORMAT) + b"little"
    refused(sh_daemon, archive, "broken")


def test_a_bomb_ends_at_the_floor_of_the_disk(make_daemon):
    """Without its compression it is larger than what must stay free, and the floor stops it."""
    import shutil
    daemon = make_daemon(default_agent="sh", start=False)
    free = shutil.disk_usage(daemon.state).free >> 20
    daemon.config["floor"] = {"disk_mib": free - 192}
    daemon.start()
    bomb = io.BytesIO()
    with gzip.GzipFile(fileobj=bomb, mode="wb", compresslevel=1) as file:
        info = tarfile.TarInfo("usr/zeroes")
        info.size = 1 << 30
        file.write(info.tobuf())
        for _ in range(1024):
            file.write(bytes(1 << 20))
        file.write(bytes(1024))
    (daemon.folder / "bomb").write_bytes(bomb.getvalue())
    result = daemon.cli("image", "import", "hostile", daemon.folder / "bomb", check=False)
    assert result.returncode == 1 and b"is full" in result.stderr, result
    assert os.listdir(daemon.state / "images") == ["claude"]
    harness.wait_for(lambda: shutil.disk_usage(daemon.state).free >> 20 > free - 150, 60, "room again")


def test_folders_without_entries_count_and_end_at_the_floor(make_daemon):
    """One name of an archive makes 127 folders; each takes a block of the disk, and no byte of data."""
    import shutil
    daemon = make_daemon(default_agent="sh", start=False)
    free = shutil.disk_usage(daemon.state).free >> 20
    daemon.config["floor"] = {"disk_mib": free - 192}
    daemon.start()
    tar = root()
    for number in range(800):
        tar.folder(f"{number}/" + "d/" * 126)
    answer = daemon.call("PUT", "/images/hostile", gzip.compress(tar.done(), 1), timeout=300)
    assert answer.status == 503 and "is full" in answer.text, answer
    assert os.listdir(daemon.state / "images") == ["claude"]


def test_a_bomb_of_nested_compression(sh_daemon):
    bomb = LAYER
    for _ in range(40):
        bomb = gzip.compress(bomb)
    answer = sh_daemon.call("PUT", "/images/hostile", bomb)
    assert answer.status == 400, answer


def test_too_deep_and_too_long_names(sh_daemon):
    refused(sh_daemon, root().file("usr/" + "d/" * 200 + "f").done(), "too long or too deep")
    refused(sh_daemon, root().file("usr/" + "n" * 256).done(), "too long or too deep")
    refused(sh_daemon, root().file("usr/" + ("n" * 250 + "/") * 20).done(), "too long or too deep")


def test_folders_deeper_than_any_name_are_refused(sh_daemon):
    """Each link shortens the way to a folder 100 levels down, from where 100 more follow."""
    tar = root().folder("d")
    top = "d"
    for step in range(6):
        deep = top + "/n" * 100
        tar.folder(deep).symlink(f"s{step}", ("/" if step == 0 else "") + deep)
        top = f"s{step}"
    answer = sh_daemon.call("PUT", "/images/hostile", tar.done())
    assert answer.status == 400 and "measure" in answer.text, answer


def test_too_many_layers(sh_daemon):
    empty = Tar().done()
    refused(sh_daemon, docker_old([LAYER] + [empty] * 128), "129 layers, and 128 are the most")


# --------------------------------------------------------------------------- digests and JSON

def test_each_digest_is_checked(sh_daemon):
    def broken(change):
        oci = Oci().image([LAYER])
        change(oci)
        return oci.done()

    def swap(select, data):
        def change(oci):
            names = [name for name in oci.files if name.startswith("blobs/")]
            config, layer, manifest = names
            oci.files[{"config": config, "layer": layer, "manifest": manifest}[select]] = data
        return change

    other = root().file("usr/evil").done()
    refused(sh_daemon, broken(swap("layer", gzip.compress(other))), "must have the digest")
    refused(sh_daemon, broken(swap("config", archives.config_of([LAYER]) + b" ")), "must have the digest")
    refused(sh_daemon, broken(swap("manifest", b"{}")), "must have the digest")
    oci = Oci().image([other], config=archives.config_of([LAYER]))
    refused(sh_daemon, oci.done(), "a layer must have the digest")
    refused(sh_daemon, docker_old([other], archives.config_of([LAYER])), "must have the digest")
    # Bytes behind the end of the compressed layer belong to what its digest is of.
    refused(sh_daemon, broken(swap("layer", gzip.compress(LAYER) + b"more")), "must have the digest")


def test_a_layer_is_not_unpacked_before_its_digest_is_known(sh_daemon):
    """Or its entries would count although somebody changed them: told by what is complained of."""
    other = root().hard_link("usr/x", "usr/nowhere").done()
    refused(sh_daemon, docker_old([other], archives.config_of([LAYER])), "must have the digest")


def test_numbers_of_layers_that_differ(sh_daemon):
    oci = Oci().image([LAYER], config=archives.config_of([LAYER, LAYER]))
    refused(sh_daemon, oci.done(), "1 layers, its configuration 2")


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "blobs/../../x", "", "x" * 300])
def test_a_manifest_that_names_files_of_the_host(sh_daemon, name):
    def archive(entry):
        return archives.as_tar({"manifest.json": json.dumps([entry]).encode(), "usr/x": b""})
    answer = sh_daemon.call("PUT", "/images/hostile", archive({"Config": name, "Layers": []}))
    assert answer.status == 400 and "root:" not in answer.text
    config = archives.config_of([LAYER])
    answer = sh_daemon.call("PUT", "/images/hostile", archives.as_tar({
        "manifest.json": json.dumps([{"Config": "c.json", "Layers": [name]}]).encode(),
        "c.json": config}))
    assert answer.status == 400 and "root:" not in answer.text


def test_links_in_the_archive_lead_to_its_own_files_alone(sh_daemon):
    config = archives.config_of([b"x"])
    for target in ("/etc/passwd", "../../../etc/passwd", "layer.tar", "../a/layer.tar"):
        tar = Tar().file("c.json", config).symlink("a/layer.tar", target).file(
            "manifest.json", json.dumps([{"Config": "c.json", "Layers": ["a/layer.tar"]}]).encode())
        answer = sh_daemon.call("PUT", "/images/hostile", tar.done())
        assert answer.status == 400 and "root:" not in answer.text, answer


@pytest.mark.parametrize("text", [
    b"", b"[]", b"{}", b"null", b"[{}]", b"[" * 100000, b'{"manifests":{}}', b'{"a":' * 50,
    b'[{"Config":1,"Layers":2}]', b"\xff\xfe", b'{"manifests":[1,"x",null]}'])
def test_json_that_is_not_what_it_must_be(sh_daemon, text):
    oci = Oci()
    oci.files["index.json"] = text
    assert sh_daemon.call("PUT", "/images/hostile", oci.done()).status == 400
    archive = archives.as_tar({"manifest.json": text})
    assert sh_daemon.call("PUT", "/images/hostile", archive).status == 400
    assert sh_daemon.call("PUT", "/images/hostile",
                          Oci().image([LAYER], config=text or b" ").done()).status == 400


def test_huge_json(sh_daemon):
    oci = Oci()
    oci.files["index.json"] = b'{"x":"' + b"y" * (5 << 20) + b'"}'
    refused(sh_daemon, oci.done(), "longer than 4194304 bytes")
    config = json.loads(archives.config_of([LAYER]))
    config["config"] = {"Env": [f"V{n}=x" for n in range(129)]}
    refused(sh_daemon, Oci().image([LAYER], config=json.dumps(config).encode()).done(), "environment")
    config["config"] = {"Env": ["V=" + "x" * 40000]}
    refused(sh_daemon, Oci().image([LAYER], config=json.dumps(config).encode()).done(), "environment")


@pytest.mark.parametrize("change", [
    {"User": "no-such"}, {"User": "node:no-such"}, {"User": "a\nb"}, {"WorkingDir": "relative"},
    {"WorkingDir": "/a\x01"}, {"Env": ["NOEQUALS"]}, {"Env": ["=x"]}, {"Env": [1]}, {"Env": ["A=\u0000"]},
    {"User": 5}, {"User": "99999"}, {"WorkingDir": "/" + "w" * 2000}])
def test_a_configuration_that_cannot_be_kept_is_refused(sh_daemon, change):
    answer = sh_daemon.call("PUT", "/images/hostile", Oci().image([LAYER], **change).done())
    assert answer.status == 400, answer


def test_passwd_of_the_image_is_not_that_of_the_host(sh_daemon):
    """The account is looked up in the image, and a link there leads to no file outside."""
    name = "paddock-no-such-user"
    tar = Tar().folder("usr").symlink("etc", "/proc/self/root/etc").done()
    refused(sh_daemon, docker_old([tar], User="root-of-the-host"), "no")
    fifo = Tar().folder("usr").folder("etc").symlink("etc/passwd", "/dev/zero").done()
    refused(sh_daemon, docker_old([fifo], User=name), "none of that name")


def test_folders_of_paddock_that_are_links_of_the_image_lead_nowhere(make_daemon):
    """What a start mounts and writes would follow them on the host, or over the sandbox's other files."""
    daemon = make_daemon(default_agent="links", agents={"links": {
        "image": "links", "command": ["/bin/sh", "-c", "${PROMPT}"], "outcome": "exit-code"}})
    victim = daemon.folder / f"{MARK}-victim"
    victim.mkdir()
    (victim / "passwd").write_bytes(b"kept")
    tar = archives.shell_files(Tar())
    for name in ("workspace", "tmp", "home", "etc"):
        tar.symlink(name, str(victim))
    tar.symlink("proc", "/proc/1/root").symlink("dev", "../../../../dev")
    assert daemon.call("PUT", "/images/links", tar.done()).status == 201
    sandbox = daemon.sandbox("links")
    seen = sandbox.exec("/bin/sh", "-c", "for d in workspace tmp home home/agent etc proc dev; do "
                      "[ -d /$d ] && [ ! -L /$d ] && echo $d; done; echo x > /tmp/x; echo x > /home/agent/x;"
                      "[ -f /proc/self/status ] && [ -c /dev/null ] && [ -s /etc/passwd ] && echo good")
    assert seen["stdout"].split() == ["workspace", "tmp", "home", "home/agent", "etc", "proc", "dev",
                                      "good"], seen
    assert os.listdir(victim) == ["passwd"] and (victim / "passwd").read_bytes() == b"kept"
    sandbox.remove()


def test_garbage_of_every_compression(sh_daemon):
    for data in (gzip.compress(LAYER), lzma.compress(LAYER)):
        for at in (4, 20, len(data) // 2, len(data) - 4):
            broken = bytearray(data)
            broken[at] ^= 0xFF
            answer = sh_daemon.call("PUT", "/images/hostile", bytes(broken))
            assert answer.status in (400, 201), answer  # a changed time stamp is no fault
            sh_daemon.call("DELETE", "/images/hostile")
    for data in (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0", b"BZh9", b"\0" * 100000, b"PK\3\4"):
        assert sh_daemon.call("PUT", "/images/hostile", data).status == 400


def test_the_daemon_is_as_it_was(sh_daemon, sh_sandbox):
    """After all of the above."""
    assert sh_daemon.get("/healthz").status == 200
    assert sh_sandbox.sh("true")["exitCode"] == 0
    assert [image["name"] for image in sh_daemon.get("/images").json] == ["claude"]
