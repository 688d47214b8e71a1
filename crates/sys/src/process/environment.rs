//! Changes the environment. The process must have one thread, because other threads may read it.

use std::ffi::{OsStr, OsString};

/// Replaces the environment. No pointers into it may exist. The process has one thread.
pub fn replace_environment(environment: Vec<(OsString, OsString)>) {
    for (name, _) in std::env::vars_os().collect::<Vec<_>>() {
        unset(&name);
    }
    for (name, value) in &environment {
        set(name, value);
    }
}

/// Removes variables that children must not inherit.
///
/// The process has one thread.
pub fn forget_variables(names: &[&str]) {
    for name in names {
        unset(name.as_ref());
    }
}

/// Removes variables and sets others.
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
