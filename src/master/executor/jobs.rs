//! The jobs process: start, stop and messages.
//!
//! It outlives a replaced master: when its channel ends, it starts no further job and exits after its last. The next
//! master starts another process; both use one store.

use super::control::private;
use super::helper::zone;
use super::launches::account;
use super::output::{Lines, PipeRead};
use super::pools::RunningPool;
use super::sources::Source;
use super::{Context, Executor, Helpers, Pools, Who};
use crate::config::{Address, Jobs, JobsStart, JobsTold};
use crate::control::protocol::JobsStatus;
use crate::jobs::{FromJobs, MOST_BYTES, PATH, ToJobs};
use crate::life::{Happened, Helper, HelperAction, Rules};
use crate::listen::{ListenError, Listener, bind};
use crate::logs::parse_message;
use crate::master::action::Force;
use crate::master::event::{Exit, StopRequest, WorkerId};
use crate::master::job_crash::JobCrash;
use crate::scoreboard::RequestStage;
use crate::scoreboard::slot_reader::{self, SlotEntry};
use crate::spawn::error as spawn_error;
use crate::spawn::self_spawn::error_id;
use crate::sys::entry::HeldEntry;
use crate::sys::fd::{send_with, socket_pair};
use crate::sys::guarded::Guarded;
use crate::sys::identity::{self, Identity};
use crate::sys::process::{self, Ended};
use crate::sys::socket::Progress;
use crate::sys::{Error, clock, socket};
use crate::tick::Tick;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::socket::SockType;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Every user may connect; the process checks who it is.
const MODE: u32 = 0o666;
const LOOKS: usize = 64;
/// The time for the jobs process to record its last jobs when the daemon ends.
const LAST_PATIENCE: Duration = Duration::from_secs(5);
const TITLE: &str = "forkyard: jobs";

#[derive(Debug)]
pub(super) struct JobsState {
    settings: Jobs,
    listener: Listener,
    life: Helper,
    process: Option<JobsProcess>,
}

#[derive(Debug)]
struct JobsProcess {
    pid: i32,
    channel: Guarded,
    messages: Lines,
}

