//! The daemon's log, and opening of other logs.

mod diagnostics;
mod effects;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod gathered;
mod handout;
mod line;

pub use diagnostics::diagnose;
pub use effects::{Log, LogError, Speaker, open_file, parse_message, stream_of, streams_of};
pub use handout::Handout;
