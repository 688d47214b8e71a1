//! Stops and ends of workers.

use super::start_report::{End, account, say_report};
use crate::context::Context;
use crate::context::effect::Effect;
use crate::context::generation::Generation;
use crate::context::handover::Handover;
use crate::context::pools::Pools;
use crate::context::processes::Reported;
use crate::context::processes::{Death, Processes};
use crate::context::worker::WorkerProcess;
use forkyard_config::Preload;
use forkyard_core::master::action::Force;
use forkyard_core::master::event::{Ended, Event, GenerationId, StopRequest, WorkerId};
use forkyard_core::master::secrets::without_secrets;
use forkyard_scoreboard::{RequestStage, header, slot_reader};
use forkyard_spawn::plan::{Kind, Plan};
use forkyard_spawn::step::{Route, Step};
use forkyard_sys::identity::Identity;
use forkyard_sys::sender::Origin;
use forkyard_sys::{Error, clock, process, timeout_responder};
use nix::sys::signal::Signal;
use std::path::Path;

const CANT_BEGIN: (&str, &str) = (
    "a worker can't begin",
    "The application is loaded. Code that it runs in each worker before the first request (the start of its \
     lifespan, functions that run after the fork) ended the worker.",
);

const CANT_LOAD: (&str, &str) = (
    CANT_BEGIN.0,
    "The application is loaded in each worker. Loading it, or code that it runs there before the first request \
     (the start of its lifespan, functions that run after the fork), ended the worker.",
);

impl Context {
    pub(crate) fn worker_ended(&mut self, id: WorkerId, pid: i32, exit: Ended) {
        // Its messages first, so that it is known to have been up.
        if let Some(worker) = self.pools.workers.get(&id) {
            self.accept_notify(worker.generation);
        }
        self.services.cause(Effect::WorkerEnded(id, pid, exit));
    }

    pub(crate) fn foreign_ended(&mut self, id: WorkerId) {
        if let Some(worker) = self.pools.workers.get(&id) {
            self.worker_ended(id, worker.pid.unwrap_or_default(), Ended::Unknown);
        }
    }

    /// Reads the rest of an ended worker's output from its pipes.
    pub(crate) fn hear_last_output(&mut self, id: WorkerId, pid: i32) {
        if let Some(mut worker) = self.pools.workers.remove(&id) {
            self.pools.read_last_output(&mut self.services, &mut worker, pid);
            self.pools.workers.insert(id, worker);
        }
    }

    /// Forgets an ended worker.
    pub(crate) fn worker_gone(&mut self, id: WorkerId, (pid, exit): (i32, Ended), report: Option<Reported>) {
        let had_work = self.processes.note_death(&self.pools, id, pid, report);
        self.pools.count_exit(id, exit);
        if let Some(worker) = self.pools.workers.remove(&id) {
            self.report_early_exit(&worker, pid, exit);
            if let Some(process) = &worker.foreign {
                self.services.sources.forget(process);
            }
            if let Some(generation) = self.pools.generations.get_mut(&worker.generation) {
                generation.free_slot(worker.slot);
                if let Some(pool) = self.pools.by_id.get_mut(&generation.pool) {
                    pool.left_at = Some(clock::now());
                }
            }
            self.pools.vacated.insert(worker.generation);
            self.handover.generation_changed(worker.generation);
            let names = worker.named(id).into_iter().map(|(name, _)| name);
            self.handover.unkeep(names);
        }
        self.services.cause(Effect::WorkerGone(id));
        self.services.tell(Event::WorkerExited(id, exit, had_work));
    }

    /// Reports the end of a worker that never took up work, if the application caused it.
    fn report_early_exit(&mut self, worker: &WorkerProcess, pid: i32, ended: Ended) {
        if worker.up || worker.told.is_some() || ended == Ended::Unknown || ended.is_from_outside() {
            return;
        }
        if self.has_told_of_start(worker) {
            return;
        }
        let Some(generation) = self.pools.generations.get(&worker.generation) else {
            return;
        };
        let settings = &generation.settings;
        let output = String::from_utf8_lossy(&worker.last_output);
        let application = &settings.pool.application;
        let wrapped = application.wrapped();
        let command = wrapped.map_or("a worker".to_owned(), |it| it.interpreter.display().to_string());
        let is_never_preloaded = wrapped.is_some_and(|it| it.preload == Preload::Never);
        let loads = is_never_preloaded || generation.make.connected_to.is_some();
        let root = application.root().unwrap_or(Path::new("/")).to_owned();
        let name = &settings.pool.name;
        let mut plan = Plan::new(name, root, &command, account(settings.identity.clone()));
        plan.kind = Kind::Wrapper;
        plan.secrets = generation.secrets();
        let end = End {
            plan,
            // The preloader has loaded the application, so the report that it is up is the worker's only missing step.
            route: Route::StartPreloader,
            step: Step::SubprocessFinish,
            pid,
            ended,
            began: worker.begun,
            output: output.trim_end().to_owned(),
            is_output_seen: settings.pool.logs.catch_workers_output,
            words: if loads { CANT_LOAD } else { CANT_BEGIN },
        };
        let (report, name) = (end.report(), name.clone());
        // The output is in the log already.
        say_report(&report, true);
        self.pools.keep_report(&report, vec![name]);
        self.services
            .cause(Effect::StartFailed(vec![worker.generation], report));
    }

