//! Why the daemon did not start, or why it ended.

use super::ApplyError;
use crate::listen::ListenError;
use crate::remedy;
use crate::sys;
use std::fmt;
use std::io;
use std::path::PathBuf;

#[derive(Debug)]
pub enum RunError {
    Apply(ApplyError),
    Log(crate::logs::LogError),
    Background(sys::Error),
    System(sys::Error),
    Pid(PathBuf, io::Error),
    Control(ListenError),
    NoWorker,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Apply(error) => error.fmt(f),
            RunError::Log(error) => write!(f, "error_log: {error}{}", error.remedy()),
            RunError::Background(error) => write!(f, "failed to daemonize: {error}"),
            RunError::System(error) => error.fmt(f),
            RunError::Pid(path, error) => {
                let remedy = remedy::of_file(path, error.kind());
                write!(
                    f,
                    "Unable to create the PID file ({}): {error}{remedy}",
                    path.display()
                )
            }
            RunError::Control(error) => write!(f, "control: {error}"),
            RunError::NoWorker => f.write_str("no worker could be made"),
        }
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RunError::Apply(error) => Some(error),
            RunError::Log(error) => Some(error),
            RunError::Background(error) | RunError::System(error) => Some(error),
            RunError::Pid(_, error) => Some(error),
            RunError::Control(error) => Some(error),
            RunError::NoWorker => None,
        }
    }
}

impl From<sys::Error> for RunError {
    fn from(error: sys::Error) -> RunError {
        RunError::System(error)
    }
}
