//! `forkyard jobs`: pushes background jobs, and looks after them.

mod backup;
mod conversation;
mod feed;
mod shown;

use super::control::CommandOutcome;
use super::{CONFIG, EXIT_SOFTWARE};
use crate::base64;
use crate::config::duration;
use crate::control::protocol::Status;
use crate::jobs::{
    CountRequest, JobName, JobsAnswer, JobsRequest, ListRequest, NewJob, Nothing, PauseRequest, PushRequest,
    QueueName, RunNow, Selected, SequenceList, SequenceName, Stats, WaitRequest,
};
use crate::sys::clock;
use clap::{Args, Subcommand};
use conversation::Conversation;
use feed::Source;
pub(super) use shown::age;
use shown::{
    Bar, aligned, connections_table, details, job_bar, kinds_table, queues_table, sequences_table, took,
};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// sysexits.h, EX_TEMPFAIL: whether a job is stored is not known; the same command may be given again.
const EXIT_UNKNOWN: u8 = 75;
/// How often a progress bar is drawn.
const LOOK: Duration = Duration::from_millis(300);
/// How long the status waits for the figures of jobs.
const PATIENCE: Duration = Duration::from_secs(2);

/// Push background jobs, and look after them
#[derive(Debug, Args)]
pub(super) struct JobsArguments {
    /// The daemon's configuration file, which names the jobs' socket
    #[arg(short, long, value_name = "FILE", default_value = CONFIG, global = true)]
    config: PathBuf,
    /// The jobs' socket
    #[arg(long, value_name = "PATH", global = true, conflicts_with = "connect")]
    socket: Option<PathBuf>,
    /// The jobs' TCP socket, such as 127.0.0.1:4422
    #[arg(long, value_name = "ADDRESS", global = true)]
    connect: Option<SocketAddr>,
    /// The file with what has to be known there; the configuration's if it is not said
    #[arg(long, value_name = "FILE", global = true)]
    secret_file: Option<PathBuf>,
    /// Answer as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Add a job to a queue
    Push(Box<Push>),
    /// List jobs, the newest first
    List(List),
    /// Count jobs by their states
    Count {
        #[arg(long)]
        queue: Option<String>,
        #[arg(long)]
        tenant: Option<String>,
        #[arg(long)]
        kind: Option<String>,
    },
    /// Show everything of a job
    Show(Which),
    /// Wait until a job has ended, and show it
    Wait {
        #[command(flatten)]
        which: Which,
        /// At most so long; then it is shown as it is
        #[arg(long, value_name = "TIME")]
        timeout: Option<String>,
    },
    /// Let jobs wait again that have ended, however they did, or are scheduled
    Retry(Many),
    /// Take jobs out of their queues, and end those that run
    Cancel(Many),
    /// Give up jobs that failed or are quarantined
    Discard(Many),
    /// Forget jobs that have ended, with their results
    Purge(Many),
    /// Let no further job of a queue start
    Pause {
        queue: String,
        /// Why, for others
        #[arg(long)]
        reason: Option<String>,
    },
    /// Let jobs of a queue start again
    Resume { queue: String },
    /// Show the queues
    Queues,
    /// Show the schedules
    Schedules,
    /// Push the job of a schedule now
    RunNow { schedule: String },
    /// Show figures of all queues
    Stats,
    /// Show which kinds of jobs there are, what runs them, and how they did
    Kinds,
    /// Show who is connected
    Connections,
    /// Copy all jobs to a file, while they are worked on or the daemon does not run
    Backup {
        /// Where the copy is made; there is no such file yet
        file: PathBuf,
    },
    /// Show the sequences, the newest first
    Sequences,
    /// Show how far a sequence is
    Sequence {
        /// Its number
        id: i64,
        /// Wait until its last job has ended
        #[arg(long)]
        wait: bool,
    },
    /// Take no more of a sequence, its jobs out of their queue, and end those that run
    CancelSequence {
        /// Its number
        id: i64,
    },
}

/// A job.
#[derive(Debug, Args)]
struct Which {
    /// Its number
    #[arg(required_unless_present = "reference")]
    id: Option<i64>,
    /// What it was called by who pushed it
    #[arg(long = "ref", value_name = "REF", conflicts_with = "id", requires = "queue")]
    reference: Option<String>,
    /// Its queue
    #[arg(long, requires = "reference")]
    queue: Option<String>,
}

