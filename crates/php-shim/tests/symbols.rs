//! Checks that the shim uses only symbols that every release of its PHP version has.
//!
//! By default it checks the built-in shims. scripts/php-versions sets `FORKYARD_SHIM_DIR` to files of more versions
//! (`8.2-20220829.so`), and `FORKYARD_LIBPHP_DIR` to the oldest libphp of each (`libphp8.2.so`).

use forkyard_php_shim::SHIMS;
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const LIST: &str = include_str!("../symbols.txt");

type Version = (u32, u32);

fn version(text: &str) -> Version {
    let (major, minor) = text.split_once('.').expect("a version has two numbers");
    (major.parse().expect("a number"), minor.parse().expect("a number"))
}

fn allowed(wanted: Version) -> BTreeSet<&'static str> {
    let lines = LIST.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| match line.split_once(' ') {
            Some((name, since)) => (version(since) <= wanted).then_some(name),
            None => Some(line),
        })
        .collect()
}

fn symbols(library: &Path, option: &str) -> Vec<(String, String)> {
    let output = Command::new("nm")
        .args(["--dynamic", "--format=posix", option])
        .arg(library)
        .output()
        .expect("nm of binutils, which comes with the compiler");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "nm {}", library.display());
    text.lines()
        .map(|line| {
            let mut columns = line.split(' ').map(str::to_owned);
            (
                columns.next().unwrap_or_default(),
                columns.next().unwrap_or_default(),
            )
        })
        .collect()
}

/// A shim's undefined symbols. C library names have a version after an @.
fn used(shim: &Path) -> Vec<String> {
    let symbols = symbols(shim, "--undefined-only").into_iter();
    let used: Vec<String> = symbols
        .filter(|(name, kind)| kind == "U" && !name.contains('@'))
        .map(|(name, _)| name)
        .collect();
    assert!(!used.is_empty(), "{} uses nothing of libphp", shim.display());
    used
}

fn shims(directory: &Path) -> Vec<(Version, PathBuf)> {
    if let Some(files) = env::var_os("FORKYARD_SHIM_DIR") {
        let entries = fs::read_dir(files).expect("FORKYARD_SHIM_DIR is a directory");
        return entries
            .map(|entry| {
                let path = entry.expect("an entry").path();
                let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
                (version(name.split('-').next().expect("a part")), path)
            })
            .collect();
    }
    let files = SHIMS.iter().map(|shim| {
        let path = directory.join(format!("{}-{}.so", shim.version, shim.api));
        fs::write(&path, shim.object).expect("a file in CARGO_TARGET_TMPDIR");
        (version(shim.version), path)
    });
    files.collect()
}

#[test]
fn a_shim_uses_only_symbols_that_every_release_of_its_php_has() {
    for (version, shim) in shims(Path::new(env!("CARGO_TARGET_TMPDIR"))) {
        let allowed = allowed(version);
        let others: Vec<String> = used(&shim)
            .into_iter()
            .filter(|name| !allowed.contains(name.as_str()))
            .collect();
        assert!(
            others.is_empty(),
            "{} uses {others:?}, which symbols.txt does not have. Add a symbol there only if the first release of PHP {version:?} \
             exports it",
            shim.display()
        );
    }
}

#[test]
#[ignore = "scripts/php-versions fetches the libraries and runs it"]
fn the_oldest_libphp_has_what_a_shim_uses() {
    let libraries = env::var_os("FORKYARD_LIBPHP_DIR").expect("FORKYARD_LIBPHP_DIR");
    for (version, shim) in shims(Path::new(env!("CARGO_TARGET_TMPDIR"))) {
        let library = Path::new(&libraries).join(format!("libphp{}.{}.so", version.0, version.1));
        let exported: BTreeSet<String> = symbols(&library, "--defined-only")
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        let missing: Vec<String> = used(&shim)
            .into_iter()
            .filter(|name| !exported.contains(name))
            .collect();
        assert!(
            missing.is_empty(),
            "{} lacks {missing:?}, which {} uses",
            library.display(),
            shim.display()
        );
    }
}

#[test]
fn every_listed_symbol_is_listed_once_and_in_order() {
    let names: Vec<&str> = LIST
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(
        names.is_sorted_by(|one, next| one < next),
        "symbols.txt is sorted"
    );
}
