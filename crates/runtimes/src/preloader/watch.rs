//! Watches the pool's files and requests a new generation when they change. The preloader does this as the pool's user,
//! because it has read them.

use forkyard_base::tick::Tick;
use forkyard_config::PathPattern;
use forkyard_core::master::debounce::Debounce;
use forkyard_sys::tree::{Choice, Tree};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

const ASK_INTERVAL: Duration = Duration::from_secs(1);
const ASK_MOST: u32 = 30;

pub(super) struct Watch {
    tree: Tree<Patterns>,
    changes: Debounce,
    changed: Tick,
    asks: u32,
    ask_at: Option<Tick>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("changed", &self.changed)
            .finish_non_exhaustive()
    }
}

struct Patterns(Vec<PathPattern>);

impl Choice for Patterns {
    fn enters(&self, directory: &Path) -> bool {
        self.0.iter().any(|pattern| pattern.leads_through(directory))
    }

    fn counts(&self, file: &Path) -> bool {
        self.0.iter().any(|pattern| pattern.matches(file))
    }
}

impl Watch {
    pub(super) fn begin(patterns: &[PathPattern]) -> Option<Box<Watch>> {
        if patterns.is_empty() {
            return None;
        }
        let mut roots: Vec<PathBuf> = patterns.iter().map(PathPattern::root).collect();
        roots.sort();
        roots.dedup();
        for missing in roots.iter().filter(|root| !root.is_dir()) {
            log::warn!(
                "changes below {} are not noticed: it is not there. Correct application.watch, and reload",
                missing.display()
            );
        }
        let mut tree = match Tree::new(roots, Patterns(patterns.to_vec())) {
            Ok(tree) => tree,
            Err(errno) => {
                log::error!(
                    "changes of watched files are not noticed: {errno}; is fs.inotify.max_user_instances reached?"
                );
                return None;
            }
        };
        say_trouble(&mut tree);
        Some(Box::new(Watch {
            tree,
            changes: Debounce::default(),
            changed: Tick::ZERO,
            asks: 0,
            ask_at: None,
        }))
    }

    pub(super) fn poll(&mut self, now: Tick) -> Option<Tick> {
        if self.tree.changed().is_some() {
            self.changes.note(now);
            self.changed = now;
        }
        say_trouble(&mut self.tree);
        if self.changes.take(now) {
            self.asks = 0;
            self.ask_at = Some(now);
        }
        if self.ask_at.is_none_or(|at| now < at) {
            return None;
        }
        self.asks += 1;
        self.ask_at = (self.asks < ASK_MOST).then(|| now + ASK_INTERVAL);
        Some(self.changed)
    }

    pub(super) fn deadline(&self) -> Option<Tick> {
        self.changes.deadline().into_iter().chain(self.ask_at).min()
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tree.as_fd()
    }
}

fn say_trouble(tree: &mut Tree<Patterns>) {
    if let Some((directory, errno)) = tree.take_trouble() {
        log::warn!(
            "changes below {} are not noticed: {errno}; raise fs.inotify.max_user_watches (sysctl), or let application.watch \
             name fewer directories",
            directory.display()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_asked_about_until_there_is_no_hope() {
        let dir = tempfile::tempdir().unwrap();
        let pattern = PathPattern::from(format!("{}/**/*.php", dir.path().display()));
        let mut watch = Watch::begin(&[pattern]).unwrap();
        let at = |ms: u64| Tick::from_nanos(ms * 1_000_000);
        assert_eq!((watch.poll(at(0)), watch.deadline()), (None, None));
        std::fs::write(dir.path().join("a.css"), "").unwrap();
        assert_eq!((watch.poll(at(1)), watch.deadline()), (None, None));
        std::fs::write(dir.path().join("a.php"), "").unwrap();
        assert_eq!(watch.poll(at(100)), None);
        assert_eq!(watch.deadline(), Some(at(300)));
        assert_eq!(watch.poll(at(300)), Some(at(100)));
        assert_eq!(watch.poll(at(1299)), None);
        assert_eq!(watch.poll(at(1300)), Some(at(100)));
        std::fs::write(dir.path().join("a.php"), "").unwrap();
        assert_eq!(watch.poll(at(1400)), None);
        let mut now = 1600;
        let mut asked = 0;
        while watch.poll(at(now)) == Some(at(1400)) {
            asked += 1;
            now += 1000;
        }
        assert_eq!((asked, watch.deadline()), (ASK_MOST, None));
        assert!(Watch::begin(&[]).is_none());
    }
}
