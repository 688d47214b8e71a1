//! Maps the paths of requests to the release of the worker's generation.

use super::context::Settings;
use super::page::Page;
use fastcgi::Params;
use forkyard_base::tick::Tick;
use forkyard_config::ProcessManager;
use forkyard_config::release::{Map, after_proxy, map_request};
use forkyard_sys::file::{existing_file, resolved};
use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SCRIPT: &[u8] = b"SCRIPT_FILENAME";
/// How many scripts a worker remembers as files of the release.
const MOST_SCRIPTS: usize = 1_024;
/// A worker checks the included files of this many requests, its first ones.
const FIRST: u32 = 20;

/// A worker checks at this interval whether its release still exists.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The directory of the release that a worker serves.
#[derive(Debug)]
pub(super) struct ReleaseDirectory {
    path: PathBuf,
    next_look: Tick,
}

impl ReleaseDirectory {
    /// Returns `None` if the worker has no release, or its router does the check.
    pub(super) fn of(settings: &Settings) -> Option<ReleaseDirectory> {
        let is_routed = matches!(settings.pool.pm, ProcessManager::Ordered { .. });
        let map = settings.release.as_deref().filter(|_| !is_routed)?;
        Some(ReleaseDirectory {
            path: map.release().to_owned(),
            next_look: Tick::ZERO,
        })
    }

    /// Whether the directory was removed. Makes at most one system call a second.
    pub(super) fn is_gone(&mut self, now: Tick) -> bool {
        if now < self.next_look {
            return false;
        }
        let found = fs::symlink_metadata(&self.path);
        let is_gone = found.is_err_and(|error| error.kind() == ErrorKind::NotFound);
        self.next_look = now + if is_gone { LOOK_AGAIN } else { LOOK_INTERVAL };
        is_gone
    }
}

#[derive(Debug)]
pub(super) struct ReleasePaths(Option<Box<Paths>>);

#[derive(Debug)]
struct Paths {
    map: Map,
    shared: Vec<PathBuf>,
    /// Scripts that lead to a file of the release. A release does not change.
    inside: RefCell<HashSet<Vec<u8>>>,
    looked_at: u32,
}

impl ReleasePaths {
    pub(super) fn of(settings: &Settings) -> ReleasePaths {
        let written = settings.pool.release.as_ref();
        let shared = written.map_or(Vec::new(), |release| release.shared.clone());
        let paths = settings
            .release
            .as_deref()
            .map(|map| Paths::new(map.clone(), shared));
        ReleasePaths(paths.map(Box::new))
    }

    /// Maps a request's paths. A script outside of all releases keeps its path, and is counted, and logged once in a
    /// generation.
    pub(super) fn apply(&mut self, params: &mut Params, page: &Page) {
        let Some(paths) = &mut self.0 else { return };
        let map = &mut paths.map;
        let mapped = |map: &Map, params: &Params| map_request(map, |name| params.get(name.as_bytes()));
        let mut request = mapped(map, params);
        if request.is_outside
            && !is_below(
                after_proxy(params.get(SCRIPT).unwrap_or_default()).1,
                &paths.shared,
            )
        {
            // A deployment may have added a release since the map was made.
            let now: Vec<_> = map.links().filter_map(resolved).collect();
            map.add(now);
            request = mapped(map, params);
        } else {
            request.is_outside = false;
        }
        for (name, value) in request.changes {
            params.set(name.as_bytes(), &value);
        }
        let is_first = || page.gate().is_some_and(|gate| gate.count_outside() == 0);
        if request.is_outside && is_first() {
            let script = params.get(SCRIPT).unwrap_or_default();
            log::warn!(
                "the script {} is in no release of {}: it runs as it is there, whichever release is in service",
                String::from_utf8_lossy(script),
                map.links().next().unwrap_or(map.release()).display()
            );
        }
    }

