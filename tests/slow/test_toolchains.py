"""C5: each toolchain trusts Paddock's CA with nothing set by hand, and nothing else.

The server of the test has a CA of its own. A sandbox as it starts trusts Paddock's alone: an answer
came through egress. In the control the files of trust hold the server's CA in its place: a client that
checks nothing would succeed there, and so would one whose connection egress does not end."""
import json
import re
import shutil

import pytest

import harness
from policy import read_policy

pytestmark = pytest.mark.registries
RECIPE = harness.ROOT / "tests/slow/toolchains"
NEW = "rm -rf /tmp/t && mkdir /tmp/t && cd /tmp/t && "

GO = """package main
import ("io"; "net/http"; "os")
func main() {
    answer, err := http.Get(os.Args[1])
    if err != nil { println(err.Error()); os.Exit(1) }
    io.Copy(os.Stdout, answer.Body)
}
"""
JAVA = """import java.net.URI;
import java.net.http.*;
public class Get {
    public static void main(String[] args) throws Exception {
        System.out.println(HttpClient.newHttpClient().send(
            HttpRequest.newBuilder(URI.create(args[0])).build(),
            HttpResponse.BodyHandlers.ofString()).body());
    }
}
"""
PYCURL = ("import pycurl, sys; c = pycurl.Curl(); c.setopt(c.URL, sys.argv[1]); print(pycurl.version); "
          "c.setopt(c.WRITEFUNCTION, lambda b: print(b.decode()) or None); c.perform()")
URLLIB = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())"
REQUESTS = "import requests, sys; print(requests.__version__, requests.get(sys.argv[1]).text)"
FETCH = ("fetch(process.argv[1]).then(a => a.text()).then(console.log, "
         "e => { console.log(e, e.cause); process.exit(1) })")
LS_REMOTE = "git ls-remote https://u.test/$N"
GNUTLS_FAILS = "server certificate verification failed"
PYTHON_FAILS = "CERTIFICATE_VERIFY_FAILED"
NODE_FAILS = "UNABLE_TO_(VERIFY_LEAF_SIGNATURE|GET_ISSUER_CERT)|SELF_SIGNED_CERT_IN_CHAIN"

# name: (its version, a script that prints it and gets https://u.test/$N, what it says of a CA it does
# not trust)
TOOLCHAINS = {
    "curl": (r"curl 7.* OpenSSL/3", "curl -V && curl -sS https://u.test/$N", "SSL certificate problem"),
    "libcurl-gnutls": ("libcurl/7.* GnuTLS/3", f"python3 -c '{PYCURL}' https://u.test/$N", GNUTLS_FAILS),
    "wget": ("(?s)Wget 1.*[+]ssl/gnutls", "wget -V && wget -nv -O- https://u.test/$N", "is not trusted"),
    "git": ("git version 2", f"git --version && {LS_REMOTE}", GNUTLS_FAILS),
    "git-by-default": ("git version 2", f"git --version && unset GIT_SSL_CAINFO CURL_CA_BUNDLE "
                       f"SSL_CERT_FILE && {LS_REMOTE}", GNUTLS_FAILS),
    "python-urllib": ("Python 3", f"python3 -V && python3 -c '{URLLIB}' https://u.test/$N", PYTHON_FAILS),
    "python-env-i": ("Python 3", f"python3 -V && env -i python3 -c '{URLLIB}' https://u.test/$N",
                     PYTHON_FAILS),
    "python-requests": ("2[.]28", f"python3 -c '{REQUESTS}' https://u.test/$N", PYTHON_FAILS),
    "pip": ("pip 2", "pip --version && pip --retries 0 index versions -i https://u.test/$N thing",
            PYTHON_FAILS),
    "node": (r"v\d+[.]", f"node --version && node -e '{FETCH}' https://u.test/$N",
             NODE_FAILS),
    "npm": ("10[.]8[.]2", "npm --version && npm --fetch-retries=0 --registry=https://u.test/$N/ view thing",
            NODE_FAILS),
    "go": ("go1[.]", f"{NEW}cat > get.go <<'E'\n{GO}E\ngo version && CGO_ENABLED=0 go run get.go "
           "https://u.test/$N", "x509: certificate signed by unknown authority"),
    "java": ("openjdk 17", f"{NEW}cat > Get.java <<'E'\n{JAVA}E\njava --version && java Get.java "
             "https://u.test/$N", "PKIX path building failed"),
}
COMMIT = "1234567890" * 4
PACKAGE = {"name": "thing", "dist-tags": {"latest": "4.5.6"},
           "versions": {"4.5.6": {"name": "thing", "version": "4.5.6", "dist": {"tarball": "x"}}}}
