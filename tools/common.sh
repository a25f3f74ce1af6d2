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

# The packages of the given sets that are missing here, one a line.
packages_missing() {
    local set package program
    while read -r set package program; do
        [[ -n $set && $set != \#* && " $* " == *" $set "* ]] || continue
        [[ -n $program ]] && command -v "$program" >/dev/null && continue
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
            echo "$package"
    done <"$ROOT/tools/packages" | sort -u
}

packages_install() {
    local missing
    mapfile -t missing < <(packages_missing "$@")
    ((${#missing[@]})) || return 0
    [[ $EUID == 0 ]] || die "these packages are missing, install them as root: ${missing[*]}"
    say "installing ${missing[*]}"
    apt-get -q update
    DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "${missing[@]}"
}

# build FOLDER [TARGET...]: everything, or the given targets
build() {
    local folder=$1
    shift
    [[ -f $folder/build.ninja ]] || meson setup "$folder" "$ROOT" >/dev/null
    ninja -C "$folder" "$@" >"$folder/ninja.log" || {
        tail -n 60 "$folder/ninja.log" >&2
        die "the build failed"
    }
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
