//! The state from the previous master and for the next, and the outdated parts of the hand-over document: only these
//! are written again ([`super::fd_store`]).

use super::fd_store::FdStore;
use super::pools::Pools;
use forkyard_core::master::action::Action;
use forkyard_core::master::event::{GenerationId, PoolId};
use forkyard_core::master::history::{History, HistoryChanges};
use forkyard_host::listen::Inherited;
use forkyard_protocol::daemon_life::DaemonLife;
use forkyard_protocol::handover::document::Document;
use forkyard_protocol::last_reload::LastReload;
use forkyard_protocol::last_upgrade::{LastUpgrade, UpgradeCause};
use forkyard_protocol::past_event::{EventKind, Happening};
use forkyard_protocol::program::Program;
use forkyard_sys::clock;
use forkyard_sys::invocation;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

#[derive(Debug, Default)]
pub(crate) struct Handover {
    pub(crate) inherited: Inherited,
    pub(crate) todo: Vec<Action>,
    pub(crate) fd_store: Option<FdStore>,
    pub(crate) last_reload: Option<LastReload>,
    pub(crate) last_upgrade: Option<LastUpgrade>,
    pub(crate) history: History,
    /// When the first master started, in seconds since 1970.
    pub(crate) started: u64,
    /// When this program started, in seconds since 1970.
    program_started: u64,
    /// When the configuration was last read, in milliseconds since 1970.
    read_ms: u64,
}

/// A descriptor for the next master, and its name.
pub(crate) type Named<'a> = (String, &'a OwnedFd);

#[derive(Debug, Clone, Default)]
pub(crate) struct Stale {
    pub(crate) pools: BTreeSet<PoolId>,
    pub(crate) generations: BTreeSet<GenerationId>,
    pub(crate) history: HistoryChanges,
    pub(crate) is_result_stale: bool,
}

impl Stale {
    pub(crate) fn is_empty(&self) -> bool {
        self.pools.is_empty() && self.generations.is_empty() && !self.is_result_stale
    }
}

impl Handover {
    pub(crate) fn pool_changed(&mut self, id: PoolId) {
        if let Some(store) = &mut self.fd_store {
            store.stale.pools.insert(id);
        }
    }

    pub(crate) fn generation_changed(&mut self, id: GenerationId) {
        if let Some(store) = &mut self.fd_store {
            store.stale.generations.insert(id);
        }
    }

    /// Marks a leaving generation and its pool for the next write: the pool may have lost its serving generation, and takes
    /// over the generation's counts.
    pub(crate) fn generation_leaves(&mut self, pools: &Pools, id: GenerationId) {
        let Some(store) = &mut self.fd_store else {
            return;
        };
        let leaving = pools.generations.get(&id).into_iter();
        let counted = leaving.flat_map(|it| pools.counted_with(it));
        store.stale.pools.extend(counted);
        store.stale.generations.insert(id);
    }

    pub(crate) fn remember_reload(&mut self, last: LastReload) {
        self.last_reload = Some(last);
        self.result_changed();
    }

    fn result_changed(&mut self) {
        if let Some(store) = &mut self.fd_store {
            store.stale.is_result_stale = true;
        }
    }

    /// Keeps an event, for `forkyard events` and the next master.
    pub(crate) fn record(&mut self, what: Happening) {
        self.history.add(what, clock::epoch_millis());
        if self.fd_store.is_none() {
            self.history.forget_changes();
        }
    }

    pub(crate) fn config_is_read(&mut self) {
        self.read_ms = clock::epoch_millis();
    }

    pub(crate) fn life(&self) -> DaemonLife {
        DaemonLife {
            program: program(),
            started: self.started,
            program_started: self.program_started,
            last_upgrade: self.last_upgrade.clone(),
            read_ms: self.read_ms,
            would_change: None,
        }
    }

    /// Continues the previous master's history. The result is how this program came to run.
    pub(crate) fn resume(&mut self, before: Option<&Document>) -> Happening {
        let (now, build) = (clock::epoch_millis(), crate::VERSION);
        self.program_started = now / 1000;
        self.config_is_read();
        let Some(document) = before else {
            self.started = self.program_started;
            return Happening::of_daemon(EventKind::Start, format!("forkyard {build} started"));
        };
        self.history = History::resume(document.events.clone());
        self.started = match document.started {
            0 => self.program_started,
            started => started,
        };
        self.last_upgrade.clone_from(&document.last_upgrade);
        let is_same_process = u32::try_from(document.master) == Ok(std::process::id());
        match document.last_upgrade.clone().filter(LastUpgrade::is_under_way) {
            Some(begun) if is_same_process => {
                let text = format!("{}: {build} follows {}", begun.by.in_words(), begun.from);
                let last = begun.done(now, build);
                let took = last.took_ms.unwrap_or_default();
                self.last_upgrade = Some(last);
                Happening::of_daemon(EventKind::Upgrade, text).lasting(took)
            }
            begun => {
                if let Some(begun) = begun {
                    self.last_upgrade = Some(begun.failed(now, "the master was killed meanwhile"));
                }
                let text = format!(
                    "forkyard {build} follows process {}, whose workers go on",
                    document.master
                );
                Happening::of_daemon(EventKind::Takeover, text)
            }
        }
    }

    pub(crate) fn upgrade_begins(&mut self, by: UpgradeCause) {
        self.last_upgrade = Some(LastUpgrade::begun(clock::epoch_millis(), by, crate::VERSION));
        self.result_changed();
    }

    pub(crate) fn upgrade_failed(&mut self, error: &str) {
        let Some(begun) = self.last_upgrade.take() else {
            return;
        };
        let text = format!("{}: {error}; this program goes on", begun.by.in_words());
        let last = begun.failed(clock::epoch_millis(), error);
        let took = last.took_ms.unwrap_or_default();
        self.last_upgrade = Some(last);
        self.result_changed();
        self.record(Happening::of_daemon(EventKind::UpgradeFailed, text).lasting(took));
    }

    /// The last reload, if the written configuration is not in force.
    pub(crate) fn trouble(&self) -> Option<&LastReload> {
        self.last_reload.as_ref().filter(|last| !last.is_done())
    }
}

/// The running program. `None`: its file is unknown.
pub(crate) fn program() -> Option<Program> {
    let invocation = invocation::get()?;
    Some(Program {
        build: crate::VERSION.to_owned(),
        path: invocation.path.clone(),
        replaced: invocation.is_replaced(),
        missing: invocation.is_missing(),
    })
}
