//! `forkyard import`: converts a php-fpm configuration to TOML.

use super::output::refuse;
use super::{EXIT_CONFIG, EXIT_SOFTWARE};
use clap::Args;
use forkyard_config::{self as config, Host, LogLevel};
use forkyard_fpm_config::import::{apart, import};
use forkyard_fpm_config::{Journal, Line, Options};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The TOML was written, but is incomplete.
const EXIT_INCOMPLETE: u8 = 1;

/// The source and the target of the import.
#[derive(Debug, Args)]
pub(super) struct Import {
    /// php-fpm's configuration file. Default: /etc/php/VERSION/fpm/php-fpm.conf of the newest PHP that there is. The
    /// version in the path is the one that the pools get
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// File to write; it must not be there yet. Default: standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Directory for one file per pool, NAME.toml, in place of one file for all; global settings go to -o
    #[arg(long, value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
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

/// Writes the TOML, and reports the missing settings to standard error.
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
    let written = match &arguments.directory {
        Some(directory) => write_apart(directory, arguments.output.as_deref(), &text),
        None => write(arguments.output.as_deref(), &text).map_err(|error| {
            let output = arguments.output.as_deref();
            (output.unwrap_or(Path::new("standard output")).to_owned(), error)
        }),
    };
    if let Err((name, error)) = written {
        refuse(&with_remedy(error), &name.display().to_string());
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

/// Adds a remedy to an error.
fn with_remedy(error: io::Error) -> io::Error {
    let remedy = match error.kind() {
        io::ErrorKind::AlreadyExists => {
            "move it away, or name another file with -o; --directory /etc/forkyard/pools adds pools to the \
             existing configuration"
        }
        io::ErrorKind::NotFound => "make its directory, or name another file",
        io::ErrorKind::PermissionDenied => "give this command as root, or name another file",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {remedy}"))
}

/// Prints warnings and errors of the php-fpm file.
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

/// Writes each pool to its own file, and `[global]`, which includes them, to `output`. Removes these files on an error.
fn write_apart(directory: &Path, output: Option<&Path>, text: &str) -> Result<(), (PathBuf, io::Error)> {
    let parts = apart(text, directory).map_err(|error| (directory.to_owned(), io::Error::other(error)))?;
    let mut done: Vec<PathBuf> = Vec::new();
    for (name, text) in parts {
        let path = match (&name, output) {
            (Some(name), _) => directory.join(format!("{}.toml", name.replace('/', "_"))),
            (None, Some(output)) => output.to_owned(),
            (None, None) => continue,
        };
        if let Err(error) = write(Some(&path), &text) {
            // Files that existed before are not in `done`.
            done.iter().for_each(|path| drop(fs::remove_file(path)));
            return Err((path, error));
        }
        done.push(path);
    }
    Ok(())
}

fn write(path: Option<&Path>, text: &str) -> std::io::Result<()> {
    match path {
        Some(path) => File::create_new(path)?.write_all(text.as_bytes()),
        None => {
            print!("{text}");
            Ok(())
        }
    }
}
