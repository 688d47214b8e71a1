//! HTTP programs: starts their processes with the spawning kit, publishes their addresses, and stops them. [`Program`]
//! decides.

mod death;
mod handover;
mod plan;

use crate::context::Context;
use crate::context::effect::Effect;
use crate::context::lines::{Lines, read_rest};
use crate::context::make::Facts;
use crate::context::pools::Pools;
use crate::context::processes::{Who, how};
use crate::context::services::Services;
use crate::context::sources::Source;
use crate::context::spawner::{OutputLine, Purpose, Started};
use crate::context::worker::signal_of;
use crate::workers::crashes::{Dead, ProgramLoad};
use crate::workers::start_report::exit_of_report;
use death::Death;
use forkyard_base::tick::Tick;
use forkyard_config::Address;
use forkyard_core::master::action::Force;
use forkyard_core::master::event::{Ended, Event, GenerationId, PoolId};
use forkyard_core::master::program::{Program, ProgramAction};
use forkyard_protocol::control as protocol;
use forkyard_protocol::past_event::{EventKind, Happening};
use forkyard_runtimes::http::Share;
use forkyard_spawn::capture::Capture;
use forkyard_spawn::effects::{Process, Remains};
use forkyard_spawn::error::headline;
use forkyard_spawn::event::Token;
use forkyard_spawn::report::{ErrorId, Report};
use forkyard_sys::{Error, clock};
use nix::sys::signal::Signal;
use plan::{address_of, plan};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// The most looks; a process that survives SIGKILL must not block the others.
const MOST_LOOKS: u32 = 200;

/// Programs that answer HTTP, and their processes.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    pub(crate) running: HashMap<GenerationId, RunningProgram>,
}

#[derive(Debug)]
pub(crate) struct RunningProgram {
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
    pub(crate) fn starts(&self, token: Token) -> bool {
        self.slots.iter().any(|slot| slot.token == Some(token))
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.failing
    }

    pub(crate) fn pids(&self) -> impl Iterator<Item = i32> {
        let running = self.slots.iter().filter_map(|slot| slot.running.as_ref());
        running.map(|running| running.pid)
    }

    /// Returns each process's id, its pipe, and the output that its report will have.
    pub(crate) fn outputs(&mut self) -> impl Iterator<Item = (i32, &mut Lines, &mut Capture)> {
        let running = self.slots.iter_mut().filter_map(|slot| slot.running.as_mut());
        running.filter_map(|running| Some((running.pid, running.output.as_mut()?, &mut running.words)))
    }
}

impl Programs {
    pub(crate) fn start(&mut self, context: &mut Context, id: GenerationId) {
        if let Err(error) = self.try_start(context, id) {
            context.cant_start(id, &error);
        }
    }

    fn try_start(&mut self, context: &mut Context, id: GenerationId) -> Result<(), Error> {
        context.open(id)?;
        // Only a reload checks for changed code.
        let facts = Facts {
            is_code_cached: true,
            ..Facts::default()
        };
        context.note_facts(id, facts);
        let Some(generation) = context.pools.generations.get_mut(&id) else {
            return Ok(());
        };
        let Some(settings) = generation.settings.pool.application.program() else {
            return Ok(());
        };
        let instances = settings.instances as usize;
        let share = generation.share(instances)?;
        self.running.entry(id).or_insert_with(|| RunningProgram {
            program: Program::new(instances),
            share,
            slots: (0..instances).map(|_| ProcessSlot::default()).collect(),
            last_exit: Ended::Unknown,
            last_error: None,
            failing: false,
        });
        context.handover.keep(generation.named_share(id));
        context.handover.generation_changed(id);
        let on_trial = context.pools.is_coming(id) || context.pools.has_staying_elder(id);
        self.change(context, id, |program, actions| program.start(on_trial, actions));
        Ok(())
    }

