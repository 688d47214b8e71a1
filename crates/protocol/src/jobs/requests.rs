//! Clients' requests: each command has its own fields, and unknown fields are refused.

use super::NewJob;
use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::fmt;

/// The commands, in the order of the error message that lists them.
pub const COMMANDS: [&str; 26] = [
    "push",
    "show",
    "wait",
    "list",
    "count",
    "last",
    "run",
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

/// `secret`: the first request of a TCP connection.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretRequest {
    pub command: String,
    pub secret: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum JobsRequest {
    Push(PushRequest),
    Show(JobName),
    Wait(WaitRequest),
    List(ListRequest),
    Count(CountRequest),
    Last(LastRequest),
    Run(RunRequest),
    Retry(Selected),
    Cancel(Selected),
    Discard(Selected),
    Purge(Selected),
    Pause(PauseRequest),
    Resume(QueueName),
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

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PushRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<NewJob>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<NewJob>,
    /// The time limit of the store; `push_timeout` of `[jobs]` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobName {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Only jobs pushed at this time or later, milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastRequest {
    pub by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub like: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    pub kind: String,
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

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

/// The jobs of `retry`, `cancel`, `discard` and `purge`: one by its number or by its queue and `ref`; or all in a
/// state, optionally of one queue, tenant and kind.
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

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PauseRequest {
    pub queue: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueName {
    pub queue: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgressRequest {
    pub id: i64,
    pub attempt: u32,
    pub percent: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunNow {
    pub schedule: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceBegin {
    pub queue: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceAdd {
    pub id: i64,
    pub from: u64,
    pub jobs: Vec<NewJob>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceName {
    pub id: i64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SequenceList {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// A client's line with a known command. Its fields stay as written, because a payload must.
#[derive(Debug)]
pub struct RequestLine<'l> {
    command: String,
    fields: Vec<(String, &'l RawValue)>,
}

impl<'l> RequestLine<'l> {
    /// Reads a line.
    ///
    /// # Errors
    /// States why it is no request.
    pub fn read(line: &'l [u8]) -> Result<RequestLine<'l>, String> {
        let Fields(mut fields) = serde_json::from_slice(line).map_err(|error| no_request(&error))?;
        let at = fields.iter().position(|(name, _)| name == "command");
        let at = at.ok_or("this is no request: command is missing")?;
        let (_, word) = fields.swap_remove(at);
        let command = serde_json::from_str(word.get()).map_err(|error| no_request(&error))?;
        Ok(RequestLine { command, fields })
    }

    pub fn command(&self) -> &str {
        &self.command
    }

    /// Parses the request.
    ///
    /// # Errors
    /// States why it is refused, for the client.
    pub fn request(self) -> Result<JobsRequest, String> {
        use JobsRequest as Request;
        let fields = self.fields;
        Ok(match self.command.as_str() {
            "push" => Request::Push(of(fields)?),
            "show" => Request::Show(of(fields)?),
            "wait" => Request::Wait(of(fields)?),
            "list" => Request::List(of(fields)?),
            "count" => Request::Count(of(fields)?),
            "last" => Request::Last(of(fields)?),
            "run" => Request::Run(of(fields)?),
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

fn of<T: DeserializeOwned>(fields: Vec<(String, &RawValue)>) -> Result<T, String> {
    T::deserialize(MapDeserializer::new(fields.into_iter())).map_err(|error| no_request(&error))
}

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

    /// Every field of any command, with a valid value.
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
            ("by", json!("key")),
            ("like", json!("a*")),
            ("key", json!("a*")),
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

    /// The fields of each command; the required ones stand before the bar.
    const KNOWN: [(&str, &str); 26] = [
        ("push", "| job jobs timeout_ms"),
        ("show", "| id queue ref"),
        ("wait", "| id queue ref timeout_ms"),
        (
            "list",
            "| queue state tenant kind key status step since_ms until_ms before limit",
        ),
        ("count", "| queue tenant kind"),
        ("last", "by | like queue tenant kind limit"),
        ("run", "kind key | queue tenant"),
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
