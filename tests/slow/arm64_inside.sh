#!/bin/bash
# Runs on a bare machine (tools/fresh), as test_arm64.py's second half: builds for arm64 with every warning
# an error, and runs its unit tests under emulation. Says "all is well" last.
set -euxo pipefail
export DEBIAN_FRONTEND=noninteractive
libraries=(libcap-dev libcurl4-openssl-dev libnghttp2-dev libbrotli-dev libzstd-dev zlib1g-dev libnl-3-dev libnl-route-3-dev libseccomp-dev libssl-dev
    libuv1-dev libyajl-dev libarchive-dev pkgconf)

# Unit tests that ask for what the emulator (qemu-user 7.2) has not, where the kernel of an arm64 machine does
left_out=(
    util repo image_build supervisor_config supervisor_table # openat2(2)
    confine sandbox_profile # Landlock, seccomp
    sandbox_instance sandbox_jail egress_binary # user namespaces
    supervisor_children # starts /proc/self/exe, which is the emulator
    ipc # it takes descriptors that the program has no room for, and loses them
)

dpkg --add-architecture arm64
apt-get -q update
apt-get -q install -y --no-install-recommends gcc gcc-aarch64-linux-gnu libc6-dev libc6-dev-arm64-cross \
    file meson ninja-build node-llhttp pkg-config python3 qemu-user-static \
    "${libraries[@]/%/:arm64}"

meson setup /tmp/arm64 /share/src --cross-file /share/src/tools/package/arm64.ini
ninja -C /tmp/arm64
for program in /tmp/arm64/src/main/paddock*; do
    [[ ! -f $program ]] || file "$program" | grep -q 'ARM aarch64'
done
meson test -C /tmp/arm64 --no-rebuild --print-errorlogs --timeout-multiplier 10 --suite fuzz
mapfile -t tests < <(meson test -C /tmp/arm64 --no-rebuild --list --suite unit | sed 's|.* / ||' |
    grep -vxF "$(printf '%s\n' "${left_out[@]}")")
((${#tests[@]} > 25))
PADDOCK_TEST_PATIENCE=10 meson test -C /tmp/arm64 --no-rebuild --print-errorlogs --timeout-multiplier 10 "${tests[@]}"
qemu-aarch64-static -L / /tmp/arm64/src/main/paddock version
qemu-aarch64-static -L / /tmp/arm64/src/main/print_filter >/tmp/filter
[[ -s /tmp/filter ]]
set +x
echo 'all is well'
