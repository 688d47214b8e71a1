//! Logs why a script is not run, once a minute per cause.

use super::request::Request;
use forkyard_base::tick::Tick;
use forkyard_protocol::refusals::{RefusalCause, Words};
use forkyard_scoreboard::{header, refusals};
use forkyard_sys::clock;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

const TOLD_AGAIN: Duration = Duration::from_secs(60);

/// A script that is not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unrun {
    cause: RefusalCause,
    path: Vec<u8>,
    at: Option<usize>,
}

impl Unrun {
    /// Creates a record with this cause.
    pub fn new(cause: RefusalCause, path: &[u8]) -> Unrun {
        Unrun {
            cause,
            path: path.to_vec(),
            at: None,
        }
    }

    /// Finds out with a few calls, and this process's rights, why a script can't be opened. `root`: the document root,
    /// if known.
    pub fn look(path: &[u8], root: Option<&[u8]>) -> Unrun {
        if path.is_empty() {
            return Unrun::new(RefusalCause::Unnamed, path);
        }
        let unrun = |cause, at| Unrun {
            at,
            ..Unrun::new(cause, path)
        };
        match kind_of(path) {
            None if climbs(path) => unrun(RefusalCause::Outside, None),
            None if Path::new(OsStr::from_bytes(path)).is_dir() => unrun(RefusalCause::Missing, None),
            None => unrun(RefusalCause::Closed, Some(path.len())),
            Some(ErrorKind::PermissionDenied) => unrun(RefusalCause::Closed, Some(closed_part(path))),
            Some(_) => {
                let below = root.filter(|root| root.first() == Some(&b'/') && path.starts_with(root));
                let is_lost = below.filter(|root| kind_of(root) == Some(ErrorKind::NotFound));
                match is_lost {
                    Some(root) => unrun(RefusalCause::Outside, Some(root.len())),
                    None => unrun(RefusalCause::Missing, None),
                }
            }
        }
    }

    fn say(&self, count: u64) {
        let path = String::from_utf8_lossy(&self.path);
        let at = self.at.map(|at| String::from_utf8_lossy(&self.path[..at]));
        let words = Words {
            cause: self.cause,
            path: &path,
            at: at.as_deref(),
        };
        match count {
            0 | 1 => log::warn!("a request is refused: {words}"),
            _ => log::warn!("{count} requests are refused, the last: {words}"),
        }
    }
}

fn kind_of(path: &[u8]) -> Option<ErrorKind> {
    let looked = std::fs::metadata(OsStr::from_bytes(path));
    looked.err().map(|error| error.kind())
}

fn climbs(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|part| part == b"..")
}

/// The length of the path up to the first directory without search permission, or a link that leads into one.
/// Everything before it is accessible and nothing behind it, so a binary search works.
fn closed_part(path: &[u8]) -> usize {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let ends: Vec<usize> = slashes
        .map(|(at, _)| at)
        .filter(|at| *at > 0)
        .chain([path.len()])
        .collect();
    let first_hidden =
        ends.partition_point(|end| kind_of(&path[..*end]) != Some(ErrorKind::PermissionDenied));
    let is_link = |end: &&usize| std::fs::symlink_metadata(OsStr::from_bytes(&path[..**end])).is_ok();
    match (ends.get(first_hidden).filter(is_link), first_hidden) {
        (Some(link), _) => *link,
        (None, 0) => 1,
        (None, hidden) => ends[hidden - 1],
    }
}

impl Request<'_> {
    /// Counts a refused script and logs it, at most once a minute per cause.
    pub fn refuse_script(&mut self, unrun: &Unrun) {
        let service = self.service();
        let writer = service.slot_writer();
        writer.refused(unrun.cause, clock::epoch_seconds(), &unrun.path, unrun.at);
        let board = &service.page.board;
        let is_used = |index: &usize| header::used(board.header(), *index);
        let pages = (0..board.slots())
            .filter(is_used)
            .filter_map(|index| board.slot(index));
        let (count, told, since) = refusals::told(board.header(), pages, unrun.cause);
        let now = clock::now();
        if since > 0 && now.since(Tick::from_nanos(since)) < TOLD_AGAIN {
            return;
        }
        writer.told_refused(unrun.cause, now, count);
        unrun.say(count.saturating_sub(told));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_found_out_without_other_users_is() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().as_os_str().as_bytes();
        let path = |name: &str| [root, name.as_bytes()].concat();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        std::fs::write(dir.path().join("f.php"), "").unwrap();
        for (asked, below, cause, at) in [
            (Vec::new(), None, RefusalCause::Unnamed, None),
            (path("/no.php"), Some(root), RefusalCause::Missing, None),
            (path("/no/no.php"), None, RefusalCause::Missing, None),
            (path("/f.php/x"), Some(root), RefusalCause::Missing, None),
            (path("/d"), Some(root), RefusalCause::Missing, None),
            (path("/d/../f.php"), Some(root), RefusalCause::Outside, None),
            (
                path("/w/x.php"),
                Some(&path("/w")),
                RefusalCause::Outside,
                Some(root.len() + 2),
            ),
            (path("/w/x.php"), Some(b"/no/such"), RefusalCause::Missing, None),
        ] {
            let unrun = Unrun {
                at,
                ..Unrun::new(cause, &asked)
            };
            assert_eq!(Unrun::look(&asked, below), unrun);
        }
    }
}
