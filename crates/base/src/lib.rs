//! Basic types and helpers without system calls: time, timers, text, encodings, file identities, error hints.
#![forbid(unsafe_code)]

pub mod base64;
pub mod descriptor;
pub mod indexed;
pub mod origin;
pub mod percent;
pub mod remedy;
pub mod spread;
pub mod text;
pub mod tick;
pub mod timers;
