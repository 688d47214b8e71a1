//! Makes the process what its pool says: limits, root, directory, priority, user, environment.

use super::context::{Settings, WorkerContext};
use crate::config::{Application, CoreLimit, Pool};
use crate::confine::{self, ConfineError};
use crate::sys::identity::{self as id, Identity};
use crate::sys::origin::is_here;
use crate::sys::{Error, fd, keyring, process, rights, session};
use std::ffi::OsString;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

/// Why a process could not become what its pool says.
#[derive(Debug)]
pub enum ProcessSettingsError {
    /// A system call failed.
    System(Error),
    /// It could not be confined.
    Confine(ConfineError),
    /// Something else is at the application's path than was looked at.
    Moved(PathBuf),
}

impl fmt::Display for ProcessSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProcessSettingsError::System(error) => error.fmt(f),
            ProcessSettingsError::Confine(error) => error.fmt(f),
            ProcessSettingsError::Moved(path) => write!(
                f,
                "{} has been replaced, or has another owner, since forkyard inspected it; the next request \
                 inspects it again",
                path.display()
            ),
        }
    }
}

impl std::error::Error for ProcessSettingsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ProcessSettingsError::System(error) => Some(error),
            ProcessSettingsError::Confine(error) => Some(error),
            ProcessSettingsError::Moved(_) => None,
        }
    }
}

impl From<Error> for ProcessSettingsError {
    fn from(error: Error) -> ProcessSettingsError {
        ProcessSettingsError::System(error)
    }
}

impl From<ConfineError> for ProcessSettingsError {
    fn from(error: ConfineError) -> ProcessSettingsError {
        ProcessSettingsError::Confine(error)
    }
}

/// Applies the pool's settings to this process, in php-fpm's order: limits, root directory, working directory,
/// priority, group, supplementary groups, user, dumpable, no_new_privs; with what confines the pool before, between and
/// after them ([`crate::confine`]). Before the application runs any code.
///
/// # Errors
/// The step that failed. Limits that can't be set are only logged, as php-fpm does.
pub fn apply_process_settings(settings: &Settings) -> Result<(), ProcessSettingsError> {
    apply_settings_as(settings, id::is_root(), false)
}

/// The same for a child of a process that keeps rights for its children alone, and is not root
/// ([`rights::become_source_of_children`]): no right is left afterwards.
///
/// # Errors
/// As [`apply_process_settings`]; or rights are left.
pub fn apply_process_settings_in_child(settings: &Settings) -> Result<(), ProcessSettingsError> {
    rights::raise_in_child()?;
    // It has entered its control group when it had the entrance (`GenerationContext::group`).
    apply_settings_as(settings, true, true)
}

fn apply_settings_as(
    settings: &Settings,
    is_privileged: bool,
    is_in_group: bool,
) -> Result<(), ProcessSettingsError> {
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
    if let Some(bytes) = pool.rlimit_data {
        log_failure(id::limit("data", Some(bytes), Some(bytes)));
    }
    confine::begin(pool, is_in_group)?;
    let outlook = confine::look_around(&pool.confine)?;
    if let (Some(root), true) = (&pool.chroot, is_privileged) {
        id::change_root(root)?;
    }
    if let Some(directory) = &pool.chdir {
        id::change_directory(directory)?;
    }
    if let (Some(nice), true) = (pool.process_priority, is_privileged) {
        id::set_priority(nice)?;
    }
    if let (Some(identity), true) = (&settings.identity, is_privileged) {
        // The kernel takes the rights of root alone.
        let keeps_rights = !id::is_root();
        // A child of a zygote keeps the closed one of the master: one for each would soon be more than a user may have.
        if !keeps_rights {
            log_failure(keyring::begin());
        }
        id::become_user(identity)?;
        if keeps_rights {
            rights::give_up()?;
        }
    }
    // The directory was entered with the master's rights; from here on this process can read what its user can.
    if let Some(origin) = pool.origin.as_ref().filter(|origin| !is_here(origin)) {
        return Err(ProcessSettingsError::Moved(origin.path.clone()));
    }
    if pool.process_dumpable {
        id::allow_dumps()?;
    }
    if pool.no_new_privs {
        id::give_up_new_privileges()?;
    }
    Ok(confine::finish(pool, &outlook)?)
}

/// Makes the worker's own pipes, or `null`, this process' standard output and error, and `null` its input. `null` is
/// /dev/null, opened before the process settled: a chroot has none.
///
/// # Errors
/// dup2(2).
pub fn redirect_output(own: &WorkerContext, null: BorrowedFd<'_>) -> Result<(), Error> {
    fd::replace_standard_streams(
        null,
        own.output
            .as_ref()
            .map(|(output, error)| (output.as_fd(), error.as_fd())),
    )
}

/// Has what a preloader's worker starts be found after its end: in the process group that it leads. Those of PHP's own preloader lead
/// none, as php-fpm's; workers without a preloader lead sessions.
///
/// # Errors
/// setpgid(2).
pub fn begin_group(pool: &Pool) -> Result<(), Error> {
    match pool.application {
        Application::Wrapped(_) => session::begin_group(),
        Application::Rust
        | Application::Php(_)
        | Application::Cgi(_)
        | Application::FastCgi(_)
        | Application::Http(_)
        | Application::Program(_) => Ok(()),
    }
}

fn log_failure(result: Result<(), Error>) {
    if let Err(error) = result {
        log::error!("{error}");
    }
}

/// Where programs are looked for if neither `env` nor the master's environment names directories.
pub(crate) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The pool's environment: the master's or an empty one (`clear_env`), `env`, and what the user database has of the pool's
/// user where `env` does not set it. PHP gets what php-fpm gives it, in php-fpm's order: the last of `env` first. Other
/// runtimes also get what a login has.
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
    let is_php = matches!(pool.application, Application::Php(_));
    let account = match &settings.identity {
        Some(identity) => Some(identity.clone()),
        None => (!is_php).then(Identity::current),
    };
    let Some(account) = account else {
        return environment;
    };
    let name = account.name.map(OsString::from);
    let home = account.home.map(OsString::from);
    let mut variables = vec![("USER", name.clone())];
    if is_php {
        variables.push(("HOME", home));
    } else {
        variables.push(("HOME", home.or_else(|| Some("/".into()))));
        variables.push(("LOGNAME", name));
        variables.push(("SHELL", account.shell.map(OsString::from)));
    }
    for (name, value) in variables {
        if let (Some(value), false) = (value, pool.env.iter().any(|(known, _)| known == name)) {
            set(name, value);
        }
    }
    if !is_php {
        for (name, value) in [("PATH", PATH), ("LANG", "C.UTF-8")] {
            if !environment.iter().any(|(known, _)| known == name) {
                environment.push((name.into(), value.into()));
            }
        }
    }
    environment
}

/// Gives this process its pool's environment, with what the application itself adds to it: the process has become the
/// application's user.
pub fn apply_environment(settings: &Settings) {
    let mut whole = environment(settings, std::env::vars_os().collect());
    let own = &settings.pool.own_env;
    whole.retain(|(name, _)| !own.iter().any(|(own, _)| name == own.as_str()));
    whole.extend(own.iter().map(|(name, value)| (name.into(), value.into())));
    process::replace_environment(whole);
}
