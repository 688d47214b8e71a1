//! The parts know only whom they may.

use super::{may_touch_the_world, program, root_text, sources};

const STRANGERS: [(&str, &str); 6] = [
    (
        "crates/daemon/src/control/session.rs",
        "crate:: forkyard_worker forkyard_spawn forkyard_router forkyard_runtimes",
    ),
    ("crates/daemon/src/handover/plan.rs", "crate:: forkyard_worker"),
    (
        "crates/daemon/src/roles/",
        "crate::master crate::context forkyard_spawn",
    ),
    ("crates/router/src/inspector/", "crate::router"),
    ("crates/slowlog/src/", "nix:: std::fs"),
    ("crates/runtimes/src/", "crate::abi"),
];

#[test]
fn parts_know_only_whom_they_may() {
    for (name, text) in sources() {
        let text = program(&text);
        let knows = |stranger: &&str| text.contains(*stranger);
        for (part, strangers) in STRANGERS {
            if name.starts_with(part) && !may_touch_the_world(&name) {
                let known = strangers.split(' ').find(knows);
                assert!(known.is_none(), "{name} names {}", known.unwrap_or(""));
            }
        }
    }
}

/// The parts of the daemon. Each knows only those before it.
const PARTS: [&str; 18] = [
    "keeper",
    "roles",
    "context",
    "workers",
    "pools",
    "preloaders",
    "programs",
    "output",
    "autopilot",
    "applications",
    "releases",
    "helpers",
    "reload",
    "status",
    "handover",
    "control",
    "master",
    "background",
];

#[test]
fn parts_of_the_daemon_know_only_those_before_them() {
    let place = |part: &str| PARTS.iter().position(|known| *known == part);
    let mut seen = [false; PARTS.len()];
    for (name, text) in sources() {
        let Some(path) = name
            .strip_prefix("crates/daemon/src/")
            .filter(|path| *path != "lib.rs")
        else {
            continue;
        };
        let part = path.split(['/', '.']).next().unwrap_or_default();
        let own = place(part).unwrap_or_else(|| panic!("{part} is not in PARTS"));
        seen[own] = true;
        for used in program(&text).split("crate::").skip(1) {
            let used = used.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
            let used = used.into_iter().next().unwrap_or_default();
            assert!(
                place(used).is_none_or(|used| used <= own),
                "{name} knows {used}, which stands above it"
            );
        }
    }
    assert_eq!(seen, [true; PARTS.len()], "a part without a file");
}

/// States that grew too large once, each with its file.
const LARGEST: [(&str, &str); 5] = [
    ("Pool", "crates/config/src/model.rs"),
    ("Process", "crates/jobs/src/process.rs"),
    ("Router", "crates/router/src/router/event_loop.rs"),
    ("Passage", "crates/runtimes/src/http/gateway/passage.rs"),
    ("WorkerState", "crates/worker/src/concurrent/state.rs"),
];
const MOST_FIELDS: usize = 18;

#[test]
fn the_largest_states_have_few_fields() {
    for (name, file) in LARGEST {
        let text = root_text(file);
        let fields = text.split_once(&format!("struct {name} {{\n"));
        let (_, fields) = fields.unwrap_or_else(|| panic!("{file} has no {name}"));
        let (fields, _) = fields.split_once("\n}").expect("the end of the struct");
        let is_field = |line: &&str| {
            let name = line.strip_prefix("    ").unwrap_or_default();
            name.starts_with(char::is_alphabetic) && name.contains(": ")
        };
        let count = fields.lines().filter(is_field).count();
        assert!(
            (1..=MOST_FIELDS).contains(&count),
            "{name} has {count} fields, at most {MOST_FIELDS}"
        );
    }
}
