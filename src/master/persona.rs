//! What is the daemon's own when the same master runs under different names.

use crate::config::{self, Config, Finding, Severity, Skipped};
use crate::control::protocol::Complaint;
use std::path::{Path, PathBuf};

/// Reads a configuration, or says what is wrong with it.
pub type ReadConfig = Box<dyn FnMut() -> Result<Config, Vec<Complaint>>>;

/// The title of a daemon that is in php-fpm's place.
pub(super) const FPM_TITLE: &str = "php-fpm";

/// What is the daemon's own when the same master runs under different names.
pub struct Persona {
    /// Its name in the log.
    pub name: &'static str,
    /// The word before the colon in process titles.
    pub title: &'static str,
    /// Reads the configuration anew. What is wrong with one that can't be used is said in the log, too.
    pub reload: ReadConfig,
}

impl Persona {
    /// Whether it is in php-fpm's place.
    pub(super) fn speaks_as_fpm(&self) -> bool {
        self.title == FPM_TITLE
    }

    /// forkyard itself, with the configuration file that it reads anew.
    pub fn forkyard(path: PathBuf) -> Persona {
        Persona {
            name: "forkyard",
            title: "forkyard",
            reload: Box::new(move || reload(&path)),
        }
    }
}

fn reload(path: &Path) -> Result<Config, Vec<Complaint>> {
    match config::load(path) {
        Ok(loaded) => {
            say_findings(&loaded.warnings);
            Ok(loaded.config)
        }
        Err(errors) => {
            for finding in errors.errors() {
                log::error!("{}", finding.said_of(None));
            }
            Err(errors.complaints())
        }
    }
}

/// Tells what was found in a configuration that can be used. Of pools that are skipped it is told when that is done.
pub(crate) fn say_findings(findings: &[Finding]) {
    let warnings = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Warning);
    warnings.for_each(|finding| log::warn!("{}", finding.said_of(None)));
}

/// Tells which pools can't be had, and why.
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
