//! Helper processes: reporters, routers, inspectors and the jobs process. [`Helper`] decides when one starts and stops.

use super::output::{Lines, PipeRead, read_rest};
use super::sources::{Source, Sources};
use super::{Executor, Who, notices};
use crate::life::{Happened, Helper, HelperAction, Rules};
use crate::logs::parse_message;
use crate::master::event::{GenerationId, PoolId};
use crate::master::heartbeat::{Activity, Heartbeat, HeartbeatAction, Sample};
use crate::sys::fd::send_with;
use crate::sys::guarded::Guarded;
use crate::sys::process::{self, Ended};
use crate::sys::{Error, clock, fd, socket};
use crate::tick::Tick;
use nix::sys::signal::Signal;
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::time::Duration;

/// The time for a helper to exit by itself when the daemon ends.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::master) enum HelperId {
    Reporter(PoolId),
    Router(PoolId),
    Inspector(PoolId),
    Jobs,
}

impl fmt::Display for HelperId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HelperId::Reporter(_) => "reporter",
            HelperId::Router(_) => "router",
            HelperId::Inspector(_) => "inspector",
            HelperId::Jobs => "process that keeps them",
        })
    }
}

#[derive(Debug)]
pub(super) struct HelperProcess {
    life: Helper,
    pub(super) running: Option<RunningHelper>,
    /// It was killed to be replaced.
    pub(super) is_outdated: bool,
}

#[derive(Debug)]
pub(super) struct RunningHelper {
    pub(super) pid: i32,
    pub(super) channel: Option<Guarded>,
    /// Its log lines.
    messages: Option<Lines>,
    pub(super) unsent: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    pub(super) pulse: Option<Pulse>,
    /// The generation that it reports on.
    pub(super) generation: Option<GenerationId>,
}

/// The heartbeat of a helper that must always answer.
#[derive(Debug)]
pub(super) struct Pulse {
    heartbeat: Heartbeat,
    socket: Guarded,
    clock: Option<clock::ProcessClock>,
}

impl Pulse {
    pub(super) fn new(pid: i32, socket: OwnedFd) -> Pulse {
        Pulse {
            heartbeat: Heartbeat::new(clock::now()),
            socket: Guarded::new(socket),
            clock: clock::ProcessClock::of(pid),
        }
    }

    /// Why its process `pid` has to be killed.
    fn check(&mut self, pid: i32, now: Tick) -> Option<&'static str> {
        if self.heartbeat.deadline() > now {
            return None;
        }
        let at = || match process::state(pid) {
            Some('T' | 't') => Activity::Stop,
            Some('S' | 'I') => Activity::Rest,
            // One that has ended is reaped soon.
            Some(_) | None => Activity::Work,
        };
        let seen = Sample {
            has_read: fd::unread_by_peer(self.socket.as_fd()) == Some(0),
            micros: self.clock.map_or(0, clock::ProcessClock::micros),
        };
        match self.heartbeat.check(seen, at, now) {
            HeartbeatAction::None => None,
            HeartbeatAction::Send => {
                // There is room for a byte, or the process has ended.
                let _ = socket::send(self.socket.as_fd(), &[0]);
                None
            }
            HeartbeatAction::Kill(why) => Some(why),
        }
    }
}

impl RunningHelper {
    pub(super) fn new(pid: i32, channel: Option<OwnedFd>) -> RunningHelper {
        RunningHelper {
            pid,
            channel: channel.map(Guarded::new),
            messages: None,
            unsent: VecDeque::new(),
            pulse: None,
            generation: None,
        }
    }

    /// Reads its log lines from now on.
    pub(super) fn hear(
        &mut self,
        id: HelperId,
        messages: OwnedFd,
        sources: &mut Sources,
    ) -> Result<(), Error> {
        sources.watch(&messages, Source::HelperMessages(id))?;
        self.messages = Some(Lines::new(Guarded::new(messages)));
        Ok(())
    }

    /// Sends a message now.
    ///
    /// # Errors
    /// Its channel is full or closed.
    pub(super) fn send(&self, message: &impl Serialize, descriptors: &[RawFd]) -> Result<(), Error> {
        let Some(channel) = &self.channel else {
            return Ok(());
        };
        // Serialising plain values can't fail.
        let bytes = serde_json::to_vec(message).unwrap_or_default();
        send_with(channel.as_fd(), &bytes, descriptors).map(|_| ())
    }

    pub(super) fn forget(&self, sources: &mut Sources) {
        let channel = self.channel.as_deref();
        for fd in channel.into_iter().chain(self.messages.as_ref().map(Lines::pipe)) {
            sources.forget(fd);
        }
    }

    pub(super) fn kill(&self) {
        let _ = process::send_signal(self.pid, Signal::SIGKILL);
    }

