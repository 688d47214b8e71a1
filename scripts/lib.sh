# Shared by the scripts: where things are, and getting what is missing. To be sourced.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1

# The PHP that is built for and tested; scripts/conformance --php sets it.
php=${FORKYARD_PHP:-8.2}

# Where cargo builds.
target=${CARGO_TARGET_DIR:-target}

# at_exit COMMAND: runs it when the script ends, before what was asked for earlier.
at_exit() {
    exit_commands="$1; ${exit_commands:-}"
    # Now is when it is to be expanded.
    # shellcheck disable=SC2064
    trap "$exit_commands" EXIT
}

# step COMMAND...: runs it, and says how long it took.
step() {
    local begun=$SECONDS
    echo "$*" >&2
    "$@"
    echo "$*: $((SECONDS - begun)) s" >&2
}

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
        at_exit 'as_root rm -f /usr/sbin/policy-rc.d'
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q >/dev/null
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" >/dev/null || {
        echo "apt-get could not install: ${missing[*]}" >&2
        exit 1
    }
}

# Rust, which is not installed for anybody.
need_rust() {
    command -v cargo >/dev/null || { echo "Rust is missing: install it with rustup, then run this again" >&2; exit 1; }
    use_fast_linker
}

# Links with mold or lld where they are installed and Rust has no lld of its own, which it uses from 1.90 on on x86-64. The
# compiler looks for ld there first; cargo does not see it. RUSTFLAGS, or a linker named in .cargo/config.toml, would have
# everything built anew at each change between the scripts and plain cargo, and the latter would break without the linker.
use_fast_linker() {
    local version linker
    version=$(rustc --version | cut -d. -f2)
    [ "$(uname -m)" = x86_64 ] && [ "$version" -ge 90 ] && return
    linker=$(command -v mold || command -v ld.lld) || return 0
    mkdir -p "$target/linker"
    ln -sf "$linker" "$target/linker/ld"
    COMPILER_PATH=$(cd "$target/linker" && pwd)
    export COMPILER_PATH
}

# What building needs, beside Rust itself.
need_build_tools() {
    need_rust
    need gcc libc6-dev "php$php-dev" "libphp$php-embed"
}

# build PROFILE WHAT...: builds programs by their names, libforkyard.so, examples/NAME. They are in $target/PROFILE then.
# forkyard-fpm is forkyard by another name: a hard link, so that the file that a process executes has that name, too.
build() {
    local profile=$1 what options=()
    shift
    for what in "$@"; do
        case $what in
        libforkyard.so) options+=(--lib) ;;
        forkyard-fpm) options+=(--bin forkyard) ;;
        examples/*) options+=(--example "${what#examples/}") ;;
        *) options+=(--bin "$what") ;;
        esac
    done
    cargo build --profile "$profile" --locked --package forkyard --package forkyard-load "${options[@]}"
    for what in "$@"; do
        [ "$what" != forkyard-fpm ] || ln -f "$target/$profile/forkyard" "$target/$profile/forkyard-fpm"
        test -x "$target/$profile/$what" || { echo "$target/$profile/$what was not built" >&2; exit 1; }
    done
}

# Format and lints.
check_source() {
    cargo fmt --all --check
    cargo clippy --locked --workspace --all-targets -- -D warnings
}

# The tests that need no other program.
test_alone() {
    cargo test --locked --workspace --lib --bins --test pure --test simulations
}
