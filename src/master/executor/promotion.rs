//! Promotes workers to preloaders. The worker gets a channel, an output and /dev/null over its stop pipe; it forks a
//! copy and reports its pid; the copy then starts like any preloader.
//!
//! The worker's messages are untrusted: the process must be a new child of the pool's user.

use super::output::Lines;
use super::preloader::{ChannelInput, Command, Preloader};
use super::sources::Source;
use super::{Context, Executor, Helpers, Pools, Who};
use crate::master::action::Force;
use crate::master::event::{Ended, Event, GenerationId, WorkerId};
use crate::runtime::php::protocol::Answer;
use crate::sys::fd::{null, output, send_with, set_nonblocking, socket_pair};
use crate::sys::guarded::Guarded;
use crate::sys::{Error, process};
use crate::worker::{PROMOTE, Settings};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::socket::SockType;
use std::os::fd::{AsFd, AsRawFd};

/// The number of requests after which a worker may be promoted, given earlier promotions.
pub(super) fn refork_at(settings: &Settings, promotions: usize) -> Option<u64> {
    settings.pool.application.wrapped()?.refork_at(promotions)
}

impl Executor {
    pub(super) fn hear_next_mold(&mut self, id: GenerationId) {
        let name = self.pools.generation_name(id).to_owned();
        match self.helpers.seconds.get_mut(&id).map(Preloader::hear) {
            None => {}
            Some(ChannelInput::Answers(answers)) => match answers.into_iter().next() {
                None => {}
                Some(Answer::Promoted { pid }) => self.next_mold_forked(id, pid),
                Some(Answer::Error {
                    worker: None,
                    message,
                }) => {
                    let line = message.lines().next().unwrap_or_default();
                    log::warn!("[pool {name}] a worker can't be made a preloader: {line}");
                    self.give_up_next_mold(id, Ended::Code(0));
                }
                Some(_) => {
                    log::error!("[pool {name}] unexpected message from a worker that becomes a preloader");
                    self.give_up_next_mold(id, Ended::Unknown);
                }
            },
            Some(ChannelInput::Nonsense(what)) => {
                log::error!("[pool {name}] protocol error from a worker that becomes a preloader: {what}");
                self.give_up_next_mold(id, Ended::Unknown);
            }
            // The worker exited or closed the channel.
            Some(ChannelInput::Closed) => self.give_up_next_mold(id, Ended::Unknown),
        }
    }

    fn next_mold_forked(&mut self, id: GenerationId, pid: i32) {
        if let Some(exit) = self.processes.early_death(pid) {
            return self.give_up_next_mold(id, exit);
        }
        if !self.is_new_child(id, pid) {
            log::error!(
                "[pool {}] a worker names process {pid}, which is no new child",
                self.pools.generation_name(id)
            );
            return self.give_up_next_mold(id, Ended::Unknown);
        }
        if let Err(error) = self.begin_next_mold(id, pid) {
            log::error!("[pool {}] {error}", self.pools.generation_name(id));
            // Its end is reported when it is reaped.
            let _ = process::send_signal(pid, Signal::SIGKILL);
        }
    }

    fn begin_next_mold(&mut self, id: GenerationId, pid: i32) -> Result<(), Error> {
        let Some(mut second) = self.helpers.seconds.remove(&id) else {
            return Ok(());
        };
        self.context.sources.forget(&second.channel);
        second.pid = pid;
        second.members.join(id);
        self.processes.by_pid.insert(pid, Who::Preloader);
        let mut promotions = 0;
        if let Some(resources) = self.pools.resources_mut(id) {
            resources.next_mold = Some(pid);
            promotions = resources.promotions;
        }
        self.helpers.preloaders.insert(pid, second);
        log::debug!(
            "[pool {}] preloader {pid} was forked from a worker",
            self.pools.generation_name(id)
        );
        let context = self.pools.context(id)?;
        let Some(second) = self.helpers.preloaders.get_mut(&pid) else {
            return Ok(());
        };
        let sources = &mut self.context.sources;
        sources.watch_both(&second.channel, Source::Preloader(pid))?;
        if let Some(output) = &second.output {
            sources.watch(output.pipe(), Source::PreloaderOutput(pid))?;
        }
        let (mut settings, descriptors) = context.take_apart();
        settings.refork_at = refork_at(&settings, promotions + 1);
        let begin = Command::Begin {
            context: settings,
            warms_up: false,
            is_zygote: false,
            is_for_many: false,
        };
        second.send(&begin, descriptors);
        Ok(())
    }

