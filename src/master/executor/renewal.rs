//! Which pools a reload replaces. One of which nothing changed keeps its workers, its counters and its OPcache.

use super::generation::Generation;
use super::shared::Facts;
use super::starts::scan_dir;
use super::{Context, Executor, Pools};
use crate::config::{Application, Listen, Pool, ReloadWhen};
use crate::master::action::Fact;
use crate::master::event::{GenerationId, PoolId};
use crate::runtime::php::files::{self, Fingerprint, Looker, Origin};
use crate::worker::Settings;
use std::fmt;
use std::path::PathBuf;

/// Bytes of what a preloader says of itself to clients.
const MOST_OF_A_NAME: usize = 100;

/// How much a reload replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::master) enum Extent {
    /// Pools of which something changed.
    Changed,
    /// Every pool.
    All,
    /// Pools whose settings changed; nothing else is looked at.
    Settings,
    /// The same, and this pool whether anything changed or not.
    One(PoolId),
}

/// Why a pool is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::master) enum Reason {
    /// `reload = "always"`, or everything is to be replaced.
    Always,
    /// Somebody has asked for it.
    Asked,
    /// Its settings.
    Settings,
    /// The ids or groups of its user.
    Identity,
    /// forkyard-php, libphp, php.ini, a file beside it, or an extension.
    Files,
    /// Its processes do not look by themselves whether the code changed, so the reload is for that.
    Code,
    /// Its workers could not be made; that may be over.
    Trouble,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Always => "it is always replaced",
            Reason::Asked => "it was to be restarted",
            Reason::Settings => "its settings changed",
            Reason::Identity => "its user or group changed",
            Reason::Files => "files that PHP starts from changed",
            Reason::Code => "its code may have changed, and nothing else looks",
            Reason::Trouble => "its workers could not be made",
        })
    }
}

/// What a generation's processes were made from, as far as its settings don't say it.
#[derive(Debug, Default)]
pub(super) struct Make {
    /// The number of the reload that made the generation: a process that it shares is to be no older.
    pub(super) reload: u64,
    /// Except if only its own settings changed; then an older one will do, if that would be made the same again.
    pub(super) may_join_older: bool,
    /// The files, when its preloader was started.
    pub(super) origin: Option<Fingerprint>,
    /// The directory of its extensions, and those from elsewhere, when its preloader was ready.
    extensions: Vec<(PathBuf, Fingerprint)>,
    /// What its preloader says of itself to clients.
    pub(super) powered_by: Option<String>,
    /// Its preloader has said what it is.
    pub(super) is_known: bool,
    /// Some of its workers come from a preloader that was started from other files.
    is_mixed: bool,
    /// Its processes do not look at the code again.
    is_code_fixed: bool,
    /// Its processes could not be made, and none was since.
    pub(super) is_ailing: bool,
}

impl Make {
    /// Its workers come from a process that was started from these files. `has_workers`: it has some already.
    pub(super) fn begin(&mut self, origin: Option<Fingerprint>, has_workers: bool) {
        if self.origin.is_some() && self.origin != origin && has_workers {
            self.is_mixed = true;
        }
        self.origin = origin;
        self.extensions.clear();
    }
}

impl Executor {
    /// What a preloader says of itself. It may lie; then its own pools are replaced too often, or too seldom.
    pub(super) fn facts(
        extensions: Option<PathBuf>,
        loaded: &[PathBuf],
        powered_by: Option<String>,
        is_code_fixed: bool,
    ) -> Facts {
        let is_credible =
            |text: &String| text.len() <= MOST_OF_A_NAME && text.bytes().all(|b| b.is_ascii_graphic());
        let is_elsewhere = |path: &&PathBuf| path.parent() != extensions.as_deref();
        let places = extensions.iter().chain(loaded.iter().filter(is_elsewhere));
        let mut looker = Looker::default();
        Facts {
            is_code_fixed,
            powered_by: powered_by.filter(is_credible),
            extensions: places
                .filter(|path| files::is_credible(path))
                .map(|path| (path.clone(), looker.place(path)))
                .collect(),
        }
    }
}

