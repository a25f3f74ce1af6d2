"""The Debian package: built, checked by lintian, then installed, run and purged on a bare machine."""
import os
import pathlib
import shutil
import subprocess

import pytest

import harness

# What lintian says that stays: whoever publishes the package puts in an address of their own.
LINTIAN_KNOWN = ("bogus-mail-host",)


def copy_tree(to):
    """The files of the work tree that git knows."""
    names = harness.run("git", "-C", harness.ROOT, "ls-files", "-coz",
                        "--exclude-standard").stdout.decode().split("\0")
    for name in filter(None, names):
        if (harness.ROOT / name).exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(harness.ROOT / name, to / name, follow_symlinks=False)


@pytest.fixture(scope="module")
def package(folder):
    source = folder / "package/paddock"
    copy_tree(source)
    built = subprocess.run(["dpkg-buildpackage", "-us", "-uc", "-b"], cwd=source, check=False,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert built.returncode == 0, built.stdout[-4000:].decode()
    return source.parent


def test_lintian_finds_nothing(package):
    changes = next(package.glob("*.changes"))
    text = harness.run("lintian", "--fail-on", "none", changes).stdout.decode()
    found = [line for line in text.splitlines()
             if line[:2] in ("E:", "W:") and not any(tag in line for tag in LINTIAN_KNOWN)]
    assert found == []


def test_the_package_is_installed_run_upgraded_and_purged_on_a_bare_machine(package, folder):
    share = folder / "share"
    share.mkdir()
    shutil.copy(next(package.glob("paddock_*.deb")), share / "paddock.deb")
    shutil.copy(pathlib.Path(__file__).with_name("package_inside.sh"), share)
    inside = subprocess.run([harness.ROOT / "tools/fresh", "/bin/bash", "/share/package_inside.sh"],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=900,
                            env={**os.environ, "PADDOCK_FRESH_SHARE": str(share)})
    text = inside.stdout.decode(errors="replace")
    assert inside.returncode == 0 and text.endswith("\nall is well\n"), text[-6000:]
