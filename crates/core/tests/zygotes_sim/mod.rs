//! Simulates zygotes: pools start and stop generations, processes start late, fail, turn out unfit, hang or die, and
//! reloads make zygotes outdated.

use crate::random::{Random, all_are_noticed, outcome, seeds};
use forkyard_core::life::Force;
use forkyard_core::master::event::{GenerationId, PoolId};
use forkyard_core::zygotes::{Choice, Members, Released, Stop, Unfit, choose, is_needed};
use std::collections::BTreeMap;

const SEEDS: u64 = 4000;
const STEPS: usize = 300;
const POOLS: u32 = 5;
const SOURCES: usize = 3;
/// A pool of applications, which stands for many pools.
const MANY: PoolId = PoolId(0);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mutant {
    JoinsEnding,
    JoinsOutdated,
    KeepsUnused,
    EndsUsed,
    ForgetsNobody,
    RetriesUnfit,
    LosesReleased,
}

const MUTANTS: [Mutant; 7] = [
    Mutant::JoinsEnding,
    Mutant::JoinsOutdated,
    Mutant::KeepsUnused,
    Mutant::EndsUsed,
    Mutant::ForgetsNobody,
    Mutant::RetriesUnfit,
    Mutant::LosesReleased,
];

#[derive(Debug)]
struct Process {
    members: Members<usize>,
    made_in: u64,
    is_outdated: bool,
    /// Its sources were unfit when it started.
    is_retry: bool,
    is_starting: bool,
    is_hung: bool,
    /// Its channel is closed, or it was signalled or cancelled.
    is_to_exit: bool,
    /// Generations that it still has to forget: the command is unanswered.
    asked: Vec<GenerationId>,
}

#[derive(Debug)]
struct Running {
    pool: PoolId,
    source: usize,
    made_in: u64,
    preloader: Option<u32>,
    has_unforked: bool,
    /// The last request to stop its preloader.
    asked_to_stop: Option<Force>,
}

struct World {
    random: Random,
    mutant: Option<Mutant>,
    processes: BTreeMap<u32, Process>,
    running: BTreeMap<GenerationId, Running>,
    unfit: Unfit<usize>,
    reload: u64,
    last_pid: u32,
    last_generation: u32,
}

impl World {
    fn new(seed: u64, mutant: Option<Mutant>) -> World {
        World {
            random: Random::new(seed),
            mutant,
            processes: BTreeMap::new(),
            running: BTreeMap::new(),
            unfit: Unfit::default(),
            reload: 1,
            last_pid: 0,
            last_generation: 0,
        }
    }

    fn step(&mut self) -> Result<(), String> {
        match self.random.below(12) {
            0 | 1 => self.start_generation(),
            2 => self.reload(),
            3..=5 => self.process_event(),
            6 | 7 => self.stop_one(),
            8 => self.toggle_commands(),
            9 => self.end_unused(),
            _ => self.exit_one(),
        }
        self.check()
    }

    fn start_generation(&mut self) {
        self.last_generation += 1;
        let id = GenerationId(self.last_generation);
        let pool = PoolId(self.random.below(POOLS as usize) as u32);
        let source = self.random.below(SOURCES);
        self.running.insert(
            id,
            Running {
                pool,
                source,
                made_in: self.reload,
                preloader: None,
                has_unforked: false,
                asked_to_stop: None,
            },
        );
        self.find_preloader(id);
    }

    fn find_preloader(&mut self, id: GenerationId) {
        let Some(running) = self.running.get(&id) else {
            return;
        };
        let source = running.source;
        let is_wrong = |process: &Process| match self.mutant {
            Some(Mutant::JoinsEnding) => process.members.serves(&source),
            Some(Mutant::JoinsOutdated) => {
                !process.members.is_ending() && process.members.sources() == Some(&source)
            }
            _ => false,
        };
        let wrong = self.processes.iter().rfind(|(_, it)| is_wrong(it));
        let zygotes = self.processes.iter().map(|(pid, it)| (*pid, &it.members));
        let choice = choose(zygotes, &self.unfit, self.reload, &source);
        let pid = match (wrong, choice) {
            (Some((pid, _)), Choice::Join(_) | Choice::StartZygote) => *pid,
            (None, Choice::Join(pid)) => pid,
            (None, Choice::StartZygote) => self.start_process(Some(source)),
            (_, Choice::Unfit(_)) => {
                let retries = self.mutant == Some(Mutant::RetriesUnfit);
                self.start_process(retries.then_some(source))
            }
        };
        if let Some(process) = self.processes.get_mut(&pid) {
            process.members.join(id);
        }
        if let Some(running) = self.running.get_mut(&id) {
            running.preloader = Some(pid);
            running.asked_to_stop = None;
        }
    }

