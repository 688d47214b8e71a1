//! Reaps children and reports their ends.

use super::app_log::{outlet_of_preloader, whose};
use super::helper_id::HelperId;
use super::output::read_rest;
use super::preloader::ChannelInput;
use super::slow::{Traceable, tracer_gone};
use super::{Executor, Pools, Preloaders, Processes, Who};
use crate::master::event::{Ended, Event, GenerationId, WorkerId};
use crate::runtime::php::protocol::Answer;
use crate::scoreboard::{RequestStage, slot_reader};
use crate::sys::identity::Identity;
use crate::sys::process;
use crate::sys::sender::Origin;
use std::rc::Rc;

const EARLY_DEATHS: usize = 256;
const MOST_REAPED: usize = 256;

impl Executor {
    pub(in crate::master) fn reap(&mut self) {
        // Preloaders' messages first, so that children are known.
        let preloaders: Vec<i32> = self.preloaders.by_pid.keys().copied().collect();
        for preloader in preloaders {
            self.hear_preloader(preloader);
        }
        let seconds: Vec<GenerationId> = self.preloaders.seconds.keys().copied().collect();
        for generation in seconds {
            self.hear_next_mold(generation);
        }
        self.context.helpers.kill_stopped();
        self.context.processes.has_more_dead = false;
        for count in 0.. {
            // Thousands may end at once, for example a start's leftovers; others get their turn in between.
            if count == MOST_REAPED {
                self.context.processes.has_more_dead = true;
                break;
            }
            let Some((pid, ended)) = process::ended_child() else {
                break;
            };
            // Until it is reaped, its number stands only for its process group.
            self.orphans.part_from(&self.context, pid, ended);
            let Ok((ended, used)) = process::reap_used(pid) else {
                break;
            };
            match self.context.processes.by_pid.remove(&pid) {
                Some(Who::Worker(worker)) => {
                    self.context.pools.count_cpu(worker, used.cpu_micros);
                    self.worker_gone(worker, pid, ended);
                }
                Some(Who::Rehearsal) => self
                    .context
                    .handover
                    .rehearsal_ended(&mut self.context.services, ended),
                Some(Who::Helper(id)) => {
                    if let HelperId::Reporter(pool) | HelperId::Responder(pool) = id {
                        self.context.pools.vacate(pool);
                    }
                    self.context
                        .helpers
                        .gone(&mut self.context.services, id, pid, ended);
                }
                Some(Who::Preloader) => self.preloader_gone(pid, ended),
                Some(Who::Program(id, index)) => self.process_gone(id, index, ended),
                Some(Who::Tracer(worker)) => tracer_gone(worker, ended),
                None if self.context.spawner.reaped(pid, ended) => self.drain_spawner(),
                None if process::is_writer(pid) => {
                    self.context.pools.reopen_access_logs();
                    log::warn!("process {pid}, which writes logs, ended: {ended:?}");
                }
                // An orphan inherited as subreaper, or a worker whose fork was not announced yet.
                None => {
                    if self.context.processes.early_deaths.len() >= EARLY_DEATHS {
                        self.context.processes.early_deaths.pop_front();
                    }
                    self.context.processes.early_deaths.push_back((pid, ended));
                }
            }
        }
        self.orphans.settle();
    }

    pub(super) fn foreign_gone(&mut self, id: WorkerId) {
        let Some(worker) = self.context.pools.workers.get(&id) else {
            return;
        };
        let pid = worker.pid.unwrap_or_default();
        self.orphans.part_from_foreign(&self.context.pools, id);
        self.worker_gone(id, pid, Ended::Unknown);
    }

    fn worker_gone(&mut self, id: WorkerId, pid: i32, exit: Ended) {
        // Its messages first, so that it is known to have been up.
        if let Some(generation) = self
            .context
            .pools
            .workers
            .get(&id)
            .map(|worker| worker.generation)
        {
            self.accept_notify(generation);
        }
        let had_work = self.context.processes.note_death(&self.context.pools, id, pid);
        self.jobs.note_death(&mut self.context, id, pid, exit);
        self.context.pools.count_exit(id, exit);
        if let Some(mut worker) = self.context.pools.workers.remove(&id) {
            self.context
                .pools
                .read_last_output(&mut self.context.services, &mut worker, pid);
            self.report_early_exit(&worker, pid, exit);
            if let Some(process) = &worker.foreign {
                self.context.services.sources.forget(process);
            }
            if let Some(generation) = self.context.pools.generations.get_mut(&worker.generation) {
                generation.free_slot(worker.slot);
                if let Some(pool) = self.context.pools.by_id.get_mut(&generation.pool) {
                    pool.left_at = Some(crate::sys::clock::now());
                }
            }
            self.context.pools.vacated.insert(worker.generation);
            self.context.handover.unkeep_worker(id, &worker);
        }
        self.applications.instance_gone(&self.context, id);
        self.context
            .services
            .happened
            .push_back(Event::WorkerExited(id, exit, had_work));
    }

