//! Programs that speak HTTP: starts their processes by the spawning kit, publishes where they are, and ends them.
//! [`Program`] decides what is done when.

use super::launches::{account, exit_of_report};
use super::output::{Lines, Look};
use super::sources::Source;
use super::spawner::{Purpose, Started};
use super::{Edge, Who};
use crate::config::{Address, Application};
use crate::estate::{document, names};
use crate::master::action::Force;
use crate::master::event::{Event, Exit, GenerationId};
use crate::master::program::{Order, Program};
use crate::runtime::http::Share;
use crate::spawn::effects::{Process, Remains};
use crate::spawn::event::Token;
use crate::spawn::handshake::properties::{self, Socket};
use crate::spawn::plan::{Kind, Limit, Plan};
use crate::spawn::report::Report;
use crate::sys::{Error, clock, identity, process};
use crate::tick::Tick;
use crate::worker::{self, Settings};
use nix::sys::signal::Signal;
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Where programs are looked for, if the pool's environment does not say.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Between two looks at what a process has left behind.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Looks at that; a process that does not die of SIGKILL must not keep the others from being started.
const MOST_LOOKS: u32 = 200;
/// What `PATH` is called.
const PATH: &str = "PATH";

/// The edge's side of a generation's program.
#[derive(Debug)]
pub(super) struct ProgramEdge {
    program: Program,
    share: Share,
    places: Vec<Place>,
    /// How the last of its processes ended that could not be started.
    last_exit: Exit,
}

/// One of its processes.
#[derive(Debug, Default)]
struct Place {
    /// Under which it is being started.
    token: Option<Token>,
    running: Option<Running>,
    /// What one that has ended left behind.
    left: Option<Left>,
}

/// A process that is up.
#[derive(Debug)]
struct Running {
    pid: i32,
    /// Closing it asks the process to end.
    input: Option<OwnedFd>,
    output: Option<Lines>,
    remains: Remains,
    is_ending: bool,
}

#[derive(Debug)]
struct Left {
    remains: Remains,
    due: Tick,
    looks: u32,
}

impl Edge {
    /// Whether a generation's application is a program that is started for it.
    pub(super) fn has_program(&self, id: GenerationId) -> bool {
        let generation = self.generations.get(&id);
        generation.is_some_and(|it| matches!(it.settings.pool.application, Application::Program(_)))
    }

    /// Starts a generation's program.
    pub(super) fn start_program(&mut self, id: GenerationId) -> Result<(), Error> {
        self.open(id)?;
        // Nobody looks whether its code has changed but a reload.
        let facts = Edge::facts(None, true);
        self.note_facts(id, facts);
        let Some(generation) = self.generations.get_mut(&id) else {
            return Ok(());
        };
        let Application::Program(settings) = &generation.settings.pool.application else {
            return Ok(());
        };
        let instances = settings.instances as usize;
        let share = generation.share(instances)?;
        self.programs.entry(id).or_insert_with(|| ProgramEdge {
            program: Program::new(instances),
            share,
            places: (0..instances).map(|_| Place::default()).collect(),
            last_exit: Exit::Unknown,
        });
        self.change_program(id, |program, orders| program.start(orders));
        Ok(())
    }

    /// Makes a generation's program end. False: it has none.
    pub(super) fn stop_program(&mut self, id: GenerationId, force: Force) -> bool {
        let is_one = self.programs.contains_key(&id);
        self.change_program(id, |program, orders| program.stop(force, orders));
        is_one
    }

    /// Lets a program's core take a step, and does what follows.
    fn change_program(&mut self, id: GenerationId, step: impl FnOnce(&mut Program, &mut Vec<Order>)) {
        let mut orders = Vec::new();
        if let Some(edge) = self.programs.get_mut(&id) {
            step(&mut edge.program, &mut orders);
        }
        let mut orders = VecDeque::from(orders);
        while let Some(order) = orders.pop_front() {
            match order {
                Order::Start(place) => self.start_process(id, place),
                Order::Cancel(place) => {
                    let token = self.place(id, place).and_then(|place| place.token);
                    token.into_iter().for_each(|token| self.spawner.cancel(token));
                    self.drain_spawner();
                }
                Order::Stop(place, force) => self.stop_process(id, place, force),
                Order::TellReady => self.happened.push_back(Event::PreloaderReady(id)),
                Order::TellGone { failed } => {
                    let exit = self.programs.get(&id).map(|edge| edge.last_exit);
                    let exit = exit.filter(|_| failed).unwrap_or(Exit::Code(0));
                    self.happened.push_back(Event::PreloaderGone(id, exit));
                }
            }
        }
    }

