"""git push where a rule binds it to branches: real git in the sandbox, git's own server behind. What is
refused never reaches the server, and git says why."""
import itertools

import pytest

import gitserver
import harness
import upstream as u
from client_h2 import Client

HOST = "github.com"
NUMBERS = itertools.count(1)
ZERO = "0" * 40
POST = "/me/push.git/git-receive-pack"


@pytest.fixture(scope="module")
def box(make_daemon, demo):
    gitserver.make_repository(f"{demo.folder}/repositories", "me/push", {"README": b"mine\n"})
    daemon = make_daemon(default_agent="sh", extra_rules=[
        {"name": "push", "host": HOST, "upstream": f"127.0.0.1:{demo.git_port}",
         "upstream_ca": "demo-ca.pem",
         "git": {"fetch": True, "push": True, "repositories": ["me/*"], "branches": ["agent/*"]}}])
    sandbox = daemon.sandbox("push")
    assert sandbox.clone("https://github.com/me/push").status == 200
    made = sandbox.sh("cd repo && head -c 5000000 /dev/urandom > random && git add random && "
                      "git commit -qm large && git branch large && git reset -q --hard HEAD^ && "
                      "head -c 5000000 /dev/urandom > random && git add random && "
                      "git commit -qm closed && git branch closed && git reset -q --hard HEAD^ && "
                      "echo x > x && git add x && git commit -qm small", cwd="/workspace")
    assert made["exitCode"] == 0, made
    yield sandbox
    sandbox.remove()


def push(box, *refs, version="HTTP/2", options=""):
    return box.sh(f"cd repo && git -c http.version={version} {options} push origin {' '.join(refs)}",
                  cwd="/workspace")


def posts(demo):
    """But those of no refs (0000), by which git asks before a large push whether it is known."""
    return [call for call in demo.record("git")
            if call["method"] == "POST" and call["path"].endswith("/git-receive-pack")
            and call["headers"].get("content-length") != "4"]


def there(demo, ref):
    out = gitserver.git("for-each-ref", "--format=%(objectname) %(refname)",
                        cwd=f"{demo.folder}/repositories/me/push.git").decode()
    return [line.split()[0] for line in out.splitlines() if line.endswith(f" {ref}")]


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])
@pytest.mark.parametrize("what", ["HEAD", "large"])
def test_a7_a_push_to_a_branch_that_is_open_arrives(box, demo, version, what):
    branch = f"agent/{next(NUMBERS)}"
    result = push(box, f"{what}:refs/heads/{branch}", version=version)
    assert result["exitCode"] == 0 and "[new branch]" in result["stderr"], result
    tip = box.sh(f"cd repo && git rev-parse {what}", cwd="/workspace")["stdout"].strip()
    assert there(demo, f"refs/heads/{branch}") == [tip]


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])
@pytest.mark.parametrize("refs", [["HEAD:refs/heads/master"], ["closed:refs/heads/other"],
                                  ["HEAD:refs/heads/agent/mixed", "HEAD:refs/heads/other"],
                                  ["HEAD:refs/tags/v1"], [":refs/heads/master"]])
def test_b10_a_push_to_another_ref_is_refused_and_git_says_why(box, demo, version, refs):
    before = len(posts(demo))
    result = push(box, *refs, version=version)
    assert result["exitCode"] == 1 and "! [remote rejected]" in result["stderr"], result
    assert "(may not be changed from this sandbox (rule push))" in result["stderr"] and "RPC failed" not in result["stderr"], result
    assert len(posts(demo)) == before
    assert not there(demo, "refs/heads/other") and not there(demo, "refs/heads/agent/mixed")
    assert there(demo, "refs/heads/master") and not there(demo, "refs/tags/v1")


def refs_of(*names, capabilities="report-status"):
    lines = [f"{ZERO} {'1' * 40} {name}" for name in names]
    lines[0] += "\0 " + capabilities
    return b"".join(b"%04x%s" % (len(line) + 4, line.encode()) for line in lines) + b"0000"


TYPE = ("content-type", "application/x-git-receive-pack-request")


