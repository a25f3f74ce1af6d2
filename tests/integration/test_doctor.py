"""paddock doctor: each finding in the form in which it fails, with the cause and the cure. The
kernel refuses in truth: by its own settings in a user namespace, or by a seccomp filter."""
import errno
import json
import os
import subprocess

import pytest

from filtered import refusing
from harness import BIN

PADDOCKD = str(BIN / "paddockd")


def doctor(*more, within=(), check=True, **options):
    """{name: finding}; of a name with several findings the worst."""
    result = subprocess.run([*within, PADDOCKD, *more, "--doctor", "--json"], capture_output=True,
                            timeout=60, check=False, **options)
    said = json.loads(result.stdout)
    levels = ["ok", "warn", "fail"]
    findings = {}
    for finding in sorted(said["findings"], key=lambda one: levels.index(one["level"])):
        findings[finding["name"]] = finding
        assert (finding["level"] == "ok") == (finding["lost"] == ""), finding
        assert finding["cure"] or finding["level"] == "ok", finding
    assert said["ok"] == (result.returncode == 0) == all(
        finding["level"] != "fail" for finding in said["findings"])
    return findings


def in_user_namespace(script):
    """A prefix: the script is run by the root of a user namespace, then the program."""
    return ["unshare", "--user", "--map-root-user", "--mount", "--fork", "sh", "-ec",
            f'{script}; exec "$@"', "sh"]


def test_a_good_machine():
    findings = doctor()
    for name in ("kernel", "system-calls", "landlock", "user-namespaces", "namespaces", "overlay",
                 "proc", "idmapped-mounts", "seccomp", "ids", "programs", "policy", "agent"):
        assert findings[name]["level"] == "ok", findings[name]


@pytest.mark.parametrize("within", [
    ["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups"],
    ["unshare", "--user", "--map-root-user", "--fork"]], ids=["user", "unshare"])
def test_without_root(tmp_path, within):
    """The same findings as an ordinary user, and none that only root can have."""
    findings = doctor(within=within, env={"PATH": os.environ["PATH"], "HOME": str(tmp_path),
                                          "XDG_STATE_HOME": "/var/tmp/paddock-none"})
    for name in ("system-calls", "landlock", "user-namespaces", "namespaces", "overlay", "proc"):
        assert findings[name]["level"] == "ok", findings[name]
    assert "idmapped-mounts" not in findings
    assert not [one for one in findings.values() if one["level"] == "fail"], findings


def test_user_namespaces_forbidden_by_a_setting(tmp_path):
    """F1: the doctor names cause and cure; the daemon does not start."""
    within = in_user_namespace("echo 0 > /proc/sys/user/max_user_namespaces")
    found = doctor(within=within)["user-namespaces"]
    assert found["level"] == "fail" and "user.max_user_namespaces is 0" in found["text"], found
    assert found["cure"] == "sysctl -w user.max_user_namespaces=15000"
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"state_dir": str(tmp_path / "state"),
                                  "listen": [f"unix:{tmp_path}/socket"]}))
    result = subprocess.run([*within, PADDOCKD, "--config", str(config)], capture_output=True,
                            timeout=30, check=False)
    assert result.returncode == 1, result
    for words in (b"without them there is no sandbox", b"user.max_user_namespaces is 0",
                  b"cure: sysctl -w user.max_user_namespaces=15000"):
        assert words in result.stderr, result
    assert not (tmp_path / "socket").exists()


def test_user_namespaces_forbidden_from_outside(tmp_path):
    found = doctor(preexec_fn=refusing("unshare", errno.EPERM))["user-namespaces"]
    assert found["level"] == "fail" and "no setting of this machine forbids them" in found["text"]
    assert "outside" in found["cure"]
    # what AppArmor does to users: the namespace is made, and then nothing is allowed in it
    found = doctor(preexec_fn=refusing("mount", errno.EACCES))["mounts"]
    assert found["level"] == "fail" and "Permission denied" in found["text"], found


@pytest.mark.parametrize("kind", ["mnt", "pid", "net", "ipc", "uts", "cgroup"])
def test_a_kind_of_namespace_forbidden(kind):
    name = f"max_{kind}_namespaces"
    found = doctor(within=in_user_namespace(f"echo 0 > /proc/sys/user/{name}"))["namespaces"]
    assert found["level"] == "fail" and f"no {kind} namespace" in found["text"], found
    assert f"sysctl -w user.{name}=15000" in found["cure"]
    if kind == "net":
        found = doctor(within=in_user_namespace(f"echo 40 > /proc/sys/user/{name}"))["namespaces"]
        assert found["level"] == "warn" and found["text"] == f"user.{name} is 40"


