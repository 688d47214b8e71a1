//! Configuration: what the operator wrote, turned into what it means.
//!
//! TOML text becomes drafts (what was written, with the place of every key), drafts become the model (what it means).
//! A [`Config`] that exists has passed every rule. All findings are collected, so that one run names all mistakes.
//! [`settings`] is the table of all keys and of php-fpm's directives; [`fpm`] reads php-fpm's own files, and [`import`] makes TOML of them.
//! Questions about the machine are asked through [`World`]; only `effects.rs` answers them for real. This part knows
//! no other part but the plain options of [`forkyard_core::applications`].
#![forbid(unsafe_code)]

pub mod access;
mod application;
mod applications;
mod changes;
mod check;
mod draft;
mod effects;
mod error;
pub mod fpm;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod glob;
pub mod import;
mod known;
mod leaves;
mod model;
pub mod php;
mod report;
mod resolve;
mod said;
pub mod settings;
pub mod sharing;
pub mod site;
mod skip;
mod source;
#[cfg(test)]
mod tests;
mod units;
mod value;
mod world;

use std::collections::HashMap;

pub use access::AccessLog;
pub use application::*;
pub use applications::{Applications, FALLBACK_USER, OWN_USER};
pub use check::{EXIT_INVALID, check};
pub use effects::{Host, control_socket, load};
pub use error::{Errors, Finding, Kind, Place, Severity};
pub use model::*;
pub use resolve::parse;
pub use said::Said;
pub use skip::Skipped;
pub use units::duration;
pub use world::{UserIds, World};

/// A valid configuration and what was noticed on the way.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// What the file means.
    pub config: Config,
    /// What was found, in the order of the text: warnings, and the errors of pools that are skipped.
    pub warnings: Vec<Finding>,
    /// Where the pools say what they run, by the pools' names.
    pub places: HashMap<String, Place>,
}
