//! What master and preloader say to each other: one JSON object a line, over a stream socket that can carry
//! descriptors.

use crate::stack::StackSource;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// The descriptor that a preloader finds its end of the socket on.
pub const SOCKET: i32 = 3;

/// The exit code of a preloader that could not start PHP (EX_SOFTWARE, sysexits.h).
pub const EXIT_START_FAILED: i32 = 70;

/// How long a warm-up waits for the names of scripts.
pub const WARM_TIMEOUT: Duration = Duration::from_secs(2);

/// The most bytes that [`Command::Scripts`] writes.
pub const SCRIPTS_BYTES: usize = 60 * 1024;

/// How long the paths in [`Answer::Ready`] may be together, bytes.
pub const LOADED_BYTES: usize = 8 * 1024;

/// From the master. Every line comes with a descriptor at least. End of file: the preloader ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase")]
pub enum Command<Context> {
    /// The first line, once: what workers need, and what PHP needs to start. Answered with [`Answer::Ready`] or
    /// [`Answer::Error`]. the generation's descriptors come with the line's first byte.
    Begin {
        /// What all workers get.
        #[serde(rename = "kit")]
        context: Context,
        /// A [`Command::Warm`] follows; [`Answer::Ready`] waits for it, within [`WARM_TIMEOUT`].
        #[serde(default)]
        warms_up: bool,
        /// The process makes workers of any pool and user: the context has no pool of its own and no descriptors, and each
        /// [`Command::Spawn`] brings the worker's.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_zygote: bool,
        /// Several pools will have workers of that zygote: what makes many workers cheaper is worth its time before the first.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_for_many: bool,
    },
    /// To a zygote: this generation needs no more workers. Answered with [`Answer::Forgotten`].
    Forget {
        /// Its number.
        generation: u64,
    },
    /// Write the absolute paths of the scripts that ran most, the most first, each with a NUL after it, to the last
    /// descriptor. Not answered.
    Scripts {
        /// How many.
        most: u32,
        /// Of a zygote: the generation whose scripts they are. A process of the generation's own does it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parcel: Option<Parcel>,
    },
    /// Compile the scripts that [`Command::Scripts`] writes, and run none. Not answered. The last descriptor is the pipe
    /// that they come from. A preloader does this before it is ready.
    Warm {
        /// Of a zygote: the generation that the scripts are compiled for. A process of the generation's own does it. The
        /// descriptor before the last is open until it is done.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parcel: Option<Parcel>,
    },
    /// Make a worker. Answered with [`Answer::Ok`] or [`Answer::Error`]. Its own descriptors come with the line's first
    /// byte: its stop pipe, and where output is caught, its standard output and standard error.
    Spawn {
        /// The master's number for it.
        worker: u64,
        /// Its slot in the scoreboard.
        slot: u32,
        /// Its connections come from a router, whose channel is the last of its descriptors.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_routed: bool,
        /// Of a zygote: what comes before the worker's own descriptors.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parcel: Option<Parcel>,
    },
}

/// What a zygote passes on unread to a process that it makes for a generation. The descriptors are, in this order: a memory file with the generation's
/// settings, which only that process reads; the pool's memory; the generation's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parcel {
    /// The pool's memory is among them: a copy of what came with [`Answer::Ready`], used by the pool's workers.
    pub has_memory: bool,
    /// How many the generation's are.
    #[serde(rename = "kit")]
    pub context: usize,
}

/// How an application that is to boot once has done so.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BootTimes {
    /// The script, up to its first request; milliseconds.
    pub boot_ms: u64,
    /// Each of the warm-up requests; milliseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warm_up_ms: Vec<u64>,
    /// How a worker gets rid of a request, where it does: `rewind` or `fork`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// It has not booted: each request boots it, for this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boots_again: Option<String>,
}

/// From the preloader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "lowercase")]
pub enum Answer {
    /// PHP is started.
    Ready {
        /// PHP's version, as `8.2.35`.
        version: String,
        /// The directory of PHP's extensions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        extensions: Option<PathBuf>,
        /// The files that extensions were loaded from, [`LOADED_BYTES`] of paths at most.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        loaded: Vec<PathBuf>,
        /// What PHP says of itself in `X-Powered-By`, if it does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        powered_by: Option<String>,
        /// Nothing looks by itself whether code that was loaded has changed since.
        #[serde(default)]
        #[serde(alias = "is_code_fixed")]
        is_code_cached: bool,
        /// Where its workers' calls are; absent: that is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stack: Option<StackSource>,
        /// A zygote: the descriptor that comes along is a memory file, as the memory is that each pool has to have of its own.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        has_memory: bool,
        /// The application has booted, too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        boot: Option<Box<BootTimes>>,
        /// Each worker loads the application: it had connected to these servers when it was loaded before the workers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        connected_to: Option<String>,
    },
    /// Instead: PHP, as it is configured, can't be started once for pools of several users. The process waits for its end.
    Unfit {
        /// Why.
        reason: String,
    },
    /// What came before [`Command::Forget`] is done.
    Forgotten {
        /// Its number.
        generation: u64,
    },
    /// From a worker that was told to make the next preloader, before that is one: the process exists.
    Promoted {
        /// Its process id, as the worker sees it.
        pid: i32,
    },
    /// A worker exists.
    Ok {
        /// The master's number for it.
        worker: u64,
        /// Its process id, as the preloader sees it.
        pid: i32,
    },
    /// What was asked for could not be done.
    Error {
        /// The worker that could not be made; nothing when PHP could not be started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        worker: Option<u64>,
        /// Why.
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