@pytest.mark.parametrize("call", ["clone3", "openat2", "pidfd_open", "close_range", "open_tree",
                                  "move_mount", "mount_setattr", "seccomp"])
def test_a_system_call_that_is_not_there(call):
    found = doctor(preexec_fn=refusing(call, errno.ENOSYS))["system-calls"]
    assert found["level"] == "fail" and found["text"] == f"{call}(2) is not there", found


def test_landlock():
    found = doctor(preexec_fn=refusing("landlock_create_ruleset", errno.EOPNOTSUPP))["landlock"]
    assert found["level"] == "fail" and "lsm=" in found["cure"], found
    found = doctor(preexec_fn=refusing("landlock_create_ruleset", errno.ENOSYS))["landlock"]
    assert found["level"] == "fail" and "CONFIG_SECURITY_LANDLOCK" in found["cure"], found


def test_no_overlay():
    found = doctor(preexec_fn=refusing("fsopen", errno.ENODEV))["overlay"]
    assert found["level"] == "fail" and found["cure"].startswith("modprobe overlay"), found


def test_no_proc():
    """Where part of our own /proc is covered, as in most containers."""
    script = "mount --bind /dev/null /proc/version"
    found = doctor(within=["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork",
                           "--mount-proc", "sh", "-ec", f'{script}; exec "$@"', "sh"])["proc"]
    assert found["level"] == "fail" and "systempaths=unconfined" in found["cure"], found


def test_no_ipv6():
    found = doctor(preexec_fn=refusing("socket", errno.EAFNOSUPPORT, 10))["ipv6"]
    assert found["level"] == "warn" and "IPv4 alone" in found["lost"], found


def test_ipv6_disabled_by_a_setting():
    within = ["unshare", "--net", "sh", "-ec",
              'echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; exec "$@"', "sh"]
    found = doctor(within=within)["ipv6"]
    assert found["level"] == "warn" and "net.ipv6.conf.all.disable_ipv6" in found["text"], found
    assert doctor()["ipv6"]["text"] == "IPv6 is there"


def test_no_control_groups():
    """None is mounted, and none can be: not the v2 tree either that the daemon mounts for itself."""
    found = doctor(within=["unshare", "--mount", "sh", "-ec",
                           'mount -t tmpfs none /sys/fs/cgroup; exec "$@"', "sh"],
                   preexec_fn=refusing("fsopen", errno.EPERM))["cgroups"]
    assert found["level"] == "warn" and "not limited: memory cpu pids" in found["text"], found
    assert "one of cpus is refused" in found["lost"] and "Delegate=yes" in found["cure"]


def test_ids_that_overlap(tmp_path):
    (tmp_path / "subuid").write_text("alice:1879048192:65536\n")
    found = doctor(within=["unshare", "--mount", "sh", "-ec",
                           f'mount --bind {tmp_path}/subuid /etc/subuid; exec "$@"', "sh"])["ids"]
    assert found["level"] == "fail" and "alice:1879048192:65536" in found["text"], found
    assert "ids.base" in found["cure"]


def config_of(tmp_path, **keys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"state_dir": str(tmp_path / "state"), **keys}))
    return "--config", str(path)


def with_state(tmp_path, mount):
    """A prefix: the state folder is what `mount` mounts at its path."""
    (tmp_path / "state").mkdir(exist_ok=True)
    return ["unshare", "--mount", "sh", "-ec", f'{mount} {tmp_path}/state; exec "$@"', "sh"]


@pytest.mark.parametrize("options, level, says, lost", [
    ("size=3g", "warn", "tmpfs", "after a reboot"),
    ("size=1g", "warn", "1024 MiB free", "may not fit"),
    ("size=8m", "fail", "8 MiB free", "floor.disk_mib is 256"),
    ("size=3g,nr_inodes=5000", "warn", "files more can be made", "may not fit"),
    ("size=3g,nr_inodes=100", "fail", "files more can be made", "floor.disk_files is 4096"),
    ("size=3g,ro", "fail", "mounted ro", "the daemon does not start"),
    ("size=3g,noexec", "fail", "mounted noexec", "no program of an image can be run")])
def test_state_disk(tmp_path, options, level, says, lost):
    found = doctor(*config_of(tmp_path), within=with_state(
        tmp_path, f"mount -t tmpfs -o {options} none"))["state-disk"]
    assert found["level"] == level and says in found["text"] and lost in found["lost"], found


