//! Parses requests into operations of the store, and turns replies into answers.

mod sequence;

use crate::client::Rights;
use crate::store::{By, Filter, Operation, Reply, Selection, State};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use forkyard_config::Jobs;
#[cfg(any(test, fuzzing))]
use forkyard_protocol::jobs::RequestLine;
use forkyard_protocol::jobs::{
    JobName, JobsAnswer, JobsRequest, NewJob, Nothing, PauseRequest, QueueName, RunNow, Selected,
    SequenceList, SequenceName,
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

const ROOTS: &str = "only root and the user that keeps the jobs may do this";

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
    Push,
    Run,
    Sequence,
    List,
    Count,
    Show,
    Wait,
    /// Waits for a job, with a time limit in milliseconds.
    Await(Option<u64>),
    Queues,
    Stats,
    Change,
    Pause,
    Progress,
}

/// Reads a line.
///
/// # Errors
/// States why it is refused, for the client.
#[cfg(any(test, fuzzing))]
pub(crate) fn read(line: &[u8], rights: Rights, jobs: &Jobs) -> Result<Plan, String> {
    wanted(RequestLine::read(line)?.request()?, rights, jobs)
}

/// Plans a request.
///
/// # Errors
/// States why it is refused, for the client.
pub(crate) fn wanted(request: JobsRequest, rights: Rights, jobs: &Jobs) -> Result<Plan, String> {
    use JobsRequest as Request;
    let is_root = rights == Rights::All;
    Ok(match request {
        Request::Push(request) => {
            let pushed = request.job.into_iter().chain(request.jobs).collect();
            Plan::Push(checked(pushed, rights, jobs)?, request.timeout_ms)
        }
        Request::Show(JobName { id, queue, reference }) => {
            Plan::Store(named(id, queue, reference, rights, jobs)?, For::Show)
        }
        Request::Wait(wait) => Plan::Wait(
            named(wait.id, wait.queue, wait.reference, rights, jobs)?,
            wait.timeout_ms,
        ),
        Request::List(list) => {
            let state = list.state.as_deref().map(|word| state(word, &State::ALL));
            let filter = Filter {
                queues: queues(list.queue, rights, jobs)?,
                state: state.transpose()?,
                tenant: list.tenant,
                kind: list.kind,
                key: list.key,
                status: list.status.map(|word| status(&word)).transpose()?,
                step: list.step,
                since_ms: list.since_ms,
                until_ms: list.until_ms,
                before: list.before,
                limit: list.limit.unwrap_or(LISTED),
            };
            Plan::Store(Operation::List(filter), For::List)
        }
        Request::Count(count) => {
            let filter = Filter {
                queues: queues(count.queue, rights, jobs)?,
                tenant: count.tenant,
                kind: count.kind,
                ..Filter::default()
            };
            Plan::Store(Operation::Count(filter), For::Count)
        }
        Request::Last(last) => {
            let by = By::of_name(&last.by)
                .ok_or_else(|| format!("by is key, tenant or kind, and not \"{}\"", last.by))?;
            let filter = Filter {
                queues: queues(last.queue, rights, jobs)?,
                tenant: last.tenant,
                kind: last.kind,
                limit: last.limit.unwrap_or(LISTED),
                ..Filter::default()
            };
            Plan::Store(Operation::Last(by, filter, last.like), For::List)
        }
        Request::Run(run) => {
            let filter = Filter {
                queues: queues(run.queue, rights, jobs)?,
                tenant: run.tenant,
                kind: Some(run.kind),
                limit: u32::try_from(MOST_PUSHED).unwrap_or(u32::MAX),
                ..Filter::default()
            };
            Plan::Store(Operation::Last(By::Key, filter, Some(run.key)), For::Run)
        }
        Request::Retry(selected) => {
            let selection = selection(selected, &RETRIED, rights, jobs)?;
            Plan::Store(Operation::Retry(selection), For::Change)
        }
        Request::Cancel(selected) => {
            let selection = selection(selected, &CANCELLED, rights, jobs)?;
            Plan::Store(Operation::Cancel(selection), For::Change)
        }
        Request::Discard(selected) => {
            let selection = selection(selected, &DISCARDED, rights, jobs)?;
            Plan::Store(Operation::Discard(selection), For::Change)
        }
        Request::Purge(selected) => {
            let selection = selection(selected, &PURGED, rights, jobs)?;
            Plan::Store(Operation::Purge(selection), For::Change)
        }
        Request::Pause(PauseRequest { queue, reason }) => pause(queue, reason, true, rights, jobs)?,
        Request::Resume(QueueName { queue }) => pause(queue, None, false, rights, jobs)?,
        Request::Progress(said) => {
            let progress = Operation::Progress {
                id: said.id,
                attempt: said.attempt,
                queues: own_queues(rights, jobs),
                percent: said.percent.min(100),
                text: said.text.chars().take(200).collect(),
            };
            Plan::Store(progress, For::Progress)
        }
        // The answer is limited to the user's own queues later.
        Request::Queues(Nothing {}) => Plan::Store(Operation::Counts, For::Queues),
        Request::Stats(Nothing {}) => Plan::Store(Operation::Counts, For::Stats),
        Request::Schedules(_) | Request::RunNow(_) | Request::Kinds(_) | Request::Connections(_)
            if !is_root =>
        {
            return Err(ROOTS.to_owned());
        }
        Request::Schedules(Nothing {}) => Plan::Schedules,
        Request::RunNow(RunNow { schedule }) => Plan::RunNow(schedule),
        Request::Kinds(Nothing {}) => Plan::Kinds,
        Request::Connections(Nothing {}) => Plan::Connections,
        Request::SequenceBegin(begin) => sequence::begin(begin, rights, jobs)?,
        Request::SequenceAdd(add) => sequence::add(add, rights, jobs)?,
        Request::SequenceEnd(SequenceName { id }) => sequence::end(id, rights, jobs),
        Request::SequenceShow(SequenceName { id }) => sequence::show(id, rights, jobs),
        Request::SequenceCancel(SequenceName { id }) => sequence::cancel(id, rights, jobs),
        Request::SequenceList(_) if !is_root => return Err(ROOTS.to_owned()),
        Request::SequenceList(SequenceList { limit }) => sequence::list(limit),
    })
}