    /// Closes its channel and waits until it has exited.
    fn end(&mut self) {
        self.channel = None;
        if process::reap_within(self.pid, LAST_PATIENCE).is_none() {
            process::kill_and_reap(self.pid);
        }
    }
}

impl HelperProcess {
    pub(super) fn new(rules: Rules) -> HelperProcess {
        HelperProcess {
            life: Helper::new(rules, clock::now()),
            running: None,
            is_outdated: false,
        }
    }

    pub(super) fn pid(&self) -> Option<i32> {
        self.running.as_ref().map(|running| running.pid)
    }

    pub(super) fn kill(&self) {
        self.running.iter().for_each(RunningHelper::kill);
    }

    fn deadline(&self) -> Option<Tick> {
        let pulse = self.running.as_ref().and_then(|it| it.pulse.as_ref());
        let pulse = pulse.map(|pulse| pulse.heartbeat.deadline());
        self.life.deadline().into_iter().chain(pulse).min()
    }

    fn check_pulse(&mut self, now: Tick) -> Option<&'static str> {
        let running = self.running.as_mut()?;
        let why = running.pulse.as_mut()?.check(running.pid, now)?;
        running.kill();
        Some(why)
    }
}

impl Executor {
    /// All helpers; inspectors before their routers, which ask at once.
    fn all_helpers(&self) -> impl Iterator<Item = (HelperId, &HelperProcess)> {
        let reporters = self.helpers.reporters.iter();
        let reporters = reporters.map(|(id, it)| (HelperId::Reporter(*id), &it.process));
        let routers = self.applications.routers.iter().flat_map(|(id, it)| {
            [
                (HelperId::Inspector(*id), &it.inspector),
                (HelperId::Router(*id), &it.router),
            ]
        });
        let jobs = self.helpers.jobs.iter().map(|it| (HelperId::Jobs, &it.process));
        reporters.chain(routers).chain(jobs)
    }

    fn helper_mut(&mut self, id: HelperId) -> Option<&mut HelperProcess> {
        match id {
            HelperId::Reporter(pool) => Some(&mut self.helpers.reporters.get_mut(&pool)?.process),
            HelperId::Router(pool) => Some(&mut self.applications.routers.get_mut(&pool)?.router),
            HelperId::Inspector(pool) => Some(&mut self.applications.routers.get_mut(&pool)?.inspector),
            HelperId::Jobs => Some(&mut self.helpers.jobs.as_mut()?.process),
        }
    }

    /// The helper in a log line.
    fn helper_name(&self, id: HelperId) -> String {
        match id {
            HelperId::Reporter(pool) | HelperId::Router(pool) | HelperId::Inspector(pool) => {
                format!("[pool {}] the {id}", self.context.pools.pool_name(pool))
            }
            HelperId::Jobs => format!("jobs: the {id}"),
        }
    }

    pub(super) fn tell_helper(&mut self, id: HelperId, happened: Happened) {
        let Some(helper) = self.helper_mut(id) else { return };
        match helper.life.handle(happened, clock::now()) {
            HelperAction::None => {}
            HelperAction::Start => {
                let started = match id {
                    HelperId::Reporter(pool) => self.start_reporter(pool),
                    HelperId::Router(pool) | HelperId::Inspector(pool) => self.start_router(pool, id),
                    HelperId::Jobs => self.start_jobs(),
                };
                if let Err(error) = started {
                    log::error!("{} can't be started: {error}", self.helper_name(id));
                    self.tell_helper(id, Happened::Failed);
                }
            }
            HelperAction::Ask => match id {
                HelperId::Reporter(_) => {
                    helper.running.iter_mut().for_each(|it| it.channel = None);
                }
                HelperId::Router(pool) => self.finish_router(pool, happened),
                HelperId::Inspector(_) => {}
                HelperId::Jobs => self.stop_taking_jobs(),
            },
            HelperAction::Kill => helper.kill(),
            HelperAction::BackOff(delay) => {
                log::warn!(
                    "{} is not well; the next try is in {} s",
                    self.helper_name(id),
                    delay.as_secs_f64()
                );
            }
            HelperAction::Idle => match id {
                HelperId::Reporter(pool) => self.watch_status(pool),
                HelperId::Router(pool) => self.router_ended(pool),
                HelperId::Inspector(_) | HelperId::Jobs => {}
            },
        }
    }

    pub(super) fn helper_started(&mut self, id: HelperId, running: RunningHelper) {
        log::debug!("{} has started as process {}", self.helper_name(id), running.pid);
        self.context.processes.by_pid.insert(running.pid, Who::Helper(id));
        if let Some(helper) = self.helper_mut(id) {
            helper.running = Some(running);
        }
    }

