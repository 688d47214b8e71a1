//! Formats jobs, queues and times as text.

use crate::output;
use crate::table::{local, table};
use forkyard_protocol::jobs::{ConnectionView, JobView, KindView, QueueView, ScheduleView, SequenceView};
use forkyard_sys::{accounts, clock, terminal};
use std::fmt::Write as _;

const BAR: usize = 30;
const NOT_CONFIGURED: &str = "(not configured)";

/// A progress line on standard error. It is hidden without a terminal and with JSON output.
pub(super) struct Bar {
    columns: Option<usize>,
}

impl Bar {
    pub(super) fn new(json: bool) -> Bar {
        Bar {
            columns: terminal::columns(&std::io::stderr()).filter(|_| !json),
        }
    }

    pub(super) fn is_seen(&self) -> bool {
        self.columns.is_some()
    }

    pub(super) fn show(&self, line: &str) {
        if let Some(columns) = self.columns {
            let line: String = line.chars().take(columns.saturating_sub(1)).collect();
            output::draw(&line);
        }
    }

    pub(super) fn clear(&self) {
        self.show("");
    }
}

fn gauge(percent: usize) -> String {
    let full = percent.min(100) * BAR / 100;
    format!("[{}{}] {percent}%", "#".repeat(full), "-".repeat(BAR - full))
}

pub(super) fn queues_table(queues: &[QueueView]) -> String {
    table(
        queues,
        &[
            ("QUEUE", |queue| queue.name.clone()),
            ("POOL", |queue| or_else(&queue.pool, NOT_CONFIGURED)),
            ("WAITING", |queue| queue.waiting.to_string()),
            ("OLDEST", |queue| {
                or_else(&queue.oldest_waiting_ms.map(|oldest| age(oldest as i64)), "-")
            }),
            ("RUNNING", |queue| match queue.limit {
                Some(limit) => format!("{}/{limit}", queue.running),
                None => queue.running.to_string(),
            }),
            ("SCHEDULED", |queue| queue.scheduled.to_string()),
            ("BLOCKED", |queue| queue.blocked.to_string()),
            ("FAILED", |queue| queue.failed.to_string()),
            ("QUARANTINED", |queue| queue.quarantined.to_string()),
            ("", |queue| if queue.paused { "paused" } else { "" }.to_owned()),
        ],
    )
}

pub(super) fn kinds_table(kinds: &[KindView]) -> String {
    fn starts(kind: &KindView) -> u64 {
        kind.ended.values().sum()
    }
    fn done(kind: &KindView) -> u64 {
        kind.ended.get("done").copied().unwrap_or(0)
    }
    table(
        kinds,
        &[
            ("QUEUE", |kind| kind.queue.clone()),
            ("KIND", |kind| or_else(&kind.kind, "-")),
            ("POOL", |kind| or_else(&kind.pool, NOT_CONFIGURED)),
            ("SCRIPT", |kind| {
                or_else(&kind.script.as_ref().map(|script| script.display()), "-")
            }),
            ("DONE", |kind| done(kind).to_string()),
            ("OTHERWISE", |kind| (starts(kind) - done(kind)).to_string()),
            ("MEAN", |kind| {
                let mean = kind.took_ms.checked_div(starts(kind));
                or_else(&mean.map(|mean| format!("{mean}ms")), "-")
            }),
            ("SCHEDULES", |kind| kind.schedules.join(", ")),
            ("WHAT IT IS", |kind| or_else(&kind.description, "")),
        ],
    )
}

pub(super) fn connections_table(connections: &[ConnectionView]) -> String {
    table(
        connections,
        &[
            ("ID", |connection| connection.id.to_string()),
            ("WHO", who),
            ("MAY", |connection| connection.rights.clone()),
            ("AGE", |connection| long_age(connection.age_ms)),
            ("IDLE", |connection| long_age(connection.idle_ms)),
            ("REQUESTS", |connection| connection.requests.to_string()),
            ("LAST", |connection| connection.last.clone()),
            ("", |connection| {
                if connection.waits { "waits" } else { "" }.to_owned()
            }),
        ],
    )
}

