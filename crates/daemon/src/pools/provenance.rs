//! The sources of a generation and their changes ([`forkyard_core::master::reload_diff`] decides what follows).

use crate::context::Context;
use crate::context::generation::Generation;
use crate::context::handover::Handover;
use crate::context::make::Facts;
use crate::context::pools::{Pools, RunningPool};
use crate::context::services::Services;
use crate::context::start_source::scan_dir;
use forkyard_config::{Pool, ReloadWhen};
use forkyard_core::master::action::Fact;
use forkyard_core::master::event::{GenerationId, PoolId};
use forkyard_core::master::reload_diff::{self, Comparison, Reason, ReloadScope};
use forkyard_protocol::handover::document::Had;
use forkyard_runtimes::php::files::{Fingerprint, FingerprintCache, Origin};
use forkyard_runtimes::php::settings as php_settings;
use forkyard_worker::Settings;

impl Context {
    /// Keeps the facts of a generation's preloader, also for the next master.
    pub(crate) fn note_facts(&mut self, id: GenerationId, facts: Facts) {
        if let Some(generation) = self.pools.generations.get(&id) {
            self.handover.pool_changed(generation.pool);
        }
        self.pools.note_facts(id, facts);
    }
}

impl Pools {
    pub(crate) fn had(&self, pool: &RunningPool) -> Option<Had> {
        let serving = pool.serving.and_then(|serving| self.generations.get(&serving));
        let make = serving.map(|serving| &serving.make);
        Some(Had {
            left_at: pool.left_at?.as_nanos(),
            origin: make.and_then(|make| make.origin).map(Fingerprint::number),
            is_code_cached: make.is_some_and(|make| make.is_code_cached),
        })
    }

    pub(crate) fn kept(
        &self,
        services: &Services,
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
        reload_diff::kept(known.map(|(id, it)| (id, services.difference(it, settings, extent, fingerprints))))
    }

    fn note_facts(&mut self, id: GenerationId, facts: Facts) {
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

    pub(crate) fn note(&mut self, handover: &mut Handover, fact: Fact) {
        match fact {
            Fact::Serves(id) => {
                if let Some(pool) = self.generations.get(&id).map(|generation| generation.pool) {
                    handover.pool_changed(pool);
                    self.serves(pool, id);
                }
            }
            Fact::Fails(id) => {
                if let Some(generation) = self.generations.get_mut(&id) {
                    generation.make.has_failed = true;
                }
            }
            Fact::Shares(_) | Fact::Up(_) | Fact::Waits(_) | Fact::Gone(_) => {}
        }
    }
}

impl Services {
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
            // The code of a release changes with a deployment or a restart.
            is_code_cached: wanted.release.is_none()
                && (make.is_code_cached || wanted.pool.application.traits().starts_from_disk),
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
    pub(crate) fn origin(&self, pool: &Pool) -> Option<Origin> {
        let php = pool.application.php()?;
        let scan_dir = scan_dir(pool);
        let program = self.libexec.join("forkyard-php");
        Some(Origin::new(php, program, scan_dir.as_deref()))
    }
}

fn flag(pool: &Pool, name: &str) -> Option<bool> {
    php_settings::flag(pool.application.php()?, name)
}

pub(crate) fn is_alike(now: &Settings, wanted: &Settings) -> bool {
    let rest = Settings {
        started: now.started,
        restart_mark: now.restart_mark,
        identity: now.identity.clone(),
        pool: now.pool.clone(),
        release: now.release.clone(),
        turn: now.turn,
        ..wanted.clone()
    };
    let release = |settings: &Settings| settings.release.as_ref().map(|map| map.release().to_owned());
    now.pool.has_workers_for(&wanted.pool) && release(now) == release(wanted) && *now == rest
}
