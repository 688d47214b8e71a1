//! Finds the link that an application's releases change places behind.

use super::ancestors;
use super::find::{Terms, real_below};
use super::find_error::FindError;
use forkyard_base::origin::Mark;
use forkyard_config::release::{LAST, NEXT, beside};
use forkyard_sys::beneath::{self, FileForm};
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// How far above a release its link may be.
const MOST_LEVELS: usize = 8;

/// An application with releases.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReleaseLink {
    /// In a directory without links.
    pub link: PathBuf,
    /// The link's target, or the release that a request names.
    pub release: PathBuf,
}

/// Returns the link that a request's root is, has, or is the release of.
pub(super) fn find(root: &Path, terms: &Terms) -> Option<ReleaseLink> {
    let name = terms.releases.as_deref()?;
    let behind = |link: PathBuf| {
        let release = link.canonicalize().ok()?;
        is_link(&link).then_some(ReleaseLink { link, release })
    };
    if root.file_name() == Some(name.as_os_str()) {
        let parent = real_below(root.parent()?, &terms.directories);
        if let Some(found) = parent.and_then(|parent| behind(parent.join(name))) {
            return Some(found);
        }
    }
    let real = real_below(root, &terms.directories)?;
    if let Some(found) = behind(real.join(name)) {
        return Some(found);
    }
    let above = real.ancestors().skip(1).take(MOST_LEVELS);
    let above = above.take_while(|directory| real_below(directory, &terms.directories).is_some());
    let link = above.map(|directory| directory.join(name)).find(|link| {
        let names_it = |end: &str| beside(link, end).canonicalize().is_ok_and(|named| named == real);
        is_link(link) && ["", NEXT, LAST].into_iter().any(names_it)
    });
    Some(ReleaseLink {
        link: link?,
        release: real,
    })
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

/// Checks that only `owner`, the application's user, or root could have made the link.
///
/// # Errors
/// It is no link, or another user owns it or its directory.
pub(super) fn check(link: &Path, owner: u32, terms: &Terms) -> Result<(), FindError> {
    let none = || FindError::NoLink(link.to_owned());
    let (parent, name) = link.parent().zip(link.file_name()).ok_or_else(none)?;
    let directory = beneath::open_exactly(parent).map_err(|_| none())?;
    let entry = beneath::entry_in(directory.as_fd(), name);
    let entry = entry.filter(|it| it.form == FileForm::Link).ok_or_else(none)?;
    if !terms.switching {
        return Ok(());
    }
    if entry.uid != 0 && entry.uid != owner {
        return Err(FindError::ForeignLink {
            link: link.to_owned(),
            of: entry.uid,
            owner,
        });
    }
    let held_by = beneath::entry_of(directory.as_fd()).map_err(FindError::System)?;
    ancestors::check_one(parent, &held_by, link, owner)?;
    ancestors::check(parent, &Mark::from(&held_by), &terms.directories, owner)
}

#[cfg(test)]
#[path = "releases_tests.rs"]
mod tests;
