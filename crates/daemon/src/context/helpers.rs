//! All helper processes. [`Helper`] decides when a wanted one starts and stops; its part performs that.

use super::effect::Effect;
use super::helper_id::{HelperId, HelperStep};
use super::helper_process::HelperProcess;
use super::processes::{self, Processes, Who};
use super::services::Services;
use super::sources::{Source, Sources};
use crate::context::lines::{Lines, PipeRead, read_rest};
use forkyard_base::tick::Tick;
use forkyard_core::life::{Happened, Helper, HelperAction, Rules};
use forkyard_core::master::event::PoolId;
use forkyard_host::logs::parse_message;
use forkyard_protocol::past_event::{EventKind, Happening};
use forkyard_sys::process::{self, Ended};
use forkyard_sys::socket::Progress;
use forkyard_sys::{Error, clock};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::time::Duration;

/// The time for the jobs process to exit by itself when the daemon ends.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct Helpers {
    wanted: BTreeMap<HelperId, WantedHelper>,
    running: BTreeMap<HelperId, HelperProcess>,
}

/// A helper that starts again while it is wanted.
#[derive(Debug)]
struct WantedHelper {
    /// Its pool in the log; `None`: it is the daemon's.
    pool: Option<String>,
    life: Helper,
}

impl Helpers {
    pub(crate) fn want(&mut self, id: HelperId, pool: Option<&str>, rules: Rules) {
        let wanted = WantedHelper {
            pool: pool.map(str::to_owned),
            life: Helper::new(rules, clock::now()),
        };
        self.wanted.insert(id, wanted);
    }

    pub(crate) fn remove(&mut self, sources: &mut Sources, id: HelperId) -> Option<HelperProcess> {
        self.wanted.remove(&id);
        let process = self.running.remove(&id)?;
        forget(sources, &process);
        Some(process)
    }

    pub(crate) fn process(&self, id: HelperId) -> Option<&HelperProcess> {
        self.running.get(&id)
    }

    pub(crate) fn pid(&self, id: HelperId) -> Option<i32> {
        self.running.get(&id).map(|process| process.pid)
    }

    /// Whether a reporter or a 503 responder answers for a pool.
    pub(crate) fn answers_for(&self, pool: PoolId) -> bool {
        let ids = [HelperId::Reporter(pool), HelperId::Responder(pool)];
        ids.iter().any(|id| self.running.contains_key(id))
    }

    pub(crate) fn kill(&self, id: HelperId) {
        self.running.get(&id).into_iter().for_each(HelperProcess::kill);
    }

    pub(crate) fn replace(&mut self, id: HelperId) {
        if let Some(process) = self.running.get_mut(&id) {
            process.is_outdated = true;
            process.kill();
        }
    }

    pub(crate) fn close_channel(&mut self, id: HelperId) {
        if let Some(process) = self.running.get_mut(&id) {
            process.channel = None;
        }
    }

    pub(crate) fn tell(&mut self, services: &mut Services, id: HelperId, happened: Happened) {
        let Some(wanted) = self.wanted.get_mut(&id) else {
            return;
        };
        let step = match (wanted.life.handle(happened, clock::now()), happened) {
            (HelperAction::Start, _) => HelperStep::Start,
            (HelperAction::Idle, _) => HelperStep::Idle,
            (HelperAction::Ask, Happened::Leave(limit)) => HelperStep::Ask(limit),
            (HelperAction::Kill, _) => return self.kill(id),
            (HelperAction::BackOff(delay), _) => {
                let (name, seconds) = (name(&self.wanted, id), delay.as_secs_f64());
                return log::warn!("{name} is not well; the next try is in {seconds} s");
            }
            (HelperAction::None | HelperAction::Ask, _) => return,
        };
        services.cause(Effect::Helper(id, step));
    }

    pub(crate) fn start_failed(&mut self, services: &mut Services, id: HelperId, error: &Error) {
        log::error!("{} can't be started: {error}", name(&self.wanted, id));
        self.tell(services, id, Happened::Failed);
    }

