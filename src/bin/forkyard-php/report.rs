//! What PHP is: its version, its modules, its settings. forkyard-fpm asks, for its own options of these names.

use crate::preloader::{Error, start_php};
use forkyard::config::{Php, Preloading, RequestSettings};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// EX_SOFTWARE, sysexits.h.
const EXIT_SOFTWARE: u8 = 70;
/// The version that is asked when none is named.
const VERSION: &str = "8.2";

/// What is asked; the numbers are shim.h's.
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

fn try_answer(question: Question) -> Result<bool, Error> {
    let php = start_php(&settings(std::env::args().skip(2)))?;
    Ok(php.report(question as i32))
}

/// `-n`, `-c PATH` and `-d NAME=VALUE`, as in php-fpm.
fn settings(mut arguments: impl Iterator<Item = String>) -> Php {
    let mut php = Php {
        version: VERSION.to_owned(),
        library: None,
        php_ini: None,
        no_php_ini: false,
        scan_dir: None,
        extended_info: false,
        defines: Vec::new(),
        limit_extensions: Vec::new(),
        script_root: None,
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
