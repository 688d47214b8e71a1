//! The hand-over document: the master's state that neither descriptors nor the configuration contain.

use super::changes::Changes;
use super::names::QueueKind;
use crate::address::Address;
use crate::counters::PoolCounters;
use crate::last_reload::LastReload;
use crate::last_upgrade::LastUpgrade;
use crate::past_event::PastEvent;
use crate::release::Deployment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The version written, and the only version read.
pub const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    pub version: u32,
    /// The version of the program that wrote it, such as `0.1.0`, for the log.
    pub program: String,
    pub master: i32,
    pub stopping: Option<Stopping>,
    /// Soft and hard descriptor limit at the first master's start.
    pub descriptor_limit: Option<(u64, u64)>,
    /// The highest pool and generation numbers so far.
    pub last_pool: u32,
    pub last_generation: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reload: Option<LastReload>,
    /// Reports of crashes, at an upgrade. Their form is that of the writing program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub crashes: Vec<serde_json::Value>,
    /// The figures of pools' autopilots, at an upgrade.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub autopilots: Vec<SavedAutopilot>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_upgrade: Option<LastUpgrade>,
    /// When the first master started, in seconds since 1970.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub started: u64,
    /// What happened so far, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<PastEvent>,
    pub pools: Vec<SavedPool>,
    /// Generations with present or past processes.
    pub generations: Vec<SavedGeneration>,
}