    pub(super) fn preloader_gone(&mut self, pid: i32, exit: Ended) {
        // Its last answers count: those workers exist.
        read_rest(|| self.hear_preloader(pid));
        self.preloaders
            .read_preloader_output(&mut self.context.services, &self.context.pools, pid);
        let Some(mut preloader) = self.preloaders.by_pid.remove(&pid) else {
            return;
        };
        self.context.services.sources.forget(&preloader.channel);
        if let Some(mut output) = preloader.output.take() {
            // A child may still hold the pipe.
            let (name, file) = whose(&self.context.pools.generations, &preloader);
            let outlet = outlet_of_preloader(self.context.services.log, &name, file, pid);
            output.end_line(|line| {
                outlet.write(line);
                preloader.note_output(line);
            });
            self.context.services.sources.forget(output.pipe());
        }
        for id in preloader.members.all() {
            self.context
                .processes
                .last_lines
                .insert(id, preloader.last_lines.clone());
            if self.context.pools.next_mold_pid(id) == Some(pid) {
                self.context
                    .pools
                    .detach_next_mold(&mut self.context.services, id, exit);
            } else {
                self.detach(id, exit);
            }
        }
    }

    /// Reads a preloader's answers. Returns `true` if there may be more; an endless sender must not block the master.
    pub(super) fn hear_preloader(&mut self, pid: i32) -> bool {
        let Some(preloader) = self.preloaders.by_pid.get_mut(&pid) else {
            return false;
        };
        preloader.push();
        let start = preloader.start;
        match preloader.hear() {
            ChannelInput::Answers(answers) => {
                let more = !answers.is_empty();
                for answer in answers {
                    self.take_answer(pid, answer);
                }
                more
            }
            // It is reaped when it exits.
            ChannelInput::Closed => false,
            ChannelInput::Nonsense(what) => {
                preloader.is_given_up = true;
                log::error!(
                    "[pool {}] the preloader (pid {pid}) is killed because it does not keep to the protocol: {what}",
                    self.preloaders.preloader_name(&self.context.pools, pid)
                );
                if let Some(token) = start {
                    self.context
                        .spawner
                        .complain(token, &format!("It does not keep to the protocol: {what}."));
                }
                let _ = process::send_signal(pid, nix::sys::signal::Signal::SIGKILL);
                false
            }
        }
    }

    fn take_answer(&mut self, pid: i32, answer: Answer) {
        let name = || self.preloaders.preloader_name(&self.context.pools, pid);
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
                log::debug!("[pool {}] the preloader is ready: {version}", name());
                self.note_loaded(pid, loaded.as_slice());
                let facts = Executor::facts(
                    extensions,
                    &loaded,
                    powered_by,
                    is_code_cached,
                    boot.map(|it| *it),
                    connected_to,
                );
                let Some(preloader) = self.preloaders.by_pid.get_mut(&pid) else {
                    return;
                };
                let known = stack.zip(preloader.executable);
                preloader.traceable =
                    known.map(|(source, executable)| Rc::new(Traceable { source, executable }));
                preloader.facts = Some(facts);
                match preloader.start {
                    Some(token) => {
                        self.context.spawner.is_up(token);
                        self.drain_spawner();
                    }
                    None => self.preloaders.preloader_is_ready(
                        &mut self.context.services,
                        &mut self.context.pools,
                        pid,
                    ),
                }
            }
            Answer::Unfit { reason } => self.zygote_unfit(pid, &reason),
            Answer::Forgotten { generation } => self.forgotten(pid, generation),
            // Only a worker sends this, on a channel that is no preloader's yet.
            Answer::Promoted { .. } => {}
            Answer::Ok { worker, pid: child } => self.take_forked(pid, WorkerId(worker), child),
            Answer::Error {
                worker: Some(worker),
                message,
            } => {
                let worker = WorkerId(worker);
                if let Some(id) = self.preloaders.unforked_of(&self.context.pools, pid, worker) {
                    log::error!(
                        "[pool {}] the preloader could not make a worker: {message}",
                        self.context.pools.generation_name(id)
                    );
                    self.fork_failed(worker);
                }
            }
            Answer::Error {
                worker: None,
                message,
            } => {
                match self
                    .preloaders
                    .by_pid
                    .get(&pid)
                    .and_then(|preloader| preloader.start)
                {
                    // The report follows its end.
                    Some(token) => self.context.spawner.complain(token, &message),
                    None => log::error!("[pool {}] the preloader: {message}", name()),
                }
            }
        }
    }

    /// Whether a process is an unknown child that may belong to this generation. Orphans of every pool become children:
    /// a preloader must not claim another user's.
    pub(super) fn is_new_child(&self, id: GenerationId, pid: i32) -> bool {
        let generation = self.context.pools.generations.get(&id);
        let identity = generation.and_then(|generation| generation.settings.identity.as_ref());
        let is_own = |identity: &Identity| {
            let user = process::real_user(pid);
            user == Some(identity.uid) || user.is_some() && user == self.context.pools.zygotes_user(id)
        };
        let is_known = self.context.processes.by_pid.contains_key(&pid) || self.context.spawner.knows(pid);
        !is_known && process::is_child(pid) && identity.is_none_or(is_own)
    }

    /// Accepts a preloader's new worker if it was ordered and the process is an unknown child.
    fn take_forked(&mut self, preloader: i32, worker: WorkerId, pid: i32) {
        let Some(id) = self
            .preloaders
            .unforked_of(&self.context.pools, preloader, worker)
        else {
            log::error!(
                "[pool {}] the preloader names a worker that it was not asked for",
                self.preloaders.preloader_name(&self.context.pools, preloader)
            );
            return;
        };
        if let Some(exit) = self.context.processes.early_death(pid) {
            self.forked_as(worker, pid);
            self.context.processes.by_pid.remove(&pid);
            self.worker_gone(worker, pid, exit);
            return;
        }
        if !self.is_new_child(id, pid) {
            log::error!(
                "[pool {}] the preloader names process {pid}, which is no new child",
                self.context.pools.generation_name(id)
            );
            self.fork_failed(worker);
            return;
        }
        self.forked_as(worker, pid);
    }
}

