"""C5: each toolchain trusts Paddock's CA with nothing set by hand, and nothing else. C7: each TLS library takes
the leaves of unusual hosts.

The servers of the test have CAs of their own. A sandbox as it starts trusts Paddock's alone: an answer
came through egress. In the control the files of trust hold the servers' in its place: a client that
checks nothing would succeed there, and so would one whose connection egress does not end."""
import json
import pathlib
import re
import shutil

import pytest

import gitserver
import harness
import upstream as u
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
CARGO_TOML = """[package]
name = "get"
version = "0.0.0"
[dependencies]
ureq = "2"
"""
CARGO_CONFIG = """[source.crates-io]
replace-with = "debian"
[source.debian]
directory = "/usr/share/cargo/registry"
"""
RUST = """fn main() {
    let url = std::env::args().nth(1).unwrap();
    print!("{}", ureq::get(&url).call().unwrap().into_string().unwrap());
}
"""
PYCURL = ("import pycurl, sys; c = pycurl.Curl(); c.setopt(c.URL, sys.argv[1]); print(pycurl.version); "
          "c.setopt(c.WRITEFUNCTION, lambda b: print(b.decode()) or None); c.perform()")
URLLIB = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())"
REQUESTS = "import requests, sys; print(requests.__version__, requests.get(sys.argv[1]).text)"
FETCH = ("fetch(process.argv[1]).then(a => a.text()).then(console.log, "
         "e => { console.log(e, e.cause); process.exit(1) })")
PRINT_FETCH = "console.log(await (await fetch('https://u.test/$N')).text())"
DENO = "/opt/npm/node_modules/@deno/linux-*/deno"
BUN = "/opt/npm/node_modules/@oven/bun-linux-*/bin/bun"
LS_REMOTE = "git ls-remote https://u.test/$N"
GNUTLS_FAILS = "server certificate verification failed"
OPENSSL_FAILS = "SSL certificate problem"
PYTHON_FAILS = "CERTIFICATE_VERIFY_FAILED"
NODE_FAILS = "UNABLE_TO_(VERIFY_LEAF_SIGNATURE|GET_ISSUER_CERT)|SELF_SIGNED_CERT_IN_CHAIN"

# name: (its version, a script that prints it and gets https://u.test/$N, what it says of a CA it does
# not trust)
TOOLCHAINS = {
    "curl": (r"curl 7.* OpenSSL/3", "curl -V && curl -sS https://u.test/$N", OPENSSL_FAILS),
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
    "rustls": ("rustls v0", f"{NEW}mkdir src .cargo && cat > Cargo.toml <<'E'\n{CARGO_TOML}E\n"
               f"cat > .cargo/config.toml <<'E'\n{CARGO_CONFIG}E\ncat > src/main.rs <<'E'\n{RUST}E\n"
               "cargo tree --offline && cargo run -q --offline https://u.test/$N",
               "invalid peer certificate: UnknownIssuer"),
    "cargo": ("cargo 1[.]", f"cargo --version && {NEW}CARGO_HOME=$PWD cargo search --index "
              "https://github.com/me/index thing", GNUTLS_FAILS),
    "deno": ("deno 2", f'{DENO} --version && {DENO} eval "{PRINT_FETCH}"',
             "invalid peer certificate: UnknownIssuer"),
    "bun": ("^1[.]", f'{BUN} --version && {BUN} -e "{PRINT_FETCH}"', "UNABLE_TO_GET_ISSUER_CERT_LOCALLY"),
}
COMMIT = "1234567890" * 4
PACKAGE = {"name": "thing", "dist-tags": {"latest": "4.5.6"},
           "versions": {"4.5.6": {"name": "thing", "version": "4.5.6", "dist": {"tarball": "x"}}}}
CRATES = {"crates": [{"name": "thing", "max_version": "4.5.6"}], "meta": {"total": 1}}
# Where a client asks below its URL for a form of its own: the path there, the answer, what it prints.
ANSWERS = {
    "git": ("/info/refs", f"{COMMIT}\trefs/heads/main\n", COMMIT),
    "git-by-default": ("/info/refs", f"{COMMIT}\trefs/heads/main\n", COMMIT),
    "pip": ("/thing/", "<html><body><a href='thing-4.5.6.tar.gz'>thing-4.5.6.tar.gz</a></body></html>",
            "4.5.6"),
    "npm": ("/thing", json.dumps(PACKAGE), "thing@4.5.6"),
    "cargo": ("/api/v1/crates", json.dumps(CRATES), 'thing = "4.5.6"'),
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
LONG = ".".join(["l" * 48] * 4) + ".test"
IDN = "xn--bcher-kva.test"


@pytest.fixture(scope="module")
def server(namespace, folder):
    server = u.Upstream(namespace, folder, "toolchains", (*u.HOSTS, LONG, IDN))
    yield server
    server.close()


@pytest.fixture(scope="module")
def daemon(folder, make_daemon, server, demo):
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
                         extra_rules=[server.rule("u.test", "u-ca.pem"),
                                      server.rule(LONG, "u-ca.pem", name="long"),
                                      server.rule(IDN, "u-ca.pem", name="idn"),
                                      {"name": "git", "host": "github.com", "upstream_ca": "demo-ca.pem",
                                       "upstream": f"127.0.0.1:{demo.git_port}",
                                       "git": {"fetch": True, "push": True, "repositories": ["me/*"]}}])
    for name, files in {"me/both": {"README": b"mine\n"}, "me/index": {
            "config.json": b'{"dl": "https://u.test/cargo", "api": "https://u.test/cargo"}'}}.items():
        gitserver.make_repository(f"{demo.folder}/repositories", name, files)
    shutil.copy(server.ca, daemon.folder / "policy/u-ca.pem")
    harness.run("cp", "-al", builder.state / "images/toolchains", daemon.state / "images/toolchains")
    return daemon.start()


