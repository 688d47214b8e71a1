//! What PHP was started from when the daemon was, or at its last reload: it holds for processes that are started later.

use super::Edge;
use crate::config::Application;
use crate::master::event::GenerationId;
use crate::runtime::php::files::{Fingerprint, Origin};
use crate::runtime::php::held::Held;
use crate::sys::memfile;
use crate::worker::Settings;
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// What says where PHP starts from. Which files that are may change: php.ini is looked for in two places.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    version: String,
    library: Option<PathBuf>,
    php_ini: Option<PathBuf>,
    no_php_ini: bool,
    scan_dir: Option<OsString>,
}

/// One origin, as it was.
#[derive(Debug)]
pub(super) struct Start {
    held: Held,
    /// It was said that it is another one by now.
    is_told: bool,
}

/// What a preloader is about to be started from.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) fingerprint: Option<Fingerprint>,
    /// The files of settings, if it is not to read those that are there.
    pub(super) ini: Option<OwnedFd>,
}

impl Edge {
    /// What is there now holds until the next reload.
    pub(in crate::master) fn hold_starts(&mut self) {
        self.starts.clear();
        let latest = self.pools.values().filter_map(|pool| pool.latest);
        let settings = latest
            .filter_map(|id| self.generations.get(&id))
            .map(|g| &g.settings);
        let mut starts = HashMap::new();
        for settings in settings {
            let (Some(key), Some(origin)) = (self.start_key(settings), self.origin(settings)) else {
                continue;
            };
            starts.entry(key).or_insert_with(|| Start::new(&origin));
        }
        self.starts = starts;
    }

    /// What a generation's preloader is to be started from. If files changed, the log says so, once.
    pub(super) fn start_source(&mut self, id: GenerationId) -> Source {
        let settings = self.generations.get(&id).map(|generation| &generation.settings);
        let found = settings.and_then(|settings| Some((self.start_key(settings)?, self.origin(settings)?)));
        let Some((key, origin)) = found else {
            return Source::default();
        };
        // An application may want what no pool has wanted yet.
        let start = self.starts.entry(key).or_insert_with(|| Start::new(&origin));
        let Some(changes) = start.held.changes(&origin) else {
            return Source {
                fingerprint: Some(start.held.fingerprint()),
                ini: None,
            };
        };
        if !std::mem::replace(&mut start.is_told, true) {
            log::info!("{}", changes.line());
        }
        let ini = start.held.ini().filter(|_| !changes.ini.is_empty());
        let ini = ini.and_then(|files| match serde_json::to_vec(files) {
            Ok(json) => memfile::sealed("forkyard-php-ini", &json)
                .map_err(|error| log::error!("{error}"))
                .ok(),
            Err(error) => {
                log::error!("php.ini of before can't be handed on: {error}");
                None
            }
        });
        // The next reload finds that it is not what is there.
        Source {
            fingerprint: Some(start.held.fingerprint()),
            ini,
        }
    }

    fn start_key(&self, settings: &Settings) -> Option<Key> {
        let Application::Php(php) = &settings.pool.application else {
            return None;
        };
        Some(Key {
            version: php.version.clone(),
            library: php.library.clone(),
            php_ini: php.php_ini.clone(),
            no_php_ini: php.no_php_ini,
            scan_dir: php
                .scan_dir
                .clone()
                .map(OsString::from)
                .or_else(|| self.scan_dir(settings)),
        })
    }
}

impl Start {
    fn new(origin: &Origin) -> Start {
        Start {
            held: Held::take(origin),
            is_told: false,
        }
    }
}
