//! The jobs process: start, stop and messages.
//!
//! It outlives a replaced master: when its channel ends, it starts no further job and exits after its last. The next
//! master starts another process; both use one store.

use super::control::private;
use super::helper::zone;
use super::helper_process::{HelperId, HelperProcess, RunningHelper};
use super::pools::RunningPool;
use super::sources::Source;
use super::start_report::account;
use super::{Executor, Pools, Services};
use crate::config::{Address, Jobs, JobsStart, JobsTold};
use crate::control::protocol::JobsStatus;
use crate::jobs::{FromJobs, MOST_BYTES, PATH, ToJobs};
use crate::life::{Happened, Rules};
use crate::listen::{ListenError, Listener, bind};
use crate::master::action::Force;
use crate::master::event::{Ended, StopRequest, WorkerId};
use crate::master::job_crash::JobCrash;
use crate::scoreboard::RequestStage;
use crate::scoreboard::slot_reader::{self, SlotEntry};
use crate::spawn::self_spawn::error_id;
use crate::sys::entry::HeldEntry;
use crate::sys::fd::{copy, socket_pair};
use crate::sys::identity::{self, Identity};
use crate::sys::process;
use crate::sys::socket::Progress;
use crate::sys::{Error, clock, socket};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::socket::SockType;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

/// Every user may connect; the process checks who it is.
const MODE: u32 = 0o666;
const LOOKS: usize = 64;
const TITLE: &str = "forkyard: jobs";

#[derive(Debug)]
pub(super) struct JobsState {
    settings: Jobs,
    pub(super) listener: Listener,
    pub(super) process: HelperProcess,
}

impl Executor {
    pub(in crate::master) fn set_jobs(&mut self) {
        let is_tcp_changed = self.helpers.jobs_tcp.take_up(&mut self.context.handover);
        let wanted = self.context.in_force.config.jobs.clone();
        let Some(wanted) = wanted else {
            if let Some(state) = self.helpers.jobs.take() {
                state.listener.remove_file();
                self.context.services.forget_jobs(&state);
            }
            return;
        };
        let moved = match &self.helpers.jobs {
            // Another file or user: the old process ends its jobs, the new one begins with the rest.
            Some(state) if state.settings.store != wanted.store || state.settings.user != wanted.user => {
                self.context.services.forget_jobs(state);
                let state = self.helpers.jobs.take();
                let listener = state.map(|state| state.listener);
                listener.filter(|it| it.address == Address::Unix(wanted.listen.clone()))
            }
            _ => None,
        };
        let known = self.helpers.jobs.as_ref().map(|state| &state.listener.address);
        let is_same = known == Some(&Address::Unix(wanted.listen.clone()));
        let listener = match (is_same, moved) {
            (true, _) => None,
            (false, Some(moved)) => Some(moved),
            (false, None) => match self.listen_for_jobs(&wanted.listen) {
                Ok(listener) => Some(listener),
                Err(error) => return log::error!("jobs: {error}"),
            },
        };
        let Some(state) = &mut self.helpers.jobs else {
            if let Some(listener) = listener {
                self.helpers.jobs = Some(JobsState {
                    settings: *wanted,
                    listener,
                    process: HelperProcess::new(Rules::ROUTER),
                });
            }
            return;
        };
        if let Some(listener) = listener {
            state.listener.remove_file();
            state.listener = listener;
        } else if state.settings == *wanted && !is_tcp_changed {
            return;
        }
        state.settings = *wanted;
        let tcp = &self.helpers.jobs_tcp;
        let told = (state.settings.clone(), tcp.secret().cloned());
        let sockets = std::iter::once(&*state.listener.socket).chain(tcp.socket());
        let sockets: Vec<i32> = sockets.map(AsRawFd::as_raw_fd).collect();
        state.tell(&ToJobs::Settings(Box::new(told)), &sockets);
    }

    fn listen_for_jobs(&mut self, path: &Path) -> Result<Listener, ListenError> {
        // The previous master's process may still have the socket; then its creator is gone, or is this process before
        // exec.
        if let Ok(Some(probe)) = socket::connect_unix(path) {
            let maker = socket::listener_pid(probe.as_fd())?;
            let own = i32::try_from(std::process::id()).unwrap_or(0);
            if maker == own || !process::exists(maker) {
                let _ = HeldEntry::locate(path).and_then(|entry| entry.remove());
            }
        }
        let address = Address::Unix(path.to_owned());
        bind(&private(address, MODE), &mut self.context.handover.inherited)
    }

