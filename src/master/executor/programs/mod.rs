//! HTTP programs: starts their processes with the spawning kit, publishes their addresses, and stops them. [`Program`]
//! decides.

mod death;
mod handover;
mod plan;

use super::launches::exit_of_report;
use super::output::{Lines, PipeRead, read_rest};
use super::sources::Source;
use super::spawner::{Purpose, Started};
use super::worker::signal_of;
use super::{Context, Executor, Helpers, Pools, Who};
use crate::config::Address;
use crate::control::protocol;
use crate::master::action::Force;
use crate::master::event::{Ended, Event, GenerationId, PoolId};
use crate::master::program::{Program, ProgramAction};
use crate::runtime::http::Share;
use crate::spawn::capture::Capture;
use crate::spawn::effects::{Process, Remains};
use crate::spawn::error::headline;
use crate::spawn::event::Token;
use crate::spawn::report::{ErrorId, Report};
use crate::sys::{Error, clock};
use crate::tick::Tick;
use death::Death;
use nix::sys::signal::Signal;
use plan::{address_of, plan};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;

const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// The most looks; a process that survives SIGKILL must not block the others.
const MOST_LOOKS: u32 = 200;
#[derive(Debug)]
pub(super) struct RunningProgram {
    program: Program,
    share: Share,
    slots: Vec<ProcessSlot>,
    last_exit: Ended,
    last_error: Option<ErrorId>,
    failing: bool,
}

#[derive(Debug, Default)]
struct ProcessSlot {
    token: Option<Token>,
    running: Option<ProgramProcess>,
    left: Option<RemainingProcess>,
    /// The last unexpected end, until it is clear whether it is reported.
    death: Option<Death>,
    ups: u64,
}

#[derive(Debug)]
struct ProgramProcess {
    pid: i32,
    /// Closing it asks the process to end.
    input: Option<OwnedFd>,
    output: Option<Lines>,
    remains: Remains,
    is_ending: bool,
    since: Tick,
    words: Capture,
}

#[derive(Debug)]
struct RemainingProcess {
    remains: Remains,
    was_at_work: bool,
    due: Tick,
    looks: u32,
}

impl RunningProgram {
    pub(super) fn starts(&self, token: Token) -> bool {
        self.slots.iter().any(|slot| slot.token == Some(token))
    }

    pub(super) fn is_failing(&self) -> bool {
        self.failing
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = i32> {
        let running = self.slots.iter().filter_map(|slot| slot.running.as_ref());
        running.map(|running| running.pid)
    }

    pub(super) fn outputs(&mut self) -> impl Iterator<Item = (i32, &mut Lines)> {
        let running = self.slots.iter_mut().filter_map(|slot| slot.running.as_mut());
        running.filter_map(|running| Some((running.pid, running.output.as_mut()?)))
    }
}

impl Executor {
    pub(super) fn start_program(&mut self, id: GenerationId) -> Result<(), Error> {
        self.open(id)?;
        // Only a reload checks for changed code.
        let facts = Executor::facts(None, &[], None, true, None, None);
        self.pools.note_facts(id, facts);
        let Some(generation) = self.pools.generations.get_mut(&id) else {
            return Ok(());
        };
        let Some(settings) = generation.settings.pool.application.program() else {
            return Ok(());
        };
        let instances = settings.instances as usize;
        let share = generation.share(instances)?;
        self.helpers.programs.entry(id).or_insert_with(|| RunningProgram {
            program: Program::new(instances),
            share,
            slots: (0..instances).map(|_| ProcessSlot::default()).collect(),
            last_exit: Ended::Unknown,
            last_error: None,
            failing: false,
        });
        self.handover.keep_program_table(&self.pools, id);
        let on_trial = self.pools.is_coming(id) || self.pools.has_staying_elder(id);
        self.change_program(id, |program, actions| program.start(on_trial, actions));
        Ok(())
    }

    pub(super) fn program_takes_over(&mut self, id: GenerationId) {
        self.change_program(id, |program, _| program.takes_over());
    }

    /// Stops a generation's program. Returns false if it has none.
    pub(super) fn stop_program(&mut self, id: GenerationId, force: Force) -> bool {
        let is_one = self.helpers.programs.contains_key(&id);
        self.change_program(id, |program, actions| program.stop(force, actions));
        is_one
    }

