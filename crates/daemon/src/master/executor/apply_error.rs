//! Reasons why a configuration or a pool can't be applied.

use forkyard_base::remedy;
use forkyard_host::confine::ConfineError;
use forkyard_host::listen::ListenError;
use forkyard_host::logs::LogError;
use forkyard_host::secret::SecretError;
use forkyard_sys::Error;
use nix::errno::Errno;

#[derive(Debug, thiserror::Error)]
#[error("{}{}", self.prefix(), self.matter())]
pub enum ApplyError {
    Listen(String, #[source] ListenError),
    Identity(String, #[source] Error),
    SlowLog(String, std::path::PathBuf, #[source] std::io::Error),
    Program(String, std::path::PathBuf),
    Confine(String, #[source] ConfineError),
    Handler(String),
    AccessLog(String, #[source] LogError),
    AppLog(String, #[source] LogError),
    OpcacheCache(String, #[source] Error),
    Secret(#[source] SecretError),
    JobsListen(#[source] ListenError),
}

impl ApplyError {
    fn prefix(&self) -> String {
        match self {
            ApplyError::Listen(pool, _)
            | ApplyError::Identity(pool, _)
            | ApplyError::SlowLog(pool, ..)
            | ApplyError::Program(pool, _)
            | ApplyError::Confine(pool, _)
            | ApplyError::Handler(pool)
            | ApplyError::AccessLog(pool, _)
            | ApplyError::AppLog(pool, _)
            | ApplyError::OpcacheCache(pool, _) => format!("[pool {pool}] "),
            ApplyError::Secret(_) | ApplyError::JobsListen(_) => String::new(),
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
