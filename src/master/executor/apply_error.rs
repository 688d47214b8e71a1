//! Reasons why a configuration or a pool can't be applied.

use crate::confine::ConfineError;
use crate::listen::ListenError;
use crate::logs::LogError;
use crate::remedy;
use crate::secret::SecretError;
use crate::sys::Error;
use nix::errno::Errno;
use std::fmt;

/// Why a configuration can't be applied. The previous one stays in force.
#[derive(Debug)]
pub enum ApplyError {
    Listen(String, ListenError),
    Identity(String, Error),
    SlowLog(String, std::path::PathBuf, std::io::Error),
    Program(String, std::path::PathBuf),
    Confine(String, ConfineError),
    Handler(String),
    AccessLog(String, LogError),
    AppLog(String, LogError),
    OpcacheCache(String, Error),
    Secret(SecretError),
    JobsListen(ListenError),
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pool() {
            Some(pool) => write!(f, "[pool {pool}] {}", self.matter()),
            None => f.write_str(&self.matter()),
        }
    }
}

impl ApplyError {
    fn pool(&self) -> Option<&str> {
        match self {
            ApplyError::Listen(pool, _)
            | ApplyError::Identity(pool, _)
            | ApplyError::SlowLog(pool, ..)
            | ApplyError::Program(pool, _)
            | ApplyError::Confine(pool, _)
            | ApplyError::Handler(pool)
            | ApplyError::AccessLog(pool, _)
            | ApplyError::AppLog(pool, _)
            | ApplyError::OpcacheCache(pool, _) => Some(pool),
            ApplyError::Secret(_) | ApplyError::JobsListen(_) => None,
        }
    }

    pub(super) fn matter(&self) -> String {
        match self {
            ApplyError::Listen(_, error) => format!("listen: {error}"),
            ApplyError::Secret(error) => format!("jobs.secret_file: {error}"),
            ApplyError::JobsListen(error) => format!("jobs.listen_tcp: {error}"),
            ApplyError::Identity(_, error) if error.errno == nix::errno::Errno::EPERM => {
                format!("user: {error}: PHP is started for pools of all users as that one; choose another")
            }
            ApplyError::Identity(_, error) => format!("no such user or group: {error}"),
            ApplyError::Confine(_, error) => error.to_string(),
            ApplyError::AccessLog(_, error) => format!("access.log: {error}{}", error.remedy()),
            ApplyError::AppLog(_, error) => format!("app_log: {error}{}", error.remedy()),
            ApplyError::OpcacheCache(_, error) if error.errno == Errno::EPERM => format!(
                "application.opcache_cache: {error}; the directory has to be its user's with mode 0700, and the one that it \
                 is in writable for the daemon's user alone"
            ),
            ApplyError::OpcacheCache(_, error) => format!("application.opcache_cache: {error}"),
            ApplyError::SlowLog(_, path, error) => {
                let remedy = remedy::of_file(path, error.kind());
                format!(
                    "Unable to create or open slowlog({}): {error}{remedy}",
                    path.display()
                )
            }
            ApplyError::Program(_, path) => format!(
                "{} is missing; install it: it belongs to forkyard's own programs",
                path.display()
            ),
            ApplyError::Handler(_) => {
                "runtime = \"rust\": this program has no handler of that pool's name".to_owned()
            }
        }
    }
}

impl std::error::Error for ApplyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ApplyError::Listen(_, error) | ApplyError::JobsListen(error) => Some(error),
            ApplyError::Secret(error) => Some(error),
            ApplyError::Identity(_, error) | ApplyError::OpcacheCache(_, error) => Some(error),
            ApplyError::Confine(_, error) => Some(error),
            ApplyError::AccessLog(_, error) | ApplyError::AppLog(_, error) => Some(error),
            ApplyError::SlowLog(_, _, error) => Some(error),
            ApplyError::Program(..) | ApplyError::Handler(_) => None,
        }
    }
}
