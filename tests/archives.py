"""Archives of images, made by hand: the smallest that show a promise, or break one."""
import contextlib
import gzip
import hashlib
import io
import json
import pathlib
import re
import subprocess
import tarfile

ARCH = {"x86_64": "amd64", "aarch64": "arm64"}[__import__("os").uname().machine]
PASSWD = b"root:x:0:0:root:/root:/bin/sh\nnode:x:1001:1002:Node:/home/node:/bin/sh\n"
GROUP = b"root:x:0:\nnode:x:1002:\nstaff:x:50:\n"


class Tar:
    """A tar in memory. `entries` are made in order by the calls."""

    def __init__(self, form=tarfile.PAX_FORMAT):
        self.bytes = io.BytesIO()
        self.tar = tarfile.open(fileobj=self.bytes, mode="w", format=form)

    def add(self, name, kind=tarfile.REGTYPE, data=b"", link="", mode=0o644, size=None, **more):
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.mode = kind, link, mode
        info.size = len(data) if size is None else size
        for key, value in more.items():
            setattr(info, key, value)
        self.tar.addfile(info, io.BytesIO(data) if data else None)
        return self

    def file(self, name, data=b"", **more):
        return self.add(name, data=data, **more)

    def folder(self, name, mode=0o755, **more):
        return self.add(name, tarfile.DIRTYPE, mode=mode, **more)

    def symlink(self, name, target, **more):
        return self.add(name, tarfile.SYMTYPE, link=target, **more)

    def hard_link(self, name, target):
        return self.add(name, tarfile.LNKTYPE, link=target)

    def device(self, name, kind=tarfile.CHRTYPE, major=1, minor=3):
        return self.add(name, kind, devmajor=major, devminor=minor)

    def done(self):
        self.tar.close()
        return self.bytes.getvalue()


def root():
    """The beginnings of a root file system."""
    return Tar().folder("etc").file("etc/passwd", PASSWD).file("etc/group", GROUP).folder("usr")


def digest(data, algorithm="sha256"):
    return f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"


def config_of(layers, arch=ARCH, **config):
    return json.dumps({"architecture": arch, "os": "linux", "config": config, "rootfs": {
        "type": "layers", "diff_ids": [digest(layer) for layer in layers]}}).encode()


def as_tar(files):
    tar = Tar()
    for name, data in files.items():
        tar.file(name, data)
    return tar.done()


class Oci:
    """An OCI image layout as a dictionary of its files."""

    def __init__(self):
        self.files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}'}
        self.manifests = []

    def blob(self, data, media="", name=None):
        what = digest(data)
        self.files[f"blobs/{(name or what).replace(':', '/')}"] = data
        return {"mediaType": media, "digest": name or what, "size": len(data)}

    def image(self, layers, arch=ARCH, compress=gzip.compress, platform=True, config=None, **more):
        config = config if config is not None else config_of(layers, arch, **more)
        manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                    "config": self.blob(config, "application/vnd.oci.image.config.v1+json"),
                    "layers": [self.blob(compress(layer), "application/vnd.oci.image.layer.v1.tar+gzip")
                               for layer in layers]}
        entry = self.blob(json.dumps(manifest).encode(), manifest["mediaType"])
        if platform:
            entry["platform"] = {"os": "linux", "architecture": arch}
        self.manifests.append(entry)
        return self

    def index(self):
        return json.dumps({"schemaVersion": 2, "manifests": self.manifests}).encode()

    def all_files(self):
        return {**self.files, "index.json": self.files.get("index.json", self.index())}

    def done(self):
        return as_tar(self.all_files())

    def folder(self, path):
        for name, data in self.all_files().items():
            target = path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        return path


def docker_old(layers, config=None, links=(), **more):
    """As `docker save` wrote it for years: ID/layer.tar, manifest.json last. `links` has numbers of
    layers that are links to the one before."""
    config = config if config is not None else config_of(layers, **more)
    name = hashlib.sha256(config).hexdigest() + ".json"
    tar = Tar()
    names = []
    for number, layer in enumerate(layers):
        names.append(f"{number:064x}/layer.tar")
        tar.folder(f"{number:064x}").file(f"{number:064x}/VERSION", b"1.0")
        if number in links:
            tar.symlink(names[-1], f"../{number - 1:064x}/layer.tar")
        else:
            tar.file(names[-1], layer)
    tar.file(name, config).file("manifest.json", json.dumps(
        [{"Config": name, "RepoTags": ["x:latest"], "Layers": names}]).encode())
    return tar.done()


def gnu_sparse(name, size):
    """A header of an old GNU sparse file with one hole of `size` bytes."""
    info = tarfile.TarInfo(name)
    info.type, info.size = tarfile.GNUTYPE_SPARSE, 0
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[386:398] = tarfile.itn(size, 12, tarfile.GNU_FORMAT)  # sparse[0]: at the end, no bytes
    header[398:410] = tarfile.itn(0, 12, tarfile.GNU_FORMAT)
    header[483:495] = tarfile.itn(size, 12, tarfile.GNU_FORMAT)  # realsize
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header)


def shell_files(tar):
    """The smallest that a program can run in: a shell and its libraries, at their own paths."""
    libraries = subprocess.run(["ldd", "/bin/sh"], check=True, stdout=subprocess.PIPE).stdout.decode()
    for path in sorted({"/bin/sh"} | set(re.findall(r"(/\S+) \(0x", libraries))):
        tar.file(path.lstrip("/"), pathlib.Path(path).read_bytes(), mode=0o755)
    return tar


@contextlib.contextmanager
def imported(daemon, name, archive, status=201, headers=None):
    """Imports the bytes; afterwards the image goes again."""
    answer = daemon.call("PUT", f"/images/{name}", archive, headers=headers)
    assert answer.status == status, (answer.status, answer.body[:2000])
    try:
        yield answer
    finally:
        daemon.call("DELETE", f"/images/{name}")


def rootfs(daemon, name):
    return daemon.state / "images" / name / "rootfs"
