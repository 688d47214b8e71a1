//! What passes between the master and a router: JSON, one value a message, over a socket of type `SOCK_SEQPACKET`.
//!
//! The master takes what a router says for what it is worth: numbers that it does not know, or too many of anything, are
//! answered or logged and have no effect.

use crate::origin::Origin;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// Most bytes of a message.
pub const MOST_BYTES: usize = 64 * 1024;

/// From the router to the master.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToMaster {
    /// Start an instance. Ends in [`ToRouter::Up`], [`ToRouter::Failed`] or [`ToRouter::Gone`].
    Spawn {
        /// Its number in the pool, higher than all before.
        instance: u64,
        /// The application: its real root.
        application: PathBuf,
        /// How often the application was restarted: an instance of a higher number needs code that is loaded anew.
        #[serde(rename = "generation")]
        restarts: u32,
    },
    /// Stop an instance. Ends in [`ToRouter::Gone`] (or `Failed`).
    Stop {
        /// Its number.
        instance: u64,
        /// With SIGKILL.
        kill: bool,
    },
    /// The answer to [`ToRouter::AdminRequest`].
    Done {
        /// The request's number.
        #[serde(rename = "order")]
        admin_request: u64,
        /// The result.
        result: Result<Value, String>,
    },
    /// After [`ToRouter::Finish`]: nothing is left, the router ends.
    Finished,
}

/// From the master to the router.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToRouter {
    /// The first message, and again when the configuration has changed. The first time with two descriptors: the listening
    /// socket, and a socket to the inspector.
    Settings(Box<crate::config::Pool>),
    /// An instance that runs already; before `Begin`. With its channel.
    Running(Instance),
    /// All that runs is told; numbers from here on are free.
    Begin {
        /// The first number that no instance has had.
        next: u64,
    },
    /// An instance is up. With its channel.
    Up(Instance),
    /// It could not be started, and nothing is left of it.
    Failed {
        /// Its number.
        instance: u64,
        /// The id that visitors are told: the log has it, and `forkyard error` explains it.
        error: String,
        /// The report as a page, where visitors may see it.
        page: Option<String>,
    },
    /// Its process is gone, wanted or not.
    Gone {
        /// Its number.
        instance: u64,
    },
    /// Something an operator wants; answered with [`ToMaster::Done`]. On the wire it is an order, as in the
    /// first versions.
    #[serde(rename = "order")]
    AdminRequest {
        /// The request's number.
        #[serde(rename = "order")]
        admin_request: u64,
        /// What.
        what: AdminRequest,
    },
    /// Take no new connections, end when what waits is served; after the time, if one is given, in any case.
    Finish(Option<Duration>),
}

/// A running instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Its number in the pool.
    pub instance: u64,
    /// The application: its real root.
    pub application: PathBuf,
    /// As in [`ToMaster::Spawn`].
    #[serde(rename = "generation")]
    pub restarts: u32,
    /// Its process.
    pub pid: i32,
    /// The version of its code, as [`crate::inspector::protocol::FoundApplication`] has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// What it was made of, as [`crate::inspector::protocol::FoundApplication`] has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// What becomes at a restart of an application that has no instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unstarted {
    /// Its next request starts it.
    Stays,
    /// It is started.
    Starts,
    /// It is started if it belongs to this user.
    StartsFor(u32),
}

/// What an operator can want of a router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdminRequest {
    /// The pool, for the status.
    View,
    /// Restart an application.
    Restart {
        /// Its root.
        application: PathBuf,
        /// One instance after the other; `None`: as the application's settings say.
        rolling: Option<bool>,
        /// What happens to one that has no instance.
        unstarted: Unstarted,
    },
    /// Take the instance with this pid out of service.
    Detach {
        /// Its pid.
        pid: i32,
    },
    /// Give the instance no requests, or some again.
    Disable {
        /// Its pid.
        pid: i32,
        /// Or enable it.
        enable: bool,
    },
    /// The pool's total is another one.
    SetMax {
        /// At least 1.
        max: u32,
    },
    /// Check an instance out for exclusive use: its pid, and a lease to return it by.
    Take {
        /// The application's root, or the name of a group.
        of: String,
        /// How long to wait.
        #[serde(rename = "patience")]
        wait: Option<Duration>,
    },
    /// Take an instance back that was checked out.
    Return {
        /// The lease.
        lease: u64,
        /// It is well; otherwise it is replaced.
        ok: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A router is executed from the program that is on disk then, so master and router may be of different versions.
    #[test]
    fn restarts_have_the_name_on_the_wire_that_they_always_had() {
        let spawn = ToMaster::Spawn {
            instance: 1,
            application: PathBuf::from("/srv/shop"),
            restarts: 3,
        };
        let text = r#"{"spawn":{"instance":1,"application":"/srv/shop","generation":3}}"#;
        assert_eq!(serde_json::to_string(&spawn).expect("JSON"), text);
        let up = r#"{"up":{"instance":1,"application":"/srv/shop","generation":3,"pid":7}}"#;
        match serde_json::from_str(up) {
            Ok(ToRouter::Up(instance)) => assert_eq!(instance.restarts, 3),
            other => panic!("{other:?}"),
        }
    }
}
