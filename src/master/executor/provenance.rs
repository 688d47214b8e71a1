//! The sources of a generation and their changes ([`crate::master::reload_diff`] decides what follows).

use super::generation::Generation;
use super::pools::RunningPool;
use super::shared::Facts;
use super::start_source::scan_dir;
use super::{Context, Executor, Pools};
use crate::config::{Pool, ReloadWhen, Trial};
use crate::handover::document::Had;
use crate::master::action::Fact;
use crate::master::event::{GenerationId, PoolId};
use crate::master::reload_diff::{self, Comparison, Reason, ReloadScope};
use crate::runtime::php::files::{self, Fingerprint, FingerprintCache, Origin};
use crate::runtime::php::protocol::BootTimes;
use crate::runtime::php::settings as php_settings;
use crate::worker::Settings;
use forkyard_base::text::is_control;
use std::path::PathBuf;

const MOST_OF_A_NAME: usize = 100;

#[derive(Debug, Default)]
pub(super) struct Make {
    pub(super) origin: Option<Fingerprint>,
    /// The directory of its extensions, and those from elsewhere, when its preloader was ready.
    extensions: Vec<(PathBuf, Fingerprint)>,
    pub(super) powered_by: Option<String>,
    pub(super) is_known: bool,
    /// Some of its workers come from a preloader that was started from other files.
    is_mixed: bool,
    /// Its processes do not check their code for changes.
    is_code_cached: bool,
    /// Why no zygote can fork its workers: it has its own preloader.
    pub(super) unfit: Option<String>,
    /// The search for settings that prevent PHP's start; `None`: it starts with all of them.
    pub(super) trial: Option<Trial>,
    pub(super) has_told_trial: bool,
    pub(super) has_failed: bool,
    pub(super) came_up: bool,
    /// The boot time of its application, if it boots once and this master saw it.
    pub(super) boot: Option<BootTimes>,
    /// The servers that its application connected to when a preloader loaded it: now each worker loads it.
    pub(super) connected_to: Option<String>,
}

pub(super) fn credible_reason(reason: &str) -> String {
    const MOST: usize = 200;
    reason.chars().filter(|c| !is_control(*c)).take(MOST).collect()
}

impl Make {
    pub(super) fn remember(&mut self, had: Had) {
        self.origin = had.origin.map(Fingerprint::from_number);
        self.is_code_cached = had.is_code_cached;
    }

    pub(super) fn begin(&mut self, origin: Option<Fingerprint>, has_workers: bool) {
        if self.origin.is_some() && self.origin != origin && has_workers {
            self.is_mixed = true;
        }
        self.origin = origin;
        self.extensions.clear();
    }
}