    pub(crate) fn takes_over(&mut self, id: GenerationId) {
        if let Some(record) = self.running.get_mut(&id) {
            record.program.takes_over();
        }
    }

    pub(crate) fn stop(&mut self, context: &mut Context, id: GenerationId, force: Force) {
        self.change(context, id, |program, actions| program.stop(force, actions));
    }

    fn change(
        &mut self,
        context: &mut Context,
        id: GenerationId,
        step: impl FnOnce(&mut Program, &mut Vec<ProgramAction>),
    ) {
        let mut actions = Vec::new();
        if let Some(record) = self.running.get_mut(&id) {
            step(&mut record.program, &mut actions);
        }
        for action in actions {
            self.perform(context, id, action);
        }
    }

    fn perform(&mut self, context: &mut Context, id: GenerationId, action: ProgramAction) {
        match action {
            ProgramAction::Start(index) => self.start_process(context, id, index),
            ProgramAction::Cancel(index) => {
                if let Some(token) = self.slot(id, index).and_then(|slot| slot.token) {
                    context.spawner.cancel(token);
                }
            }
            ProgramAction::BackOff {
                index,
                delay,
                refuses,
            } => self.backs_off(context, id, index, delay, refuses),
            ProgramAction::Stop(index, force) => {
                self.stop_process(id, index, force);
                context.handover.generation_changed(id);
            }
            ProgramAction::TellReady => {
                // An application's generation gets the next worker from now on; a pool's only once its workers are up.
                if !context.pools.is_coming(id) {
                    self.takes_over(id);
                }
                context.services.tell(Event::PreloaderReady(id));
            }
            ProgramAction::TellGone { failed } => {
                let record = self.running.get(&id).filter(|_| failed);
                let exit = record.map_or(Ended::Code(0), |record| record.last_exit);
                context.services.tell(Event::PreloaderGone(id, exit));
            }
        }
    }

    fn start_process(&mut self, context: &mut Context, id: GenerationId, index: usize) {
        let Some(generation) = context.pools.generations.get_mut(&id) else {
            return;
        };
        let problem = generation.read_env_file().err().map(|error| error.to_string());
        let Some(mut plan) = plan(&generation.settings_with_secrets()) else {
            return;
        };
        plan.secrets = generation.secrets();
        plan.problems.extend(problem);
        let purpose = Purpose::Program(id, index);
        let token = context.spawner.spawn(plan, Vec::new(), purpose);
        if let Some(slot) = self.slot(id, index) {
            slot.token = Some(token);
        }
    }