    fn change_program(&mut self, id: GenerationId, step: impl FnOnce(&mut Program, &mut Vec<ProgramAction>)) {
        let mut actions = Vec::new();
        if let Some(record) = self.helpers.programs.get_mut(&id) {
            step(&mut record.program, &mut actions);
        }
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            match action {
                ProgramAction::Start(index) => self.start_process(id, index),
                ProgramAction::Cancel(index) => {
                    let token = self.helpers.slot(id, index).and_then(|slot| slot.token);
                    self.cancel_start(token);
                }
                ProgramAction::BackOff {
                    index,
                    delay,
                    refuses,
                } => {
                    self.program_backs_off(id, index, delay, refuses);
                }
                ProgramAction::Stop(index, force) => {
                    self.helpers.stop_process(id, index, force);
                    self.handover.generation_changed(id);
                }
                ProgramAction::TellReady => {
                    // An application's generation gets the next worker from now on; a pool's only once its workers are
                    // up.
                    let serves = !self.pools.is_coming(id);
                    if let Some(record) = self.helpers.programs.get_mut(&id).filter(|_| serves) {
                        record.program.takes_over();
                    }
                    self.context.happened.push_back(Event::PreloaderReady(id));
                }
                ProgramAction::TellGone { failed } => {
                    let exit = self.helpers.programs.get(&id).map(|record| record.last_exit);
                    let exit = exit.filter(|_| failed).unwrap_or(Ended::Code(0));
                    self.context.happened.push_back(Event::PreloaderGone(id, exit));
                }
            }
        }
    }

    fn start_process(&mut self, id: GenerationId, index: usize) {
        let problem = self.pools.read_env_file(id).err();
        let generation = self.pools.generations.get(&id);
        let Some(mut plan) = generation.and_then(|it| plan(&it.settings_with_secrets())) else {
            return;
        };
        plan.secrets = self.pools.secrets(id);
        plan.problems.extend(problem);
        let purpose = Purpose::Program(id, index);
        let token = self.helpers.spawner.spawn(plan, Vec::new(), purpose);
        if let Some(slot) = self.helpers.slot(id, index) {
            slot.token = Some(token);
        }
        self.drain_spawner();
    }

    pub(super) fn process_up(&mut self, id: GenerationId, index: usize, started: Started) {
        let name = self.pools.generation_name(id).to_owned();
        let address = address_of(&started.up.sockets);
        let Process {
            pid,
            input,
            output,
            written,
            remains,
            gone,
            ..
        } = started.process;
        // On a busy machine its last output is often read before it is known to be up.
        let has_failed = headline(&written.text()).is_some();
        let words = if has_failed { written } else { Capture::default() };
        let in_entries = self.pools.logs_entries(id);
        let output = output.map(|output| Lines::resume(output, started.splitter).in_entries(in_entries));
        let Some(record) = self.helpers.programs.get_mut(&id) else {
            return;
        };
        let is_published = address
            .as_ref()
            .is_some_and(|address| record.share.table().publish(index, address, pid));
        record.failing &= !is_published;
        let Some(slot) = record.slots.get_mut(index) else {
            return;
        };
        slot.token = None;
        slot.ups += 1;
        let running = slot.running.insert(ProgramProcess {
            pid,
            input,
            output,
            remains,
            is_ending: false,
            since: clock::now(),
            words,
        });
        if let Some(output) = &running.output {
            let sources = &mut self.context.sources;
            sources.watch_of_pool(&name, output.pipe(), Source::ProgramOutput(id, index));
        }
        match &address {
            Some(address) if is_published => log::info!(
                "[pool {name}] process {pid} of the application is up at {address} after {:.3} s",
                started.up.ended.since(started.up.started).as_secs_f64()
            ),
            _ => {
                log::error!(
                    "[pool {name}] process {pid} of the application is killed: it names no socket that speaks http"
                );
                running.remains.signal_group(Signal::SIGKILL);
            }
        }
        self.handover.generation_changed(id);
        if let Some(address) = address.as_ref().filter(|_| is_published) {
            self.pools
                .show_heirs(&self.helpers, id, index, Some((address, pid)));
        }
        if gone.is_none() {
            self.processes.by_pid.insert(pid, Who::Program(id, index));
        }
        self.change_program(id, |program, actions| program.up(index, clock::now(), actions));
        if let Some(ended) = gone {
            self.process_gone(id, index, ended);
        }
    }

