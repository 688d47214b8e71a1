//! Basic types and helpers without system calls: time, timers, text, file identities, error hints,
//! buckets of histograms.
#![forbid(unsafe_code)]

pub mod descriptor;
pub mod ended;
pub mod indexed;
pub mod openmetrics;
pub mod origin;
pub mod remedy;
pub mod scale;
pub mod spread;
pub mod text;
pub mod tick;
pub mod timers;
