//! Reports of workers that died at work.

use super::deaths::by_whom;
use super::start_report::account;
use crate::context::Context;
use crate::context::generation::Generation;
use crate::context::processes::Reported;
use crate::context::worker::SlowCalls;
use fastcgi::{Input, Limits, Responder};
use forkyard_core::master::crash::{Crash, Work};
use forkyard_core::master::crash_cause::{CrashCause, Evidence};
use forkyard_core::master::event::{Ended, GenerationId, WorkerId};
use forkyard_core::master::secrets::{without_secret, without_secrets};
use forkyard_host::confine;
use forkyard_scoreboard::RequestStage;
use forkyard_scoreboard::layout::slot;
use forkyard_scoreboard::slot_reader::{self, SlotEntry};
use forkyard_slowlog::MOST_COPIED;
use forkyard_spawn::report::ErrorId;
use forkyard_spawn::self_spawn::error_id;
use forkyard_sys::sender::Origin;
use forkyard_sys::{Error, clock, memfile};
use std::os::fd::AsFd;
use std::time::Duration;

/// The most output of a program's process in a report.
const MOST_OUTPUT: usize = 4 * 1024;

impl Context {
    /// Keeps the report of a worker that died at work; returns which.
    pub(crate) fn note_crash(
        &mut self,
        shows_job: impl FnOnce(&SlotEntry) -> bool,
        id: WorkerId,
        pid: i32,
        ended: Ended,
    ) -> Option<Reported> {
        let worker = self.pools.workers.get(&id)?;
        let generation = self.pools.generations.get(&worker.generation)?;
        let page = generation.page(worker.slot)?;
        let entry = slot_reader::read(page);
        let group = confine::group(&generation.settings.pool);
        let is_by_force = matches!(ended, Ended::Signal { number: 9, .. });
        let sent = slot_reader::sent(page);
        let evidence = Evidence {
            ended,
            is_at_work: is_at_work(&entry),
            told: worker.told.map(|(told, _)| told),
            by: worker.ended_by,
            said: slot_reader::leaving(page).0,
            sent: sent.and_then(|sent| Some((sent.signal, by_whom(sent.origin, pid)?))),
            is_stack_full: sent.is_some_and(|sent| sent.origin == Origin::StackOverflow),
            is_out_of_memory: is_by_force && self.processes.oom_kills.has_new(group.as_ref(), clock::now()),
        };
        let cause = CrashCause::of(evidence)?;
        let is_job = shows_job(&entry);
        let dead = Dead {
            pid,
            ended,
            peak_memory: worker.peak_memory,
            output: &String::from_utf8_lossy(&worker.last_output),
        };
        let mut crash = report(generation, &dead, &entry, cause, is_job);
        let kept = sent.map_or(0, |sent| sent.received as usize);
        crash.work.params = generation.received(worker.slot, kept).unwrap_or_else(|error| {
            log::warn!("[pool {}] {error}", crash.pool);
            Vec::new()
        });
        if let Some(calls) = &worker.calls {
            // In a worker with several requests, the status may show another request by now.
            if calls.taken == entry.taken && !entry.load.is_told {
                crash.calls = calls.text();
                crash.calls_after = calls.read.since(calls.taken);
            }
        }
        let reported = Reported {
            id: crash.id,
            is_work_lost: crash.cause != CrashCause::MemoryLimit,
        };
        self.pools.errors.keep_crash(crash);
        Some(reported)
    }
}

impl SlowCalls {
    /// Returns the calls; nothing if the tracer was not done in time.
    fn text(&self) -> String {
        let copied = memfile::read(self.copy.as_fd(), MOST_COPIED);
        String::from_utf8_lossy(&copied.unwrap_or_default())
            .trim_end()
            .to_owned()
    }
}

fn is_at_work(entry: &SlotEntry) -> bool {
    match entry.stage {
        RequestStage::Creating
        | RequestStage::Accepting
        | RequestStage::Accepted
        | RequestStage::Finished => false,
        RequestStage::ReadingHeaders
        | RequestStage::Info
        | RequestStage::Executing
        | RequestStage::End
        | RequestStage::Working
        | RequestStage::Open => true,
    }
}

/// A process that died.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dead<'d> {
    pub(crate) pid: i32,
    pub(crate) ended: Ended,
    pub(crate) peak_memory: Option<u64>,
    pub(crate) output: &'d str,
}