@pytest.fixture(scope="module")
def box(daemon):
    box = daemon.sandbox("trusting")
    yield box
    box.remove()


@pytest.fixture(scope="module")
def other_box(daemon, server, demo):
    box = daemon.sandbox("other-trust")
    cas = "".join(pathlib.Path(path).read_text() for path in (server.ca, demo.ca))
    box.sh(f"cat > /workspace/other.pem <<'E'\n{cas}E")
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


@pytest.fixture(scope="module")
def git_openssl(folder, box, other_box):
    """A folder for GIT_EXEC_PATH in both sandboxes: Debian's git links libcurl with GnuTLS; this is its source,
    linked with OpenSSL's."""
    here = folder / "git-openssl"
    (here / "lists/partial").mkdir(parents=True)
    targets = harness.run("apt-get", "indextargets", "--no-release-info", "--format",
                          "deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages").stdout.decode()
    lines = set(re.findall(r"^deb-src \S+ bookworm\S* main$", targets, re.M))
    (here / "sources.list").write_text("\n".join(lines) + "\n")
    apt = ["apt-get", "-o", f"Dir::State::Lists={here}/lists", "-o", f"Dir::Etc::SourceList={here}/sources.list",
           "-o", "Dir::Etc::SourceParts=/dev/null", "-o", f"Dir::Cache={here}"]
    harness.run(*apt, "update")
    harness.run(*apt, "source", "git", cwd=here)
    source = next(here.glob("git-*/Makefile")).parent
    harness.run("make", "-s", "-j2", "CFLAGS=-O0", "prefix=/usr", "sysconfdir=/etc", "NO_EXPAT=1", "NO_GETTEXT=1",
                "git-remote-http", cwd=source)
    for sandbox in (box, other_box):
        made = sandbox.sh("cp -r /usr/lib/git-core /workspace/git-core && rm /workspace/git-core/git-remote-https")
        assert made["exitCode"] == 0, made
        shutil.copy(source / "git-remote-http",
                    sandbox.daemon.state / "sandboxes" / sandbox.name / "workspace/git-core/git-remote-https")
    return "/workspace/git-core"


# what is linked, what it says of a CA that it does not trust
GITS = {"gnutls": ("libcurl-gnutls.so.4 =>", GNUTLS_FAILS), "openssl": ("libcurl.so.4 =>", OPENSSL_FAILS)}


@pytest.mark.parametrize("verb", ["clone", "push"])
@pytest.mark.parametrize("build", GITS)
def test_c5_git_of_either_library_clones_and_pushes(box, other_box, demo, git_openssl, build, verb):
    linked, refusal = GITS[build]
    git = f"export GIT_EXEC_PATH={git_openssl}; " if build == "openssl" else ""
    git += f"ldd $(git --exec-path)/git-remote-https && {NEW}"
    url = "https://github.com/me/both"
    script = git + (f"git clone -q {url} . && git log --format=%H" if verb == "clone" else
                    f"git init -q && git commit -q --allow-empty -m {build} && git push -q {url} HEAD:{build} && "
                    "git log --format=%H")
    before = len(demo.record("git"))
    code, text = attempt(other_box, script, "git")
    assert code != 0 and linked in text and refusal in text, text
    assert len(demo.record("git")) == before

    code, text = attempt(box, script, "git")
    ref = "master" if verb == "clone" else build
    tip = gitserver.git("rev-parse", ref, cwd=f"{demo.folder}/repositories/me/both.git").decode().strip()
    assert code == 0 and linked in text and text.rstrip().endswith(tip), text
    served = {call["path"].split("service=")[-1] for call in demo.record("git")[before:]}
    assert served == ({"git-upload-pack", "/me/both/git-upload-pack"} if verb == "clone" else
                      {"git-receive-pack", "/me/both/git-receive-pack"}), served


# A client whose input ends would leave before the answer.
ASK = f"{NEW}mkfifo ask && exec 3<>ask && printf 'GET /leaf HTTP/1.0\\r\\nHost: %s\\r\\n\\r\\n' $N >&3 && <&3 "
# Each gets https://$N/leaf. BoringSSL's own tool checks the chain alone, Bun the name too.
LIBRARIES = {
    "openssl": (f"{ASK}openssl s_client -quiet -x509_strict -verify_return_error -verify_hostname $N -servername $N "
                "-connect $N:443", "verify error"),
    "gnutls": (f"{ASK}gnutls-cli $N", "The certificate is NOT trusted"),
    "boringssl": (f"{ASK}bssl-tool client -root-certs /etc/ssl/certs/ca-certificates.crt -server-name $N "
                  "-connect $N:443", "CERTIFICATE_VERIFY_FAILED"),
    "boringssl-bun": (f"{BUN} -e \"console.log(await (await fetch('https://$N/leaf')).text())\"",
                      TOOLCHAINS["bun"][2]),
    "go": (f"{NEW}cat > get.go <<'E'\n{GO}E\nCGO_ENABLED=0 go run get.go https://$N/leaf", TOOLCHAINS["go"][2]),
}


@pytest.mark.parametrize("host", [LONG, IDN], ids=["long", "idn"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_c7_the_leaf_of_an_unusual_host_is_taken(box, other_box, server, library, host):
    script, refusal = LIBRARIES[library]
    seen = len(server.seen("/leaf"))
    _, text = attempt(other_box, script, host)
    assert refusal in text and len(server.seen("/leaf")) == seen, text
    _, text = attempt(box, script, host)
    assert re.search("^/leaf", text, re.M) and len(server.seen("/leaf")) == seen + 1, text
