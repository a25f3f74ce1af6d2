"""`paddock image import`: archives of every accepted kind become images that sandboxes run on."""
import bz2
import contextlib
import gzip
import json
import lzma
import os
import shutil
import socket
import stat
import subprocess
import tarfile

import pytest

import archives
import harness
from archives import Oci, Tar, docker_old, imported, root, rootfs, shell_files

LAYER = root().file("usr/a", b"one").file("usr/b", b"two").done()


def zstd(data):
    return subprocess.run(["zstd", "-q", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress, zstd, bz2.compress],
                         ids=["plain", "gz", "xz", "zst", "bz2"])
def test_a_tar_of_a_root_file_system_with_any_compression(sh_daemon, compress):
    with imported(sh_daemon, "tar", compress(LAYER)) as answer:
        assert answer.json["name"] == "tar" and answer.json["sizeBytes"] > 0
        assert (rootfs(sh_daemon, "tar") / "usr/b").read_bytes() == b"two"


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_names_of_every_kind_come_through(sh_daemon, form):
    names = ["usr/with space", "usr/'quote\"", "usr/line\nend", "usr/" + "n" * 99, "./usr/./dot"]
    if form != tarfile.USTAR_FORMAT:
        names += ["usr/" + "d" * 200 + "/" + "f" * 200, "usr/é😀"]
    if form == tarfile.GNU_FORMAT:
        names.append("usr/\udcff")
    tar = Tar(form).folder("etc").folder("usr")
    for name in names:
        tar.file(name, name.encode(errors="surrogateescape"))
    with imported(sh_daemon, "names", tar.done()):
        for name in names:
            assert (rootfs(sh_daemon, "names") / name).read_bytes() == name.encode(
                errors="surrogateescape")


def test_modes_owners_times_and_links(sh_daemon):
    tar = (root().folder("usr/sticky", mode=0o1777).folder("usr/group", mode=0o2775, gid=50)
           .file("usr/file", b"data", mode=0o751, uid=1000, gid=1001, mtime=1234567890)
           .file("usr/setuid", b"", mode=0o6755).file("usr/large", b"", uid=4000000, gid=65536)
           .symlink("usr/link", "/etc/passwd").hard_link("usr/hard", "usr/file")
           .folder("usr/shut", mode=0o500, uid=1000).file("usr/shut/in", b"in"))
    with imported(sh_daemon, "modes", tar.done()):
        top = rootfs(sh_daemon, "modes")

        def of(name):
            status = os.lstat(top / name)
            return stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid
        assert of("usr/sticky") == (0o1777, 0, 0) and of("usr/group") == (0o2775, 0, 50)
        assert of("usr/file") == (0o751, 1000, 1001)
        assert os.stat(top / "usr/file").st_mtime == 1234567890
        assert of("usr/setuid") == (0o755, 0, 0) and of("usr/large") == (0o644, 65534, 65534)
        assert os.readlink(top / "usr/link") == "/etc/passwd"
        assert os.path.samefile(top / "usr/hard", top / "usr/file")
        assert of("usr/shut") == (0o500, 1000, 0) and (top / "usr/shut/in").read_bytes() == b"in"


