//! `tmp/restart.txt` of a pool with one application. Workers check it as they accept work. After a change
//! (`has_changed`) they ask the master for new processes (`ask_restart` in `accept_notify.rs`). The master checks the
//! file itself (`pool_to_restart` in `crates/daemon/src/reload/mod.rs`, `grants` in
//! `crates/core/src/master/pool_restart.rs`) and reloads the pool (`begin_restart` in `crates/daemon/src/master/pool_requests.rs`).

use super::context::Settings;
use forkyard_base::tick::Tick;
use forkyard_config::ProcessManager;
use forkyard_sys::file::stamp;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

const NAME: &str = "tmp/restart.txt";
const INTERVAL: Duration = Duration::from_secs(1);

/// Device, inode and modification time in nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartMark(u64, u64, i64);

impl RestartMark {
    /// The file's current state; `None` if it is missing.
    pub fn of(path: &Path) -> Option<RestartMark> {
        stamp(path).map(|(device, inode, modified)| RestartMark(device, inode, modified))
    }
}

#[derive(Debug)]
pub(super) struct RestartFile {
    path: PathBuf,
    then: Option<RestartMark>,
    looked: Option<Tick>,
}

impl RestartFile {
    pub(super) fn of(settings: &Settings) -> Option<RestartFile> {
        Some(RestartFile {
            path: settings.restart_file()?,
            then: settings.restart_mark,
            looked: None,
        })
    }

    pub(super) fn has_changed(&mut self, now: Tick) -> bool {
        if self.looked.is_some_and(|looked| now.since(looked) < INTERVAL) {
            return false;
        }
        self.looked = Some(now);
        let mark = RestartMark::of(&self.path);
        mark.is_some() && mark != self.then
    }
}

impl Settings {
    /// The restart file. `None`: the application has no directory, may see another root directory, or is checked by a
    /// router.
    pub fn restart_file(&self) -> Option<PathBuf> {
        let is_routed = matches!(self.pool.pm, ProcessManager::Ordered { .. });
        let is_loaded = self.pool.application.traits().has_restart_file;
        let root = self.pool.application.root()?;
        (is_loaded && !is_routed && self.pool.setup.chroot.is_none()).then(|| root.join(NAME))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_comes_or_changes_is_noticed_and_looked_at_once_a_second() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("restart.txt");
        let at = |millis| Tick::ZERO + Duration::from_millis(millis);
        let mut file = RestartFile {
            path: path.clone(),
            then: None,
            looked: None,
        };
        assert!(!file.has_changed(at(0)));
        std::fs::write(&path, "").unwrap();
        assert!(!file.has_changed(at(999)) && file.has_changed(at(1000)));
        file.then = RestartMark::of(&path);
        assert!(!file.has_changed(at(2000)));
        let later = std::time::UNIX_EPOCH + Duration::from_secs(5);
        std::fs::File::open(&path).unwrap().set_modified(later).unwrap();
        assert!(file.has_changed(at(3000)));
        std::fs::remove_file(&path).unwrap();
        assert!(!file.has_changed(at(4000)));
    }
}
