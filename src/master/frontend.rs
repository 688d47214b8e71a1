//! The command that the daemon was started by: the same master runs as forkyard and in php-fpm's place.

use crate::config::{self, Config, Diagnostic, Severity, Skipped};
use crate::control::protocol::Complaint;
use std::path::{Path, PathBuf};

pub type ReadConfig = Box<dyn FnMut() -> Result<Config, Vec<Complaint>>>;

/// The title of a daemon that is in php-fpm's place.
pub(super) const FPM_TITLE: &str = "php-fpm";

pub struct Frontend {
    pub name: &'static str,
    pub title: &'static str,
    pub read_config: ReadConfig,
}

impl Frontend {
    /// Whether it is in php-fpm's place.
    pub(super) fn speaks_as_fpm(&self) -> bool {
        self.title == FPM_TITLE
    }

    pub fn forkyard(path: PathBuf) -> Frontend {
        Frontend {
            name: "forkyard",
            title: "forkyard",
            read_config: Box::new(move || read_config(&path)),
        }
    }
}

fn read_config(path: &Path) -> Result<Config, Vec<Complaint>> {
    match config::load(path) {
        Ok(loaded) => {
            log_diagnostics(&loaded.warnings);
            Ok(loaded.config)
        }
        Err(errors) => {
            for diagnostic in errors.errors() {
                log::error!("{}", diagnostic.said_of(None));
            }
            Err(errors.complaints())
        }
    }
}

/// Tells what was found in a configuration that can be used. Of pools that are skipped it is told when that is done.
pub(crate) fn log_diagnostics(diagnostics: &[Diagnostic]) {
    let warnings = diagnostics
        .iter()
        .filter(|diagnostic| diagnostic.severity == Severity::Warning);
    warnings.for_each(|diagnostic| log::warn!("{}", diagnostic.said_of(None)));
}

pub(super) fn say_skipped(skipped: &[Skipped]) {
    for one in skipped {
        for reason in &one.reasons {
            match &one.pool {
                Some(pool) => log::error!("[pool {pool}] {reason}"),
                None => log::error!("{reason}"),
            }
        }
        log::error!("{one}");
    }
}
