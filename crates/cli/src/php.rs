//! `forkyard php`: lists the PHP versions, and the packages that missing versions need.

use super::{EXIT_SOFTWARE, program_directory};
use forkyard_runtimes::php::files;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// A version and the path of its libphp.
type Built = (String, Option<String>);

#[derive(Debug, thiserror::Error)]
pub(super) enum PhpError {
    #[error("can't run {path}: {1}", path = .0.display())]
    Program(PathBuf, io::Error),
    #[error("no version of PHP can be run: {0}")]
    NoVersion(String),
}

/// Reads the versions from forkyard-php.
fn ask() -> Result<Vec<Built>, PhpError> {
    let program = program_directory().join("forkyard-php");
    let output = Command::new(&program).arg("--versions").output();
    let output = output.map_err(|error| PhpError::Program(program, error))?;
    Ok(versions(&String::from_utf8_lossy(&output.stdout)))
}

/// Returns a line for each version that forkyard-php supports.
pub(super) fn lines() -> Result<Vec<String>, PhpError> {
    Ok(ask()?.iter().map(shown).collect())
}

fn shown((version, library): &Built) -> String {
    let ini = files::usual_php_ini(version);
    line(version, library.as_deref(), ini.as_deref())
}

/// Returns the newest version with an installed libphp.
pub(super) fn newest_that_runs() -> Result<String, PhpError> {
    let mut built = ask()?.into_iter().filter(|(_, library)| library.is_some());
    let newest = built.next_back().map(|(version, _)| version);
    newest.ok_or_else(|| PhpError::NoVersion(remedy()))
}

fn remedy() -> String {
    let names = Command::new("apt-cache").args(["pkgnames"]).output();
    let names = names.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    what_to_install(&files::libraries(), &names.unwrap_or_default())
}

/// Returns the packages to install, given the installed PHP libraries and apt's package names.
fn what_to_install(libraries: &[String], names: &str) -> String {
    let packaged = |before: &str, after: &str| {
        let versions = names
            .lines()
            .filter_map(|name| name.strip_prefix(before)?.strip_suffix(after));
        newest(versions.map(str::to_owned))
    };
    let version = packaged("forkyard-php", "")
        .or_else(|| newest(libraries.iter().cloned()))
        .or_else(|| packaged("libphp", "-embed"));
    match version {
        Some(version) => format!("install the package forkyard-php{version}, which brings its library"),
        None => {
            "install the package forkyard-phpX.Y of the version X.Y of PHP that this system has packages of"
                .to_owned()
        }
    }
}

fn newest(versions: impl Iterator<Item = String>) -> Option<String> {
    let numbers = |version: &String| {
        let (major, minor) = version.split_once('.')?;
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    };
    versions
        .filter_map(|version| Some((numbers(&version)?, version)))
        .max()
        .map(|(_, version)| version)
}

/// Prints a line for each version. Fails if none can run.
pub(super) fn list() -> ExitCode {
    let built = match ask() {
        Ok(built) => built,
        Err(problem) => {
            eprintln!("forkyard: {problem}");
            return ExitCode::from(EXIT_SOFTWARE);
        }
    };
    let can_run = built.iter().any(|(_, library)| library.is_some());
    built.iter().for_each(|one| println!("{}", shown(one)));
    let known: BTreeSet<&str> = built.iter().map(|(version, _)| version.as_str()).collect();
    for version in files::libraries()
        .iter()
        .filter(|it| !known.contains(it.as_str()))
    {
        println!(
            "{version}: can't be run: forkyard-php was built without its headers; install the package forkyard-php{version}, or \
             build it where php{version}-dev is installed"
        );
    }
    if can_run {
        return ExitCode::SUCCESS;
    }
    eprintln!("forkyard: no version of PHP can be run: {}", remedy());
    ExitCode::from(EXIT_SOFTWARE)
}

/// Parses forkyard-php's output: a line for each version, with libphp's path or `-`.
fn versions(text: &str) -> Vec<Built> {
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs
        .map(|(version, path)| {
            (
                version.to_owned(),
                Some(path.to_owned()).filter(|path| path != "-"),
            )
        })
        .collect()
}

fn line(version: &str, library: Option<&str>, ini: Option<&Path>) -> String {
    let ini = ini.map_or_else(|| "none".to_owned(), |path| path.display().to_string());
    match library {
        Some(path) => format!("{version}: {path}, php.ini: {ini}"),
        None => format!(
            "{version}: can't be run: there is no libphp{version}.so; install it (Debian: libphp{version}-embed)"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_installed_is_what_this_release_has() {
        let says = |libraries: &[&str], names| {
            let libraries: Vec<String> = libraries.iter().map(|it| (*it).to_owned()).collect();
            what_to_install(&libraries, names)
        };
        let of_debian_13 = "php8.4-fpm\nlibphp8.4-embed\nlibphp-embed\nforkyard-python3\n";
        assert!(says(&[], of_debian_13).contains("forkyard-php8.4,"));
        assert!(says(&["8.2"], of_debian_13).contains("forkyard-php8.2,"));
        assert!(says(&["8.2"], "forkyard-php8.9\nforkyard-php8.10\n").contains("forkyard-php8.10,"));
        assert!(says(&[], "").contains("forkyard-phpX.Y"));
    }

    #[test]
    fn each_version_has_a_line() {
        let built = versions("8.2 /usr/lib/libphp8.2.so\n8.4 -\n");
        let lines: Vec<String> = built
            .iter()
            .map(|(version, library)| line(version, library.as_deref(), Some(Path::new("/etc/x/php.ini"))))
            .collect();
        assert_eq!(
            lines,
            [
                "8.2: /usr/lib/libphp8.2.so, php.ini: /etc/x/php.ini",
                "8.4: can't be run: there is no libphp8.4.so; install it (Debian: libphp8.4-embed)",
            ]
        );
    }
}
