//! Promotes workers to preloaders. The worker gets a channel, an output and /dev/null over its stop pipe; it forks a
//! copy and reports its pid; the copy then starts like any preloader.
//!
//! The worker's messages are untrusted: the process must be a new child of the pool's user.

use super::Preloaders;
use super::preloader::{ChannelInput, Command, Preloader};
use crate::context::Context;
use crate::context::generation::refork_at;
use crate::context::lines::Lines;
use crate::context::pools::Pools;
use crate::context::processes::Who;
use crate::context::services::Services;
use crate::context::sources::Source;
use forkyard_core::master::action::Force;
use forkyard_core::master::event::{Ended, Event, GenerationId, WorkerId};
use forkyard_protocol::stop_pipe::PROMOTE;
use forkyard_runtimes::php::protocol::Answer;
use forkyard_sys::fd::{null, output, send_with, set_nonblocking, socket_pair};
use forkyard_sys::guarded::Guarded;
use forkyard_sys::{Error, process};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::socket::SockType;
use std::os::fd::{AsFd, AsRawFd};

impl Preloaders {
    pub(crate) fn hear_next_mold(&mut self, context: &mut Context, id: GenerationId) {
        let Some(second) = self.seconds.get_mut(&id) else {
            return;
        };
        let name = context.pools.generation_name(id);
        match second.hear() {
            ChannelInput::Answers(answers) => match answers.into_iter().next() {
                None => {}
                Some(Answer::Promoted { pid }) => self.next_mold_forked(context, id, pid),
                Some(Answer::Error {
                    worker: None,
                    message,
                }) => {
                    let line = message.lines().next().unwrap_or_default();
                    log::warn!("[pool {name}] a worker can't be made a preloader: {line}");
                    self.give_up_next_mold(context, id, Ended::Code(0));
                }
                Some(_) => {
                    log::error!("[pool {name}] unexpected message from a worker that becomes a preloader");
                    self.give_up_next_mold(context, id, Ended::Unknown);
                }
            },
            ChannelInput::Nonsense(what) => {
                log::error!("[pool {name}] protocol error from a worker that becomes a preloader: {what}");
                self.give_up_next_mold(context, id, Ended::Unknown);
            }
            // The worker exited or closed the channel.
            ChannelInput::Closed => self.give_up_next_mold(context, id, Ended::Unknown),
        }
    }

    fn next_mold_forked(&mut self, context: &mut Context, id: GenerationId, pid: i32) {
        if let Some(exit) = context.processes.early_death(pid) {
            return self.give_up_next_mold(context, id, exit);
        }
        if !context.is_new_child(id, pid) {
            log::error!(
                "[pool {}] a worker names process {pid}, which is no new child",
                context.pools.generation_name(id)
            );
            return self.give_up_next_mold(context, id, Ended::Unknown);
        }
        if let Err(error) = self.begin_next_mold(context, id, pid) {
            log::error!("[pool {}] {error}", context.pools.generation_name(id));
            // Its end is reported when it is reaped.
            let _ = process::send_signal(pid, Signal::SIGKILL);
        }
    }

    fn begin_next_mold(&mut self, context: &mut Context, id: GenerationId, pid: i32) -> Result<(), Error> {
        let Some(mut second) = self.seconds.remove(&id) else {
            return Ok(());
        };
        let sources = &mut context.services.sources;
        sources.forget(&second.channel);
        second.pid = pid;
        second.members.join(id);
        context.processes.by_pid.insert(pid, Who::Preloader);
        let mut promotions = 0;
        if let Some(resources) = context.pools.resources_mut(id) {
            resources.next_mold = Some(pid);
            promotions = resources.promotions;
        }
        let second = self.by_pid.entry(pid).insert_entry(second).into_mut();
        log::debug!(
            "[pool {}] preloader {pid} was forked from a worker",
            context.pools.generation_name(id)
        );
        let (mut settings, descriptors) = context.pools.context(id)?.take_apart();
        sources.watch_both(&second.channel, Source::Preloader(pid))?;
        if let Some(output) = &second.output {
            sources.watch(output.pipe(), Source::PreloaderOutput(pid))?;
        }
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

    fn give_up_next_mold(&mut self, context: &mut Context, id: GenerationId, exit: Ended) {
        if let Some(second) = self.seconds.remove(&id) {
            context.services.sources.forget(&second.channel);
            context.processes.last_lines.remove(&id);
            context.services.tell(Event::NextMoldGone(id, exit));
        }
    }

    /// Stops the next preloader, promoted or replaced.
    pub(crate) fn stop_next_mold(&mut self, context: &mut Context, id: GenerationId, force: Force) {
        if self.seconds.contains_key(&id) {
            // A late copy finds its channel closed.
            return self.give_up_next_mold(context, id, Ended::Unknown);
        }
        let pid = context.pools.next_mold_pid(id);
        let Some(second) = pid.and_then(|pid| self.by_pid.get_mut(&pid)) else {
            return;
        };
        second.members.end();
        match second.start {
            Some(token) if force == Force::Kill => context.spawner.expire(token),
            Some(token) => context.spawner.cancel(token),
            None => second.stop(force),
        }
    }

    pub(crate) fn promote(&mut self, context: &mut Context, worker: WorkerId, id: GenerationId) {
        if let Err(error) = self.try_promote(context, worker, id) {
            log::error!("[pool {}] {error}", context.pools.generation_name(id));
            context.services.tell(Event::NextMoldGone(id, Ended::Unknown));
        }
    }

    fn try_promote(
        &mut self,
        context: &mut Context,
        worker: WorkerId,
        id: GenerationId,
    ) -> Result<(), Error> {
        let (channel, theirs) = socket_pair(SockType::Stream)?;
        set_nonblocking(theirs.as_fd(), false)?;
        let (output, output_in) = output()?;
        let null = null()?;
        let worker = context.pools.workers.get(&worker);
        let stop_pipe = worker.and_then(|worker| worker.stop_pipe.as_ref());
        let stop_pipe =
            stop_pipe.ok_or_else(|| Error::new("sendmsg", "the worker is leaving", Errno::EPIPE))?;
        let descriptors = [theirs.as_raw_fd(), output_in.as_raw_fd(), null.as_raw_fd()];
        send_with(stop_pipe.as_fd(), PROMOTE, &descriptors)?;
        let services = &mut context.services;
        services.sources.watch(&channel, Source::Second(id))?;
        let mut second = Preloader::new(0, Guarded::new(channel), None);
        second.output = Some(Lines::new(output).in_entries(!services.speaks_as_fpm));
        self.seconds.insert(id, second);
        Ok(())
    }
}

impl Pools {
    pub(crate) fn next_mold_pid(&self, id: GenerationId) -> Option<i32> {
        self.resources(id)?.next_mold
    }

    /// Replaces the first preloader by the next one.
    pub(crate) fn switch_mold(&mut self, services: &mut Services, id: GenerationId) {
        if let Some(resources) = self.resources_mut(id) {
            std::mem::swap(&mut resources.preloader, &mut resources.next_mold);
            resources.promotions += 1;
        }
        let happened = std::mem::take(&mut services.happened).into_iter();
        services.happened = happened.map(|event| event.in_other_place(id)).collect();
    }
}