    /// # Errors
    /// Its channel can't be watched.
    pub(crate) fn started(
        &mut self,
        services: &mut Services,
        processes: &mut Processes,
        id: HelperId,
        process: HelperProcess,
    ) -> Result<(), Error> {
        let sources = &mut services.sources;
        if let Some(messages) = &process.messages {
            sources.watch(messages.pipe(), Source::HelperMessages(id))?;
        }
        if let Some(channel) = &process.channel {
            match id {
                HelperId::Router(_) => sources.watch_both(channel, Source::HelperChannel(id))?,
                HelperId::Inspector(_) | HelperId::Jobs | HelperId::Web => {
                    sources.watch(channel, Source::HelperChannel(id))?
                }
                // They only listen.
                HelperId::Reporter(_) | HelperId::Responder(_) => {}
            }
        }
        if self.wanted.contains_key(&id) {
            log::debug!(
                "{} has started as process {}",
                name(&self.wanted, id),
                process.pid
            );
        }
        processes.by_pid.insert(process.pid, Who::Helper(id));
        self.running.insert(id, process);
        Ok(())
    }

    /// Forgets a reaped process; an older one of its kind is forgotten already.
    pub(crate) fn gone(&mut self, services: &mut Services, id: HelperId, pid: i32, ended: Ended) {
        self.read_messages(services, id);
        if self.pid(id) != Some(pid) {
            return;
        }
        let Some(process) = self.running.remove(&id) else {
            return;
        };
        forget(&mut services.sources, &process);
        let happened = match (id, ended) {
            // It exits when it is idle.
            (HelperId::Reporter(_), Ended::Code(0)) => Happened::Ended,
            _ => Happened::Failed,
        };
        let is_expected = process.is_outdated || self.is_leaving(id) || happened == Happened::Ended;
        if !is_expected {
            let (name, how) = (name(&self.wanted, id), processes::how(ended));
            log::warn!("{name} (pid {pid}) exited {how}");
            let pool = self.wanted.get(&id).and_then(|it| it.pool.clone());
            let text = match id {
                HelperId::Jobs => format!("the process that keeps jobs exited {how}"),
                other => format!("the {other} exited {how}"),
            };
            let what =
                Happening::of_daemon(EventKind::HelperDied, text).with_detail(format!("process {pid}"));
            services.record(Happening { pool, ..what });
        }
        services.cause(Effect::Helper(id, HelperStep::Gone(pid)));
        self.tell(services, id, happened);
    }

    fn is_leaving(&self, id: HelperId) -> bool {
        let router = match id {
            HelperId::Inspector(pool) => Some(HelperId::Router(pool)),
            _ => None,
        };
        let leaves = |id| self.wanted.get(&id).is_none_or(|it| it.life.is_leaving());
        leaves(id) || router.is_some_and(leaves)
    }

    /// The next message over a helper's channel. A helper that does not keep to the protocol is killed.
    pub(crate) fn receive<T: DeserializeOwned>(&self, id: HelperId, buffer: &mut [u8]) -> Option<T> {
        let process = self.running.get(&id)?;
        let bytes = match process.channel.as_ref()?.receive(buffer) {
            Ok(Progress::Done(count)) if count > 0 => buffer.get(..count)?,
            // One that has ended is reaped as a child.
            Ok(_) | Err(_) => return None,
        };
        let message = serde_json::from_slice(bytes);
        let killed = message.inspect_err(|error| {
            let name = name(&self.wanted, id);
            log::error!("{name} is killed because it does not keep to the protocol: {error}");
            process.kill();
        });
        killed.ok()
    }

