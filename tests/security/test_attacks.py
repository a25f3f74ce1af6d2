"""The attacker has a prompt, and everything in the sandbox: what was tried, each named after the promise.

Perl is the sandbox's only interpreter; what needs sockets of a known shape is done from here, in the
sandbox's network namespace.
"""
import os
import pathlib
import re
import socket
import ssl
import threading
import time

import pytest

import harness
import upstream as u


@pytest.fixture(scope="module")
def box(sh_daemon):
    sandbox = sh_daemon.sandbox("attacker")
    assert sandbox.clone().status == 200
    yield sandbox
    sandbox.remove()


@pytest.fixture
def other(sh_daemon):
    sandbox = sh_daemon.sandbox("neighbour")
    assert sandbox.exec("/bin/true")["exitCode"] == 0
    yield sandbox
    sandbox.remove()


# ---------------------------------------------------------------------------------- the truth

HIDE = {
    "assume-unchanged": "git update-index --assume-unchanged README; echo hidden >> README",
    "skip-worktree": "git update-index --skip-worktree README; echo hidden >> README",
    # the index holds the times of the changed file and the name of the old content
    "forged times": "old=$(git rev-parse HEAD:README); echo hidden >> README; git add README; "
                    "sleep 1.1; git update-index --refresh; "
                    "new=$(git hash-object README); perl -0777 -pi -e "
                    "'BEGIN { ($o, $n) = map { pack \"H*\", $_ } @ENV{qw(old new)} } s/\\Q$n\\E/$o/' "
                    ".git/index",
    "untracked and ignored": "git rm -q --cached README; echo README >> .git/info/exclude; echo hidden >> README",
    "replaced object": "echo hidden >> README; git add README; git replace $(git rev-parse HEAD:README) $(git hash-object README)",
    "commit and amend": "echo hidden >> README; git -c core.hooksPath=/ commit -qam x; git update-ref refs/heads/master HEAD; "
                        "git reflog expire --expire=now --all; git gc -q --prune=now",
}


@pytest.mark.parametrize("script", HIDE.values(), ids=HIDE.keys())
def test_the_diff_shows_what_the_agent_hides(sh_daemon, request, script):
    box = sh_daemon.sandbox("hide-" + request.node.callspec.id.replace(" ", "-"))
    assert box.clone().status == 200
    done = box.sh(f"cd /workspace/repo && set -a && {script}")
    for query in ("", "?renames=1"):
        diff = box.diff(query)
        assert diff.status == 200 and "+hidden" in diff.text, (query, done, diff)
    box.remove()


@pytest.mark.parametrize("place", [".gitignore", ".gitattributes", ".git/objects/pack/x.idx", ".git/refs/heads/f",
                                   ".git/index", ".git/HEAD", ".git/config", ".git/info/exclude"])
def test_d12_a_fifo_in_the_place_of_a_file_holds_up_no_diff(box, place):
    box.sh(f"cd /workspace && rm -rf repo2 && cp -a repo repo2 && cd repo && rm -rf {place} && mkfifo {place}")
    began = time.monotonic()
    answers = {query: box.diff(query) for query in ("", "?against=head")}
    assert time.monotonic() - began < 40
    assert all(answer.status in (200, 502) for answer in answers.values()), answers
    box.sh("cd /workspace && rm -rf repo && mv repo2 repo")
    assert box.diff().status == 200


def test_nobody_inside_can_hold_up_init(box):
    """A child of PID 1 that is stopped before it executes its program: PID 1 goes on."""
    box.sh("(perl -e '$SIG{ALRM} = sub { exit }; alarm 8; while (1) { kill \"STOP\", grep { $_ > 1 && $_ != $$ } "
           "map { m{/proc/(\\d+)$} } glob \"/proc/[0-9]*\"; }' >/dev/null 2>&1 &) ; true", user="root")
    threads = [threading.Thread(target=lambda: box.daemon.post(
        f"{box.path}/exec", {"argv": ["/bin/true"]}, timeout=60)) for _ in range(20)]
    for thread in threads:
        thread.start()
    time.sleep(9)
    assert box.exec("/bin/echo", "alive")["stdout"] == "alive\n"
    box.sh("kill -CONT -1", user="root")
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


# ------------------------------------------------------------------------------ the neighbours

INOTIFY = "perl -e 'my $n = 0; $n++ while $n < 2000 && syscall(294, 0) >= 0; $| = 1; print \"$n\\n\"; sleep %d'"


def test_the_kernels_counters_of_a_sandbox_are_its_own(box, other):
    """inotify instances: without an owner of its own each user namespace counts for the host's root."""
    taken = box.sh(f"({INOTIFY % 5} & ) | head -1")["stdout"]
    assert 0 < int(taken) <= 1024, taken
    assert int(other.sh(INOTIFY % 0)["stdout"]) > 0
    host = harness.run("/usr/bin/python3", "-c", "import ctypes; print(ctypes.CDLL(None).inotify_init1(0))")
    assert int(host.stdout) >= 0