impl Executor {
    /// A preloader's facts about itself. If it lies, only its own pools are replaced too often or too seldom.
    pub(super) fn facts(
        extensions: Option<PathBuf>,
        loaded: &[PathBuf],
        powered_by: Option<String>,
        is_code_cached: bool,
        boot: Option<BootTimes>,
        connected_to: Option<String>,
    ) -> Facts {
        let is_credible =
            |text: &String| text.len() <= MOST_OF_A_NAME && text.bytes().all(|b| b.is_ascii_graphic());
        let is_elsewhere = |path: &&PathBuf| path.parent() != extensions.as_deref();
        let files = extensions.iter().chain(loaded.iter().filter(is_elsewhere));
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

impl Pools {
    pub(super) fn had(&self, pool: &RunningPool) -> Option<Had> {
        let serving = pool.serving.and_then(|serving| self.generations.get(&serving));
        let make = serving.map(|serving| &serving.make);
        Some(Had {
            left_at: pool.left_at?.as_nanos(),
            origin: make.and_then(|make| make.origin).map(Fingerprint::number),
            is_code_cached: make.is_some_and(|make| make.is_code_cached),
        })
    }

    pub(super) fn kept(
        &self,
        context: &Context,
        pool: PoolId,
        settings: &Settings,
        extent: ReloadScope,
        fingerprints: &mut FingerprintCache,
    ) -> Result<GenerationId, Reason> {
        let Some(running) = self.by_id.get(&pool) else {
            return Err(Reason::Settings);
        };
        // The latest generation, which may still be starting, otherwise the serving one.
        let known = [running.latest, running.serving].into_iter().flatten();
        let known = known.filter_map(|id| Some((id, self.generations.get(&id)?)));
        reload_diff::kept(known.map(|(id, it)| (id, context.difference(it, settings, extent, fingerprints))))
    }

    pub(super) fn note_origin(&mut self, id: GenerationId, origin: Option<Fingerprint>) {
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.make.begin(origin, !generation.slots.is_empty());
        }
    }

    pub(super) fn loads_in_workers(&self, id: GenerationId) -> bool {
        let generation = self.generations.get(&id);
        generation.is_some_and(|generation| generation.make.connected_to.is_some())
    }

    pub(super) fn note_facts(&mut self, id: GenerationId, facts: Facts) {
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.make.is_code_cached = facts.is_code_cached;
            generation.make.powered_by = facts.powered_by;
            generation.make.boot = facts.boot;
            // A later preloader loads no application and does not know.
            let known = generation.make.connected_to.take();
            generation.make.connected_to = facts.connected_to.or(known);
            // A zygote knows no settings of its workers.
            let own = |name| {
                generation
                    .uses_zygote()
                    .then(|| flag(&generation.settings.pool, name))?
            };
            let (looks, exposes) = (own("opcache.validate_timestamps"), own("expose_php"));
            if let Some(looks) = looks {
                generation.make.is_code_cached = !looks;
            }
            if exposes == Some(false) {
                generation.make.powered_by = None;
            }
            generation.make.extensions = facts.extensions;
            generation.make.is_known = true;
            generation.tell_left_out();
        }
    }

    pub(super) fn note(&mut self, fact: Fact) {
        match fact {
            Fact::Serves(id) => {
                if let Some(pool) = self.generations.get(&id).map(|generation| generation.pool) {
                    self.serves(pool, id);
                }
            }
            Fact::Fails(id) => {
                if let Some(generation) = self.generations.get_mut(&id) {
                    generation.make.has_failed = true;
                }
            }
            Fact::Up(_) | Fact::Waits(_) | Fact::Gone(_) => {}
        }
    }
}

impl Context {
    fn difference(
        &self,
        generation: &Generation,
        wanted: &Settings,
        extent: ReloadScope,
        fingerprints: &mut FingerprintCache,
    ) -> Option<Reason> {
        let (now, make) = (&generation.settings, &generation.make);
        let comparison = Comparison {
            pool: generation.pool,
            is_same_user: now.identity == wanted.identity,
            has_same_settings: is_alike(now, wanted),
            is_always_replaced: wanted.pool.replacement.reload == ReloadWhen::Always,
            // The left-out settings may be right by now.
            has_failed: make.has_failed || make.trial.is_some(),
            is_code_cached: make.is_code_cached || wanted.pool.application.traits().starts_from_disk,
        };
        comparison.difference(extent, || {
            let is_other_origin = match (self.origin(&wanted.pool), make.origin) {
                (Some(origin), Some(then)) => fingerprints.origin(&origin) != then,
                // Nothing has started yet, or it is not PHP.
                (None, _) | (_, None) => false,
            };
            let mut extensions = make.extensions.iter();
            make.is_mixed
                || is_other_origin
                || extensions.any(|(path, then)| fingerprints.path(path) != *then)
        })
    }

    /// The sources of PHP's start; `None` if the pool is not PHP.
    pub(super) fn origin(&self, pool: &Pool) -> Option<Origin> {
        let php = pool.application.php()?;
        let scan_dir = scan_dir(pool);
        let program = self.libexec.join("forkyard-php");
        Some(Origin::new(php, program, scan_dir.as_deref()))
    }
}

fn flag(pool: &Pool, name: &str) -> Option<bool> {
    php_settings::flag(pool.application.php()?, name)
}

fn is_alike(now: &Settings, wanted: &Settings) -> bool {
    let rest = Settings {
        started: now.started,
        restart_mark: now.restart_mark,
        identity: now.identity.clone(),
        pool: now.pool.clone(),
        ..wanted.clone()
    };
    now.pool.has_workers_for(&wanted.pool) && *now == rest
}