    fn has_told_of_start(&mut self, worker: &WorkerProcess) -> bool {
        // Its last report may still be unread.
        self.pools.hear_reports(worker.generation);
        let Some(generation) = self.pools.generations.get(&worker.generation) else {
            return false;
        };
        let is_told = generation.settings.pool.application.traits().starts_from_disk;
        let last = self.pools.errors.last(&generation.settings.pool.name);
        is_told && last.is_some_and(|kept| kept.report.ended >= worker.begun)
    }

    /// Whether a process is an unknown child that may belong to this generation. Orphans of every pool become children:
    /// a preloader must not claim another user's.
    pub(crate) fn is_new_child(&self, id: GenerationId, pid: i32) -> bool {
        let generation = self.pools.generations.get(&id);
        let identity = generation.and_then(|generation| generation.settings.identity.as_ref());
        let zygotes_user = generation.and_then(Generation::zygotes_user);
        let is_own = |identity: &Identity| {
            let user = process::real_user(pid);
            user == Some(identity.uid) || user.is_some() && user == zygotes_user
        };
        let is_known = self.processes.by_pid.contains_key(&pid) || self.spawner.knows(pid);
        !is_known && process::is_child(pid) && identity.is_none_or(is_own)
    }
}

impl Pools {
    pub(crate) fn retire(&mut self, handover: &mut Handover, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        worker.told.get_or_insert((StopRequest::Retire, clock::now()));
        let (generation, slot) = (worker.generation, worker.slot);
        handover.generation_changed(generation);
        self.close_stop_pipe(handover, id);
        if let Some(resources) = self.resources(generation) {
            header::set_retire(resources.board.header(), slot as usize, true);
            if let Some(gate) = resources.board.gate() {
                gate.leave(slot as usize, clock::now());
            }
        }
    }

    /// Ends a worker by a signal. `Force::Ask` only closes the stop pipe.
    pub(crate) fn kill(&mut self, handover: &mut Handover, id: WorkerId, force: Force) {
        let (told, signal) = match force {
            Force::Ask => return self.close_stop_pipe(handover, id),
            Force::Terminate => (StopRequest::Terminate, Signal::SIGTERM),
            Force::Kill => (StopRequest::Kill, Signal::SIGKILL),
        };
        self.end_worker(handover, id, told, |worker| worker.signal(signal));
    }

    pub(crate) fn respond_timeout(&mut self, handover: &mut Handover, id: WorkerId) {
        self.count(id, |counters| counters.terminated += 1);
        self.end_worker(handover, id, StopRequest::Terminate, |worker| {
            match (&worker.foreign, worker.pid) {
                (None, Some(pid)) => timeout_responder::send_timeout(pid),
                // Only a child gets the value with the signal.
                _ => worker.signal(Signal::SIGTERM),
            }
        });
    }

    fn end_worker(
        &mut self,
        handover: &mut Handover,
        id: WorkerId,
        told: StopRequest,
        send: impl FnOnce(&WorkerProcess) -> Result<(), Error>,
    ) {
        self.close_stop_pipe(handover, id);
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        worker.told = Some((told, clock::now()));
        handover.generation_changed(worker.generation);
        if let Err(error) = send(worker) {
            log::error!("[pool {}] {error}", self.name_worker(id).0);
        }
    }
}

impl Processes {
    /// Records a worker's end and its request for the core's log line; returns whether it ever had work.
    fn note_death(&mut self, pools: &Pools, id: WorkerId, pid: i32, report: Option<Reported>) -> bool {
        let Some(worker) = pools.workers.get(&id) else {
            return false;
        };
        let Some(generation) = pools.generations.get(&worker.generation) else {
            return false;
        };
        let uptime = clock::now().since(worker.begun);
        let page = generation.page(worker.slot);
        let entry = page.map(slot_reader::read);
        let had_work = entry.as_ref().is_some_and(slot_reader::SlotEntry::had_work);
        let doing = entry.as_ref().and_then(describe);
        let sent = page.and_then(slot_reader::sent);
        let sender = sent.and_then(|sent| Some((sent.signal, by_whom(sent.origin, pid)?)));
        let death = Death {
            pid,
            pool: generation.settings.pool.name.clone(),
            generation: worker.generation,
            uptime,
            doing,
            is_ordered: worker.told.is_some(),
            sender,
            report,
        };
        self.deaths.insert(id, death);
        had_work
    }
}

/// Describes the sender of a worker's signal, as the end of a sentence. `None`: the worker's own fault raised the signal.
/// The numbers come from the worker and are untrusted.
pub(crate) fn by_whom(origin: Origin, worker: i32) -> Option<String> {
    let (pid, uid) = match origin {
        Origin::Kernel => return Some("the kernel".to_owned()),
        Origin::Fault | Origin::StackOverflow => return None,
        Origin::Process { pid, uid } => (pid, uid),
    };
    if pid == worker {
        return Some("itself".to_owned());
    }
    if u32::try_from(pid) == Ok(std::process::id()) {
        return Some("the master".to_owned());
    }
    Some(match process::name(pid) {
        Some(name) => format!("process {pid} ({name}), user id {uid}"),
        None => format!("process {pid}, user id {uid}"),
    })
}

/// The first line of a slot's request, such as `GET /x.php?a=b`, and the script.
pub(crate) fn request_and_script(entry: &slot_reader::SlotEntry) -> (String, String) {
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
            let mut entry = entry.clone();
            entry.texts[2] = without_secrets(&String::from_utf8_lossy(&entry.texts[2])).into_bytes();
            let (request, script) = request_and_script(&entry);
            Some(format!("serving \"{request}\" (script '{script}')"))
        }
    }
}