def test_extended_attributes_are_left_out(sh_daemon):
    tar = root().file("usr/cap", b"x", pax_headers={
        "SCHILY.xattr.security.capability": "\1\0\0\2\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        "SCHILY.xattr.user.overlay.redirect": "/etc", "SCHILY.acl.access": "user::rwx"})
    with imported(sh_daemon, "xattr", tar.done()):
        assert os.listxattr(rootfs(sh_daemon, "xattr") / "usr/cap") == []


def test_devices_are_left_out_and_told(sh_daemon):
    tar = root().device("usr/null").device("usr/disk", tarfile.BLKTYPE).add("usr/fifo", tarfile.FIFOTYPE)
    with imported(sh_daemon, "devices", tar.done()) as answer:
        assert answer.json["dropped"] == 3 and os.listdir(rootfs(sh_daemon, "devices") / "usr") == []


def test_sparse_files_keep_their_holes(sh_daemon, tmp_path):
    (tmp_path / "usr").mkdir()
    with open(tmp_path / "usr/sparse", "wb") as file:
        file.seek(64 << 20)
        file.write(b"end")
    harness.run("tar", "-C", tmp_path, "-cSf", tmp_path / "t", "usr")
    with imported(sh_daemon, "sparse", (tmp_path / "t").read_bytes()) as answer:
        assert (rootfs(sh_daemon, "sparse") / "usr/sparse").stat().st_size == (64 << 20) + 3
        assert answer.json["sizeBytes"] < 1 << 20


# --------------------------------------------------------------------------------- layers

LOWER = (root().folder("usr/dir").file("usr/dir/lower").file("usr/gone").folder("usr/tree/deep")
         .file("usr/tree/deep/f").file("usr/file", b"old").folder("usr/becomes-file")
         .file("usr/becomes-file/x").file("usr/becomes-folder").folder("usr/lib")
         .symlink("lib", "usr/lib").symlink("usr/was-link", "dir").done())
UPPER = (Tar().file("usr/dir/upper").file("usr/dir/.wh..wh..opq").file("usr/.wh.gone")
         .file("usr/.wh.tree").file("usr/.wh.never-there").file("usr/file", b"new")
         .file("usr/becomes-file", b"file").folder("usr/becomes-folder")
         .file("usr/becomes-folder/y").file("lib/through-link", b"z").file("usr/.wh..wh.plnk")
         .folder("usr/was-link").file("usr/was-link/own").done())


def check_layers(top):
    assert sorted(os.listdir(top / "usr/dir")) == ["upper"]
    assert sorted(os.listdir(top / "usr")) == [
        "becomes-file", "becomes-folder", "dir", "file", "lib", "was-link"]
    assert (top / "usr/file").read_bytes() == b"new"
    assert (top / "usr/becomes-file").read_bytes() == b"file"
    assert os.listdir(top / "usr/becomes-folder") == ["y"]
    assert os.readlink(top / "lib") == "usr/lib" and os.listdir(top / "usr/lib") == ["through-link"]
    assert os.listdir(top / "usr/was-link") == ["own"]


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstd], ids=["tar", "gz", "zst"])
def test_layers_of_an_oci_layout(sh_daemon, compress):
    with imported(sh_daemon, "oci", Oci().image([LOWER, UPPER], compress=compress).done()):
        check_layers(rootfs(sh_daemon, "oci"))


def test_layers_of_docker_save_as_it_was(sh_daemon):
    with imported(sh_daemon, "docker", docker_old([LOWER, UPPER])):
        check_layers(rootfs(sh_daemon, "docker"))


def test_docker_save_with_a_layer_that_is_a_link(sh_daemon):
    archive = docker_old([LOWER, LOWER], links=[1])
    with imported(sh_daemon, "docker", archive):
        assert (rootfs(sh_daemon, "docker") / "usr/gone").exists()


def test_docker_save_compressed_as_a_whole(sh_daemon):
    with imported(sh_daemon, "docker", gzip.compress(docker_old([LOWER, UPPER]))):
        check_layers(rootfs(sh_daemon, "docker"))


def test_a_whiteout_in_a_tar_that_is_no_layer_is_a_file(sh_daemon):
    with imported(sh_daemon, "plain", root().file("usr/x").file("usr/.wh.x").done()):
        assert sorted(os.listdir(rootfs(sh_daemon, "plain") / "usr")) == [".wh.x", "x"]


def test_the_image_for_this_machine_is_taken(sh_daemon):
    other = {"amd64": "arm64", "arm64": "amd64"}[archives.ARCH]
    oci = Oci().image([root().file("usr/other").done()], arch=other).image([LAYER])
    attestation = oci.blob(b"{}", "application/vnd.oci.image.manifest.v1+json")
    oci.manifests.append({**attestation, "platform": {"os": "unknown", "architecture": "unknown"}})
    with imported(sh_daemon, "multi", oci.done()):
        assert not (rootfs(sh_daemon, "multi") / "usr/other").exists()
    with imported(sh_daemon, "multi", Oci().image([LAYER], arch=other).done(), 400) as answer:
        assert f"no image for linux/{archives.ARCH}" in answer.text
    oci = Oci().image([LAYER], arch=other, platform=False)
    with imported(sh_daemon, "multi", oci.done(), 400) as answer:
        assert f"the image is for linux/{other}, this machine is linux/" in answer.text


