//! `forkyard import`: a php-fpm configuration as TOML.

use super::{EXIT_CONFIG, EXIT_SOFTWARE};
use crate::config::fpm::{Journal, Line, Options};
use crate::config::import::import;
use crate::config::{self, Host, LogLevel};
use clap::Args;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The TOML was written, and something is not in it.
const EXIT_INCOMPLETE: u8 = 1;

/// What is imported, and where to.
#[derive(Debug, Args)]
pub(super) struct Import {
    /// php-fpm's configuration file. Default: /etc/php/VERSION/fpm/php-fpm.conf of the newest PHP that there is. The
    /// version in the path is the one that the pools get
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// File to write; it must not be there yet. Default: standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// php-fpm's -p: what relative paths are relative to
    #[arg(short, long, value_name = "DIRECTORY")]
    prefix: Option<String>,
    /// php-fpm's -g: the pid file, unless the configuration names one
    #[arg(short = 'g', long, value_name = "FILE")]
    pid: Option<String>,
    /// php-fpm's -c: php.ini, or the directory that it is in
    #[arg(short = 'c', long, value_name = "PATH")]
    php_ini: Option<PathBuf>,
    /// php-fpm's -R: pools may run as root
    #[arg(short = 'R', long)]
    allow_to_run_as_root: bool,
    /// php-fpm's -D: go to the background
    #[arg(short = 'D', long, overrides_with = "nodaemonize")]
    daemonize: bool,
    /// php-fpm's -F: stay in the foreground
    #[arg(short = 'F', long, overrides_with = "daemonize")]
    nodaemonize: bool,
}

impl Import {
    fn options(&self) -> Options {
        Options {
            config: (self.file.as_ref()).map(|path| path.to_string_lossy().into_owned()),
            prefix: self.prefix.clone(),
            pid: self.pid.clone(),
            allow_root: self.allow_to_run_as_root,
            daemonize: match (self.daemonize, self.nodaemonize) {
                (true, _) => Some(true),
                (false, true) => Some(false),
                (false, false) => None,
            },
            php_ini: self.php_ini.clone(),
            ..Options::default()
        }
    }
}

/// Writes the TOML, and to standard error what is not in it.
pub(super) fn run(arguments: &Import) -> ExitCode {
    let host = Host::default();
    let imported = import(&arguments.options(), &host);
    tell(&imported.journal);
    let Some(text) = imported.text else {
        return ExitCode::from(EXIT_CONFIG);
    };
    for lost in &imported.lost {
        eprintln!("{lost}");
    }
    if let Err(error) = write(arguments.output.as_deref(), &text) {
        let name = arguments
            .output
            .as_deref()
            .unwrap_or(Path::new("standard output"));
        eprintln!("write {}: {error}", name.display());
        return ExitCode::from(EXIT_SOFTWARE);
    }
    let name = arguments.output.as_deref().unwrap_or(Path::new("-"));
    let problems = config::parse(&text, name, &host).err();
    if let Some(errors) = &problems {
        eprintln!("{errors}");
    }
    let is_whole = imported.lost.is_empty() && problems.is_none();
    ExitCode::from(if is_whole { 0 } else { EXIT_INCOMPLETE })
}

/// What php-fpm says of its file, if it is a warning or worse.
fn tell(journal: &Journal) {
    for line in &journal.lines {
        match line {
            Line::Log(level, text) if *level >= LogLevel::Warning => {
                eprintln!("{}", text.trim_end());
            }
            Line::Log(..) => {}
            Line::Php(text) => eprintln!("{text}"),
        }
    }
}

fn write(path: Option<&Path>, text: &str) -> std::io::Result<()> {
    match path {
        Some(path) => File::create_new(path)?.write_all(text.as_bytes()),
        None => std::io::stdout().write_all(text.as_bytes()),
    }
}
