# shellcheck shell=bash disable=SC2034
# Sourced by the scripts beside it: where things are, packages, building.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PROGRAMS=(paddockd paddock-api paddock-egress paddock-init paddock-jail paddock-image-build paddock)

say() {
    printf '\n== %s\n' "$*"
}

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

packages_install() {
    local missing
    mapfile -t missing < <("$ROOT/tools/packages" "$@")
    ((${#missing[@]})) || return 0
    [[ $EUID == 0 ]] || die "packages are missing; as root: apt-get install ${missing[*]}"
    say "installing ${missing[*]}"
    apt-get -q update
    DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "${missing[@]}"
}

# build FOLDER [OPTION...] [TARGET...]: everything, or the given targets; options are meson's
build() {
    local folder=$1 options=()
    shift
    while [[ ${1:-} == -* ]]; do
        options+=("$1")
        shift
    done
    [[ -f $folder/build.ninja ]] || meson setup "$folder" "$ROOT" "${options[@]}" >/dev/null
    ninja -C "$folder" "$@" >"$folder/ninja.log" || {
        tail -n 60 "$folder/ninja.log" >&2
        die "the build failed"
    }
}

# apt's sources of SUITE and how it fetches, as apt itself reads them from this machine's files
apt_sources() {
    apt-get indextargets --no-release-info --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' |
        grep -E " $SUITE(-updates|-security)? main$" | sort -u
}

apt_settings() {
    apt-config dump | grep '^Acquire::' | grep -v '^Acquire::IndexTargets'
}

# Polls until the command succeeds: wait_for SECONDS COMMAND...
wait_for() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < deadline)) || return 1
        sleep 0.05
    done
}

# The name of the control groups of the daemon of a STATE (state_name in src/supervisor/state.c)
cgroup_of_state() {
    local hash=2166136261 part bits
    for part in $(stat -c '%d %i' "$1"); do
        for ((bits = 0; bits < 64; bits += 8)); do
            hash=$((((hash ^ (part >> bits & 255)) * 16777619) & 0xffffffff))
        done
    done
    printf 'paddock-%08x\n' "$hash"
}

# Removes the groups of these names, with those in them, where no process is left.
remove_cgroups() {
    local name root
    for name in "$@"; do
        for root in /sys/fs/cgroup /sys/fs/cgroup/*; do
            [[ ! -d $root/$name ]] || find "$root/$name" -depth -type d -exec rmdir {} + || true
        done
    done
}

# ------------------------------------------------------------ results of tests

PASSED=0
FAILED=0
FAILURES=()

passed() {
    PASSED=$((PASSED + $1))
}

failed() {
    FAILED=$((FAILED + $1))
    FAILURES+=("$2")
}

# Counts what a runner wrote as JUnit XML: count_junit FILE NAME
count_junit() {
    local good bad names
    [[ -s $1 ]] || {
        failed 1 "$2: no results"
        return
    }
    read -r good bad names < <(/usr/bin/python3 - "$1" <<'END'
import sys
import xml.etree.ElementTree as tree
cases = list(tree.parse(sys.argv[1]).iter("testcase"))
skipped = [case for case in cases if case.find("skipped") is not None]
bad = [case.get("name") for case in cases
       if case.find("failure") is not None or case.find("error") is not None]
print(len(cases) - len(bad) - len(skipped), len(bad), *bad)
END
    ) || true
    passed "${good:-0}"
    [[ ${bad:-1} == 0 ]] || failed "${bad:-1}" "$2: ${names:-}"
    ((${good:-0} + ${bad:-0})) || failed 1 "$2: no test ran"
}

# The last line of a program that runs tests; true when something ran and nothing failed
report_counts() {
    ((${#FAILURES[@]} == 0)) || printf '\nfailed: %s' "${FAILURES[@]}"
    printf '\n%d passed, %d failed\n' "$PASSED" "$FAILED"
    ((PASSED > 0 && FAILED == 0))
}
