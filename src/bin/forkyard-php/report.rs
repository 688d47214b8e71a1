//! What PHP is: its version, its modules, its settings; forkyard-fpm asks, for its own options of these names. And which
//! versions of PHP can be run.

use crate::ffi::SHIMS;
use crate::preloader::{Error, start_php};
use forkyard::config::php::newest;
use forkyard::config::{Php, Preloading, RequestSettings};
use forkyard::runtime::php::files;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// EX_SOFTWARE, sysexits.h.
const EXIT_SOFTWARE: u8 = 70;

/// What is asked of PHP; the numbers are shim.h's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    Version = 0,
    Modules = 1,
    Info = 2,
}

/// The question on the command line, if there is one.
pub(crate) fn asked() -> Option<Question> {
    match std::env::args().nth(1)?.as_str() {
        "--version" => Some(Question::Version),
        "--modules" => Some(Question::Modules),
        "--info" => Some(Question::Info),
        _ => None,
    }
}

/// Starts PHP and lets it answer.
pub(crate) fn answer(question: Question) -> ExitCode {
    match try_answer(question) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_SOFTWARE),
        Err(error) => {
            eprintln!("forkyard-php: {error}");
            ExitCode::from(EXIT_SOFTWARE)
        }
    }
}

/// Shows a line for each version that there is a shim for: the version, and where its libphp is (`-`: nowhere).
pub(crate) fn versions() -> ExitCode {
    for shim in SHIMS {
        let library = files::library(shim.version);
        let path = library.as_deref().unwrap_or(Path::new("-"));
        println!("{} {}", shim.version, path.display());
    }
    ExitCode::SUCCESS
}

fn try_answer(question: Question) -> Result<bool, Error> {
    let php = start_php(&settings(std::env::args().skip(2)), None)?;
    Ok(php.report(question as i32))
}

/// `-n`, `-c PATH` and `-d NAME=VALUE`, as in php-fpm; `--php VERSION`: of which PHP.
fn settings(mut arguments: impl Iterator<Item = String>) -> Php {
    let mut php = Php {
        version: newest().to_owned(),
        library: None,
        php_ini: None,
        no_php_ini: false,
        scan_dir: None,
        extended_info: false,
        binary: None,
        defines: Vec::new(),
        limit_extensions: Vec::new(),
        request_settings: RequestSettings::All,
        php_value: Vec::new(),
        php_admin_value: Vec::new(),
        preloader_idle_timeout: Duration::ZERO,
        start_timeout: Duration::ZERO,
        warm_up: 0,
        warm_up_time: Duration::ZERO,
        preloading: Preloading::Own,
    };
    while let Some(option) = arguments.next() {
        match option.as_str() {
            "-n" => php.no_php_ini = true,
            "-c" => php.php_ini = arguments.next().map(PathBuf::from),
            "--php" => php.version = arguments.next().unwrap_or(php.version),
            "--binary" => php.binary = arguments.next().map(PathBuf::from),
            "--scan" => php.scan_dir = arguments.next(),
            "-d" => {
                let define = arguments.next().unwrap_or_default();
                if let Some((name, value)) = define.split_once('=') {
                    php.defines.push((name.to_owned(), value.to_owned()));
                }
            }
            _ => {}
        }
    }
    php
}
