//! Scripts that hurt their worker hurt no other request.

use super::client::Request;
use super::scripts;
use super::servers::Setup;
use super::servers::forkyard::Forkyard;
use crate::support::{assert_contains, tests};

const SIGKILL: i32 = 9;
const SIGSEGV: i32 = 11;
const SIGTERM: i32 = 15;

#[track_caller]
fn check_death(way: &str, signal: i32) {
    let server = Forkyard::start(&Setup::new());
    let reply = Request::get(&scripts(), &format!("/fault.php?way={way}")).send(&server.socket);
    assert!(reply.end.is_none() && !reply.body().contains("end"), "{reply:?}");
    let reply = Request::get(&scripts(), "/fault.php").send(&server.socket);
    assert_eq!(reply.body(), "beginend");
    assert_contains(&server.log(), &format!("signal {signal}"));
}

fn worker(server: &Forkyard) -> String {
    Request::get(&scripts(), "/pid.php").send(&server.socket).body()
}

#[test]
fn a_segmentation_fault() {
    check_death("segv", SIGSEGV);
}

#[test]
fn an_endless_recursion() {
    if env!("FORKYARD_PHP") < "8.3" {
        check_death("recursion", SIGSEGV);
    } else {
        check_survival("recursion", "Maximum call stack size");
    }
}

tests! {
    fn a_kill() => check_death("kill", SIGKILL);
    fn a_termination() => check_death("exit-process", SIGTERM);
}

#[track_caller]
fn check_survival(way: &str, message: &str) {
    let server = Forkyard::start(&Setup::new());
    let pid = worker(&server);
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
    assert_eq!(worker(&server), pid);
}

#[test]
fn the_others_do_not_notice() {
    let mut setup = Setup::new();
    setup.workers = 3;
    let server = Forkyard::start(&setup);
    let ask = |uri: &str| Request::get(&scripts(), uri).send(&server.socket);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for way in ["segv", "kill", "exit-process", "recursion", "memory", "segv"] {
                ask(&format!("/fault.php?way={way}"));
            }
        });
        for _ in 0..200 {
            assert_eq!(ask("/fault.php").body(), "beginend");
        }
    });
}

tests! {
    fn too_much_memory() => check_survival("memory", "Allowed memory size of 16777216 bytes exhausted");
    fn an_endless_loop() => check_survival("loop", "Maximum execution time of 1 second exceeded");
}
