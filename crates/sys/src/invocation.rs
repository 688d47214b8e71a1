//! How this process was started, for starting it again or starting its replacement on disk.

use crate::file::FileState;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Executable and arguments of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// Absolute path of the executable.
    pub path: PathBuf,
    /// Arguments, starting with the program's name.
    pub arguments: Vec<OsString>,
    file: Option<FileState>,
}

static INVOCATION: OnceLock<Option<Invocation>> = OnceLock::new();

/// Records the invocation. Setting the process title overwrites the arguments.
pub fn remember() {
    INVOCATION.get_or_init(|| {
        let arguments: Vec<OsString> = std::env::args_os().collect();
        let running = Path::new("/proc/self/exe");
        let file = FileState::of(running);
        let is_same = |path: &PathBuf| FileState::of(path).is_some_and(|state| Some(state) == file);
        // The path as called, because upgrades may change a symbolic link; /proc/self/exe is its target.
        let name = arguments.first().map(PathBuf::from).unwrap_or_default();
        let called = if name.components().count() > 1 {
            std::path::absolute(name).ok().filter(|path| is_same(path))
        } else {
            let places = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&places)
                .map(|place| place.join(&name))
                .find(|path| path.is_absolute() && is_same(path))
        };
        let path = called.or_else(|| std::fs::read_link(running).ok())?;
        Some(Invocation {
            path,
            arguments,
            file,
        })
    });
}

/// Returns the recorded invocation.
pub fn get() -> Option<&'static Invocation> {
    INVOCATION.get()?.as_ref()
}

impl Invocation {
    /// Whether the executable was replaced on disk.
    pub fn is_replaced(&self) -> bool {
        let now = FileState::of(&self.path);
        now.is_some() && now != self.file
    }

    /// Whether no file is at the executable's path.
    pub fn is_missing(&self) -> bool {
        let found = std::fs::metadata(&self.path);
        found.is_err_and(|error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory))
    }
}
