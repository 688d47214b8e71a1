//! How the daemon was started: as forkyard or in place of php-fpm.

use crate::FPM_TITLE;
use forkyard_config::{self as config, Config, Diagnostic, Severity, Skipped};
use forkyard_protocol::control::Complaint;
use std::path::{Path, PathBuf};

pub type ReadConfig = Box<dyn FnMut() -> Result<Config, Vec<Complaint>>>;

pub struct Frontend {
    pub name: &'static str,
    pub title: &'static str,
    /// Reads the configuration again, and logs why it is unusable.
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

/// Logs the diagnostics of a usable configuration. Skipped pools are logged when they are skipped.
pub fn log_diagnostics(diagnostics: &[Diagnostic]) {
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
