//! Runs or checks every example in the documents, and follows every link.

pub(crate) mod blocks;
mod container;
mod deploy;
mod errors;
mod first;
mod hosts;
mod kinds;
mod plots;
mod readme;
mod releases;
mod secrets;
pub(crate) mod served;

use crate::support::prelude::*;
use blocks::{Block, documents, root};

const COMMANDS: &[&str] = &[
    "adduser",
    "apt-get",
    "cargo",
    "cd",
    "chown",
    "cp",
    "curl",
    "docker",
    "git",
    "head",
    "install",
    "journalctl",
    "kill",
    "ln",
    "mv",
    "nginx",
    "rm",
    "service",
    "systemctl",
    "update-alternatives",
    "update-rc.d",
    "useradd",
];

fn blocks(kind: &str) -> Vec<Block> {
    documents()
        .into_iter()
        .flat_map(|path| blocks::read(&path))
        .filter(|block| block.kind == kind)
        .collect()
}

fn forkyard(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forkyard"))
        .args(arguments)
        .output()
        .expect("forkyard")
}

fn check(text: &str) -> Result<(), String> {
    let dir = directory();
    let application = dir.path().join("app");
    fs::create_dir_all(application.join("public")).expect("mkdir");
    for file in [
        "app.js",
        "worker.php",
        "public/index.php",
        "public/frankenphp-worker.php",
    ] {
        fs::write(application.join(file), "").expect("application");
    }
    let checks = dir.path().join("checks");
    fs::create_dir(&checks).expect("mkdir");
    let text = text
        .replace("/srv/app", &application.display().to_string())
        .replace("/srv/shop/current", &application.display().to_string())
        .replace("/srv/blog", &application.display().to_string())
        .replace("/srv/sites", &checks.display().to_string())
        .replace("/srv/checks", &checks.display().to_string());
    let file = dir.path().join("forkyard.toml");
    fs::write(&file, text).expect("configuration");
    let output = forkyard(&["check", "-c", &file.display().to_string()]);
    if output.status.success() {
        return Ok(());
    }
    Err(text_of(&output.stdout))
}

#[test]
fn every_configuration_in_the_documents_is_right() {
    let whole = blocks("toml");
    assert!(!whole.is_empty(), "the README has a configuration");
    for block in whole {
        if let Err(said) = check(&block.text) {
            panic!("{block}: {said}\n{}", block.text);
        }
    }
}

/// A fragment alone is invalid: it is put into a minimal pool.
#[test]
fn every_fragment_of_a_configuration_fits_into_a_pool() {
    for block in blocks("toml fragment") {
        assert!(
            check(&block.text).is_err(),
            "{block} is a whole configuration; mark it as toml"
        );
        let pm = if block.text.contains("pm =") {
            ""
        } else {
            "pm = \"static\"\nmax_children = 1\n"
        };
        let text = php_pool(Path::new("/run"), &format!("{pm}{}", block.text), "");
        if let Err(said) = check(&text) {
            panic!("{block}: {said}\n{text}");
        }
    }
}

#[test]
fn every_block_has_a_kind_that_is_known() {
    let known = BTreeSet::from([
        "",
        "toml",
        "toml fragment",
        "toml site",
        "nginx",
        "apache",
        "lighttpd",
        "caddy",
        "sh",
        "rust",
        "php",
        "ini",
        "dockerfile",
        "shell",
        "python",
        "ruby",
        "js",
        "sql",
    ]);
    for block in documents().into_iter().flat_map(|path| blocks::read(&path)) {
        assert!(known.contains(block.kind.as_str()), "{block}: {}", block.kind);
    }
}

#[test]
fn every_command_in_the_documents_exists() {
    for block in blocks("sh") {
        for line in block
            .text
            .lines()
            .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        {
            check_command(&block, line);
        }
    }
}

fn check_command(block: &Block, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let program = words[0].strip_prefix("target/release/").unwrap_or(words[0]);
    match program {
        "forkyard" => check_options(block, &words[1..]),
        "forkyard-fpm" => check_fpm_options(block, &words[1..]),
        script if script.starts_with("scripts/") => {
            let path = root().join(script);
            let read = Command::new("bash").arg("-n").arg(&path).status().expect("bash");
            assert!(read.success(), "{block}: {script}");
            let mode =
                std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).expect("script").permissions());
            assert!(mode & 0o111 != 0, "{block}: {script} can't be run");
        }
        _ => assert!(COMMANDS.contains(&program), "{block}: {program} is not known"),
    }
    if let Some(at) = words.iter().position(|word| *word == "--example") {
        let example = root().join("examples").join(format!("{}.rs", words[at + 1]));
        assert!(example.exists(), "{block}: {}", example.display());
    }
    for file in words
        .iter()
        .filter(|word| word.starts_with("examples/") || word.starts_with("conf/"))
    {
        assert!(root().join(file).exists(), "{block}: {file}");
    }
}

