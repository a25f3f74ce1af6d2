"""tools/quickstart, as README.md tells it. It installs and builds nothing here: all is there already,
the image too."""
import json
import os
import re

import pytest

import harness

pytestmark = pytest.mark.portable


@pytest.fixture(scope="module")
def quickstart(folder, namespace, image_store):
    home = folder / "quickstart"
    (home / "state").mkdir(mode=0o700, parents=True)
    harness.run("cp", "-al", image_store, home / "state/images")
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(folder),
                   "PADDOCK_HOME": str(home), "PADDOCK_BUILD": str(harness.BUILD)}

    def run(*arguments):
        return harness.run(*namespace.argv(harness.ROOT / "tools/quickstart", *arguments),
                           check=False, env=environment, timeout=harness.patient(300))

    run.home = home
    yield run
    run("--stop")


def programs_below(home):
    """The instances' first processes, the daemon and the demo's servers that work on this folder."""
    needle, found = os.fsencode(home), []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                found += [pid] if needle in file.read() else []
        except OSError:
            pass
    return found


def boot_ids(daemon_ls):
    return re.findall(r'"bootId":"([^"]+)"', daemon_ls)


def next_commands(home):
    """What README.md has one type next, with this daemon's folder and this build."""
    text = (harness.ROOT / "README.md").read_text()
    block = re.search(r"^    Q=.*?(?=^\S)", text, re.M | re.S).group()
    block = re.sub(r"Q=/var/lib\S+", f"Q={home}", block, count=1)
    assert f"Q={home}" in block and "$PWD/build" in block
    return block.replace("$PWD/build", str(harness.BUILD))


def test_it_prints_the_diff_and_stop_ends_every_sandbox(quickstart):
    result = quickstart()
    assert result.returncode == 0, (result.stdout, result.stderr)
    said = result.stdout.decode()
    assert "diff --git a/NOTES.md b/NOTES.md\nnew file mode 100644" in said
    told = dict(re.findall(r"(PADDOCK_URL|PATH)=(\S+)", said))
    environment = {"PADDOCK_URL": told["PADDOCK_URL"],
                   "PATH": told["PATH"].replace("$PATH", os.environ["PATH"])}
    result = harness.run("bash", "-euc", next_commands(quickstart.home), check=False,
                         env={"PATH": os.environ["PATH"]}, timeout=harness.patient(300))
    assert result.returncode == 0 and b"+++ b/NOTES.md" in result.stdout, result
    assert json.loads(result.stdout.splitlines()[-1])["state"] == "succeeded"
    running = boot_ids(harness.run("paddock", "ls", "--json", env=environment).stdout.decode())
    assert len(running) == 2
    first = [pid for boot_id in running for pid in programs_below(boot_id)]
    assert len(first) == 2 and programs_below(quickstart.home)

    result = quickstart("--stop")
    assert result.returncode == 0, (result.stdout, result.stderr)
    assert [pid for boot_id in running for pid in programs_below(boot_id)] == []
    assert programs_below(quickstart.home) == []
    assert (quickstart.home / "state/sandboxes/agent-2/workspace/repo/NOTES.md").exists()


def test_what_readme_has_one_type_is_installed(folder):
    words = {line.split()[0] for line in next_commands(folder).splitlines() if line.startswith("    ")}
    packages = harness.run(harness.ROOT / "tools/packages", "--all", "build", "run", "demo").stdout
    assert "curl" in words
    assert {word for word in words if "=" not in word} - {"paddock", "export"} <= set(
        packages.decode().split())


def test_packages_that_are_missing_are_told_as_a_command(folder):
    """To an ordinary user, who cannot install them."""
    there = folder / "common"
    (there / "tools").mkdir(parents=True)
    for name, text in (("common.sh", (harness.ROOT / "tools/common.sh").read_text()),
                       ("packages", "#!/bin/sh\nprintf '%s\\n' one two\n"),
                       ("try", 'source "${0%/*}/common.sh"\npackages_install build\n')):
        (there / "tools" / name).write_text(text)
        (there / "tools" / name).chmod(0o755)
    result = harness.run("setpriv", "--reuid", "65534", "bash", there / "tools/try", check=False)
    assert result.returncode == 1
    assert result.stderr == b"try: packages are missing; as root: apt-get install one two\n"
