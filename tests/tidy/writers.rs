//! Code that may write to a terminal.

use super::sources;

#[test]
fn commands_write_through_one_function() {
    const WRITERS: [&str; 3] = [
        "crates/cli/src/output.rs",
        "crates/cli/src/texts.rs",
        "crates/cli/src/fpm.rs",
    ];
    for (name, text) in sources() {
        if !name.starts_with("src/cli") || WRITERS.contains(&name.as_str()) {
            continue;
        }
        let streams = text.split("io::std").skip(1);
        for rest in streams.filter_map(|rest| rest.strip_prefix("out()").or(rest.strip_prefix("err()"))) {
            let is_look = rest.starts_with(')') || rest.starts_with(".is_terminal()");
            let line = rest.lines().next().unwrap_or_default();
            assert!(is_look, "{name}: write by print! or output::draw: {line}");
        }
    }
}
