"""The Debian package: built, checked by lintian, then installed, run and purged on a bare machine."""
import shutil
import subprocess

import pytest

import bare
import harness

# What lintian says that stays: whoever publishes the package puts in an address of their own.
LINTIAN_KNOWN = ("bogus-mail-host",)


@pytest.fixture(scope="module")
def package(folder):
    source = folder / "package/paddock"
    bare.copy_tree(source)
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
    bare.run_on_a_bare_machine(share, "package_inside.sh")
