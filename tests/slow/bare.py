"""Running scripts of this folder on a bare machine."""
import os
import pathlib
import shutil
import subprocess

import harness

HERE = pathlib.Path(__file__).parent


def copy_tree(to):
    """The files of the work tree that git knows."""
    names = harness.run("git", "-C", harness.ROOT, "ls-files", "-coz",
                        "--exclude-standard").stdout.decode().split("\0")
    for name in filter(None, names):
        if (harness.ROOT / name).exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(harness.ROOT / name, to / name, follow_symlinks=False)


def run_on_a_bare_machine(share, script, seconds=1800):
    """Runs the script of this folder in tools/fresh, with `share` as its /share; asserts that all is well
    there."""
    shutil.copy(HERE / script, share)
    inside = subprocess.run([harness.ROOT / "tools/fresh", "/bin/bash", f"/share/{script}"],
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                            timeout=seconds, env={**os.environ, "PADDOCK_FRESH_SHARE": str(share)})
    text = inside.stdout.decode(errors="replace")
    assert inside.returncode == 0 and text.endswith("\nall is well\n"), text[-6000:]