    pub(super) fn helper_gone(&mut self, id: HelperId, pid: i32, ended: Ended) {
        self.read_helper_messages(id);
        let mut leaves = |id| self.helper_mut(id).is_some_and(|helper| helper.life.is_leaving());
        let is_leaving = leaves(id)
            || match id {
                HelperId::Inspector(pool) => leaves(HelperId::Router(pool)),
                HelperId::Reporter(_) | HelperId::Router(_) | HelperId::Jobs => false,
            };
        // An older process may still be ending.
        let helper = self.helper_mut(id).filter(|helper| helper.pid() == Some(pid));
        let Some(helper) = helper else { return };
        let is_outdated = std::mem::take(&mut helper.is_outdated);
        if let Some(running) = helper.running.take() {
            running.forget(&mut self.context.services.sources);
        }
        let exits_when_idle = matches!(id, HelperId::Reporter(_));
        let happened = match ended {
            Ended::Code(0) if exits_when_idle => Happened::Ended,
            Ended::Code(_) | Ended::Signal { .. } | Ended::Unknown => Happened::Failed,
        };
        if !is_leaving && !is_outdated && happened == Happened::Failed {
            let how = notices::how(ended);
            log::warn!("{} (pid {pid}) exited {how}", self.helper_name(id));
        }
        if let HelperId::Router(pool) = id {
            self.orphan_instances(pool);
        }
        self.tell_helper(id, happened);
    }

    /// Logs a helper's messages. Returns `true` if there may be more.
    pub(super) fn read_helper_messages(&mut self, id: HelperId) -> bool {
        let log = self.context.services.log;
        let pool = match id {
            HelperId::Reporter(pool) | HelperId::Router(pool) | HelperId::Inspector(pool) => {
                Some(self.context.pools.pool_name(pool).to_owned())
            }
            HelperId::Jobs => None,
        };
        let Some(mut messages) = self
            .helper_mut(id)
            .and_then(|it| it.running.as_mut()?.messages.take())
        else {
            return false;
        };
        // Lines get the pool's own prefix; it can't write for other pools.
        let prefix = match &pool {
            Some(name) => format!("[pool {name}] "),
            None => "jobs: ".to_owned(),
        };
        let look = messages.read(|line| {
            let (level, text) = parse_message(line);
            let text = text.strip_prefix(&prefix).unwrap_or(&text);
            match &pool {
                Some(name) => log.write_of_pool(level, name, text),
                None => log.write(level, &format!("{prefix}{text}")),
            }
        });
        if look == PipeRead::Ended {
            self.context.services.sources.forget(messages.pipe());
        } else if let Some(running) = self.helper_mut(id).and_then(|it| it.running.as_mut()) {
            running.messages = Some(messages);
        }
        look == PipeRead::More
    }

    pub(super) fn helpers_deadline(&self) -> Option<Tick> {
        self.all_helpers().filter_map(|(_, it)| it.deadline()).min()
    }

    pub(super) fn poll_helpers(&mut self, now: Tick) {
        let is_due = |(_, it): &(HelperId, &HelperProcess)| it.deadline().is_some_and(|due| due <= now);
        let due: Vec<HelperId> = self.all_helpers().filter(is_due).map(|(id, _)| id).collect();
        for id in due {
            let Some(helper) = self.helper_mut(id) else {
                continue;
            };
            let (life, pid) = (helper.life.deadline(), helper.pid().unwrap_or_default());
            if let Some(why) = helper.check_pulse(now) {
                let who = self.helper_name(id);
                log::error!("{who} (pid {pid}) does not answer, {why}: it is replaced");
            }
            if life.is_some_and(|due| due <= now) {
                self.tell_helper(id, Happened::Deadline);
            }
        }
    }

    /// Kills the helpers that a signal has stopped; others take their place. SIGCHLD reports a child's stop, so running
    /// ones need no check.
    pub(super) fn kill_stopped_helpers(&self) {
        for (id, helper) in self.all_helpers() {
            let running = helper.running.as_ref().filter(|it| it.pulse.is_some());
            if let Some(running) = running.filter(|it| process::was_stopped(it.pid)) {
                let who = self.helper_name(id);
                log::error!(
                    "{who} (pid {}) was stopped by a signal and is replaced",
                    running.pid
                );
                running.kill();
            }
        }
    }

    /// Lets reporters and the jobs process finish, and waits for them.
    pub(in crate::master) fn end_helpers(&mut self) {
        if let Some(running) = self.helper_mut(HelperId::Jobs).and_then(|it| it.running.as_mut()) {
            running.end();
        }
        read_rest(|| self.read_helper_messages(HelperId::Jobs));
        if let Some(state) = self.helpers.jobs.take() {
            state.listener.remove_file();
        }
        let pools: Vec<PoolId> = self.helpers.reporters.keys().copied().collect();
        let ending = pools.into_iter().filter_map(|pool| self.close_reporter(pool));
        for mut reporter in ending.collect::<Vec<_>>() {
            reporter.end();
        }
    }
}
