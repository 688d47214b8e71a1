//! Plain values that every part knows: time, what is due, whose an application is, what a descriptor is, and what to do
//! about an error.
#![forbid(unsafe_code)]

pub mod descriptor;
pub mod indexed;
pub mod origin;
pub mod remedy;
pub mod spread;
pub mod tick;
pub mod timers;
