//! The environment of this process. The process must have one thread, because no other may read or write it meanwhile.

use std::ffi::{OsStr, OsString};

/// Replaces the environment of this process. For a child with one thread, before anything keeps pointers into the old
/// one.
pub fn replace_environment(environment: Vec<(OsString, OsString)>) {
    for (name, _) in std::env::vars_os().collect::<Vec<_>>() {
        unset(&name);
    }
    for (name, value) in &environment {
        set(name, value);
    }
}

/// Takes variables out of the environment that were meant for this process and not for what it starts.
///
/// The process has one thread.
pub fn forget_variables(names: &[&str]) {
    for name in names {
        unset(name.as_ref());
    }
}

/// Takes variables out of the environment and sets others.
///
/// The process has one thread.
pub fn change_environment(without: &[String], with: &[(OsString, OsString)]) {
    for name in without {
        unset(name.as_ref());
    }
    for (name, value) in with {
        set(name, value);
    }
}

fn unset(name: &OsStr) {
    // SAFETY: the process has one thread.
    unsafe { std::env::remove_var(name) };
}

fn set(name: &OsStr, value: &OsStr) {
    // SAFETY: the process has one thread.
    unsafe { std::env::set_var(name, value) };
}
