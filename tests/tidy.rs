//! The repository's own rules: dependencies, unsafe code, file lengths, documents.

mod messages;
mod parts;
mod prose;
mod questions;
mod writers;

use std::fs;
use std::path::{Path, PathBuf};

const SOURCES: [&str; 3] = ["src", "crates", "tools"];
const MOST_LINES: usize = 600;

fn root_text(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{file}: {error}"))
}

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

fn files(folder: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files = Vec::new();
    rust_files(&root, &mut files);
    let name = |path: &Path| path.strip_prefix(&root).expect("below it").display().to_string();
    let text = |path: &Path| fs::read_to_string(path).expect("UTF-8");
    files.iter().map(|path| (name(path), text(path))).collect()
}

fn sources() -> Vec<(String, String)> {
    let without_comments = |text: String| {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let of = |folder: &str| {
        let files = files(folder).into_iter();
        files
            .map(move |(name, text)| (format!("{folder}/{name}"), text))
            .collect::<Vec<_>>()
    };
    let files = SOURCES.map(of).concat().into_iter();
    files.map(|(name, text)| (name, without_comments(text))).collect()
}

fn program(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

#[test]
fn no_file_is_too_long() {
    for folder in ["src", "crates", "tools", "tests", "examples"] {
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
    const ALLOWED: [&str; 5] = [
        "crates/sys/",
        "crates/rewind/",
        "crates/runtimes/src/abi/",
        "crates/php/",
        "crates/daemon/src/workers/fork.rs",
    ];
    for (name, text) in sources() {
        let allowed = ALLOWED.iter().any(|place| name.starts_with(place));
        let has_unsafe = program(&text).contains("unsafe {") || program(&text).contains("unsafe fn");
        assert!(allowed || !has_unsafe, "{name} has unsafe code");
    }
}

const WORLD: [&str; 10] = [
    "forkyard_sys",
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

const PURE: [(&str, &[&str]); 14] = [
    ("crates/daemon/src/handover/plan.rs", &[]),
    ("crates/base/", &[]),
    (
        "crates/config/",
        &[
            "crates/config/src/host.rs",
            "crates/config/src/watch/directories.rs",
        ],
    ),
    ("crates/core/", &[]),
    ("crates/fastcgi/", &[]),
    ("crates/fpm-config/", &["crates/fpm-config/src/host.rs"]),
    ("crates/jobs/src/core/", &[]),
    ("crates/protocol/", &[]),
    ("crates/scoreboard/src/standing.rs", &[]),
    ("crates/scoreboard/src/status/", &[]),
    ("crates/top/src/model/", &[]),
    ("crates/top/src/screen.rs", &[]),
    ("crates/top/src/view/", &[]),
    ("crates/worker/src/dead_work.rs", &[]),
];

const WITHOUT_KERNEL: [(&str, &str); 4] = [
    ("base", "serde"),
    (
        "core",
        "askama forkyard-base forkyard-protocol serde serde_json thiserror",
    ),
    ("fastcgi", ""),
    (
        "protocol",
        "crc32fast forkyard-base serde serde_json serde_with thiserror",
    ),
];

fn dependencies(name: &str) -> Vec<String> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("crates/{name}/Cargo.toml"));
    let text = fs::read_to_string(manifest).expect("the manifest");
    let table = text.split("[dependencies]\n").nth(1).unwrap_or("");
    let lines = table.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.split_once(".workspace"));
    names.map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn what_decides_depends_on_no_kernel() {
    for (name, allowed) in WITHOUT_KERNEL {
        assert_eq!(dependencies(name).join(" "), allowed, "crates/{name}");
    }
}

#[test]
fn the_table_of_crates_is_right_and_arrows_run_one_way() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/explain/architecture.md");
    let text = fs::read_to_string(path).expect("the document");
    let (_, table) = text
        .split_once("| crate | knows |\n| --- | --- |\n")
        .expect("the table");
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let mut above: Vec<&str> = Vec::new();
    for row in rows {
        let mut words = row.split('`').skip(1).step_by(2);
        let name = words.next().expect("a crate's name");
        let known: Vec<&str> = words.collect();
        let mut ours: Vec<String> = dependencies(name)
            .iter()
            .map(|name| name.strip_prefix("forkyard-").unwrap_or(name).to_owned())
            .filter(|name| {
                Path::new(env!("CARGO_MANIFEST_DIR"))
                    .join("crates")
                    .join(name)
                    .exists()
            })
            .collect();
        ours.sort_unstable();
        assert_eq!(ours, known, "what crates/{name} knows");
        let below = known.iter().find(|name| !above.contains(name));
        assert_eq!(
            below, None,
            "crates/{name} knows a crate that does not stand above it"
        );
        above.push(name);
    }
    let crates = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("crates")).expect("the crates");
    assert_eq!(above.len(), crates.count(), "crates in the table");
}

