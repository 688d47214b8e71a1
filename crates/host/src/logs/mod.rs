//! The daemon's log, and opening of other logs.

mod diagnostics;
#[cfg(any(test, fuzzing))]
#[path = "../../fuzz/logs.rs"]
pub(crate) mod fuzz;
mod gathered;
mod handout;
mod line;
mod writer;

pub use diagnostics::diagnose;
pub use handout::Handout;
pub use writer::{Log, LogError, Speaker, open_file, parse_message, stream_of, streams_of};
