//! Sends requests to the job process and prints the answers.

use super::conversation::PATIENCE;
use super::display::{
    Bar, connections_table, details, job_bar, jobs_table, kinds_table, now_ms, queues_table, schedules_table,
    sequences_table,
};
use super::{CommandOutcome, Conversation, EXIT_UNKNOWN, LOOK, List, Outcome, Push, failed, failure, wait};
use crate::EXIT_SOFTWARE;
use crate::table::table;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use forkyard_config::units::duration;
use forkyard_protocol::jobs::{
    HeldKeys, JobName, JobsAnswer, JobsRequest, ListRequest, NewJob, PushRequest, Pushed,
};
use serde::de::IgnoredAny;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

impl Conversation {
    /// Prints jobs, and the command for the next page.
    pub(super) fn list(&mut self, list: List) -> Outcome {
        let now_ms = now_ms();
        let ago = |time: &Option<String>| -> Outcome<Option<i64>> {
            Ok(millis(time)?.map(|time_ms| now_ms.saturating_sub_unsigned(time_ms)))
        };
        let (since_ms, until_ms, limit) = (ago(&list.since)?, ago(&list.until)?, list.limit as usize);
        let answer = self.ask(&JobsRequest::List(ListRequest {
            since_ms,
            until_ms,
            ..list.request()
        }))?;
        let last = match &answer {
            JobsAnswer::Jobs { jobs } if jobs.len() >= limit => jobs.last().map(|job| job.id),
            _ => None,
        };
        let mut outcome = self.shown(answer)?;
        if let Some(id) = last.filter(|_| !self.json) {
            outcome.errors = format!("forkyard: there may be more: --before {id}\n");
        }
        Ok(outcome)
    }

    pub(super) fn push(&mut self, push: Push) -> Outcome {
        let (limit_ms, waits) = (millis(&push.push_timeout)?, push.wait);
        let mut job = new_job(push)?;
        let reference = match job.reference.take() {
            Some(reference) => reference,
            None => own_ref()?,
        };
        job.reference = Some(reference.clone());
        let limit = match limit_ms {
            Some(limit_ms) => Duration::from_millis(limit_ms),
            None => self.push_timeout,
        };
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let request = JobsRequest::Push(PushRequest {
            job: Some(job),
            // The server answers before the client's time limit.
            timeout_ms: Some((limit_ms - limit_ms / 8).max(1)),
            ..PushRequest::default()
        });
        let answer = self.ask_within(&request, limit)?;
        match &answer {
            JobsAnswer::Pushed { jobs } if waits => match jobs.first() {
                Some(pushed) => {
                    let name = JobName {
                        id: Some(pushed.id),
                        ..JobName::default()
                    };
                    self.wait(name, None)
                }
                None => self.shown(answer),
            },
            JobsAnswer::Error {
                message,
                is_unknown: true,
                ..
            } => Err(failed(EXIT_UNKNOWN, &format!("{message}: --ref {reference}"))),
            _ => self.shown(answer),
        }
    }

    /// Waits until a job ends, with a progress bar in a terminal.
    pub(super) fn wait(&mut self, name: JobName, limit_ms: Option<u64>) -> Outcome {
        let show = JobsRequest::Show(name.clone());
        let bar = Bar::new(self.json);
        let begun = Instant::now();
        let left_ms = || {
            let passed_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            limit_ms.map(|limit_ms| limit_ms.saturating_sub(passed_ms))
        };
        while bar.is_seen() && left_ms() != Some(0) {
            let JobsAnswer::Job { job } = self.ask(&show)? else {
                break;
            };
            if job.ended_ms.is_some() {
                bar.clear();
                break;
            }
            bar.show(&job_bar(&job));
            std::thread::sleep(LOOK);
        }
        let left_ms = left_ms();
        let limit = left_ms.map(|left_ms| Duration::from_millis(left_ms).saturating_add(PATIENCE));
        let answer = self.ask_for(&wait(name, left_ms), limit)?;
        let is_done = matches!(&answer, JobsAnswer::Job { job } if job.state == "done" && job.status.as_deref() != Some("error"));
        self.shown_as(answer, is_done)
    }

    /// Prints an answer; the exit code shows success or failure.
    pub(super) fn shown_as(&self, answer: JobsAnswer, is_well: bool) -> Outcome {
        let mut outcome = self.shown(answer)?;
        if !is_well {
            outcome.code = EXIT_SOFTWARE;
        }
        Ok(outcome)
    }

