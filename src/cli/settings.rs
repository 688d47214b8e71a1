//! The samples, and the tables of settings as the documentation shows them, for whoever has changed one.

use crate::config::settings::{self, Section};
use clap::ValueEnum;

/// What is made of the table of settings.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Shown {
    Global,
    Pool,
    Php,
    Cgi,
    Wrapped,
    /// What php-fpm has and forkyard has not.
    Absent,
    /// php-fpm's directives in docs/forkyard-fpm.md.
    Fpm,
    /// conf/forkyard.toml.
    Sample,
    /// conf/php-fpm.conf.
    SampleFpm,
}

/// It as text.
pub(super) fn table(shown: Shown) -> String {
    match shown {
        Shown::Global => settings::render(Section::Global),
        Shown::Pool => settings::render(Section::Pool),
        Shown::Php => settings::render(Section::Php),
        Shown::Cgi => settings::render_runtime(Section::Cgi),
        Shown::Wrapped => settings::render_runtime(Section::Wrapped),
        Shown::Absent => settings::render_absent(),
        Shown::Fpm => settings::render_fpm(),
        Shown::Sample => settings::sample(),
        Shown::SampleFpm => settings::sample_of_php_fpm(),
    }
}
