//! The table of settings: each key of forkyard's configuration, its php-fpm directive, and their meaning.
//!
//! Rows are in the order of php-fpm's `-tt` dump; keys that php-fpm lacks are placed where they fit. php-fpm's files,
//! advice about unknown keys, the import, both samples and the documents' tables use this table.
//! Each section also has its draft: the keys as written.

mod applications;
mod directive;
mod files;
mod global;
mod jobs;
mod php;
mod pool;
mod render;
mod row;
mod runtimes;
mod sample;
mod schema;
mod sections;

pub(crate) use applications::ApplicationsDraft;
pub(crate) use global::GlobalDraft;
pub(crate) use jobs::{JobQueueDraft, JobScheduleDraft, JobsDraft};
pub(crate) use php::PhpDraft;
pub(crate) use pool::PoolDraft;
pub(crate) use runtimes::*;

pub use directive::{Directive, Effect, Form, Limit, Shown};
pub use files::{FILES, renewed};
pub use row::{Absence, Sample, Setting};
pub use sample::{php_fpm as sample_of_php_fpm, toml as sample};
pub use schema::schema;
pub(crate) use sections::of_runtime;
pub use sections::{About, Section};

/// All rows, in order.
pub fn rows() -> impl Iterator<Item = &'static Setting> {
    Section::ALL.into_iter().flat_map(Section::rows)
}

/// All keys, in the order of the documentation.
pub fn all() -> impl Iterator<Item = &'static Setting> {
    rows().filter(|setting| !setting.key.is_empty())
}

/// The rows of a table's keys.
pub fn of(section: Section) -> impl Iterator<Item = &'static Setting> {
    all().filter(move |setting| setting.section == section)
}

/// The keys of a table.
pub(crate) fn keys(section: Section) -> Vec<&'static str> {
    of(section).map(|setting| setting.key).collect()
}

/// Returns the directives of php-fpm's global section (`is_global`) or of its pools, with their rows, in the order of
/// the dump.
pub fn directives(is_global: bool) -> impl Iterator<Item = (&'static Directive, &'static Setting)> {
    rows()
        .filter(move |setting| (setting.section == Section::Global) == is_global)
        .filter_map(|setting| setting.directive.as_ref().map(|directive| (directive, setting)))
}

/// Returns the reason why a directive has no key.
pub fn absence(name: &str) -> Option<&'static Absence> {
    rows()
        .filter(|setting| setting.directive.is_some_and(|directive| directive.name == name))
        .find_map(|setting| setting.absence.as_ref())
}
