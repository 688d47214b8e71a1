//! Prints the samples and renews the documents' tables of settings, for developers.

use clap::ValueEnum;
use forkyard_config::settings;
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// A file that is generated from the settings.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Shown {
    /// conf/forkyard.toml.
    Sample,
    /// conf/php-fpm.conf.
    SampleFpm,
}

/// Shows a part, or brings the files of a source tree up to date.
pub(super) fn run(part: Option<Shown>, tree: Option<&Path>) -> ExitCode {
    if let Some(part) = part {
        print!("{}", text(part));
    }
    let Some(tree) = tree else {
        return ExitCode::SUCCESS;
    };
    for file in settings::FILES {
        let path = tree.join(file);
        if let Err(error) = renew(file, &path) {
            eprintln!("{}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Brings a file up to date. One that is made as a whole need not be there.
fn renew(file: &str, path: &Path) -> io::Result<()> {
    let old = match fs::read_to_string(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        text => text.unwrap_or_default(),
    };
    let missing = || io::Error::other("there is no table to replace");
    fs::write(path, settings::renewed(file, &old).ok_or_else(missing)?)
}

fn text(shown: Shown) -> String {
    match shown {
        Shown::Sample => settings::sample(),
        Shown::SampleFpm => settings::sample_of_php_fpm(),
    }
}