fn report(
    generation: &Generation,
    dead: &Dead<'_>,
    entry: &SlotEntry,
    cause: CrashCause,
    is_job: bool,
) -> Crash {
    let now = clock::now();
    let text = |index: usize| String::from_utf8_lossy(&entry.texts[index]).into_owned();
    let is_full = |index: usize| entry.texts[index].len() == slot::TEXTS[index].1;
    let settings = &generation.settings;
    Crash {
        id: error_id(now.as_nanos() ^ u64::from(dead.pid.unsigned_abs())),
        epoch_s: clock::epoch_seconds(),
        pool: settings.pool.name.clone(),
        uid: account(settings.identity.clone()).uid,
        work: Work {
            number: entry.requests,
            stage: entry.stage.name().into(),
            method: text(0),
            path: text(1),
            query: without_secrets(&text(2)),
            script: text(3),
            content_length: entry.content_length,
            others: match entry.load.is_told {
                true => u64::from(entry.load.in_flight.saturating_sub(1)),
                false => 0,
            },
            is_cut: (0..4).any(is_full),
            is_job,
            params: Vec::new(),
        },
        cause,
        pid: dead.pid,
        ended: dead.ended,
        after: match is_at_work(entry) {
            true => now.since(entry.taken),
            false => Duration::from_micros(entry.duration_micros),
        },
        peak_memory: dead.peak_memory,
        output: dead.output.trim_end().to_owned(),
        calls: String::new(),
        calls_after: Duration::ZERO,
        earlier: 0,
        is_program: false,
    }
}

impl Context {
    /// Keeps the report of a program's process that died with requests; returns its id.
    pub(crate) fn note_program_crash(
        &mut self,
        id: GenerationId,
        dead: &Dead<'_>,
        load: ProgramLoad,
    ) -> Option<ErrorId> {
        let generation = self.pools.generations.get(&id)?;
        let group = confine::group(&generation.settings.pool);
        let is_by_force = matches!(dead.ended, Ended::Signal { number: 9, .. });
        let cause = CrashCause::of(Evidence {
            ended: dead.ended,
            is_at_work: true,
            told: None,
            by: None,
            said: None,
            sent: None,
            is_stack_full: false,
            is_out_of_memory: is_by_force && self.processes.oom_kills.has_new(group.as_ref(), clock::now()),
        })?;
        let entries: Vec<SlotEntry> = generation
            .pages()
            .map(|(.., page)| slot_reader::read(page))
            .collect();
        // A worker may have answered 502 already.
        let running = entries.iter().filter(|entry| is_at_work(entry));
        let entry = running
            .min_by_key(|entry| entry.taken)
            .or_else(|| entries.iter().max_by_key(|entry| entry.taken))?;
        let mut crash = report(generation, dead, entry, cause, false);
        crash.is_program = true;
        crash.output = end_of(&crash.output).to_owned();
        crash.work.number = load.served.saturating_add(load.requests);
        crash.work.others = load.requests.saturating_sub(1);
        let report = crash.id;
        self.pools.errors.keep_crash(crash);
        Some(report)
    }
}

fn end_of(output: &str) -> &str {
    let mut from = output.len().saturating_sub(MOST_OUTPUT);
    while !output.is_char_boundary(from) {
        from += 1;
    }
    &output[from..]
}

/// The requests of a program's process: under way, and finished.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgramLoad {
    pub(crate) requests: u64,
    pub(crate) served: u64,
}

impl Generation {
    /// The parameters of the request that a dead worker has kept, without secrets.
    fn received(&self, slot: u32, bytes: usize) -> Result<Vec<(String, String)>, Error> {
        let Some(resources) = &self.resources else {
            return Ok(Vec::new());
        };
        Ok(params(&resources.board.received(slot as usize, bytes)?))
    }
}

/// Decodes the parameters of a request in FastCGI records, which may be incomplete.
fn params(records: &[u8]) -> Vec<(String, String)> {
    let mut responder = Responder::new(Limits::default());
    let mut rest = records;
    loop {
        let (used, input) = responder.receive(rest);
        match input {
            Input::Reply(_) if used > 0 => rest = &rest[used..],
            _ => break,
        }
    }
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let params = responder.params().iter();
    let params = params.map(|(name, value)| (text(name), text(value)));
    // The decoder adds the role of the request.
    params
        .filter(|(name, _)| name != "FCGI_ROLE")
        .map(|(name, value)| {
            let value = without_secret(&name, &value);
            (name, value)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_as_far_as_they_go_and_lack_secrets() {
        let pairs: [(&[u8], &[u8]); 3] = [
            (b"REQUEST_METHOD", b"GET"),
            (b"HTTP_COOKIE", b"a=b"),
            (b"HTTP_HOST", b"h"),
        ];
        let mut wire = Vec::new();
        let request = fastcgi::Request {
            params: &pairs,
            ..fastcgi::Request::default()
        };
        request.encode(&mut wire);
        let names = |wire: &[u8]| -> Vec<String> {
            params(wire)
                .into_iter()
                .map(|(name, value)| name + "=" + &value)
                .collect()
        };
        let all = ["REQUEST_METHOD=GET", "HTTP_COOKIE=[hidden]", "HTTP_HOST=h"];
        assert_eq!(names(&wire), all);
        let counts = (0..wire.len()).map(|length| {
            let some = names(&wire[..length]);
            assert_eq!(some, all[..some.len()], "{length}");
            some.len()
        });
        let counts: Vec<usize> = counts.collect();
        assert!(counts.is_sorted() && (0..=3).all(|count| counts.contains(&count)));
        assert!(names(&[1; 200]).is_empty() && names(b"").is_empty());
    }
}
