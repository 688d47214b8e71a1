# Shared by the scripts: where things are, and getting what is missing. To be sourced.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1

# The PHP of each release of Debian's, the oldest release first.
debian_releases=(bookworm trixie)
declare -A php_of=([bookworm]=8.2 [trixie]=8.4)

# This release of Debian's. Empty: it has no name.
release_here() { sed -n 's/^VERSION_CODENAME=//p' /etc/os-release | tr -d '"'; }

# The PHP that this release has, also if apt knows no packages yet.
php_here() {
    local release found
    release=$(release_here)
    found=${php_of[${release:-none}]:-}
    # Another release: what its package without a number depends on.
    [ -n "$found" ] || found=$(apt-cache depends php-fpm 2>/dev/null | sed -n 's/.*Depends: php\([0-9.]*\)-fpm$/\1/p' | head -1)
    [ -n "$found" ] || {
        echo "it is not known which PHP this release of Debian's has: give its number, as FORKYARD_PHP=8.4" >&2
        return 1
    }
    echo "$found"
}

# The PHP that is built for and tested: that of this release. scripts/conformance --php sets another.
php=${FORKYARD_PHP:-$(php_here)} || exit 1
export FORKYARD_PHP=$php

# Where cargo builds.
target=${CARGO_TARGET_DIR:-target}

# at_exit COMMAND: runs it when the script ends, before what was asked for earlier.
at_exit() {
    exit_commands="$1; ${exit_commands:-}"
    # Now is when it is to be expanded.
    # shellcheck disable=SC2064
    trap "$exit_commands" EXIT
}

# step COMMAND...: runs it, says how long it took, and has its status. Not before `||`, nor as a condition: bash then goes on after
# a command that fails in a function. What may fail without an end of the script is run by `behind`.
step() {
    local begun=$SECONDS status
    echo "$*" >&2
    "$@"
    status=$?
    echo "$*: $((SECONDS - begun)) s" >&2
    return "$status"
}

# behind NAME COMMAND...: runs it beside what follows, until `finish NAME` shows what it said and has its status. The name is a
# word. What has not been waited for is ended with the script.
declare -A behind_pids behind_outputs
behind() {
    local name=$1
    shift
    behind_outputs[$name]=$(mktemp)
    # In a group of processes of its own, which can be ended as a whole.
    set -m
    "$@" >"${behind_outputs[$name]}" 2>&1 </dev/null &
    set +m
    behind_pids[$name]=$!
    at_exit "end_behind $name"
}
end_behind() {
    [ -z "${behind_pids[$1]}" ] || { kill -- "-${behind_pids[$1]}" && wait "${behind_pids[$1]}"; } 2>/dev/null || true
    rm -f "${behind_outputs[$1]}"
}
finish() {
    local pid=${behind_pids[$1]} status=0
    # It is what is waited for now.
    pgrep -g "$pid" | xargs -r -n 1 chrt --other --all-tasks --pid 0 2>/dev/null || true
    wait "$pid" || status=$?
    behind_pids[$1]=''
    cat "${behind_outputs[$1]}" >&2
    return "$status"
}

# idly COMMAND...: runs it in what time of the processors nothing else wants.
idly() {
    chrt --idle --pid 0 "$BASHPID" 2>/dev/null || renice -n 19 "$BASHPID" >/dev/null
    "$@"
}

# As root, or by sudo.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# with_packages COMMAND...: runs it while no other script changes what is installed. apt-get does not wait for its lists.
with_packages() {
    local lock
    mkdir -p "$target"
    exec {lock}>"$target/packages.lock"
    flock "$lock"
    "$@"
    exec {lock}>&-
}

# Brings the lists of packages up to date, once for a script.
update_packages() {
    [ -z "${packages_are_updated:-}" ] || return 0
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q >/dev/null
    packages_are_updated=yes
}

# missing_of PACKAGE...: prints those that are not installed.
missing_of() {
    local package
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || echo "$package"
    done
}

# need PACKAGE...: installs the Debian packages that are missing.
need() {
    [ -z "$(missing_of "$@")" ] || with_packages install_packages "$@"
}

