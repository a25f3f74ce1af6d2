"""The image that the shipped recipe makes: it holds what an agent needs and nothing of this host.

What must not be found is read from this machine's own settings while the test runs."""
import json
import os
import pathlib
import re
import subprocess

import pytest

import harness

NPM = "opt/npm/node_modules"


@pytest.fixture(scope="module")
def rootfs(image_store):
    return pathlib.Path(image_store) / "claude" / "rootfs"


def output(*argv):
    return subprocess.run(argv, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL).stdout.decode(errors="replace")


def read(path):
    try:
        return pathlib.Path(path).read_text(errors="replace")
    except OSError:
        return ""


def registry_hosts():
    """Hosts that this machine's apt and npm are set to ask, proxies included."""
    settings = output("apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI)",
                      "Created-By: Packages")
    settings += output("apt-config", "dump", "Acquire") + output("npm", "config", "get", "registry")
    for path in ("/etc/npmrc", "/usr/etc/npmrc", "/root/.npmrc"):
        settings += read(path)
    return set(re.findall(r"https?://(?:[^/\s@]*@)?([A-Za-z0-9.-]+\.[A-Za-z0-9.-]+)", settings))


def files(rootfs, *folders):
    for folder in folders:
        for where, _, names in os.walk(rootfs / folder):
            for name in names:
                path = pathlib.Path(where) / name
                if path.is_file() and not path.is_symlink():
                    yield path


@pytest.mark.registries
def test_no_registry_of_the_host_is_named(rootfs):
    hosts = registry_hosts()
    assert hosts, "this machine tells no registry"
    pattern = re.compile(b"|".join(re.escape(host).encode() for host in hosts))
    # Packages' own programs and documents may name a public registry; what the build wrote may not.
    written = [path for path in files(rootfs, "etc", "var", "root", "home", "run", "tmp")]
    written += [path for path in files(rootfs, "opt/npm")
                if path.name in (".package-lock.json", "package-lock.json", ".npmrc", "npmrc")]
    assert [path for path in written if pattern.search(path.read_bytes())] == []


@pytest.mark.parametrize("path", [
    "etc/apt/sources.list", "etc/apt/apt.conf.d/99mmdebstrap", "etc/apt/auth.conf", "etc/hostname",
    "etc/resolv.conf", "etc/hosts", "etc/machine-id", "var/lib/dbus/machine-id", "etc/npmrc",
    "usr/etc/npmrc", "root/.npmrc", "root/.npm", "opt/npm/package-lock.json",
    f"{NPM}/.package-lock.json", "tmp/home"])
def test_no_setting_of_the_host_stays(rootfs, path):
    assert not os.path.lexists(rootfs / path)


@pytest.mark.parametrize("name", [
    "var/log", "var/tmp", "tmp", "run", "proc", "sys", "dev", "var/lib/apt/lists", "var/cache/apt",
    "usr/local/share/ca-certificates", "etc/apt/sources.list.d"])
def test_folder_is_empty(rootfs, name):
    path = rootfs / name
    assert not path.exists() or os.listdir(path) == []


def certificates(text):
    return {"".join(body.split()) for body in
            re.findall(r"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", text, re.S)}


def test_no_certificate_of_the_host_is_trusted(rootfs):
    trusted = certificates(read(rootfs / "etc/ssl/certs/ca-certificates.crt"))
    assert len(trusted) > 50
    own = set()
    for path in pathlib.Path("/usr/local/share/ca-certificates").rglob("*.crt"):
        own |= certificates(read(path))
    assert not trusted & own
    shipped = certificates("".join(read(path) for path in
                                   files(rootfs, "usr/share/ca-certificates")))
    assert trusted <= shipped


def test_owners_are_ids_of_the_image(rootfs):
    for where, folders, names in os.walk(rootfs):
        for name in folders + names:
            status = os.lstat(os.path.join(where, name))
            assert status.st_uid < 65536 and status.st_gid < 65536, os.path.join(where, name)
    assert (rootfs / "home/agent").stat().st_uid == 1000
    assert (rootfs / "usr/bin/git").stat().st_uid == 0


