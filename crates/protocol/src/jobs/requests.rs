//! What clients ask for: each command has fields of its own, and what is no field of it is refused.

use super::NewJob;
use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::fmt;

/// The commands, in the order in which they are told to who asks for none of them.
pub const COMMANDS: [&str; 24] = [
    "push",
    "show",
    "wait",
    "list",
    "count",
    "retry",
    "cancel",
    "discard",
    "purge",
    "pause",
    "resume",
    "progress",
    "queues",
    "stats",
    "schedules",
    "run-now",
    "kinds",
    "connections",
    "sequence-begin",
    "sequence-add",
    "sequence-end",
    "sequence-show",
    "sequence-cancel",
    "sequence-list",
];

/// `secret`, the first request of a connection over TCP.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretRequest {
    pub command: String,
    pub secret: String,
}

/// A request, by its command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum JobsRequest {
    /// Add jobs.
    Push(PushRequest),
    /// Show a job.
    Show(JobName),
    /// Show a job once it has ended.
    Wait(WaitRequest),
    /// Show jobs, the newest first.
    List(ListRequest),
    /// Count jobs by their states.
    Count(CountRequest),
    /// Let jobs wait again.
    Retry(Selected),
    /// Take jobs out of their queues, and end those that run.
    Cancel(Selected),
    /// Give jobs up.
    Discard(Selected),
    /// Forget jobs that have ended.
    Purge(Selected),
    /// Let no further job of a queue start.
    Pause(PauseRequest),
    /// Let jobs of a queue start again.
    Resume(QueueName),
    /// Say how far a job is.
    Progress(ProgressRequest),
    Queues(Nothing),
    Stats(Nothing),
    Schedules(Nothing),
    RunNow(RunNow),
    Kinds(Nothing),
    Connections(Nothing),
    SequenceBegin(SequenceBegin),
    SequenceAdd(SequenceAdd),
    SequenceEnd(SequenceName),
    SequenceShow(SequenceName),
    SequenceCancel(SequenceName),
    SequenceList(SequenceList),
}

/// `push`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PushRequest {
    /// One job,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<NewJob>,
    /// or several, of which all or none are added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<NewJob>,
    /// How long the store may take; nothing: `push_timeout` of `[jobs]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// `show`: which job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobName {
    /// Its number;
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    /// or its queue and what it was called by who pushed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// `wait`: the same, and for how long.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Then it is shown as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// `list`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Jobs in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Jobs whose task has this result: ok, warning, error, not_applicable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Jobs that have done a step of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Jobs that were pushed then or later, milliseconds since 1970;
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<i64>,
    /// and before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<i64>,
    /// Jobs with smaller numbers: what follows the last of a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<i64>,
    /// At most so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// `count`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CountRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// `retry`, `cancel`, `discard` and `purge`: a job, by its number or by its queue and `ref`; or all that are in a state, and of these,
/// where it is said, those of a queue, a tenant and a kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selected {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// `pause`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PauseRequest {
    pub queue: String,
    /// Why, for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `resume`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueName {
    pub queue: String,
}

/// `progress`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgressRequest {
    pub id: i64,
    /// Which start of the job says so: `FORKYARD_JOB_ATTEMPT`.
    pub attempt: u32,
    /// 0 to 100.
    pub percent: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// `run-now`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunNow {
    pub schedule: String,
}

/// What a command has that has no fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// `sequence-begin`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceBegin {
    pub queue: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How many jobs it is going to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
}

/// `sequence-add`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceAdd {
    /// The sequence.
    pub id: i64,
    /// How many jobs its source gave before these.
    pub from: u64,
    pub jobs: Vec<NewJob>,
}

/// `sequence-end`, `-show` and `-cancel`: which sequence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceName {
    pub id: i64,
}

/// `sequence-list`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceList {
    /// At most so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// A line of a client, of which the command is known. Its fields stay as they are written, because a payload does.
#[derive(Debug)]
pub struct RequestLine<'l> {
    command: String,
    fields: Vec<(String, &'l RawValue)>,
}

