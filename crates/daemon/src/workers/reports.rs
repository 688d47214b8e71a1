//! Workers' reports of programs that failed to start. Each is an untrusted, bounded message.
//!
//! A report counts only for the pool of the socket that it came over.

use super::start_report::{account, failed_start};
use crate::context::generation::Generation;
use crate::context::pools::Pools;
use crate::context::reports::Reports;
use forkyard_base::tick::Tick;
use forkyard_core::master::event::GenerationId;
use forkyard_core::master::failed_starts::{Errors, Kept};
use forkyard_protocol::past_event::Happening;
use forkyard_protocol::start_failure::StartFailure;
use forkyard_runtimes::fastcgi;
use forkyard_spawn::start_failure::report;
use forkyard_sys::fd::copy;
use forkyard_sys::{Error, clock};
use forkyard_worker::Settings;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

const MOST_LOOKS: usize = 16;

impl Reports {
    /// Keeps the reports that have come. Returns `true` if there may be more.
    pub(crate) fn keep(
        &mut self,
        (errors, unrecorded): (&mut Errors, &mut Vec<Happening>),
        settings: &Settings,
        secrets: &BTreeMap<String, String>,
    ) -> bool {
        let now = clock::now();
        for _ in 0..MOST_LOOKS {
            let Some(told) = self.next(now) else {
                return false;
            };
            if let Some(kept) = told.and_then(|start_failure| kept(settings, secrets, &start_failure, now)) {
                let pool = &settings.pool.name;
                unrecorded.push(failed_start(&kept.report, pool));
                errors.keep_told(kept);
            }
        }
        true
    }
}

impl Pools {
    pub(crate) fn reports_for_worker(&self, id: GenerationId) -> Result<Option<OwnedFd>, Error> {
        let pipes = self.generations.get(&id).and_then(Generation::pipes);
        let Some(reports) = pipes.and_then(|pipes| pipes.reports.as_ref()) else {
            return Ok(None);
        };
        copy(reports.ends().1).map(Some)
    }

    /// Reads a generation's reports. Returns `true` if there may be more.
    pub(crate) fn hear_reports(&mut self, id: GenerationId) -> bool {
        let Some(generation) = self.generations.get_mut(&id) else {
            return false;
        };
        let Generation {
            settings,
            secrets,
            resources,
            ..
        } = generation;
        let pipes = resources.as_mut().and_then(|it| it.pipes.as_mut());
        let reports = pipes.and_then(|pipes| pipes.reports.as_mut());
        reports.is_some_and(|reports| {
            let into = (&mut self.errors, &mut self.unrecorded);
            reports.keep(into, settings, secrets)
        })
    }
}

fn kept(
    settings: &Settings,
    secrets: &BTreeMap<String, String>,
    start_failure: &StartFailure,
    now: Tick,
) -> Option<Kept> {
    let pool = &settings.pool;
    let application = pool.application.fastcgi()?;
    let root = application.root.clone().or_else(|| pool.setup.chdir.clone());
    let mut plan = fastcgi::plan(
        &pool.name,
        application,
        root.unwrap_or_else(|| PathBuf::from("/")),
        account(settings.identity.clone()),
    );
    plan.secrets.clone_from(secrets);
    Some(Kept {
        report: Arc::new(report(start_failure, Arc::new(plan), now)),
        epoch_s: clock::epoch_seconds(),
        pools: vec![pool.name.clone()],
    })
}
