"""What `meson install` puts into a folder works from there, wherever the folder lies."""
import os
import pathlib
import re

import pytest

import harness

pytestmark = pytest.mark.portable

PROMPT = "Add a file NOTES.md with a one-sentence summary of this repository. Do not commit."
PROGRAMS = {"bin/paddock", "sbin/paddockd", "libexec/paddock/paddock-api",
            "libexec/paddock/paddock-egress", "libexec/paddock/paddock-image-build",
            "libexec/paddock/paddock-init", "libexec/paddock/paddock-jail"}


@pytest.fixture(scope="module")
def installed(folder):
    """The prefix of a staged installation."""
    stage = folder / "stage"
    environment = {**os.environ, "DESTDIR": str(stage)}
    harness.run("meson", "install", "-C", harness.BUILD, "--no-rebuild", "--quiet", env=environment)
    return stage / "usr/local"


def files_of(prefix):
    return {str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file()}


def test_everything_is_installed_and_programs_alone_are_executable(installed):
    files = files_of(installed)
    source = {f"share/paddock/{path.relative_to(harness.ROOT)}"
              for folder in ("images", "policy") for path in (harness.ROOT / folder).rglob("*")
              if path.is_file()}
    documents = {f"share/doc/paddock/{path.relative_to(harness.ROOT)}"
                 for path in (harness.ROOT / "docs").rglob("*") if path.is_file()}
    units = {f"lib/systemd/{kind}/{name}.service" for kind in ("system", "user")
             for name in ("paddock", "paddock-instances")}
    assert PROGRAMS | source | documents | units <= files
    executable = {name for name in files if os.access(installed / name, os.X_OK)}
    assert executable == PROGRAMS
    for name in files:
        mode = (installed / name).stat().st_mode
        assert not mode & 0o6022, f"{name} has mode {mode:o}"


def test_the_main_job_runs_from_where_it_is_installed(installed, make_daemon):
    daemon = make_daemon(start=False)
    daemon.paddockd, daemon.paddock = installed / "sbin/paddockd", installed / "bin/paddock"
    del daemon.config["recipes_dir"]  # the installed ones
    daemon.start()
    for program in ("paddock-api", "paddock-egress"):
        running = os.readlink(f"/proc/{daemon.pid_of(program)}/exe")
        assert running == str(installed / "libexec/paddock" / program)
    daemon.cli("clone", "installed", harness.HELLO)
    daemon.cli("run", "installed", PROMPT)
    assert b"+++ b/NOTES.md" in daemon.cli("diff", "installed").stdout
    doctor = daemon.cli("doctor", "--json", "--config", daemon.folder / "config.json", check=False)
    assert b'"findings"' in doctor.stdout, doctor


def test_the_installed_policy_is_the_default(installed, make_daemon):
    daemon = make_daemon(start=False)
    daemon.paddockd = installed / "sbin/paddockd"
    del daemon.config["policy"]
    daemon.start()
    expected = f"the policy {installed}/share/paddock/policy/default.json is in force"
    harness.wait_for(lambda: expected in daemon.log(), 30, "the policy")


def test_the_units_name_what_is_installed(installed):
    for path in pathlib.Path(installed / "lib/systemd").rglob("*.service"):
        for program in re.findall(r"^Exec\w+=(\S+)", path.read_text(), re.M):
            stage = installed.parent.parent
            assert program.startswith("/bin/") or os.access(f"{stage}{program}", os.X_OK), program