fn who(connection: &ConnectionView) -> String {
    let user = connection.uid.map(|uid| match accounts::numbered(uid) {
        Ok(Some(account)) => account.name,
        _ => uid.to_string(),
    });
    match (user, connection.pid, &connection.address) {
        (Some(user), Some(pid), _) => format!("{user}, pid {pid}"),
        (_, _, Some(address)) => address.clone(),
        (user, ..) => user.unwrap_or_default(),
    }
}

pub(super) fn jobs_table(jobs: &[JobView]) -> String {
    table(
        jobs,
        &[
            ("ID", |job| job.id.to_string()),
            ("QUEUE", |job| job.queue.clone()),
            ("KIND", |job| job.kind.clone()),
            ("KEY", |job| or_else(&job.key, "")),
            ("TENANT", |job| job.tenant.clone()),
            ("STATE", |job| job.state.clone()),
            ("STARTS", |job| job.attempt.to_string()),
            ("AGE", |job| age(now_ms() - job.pushed_ms)),
            ("TOOK", |job| job.duration_ms.map(took).unwrap_or_default()),
            ("LAST", |job| {
                let last = job.error.as_ref().or(job.status.as_ref());
                or_else(&last.or(job.outcome.as_ref()), "")
            }),
        ],
    )
}

pub(super) fn schedules_table(schedules: &[ScheduleView]) -> String {
    table(
        schedules,
        &[
            ("SCHEDULE", |schedule| schedule.name.clone()),
            ("QUEUE", |schedule| schedule.queue.clone()),
            ("KIND", |schedule| schedule.kind.clone()),
            ("CRON", |schedule| schedule.cron.clone()),
            ("ZONE", |schedule| schedule.timezone.clone()),
            ("NEXT IN", |schedule| {
                or_else(&schedule.next_ms.map(|next_ms| age(next_ms - now_ms())), "never")
            }),
        ],
    )
}

pub(super) fn job_bar(job: &JobView) -> String {
    let done = job.steps.iter().filter(|step| step.status.is_some()).count();
    let percent = match (job.progress, job.steps.len()) {
        (Some(percent), 0) => percent as usize,
        (_, 0) => 0,
        (own, steps) => (done * 100 + own.unwrap_or(0) as usize) / steps,
    };
    let text = job.progress_text.as_deref().unwrap_or_default();
    format!("job {} {} {} {text}", job.id, job.state, gauge(percent))
}

pub(super) fn sequences_table(sequences: &[SequenceView]) -> String {
    table(
        sequences,
        &[
            ("ID", |sequence| sequence.id.to_string()),
            ("QUEUE", |sequence| sequence.queue.clone()),
            ("NAME", |sequence| or_else(&sequence.name, "")),
            ("STATE", |sequence| sequence.state.clone()),
            ("GIVEN", |sequence| sequence.given.to_string()),
            ("TOTAL", |sequence| or_else(&sequence.total, "-")),
            ("EXISTED", |sequence| sequence.existed.to_string()),
            ("WAITING", |sequence| sequence.waiting.to_string()),
            ("RUNNING", |sequence| sequence.running.to_string()),
            ("DONE", |sequence| sequence.done.to_string()),
            ("FAILED", |sequence| sequence.failed.to_string()),
            ("CANCELLED", |sequence| sequence.cancelled.to_string()),
        ],
    )
}

/// Returns a sequence's progress. If the total is unknown, it counts only the jobs added so far.
pub(super) fn sequence_bar(sequence: &SequenceView) -> String {
    let ended = sequence.given.saturating_sub(sequence.waiting + sequence.running);
    let total = match sequence.state.as_str() {
        "open" => sequence.total,
        _ => Some(sequence.given),
    };
    let mut text = format!("sequence {} {} ", sequence.id, sequence.state);
    if let Some(total) = total {
        let percent = ended
            .saturating_mul(100)
            .checked_div(total)
            .unwrap_or(100)
            .min(100);
        let _ = write!(text, "{} ", gauge(usize::try_from(percent).unwrap_or(100)));
    }
    let _ = write!(text, "{ended} of {}", or_else(&total, "?"));
    for (count, word) in [
        (sequence.running, "running"),
        (sequence.waiting, "waiting"),
        (sequence.failed, "failed"),
        (sequence.cancelled, "cancelled"),
        (sequence.existed, "existed already"),
    ] {
        if count > 0 {
            let _ = write!(text, ", {count} {word}");
        }
    }
    text
}

