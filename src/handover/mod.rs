//! What a master leaves to the next one: which pools, generations and workers there are, and which descriptor is what.
//!
//! A master hands it over when it replaces its own program (an upgrade), and keeps it up to date with a keeper, or a
//! service manager with a descriptor store, so that another can go on where it was killed. Either way it is the same
//! [`document`], inside the same [`frame`], and [`plan`] decides what of it is to be believed. Those three are plain values;
//! `effects` collects what a process was given. Knows nothing of the master: what is done with it is decided there.

mod effects;
pub mod plan;

pub use effects::{InheritedState, VARIABLES, collect, publish, rehearse};
pub use forkyard_protocol::handover::{changes, document, frame, names};