#[derive(Debug, Args)]
struct Push {
    queue: String,
    kind: String,
    /// What the job is given, as JSON; `-`: what is read from standard input
    #[arg(long)]
    payload: Option<String>,
    /// The payload is this kind of text and no JSON
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Not before this time has passed, such as 5m
    #[arg(long = "in", value_name = "TIME")]
    delay: Option<String>,
    /// Not started any more after this time
    #[arg(long, value_name = "TIME")]
    expires_in: Option<String>,
    /// While a job with this key has not ended, no other is added
    #[arg(long)]
    key: Option<String>,
    /// A name of its own: while the queue keeps a job of that name, this is that one
    #[arg(long = "ref", value_name = "REF")]
    reference: Option<String>,
    /// How long the push may take
    #[arg(long, value_name = "TIME")]
    push_timeout: Option<String>,
    /// Jobs with equal values run one after the other
    #[arg(long)]
    serial: Option<String>,
    /// For whom
    #[arg(long, default_value = "")]
    tenant: String,
    /// Smaller numbers come first; 100 if it is not said
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i64>,
    /// A task of the job; may be said several times
    #[arg(long = "step", value_name = "NAME")]
    steps: Vec<String>,
    /// Failures until the job has failed
    #[arg(long)]
    attempts: Option<u32>,
    /// How long it may take
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// Wait until it has ended, and show it
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    source: Source,
}

#[derive(Debug, Args)]
struct List {
    #[arg(long)]
    queue: Option<String>,
    /// waiting, scheduled, running, done, failed, quarantined, cancelled, blocked or discarded
    #[arg(long)]
    state: Option<String>,
    #[arg(long)]
    tenant: Option<String>,
    #[arg(long)]
    kind: Option<String>,
    #[arg(long)]
    key: Option<String>,
    /// ok, warning, error or not_applicable: the result of its task
    #[arg(long)]
    status: Option<String>,
    /// Jobs that have done this step
    #[arg(long, value_name = "NAME")]
    step: Option<String>,
    /// Jobs that were pushed no longer ago than this, such as 2h
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Jobs that were pushed longer ago than this
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Jobs with smaller numbers: what follows the last of a list
    #[arg(long, value_name = "ID")]
    before: Option<i64>,
    /// At most so many
    #[arg(long, default_value_t = 100)]
    limit: u32,
}

#[derive(Debug, Args)]
struct Many {
    /// A job's number
    #[arg(required_unless_present_any = ["state", "reference"])]
    id: Option<i64>,
    /// What a job of --queue was called by who pushed it
    #[arg(long = "ref", value_name = "REF", conflicts_with_all = ["id", "state"], requires = "queue")]
    reference: Option<String>,
    /// All jobs in this state
    #[arg(long, conflicts_with = "id")]
    state: Option<String>,
    /// Of these, those of one queue
    #[arg(long, conflicts_with = "id")]
    queue: Option<String>,
    /// Those of one tenant
    #[arg(long, requires = "state")]
    tenant: Option<String>,
    /// Those of one kind
    #[arg(long, requires = "state")]
    kind: Option<String>,
}

/// Carries out a command.
pub(super) fn run(arguments: &JobsArguments) -> ExitCode {
    if let What::Backup { file } = &arguments.what {
        return backup::run(&arguments.config, file);
    }
    let outcome = Conversation::begin(arguments).and_then(|mut conversation| match &arguments.what {
        What::Push(push) if push.source.is_named() => feed::feed(&mut conversation, push, arguments.json),
        What::Push(push) => conversation.push(push, arguments.json),
        What::List(list) => conversation.list(list, arguments.json),
        What::Sequence { id, wait: true } => feed::wait(&mut conversation, *id, arguments.json),
        What::Wait { which, timeout } => {
            let limit_ms = millis(timeout)?;
            conversation.wait(&which.name(), limit_ms, arguments.json)
        }
        what => {
            let answer = conversation.ask(&request(what))?;
            conversation.shown(answer, arguments.json)
        }
    });
    super::control::tell(outcome.unwrap_or_else(|failed| failed))
}

fn failed(code: u8, message: &str) -> CommandOutcome {
    CommandOutcome {
        output: String::new(),
        errors: format!("forkyard: {message}\n"),
        code,
    }
}

fn said(output: String) -> CommandOutcome {
    CommandOutcome {
        output,
        errors: String::new(),
        code: 0,
    }
}

/// The figures of the process behind a socket, for the status; `None`: it does not answer.
pub(super) fn stats(socket: &Path) -> Option<Stats> {
    let mut conversation = Conversation::begin_within(socket, PATIENCE)?;
    match conversation.ask(&request(&What::Stats)).ok()? {
        JobsAnswer::Stats(stats) => Some(*stats),
        _ => None,
    }
}

/// The queues at a glance, below the pools.
pub(super) fn overview(status: &Status) -> String {
    let Some(jobs) = &status.jobs else {
        return String::new();
    };
    match &jobs.stats {
        Some(stats) => {
            let why = stats.store_error.as_ref().map(|why| format!(": {why}"));
            let store = match stats.store_up {
                true => String::new(),
                false => format!("the store of jobs can't be used{}\n", why.unwrap_or_default()),
            };
            format!("\n{store}{}", queues_table(&stats.queues))
        }
        None => format!("\njobs: no answer at {}\n", jobs.socket.display()),
    }
}

