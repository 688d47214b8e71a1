//! The protocol between master and preloader: one JSON object per line, over a stream socket that also carries
//! descriptors.

use crate::stack::StackSource;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::path::PathBuf;
use std::time::Duration;

pub const SOCKET: i32 = 3;

/// The exit code if PHP can't start (EX_SOFTWARE, sysexits.h).
pub const EXIT_START_FAILED: i32 = 70;

/// How long a warm-up waits for script names.
pub const WARM_TIMEOUT: Duration = Duration::from_secs(2);

/// The longest output of [`Command::Scripts`], in bytes.
pub const SCRIPTS_BYTES: usize = 60 * 1024;

/// The longest total of paths in [`Answer::Ready`], in bytes.
pub const LOADED_BYTES: usize = 8 * 1024;

/// Messages from the master, each with at least one descriptor. The preloader exits at end of file.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase")]
pub enum Command<Context> {
    /// The first line, sent once. Answered with [`Answer::Ready`] or [`Answer::Error`]. The generation's descriptors
    /// come with the line's first byte.
    Begin {
        #[serde(rename = "kit")]
        context: Context,
        /// [`Command::Warm`] follows. [`Answer::Ready`] waits for it, for at most [`WARM_TIMEOUT`].
        #[serde(default)]
        warms_up: bool,
        /// The process forks workers for any pool and user. The context has no pool or descriptors; each
        /// [`Command::Spawn`] brings its own.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_zygote: bool,
        /// Several pools share the zygote, so slow preparations that make workers cheaper pay off.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_for_many: bool,
    },
    /// Ends a generation's use of a zygote. Answered with [`Answer::Forgotten`].
    Forget { generation: u64 },
    /// Writes the absolute paths of the most-used scripts to the last descriptor, each followed by NUL, most-used
    /// first. No answer.
    Scripts {
        most: u32,
        /// For a zygote: the scripts' generation, whose own process runs the command.
        parcel: Option<Parcel>,
    },
    /// Compiles the scripts named in the pipe (the last descriptor) without running them. No answer. A preloader does
    /// this before it is ready.
    Warm {
        /// For a zygote: the generation, whose own process runs the command. The second-to-last descriptor stays open
        /// until it is done.
        parcel: Option<Parcel>,
    },
    /// Writes the state of PHP's caches to the last descriptor, as [`crate::code_cache::parse`] reads it. A process of
    /// its own writes it. No answer.
    #[serde(rename = "cache-state")]
    CacheState {
        /// For a zygote: the generation with these caches.
        parcel: Option<Parcel>,
    },
    /// Starts a worker. Answered with [`Answer::Ok`] or [`Answer::Error`]. The first byte carries the worker's
    /// descriptors: the stop pipe and, if output is captured, standard output and standard error.
    Spawn {
        /// The master's number for the worker.
        worker: u64,
        slot: u32,
        /// A router sends the worker's connections. The channel is the last descriptor.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_routed: bool,
        /// For a zygote: data and descriptors that precede the worker's own.
        parcel: Option<Parcel>,
    },
}

/// Data that a zygote passes on unread to a generation's process. Descriptors, in order: a memory file with the
/// generation's settings, which only that process reads; the pool's memory; the generation's descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parcel {
    /// The parcel contains the pool's memory: a copy of the memory file from [`Answer::Ready`].
    pub has_memory: bool,
    /// The number of the generation's descriptors.
    #[serde(rename = "kit")]
    pub context: usize,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BootTimes {
    /// Time until the first request, in milliseconds.
    pub boot_ms: u64,
    /// Time of each warm-up request, in milliseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warm_up_ms: Vec<u64>,
    /// How a worker discards a request: `rewind` or `fork`.
    pub isolation: Option<String>,
    /// Why the application must boot for each request instead.
    pub boots_again: Option<String>,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "lowercase")]
pub enum Answer {
    Ready {
        /// For example `8.2.35`.
        version: String,
        extensions: Option<PathBuf>,
        /// Files of loaded extensions, up to [`LOADED_BYTES`] of paths.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        loaded: Vec<PathBuf>,
        /// PHP's `X-Powered-By` header, if enabled.
        powered_by: Option<String>,
        /// PHP doesn't check loaded code for changes.
        #[serde(default)]
        #[serde(alias = "is_code_fixed")]
        is_code_cached: bool,
        /// The layout of its workers' call stacks, if known.
        stack: Option<StackSource>,
        /// From a zygote: the attached memory file is the template of each pool's memory.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        has_memory: bool,
        boot: Option<Box<BootTimes>>,
        /// Servers that the application connected to while loading. Each worker loads the application itself.
        connected_to: Option<String>,
    },
    /// With this configuration, PHP can't be shared by pools of several users. Sent instead of `Ready`; the process
    /// waits to be ended.
    Unfit { reason: String },
    /// Everything before [`Command::Forget`] is done.
    Forgotten { generation: u64 },
    /// From a worker being promoted to a preloader: its process exists.
    Promoted {
        /// The process id, as the worker sees it.
        pid: i32,
    },
    Ok {
        worker: u64,
        /// The process id, as the preloader sees it.
        pid: i32,
    },
    Error {
        /// The worker that could not be started, or `None` if PHP failed to start.
        worker: Option<u64>,
        message: String,
    },
}