impl<'l> RequestLine<'l> {
    /// Reads a line.
    ///
    /// # Errors
    /// Why it is no request.
    pub fn read(line: &'l [u8]) -> Result<RequestLine<'l>, String> {
        let Fields(mut fields) = serde_json::from_slice(line).map_err(|error| no_request(&error))?;
        let at = fields.iter().position(|(name, _)| name == "command");
        let at = at.ok_or("this is no request: command is missing")?;
        let (_, word) = fields.swap_remove(at);
        let command = serde_json::from_str(word.get()).map_err(|error| no_request(&error))?;
        Ok(RequestLine { command, fields })
    }

    /// Its command's word.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// What is asked for.
    ///
    /// # Errors
    /// Why it is refused, for the client.
    pub fn request(self) -> Result<JobsRequest, String> {
        use JobsRequest as Request;
        let fields = self.fields;
        Ok(match self.command.as_str() {
            "push" => Request::Push(of(fields)?),
            "show" => Request::Show(of(fields)?),
            "wait" => Request::Wait(of(fields)?),
            "list" => Request::List(of(fields)?),
            "count" => Request::Count(of(fields)?),
            "retry" => Request::Retry(of(fields)?),
            "cancel" => Request::Cancel(of(fields)?),
            "discard" => Request::Discard(of(fields)?),
            "purge" => Request::Purge(of(fields)?),
            "pause" => Request::Pause(of(fields)?),
            "resume" => Request::Resume(of(fields)?),
            "progress" => Request::Progress(of(fields)?),
            "queues" => Request::Queues(of(fields)?),
            "stats" => Request::Stats(of(fields)?),
            "schedules" => Request::Schedules(of(fields)?),
            "run-now" => Request::RunNow(of(fields)?),
            "kinds" => Request::Kinds(of(fields)?),
            "connections" => Request::Connections(of(fields)?),
            "sequence-begin" => Request::SequenceBegin(of(fields)?),
            "sequence-add" => Request::SequenceAdd(of(fields)?),
            "sequence-end" => Request::SequenceEnd(of(fields)?),
            "sequence-show" => Request::SequenceShow(of(fields)?),
            "sequence-cancel" => Request::SequenceCancel(of(fields)?),
            "sequence-list" => Request::SequenceList(of(fields)?),
            other => {
                let known = COMMANDS.join(", ");
                return Err(format!("there is no command \"{other}\"; there are {known}"));
            }
        })
    }
}

fn no_request(error: &serde_json::Error) -> String {
    format!("this is no request: {error}")
}

/// What a command's fields mean.
fn of<T: DeserializeOwned>(fields: Vec<(String, &RawValue)>) -> Result<T, String> {
    T::deserialize(MapDeserializer::new(fields.into_iter())).map_err(|error| no_request(&error))
}

/// The fields of an object, as they are written.
struct Fields<'l>(Vec<(String, &'l RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Of;
        impl<'de> Visitor<'de> for Of {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with command")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(line: &str) -> Result<JobsRequest, String> {
        RequestLine::read(line.as_bytes()).and_then(RequestLine::request)
    }

    /// Every field of any command, with a value that it may have.
    fn fields() -> Vec<(&'static str, serde_json::Value)> {
        let job = json!({"queue": "q", "kind": "k"});
        vec![
            ("job", job.clone()),
            ("jobs", json!([job])),
            ("id", json!(7)),
            ("queue", json!("q")),
            ("state", json!("failed")),
            ("tenant", json!("t")),
            ("kind", json!("k")),
            ("limit", json!(5)),
            ("reason", json!("r")),
            ("attempt", json!(1)),
            ("percent", json!(50)),
            ("text", json!("x")),
            ("schedule", json!("s")),
            ("name", json!("n")),
            ("total", json!(3)),
            ("from", json!(0)),
            ("ref", json!("r-1")),
            ("key", json!("k/1")),
            ("status", json!("warning")),
            ("step", json!("fetch")),
            ("since_ms", json!(1)),
            ("until_ms", json!(2)),
            ("before", json!(3)),
            ("timeout_ms", json!(9)),
        ]
    }