    pub(super) fn start_jobs(&mut self) -> Result<(), Error> {
        let Some(state) = &self.helpers.jobs else {
            return Ok(());
        };
        let identity = match &state.settings.user {
            Some(user) if identity::is_root() => Some(Identity::look_up(user, None)?),
            _ => None,
        };
        let start = JobsStart {
            title: TITLE.to_owned(),
            log_level: self.context.in_force.config.global.log_level,
            jobs: state.settings.clone(),
            secret: self.helpers.jobs_tcp.secret().cloned(),
        };
        let (channel, theirs) = socket_pair(SockType::SeqPacket)?;
        let (messages, messages_in) = socket_pair(SockType::Stream)?;
        let mut passed = vec![theirs, messages_in, copy(&state.listener.socket)?];
        if let Some(socket) = self.helpers.jobs_tcp.socket() {
            passed.push(copy(socket)?);
        }
        let pid = self.context.services.start_program(
            state.settings.store.program(),
            TITLE,
            &(start, identity),
            passed,
            zone(),
        )?;
        self.context.services.sources.watch(&channel, Source::Jobs)?;
        let mut running = RunningHelper::new(pid, Some(channel));
        running.hear(HelperId::Jobs, messages, &mut self.context.services.sources)?;
        self.helper_started(HelperId::Jobs, running);
        Ok(())
    }

    pub(super) fn jobs_status(&self) -> Option<Box<JobsStatus>> {
        let jobs = self.context.in_force.config.jobs.as_ref()?;
        Some(Box::new(JobsStatus {
            socket: jobs.listen.clone(),
            stats: None,
        }))
    }

    pub(in crate::master) fn stop_jobs(&mut self) {
        let limit = self.context.in_force.config.global.process_control_timeout;
        self.tell_helper(HelperId::Jobs, Happened::Leave(limit));
    }

    pub(super) fn stop_taking_jobs(&self) {
        if let Some(state) = &self.helpers.jobs {
            state.tell(&ToJobs::Stopping, &[]);
        }
    }

    /// Reads the process's messages. Returns `true` if there may be more.
    pub(super) fn hear_jobs(&mut self) -> bool {
        let mut buffer = vec![0; MOST_BYTES];
        for _ in 0..LOOKS {
            let state = self.helpers.jobs.as_ref();
            let running = state.and_then(|state| state.process.running.as_ref());
            let Some(channel) = running.and_then(|it| it.channel.as_ref()) else {
                return false;
            };
            let bytes = match channel.receive(&mut buffer) {
                Ok(Progress::Done(count)) if count > 0 => &buffer[..count],
                Ok(_) | Err(_) => return false,
            };
            match serde_json::from_slice::<FromJobs>(bytes) {
                Ok(FromJobs::Running { pool }) => {
                    let answer = self.context.pools.running_jobs(pool);
                    if let Some(state) = &self.helpers.jobs {
                        state.tell(&answer, &[]);
                    }
                }
                Ok(FromJobs::Terminate {
                    pool,
                    query,
                    is_forced,
                }) => self.end_job(&pool, &query, is_forced),
                Err(error) => {
                    log::error!(
                        "jobs: the process that keeps them is killed because it does not keep to the protocol: {error}"
                    );
                    if let Some(state) = &self.helpers.jobs {
                        state.process.kill();
                    }
                    return false;
                }
            }
        }
        true
    }

    fn end_job(&mut self, pool: &str, query: &str, is_forced: bool) {
        let is_ours = |state: &JobsState| state.settings.queues.iter().any(|queue| queue.pool == pool);
        if !self.helpers.jobs.as_ref().is_some_and(is_ours) {
            return;
        }
        let shows =
            |(_, _, entry): &(WorkerId, RequestStage, SlotEntry)| shown(entry).as_deref() == Some(query);
        if let Some((worker, ..)) = self.context.pools.at_work(pool).into_iter().find(shows) {
            let force = if is_forced { Force::Kill } else { Force::Terminate };
            self.context.pools.kill(&mut self.context.handover, worker, force);
        }
    }

