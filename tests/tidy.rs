//! The house rules that a machine can check: who may know whom, where unsafe code may be, how long a file may be.

use std::fs;
use std::path::{Path, PathBuf};

/// Lines of a file.
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

/// Every file of Rust below a folder: its path there, and its text.
fn files(folder: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files = Vec::new();
    rust_files(&root, &mut files);
    let name = |path: &Path| path.strip_prefix(&root).expect("below it").display().to_string();
    let text = |path: &Path| fs::read_to_string(path).expect("UTF-8");
    files.iter().map(|path| (name(path), text(path))).collect()
}

/// Every file below `src/`, without comments.
fn sources() -> Vec<(String, String)> {
    let without_comments = |text: String| {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let files = files("src").into_iter();
    files.map(|(name, text)| (name, without_comments(text))).collect()
}

/// The text before the unit tests.
fn program(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

#[test]
fn no_file_is_too_long() {
    for folder in ["src", "tests", "examples"] {
        for (name, text) in files(folder) {
            let lines = text.lines().count();
            assert!(
                lines <= MOST_LINES,
                "{folder}/{name} has {lines} lines: two things live in one room"
            );
        }
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

/// What touches the world.
const WORLD: [&str; 9] = [
    "crate::sys",
    "libc::",
    "nix::",
    "mio::",
    "std::fs",
    "std::net::Tcp",
    "std::os::unix::net",
    "std::process",
    "std::thread",
];

/// Parts that decide and do nothing themselves, and which of their files are not so, apart from those named `effects`.
const PURE: [(&str, &[&str]); 7] = [
    ("applications/", &[]),
    ("config/", &[]),
    ("estate/", &[]),
    ("fastcgi/", &[]),
    (
        "master/",
        &[
            "master/run.rs",
            "master/orders.rs",
            "master/commands.rs",
            "master/mod.rs",
        ],
    ),
    ("spawn/", &["spawn/run.rs", "spawn/setupper/"]),
    ("status/", &[]),
];

/// A part, and what it may not know: other parts, and crates.
const STRANGERS: [(&str, &str); 19] = [
    (
        "applications/",
        "master worker config spawn router scout scoreboard",
    ),
    ("config/", "master worker spawn router runtime scoreboard"),
    ("confine/", "master spawn router runtime"),
    ("control/", "master worker spawn router runtime"),
    ("estate/", "master worker"),
    ("fastcgi/", "master worker config spawn router runtime scoreboard"),
    ("helper/", "master spawn"),
    ("listen/", "master worker spawn router runtime scoreboard"),
    ("logs/", "master worker spawn router runtime scoreboard"),
    ("reporter/", "master spawn router runtime"),
    ("router/", "master"),
    ("runtime/", "master"),
    ("scoreboard/", "master worker config"),
    ("scout/", "master worker router runtime scoreboard"),
    ("slowlog/", "master worker config nix:: std::fs"),
    ("spawn/", "master worker config"),
    ("status/", "master worker config scoreboard"),
    (
        "sys/",
        "master worker config listen scoreboard spawn router runtime",
    ),
    ("worker/", "master"),
];

/// A file of unit tests, or one whose name says that it touches the world.
fn is_edge(name: &str) -> bool {
    name.contains("test") || name.ends_with("effects.rs") || name.contains("/effects/")
}

#[test]
fn what_decides_does_not_touch_the_world() {
    for (name, text) in sources() {
        let pure = PURE.iter().find(|(part, _)| name.starts_with(part));
        let is_pure = pure.is_some_and(|(_, others)| !others.iter().any(|other| name.starts_with(other)));
        if !is_pure || is_edge(&name) {
            continue;
        }
        let named = WORLD.iter().find(|word| program(&text).contains(*word));
        assert!(
            named.is_none(),
            "src/{name} is pure and names {}",
            named.unwrap_or(&"")
        );
    }
}

#[test]
fn parts_know_only_whom_they_may() {
    for (name, text) in sources() {
        let text = program(&text);
        let knows = |stranger: &&str| match stranger.contains("::") {
            true => text.contains(*stranger),
            false => text.contains(&format!("crate::{stranger}")),
        };
        for (part, strangers) in STRANGERS {
            if name.starts_with(part) && !is_edge(&name) {
                let known = strangers.split(' ').find(knows);
                assert!(known.is_none(), "src/{name} names {}", known.unwrap_or(""));
            }
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

/// The functions that the documents name as tests: in the last column of one table, and wherever security is promised.
fn named_tests() -> Vec<String> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let document = |name: &str| fs::read_to_string(docs.join(name)).expect("the document");
    let differences = document("reference/php-fpm-differences.md");
    let rows = differences
        .lines()
        .filter_map(|line| line.strip_suffix("` |")?.rsplit_once("| `"));
    let security = document("explain/security.md");
    let is_sentence = |word: &&str| {
        let is_name = word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        is_name && word.matches('_').count() >= 3
    };
    let quoted = security.split('`').skip(1).step_by(2).filter(is_sentence);
    rows.map(|(_, name)| name)
        .chain(quoted)
        .map(str::to_owned)
        .collect()
}

/// A document that names a test names one that is there.
#[test]
fn tests_that_are_named_exist() {
    let files = ["tests", "src"].map(files).concat();
    let code: String = files.into_iter().map(|(_, text)| text).collect();
    let names = named_tests();
    assert!(names.len() > 80, "{} tests are named", names.len());
    for name in names {
        assert!(code.contains(&format!("fn {name}(")), "there is no test {name}");
    }
}

/// The documents, by their paths.
fn documents() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.to_owned()];
    let docs = fs::read_dir(root.join("docs")).expect("docs");
    folders.extend(docs.map(|entry| entry.expect("an entry").path()));
    let entries = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).expect("a folder"));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let paths = paths.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let name = |path: &Path| path.strip_prefix(root).expect("below it").display().to_string();
    paths
        .map(|path| (name(&path), fs::read_to_string(&path).expect("a document")))
        .collect()
}

/// What a document has between backquotes, outside of its blocks.
fn quoted(text: &str) -> Vec<String> {
    let prose: String = text.split("```").step_by(2).collect();
    prose.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// A file or folder of the repository that a document names is there.
#[test]
fn files_that_documents_name_exist() {
    const FOLDERS: [&str; 7] = [
        "benches/",
        "conf/",
        "crates/",
        "examples/",
        "scripts/",
        "src/",
        "tests/",
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut named = 0;
    for (document, text) in documents() {
        for word in quoted(&text) {
            let file = word.split([' ', ':']).next().unwrap_or_default();
            let is_file = FOLDERS.iter().any(|folder| file.starts_with(folder));
            if is_file && !file.contains(['{', '*', '<']) {
                named += 1;
                assert!(root.join(file).exists(), "{document} names {file}");
            }
        }
    }
    assert!(named > 50, "{named} files are named");
}

/// The table that tells where something is decided names files and functions that are there.
#[test]
fn what_is_decided_is_decided_where_the_table_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/explain/architecture.md")).expect("the document");
    let (_, table) = text
        .split_once("\n## Where is what decided\n")
        .expect("the table");
    let rows: Vec<&str> = table
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(2)
        .collect();
    assert!(rows.len() > 20, "{} rows", rows.len());
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').rsplitn(3, " | ").map(str::trim).collect();
        let (function, file) = (cells[0].trim_matches('`'), cells[1].trim_matches('`'));
        let code = fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let has = code.contains(&format!("fn {function}(")) || code.contains(&format!("fn {function}<"));
        assert!(has, "{file} has no function {function}: {row}");
    }
}
