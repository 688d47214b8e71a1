//! Checks a document against the descriptors and processes that exist.
//!
//! A pool needs its listening socket. A generation needs its scoreboard and pipes, of the right kind and size;
//! otherwise its channels are closed, and its workers finish and exit. A worker needs the recorded start time. An error
//! in one entry must not stop the others.

pub use forkyard_base::descriptor::Kind;
use forkyard_protocol::handover::document::{
    Document, SavedGeneration, SavedPool, SavedProgram, SavedWorker, StopRequest,
};
use forkyard_protocol::handover::names::{self, QueueKind};
use forkyard_runtimes::http::table_pages;
use forkyard_scoreboard::layout::{header::MAX_SLOTS, pages, pages_with_lanes, pages_without_numbers};
use std::collections::{BTreeMap, BTreeSet};

/// The descriptors and processes that exist.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The descriptors, by name.
    pub kinds: BTreeMap<String, Kind>,
    /// Start times of the document's live processes, by pid.
    pub processes: BTreeMap<i32, u64>,
}

/// An entry that was rejected, with its pool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Complaint {
    /// A pool, and its missing or wrong descriptor.
    #[error("[pool {0}] {1} is missing or wrong; the socket is opened again")]
    Pool(String, String),
    /// The pool of a generation, and the missing or wrong descriptor.
    #[error("[pool {0}] {1} is missing or wrong; the old workers finish by themselves")]
    Generation(String, String),
    /// The pool of a generation that contradicts the rest of the document.
    #[error("[pool {0}] the hand-over document contradicts itself; the old workers finish by themselves")]
    Contradiction(String),
    /// A pool, and the pid of a process that is not the recorded worker.
    #[error("[pool {0}] process {1} is not the worker that it should be")]
    Stranger(String, i32),
}

/// The valid part of a document.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// Pools with a listening socket.
    pub pools: Vec<SavedPool>,
    /// Complete generations, with their live workers.
    pub generations: Vec<SavedGeneration>,
    /// Dead workers of these complete generations.
    pub dead: Vec<(u32, SavedWorker)>,
    /// The rejected entries.
    pub complaints: Vec<Complaint>,
}

/// Returns the valid part of a document.
pub fn plan(document: &Document, facts: &Facts) -> Plan {
    let mut plan = Plan::default();
    let mut pools = BTreeSet::new();
    for pool in &document.pools {
        plan.pool(pool, facts, &mut pools);
    }
    let mut seen = Seen::default();
    for generation in &document.generations {
        plan.generation(generation, facts, &mut seen);
    }
    plan
}

/// Pipes of a generation with processes.
const PIPES: usize = 4;

/// Ids that must be unique.
#[derive(Default)]
struct Seen {
    generations: BTreeSet<u32>,
    workers: BTreeSet<u64>,
    pids: BTreeSet<i32>,
}

impl Plan {
    fn pool(&mut self, pool: &SavedPool, facts: &Facts, seen: &mut BTreeSet<u32>) {
        let name = names::listener(pool.id);
        if facts.kinds.get(&name) != Some(&Kind::Listener) || !seen.insert(pool.id) {
            self.complaints.push(Complaint::Pool(pool.name.clone(), name));
            return;
        }
        let has = |kind: QueueKind| {
            let mut ends = kind.names(pool.id);
            pool.has(kind) && ends.all(|end| facts.kinds.get(&end) == Some(&Kind::Packets))
        };
        self.pools.push(SavedPool {
            has_queue: has(QueueKind::HandOff),
            has_lanes: has(QueueKind::Lanes),
            has_turns: has(QueueKind::Turns),
            http: (pool.http.clone())
                .filter(|_| facts.kinds.get(&names::http(pool.id)) == Some(&Kind::Listener)),
            ..pool.clone()
        });
    }

