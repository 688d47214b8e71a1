//! Clients' requests: each command has its own fields, and unknown fields are refused.

use super::NewJob;
use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_with::skip_serializing_none;
use std::fmt;

/// Why a client's line is no request.
#[derive(Debug, thiserror::Error)]
pub enum NoRequest {
    #[error("this is no request: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("this is no request: command is missing")]
    NoCommand,
    #[error("there is no command \"{}\"; there are {}", .0, COMMANDS.join(", "))]
    UnknownCommand(String),
}

/// `secret`: the first request of a TCP connection.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretRequest {
    pub command: String,
    pub secret: String,
}

/// One row a command: its name, and its fields.
macro_rules! commands {
    ($($name:literal => $variant:ident($fields:ident),)*) => {
        /// The commands, in the order of the error message that lists them.
        pub const COMMANDS: &[&str] = &[$($name),*];

        #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
        #[serde(tag = "command")]
        pub enum JobsRequest {
            $(#[serde(rename = $name)] $variant($fields),)*
        }

        impl JobsRequest {
            fn read(command: String, fields: Vec<(String, &RawValue)>) -> Result<JobsRequest, NoRequest> {
                match command.as_str() {
                    $($name => of(fields).map(JobsRequest::$variant),)*
                    _ => Err(NoRequest::UnknownCommand(command)),
                }
            }
        }
    };
}

commands! {
    "push" => Push(PushRequest),
    "show" => Show(JobName),
    "wait" => Wait(WaitRequest),
    "list" => List(ListRequest),
    "count" => Count(CountRequest),
    "last" => Last(LastRequest),
    "run" => Run(RunRequest),
    "retry" => Retry(Selected),
    "cancel" => Cancel(Selected),
    "discard" => Discard(Selected),
    "purge" => Purge(Selected),
    "pause" => Pause(PauseRequest),
    "resume" => Resume(QueueName),
    "progress" => Progress(ProgressRequest),
    "queues" => Queues(Nothing),
    "stats" => Stats(Nothing),
    "schedules" => Schedules(Nothing),
    "run-now" => RunNow(RunNow),
    "kinds" => Kinds(Nothing),
    "connections" => Connections(Nothing),
    "sequence-begin" => SequenceBegin(SequenceBegin),
    "sequence-add" => SequenceAdd(SequenceAdd),
    "sequence-end" => SequenceEnd(SequenceName),
    "sequence-show" => SequenceShow(SequenceName),
    "sequence-cancel" => SequenceCancel(SequenceName),
    "sequence-list" => SequenceList(SequenceList),
}

/// The fields of commands. Others are refused.
macro_rules! fields {
    ($($(#[$about:meta])* pub struct $name:ident $fields:tt)*) => {$(
        $(#[$about])*
        #[skip_serializing_none]
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name $fields
    )*};
}

fields! {
    pub struct PushRequest {
        pub job: Option<NewJob>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub jobs: Vec<NewJob>,
        /// The time limit of the store; `push_timeout` of `[jobs]` by default.
        pub timeout_ms: Option<u64>,
    }

    pub struct JobName {
        pub id: Option<i64>,
        pub queue: Option<String>,
        #[serde(rename = "ref")]
        pub reference: Option<String>,
    }

    pub struct WaitRequest {
        pub id: Option<i64>,
        pub queue: Option<String>,
        #[serde(rename = "ref")]
        pub reference: Option<String>,
        pub timeout_ms: Option<u64>,
    }

    pub struct ListRequest {
        pub queue: Option<String>,
        pub state: Option<String>,
        pub tenant: Option<String>,
        pub kind: Option<String>,
        pub key: Option<String>,
        pub status: Option<String>,
        pub step: Option<String>,
        /// Only jobs pushed at this time or later, milliseconds since 1970.
        pub since_ms: Option<i64>,
        pub until_ms: Option<i64>,
        pub before: Option<i64>,
        pub limit: Option<u32>,
    }

    pub struct LastRequest {
        pub by: String,
        pub like: Option<String>,
        pub queue: Option<String>,
        pub tenant: Option<String>,
        pub kind: Option<String>,
        pub limit: Option<u32>,
    }

    pub struct RunRequest {
        pub kind: String,
        pub key: String,
        pub queue: Option<String>,
        pub tenant: Option<String>,
    }

    pub struct CountRequest {
        pub queue: Option<String>,
        pub tenant: Option<String>,
        pub kind: Option<String>,
    }

    /// The jobs of `retry`, `cancel`, `discard` and `purge`: one by its number or by its queue and `ref`; or all in a
    /// state, optionally of one queue, tenant and kind.
    pub struct Selected {
        pub id: Option<i64>,
        #[serde(rename = "ref")]
        pub reference: Option<String>,
        pub state: Option<String>,
        pub queue: Option<String>,
        pub tenant: Option<String>,
        pub kind: Option<String>,
    }

    pub struct PauseRequest {
        pub queue: String,
        pub reason: Option<String>,
    }

    pub struct QueueName {
        pub queue: String,
    }

    pub struct ProgressRequest {
        pub id: i64,
        pub attempt: u32,
        pub percent: u32,
        #[serde(default, skip_serializing_if = "String::is_empty")]
        pub text: String,
    }

    pub struct RunNow {
        pub schedule: String,
    }

    pub struct Nothing {}

    pub struct SequenceBegin {
        pub queue: String,
        pub name: Option<String>,
        pub total: Option<u64>,
    }

    pub struct SequenceAdd {
        pub id: i64,
        pub from: u64,
        pub jobs: Vec<NewJob>,
    }

    pub struct SequenceName {
        pub id: i64,
    }

    pub struct SequenceList {
        pub limit: Option<u32>,
    }
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
    /// It is no request.
    pub fn read(line: &'l [u8]) -> Result<RequestLine<'l>, NoRequest> {
        let Fields(mut fields) = serde_json::from_slice(line)?;
        let at = fields.iter().position(|(name, _)| name == "command");
        let (_, word) = fields.swap_remove(at.ok_or(NoRequest::NoCommand)?);
        let command = serde_json::from_str(word.get())?;
        Ok(RequestLine { command, fields })
    }

    pub fn command(&self) -> &str {
        &self.command
    }

    /// Parses the request.
    ///
    /// # Errors
    /// It is refused; the error is for the client.
    pub fn request(self) -> Result<JobsRequest, NoRequest> {
        JobsRequest::read(self.command, self.fields)
    }
}

fn of<T: DeserializeOwned>(fields: Vec<(String, &RawValue)>) -> Result<T, NoRequest> {
    Ok(T::deserialize(MapDeserializer::new(fields.into_iter()))?)
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

    fn read(line: &str) -> Result<JobsRequest, NoRequest> {
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
                    Err(error) => {
                        let why = error.to_string();
                        assert!(!is_known, "{line}: {why}");
                        assert!(why.contains(&format!("unknown field `{field}`")), "{line}: {why}");
                    }
                }
            }
            for missing in &needed {
                let names: Vec<&str> = needed.iter().copied().filter(|name| name != missing).collect();
                let why = read(&with(&names)).expect_err(command).to_string();
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
            let why = read(line).expect_err(line).to_string();
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

    #[test]
    fn an_absent_value_is_left_out() {
        let text = |value: serde_json::Result<String>| value.expect("JSON");
        let count = JobsRequest::Count(CountRequest::default());
        assert_eq!(text(serde_json::to_string(&count)), r#"{"command":"count"}"#);
        let changed = super::super::JobsAnswer::Changed {
            count: 1,
            ending: 0,
            held: None,
        };
        assert_eq!(
            text(serde_json::to_string(&changed)),
            r#"{"result":"changed","count":1,"ending":0}"#
        );
    }
}