fn named(
    id: Option<i64>,
    queue: Option<String>,
    reference: Option<String>,
    rights: Rights,
    jobs: &Jobs,
) -> Result<Operation, String> {
    match (id, queue, reference) {
        (Some(id), None, None) => Ok(Operation::Show(id)),
        (None, Some(queue), Some(reference)) => {
            queues(Some(queue.clone()), rights, jobs)?;
            Ok(Operation::ShowRef(queue, reference))
        }
        _ => Err("name a job by id, or by queue and ref, and not by both".to_owned()),
    }
}

fn status(word: &str) -> Result<String, String> {
    const KNOWN: [&str; 4] = ["ok", "warning", "error", "not_applicable"];
    let found = KNOWN.contains(&word).then(|| word.to_owned());
    found.ok_or_else(|| format!("there is no status \"{word}\"; there are {}", KNOWN.join(", ")))
}

fn state(word: &str, known: &[State]) -> Result<State, String> {
    let found = State::of_name(word).filter(|state| known.contains(state));
    found.ok_or_else(|| format!("there is no state \"{word}\" here; there are {}", words(known)))
}

fn words(states: &[State]) -> String {
    let words: Vec<&str> = states.iter().map(|state| state.name()).collect();
    words.join(", ")
}

fn selection(selected: Selected, states: &[State], rights: Rights, jobs: &Jobs) -> Result<Selection, String> {
    let has_more = selected.reference.is_some()
        || selected.state.is_some()
        || selected.queue.is_some()
        || selected.tenant.is_some()
        || selected.kind.is_some();
    if let (Some(reference), None) = (&selected.reference, selected.id) {
        let is_more = selected.state.is_some() || selected.tenant.is_some() || selected.kind.is_some();
        let (Some(queue), false) = (selected.queue, is_more) else {
            return Err("ref names one job of a queue: give queue, and nothing else".to_owned());
        };
        queues(Some(queue.clone()), rights, jobs)?;
        return Ok(Selection::Ref(queue, reference.clone()));
    }
    match (selected.id, selected.state) {
        (Some(_), _) if has_more => {
            Err("id names one job: ref, state, queue, tenant and kind are for others".to_owned())
        }
        (Some(id), _) => Ok(Selection::One(id, own_queues(rights, jobs))),
        (None, Some(word)) => Ok(Selection::All(Filter {
            state: Some(state(&word, states)?),
            queues: queues(selected.queue, rights, jobs)?,
            tenant: selected.tenant,
            kind: selected.kind,
            ..Filter::default()
        })),
        (None, None) => Err(format!(
            "name a job by id, or by queue and ref, or all of a state: {}",
            words(states)
        )),
    }
}

fn pause(
    queue: String,
    reason: Option<String>,
    is_paused: bool,
    rights: Rights,
    jobs: &Jobs,
) -> Result<Plan, String> {
    queues(Some(queue.clone()), rights, jobs)?;
    let pause = Operation::Pause {
        queue,
        reason,
        is_paused,
    };
    Ok(Plan::Store(pause, For::Pause))
}

/// The queues of a request: this one, or all that the client may use; `None`: all.
fn queues(queue: Option<String>, rights: Rights, jobs: &Jobs) -> Result<Option<Vec<String>>, String> {
    match queue {
        Some(queue) if may_use(rights, jobs, &queue) => Ok(Some(vec![queue])),
        Some(queue) => Err(not_own(&queue)),
        None => Ok(own_queues(rights, jobs)),
    }
}

fn not_own(queue: &str) -> String {
    format!("this user may not use queue \"{queue}\": push_users of the queue can name it")
}