fn may_touch_the_world(name: &str) -> bool {
    name.contains("test") || name.ends_with("effects.rs") || name.contains("/effects/")
}

#[test]
fn what_decides_does_not_touch_the_world() {
    for (name, text) in sources() {
        let pure = PURE.iter().find(|(part, _)| name.starts_with(part));
        let is_pure = pure.is_some_and(|(_, others)| !others.iter().any(|other| name.starts_with(other)));
        if !is_pure || may_touch_the_world(&name) {
            continue;
        }
        let named = WORLD.iter().find(|word| program(&text).contains(*word));
        assert!(
            named.is_none(),
            "{name} is pure and names {}",
            named.unwrap_or(&"")
        );
    }
}

const SKIPS: [&str; 13] = [
    "lacks_extensions()",
    "has_ipv6()",
    "has_landlock()",
    "skip::skip(",
    "skip_unless(",
    "needs_root()",
    "needs_file(",
    "needs_fuse()",
    "is_stock_there()",
    "is_possible()",
    "has_v6()",
    "without_the_capability(",
    "Stock::start(",
];

/// A file's early returns: their conditions, from `if` or `let` to the return.
fn early_returns(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let depth = |line: &str| line.len() - line.trim_start().len();
    let mut is_test = false;
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        match line.trim() {
            "#[test]" => is_test = true,
            _ if *line == "}" => is_test = false,
            word if is_test
                && word.starts_with("return")
                && (word == "return;" || word.contains("skip(")) =>
            {
                let begins = |line: &&&str| {
                    depth(line) < depth(lines[at])
                        && ["if ", "let ", "match "]
                            .iter()
                            .any(|word| line.trim_start().starts_with(word))
                };
                let begin = lines[..at].iter().rev().take_while(|line| !begins(line)).count();
                found.push(lines[at.saturating_sub(begin + 1)..=at].join("\n"));
            }
            word if word.starts_with("skip_if!(") => {
                let more = lines[at..].iter().take_while(|line| !line.ends_with(';')).count();
                found.push(lines[at..=at + more].join("\n"));
            }
            _ => {}
        }
    }
    found
}

#[test]
fn a_test_that_does_nothing_says_so() {
    let mut count = 0;
    for (name, text) in files("tests") {
        for early in early_returns(&text) {
            let says = |part: &str| SKIPS.iter().any(|skip| part.contains(skip));
            let is_said_inside = early.split_once("{\n").is_some_and(|(_, block)| says(block));
            let (condition, _) = early.split_once("{\n").unwrap_or((&early, ""));
            assert!(
                is_said_inside || condition.split("||").all(says),
                "tests/{name} returns and does not say that it was skipped:\n{early}"
            );
            count += 1;
        }
        let is_own = name == "skip/mod.rs" || name == "tidy.rs";
        assert!(
            is_own || !text.contains("\"skipped: "),
            "tests/{name} skips without tests/skip"
        );
    }
    assert!(count > 50, "{count} tests can be skipped");
}

