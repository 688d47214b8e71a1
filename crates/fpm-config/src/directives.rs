//! php-fpm's directives, in the order of `-tt` and of the settings table.

use forkyard_config::settings;

pub use forkyard_config::settings::{Directive, Form, Shown};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    Global,
    Pool,
}

pub(super) const NO_PRIORITY: i32 = 64;

/// A section's directives in order, without `include`.
pub fn of(section: Section) -> impl Iterator<Item = &'static Directive> {
    settings::directives(section == Section::Global).map(|(directive, _)| directive)
}