/// The queues that a client may push into; `None`: all.
fn own_queues(rights: Rights, jobs: &Jobs) -> Option<Vec<String>> {
    match rights {
        Rights::All => None,
        Rights::Stranger => Some(Vec::new()),
        Rights::Own(uid) => {
            let own = jobs.queues.iter().filter(|queue| queue.users.contains(&uid));
            Some(own.map(|queue| queue.name.clone()).collect())
        }
    }
}

pub(crate) fn may_use(rights: Rights, jobs: &Jobs, queue: &str) -> bool {
    match rights {
        Rights::All => true,
        Rights::Stranger => false,
        Rights::Own(uid) => {
            let mut queues = jobs.queues.iter();
            queues.any(|known| known.name == queue && known.users.contains(&uid))
        }
    }
}

fn checked(mut pushed: Vec<NewJob>, rights: Rights, jobs: &Jobs) -> Result<Vec<NewJob>, String> {
    if pushed.is_empty() {
        return Err("job is missing: an object with queue and kind".to_owned());
    }
    if pushed.len() > MOST_PUSHED {
        return Err(format!("at most {MOST_PUSHED} jobs are pushed at once"));
    }
    for (at, job) in pushed.iter_mut().enumerate() {
        check(job, rights, jobs).map_err(|why| format!("job {}: {why}", at + 1))?;
    }
    Ok(pushed)
}

fn check(job: &mut NewJob, rights: Rights, jobs: &Jobs) -> Result<(), String> {
    if jobs.queues.iter().all(|queue| queue.name != job.queue) {
        let names: Vec<&str> = jobs.queues.iter().map(|queue| queue.name.as_str()).collect();
        return Err(format!(
            "there is no queue \"{}\"; there are {}",
            job.queue,
            names.join(", ")
        ));
    }
    if !may_use(rights, jobs, &job.queue) {
        return Err(not_own(&job.queue));
    }
    let is_plain =
        |text: &str| !text.is_empty() && text.len() <= LONGEST_NAME && !text.chars().any(char::is_control);
    if !is_plain(&job.kind) {
        return Err(format!("kind has 1 to {LONGEST_NAME} bytes that can be seen"));
    }
    let texts = [
        ("key", &job.key),
        ("serial", &job.serial),
        ("traceparent", &job.traceparent),
    ];
    for (name, text) in texts {
        if text.as_ref().is_some_and(|text| !is_plain(text)) {
            return Err(format!("{name} has 1 to {LONGEST_NAME} bytes that can be seen"));
        }
    }
    let is_ref = |text: &String| is_plain(text) && text.len() <= LONGEST_REF;
    if !job.reference.as_ref().is_none_or(is_ref) {
        return Err(format!("ref has 1 to {LONGEST_REF} bytes that can be seen"));
    }
    if !job.tenant.is_empty() && !is_plain(&job.tenant) {
        return Err(format!(
            "tenant has at most {LONGEST_NAME} bytes that can be seen"
        ));
    }
    if job.steps.len() > MOST_STEPS || !job.steps.iter().all(|step| is_plain(step)) {
        return Err(format!(
            "steps are at most {MOST_STEPS} names of 1 to {LONGEST_NAME} bytes"
        ));
    }
    if job.attempts == Some(0) || job.timeout_ms == Some(0) {
        return Err("attempts and timeout_ms are at least 1".to_owned());
    }
    if job.content_type.as_deref().is_some_and(|kind| !is_plain(kind)) {
        return Err("content_type can't be read".to_owned());
    }
    if let Some(text) = job.payload_base64.take() {
        if !job.payload.is_empty() {
            return Err("payload and payload_base64 are two ways to say the same: give one".to_owned());
        }
        let bytes = BASE64.decode(&text);
        job.payload = bytes.map_err(|_| "payload_base64 is no base64")?;
        job.content_type.get_or_insert_with(|| BYTES.to_owned());
        return fits(job, jobs);
    }
    let is_json = job
        .content_type
        .as_deref()
        .is_none_or(|kind| kind.contains("json"));
    if let (false, Ok(text)) = (is_json, serde_json::from_slice::<String>(&job.payload)) {
        job.payload = text.into_bytes();
    }
    fits(job, jobs)
}

fn fits(job: &NewJob, jobs: &Jobs) -> Result<(), String> {
    if job.payload.len() as u64 > jobs.max_payload {
        return Err(format!(
            "the payload has {} bytes, and max_payload is {}",
            job.payload.len(),
            jobs.max_payload
        ));
    }
    Ok(())
}

/// The answer to a reply of the store. Returns `None` if more must be looked up.
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
        Reply::Done => JobsAnswer::Done {},
        Reply::Sequence(sequence, _) => JobsAnswer::Sequence { sequence },
        Reply::Sequences(sequences) => JobsAnswer::Sequences { sequences },
        Reply::NoSequence => JobsAnswer::error(
            "there is no such sequence; those of which no job is left are forgotten after keep_done",
        ),
        Reply::Counts(_)
        | Reply::Claimed { .. }
        | Reply::Promoted
        | Reply::Fired { .. }
        | Reply::Cleaned { .. }
        | Reply::Foreign { .. }
        | Reply::Loaded { .. } => return None,
    })
}

#[cfg(test)]
mod tests;