def test_nothing_from_npm_is_setuid(rootfs):
    for path in files(rootfs, "opt/npm"):
        assert path.stat().st_mode & 0o6000 == 0, path


def test_merged_usr_and_links(rootfs):
    assert os.readlink(rootfs / "bin") == "usr/bin" and os.readlink(rootfs / "lib") == "usr/lib"
    target = os.readlink(rootfs / "usr/local/bin/claude")
    assert target.startswith(f"/{NPM}/@anthropic-ai/claude-code-linux-")
    assert (rootfs / target.lstrip("/")).read_bytes()[:4] == b"\x7fELF"


def test_size_is_told_and_reasonable(rootfs, image_store):
    info = json.loads((pathlib.Path(image_store) / "claude" / "image.json").read_text())
    assert info["schema"] == 1 and re.fullmatch("[0-9a-f]{64}", info["digest"])
    blocks = sum(os.lstat(path).st_blocks * 512 for path in files(rootfs, "."))
    assert abs(info["size_bytes"] - blocks) < 0.2 * blocks
    assert info["size_bytes"] < 450 << 20


def test_the_programs_run_in_a_sandbox(sh_sandbox):
    answer = sh_sandbox.sh("claude --version; git --version; rg --version | head -1; id -un; pwd")
    assert answer["exitCode"] == 0, answer
    assert "2.1.280 (Claude Code)" in answer["stdout"]
    assert "git version 2.39" in answer["stdout"] and "ripgrep" in answer["stdout"]
    assert "agent\n" in answer["stdout"]


def test_building_again_is_a_no_op(sh_daemon):
    before = (sh_daemon.state / "images/claude/image.json").read_bytes()
    result = sh_daemon.cli("image", "build", "claude", timeout=harness.patient(30))
    assert result.returncode == 0
    assert (sh_daemon.state / "images/claude/image.json").read_bytes() == before


def test_a_bad_recipe_is_refused_and_leaves_nothing(sh_daemon):
    recipes = pathlib.Path(sh_daemon.config["recipes_dir"])
    (recipes / "bad").mkdir()
    (recipes / "bad" / "build.json").write_text(
        '{"debian": {"suite": "bookworm", "packages": [\n"--option"]}}')
    result = sh_daemon.cli("image", "build", "bad", check=False)
    assert result.returncode != 0
    assert b"bad/build.json:2:1" in result.stdout + result.stderr
    assert sorted(os.listdir(sh_daemon.state / "images")) == ["claude"]


def test_the_builder_stops_where_it_would_be_the_hosts_root():
    result = harness.run("sh", "-c", 'exec "$0" claude 3<"$1"',
                         harness.BIN / "paddock-image-build",
                         harness.ROOT / "images/claude/build.json", check=False)
    assert result.returncode == 1 and b"host's root" in result.stdout
    assert not os.path.exists("/out/etc")


@pytest.fixture(scope="module")
def builder(folder, image_store):
    recipes = folder / "from-recipes"
    recipes.mkdir()
    for name, recipe in {
            "child": {"from": "claude", "debian": {"suite": "bookworm", "packages": ["make"]},
                      "links": {"/usr/local/bin/own-make": "/usr/bin/make"}},
            "orphan": {"from": "nowhere"},
            "more": {"from": "claude", "npm": ["is-odd@3.0.1"]},
            "most": {"from": "more", "npm": ["is-even@1.0.0"]},
            "directed": {"from": "directing", "npm": ["left-pad@1.3.0"]},
            "linked": {"from": "linking", "npm": ["left-pad@1.3.0"]},
            "foreign": {"from": "imported", "debian": {"suite": "bookworm", "packages": ["make"]}},
            "copy": {"from": "imported"}}.items():
        (recipes / name).mkdir()
        (recipes / name / "build.json").write_text(json.dumps(recipe))
    policy = harness.ROOT / "policy/default.json"
    daemon = harness.Daemon(folder / "from", harness.HostNetwork(), {
        "recipes_dir": str(recipes), "policy": str(policy)}, image_store=image_store).start()
    yield daemon
    daemon.stop()


