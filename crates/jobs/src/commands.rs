//! Parses requests into operations of the store, and turns replies into answers.

use crate::client::Rights;
use crate::store::{By, Change, Filter, Operation, Progress, Reply, Selection, SequenceChange, State};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine as _, alphabet};
use forkyard_config::Jobs;
use forkyard_protocol::jobs::{
    JobName, JobsAnswer, JobsRequest, NewJob, NoRequest, Nothing, PauseRequest, QueueName, RequestLine,
    RunNow, Selected, SequenceAdd, SequenceBegin, SequenceList, SequenceName,
};

const MOST_PUSHED: usize = 10_000;
/// The most steps of a job, and bytes of a name or key.
const MOST_STEPS: usize = 1_000;
const LONGEST_NAME: usize = 255;
const LONGEST_REF: usize = 64;
const LISTED: u32 = 100;

/// Padding may be left out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The default type of a payload of bytes.
const BYTES: &str = "application/octet-stream";

/// The states that can be changed for many jobs.
const RETRIED: [State; 6] = [
    State::Failed,
    State::Quarantined,
    State::Cancelled,
    State::Discarded,
    State::Done,
    State::Scheduled,
];
const CANCELLED: [State; 4] = [State::Waiting, State::Scheduled, State::Blocked, State::Running];
const DISCARDED: [State; 2] = [State::Failed, State::Quarantined];
const PURGED: [State; 5] = [
    State::Done,
    State::Failed,
    State::Quarantined,
    State::Cancelled,
    State::Discarded,
];