fn check_options(block: &Block, words: &[&str]) {
    let (options, names): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| word.starts_with('-'));
    let depth = if matches!(names.first(), Some(&"pool" | &"jobs")) {
        2
    } else {
        1
    };
    let mut arguments: Vec<&str> = names.into_iter().take(depth).collect();
    arguments.push("--help");
    let output = forkyard(&arguments);
    let help = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{block}: forkyard {words:?}");
    for option in options {
        let option = option.split('=').next().unwrap_or(option);
        let known = help.split([' ', ',', '\n', '=', '[']).any(|word| word == option);
        assert!(known, "{block}: {option} is not in\n{help}");
    }
}

fn check_fpm_options(block: &Block, words: &[&str]) {
    let output = Command::new(crate::support::forkyard_fpm()).arg("-h").output();
    let output = output.expect("forkyard-fpm");
    let said = [output.stdout, output.stderr].concat();
    let help = String::from_utf8_lossy(&said);
    for option in words.iter().filter(|word| word.starts_with('-')) {
        let known = help
            .split([' ', ',', '\n', '=', '[', ']'])
            .any(|word| word == *option);
        assert!(known, "{block}: {option} is not in\n{help}");
    }
}

#[test]
fn every_command_is_in_the_table_of_commands() {
    let text = read_file(root().join("docs/reference/commands.md"));
    let told: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    let output = forkyard(&["--help"]);
    let help = String::from_utf8_lossy(&output.stdout);
    let shown: BTreeSet<&str> = help
        .lines()
        .take_while(|line| *line != "Options:")
        .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next())
        .collect();
    assert!(!shown.is_empty());
    assert_eq!(told, shown);
}

#[test]
fn every_rust_example_is_part_of_a_program_that_is_compiled() {
    let sources: Vec<String> = fs::read_dir(root().join("examples"))
        .expect("examples")
        .map_while(Result::ok)
        .filter(|entry| {
            entry
                .path()
                .extension()
                .is_some_and(|extension| extension == "rs")
        })
        .map(|entry| read_file(entry.path()))
        .collect();
    let blocks = blocks("rust");
    assert!(!blocks.is_empty());
    for block in blocks {
        assert!(
            sources.iter().any(|source| source.contains(&block.text)),
            "{block} is in no example"
        );
    }
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    for path in documents() {
        let text = read_file(&path);
        for target in blocks::links(&text) {
            if target.contains("://") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let to = if file.is_empty() {
                path.clone()
            } else {
                path.parent().expect("a folder").join(file)
            };
            assert!(to.exists(), "{}: {target}", path.display());
            if !anchor.is_empty() {
                let text = read_file(&to);
                assert!(
                    blocks::anchors(&text).contains(anchor),
                    "{}: {target}",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn no_document_is_forgotten() {
    let mut reached = BTreeSet::new();
    let readme = root().join("README.md");
    let mut next = vec![readme.canonicalize().expect("README.md")];
    while let Some(path) = next.pop() {
        if path.extension().is_some_and(|e| e == "md") && reached.insert(path.clone()) {
            let text = read_file(&path);
            let links = blocks::links(&text).into_iter();
            let files = links.filter_map(|link| Some(link.split('#').next()?.to_owned()));
            let files = files.filter(|file| !file.is_empty() && !file.contains("://"));
            let folder = path.parent().expect("a folder");
            next.extend(files.map(|file| folder.join(file).canonicalize().expect("a link's target")));
        }
    }
    for path in documents() {
        let path = path.canonicalize().expect("document");
        assert!(reached.contains(&path), "nothing leads to {}", path.display());
    }
}

#[test]
fn the_tour_of_the_source_is_complete() {
    let document = root().join("docs/explain/architecture.md");
    let document = read_file(document);
    for folder in ["crates", "src"] {
        let head = format!("| in `{folder}/`");
        let named: BTreeSet<String> = document
            .lines()
            .skip_while(|line| !line.starts_with(&head))
            .skip(2)
            .take_while(|line| line.starts_with('|'))
            .filter_map(|line| Some(line.split('`').nth(1)?.trim_end_matches('/').to_owned()))
            .collect();
        let there: BTreeSet<String> = fs::read_dir(root().join(folder))
            .expect("a folder of the source")
            .map_while(Result::ok)
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name != "lib.rs")
            .collect();
        assert_eq!(named, there);
    }
}