def built(builder):
    return {image["name"]: image for image in builder.get("/images").json}


@pytest.mark.registries
def test_an_image_is_built_on_another(builder):
    result = builder.cli("image", "build", "child", check=False, timeout=600)
    assert result.returncode == 0, (result.stdout[-3000:], result.stderr)
    top = builder.state / "images/child/rootfs"
    assert (top / "usr/bin/make").stat().st_uid == 0
    assert os.readlink(top / "usr/local/bin/own-make") == "/usr/bin/make"
    assert os.readlink(top / "usr/local/bin/claude") == os.readlink(
        builder.state / "images/claude/rootfs/usr/local/bin/claude")
    assert re.findall("^agent:", (top / "etc/passwd").read_text(), re.M) == ["agent:"]
    assert (top / "home/agent").stat().st_uid == 1000
    for name in ("etc/apt/sources.list", "etc/apt/apt.conf.d/99mmdebstrap", "etc/hosts", "etc/machine-id"):
        assert not os.path.lexists(top / name), name
    assert "Package: make\n" in (top / "var/lib/dpkg/status").read_text()
    assert not (builder.state / "images/claude/rootfs/usr/bin/make").exists()


@pytest.mark.registries
def test_an_image_is_stale_when_that_below_it_was_made_again(builder):
    if "child" not in built(builder):
        test_an_image_is_built_on_another(builder)
    assert not built(builder)["child"]["stale"]
    result = builder.cli("image", "build", "child", timeout=60)
    assert b"==>" not in result.stdout, "up to date: nothing is done"
    path = builder.state / "images/claude/image.json"
    info = json.loads(path.read_text())
    path.unlink()  # the store's other users have the file too
    path.write_text(json.dumps({**info, "built": info["built"] + 1}))
    assert built(builder)["child"]["stale"]
    assert b"yes" in builder.cli("image", "ls").stdout


def version_of(modules, package):
    return json.loads((modules / package / "package.json").read_text())["version"]


@pytest.mark.registries
def test_npm_packages_are_added_to_those_that_are_there(builder):
    """And nothing that the image below says of where they come from counts."""
    for name in ("more", "most"):
        result = builder.cli("image", "build", name, check=False, timeout=600)
        assert result.returncode == 0, (result.stdout[-3000:], result.stderr)
    modules = builder.state / "images/most/rootfs" / NPM
    assert version_of(modules, "is-odd") == "3.0.1" and version_of(modules, "is-number") == "6.0.0"
    assert version_of(modules, "is-even/node_modules/is-odd") == "0.1.2", "which is-even needs"
    link = os.readlink(builder.state / "images/most/rootfs/usr/local/bin/claude")
    assert (builder.state / "images/most/rootfs" / link.lstrip("/")).exists()
    here = pathlib.Path("@anthropic-ai")
    below = builder.state / "images/claude/rootfs" / NPM
    assert sorted(os.listdir(modules / here)) == sorted(os.listdir(below / here))
    assert version_of(modules, here / "claude-code") == version_of(below, here / "claude-code")
    for name in ("package.json", "package-lock.json", "node_modules/.package-lock.json"):
        assert not (modules.parent / name).exists(), name


@pytest.mark.registries
def test_an_image_does_not_direct_npm(builder):
    import archives
    nowhere = "registry=http://127.0.0.1:9/\n"
    npm = archives.root().folder("opt").folder("opt/npm").file("opt/npm/.npmrc", nowhere.encode())
    npm.file("opt/npm/package.json", json.dumps({"dependencies": {"none": nowhere[9:]}}).encode())
    npm.file("opt/npm/npm-shrinkwrap.json", b"{")
    linking = archives.root().folder("opt").symlink("opt/npm", "/tmp")
    for name, archive in (("directing", npm), ("linking", linking)):
        assert builder.call("PUT", f"/images/{name}", archive.done()).status == 201
    result = builder.cli("image", "build", "directed", check=False, timeout=300)
    assert result.returncode == 0, (result.stdout[-3000:], result.stderr)
    modules = builder.state / "images/directed/rootfs" / NPM
    assert os.listdir(modules) == ["left-pad"] and os.listdir(modules.parent) == ["node_modules"]
    result = builder.cli("image", "build", "linked", check=False, timeout=300)
    assert result.returncode == 1 and b"cannot open opt/npm" in result.stdout, result
    assert "linked" not in built(builder)


