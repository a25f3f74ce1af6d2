"""What the documents promise of the tree: the tests that they name are there, each example of a policy
is one, each key and each shipped policy is told. Run by `tools/check lint`."""
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("PADDOCK_BUILD", ROOT / "build"))
THREATS = (ROOT / "docs/threat-model.md").read_text()
POLICY = (ROOT / "docs/policy.md").read_text()
BARE = re.compile(r"`(test_\w+)")  # without a file
NAMED = re.compile(r"`(tests/[\w/.-]+)(?:::(\w+\*?))?`")


def test_each_test_of_the_threat_model_is_there():
    assert not BARE.findall(THREATS), "with its file, as tests/security/test_sandbox.py::NAME"
    missing = []
    for file, name in set(NAMED.findall(THREATS)):
        text = (ROOT / file).read_text() if (ROOT / file).is_file() else ""
        found = re.search(rf"\b{name.rstrip('*')}{'' if name.endswith('*') else chr(92) + 'b'}", text)
        if not text or not found:
            missing.append(f"{file}::{name}")
    assert not missing
    assert len(NAMED.findall(THREATS)) > 60


def test_each_process_is_in_the_threat_model():
    section = THREATS.split("## Each process", 1)[1].split("\n## ", 1)[0]
    for path in (ROOT / "src/main").glob("*.c"):
        name = {"cli": "paddock", "paddockd": "paddockd"}.get(path.stem, f"paddock-{path.stem}")
        assert f"`{name}`" in section, name


def examples():
    """The indented blocks that are a policy, or a part of one with the rest put around it."""
    around = {"{": '{{"rules": [{}]}}', '"git"': '{{"rules": [{{"host": "a.test", {}}}]}}',
              '"set"': '{{"rules": [{{"host": "a.test", "headers": {{{}}}}}]}}'}
    for block in re.findall(r"(?:^    .*\n)+", POLICY, re.M):
        text = block.strip().replace("[ ... ]", "[]")
        if '"rules"' in text:
            yield text
        elif begin := next((key for key in around if text.startswith(key)), None):
            yield around[begin].format(text)


@pytest.mark.parametrize("text", examples())
def test_each_example_of_a_policy_is_one(tmp_path, text):
    (tmp_path / "example.json").write_text(text)
    (tmp_path / "gateway-ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    for name in ("github.json", "mirror.json"):
        (tmp_path / name).write_text('{"rules": [{"name": "%s", "host": "%s.test"}]}' % (name, name[:-5]))
    result = subprocess.run([BUILD / "src/main/paddock", "policy", "check", tmp_path / "example.json"],
                            check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert result.returncode == 0, (text, result.stderr)


def test_there_are_examples():
    assert len(list(examples())) >= 6


def test_each_key_and_each_shipped_policy_is_told():
    keys = set()
    for path in (ROOT / "src/policy").glob("*.c"):
        keys |= set(re.findall(r'\{"(\w+)", JSON_', path.read_text()))
    assert {"host", "branches", "upstream_key", "remove"} <= keys
    assert [key for key in sorted(keys) if not re.search(rf'[`"]{key}[`"]', POLICY)] == []
    assert [path.name for path in (ROOT / "policy").iterdir() if f"`{path.name}`" not in POLICY] == []