def by_http1(box, body, *more, expects=False):
    """Chunked, a few bytes at a time; `expects`: not before the 100 has come."""
    with box.connect_tls(HOST) as sock:
        lines = [("Host", HOST), ("Transfer-Encoding", "chunked"), TYPE, *more]
        lines += [("Expect", "100-continue")] if expects else []
        sock.sendall(f"POST {POST} HTTP/1.1\r\n".encode() +
                     b"".join(f"{name}: {value}\r\n".encode() for name, value in lines) + b"\r\n")
        if expects:
            assert u.read_answer(sock)[0] == 100
        for at in range(0, len(body), 7):
            part = body[at:at + 7]
            sock.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        sock.sendall(b"0\r\n\r\n")
        return u.read_answer(sock)


def by_http2(box, body, *more, expects=False):
    with Client(box, HOST) as client:
        lines = [TYPE, *more, *([("expect", "100-continue")] if expects else [])]
        number = client.head(POST, "POST", *lines, end=False)
        while expects and not client.answers[number]["interim"]:
            client.step()
        for at in range(0, len(body), 7):
            client.body(number, body[at:at + 7], end=at + 7 >= len(body))
        answer = client.wait(number)
        return answer["status"], dict(answer["headers"]), answer["body"]


@pytest.mark.parametrize("ask", [by_http1, by_http2])
def test_what_is_refused_is_not_sent(box, demo, ask):
    before = len(posts(demo))
    refused = refs_of("refs/heads/agent/x", "refs/heads/master")
    status, headers, body = ask(box, refused, expects=True)
    assert status == 200 and headers["content-type"] == "application/x-git-receive-pack-result"
    assert b"ng refs/heads/master " in body and b"ng refs/heads/agent/x " in body, body
    assert "master" in headers["x-paddock-reason"]
    for broken, more, words in [
            (refs_of("refs/heads/agent/x"), [("content-encoding", "gzip")],
             "this push cannot be judged: it has a Content-Encoding"),
            (refs_of("refs/heads/agent/x")[:-4], [], "this push cannot be judged: "),
            (b"GARBAGE", [], "list of refs"),
            (refs_of("refs/heads/master", capabilities="x"), [], "master")]:
        status, headers, body = ask(box, broken, *more)
        assert status == 403 and words in body.decode() == headers["x-paddock-reason"] + "\n", body
    assert len(posts(demo)) == before


def audited(box):
    """How many pushes went along, by the audit, whose lines come behind the answers."""
    lines = (box.daemon.state / "audit.jsonl").read_text().splitlines()
    return sum("git-receive-pack\"" in line and '"decision":"allowed"' in line for line in lines)


@pytest.mark.parametrize("ask", [by_http1, by_http2])
@pytest.mark.parametrize("expects", [False, True])
def test_what_is_allowed_is_sent_as_it_was(box, demo, ask, expects):
    """The pack is none, so that the server refuses it: it has read the list."""
    before, audited_before = len(posts(demo)), audited(box)
    status, _, body = ask(box, refs_of("refs/heads/agent/y") + b"NOT A PACK" * 9, expects=expects)
    assert status == 200 and b"unpack" in body, (status, body)
    assert len(posts(demo)) == before + 1
    harness.wait_for(lambda: audited(box) == audited_before + 1, 10, "its line of the audit")


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])
def test_a_fetch_that_git_compresses_passes(box, demo, version):
    """It does so where it asks for many; nothing of a fetch is judged but its path."""
    name = f"many-{next(NUMBERS)}"
    gitserver.git("fast-import", "--quiet", cwd=f"{demo.folder}/repositories/me/push.git", data=b"".join(
        b"commit refs/heads/%s/%d\ncommitter x <x@x.test> 1296068768 +0000\ndata 3\n%03d\n" %
        (name.encode(), number, number) for number in range(60)))
    result = box.sh(f"cd repo && git -c http.version={version} fetch origin '+refs/heads/{name}/*:refs/{name}/*' && "
                    f"git for-each-ref refs/{name} | wc -l", cwd="/workspace")
    assert result["exitCode"] == 0 and result["stdout"].strip() == "60", result
    codings = [call["headers"].get("content-encoding") for call in demo.record("git")
               if call["method"] == "POST" and call["path"].endswith("/git-upload-pack")]
    assert "gzip" in codings[-3:], codings