    pub(crate) fn process_up(
        &mut self,
        context: &mut Context,
        (id, index): (GenerationId, usize),
        started: Started,
    ) {
        let name = context.pools.generation_name(id).to_owned();
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
        let in_entries = context.pools.logs_entries(id);
        let output = output.map(|output| Lines::resume(output, started.splitter).in_entries(in_entries));
        let Some(record) = self.running.get_mut(&id) else {
            return;
        };
        let table = record.share.table();
        let address = address.filter(|address| table.publish(index, address, pid));
        record.failing &= address.is_none();
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
            let sources = &mut context.services.sources;
            sources.watch_of_pool(&name, output.pipe(), Source::ProgramOutput(id, index));
        }
        match &address {
            Some(address) => log::info!(
                "[pool {name}] process {pid} of the application is up at {address} after {:.3} s",
                started.up.ended.since(started.up.started).as_secs_f64()
            ),
            None => {
                log::error!(
                    "[pool {name}] process {pid} of the application is killed: it names no socket that speaks http"
                );
                running.remains.signal_group(Signal::SIGKILL);
            }
        }
        context.handover.generation_changed(id);
        if let Some(address) = &address {
            self.show_heirs(&context.pools, id, index, Some((address, pid)));
        }
        if gone.is_none() {
            context.processes.by_pid.insert(pid, Who::Program(id, index));
        }
        self.change(context, id, |program, actions| {
            program.up(index, clock::now(), actions)
        });
        if let Some(ended) = gone {
            self.process_gone(context, (id, index), ended, None);
        }
    }

    pub(crate) fn process_failed(
        &mut self,
        context: &mut Context,
        (id, index): (GenerationId, usize),
        report: Arc<Report>,
    ) {
        if let Some(record) = self.running.get_mut(&id) {
            (record.last_exit, record.last_error) = (exit_of_report(&report), Some(report.id));
        }
        if let Some(slot) = self.slot(id, index) {
            slot.token = None;
        }
        context.start_failed(vec![id], report);
        self.change(context, id, |program, actions| {
            program.failed(index, clock::now(), actions);
        });
    }

    pub(crate) fn process_gone(
        &mut self,
        context: &mut Context,
        (id, index): (GenerationId, usize),
        ended: Ended,
        peak_memory: Option<u64>,
    ) {
        let (services, pools) = (&mut context.services, &context.pools);
        read_rest(|| self.read_output(services, pools, id, index));
        let name = context.pools.generation_name(id).to_owned();
        self.show_heirs(&context.pools, id, index, None);
        let Some(record) = self.running.get_mut(&id) else {
            return;
        };
        let table = record.share.table();
        record.last_exit = ended;
        // A program that served and was ended from outside is no failure.
        let was_ended = record.last_exit.is_from_outside() && table.served(index) > 0;
        let is_at_work = table.is_at_work(index);
        let was_at_work = is_at_work || was_ended;
        let load = ProgramLoad {
            requests: u64::from(table.sessions(index)).max(1),
            served: table.served(index),
        };
        table.withdraw(index);
        let Some(slot) = record.slots.get_mut(index) else {
            return;
        };
        let Some(mut running) = slot.running.take() else {
            return;
        };
        context.handover.generation_changed(id);
        let pid = running.pid;
        if let Some(output) = &mut running.output {
            if let Some(generation) = context.pools.generations.get(&id) {
                let outlet = generation.outlet(context.services.log, "process", pid, "");
                output.end_line(|line| {
                    push_line(&mut running.words, line);
                    outlet.write(line);
                });
            }
            context.services.sources.forget(output.pipe());
        }
        let words = running.words.text();
        let dead = Dead {
            pid,
            ended,
            peak_memory,
            output: &words,
        };
        let is_crash = is_at_work && !running.is_ending;
        let report = is_crash
            .then(|| context.note_program_crash(id, &dead, load))
            .flatten();
        let report = report.map_or_else(String::new, |id| format!(" (report {id})"));
        if running.is_ending {
            log::debug!("[pool {name}] process {pid} of the application has ended");
        } else {
            log::warn!(
                "[pool {name}] process {pid} of the application exited {}; it is started again{report}",
                how(record.last_exit)
            );
            context.services.cause(Effect::ProgramDied(id));
            let text = format!("a process of the application exited {}", how(record.last_exit));
            let user = context.pools.user_of(id);
            let what = Happening::of_pool(EventKind::ProgramDied, &name, user, text);
            context
                .services
                .record(what.with_detail(format!("process {pid}")));
        }
        running.remains.signal_group(Signal::SIGKILL);
        slot.death = (!running.is_ending).then(|| Death {
            pid,
            ended: record.last_exit,
            since: running.since,
            output: words.trim_end().to_owned(),
        });
        slot.left = Some(RemainingProcess {
            remains: running.remains,
            was_at_work,
            due: Tick::ZERO,
            looks: 0,
        });
        self.sweep(context, clock::now());
    }

    fn sweep(&mut self, context: &mut Context, now: Tick) {
        let (mut gone, mut sockets) = (Vec::new(), Vec::new());
        let pids = &context.processes.by_pid;
        for (id, record) in &mut self.running {
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
            context.spawner.remove_sockets(sockets);
        }
        for (id, index, was_at_work) in gone {
            self.change(context, id, |program, actions| {
                program.gone(index, was_at_work, now, actions);
            });
        }
    }

    pub(crate) fn poll(&mut self, context: &mut Context, now: Tick) {
        if self.deadline().is_none_or(|due| due > now) {
            return;
        }
        self.sweep(context, now);
        for id in self.running.keys().copied().collect::<Vec<_>>() {
            self.change(context, id, |program, actions| program.pass(now, actions));
        }
    }

    pub(crate) fn of(&self, pools: &Pools, pool: PoolId) -> Vec<protocol::ProcessStatus> {
        let generations = pools.generations.of(&pool);
        generations.flat_map(|(id, _)| self.status(id)).collect()
    }

    pub(crate) fn pids_of(&self, pools: &Pools, id: GenerationId) -> Vec<i32> {
        let resources = pools.resources(id).into_iter();
        let molds = resources.flat_map(|it| [it.preloader, it.next_mold]);
        let program = self.running.get(&id).into_iter().flat_map(RunningProgram::pids);
        molds.flatten().chain(program).collect()
    }

    /// Logs a starting process's line. Returns `false` if it is not one's.
    pub(crate) fn take_line(&self, context: &Context, said: &OutputLine) -> bool {
        let is_its = |program: &RunningProgram| said.token.is_some_and(|token| program.starts(token));
        let program = self.running.iter().find(|(_, program)| is_its(program));
        let Some(generation) = program.and_then(|(id, _)| context.pools.generations.get(id)) else {
            return false;
        };
        let outlet = generation.outlet(context.services.log, "process", said.pid, "");
        outlet.write(&said.line);
        true
    }

    /// Points workers of earlier generations to a process, if their program is gone with the previous master; `None`:
    /// gone.
    fn show_heirs(&self, pools: &Pools, id: GenerationId, index: usize, address: Option<(&Address, i32)>) {
        let pool = pools.generations.get(&id).map(|generation| generation.pool);
        let others = pools.generations.iter();
        let others = others.filter(|(other, it)| Some(it.pool) == pool && !self.running.contains_key(other));
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

impl Pools {
    pub(crate) fn has_program(&self, id: GenerationId) -> bool {
        let generation = self.generations.get(&id);
        generation.is_some_and(|it| it.settings.pool.application.program().is_some())
    }
}

impl Programs {
    fn slot(&mut self, id: GenerationId, index: usize) -> Option<&mut ProcessSlot> {
        self.running.get_mut(&id)?.slots.get_mut(index)
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

    pub(crate) fn status(&self, id: GenerationId) -> Vec<protocol::ProcessStatus> {
        let Some(record) = self.running.get(&id) else {
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

    pub(crate) fn deadline(&self) -> Option<Tick> {
        let programs = self.running.values();
        let cores = programs.clone().filter_map(|it| it.program.next_deadline());
        let slots = programs.flat_map(|it| &it.slots);
        let left = slots.filter_map(|slot| slot.left.as_ref().map(|left| left.due));
        cores.chain(left).min()
    }

    /// Logs a program's output. Returns `true` if there may be more.
    pub(crate) fn read_output(
        &mut self,
        services: &mut Services,
        pools: &Pools,
        id: GenerationId,
        index: usize,
    ) -> bool {
        let slot = self.slot(id, index);
        let running = slot.and_then(|slot| slot.running.as_mut());
        let (Some(running), Some(generation)) = (running, pools.generations.get(&id)) else {
            return false;
        };
        let outlet = generation.outlet(services.log, "process", running.pid, "");
        let (output, words) = (&mut running.output, &mut running.words);
        Lines::read_open(output, &mut services.sources, outlet.room(), |line| {
            push_line(words, line);
            outlet.write(line);
        })
    }
}

/// Keeps a line of output for the report of the process's death.
pub(crate) fn push_line(words: &mut Capture, line: &[u8]) {
    words.push(line);
    words.push(b"\n");
}
