//! What php-fpm's files say, resolved as forkyard's keys. The reader of the files has already checked php-fpm's rules.

use super::{pool, whole};
use crate::World;
use crate::draft::GlobalDraft;
use crate::error::Location;
use crate::flat_keys::FlatKeys;
use crate::model::{Config, LogLevel};
use crate::overrides::Overrides;
use crate::report::{Diagnostics, Report};
use std::path::Path;

pub use super::listen::{is_tcp, too_long};

/// A setting from php-fpm's files, under forkyard's key.
#[derive(Debug, Clone)]
pub struct FpmSetting {
    /// The directive. Empty for an option or a fixed value.
    pub name: &'static str,
    pub item: Option<String>,
    /// The dotted key in `[global]` or the pool's table. Empty if there is none.
    pub key: String,
    /// The value. `None` if php-fpm treats it as unset.
    pub value: Option<toml_edit::Value>,
    /// The part of the value that is missing here.
    pub cut: Option<&'static str>,
    /// `None` for a default or an option.
    pub location: Option<Location>,
}

#[derive(Debug)]
pub struct FpmPool<'p> {
    pub name: &'p str,
    pub location: &'p Location,
    pub settings: &'p [FpmSetting],
}

/// Resolves the settings of a file at `path`, and variables that stand for no directive. Returns the messages that
/// php-fpm would print, and the configuration, or `None` if php-fpm would not start. `line_end`: what php-fpm appends to
/// some messages.
pub fn resolve(
    path: &Path,
    global: &[FpmSetting],
    pools: &[FpmPool<'_>],
    world: &dyn World,
    line_end: &'static str,
) -> (Option<Config>, Vec<(LogLevel, String)>) {
    let mut diagnostics = Diagnostics::php_fpm(line_end);
    let overrides = Overrides::of(world);
    let keys = |settings: &[FpmSetting], location: &Location, pool: Option<&str>| {
        let mut keys = FlatKeys::of(settings, location);
        let others = overrides.for_table(pool).filter(|one| one.directive().is_none());
        keys.override_by(others);
        keys
    };
    let mut of_global = keys(global, &Location::of_file(path), None);
    let draft = GlobalDraft::read(&mut of_global, &mut Report::global(&mut diagnostics));
    let read = |pool: &FpmPool<'_>| {
        let keys = keys(pool.settings, pool.location, Some(pool.name));
        let mut report = Report::pool(&mut diagnostics, pool.name);
        pool::read(pool.name.to_owned(), pool.location.clone(), keys, &mut report)
    };
    let texts: Vec<_> = pools.iter().map(read).collect();
    let config = whole(&draft, &texts, None, path, world, &mut diagnostics);
    overrides.finish(&mut diagnostics);
    (config, diagnostics.said())
}
