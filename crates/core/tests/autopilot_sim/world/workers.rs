//! Workers of the simulated pool: how they come and go.

use super::super::chance::skewed;
use super::{Guest, Rule, STARTS_AT_ONCE, State, Worker, World, machine};
use forkyard_core::autopilot::Autopilot;

impl World<'_> {
    pub(super) fn fork(&mut self, is_ready: bool) {
        let own = self.workload.own * skewed(&mut self.random, 1.0, 0.15);
        let worker = Worker {
            state: if is_ready { State::Serves } else { State::Starts },
            own,
            peak: 0.0,
            busy: 0,
            served: 0,
            idle_since: self.now,
            measured: f64::NEG_INFINITY,
        };
        self.memory += own;
        self.live += 1;
        let place = self.workers.iter().position(|worker| worker.state == State::Gone);
        let place = place.unwrap_or_else(|| {
            self.workers.push(worker);
            self.workers.len() - 1
        });
        self.workers[place] = worker;
        match is_ready {
            true => self.idle.extend(vec![place; self.workload.threads]),
            false => {
                self.starting += 1;
                self.compute.enter(Guest::Start(place), self.workload.start);
            }
        }
    }

    pub(super) fn goes(&mut self, place: usize) {
        let worker = &mut self.workers[place];
        if worker.state == State::Starts {
            self.starting -= 1;
        }
        worker.state = State::Gone;
        self.live -= 1;
        worker.busy = 0;
        self.memory -= worker.own + worker.peak;
        self.idle.retain(|idle| *idle != place);
    }

    pub(super) fn is_ready(&self, place: usize) -> bool {
        matches!(self.workers[place].state, State::Serves | State::Leaves)
    }

    /// The largest go if there are too many: idle ones at once, busy ones after their requests. Of many idle ones, those go
    /// that were idle for ten seconds.
    pub(super) fn shrink(&mut self) {
        let serving = |world: &World<'_>| {
            (0..world.workers.len())
                .filter(|place| world.workers[*place].state == State::Serves)
                .collect()
        };
        let mut order: Vec<usize> = serving(self);
        let over = order.len().saturating_sub(self.number);
        order.sort_by(|one, other| self.workers[*other].own.total_cmp(&self.workers[*one].own));
        order.sort_by_key(|place| self.workers[*place].busy > 0);
        for place in order.into_iter().take(over) {
            match self.workers[place].busy {
                0 => self.goes(place),
                _ => {
                    self.workers[place].state = State::Leaves;
                    self.idle.retain(|idle| *idle != place);
                }
            }
        }
        let spare = (self.idle.len() / self.workload.threads).saturating_sub(4);
        let is_old = |worker: &Worker| worker.busy == 0 && self.now - worker.idle_since > 10.0;
        let all: Vec<usize> = serving(self);
        let old: Vec<usize> = all
            .into_iter()
            .filter(|place| is_old(&self.workers[*place]))
            .take(spare)
            .collect();
        old.into_iter().for_each(|place| self.goes(place));
    }

    /// All workers are replaced, and nothing is compiled.
    pub(super) fn deploy(&mut self) {
        self.warm.fill(false);
        if self.rule == Rule::Auto {
            let machine = machine(self.workload, self.container);
            self.autopilot = Autopilot::resume(self.autopilot.learnt(), &machine);
        }
        self.idle.clear();
        let mut gone = 0;
        for place in 0..self.workers.len() {
            match self.workers[place].state {
                State::Gone | State::Starts => (),
                _ if self.workers[place].busy == 0 => {
                    self.goes(place);
                    gone += 1;
                }
                _ => self.workers[place].state = State::Leaves,
            }
        }
        // A fixed number is kept: busy ones are replaced when they leave.
        let first = if self.is_fixed() { gone } else { 1 };
        for _ in 0..first {
            self.fork(false);
        }
    }

    /// The kernel kills the largest worker while there is too little memory.
    pub(super) fn kill(&mut self) {
        while self.memory > self.container.memory {
            let alive = (0..self.workers.len()).filter(|place| self.workers[*place].state != State::Gone);
            let size = |place: &usize| self.workers[*place].own + self.workers[*place].peak;
            let Some(largest) = alive.max_by(|one, other| size(one).total_cmp(&size(other))) else {
                return;
            };
            self.outcome.killed += 1;
            self.goes(largest);
            let requests = &self.requests;
            let stays = |guest| match guest {
                Guest::Start(place) => place != largest,
                Guest::Request(id) => requests[id].worker != largest,
            };
            for station in [&mut self.compute, &mut self.database, &mut self.away] {
                station.retain(stays);
            }
            self.recent.retain(|(_, id)| requests[*id].worker != largest);
            if self.is_fixed() {
                self.fork(false);
            }
        }
    }

    /// The pool grows with its queue. Workers that leave after their request count.
    pub(super) fn grow(&mut self) {
        if self.is_fixed() {
            return;
        }
        let threads = self.workload.threads;
        let coming = self.idle.len() + self.starting * threads;
        let wanted = self.queue.len().saturating_sub(coming).div_ceil(threads);
        let may_fork = self.rule != Rule::Auto || self.autopilot.decision().may_fork;
        let places = self.number.saturating_sub(self.live);
        let starts = STARTS_AT_ONCE.saturating_sub(self.starting);
        let forks = match may_fork && self.idle.is_empty() {
            true => wanted.min(places).min(starts),
            false => 0,
        };
        for _ in 0..forks.max(usize::from(self.live == 0)) {
            self.fork(false);
        }
    }
}
