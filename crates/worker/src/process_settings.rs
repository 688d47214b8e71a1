//! Applies a pool's process settings: limits, root, directory, priority, user, environment.

use super::context::{Settings, WorkerContext};
use forkyard_config::{CoreLimit, Leaves, Pool};
use forkyard_host::confine::{self, ConfineError};
use forkyard_sys::identity::{self as id, Identity};
use forkyard_sys::origin::is_here;
use forkyard_sys::{Error, fd, keyring, process, rights, session};
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

/// Why process settings could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum ProcessSettingsError {
    /// A system call failed.
    #[error(transparent)]
    System(#[from] Error),
    /// Confinement failed.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    /// The application's path now leads elsewhere.
    #[error(
        "{0} has been replaced, or has another owner, since forkyard inspected it; the next request inspects it again"
    )]
    Moved(PathBuf),
}

/// Applies the settings in php-fpm's order: limits, root directory, working directory, priority, group, supplementary
/// groups, user, dumpable, no_new_privs, with confinement ([`forkyard_host::confine`]) in between. Call it before application
/// code runs.
///
/// # Errors
/// A step failed; the error names it. Limits that can't be set are only logged, as in php-fpm.
pub fn apply_process_settings(settings: &Settings) -> Result<(), ProcessSettingsError> {
    apply_settings_as(settings, id::is_root(), false)
}

/// [`apply_process_settings`] in a child of a process that keeps capabilities for its children but is not root
/// ([`rights::become_source_of_children`]). None remain afterwards.
///
/// # Errors
/// As [`apply_process_settings`], or capabilities remain.
pub fn apply_process_settings_in_child(settings: &Settings) -> Result<(), ProcessSettingsError> {
    rights::raise_in_child()?;
    apply_settings_as(settings, true, true)
}

fn apply_settings_as(
    settings: &Settings,
    is_privileged: bool,
    is_in_group: bool,
) -> Result<(), ProcessSettingsError> {
    let pool = &settings.pool;
    if let Some(files) = pool.setup.rlimit_files {
        log_failure(id::limit_descriptors(files, files));
    } else if let Some((soft, hard)) = settings.descriptor_limit {
        log_failure(id::limit_descriptors(soft, hard));
    }
    match pool.setup.rlimit_core {
        Some(CoreLimit::Bytes(bytes)) => log_failure(id::limit_core(Some(bytes))),
        Some(CoreLimit::Unlimited) => log_failure(id::limit_core(None)),
        None => {}
    }
    if let Some(bytes) = pool.setup.rlimit_data {
        log_failure(id::limit("data", Some(bytes), Some(bytes)));
    }
    confine::begin(pool, is_in_group)?;
    let outlook = confine::look_around(&pool.confine)?;
    if let (Some(root), true) = (&pool.setup.chroot, is_privileged) {
        id::change_root(root)?;
    }
    if let Some(directory) = &pool.setup.chdir {
        id::change_directory(directory)?;
    }
    if let (Some(nice), true) = (pool.setup.process_priority, is_privileged) {
        id::set_priority(nice)?;
    }
    if pool.load.lanes.is_some() && is_privileged {
        // Containers often forbid it; the status page says so.
        if let Err(error) = id::allow_priority(id::priority()) {
            log::debug!("{error}");
        }
    }
    if let (Some(identity), true) = (&settings.identity, is_privileged) {
        // The kernel removes only root's capabilities.
        let keeps_rights = !id::is_root();
        // A zygote's child keeps the master's closed keyring: one per worker would soon exceed the user's quota.
        if !keeps_rights {
            log_failure(keyring::begin());
        }
        id::become_user(identity)?;
        if keeps_rights {
            rights::give_up()?;
        }
    }
    // The directory was entered with the master's rights; from here on the user's apply.
    if let Some(origin) = pool.setup.origin.as_ref().filter(|origin| !is_here(origin)) {
        return Err(ProcessSettingsError::Moved(origin.path.clone()));
    }
    if pool.setup.process_dumpable {
        id::allow_dumps()?;
    }
    if pool.setup.no_new_privs {
        id::give_up_new_privileges()?;
    }
    Ok(confine::finish(pool, &outlook)?)
}

/// Redirects output to the worker's pipes or `null`, and input to `null`. `null` is /dev/null, opened before a chroot.
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

/// Makes a preloader's worker a process group leader, so that its children can be found after its exit. Not for PHP, as
/// in php-fpm; workers without a preloader lead sessions.
///
/// # Errors
/// setpgid(2).
pub fn begin_group(pool: &Pool) -> Result<(), Error> {
    match pool.application.traits().leaves {
        Leaves::Group => session::begin_group(),
        Leaves::Nothing | Leaves::Session | Leaves::Program => Ok(()),
    }
}

fn log_failure(result: Result<(), Error>) {
    if let Err(error) = result {
        log::error!("{error}");
    }
}

/// PATH, if neither `env` nor the master's environment sets it.
pub const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The pool's environment: the master's or an empty one (`clear_env`), `env`, and values of the user database that
/// `env` does not set. PHP gets php-fpm's set in its order (the last of `env` first); other runtimes also get a login's
/// variables.
pub fn environment(settings: &Settings, inherited: Vec<(OsString, OsString)>) -> Vec<(OsString, OsString)> {
    let pool = &settings.pool;
    let mut environment = if pool.environment.clear_env {
        Vec::new()
    } else {
        inherited
    };
    let mut set = |name: &str, value: OsString| match environment.iter_mut().find(|(known, _)| known == name)
    {
        Some(variable) => variable.1 = value,
        None => environment.push((name.into(), value)),
    };
    for (name, value) in pool.environment.env.iter().rev() {
        set(name, value.into());
    }
    let is_php = pool.application.php().is_some();
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
        if let (Some(value), false) = (value, pool.environment.env.iter().any(|(known, _)| known == name)) {
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

/// Applies the environment, including the application's own files, after the switch to the application's user.
pub fn apply_environment(settings: &Settings) {
    let mut whole = environment(settings, std::env::vars_os().collect());
    let own = &settings.pool.environment.own_env;
    whole.retain(|(name, _)| !own.iter().any(|(own, _)| name == own.as_str()));
    whole.extend(own.iter().map(|(name, value)| (name.into(), value.into())));
    process::replace_environment(whole);
}
