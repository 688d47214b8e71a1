//! The jobs process: start, stop and messages.
//!
//! It outlives a replaced master: when its channel ends, it starts no further job and exits after its last. The next
//! master starts another process; both use one store.

use super::jobs_tcp::JobsTcp;
use crate::context::held_socket::private;
use crate::context::helper::zone;
use crate::context::helper_id::{HelperId, HelperStep};
use crate::context::helper_process::HelperProcess;
use crate::context::helpers::Helpers;
use crate::context::pools::{Pools, RunningPool};
use crate::context::processes::Reported;
use crate::context::{Context, InForce};
use forkyard_config::{self as config, Address, JobsStart, JobsTold};
use forkyard_core::life::{Happened, Rules};
use forkyard_core::master::action::Force;
use forkyard_core::master::event::{Ended, WorkerId};
use forkyard_host::listen::{ListenError, Listener, bind};
use forkyard_protocol::control::JobsStatus;
use forkyard_protocol::jobs::{FromJobs, MOST_BYTES, PATH, ToJobs};
use forkyard_scoreboard::RequestStage;
use forkyard_scoreboard::slot_reader::{self, SlotEntry};
use forkyard_sys::entry::HeldEntry;
use forkyard_sys::fd::{copy, socket_pair};
use forkyard_sys::identity::{self, Identity};
use forkyard_sys::{Error, process, socket};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::socket::SockType;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

/// Every user may connect; the process checks who it is.
const MODE: u32 = 0o666;
const LOOKS: usize = 64;
const TITLE: &str = "forkyard: jobs";

#[derive(Debug, Default)]
pub(crate) struct Jobs {
    state: Option<JobsState>,
    pub(crate) tcp: JobsTcp,
}

#[derive(Debug)]
struct JobsState {
    settings: config::Jobs,
    listener: Listener,
}

impl Jobs {
    /// Follows the configuration in force.
    pub(crate) fn set(&mut self, context: &mut Context) {
        let is_tcp_changed = self.tcp.take_up(&mut context.handover);
        let Some(wanted) = context.in_force.config.jobs.clone() else {
            self.remove_file();
            if self.state.take().is_some() {
                context.remove_helper(HelperId::Jobs);
            }
            return;
        };
        let known = self.state.as_ref();
        let address = Address::Unix(wanted.listen.clone());
        let is_moved = known.is_none_or(|known| known.listener.address != address);
        // Another file or user: the old process ends its jobs, the new one begins with the rest.
        let is_other = known
            .is_some_and(|known| known.settings.store != wanted.store || known.settings.user != wanted.user);
        let is_new = known.is_none() || is_other;
        let is_changed = is_tcp_changed || is_moved || known.is_some_and(|known| known.settings != *wanted);
        if is_other {
            context.remove_helper(HelperId::Jobs);
        }
        let opened = match is_moved.then(|| listen(&wanted.listen, context)).transpose() {
            Ok(opened) => opened,
            Err(error) => {
                self.state.take_if(|_| is_other);
                return log::error!("jobs: {error}");
            }
        };
        if opened.is_some() {
            self.remove_file();
        }
        let known = self.state.take().map(|state| state.listener);
        let Some(listener) = opened.or(known) else {
            return;
        };
        let settings = *wanted;
        let state = self.state.insert(JobsState { settings, listener });
        if is_new {
            context.helpers.want(HelperId::Jobs, None, Rules::ROUTER);
        } else if is_changed {
            let told = (state.settings.clone(), self.tcp.secret().cloned());
            let sockets = std::iter::once(&*state.listener.socket).chain(self.tcp.socket());
            let sockets: Vec<i32> = sockets.map(AsRawFd::as_raw_fd).collect();
            tell(&context.helpers, &ToJobs::Settings(Box::new(told)), &sockets);
        }
    }

    pub(crate) fn follow_process(&self, context: &mut Context, step: HelperStep) -> Result<(), Error> {
        match step {
            HelperStep::Start => return self.start(context),
            HelperStep::Ask(_) => tell(&context.helpers, &ToJobs::Stopping, &[]),
            HelperStep::Idle | HelperStep::Gone(_) => {}
        }
        Ok(())
    }