    fn start_process(&mut self, zygote_from: Option<usize>) -> u32 {
        self.last_pid += 1;
        let is_retry = zygote_from.is_some_and(|source| self.unfit.reason(&source, self.reload).is_some());
        self.processes.insert(
            self.last_pid,
            Process {
                members: zygote_from.map_or_else(Members::of_one, Members::of_zygote),
                made_in: self.reload,
                is_outdated: false,
                is_retry,
                is_starting: true,
                is_hung: self.random.one_in(8),
                is_to_exit: false,
                asked: Vec::new(),
            },
        );
        self.last_pid
    }

    fn reload(&mut self) {
        self.reload += 1;
        let is_new = self.random.one_in(2);
        for process in self.processes.values_mut() {
            process.is_outdated |= is_new || self.random.one_in(3);
            match process.is_outdated {
                true => process.members.outdate(),
                // A new one would be equal.
                false => process.made_in = self.reload,
            }
        }
    }

    fn a_process(&mut self) -> Option<u32> {
        let pids: Vec<u32> = self.processes.keys().copied().collect();
        (!pids.is_empty()).then(|| self.random.pick(&pids))
    }

    fn process_event(&mut self) {
        let Some(pid) = self.a_process() else { return };
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        match self.random.below(6) {
            _ if process.is_hung => process.is_hung = self.random.one_in(2),
            0..=2 => process.is_starting = false,
            3 if process.members.is_zygote() && !process.members.is_ending() => self.unfit(pid),
            _ => self.answer(pid),
        }
    }

    fn answer(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        let Some(id) = process.asked.pop() else { return };
        if process.members.forgotten(u64::from(id.0)) == Some(id) {
            self.detach(id);
        }
    }

    fn unfit(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        let Some(source) = process.members.sources().copied() else {
            return;
        };
        self.unfit.note(source, self.reload, "it can't start");
        let Some(Released { kept, leaving }) = process.members.give_up() else {
            return;
        };
        process.is_to_exit = true;
        for id in leaving {
            self.detach(id);
        }
        for id in kept {
            if self.mutant != Some(Mutant::LosesReleased) {
                self.find_preloader(id);
            }
        }
    }

    fn stop_one(&mut self) {
        let ids: Vec<GenerationId> = self.running.keys().copied().collect();
        if ids.is_empty() {
            return;
        }
        let id = self.random.pick(&ids);
        let next = match self.running.get(&id).and_then(|it| it.asked_to_stop) {
            None => self.random.pick(&[Force::Ask, Force::Terminate]),
            Some(Force::Ask) => self.random.pick(&[Force::Terminate, Force::Kill]),
            Some(Force::Terminate | Force::Kill) => Force::Kill,
        };
        self.stop(id, next);
    }

    fn stop(&mut self, id: GenerationId, force: Force) {
        let Some(running) = self.running.get_mut(&id) else {
            return;
        };
        running.asked_to_stop = Some(force);
        let Some(process) = running.preloader.and_then(|pid| self.processes.get_mut(&pid)) else {
            return;
        };
        let is_starting = process.is_starting;
        match process.members.stop(id, force, is_starting, running.has_unforked) {
            Stop::Leave => self.detach(id),
            Stop::Forget if self.mutant == Some(Mutant::ForgetsNobody) => {}
            Stop::Forget => process.asked.push(id),
            Stop::Wait => {}
            Stop::Cancel | Stop::Close => process.is_to_exit = true,
            Stop::Expire => (process.is_to_exit, process.is_hung) = (true, false),
            Stop::Signal(force) => {
                process.is_to_exit = true;
                process.is_hung &= force != Force::Kill;
            }
        }
    }

    fn detach(&mut self, id: GenerationId) {
        let Some(running) = self.running.remove(&id) else {
            return;
        };
        if let Some(process) = running.preloader.and_then(|pid| self.processes.get_mut(&pid)) {
            process.members.leave(id);
        }
    }

    fn toggle_commands(&mut self) {
        for running in self.running.values_mut() {
            running.has_unforked = self.random.one_in(3);
        }
    }

    fn is_needed(&self, process: &Process) -> bool {
        let served = self
            .running
            .values()
            .filter(|it| process.members.serves(&it.source));
        is_needed(served.map(|it| (it.pool, it.pool == MANY)))
    }

    fn end_unused(&mut self) {
        let unused = |(_, process): &(&u32, &Process)| match self.mutant {
            Some(Mutant::KeepsUnused) => false,
            Some(Mutant::EndsUsed) => process.members.is_zygote() && !process.members.is_ending(),
            _ => process.members.is_unused() && !self.is_needed(process),
        };
        let pids: Vec<u32> = self
            .processes
            .iter()
            .filter(unused)
            .map(|(pid, _)| *pid)
            .collect();
        for pid in pids {
            if let Some(process) = self.processes.get_mut(&pid) {
                process.members.end();
                process.is_to_exit = true;
            }
        }
    }

