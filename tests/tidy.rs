//! The house rules that a machine can check: who may know whom, where unsafe code may be, how long a file may be.

use std::fs;
use std::path::{Path, PathBuf};

/// Lines of a file, tests apart.
const MOST_LINES: usize = 600;

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory)
        .expect("a directory")
        .map_while(Result::ok)
    {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Every file below `src/`: its path there, and its text without comments.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&root, &mut files);
    let name = |path: &Path| path.strip_prefix(&root).expect("below src").display().to_string();
    let code = |path: &Path| {
        let text = fs::read_to_string(path).expect("UTF-8");
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        lines.collect::<Vec<_>>().join("\n")
    };
    files.iter().map(|path| (name(path), code(path))).collect()
}

/// The text before the unit tests.
fn program(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

#[test]
fn no_file_is_too_long() {
    for (name, text) in sources() {
        let lines = program(&text).lines().count();
        assert!(
            lines <= MOST_LINES,
            "src/{name} has {lines} lines: two things live in one room"
        );
    }
}

#[test]
fn unsafe_code_is_where_it_may_be() {
    const ALLOWED: [&str; 4] = ["sys/", "abi/", "bin/forkyard-php/", "master/effects/births.rs"];
    for (name, text) in sources() {
        let allowed = ALLOWED.iter().any(|place| name.starts_with(place));
        let has_unsafe = program(&text).contains("unsafe {") || program(&text).contains("unsafe fn");
        assert!(allowed || !has_unsafe, "src/{name} has unsafe code");
    }
}

#[test]
fn parts_know_only_whom_they_may() {
    // A part, and what none of its pure files may name.
    const WORLD: [&str; 6] = [
        "crate::sys",
        "nix::",
        "mio::",
        "std::fs",
        "std::net::Tcp",
        "std::process",
    ];
    const RULES: [(&str, &[&str]); 9] = [
        ("spawn/", &["crate::master", "crate::worker", "crate::config"]),
        (
            "fastcgi/",
            &[
                "crate::sys",
                "crate::master",
                "crate::worker",
                "crate::config",
                "nix::",
                "libc::",
                "std::fs",
            ],
        ),
        (
            "status/",
            &[
                "crate::sys",
                "crate::master",
                "crate::worker",
                "crate::scoreboard",
                "nix::",
                "std::fs",
            ],
        ),
        (
            "config/",
            &["crate::sys", "crate::master", "crate::worker", "nix::", "mio::"],
        ),
        ("worker/", &["crate::master"]),
        (
            "slowlog/",
            &[
                "crate::master",
                "crate::worker",
                "crate::config",
                "nix::",
                "std::fs",
            ],
        ),
        (
            "scoreboard/",
            &["crate::master", "crate::worker", "crate::config"],
        ),
        ("runtime/", &["crate::master"]),
        (
            "sys/",
            &[
                "crate::master",
                "crate::worker",
                "crate::config",
                "crate::listen",
                "crate::scoreboard",
            ],
        ),
    ];
    for (name, text) in sources() {
        let text = program(&text);
        if name.contains("test") || name.ends_with("effects.rs") || name.contains("/effects/") {
            continue;
        }
        for (part, forbidden) in RULES {
            let named = forbidden
                .iter()
                .find(|word| name.starts_with(part) && text.contains(*word));
            assert!(named.is_none(), "src/{name} names {}", named.unwrap_or(&""));
        }
        let kit =
            name.starts_with("spawn/") && name != "spawn/run.rs" && !name.starts_with("spawn/setupper/");
        let master = name.starts_with("master/")
            && ![
                "master/run.rs",
                "master/orders.rs",
                "master/commands.rs",
                "master/mod.rs",
            ]
            .contains(&name.as_str());
        if master || kit {
            let named = WORLD.iter().find(|word| text.contains(*word));
            assert!(
                named.is_none(),
                "src/{name} is pure and names {}",
                named.unwrap_or(&"")
            );
        }
    }
}

#[test]
fn nothing_is_left_to_do() {
    const WORDS: [&str; 4] = ["TODO", "FIXME", "todo!(", "unimplemented!("];
    for (name, text) in sources() {
        let found = WORDS.iter().find(|word| text.contains(*word));
        assert!(
            found.is_none(),
            "src/{name} has {}: do it, or file it",
            found.unwrap_or(&"")
        );
    }
}

/// A document that names a test names one that is there.
#[test]
fn tests_that_are_named_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    rust_files(&root.join("tests"), &mut files);
    rust_files(&root.join("src"), &mut files);
    let code: String = files
        .iter()
        .map(|path| fs::read_to_string(path).expect("UTF-8"))
        .collect();
    let path = root.join("docs/php-fpm-differences.md");
    let text = fs::read_to_string(path).expect("the document");
    let rows = text
        .lines()
        .filter_map(|line| line.strip_suffix("` |")?.rsplit_once("| `"));
    let names: Vec<&str> = rows.map(|(_, name)| name).collect();
    assert!(names.len() > 20, "the table is there");
    for name in names {
        assert!(code.contains(&format!("fn {name}(")), "there is no test {name}");
    }
}
