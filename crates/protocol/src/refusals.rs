//! Counts of refused scripts.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::fmt;

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusals {
    pub cause: RefusalCause,
    pub count: u64,
    /// Time of the last refusal, in seconds since 1970.
    pub time: u64,
    /// The last requested script, possibly truncated, or the URI if no script was named.
    pub path: String,
    /// The part of the path that caused the refusal: a closed directory or the root.
    pub at: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCause {
    Missing,
    /// It is outside the allowed root, or the pool can't see the web server's root.
    Outside,
    /// The pool's user has no permission to reach or read it.
    Closed,
    /// The web server did not name a script.
    Unnamed,
    Ending,
    NotExecutable,
}

pub const CAUSES: usize = RefusalCause::ALL.len();

impl RefusalCause {
    /// Every cause, at its [`RefusalCause::index`].
    pub const ALL: [RefusalCause; 6] = [
        RefusalCause::Missing,
        RefusalCause::Outside,
        RefusalCause::Closed,
        RefusalCause::Unnamed,
        RefusalCause::Ending,
        RefusalCause::NotExecutable,
    ];

    pub fn name(self) -> &'static str {
        match self {
            RefusalCause::Missing => "missing",
            RefusalCause::Outside => "outside",
            RefusalCause::Closed => "closed",
            RefusalCause::Unnamed => "unnamed",
            RefusalCause::Ending => "ending",
            RefusalCause::NotExecutable => "not_executable",
        }
    }

    /// The cause's position in [`RefusalCause::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Words<'a> {
    pub cause: RefusalCause,
    pub path: &'a str,
    pub at: Option<&'a str>,
}

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path;
        match (self.cause, self.at) {
            (RefusalCause::Missing, _) => write!(f, "{path} does not exist"),
            (RefusalCause::Outside, Some(root)) => write!(
                f,
                "{path}: the web server's root {root} does not exist for this pool; in a container or with \
                 chroot, set root to the path inside it"
            ),
            (RefusalCause::Outside, None) => write!(
                f,
                "{path} lies outside application.root, application.script_root or open_basedir, or leads out of its release and release_shared"
            ),
            (RefusalCause::Closed, Some(directory)) if directory != path => write!(
                f,
                "{path}: the pool's user can't search the directory {directory}, or one that it leads to; chmod o+x it, or run the pool as a user who may"
            ),
            (RefusalCause::Closed, _) => write!(f, "{path} can't be read by the pool's user"),
            (RefusalCause::Unnamed, _) => write!(
                f,
                "the web server names no script: let it send SCRIPT_FILENAME (nginx: include fastcgi.conf, not fastcgi_params), \
                 or set application.script; the URI is {path:?}"
            ),
            (RefusalCause::Ending, _) => write!(
                f,
                "{path} has an ending that is not run: see limit_extensions (security.limit_extensions)"
            ),
            (RefusalCause::NotExecutable, _) => write!(f, "{path} is not an executable file: chmod +x it"),
        }
    }
}

impl Refusals {
    pub fn words(&self) -> Words<'_> {
        Words {
            cause: self.cause,
            path: &self.path,
            at: self.at.as_deref(),
        }
    }

    /// Adds refusals with the same cause and keeps the latest.
    pub fn add(&mut self, other: &Refusals) {
        let count = self.count.saturating_add(other.count);
        if other.time >= self.time {
            *self = other.clone();
        }
        self.count = count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_has_one_name_and_one_place() {
        for (index, cause) in RefusalCause::ALL.into_iter().enumerate() {
            assert_eq!(cause.index(), index);
            assert_eq!(
                serde_json::to_string(&cause).unwrap(),
                format!("\"{}\"", cause.name())
            );
        }
    }

    #[test]
    fn the_later_one_is_the_last() {
        let one = |time: u64, path: &str| Refusals {
            cause: RefusalCause::Missing,
            count: 2,
            time,
            path: path.to_owned(),
            at: None,
        };
        let mut sum = one(5, "/a");
        sum.add(&one(4, "/b"));
        assert_eq!((sum.count, sum.path.as_str()), (4, "/a"));
        sum.add(&one(6, "/c"));
        assert_eq!((sum.count, sum.time, sum.path.as_str()), (6, 6, "/c"));
    }
}
