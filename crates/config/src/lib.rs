//! Configuration: what the operator wrote, turned into what it means.
//!
//! TOML text becomes drafts (what was written, with the place of every key), drafts become the model (what it means).
//! A [`Config`] that exists has passed every rule. All diagnostics are collected, so that one run names all mistakes.
//! [`settings`] is the table of all keys and of php-fpm's directives; [`fpm`] reads php-fpm's own files, and [`import`] makes TOML of them.
//! Questions about the machine are asked through [`World`]; only `effects.rs` answers them for real. This part knows
//! no other part but the plain options of [`forkyard_core::applications`].
#![forbid(unsafe_code)]

pub mod access;
mod application;
mod applications;
mod changes;
mod check;
pub mod cron;
mod descriptors;
pub mod difference;
pub mod dotenv;
mod draft;
mod effective;
mod effects;
mod error;
mod flat_keys;
pub mod fpm;
mod fpm_setting;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod glob;
pub mod import;
mod jobs;
mod known;
mod main_file;
mod memory;
mod model;
mod overrides;
mod path_pattern;
pub mod php;
mod postgresql;
mod report;
mod resolve;
pub mod settings;
pub mod sharing;
pub mod site;
mod skip;
mod source;
mod start_settings;
#[cfg(test)]
mod tests;
mod units;
mod value;
mod watch;
mod world;

use std::collections::HashMap;

pub use access::AccessLog;
pub use application::*;
pub use applications::{Applications, FALLBACK_USER, OWN_USER};
pub use check::{EXIT_INVALID, check};
pub use descriptors::{Descriptors, descriptors};
pub use effects::{Host, control_socket, control_variable, effective, has_pools, load};
pub use error::{Diagnostic, Errors, Kind, Location, Severity};
pub use fpm_setting::FpmSetting;
pub use jobs::*;
pub use main_file::{SYSTEM, SYSTEM_CONTROL};
pub use model::*;
pub use path_pattern::PathPattern;
pub use postgresql::{ClientCertificate, Encryption, PostgresqlServer, Roots, SslMode, UrlMistake};
pub use resolve::parse;
pub use skip::Skipped;
pub use start_settings::{LeftOut, StartSetting, Trial};
pub use units::duration;
pub use watch::{Watched, missing_directory, watched};
pub use world::{UserIds, World};

/// A valid configuration and what was noticed on the way.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// What the file means.
    pub config: Config,
    /// What was found, in the order of the text: warnings, and the errors of pools that are skipped.
    pub warnings: Vec<Diagnostic>,
    /// Where the pools say what they run, by the pools' names.
    pub locations: HashMap<String, Location>,
    /// Where they say where they listen.
    pub listens: HashMap<String, Location>,
}
