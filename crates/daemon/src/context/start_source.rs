//! The sources of PHP's start as of the daemon's start or last reload; they hold for later processes.

use super::services::Services;
use forkyard_config::{Config, Pool};
use forkyard_fpm_config::release_of;
use forkyard_runtimes::php::files::{Fingerprint, Origin};
use forkyard_runtimes::php::ini_snapshot::{Changes, IniSnapshot};
use forkyard_runtimes::php::settings::exposes;
use forkyard_sys::memfile;
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

const SCAN_DIR: &str = "PHP_INI_SCAN_DIR";

#[derive(Debug, Default)]
pub(crate) struct Starts(HashMap<Key, Start>);

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
pub(crate) struct Source {
    pub(crate) fingerprint: Option<Fingerprint>,
    /// The settings files of the last reload, if those on disk have changed.
    pub(crate) ini: Option<OwnedFd>,
}

impl Services {
    /// The present sources for these pools. Read before sockets are bound: a client that finds one may assume that
    /// php.ini was read.
    pub(crate) fn starts(&self, config: &Config) -> Starts {
        let mut starts = Starts::default();
        for pool in &config.pools {
            starts.start(self, pool);
        }
        starts
    }
}

impl Starts {
    /// Holds until the next reload; continuing pools ([`forkyard_config::Skipped`]) keep theirs.
    pub(crate) fn hold(&mut self, starts: Starts, config: &Config) {
        let mut before = std::mem::replace(self, starts);
        // A continuing preloader does not send its files again.
        for (key, start) in &mut self.0 {
            if let Some(before) = before.0.get(key) {
                start.held.note_extensions(before.held.extensions());
            }
        }
        let pools = config.pools.iter().map(AsRef::as_ref);
        let kept = pools.filter(|pool: &&Pool| config.goes_on(&pool.name));
        for key in kept.filter_map(start_key) {
            if let Some(start) = before.0.remove(&key) {
                self.0.entry(key).or_insert(start);
            }
        }
    }

    /// Records a preloader's loaded extensions: later preloaders of the same start must load the same.
    pub(crate) fn note_loaded(&mut self, pool: &Pool, files: &[PathBuf]) {
        if let Some(start) = start_key(pool).and_then(|key| self.0.get_mut(&key)) {
            start.held.note_extensions(files);
        }
    }

    /// The start of a pool's PHP. An application may need sources that no pool had.
    fn start(&mut self, services: &Services, pool: &Pool) -> Option<(&mut Start, Origin)> {
        let (key, origin) = (start_key(pool)?, services.origin(pool)?);
        let start = self.0.entry(key).or_insert_with(|| Start::new(&origin));
        Some((start, origin))
    }

    /// The sources for a PHP process of a pool. Changed files are logged once per change.
    pub(crate) fn source(&mut self, services: &Services, pool: &Pool) -> Source {
        let Some((start, origin)) = self.start(services, pool) else {
            return Source::default();
        };
        // The next reload finds a difference.
        let fingerprint = Some(start.held.fingerprint());
        let Some(changes) = start.held.changes(&origin) else {
            return Source {
                fingerprint,
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
        start.told = Some(changes);
        Source { fingerprint, ini }
    }

    pub(crate) fn expected_name(&mut self, services: &Services, pool: &Pool) -> Option<String> {
        let php = pool.application.php()?;
        let (start, origin) = self.start(services, pool)?;
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
    let own_scan_dir = php.scan_dir.clone().map(OsString::from);
    Some(Key {
        version: php.version.clone(),
        library: php.library.clone(),
        php_ini: php.php_ini.clone(),
        no_php_ini: php.no_php_ini,
        scan_dir: own_scan_dir.or_else(|| scan_dir(pool)),
    })
}

/// PHP_INI_SCAN_DIR of a preloader's environment; must agree with [`forkyard_worker::environment`].
pub(crate) fn scan_dir(pool: &Pool) -> Option<OsString> {
    let mut own = pool.environment.env.iter().filter(|(name, _)| name == SCAN_DIR);
    match own.next() {
        Some((_, value)) => Some(OsString::from(value)),
        None if pool.environment.clear_env => None,
        None => std::env::var_os(SCAN_DIR),
    }
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