pub(super) fn details(job: &JobView) -> String {
    let mut text = format!("job {} {}/{}: {}\n", job.id, job.queue, job.kind, job.state);
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(text, "  {name}: {value}");
        }
    };
    let filled = |value: &str| (!value.is_empty()).then(|| value.to_owned());
    line("tenant", filled(&job.tenant));
    line("key", job.key.clone());
    line("ref", job.reference.clone());
    line("starts", Some(job.attempt.to_string()));
    line("failures", (job.failures > 0).then(|| job.failures.to_string()));
    line(
        "crashes in a row",
        (job.crashes > 0).then(|| job.crashes.to_string()),
    );
    line("pushed", Some(moment(job.pushed_ms)));
    line("due", job.run_at_ms.map(moment));
    line("started", job.started_ms.map(moment));
    line("ended", job.ended_ms.map(moment));
    line("took", job.duration_ms.map(took));
    line("status", job.status.clone());
    line("sequence", job.sequence.map(|id| id.to_string()));
    line("last start", job.outcome.clone());
    line("error", job.error.clone());
    line("progress", job.progress.map(|percent| format!("{percent} %")));
    line("payload", job.payload.clone());
    line("payload in base64", job.payload_base64.clone());
    line(
        "result",
        job.result.as_ref().map(|result| cut(result, job.result_cut)),
    );
    line("error stream", job.log.clone());
    for end in &job.ends {
        let error = end.error.as_deref().unwrap_or_default();
        let at = moment(end.ended_ms);
        let _ = writeln!(text, "  start {}: {} at {at} {error}", end.attempt, end.outcome);
    }
    for step in &job.steps {
        let status = step.status.as_deref().unwrap_or("to come");
        let output = cut(step.output.as_deref().unwrap_or_default(), step.output_cut);
        let _ = writeln!(text, "  step {}: {status} {output}", step.name);
    }
    text
}

/// Marks a text that lacks `left_out` bytes.
fn cut(text: &str, left_out: Option<u64>) -> String {
    match left_out {
        Some(bytes) => format!("{text} [{bytes} bytes left out]"),
        None => text.to_owned(),
    }
}

/// Formats a wall-clock time.
fn moment(millis: i64) -> String {
    local(u64::try_from(millis / 1_000).unwrap_or(0))
}

pub(super) fn took(millis: u64) -> String {
    match millis {
        0..10_000 => format!("{millis}ms"),
        _ => long_age(millis),
    }
}

/// Formats a duration in its largest unit.
pub(crate) fn age(millis: i64) -> String {
    let seconds = millis.max(0) / 1_000;
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7_199 => format!("{}m", seconds / 60),
        7_200..=172_799 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A value, or a word in its place.
fn or_else(value: &Option<impl ToString>, otherwise: &str) -> String {
    value
        .as_ref()
        .map_or_else(|| otherwise.to_owned(), ToString::to_string)
}

fn long_age(millis: u64) -> String {
    age(i64::try_from(millis).unwrap_or(i64::MAX))
}

pub(super) fn now_ms() -> i64 {
    i64::try_from(clock::epoch_micros() / 1_000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_how_far_a_job_is() {
        let job = JobView {
            id: 7,
            state: "running".into(),
            progress: Some(50),
            progress_text: Some("sending".into()),
            ..JobView::default()
        };
        assert_eq!(
            job_bar(&job),
            "job 7 running [###############---------------] 50% sending"
        );
    }

    #[test]
    fn a_bar_shows_how_far_a_sequence_is() {
        let mut sequence = SequenceView {
            id: 3,
            state: "open".into(),
            given: 6,
            waiting: 2,
            running: 1,
            done: 2,
            failed: 1,
            ..SequenceView::default()
        };
        assert_eq!(
            sequence_bar(&sequence),
            "sequence 3 open 3 of ?, 1 running, 2 waiting, 1 failed"
        );
        sequence.total = Some(10);
        assert_eq!(
            sequence_bar(&sequence),
            "sequence 3 open [#########---------------------] 30% 3 of 10, 1 running, 2 waiting, 1 failed"
        );
        // A complete source determines the total.
        sequence.state = "complete".into();
        assert!(sequence_bar(&sequence).contains("50% 3 of 6"));
        let none = SequenceView {
            state: "complete".into(),
            ..SequenceView::default()
        };
        assert!(sequence_bar(&none).contains("100% 0 of 0"));
    }
}