def test_an_index_that_leads_to_an_index(sh_daemon):
    oci = Oci().image([LAYER])
    for _ in range(2):
        index = oci.blob(oci.index(), "application/vnd.oci.image.index.v1+json")
        oci.manifests = [index]
    with imported(sh_daemon, "nested", oci.done()):
        assert (rootfs(sh_daemon, "nested") / "usr/a").exists()
    for _ in range(3):
        oci.manifests = [oci.blob(oci.index(), "application/vnd.oci.image.index.v1+json")]
    with imported(sh_daemon, "nested", oci.done(), 400) as answer:
        assert "indexes lead to indexes" in answer.text


def test_several_images_in_one_archive_are_not_guessed_at(sh_daemon):
    oci = Oci().image([LAYER]).image([LOWER])
    with imported(sh_daemon, "two", oci.done(), 400) as answer:
        assert "several images" in answer.text


def test_what_the_image_says_of_its_programs_is_kept(sh_daemon):
    oci = Oci().image([LAYER], User="node:staff", WorkingDir="/srv/app",
                      Env=["PATH=/opt/bin:/usr/bin", "LEVEL=é=1"], Labels={"x": "y"})
    with imported(sh_daemon, "config", oci.done()):
        info = json.loads((sh_daemon.state / "images/config/image.json").read_text())
        assert (info["user"], info["uid"], info["gid"], info["home"]) == (
            "node:staff", 1001, 50, "/home/node")
        assert info["workdir"] == "/srv/app" and info["imported"] is True
        assert info["env"] == ["PATH=/opt/bin:/usr/bin", "LEVEL=é=1"]


@pytest.mark.parametrize("user,uid,gid,home", [
    ("", 0, 0, "/root"), ("1001", 1001, 1002, "/home/node"), ("7", 7, 0, ""), ("7:8", 7, 8, ""),
    ("0:0", 0, 0, "/root"), ("node", 1001, 1002, "/home/node"), ("node:9", 1001, 9, "/home/node")])
def test_a_user_is_looked_up_as_the_image_means_it(sh_daemon, user, uid, gid, home):
    with imported(sh_daemon, "user", docker_old([LAYER], User=user)):
        info = json.loads((sh_daemon.state / "images/user/image.json").read_text())
        assert (info["uid"], info["gid"]) == (uid, gid) and info["home"] in (home, "")


# -------------------------------------------------------------------------------- replacing

def test_an_import_replaces_the_image_at_once_and_a_failed_one_leaves_it(sh_daemon):
    with imported(sh_daemon, "again", LAYER):
        top = rootfs(sh_daemon, "again")
        for broken in (b"", b"nonsense", LAYER[:700], gzip.compress(LAYER)[:-5], Tar().file("x").done()):
            answer = sh_daemon.call("PUT", "/images/again", broken)
            assert answer.status == 400, answer
            assert (top / "usr/a").read_bytes() == b"one"
        answer = sh_daemon.call("PUT", "/images/again", root().file("usr/new").done())
        assert answer.status == 201 and os.listdir(top / "usr") == ["new"]
    assert not [name for name in os.listdir(sh_daemon.state / "images") if name != "claude"]


def test_a_client_that_goes_away_leaves_nothing(sh_daemon):
    """Cut where a tar could end: the whole of it is what the client said, not what the tar says."""
    cut = LAYER[:LAYER.rindex(b"two") // 512 * 512]
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(sh_daemon.socket))
        sock.sendall(b"PUT /images/cut HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(LAYER))
        sock.sendall(cut)
        harness.wait_for(lambda: (sh_daemon.state / "images/.build-cut/rootfs").exists(), what="start")
    harness.wait_for(lambda: os.listdir(sh_daemon.state / "images") == ["claude"], what="end")
    assert [image["name"] for image in sh_daemon.get("/images").json] == ["claude"]


def test_a_second_import_of_a_name_is_refused_before_its_body(sh_daemon):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(sh_daemon.socket))
        sock.sendall(b"PUT /images/busy HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n")
        harness.wait_for(lambda: (sh_daemon.state / "images/.build-busy").exists(), what="start")
        assert sh_daemon.call("PUT", "/images/busy", LAYER).status == 409
    harness.wait_for(lambda: not (sh_daemon.state / "images/.build-busy").exists(), what="end")


