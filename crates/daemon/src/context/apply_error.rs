//! Reasons why a configuration or a pool can't be applied.

use forkyard_base::remedy;
use forkyard_host::confine::ConfineError;
use forkyard_host::listen::ListenError;
use forkyard_host::logs::LogError;
use forkyard_host::secret::SecretError;
use forkyard_sys::Error;
use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("[pool {0}] {1}")]
    Pool(String, #[source] PoolFault),
    #[error("jobs.secret_file: {0}")]
    Secret(#[source] SecretError),
    #[error("jobs.listen_tcp: {0}")]
    JobsListen(#[source] ListenError),
    #[error("web: {0}")]
    WebListen(#[source] ListenError),
}

#[derive(Debug, thiserror::Error)]
pub enum PoolFault {
    #[error("listen: {0}")]
    Listen(#[source] ListenError),
    #[error("{}", of_identity(.0))]
    Identity(#[source] Error),
    #[error("Unable to create or open slowlog({}): {}{}", .0.display(), .1, remedy::of_file(.0, .1.kind()))]
    SlowLog(PathBuf, #[source] io::Error),
    #[error("{} is missing; install it: it belongs to forkyard's own programs", .0.display())]
    Program(PathBuf),
    #[error(transparent)]
    Confine(#[from] ConfineError),
    #[error("runtime = \"rust\": this program has no handler of that pool's name")]
    Handler,
    #[error("access.log: {}{}", .0, .0.remedy())]
    AccessLog(#[source] LogError),
    #[error("app_log: {}{}", .0, .0.remedy())]
    AppLog(#[source] LogError),
    #[error("release: {0}")]
    Release(#[source] ReleaseFault),
    #[error("application.opcache_cache: {}{}", .0, right_of_cache(.0))]
    OpcacheCache(#[source] Error),
}

/// Why a pool can't serve a release.
#[derive(Debug, Clone, thiserror::Error, Serialize, Deserialize)]
pub enum ReleaseFault {
    #[error("a file system on the way to {} does not answer", .0.display())]
    Late(PathBuf),
    #[error("{} is not there, or user {uid} may not enter it", .path.display())]
    NotThere { path: PathBuf, uid: u32 },
    #[error("{} leads to {}, which is not there, or user {uid} may not enter it", link.display(), target.display())]
    Dangling {
        link: PathBuf,
        target: PathBuf,
        uid: u32,
    },
    #[error("{} is no directory; name the directory of a release", .0.display())]
    NoDirectory(PathBuf),
    #[error("{} is the root of all directories, and can't be a release; name the directory of a release", .0.display())]
    Root(PathBuf),
    #[error(
        "{}: user {uid}, as which the release runs, can't search the directory; chmod o+x it, or give it to that user",
        path.display()
    )]
    Closed { path: PathBuf, uid: u32 },
    #[error("{} is empty; name the directory of a release", .0.display())]
    Empty(PathBuf),
    #[error("{} leads to {}; name that", .0.display(), .1.display())]
    Linked(PathBuf, PathBuf),
    #[error("{} is not below {}: only root may name a release elsewhere", .0.display(), .1.display())]
    Elsewhere(PathBuf, PathBuf),
    #[error("{} is not UTF-8; rename it", .0.display())]
    NotUtf8(PathBuf),
    #[error("{} has a colon in its name, which divides the elements of open_basedir and PATH; rename it", .0.display())]
    Colon(PathBuf),
    #[error("{} is a part of {}; name that", .0.display(), .1.display())]
    Part(PathBuf, PathBuf),
    /// The release's files name no start command.
    #[error("{}: {problem}; write start_command = \"node FILE\"", root.display())]
    NoCommand { root: PathBuf, problem: String },
    #[error("{0}")]
    System(String),
}

fn of_identity(error: &Error) -> String {
    match error.errno {
        Errno::EPERM => {
            format!("user: {error}: PHP is started for pools of all users as that one; choose another")
        }
        _ => format!("no such user or group: {error}"),
    }
}

fn right_of_cache(error: &Error) -> &'static str {
    match error.errno {
        Errno::EPERM => {
            "; the directory has to be its user's with mode 0700, and the one that it is in writable for the daemon's \
             user alone"
        }
        _ => "",
    }
}
