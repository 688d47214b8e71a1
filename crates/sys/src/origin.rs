//! Checks whether an application's files were replaced.

use super::beneath::{Entry, entry_at, entry_in, entry_of, open_current};
use forkyard_base::origin::{Mark, Origin};
use std::os::fd::AsFd;

impl From<&Entry> for Mark {
    fn from(entry: &Entry) -> Mark {
        Mark {
            device: entry.device,
            inode: entry.inode,
            owner: entry.uid,
        }
    }
}

/// Whether the application's path still leads to it; `false` if unknown.
pub fn is_there(origin: &Origin) -> bool {
    let root = entry_at(&origin.path).map(|entry| Mark::from(&entry));
    let startup = origin.startup.as_ref();
    origin.is_met(
        root,
        startup.and_then(|(name, _)| Some(entry_at(&origin.path.join(name))?.uid)),
    )
}

/// Whether the working directory is the application's.
pub fn is_here(origin: &Origin) -> bool {
    let Ok(here) = open_current() else { return false };
    let root = entry_of(here.as_fd()).ok();
    let startup = origin.startup.as_ref();
    let startup = startup.and_then(|(name, _)| entry_in(here.as_fd(), name.as_os_str()));
    origin.is_met(
        root.map(|entry| Mark::from(&entry)),
        startup.map(|entry| entry.uid),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn origin(path: &Path) -> Origin {
        let owner = entry_at(&path.join("run.cgi")).unwrap().uid;
        Origin {
            path: path.to_owned(),
            root: Mark::from(&entry_at(path).unwrap()),
            startup: Some(("run.cgi".into(), owner)),
        }
    }

    #[test]
    fn what_has_taken_its_place_is_another_one() {
        let place = tempfile::tempdir().unwrap();
        let [root, other] = ["root", "other"].map(|name| place.path().join(name));
        for directory in [&root, &other] {
            std::fs::create_dir(directory).unwrap();
            std::fs::write(directory.join("run.cgi"), "").unwrap();
        }
        let known = origin(&root);
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).unwrap();
        std::env::set_current_dir(&root).unwrap();
        assert!(is_there(&known) && is_here(&known));
        std::fs::rename(&root, place.path().join("old")).unwrap();
        assert!(!is_there(&known) && is_here(&known), "gone");
        std::fs::rename(&other, &root).unwrap();
        assert!(!is_there(&known) && is_here(&known), "another one");
        std::env::set_current_dir(&root).unwrap();
        assert!(!is_here(&known));
        let known = origin(&root);
        std::fs::write(root.join("new"), "").unwrap();
        std::fs::rename(root.join("new"), root.join("run.cgi")).unwrap();
        assert!(is_there(&known) && is_here(&known), "deployed");
        let of_another = Origin {
            startup: Some(("run.cgi".into(), u32::MAX)),
            ..known.clone()
        };
        assert!(!is_there(&of_another) && !is_here(&of_another), "another owner's");
        std::fs::remove_file(root.join("run.cgi")).unwrap();
        assert!(is_there(&known) && is_here(&known), "none");
        let linked = place.path().join("linked");
        std::os::unix::fs::symlink(&root, &linked).unwrap();
        let through_a_link = Origin {
            path: linked,
            ..known
        };
        assert!(!is_there(&through_a_link));
    }
}
