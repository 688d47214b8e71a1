//! Workers that exit before they are ready, with a Rust handler: the master forks them without a preloader.

use super::rust_handler::example;
use crate::support::prelude::*;

#[test]
fn a_pool_whose_workers_die_at_once_backs_off_and_recovers() {
    let settings = "pm = \"static\"\nmax_children = 4\nchdir = \"DIR/work\"\n";
    let configure = |dir: &Path| {
        fs::create_dir(dir.join("work")).expect("mkdir");
        pool(dir, "hello", settings, "runtime = \"rust\"\n")
    };
    let daemon = Daemon::start_by(configure, |dir| example("responder", dir));
    let work = daemon.dir.join("work");
    let first = daemon.wait_for_workers("hello", 4);
    fs::remove_dir(&work).expect("rmdir");
    for worker in first {
        process::signal(worker, Signal::SIGKILL);
    }
    daemon.wait_for_count("the next try is in", 3);
    daemon.wait_for("child failed to initialize: chdir");
    let count = |text: &str| daemon.log().matches(text).count();
    let (lines, exits) = (count("the next try is in"), count("exited with code 70"));
    assert!(
        exits >= 3 && exits <= 4 * (lines + 2),
        "{exits} exits in {lines} steps"
    );
    fs::create_dir(&work).expect("mkdir");
    daemon.wait_for_workers("hello", 4);
    let answer = until("an answer", || Some(daemon.get("hello", "x?you")));
    assert_starts(&answer.body(), "Hello you from worker ");
}