    pub(super) fn shown(&self, answer: JobsAnswer) -> Outcome {
        if self.json {
            let text = serde_json::to_string(&answer).unwrap_or_default();
            return Ok(CommandOutcome::success(format!("{text}\n")));
        }
        Ok(CommandOutcome::success(match answer {
            JobsAnswer::Pushed { jobs } => {
                let line = |job: &Pushed| match job.existed {
                    true => format!("{} (was there already)\n", job.id),
                    false => format!("{}\n", job.id),
                };
                jobs.iter().map(line).collect()
            }
            JobsAnswer::Job { job } => details(&job),
            JobsAnswer::Jobs { jobs } => jobs_table(&jobs),
            JobsAnswer::Counts { counts } => table(
                &Vec::from_iter(counts),
                &[
                    ("STATE", |(state, _)| state.clone()),
                    ("JOBS", |(_, count)| count.to_string()),
                ],
            ),
            JobsAnswer::Changed { count, ending, held } => {
                let mut text = format!("{count} changed");
                if ending > 0 {
                    let _ = write!(text, ", {ending} under way are being ended");
                }
                if let Some(HeldKeys { jobs, job, holder }) = held {
                    let _ = write!(
                        text,
                        "; {jobs} left out: job {holder} has the key of job {job} and has not ended"
                    );
                }
                text + "\n"
            }
            JobsAnswer::Sequence { sequence } => sequences_table(&[*sequence]),
            JobsAnswer::Sequences { sequences } => sequences_table(&sequences),
            JobsAnswer::Queues { queues } => queues_table(&queues),
            JobsAnswer::Schedules { schedules } => schedules_table(&schedules),
            JobsAnswer::Stats(stats) => {
                let mut text = format!("forkyard-jobs {}, pid {}\n", stats.version, stats.pid);
                if !stats.store_up {
                    let why = stats.store_error.as_deref().unwrap_or("it can't be used");
                    let _ = writeln!(text, "no job starts: {why}");
                }
                for queue in &stats.queues {
                    let starts: u64 = queue.ended.values().sum();
                    let mean = |histogram: &forkyard_protocol::jobs::Histogram| {
                        histogram.sum_ms.checked_div(histogram.count()).unwrap_or(0)
                    };
                    let _ = writeln!(
                        text,
                        "{}: {starts} starts ended; a job waited {} ms and took {} ms in the mean",
                        queue.name,
                        mean(&queue.wait),
                        mean(&queue.run)
                    );
                    for (outcome, count) in &queue.ended {
                        let _ = writeln!(text, "  {outcome}: {count}");
                    }
                }
                text
            }
            JobsAnswer::Kinds { kinds } => kinds_table(&kinds),
            JobsAnswer::Connections { connections } => connections_table(&connections),
            JobsAnswer::Done {} => "done\n".to_owned(),
            JobsAnswer::Error { message, .. } => return Err(failure(&message)),
        }))
    }
}

pub(super) fn millis(text: &Option<String>) -> Outcome<Option<u64>> {
    match text {
        Some(text) => match duration(text) {
            Some(time) => Ok(Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))),
            None => Err(failure(format!("{text} is no time; write 30s, 5m, 2h or 1d"))),
        },
        None => Ok(None),
    }
}

/// Returns a unique job reference.
pub(super) fn own_ref() -> Outcome<String> {
    let mut bytes = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| failure(format!("/dev/urandom: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(super) fn new_job(push: Push) -> Outcome<NewJob> {
    let payload = match push.payload.as_deref() {
        Some("-") => {
            let mut text = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut text);
            read.map_err(|error| failure(format!("standard input: {error}")))?;
            text
        }
        Some(text) => text.as_bytes().to_vec(),
        None => Vec::new(),
    };
    let encoded = match payload.is_empty() {
        true => Some((payload, None)),
        false => encoded(payload, push.content_type.as_deref()),
    };
    let Some((payload, payload_base64)) = encoded else {
        let message = "the payload is no JSON; quote a text, or say --content-type text/plain";
        return Err(failure(message));
    };
    let now_ms = now_ms();
    Ok(NewJob {
        queue: push.queue,
        kind: push.kind,
        payload,
        payload_base64,
        content_type: push.content_type,
        tenant: push.tenant,
        priority: push.priority,
        in_ms: millis(&push.delay)?,
        expires_ms: millis(&push.expires_in)?.map(|time| now_ms.saturating_add_unsigned(time)),
        key: push.key,
        reference: push.reference,
        serial: push.serial,
        steps: push.steps,
        attempts: push.attempts,
        timeout_ms: millis(&push.timeout)?,
        ..NewJob::default()
    })
}

/// A job's `payload` or `payload_base64`: JSON goes as it is, and other bytes in base64. `None`: it should be JSON.
pub(super) fn encoded(bytes: Vec<u8>, content_type: Option<&str>) -> Option<(Vec<u8>, Option<String>)> {
    match content_type.is_none_or(|kind| kind.contains("json")) {
        true => serde_json::from_slice::<IgnoredAny>(&bytes)
            .ok()
            .map(|_| (bytes, None)),
        false => Some((Vec::new(), Some(BASE64_STANDARD.encode(&bytes)))),
    }
}
