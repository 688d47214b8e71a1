//! Scripts that hurt their worker hurt no other request.

use crate::client::Request;
use crate::scripts;
use crate::servers::Setup;
use crate::servers::forkyard::Forkyard;
use forkyard::sys::process::Ended;

const SIGKILL: i32 = 9;
const SIGSEGV: i32 = 11;
const SIGTERM: i32 = 15;

/// The worker dies in the middle of its answer; the next one serves on.
#[track_caller]
fn check_death(way: &str, signal: i32) {
    let mut server = Forkyard::start(&Setup::new());
    let reply = Request::get(&scripts(), &format!("/fault.php?way={way}")).send(&server.socket);
    assert!(reply.end.is_none() && !reply.body().contains("end"), "{reply:?}");
    assert!(matches!(server.replace_one(), Ended::Signal(by, _) if by == signal));
    let reply = Request::get(&scripts(), "/fault.php").send(&server.socket);
    assert_eq!(reply.body(), "beginend");
}

#[test]
fn a_segmentation_fault() {
    check_death("segv", SIGSEGV);
}

#[test]
fn an_endless_recursion() {
    check_death("recursion", SIGSEGV);
}

#[test]
fn a_kill() {
    check_death("kill", SIGKILL);
}

#[test]
fn a_termination() {
    check_death("exit-process", SIGTERM);
}

/// PHP ends the script itself; the worker lives.
#[track_caller]
fn check_survival(way: &str, message: &str) {
    let server = Forkyard::start(&Setup::new());
    let pid = server.worker_pid();
    for _ in 0..2 {
        let reply = Request::get(&scripts(), &format!("/fault.php?way={way}")).send(&server.socket);
        assert_eq!(reply.end, Some((0, 0)));
        assert!(
            reply.body().starts_with("begin") && !reply.body().ends_with("end"),
            "{reply:?}"
        );
        assert!(reply.errors().contains(message), "{reply:?}");
    }
    let reply = Request::get(&scripts(), "/fault.php").send(&server.socket);
    assert_eq!(reply.body(), "beginend");
    assert!(forkyard::sys::process::exists(pid));
}

#[test]
fn too_much_memory() {
    check_survival("memory", "Allowed memory size of 16777216 bytes exhausted");
}

#[test]
fn an_endless_loop() {
    check_survival("loop", "Maximum execution time of 1 second exceeded");
}
