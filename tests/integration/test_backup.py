"""Saving everything and putting it back, by the very commands of docs/operations.md."""
import re
import shlex
import shutil

import pytest

import harness

DOCUMENT = (harness.ROOT / "docs/operations.md").read_text()
CHANGES = """set -e
rm /usr/bin/git-shell                                # a whiteout of the overlay
rm -r /etc/apt; mkdir /etc/apt; echo mine > /etc/apt/own  # and a folder that hides the image's
install -o agent -g agent -m 4750 /bin/true /opt/tool; ln /opt/tool /opt/same
"""
LOOK = ("test ! -e /usr/bin/git-shell; ls -A /etc/apt; cat /etc/apt/own; "
        "stat -c '%n %u %g %a %h' /opt/tool /opt/same /workspace/repo /workspace/own; "
        "stat -c '%u %g %a' /usr/bin/git; cat /workspace/own")


def command(letters, state, config, archive):
    """The document's command with the paths of this daemon in place of the usual ones."""
    found = re.findall(rf"`(tar [^`]*-{letters}f FILE[^`]*)`", DOCUMENT)
    assert len(found) == 1, found
    places = {"FILE": str(archive), "var/lib/paddock": str(state)[1:], "etc/paddock": str(config)[1:]}
    return [places.get(word, word) for word in shlex.split(found[0])]


def everything(daemon):
    told = {path: daemon.get(path).json for path in ("/sandboxes", "/images", "/tokens")}
    for sandbox in told["/sandboxes"]:
        del sandbox["lastActivity"]
        path = f"/sandboxes/{sandbox['name']}"
        told[path] = [daemon.get(f"{path}/{rest}").text for rest in ("task", "task/log", "diff")]
    return told, (daemon.state / "ca.crt").read_bytes(), (daemon.state / "audit.jsonl").read_bytes()


@pytest.fixture(scope="module")
def saved(make_daemon):
    daemon = make_daemon(default_agent="sh")
    yield daemon
    daemon.close()


def test_what_was_saved_and_put_back_is_as_it_was(saved, tmp_path):
    daemon, archive = saved, tmp_path / "all.tar"
    config = daemon.folder / "etc"
    config.mkdir()
    (config / "paddock.json").write_text("{}")
    box, busy = daemon.sandbox("kept"), daemon.sandbox("busy")
    assert daemon.call("PUT", box.path, {"labels": {"team": "a"}, "env": {"E": "1"}}).status == 201
    assert box.clone().status == 200 and busy.clone().status == 200
    assert box.sh(CHANGES, user="root")["exitCode"] == 0
    state = box.run_task("cd /workspace/repo && echo more >> README && echo own > ../own && git add -A && "
                         "git commit -qm mine && echo new > new && echo said")
    assert state["state"] == "succeeded", state
    before_look = box.sh(LOOK)
    assert before_look["exitCode"] == 0 and "/opt/same 1000 1000 4750 2" in before_look["stdout"], before_look
    assert daemon.post("/tokens", {"prefix": "kept-"}).status == 200
    assert busy.start_task("echo begun; sleep 600").status == 202

    # as the document says: all sandboxes stopped, then the daemon
    daemon.cli("stop", "--all")
    before = everything(daemon)
    assert all(one["state"] == "stopped" for one in before[0]["/sandboxes"])
    daemon.stop()
    harness.run(*command("c", daemon.state, config, archive))
    shutil.rmtree(daemon.state)
    shutil.rmtree(config)
    harness.run(*command("xp", daemon.state, config, archive))
    daemon.start()

    assert (config / "paddock.json").read_text() == "{}"
    after = everything(daemon)
    assert after[0] == before[0] and after[1:] == before[1:]
    assert box.sh(LOOK) == before_look  # on its own image, with its own id
    assert box.sh("echo $E; id -u")["stdout"] == "1\n1000\n"
    assert box.diff().text == before[0][box.path][2] and "+new" in box.diff().text
    assert box.run_task("cat /workspace/own; rm /workspace/own")["result"] == "own\n"
    assert busy.task()["state"] == "failed" and busy.run_task("echo again")["result"] == "again\n"
    findings = daemon.cli("doctor", "--config", daemon.folder / "config.json", check=False).stdout.decode()
    assert "ok   ca " in findings and "ok   image " in findings, findings
