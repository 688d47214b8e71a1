//! Workers' standard output and error, into the log line by line.
//!
//! An unfinished line ends with its request: the worker adds a newline if there may be such a line, that is, if bytes
//! are unread or the scoreboard's header marks one. The mark is set before the master reads, so bytes that a worker no
//! longer finds were read after it. Empty lines are dropped, so a superfluous newline does no harm, and no mark in the
//! text can be forged.

use crate::context::app_log::Outlet;
use crate::context::generation::Generation;
use crate::context::lines::{Lines, PipeRead, read_rest};
use crate::context::pools::Pools;
use crate::context::services::Services;
use crate::context::worker::WorkerProcess;
use forkyard_core::master::event::{GenerationId, WorkerId};
use forkyard_scoreboard::layout::slot;
use forkyard_scoreboard::{header, slot_reader};

/// How much of a worker's output is kept: of one that starts, and of one that is up.
const MOST_OUTPUT: [usize; 2] = [16 * 1024, 4 * 1024];

impl Pools {
    /// Logs a worker's output. Returns `true` if there is more.
    pub(crate) fn read_output(&mut self, services: &mut Services, id: WorkerId, index: usize) -> bool {
        let has_it = |worker: &WorkerProcess| index < worker.output.len();
        if !self.workers.get(&id).is_some_and(has_it) {
            return false;
        }
        self.note_unfinished(id, true);
        let Some(worker) = self.workers.get_mut(&id) else {
            return false;
        };
        let Some(generation) = self.generations.get(&worker.generation) else {
            return false;
        };
        let pid = pid(generation, worker);
        let log = services.log;
        let outlet = |stream| generation.outlet(log, "child", pid, stream);
        let (last_output, is_up) = (&mut worker.last_output, worker.up);
        // As in php-fpm, output on one stream ends a line of the other.
        for (other, (lines, stream)) in worker.output.iter_mut().enumerate() {
            if other != index {
                lines.end_line(|line| {
                    outlet(stream).write(line);
                    note(last_output, is_up, line);
                });
            }
        }
        let Some((lines, stream)) = worker.output.get_mut(index) else {
            return false;
        };
        let look = log_lines(&outlet(stream), lines, |line| note(last_output, is_up, line));
        if look == PipeRead::Ended {
            services.sources.forget(lines.pipe());
        }
        let due = lines.due();
        let is_unfinished = lines.is_unfinished();
        services.sources.hold_entry(due);
        self.note_unfinished(id, is_unfinished);
        look == PipeRead::More
    }

    /// Publishes whether a line is, or may be, unfinished.
    fn note_unfinished(&mut self, id: WorkerId, is_unfinished: bool) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        if worker.unfinished == is_unfinished {
            return;
        }
        worker.unfinished = is_unfinished;
        let generation = worker.generation;
        self.count_unfinished(generation, is_unfinished);
    }

    fn count_unfinished(&self, id: GenerationId, is_one_more: bool) {
        let resources = self.resources(id);
        if let Some(resources) = resources {
            header::count_unfinished(resources.board.header(), is_one_more);
        }
    }

    pub(crate) fn read_last_output(&self, services: &mut Services, worker: &mut WorkerProcess, pid: i32) {
        if worker.unfinished {
            worker.unfinished = false;
            self.count_unfinished(worker.generation, false);
        }
        let Some(generation) = self.generations.get(&worker.generation) else {
            return;
        };
        for (lines, stream) in &mut worker.output {
            let outlet = generation.outlet(services.log, "child", pid, stream);
            let (last_output, is_up) = (&mut worker.last_output, worker.up);
            read_rest(|| {
                let look = log_lines(&outlet, lines, |line| note(last_output, is_up, line));
                look == PipeRead::More
            });
            // A child of the worker may still hold the pipe.
            lines.end_line(|line| {
                outlet.write(line);
                note(last_output, is_up, line);
            });
            services.sources.forget(lines.pipe());
        }
    }
}

/// A worker's process id. Before its preloader announces it, its own value is good enough for a log line.
pub(crate) fn pid(generation: &Generation, worker: &WorkerProcess) -> i32 {
    let page = || generation.page(worker.slot);
    let own = || page().and_then(|page| i32::try_from(slot_reader::word(page, slot::PID)).ok());
    worker.pid.or_else(own).unwrap_or_default()
}

fn log_lines(outlet: &Outlet<'_>, lines: &mut Lines, mut besides: impl FnMut(&[u8])) -> PipeRead {
    lines.read_within(outlet.room(), |line| {
        outlet.write(line);
        besides(line);
    })
}

/// Keeps the end of a worker's output, for a report of its death.
pub(crate) fn note(kept: &mut Vec<u8>, is_up: bool, line: &[u8]) {
    kept.extend_from_slice(line);
    kept.push(b'\n');
    let excess = kept.len().saturating_sub(MOST_OUTPUT[usize::from(is_up)]);
    kept.drain(..excess);
}