impl Executor {
    pub(in crate::master) fn set_jobs(&mut self) {
        let is_tcp_changed = self.helpers.jobs_tcp.take_up(&mut self.handover);
        let wanted = self.reload.config.jobs.clone();
        let Some(wanted) = wanted else {
            if let Some(state) = self.helpers.jobs.take() {
                state.listener.remove_file();
                self.context.sources_forget_jobs(&state);
            }
            return;
        };
        let moved = match &self.helpers.jobs {
            // Another file or user: the old process ends its jobs, the new one begins with the rest.
            Some(state) if state.settings.store != wanted.store || state.settings.user != wanted.user => {
                self.context.sources_forget_jobs(state);
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
                    life: Helper::new(Rules::ROUTER, clock::now()),
                    process: None,
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
        bind(&private(address, MODE), &mut self.handover.inherited)
    }

    pub(in crate::master) fn poll_jobs(&mut self, now: Tick) {
        let Some(state) = &mut self.helpers.jobs else {
            return;
        };
        if state.life.deadline().is_some_and(|deadline| deadline <= now) {
            let step = state.life.handle(Happened::Deadline, now);
            self.jobs_step(step);
        }
    }

    fn jobs_step(&mut self, step: HelperAction) {
        match step {
            HelperAction::None | HelperAction::Idle => {}
            HelperAction::Start => {
                if let Err(error) = self.start_jobs() {
                    log::error!("jobs: the process that keeps them can't be started: {error}");
                    self.tell_life_of_jobs(Happened::Failed);
                }
            }
            HelperAction::Ask => {
                if let Some(state) = &self.helpers.jobs {
                    state.tell(&ToJobs::Stopping, &[]);
                }
            }
            HelperAction::Kill => {
                if let Some(process) = self
                    .helpers
                    .jobs
                    .as_ref()
                    .and_then(|state| state.process.as_ref())
                {
                    let _ = process::send_signal(process.pid, Signal::SIGKILL);
                }
            }
            HelperAction::BackOff(delay) => log::warn!(
                "jobs: the process that keeps them is not well; the next try is in {} s",
                delay.as_secs_f64()
            ),
        }
    }

    fn tell_life_of_jobs(&mut self, happened: Happened) {
        if let Some(state) = &mut self.helpers.jobs {
            let step = state.life.handle(happened, clock::now());
            self.jobs_step(step);
        }
    }

    fn start_jobs(&mut self) -> Result<(), Error> {
        let Some(state) = &mut self.helpers.jobs else {
            return Ok(());
        };
        let identity = match &state.settings.user {
            Some(user) if identity::is_root() => Some(Identity::look_up(user, None)?),
            _ => None,
        };
        let start = JobsStart {
            title: TITLE.to_owned(),
            log_level: self.reload.config.global.log_level,
            jobs: state.settings.clone(),
            secret: self.helpers.jobs_tcp.secret().cloned(),
        };
        let (channel, theirs) = socket_pair(SockType::SeqPacket)?;
        let (messages, messages_in) = socket_pair(SockType::Stream)?;
        let copy = |socket: &OwnedFd| {
            let copied = socket.try_clone();
            copied.map_err(|error| Error::from_io("dup", "", &error))
        };
        let mut passed = vec![theirs, messages_in, copy(&state.listener.socket)?];
        if let Some(socket) = self.helpers.jobs_tcp.socket() {
            passed.push(copy(socket)?);
        }
        let environment: Vec<_> = zone().into_iter().collect();
        let pid = self.context.start_program(
            state.settings.store.program(),
            TITLE,
            &(start, identity),
            passed,
            &environment,
        )?;
        self.context.sources.watch(&channel, Source::Jobs)?;
        self.context.sources.watch(&messages, Source::JobsMessages)?;
        self.processes.by_pid.insert(pid, Who::Jobs);
        log::debug!("jobs: process {pid} started");
        state.process = Some(JobsProcess {
            pid,
            channel: Guarded::new(channel),
            messages: Lines::new(Guarded::new(messages)),
        });
        Ok(())
    }

    pub(super) fn jobs_gone(&mut self, pid: i32, ended: Ended) {
        self.read_jobs_messages();
        // A process of an older configuration ends by itself.
        let is_present =
            |state: &&mut JobsState| state.process.as_ref().is_some_and(|process| process.pid == pid);
        let Some(state) = self.helpers.jobs.as_mut().filter(is_present) else {
            return;
        };
        if let Some(process) = state.process.take() {
            self.context.sources.forget(&process.channel);
            self.context.sources.forget(process.messages.pipe());
        }
        if !state.life.is_leaving() {
            log::warn!("jobs: the process that keeps them (pid {pid}) ended: {ended:?}");
        }
        self.tell_life_of_jobs(Happened::Failed);
    }

    pub(super) fn jobs_status(&self) -> Option<Box<JobsStatus>> {
        let jobs = self.reload.config.jobs.as_ref()?;
        Some(Box::new(JobsStatus {
            socket: jobs.listen.clone(),
            stats: None,
        }))
    }

    pub(in crate::master) fn stop_jobs(&mut self) {
        let limit = self.reload.config.global.process_control_timeout;
        self.tell_life_of_jobs(Happened::Leave(limit));
    }

    pub(in crate::master) fn end_jobs(&mut self) {
        let Some(state) = self.helpers.jobs.take() else {
            return;
        };
        state.listener.remove_file();
        if let Some(process) = state.process {
            // The end of the channel lets it exit after its last job.
            drop(process.channel);
            if process::reap_within(process.pid, LAST_PATIENCE).is_none() {
                process::kill_and_reap(process.pid);
            }
        }
    }

    /// Reads the process's messages. Returns `true` if there may be more.
    pub(super) fn hear_jobs(&mut self) -> bool {
        let mut buffer = vec![0; MOST_BYTES];
        for _ in 0..LOOKS {
            let process = self
                .helpers
                .jobs
                .as_ref()
                .and_then(|state| state.process.as_ref());
            let Some(process) = process else { return false };
            let bytes = match process.channel.receive(&mut buffer) {
                Ok(Progress::Done(count)) if count > 0 => &buffer[..count],
                Ok(_) | Err(_) => return false,
            };
            match serde_json::from_slice::<FromJobs>(bytes) {
                Ok(FromJobs::Running { pool }) => {
                    let answer = self.pools.running_jobs(pool);
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
                    let _ = process::send_signal(process.pid, Signal::SIGKILL);
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
        if let Some((worker, ..)) = self.pools.at_work(pool).into_iter().find(shows) {
            let force = if is_forced { Force::Kill } else { Force::Terminate };
            self.pools.kill(&mut self.handover, worker, force);
        }
    }

    pub(super) fn tell_jobs_of_death(&mut self, id: WorkerId, pid: i32, exit: Exit) {
        let Some(state) = &self.helpers.jobs else { return };
        let Some(worker) = self.pools.workers.get(&id) else {
            return;
        };
        let Some(generation) = self.pools.generations.get(&worker.generation) else {
            return;
        };
        let page = generation
            .resources
            .as_ref()
            .and_then(|it| it.board.slot(worker.slot as usize));
        let Some(entry) = page.map(slot_reader::read) else {
            return;
        };
        let Some(query) = shown(&entry) else { return };
        let how = match exit {
            Exit::Code(code) => format!("worker {pid} exited with code {code}"),
            Exit::Signal { signal, core } => {
                let name = Signal::try_from(signal).map_or("unknown", Signal::as_str);
                let core = if core { ", core dumped" } else { "" };
                format!("worker {pid} exited on signal {signal} ({name}{core})")
            }
            Exit::Unknown => format!("worker {pid} ended"),
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
            ended: match exit {
                Exit::Code(code) => spawn_error::Ended::Code(code),
                Exit::Signal { signal, core } => spawn_error::Ended::Signal { number: signal, core },
                Exit::Unknown => spawn_error::Ended::Unknown,
            },
            after: clock::now().since(entry.since),
        });
        let how = match &crash {
            Some(crash) => format!("{how}; see: forkyard error {}", crash.id),
            None => how,
        };
        state.tell(&ToJobs::Died { pool, query, how }, &[]);
        if let Some(crash) = crash {
            self.pools.errors.keep_crash(crash);
        }
    }

    /// Logs the process's output. Returns `true` if there may be more.
    pub(super) fn read_jobs_messages(&mut self) -> bool {
        let log = self.context.log;
        let process = self
            .helpers
            .jobs
            .as_mut()
            .and_then(|state| state.process.as_mut());
        let Some(process) = process else { return false };
        let look = process.messages.read(|line| {
            let (level, text) = parse_message(line);
            // The process may not write as a pool.
            let text = text.strip_prefix("jobs: ").unwrap_or(&text);
            log.write(level, &format!("jobs: {text}"));
        });
        if look == PipeRead::Ended {
            self.context.sources.forget(process.messages.pipe());
        }
        look == PipeRead::More
    }
}

impl Helpers {
    pub(in crate::master) fn jobs_deadline(&self) -> Option<Tick> {
        self.jobs.as_ref()?.life.deadline()
    }
}

impl Context {
    fn sources_forget_jobs(&mut self, state: &JobsState) {
        if let Some(process) = &state.process {
            self.sources.forget(&process.channel);
            self.sources.forget(process.messages.pipe());
        }
    }
}

impl JobsState {
    fn tell(&self, message: &ToJobs<JobsTold>, descriptors: &[i32]) {
        let Some(process) = &self.process else { return };
        // Serialising plain values can't fail.
        let bytes = serde_json::to_vec(message).unwrap_or_default();
        match send_with(process.channel.as_fd(), &bytes, descriptors) {
            Ok(_) => {}
            Err(error) if matches!(error.errno, Errno::EPIPE | Errno::ECONNRESET) => {}
            // It does not read; the next process gets everything.
            Err(error) => {
                log::error!(
                    "jobs: the process that keeps them is killed because it does not listen: {error}"
                );
                let _ = process::send_signal(process.pid, Signal::SIGKILL);
            }
        }
    }
}

impl Pools {
    fn at_work(&self, pool: &str) -> Vec<(WorkerId, RequestStage, SlotEntry)> {
        let mut found = Vec::new();
        for id in self.pools_named(pool) {
            for (_, generation) in self.generations.of(&id) {
                let Some(resources) = &generation.resources else {
                    continue;
                };
                for (slot, worker) in &generation.slots {
                    if let Some(page) = resources.board.slot(*slot as usize) {
                        found.push((*worker, slot_reader::stage(page), slot_reader::read(page)));
                    }
                }
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
