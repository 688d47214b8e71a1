//! Plain values that every part knows: time, what is due, whose an application is, what a descriptor is, what to do about an
//! error, how bytes are written in URLs, and how others' text is shown.
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