    /// Logs a helper's messages. Returns `true` if there may be more.
    pub(crate) fn read_messages(&mut self, services: &mut Services, id: HelperId) -> bool {
        let (Some(process), Some(wanted)) = (self.running.get_mut(&id), self.wanted.get(&id)) else {
            return false;
        };
        let Some(messages) = &mut process.messages else {
            return false;
        };
        // Lines get the pool's own prefix; it can't write for other pools.
        let prefix = match &wanted.pool {
            Some(name) => format!("[pool {name}] "),
            None => prefix(id).to_owned(),
        };
        let log = services.log;
        let look = messages.read(|line| {
            let (level, text) = parse_message(line);
            let text = text.strip_prefix(&prefix).unwrap_or(&text);
            match &wanted.pool {
                Some(name) => log.write_of_pool(level, name, text),
                None => log.write(level, &format!("{prefix}{text}")),
            }
        });
        if look == PipeRead::Ended {
            services.sources.forget(messages.pipe());
            process.messages = None;
        }
        look == PipeRead::More
    }

    pub(crate) fn deadline(&self) -> Option<Tick> {
        let lives = self.wanted.values().filter_map(|it| it.life.deadline());
        let pulses = self.running.values().filter_map(|it| it.pulse.as_ref());
        lives.chain(pulses.map(|pulse| pulse.deadline())).min()
    }

    pub(crate) fn poll(&mut self, services: &mut Services, now: Tick) {
        for (id, process) in &mut self.running {
            let pid = process.pid;
            let pulse = process.pulse.as_mut();
            if let Some(why) = pulse.and_then(|pulse| pulse.check(pid, now)) {
                let name = name(&self.wanted, *id);
                log::error!("{name} (pid {pid}) does not answer, {why}: it is replaced");
                process.kill();
            }
        }
        let is_due = |it: &WantedHelper| it.life.deadline().is_some_and(|due| due <= now);
        let due = self.wanted.iter().filter(|(_, it)| is_due(it));
        for id in due.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.tell(services, id, Happened::Deadline);
        }
    }

    /// Kills the helpers that a signal has stopped; others take their place. SIGCHLD reports a child's stop, so running
    /// ones need no check.
    pub(crate) fn kill_stopped(&self) {
        for (id, process) in &self.running {
            let process = Some(process).filter(|it| it.pulse.is_some());
            if let Some(process) = process.filter(|it| process::was_stopped(it.pid)) {
                let (name, pid) = (name(&self.wanted, *id), process.pid);
                log::error!("{name} (pid {pid}) was stopped by a signal and is replaced");
                process.kill();
            }
        }
    }

    /// Ends all at the daemon's end: the jobs process may finish first.
    pub(crate) fn end(&mut self, services: &mut Services, processes: &Processes) {
        self.close_channel(HelperId::Jobs);
        if let Some(pid) = self.pid(HelperId::Jobs) {
            if process::reap_within(pid, LAST_PATIENCE).is_none() {
                process::kill_and_reap(pid);
            }
        }
        read_rest(|| self.read_messages(services, HelperId::Jobs));
        for (pid, who) in &processes.by_pid {
            // An older jobs process goes on with its last jobs.
            if matches!(who, Who::Helper(id) if *id != HelperId::Jobs) {
                process::kill_and_reap(*pid);
            }
        }
    }
}

/// The helper in a log line.
fn name(wanted: &BTreeMap<HelperId, WantedHelper>, id: HelperId) -> String {
    match wanted.get(&id).and_then(|it| it.pool.as_ref()) {
        Some(pool) => format!("[pool {pool}] the {id}"),
        None => format!("{}the {id}", prefix(id)),
    }
}

/// The beginning of the log lines of the daemon's own helpers.
fn prefix(id: HelperId) -> &'static str {
    match id {
        HelperId::Jobs => "jobs: ",
        _ => "",
    }
}

fn forget(sources: &mut Sources, process: &HelperProcess) {
    let messages = process.messages.as_ref().map(Lines::pipe);
    for fd in process.channel.as_deref().into_iter().chain(messages) {
        sources.forget(fd);
    }
}