    fn start(&self, context: &mut Context) -> Result<(), Error> {
        let Some(state) = &self.state else {
            return Ok(());
        };
        let identity = match &state.settings.user {
            Some(user) if identity::is_root() => Some(Identity::look_up(user, None)?),
            _ => None,
        };
        let start = JobsStart {
            title: TITLE.to_owned(),
            log_level: context.in_force.config.global.log_level,
            jobs: state.settings.clone(),
            secret: self.tcp.secret().cloned(),
        };
        let (channel, theirs) = socket_pair(SockType::SeqPacket)?;
        let (messages, messages_in) = socket_pair(SockType::Stream)?;
        let mut passed = vec![theirs, messages_in, copy(&state.listener.socket)?];
        if let Some(socket) = self.tcp.socket() {
            passed.push(copy(socket)?);
        }
        let program = state.settings.store.program();
        let pid = context
            .services
            .start_program(program, TITLE, &(start, identity), passed, zone())?;
        let process = HelperProcess::new(pid, channel, Some(messages));
        context.helper_started(HelperId::Jobs, process)
    }

    pub(crate) fn stop(&self, context: &mut Context) {
        let limit = context.in_force.config.global.process_control_timeout;
        let leave = Happened::Leave(limit);
        context.helpers.tell(&mut context.services, HelperId::Jobs, leave);
    }

    pub(crate) fn remove_file(&self) {
        if let Some(state) = &self.state {
            state.listener.remove_file();
        }
    }

    /// Reads the process's messages. Returns `true` if there may be more.
    pub(crate) fn hear(&self, context: &mut Context) -> bool {
        let mut buffer = vec![0; MOST_BYTES];
        for _ in 0..LOOKS {
            match context.helpers.receive(HelperId::Jobs, &mut buffer) {
                Some(FromJobs::Running { pool }) => {
                    let answer = context.pools.running_jobs(pool);
                    tell(&context.helpers, &answer, &[]);
                }
                Some(FromJobs::Terminate {
                    pool,
                    query,
                    is_forced,
                }) => self.end_job(context, &pool, &query, is_forced),
                None => return false,
            }
        }
        true
    }

    fn end_job(&self, context: &mut Context, pool: &str, query: &str, is_forced: bool) {
        let is_ours = |state: &JobsState| state.settings.queues.iter().any(|queue| queue.pool == pool);
        if !self.state.as_ref().is_some_and(is_ours) {
            return;
        }
        let shows =
            |(_, _, entry): &(WorkerId, RequestStage, SlotEntry)| shown(entry).as_deref() == Some(query);
        if let Some((worker, ..)) = context.pools.at_work(pool).into_iter().find(shows) {
            let force = if is_forced { Force::Kill } else { Force::Terminate };
            context.pools.kill(&mut context.handover, worker, force);
        }
    }

    /// Whether a slot shows a job.
    pub(crate) fn shows_job(&self, entry: &SlotEntry) -> bool {
        self.state.is_some() && shown(entry).is_some()
    }

    pub(crate) fn note_death(
        &self,
        context: &Context,
        id: WorkerId,
        (pid, exit): (i32, Ended),
        report: Option<Reported>,
    ) {
        if self.state.is_none() {
            return;
        }
        let Some(worker) = context.pools.workers.get(&id) else {
            return;
        };
        let Some(generation) = context.pools.generations.get(&worker.generation) else {
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
        let how = match report {
            Some(report) => format!("{how}; see: forkyard error {}", report.id),
            None => how,
        };
        tell(&context.helpers, &ToJobs::Died { pool, query, how }, &[]);
    }
}

pub(crate) fn status(in_force: &InForce) -> Option<Box<JobsStatus>> {
    let jobs = in_force.config.jobs.as_ref()?;
    Some(Box::new(JobsStatus {
        socket: jobs.listen.clone(),
        stats: None,
    }))
}

fn tell(helpers: &Helpers, message: &ToJobs<JobsTold>, descriptors: &[i32]) {
    let Some(process) = helpers.process(HelperId::Jobs) else {
        return;
    };
    match process.send(message, descriptors) {
        Ok(()) => {}
        Err(error) if matches!(error.errno, Errno::EPIPE | Errno::ECONNRESET) => {}
        // It does not read; the next process gets everything.
        Err(error) => {
            log::error!("jobs: the process that keeps them is killed because it does not listen: {error}");
            process.kill();
        }
    }
}

fn listen(path: &Path, context: &mut Context) -> Result<Listener, ListenError> {
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
    bind(&private(address, MODE), &mut context.handover.inherited)
}

impl Pools {
    fn at_work(&self, pool: &str) -> Vec<(WorkerId, RequestStage, SlotEntry)> {
        let mut found = Vec::new();
        for id in self.pools_named(pool) {
            let pages = self.generations.of(&id).flat_map(|(_, it)| it.pages());
            found.extend(
                pages.map(|(_, worker, page)| (worker, slot_reader::stage(page), slot_reader::read(page))),
            );
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
