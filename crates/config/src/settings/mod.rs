//! The table of all settings: each with its key in forkyard's configuration, its directive in php-fpm's files, and its
//! meaning.
//!
//! The rows are in the order of php-fpm's `-tt` dump, with forkyard's own keys between them; the documents use this
//! order. The table is the only source for reading and dumping php-fpm's files ([`super::fpm`]), advice about unknown
//! keys, the import, both samples and the tables in the documents. A test compares the drafts with it.

mod application;
mod applications;
mod directive;
mod files;
mod global;
mod jobs;
mod process;
mod render;
mod requests;
mod row;
mod sample;
mod schema;
mod service;
mod workers;

pub use directive::{Directive, Effect, Form, Limit, Shown};
pub use files::{FILES, renewed};
pub use render::{in_php_fpm, render, render_absent, render_fpm, render_runtime};
pub use row::{Absence, Sample, Section, Setting};
pub use sample::{php_fpm as sample_of_php_fpm, toml as sample};
pub use schema::{RUNTIMES, schema};

/// The table, by part.
const PARTS: &[&[Setting]] = &[
    global::ROWS,
    service::ROWS,
    workers::ROWS,
    requests::ROWS,
    process::ROWS,
    application::ROWS,
    applications::ROWS,
    jobs::ROWS,
];

/// All rows, in order.
pub fn rows() -> impl Iterator<Item = &'static Setting> {
    PARTS.iter().copied().flatten()
}

/// All keys, in the order of the documentation.
pub fn all() -> impl Iterator<Item = &'static Setting> {
    rows().filter(|setting| !setting.key.is_empty())
}

/// The keys of a table.
pub fn of(section: Section) -> impl Iterator<Item = &'static Setting> {
    all().filter(move |setting| setting.section == section)
}

/// Returns the directives of php-fpm's global section (`is_global`) or pool sections with their rows, in the order of
/// the `-tt` dump.
pub fn directives(is_global: bool) -> impl Iterator<Item = (&'static Directive, &'static Setting)> {
    rows()
        .filter(move |setting| (setting.section == Section::Global) == is_global)
        .filter_map(|setting| setting.directive.as_ref().map(|directive| (directive, setting)))
}

/// Returns forkyard's name for a directive of php-fpm's global section (`is_global`) or pool sections.
pub fn of_directive(name: &str, is_global: bool) -> Option<&'static Setting> {
    directives(is_global)
        .find(|(directive, _)| directive.name == name)
        .map(|(_, setting)| setting)
        .filter(|setting| !setting.key.is_empty())
}

/// Returns why forkyard has no key for a directive.
pub fn absence(name: &str) -> Option<&'static Absence> {
    rows()
        .filter(|setting| setting.directive.is_some_and(|directive| directive.name == name))
        .find_map(|setting| setting.absence.as_ref())
}