def test_four_images_are_built_or_imported_at_once(sh_daemon):
    with contextlib.ExitStack() as stack:
        for number in range(4):
            sock = stack.enter_context(socket.socket(socket.AF_UNIX))
            sock.connect(str(sh_daemon.socket))
            sock.sendall(b"PUT /images/at-once-%d HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n"
                         % number)
            build = sh_daemon.state / f"images/.build-at-once-{number}"
            harness.wait_for(build.exists, what="start")
        for answer in (sh_daemon.call("PUT", "/images/fifth", LAYER),
                       sh_daemon.post("/images", {"name": "claude", "rebuild": True})):
            assert answer.status == 503 and "4 images are being built or imported" in answer.text
    harness.wait_for(lambda: os.listdir(sh_daemon.state / "images") == ["claude"], what="end")


def test_the_body_may_be_chunked_and_asks_before_it_is_sent(sh_daemon):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(sh_daemon.socket))
        sock.settimeout(30)
        sock.sendall(b"PUT /images/chunked HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                     b"Transfer-Encoding: chunked\r\n\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 100 ")
        for at in range(0, len(LAYER), 1000):
            piece = LAYER[at:at + 1000]
            sock.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        sock.sendall(b"0\r\n\r\n")
        assert sock.recv(1000).startswith(b"HTTP/1.1 201 ")
    assert sh_daemon.call("DELETE", "/images/chunked").status == 204


@pytest.fixture
def small_disk(folder, namespace):
    """A daemon whose state is on a disk of 24 MiB that has no floor."""
    here = folder / "small"
    (here / "state").mkdir(parents=True, mode=0o700)
    harness.run("mount", "-t", "tmpfs", "-o", "size=24m,nr_inodes=100000,mode=700", "none", here / "state")
    daemon = harness.Daemon(here, namespace, {"policy": str(harness.ROOT / "policy/default.json"),
                                              "floor": {"disk_mib": 0}})
    yield daemon
    daemon.stop()
    harness.run("umount", here / "state")


@pytest.mark.portable  # its disk is a tmpfs, which before Linux 6.3 has no idmapped mounts
def test_a_disk_that_fills_is_not_the_archives_fault(small_disk):
    small_disk.start()
    large, fits_once = (gzip.compress(root().file("usr/a", bytes(mib << 20)).done(), 1) for mib in (30, 14))
    no_space = "No space left on device"
    for archive, files, reasons in ((large, 100000, ("cannot write the archive to the disk", no_space)),
                                    (fits_once, 100000, ("cannot write a file", no_space)),
                                    (LAYER, 600, ("it has no room for more files",))):
        harness.run("mount", "-o", f"remount,nr_inodes={files}", small_disk.state)
        answer = small_disk.call("PUT", "/images/full", archive)
        assert answer.status == 503 and answer.headers["retry-after"], (answer.status, answer.text)
        assert all(reason in answer.text for reason in reasons), answer.text
        assert os.listdir(small_disk.state / "images") == []
        harness.wait_for(lambda: not os.listdir(small_disk.state / "trash"), 30, "room again")
    result = small_disk.cli("image", "import", "full", "-", input=LAYER, check=False)
    assert result.returncode == 1 and b"it has no room for more files" in result.stderr, result
    harness.run("mount", "-o", "remount,nr_inodes=100000", small_disk.state)
    assert small_disk.call("PUT", "/images/full", LAYER).status == 201


def test_a_jail_that_reports_nothing_is_not_the_clients_fault(folder, namespace):
    """paddock-jail is a program that ends well and does nothing."""
    here = folder / "no-report"
    programs = here / "bin"
    programs.mkdir(parents=True)
    for name in ("paddockd", "paddock-api", "paddock-egress", "paddock-init", "paddock-image-build"):
        shutil.copy(harness.BIN / name, programs / name)
    shutil.copy("/bin/true", programs / "paddock-jail")
    daemon = harness.Daemon(here, namespace, {"policy": str(harness.ROOT / "policy/default.json")})
    daemon.paddockd = programs / "paddockd"
    daemon.start()
    answer = daemon.call("PUT", "/images/none", LAYER)
    assert (answer.status, answer.text) == (500, "Sandbox request failed"), answer
    assert "the import ended without a report" in daemon.errors()[-1]
    assert daemon.get("/images").json == []
    daemon.stop()


# ------------------------------------------------------------------- peers, and the real thing

def test_archives_of_skopeo_and_umoci(sh_daemon, tmp_path):
    """What independent tools make of a root file system, in each of their formats."""
    layout = tmp_path / "layout"
    harness.run("umoci", "init", "--layout", layout)
    harness.run("umoci", "new", "--image", f"{layout}:tag")
    base = tmp_path / "bundle"
    harness.run("umoci", "unpack", "--image", f"{layout}:tag", base)
    (base / "rootfs/usr/bin").mkdir(parents=True)
    (base / "rootfs/usr/bin/tool").write_bytes(b"tool")
    (base / "rootfs/usr/gone").write_bytes(b"")
    harness.run("umoci", "repack", "--image", f"{layout}:tag", base)
    again = tmp_path / "again"
    harness.run("umoci", "unpack", "--image", f"{layout}:tag", again)
    (again / "rootfs/usr/gone").unlink()
    (again / "rootfs/usr/second").write_bytes(b"2")
    harness.run("umoci", "repack", "--image", f"{layout}:tag", again)
    harness.run("umoci", "config", "--image", f"{layout}:tag", "--config.env", "A=B",
                "--config.workingdir", "/srv")
    harness.run("skopeo", "copy", "--insecure-policy", f"oci:{layout}:tag",
                f"docker-archive:{tmp_path}/docker.tar:x:tag")
    harness.run("skopeo", "copy", "--insecure-policy", f"oci:{layout}:tag",
                f"oci-archive:{tmp_path}/oci.tar:tag")
    harness.run("tar", "-C", layout, "-cf", tmp_path / "layout.tar", ".")
    for file in ("docker.tar", "oci.tar", "layout.tar"):
        with imported(sh_daemon, "peer", (tmp_path / file).read_bytes()):
            top = rootfs(sh_daemon, "peer")
            assert (top / "usr/bin/tool").read_bytes() == b"tool", file
            assert sorted(os.listdir(top / "usr")) == ["bin", "second"], file
            info = json.loads((top / "../image.json").read_text())
            assert "A=B" in info["env"] and info["workdir"] == "/srv", file


# ------------------------------------------------------------------------- the command line

def test_the_command_line_takes_files_folders_and_standard_input(sh_daemon, tmp_path):
    Oci().image([LOWER, UPPER]).folder(tmp_path / "layout")
    (tmp_path / "tar").write_bytes(LAYER)
    result = sh_daemon.cli("image", "import", "from-cli", tmp_path / "layout")
    assert result.stdout == b"image from-cli: 0 MiB\n" and result.stderr == b""
    check_layers(rootfs(sh_daemon, "from-cli"))
    sh_daemon.cli("image", "import", "from-cli", tmp_path / "tar")
    assert (rootfs(sh_daemon, "from-cli") / "usr/a").exists()
    result = sh_daemon.cli("image", "import", "--json", "from-cli", "-",
                           input=root().device("usr/null").done())
    assert json.loads(result.stdout)["dropped"] == 1
    result = sh_daemon.cli("image", "import", "from-cli", "-", input=root().device("usr/null").done())
    assert b"left out: 1 device nodes" in result.stdout
    sh_daemon.cli("image", "rm", "from-cli")


def test_a_layout_whose_files_have_holes_comes_through(sh_daemon, tmp_path):
    layer = root().file("usr/a", b"one").file("usr/zeros", bytes(4 << 20)).file("usr/b", b"two").done()
    layout = Oci().image([layer], compress=bytes).folder(tmp_path / "layout")
    for path in (layout / "blobs/sha256").iterdir():
        harness.run("fallocate", "--dig-holes", path)
    assert any(path.stat().st_blocks * 512 < path.stat().st_size for path in (layout / "blobs/sha256").iterdir())
    sh_daemon.cli("image", "import", "holes", layout)
    top = rootfs(sh_daemon, "holes")
    assert (top / "usr/zeros").read_bytes() == bytes(4 << 20) and (top / "usr/b").read_bytes() == b"two"
    sh_daemon.cli("image", "rm", "holes")


def test_what_the_command_line_refuses(sh_daemon, tmp_path):
    def fails(status, reason, *arguments, **options):
        result = sh_daemon.cli("image", "import", *arguments, check=False, **options)
        assert result.returncode == status and reason in result.stderr, result

    fails(1, b"no OCI image layout", "x", tmp_path)
    fails(1, b"No such file", "x", tmp_path / "none")
    fails(2, b"", "x")
    fails(2, b"", "Not-A-Name", tmp_path)
    fails(1, b"x: the archive is empty or broken", "x", "-", input=b"")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(sh_daemon.socket))
        sock.sendall(b"PUT /images/busy HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n")
        harness.wait_for(lambda: (sh_daemon.state / "images/.build-busy").exists(), what="start")
        # A gigabyte that is not sent, since the refusal comes first.
        with open(tmp_path / "large", "wb") as file:
            file.truncate(1 << 30)
        fails(1, b"is being built or imported already", "busy", tmp_path / "large", timeout=20)
    harness.wait_for(lambda: not (sh_daemon.state / "images/.build-busy").exists(), what="end")


