#!/bin/bash
# Runs on a bare machine (tools/fresh), as test_arm64.py's second half: builds for arm64 with every warning
# an error, and runs under emulation what needs no kernel of that kind. Says "all is well" last.
set -euxo pipefail
export DEBIAN_FRONTEND=noninteractive
libraries=(libcap-dev libcurl4-openssl-dev libnl-3-dev libnl-route-3-dev libseccomp-dev libssl-dev
    libuv1-dev libyajl-dev libarchive-dev pkgconf)

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
# Pure functions alone: the rest needs a kernel of arm64, or calls that the emulator does not know.
meson test -C /tmp/arm64 --no-rebuild --print-errorlogs --timeout-multiplier 10 --suite fuzz
meson test -C /tmp/arm64 --no-rebuild --print-errorlogs --timeout-multiplier 10 \
    json policy_canonical policy http_head http_router task agent_parse agent_outcome image_recipe \
    log sandbox_cgroup sandbox_settings egress_address egress_http1 api_access api_request cli_args \
    cli_events
qemu-aarch64-static -L / /tmp/arm64/src/main/paddock version
qemu-aarch64-static -L / /tmp/arm64/src/main/print_filter >/tmp/filter
[[ -s /tmp/filter ]]
set +x
echo 'all is well'
