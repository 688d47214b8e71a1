//! Why a directory is not run.

use super::signs::{self, OWN_FILE};
use forkyard_sys as sys;
use nix::errno::Errno;
use std::path::PathBuf;
use thiserror::Error;

#[derive(Debug, PartialEq, Eq, Error)]
pub enum FindError {
    #[error("{}: an application's root is an absolute path; let the web server send one that begins with /", .0.display())]
    Relative(PathBuf),
    #[error("{}: the directory's name is not UTF-8; rename it", .0.display())]
    NotUtf8(PathBuf),
    #[error(
        "{} is no directory below {directories}, links followed; applications are directories there",
        root.display()
    )]
    Outside { root: PathBuf, directories: String },
    #[error("{} changed while forkyard inspected it; try again", .0.display())]
    Changed(PathBuf),
    #[error("{0}")]
    System(sys::Error),
    #[error("{}: everybody may write to this directory, so its owner can't be known; chmod o-w it", .0.display())]
    Shared(PathBuf),
    #[error(
        "{} is on a file system that a user may have mounted (FUSE, or nosuid at a user's wish) \
         and that may name any owner; move it, or set applications.user_mounts = true",
        .0.display()
    )]
    UserMount(PathBuf),
    #[error("{}: can't read its file system: {error}", root.display())]
    NoMount { root: PathBuf, error: sys::Error },
    #[error("{} has {names} names, and may be another user's file; copy it", file.display())]
    Names { file: PathBuf, names: u64 },
    #[error(
        "{} belongs to user {of} and {} to user {own}; both must belong to the user that the application runs as",
        file.display(), root.display()
    )]
    TwoOwners {
        file: PathBuf,
        of: u32,
        root: PathBuf,
        own: u32,
    },
    #[error(
        "{} belongs to user {of}, the application to user {owner}; give it to user {owner}, or to root",
        file.display()
    )]
    Foreign { file: PathBuf, of: u32, owner: u32 },
    #[error("{}: everybody may write to it; chmod o-w it", .0.display())]
    Writable(PathBuf),
    #[error("{} is no regular file; a link is not followed: copy the file here", .0.display())]
    Special(PathBuf),
    #[error("{}: {}", file.display(), errno.desc())]
    NotRead { file: PathBuf, errno: Errno },
    #[error(
        "{} belongs to user {of}, and not everybody may read it; give it to user {own}, or chmod o+r it",
        file.display()
    )]
    Private { file: PathBuf, of: u32, own: u32 },
    #[error("{} is longer than {most} bytes; shorten it", file.display())]
    TooLong { file: PathBuf, most: usize },
    /// The application's own settings are wrong.
    #[error("{0}")]
    Settings(String),
    #[error(
        "{}: entry = {entry:?} does not show the runtime; add one, for example runtime = \"asgi\"",
        file.display()
    )]
    Entry { file: PathBuf, entry: String },
    #[error("{} is no link to a release; ln -s releases/1 {}", .0.display(), .0.display())]
    NoLink(PathBuf),
    #[error(
        "{} belongs to user {of}, and its release to user {owner}; give the link to user {owner} or to root (chown -h)",
        link.display()
    )]
    ForeignLink { link: PathBuf, of: u32, owner: u32 },
    #[error(
        "{} belongs to user {of}, who could put another directory in the place of {}, which is user {owner}'s; \
         give it to user {owner} or to root, or name it in applications.directories",
        above.display(), root.display()
    )]
    ForeignAbove {
        above: PathBuf,
        of: u32,
        root: PathBuf,
        owner: u32,
    },
    #[error(
        "{}: everybody may write to this directory, and put another one in the place of {}; chmod o-w it",
        above.display(), root.display()
    )]
    WritableAbove { above: PathBuf, root: PathBuf },
    /// No application: only the named file is there.
    #[error(
        "{} is no application: {file} alone does not show the runtime; name it in {OWN_FILE} there: runtime = {}",
        root.display(), runtimes_of(file)
    )]
    Unclear { root: PathBuf, file: &'static str },
    #[error(
        "{} is no application: it has none of {}; or say in {OWN_FILE} there what it is, \
         for example runtime = \"php\"",
        .0.display(), signs::all()
    )]
    NoSign(PathBuf),
}

impl FindError {
    /// Nothing marks the directory as an application.
    pub fn is_no_application(&self) -> bool {
        matches!(self, FindError::Unclear { .. } | FindError::NoSign(_))
    }
}

fn runtimes_of(file: &str) -> &'static str {
    match file.ends_with(".js") {
        true => "\"node\"",
        false => "\"asgi\" (FastAPI, Starlette) or \"wsgi\" (Flask, Django)",
    }
}
