//! Identity of an application's code.
//!
//! Paths can change hands: another user recreates a deleted directory, or the parent's owner renames it. A process of
//! the old owner must not run the new code. So device, inode and owner of the root and the owner of the start-up file
//! are part of the identity. The process has the root as working directory, so the kernel doesn't reuse the inode
//! number. If the owner replaces the start-up file in the same directory, that is a deployment of the same application.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Identity of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// User id.
    pub owner: u32,
}

/// An application's root and start-up file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Path of the root, without links.
    pub path: PathBuf,
    pub root: Mark,
    /// The start-up file, relative to the root, and its owner (of the link itself if it is one).
    pub startup: Option<(PathBuf, u32)>,
}

impl Origin {
    /// Whether this is still the application, given the current root and the start-up file's owner. The root must
    /// exist. The start-up file may be missing: nothing is loaded from it, and the owner may be replacing it.
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
