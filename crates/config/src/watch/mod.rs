//! Directories to watch for changes of included files.

mod effects;

use crate::glob;
use std::path::{Path, PathBuf};

pub use effects::{missing_directory, watched};

/// A watched directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    pub directory: PathBuf,
    /// A name or pattern.
    part: String,
}

impl Watched {
    /// Whether the pattern matches a name.
    pub fn has(&self, name: &Path) -> bool {
        let name = name.to_str();
        name.is_some_and(|name| name == self.part || glob::matches(&self.part, name))
    }
}
