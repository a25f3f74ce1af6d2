"""What the sandbox's own system does: packages, resolver, files of /etc, ports (CASES F)."""
import re
import socket

import pytest

import harness


@pytest.fixture(scope="module")
def box(sh_daemon):
    sandbox = sh_daemon.sandbox("hosts")
    assert sandbox.exec("/bin/true")["exitCode"] == 0
    yield sandbox
    sandbox.remove()


def test_f2_root_inside_can_install_packages_and_change_the_lower_layer(box):
    script = """set -e
mkdir -p /tmp/p/DEBIAN /tmp/p/usr/share/paddock-test
printf 'Package: paddock-test\\nVersion: 1\\nArchitecture: all\\nMaintainer: a <a@b.test>\\nDescription: x\\n' > /tmp/p/DEBIAN/control
echo hi > /tmp/p/usr/share/paddock-test/file
printf '#!/bin/sh\\nset -e\\nchown daemon /usr/share/paddock-test/file\\n' > /tmp/p/DEBIAN/postinst
chmod 755 /tmp/p/DEBIAN/postinst
dpkg-deb -b /tmp/p /tmp/p.deb >/dev/null
dpkg -i /tmp/p.deb >/dev/null
cat /usr/share/paddock-test/file; stat -c %U /usr/share/paddock-test/file
mv /usr/share/perl5 /usr/share/perl5-moved
mv /usr/share/perl5-moved /usr/share/perl5
rm -r /usr/share/common-licenses || rm -r /usr/share/debconf
"""
    result = box.sh(script, user="root")
    assert result["exitCode"] == 0 and result["stdout"] == "hi\ndaemon\n", result
    box.daemon.post(f"{box.path}/stop")
    assert box.sh("cat /usr/share/paddock-test/file")["stdout"] == "hi\n"


@pytest.mark.parametrize("trap", ["mkfifo {0}", "ln -s /nowhere {0}", "mkdir {0}; touch {0}/x",
                                  "ln -s /etc/shadow {0}"])
def test_f3_what_is_left_in_etc_cannot_hold_up_the_next_start(box, trap):
    files = ("/etc/resolv.conf", "/etc/hosts", "/etc/hostname",
             "/etc/ssl/certs/ca-certificates.crt", "/usr/local/share/ca-certificates/paddock.crt")
    for path in files:
        box.sh(f"rm -rf {path}; {trap.format(path)}", user="root")
    box.daemon.post(f"{box.path}/stop")
    for path in files:
        assert box.sh(f"test -f {path} -a ! -L {path}")["exitCode"] == 0, path
    assert box.exec("/bin/cat", "/etc/hostname")["stdout"].strip() == "hosts"
    assert "BEGIN CERTIFICATE" in box.exec("/bin/cat", files[3])["stdout"]


def test_f7_names_resolve_with_and_without_addrconfig(box):
    for script in ("getent ahostsv4 some.name.test", "getent ahostsv6 some.name.test",
                   "getent hosts some.name.test", "getent ahosts some.name.test"):
        result = box.sh(script)
        assert result["exitCode"] == 0 and result["stdout"], (script, result)
    perl = ("use Socket qw(getaddrinfo AI_ADDRCONFIG); my ($e, @r) = getaddrinfo('x.test', 443, "
            "{flags => AI_ADDRCONFIG}); print scalar(@r) > 0 ? 'ok' : \"$e\"")
    assert box.exec("/usr/bin/perl", "-MSocket", "-e", perl)["stdout"] == "ok"


@pytest.mark.parametrize("family", [4, 6])
def test_f7_node_resolves_names_of_either_family(box, tmp_path, family):
    """The machine's node in the sandbox's network namespace, with the sandbox's resolv.conf."""
    resolv = tmp_path / "resolv.conf"
    resolv.write_text(box.exec("/bin/cat", "/etc/resolv.conf")["stdout"])
    script = (f"require('dns').lookup('some.name.test', {{family: {family}}}, (error, address, family) =>"
              " console.log(error ? error.code : family, address))")
    result = harness.run("nsenter", f"--net=/proc/{box.init_pid()}/ns/net", "--", "unshare", "-m", "--",
                         "/bin/sh", "-c", f'mount --bind {resolv} /etc/resolv.conf && exec node -e "$0"',
                         script)
    assert re.fullmatch(rb"4 198\.1[89]\.\d+\.\d+\n" if family == 4 else rb"6 fd[0-9a-f:]+\n",
                        result.stdout), result


def test_f7_a_closed_port_is_always_refused(box):
    network = box.network()

    def connect_often():
        codes = set()
        for number in range(10000):
            with socket.socket() as sock:
                sock.settimeout(harness.patient(5))
                codes.add(sock.connect_ex(("198.18.0.9", 20000 + number % 20000)))
        return codes
    import errno
    import os
    try:
        assert harness.in_namespace(network, connect_often) == {errno.ECONNREFUSED}
    finally:
        os.close(network)


@pytest.mark.portable
def test_f7_thirty_thousand_connections_to_one_name(box):
    """Each connection is closed by the client, so that its port waits in TIME-WAIT."""
    import os
    network = box.network()

    def connect_often():
        failures = 0
        for _ in range(30000):
            with socket.socket() as sock:
                sock.settimeout(harness.patient(10))
                try:
                    sock.connect(("198.18.0.7", 80))
                except OSError:
                    failures += 1
        return failures
    try:
        assert harness.in_namespace(network, connect_often) == 0
    finally:
        os.close(network)
    assert b"HTTP/1.1 403" in plain_get(box)


def plain_get(box):
    with box.connect("alive.test", 80) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: alive.test\r\nConnection: close\r\n\r\n")
        return harness.read_all(sock)