    fn generation(&mut self, generation: &SavedGeneration, facts: &Facts, seen: &mut Seen) {
        // The pipes are closed before the document records it, or before it records the last worker's exit.
        let lives = |worker: &SavedWorker| facts.processes.get(&worker.pid) == Some(&worker.start_time);
        let pipes = names::of_processes(generation.id);
        let has_pipes = pipes
            .iter()
            .take(PIPES)
            .all(|name| facts.kinds.contains_key(name));
        let generation = &SavedGeneration {
            rests: !generation.workers.iter().any(lives) && (generation.rests || !has_pipes),
            ..generation.clone()
        };
        if let Some(wrong) = wrong(generation, facts) {
            let complaint = Complaint::Generation(generation.name.clone(), wrong);
            return self.complaints.push(complaint);
        }
        let slots: BTreeSet<u32> = generation.workers.iter().map(|worker| worker.slot).collect();
        let is_sound = slots.len() == generation.workers.len()
            && slots.last().is_none_or(|last| *last < generation.slots)
            && seen.generations.insert(generation.id)
            && generation
                .workers
                .iter()
                .all(|worker| seen.workers.insert(worker.id));
        if !is_sound {
            let complaint = Complaint::Contradiction(generation.name.clone());
            return self.complaints.push(complaint);
        }
        let mut living = Vec::new();
        for worker in &generation.workers {
            match facts.processes.get(&worker.pid) {
                Some(start)
                    if *start == worker.start_time && worker.pid > 1 && seen.pids.insert(worker.pid) =>
                {
                    living.push(believed(worker, facts));
                }
                Some(_) => {
                    let complaint = Complaint::Stranger(generation.name.clone(), worker.pid);
                    self.complaints.push(complaint);
                    self.dead.push((generation.id, worker.clone()));
                }
                None => self.dead.push((generation.id, worker.clone())),
            }
        }
        self.generations.push(SavedGeneration {
            workers: living,
            programs: believed_programs(generation, facts),
            places: if has_table(generation, facts) {
                generation.places
            } else {
                0
            },
            ..generation.clone()
        });
    }
}

/// Returns the generation's first missing or wrong descriptor.
fn wrong(generation: &SavedGeneration, facts: &Facts) -> Option<String> {
    let slots = usize::try_from(generation.slots).ok()?;
    if generation.slots == 0 || generation.slots as usize > MAX_SLOTS {
        return Some("the number of slots".into());
    }
    let kinds: [&[Kind]; 5] = [
        // Scoreboards of older masters have no numbers and keep no requests.
        &[
            Kind::Memory(pages(slots)),
            Kind::Memory(pages_with_lanes(slots)),
            Kind::Memory(pages_without_numbers(slots)),
        ],
        // Older masters used a pipe.
        &[Kind::Stream, Kind::PipeOut],
        &[Kind::Stream, Kind::PipeIn],
        &[Kind::Stream],
        &[Kind::Stream],
    ];
    names::of_generation(generation.id)
        .into_iter()
        .zip(kinds)
        .take(if generation.rests { 1 } else { kinds.len() })
        .find(|(name, kinds)| facts.kinds.get(name).is_none_or(|kind| !kinds.contains(kind)))
        .map(|(name, _)| name)
}

/// Returns a worker's entry, corrected by the descriptors. A worker without a stop pipe has seen the pipe's end, and exits.
fn believed(worker: &SavedWorker, facts: &Facts) -> SavedWorker {
    let stop_pipe = facts.kinds.get(&names::stop_pipe(worker.id));
    // The form of the pipe depends on the worker's kind (`try_fork`).
    let can_be_told = matches!(stop_pipe, Some(Kind::PipeIn | Kind::Packets | Kind::Stream));
    // Older masters used a pipe.
    let is_output = |kind: &Kind| matches!(kind, Kind::Stream | Kind::PipeOut);
    let output = names::output(worker.id).map(|end| facts.kinds.get(&end).is_some_and(is_output));
    SavedWorker {
        told: worker
            .told
            .or((!can_be_told).then_some((StopRequest::Retire, worker.begun))),
        output: worker.output && output == [true, true],
        ..worker.clone()
    }
}

/// Returns the programs that can be stopped. Takeover checks whether they are alive.
fn believed_programs(generation: &SavedGeneration, facts: &Facts) -> Vec<SavedProgram> {
    let mut places = BTreeSet::new();
    let mut is_sound = |program: &&SavedProgram| {
        let [input, _] = names::program(generation.id, program.place);
        program.place < generation.places
            && program.pid > 1
            && facts.kinds.get(&input) == Some(&Kind::PipeIn)
            && places.insert(program.place)
    };
    let programs = generation.programs.iter().filter(|program| is_sound(program));
    programs
        .filter(|_| has_table(generation, facts))
        .cloned()
        .collect()
}

