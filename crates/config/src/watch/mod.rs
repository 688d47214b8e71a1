//! Directories to watch for changes of included files.

mod directories;

use crate::glob;
use std::path::{Path, PathBuf};

pub use directories::{missing_directory, watched};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    pub directory: PathBuf,
    part: String,
}

impl Watched {
    pub fn has(&self, name: &Path) -> bool {
        let name = name.to_str();
        name.is_some_and(|name| name == self.part || glob::matches(&self.part, name))
    }
}