def test_state_on_an_overlay(tmp_path):
    (tmp_path / "o").mkdir()
    script = (f"mount -t tmpfs none {tmp_path}/o; cd {tmp_path}/o; mkdir l u w; "
              "mount -t overlay -o lowerdir=l,upperdir=u,workdir=w none")
    found = doctor(*config_of(tmp_path), within=with_state(tmp_path, script))["state-disk"]
    assert found["level"] == "fail" and "cannot lie on another" in found["lost"], found


def test_state_of_somebody_else(tmp_path):
    (tmp_path / "state").mkdir()
    os.chown(tmp_path / "state", 1234, 1234)
    found = doctor(*config_of(tmp_path))["state"]
    assert found["level"] == "fail" and found["cure"].startswith("chown -R 0 "), found
    os.rmdir(tmp_path / "state")
    (tmp_path / "state").write_text("")
    assert "is no folder" in doctor(*config_of(tmp_path))["state"]["text"]
    os.remove(tmp_path / "state")
    assert "not there yet" in doctor(*config_of(tmp_path))["state"]["text"]
    assert not (tmp_path / "state").exists()  # it only looks


def make_ca(tmp_path, days):
    (tmp_path / "state").mkdir()
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=x", "-days", str(days),
                    "-keyout", tmp_path / "state" / "ca.key", "-out", tmp_path / "state" / "ca.crt"],
                   check=True, capture_output=True)


@pytest.mark.parametrize("days, level", [(3650, "ok"), (20, "warn")])
def test_ca_date(tmp_path, days, level):
    make_ca(tmp_path, days)
    found = doctor(*config_of(tmp_path))["ca"]
    assert found["level"] == level and "the CA is valid until 20" in found["text"], found
    (tmp_path / "state" / "ca.crt").write_text("nonsense")
    found = doctor(*config_of(tmp_path))["ca"]
    assert found["level"] == "fail" and "holds no certificate" in found["text"], found


def test_clock_that_cannot_be_right(tmp_path):
    """A copy of paddockd from the future: the clock must be wrong then."""
    copy = tmp_path / "paddockd"
    copy.write_bytes((BIN / "paddockd").read_bytes())
    copy.chmod(0o755)
    os.utime(copy, (4000000000, 4000000000))
    result = subprocess.run([copy, "--doctor", "--json"], capture_output=True, check=False)
    findings = json.loads(result.stdout)["findings"]
    found = [one for one in findings if one["name"] == "clock"][0]
    assert found["level"] == "fail" and "before Paddock" in found["text"], found
    # a clock that stood still while the machine slept is told, and is no fault
    found = doctor(within=["unshare", "--time", "--boottime", "5000", "--fork"])["clock"]
    assert found["level"] == "ok" and "slept 5000 s" in found["text"], found
    # a part of Paddock that is not installed
    found = [one for one in findings if one["name"] == "programs"]
    assert len(found) == 5 and all(one["lost"] and one["cure"] for one in found)


def test_gateway_policy_and_agent(tmp_path):
    """What the configuration lacks, one after another."""
    secrets = tmp_path / "secrets"
    found = doctor(*config_of(tmp_path))["gateway"]
    assert found["level"] == "warn" and "AI_GATEWAY_ACCOUNT_ID" in found["cure"], found
    keys = {"vars": {"AI_GATEWAY_ACCOUNT_ID": "a"}, "secrets_dir": str(secrets)}
    found = doctor(*config_of(tmp_path, **keys))["gateway"]
    assert found["level"] == "warn" and f"{secrets}/AI_GATEWAY_TOKEN" in found["cure"], found
    secrets.mkdir()
    (secrets / "AI_GATEWAY_TOKEN").write_text("t0ken-that-is-secret")
    (secrets / "AI_GATEWAY_TOKEN").chmod(0o644)
    found = doctor(*config_of(tmp_path, **keys))["gateway"]
    assert found["level"] == "warn" and "0600" in found["text"] + found["cure"], found
    (secrets / "AI_GATEWAY_TOKEN").chmod(0o600)
    found = doctor(*config_of(tmp_path, **keys))
    assert found["gateway"]["level"] == "ok" and "t0ken" not in json.dumps(found)
    found = doctor(*config_of(tmp_path, policy="/none.json", recipes_dir="/none"))
    assert found["policy"]["lost"] == "sandboxes reach nothing"
    assert found["agent"]["level"] == "fail" and "default_agent" in found["agent"]["cure"]