/// `doctest = false` and `test = false` save empty test programs: they must stay empty.
#[test]
fn where_cargo_looks_for_no_test_there_is_none() {
    let manifests = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("crates")).expect("the crates");
    for manifest in manifests.map(|entry| entry.expect("a crate").path().join("Cargo.toml")) {
        let text = fs::read_to_string(&manifest).expect("the manifest");
        assert!(text.contains("doctest = false"), "{}", manifest.display());
    }
    for (name, text) in files("crates") {
        let fences = text
            .lines()
            .map(|line| line.trim_start().trim_start_matches(['/', '!']));
        let mut fences = fences.filter_map(|line| line.strip_prefix(" ```"));
        while let Some(language) = fences.next() {
            assert!(
                !["", "rust", "no_run"].contains(&language),
                "crates/{name}: an example"
            );
            fences.next();
        }
    }
    let untested = [
        ("src/bin", files("src/bin")),
        ("crates/php-shim/src", files("crates/php-shim/src")),
    ];
    for (folder, files) in untested {
        let with_tests = files.iter().find(|(_, text)| text.contains("#[test]"));
        assert!(with_tests.is_none(), "{folder}: {with_tests:?}");
    }
}

#[test]
fn nothing_is_left_to_do() {
    const WORDS: [&str; 4] = ["TODO", "FIXME", "todo!(", "unimplemented!("];
    for (name, text) in sources() {
        let found = WORDS.iter().find(|word| text.contains(*word));
        assert!(
            found.is_none(),
            "{name} has {}: do it, or file it",
            found.unwrap_or(&"")
        );
    }
}

/// cargo finds no tests by itself here (`autotests` is off): a file that neither program links would never run.
#[test]
fn every_file_of_tests_is_in_one_of_the_programs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let read = |name: &str| fs::read_to_string(root.join(name)).expect("a program of tests");
    let linked = read("pure.rs") + &read("suite.rs");
    let mut count = 0;
    for entry in fs::read_dir(&root).expect("tests") {
        let path = entry.expect("an entry").path();
        let mut within = Vec::new();
        match path.is_dir() {
            true => rust_files(&path, &mut within),
            false if path.extension().is_some_and(|it| it == "rs") => within.push(path.clone()),
            false => {}
        }
        let name = path.file_stem().expect("a name").to_string_lossy();
        if within.is_empty() || ["pure", "suite"].contains(&&*name) {
            continue;
        }
        let is_linked = linked.lines().any(|line| line == format!("mod {name};"));
        assert!(is_linked, "{} is in neither suite.rs nor pure.rs", path.display());
        count += 1;
    }
    assert!(count > 10, "{count} parts were found");
}

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

#[test]
fn tests_that_are_named_exist() {
    let files = ["tests", "src", "crates"].map(files).concat();
    let code: String = files.into_iter().map(|(_, text)| text).collect();
    let functions = crate::mutations::functions(&code);
    let names = named_tests();
    assert!(names.len() > 80, "{} tests are named", names.len());
    for name in names {
        assert!(functions.contains(name.as_str()), "there is no test {name}");
    }
}

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

fn quoted(text: &str) -> Vec<String> {
    let prose: String = text.split("```").step_by(2).collect();
    prose.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

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
    let (mut named, mut sources_named) = (0, 0);
    for (document, text) in documents() {
        let words = quoted(&text);
        let files = words
            .iter()
            .map(|word| word.split([' ', ':']).next().unwrap_or_default());
        let (whole, short): (Vec<&str>, Vec<&str>) = files
            .filter(|file| !file.contains(['{', '*', '<']))
            .partition(|file| FOLDERS.iter().any(|folder| file.starts_with(folder)));
        for file in &whole {
            assert!(root.join(file).exists(), "{document} names {file}");
        }
        let short: Vec<&str> = short.into_iter().filter(|file| file.ends_with(".rs")).collect();
        let is_there = |short: &str| {
            let folders = whole.iter().flat_map(|file| Path::new(file).ancestors());
            folders
                .map(|folder| root.join(folder).join(short))
                .any(|file| file.is_file())
        };
        for file in &short {
            assert!(
                is_there(file),
                "{document} names {file}, in no folder that it names"
            );
        }
        named += whole.len();
        sources_named += short.len();
    }
    assert!(
        named > 50 && sources_named > 20,
        "{named} files and {sources_named} sources are named"
    );
}

