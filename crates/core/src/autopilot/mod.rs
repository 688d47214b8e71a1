//! How many workers a pool may have.

use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    pub cores: f64,
    pub memory: u64,
    pub requests_a_worker: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Route {
    pub key: u64,
    pub done: u32,
    pub log_blocked: f64,
    pub blocked: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Second {
    pub elapsed: f64,
    pub machine: Machine,
    pub shared: u64,
    pub others: u64,
    pub current: u64,
    pub pressure: bool,
    pub live: u32,
    pub busy: u32,
    pub waiting: u32,
    pub full: f64,
    pub done: u32,
    pub run: f64,
    pub queued: f64,
    pub held: f64,
    pub routes: Vec<Route>,
    pub private: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub most: u32,
    pub may_fork: bool,
    pub reason: Reason,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Reason {
    Start,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("start")
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Learnt {}

#[derive(Debug)]
pub struct Autopilot {
    decision: Decision,
}

impl Autopilot {
    pub fn start(machine: &Machine, shared: u64) -> Autopilot {
        let room = (machine.memory as f64 * 0.9 - shared as f64) / f64::from(48 << 20);
        let most = room.min(4.0 * machine.cores + 2.0).max(1.0) as u32;
        Autopilot {
            decision: Decision {
                most,
                may_fork: true,
                reason: Reason::Start,
            },
        }
    }

    pub fn second(&mut self, _: &Second) -> &Decision {
        &self.decision
    }

    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    pub fn learnt(&self) -> Learnt {
        Learnt {}
    }

    pub fn resume(_: Learnt, machine: &Machine) -> Autopilot {
        Autopilot::start(machine, 0)
    }
}
