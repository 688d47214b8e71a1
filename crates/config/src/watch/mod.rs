//! Which directories to look at, to know when the files change that patterns of `include` match.

mod effects;

use crate::glob;
use std::path::{Path, PathBuf};

pub use effects::{missing_directory, watched};

/// Something in this directory may come, change or go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// The directory.
    pub directory: PathBuf,
    /// Its name, or a pattern of names.
    part: String,
}

impl Watched {
    /// Whether that is it.
    pub fn has(&self, name: &Path) -> bool {
        let name = name.to_str();
        name.is_some_and(|name| name == self.part || glob::matches(&self.part, name))
    }
}
