//! Measures a worker for the autopilot: its time in the run queue, and its unshared memory.

use super::page::Page;
use forkyard_base::tick::Tick;
use forkyard_scoreboard::header;
use forkyard_scoreboard::samples::Sample;
use forkyard_sys::clock;
use forkyard_sys::process::{family_memory_bytes, private_memory_bytes};
use forkyard_sys::sched::SchedStat;
use std::time::Duration;

/// Whether the autopilot wants samples. It does not while the pool is quiet, and a request then costs only this look.
pub(super) fn are_wanted(page: &Page) -> bool {
    header::wish(page.board.header()).samples
}

/// Reads the clocks at the begin of a request, if the autopilot wants samples and the last one is old: the time before the
/// request does not count.
pub(super) fn begin(page: &Page, now: Tick) {
    let writer = page.writer();
    if are_wanted(page)
        && writer.is_sample_old(now)
        && let Some(sample) = sample()
    {
        writer.begin_sample(sample, now);
    }
}

fn sample() -> Option<Sample> {
    let read = SchedStat::open()?.read()?;
    Some(Sample {
        run: Duration::from_micros(clock::process_cpu_micros()),
        queued: read.waited,
    })
}

/// Takes a sample at the end of a request, if one is due. Leaves no file open, because the worker may be rewound.
/// `peak`: the request's peak memory in bytes; `program`: the pid of the worker's program, or 0.
pub(super) fn take(page: &Page, peak: u64, program: i32, now: Tick) {
    let Some(counters) = page.counters() else { return };
    let (times, memory) = page.writer().samples_due(now);
    if times && let Some(sample) = sample() {
        counters.sampled(page.writer(), sample, now);
    }
    if memory {
        let family = if program > 0 {
            family_memory_bytes(program)
        } else {
            0
        };
        let own = private_memory_bytes().map(|own| own.saturating_add(peak).saturating_add(family));
        // Zero counts for nothing, and is not measured again at once.
        let bytes = own.unwrap_or(0);
        counters.measured_memory(page.writer(), bytes, now);
    }
}