# Where a client asks below its URL for a form of its own: the path there, the answer, what it prints.
ANSWERS = {
    "git": ("/info/refs", f"{COMMIT}\trefs/heads/main\n", COMMIT),
    "git-by-default": ("/info/refs", f"{COMMIT}\trefs/heads/main\n", COMMIT),
    "pip": ("/thing/", "<html><body><a href='thing-4.5.6.tar.gz'>thing-4.5.6.tar.gz</a></body></html>",
            "4.5.6"),
    "npm": ("/thing", json.dumps(PACKAGE), "thing@4.5.6"),
}
REPLACE = """set -e
for file in /etc/ssl/certs/ca-certificates.crt /usr/lib/ssl/cert.pem \
        /usr/local/share/ca-certificates/paddock.crt; do
    cp /workspace/other.pem $file
done
rm /etc/ssl/certs/java/cacerts
keytool -importcert -noprompt -storetype JKS -alias other -file /workspace/other.pem \
    -keystore /etc/ssl/certs/java/cacerts -storepass changeit
"""


@pytest.fixture(scope="module")
def daemon(folder, make_daemon, server):
    recipes = folder / "toolchain-recipes"
    shutil.copytree(RECIPE, recipes / "toolchains")
    builder = harness.Daemon(folder / "toolchain-builder", harness.HostNetwork(), {
        "recipes_dir": str(recipes), "policy": str(harness.ROOT / "policy/default.json")}).start()
    try:
        result = builder.cli("image", "build", "toolchains", check=False, timeout=harness.patient(1200))
        assert result.returncode == 0, (result.stdout[-3000:], result.stderr[-3000:])
    finally:
        builder.stop()
    daemon = make_daemon(start=False, default_agent="toolchains",
                         agents={"toolchains": read_policy(RECIPE / "agent.json")},
                         extra_rules=[server.rule("u.test", "u-ca.pem")])
    shutil.copy(server.ca, daemon.folder / "policy/u-ca.pem")
    harness.run("cp", "-al", builder.state / "images/toolchains", daemon.state / "images/toolchains")
    return daemon.start()


@pytest.fixture(scope="module")
def box(daemon):
    box = daemon.sandbox("trusting")
    yield box
    box.remove()


@pytest.fixture(scope="module")
def other_box(daemon, server):
    box = daemon.sandbox("other-trust")
    with open(server.ca, encoding="ascii") as file:
        box.sh(f"cat > /workspace/other.pem <<'E'\n{file.read()}E")
    changed = box.sh(REPLACE, user="root")
    assert changed["exitCode"] == 0, changed
    yield box
    box.remove()


def attempt(box, script, name):
    answer = box.sh(f"N={name}\n{script}")
    return answer["exitCode"], answer["stdout"] + answer["stderr"]


def audited(box, path):
    lines = box.daemon.get(f"{box.path}/egress?limit=1000").json
    return [line for line in lines if line["path"].split("?")[0] == path]


@pytest.mark.parametrize("name", TOOLCHAINS)
def test_c5_a_toolchain_trusts_the_ca_with_nothing_set(box, other_box, server, name):
    version, script, refusal = TOOLCHAINS[name]
    below, body, printed = ANSWERS.get(name, ("", f"answer for {name}", f"answer for {name}"))

    def answer(_server, sock, _request):
        sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s" % (
            b"text/html" if name == "pip" else b"text/plain", len(body), body.encode()))
        return "keep"

    path = f"/{name}{below}"
    server.routes[path] = answer

    def seen():
        return [request for request in server.requests if request.target.split("?")[0] == path]

    code, text = attempt(other_box, script, name)
    assert code != 0 and re.search(refusal, text), text
    assert not seen() and not audited(other_box, path)

    code, text = attempt(box, script, name)
    assert code == 0 and re.search(version, text) and printed in text, text
    assert [request.method for request in seen()] == ["GET"]
    line = harness.wait_for(lambda: audited(box, path), 10, "the audit's line")[0]
    assert (line["decision"], line["rule"], line["host"], line["status"]) == (
        "allowed", "rule-u.test", "u.test", 200), line
    assert line["tls"] and line["upstream_tls"], line
