//! Sends requests to the job process and prints the answers.

use super::conversation::PATIENCE;
use super::display::{
    Bar, age, aligned, connections_table, details, job_bar, kinds_table, queues_table, sequences_table, took,
};
use super::{Conversation, EXIT_UNKNOWN, LOOK, List, Push, failed, said, wait};
use crate::cli::EXIT_SOFTWARE;
use crate::cli::control::CommandOutcome;
use crate::config::duration;
use crate::jobs::{HeldKeys, JobName, JobsAnswer, JobsRequest, ListRequest, NewJob, PushRequest};
use crate::sys::clock;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

impl Conversation {
    /// Prints jobs, and the command for the next page.
    pub(super) fn list(&mut self, list: &List, json: bool) -> Result<CommandOutcome, CommandOutcome> {
        let now_ms = i64::try_from(clock::epoch_micros() / 1_000).unwrap_or(i64::MAX);
        let ago = |time: &Option<String>| -> Result<Option<i64>, CommandOutcome> {
            Ok(millis(time)?.map(|time_ms| now_ms.saturating_sub_unsigned(time_ms)))
        };
        let answer = self.ask(&JobsRequest::List(ListRequest {
            since_ms: ago(&list.since)?,
            until_ms: ago(&list.until)?,
            ..list.request()
        }))?;
        let last = match &answer {
            JobsAnswer::Jobs { jobs } if jobs.len() >= list.limit as usize => jobs.last().map(|job| job.id),
            _ => None,
        };
        let mut outcome = self.shown(answer, json)?;
        if let Some(id) = last.filter(|_| !json) {
            outcome.errors = format!("forkyard: there may be more: --before {id}\n");
        }
        Ok(outcome)
    }

    pub(super) fn push(&mut self, push: &Push, json: bool) -> Result<CommandOutcome, CommandOutcome> {
        let mut job = new_job(push)?;
        let reference = match job.reference.take() {
            Some(reference) => reference,
            None => own_ref()?,
        };
        job.reference = Some(reference.clone());
        let limit = match millis(&push.push_timeout)? {
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
            JobsAnswer::Pushed { jobs } if push.wait => match jobs.first() {
                Some(pushed) => {
                    let name = JobName {
                        id: Some(pushed.id),
                        ..JobName::default()
                    };
                    self.wait(&name, None, json)
                }
                None => self.shown(answer, json),
            },
            JobsAnswer::Error {
                message,
                is_unknown: true,
                ..
            } => Err(failed(EXIT_UNKNOWN, &format!("{message}: --ref {reference}"))),
            _ => self.shown(answer, json),
        }
    }

    /// Waits until a job ends, with a progress bar in a terminal.
    pub(super) fn wait(
        &mut self,
        name: &JobName,
        limit_ms: Option<u64>,
        json: bool,
    ) -> Result<CommandOutcome, CommandOutcome> {
        let show = JobsRequest::Show(name.clone());
        let bar = Bar::new(json);
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
        self.shown_as(answer, is_done, json)
    }

    /// Prints an answer; the exit code shows success or failure.
    pub(super) fn shown_as(
        &self,
        answer: JobsAnswer,
        is_well: bool,
        json: bool,
    ) -> Result<CommandOutcome, CommandOutcome> {
        let mut outcome = self.shown(answer, json)?;
        if !is_well {
            outcome.code = EXIT_SOFTWARE;
        }
        Ok(outcome)
    }