install_packages() {
    local missing status=0 blocked=''
    # Another script may have installed them meanwhile.
    mapfile -t missing < <(missing_of "$@")
    [ ${#missing[@]} -gt 0 ] || return 0
    echo "installing: ${missing[*]}" >&2
    # A service that a package starts would take the ports and sockets of the tests.
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        blocked=yes
        printf '#!/bin/sh\nexit 101\n' | as_root tee /usr/sbin/policy-rc.d >/dev/null
        as_root chmod +x /usr/sbin/policy-rc.d
    fi
    { update_packages && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
        -o DPkg::Lock::Timeout=300 "${missing[@]}" >/dev/null; } || status=$?
    [ -z "$blocked" ] || as_root rm -f /usr/sbin/policy-rc.d
    [ "$status" = 0 ] || { echo "apt-get could not install: ${missing[*]}" >&2; exit 1; }
}

# fetch RELEASE DIRECTORY PACKAGE...: puts packages of a release of Debian's there, as files, unless they are there.
fetch() {
    local release=$1 place=$2 apt
    shift 2
    [ ! -e "$place/complete" ] || return 0
    need python3 debian-archive-keyring
    rm -rf "$place"
    mkdir -p "$place/lists/partial"
    PYTHONPATH=tests/conformance python3 -B -c "import sources; print(sources.source_entries('deb', '$release'))" >"$place/apt.sources"
    apt=(apt-get -q -o Dir::Etc::SourceList="$place/apt.sources" -o Dir::Etc::SourceParts=- -o Dir::State::Lists="$place/lists"
        -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o Acquire::Languages=none -o APT::Sandbox::User=root)
    (cd "$place" && "${apt[@]}" update && "${apt[@]}" download "$@") >"$place/log" 2>&1 || {
        echo "apt-get could not fetch $* of Debian $release: $(tail -1 "$place/log")" >&2
        return 1
    }
    rm -rf "$place/lists"
    touch "$place/complete"
}

# php_headers VERSION: puts php-configVERSION into PATH, for the headers of the release of Debian's that has this version of PHP.
php_headers() {
    local place release
    ! command -v "php-config$1" >/dev/null || return 0
    place=$(mkdir -p "$target/headers" && cd "$target/headers" && pwd)/php$1
    if [ ! -e "$place/usr" ]; then
        release=$(PYTHONPATH=tests/conformance python3 -B -c "import sources; print(sources.RELEASES['$1'])")
        fetch "$release" "$place" "php$1-dev" || return 1
        dpkg -x "$place"/php*-dev_*.deb "$place"
        sed -i "s|^prefix=\"/usr\"|prefix=\"$place/usr\"|" "$place/usr/bin/php-config$1"
    fi
    PATH=$place/usr/bin:$PATH
}

# need_extensions NAME...: puts extensions of PHP where they are found and nothing loads them. As packages some exclude others.
need_extensions() {
    local place name fetched
    place=$("php-config$php" --extension-dir)
    for name in "$@"; do
        [ ! -e "$place/$name.so" ] || continue
        echo "fetching: php$php-$name" >&2
        fetched=$(mktemp -d)
        with_packages update_packages
        (cd "$fetched" && apt-get download -q "php$php-$name" >/dev/null 2>&1 && dpkg -x ./*.deb .) || {
            echo "apt-get could not fetch php$php-$name" >&2
            exit 1
        }
        as_root install -m 644 "$fetched$place/$name.so" "$place/"
        rm -rf "$fetched"
    done
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
    # The client of PostgreSQL is linked with the system's OpenSSL.
    need gcc libc6-dev libssl-dev pkg-config "php$php-dev" "libphp$php-embed"
}

# Keeps the paths of this machine out of what is built, so that the same comes out of every directory. Debian's tools put flags
# for C into the environment that name the directory too, in the same way.
forget_paths() {
    local cargo_home=${CARGO_HOME:-$HOME/.cargo}
    RUSTFLAGS="--remap-path-prefix=$root=. --remap-path-prefix=$cargo_home=/cargo"
    CFLAGS="-ffile-prefix-map=$root=. -ffile-prefix-map=$cargo_home=/cargo"
    export RUSTFLAGS CFLAGS
}

# build PROFILE WHAT...: builds programs by their names, libforkyard.so, examples/NAME. They are in $target/PROFILE then.
# forkyard-fpm is forkyard by another name: a hard link, so that the file that a process executes has that name, too.
build() {
    local profile=$1 what options=(--package forkyard)
    shift
    for what in "$@"; do
        case $what in
        libforkyard.so) options+=(--lib) ;;
        forkyard-fpm) options+=(--bin forkyard) ;;
        examples/*) options+=(--example "${what#examples/}") ;;
        forkyard | forkyard-php) options+=(--bin "$what") ;;
        # In a package of its name, so that no other build waits for what it alone needs.
        *) options+=(--package "$what" --bin "$what") ;;
        esac
    done
    # As packages have them: what was built, and the files for versions of PHP beside forkyard-php.
    if [ "$profile" = dist ]; then
        FORKYARD_COMMIT=${FORKYARD_COMMIT:-$(git rev-parse --short=12 HEAD 2>/dev/null || true)}
        FORKYARD_SHIM_DIR=$(mkdir -p "$target/dist/php" && cd "$target/dist/php" && pwd)
        export FORKYARD_COMMIT FORKYARD_SHIM_DIR
        forget_paths
    fi
    cargo build --profile "$profile" --locked "${options[@]}"
    for what in "$@"; do
        [ "$what" != forkyard-fpm ] || ln -f "$target/$profile/forkyard" "$target/$profile/forkyard-fpm"
        test -x "$target/$profile/$what" || { echo "$target/$profile/$what was not built" >&2; exit 1; }
    done
}

# Format, and what cargo is to find.
check_format() {
    cargo fmt --all --check
    # The fuzz targets are a workspace of their own, which nothing else builds.
    cargo metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null
}

# Licences, names and sources of all crates, as deny.toml allows them. Debian has no package of cargo-deny.
cargo_deny=0.20.2
check_crates() {
    local tools=$target/tools
    command -v cargo-deny >/dev/null || [ -x "$tools/bin/cargo-deny" ] ||
        cargo install --quiet --locked --root "$tools" --target-dir "$tools/build" "cargo-deny@$cargo_deny"
    PATH=$PATH:$tools/bin cargo deny --locked check licenses bans sources
}

# How build_tests builds, for what cargo is to do with what it has built: in one pass, each crate is compiled, linted and documented
# (scripts/whole-rustc), without what is for debuggers or for a build after a small change.
as_built=(env "RUSTC_WORKSPACE_WRAPPER=$root/scripts/whole-rustc" CLIPPY_ARGS="-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__"
    CARGO_PROFILE_DEV_DEBUG=false CARGO_INCREMENTAL=0)

# All tests and what they run. Programs apart from tests would be built with other features of what they depend on, and so twice.
build_tests() { "${as_built[@]}" cargo build --locked --workspace --lib --bins --tests --examples; }

# run_tests DIRECTORY PROGRAM: runs a program of tests, unless all have passed since it was built, and since anything but Rust's
# files was changed. What it says is shown if one fails.
run_tests() {
    local name=${2##*/} passed=$2.passed.${FORKYARD_SIM_SEEDS:-}
    name=${name%-*}
    # The rules of the source are about files that are not built into it.
    if [ "$name" != pure ] && [ "$passed" -nt "$2" ] && [ -z "$(find . -path "./${target#./}" -prune -o -path ./.git -prune -o \
        -type f ! -name '*.rs' -newer "$passed" -print -quit)" ]; then
        echo "$name: passed before, and nothing has changed"
    elif (cd "$1" && "$2") >"$2.output" 2>&1; then
        touch "$passed"
        echo "$name: $(sed -n 's/^test result: //p' "$2.output")"
    else
        rm -f "$passed"
        cat "$2.output"
        echo "$name: FAILED"
        return 1
    fi
}

# Lints and builds everything in one pass, tests included. Tests that start no program are run meanwhile, each program of tests as
# soon as it is built: cargo tells of it, with the directory of its package. What is on PostgreSQL is tested on a server, the load
# generator's reports with its program, and the suite with what scripts/test installs. What decides is not optimised here: that
# pays only for thousands of schedules.
lint_and_test() {
    export target
    export -f run_tests
    RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/lint-rustc \
        CLIPPY_ARGS="-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__" CARGO_PROFILE_DEV_DEBUG=false \
        cargo build --locked --config 'profile.dev.package.forkyard-core.opt-level=0' \
        --workspace --lib --bins --tests --examples --message-format=json-render-diagnostics |
        sed -un 's/.*"manifest_path":"\([^"]*\)\/Cargo.toml".*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*/\1 \2/p' |
        sed -u -e '/\/suite-/d' -e '/\/reports-/d' -e '/\/jobs-postgresql /d' |
        xargs -P "$(nproc)" -L 1 bash -c 'run_tests "$@"' run_tests
}
