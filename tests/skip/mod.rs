//! Skipped tests print a line, which `scripts/test` collects.
#![allow(dead_code, reason = "each crate uses its part")]

use std::io::Write as _;
use std::path::Path;

/// Ends a test that can't run here. The condition prints why.
#[allow(unused_macros, reason = "each crate uses its part")]
macro_rules! skip_if {
    ($cannot_run:expr) => {
        if $cannot_run {
            return;
        }
    };
}

const FILE: &str = "FORKYARD_SKIPPED";

pub(crate) fn skip(why: &str) {
    let thread = std::thread::current();
    let line = format!("{}: {why}\n", thread.name().unwrap_or("a test"));
    eprint!("skipped: {line}");
    if let Some(file) = std::env::var_os(FILE) {
        let file = std::fs::File::options().append(true).create(true).open(file);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

pub(crate) fn skip_unless(has_it: bool, why: &str) -> bool {
    if !has_it {
        skip(why);
    }
    !has_it
}

/// Skips the test unless it runs as root: it needs two users.
pub(crate) fn needs_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    skip_outside_ci(is_root, "only root can take on another user")
}

/// Skips the test unless it can mount a file system of its own.
pub(crate) fn needs_fuse() -> bool {
    needs_root() || skip_unless(Path::new("/dev/fuse").exists(), "there is no /dev/fuse")
}

pub(crate) fn needs_file(path: &str) -> bool {
    skip_outside_ci(Path::new(path).exists(), &format!("there is no {path}"))
}

fn skip_outside_ci(has_it: bool, why: &str) -> bool {
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(has_it || !is_ci, "CI has to run this test, but {why}");
    skip_unless(has_it, why)
}
