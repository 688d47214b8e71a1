//! The examples of the manual, which `forkyard COMMAND --help` shows, are carried out.

use crate::support::prelude::*;

const OTHERWISE: &[(&str, i32)] = &[
    ("forkyard check --strict", 78),
    ("forkyard error", 70),
    // No terminal.
    ("forkyard top --interval", 70),
    ("forkyard replay", 70),
    ("forkyard terminate", 70),
    ("forkyard restart /srv/shop", 70),
    ("forkyard deploy", 78),
    ("forkyard rollback", 78),
    ("forkyard releases shop", 78),
    ("forkyard pool add", 78),
    ("forkyard pool remove shop --deadline", 70),
    ("forkyard detach", 70),
    ("forkyard disable", 70),
    ("forkyard enable", 70),
    ("forkyard resize", 70),
    ("forkyard take", 70),
    ("forkyard return", 70),
    ("forkyard jobs", 78),
];
const NOT_RUN: &[&str] = &[
    "forkyard run",
    "forkyard init",
    "forkyard import",
    "forkyard spawn",
    "forkyard status --watch",
    // These go on until their user leaves.
    "forkyard top --json",
    "forkyard logs -f",
];

fn forkyard(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkyard"));
    command.args(arguments).output().expect("forkyard")
}

fn help(words: &[&str]) -> String {
    let output = forkyard(&[words, &["--help"]].concat());
    assert!(output.status.success(), "{words:?}");
    text_of(&output.stdout)
}

fn listed(help: &str, from: &str, to: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| !line.starts_with(from)).skip(1);
    let lines = lines.take_while(|line| !line.starts_with(to));
    let lines = lines.filter(|line| !line.starts_with("   "));
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

fn examples() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    for name in listed(&help(&[]), "Begin:", "Options:") {
        let own = help(&[&name]);
        let inner = match name.as_str() {
            "pool" | "jobs" => listed(&own, "Commands:", "Options:"),
            _ => Vec::new(),
        };
        let inner = inner.iter().map(|inner| help(&[&name, inner]));
        for help in std::iter::once(own.clone()).chain(inner) {
            let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
            for line in lines.filter_map(|line| line.strip_prefix("  forkyard ")) {
                let line = format!("forkyard {line}");
                if known.insert(line.clone()) {
                    found.push((line, help.clone()));
                }
            }
        }
    }
    found
}

#[test]
fn every_example_of_the_manual_does_what_it_says() {
    let daemon = Daemon::start(|dir| {
        let place = dir.display();
        let runtime = format!("runtime = \"cgi\"\nroot = \"{place}\"");
        let cgi = |name| pool(dir, name, "", &runtime);
        let pools = cgi("www") + &cgi("shop");
        format!("[global]\ncontrol = \"{place}/control.sock\"\n{pools}")
    });
    let file = daemon.dir.join("forkyard.toml").display().to_string();
    let examples = examples();
    assert!(examples.len() > 40, "{}", examples.len());
    let is_late =
        |line: &str| line.contains("pool remove") || line.contains("upgrade") || line.contains("drain");
    let (late, early): (Vec<_>, Vec<_>) = examples.iter().partition(|(line, _)| is_late(line));
    let mut run = 0;
    for (line, help) in early.into_iter().chain(late) {
        if NOT_RUN.iter().any(|begin| line.starts_with(begin)) {
            continue;
        }
        run += 1;
        let own = line.split(" > ").next().unwrap_or(line).replace("8s", "1ms");
        let words = own.split('\'').enumerate().flat_map(|(at, part)| match at % 2 {
            0 => part.split_whitespace().collect(),
            _ => vec![part],
        });
        let mut words: Vec<&str> = words.skip(1).collect();
        let names_daemon = help.contains("--config") || line.starts_with("forkyard pool ");
        if names_daemon && !words.contains(&"-c") {
            words.extend(["-c", &file]);
        }
        let output = forkyard(&words);
        let expected = OTHERWISE.iter().find(|(begin, _)| line.starts_with(begin));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(expected.map_or(0, |it| it.1)),
            "{line}: {said}"
        );
    }
    assert!(run > 30, "{run}");
    let every: BTreeSet<&str> = examples.iter().map(|(line, _)| line.as_str()).collect();
    for begin in OTHERWISE.iter().map(|it| it.0).chain(NOT_RUN.iter().copied()) {
        assert!(
            every.iter().any(|line| line.starts_with(begin)),
            "{begin} is no example"
        );
    }
    fs::remove_file(&file).expect("configuration");
}