    /// A process exits because it should, or it crashes.
    fn exit_one(&mut self) {
        let Some(pid) = self.a_process() else { return };
        let crashes = self.random.one_in(20);
        let is_to_exit = |it: &Process| it.is_to_exit && !it.is_hung;
        if crashes || self.processes.get(&pid).is_some_and(is_to_exit) {
            self.exit(pid);
        }
    }

    fn exit(&mut self, pid: u32) {
        let Some(process) = self.processes.remove(&pid) else {
            return;
        };
        let members: Vec<GenerationId> = process.members.all().collect();
        for id in members {
            let Some(running) = self.running.get_mut(&id) else {
                continue;
            };
            running.preloader = None;
            match running.asked_to_stop {
                Some(_) => self.detach(id),
                None => self.find_preloader(id),
            }
        }
    }

    fn check(&self) -> Result<(), String> {
        for (id, running) in &self.running {
            let pid = running
                .preloader
                .ok_or_else(|| format!("{id:?} has no preloader"))?;
            let process = self.processes.get(&pid);
            let process = process.ok_or_else(|| format!("{id:?} is with {pid}, which has exited"))?;
            if !process.members.contains(*id) {
                return Err(format!("{pid} does not know {id:?}"));
            }
            let source = process.members.sources();
            if source.is_some_and(|source| *source != running.source) {
                return Err(format!("{id:?} is with a zygote made from other sources"));
            }
            if source.is_some() && running.made_in > process.made_in {
                return Err(format!("{id:?} joined {pid}, which was outdated"));
            }
            if process.members.is_ending() && running.asked_to_stop.is_none() && source.is_some() {
                return Err(format!("{id:?} stays with {pid}, which ends"));
            }
        }
        for (pid, process) in &self.processes {
            for id in process.members.all() {
                if self.running.get(&id).is_none_or(|it| it.preloader != Some(*pid)) {
                    return Err(format!("{pid} still has {id:?}"));
                }
            }
            let members = process.members.all().count();
            if !process.members.is_zygote() && members > 1 {
                return Err(format!("{pid} is no zygote and has {members} members"));
            }
            if process.is_retry {
                return Err(format!("{pid} was started although its sources are unfit"));
            }
        }
        Ok(())
    }

    /// Stops everything, as a master does that ends.
    fn finish(&mut self) -> Result<(), String> {
        for force in [Force::Ask, Force::Terminate, Force::Kill] {
            let ids: Vec<GenerationId> = self.running.keys().copied().collect();
            ids.into_iter().for_each(|id| self.stop(id, force));
            for _ in 0..POOLS {
                let pids: Vec<u32> = self.processes.keys().copied().collect();
                let may_answer = |it: &Process| !it.is_hung && !it.asked.is_empty();
                for pid in pids.iter().copied() {
                    while self.processes.get(&pid).is_some_and(may_answer) {
                        self.answer(pid);
                    }
                }
                self.end_unused();
                for pid in pids {
                    let may_exit = |it: &Process| it.is_to_exit && !it.is_hung;
                    if self.processes.get(&pid).is_some_and(may_exit) {
                        self.exit(pid);
                    }
                }
                self.check()?;
            }
            let mut with = self
                .running
                .iter()
                .filter_map(|(id, it)| Some((id, it.preloader?)));
            if let Some((id, pid)) = with.find(|(_, pid)| !self.processes[pid].is_hung) {
                return Err(format!("{id:?} has not left {pid}, which answers"));
            }
        }
        let left = self.processes.values().filter(|it| !it.is_hung).count();
        match (self.running.len(), left) {
            (0, 0) => Ok(()),
            (running, left) => Err(format!("{running} generations and {left} processes are left")),
        }
    }
}

fn run(seed: u64, mutant: Option<Mutant>) -> Result<(), String> {
    let mut world = World::new(seed, mutant);
    for _ in 0..STEPS {
        world.step()?;
    }
    world.finish()
}

#[test]
fn generations_always_have_a_preloader_that_fits() {
    for seed in seeds(SEEDS) {
        if let Err(what) = outcome(|| run(seed, None)) {
            panic!("{what}; replay with FORKYARD_SEED={seed}");
        }
    }
}

#[test]
fn faults_in_zygotes_are_noticed() {
    all_are_noticed(MUTANTS, SEEDS, |mutant, seed| run(seed, Some(mutant)));
}
