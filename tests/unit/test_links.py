"""The link list of each binary is the wall between privilege levels: its direct needs (DT_NEEDED) are
what DESIGN's table of processes allows, and nothing else. Run by `tools/check lint`."""
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("PADDOCK_BUILD", ROOT / "build"))

LIBC = {"libc", "ld-linux-x86-64", "ld-linux-aarch64"}
# Program: the libraries that it may need beside libc. Debian 12 has no libllhttp: there it is linked
# statically.
ALLOWED = {
    "paddockd": {"libnl-3", "libnl-route-3", "libcap", "libseccomp", "libyajl", "libuv"},
    "paddock-api": {"libllhttp", "libcrypto", "libwslay", "libyajl", "libuv"},
    "paddock-egress": {"libllhttp", "libssl", "libcrypto", "libnghttp2", "libyajl",
                       "libuv", "libz", "libbrotlidec", "libzstd"},
    "paddock-init": set(),
    "paddock-jail": {"libarchive", "libcrypto", "libyajl"},  # imports; the diff is made by git
    "paddock-image-build": {"libyajl"},
    "paddock": {"libarchive", "libcurl", "libwslay", "libyajl"},
}
STATIC = {"paddock-init"}


def needs(path):
    text = subprocess.run(["readelf", "-d", path], check=True, stdout=subprocess.PIPE).stdout
    return set(re.findall(r"\(NEEDED\).*\[(.+?)\.so[^]]*\]", text.decode()))


@pytest.mark.parametrize("program", sorted(ALLOWED))
def test_a_binary_needs_only_what_its_level_allows(program):
    found = needs(BUILD / "src" / "main" / program)
    assert found <= (set() if program in STATIC else LIBC | ALLOWED[program])


def test_every_program_is_in_the_list():
    sources = {path.stem for path in (ROOT / "src" / "main").glob("*.c")}
    names = {"paddockd": "paddockd", "paddock": "cli"}
    assert sources == {names.get(program, program.removeprefix("paddock-")) for program in ALLOWED}
