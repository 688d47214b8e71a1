//! Every runtime in a pool of one and in an application pool: slow requests, killed processes, and restarts with a
//! result.

use super::table::{Cell, Table};
use crate::support::prelude::*;

fn table() -> Table {
    Table::start_with("", "pm = \"static\"\nmax_children = 2\n", &[false])
}

/// Waits until a request for `slow` runs; returns its process.
fn wait_for_slow(cell: Cell<'_>) -> u32 {
    let path = cell.root().join("slow");
    let pid = until(&format!("the slow request of {}", cell.name()), || {
        let text = fs::read_to_string(&path).ok()?;
        text.strip_suffix('\n')?.trim().parse().ok()
    });
    fs::remove_file(path).expect("remove");
    pid
}

#[test]
fn a_slow_request_keeps_no_other_waiting() {
    let table = table();
    table.each(false, |cell| {
        assert!(cell.pid("") > 0);
        let mut slow = cell.send("slow");
        let pid = wait_for_slow(cell);
        assert!(cell.pid("") > 0);
        fs::write(cell.root().join("go"), "").expect("go");
        let answer = slow
            .answer()
            .unwrap_or_else(|error| panic!("{}: {error}", cell.name()));
        assert_eq!(cell.pid_in(&answer), pid, "{}", cell.name());
        fs::remove_file(cell.root().join("go")).expect("remove");
    });
}

#[test]
fn a_process_that_is_killed_takes_its_request_with_it_and_is_followed_by_another() {
    let table = table();
    table.each(false, |cell| {
        let mut slow = cell.send("slow");
        let pid = wait_for_slow(cell);
        process::signal(pid, Signal::SIGKILL);
        fs::write(cell.root().join("go"), "").expect("go");
        let answer = slow.answer();
        let answered =
            (answer.as_ref()).is_ok_and(|answer| answer.ended && !answer.text().starts_with("Status: 50"));
        if answered {
            assert_ne!(cell.pid_in(&answer.expect("an answer")), pid, "{}", cell.name());
        }
        match cell.row.name {
            "node" | "http" => assert!(answered, "{}", cell.name()),
            "php-cgi" => {}
            _ => assert!(!answered, "{}", cell.name()),
        }
        assert_ne!(cell.pid(""), pid, "{}", cell.name());
    });
}

fn deploy(cell: Cell<'_>, code: &str) {
    let program = crate::it::runtimes::fastcgi_programs::compiled()
        .display()
        .to_string();
    let (new, file) = (cell.root().join(".new"), cell.root().join(cell.row.file));
    write_program(&new, code.replace("PROGRAM", &program));
    if is_root() {
        let (_, uid) = super::USERS[0];
        chown(&new, Some(uid), Some(uid)).expect("chown");
    }
    fs::rename(new, file).expect("rename");
}

#[test]
fn a_restart_by_a_command_tells_what_came_of_it() {
    let table = table();
    table.each(false, |cell| {
        let root = cell.root().display().to_string();
        let what = cell.pool.unwrap_or(&root);
        let restart = || cell.forkyard(&["restart", what, "--wait"]);
        let before = cell.pid("");
        let (code, text) = restart();
        assert!(
            code == Some(0) && text.contains(" is restarted: "),
            "{}: {code:?} {text}",
            cell.name()
        );
        let now = cell.pid("");
        assert_ne!(now, before, "{}", cell.name());
        if cell.row.error == "503" {
            tells_of_broken_code(cell, restart, [before, now]);
        }
    });
}

fn tells_of_broken_code(cell: Cell<'_>, restart: impl Fn() -> (Option<i32>, String), before: [u32; 2]) {
    deploy(cell, cell.row.broken);
    let (code, text) = restart();
    assert!(
        code == Some(70) && !text.contains('{'),
        "{}: {code:?} {text}",
        cell.name()
    );
    assert!(
        text.contains("no new worker came up") || text.contains("could not be started"),
        "{}: {text}",
        cell.name()
    );
    for _ in 0..5 {
        assert!(cell.pid("") > 0, "the old ones go on");
    }
    deploy(cell, cell.row.text);
    let (code, text) = restart();
    assert_eq!(code, Some(0), "{}: {text}", cell.name());
    assert!(!before.contains(&cell.pid("")), "{}", cell.name());
}