/// Whether the program's table exists and has the right size.
fn has_table(generation: &SavedGeneration, facts: &Facts) -> bool {
    let wanted = Kind::Memory(table_pages(generation.places as usize, generation.slots as usize));
    facts.kinds.get(&names::program_table(generation.id)) == Some(&wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_config::Address;
    use forkyard_protocol::counters::PoolCounters;
    use forkyard_protocol::handover::document::VERSION;

    fn sample() -> Document {
        let worker = |id, slot, pid| SavedWorker {
            id,
            slot,
            pid,
            start_time: 1_000 + id,
            begun: 5,
            up: true,
            told: None,
            output: false,
        };
        Document {
            version: VERSION,
            program: "0.1.0".into(),
            master: 77,
            stopping: None,
            descriptor_limit: Some((1024, 4096)),
            last_pool: 1,
            last_generation: 4,
            last_reload: None,
            crashes: Vec::new(),
            autopilots: Vec::new(),
            last_upgrade: None,
            started: 0,
            events: Vec::new(),
            pools: vec![SavedPool {
                sites: BTreeMap::new(),
                id: 1,
                name: "www".into(),
                address: Address::Unix("/run/www.sock".into()),
                file: Some((1, 2)),
                serving: Some(4),
                has_queue: true,
                has_lanes: false,
                has_turns: false,
                http: None,
                counters: PoolCounters::default(),
                release: None,
                last_deployment: None,
                had: None,
            }],
            generations: vec![SavedGeneration {
                id: 4,
                pool: 1,
                name: "www".into(),
                started: 9,
                slots: 3,
                rests: false,
                programs: Vec::new(),
                release: None,
                turn: None,
                places: 0,
                workers: vec![worker(0, 0, 100), worker(1, 2, 101)],
            }],
        }
    }

    fn facts(document: &Document) -> Facts {
        let mut facts = Facts::default();
        for pool in &document.pools {
            facts.kinds.insert(names::listener(pool.id), Kind::Listener);
            for end in QueueKind::HandOff.names(pool.id) {
                facts.kinds.insert(end, Kind::Packets);
            }
        }
        for generation in &document.generations {
            let kinds = [
                Kind::Memory(pages(generation.slots as usize)),
                Kind::Stream,
                Kind::Stream,
                Kind::Stream,
                Kind::Stream,
            ];
            facts
                .kinds
                .extend(names::of_generation(generation.id).into_iter().zip(kinds));
            for worker in &generation.workers {
                facts.kinds.insert(names::stop_pipe(worker.id), Kind::PipeIn);
                facts.processes.insert(worker.pid, worker.start_time);
            }
        }
        facts
    }

    #[test]
    fn everything_goes_on_if_everything_is_there() {
        let document = sample();
        let plan = plan(&document, &facts(&document));
        assert_eq!(
            (plan.pools, plan.generations),
            (document.pools, document.generations)
        );
        assert!(plan.dead.is_empty() && plan.complaints.is_empty());
    }

    #[test]
    fn each_descriptor_counts() {
        let document = sample();
        let all = facts(&document);
        for name in all.kinds.keys() {
            for kind in [None, Some(Kind::Other), Some(Kind::Memory(99))] {
                let mut facts = all.clone();
                match kind {
                    None => facts.kinds.remove(name),
                    Some(kind) => facts.kinds.insert(name.clone(), kind),
                };
                let plan = plan(&document, &facts);
                let is_pool = name == "p1.l";
                let is_generation = name.starts_with("g4");
                assert_eq!(plan.pools.len(), usize::from(!is_pool), "{name}");
                assert_eq!(plan.generations.len(), usize::from(!is_generation), "{name}");
                assert_eq!(
                    plan.complaints.len(),
                    usize::from(is_pool || is_generation),
                    "{name}"
                );
                if name.starts_with("p1.q") {
                    assert!(!plan.pools[0].has_queue);
                }
                if name.starts_with('w') {
                    let told = plan.generations[0]
                        .workers
                        .iter()
                        .filter(|worker| worker.told.is_some());
                    assert_eq!(told.count(), 1, "{name}: it leaves by itself");
                }
            }
        }
    }

    #[test]
    fn a_worker_with_a_stop_pipe_of_any_kind_goes_on() {
        let document = sample();
        for kind in [Kind::PipeIn, Kind::Packets, Kind::Stream] {
            let mut facts = facts(&document);
            for worker in document.generations.iter().flat_map(|it| &it.workers) {
                facts.kinds.insert(names::stop_pipe(worker.id), kind);
            }
            let plan = plan(&document, &facts);
            let told = |generations: &[SavedGeneration]| -> Vec<bool> {
                let workers = generations.iter().flat_map(|it| &it.workers);
                workers.map(|worker| worker.told.is_some()).collect()
            };
            assert_eq!(told(&plan.generations), told(&document.generations), "{kind:?}");
        }
    }

    #[test]
    fn a_generation_whose_workers_are_gone_needs_no_pipes() {
        let document = sample();
        let mut facts = facts(&document);
        names::of_processes(4).iter().for_each(|name| {
            facts.kinds.remove(name);
        });
        assert!(
            plan(&document, &facts).generations.is_empty(),
            "its workers are there"
        );
        facts.processes.clear();
        let plan = plan(&document, &facts);
        assert!(
            plan.generations[0].rests && plan.complaints.is_empty(),
            "{plan:?}"
        );
        assert_eq!((plan.generations[0].workers.len(), plan.dead.len()), (0, 2));
    }

    #[test]
    fn a_process_is_known_by_its_start() {
        let document = sample();
        let mut facts = facts(&document);
        facts.processes.insert(100, 5);
        facts.processes.remove(&101);
        let plan = plan(&document, &facts);
        assert!(plan.generations[0].workers.is_empty());
        assert_eq!(plan.dead.len(), 2);
        assert_eq!(plan.complaints, [Complaint::Stranger("www".into(), 100)]);
    }

    #[test]
    fn what_contradicts_itself_is_not_believed() {
        let contradictions: [fn(&mut Document); 5] = [
            |document| document.generations[0].workers[1].slot = 0,
            |document| document.generations[0].workers[1].slot = 3,
            |document| document.generations[0].workers[1].id = 0,
            |document| document.generations[0].slots = 0,
            |document| document.generations[0].slots = u32::MAX,
        ];
        for contradict in contradictions {
            let mut document = sample();
            let facts = facts(&document);
            contradict(&mut document);
            let plan = plan(&document, &facts);
            assert!(plan.generations.is_empty());
            assert_eq!((plan.pools.len(), plan.complaints.len()), (1, 1));
        }
        let mut document = sample();
        document.generations[0].workers[1].pid = 100;
        document.generations[0].workers[1].start_time = 1_000;
        let plan = plan(&document, &facts(&sample()));
        assert_eq!(plan.generations[0].workers.len(), 1, "one process is one worker");
    }

    #[test]
    fn a_program_goes_on_with_its_table_and_its_input() {
        let mut document = sample();
        let generation = &mut document.generations[0];
        let program = |place| SavedProgram {
            place,
            pid: 300,
            start_time: 5,
            mark: "X=y".into(),
            restarts: 0,
            sockets: Vec::new(),
        };
        generation.places = 2;
        generation.programs = vec![program(1), program(1), program(2), program(0)];
        let (id, slots) = (generation.id, generation.slots as usize);
        let mut facts = facts(&document);
        let pages = table_pages(2, slots);
        let [input, _] = names::program(id, 1);
        facts.kinds.insert(input, Kind::PipeIn);
        let believed = |facts: &Facts| plan(&document, facts).generations[0].programs.clone();
        assert_eq!(believed(&facts), []);
        facts
            .kinds
            .insert(names::program_table(id), Kind::Memory(pages + 1));
        assert_eq!(believed(&facts), []);
        facts.kinds.insert(names::program_table(id), Kind::Memory(pages));
        assert_eq!(believed(&facts), [program(1)]);
    }
}