/// Why a request is refused, for the client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error(transparent)]
    Unreadable(#[from] NoRequest),
    #[error("only root and the user that keeps the jobs may do this")]
    RootOnly,
    #[error("by is key, tenant or kind, and not \"{0}\"")]
    UnknownBy(String),
    #[error("there is no queue \"{0}\"")]
    UnknownQueue(String),
    #[error("there is no {what} \"{word}\"; there are {known}")]
    Unknown {
        what: &'static str,
        word: String,
        known: String,
    },
    #[error("there is no state \"{0}\" here; there are {1}")]
    UnknownState(String, String),
    #[error("this user may not use queue \"{0}\": push_users of the queue can name it")]
    ForbiddenQueue(String),
    #[error("name a job by id, or by queue and ref, and not by both")]
    UnnamedJob,
    #[error("id names one job: ref, state, queue, tenant and kind are for others")]
    MoreThanId,
    #[error("ref names one job of a queue: give queue, and nothing else")]
    MoreThanRef,
    #[error("name a job by id, or by queue and ref, or all of a state: {0}")]
    NothingSelected(String),
    #[error("job is missing: an object with queue and kind")]
    NoJob,
    #[error("at most {MOST_PUSHED} jobs are pushed at once")]
    TooManyJobs,
    #[error("job {0}: {1}")]
    Job(usize, Box<RequestError>),
    #[error("{name} has 1 to {most} bytes that can be seen")]
    Text { name: &'static str, most: usize },
    #[error("tenant has at most {LONGEST_NAME} bytes that can be seen")]
    Tenant,
    #[error("steps are at most {MOST_STEPS} names of 1 to {LONGEST_NAME} bytes")]
    Steps,
    #[error("attempts and timeout_ms are at least 1")]
    NoAttempts,
    #[error("content_type can't be read")]
    ContentType,
    #[error("payload and payload_base64 are two ways to say the same: give one")]
    TwoPayloads,
    #[error("payload_base64 is no base64")]
    NoBase64,
    #[error("the payload has {bytes} bytes, and max_payload is {most}")]
    TooLong { bytes: usize, most: u64 },
}

impl RequestError {
    fn unknown(what: &'static str, word: &str, known: String) -> RequestError {
        let word = word.to_owned();
        RequestError::Unknown { what, word, known }
    }
}

type Result<T> = std::result::Result<T, RequestError>;

#[derive(Debug)]
pub(crate) enum Plan {
    Store(Operation, For),
    /// Adds jobs, with a time limit in milliseconds.
    Push(Vec<NewJob>, Option<u64>),
    /// Waits for the end of the job that this shows, with a time limit in milliseconds.
    Wait(Operation, Option<u64>),
    Schedules,
    RunNow(String),
    Kinds,
    Connections,
}

impl Plan {
    pub(crate) fn is_of_store(&self) -> bool {
        matches!(
            self,
            Plan::Store(..) | Plan::Push(..) | Plan::Wait(..) | Plan::RunNow(_)
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// The reply is the answer.
    Answer,
    Run,
    Show,
    Wait,
    /// Waits for a job, with a time limit in milliseconds.
    Await(Option<u64>),
    Queues,
    Stats,
}

#[cfg(any(test, fuzzing))]
pub(crate) fn read(line: &[u8], rights: Rights, jobs: &Jobs) -> Result<Plan> {
    plan(read_line(line)?, rights, jobs)
}

pub(crate) fn read_line(line: &[u8]) -> Result<RequestLine<'_>> {
    Ok(RequestLine::read(line)?)
}

pub(crate) fn plan(line: RequestLine<'_>, rights: Rights, jobs: &Jobs) -> Result<Plan> {
    let request = line.request()?;
    Requester { rights, jobs }.plan(request)
}

pub(crate) fn may_use(rights: Rights, jobs: &Jobs, queue: &str) -> bool {
    match rights {
        Rights::All => true,
        Rights::Stranger => false,
        Rights::Own(uid) => jobs.queue(queue).is_some_and(|known| known.users.contains(&uid)),
    }
}

/// A client, and the configuration that limits its requests.
#[derive(Clone, Copy)]
struct Requester<'j> {
    rights: Rights,
    jobs: &'j Jobs,
}

impl Requester<'_> {
    fn plan(self, request: JobsRequest) -> Result<Plan> {
        use JobsRequest as Request;
        let is_root = self.rights == Rights::All;
        Ok(match request {
            Request::Push(request) => {
                let pushed = request.job.into_iter().chain(request.jobs).collect();
                Plan::Push(self.checked(pushed)?, request.timeout_ms)
            }
            Request::Show(JobName { id, queue, reference }) => {
                Plan::Store(self.named(id, queue, reference)?, For::Show)
            }
            Request::Wait(wait) => {
                Plan::Wait(self.named(wait.id, wait.queue, wait.reference)?, wait.timeout_ms)
            }
            Request::List(list) => {
                let state = list.state.as_deref().map(|word| state(word, &State::ALL));
                let filter = Filter {
                    state: state.transpose()?,
                    key: list.key,
                    status: list.status.map(|word| status(&word)).transpose()?,
                    step: list.step,
                    since_ms: list.since_ms,
                    until_ms: list.until_ms,
                    before: list.before,
                    limit: list.limit.unwrap_or(LISTED),
                    ..self.filter(list.queue, list.tenant, list.kind)?
                };
                Plan::Store(Operation::List(filter), For::Answer)
            }
            Request::Count(count) => {
                let filter = self.filter(count.queue, count.tenant, count.kind)?;
                Plan::Store(Operation::Count(filter), For::Answer)
            }
            Request::Last(last) => {
                let by = By::of_name(&last.by).ok_or(RequestError::UnknownBy(last.by))?;
                let filter = Filter {
                    limit: last.limit.unwrap_or(LISTED),
                    ..self.filter(last.queue, last.tenant, last.kind)?
                };
                Plan::Store(Operation::Last(by, filter, last.like), For::Answer)
            }
            Request::Run(run) => {
                let filter = Filter {
                    limit: u32::try_from(MOST_PUSHED).unwrap_or(u32::MAX),
                    ..self.filter(run.queue, run.tenant, Some(run.kind))?
                };
                Plan::Store(Operation::Last(By::Key, filter, Some(run.key)), For::Run)
            }
            Request::Retry(jobs) => self.change(Change::Retry, jobs, &RETRIED)?,
            Request::Cancel(jobs) => self.change(Change::Cancel, jobs, &CANCELLED)?,
            Request::Discard(jobs) => self.change(Change::Discard, jobs, &DISCARDED)?,
            Request::Purge(jobs) => self.change(Change::Purge, jobs, &PURGED)?,
            Request::Pause(PauseRequest { queue, reason }) => self.pause(queue, reason, true)?,
            Request::Resume(QueueName { queue }) => self.pause(queue, None, false)?,
            Request::Progress(said) => {
                let progress = Progress {
                    id: said.id,
                    attempt: said.attempt,
                    queues: self.own_queues(),
                    percent: said.percent.min(100),
                    text: said.text.chars().take(200).collect(),
                };
                Plan::Store(Operation::Progress(progress), For::Answer)
            }
            // The answer is limited to the user's own queues later.
            Request::Queues(Nothing {}) => Plan::Store(Operation::Counts, For::Queues),
            Request::Stats(Nothing {}) => Plan::Store(Operation::Counts, For::Stats),
            Request::Schedules(_)
            | Request::RunNow(_)
            | Request::Kinds(_)
            | Request::Connections(_)
            | Request::SequenceList(_)
                if !is_root =>
            {
                return Err(RequestError::RootOnly);
            }
            Request::Schedules(Nothing {}) => Plan::Schedules,
            Request::RunNow(RunNow { schedule }) => Plan::RunNow(schedule),
            Request::Kinds(Nothing {}) => Plan::Kinds,
            Request::Connections(Nothing {}) => Plan::Connections,
            Request::SequenceList(SequenceList { limit }) => {
                let limit = limit.unwrap_or(LISTED);
                Plan::Store(Operation::Sequences { limit }, For::Answer)
            }
            Request::SequenceBegin(SequenceBegin { queue, name, total }) => {
                if self.jobs.queue(&queue).is_none() {
                    return Err(RequestError::UnknownQueue(queue));
                }
                self.check_use(&queue)?;
                check_text("name", name.as_ref(), LONGEST_NAME)?;
                Plan::Store(Operation::BeginSequence { queue, name, total }, For::Answer)
            }
            Request::SequenceAdd(SequenceAdd { id, from, jobs }) => {
                let jobs = self.checked(jobs)?;
                self.sequence(id, SequenceChange::Add { from, jobs })
            }
            Request::SequenceEnd(SequenceName { id }) => self.sequence(id, SequenceChange::End),
            Request::SequenceShow(SequenceName { id }) => self.sequence(id, SequenceChange::Nothing),
            Request::SequenceCancel(SequenceName { id }) => self.sequence(id, SequenceChange::Cancel),
        })
    }

    fn sequence(self, id: i64, change: SequenceChange) -> Plan {
        let operation = Operation::Sequence(id, self.own_queues(), change);
        Plan::Store(operation, For::Answer)
    }

    fn named(self, id: Option<i64>, queue: Option<String>, reference: Option<String>) -> Result<Operation> {
        match (id, queue, reference) {
            (Some(id), None, None) => Ok(Operation::Show(id)),
            (None, Some(queue), Some(reference)) => {
                self.check_use(&queue)?;
                Ok(Operation::ShowRef(queue, reference))
            }
            _ => Err(RequestError::UnnamedJob),
        }
    }

    fn filter(self, queue: Option<String>, tenant: Option<String>, kind: Option<String>) -> Result<Filter> {
        Ok(Filter {
            queues: self.queues(queue)?,
            tenant,
            kind,
            ..Filter::default()
        })
    }

    fn change(self, change: Change, selected: Selected, states: &[State]) -> Result<Plan> {
        let selection = self.selection(selected, states)?;
        Ok(Plan::Store(Operation::Change(change, selection), For::Answer))
    }

    fn selection(self, selected: Selected, states: &[State]) -> Result<Selection> {
        let Selected {
            id,
            reference,
            state: word,
            queue,
            tenant,
            kind,
        } = selected;
        match (id, reference, word, queue, tenant, kind) {
            (Some(id), None, None, None, None, None) => Ok(Selection::One(id, self.own_queues())),
            (Some(_), ..) => Err(RequestError::MoreThanId),
            (None, Some(reference), None, Some(queue), None, None) => {
                self.check_use(&queue)?;
                Ok(Selection::Ref(queue, reference))
            }
            (None, Some(_), ..) => Err(RequestError::MoreThanRef),
            (None, None, Some(word), queue, tenant, kind) => Ok(Selection::All(Filter {
                state: Some(state(&word, states)?),
                ..self.filter(queue, tenant, kind)?
            })),
            (None, None, None, ..) => Err(RequestError::NothingSelected(words(states))),
        }
    }

    fn pause(self, queue: String, reason: Option<String>, is_paused: bool) -> Result<Plan> {
        self.check_use(&queue)?;
        if self.jobs.queue(&queue).is_none() {
            return Err(RequestError::UnknownQueue(queue));
        }
        let pause = Operation::Pause {
            queue,
            reason,
            is_paused,
        };
        Ok(Plan::Store(pause, For::Answer))
    }

    /// The queues of a request: this one, or all that the client may use; `None`: all.
    fn queues(self, queue: Option<String>) -> Result<Option<Vec<String>>> {
        match queue {
            Some(queue) => self.check_use(&queue).map(|()| Some(vec![queue])),
            None => Ok(self.own_queues()),
        }
    }

    fn check_use(self, queue: &str) -> Result<()> {
        match may_use(self.rights, self.jobs, queue) {
            true => Ok(()),
            false => Err(RequestError::ForbiddenQueue(queue.to_owned())),
        }
    }

    /// The queues that a client may push into; `None`: all.
    fn own_queues(self) -> Option<Vec<String>> {
        let names = self.jobs.queues.iter().map(|queue| &queue.name);
        let own = names.filter(|name| may_use(self.rights, self.jobs, name));
        (self.rights != Rights::All).then(|| own.cloned().collect())
    }

    fn checked(self, mut pushed: Vec<NewJob>) -> Result<Vec<NewJob>> {
        if pushed.is_empty() {
            return Err(RequestError::NoJob);
        }
        if pushed.len() > MOST_PUSHED {
            return Err(RequestError::TooManyJobs);
        }
        for (at, job) in pushed.iter_mut().enumerate() {
            let of_job = |why| RequestError::Job(at + 1, Box::new(why));
            self.check(job).map_err(of_job)?;
        }
        Ok(pushed)
    }

    fn check(self, job: &mut NewJob) -> Result<()> {
        if self.jobs.queue(&job.queue).is_none() {
            let names: Vec<&str> = self.jobs.queues.iter().map(|queue| queue.name.as_str()).collect();
            return Err(RequestError::unknown("queue", &job.queue, names.join(", ")));
        }
        self.check_use(&job.queue)?;
        for (name, text, most) in [
            ("kind", Some(&job.kind), LONGEST_NAME),
            ("key", job.key.as_ref(), LONGEST_NAME),
            ("serial", job.serial.as_ref(), LONGEST_NAME),
            ("traceparent", job.traceparent.as_ref(), LONGEST_NAME),
            ("ref", job.reference.as_ref(), LONGEST_REF),
        ] {
            check_text(name, text, most)?;
        }
        if !job.tenant.is_empty() && !is_plain(&job.tenant, LONGEST_NAME) {
            return Err(RequestError::Tenant);
        }
        if job.steps.len() > MOST_STEPS || !job.steps.iter().all(|step| is_plain(step, LONGEST_NAME)) {
            return Err(RequestError::Steps);
        }
        if job.attempts == Some(0) || job.timeout_ms == Some(0) {
            return Err(RequestError::NoAttempts);
        }
        let content_type = job.content_type.as_deref();
        if content_type.is_some_and(|kind| !is_plain(kind, LONGEST_NAME)) {
            return Err(RequestError::ContentType);
        }
        let is_json = content_type.is_none_or(|kind| kind.contains("json"));
        if let Some(text) = job.payload_base64.take() {
            if !job.payload.is_empty() {
                return Err(RequestError::TwoPayloads);
            }
            job.payload = BASE64.decode(&text).map_err(|_| RequestError::NoBase64)?;
            job.content_type.get_or_insert_with(|| BYTES.to_owned());
        } else if let (false, Ok(text)) = (is_json, serde_json::from_slice::<String>(&job.payload)) {
            job.payload = text.into_bytes();
        }
        if job.payload.len() as u64 > self.jobs.max_payload {
            return Err(RequestError::TooLong {
                bytes: job.payload.len(),
                most: self.jobs.max_payload,
            });
        }
        Ok(())
    }
}

