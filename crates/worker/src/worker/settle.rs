//! Makes the process what its pool says: limits, root, directory, priority, user, environment.

use super::kit::{Seat, Settings};
use crate::config::CoreLimit;
use crate::confine::{self, ConfineError};
use crate::sys::identity as id;
use crate::sys::origin::is_here;
use crate::sys::{Error, fd, process};
use std::ffi::OsString;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

/// Why a process could not become what its pool says.
#[derive(Debug)]
pub enum SettleError {
    /// A system call failed.
    System(Error),
    /// It could not be confined.
    Confine(ConfineError),
    /// Something else is at the application's path than was looked at.
    Moved(PathBuf),
}

impl fmt::Display for SettleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettleError::System(error) => error.fmt(f),
            SettleError::Confine(error) => error.fmt(f),
            SettleError::Moved(path) => write!(
                f,
                "{} has been replaced, or has another owner, since it was looked at; the next request looks again",
                path.display()
            ),
        }
    }
}

impl std::error::Error for SettleError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SettleError::System(error) => Some(error),
            SettleError::Confine(error) => Some(error),
            SettleError::Moved(_) => None,
        }
    }
}

impl From<Error> for SettleError {
    fn from(error: Error) -> SettleError {
        SettleError::System(error)
    }
}

impl From<ConfineError> for SettleError {
    fn from(error: ConfineError) -> SettleError {
        SettleError::Confine(error)
    }
}

/// Applies the pool's settings to this process, in php-fpm's order: limits, root directory, working directory,
/// priority, group, supplementary groups, user, dumpable, no_new_privs; with what confines the pool before, between and
/// after them ([`crate::confine`]). Before the application runs any code.
///
/// # Errors
/// The step that failed. Limits that can't be set are only logged, as php-fpm does.
pub fn settle(settings: &Settings) -> Result<(), SettleError> {
    let pool = &settings.pool;
    if let Some(files) = pool.rlimit_files {
        log_failure(id::limit_descriptors(files, files));
    } else if let Some((soft, hard)) = settings.descriptor_limit {
        log_failure(id::limit_descriptors(soft, hard));
    }
    match pool.rlimit_core {
        Some(CoreLimit::Bytes(bytes)) => log_failure(id::limit_core(Some(bytes))),
        Some(CoreLimit::Unlimited) => log_failure(id::limit_core(None)),
        None => {}
    }
    confine::begin(pool)?;
    let outlook = confine::look_around(&pool.confine)?;
    if let (Some(root), true) = (&pool.chroot, id::is_root()) {
        id::change_root(root)?;
    }
    if let Some(directory) = &pool.chdir {
        id::change_directory(directory)?;
    }
    if let (Some(nice), true) = (pool.process_priority, id::is_root()) {
        id::set_priority(nice)?;
    }
    if let (Some(identity), true) = (&settings.identity, id::is_root()) {
        id::become_user(identity)?;
    }
    // The directory was entered with the master's rights; from here on this process can read what its user can.
    if let Some(origin) = pool.origin.as_ref().filter(|origin| !is_here(origin)) {
        return Err(SettleError::Moved(origin.path.clone()));
    }
    if pool.process_dumpable {
        id::allow_dumps()?;
    }
    if pool.no_new_privs {
        id::give_up_new_privileges()?;
    }
    Ok(confine::finish(pool, &outlook)?)
}

/// Makes the seat's pipes, or `null`, this process' standard output and error, and `null` its input. `null` is
/// /dev/null, opened before the process settled: a chroot has none.
///
/// # Errors
/// dup2(2).
pub fn settle_output(seat: &Seat, null: BorrowedFd<'_>) -> Result<(), Error> {
    fd::replace_standard_streams(
        null,
        seat.output
            .as_ref()
            .map(|(output, error)| (output.as_fd(), error.as_fd())),
    )
}

fn log_failure(result: Result<(), Error>) {
    if let Err(error) = result {
        log::error!("{error}");
    }
}

/// The pool's environment: what the master was started with or nothing (`clear_env`), `env`, and USER and HOME of the
/// pool's user where `env` does not name them. In php-fpm's order, which scripts see: the last of `env` first.
pub fn environment(settings: &Settings, inherited: Vec<(OsString, OsString)>) -> Vec<(OsString, OsString)> {
    let pool = &settings.pool;
    let mut environment = if pool.clear_env { Vec::new() } else { inherited };
    let mut set = |name: &str, value: OsString| match environment.iter_mut().find(|(known, _)| known == name)
    {
        Some(variable) => variable.1 = value,
        None => environment.push((name.into(), value)),
    };
    for (name, value) in pool.env.iter().rev() {
        set(name, value.into());
    }
    let identity = settings.identity.as_ref();
    let user = identity
        .and_then(|identity| identity.name.clone())
        .map(OsString::from);
    let home = identity
        .and_then(|identity| identity.home.clone())
        .map(OsString::from);
    for (name, value) in [("USER", user), ("HOME", home)] {
        if let (Some(value), false) = (value, pool.env.iter().any(|(known, _)| known == name)) {
            set(name, value);
        }
    }
    environment
}

/// In a worker that was forked of a process that pools share: applies what is this pool's own, directory and environment.
/// The rest the process has from [`settle`] with what the pools have in common ([`crate::config::sharing`]).
///
/// # Errors
/// The directory can't be entered, now by the pool's user.
pub fn settle_own(settings: &Settings) -> Result<(), SettleError> {
    if let Some(directory) = &settings.pool.chdir {
        id::change_directory(directory)?;
    }
    settle_environment(settings);
    Ok(())
}

/// Gives this process its pool's environment, with what the application itself adds to it: the process has become the
/// application's user.
pub fn settle_environment(settings: &Settings) {
    let mut whole = environment(settings, std::env::vars_os().collect());
    let own = &settings.pool.own_env;
    whole.retain(|(name, _)| !own.iter().any(|(own, _)| name == own.as_str()));
    whole.extend(own.iter().map(|(name, value)| (name.into(), value.into())));
    process::replace_environment(whole);
}
