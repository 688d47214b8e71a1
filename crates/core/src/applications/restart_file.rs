//! Restart files: where they are, and what a look at them means.

use std::path::{Path, PathBuf};

/// What tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileState {
    /// Its time of modification, in nanoseconds since 1970.
    pub modified_ns: i128,
    /// Its inode.
    pub inode: u64,
}

/// A look at an application's restart files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RestartFiles {
    /// `restart.txt`; `None`: it is not there.
    pub restart: Option<FileState>,
    /// Whether `always_restart.txt` is there.
    pub always: bool,
}

/// The directory of an application's restart files: `tmp` in its root, or `restart_dir`, which a relative path puts
/// below the root.
pub fn restart_directory(app_root: &Path, restart_dir: Option<&Path>) -> PathBuf {
    app_root.join(restart_dir.unwrap_or(Path::new("tmp")))
}

/// What is known of `restart.txt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Known {
    /// It was not looked at yet.
    #[default]
    Nothing,
    /// It was like this at the last look.
    Seen(Option<FileState>),
}

impl Known {
    /// Takes in a look; whether it means that the application is to be restarted. The first look is the baseline, and a
    /// file that goes means nothing.
    pub(super) fn take_restart_file(&mut self, restart: Option<FileState>) -> bool {
        let before = std::mem::replace(self, Known::Seen(restart));
        match (before, restart) {
            (Known::Nothing, _) | (Known::Seen(_), None) => false,
            (Known::Seen(before), Some(_)) => before != restart,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_state(modified_ns: i128, inode: u64) -> Option<FileState> {
        Some(FileState { modified_ns, inode })
    }

    #[test]
    fn only_a_file_that_appears_or_changes_restarts() {
        let mut known = Known::default();
        assert!(!known.take_restart_file(file_state(1, 1)), "the baseline");
        assert!(!known.take_restart_file(file_state(1, 1)));
        assert!(known.take_restart_file(file_state(2, 1)), "touched");
        assert!(known.take_restart_file(file_state(2, 2)), "replaced");
        assert!(
            known.take_restart_file(file_state(1, 2)),
            "an older time is another time"
        );
        assert!(!known.take_restart_file(None), "removed");
        assert!(!known.take_restart_file(None));
        assert!(known.take_restart_file(file_state(1, 2)), "created");

        let mut absent = Known::default();
        assert!(!absent.take_restart_file(None), "the baseline");
        assert!(absent.take_restart_file(file_state(0, 1)), "created");
    }

    #[test]
    fn the_directory_follows_its_setting() {
        let root = Path::new("/srv/shop");
        let said = |path| restart_directory(root, Some(Path::new(path)));
        assert_eq!(restart_directory(root, None), Path::new("/srv/shop/tmp"));
        assert_eq!(said("signs"), Path::new("/srv/shop/signs"));
        assert_eq!(said("/run/signs"), Path::new("/run/signs"));
    }
}
