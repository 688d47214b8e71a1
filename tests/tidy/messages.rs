//! Messages between forkyard's processes are in `crates/protocol`.

use super::{program, root_text, sources};

const PROTOCOL: &str = "crates/protocol/src";

/// Enums that are written and read elsewhere: parts of settings, of stored jobs, of what a new process is started with
/// and of the reports for the next master, the finding of a forked child, and recorded readings.
const OTHERS: [(&str, &str); 9] = [
    ("crates/base/src/ended.rs", "Ended"),
    (
        "crates/core/src/",
        "Kind SocketOwner Properties Route Step ProcessManager RestartMethod CrashCause",
    ),
    ("crates/config/src/", "*"),
    ("crates/jobs/src/core/event.rs", "TaskStatus Outcome"),
    ("crates/slowlog/src/job.rs", "Asking Means"),
    ("crates/daemon/src/roles/start.rs", "Role"),
    ("crates/top/src/", "Cause Part Sight"),
    ("crates/daemon/src/workers/env_file.rs", "EnvFileError FileFault"),
    ("crates/daemon/src/context/apply_error.rs", "ReleaseFault"),
];

/// The enums of a file that serde both writes and reads.
fn messages(text: &str) -> Vec<&str> {
    let derives = program(text).split("#[derive(").skip(1);
    let both = derives.filter(|rest| {
        let derived = rest.split(")]").next().unwrap_or_default();
        derived.contains("Serialize") && derived.contains("Deserialize")
    });
    let items = both.filter_map(|rest| {
        let line = rest.lines().find(|line| line.ends_with('{'))?;
        line.split_once("enum ")?.1.split([' ', '<']).next()
    });
    items.collect()
}

#[test]
fn every_message_is_in_the_protocol() {
    let mut count = 0;
    for (name, text) in sources() {
        let allowed = OTHERS.iter().find(|(place, _)| name.starts_with(place));
        let allowed = allowed.map_or("", |(_, names)| *names);
        for message in messages(&text) {
            let is_known = allowed == "*" || allowed.split(' ').any(|it| it == message);
            assert!(
                is_known || name.starts_with(PROTOCOL),
                "{name}: {message} belongs to {PROTOCOL}"
            );
            count += 1;
        }
    }
    assert!(count > 60, "{count} enums were found");
}

#[test]
fn the_protocol_s_list_of_modules_is_complete() {
    let text = root_text(&format!("{PROTOCOL}/lib.rs"));
    let (comment, code) = text.split_once("#![forbid").expect("the list and the modules");
    let mut listed: Vec<&str> = comment
        .split("[`")
        .skip(1)
        .filter_map(|rest| rest.split('`').next())
        .collect();
    listed.sort_unstable();
    let modules = code.lines().filter_map(|line| line.strip_prefix("pub mod "));
    let modules: Vec<&str> = modules.map(|line| line.trim_end_matches(';')).collect();
    assert_eq!(listed, modules);
}