    pub(super) fn shown(&self, answer: JobsAnswer, json: bool) -> Result<CommandOutcome, CommandOutcome> {
        if json {
            let text = serde_json::to_string(&answer).unwrap_or_default();
            return Ok(said(format!("{text}\n")));
        }
        let now_ms = i64::try_from(clock::epoch_micros() / 1_000).unwrap_or(i64::MAX);
        Ok(said(match answer {
            JobsAnswer::Pushed { jobs } => (jobs.iter())
                .map(|job| {
                    format!(
                        "{}{}\n",
                        job.id,
                        if job.existed { " (was there already)" } else { "" }
                    )
                })
                .collect(),
            JobsAnswer::Job { job } => details(&job),
            JobsAnswer::Jobs { jobs } => {
                let mut rows = vec![
                    [
                        "ID", "QUEUE", "KIND", "KEY", "TENANT", "STATE", "STARTS", "AGE", "TOOK", "LAST",
                    ]
                    .map(str::to_owned),
                ];
                rows.extend(jobs.iter().map(|job| {
                    let last = job
                        .error
                        .as_deref()
                        .or(job.status.as_deref())
                        .or(job.outcome.as_deref());
                    [
                        job.id.to_string(),
                        job.queue.clone(),
                        job.kind.clone(),
                        job.key.clone().unwrap_or_default(),
                        job.tenant.clone(),
                        job.state.clone(),
                        job.attempt.to_string(),
                        age(now_ms - job.pushed_ms),
                        job.duration_ms.map(took).unwrap_or_default(),
                        last.unwrap_or_default().to_owned(),
                    ]
                }));
                aligned(&rows)
            }
            JobsAnswer::Counts { counts } => {
                let mut rows = vec![["STATE", "JOBS"].map(str::to_owned)];
                rows.extend(
                    counts
                        .into_iter()
                        .map(|(state, count)| [state, count.to_string()]),
                );
                aligned(&rows)
            }
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
            JobsAnswer::Schedules { schedules } => {
                let mut rows =
                    vec![["SCHEDULE", "QUEUE", "KIND", "CRON", "ZONE", "NEXT IN"].map(str::to_owned)];
                rows.extend(schedules.iter().map(|schedule| {
                    [
                        schedule.name.clone(),
                        schedule.queue.clone(),
                        schedule.kind.clone(),
                        schedule.cron.clone(),
                        schedule.timezone.clone(),
                        schedule
                            .next_ms
                            .map_or_else(|| "never".to_owned(), |next| age(next - now_ms)),
                    ]
                }));
                aligned(&rows)
            }
            JobsAnswer::Stats(stats) => {
                let mut text = format!("forkyard-jobs {}, pid {}\n", stats.version, stats.pid);
                if !stats.store_up {
                    let why = stats.store_error.as_deref().unwrap_or("it can't be used");
                    let _ = writeln!(text, "no job starts: {why}");
                }
                for queue in &stats.queues {
                    let starts: u64 = queue.ended.values().sum();
                    let mean = |histogram: &crate::jobs::Histogram| {
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
            JobsAnswer::Error { message, .. } => return Err(failed(EXIT_SOFTWARE, &message)),
        }))
    }
}

pub(super) fn millis(text: &Option<String>) -> Result<Option<u64>, CommandOutcome> {
    match text {
        Some(text) => match duration(text) {
            Some(time) => Ok(Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))),
            None => Err(failed(
                EXIT_SOFTWARE,
                &format!("{text} is no time; write 30s, 5m, 2h or 1d"),
            )),
        },
        None => Ok(None),
    }
}

/// Returns a unique job reference.
pub(super) fn own_ref() -> Result<String, CommandOutcome> {
    let mut bytes = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| failed(EXIT_SOFTWARE, &format!("/dev/urandom: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(super) fn new_job(push: &Push) -> Result<NewJob, CommandOutcome> {
    let payload = match push.payload.as_deref() {
        Some("-") => {
            let mut text = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut text);
            read.map_err(|error| failed(EXIT_SOFTWARE, &format!("standard input: {error}")))?;
            text
        }
        Some(text) => text.as_bytes().to_vec(),
        None => Vec::new(),
    };
    let is_json = push
        .content_type
        .as_deref()
        .is_none_or(|kind| kind.contains("json"));
    if is_json && !payload.is_empty() && serde_json::from_slice::<serde::de::IgnoredAny>(&payload).is_err() {
        let message = "the payload is no JSON; quote a text, or say --content-type text/plain";
        return Err(failed(EXIT_SOFTWARE, message));
    }
    let now_ms = i64::try_from(clock::epoch_micros() / 1_000).unwrap_or(i64::MAX);
    // A payload that is not JSON is sent as bytes.
    let (payload, payload_base64) = match is_json || payload.is_empty() {
        true => (payload, None),
        false => (Vec::new(), Some(BASE64_STANDARD.encode(&payload))),
    };
    Ok(NewJob {
        queue: push.queue.clone(),
        kind: push.kind.clone(),
        payload,
        payload_base64,
        content_type: push.content_type.clone(),
        tenant: push.tenant.clone(),
        priority: push.priority,
        at_ms: None,
        in_ms: millis(&push.delay)?,
        expires_ms: millis(&push.expires_in)?.map(|time| now_ms.saturating_add_unsigned(time)),
        key: push.key.clone(),
        reference: push.reference.clone(),
        serial: push.serial.clone(),
        steps: push.steps.clone(),
        attempts: push.attempts,
        timeout_ms: millis(&push.timeout)?,
        traceparent: None,
    })
}
