//! Workers that exit before they are ready, with a Rust handler: the master forks them without a preloader.

use super::rust_handler::responder;
use crate::support::prelude::*;

#[test]
fn a_pool_whose_workers_die_at_once_backs_off_and_recovers() {
    let dir = directory();
    let path = dir.path();
    let work = path.join("work");
    fs::create_dir(&work).expect("mkdir");
    let settings = format!(
        "pm = \"static\"\nmax_children = 4\nchdir = \"{}\"\n",
        work.display()
    );
    let text = pool(path, "hello", &settings, "runtime = \"rust\"\n");
    fs::write(path.join("forkyard.toml"), text).expect("configuration");
    let mut command = Command::new(responder());
    command.arg(path.join("forkyard.toml"));
    let daemon = Daemon::launch(path, command);
    daemon.wait_for("ready to handle connections");
    let first = daemon.wait_for_workers("hello", 4);
    fs::remove_dir(&work).expect("rmdir");
    for worker in first {
        process::signal(worker, Signal::SIGKILL);
    }
    daemon.wait_for_count("the next try is in", 3);
    daemon.wait_for("child failed to initialize: chdir");
    let lines = daemon
        .log()
        .lines()
        .filter(|line| line.contains("the next try is in"))
        .count();
    let exits = daemon
        .log()
        .lines()
        .filter(|line| line.contains("exited with code 70"))
        .count();
    assert!(
        exits >= 3 && exits <= 4 * (lines + 2),
        "{exits} exits in {lines} steps"
    );
    fs::create_dir(&work).expect("mkdir");
    daemon.wait_for_workers("hello", 4);
    let answer = until("an answer", || Some(daemon.get("hello", "x?you")));
    assert_starts(&answer.body(), "Hello you from worker ");
}