# ------------------------------------------------------------------- running, removing, pruning

def claude_tar(image_store, tmp_path):
    path = tmp_path / "claude.tar"
    harness.run("tar", "-C", f"{image_store}/claude/rootfs", "-cf", path, ".")
    return path


def test_a_sandbox_runs_on_an_imported_image(make_daemon, image_store, tmp_path):
    """The built image, packed and imported under another name, with an environment of its own: the
    main job with the real Claude Code, and the files of /etc that are ours."""
    recipe = json.loads(harness.run("/usr/bin/python3", "-c", "import sys, json; sys.path.insert(0, "
                                    f"'{harness.ROOT}/tools/demo'); from policy import read_policy; "
                                    f"print(json.dumps(read_policy('{harness.ROOT}/images/claude/agent.json')))"
                                    ).stdout)
    recipe["image"] = "again"
    recipe["env"]["CLAUDE_CODE_MAX_RETRIES"] = "1"
    daemon = make_daemon(default_agent="again", agents={"again": recipe})
    layer = claude_tar(image_store, tmp_path).read_bytes()
    oci = Oci().image([layer], compress=bytes, Env=[
        "PATH=/opt/own/bin:/usr/local/bin:/usr/bin:/bin", "OWN=x y", "SSL_CERT_FILE=/no", "LANG=C"], WorkingDir="/usr/share")
    (tmp_path / "oci.tar").write_bytes(oci.done())
    (tmp_path / "claude.tar").unlink()
    daemon.cli("image", "import", "again", tmp_path / "oci.tar")
    sandbox = daemon.sandbox("imported")
    assert sandbox.sh("pwd")["stdout"] == "/usr/share\n"
    assert sandbox.clone().status == 200
    seen = sandbox.sh("pwd; echo $PATH; echo $OWN; echo $SSL_CERT_FILE; id -u; cat /etc/resolv.conf")
    assert seen["stdout"].splitlines() == [
        "/workspace", "/opt/own/bin:/usr/local/bin:/usr/bin:/bin", "x y", "/etc/ssl/certs/ca-certificates.crt",
        "1000", "nameserver 100.64.0.2"]
    end = sandbox.run_task("Add a file", 120)
    assert end["state"] == "succeeded", end
    images = {image["name"]: image for image in daemon.get("/images").json}
    assert images["again"]["usedBy"] == ["imported"] and images["again"]["default"]
    assert images["claude"]["usedBy"] == [] and not images["claude"]["default"]
    answer = daemon.call("DELETE", "/images/again")
    assert (answer.status, answer.text) == (409, "again is used by these sandboxes: imported")
    daemon.call("POST", "/sandboxes/imported/stop")
    assert daemon.call("DELETE", "/images/again").status == 409
    dry = json.loads(daemon.cli("image", "prune", "--dry-run", "--json").stdout)
    assert dry == {"images": ["claude"], "removed": False} and len(daemon.get("/images").json) == 2
    daemon.cli("image", "prune", "--yes")
    assert [image["name"] for image in daemon.get("/images").json] == ["again"]
    sandbox.remove()
    daemon.cli("image", "prune", "--yes")
    assert [image["name"] for image in daemon.get("/images").json] == ["again"], "the default's"


