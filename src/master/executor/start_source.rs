//! The sources of PHP's start as of the daemon's start or last reload; they hold for later processes.

use super::{Context, Executor, Reload};
use crate::config::fpm::release_of;
use crate::config::{Config, Pool};
use crate::runtime::php::files::{Fingerprint, Origin};
use crate::runtime::php::ini_snapshot::{Changes, IniSnapshot};
use crate::runtime::php::settings::exposes;
use crate::sys::memfile;
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

const SCAN_DIR: &str = "PHP_INI_SCAN_DIR";

#[derive(Debug, Default)]
pub(in crate::master) struct Starts(HashMap<Key, Start>);

/// The settings that select PHP's files. The files may change: php.ini has two places.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    version: String,
    library: Option<PathBuf>,
    php_ini: Option<PathBuf>,
    no_php_ini: bool,
    scan_dir: Option<OsString>,
}

#[derive(Debug)]
struct Start {
    held: IniSnapshot,
    told: Option<Changes>,
    /// libphp's release, once it was read.
    release: Option<Option<String>>,
}

#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) fingerprint: Option<Fingerprint>,
    /// The settings files of the last reload, if those on disk have changed.
    pub(super) ini: Option<OwnedFd>,
}

impl Executor {
    /// Records a preloader's loaded extensions: later preloaders of the same start must load the same.
    pub(super) fn note_loaded(&mut self, pid: i32, files: &[PathBuf]) {
        let Some(preloader) = self.helpers.preloaders.get(&pid) else {
            return;
        };
        let first = preloader.members.all().next();
        let generation = first.and_then(|id| self.pools.generations.get(&id));
        let common = preloader.members.sources();
        let settings = common.or(generation.map(|generation| &generation.settings));
        let key = settings.and_then(|settings| start_key(&settings.pool));
        if let Some(start) = key.and_then(|key| self.reload.starts.0.get_mut(&key)) {
            start.held.note_extensions(files);
        }
    }
}

impl Context {
    /// The present sources for these pools. Read before sockets are bound: a client that finds one may assume that
    /// php.ini was read.
    pub(in crate::master) fn starts(&self, config: &Config) -> Starts {
        let mut starts = HashMap::new();
        for pool in &config.pools {
            if let (Some(key), Some(origin)) = (start_key(pool), self.origin(pool)) {
                starts.entry(key).or_insert_with(|| Start::new(&origin));
            }
        }
        Starts(starts)
    }
}

impl Reload {
    /// Holds until the next reload; continuing pools ([`crate::config::Skipped`]) keep theirs.
    pub(in crate::master) fn hold(&mut self, starts: Starts) {
        let mut before = std::mem::replace(&mut self.starts, starts);
        // A continuing preloader does not send its files again.
        for (key, start) in &mut self.starts.0 {
            if let Some(before) = before.0.get(key) {
                start.held.note_extensions(before.held.extensions());
            }
        }
        let pools = self.config.pools.iter().map(AsRef::as_ref);
        let kept = pools.filter(|pool: &&Pool| self.config.goes_on(&pool.name));
        for key in kept.filter_map(start_key) {
            if let Some(start) = before.0.remove(&key) {
                self.starts.0.entry(key).or_insert(start);
            }
        }
    }

    /// The sources for a PHP process of a pool. Changed files are logged once per change.
    pub(super) fn start_source(&mut self, context: &Context, pool: &Pool) -> Source {
        let found = start_key(pool).and_then(|key| Some((key, context.origin(pool)?)));
        let Some((key, origin)) = found else {
            return Source::default();
        };
        // An application may need sources that no pool had.
        let start = self.starts.0.entry(key).or_insert_with(|| Start::new(&origin));
        let Some(changes) = start.held.changes(&origin) else {
            return Source {
                fingerprint: Some(start.held.fingerprint()),
                ini: None,
            };
        };
        if start.told.as_ref() != Some(&changes) {
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
        // The next reload finds the difference.
        let fingerprint = Some(start.held.fingerprint());
        start.told = Some(changes);
        Source { fingerprint, ini }
    }

    pub(super) fn expected_name(&mut self, context: &Context, pool: &Pool) -> Option<String> {
        let php = pool.application.php()?;
        let (key, origin) = (start_key(pool)?, context.origin(pool)?);
        let start = self.starts.0.entry(key).or_insert_with(|| Start::new(&origin));
        if !exposes(php, start.held.ini()) {
            return None;
        }
        let release = start
            .release
            .get_or_insert_with(|| origin.library.as_deref().and_then(release_of));
        release.as_ref().map(|release| format!("PHP/{release}"))
    }
}

fn start_key(pool: &Pool) -> Option<Key> {
    let php = pool.application.php()?;
    Some(Key {
        version: php.version.clone(),
        library: php.library.clone(),
        php_ini: php.php_ini.clone(),
        no_php_ini: php.no_php_ini,
        scan_dir: php
            .scan_dir
            .clone()
            .map(OsString::from)
            .or_else(|| scan_dir(pool)),
    })
}

/// PHP_INI_SCAN_DIR of a preloader's environment; must agree with [`crate::worker::environment`].
pub(super) fn scan_dir(pool: &Pool) -> Option<OsString> {
    let mut own = pool.environment.env.iter().filter(|(name, _)| name == SCAN_DIR);
    let inherited = || {
        (!pool.environment.clear_env)
            .then(|| std::env::var_os(SCAN_DIR))
            .flatten()
    };
    own.next()
        .map(|(_, value)| OsString::from(value))
        .or_else(inherited)
}

impl Start {
    fn new(origin: &Origin) -> Start {
        Start {
            held: IniSnapshot::take(origin),
            told: None,
            release: None,
        }
    }
}