    /// Whether a script's path in the release or in a shared directory resolves to a file elsewhere.
    pub(super) fn leads_out(&self, script: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|paths| paths.leads_out(script))
    }

    /// Whether to check the files that the next request includes.
    pub(super) fn looks_at_files(&mut self) -> bool {
        let looks = self.0.as_mut().filter(|paths| paths.looked_at < FIRST);
        looks.map(|paths| paths.looked_at += 1).is_some()
    }

    /// Checks a file that a request has included. A file of another release is logged once in a generation.
    pub(super) fn included(&self, file: &[u8], page: &Page) {
        let Some(paths) = self.0.as_ref().filter(|paths| paths.map.is_of_another(file)) else {
            return;
        };
        if page.gate().is_some_and(|gate| gate.count_foreign() == 0) {
            if let Some(counters) = page.counters() {
                counters.note_foreign(file);
            }
            log::warn!(
                "a request included {}, which is not in its release {}: write __DIR__ in place of the link",
                String::from_utf8_lossy(file),
                paths.map.release().display()
            );
        }
    }
}

impl Paths {
    fn new(map: Map, shared: Vec<PathBuf>) -> Paths {
        Paths {
            map,
            shared,
            inside: RefCell::default(),
            looked_at: 0,
        }
    }

    fn leads_out(&self, script: &[u8]) -> bool {
        if self.inside.borrow().contains(script) {
            return false;
        }
        let release = self.map.release();
        if !path(script).starts_with(release) && !is_below(script, &self.shared) {
            return false;
        }
        let Some(real) = existing_file(path(script)) else {
            return false;
        };
        if real.starts_with(release) {
            let mut inside = self.inside.borrow_mut();
            if inside.len() < MOST_SCRIPTS {
                inside.insert(script.to_vec());
            }
            return false;
        }
        let mut shared = self.shared.iter().filter_map(|directory| resolved(directory));
        !shared.any(|directory| real.starts_with(directory))
    }
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn is_below(script: &[u8], directories: &[PathBuf]) -> bool {
    directories
        .iter()
        .any(|directory| path(script).starts_with(directory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_removed_directory_is_noticed_within_a_second_and_looked_for_each_minute() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("release");
        fs::create_dir(&path).unwrap();
        let mut release = ReleaseDirectory {
            path: path.clone(),
            next_look: Tick::ZERO,
        };
        let mut at = |seconds| release.is_gone(Tick::ZERO + Duration::from_secs(seconds));
        assert!(!at(10));
        fs::remove_dir(&path).unwrap();
        assert_eq!(
            [at(10), at(11), at(12), at(70), at(71)],
            [false, true, false, false, true]
        );
    }

    #[test]
    fn a_script_leads_into_its_release_or_a_shared_directory() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        for name in ["r/1/public", "r/2", "real/storage", "other"] {
            fs::create_dir_all(base.join(name)).unwrap();
            fs::write(base.join(name).join("x.php"), "").unwrap();
        }
        let link = |target: &str, name: &str| symlink(base.join(target), base.join(name)).unwrap();
        link("real", "shared");
        link("other/x.php", "r/1/out.php");
        link("r/2/x.php", "r/1/two.php");
        link("shared/storage", "r/1/storage");
        link("other", "real/storage/away");
        link("r/1/public/x.php", "r/1/again.php");
        let [one, two, current] =
            ["r/1", "r/2", "current"].map(|name| base.join(name).into_os_string().into_encoded_bytes());
        let map = Map::new(&current, &one, [&two[..]]);
        let rows = [
            ("r/1/public/x.php", false, false),
            ("r/1/again.php", false, false),
            ("r/1/again.php/info", false, false),
            ("r/1/storage/x.php", true, false),
            ("r/1/storage/away/x.php", true, true),
            ("shared/storage/x.php", false, false),
            ("shared/storage/away/x.php", false, true),
            ("r/1/out.php", true, true),
            ("r/1/out.php/info", true, true),
            ("r/1/two.php", true, true),
            ("r/1/../2/x.php", true, true),
            ("r/1/none.php", false, false),
            ("r/1/public", false, false),
            // In no release: it runs unchanged.
            ("other/x.php", false, false),
            ("r/2/x.php", false, false),
        ];
        let alone = Paths::new(map.clone(), Vec::new());
        let shared = Paths::new(map, vec![base.join("none"), base.join("shared")]);
        for _ in 0..2 {
            for (script, without, with) in rows {
                let script = base.join(script);
                let script = script.as_os_str().as_bytes();
                let led = [alone.leads_out(script), shared.leads_out(script)];
                assert_eq!(led, [without, with], "{}", path(script).display());
            }
        }
        assert_eq!(alone.inside.borrow().len(), 3);
    }
}
