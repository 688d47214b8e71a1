//! Why the daemon did not start, or why it ended.

use super::apply_error::ApplyError;
use forkyard_base::remedy;
use forkyard_host::listen::ListenError;
use forkyard_sys as sys;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum RunError {
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error("error_log: {}{}", .0, .0.remedy())]
    Log(#[source] forkyard_host::logs::LogError),
    #[error("failed to daemonize: {0}")]
    Background(#[source] sys::Error),
    #[error(transparent)]
    System(#[from] sys::Error),
    #[error("Unable to create the PID file ({}): {}{}", .0.display(), .1, remedy::of_file(.0, .1.kind()))]
    Pid(PathBuf, #[source] io::Error),
    #[error("control: {0}")]
    Control(#[source] ListenError),
    #[error("no worker could be made")]
    NoWorker,
}
