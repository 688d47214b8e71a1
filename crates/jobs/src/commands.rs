//! What clients ask for: from a line to what is to be done, and from what was done to the answer.

mod sequence;

use crate::client::Rights;
use crate::store::{Filter, Operation, Reply, Selection, State};
use forkyard_config::Jobs;
use forkyard_protocol::jobs::{Command, JobsAnswer, JobsRequest, NewJob, PushRequest};
use serde::Deserialize;

/// Jobs in one push.
const MOST_PUSHED: usize = 10_000;
/// Steps of a job, and bytes of a name or key.
const MOST_STEPS: usize = 1_000;
const LONGEST_NAME: usize = 255;
/// Jobs of a list, unless it is said otherwise.
const LISTED: u32 = 100;

/// What a request leads to.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// An operation of the store, and what its reply is for.
    Store(Operation, For),
    /// A job's end is waited for.
    Wait(i64),
    Schedules,
    RunNow(String),
    Kinds,
    Connections,
}

/// What a reply of the store is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Push,
    Sequence,
    List,
    Show,
    /// The job is shown when it has ended.
    Wait,
    Queues,
    Stats,
    Change,
    Pause,
    Progress,
}

/// Reads a line.
///
/// # Errors
/// Why it is refused, for the client.
#[cfg(any(test, fuzzing))]
pub(crate) fn read(line: &[u8], rights: Rights, jobs: &Jobs) -> Result<Wanted, String> {
    read_as(&word(line)?, line, rights, jobs)
}

/// Which command a line has.
///
/// # Errors
/// It is none.
pub(crate) fn word(line: &[u8]) -> Result<Command, String> {
    parse(line)
}

/// Reads the rest of a line.
///
/// # Errors
/// Why it is refused, for the client.
pub(crate) fn read_as(command: &Command, line: &[u8], rights: Rights, jobs: &Jobs) -> Result<Wanted, String> {
    if command.command == "push" {
        let request: PushRequest = parse(line)?;
        return push(request, rights, jobs);
    }
    if command.command == "sequence-add" {
        return sequence::add(parse(line)?, rights, jobs);
    }
    let request: JobsRequest = parse(line)?;
    if let Some(wanted) = sequence::read(&request, rights, jobs) {
        return wanted;
    }
    let own = own_queues(rights, jobs);
    let id = || request.id.ok_or("id is missing: the number of a job");
    let queue = || {
        request
            .queue
            .clone()
            .ok_or("queue is missing: the name of a queue")
    };
    let selection = |state: State| match request.id {
        Some(id) => Selection::One(id, own.clone()),
        None => Selection::All(request.queue.clone(), state),
    };
    let all_of = |states: &[State]| -> Result<Selection, String> {
        let word = request.state.as_deref();
        let state = word
            .and_then(State::of_name)
            .filter(|state| states.contains(state));
        match (request.id, state) {
            (Some(_), _) => Ok(selection(State::Failed)),
            (None, Some(state)) => Ok(selection(state)),
            (None, None) => {
                let words: Vec<&str> = states.iter().map(|state| state.name()).collect();
                Err(format!(
                    "name a job by id, or all of a state: {}",
                    words.join(", ")
                ))
            }
        }
    };
    let is_general = request.id.is_none();
    let may = |allowed: bool| match (&own, allowed) {
        (Some(_), false) => Err("only root and the user that keeps the jobs may do this".to_owned()),
        _ => Ok(()),
    };
    match request.command.as_str() {
        "list" => {
            may(false)?;
            Ok(Wanted::Store(Operation::List(filter(&request)?), For::List))
        }
        "show" => Ok(Wanted::Store(Operation::Show(id()?), For::Show)),
        "wait" => Ok(Wanted::Wait(id()?)),
        "retry" => {
            may(!is_general)?;
            let selection = all_of(&[
                State::Failed,
                State::Quarantined,
                State::Cancelled,
                State::Scheduled,
            ])?;
            Ok(Wanted::Store(Operation::Retry(selection), For::Change))
        }
        "cancel" => {
            may(!is_general)?;
            let selection = all_of(&[State::Waiting, State::Scheduled, State::Blocked, State::Running])?;
            Ok(Wanted::Store(Operation::Cancel(selection), For::Change))
        }
        "discard" => {
            may(!is_general)?;
            let selection = all_of(&[State::Failed, State::Quarantined])?;
            Ok(Wanted::Store(Operation::Discard(selection), For::Change))
        }
        "pause" | "resume" => {
            may(false)?;
            let pause = Operation::Pause {
                queue: queue()?,
                reason: request.reason.clone(),
                is_paused: request.command == "pause",
            };
            Ok(Wanted::Store(pause, For::Pause))
        }
        "queues" => {
            may(false)?;
            Ok(Wanted::Store(Operation::Counts, For::Queues))
        }
        "stats" => {
            may(false)?;
            Ok(Wanted::Store(Operation::Counts, For::Stats))
        }
        "schedules" => {
            may(false)?;
            Ok(Wanted::Schedules)
        }
        "kinds" => {
            may(false)?;
            Ok(Wanted::Kinds)
        }
        "connections" => {
            may(false)?;
            Ok(Wanted::Connections)
        }
        "run-now" => {
            may(false)?;
            Ok(Wanted::RunNow(
                request.schedule.ok_or("schedule is missing: its name")?,
            ))
        }
        "progress" => Ok(Wanted::Store(
            Operation::Progress {
                id: id()?,
                attempt: request
                    .attempt
                    .ok_or("attempt is missing: FORKYARD_JOB_ATTEMPT")?,
                queues: own,
                percent: request.percent.ok_or("percent is missing: 0 to 100")?.min(100),
                text: request.text.unwrap_or_default().chars().take(200).collect(),
            },
            For::Progress,
        )),
        other => Err(format!(
            "there is no command \"{other}\"; there are push, list, show, wait, retry, cancel, discard, pause, resume, queues, \
             schedules, run-now, stats, kinds, connections, progress, and sequence-begin, -add, -end, -show, -cancel and -list"
        )),
    }
}

