//! `tests/mutations.toml`: `scripts/mutations` can apply each change, and each promise of the security document has one
//! that breaks it.

use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    mutation: Vec<Mutation>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutation {
    name: String,
    promise: String,
    file: String,
    old: String,
    new: String,
    tests: Vec<String>,
}

impl Mutation {
    fn test_names(&self) -> impl Iterator<Item = &str> {
        self.tests
            .iter()
            .map(|test| test.rsplit([' ', ':']).next().unwrap_or(test))
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn table() -> Vec<Mutation> {
    let table: Table = toml::from_str(&read(&root().join("tests/mutations.toml"))).expect("the table");
    table.mutation
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory)
        .expect("a directory")
        .map_while(Result::ok);
    let below = entries.map(|entry| match entry.path() {
        path if path.is_dir() => files(&path),
        path => vec![path],
    });
    below.flatten().collect()
}

fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn document() -> String {
    let all = files(&root().join("docs"));
    let found = all.iter().find(|path| path.ends_with("security.md"));
    read(found.expect("docs/security.md"))
}

#[test]
fn every_mutation_can_be_applied() {
    let mut names = BTreeSet::new();
    for mutation in table() {
        let Mutation {
            name, file, old, new, ..
        } = &mutation;
        assert!(names.insert(name.clone()), "{name} is there twice");
        let count = read(&root().join(file)).matches(old.as_str()).count();
        assert_eq!(count, 1, "{name}: how often its old text is in {file}");
        assert_ne!(old, new, "{name}");
        assert!(!mutation.tests.is_empty(), "{name} has no test");
    }
}

pub(crate) fn functions(code: &str) -> BTreeSet<&str> {
    let named = code.split("fn ").skip(1);
    named.filter_map(|rest| Some(rest.split_once('(')?.0)).collect()
}

#[test]
fn the_tests_of_mutations_exist() {
    let folders = ["src", "crates", "tests"]
        .map(|folder| files(&root().join(folder)))
        .concat();
    let sources = folders
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let code: String = sources.map(|path| read(path)).collect();
    let functions = functions(&code);
    for mutation in table() {
        for test in mutation.test_names() {
            assert!(
                functions.contains(test),
                "{}: there is no test {test}",
                mutation.name
            );
        }
    }
}

fn program(target: &str) -> PathBuf {
    let package = |name: &str| {
        let crates = root().join("crates");
        let folders = fs::read_dir(crates).expect("the crates");
        let mut folders = folders.map(|entry| entry.expect("an entry").path());
        let line = format!("name = \"{name}\"\n");
        let found = folders.find(|folder| read(&folder.join("Cargo.toml")).contains(&line));
        found.unwrap_or_else(|| panic!("there is no package {name}"))
    };
    match *target.split(':').collect::<Vec<_>>() {
        ["lib", name] => package(name).join("src/lib.rs"),
        ["test", name, program] => package(name).join("tests").join(program).with_extension("rs"),
        [program] => root().join("tests").join(program).with_extension("rs"),
        _ => panic!("{target} is no test target"),
    }
}

#[test]
fn the_targets_of_mutations_link_their_tests() {
    for mutation in table() {
        for test in &mutation.tests {
            let (target, path) = test.split_once(' ').expect("a target and a test");
            let (module, _) = path.split_once("::").expect("a module");
            let text = read(&program(target));
            let is_linked = text.lines().any(|line| line.ends_with(&format!("mod {module};")));
            assert!(is_linked, "{}: {target} has no module {module}", mutation.name);
        }
    }
}

fn promises(document: &str) -> Vec<String> {
    let mut is_promise = false;
    let mut found = Vec::new();
    for line in document.lines() {
        match line {
            "| promise | test |" => is_promise = true,
            line if !line.starts_with('|') => is_promise = false,
            line if is_promise && !line.starts_with("| ---") => found.extend(line.split(" | ").next()),
            _ => {}
        }
    }
    found.into_iter().map(joined).collect()
}

#[test]
fn every_promise_has_a_mutation() {
    let (document, table) = (document(), table());
    let whole = joined(&document);
    for Mutation { name, promise, .. } in &table {
        assert!(
            whole.contains(&joined(promise)),
            "{name}: the document does not say {promise:?}"
        );
    }
    let rows = promises(&document);
    assert!(rows.len() > 40, "{} promises", rows.len());
    for row in rows {
        let is_broken = table
            .iter()
            .any(|mutation| row.contains(&joined(&mutation.promise)));
        assert!(is_broken, "no mutation breaks this promise: {row}");
    }
}

#[test]
fn every_test_of_a_promise_has_a_mutation() {
    let (document, table) = (document(), table());
    let is_test = |word: &&str| {
        let is_name = word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        is_name && (word.matches('_').count() >= 3 || word.ends_with("_s"))
    };
    let named = document.split('`').skip(1).step_by(2).filter(is_test);
    let tested: BTreeSet<&str> = table.iter().flat_map(Mutation::test_names).collect();
    for test in named {
        assert!(tested.contains(test), "no mutation turns {test} red");
    }
}