def test_the_images_folder_is_where_a_program_begins_its_user_is_not_who_it_runs_as(make_daemon):
    daemon = make_daemon(default_agent="own", agents={"own": {
        "image": "own", "command": ["/bin/sh", "-c", "${PROMPT}"], "outcome": "exit-code"}})
    layer = (shell_files(root()).folder("srv").folder("srv/app", uid=1001, gid=1002)
             .folder("shut", mode=0o700).symlink("away", "/nowhere").done())

    def begins(sandbox, **more):
        return sandbox.exec("/bin/sh", "-c", "pwd; echo $OWN", **more)["stdout"].split()

    def make(workdir, name):
        image = Oci().image([layer], User="node", WorkingDir=workdir, Env=["OWN=yes"]).done()
        answer = daemon.call("PUT", "/images/own", image)
        assert answer.status == 201 and answer.json["user"] == "node"
        return daemon.sandbox(name)

    sandbox = make("/srv/app", "in-srv")
    assert begins(sandbox) == ["/srv/app", "yes"] == begins(sandbox, user="root")
    assert begins(sandbox, cwd="/etc") == ["/etc", "yes"]
    status = "while read -r key value; do [ $key = Uid: ] && echo $value; done < /proc/self/status"
    assert sandbox.exec("/bin/sh", "-c", status)["stdout"].split() == ["1000"] * 4
    daemon.kill()
    daemon.start()  # it is taken over
    assert begins(sandbox) == ["/srv/app", "yes"]
    for workdir, agent, root_user in (("/shut", "/workspace", "/shut"), ("/away", "/workspace", "/workspace"),
                                      ("/none", "/workspace", "/workspace"), ("", "/workspace", "/workspace")):
        other = make(workdir, "elsewhere")
        assert begins(other)[0] == agent and begins(other, user="root")[0] == root_user, workdir
        other.remove()
    image = {image["name"]: image for image in daemon.get("/images").json}["own"]
    assert (image["user"], image["workdir"]) == ("node", "")
    listed = daemon.cli("image", "ls").stdout.decode()
    assert "ITS USER" in listed and "WORKDIR" in listed and " node " in listed
    said = daemon.cli("image", "import", "said", "-", input=Oci().image([layer], User="node").done())
    assert b"its user node is not used: programs in a sandbox run as agent" in said.stdout
    sandbox.remove()


def test_a_dangling_resolv_conf_of_the_image_is_replaced(make_daemon, image_store, tmp_path):
    """CASES F3."""
    daemon = make_daemon(default_agent="dangling", agents={"dangling": {
        "image": "dangling", "command": ["/bin/sh", "-c", "${PROMPT}"], "outcome": "exit-code"}})
    lower = claude_tar(image_store, tmp_path).read_bytes()
    upper = (Tar().symlink("etc/resolv.conf", "/run/nowhere/resolv.conf").folder("etc/hosts")
             .symlink("etc/hostname", "hostname").symlink("etc/passwd", "/nowhere").done())
    (tmp_path / "a").write_bytes(docker_old([lower, upper]))
    daemon.cli("image", "import", "dangling", tmp_path / "a")
    sandbox = daemon.sandbox("f3")
    seen = sandbox.sh("cat /etc/resolv.conf; head -1 /etc/hosts; cat /etc/hostname; id -un")
    assert seen["stdout"].splitlines() == ["nameserver 100.64.0.2", "127.0.0.1\tlocalhost", "f3", "agent"]
    sandbox.remove()
