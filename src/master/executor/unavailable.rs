//! Starts and stops the responders that refuse requests while an application can't start.

use super::{Executor, Helpers, Pools, Who};
use crate::master::event::{Event, GenerationId, PoolId};
use crate::reporter::Refusal;
use crate::sys::{clock, process};
use std::time::Duration;

/// Longer pages are not sent: a message between processes has a limit.
const LONGEST_PAGE: usize = 96 * 1024;

impl Executor {
    /// Refuses a pool's requests with its generation's last failure.
    pub(super) fn unavailable_responder(&mut self, pool: PoolId, id: GenerationId, wait: Duration) {
        let refusal = self.context.pools.refusal(id, wait);
        let standing = self.helpers.unavailable_responders.get(&pool);
        if let Some(standing) = standing.filter(|it| it.generation == Some(id)) {
            if standing.send(&refusal, &[]).is_ok() {
                return;
            }
        }
        self.helpers.stop_unavailable_responder(pool);
        let started = self.start_reporting(pool, id, |brief, generation| {
            let settings = &generation.settings;
            brief.answering_503(&settings.pool, refusal, settings.log_limit)
        });
        let name = self.context.pools.pool_name(pool);
        match started {
            Ok(standing) => {
                log::debug!("[pool {name}] process {} refuses requests", standing.pid);
                self.context
                    .processes
                    .by_pid
                    .insert(standing.pid, Who::UnavailableResponder(pool));
                self.helpers.unavailable_responders.insert(pool, standing);
            }
            Err(error) => {
                log::error!(
                    "[pool {name}] requests wait, because the process that would refuse them can't be started: {error}"
                );
                self.context
                    .services
                    .happened
                    .push_back(Event::UnavailableResponderGone(pool));
            }
        }
    }

    pub(in crate::master) fn end_unavailable_responders(&mut self) {
        self.helpers.unavailable_responders.clear();
        let stands_in =
            |(pid, who): (&i32, &Who)| matches!(who, Who::UnavailableResponder(_)).then_some(*pid);
        for pid in self.context.processes.by_pid.iter().filter_map(stands_in) {
            process::kill_and_reap(pid);
        }
    }

    pub(super) fn unavailable_responder_gone(&mut self, pool: PoolId, pid: i32) {
        let standing = self.helpers.unavailable_responders.get(&pool);
        if standing.is_some_and(|standing| standing.pid == pid) {
            log::warn!(
                "[pool {}] process {pid}, which refused requests, has ended",
                self.context.pools.pool_name(pool)
            );
            self.helpers.stop_unavailable_responder(pool);
            self.context
                .services
                .happened
                .push_back(Event::UnavailableResponderGone(pool));
        }
    }
}

impl Helpers {
    /// Lets it go: it completes the answers that it has begun.
    pub(super) fn stop_unavailable_responder(&mut self, pool: PoolId) {
        self.unavailable_responders.remove(&pool);
    }
}

impl Pools {
    pub(super) fn report_named(&self, id: GenerationId) -> String {
        let kept = self.generations.get(&id).and_then(|generation| {
            let kept = self.errors.last(&generation.settings.pool.name)?;
            (kept.epoch_s >= generation.settings.started).then_some(kept)
        });
        kept.map_or_else(String::new, |kept| format!(" (error {})", kept.report.id))
    }

    fn refusal(&self, id: GenerationId, wait: Duration) -> Refusal {
        let settings = self
            .generations
            .get(&id)
            .map(|generation| &generation.settings.pool);
        let kept = self.errors.last(self.generation_name(id));
        let is_shown = settings.is_some_and(|pool| pool.pages.friendly_error_pages);
        let page = kept
            .filter(|_| is_shown)
            .map(|kept| kept.report.page_within(LONGEST_PAGE));
        Refusal {
            id: kept.map_or_else(|| "unknown".to_owned(), |kept| kept.report.id.to_string()),
            retry_at_ns: (clock::now() + wait).as_nanos(),
            page,
        }
    }
}