#[test]
fn files_that_comments_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut named = 0;
    for folder in ["src", "crates"] {
        for (name, text) in files(folder) {
            let own = root.join(folder).join(&name);
            let own = own.parent().expect("its folder");
            let comments = text
                .lines()
                .filter(|line| line.trim_start().starts_with("//"))
                .collect::<Vec<_>>()
                .join("\n");
            for file in quoted(&comments) {
                let is_path = file
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "_/.-".contains(c));
                if !is_path || !file.ends_with(".rs") || file.starts_with('/') {
                    continue;
                }
                named += 1;
                let is_there = own.ancestors().take_while(|it| it.starts_with(root));
                let is_there = is_there.map(|it| it.join(&file)).any(|it| it.exists());
                assert!(is_there, "{folder}/{name} names {file}");
            }
        }
    }
    assert!(named > 20, "{named} sources are named");
}

#[test]
fn what_is_decided_is_decided_where_the_table_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = root_text("docs/explain/architecture.md");
    let (_, table) = text
        .split_once("\n## Where is what decided\n")
        .expect("the table");
    let is_row = |line: &&str| {
        line.starts_with("| ") && !line.starts_with("| question |") && !line.starts_with("| --- |")
    };
    let rows: Vec<&str> = table.lines().filter(is_row).collect();
    assert!(rows.len() > 60, "{} rows", rows.len());
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').rsplitn(3, " | ").map(str::trim).collect();
        let (function, file) = (cells[0].trim_matches('`'), cells[1].trim_matches('`'));
        let code = fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let has = code.contains(&format!("fn {function}(")) || code.contains(&format!("fn {function}<"));
        assert!(has, "{file} has no function {function}: {row}");
    }
}

#[test]
fn the_unit_is_the_one_in_the_documents() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| fs::read_to_string(root.join(file)).expect(file);
    let unit = read("conf/forkyard.service");
    let (_, unit) = unit.split_once("\n[Unit]\n").expect("sections");
    let document = read("docs/howto/upgrade.md");
    let block = document
        .split("```\n[Unit]\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    assert_eq!(block, Some(unit));
    let value = |key: &str| {
        unit.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
    };
    assert_eq!(value("Delegate"), Some("yes"));
    assert_eq!(value("DelegateSubgroup"), Some("daemon"));
    assert_eq!(value("KillMode"), Some("process"));
    let most = value("FileDescriptorStoreMax").expect("a number");
    assert_eq!(value("Environment"), Some(format!("FDSTORE={most}").as_str()));
    let users = read("docs/howto/many-users.md");
    assert!(users.contains("`Delegate=yes` and `DelegateSubgroup=daemon`"));
}

#[test]
fn the_lexicon_is_short_and_each_word_has_one_meaning() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/reference/lexicon.md")).expect("the document");
    let first_cells = text.lines().filter(|line| line.starts_with("| **"));
    let cells = first_cells.filter_map(|line| line.split('|').nth(1));
    let words: Vec<&str> = cells
        .flat_map(|cell| cell.split("**").skip(1).step_by(2))
        .collect();
    let unique: std::collections::BTreeSet<&str> = words.iter().copied().collect();
    assert_eq!(unique.len(), words.len(), "a word has two meanings: {words:?}");
    assert!((20..=40).contains(&words.len()), "{} words", words.len());
}
