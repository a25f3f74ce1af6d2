"""What the Debian package asks for; and what its scripts do to a machine, in a mount namespace of the
test's own."""
import re
import shutil
import subprocess

import pytest

import harness

pytestmark = pytest.mark.portable

# $1: the test's folder; it runs prerm where two daemons run, and tells which is left.
SCRIPT = r"""
set -eu
mkdir "$1/upper" "$1/work"
mount -t overlay overlay -o "lowerdir=/usr/sbin,upperdir=$1/upper,workdir=$1/work" /usr/sbin
cp "$1/paddockd" /usr/sbin/paddockd
mount -t tmpfs tmpfs /var/lib
mount -t tmpfs tmpfs /run
mkdir /var/lib/paddock /var/lib/other
start() {
    /usr/sbin/paddockd -o "$1" sleep 60 </dev/null >/dev/null 2>&1 &
    pid=$!
    while flock -n "$1" true; do kill -0 $pid; done
}
start /var/lib/paddock/lock
start /var/lib/other/lock
sh "$2" "$3" >&2
for name in paddock other; do
    flock -n /var/lib/$name/lock true && echo "$name ended" || echo "$name runs"
done
"""


def run_prerm(folder, action):
    """flock(1) is the daemon: all that counts is the name of its program and the lock it holds."""
    here = folder / f"prerm-{action}"
    here.mkdir()
    shutil.copy("/usr/bin/flock", here / "paddockd")
    prerm = harness.ROOT / "debian/paddock.prerm"
    # The daemons are ended with the test's pid namespace.
    result = harness.run("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
                         SCRIPT, "sh", here, prerm, action, stdin=subprocess.DEVNULL, timeout=60)
    return result.stdout.decode().splitlines()


def test_a_removal_stops_the_daemon_of_the_machine_alone(folder):
    assert run_prerm(folder, "remove") == ["paddock ended", "other runs"]


def test_an_upgrade_stops_none(folder):
    assert run_prerm(folder, "upgrade") == ["paddock runs", "other runs"]


def field(name):
    """The packages of a field of debian/control."""
    text = (harness.ROOT / "debian/control").read_text()
    value = re.search(rf"^{name}:((?:.*\n)(?:[ \t].*\n)*)", text, re.M)[1]
    return {part.split()[0].removesuffix(":any") for part in value.replace("\n", " ").split(",")}


def listed(*sets):
    out = harness.run(harness.ROOT / "tools/packages", "--all", *sets).stdout.decode()
    return set(out.split())


def test_the_package_asks_for_what_a_build_and_a_run_need():
    """tools/packages is what the sources need; a compiler, libc and ninja come with debhelper and meson."""
    implied = {"gcc", "libc6-dev", "ninja-build"}
    assert listed("build") - implied <= field("Build-Depends")
    assert listed("run") <= field("Depends") | field("Recommends")
