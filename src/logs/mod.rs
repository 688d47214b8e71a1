//! The daemon's own log, in php-fpm's line format.

mod effects;
mod line;

pub use effects::{Log, LogError, parse_message};
