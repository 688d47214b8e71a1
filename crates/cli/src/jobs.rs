//! `forkyard jobs`: pushes background jobs, and looks after them.

mod answers;
mod backup;
mod conversation;
mod display;
mod feed;

use super::control::CommandOutcome;
use super::{CONFIG, EXIT_SOFTWARE};
use answers::{millis, new_job};
use clap::{Args, Subcommand};
use conversation::Conversation;
pub(super) use display::age;
use display::queues_table;
use feed::Source;
use forkyard_protocol::control::Status;
use forkyard_protocol::jobs::{
    CountRequest, JobName, JobsAnswer, JobsRequest, LastRequest, ListRequest, Nothing, PauseRequest,
    PushRequest, QueueName, RunNow, RunRequest, Selected, SequenceList, SequenceName, Stats, WaitRequest,
};
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// sysexits.h, EX_TEMPFAIL: whether a job is stored is not known; the same command may be given again.
const EXIT_UNKNOWN: u8 = 75;
/// How often a progress bar is drawn.
const LOOK: Duration = Duration::from_millis(300);
/// How long the status waits for the figures of jobs.
const STATUS_PATIENCE: Duration = Duration::from_secs(2);

/// Push background jobs, and look after them
#[derive(Debug, Args)]
pub(super) struct JobsArguments {
    /// The daemon's configuration file, which names the jobs' socket
    #[arg(short, long, value_name = "FILE", default_value = CONFIG, global = true)]
    config: PathBuf,
    #[command(flatten)]
    at: Place,
    /// Answer as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Args)]
struct Place {
    /// The jobs' socket
    #[arg(long, value_name = "PATH", global = true, conflicts_with = "connect")]
    socket: Option<PathBuf>,
    /// The jobs' TCP socket, such as 127.0.0.1:4422
    #[arg(long, value_name = "ADDRESS", global = true)]
    connect: Option<SocketAddr>,
    /// The file with the secret for TCP; by default the configuration's
    #[arg(long, value_name = "FILE", global = true)]
    secret_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Add a job to a queue
    Push(Box<Push>),
    /// List jobs, the newest first
    List(List),
    /// Count jobs by their states
    Count(Group),
    /// Show everything of a job
    Show(Which),
    /// Wait until a job has ended, and show it
    Wait {
        #[command(flatten)]
        which: Which,
        /// The longest wait; then the job is shown in its present state
        #[arg(long, value_name = "TIME")]
        timeout: Option<String>,
    },
    /// Show the last job of each key, tenant or kind
    Last(Last),
    /// Push the last job of each key again, as a sequence
    Run(Run),
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
    /// Show the kinds of jobs, their queues and pools, and their results
    Kinds,
    /// Show who is connected
    Connections,
    /// Copy all jobs to a file, while they are worked on or the daemon does not run
    Backup {
        /// The file for the copy; it must not exist
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
    /// The job's ref, given by the client that pushed it
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
    /// The job's payload, as JSON; `-`: read it from standard input
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
    /// A unique name: while the queue keeps a job of this name, no other is added
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
    /// Smaller numbers come first; 100 by default
    #[arg(long, allow_negative_numbers = true)]
    priority: Option<i64>,
    /// A task of the job; may be repeated
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
struct Group {
    #[arg(long)]
    queue: Option<String>,
    #[arg(long)]
    tenant: Option<String>,
    #[arg(long)]
    kind: Option<String>,
}

#[derive(Debug, Args)]
struct Last {
    /// Group by key, tenant or kind
    #[arg(long)]
    by: String,
    /// Only groups that match: `*` is any text, `?` any character
    #[arg(long, value_name = "PATTERN")]
    like: Option<String>,
    #[command(flatten)]
    of: Group,
    /// At most so many
    #[arg(long, default_value_t = 1_000)]
    limit: u32,
}

#[derive(Debug, Args)]
struct Run {
    kind: String,
    /// The keys: `*` is any text, and `?` any character
    #[arg(long, value_name = "PATTERN")]
    key: String,
    #[arg(long)]
    queue: Option<String>,
    #[arg(long)]
    tenant: Option<String>,
    /// Wait until all have ended
    #[arg(long)]
    wait: bool,
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
    /// The ref of a job of --queue
    #[arg(long = "ref", value_name = "REF", conflicts_with_all = ["id", "state"], requires = "queue")]
    reference: Option<String>,
    /// All jobs in this state
    #[arg(long, conflicts_with = "id")]
    state: Option<String>,
    /// Only jobs of this queue
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
pub(super) fn run(arguments: JobsArguments) -> ExitCode {
    let JobsArguments {
        config,
        at,
        json,
        what,
    } = arguments;
    if let What::Backup { file } = &what {
        return backup::run(&config, file);
    }
    let outcome = Conversation::begin(&config, &at, json).and_then(|mut conversation| match what {
        What::Push(push) if push.source.is_named() => feed::feed(&mut conversation, *push),
        What::Push(push) => conversation.push(*push),
        What::List(list) => conversation.list(list),
        What::Sequence { id, wait: true } => feed::wait(&mut conversation, id),
        What::Wait { which, timeout } => {
            let limit_ms = millis(&timeout)?;
            conversation.wait(which.name(), limit_ms)
        }
        what => {
            let waits = matches!(&what, What::Run(run) if run.wait);
            let named = what.named_job();
            let answer = conversation.ask(&request(what))?;
            match (&answer, named) {
                (JobsAnswer::Sequence { sequence }, _) if waits => {
                    return feed::wait(&mut conversation, sequence.id);
                }
                (JobsAnswer::Changed { count: 0, .. }, Some(name)) => {
                    conversation.ask(&JobsRequest::Show(name))?;
                }
                _ => {}
            }
            conversation.shown(answer)
        }
    });
    super::control::tell(outcome)
}

type Outcome<T = CommandOutcome> = Result<T, CommandOutcome>;

fn failure(message: impl Display) -> CommandOutcome {
    failed(EXIT_SOFTWARE, &message.to_string())
}

fn failed(code: u8, message: &str) -> CommandOutcome {
    CommandOutcome::failure(code, format!("forkyard: {message}\n"))
}

/// The figures of the process behind a socket, for the status; `None`: it does not answer.
pub(super) fn stats(socket: &Path) -> Option<Stats> {
    let mut conversation = Conversation::begin_with(socket)?;
    match conversation
        .ask_for(&request(What::Stats), Some(STATUS_PATIENCE))
        .ok()?
    {
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

/// Returns the request of a command. A push is built elsewhere.
fn request(what: What) -> JobsRequest {
    match what {
        What::Push(_) | What::Backup { .. } => JobsRequest::Push(PushRequest::default()),
        What::List(list) => JobsRequest::List(list.request()),
        What::Count(Group { queue, tenant, kind }) => {
            JobsRequest::Count(CountRequest { queue, tenant, kind })
        }
        What::Show(which) => JobsRequest::Show(which.name()),
        What::Wait { which, .. } => wait(which.name(), None),
        What::Last(last) => JobsRequest::Last(LastRequest {
            by: last.by,
            like: last.like,
            queue: last.of.queue,
            tenant: last.of.tenant,
            kind: last.of.kind,
            limit: Some(last.limit),
        }),
        What::Run(run) => JobsRequest::Run(RunRequest {
            kind: run.kind,
            key: run.key,
            queue: run.queue,
            tenant: run.tenant,
        }),
        What::Retry(many) => JobsRequest::Retry(many.selected()),
        What::Cancel(many) => JobsRequest::Cancel(many.selected()),
        What::Discard(many) => JobsRequest::Discard(many.selected()),
        What::Purge(many) => JobsRequest::Purge(many.selected()),
        What::Pause { queue, reason } => JobsRequest::Pause(PauseRequest { queue, reason }),
        What::Resume { queue } => JobsRequest::Resume(QueueName { queue }),
        What::Sequences => JobsRequest::SequenceList(SequenceList::default()),
        What::Sequence { id, .. } => JobsRequest::SequenceShow(SequenceName { id }),
        What::CancelSequence { id } => JobsRequest::SequenceCancel(SequenceName { id }),
        What::Queues => JobsRequest::Queues(Nothing {}),
        What::Schedules => JobsRequest::Schedules(Nothing {}),
        What::RunNow { schedule } => JobsRequest::RunNow(RunNow { schedule }),
        What::Stats => JobsRequest::Stats(Nothing {}),
        What::Kinds => JobsRequest::Kinds(Nothing {}),
        What::Connections => JobsRequest::Connections(Nothing {}),
    }
}

impl List {
    fn request(self) -> ListRequest {
        ListRequest {
            queue: self.queue,
            state: self.state,
            tenant: self.tenant,
            kind: self.kind,
            key: self.key,
            status: self.status,
            step: self.step,
            before: self.before,
            limit: Some(self.limit),
            ..ListRequest::default()
        }
    }
}

fn wait(name: JobName, timeout_ms: Option<u64>) -> JobsRequest {
    let JobName { id, queue, reference } = name;
    JobsRequest::Wait(WaitRequest {
        id,
        queue,
        reference,
        timeout_ms,
    })
}

impl Which {
    fn name(self) -> JobName {
        let Which { id, reference, queue } = self;
        JobName { id, queue, reference }
    }
}

impl What {
    /// Returns the one job that the command changes.
    fn named_job(&self) -> Option<JobName> {
        let (What::Retry(many) | What::Cancel(many) | What::Discard(many) | What::Purge(many)) = self else {
            return None;
        };
        (many.id.is_some() || many.reference.is_some()).then(|| JobName {
            id: many.id,
            reference: many.reference.clone(),
            queue: many.queue.clone(),
        })
    }
}

impl Many {
    fn selected(self) -> Selected {
        Selected {
            id: self.id,
            reference: self.reference,
            state: self.state,
            queue: self.queue,
            tenant: self.tenant,
            kind: self.kind,
        }
    }
}