    pub(super) fn process_failed(&mut self, id: GenerationId, index: usize, report: &Report) {
        self.applications.note_failure(&[id], report);
        self.processes.reported.insert(id);
        let Some(record) = self.helpers.programs.get_mut(&id) else {
            return;
        };
        (record.last_exit, record.last_error) = (exit_of_report(report), Some(report.id));
        if let Some(slot) = record.slots.get_mut(index) {
            slot.token = None;
        }
        self.change_program(id, |program, actions| {
            program.failed(index, clock::now(), actions)
        });
    }

    pub(super) fn process_gone(&mut self, id: GenerationId, index: usize, ended: Ended) {
        let (helpers, context, pools) = (&mut self.helpers, &mut self.context, &self.pools);
        read_rest(|| helpers.read_program_output(context, pools, id, index));
        let name = self.pools.generation_name(id).to_owned();
        self.pools.show_heirs(&self.helpers, id, index, None);
        let Some(record) = self.helpers.programs.get_mut(&id) else {
            return;
        };
        let table = record.share.table();
        record.last_exit = ended;
        // A program that served and was ended from outside is no failure.
        let was_ended = record.last_exit.is_from_outside() && table.served(index) > 0;
        let was_at_work = table.is_at_work(index) || was_ended;
        table.withdraw(index);
        let Some(slot) = record.slots.get_mut(index) else {
            return;
        };
        let Some(mut running) = slot.running.take() else {
            return;
        };
        self.handover.generation_changed(id);
        let pid = running.pid;
        if let Some(output) = &mut running.output {
            if let Some(generation) = self.pools.generations.get(&id) {
                let outlet = generation.outlet(self.context.log, "process", pid, "");
                output.end_line(|words| {
                    running.words.push(words);
                    outlet.write(words);
                });
            }
            self.context.sources.forget(output.pipe());
        }
        if running.is_ending {
            log::debug!("[pool {name}] process {pid} of the application has ended");
        } else {
            log::warn!(
                "[pool {name}] process {pid} of the application exited {}; it is started again",
                super::notices::how(record.last_exit)
            );
        }
        running.remains.signal_group(Signal::SIGKILL);
        slot.death = (!running.is_ending).then(|| Death {
            pid,
            ended: record.last_exit,
            since: running.since,
            output: running.words.text().trim_end().to_owned(),
        });
        slot.left = Some(RemainingProcess {
            remains: running.remains,
            was_at_work,
            due: Tick::ZERO,
            looks: 0,
        });
        self.sweep_processes(clock::now());
    }

    fn sweep_processes(&mut self, now: Tick) {
        let (mut gone, mut sockets) = (Vec::new(), Vec::new());
        let pids = &self.processes.by_pid;
        for (id, record) in &mut self.helpers.programs {
            for (index, slot) in record.slots.iter_mut().enumerate() {
                let Some(left) = slot.left.as_mut().filter(|left| left.due <= now) else {
                    continue;
                };
                left.looks += 1;
                left.due = now + LOOK_AGAIN;
                if !left.remains.sweep(|pid| pids.contains_key(&pid)) || left.looks >= MOST_LOOKS {
                    gone.push((*id, index, left.was_at_work));
                    sockets.extend(slot.left.take().map(|left| left.remains.into_sockets()));
                }
            }
        }
        for sockets in sockets {
            self.helpers.spawner.remove_sockets(sockets);
        }
        for (id, index, was_at_work) in gone {
            self.change_program(id, |program, actions| {
                program.gone(index, was_at_work, now, actions);
            });
        }
    }

    pub(in crate::master) fn poll_programs(&mut self, now: Tick) {
        if self.helpers.programs_deadline().is_none_or(|due| due > now) {
            return;
        }
        self.sweep_processes(now);
        for id in self.helpers.programs.keys().copied().collect::<Vec<_>>() {
            self.change_program(id, |program, actions| program.pass(now, actions));
        }
    }
}

