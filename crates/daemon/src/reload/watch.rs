//! Watches the directories of `include`: a new, changed or removed file leads to a reload, which decides what to do.

use crate::context::sources::{Source, Sources};
use forkyard_base::tick::Tick;
use forkyard_config::{self as config, Watched};
use forkyard_core::master::debounce::Debounce;
use forkyard_sys::clock;
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags as Flags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Files younger than this at the start may have changed after the configuration was read.
const YOUNG: Duration = Duration::from_secs(60);

/// A file is complete when it was closed or renamed. A created file counts only if it can't be written to.
const INTERESTS: Flags = Flags::IN_CLOSE_WRITE
    .union(Flags::IN_MOVED_TO)
    .union(Flags::IN_MOVED_FROM)
    .union(Flags::IN_CREATE)
    .union(Flags::IN_DELETE)
    .union(Flags::IN_ATTRIB)
    .union(Flags::IN_DELETE_SELF)
    .union(Flags::IN_MOVE_SELF)
    .union(Flags::IN_ONLYDIR);

#[derive(Debug, Default)]
pub(crate) struct Watch {
    patterns: Vec<PathBuf>,
    open: Option<Open>,
    changes: Debounce,
    misses: bool,
}

#[derive(Debug)]
struct Open {
    inotify: Inotify,
    watched_paths: HashMap<WatchDescriptor, Vec<Watched>>,
}

impl Watch {
    pub(crate) fn follow(&mut self, sources: &mut Sources, patterns: &[PathBuf]) {
        if self.patterns == patterns {
            return;
        }
        let is_first = self.patterns.is_empty();
        patterns.clone_into(&mut self.patterns);
        self.reopen(sources);
        if is_first && self.open.is_some() && self.has_young_files() {
            self.changes.note(clock::now());
        }
    }

    fn reopen(&mut self, sources: &mut Sources) {
        let opened = match self.patterns.as_slice() {
            [] => Ok(None),
            patterns => Open::new(patterns).map(Some),
        };
        let opened = opened.unwrap_or_else(|what| {
            log::error!("changes of pools' files are not noticed, reload by hand: {what}");
            None
        });
        if let Some(open) = &opened {
            if let Err(error) = sources.watch(&open.inotify, Source::Directories) {
                log::error!("changes of pools' files are not noticed, reload by hand: {error}");
            }
        }
        // Events before the new watches count.
        self.read();
        if let Some(before) = std::mem::replace(&mut self.open, opened) {
            sources.forget(&before.inotify);
        }
    }

    pub(crate) fn read(&mut self) {
        let Some(open) = &self.open else { return };
        let mut is_cause = false;
        loop {
            match open.inotify.read_events() {
                Ok(events) if events.is_empty() => break,
                Ok(events) => is_cause |= events.iter().any(|event| open.concerns(event)),
                Err(Errno::EINTR) => {}
                Err(_) => break,
            }
        }
        if is_cause {
            self.changes.note(clock::now());
        }
    }

    pub(crate) fn deadline(&self) -> Option<Tick> {
        self.changes.deadline()
    }

    pub(crate) fn take_changes(&mut self, sources: &mut Sources) -> bool {
        if !self.changes.take(clock::now()) {
            return false;
        }
        // Watches before reading, because the directory may have been replaced.
        self.reopen(sources);
        let missing = config::missing_directory(&self.patterns);
        let misses = missing.is_some();
        if let Some(missing) = missing.filter(|_| !self.misses) {
            log::error!(
                "{} is gone: its pools go on until it is there again",
                missing.display()
            );
        }
        self.misses = misses;
        !misses
    }
}

#[derive(Debug, thiserror::Error)]
enum WatchError {
    #[error("{0}; is fs.inotify.max_user_instances reached?")]
    Instances(Errno),
    #[error("{}: {}; raise fs.inotify.max_user_watches (sysctl)", .0.display(), Errno::ENOSPC)]
    Watches(PathBuf),
    #[error("{}: {}; make it readable", .0.display(), .1)]
    Directory(PathBuf, Errno),
}

impl Open {
    fn new(patterns: &[PathBuf]) -> Result<Open, WatchError> {
        let inotify =
            Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).map_err(WatchError::Instances)?;
        let mut watched_paths: HashMap<WatchDescriptor, Vec<Watched>> = HashMap::new();
        for watched in config::watched(patterns) {
            match inotify.add_watch(&watched.directory, INTERESTS) {
                Ok(descriptor) => watched_paths.entry(descriptor).or_default().push(watched),
                // It is gone; another event reports that.
                Err(Errno::ENOENT | Errno::ENOTDIR) => {}
                Err(Errno::ENOSPC) => return Err(WatchError::Watches(watched.directory)),
                Err(errno) => return Err(WatchError::Directory(watched.directory, errno)),
            }
        }
        Ok(Open {
            inotify,
            watched_paths,
        })
    }

    /// Whether an event may concern a pool.
    fn concerns(&self, event: &InotifyEvent) -> bool {
        // After an overflow nothing is known. A removed or replaced directory has no name.
        let Some(name) = &event.name else {
            return !event.mask.contains(Flags::IN_ATTRIB);
        };
        let Some(watched_paths) = self.watched_paths.get(&event.wd) else {
            return false;
        };
        watched_paths.iter().any(|watched| {
            let name = Path::new(name);
            watched.has(name)
                && (!event.mask.contains(Flags::IN_CREATE) || is_whole(&watched.directory.join(name)))
        })
    }
}

/// Whether a created file is complete: a regular file is written first, and reported when it is closed.
fn is_whole(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|it| !it.is_file() || it.nlink() > 1)
}

impl Watch {
    /// Whether the configuration may have been read before its files were complete.
    fn has_young_files(&self) -> bool {
        let is_young = |path: &Path| {
            let changed = path.metadata().and_then(|it| it.modified());
            changed.is_ok_and(|then| {
                SystemTime::now()
                    .duration_since(then)
                    .is_ok_and(|age| age < YOUNG)
            })
        };
        config::watched(&self.patterns).iter().any(|watched| {
            let files = std::fs::read_dir(&watched.directory)
                .into_iter()
                .flatten()
                .flatten();
            let own = || files.filter(|file| watched.has(Path::new(&file.file_name())));
            is_young(&watched.directory) || own().any(|file| is_young(&file.path()))
        })
    }
}
