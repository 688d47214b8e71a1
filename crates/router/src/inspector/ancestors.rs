//! Checks the directories between a pool's directory and an application's root.
//!
//! A directory's owner could replace an application's root between the inspection and an instance's access. Therefore
//! each directory must belong to root or to the application's owner. The operator vouches for the pool's directory and
//! those above it.

use super::find_error::FindError;
use forkyard_base::origin::Mark;
use forkyard_sys::beneath::{self, Entry, directory_in, entry_of};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

const WRITABLE_BY_ALL: u32 = 0o002;
/// Only owners may rename files in such a directory.
const STICKY: u32 = 0o1000;

/// Checks the directories above `root`, a path without links that was inspected as `mark`.
///
/// # Errors
/// A directory belongs to another user or was renamed. The error names it and the fix.
pub(super) fn check(root: &Path, mark: &Mark, directories: &[PathBuf], owner: u32) -> Result<(), FindError> {
    let changed = || FindError::Changed(root.to_owned());
    let real = directories.iter().filter_map(|it| std::fs::canonicalize(it).ok());
    let holding = real.filter(|it| root.starts_with(it) && it != root);
    let top = holding
        .max_by_key(|it| it.components().count())
        .ok_or_else(changed)?;
    let mut at = beneath::open_exactly(&top).map_err(|_| changed())?;
    let mut path = top.clone();
    for name in root.strip_prefix(&top).map_err(|_| changed())?.components() {
        path.push(name);
        at = directory_in(at.as_fd(), name.as_os_str()).ok_or_else(changed)?;
        let entry = entry_of(at.as_fd()).map_err(FindError::System)?;
        if path == root {
            return match Mark::from(&entry) == *mark {
                true => Ok(()),
                false => Err(changed()),
            };
        }
        check_one(&path, &entry, root, owner)?;
    }
    Err(changed())
}

/// Checks one directory above `root`, or above a link to it.
///
/// # Errors
/// It belongs to another user, or everybody may write to it.
pub(super) fn check_one(above: &Path, entry: &Entry, root: &Path, owner: u32) -> Result<(), FindError> {
    let of = entry.uid;
    let (above, root) = (above.to_owned(), root.to_owned());
    if of != 0 && of != owner {
        return Err(FindError::ForeignAbove {
            above,
            of,
            root,
            owner,
        });
    }
    if entry.mode & (WRITABLE_BY_ALL | STICKY) == WRITABLE_BY_ALL {
        return Err(FindError::WritableAbove { above, root });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown};

    const ALICE: u32 = 4001;
    const BOB: u32 = 4002;

    struct Tree {
        _place: tempfile::TempDir,
        base: PathBuf,
        root: PathBuf,
    }

    /// `base/home/apps/shop`, owned by Alice except for the base.
    fn tree() -> Tree {
        let place = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(place.path()).unwrap().join("base");
        let root = base.join("home/apps/shop");
        fs::create_dir_all(&root).unwrap();
        for path in root.ancestors().take(3) {
            own(path, ALICE, 0o755);
        }
        let _place = place;
        Tree { _place, base, root }
    }

    fn own(path: &Path, user: u32, mode: u32) {
        if nix::unistd::geteuid().is_root() {
            chown(path, Some(user), Some(user)).unwrap();
        }
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    impl Tree {
        fn check(&self) -> Result<(), FindError> {
            self.check_below(std::slice::from_ref(&self.base))
        }

        fn check_below(&self, directories: &[PathBuf]) -> Result<(), FindError> {
            let entry = beneath::entry_at(&self.root).unwrap();
            check(&self.root, &Mark::from(&entry), directories, entry.uid)
        }

        fn check_as(&self, mark: &Mark) -> Result<(), FindError> {
            check(&self.root, mark, std::slice::from_ref(&self.base), mark.owner)
        }
    }

    #[test]
    fn usual_trees_are_accepted() {
        let tree = tree();
        // A home that is writable by the user's own group, as with a umask of 002.
        own(&tree.base.join("home"), ALICE, 0o775);
        assert_eq!(tree.check(), Ok(()));
        // Root's directories with a user's files, such as /srv/www/shop or an sftp home.
        own(&tree.base.join("home"), 0, 0o755);
        own(&tree.base.join("home/apps"), 0, 0o755);
        assert_eq!(tree.check(), Ok(()));
        own(&tree.base.join("home"), 0, 0o1777);
        assert_eq!(tree.check(), Ok(()));
    }

    #[test]
    fn a_directory_of_another_user_or_of_everybody_is_refused_by_name() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("skipped: it takes two users");
            return;
        }
        let tree = tree();
        let apps = tree.base.join("home/apps");
        own(&apps, BOB, 0o755);
        let error = tree.check().unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("{} belongs to user {BOB}", apps.display())),
            "{error}"
        );
        assert!(error.contains("or name it in applications.directories"));
        assert_eq!(tree.check_below(&[tree.base.clone(), apps.clone()]), Ok(()));
        own(&apps, ALICE, 0o777);
        let error = tree.check().unwrap_err().to_string();
        assert!(error.contains("everybody may write to this directory"), "{error}");
    }

    #[test]
    fn another_root_than_was_looked_at_is_noticed() {
        let tree = tree();
        let before = Mark::from(&beneath::entry_at(&tree.root).unwrap());
        fs::rename(&tree.root, tree.base.join("old")).unwrap();
        fs::create_dir(&tree.root).unwrap();
        let error = tree.check_as(&before).unwrap_err().to_string();
        assert!(error.contains("changed while forkyard inspected it"), "{error}");
        assert!(check(&tree.root, &before, &[], before.owner).is_err());
    }
}