#[cfg(test)]
mod tests {
    use super::{Answer, BootTimes, Command, Parcel};

    fn json<T: serde::Serialize>(value: &T) -> String {
        serde_json::to_string(value).unwrap()
    }

    #[test]
    fn commands_are_as_documented() {
        let begin = Command::Begin {
            context: 7,
            warms_up: true,
            is_zygote: false,
            is_for_many: false,
        };
        assert_eq!(json(&begin), r#"{"command":"begin","kit":7,"warms_up":true}"#);
        let scripts: Command<u32> = Command::Scripts {
            most: 3,
            parcel: None,
        };
        assert_eq!(json(&scripts), r#"{"command":"scripts","most":3}"#);
        let warm: Command<u32> = Command::Warm { parcel: None };
        assert_eq!(json(&warm), r#"{"command":"warm"}"#);
        let state: Command<u32> = Command::CacheState { parcel: None };
        assert_eq!(json(&state), r#"{"command":"cache-state"}"#);
        let spawn: Command<u32> = Command::Spawn {
            worker: 5,
            slot: 2,
            is_routed: false,
            parcel: None,
        };
        assert_eq!(json(&spawn), r#"{"command":"spawn","worker":5,"slot":2}"#);
        assert_eq!(
            serde_json::from_str::<Command<u32>>(&json(&spawn)).unwrap(),
            spawn
        );
    }

    #[test]
    fn so_are_those_to_a_zygote() {
        let begin = Command::Begin {
            context: 7,
            warms_up: false,
            is_zygote: true,
            is_for_many: true,
        };
        assert_eq!(
            json(&begin),
            r#"{"command":"begin","kit":7,"warms_up":false,"is_zygote":true,"is_for_many":true}"#
        );
        let parcel = Some(Parcel {
            has_memory: true,
            context: 7,
        });
        let spawn: Command<u32> = Command::Spawn {
            worker: 5,
            slot: 2,
            is_routed: false,
            parcel,
        };
        assert_eq!(
            json(&spawn),
            r#"{"command":"spawn","worker":5,"slot":2,"parcel":{"has_memory":true,"kit":7}}"#
        );
        let scripts: Command<u32> = Command::Scripts { most: 3, parcel };
        assert_eq!(
            json(&scripts),
            r#"{"command":"scripts","most":3,"parcel":{"has_memory":true,"kit":7}}"#
        );
        let warm: Command<u32> = Command::Warm { parcel };
        assert_eq!(
            json(&warm),
            r#"{"command":"warm","parcel":{"has_memory":true,"kit":7}}"#
        );
        let forget: Command<u32> = Command::Forget { generation: 4 };
        assert_eq!(json(&forget), r#"{"command":"forget","generation":4}"#);
        let forgotten = Answer::Forgotten { generation: 4 };
        assert_eq!(json(&forgotten), r#"{"result":"forgotten","generation":4}"#);
        let unfit = Answer::Unfit {
            reason: "a thread".into(),
        };
        assert_eq!(json(&unfit), r#"{"result":"unfit","reason":"a thread"}"#);
    }

    #[test]
    fn answers_are_as_documented() {
        assert_eq!(
            json(&Answer::Ready {
                version: "8.2.35".into(),
                extensions: Some("/usr/lib/php/20220829".into()),
                loaded: vec!["/opt/a.so".into()],
                powered_by: None,
                is_code_cached: false,
                stack: None,
                has_memory: false,
                boot: None,
                connected_to: None,
            }),
            r#"{"result":"ready","version":"8.2.35","extensions":"/usr/lib/php/20220829","loaded":["/opt/a.so"],"is_code_cached":false}"#
        );
        let times = BootTimes {
            boot_ms: 31,
            warm_up_ms: vec![5, 6],
            ..BootTimes::default()
        };
        assert_eq!(json(&times), r#"{"boot_ms":31,"warm_up_ms":[5,6]}"#);
        assert_eq!(
            json(&Answer::Ok { worker: 5, pid: 77 }),
            r#"{"result":"ok","worker":5,"pid":77}"#
        );
        assert_eq!(
            json(&Answer::Promoted { pid: 77 }),
            r#"{"result":"promoted","pid":77}"#
        );
        let error = Answer::Error {
            worker: None,
            message: "no".into(),
        };
        assert_eq!(json(&error), r#"{"result":"error","message":"no"}"#);
        assert_eq!(serde_json::from_str::<Answer>(&json(&error)).unwrap(), error);
    }
}