fn is_plain(text: &str, most: usize) -> bool {
    !text.is_empty() && text.len() <= most && !text.chars().any(char::is_control)
}

fn check_text(name: &'static str, text: Option<&String>, most: usize) -> Result<()> {
    match text.is_none_or(|text| is_plain(text, most)) {
        true => Ok(()),
        false => Err(RequestError::Text { name, most }),
    }
}

fn status(word: &str) -> Result<String> {
    const KNOWN: [&str; 4] = ["ok", "warning", "error", "not_applicable"];
    let found = KNOWN.contains(&word).then(|| word.to_owned());
    found.ok_or_else(|| RequestError::unknown("status", word, KNOWN.join(", ")))
}

fn state(word: &str, known: &[State]) -> Result<State> {
    let found = State::of_name(word).filter(|state| known.contains(state));
    found.ok_or_else(|| RequestError::UnknownState(word.to_owned(), words(known)))
}

fn words(states: &[State]) -> String {
    let words: Vec<&str> = states.iter().map(|state| state.name()).collect();
    words.join(", ")
}

/// The answer to a reply of the store. Returns `None` if another look-up follows.
pub(crate) fn answer(reply: Reply) -> Option<JobsAnswer> {
    Some(match reply {
        Reply::Pushed(jobs) => JobsAnswer::Pushed { jobs },
        Reply::List(jobs) => JobsAnswer::Jobs { jobs },
        Reply::Count(counts) => JobsAnswer::Counts { counts },
        Reply::Show(Some(job)) => JobsAnswer::Job { job },
        Reply::Show(None) => {
            JobsAnswer::error("there is no such job; those that are done are forgotten after keep_done")
        }
        Reply::Changed {
            count, running, held, ..
        } => JobsAnswer::Changed {
            count,
            ending: running.len() as u64,
            held,
        },
        Reply::Failed(why) => JobsAnswer::not_now(format!("the store: {why}")),
        Reply::Done | Reply::Paused { .. } => JobsAnswer::Done {},
        Reply::Sequence(sequence, _) => JobsAnswer::Sequence { sequence },
        Reply::Sequences(sequences) => JobsAnswer::Sequences { sequences },
        Reply::NoSequence => JobsAnswer::error(
            "there is no such sequence; those of which no job is left are forgotten after keep_done",
        ),
        Reply::Counts(_)
        | Reply::Claimed(..)
        | Reply::Promoted
        | Reply::Fired { .. }
        | Reply::Cleaned { .. }
        | Reply::Foreign { .. }
        | Reply::Loaded { .. } => return None,
    })
}

#[cfg(test)]
mod tests;