/// The figures of a pool's autopilot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SavedAutopilot {
    pub pool: String,
    /// The number of the figures' form; a program ignores other forms than its own.
    pub form: u32,
    pub learnt: serde_json::Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stopping {
    Finish,
    Terminate,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedPool {
    pub id: u32,
    pub name: String,
    pub address: Address,
    /// Device and inode of its socket file, if this daemon created it.
    pub file: Option<(u64, u64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpSocket>,
    pub serving: Option<u32>,
    pub has_queue: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_lanes: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_turns: bool,
    /// Counters of generations that are gone.
    #[serde(default)]
    #[serde(rename = "tally")]
    pub counters: PoolCounters,
    /// The release that it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<PathBuf>,
    /// The releases of an application pool's applications, by their links.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sites: BTreeMap<PathBuf, PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_deployment: Option<Box<Deployment>>,
    /// The workers that exited last, if the pool has none now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub had: Option<Had>,
}

impl SavedPool {
    /// Whether the pool has queues of a kind.
    pub fn has(&self, kind: QueueKind) -> bool {
        match kind {
            QueueKind::HandOff => self.has_queue,
            QueueKind::Lanes => self.has_lanes,
            QueueKind::Turns => self.has_turns,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Had {
    /// When the last worker exited, in nanoseconds of the monotonic clock.
    pub left_at: u64,
    /// A number for the files that started their preloader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<u64>,
    /// Whether they kept loaded code without checking its files for changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_code_cached: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpSocket {
    pub address: Address,
    /// Device and inode of its file, if this daemon created it.
    pub file: Option<(u64, u64)>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedGeneration {
    pub id: u32,
    /// The pool's number; the pool may be closed already.
    pub pool: u32,
    pub name: String,
    /// Start time, in seconds since 1970.
    pub started: u64,
    pub slots: u32,
    /// Whether the generation has no process, and no descriptor but the scoreboard's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rests: bool,
    /// Workers that are alive.
    pub workers: Vec<SavedWorker>,
    /// The processes of the pool's program that have started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<SavedProgram>,
    /// The release that it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<PathBuf>,
    /// Its turn queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u8>,
    /// The number of places for its program's processes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub places: u32,
}

fn is_none_yet(count: &u64) -> bool {
    *count == 0
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedProgram {
    pub place: u32,
    pub pid: i32,
    /// The process's start time, as in [`SavedWorker`].
    pub start_time: u64,
    /// A unique mark in its environment, inherited by descendants.
    pub mark: String,
    /// Earlier processes in its place.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub restarts: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<SocketFile>,
}

/// A unix socket file that is removed with the process that created it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketFile {
    pub path: PathBuf,
    pub uid: u32,
    /// Device, inode and creation time (nanoseconds since 1970), which identify this file.
    pub mark: (u64, u64, i64),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedWorker {
    pub id: u64,
    pub slot: u32,
    pub pid: i32,
    /// Start time in clock ticks since boot (proc(5), field 22). It distinguishes processes with the same id.
    pub start_time: u64,
    /// When it was requested, in nanoseconds of the monotonic clock.
    pub begun: u64,
    /// Whether the worker has called accept(2).
    pub up: bool,
    /// The last stop request and its time.
    pub told: Option<(StopRequest, u64)>,
    pub output: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StopRequest {
    Retire,
    Terminate,
    Kill,
}

#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error(transparent)]
    Frame(#[from] super::frame::FrameError),
    #[error("it has version {0}, not {VERSION}")]
    Version(u32),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl Document {
    pub fn encode(&self) -> Vec<u8> {
        // Serialising plain values to memory can't fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Decodes an unframed document.
    ///
    /// # Errors
    /// The bytes are invalid or have an unknown version.
    pub fn decode(bytes: &[u8]) -> Result<Document, DocumentError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let versioned: Versioned = serde_json::from_slice(bytes).map_err(DocumentError::Json)?;
        if versioned.version != VERSION {
            return Err(DocumentError::Version(versioned.version));
        }
        serde_json::from_slice(bytes).map_err(DocumentError::Json)
    }

    /// Reads the newer of two framed copies and the [`Changes`] after it. One of the copies may be damaged.
    ///
    /// # Errors
    /// Both copies are unreadable.
    pub fn newest(copies: [&[u8]; 2]) -> Result<Document, DocumentError> {
        let [first, second] = copies.map(super::frame::decode_all);
        let bodies = match (first, second) {
            (Ok((one, bodies)), Ok((other, _))) if one >= other => bodies,
            (_, Ok((_, bodies))) | (Ok((_, bodies)), Err(_)) => bodies,
            (Err(error), Err(_)) => return Err(DocumentError::Frame(error)),
        };
        let Some((whole, changes)) = bodies.split_first() else {
            return Err(DocumentError::Frame(super::frame::FrameError::Short));
        };
        let document = Document::decode(whole)?;
        Changes::decode_all(changes)
            .map(|changes| document.with(changes))
            .map_err(DocumentError::Json)
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame;
    use super::*;

    fn sample() -> Document {
        let text = r#"{"version":1,"program":"0.1.0","master":77,"stopping":null,"descriptor_limit":[1024,4096],
            "last_pool":1,"last_generation":4,
            "pools":[{"id":1,"name":"www","address":{"Unix":"/run/www.sock"},"file":[1,2],"serving":4,
                "has_queue":true,"tally":{}}],
            "generations":[{"id":4,"pool":1,"name":"www","started":9,"slots":3,"programs":[],"places":0,
                "workers":[{"id":0,"slot":0,"pid":100,"start_time":1000,"begun":5,"up":true,"told":null,"output":false}]}]}"#;
        Document::decode(text.as_bytes()).unwrap()
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let document = sample();
        assert_eq!(Document::decode(&document.encode()).unwrap(), document);
    }

    #[test]
    fn the_newer_copy_counts_if_it_is_whole() {
        let (mut old, new) = (sample(), sample());
        old.master = 1;
        let (one, two) = (frame::encode(8, &old.encode()), frame::encode(9, &new.encode()));
        assert_eq!(Document::newest([&one, &two]).unwrap().master, 77);
        assert_eq!(Document::newest([&two, &one]).unwrap().master, 77);
        let mut torn = two.clone();
        torn[40] ^= 1;
        assert_eq!(Document::newest([&one, &torn]).unwrap().master, 1);
        assert_eq!(Document::newest([&torn, &one]).unwrap().master, 1);
        assert!(Document::newest([&torn, b""]).is_err());
    }

    #[test]
    fn another_version_or_another_shape_is_refused() {
        let text = String::from_utf8(sample().encode()).unwrap();
        let other = text.replace("\"version\":1", "\"version\":2,\"new\":true");
        assert!(matches!(
            Document::decode(other.as_bytes()),
            Err(DocumentError::Version(2))
        ));
        for (from, to) in [
            ("\"master\":77,", ""),
            ("\"master\":77", "\"master\":77,\"boss\":1"),
            ("\"slots\":3", "\"slots\":-3"),
        ] {
            assert!(
                Document::decode(text.replace(from, to).as_bytes()).is_err(),
                "{from}"
            );
        }
    }
}
