//! Detects changed files below directories. inotify(7) queues a change before the call that made it returns.

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

const MOST: usize = 20_000;
/// A file is complete when it is closed or renamed.
const INTERESTS: AddWatchFlags = AddWatchFlags::IN_CLOSE_WRITE
    .union(AddWatchFlags::IN_MOVE)
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_CREATE)
    .union(AddWatchFlags::IN_ONLYDIR);

/// Selects directories and files.
pub trait Choice {
    /// Whether to watch a subdirectory.
    fn enters(&self, directory: &Path) -> bool;
    /// Whether a file's changes count.
    fn counts(&self, file: &Path) -> bool;
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// This file, which may be gone.
    File(PathBuf),
    /// The kernel's queue overflowed.
    Many,
}

/// Directories, watched recursively.
#[derive(Debug)]
pub struct Tree<C> {
    roots: Vec<PathBuf>,
    choice: C,
    inotify: Inotify,
    paths: HashMap<WatchDescriptor, PathBuf>,
    trouble: Option<(PathBuf, Errno)>,
}

impl<C: Choice> Tree<C> {
    /// Starts watching; skips missing directories.
    ///
    /// # Errors
    /// inotify_init1(2).
    pub fn new(roots: Vec<PathBuf>, choice: C) -> nix::Result<Tree<C>> {
        let mut tree = Tree {
            roots,
            choice,
            inotify: Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?,
            paths: HashMap::new(),
            trouble: None,
        };
        tree.add_roots();
        Ok(tree)
    }

    /// Takes a directory that can't be watched, with the error.
    pub fn take_trouble(&mut self) -> Option<(PathBuf, Errno)> {
        self.trouble.take()
    }

    /// Returns the first change since the last call.
    pub fn changed(&mut self) -> Option<Change> {
        let mut first = None;
        loop {
            let events = match self.inotify.read_events() {
                Ok(events) if !events.is_empty() => events,
                Ok(_) | Err(_) => return first,
            };
            for event in events {
                let change = self.take(&event);
                first = first.or(change);
            }
        }
    }

    fn take(&mut self, event: &InotifyEvent) -> Option<Change> {
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            self.add_roots();
            return Some(Change::Many);
        }
        if event.mask.contains(AddWatchFlags::IN_IGNORED) {
            self.paths.remove(&event.wd);
            return None;
        }
        let path = self.paths.get(&event.wd)?.join(event.name.as_ref()?);
        if event.mask.contains(AddWatchFlags::IN_ISDIR) {
            let is_new = self.choice.enters(&path) && path.is_dir();
            return if is_new {
                self.add(path, false).map(Change::File)
            } else {
                None
            };
        }
        let is_whole = !event.mask.contains(AddWatchFlags::IN_CREATE);
        (is_whole && self.choice.counts(&path)).then_some(Change::File(path))
    }

    fn add_roots(&mut self) {
        for root in self.roots.clone() {
            self.add(root, true);
        }
    }

    /// Returns the first matching file. Follows a link only at a root.
    fn add(&mut self, directory: PathBuf, is_root: bool) -> Option<PathBuf> {
        let mut found = None;
        let mut flags = match is_root {
            true => INTERESTS,
            false => INTERESTS | AddWatchFlags::IN_DONT_FOLLOW,
        };
        let mut waiting = vec![directory];
        while let Some(directory) = waiting.pop() {
            let added = match self.paths.len() < MOST {
                true => self.inotify.add_watch(&directory, flags),
                false => Err(Errno::ENOSPC),
            };
            flags |= AddWatchFlags::IN_DONT_FOLLOW;
            match added {
                Ok(descriptor) => self.paths.insert(descriptor, directory.clone()),
                Err(Errno::ENOENT | Errno::EACCES | Errno::ENOTDIR) => continue,
                Err(errno) => {
                    self.trouble = Some((directory, errno));
                    return found;
                }
            };
            for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
                let path = entry.path();
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => {
                        if self.choice.enters(&path) {
                            waiting.push(path);
                        }
                    }
                    Ok(_) if found.is_none() && self.choice.counts(&path) => found = Some(path),
                    Ok(_) | Err(_) => {}
                }
            }
        }
        found
    }
}

impl<C> AsFd for Tree<C> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Plain;

    impl Choice for Plain {
        fn enters(&self, directory: &Path) -> bool {
            !directory.ends_with("cache")
        }

        fn counts(&self, file: &Path) -> bool {
            file.extension().is_some_and(|ending| ending == "php")
        }
    }

    #[test]
    fn new_directories_are_watched_with_what_they_come_with() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("current");
        fs::create_dir_all(directory.path().join("one/cache")).unwrap();
        std::os::unix::fs::symlink("one", &root).unwrap();
        let missing = directory.path().join("missing");
        let mut tree = Tree::new(vec![missing, root.clone()], Plain).unwrap();
        let file = |path: &str| Some(Change::File(root.join(path)));
        for (path, seen) in [("a.php", true), ("a.log", false), ("cache/a.php", false)] {
            fs::write(root.join(path), "").unwrap();
            assert_eq!(tree.changed().is_some(), seen, "{path}");
        }
        fs::create_dir_all(directory.path().join("new/deep")).unwrap();
        fs::write(directory.path().join("new/deep/b.php"), "").unwrap();
        fs::rename(directory.path().join("new"), root.join("new")).unwrap();
        assert_eq!(tree.changed(), file("new/deep/b.php"));
        assert_eq!(tree.changed(), None);
        fs::remove_file(root.join("new/deep/b.php")).unwrap();
        assert_eq!(tree.changed(), file("new/deep/b.php"));
        assert_eq!(tree.take_trouble(), None);
    }
}
