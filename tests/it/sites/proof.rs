//! Restart of an application by a command: a new program that exits early never replaces a running one.

use super::super::reload::proof::program;
use super::Sites;
use crate::support::prelude::*;

fn the_old_instance_serves(runtime: &str) {
    let sites = Sites::start("max = 4");
    let (file, text, start) = program(runtime);
    let own = format!("runtime = \"{runtime}\"\n{start}");
    let root = sites.add("app", 0, &[(file, &text), ("forkyard.toml", &own)]);
    let restart = || {
        let output = sites.forkyard(&["restart", "--wait", root.to_str().expect("path")]);
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), text_of(&text))
    };
    let ask = |label: &str| {
        let body = sites.body("/app/");
        assert!(body == "well" || body.starts_with("pid="), "{label}: {body}");
    };
    ask(runtime);
    let after = root.join("after");
    for millis in ["0", "50", "300"] {
        let label = format!("{runtime} {millis}");
        fs::write(&after, millis).expect("write");
        let (code, text) = restart();
        assert_eq!(code, Some(70), "{label}: {text}");
        ask(&label);
        fs::remove_file(&after).expect("remove");
    }
    let (code, text) = restart();
    assert_eq!(code, Some(0), "{runtime}: {text}");
    ask(runtime);
}

tests! {
    fn a_node_program_that_ends_after_it_listens_does_not_take_over() => the_old_instance_serves("node");
    fn an_http_program_that_ends_after_it_listens_does_not_take_over() => the_old_instance_serves("http");
    fn a_fastcgi_program_that_ends_after_it_answers_does_not_take_over() => the_old_instance_serves("fastcgi");
}
