//! Reads configuration files and resolves them.
//!
//! TOML becomes drafts (keys as written, with places), and drafts become the model. A [`Config`] is always valid. All
//! errors are collected, so that one run reports them all. [`settings`] is the table of all keys and php-fpm
//! directives. The crate `fpm-config` reads php-fpm's files with it, with [`overrides`] and with [`units`], and has
//! [`php_fpm`] resolve them. Access to the machine goes through [`World`], implemented in `host.rs`.
#![forbid(unsafe_code)]

pub mod access;
mod application;
mod applications;
mod changes;
mod check;
mod control_groups;
pub mod cron;
mod descriptors;
pub mod difference;
pub mod dotenv;
mod draft;
mod effective;
mod error;
mod flat_keys;
#[cfg(any(test, fuzzing))]
#[path = "../fuzz/targets.rs"]
pub mod fuzz;
mod glob;
mod host;
mod jobs;
mod known;
mod lanes;
mod machine;
mod main_file;
mod memory;
mod model;
mod overload;
pub mod overrides;
mod path_pattern;
pub mod php;
mod postgresql;
pub mod release;
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
pub mod units;
mod value;
mod watch;
mod world;

use std::collections::HashMap;

pub use access::AccessLog;
pub use application::*;
pub use applications::{Applications, FALLBACK_USER, OWN_USER};
pub use check::{EXIT_INVALID, check};
pub use descriptors::{Descriptors, descriptors};
pub use error::{Diagnostic, Errors, Kind, Location, Severity};
pub use host::{
    Host, control_socket, control_variable, effective, has_pools, jobs_socket, load, node_command,
    open_at_once, resources, written_places,
};
pub use jobs::*;
pub use lanes::{LaneRule, Lanes, wordpress_lanes};
pub use machine::Resources;
pub use main_file::{SYSTEM, SYSTEM_CONTROL};
pub use model::*;
pub use overload::{Abandoned, Overload, QueueTime};
pub use path_pattern::PathPattern;
pub use postgresql::{ClientCertificate, Encryption, PostgresqlServer, Roots, SslMode, UrlMistake};
pub use resolve::node::NoCommand;
pub use resolve::{can_be_named, parse, php_fpm};
pub use skip::Skipped;
pub use start_settings::{LeftOut, StartSetting, Trial};
pub use watch::{Watched, missing_directory, watched};
pub use world::{UserIds, World, WorldError};

#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    pub config: Config,
    /// In text order: warnings, and the errors of skipped pools.
    pub warnings: Vec<Diagnostic>,
    /// The places of the pools' application settings, by pool name.
    pub locations: HashMap<String, Location>,
    /// The places of a pool's keys that the check of the machine can reject, by pool name.
    pub places: HashMap<String, Vec<(&'static str, Location)>>,
}

impl Loaded {
    /// The place of a pool's key, or of its application settings.
    pub fn place(&self, pool: &str, key: &str) -> Option<&Location> {
        let mut known = self.places.get(pool).into_iter().flatten();
        let found = known.find(|(name, _)| *name == key).map(|(_, location)| location);
        found.or_else(|| self.locations.get(pool))
    }
}