impl Processes {
    /// Records a worker's end and its request for the core's log line; returns whether it ever had work.
    fn note_death(&mut self, pools: &Pools, id: WorkerId, pid: i32) -> bool {
        let Some(worker) = pools.workers.get(&id) else {
            return false;
        };
        let Some(generation) = pools.generations.get(&worker.generation) else {
            return false;
        };
        let uptime = crate::sys::clock::now().since(worker.begun);
        let page = generation.page(worker.slot);
        let entry = page.map(slot_reader::read);
        let had_work = entry.as_ref().is_some_and(slot_reader::SlotEntry::had_work);
        let doing = entry.as_ref().and_then(describe);
        let sent = page.and_then(slot_reader::sent);
        let sender = sent.map(|sent| (sent.signal, by_whom(sent.origin, pid)));
        let death = super::notices::Death {
            pid,
            pool: generation.settings.pool.name.clone(),
            generation: worker.generation,
            uptime,
            doing,
            sender,
        };
        self.deaths.insert(id, death);
        had_work
    }

    pub(super) fn early_death(&mut self, pid: i32) -> Option<Ended> {
        let at = self.early_deaths.iter().position(|(dead, _)| *dead == pid)?;
        self.early_deaths.remove(at).map(|(_, ended)| ended)
    }
}

impl Preloaders {
    fn unforked_of(&self, pools: &Pools, preloader: i32, worker: WorkerId) -> Option<GenerationId> {
        let worker = pools.workers.get(&worker).filter(|worker| worker.pid.is_none())?;
        let members = &self.by_pid.get(&preloader)?.members;
        let is_asked =
            members.contains(worker.generation) && pools.next_mold_pid(worker.generation) != Some(preloader);
        is_asked.then_some(worker.generation)
    }
}

/// The sender of a worker's signal, as the end of a sentence. The numbers come from the worker and are untrusted.
fn by_whom(origin: Origin, worker: i32) -> String {
    let (pid, uid) = match origin {
        Origin::Kernel => return "the kernel".to_owned(),
        Origin::Process { pid, uid } => (pid, uid),
    };
    if pid == worker {
        return "itself".to_owned();
    }
    if u32::try_from(pid) == Ok(std::process::id()) {
        return "the master".to_owned();
    }
    match process::name(pid) {
        Some(name) => format!("process {pid} ({name}), user id {uid}"),
        None => format!("process {pid}, user id {uid}"),
    }
}

/// The first line of a slot's request, such as `GET /x.php?a=b`, and the script.
pub(super) fn request_and_script(entry: &slot_reader::SlotEntry) -> (String, String) {
    let [method, path, query, script] =
        [0, 1, 2, 3].map(|index| String::from_utf8_lossy(&entry.texts[index]));
    let mark = if query.is_empty() { "" } else { "?" };
    (format!("{method} {path}{mark}{query}"), script.into_owned())
}

fn describe(entry: &slot_reader::SlotEntry) -> Option<String> {
    match entry.stage {
        RequestStage::Creating
        | RequestStage::Accepting
        | RequestStage::Accepted
        | RequestStage::Finished => None,
        RequestStage::Open => Some("holding open WebSockets".into()),
        RequestStage::ReadingHeaders => Some("reading a request".into()),
        RequestStage::Working => Some("doing its out-of-band work".into()),
        RequestStage::Info | RequestStage::Executing | RequestStage::End => {
            let (request, script) = request_and_script(entry);
            Some(format!("serving \"{request}\" (script '{script}')"))
        }
    }
}
