//! Starts and stops the responders that refuse requests while an application can't start.

use super::helper::{own_user, zone};
use super::{Context, Executor, Helpers, Pools, Who};
use crate::helper::Role;
use crate::logs::Handout;
use crate::master::event::{Event, GenerationId, PoolId};
use crate::reporter::{Brief, Refusal};
use crate::sys::Error;
use crate::sys::fd::{send_with, set_nonblocking, socket_pair};
use crate::sys::{clock, process};
use nix::sys::socket::SockType;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Longer pages are not sent: a message between processes has a limit.
const LONGEST_PAGE: usize = 96 * 1024;

/// Answers a pool's requests with 503 while its application can't start.
#[derive(Debug)]
pub(super) struct UnavailableResponder {
    pid: i32,
    /// It brings the answer; its end tells the process to leave.
    channel: OwnedFd,
    generation: GenerationId,
}

impl Executor {
    /// Refuses a pool's requests with its generation's last failure.
    pub(super) fn unavailable_responder(&mut self, pool: PoolId, id: GenerationId, wait: Duration) {
        let refusal = self.pools.refusal(id, wait);
        if let Some(standing) = self
            .helpers
            .unavailable_responders
            .get(&pool)
            .filter(|s| s.generation == id)
        {
            // Serialising plain values can't fail.
            let message = serde_json::to_vec(&refusal).unwrap_or_default();
            if send_with(standing.channel.as_fd(), &message, &[]).is_ok() {
                return;
            }
        }
        self.helpers.stop_unavailable_responder(pool);
        match self.start_unavailable_responder(pool, id, refusal) {
            Ok(standing) => {
                self.processes
                    .by_pid
                    .insert(standing.pid, Who::UnavailableResponder(pool));
                self.helpers.unavailable_responders.insert(pool, standing);
            }
            Err(error) => {
                log::error!(
                    "[pool {}] requests wait, because the process that would refuse them can't be started: {error}",
                    self.pools.pool_name(pool)
                );
                self.context
                    .happened
                    .push_back(Event::UnavailableResponderGone(pool));
            }
        }
    }

    pub(in crate::master) fn end_unavailable_responders(&mut self) {
        self.helpers.unavailable_responders.clear();
        let stands_in =
            |(pid, who): (&i32, &Who)| matches!(who, Who::UnavailableResponder(_)).then_some(*pid);
        for pid in self.processes.by_pid.iter().filter_map(stands_in) {
            process::kill_and_reap(pid);
        }
    }

    fn start_unavailable_responder(
        &self,
        pool: PoolId,
        id: GenerationId,
        refusal: Refusal,
    ) -> Result<UnavailableResponder, Error> {
        let (generation, resources, listener) = self.pools.shared_with_helpers(pool, id)?;
        let settings = &generation.settings;
        let brief = Brief::new(
            &settings.pool,
            own_user().or_else(|| settings.identity.clone()),
            settings.started,
            settings.descriptor_limit,
        )
        .answering_503(&settings.pool, refusal, settings.log_limit);
        let (channel, theirs) = socket_pair(SockType::SeqPacket)?;
        set_nonblocking(theirs.as_fd(), true)?;
        let message = serde_json::to_vec(&brief).unwrap_or_default();
        let (readable, pipes) = (resources.board.memory().readable()?, generation.connected()?);
        let mut descriptors = vec![listener, listener, &readable, &pipes.messages_in];
        descriptors.extend(pipes.access.as_ref().map(Handout::shelf));
        let descriptors: Vec<RawFd> = descriptors.into_iter().map(AsRawFd::as_raw_fd).collect();
        send_with(channel.as_fd(), &message, &descriptors)?;
        let environment: Vec<_> = zone().into_iter().collect();
        let pid = self.context.start_helper(
            &self.reload,
            brief.title,
            Role::Reporter,
            vec![theirs],
            &environment,
        )?;
        log::debug!("[pool {}] process {pid} refuses requests", settings.pool.name);
        Ok(UnavailableResponder {
            pid,
            channel,
            generation: id,
        })
    }
}

impl Helpers {
    /// Lets it go: it completes the answers that it has begun.
    pub(super) fn stop_unavailable_responder(&mut self, pool: PoolId) {
        self.unavailable_responders.remove(&pool);
    }

    pub(super) fn unavailable_responder_gone(
        &mut self,
        context: &mut Context,
        pools: &Pools,
        pool: PoolId,
        pid: i32,
    ) {
        if self
            .unavailable_responders
            .get(&pool)
            .is_some_and(|standing| standing.pid == pid)
        {
            log::warn!(
                "[pool {}] process {pid}, which refused requests, has ended",
                pools.pool_name(pool)
            );
            self.unavailable_responders.remove(&pool);
            context.happened.push_back(Event::UnavailableResponderGone(pool));
        }
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
        let is_shown = settings.is_some_and(|pool| pool.friendly_error_pages);
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
