# Shared by the scripts: where things are, and getting what is missing. To be sourced.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1

# The PHP that is built for and tested; scripts/conformance --php sets it.
php=${FORKYARD_PHP:-8.2}

# As root, or by sudo.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# need PACKAGE...: installs the Debian packages that are missing.
need() {
    local missing=()
    local package
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
    [ ${#missing[@]} = 0 ] && return 0
    echo "installing: ${missing[*]}" >&2
    # A service that a package starts would take the ports and sockets of the tests.
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        printf '#!/bin/sh\nexit 101\n' | as_root tee /usr/sbin/policy-rc.d >/dev/null
        as_root chmod +x /usr/sbin/policy-rc.d
        trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q >/dev/null
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" >/dev/null || {
        echo "apt-get could not install: ${missing[*]}" >&2
        exit 1
    }
}

# What building needs, beside Rust itself.
need_build_tools() {
    command -v cargo >/dev/null || { echo "Rust is missing: install it with rustup, then run this again" >&2; exit 1; }
    need gcc libc6-dev "php$php-dev" "libphp$php-embed"
}
