//! The facts about a generation's start and its code.

use forkyard_base::text::is_control;
use forkyard_config::Trial;
use forkyard_protocol::handover::document::Had;
use forkyard_runtimes::php::files::{self, Fingerprint, FingerprintCache};
use forkyard_runtimes::php::protocol::BootTimes;
use std::path::PathBuf;

const MOST_OF_A_NAME: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct Make {
    pub(crate) origin: Option<Fingerprint>,
    /// The directory of its extensions, and those from elsewhere, when its preloader was ready.
    pub(crate) extensions: Vec<(PathBuf, Fingerprint)>,
    pub(crate) powered_by: Option<String>,
    pub(crate) is_known: bool,
    /// Some of its workers come from a preloader that was started from other files.
    pub(crate) is_mixed: bool,
    /// Its processes do not check their code for changes.
    pub(crate) is_code_cached: bool,
    /// Why no zygote can fork its workers: it has its own preloader.
    pub(crate) unfit: Option<String>,
    /// The search for settings that prevent PHP's start; `None`: PHP starts with all settings.
    pub(crate) trial: Option<Trial>,
    pub(crate) has_told_trial: bool,
    pub(crate) has_failed: bool,
    pub(crate) came_up: bool,
    /// The boot time of its application, if it boots once and this master saw it.
    pub(crate) boot: Option<BootTimes>,
    /// The servers that its application connected to when a preloader loaded it: now each worker loads it.
    pub(crate) connected_to: Option<String>,
}

pub(crate) fn credible_reason(reason: &str) -> String {
    const MOST: usize = 200;
    reason.chars().filter(|c| !is_control(*c)).take(MOST).collect()
}

impl Make {
    pub(crate) fn remember(&mut self, had: Had) {
        self.origin = had.origin.map(Fingerprint::from_number);
        self.is_code_cached = had.is_code_cached;
    }

    pub(crate) fn begin(&mut self, origin: Option<Fingerprint>, has_workers: bool) {
        if self.origin.is_some() && self.origin != origin && has_workers {
            self.is_mixed = true;
        }
        self.origin = origin;
        self.extensions.clear();
    }
}

/// A preloader's facts about itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// Loaded code is never checked for changes.
    pub(crate) is_code_cached: bool,
    /// The boot time of its application, if it boots once.
    pub(crate) boot: Option<BootTimes>,
    /// The servers that its application connected to: each worker loads it.
    pub(crate) connected_to: Option<String>,
    pub(crate) powered_by: Option<String>,
    /// The directory of its extensions, and those from elsewhere, when it was ready.
    pub(crate) extensions: Vec<(PathBuf, Fingerprint)>,
}

impl Facts {
    /// The credible part of what a preloader sends. If it lies, only its own pools are replaced too often or too seldom.
    pub(crate) fn credible(
        directory: Option<PathBuf>,
        loaded: &[PathBuf],
        powered_by: Option<String>,
        is_code_cached: bool,
        boot: Option<BootTimes>,
        connected_to: Option<String>,
    ) -> Facts {
        let is_credible =
            |text: &String| text.len() <= MOST_OF_A_NAME && text.bytes().all(|b| b.is_ascii_graphic());
        let is_elsewhere = |path: &&PathBuf| path.parent() != directory.as_deref();
        let files = directory.iter().chain(loaded.iter().filter(is_elsewhere));
        let mut fingerprints = FingerprintCache::default();
        let boot = boot.map(|boot| BootTimes {
            isolation: boot.isolation.filter(is_credible),
            boots_again: boot.boots_again.map(|reason| credible_reason(&reason)),
            ..boot
        });
        Facts {
            is_code_cached,
            boot,
            connected_to: connected_to.map(|servers| credible_reason(&servers)),
            powered_by: powered_by.filter(is_credible),
            extensions: files
                .filter(|path| files::is_credible(path))
                .map(|path| (path.clone(), fingerprints.path(path)))
                .collect(),
        }
    }
}
