//! The three links of a pool: to the release in service, to the release under deployment, and to the release before.

use forkyard_config::release::{LAST, NEXT};
use forkyard_sys::beneath::{self, Entry, FileForm};
use forkyard_sys::{Error, identity, link};
use nix::errno::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("{}: {}; it has to be a directory on a path without links: name that path in the pool's key release", .0.display(), .1)]
    Directory(PathBuf, #[source] Error),
    #[error("{} is no link; move it away, and deploy its contents as a release", .0.display())]
    NoLink(PathBuf),
    #[error("{}: {}", .0.display(), .1)]
    System(PathBuf, #[source] Error),
}

/// The directory of the links, opened without following one.
pub(super) struct Links {
    directory: OwnedFd,
    /// The link, as the configuration names it.
    path: PathBuf,
    name: OsString,
    /// The owner of new links in a deployment by root.
    owner: Option<(u32, u32)>,
}

impl Links {
    pub(super) fn open(path: &Path) -> Result<Links, LinkError> {
        let parent = path.parent().unwrap_or(Path::new("/"));
        let no_directory = |error| LinkError::Directory(parent.to_owned(), error);
        let directory = beneath::open_exactly(parent).map_err(no_directory)?;
        let name = path.file_name().unwrap_or(OsStr::new("")).to_owned();
        let present = beneath::entry_in(directory.as_fd(), &name);
        if present.is_some_and(|entry| entry.form != FileForm::Link) {
            return Err(LinkError::NoLink(path.to_owned()));
        }
        let own = match present {
            Some(own) => own,
            None => beneath::entry_of(directory.as_fd()).map_err(no_directory)?,
        };
        let owner = |entry: Entry| (entry.uid, entry.gid);
        Ok(Links {
            owner: identity::is_root().then(|| owner(own)),
            directory,
            path: path.to_owned(),
            name,
        })
    }

    fn beside(&self, end: &str) -> OsString {
        let mut name = self.name.clone();
        name.push(end);
        name
    }

    fn put(&self, name: &OsStr, release: &Path) -> Result<(), LinkError> {
        let target = self.as_written(release);
        let put = link::put(self.directory.as_fd(), name, &target, self.owner);
        put.map_err(|error| {
            let path = self.path.with_file_name(name);
            match error.errno {
                Errno::EEXIST => LinkError::NoLink(path),
                _ => LinkError::System(path, error),
            }
        })
    }

    /// Returns the target of a link to a release: a relative path if the present link is relative.
    fn as_written(&self, release: &Path) -> PathBuf {
        let is_relative =
            link::read(self.directory.as_fd(), &self.name).is_ok_and(|target| target.is_relative());
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        match release.strip_prefix(parent) {
            Ok(below) if is_relative => below.to_owned(),
            Ok(_) | Err(_) => release.to_owned(),
        }
    }

    /// Returns the release that `current.last` names. `None`: there is no such link.
    pub(super) fn last(&self) -> Result<Option<PathBuf>, LinkError> {
        let name = self.beside(LAST);
        let path = self.path.with_file_name(&name);
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        match link::read(self.directory.as_fd(), &name) {
            Ok(target) => Ok(Some(parent.join(target))),
            Err(error) if error.errno == Errno::ENOENT => Ok(None),
            Err(error) if error.errno == Errno::EINVAL => Err(LinkError::NoLink(path)),
            Err(error) => Err(LinkError::System(path, error)),
        }
    }

    /// Points `current.next` to the release under deployment, so that web servers find its static files. Returns the link's
    /// old target.
    ///
    /// # Errors
    /// [`Links::serve`] would fail later.
    pub(super) fn announce(&self, release: &Path) -> Result<Option<PathBuf>, LinkError> {
        let last = self.beside(LAST);
        let present = beneath::entry_in(self.directory.as_fd(), &last);
        if present.is_some_and(|entry| entry.form != FileForm::Link) {
            return Err(LinkError::NoLink(self.path.with_file_name(last)));
        }
        let next = self.beside(NEXT);
        let before = link::read(self.directory.as_fd(), &next).ok();
        self.put(&next, release)?;
        Ok(before)
    }

    /// Moves the links once the release is in service. `before`: the previous release. `current.next` stays, because a web
    /// server may have read the other links just before they moved.
    pub(super) fn serve(&self, release: &Path, before: Option<&Path>) -> Result<(), LinkError> {
        if let Some(before) = before.filter(|before| *before != release) {
            self.put(&self.beside(LAST), before)?;
        }
        self.put(&self.name, release)
    }

    /// Restores the old target of `current.next`, unless another deployment has changed the link.
    pub(super) fn give_up(&self, release: &Path, before: Option<&Path>) {
        let next = self.beside(NEXT);
        let named = link::read(self.directory.as_fd(), &next);
        if named.is_ok_and(|named| named == self.as_written(release)) {
            let directory = self.directory.as_fd();
            let _ = match before {
                Some(before) => link::put(directory, &next, before, self.owner),
                None => link::remove(directory, &next),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for release in ["r/1", "r/2"] {
            fs::create_dir_all(directory.path().join(release)).unwrap();
        }
        directory
    }

    fn target(directory: &tempfile::TempDir, name: &str) -> Option<PathBuf> {
        fs::read_link(directory.path().join(name)).ok()
    }

    #[test]
    fn links_are_moved_last_and_keep_their_form() {
        for is_relative in [true, false] {
            let directory = directory();
            let path = directory.path().canonicalize().unwrap();
            let written = |name: &str| match is_relative {
                true => PathBuf::from(name),
                false => path.join(name),
            };
            symlink(written("r/1"), path.join("current")).unwrap();
            let (one, two) = (path.join("r/1"), path.join("r/2"));
            let links = Links::open(&path.join("current")).unwrap();
            assert_eq!(links.announce(&one).unwrap(), None);
            links.give_up(&one, None);
            assert_eq!(target(&directory, "current.next"), None);
            links.announce(&one).unwrap();
            let before = links.announce(&two).unwrap();
            assert_eq!(target(&directory, "current.next"), Some(written("r/2")));
            links.give_up(&two, before.as_deref());
            assert_eq!(target(&directory, "current.next"), Some(written("r/1")));
            links.announce(&two).unwrap();
            assert_eq!(target(&directory, "current"), Some(written("r/1")));
            links.give_up(&one, None);
            assert!(
                target(&directory, "current.next").is_some(),
                "it names another release"
            );
            links.serve(&two, Some(&one)).unwrap();
            let names = ["current", "current.last", "current.next"];
            let expected = [Some(written("r/2")), Some(written("r/1")), Some(written("r/2"))];
            assert_eq!(names.map(|name| target(&directory, name)), expected);
            assert_eq!(links.last().unwrap(), Some(one.clone()));
            // Deploying the release in service again keeps `current.last`.
            links.announce(&two).unwrap();
            links.serve(&two, Some(&two)).unwrap();
            assert_eq!(names.map(|name| target(&directory, name)), expected);
            assert_eq!(fs::read_dir(&path).unwrap().count(), 4, "nothing else is left");
        }
    }

    #[test]
    fn nothing_is_written_through_a_link_or_in_place_of_a_directory() {
        let directory = directory();
        let path = directory.path().canonicalize().unwrap();
        symlink(path.join("r"), path.join("elsewhere")).unwrap();
        assert!(matches!(
            Links::open(&path.join("elsewhere/current")),
            Err(LinkError::Directory(..))
        ));
        assert!(matches!(Links::open(&path.join("r")), Err(LinkError::NoLink(_))));
        let links = Links::open(&path.join("current")).unwrap();
        for name in ["current.next", "current.last"] {
            fs::create_dir(path.join(name)).unwrap();
            let last = links.last();
            match name {
                "current.last" => assert!(matches!(last, Err(LinkError::NoLink(_))), "{last:?}"),
                _ => assert_eq!(last.unwrap(), None),
            }
            let refused = links.announce(&path.join("r/1"));
            let is_named = |path: &Path| path.ends_with(name);
            assert!(matches!(refused, Err(LinkError::NoLink(path)) if is_named(&path)));
            fs::remove_dir(path.join(name)).unwrap();
        }
        // A link to a directory is replaced, not followed.
        symlink(path.join("r"), path.join("current.last")).unwrap();
        links.serve(&path.join("r/2"), Some(&path.join("r/1"))).unwrap();
        assert_eq!(target(&directory, "current.last"), Some(path.join("r/1")));
        assert_eq!(fs::read_dir(path.join("r")).unwrap().count(), 2);
    }
}