fn parse<'l, T: Deserialize<'l>>(line: &'l [u8]) -> Result<T, String> {
    serde_json::from_slice(line).map_err(|error| format!("this is no request: {error}"))
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

/// Whether a client may see or change jobs of a queue.
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

fn push(request: PushRequest, rights: Rights, jobs: &Jobs) -> Result<Wanted, String> {
    let pushed = request.job.into_iter().chain(request.jobs).collect();
    Ok(Wanted::Store(
        Operation::Push(checked(pushed, rights, jobs)?),
        For::Push,
    ))
}

/// Jobs that may be added.
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
        return Err(format!(
            "this user may not push into queue \"{}\": push_users of the queue can name it",
            job.queue
        ));
    }
    let is_plain =
        |text: &str| !text.is_empty() && text.len() <= LONGEST_NAME && !text.chars().any(char::is_control);
    let is_path = |text: &str| is_plain(text) && !text.contains(['?', '#', ' ']);
    if !is_path(&job.kind) {
        return Err(format!(
            "kind has 1 to {LONGEST_NAME} bytes without blanks, \"?\" and \"#\""
        ));
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
    // A text that is no JSON comes as a string of JSON.
    let is_json = job
        .content_type
        .as_deref()
        .is_none_or(|kind| kind.contains("json"));
    if let (false, Ok(text)) = (is_json, serde_json::from_slice::<String>(&job.payload)) {
        job.payload = text.into_bytes();
    }
    if job.payload.len() as u64 > jobs.max_payload {
        return Err(format!(
            "the payload has {} bytes, and max_payload is {}",
            job.payload.len(),
            jobs.max_payload
        ));
    }
    Ok(())
}

fn filter(request: &JobsRequest) -> Result<Filter, String> {
    let state = match &request.state {
        Some(word) => {
            let words: Vec<&str> = State::ALL.iter().map(|state| state.name()).collect();
            let unknown = || format!("there is no state \"{word}\"; there are {}", words.join(", "));
            Some(State::of_name(word).ok_or_else(unknown)?)
        }
        None => None,
    };
    Ok(Filter {
        queue: request.queue.clone(),
        state,
        tenant: request.tenant.clone(),
        kind: request.kind.clone(),
        limit: request.limit.unwrap_or(LISTED),
    })
}

/// The answer to what was done, where that needs nothing else; `None`: more is to be looked up.
pub(crate) fn answer(reply: Reply) -> Option<JobsAnswer> {
    Some(match reply {
        Reply::Pushed(jobs) => JobsAnswer::Pushed { jobs },
        Reply::List(jobs) => JobsAnswer::Jobs { jobs },
        Reply::Show(Some(job)) => JobsAnswer::Job { job },
        Reply::Show(None) => {
            JobsAnswer::error("there is no such job; those that are done are forgotten after keep_done")
        }
        Reply::Changed { count, running } => JobsAnswer::Changed {
            count,
            ending: running.len() as u64,
        },
        Reply::Failed(why) => JobsAnswer::Error {
            message: format!("the store: {why}"),
            is_temporary: true,
        },
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