    pub(super) fn tell_jobs_of_death(&mut self, id: WorkerId, pid: i32, exit: Ended) {
        let Some(state) = &self.helpers.jobs else { return };
        let Some(worker) = self.context.pools.workers.get(&id) else {
            return;
        };
        let Some(generation) = self.context.pools.generations.get(&worker.generation) else {
            return;
        };
        let Some(entry) = generation.page(worker.slot).map(slot_reader::read) else {
            return;
        };
        let Some(query) = shown(&entry) else { return };
        let how = match exit {
            Ended::Code(code) => format!("worker {pid} exited with code {code}"),
            Ended::Signal { number, core } => {
                let name = Signal::try_from(number).map_or("unknown", Signal::as_str);
                let core = if core { ", core dumped" } else { "" };
                format!("worker {pid} exited on signal {number} ({name}{core})")
            }
            Ended::Unknown => format!("worker {pid} ended"),
        };
        let pool = generation.settings.pool.name.clone();
        // A worker that was told to end did not crash: its time was over, or the job was cancelled.
        let is_told = (worker.told.as_ref()).is_some_and(|(told, _)| *told != StopRequest::Retire);
        let crash = (!is_told).then(|| JobCrash {
            id: error_id(clock::now().as_nanos() ^ u64::from(pid.unsigned_abs())),
            epoch_s: clock::epoch_seconds(),
            pool: pool.clone(),
            uid: account(generation.settings.identity.clone()).uid,
            path: String::from_utf8_lossy(&entry.texts[1]).into_owned(),
            query: query.clone(),
            script: String::from_utf8_lossy(&entry.texts[3]).into_owned(),
            pid,
            ended: exit,
            after: clock::now().since(entry.since),
        });
        let how = match &crash {
            Some(crash) => format!("{how}; see: forkyard error {}", crash.id),
            None => how,
        };
        state.tell(&ToJobs::Died { pool, query, how }, &[]);
        if let Some(crash) = crash {
            self.context.pools.errors.keep_crash(crash);
        }
    }
}

impl Services {
    fn forget_jobs(&mut self, state: &JobsState) {
        if let Some(running) = &state.process.running {
            running.forget(&mut self.sources);
        }
    }
}

impl JobsState {
    fn tell(&self, message: &ToJobs<JobsTold>, descriptors: &[i32]) {
        let Some(running) = &self.process.running else {
            return;
        };
        match running.send(message, descriptors) {
            Ok(()) => {}
            Err(error) if matches!(error.errno, Errno::EPIPE | Errno::ECONNRESET) => {}
            // It does not read; the next process gets everything.
            Err(error) => {
                log::error!(
                    "jobs: the process that keeps them is killed because it does not listen: {error}"
                );
                running.kill();
            }
        }
    }
}

impl Pools {
    fn at_work(&self, pool: &str) -> Vec<(WorkerId, RequestStage, SlotEntry)> {
        let mut found = Vec::new();
        for id in self.pools_named(pool) {
            for (_, generation) in self.generations.of(&id) {
                let pages = generation.pages();
                found
                    .extend(pages.map(|(_, worker, page)| {
                        (worker, slot_reader::stage(page), slot_reader::read(page))
                    }));
            }
        }
        found
    }

    /// The jobs that a pool's workers show, and whether one may be on its way. The queue is read first: a job that
    /// leaves it then is seen in a worker. Abandoned connections also come first: one that ends in between is only
    /// counted once too often.
    fn running_jobs(&self, pool: String) -> ToJobs<JobsTold> {
        let (mut is_settled, mut abandoned) = (true, 0);
        for id in self.pools_named(&pool) {
            abandoned += self.by_id.get(&id).map_or(0, RunningPool::abandoned);
            let queue = self.by_id.get(&id).and_then(|pool| pool.listen_queue());
            is_settled &= queue.is_none_or(|queue| queue.current == 0);
        }
        let mut queries = Vec::new();
        let mut bytes = 0;
        for (_, stage, entry) in self.at_work(&pool) {
            is_settled &= !matches!(stage, RequestStage::Accepted | RequestStage::ReadingHeaders);
            if let Some(query) = shown(&entry) {
                bytes += query.len() + 3;
                queries.push(query);
            }
        }
        if bytes > MOST_BYTES / 2 {
            queries.clear();
            is_settled = false;
        }
        ToJobs::Running {
            pool,
            queries,
            is_settled,
            abandoned,
        }
    }
}

fn shown(entry: &SlotEntry) -> Option<String> {
    let is_busy = matches!(
        entry.stage,
        RequestStage::Info | RequestStage::Executing | RequestStage::End
    );
    let query = String::from_utf8_lossy(&entry.texts[2]).into_owned();
    (is_busy && entry.texts[1].starts_with(PATH.as_bytes()) && query.starts_with("job=")).then_some(query)
}
