//! The tables of settings as the documentation shows them, for whoever has changed one.

use crate::config::fpm::directives;
use crate::config::settings::{self, Section};
use clap::ValueEnum;

/// A table of the documentation.
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
}

/// It as Markdown.
pub(super) fn table(shown: Shown) -> String {
    match shown {
        Shown::Global => settings::render(Section::Global),
        Shown::Pool => settings::render(Section::Pool),
        Shown::Php => settings::render(Section::Php),
        Shown::Cgi => settings::render_runtime(Section::Cgi),
        Shown::Wrapped => settings::render_runtime(Section::Wrapped),
        Shown::Absent => settings::render_absent(),
        Shown::Fpm => directives::render(),
    }
}
