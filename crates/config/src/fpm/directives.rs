//! The directives of php-fpm's configuration, in the order of the `-tt` dump: that of the table of all settings.

use crate::settings;

pub use crate::settings::{Directive, Form, Shown};

/// Where a directive may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    Global,
    Pool,
}

/// The stored number of a priority that is not set.
pub(super) const NO_PRIORITY: i32 = 64;

/// The directives of a section, in order. `include` is not among them.
pub fn of(section: Section) -> impl Iterator<Item = &'static Directive> {
    settings::directives(section == Section::Global).map(|(directive, _)| directive)
}
