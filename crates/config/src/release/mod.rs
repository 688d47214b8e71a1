//! The release that a generation of a pool serves: what its settings and requests name there.

mod map;
mod request;
mod settings;

pub use map::{LAST, Map, Mapped, MappedList, NEXT, beside};
pub use request::{Request, after_proxy, map_request};
use serde::{Deserialize, Serialize};
pub use settings::in_release;
use std::path::PathBuf;
use std::time::Duration;

pub const DEFAULT_STEPS: [u8; 3] = [1, 10, 50];
pub const DEFAULT_STEP_TIME: Duration = Duration::from_secs(20);

/// How a pool finds its release, and gets another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// The link to the release in service.
    pub link: PathBuf,
    /// The parts of the requests, in percent, that a new release gets before it gets all.
    pub gradual: Vec<u8>,
    /// How long it gets each part.
    pub step_time: Duration,
    /// Directories for all releases, where links of a release may lead to scripts.
    #[serde(default)]
    pub shared: Vec<PathBuf>,
}