/// What is asked for, but for a push.
fn request(what: &What) -> JobsRequest {
    match what {
        What::Push(_) | What::Backup { .. } => JobsRequest::Push(PushRequest::default()),
        What::List(list) => JobsRequest::List(list.request()),
        What::Count { queue, tenant, kind } => JobsRequest::Count(CountRequest {
            queue: queue.clone(),
            tenant: tenant.clone(),
            kind: kind.clone(),
        }),
        What::Show(which) => JobsRequest::Show(which.name()),
        What::Wait { which, .. } => wait(&which.name(), None),
        What::Retry(many) => JobsRequest::Retry(many.selected()),
        What::Cancel(many) => JobsRequest::Cancel(many.selected()),
        What::Discard(many) => JobsRequest::Discard(many.selected()),
        What::Purge(many) => JobsRequest::Purge(many.selected()),
        What::Pause { queue, reason } => JobsRequest::Pause(PauseRequest {
            queue: queue.clone(),
            reason: reason.clone(),
        }),
        What::Resume { queue } => JobsRequest::Resume(QueueName { queue: queue.clone() }),
        What::Sequences => JobsRequest::SequenceList(SequenceList::default()),
        What::Sequence { id, .. } => JobsRequest::SequenceShow(SequenceName { id: *id }),
        What::CancelSequence { id } => JobsRequest::SequenceCancel(SequenceName { id: *id }),
        What::Queues => JobsRequest::Queues(Nothing {}),
        What::Schedules => JobsRequest::Schedules(Nothing {}),
        What::RunNow { schedule } => JobsRequest::RunNow(RunNow {
            schedule: schedule.clone(),
        }),
        What::Stats => JobsRequest::Stats(Nothing {}),
        What::Kinds => JobsRequest::Kinds(Nothing {}),
        What::Connections => JobsRequest::Connections(Nothing {}),
    }
}

impl List {
    fn request(&self) -> ListRequest {
        ListRequest {
            queue: self.queue.clone(),
            state: self.state.clone(),
            tenant: self.tenant.clone(),
            kind: self.kind.clone(),
            key: self.key.clone(),
            status: self.status.clone(),
            step: self.step.clone(),
            before: self.before,
            limit: Some(self.limit),
            ..ListRequest::default()
        }
    }
}

fn wait(name: &JobName, timeout_ms: Option<u64>) -> JobsRequest {
    let JobName { id, queue, reference } = name.clone();
    JobsRequest::Wait(WaitRequest {
        id,
        queue,
        reference,
        timeout_ms,
    })
}

impl Which {
    fn name(&self) -> JobName {
        JobName {
            id: self.id,
            queue: self.queue.clone(),
            reference: self.reference.clone(),
        }
    }
}

impl Many {
    fn selected(&self) -> Selected {
        Selected {
            id: self.id,
            reference: self.reference.clone(),
            state: self.state.clone(),
            queue: self.queue.clone(),
            tenant: self.tenant.clone(),
            kind: self.kind.clone(),
        }
    }
}

impl Conversation {
    /// Shows jobs, and how to see what follows them.
    fn list(&mut self, list: &List, json: bool) -> Result<CommandOutcome, CommandOutcome> {
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

    fn push(&mut self, push: &Push, json: bool) -> Result<CommandOutcome, CommandOutcome> {
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
            // It says what it knows before the time is over.
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

    /// Waits for a job's end; on a terminal with a bar that shows how far it is.
    fn wait(
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
        let answer = self.ask(&wait(name, left_ms()))?;
        let is_done = matches!(&answer, JobsAnswer::Job { job } if job.state == "done" && job.status.as_deref() != Some("error"));
        self.shown_as(answer, is_done, json)
    }

    /// Shows an answer; the exit code says whether what it is about went well.
    fn shown_as(
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

    fn shown(&self, answer: JobsAnswer, json: bool) -> Result<CommandOutcome, CommandOutcome> {
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
                        "ID", "QUEUE", "KIND", "TENANT", "STATE", "STARTS", "AGE", "TOOK", "LAST",
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
            JobsAnswer::Changed { count, ending } => match ending {
                0 => format!("{count} changed\n"),
                _ => format!("{count} changed, {ending} under way are being ended\n"),
            },
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

fn millis(text: &Option<String>) -> Result<Option<u64>, CommandOutcome> {
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

/// A name that no other job has.
fn own_ref() -> Result<String, CommandOutcome> {
    let mut bytes = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| failed(EXIT_SOFTWARE, &format!("/dev/urandom: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn new_job(push: &Push) -> Result<NewJob, CommandOutcome> {
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
    // What is no JSON comes as it is, whatever its bytes.
    let (payload, payload_base64) = match is_json || payload.is_empty() {
        true => (payload, None),
        false => (Vec::new(), Some(base64::encode(&payload))),
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
