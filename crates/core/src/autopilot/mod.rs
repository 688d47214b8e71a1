//! The limit of a pool's workers, from measurements: as many as memory holds, as keep the processors busy, and no more than
//! a database or another server behind the application can serve.
//!
//! The number is a limit only. A pool grows with its queue and shrinks with its idle workers, so demand needs no estimate.

mod memory;
mod number;
mod processors;
mod reason;
#[cfg(test)]
mod tests;
mod usual;
mod waiting;

use memory::Memory;
use number::Number;
use processors::Processors;
pub use reason::Reason;
use serde::{Deserialize, Serialize};
use usual::Usual;
use waiting::Waiting;

/// The most workers of a pool.
const MOST: u32 = 65_535;

/// The resources of the pool.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Processors that the pool may use.
    pub cores: f64,
    /// Memory that the pool may use, in bytes: the group's limit, or the machine's.
    pub memory: u64,
    /// How many requests a worker serves at a time.
    pub requests_a_worker: u32,
}

/// Sums of one route.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Route {
    pub key: u64,
    pub done: u32,
    /// The sum over its requests of ln(blocked seconds + 0.001).
    pub log_blocked: f64,
    /// Seconds that its requests waited for something other than a processor.
    pub blocked: f64,
}

/// Measurements since the last call. Tenants write some of them, so a field may have any value.
#[derive(Debug, Clone, PartialEq)]
pub struct Second {
    /// Seconds.
    pub elapsed: f64,
    pub machine: Machine,
    /// Bytes that all workers share.
    pub shared: u64,
    /// Bytes of other pools and processes under the same limit.
    pub others: u64,
    /// Bytes in use under the limit.
    pub current: u64,
    /// The kernel reports that processes wait for memory.
    pub pressure: bool,
    pub live: u32,
    pub busy: u32,
    /// Requests that wait.
    pub waiting: u32,
    /// The part of the time with no idle worker and a waiting request.
    pub full: f64,
    pub done: u32,
    /// Seconds of processor time.
    pub run: f64,
    /// Seconds that workers waited for a processor.
    pub queued: f64,
    /// Seconds that workers had a request.
    pub held: f64,
    pub routes: Vec<Route>,
    /// Bytes of some busy workers: private memory and the peak of the request.
    pub private: Vec<u64>,
}

impl Second {
    /// Seconds that requests waited for something other than a processor.
    fn blocked(&self) -> f64 {
        sane(sane(self.held) - sane(self.run) - sane(self.queued))
    }

    fn full(&self) -> f64 {
        sane(self.full).min(1.0)
    }

    fn elapsed(&self) -> f64 {
        sane(self.elapsed).clamp(0.1, 60.0)
    }

    /// Whether processors are short.
    fn lacks_processors(&self) -> bool {
        sane(self.queued) > sane(self.run) / 2.0
    }
}

/// Returns the number if it is usable: finite, not negative and not too large.
fn sane(number: f64) -> f64 {
    if number.is_nan() {
        0.0
    } else {
        number.clamp(0.0, 1e15)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The most workers, at least one. Workers that leave after their request count.
    pub most: u32,
    /// Whether memory has room for one more worker now.
    pub may_fork: bool,
    pub reason: Reason,
}

/// The knowledge of a pool, kept over reloads and upgrades.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Learnt {
    most: u32,
    memory: Memory,
    processors: Processors,
    usual: Usual,
    waiting: Waiting,
}

#[derive(Debug)]
pub struct Autopilot {
    learnt: Learnt,
    number: Number,
    decision: Decision,
}

impl Autopilot {
    /// Begins without knowledge. `shared`: bytes that all workers share.
    pub fn start(machine: &Machine, shared: u64) -> Autopilot {
        let room = machine.memory as f64 * 0.9 - shared as f64;
        let most = (room / memory::FIRST_GUESS).min(4.0 * sane(machine.cores) + 2.0);
        Autopilot::with(Learnt::default(), workers(most), Reason::Start)
    }

    /// Begins with earlier knowledge.
    pub fn resume(learnt: Learnt, machine: &Machine) -> Autopilot {
        match learnt.most {
            0 => Autopilot::start(machine, 0),
            most => {
                let room = learnt.memory.room(machine.memory, 0, 0);
                let most = f64::from(most).min(learnt.memory.most(room));
                Autopilot::with(learnt, workers(most), Reason::Start)
            }
        }
    }

    fn with(learnt: Learnt, most: u32, reason: Reason) -> Autopilot {
        Autopilot {
            learnt,
            number: Number::new(most),
            decision: Decision {
                most,
                may_fork: true,
                reason,
            },
        }
    }

    /// Takes the measurements of a second with requests.
    pub fn second(&mut self, second: &Second) -> &Decision {
        let Learnt {
            memory,
            processors,
            usual,
            waiting,
            ..
        } = &mut self.learnt;
        memory.sample(&second.private, second.machine.memory);
        let room = memory.room(second.machine.memory, second.shared, second.others);
        let by_memory = memory.most(room);
        let work = usual.second(&second.routes, second.full() < 0.1);
        let (by_processors, computing) = processors.second(second, usual.times_slower());
        let limits = by_memory.min(by_processors);
        waiting.second(second, usual, work, f64::from(self.number.most()), limits);
        let by_waiting = waiting.most();
        let most = self.number.second(by_memory, by_processors, by_waiting, second);
        let reason = match () {
            () if self.number.is_pressed() => Reason::Pressure,
            () if by_memory <= by_processors.min(by_waiting) => Reason::Memory {
                worker: memory.of_a_worker(),
                room: sane(room) as u64,
            },
            () if by_processors <= by_waiting => Reason::Processors {
                computing,
                cores: processors.usable(),
                memory: workers(by_memory),
            },
            () => waiting.why.clone(),
        };
        self.learnt.most = most;
        self.decision = Decision {
            most,
            may_fork: self.learnt.memory.has_room(second) && !self.number.is_pressed(),
            reason,
        };
        &self.decision
    }

    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    pub fn learnt(&self) -> Learnt {
        self.learnt.clone()
    }
}

/// Returns a number of workers for any number.
fn workers(number: f64) -> u32 {
    sane(number).clamp(1.0, f64::from(MOST)) as u32
}
