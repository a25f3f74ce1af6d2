"""Fixtures for the tests that run the real daemon; see harness.py."""
import os
import pathlib
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import harness  # noqa: E402
import upstream as u  # noqa: E402

from harness import VARS, fresh_sandbox  # noqa: E402


def pytest_configure(config):
    assert os.geteuid() == 0, "these tests run as root"
    assert (harness.BIN / "paddockd").exists(), f"build first: no paddockd in {harness.BIN}"
    config.addinivalue_line("markers", "slow: takes minutes; only tools/check slow runs it")
    config.addinivalue_line("markers", "portable: of what is the same on every kernel, so tools/vm-test "
                            "leaves it out")
    config.addinivalue_line("markers", "registries: asks how this machine reaches its registries, or "
                            "uses them; tools/vm-test has none")


LOGGED = {}  # daemon -> length of its log when the current test began


def pytest_runtest_setup():
    LOGGED.update((daemon, daemon.log_size()) for daemon in harness.Daemon.every)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    """Fails the test in whose time a daemon logged a sanitizer's report. A failure shows what the
    daemons logged as errors in this test: the reason of a 500."""
    report = (yield).get_result()
    for daemon in harness.Daemon.every:
        if found := daemon.report():
            report.outcome = "failed"
            report.longrepr = f"{report.longrepr or ''}\nlogged by {daemon.folder.name}:\n{found}"
    if not report.failed:
        return
    for daemon in harness.Daemon.every:
        lines = daemon.errors(LOGGED.get(daemon, 0))
        if lines:
            report.sections.append((f"errors logged by {daemon.folder.name}", "\n".join(lines)))


@pytest.fixture(scope="session")
def folder():
    path = pathlib.Path(tempfile.mkdtemp(
        prefix="paddock-tests-", dir=os.environ.get("TMPDIR", "/var/tmp")))
    path.chmod(0o755)
    yield path
    late = [report for daemon in harness.Daemon.every if (report := daemon.report())]
    shutil.rmtree(path, ignore_errors=True)
    assert not late, "\n".join(late)


@pytest.fixture(scope="session")
def image_store(folder):
    """STATE/images with the shipped claude image, built once by the real build.

    The build needs the package registries, so its daemon runs in the host's network; it starts no
    sandbox. PADDOCK_TEST_IMAGES names a store to use again while writing tests."""
    kept = os.environ.get("PADDOCK_TEST_IMAGES")
    if kept and pathlib.Path(kept, "claude", "image.json").exists():
        return kept

    daemon = harness.Daemon(folder / "builder", harness.HostNetwork(),
                            {"recipes_dir": str(harness.ROOT / "images"), "vars": VARS,
                             "policy": str(harness.ROOT / "policy/default.json")}).start()
    try:
        result = daemon.cli("image", "build", "claude", check=False, timeout=900)
        assert result.returncode == 0, (result.stdout[-3000:], result.stderr[-3000:], daemon.log())
    finally:
        daemon.stop()
    if kept:
        harness.run("cp", "-a", daemon.state / "images", kept)
    return daemon.state / "images"


@pytest.fixture(scope="session")
def namespace():
    namespace = harness.Namespace()
    yield namespace
    namespace.close()


@pytest.fixture(scope="module")
def server(namespace, folder):
    """A server of HTTP/1.1 for the hosts u.test, other.test, get.test ... (upstream.py)"""
    server = u.Upstream(namespace, folder)
    yield server
    server.close()


@pytest.fixture(scope="session")
def demo(folder, namespace):
    demo = harness.Demo(namespace, folder / "demo")
    yield demo
    demo.close()


@pytest.fixture(scope="session")
def make_daemon(folder, namespace, demo, image_store):
    with harness.daemons(folder, namespace, demo, image_store) as make:
        yield make


@pytest.fixture(scope="session")
def daemon(make_daemon):
    """The daemon that most tests share, with claude as its agent."""
    return make_daemon(claude_env={"CLAUDE_CODE_MAX_RETRIES": "1"})


@pytest.fixture(scope="session")
def sh_daemon(make_daemon):
    """A daemon whose agent is bash: the prompt is its script."""
    return make_daemon(default_agent="sh")


@pytest.fixture
def sandbox(daemon, request):
    yield from fresh_sandbox(daemon, request)


@pytest.fixture
def sh_sandbox(sh_daemon, request):
    yield from fresh_sandbox(sh_daemon, request)
