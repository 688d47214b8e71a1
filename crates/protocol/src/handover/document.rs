//! The document: what only the master knows.
//!
//! Sockets, pipes and scoreboards go over by descriptor; settings come from the configuration. Here is what connects them.

use super::changes::Changes;
use crate::address::Address;
use crate::counters::PoolCounters;
use crate::last_reload::LastReload;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// The version that this program writes, and the only one that it reads.
pub const VERSION: u32 = 1;

/// The whole document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// [`VERSION`].
    pub version: u32,
    /// The program that wrote it, for the log: `0.1.0`.
    pub program: String,
    /// The process that wrote it.
    pub master: i32,
    /// The daemon is ending.
    pub stopping: Option<Stopping>,
    /// Soft and hard limit on descriptors as the first master was started with.
    pub descriptor_limit: Option<(u64, u64)>,
    /// The last numbers that were given to a pool and a generation.
    pub last_pool: u32,
    pub last_generation: u32,
    /// When the configuration was read last, and what became of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reload: Option<LastReload>,
    /// The pools that are open.
    pub pools: Vec<Pool>,
    /// The generations that have, or had, a process.
    pub generations: Vec<Generation>,
}

/// How the daemon ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stopping {
    /// After the requests that run.
    Finish,
    /// Now.
    Terminate,
}

/// One pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    pub id: u32,
    pub name: String,
    /// Where it listens, as configured.
    pub address: Address,
    /// Device and inode of its socket's file, if this daemon made it.
    pub file: Option<(u64, u64)>,
    /// Where its workers speak HTTP besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpSocket>,
    /// The generation that serves.
    pub serving: Option<u32>,
    /// It has a hand-off queue.
    pub has_queue: bool,
    /// What it has counted, without the generations below.
    #[serde(default)]
    #[serde(rename = "tally")]
    pub counters: PoolCounters,
}

/// The socket at which a pool's workers speak HTTP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpSocket {
    /// Where it is, as configured.
    pub address: Address,
    /// Device and inode of its file, if this daemon made it.
    pub file: Option<(u64, u64)>,
}

/// One generation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generation {
    pub id: u32,
    /// Its pool's number; the pool may be closed.
    pub pool: u32,
    /// Its pool's name.
    pub name: String,
    /// When it began, seconds since 1970.
    pub started: u64,
    /// Slots of its scoreboard.
    pub slots: u32,
    /// It has no process, and of its descriptors only the scoreboard.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rests: bool,
    /// Its workers that exist, as far as it is known.
    pub workers: Vec<Worker>,
    /// The processes of its program that are up, if it has one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<Program>,
    /// How many places its program has for processes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub places: u32,
}

fn is_none_yet(count: &u64) -> bool {
    *count == 0
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A process of a program that speaks HTTP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    pub place: u32,
    pub pid: i32,
    /// When that process started, as with workers.
    pub start_time: u64,
    /// What it has in its environment and no other has; its descendants inherit it.
    pub mark: String,
    /// How often its place has had another process before.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub restarts: u64,
    /// Its sockets in the file system.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<SocketFile>,
}

/// A unix socket that goes with the process that has made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketFile {
    pub path: PathBuf,
    /// Whose it is.
    pub uid: u32,
    /// Device, number, and when it was made, nanoseconds since 1970: another at the same path differs.
    pub mark: (u64, u64, i64),
}

/// One worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Worker {
    pub id: u64,
    pub slot: u32,
    pub pid: i32,
    /// When that process started, clock ticks since boot (proc(5), field 22): another process with the same number has
    /// another.
    pub start_time: u64,
    /// When it was asked for, nanoseconds on the monotonic clock.
    pub begun: u64,
    /// It has called accept.
    pub up: bool,
    /// How it was told to go, and when.
    pub told: Option<(StopRequest, u64)>,
    /// Its output is caught.
    pub output: bool,
}

/// How a worker was told to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StopRequest {
    /// To finish.
    Retire,
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
}

/// Why a document can't be read.
#[derive(Debug)]
pub enum DocumentError {
    /// The bytes around it are wrong.
    Frame(super::frame::FrameError),
    /// It is of another version.
    Version(u32),
    /// It is not what it should be.
    Json(serde_json::Error),
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DocumentError::Frame(error) => error.fmt(f),
            DocumentError::Version(version) => write!(f, "it has version {version}, not {VERSION}"),
            DocumentError::Json(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DocumentError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            DocumentError::Frame(error) => Some(error),
            DocumentError::Json(error) => Some(error),
            DocumentError::Version(_) => None,
        }
    }
}

impl Document {
    /// The document as bytes, without a frame.
    pub fn encode(&self) -> Vec<u8> {
        // Serialising plain values to memory can't fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a document without its frame.
    ///
    /// # Errors
    /// The bytes are no document, or one of a version that is not known.
    pub fn decode(bytes: &[u8]) -> Result<Document, DocumentError> {
        /// The one thing that every version has.
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

    /// Reads the newer of two copies in frames, with the [`Changes`] that stand behind it; that one of them is spoilt is no
    /// error.
    ///
    /// # Errors
    /// Neither copy can be read.
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