impl Pools {
    /// The generation that is kept for these settings, or why there is none. `Ok(None)`: there is nothing to keep.
    pub(super) fn kept(
        &self,
        context: &Context,
        pool: PoolId,
        settings: &Settings,
        extent: Extent,
        looker: &mut Looker,
    ) -> Result<GenerationId, Reason> {
        let Some(running) = self.by_id.get(&pool) else {
            return Err(Reason::Settings);
        };
        // The last one that was told, which may still be coming, or else the one that serves.
        let mut first_reason = None;
        for id in [running.latest, running.serving].into_iter().flatten() {
            let Some(generation) = self.generations.get(&id) else {
                continue;
            };
            match context.difference(generation, settings, extent, looker) {
                None => return Ok(id),
                Some(reason) => _ = first_reason.get_or_insert(reason),
            }
        }
        Err(first_reason.unwrap_or(Reason::Settings))
    }

    /// Notes what a preloader is about to be started from.
    pub(super) fn note_origin(&mut self, id: GenerationId, origin: Option<Fingerprint>) {
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.make.begin(origin, !generation.seats.is_empty());
        }
    }

    /// Notes that of a generation.
    pub(super) fn note_facts(&mut self, id: GenerationId, facts: Facts) {
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.make.is_code_fixed = facts.is_code_fixed;
            generation.make.extensions = facts.extensions;
            generation.make.powered_by = facts.powered_by;
            generation.make.is_known = true;
        }
    }

    /// Notes of what has happened what the next reload has to know.
    pub(super) fn note(&mut self, fact: Fact) {
        match fact {
            Fact::Serves(id) => {
                if let Some(pool) = self.generations.get(&id).map(|generation| generation.pool) {
                    self.serves(pool, id);
                }
            }
            Fact::Fails(id) => {
                if let Some(generation) = self.generations.get_mut(&id) {
                    generation.make.is_ailing = true;
                }
            }
            Fact::Gone(_) => {}
        }
    }
}

impl Context {
    fn difference(
        &self,
        generation: &Generation,
        wanted: &Settings,
        extent: Extent,
        looker: &mut Looker,
    ) -> Option<Reason> {
        let (now, make) = (&generation.settings, &generation.make);
        if now.identity != wanted.identity {
            return Some(Reason::Identity);
        }
        if !is_alike(now, wanted) {
            return Some(Reason::Settings);
        }
        match extent {
            Extent::One(pool) if pool == generation.pool => return Some(Reason::Asked),
            Extent::One(_) | Extent::Settings => return None,
            Extent::Changed | Extent::All => {}
        }
        if extent == Extent::All || wanted.pool.reload == ReloadWhen::Always {
            return Some(Reason::Always);
        }
        if make.is_ailing {
            return Some(Reason::Trouble);
        }
        let program = matches!(wanted.pool.application, Application::FastCgi(_));
        if make.is_code_fixed || program {
            return Some(Reason::Code);
        }
        let is_as_it_was = match (self.origin(&wanted.pool), make.origin) {
            (Some(origin), Some(then)) => looker.origin(&origin) == then,
            // Nothing was started yet, or it is no PHP.
            (None, _) | (_, None) => true,
        };
        let mut extensions = make.extensions.iter();
        if make.is_mixed || !is_as_it_was || extensions.any(|(path, then)| looker.place(path) != *then) {
            return Some(Reason::Files);
        }
        None
    }

    /// What PHP's start depends on; `None`: the pool is not PHP.
    pub(super) fn origin(&self, pool: &Pool) -> Option<Origin> {
        let Application::Php(php) = &pool.application else {
            return None;
        };
        let scan_dir = scan_dir(pool);
        let program = self.libexec.join("forkyard-php");
        Some(Origin::new(php, program, scan_dir.as_deref()))
    }
}

/// Whether workers of one serve as well for the other. What only concerns an open socket is set without them.
fn is_alike(now: &Settings, wanted: &Settings) -> bool {
    let listen = &now.pool.listen;
    let wanted = Settings {
        started: now.started,
        pool: Pool {
            listen: Listen {
                backlog: listen.backlog,
                owner: listen.owner.clone(),
                group: listen.group.clone(),
                mode: listen.mode,
                acl_users: listen.acl_users.clone(),
                acl_groups: listen.acl_groups.clone(),
                ..wanted.pool.listen.clone()
            },
            ..wanted.pool.clone()
        },
        ..wanted.clone()
    };
    *now == wanted
}
