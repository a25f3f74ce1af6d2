#!/bin/bash
# Runs on a bare machine without systemd (tools/fresh), as test_package.py's second half. Says "all is
# well" last.
set -euxo pipefail
export DEBIAN_FRONTEND=noninteractive

fail() {
    echo "$*" >&2
    cat /tmp/daemon.log >&2 || true
    exit 1
}

# What the package could leave
leftovers() {
    find / -xdev \( -path /proc -o -path /sys -o -path /share -o -path /src -o -path /usr/share/doc \) \
        -prune -o -name '*paddock*' ! -path '/var/lib/dpkg/*' ! -path '/var/cache/*' \
        ! -path '/var/log/*' ! -name 'paddock-tests*' -print
    find /run /tmp -name '*paddock*' -print
    getent group paddock || true
}

# The programs that run: by what they execute, since init's is a memfd
running() {
    local exe
    for exe in /proc/[0-9]*/exe; do
        readlink "$exe" 2>/dev/null || true
    done | grep -c paddock || true
}

await() {
    local end=$((SECONDS + 60))
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || fail "never: $*"
        sleep 0.2
    done
}

nothing_runs() {
    [[ $(running) == 0 ]]
}

# A loopback alone: nothing that goes wrong reaches a real address.
start_daemon() {
    unshare --net /usr/sbin/paddockd >>/tmp/daemon.log 2>&1 </dev/null &
    await paddock ls
}

# An image that is this machine as it was: it needs bash alone.
make_image() {
    local image=/var/lib/paddock/images/claude
    install -d -m 0700 /var/lib/paddock
    install -d "$image/rootfs"
    tar -C / -cf - --exclude=usr/share bin etc lib lib64 sbin usr | tar -C "$image/rootfs" -xpf -
    echo 'agent:x:1000:1000::/home/agent:/bin/bash' >>"$image/rootfs/etc/passwd"
    install -d -o 1000 -g 1000 "$image/rootfs/home/agent"
    install -d "$image/rootfs"/{proc,dev,tmp,run,var/tmp,workspace}
    printf '{"schema":1,"name":"claude","digest":"%064d","built":1,"size_bytes":1}\n' 0 \
        >"$image/image.json"
}

[[ -z $(leftovers) ]]
apt-get -q update
apt-get -q install -y --no-install-recommends /share/paddock.deb
paddock version
paddockd --version
getent group paddock
[[ $(stat -c %a /etc/paddock/secrets) == 700 ]]
dpkg-query -W -f '${Conffiles}' paddock | grep -q /etc/paddock/paddock.json
[[ ! -d /lib/systemd/system || -f /lib/systemd/system/paddock.service ]]

make_image
start_daemon
paddock doctor | tee /tmp/doctor
! grep -q '^FAIL' /tmp/doctor
[[ $(paddock exec box -- /bin/echo hello from inside) == 'hello from inside' ]]
echo secret-of-mine >/etc/paddock/secrets/MINE

# An upgrade leaves the sandbox alone, a removal ends it and the daemon, and keeps the files.
boot=$(paddock exec box -- /bin/cat /proc/sys/kernel/random/boot_id)
dpkg -i /share/paddock.deb
[[ $(paddock exec box -- /bin/cat /proc/sys/kernel/random/boot_id) == "$boot" ]]
apt-get -q remove -y paddock
await nothing_runs
[[ -d /var/lib/paddock/sandboxes/box && -f /etc/paddock/secrets/MINE ]]

apt-get -q install -y --no-install-recommends /share/paddock.deb
start_daemon
paddock exec box -- /bin/true
apt-get -q purge -y paddock
await nothing_runs
left=$(leftovers)
[[ -z $left ]] || fail "left: $left"
set +x
echo 'all is well'