def test_what_cannot_be_built_on(builder):
    import archives
    layer = archives.root().file("usr/a", b"one").done()
    archive = archives.Oci().image([layer], Env=["A=B"]).done()
    assert builder.call("PUT", "/images/imported", archive).status == 201
    for name, reason in (("orphan", b"paddock image build nowhere"), ("foreign", b"is not of Debian")):
        result = builder.cli("image", "build", name, check=False)
        assert result.returncode == 1 and reason in result.stdout + result.stderr, (name, result)
        assert name not in built(builder)
    assert builder.cli("image", "build", "copy", check=False).returncode == 0
    info = json.loads((builder.state / "images/copy/image.json").read_text())
    assert info["env"] == ["A=B"] and not built(builder)["copy"]["imported"]


HELLO = r"""
#include <math.h>
#include <stdio.h>
int main(void) { printf("%.3f from C\n", sqrt(2.0)); return 0; }
"""
PYTHON = """
import json, sqlite3, ssl, subprocess
assert len(ssl.create_default_context().get_ca_certs()) > 0
print(json.dumps({"root": sqlite3.connect(":memory:").execute("select 7 * 6").fetchone()[0]}))
print(subprocess.run(["./hello"], stdout=subprocess.PIPE, check=True).stdout.decode(), end="")
"""


@pytest.mark.slow
@pytest.mark.registries
def test_the_shipped_recipes_build_and_a_team_works_in_its_toolchain(folder, image_store, make_daemon):
    builder = harness.Daemon(folder / "shipped", harness.HostNetwork(), {
        "recipes_dir": str(harness.ROOT / "images"), "policy": str(harness.ROOT / "policy/default.json")},
        image_store=image_store).start()
    try:
        for name in sorted(os.listdir(harness.ROOT / "images")):
            result = builder.cli("image", "build", name, check=False, timeout=900)
            assert result.returncode == 0, (name, result.stdout[-3000:], result.stderr)
        assert not any(image["stale"] for image in builder.get("/images").json)
    finally:
        builder.stop()
    agent = {"command": ["/bin/bash", "-c", "${PROMPT}"], "outcome": "exit-code"}
    daemon = make_daemon(start=False, default_agent="team", agents={
        "team": {"image": "toolchain-c-python", **agent}, "bare": {"image": "base", **agent}})
    for name in ("base", "toolchain-c-python"):
        harness.run("cp", "-al", builder.state / "images" / name, daemon.state / "images" / name)
    daemon.start()
    team = daemon.sandbox("team")
    assert team.clone().status == 200
    end = team.run_task(f"cat > hello.c <<'E'\n{HELLO}E\ncat > work.py <<'E'\n{PYTHON}E\n"
                        "printf 'hello: hello.c\\n\\tgcc -O2 -Wall -Werror -o $@ $< -lm\\n' > Makefile\n"
                        "make -s && python3 -m venv /tmp/venv && /tmp/venv/bin/python work.py && claude --version",
                        harness.patient(120))
    assert end["state"] == "succeeded", end
    assert end["result"].splitlines()[:2] == ['{"root": 42}', "1.414 from C"], end
    assert "+int main(void)" in team.diff().text
    team.remove()
    assert daemon.call("PUT", "/sandboxes/bare", {"agent": "bare"}).status == 201
    bare = daemon.sandbox("bare")
    assert bare.clone().status == 200
    assert bare.run_task("cd /workspace/repo && git log --oneline | wc -l && rg -c Hello README; ! command -v gcc")[
        "state"] == "succeeded"
    bare.remove()