    fn place(&mut self, id: GenerationId, place: usize) -> Option<&mut Place> {
        self.programs.get_mut(&id)?.places.get_mut(place)
    }

    fn start_process(&mut self, id: GenerationId, place: usize) {
        let Some(plan) = self.generations.get(&id).and_then(|it| plan(&it.settings)) else {
            return;
        };
        let purpose = Purpose::Program(id, place);
        let token = self.spawner.spawn(plan, Vec::new(), purpose);
        if let Some(place) = self.place(id, place) {
            place.token = Some(token);
        }
        self.drain_spawner();
    }

    fn stop_process(&mut self, id: GenerationId, place: usize, force: Force) {
        let Some(running) = self.place(id, place).and_then(|place| place.running.as_mut()) else {
            return;
        };
        running.is_ending = true;
        running.input = None;
        let signal = match force {
            Force::Ask => return,
            Force::Terminate => Signal::SIGTERM,
            Force::Kill => Signal::SIGKILL,
        };
        running.remains.signal_group(signal);
    }

    /// A process of a program is up.
    pub(super) fn process_up(&mut self, id: GenerationId, index: usize, started: Started) {
        let name = self.generation_name(id).to_owned();
        let address = address_of(&started.up.sockets);
        let Process {
            pid,
            input,
            output,
            remains,
            gone,
            ..
        } = started.process;
        let output = output.map(|output| Lines::resume(output, started.splitter));
        let Some(edge) = self.programs.get_mut(&id) else {
            return;
        };
        let is_published = address
            .as_ref()
            .is_some_and(|address| edge.share.table().publish(index, address));
        let Some(place) = edge.places.get_mut(index) else {
            return;
        };
        place.token = None;
        let running = place.running.insert(Running {
            pid,
            input,
            output,
            remains,
            is_ending: false,
        });
        if let Some(output) = &running.output {
            let watched = self
                .sources
                .watch(&self.registry, output.pipe(), Source::ProgramOutput(id, index));
            if let Err(error) = watched {
                log::error!("{error}");
            }
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
        match gone {
            Some(ended) => {
                self.change_program(id, |program, orders| program.up(index, clock::now(), orders));
                self.process_gone(id, index, ended);
            }
            None => {
                self.pids.insert(pid, Who::Program(id, index));
                self.change_program(id, |program, orders| program.up(index, clock::now(), orders));
            }
        }
    }

    /// A process of a program could not be started. Nothing of it is left.
    pub(super) fn process_failed(&mut self, id: GenerationId, index: usize, report: &Report) {
        self.note_failure(&[id], report);
        let Some(edge) = self.programs.get_mut(&id) else {
            return;
        };
        edge.last_exit = exit_of_report(report);
        if let Some(place) = edge.places.get_mut(index) {
            place.token = None;
        }
        if !edge.program.is_up() {
            edge.share.table().set_failure(Some(report.id.0));
        }
        self.change_program(id, |program, orders| program.failed(index, clock::now(), orders));
    }

    /// A process of a program has ended, and was reaped.
    pub(super) fn process_gone(&mut self, id: GenerationId, index: usize, ended: process::Ended) {
        for _ in 0..super::deaths::LAST_LOOKS {
            if !self.read_program_output(id, index) {
                break;
            }
        }
        let name = self.generation_name(id).to_owned();
        let Some(edge) = self.programs.get_mut(&id) else {
            return;
        };
        edge.share.table().withdraw(index);
        edge.last_exit = super::deaths::exit_of(ended);
        let Some(place) = edge.places.get_mut(index) else {
            return;
        };
        let Some(running) = place.running.take() else {
            return;
        };
        if let Some(output) = &running.output {
            self.sources.forget(&self.registry, output.pipe());
        }
        let pid = running.pid;
        if running.is_ending {
            log::debug!("[pool {name}] process {pid} of the application has ended");
        } else {
            log::warn!(
                "[pool {name}] process {pid} of the application exited {}; it is started again",
                super::say::how(edge.last_exit)
            );
        }
        running.remains.signal_group(Signal::SIGKILL);
        place.left = Some(Left {
            remains: running.remains,
            due: Tick::ZERO,
            looks: 0,
        });
        self.sweep_processes(clock::now());
    }

    /// Ends what processes have left behind; when nothing is left, they are gone.
    fn sweep_processes(&mut self, now: Tick) {
        let mut gone = Vec::new();
        let pids = &self.pids;
        for (id, edge) in &mut self.programs {
            for (index, place) in edge.places.iter_mut().enumerate() {
                let Some(left) = place.left.as_mut().filter(|left| left.due <= now) else {
                    continue;
                };
                left.looks += 1;
                left.due = now + LOOK_AGAIN;
                if !left.remains.sweep(|pid| pids.contains_key(&pid)) || left.looks >= MOST_LOOKS {
                    place.left = None;
                    gone.push((*id, index));
                }
            }
        }
        for (id, index) in gone {
            self.change_program(id, |program, orders| program.gone(index, now, orders));
        }
    }

    /// What a next master is told of a generation's program: those of its processes that are to go on.
    pub(super) fn programs_left(&self, id: GenerationId) -> Vec<document::Program> {
        let places = self.programs.get(&id).map(|edge| edge.places.as_slice());
        let entry = |(place, running): (usize, &Running)| {
            Some(document::Program {
                place: u32::try_from(place).ok()?,
                pid: running.pid,
                start_time: process::start_time(running.pid)?,
                mark: running.remains.mark(),
            })
        };
        running(places.unwrap_or_default()).filter_map(entry).collect()
    }

    /// Their ends that are the master's, by name.
    pub(super) fn program_ends(&self, id: GenerationId) -> Vec<(String, &OwnedFd)> {
        let places = self.programs.get(&id).map(|edge| edge.places.as_slice());
        let mut ends = Vec::new();
        for (place, running) in running(places.unwrap_or_default()) {
            let [input, output] = names::program(id.0, u32::try_from(place).unwrap_or(u32::MAX));
            ends.extend(running.input.iter().map(|end| (input.clone(), end)));
            ends.extend(running.output.iter().map(|lines| (output.clone(), lines.pipe())));
        }
        ends
    }

    /// Goes on with the program of a generation that another master has started. False: nothing of it is there.
    pub(super) fn adopt_program(
        &mut self,
        left: &document::Generation,
        descriptors: &mut HashMap<String, OwnedFd>,
    ) -> Result<bool, Error> {
        let id = GenerationId(left.id);
        if !self.has_program(id) {
            return Ok(false);
        }
        let Some(memory) = descriptors.remove(&names::program_table(left.id)) else {
            return Ok(false);
        };
        // Those that are not our children were told by the kernel that their master is gone.
        let is_there = |it: &&document::Program| {
            process::is_child(it.pid) && process::start_time(it.pid) == Some(it.start_time)
        };
        let there: Vec<&document::Program> = left.programs.iter().filter(is_there).collect();
        if there.is_empty() {
            return Ok(false);
        }
        let share = Share::adopt(memory, left.places as usize, left.slots as usize)?;
        let mut places: Vec<Place> = (0..left.places).map(|_| Place::default()).collect();
        for process in there {
            let index = process.place as usize;
            let [input, output] = names::program(left.id, process.place).map(|end| descriptors.remove(&end));
            let (Some(input), Some(place)) = (input, places.get_mut(index)) else {
                continue;
            };
            if let Some(output) = &output {
                self.sources
                    .watch(&self.registry, output, Source::ProgramOutput(id, index))?;
            }
            self.pids.insert(process.pid, Who::Program(id, index));
            place.running = Some(Running {
                pid: process.pid,
                input: Some(input),
                output: output.map(Lines::new),
                remains: Remains::adopt(process.pid, &process.mark),
                is_ending: false,
            });
        }
        let up: Vec<bool> = places.iter().map(|place| place.running.is_some()).collect();
        for (index, _) in up.iter().enumerate().filter(|(_, is_up)| !**is_up) {
            share.table().withdraw(index);
        }
        if let Some(generation) = self.generations.get_mut(&id) {
            generation.share = Some(share.clone());
        }
        let mut orders = Vec::new();
        let edge = ProgramEdge {
            program: Program::resume(&up, clock::now(), &mut orders),
            share,
            places,
            last_exit: Exit::Unknown,
        };
        self.programs.insert(id, edge);
        self.change_program(id, |_, out| out.append(&mut orders));
        Ok(true)
    }

    /// When [`Edge::tend_programs`] is to be called next.
    pub(in crate::master) fn programs_deadline(&self) -> Option<Tick> {
        let cores = self
            .programs
            .values()
            .filter_map(|edge| edge.program.next_deadline());
        let places = self.programs.values().flat_map(|edge| &edge.places);
        let left = places.filter_map(|place| place.left.as_ref().map(|left| left.due));
        cores.chain(left).min()
    }

    /// Time has passed for programs.
    pub(in crate::master) fn tend_programs(&mut self, now: Tick) {
        if self.programs_deadline().is_none_or(|due| due > now) {
            return;
        }
        self.sweep_processes(now);
        for id in self.programs.keys().copied().collect::<Vec<_>>() {
            self.change_program(id, |program, orders| program.pass(now, orders));
        }
    }

    /// Logs what a process of a program wrote. `true`: there may be more.
    pub(super) fn read_program_output(&mut self, id: GenerationId, index: usize) -> bool {
        let name = self.generation_name(id).to_owned();
        let is_decorated = self
            .generations
            .get(&id)
            .is_none_or(|it| it.settings.pool.decorate_workers_output);
        let Some(running) = self.place(id, index).and_then(|place| place.running.as_mut()) else {
            return false;
        };
        let pid = running.pid;
        let Some(mut output) = running.output.take() else {
            return false;
        };
        let look = output.read(|line| {
            let text = String::from_utf8_lossy(line);
            if is_decorated {
                log::warn!("[pool {name}] process {pid} said: \"{text}\"");
            } else {
                log::warn!("{text}");
            }
        });
        if look == Look::Ended {
            self.sources.forget(&self.registry, output.pipe());
        } else if let Some(running) = self.place(id, index).and_then(|place| place.running.as_mut()) {
            running.output = Some(output);
        }
        look == Look::More
    }
}

/// The processes that run and are not on their way out.
fn running(places: &[Place]) -> impl Iterator<Item = (usize, &Running)> {
    places
        .iter()
        .enumerate()
        .filter_map(|(index, place)| Some((index, place.running.as_ref()?)))
        .filter(|(_, running)| running.input.is_some())
}

/// Where a process wants its requests.
fn address_of(sockets: &[Socket]) -> Option<Address> {
    let fit = |socket: &&Socket| socket.accept_http_requests && socket.protocol == "http";
    match &sockets.iter().find(fit)?.address {
        properties::Address::Unix(path) => Some(Address::Unix(path.clone())),
        properties::Address::Tcp(host, port) => {
            let host = if host == "localhost" { "127.0.0.1" } else { host };
            let ip = host.trim_matches(['[', ']']).parse().ok()?;
            Some(Address::Tcp(std::net::SocketAddr::new(ip, *port)))
        }
    }
}

/// What the kit has to know; `None`: the pool has no program.
fn plan(settings: &Settings) -> Option<Plan> {
    let pool = &settings.pool;
    let Application::Program(program) = &pool.application else {
        return None;
    };
    let mut account = account(settings.identity.clone());
    if program.load_shell_envvars {
        account.shell = identity::shell_and_group(account.uid, account.gid).0;
    }
    let mut plan = Plan::new(&pool.name, program.root.clone(), &program.start_command, account);
    if program.handshake {
        (plan.kind, plan.app_type) = (Kind::Native, "http".to_owned());
    }
    plan.switch_user = settings.identity.is_some() && identity::is_root();
    let mut inherited = worker::environment(settings, std::env::vars_os().collect());
    if !inherited.iter().any(|(name, _)| name == PATH) {
        inherited.push((PATH.into(), USUAL_PATH.into()));
    }
    plan.inherited = Some(inherited);
    // Set when the process has become the application's user.
    plan.environment = pool.env.iter().chain(&pool.own_env).cloned().collect();
    plan.app_env.clone_from(&program.app_env);
    plan.load_shell_envvars = program.load_shell_envvars;
    plan.limits = limits(settings);
    plan.umask = program.umask;
    plan.no_new_privileges = pool.no_new_privs;
    plan.start_timeout = program.start_timeout;
    // The program has a back-off of its own.
    plan.is_held_back = false;
    plan.dies_with_parent = true;
    Some(plan)
}

/// The pool's own limits, where the program's do not say otherwise.
fn limits(settings: &Settings) -> Vec<Limit> {
    use crate::config::CoreLimit;
    let pool = &settings.pool;
    let Application::Program(program) = &pool.application else {
        return Vec::new();
    };
    let own = program.rlimits.iter().map(|limit| Limit {
        name: limit.name.clone(),
        soft: limit.soft,
        hard: limit.hard,
    });
    let mut limits: Vec<Limit> = own.collect();
    let mut add = |name: &str, value: Option<u64>| {
        if !limits.iter().any(|limit| limit.name == name) {
            let name = name.to_owned();
            limits.push(Limit {
                name,
                soft: value,
                hard: value,
            });
        }
    };
    if pool.rlimit_files.is_some() {
        add("nofile", pool.rlimit_files);
    }
    match pool.rlimit_core {
        Some(CoreLimit::Bytes(bytes)) => add("core", Some(bytes)),
        Some(CoreLimit::Unlimited) => add("core", None),
        None => {}
    }
    limits
}
