//! Where an application's code comes from, as it was when its directory was looked at.
//!
//! A path is a name, and names change hands: a directory is deleted and made anew by another user, or the owner of the one
//! above renames it. A process that runs as the old owner must not run what has taken the place. So device, inode and owner
//! of the root and the owner of the start-up file belong to an application's identity. The process is in the root from its
//! start: the kernel gives the inode's number to no other file meanwhile. An owner who replaces the start-up file in the same
//! directory deploys: the application stays his.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What tells a directory from all others that may come to have its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The file system's number.
    pub device: u64,
    /// The number on that file system.
    pub inode: u64,
    /// User id.
    pub owner: u32,
}

/// An application's root and start-up file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The root's path, without links.
    pub path: PathBuf,
    pub root: Mark,
    /// The start-up file, relative to the root, and its owner; of a link, its own.
    pub startup: Option<(PathBuf, u32)>,
}

impl Origin {
    /// Whether this is still the application, by the root that is there now and the owner of its start-up file. A root has to
    /// be there. A start-up file need not: nothing is loaded from one that is missing, and an owner who replaces a file may
    /// have removed it for a moment.
    pub fn is_met(&self, root: Option<Mark>, startup: Option<u32>) -> bool {
        let is_other = |known: u32| startup.is_some_and(|now| now != known);
        root == Some(self.root) && !self.startup.as_ref().is_some_and(|(_, known)| is_other(*known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_directory_or_owner_is_another_application() {
        let mark = |inode, owner| Mark {
            device: 1,
            inode,
            owner,
        };
        let mut origin = Origin {
            path: PathBuf::from("/srv/shop"),
            root: mark(2, 33),
            startup: Some((PathBuf::from("index.php"), 33)),
        };
        let root = Some(mark(2, 33));
        let elsewhere = Mark {
            device: 5,
            ..mark(2, 33)
        };
        assert!(origin.is_met(root, Some(33)) && origin.is_met(root, None));
        for other in [None, Some(mark(4, 33)), Some(mark(2, 34)), Some(elsewhere)] {
            assert!(!origin.is_met(other, Some(33)), "{other:?}");
        }
        assert!(!origin.is_met(root, Some(34)));
        origin.startup = None;
        assert!(origin.is_met(root, Some(9)));
    }
}