    fn give_up_next_mold(&mut self, id: GenerationId, exit: Ended) {
        if let Some(second) = self.helpers.seconds.remove(&id) {
            self.context.sources.forget(&second.channel);
            self.processes.last_lines.remove(&id);
            self.context.happened.push_back(Event::NextMoldGone(id, exit));
        }
    }

    /// Stops the next preloader, promoted or replaced.
    pub(super) fn stop_next_mold(&mut self, id: GenerationId, force: Force) {
        if self.helpers.seconds.contains_key(&id) {
            // A late copy finds its channel closed.
            return self.give_up_next_mold(id, Ended::Unknown);
        }
        let Some(second) = self
            .pools
            .next_mold_pid(id)
            .and_then(|pid| self.helpers.preloaders.get_mut(&pid))
        else {
            return;
        };
        second.members.end();
        match second.start {
            Some(token) if force == Force::Kill => self.expire_start(token),
            Some(token) => self.cancel_start(Some(token)),
            None => second.stop(force),
        }
    }
}

impl Pools {
    pub(super) fn next_mold_pid(&self, id: GenerationId) -> Option<i32> {
        self.generations.get(&id)?.resources.as_ref()?.next_mold
    }

    /// Replaces the first preloader by the next one.
    pub(super) fn switch_mold(&mut self, context: &mut Context, id: GenerationId) {
        if let Some(resources) = self.resources_mut(id) {
            std::mem::swap(&mut resources.preloader, &mut resources.next_mold);
            resources.promotions += 1;
        }
        let happened = std::mem::take(&mut context.happened);
        context.happened = happened
            .into_iter()
            .map(|event| event.in_other_place(id))
            .collect();
    }

    pub(super) fn detach_next_mold(&mut self, context: &mut Context, id: GenerationId, exit: Ended) {
        if let Some(resources) = self.resources_mut(id) {
            resources.next_mold = None;
        }
        context.happened.push_back(Event::NextMoldGone(id, exit));
    }
}

impl Helpers {
    pub(super) fn promote(
        &mut self,
        context: &mut Context,
        pools: &Pools,
        worker: WorkerId,
        id: GenerationId,
    ) {
        if let Err(error) = self.try_promote(context, pools, worker, id) {
            log::error!("[pool {}] {error}", pools.generation_name(id));
            context
                .happened
                .push_back(Event::NextMoldGone(id, Ended::Unknown));
        }
    }

    fn try_promote(
        &mut self,
        context: &mut Context,
        pools: &Pools,
        worker: WorkerId,
        id: GenerationId,
    ) -> Result<(), Error> {
        let (channel, theirs) = socket_pair(SockType::Stream)?;
        set_nonblocking(theirs.as_fd(), false)?;
        let (output, output_in) = output()?;
        let null = null()?;
        let stop_pipe = pools
            .workers
            .get(&worker)
            .and_then(|worker| worker.stop_pipe.as_ref());
        let stop_pipe =
            stop_pipe.ok_or_else(|| Error::new("sendmsg", "the worker is leaving", Errno::EPIPE))?;
        let descriptors = [theirs.as_raw_fd(), output_in.as_raw_fd(), null.as_raw_fd()];
        send_with(stop_pipe.as_fd(), PROMOTE, &descriptors)?;
        context.sources.watch(&channel, Source::Second(id))?;
        let mut second = Preloader::new(0, Guarded::new(channel), None);
        second.output = Some(Lines::new(output).in_entries(!context.speaks_as_fpm));
        self.seconds.insert(id, second);
        Ok(())
    }
}