impl Pools {
    pub(super) fn has_program(&self, id: GenerationId) -> bool {
        let generation = self.generations.get(&id);
        generation.is_some_and(|it| it.settings.pool.application.program().is_some())
    }

    pub(super) fn programs_of(&self, helpers: &Helpers, pool: PoolId) -> Vec<protocol::ProcessStatus> {
        let own = self
            .generations
            .iter()
            .filter(|(_, generation)| generation.pool == pool);
        let mut ids: Vec<GenerationId> = own.map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.into_iter()
            .flat_map(|id| helpers.program_status(id))
            .collect()
    }

    /// Points workers of earlier generations to a process, if their program is gone with the previous master; `None`:
    /// gone.
    fn show_heirs(
        &self,
        helpers: &Helpers,
        id: GenerationId,
        index: usize,
        address: Option<(&Address, i32)>,
    ) {
        let pool = self.generations.get(&id).map(|generation| generation.pool);
        let others = self.generations.iter();
        let others =
            others.filter(|(other, it)| Some(it.pool) == pool && !helpers.programs.contains_key(other));
        for share in others.filter_map(|(_, generation)| generation.share.as_ref()) {
            match address {
                Some((address, pid)) => {
                    share.table().publish(index, address, pid);
                }
                None => share.table().withdraw(index),
            }
        }
    }
}

impl Helpers {
    fn slot(&mut self, id: GenerationId, index: usize) -> Option<&mut ProcessSlot> {
        self.programs.get_mut(&id)?.slots.get_mut(index)
    }

    fn stop_process(&mut self, id: GenerationId, index: usize, force: Force) {
        let Some(running) = self.slot(id, index).and_then(|slot| slot.running.as_mut()) else {
            return;
        };
        running.is_ending = true;
        running.input = None;
        if let Some(signal) = signal_of(force) {
            running.remains.signal_group(signal);
        }
    }

    pub(super) fn program_status(&self, id: GenerationId) -> Vec<protocol::ProcessStatus> {
        let Some(record) = self.programs.get(&id) else {
            return Vec::new();
        };
        let (now, table) = (clock::now(), record.share.table());
        let one = |(index, slot): (usize, &ProcessSlot)| {
            let running = slot.running.as_ref();
            protocol::ProcessStatus {
                place: u32::try_from(index).unwrap_or(u32::MAX),
                pid: running.map(|running| running.pid),
                state: record.program.state(index).to_owned(),
                uptime_ms: running.map(|running| protocol::millis(now.since(running.since))),
                requests: running.map_or(0, |_| table.served(index)),
                sessions: running.map_or(0, |_| u64::from(table.sessions(index))),
                restarts: slot.ups.saturating_sub(1),
                memory: None,
                cpu_ms: None,
            }
        };
        record.slots.iter().enumerate().map(one).collect()
    }

    pub(in crate::master) fn programs_deadline(&self) -> Option<Tick> {
        let cores = self
            .programs
            .values()
            .filter_map(|record| record.program.next_deadline());
        let slots = self.programs.values().flat_map(|record| &record.slots);
        let left = slots.filter_map(|slot| slot.left.as_ref().map(|left| left.due));
        cores.chain(left).min()
    }

    /// Logs a program's output. Returns `true` if there may be more.
    pub(super) fn read_program_output(
        &mut self,
        context: &mut Context,
        pools: &Pools,
        id: GenerationId,
        index: usize,
    ) -> bool {
        let Some(running) = self.slot(id, index).and_then(|slot| slot.running.as_mut()) else {
            return false;
        };
        let pid = running.pid;
        let Some(mut output) = running.output.take() else {
            return false;
        };
        let look = pools.generations.get(&id).map_or(PipeRead::Ended, |generation| {
            let outlet = generation.outlet(context.log, "process", pid, "");
            output.read_within(outlet.room(), |words| {
                running.words.push(words);
                running.words.push(b"\n");
                outlet.write(words);
            })
        });
        context.sources.hold_entry(output.due());
        if look == PipeRead::Ended {
            context.sources.forget(output.pipe());
        } else if let Some(running) = self.slot(id, index).and_then(|slot| slot.running.as_mut()) {
            running.output = Some(output);
        }
        look == PipeRead::More
    }
}