    /// The fields that each command has; those that it has to have stand first, before the bar.
    const KNOWN: [(&str, &str); 24] = [
        ("push", "| job jobs timeout_ms"),
        ("show", "| id queue ref"),
        ("wait", "| id queue ref timeout_ms"),
        (
            "list",
            "| queue state tenant kind key status step since_ms until_ms before limit",
        ),
        ("count", "| queue tenant kind"),
        ("retry", "| id ref state queue tenant kind"),
        ("cancel", "| id ref state queue tenant kind"),
        ("discard", "| id ref state queue tenant kind"),
        ("purge", "| id ref state queue tenant kind"),
        ("pause", "queue | reason"),
        ("resume", "queue |"),
        ("progress", "id attempt percent | text"),
        ("queues", "|"),
        ("stats", "|"),
        ("schedules", "|"),
        ("run-now", "schedule |"),
        ("kinds", "|"),
        ("connections", "|"),
        ("sequence-begin", "queue | name total"),
        ("sequence-add", "id from jobs |"),
        ("sequence-end", "id |"),
        ("sequence-show", "id |"),
        ("sequence-cancel", "id |"),
        ("sequence-list", "| limit"),
    ];

    #[test]
    fn each_command_has_its_own_fields_and_refuses_every_other() {
        for (command, known) in KNOWN {
            assert!(COMMANDS.contains(&command), "{command}");
            let (needed, more) = known.split_once('|').expect("a bar");
            let needed: Vec<&str> = needed.split_whitespace().collect();
            let with = |names: &[&str]| {
                let mut object = json!({"command": command});
                for (name, value) in fields().into_iter().filter(|(name, _)| names.contains(name)) {
                    object[name] = value;
                }
                object.to_string()
            };
            for (field, _) in fields() {
                let names: Vec<&str> = needed.iter().copied().chain([field]).collect();
                let line = with(&names);
                let is_known = needed.contains(&field) || more.split_whitespace().any(|name| name == field);
                match read(&line) {
                    Ok(request) => {
                        assert!(is_known, "{line}");
                        // What is written is what was read.
                        let written = serde_json::to_value(&request).expect("JSON");
                        let read: serde_json::Value = serde_json::from_str(&line).expect("JSON");
                        assert_eq!(written, read);
                    }
                    Err(why) => {
                        assert!(!is_known, "{line}: {why}");
                        assert!(why.contains(&format!("unknown field `{field}`")), "{line}: {why}");
                    }
                }
            }
            for missing in &needed {
                let names: Vec<&str> = needed.iter().copied().filter(|name| name != missing).collect();
                let why = read(&with(&names)).expect_err(command);
                assert!(
                    why.contains(&format!("missing field `{missing}`")),
                    "{command}: {why}"
                );
            }
        }
        assert_eq!(KNOWN.len(), COMMANDS.len());
    }

    #[test]
    fn what_is_no_request_is_told() {
        for (line, expected) in [
            ("nonsense", "this is no request"),
            ("[]", "an object with command"),
            ("{}", "command is missing"),
            (r#"{"command":5}"#, "this is no request"),
            (r#"{"command":"fly"}"#, "no command \"fly\"; there are push, show"),
            (r#"{"command":"show","id":1,"id":2}"#, "duplicate field"),
            (r#"{"command":"show","id":"1"}"#, "invalid type"),
        ] {
            let why = read(line).expect_err(line);
            assert!(why.contains(expected), "{line}: {why}");
        }
    }

    #[test]
    fn a_payload_stays_as_it_is_written() {
        let line = r#"{"job":{"queue":"q","kind":"k","payload":{"b": 1.0, "a":[1]}},"command":"push"}"#;
        let Ok(JobsRequest::Push(push)) = read(line) else {
            panic!("{line}");
        };
        let job = push.job.expect("a job");
        assert_eq!(job.payload, br#"{"b": 1.0, "a":[1]}"#);
        let again = serde_json::to_string(&JobsRequest::Push(PushRequest {
            job: Some(job),
            ..PushRequest::default()
        }));
        assert!(again.expect("JSON").contains(r#""payload":{"b": 1.0, "a":[1]}"#));
    }
}
