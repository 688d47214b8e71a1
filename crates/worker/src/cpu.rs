//! Measures the CPU time of requests.

use super::dead_work::Dead;
use super::run_queue::{LEAST, UsualRequest};
use super::samples;
use super::service::Service;
use super::tally::{self, Counted};
use forkyard_base::tick::Tick;
use forkyard_scoreboard::FinishedRequest;
use forkyard_sys::clock;
use forkyard_sys::sched::{SchedStat, SchedTimes};
use std::time::Duration;

/// Shorter requests are not measured: their CPU time is below php-fpm's clock tick.
const CPU_THRESHOLD_MICROS: u64 = 1_000;

const FEW: u32 = 31;

#[derive(Debug, Default)]
pub(super) struct Cost {
    stat: Option<SchedStat>,
    at_begin: Option<SchedTimes>,
    pub(super) usual: UsualRequest,
    passed_over: u32,
}

impl Cost {
    pub(super) fn measure(&mut self) {
        self.stat = SchedStat::open();
    }

    /// `before`: the duration of the previous request. Skips short requests, and most of those that were slow only
    /// because others had the processors.
    pub(super) fn begin(&mut self, before: Duration) {
        let is_known = !self.usual.run.is_zero() && !self.usual.is_long();
        self.passed_over = match is_known && self.passed_over < FEW {
            true => self.passed_over + 1,
            false => 0,
        };
        self.at_begin = match before >= LEAST && self.passed_over == 0 {
            true => self.stat.as_ref().and_then(SchedStat::read),
            false => None,
        };
    }

    /// Returns the request's time in the run queue; zero if unknown.
    fn end(&mut self, took: Duration) -> Duration {
        let times = self
            .at_begin
            .take()
            .zip(self.stat.as_ref().and_then(SchedStat::read));
        let Some((begun, now)) = times else {
            return Duration::ZERO;
        };
        let (run, waited) = (
            now.run.saturating_sub(begun.run),
            now.waited.saturating_sub(begun.waited),
        );
        self.usual.note(took, run, waited);
        waited
    }
}

impl Service {
    fn count(&mut self, now: Tick, cpu_micros: u64, queued: Duration) {
        let tally = &mut self.tally;
        let request = FinishedRequest {
            run: tally
                .dead
                .is_none()
                .then(|| tally.ended.unwrap_or(now).since(self.taken)),
            wait: std::mem::take(&mut tally.waited),
            ended: now,
            class: tally.answer.class(),
            dead: tally.dead.map(Dead::count),
            cpu_micros: tally.dead.is_none().then_some(cpu_micros),
            memory: tally.memory,
            is_aborted: self.client_gone,
            is_timed_out: false,
        };
        let (received, sent) = (
            std::mem::take(&mut tally.received),
            std::mem::take(&mut tally.sent),
        );
        if let Some((gate, run)) = self.page.gate().zip(request.run) {
            gate.had_run(run);
        }
        let is_sampled = samples::are_wanted(&self.page);
        if let Some(counters) = self.page.counters() {
            let counted = Counted {
                route: self.tally.route,
                queued,
                growth: self.tally.growth,
                is_sampled,
            };
            tally::count(counters, &request, counted);
            counters.transferred(received, sent);
        }
        if is_sampled {
            samples::take(&self.page, self.tally.memory.unwrap_or(0), self.wear.program, now);
        }
    }

    pub(super) fn account(&mut self, now: Tick) {
        let took = now.since(self.taken);
        let mut queued = Duration::ZERO;
        if self.tally.dead.is_none() {
            self.took = [took, self.took[0]];
            queued = self.cost.end(took);
        }
        let micros = took.as_micros() as u64;
        let (mut centipercent, program) = (0, std::mem::take(&mut self.program_micros));
        let mut cpu_micros = micros.saturating_add(program);
        if micros >= CPU_THRESHOLD_MICROS {
            let total = clock::process_cpu_micros();
            let used = total
                .saturating_sub(self.cpu_micros)
                .saturating_add(program)
                .min(micros.saturating_mul(64));
            centipercent = used * 10_000 / micros;
            cpu_micros = used;
            self.cpu_micros = total;
        } else {
            self.cpu_micros += micros;
        }
        self.slot_writer().finished(micros, centipercent);
        self.count(now, cpu_micros, queued);
    }
}
