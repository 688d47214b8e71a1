//! A preloader's answers.

use super::Preloaders;
use super::preloader::ChannelInput;
use crate::context::Context;
use crate::context::make::Facts;
use crate::context::pools::Pools;
use crate::context::worker::Traceable;
use forkyard_core::master::event::{Ended, GenerationId, WorkerId};
use forkyard_runtimes::php::protocol::Answer;
use forkyard_sys::process;
use nix::sys::signal::Signal;
use std::rc::Rc;

impl Preloaders {
    pub(crate) fn hear_all(&mut self, context: &mut Context) {
        for pid in self.by_pid.keys().copied().collect::<Vec<_>>() {
            self.hear(context, pid);
        }
        for generation in self.seconds.keys().copied().collect::<Vec<_>>() {
            self.hear_next_mold(context, generation);
        }
    }

    pub(crate) fn hear_starting(&mut self, context: &mut Context) {
        let starting = self.by_pid.values().filter(|it| it.start.is_some());
        for pid in starting.map(|it| it.pid).collect::<Vec<_>>() {
            self.hear(context, pid);
        }
    }

    /// Reads a preloader's answers. Returns `true` if there may be more; an endless sender must not block the master.
    pub(crate) fn hear(&mut self, context: &mut Context, pid: i32) -> bool {
        let Some(preloader) = self.by_pid.get_mut(&pid) else {
            return false;
        };
        preloader.push();
        match preloader.hear() {
            ChannelInput::Answers(answers) => {
                let more = !answers.is_empty();
                for answer in answers {
                    self.take_answer(context, pid, answer);
                }
                more
            }
            // It is reaped when it exits.
            ChannelInput::Closed => false,
            ChannelInput::Nonsense(what) => {
                preloader.is_given_up = true;
                let start = preloader.start;
                log::error!(
                    "[pool {}] the preloader (pid {pid}) is killed because it does not keep to the protocol: {what}",
                    self.name(&context.pools, pid)
                );
                if let Some(token) = start {
                    let summary = format!("It does not keep to the protocol: {what}.");
                    context.spawner.complain(token, &summary);
                }
                let _ = process::send_signal(pid, Signal::SIGKILL);
                false
            }
        }
    }

    fn take_answer(&mut self, context: &mut Context, pid: i32, answer: Answer) {
        let Some(preloader) = self.by_pid.get_mut(&pid) else {
            return;
        };
        let start = preloader.start;
        match answer {
            Answer::Ready {
                version,
                extensions,
                loaded,
                powered_by,
                is_code_cached,
                stack,
                has_memory: _,
                boot,
                connected_to,
            } => {
                let known = stack.zip(preloader.executable);
                preloader.traceable =
                    known.map(|(source, executable)| Rc::new(Traceable { source, executable }));
                let boot = boot.map(|it| *it);
                preloader.facts = Some(Facts::credible(
                    extensions,
                    &loaded,
                    powered_by,
                    is_code_cached,
                    boot,
                    connected_to,
                ));
                log::debug!(
                    "[pool {}] the preloader is ready: {version}",
                    self.name(&context.pools, pid)
                );
                self.note_loaded(context, pid, &loaded);
                match start {
                    Some(token) => context.spawner.is_up(token),
                    None => self.note_ready(context, pid),
                }
            }
            Answer::Unfit { reason } => self.zygote_unfit(context, pid, &reason),
            Answer::Forgotten { generation } => {
                if let Some(id) = preloader.members.forgotten(generation) {
                    self.detach(context, id, Ended::Code(0));
                }
            }
            // Only a worker sends this, on a channel that is no preloader's yet.
            Answer::Promoted { .. } => {}
            Answer::Ok { worker, pid: child } => self.take_forked(context, pid, WorkerId(worker), child),
            Answer::Error {
                worker: Some(worker),
                message,
            } => {
                let worker = WorkerId(worker);
                if let Some(id) = self.unforked_of(&context.pools, pid, worker) {
                    log::error!(
                        "[pool {}] the preloader could not make a worker: {message}",
                        context.pools.generation_name(id)
                    );
                    context.fork_failed(worker);
                }
            }
            Answer::Error {
                worker: None,
                message,
            } => match start {
                // The report follows its end.
                Some(token) => context.spawner.complain(token, &message),
                None => log::error!(
                    "[pool {}] the preloader: {message}",
                    self.name(&context.pools, pid)
                ),
            },
        }
    }

    /// Accepts a preloader's new worker if it was ordered and the process is an unknown child.
    fn take_forked(&mut self, context: &mut Context, preloader: i32, worker: WorkerId, pid: i32) {
        let Some(id) = self.unforked_of(&context.pools, preloader, worker) else {
            log::error!(
                "[pool {}] the preloader names a worker that it was not asked for",
                self.name(&context.pools, preloader)
            );
            return;
        };
        let end = context.processes.early_death(pid);
        if end.is_none() && !context.is_new_child(id, pid) {
            log::error!(
                "[pool {}] the preloader names process {pid}, which is no new child",
                context.pools.generation_name(id)
            );
            context.fork_failed(worker);
            return;
        }
        let traceable = self.by_pid.get(&preloader).and_then(|it| it.traceable.clone());
        context.forked_as(worker, pid, traceable);
        if let Some(end) = end {
            context.processes.by_pid.remove(&pid);
            context.worker_ended(worker, pid, end);
        }
    }

    fn unforked_of(&self, pools: &Pools, preloader: i32, worker: WorkerId) -> Option<GenerationId> {
        let worker = pools.workers.get(&worker).filter(|worker| worker.pid.is_none())?;
        let members = &self.by_pid.get(&preloader)?.members;
        let is_asked =
            members.contains(worker.generation) && pools.next_mold_pid(worker.generation) != Some(preloader);
        is_asked.then_some(worker.generation)
    }

    fn note_loaded(&self, context: &mut Context, pid: i32, files: &[std::path::PathBuf]) {
        let Some(preloader) = self.by_pid.get(&pid) else {
            return;
        };
        let generation = preloader.members.all().next();
        let generation = generation.and_then(|id| context.pools.generations.get(&id));
        let own = generation.map(|generation| &generation.settings);
        if let Some(settings) = preloader.members.sources().or(own) {
            context.in_force.starts.note_loaded(&settings.pool, files);
        }
    }
}
