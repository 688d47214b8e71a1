//! forkyard-php and the master: lines, descriptors, ends.

use super::client::Request;
use super::scripts;
use super::servers::Setup;
use super::servers::alone::Alone;
use crate::support::assert_contains;
use forkyard_sys::process::Ended;

#[test]
fn workers_are_siblings_and_outlive_the_preloader() {
    let mut setup = Setup::new();
    setup.workers = 3;
    let mut server = Alone::start(&setup);
    assert_eq!(server.stop_preloader(), Ended::Code(0));
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", server.worker_pid())).expect("the worker");
    assert_contains(&status, &format!("PPid:\t{}\n", std::process::id()));
    let reply = Request::get(&scripts(), "/fault.php").send(&server.socket);
    assert_eq!(reply.body(), "beginend");
}

#[test]
fn workers_have_their_title_and_signals_at_their_defaults() {
    let mut setup = Setup::new();
    setup.ping = true;
    let server = Alone::start(&setup);
    assert_eq!(
        Request::get(&scripts(), "/ping").send(&server.socket).body(),
        "pong"
    );
    let read =
        |file: &str| std::fs::read(format!("/proc/{}/{file}", server.worker_pid())).expect("the worker");
    let title = read("cmdline");
    assert!(
        title.starts_with(b"forkyard: pool www"),
        "{}",
        String::from_utf8_lossy(&title)
    );
    let status = String::from_utf8(read("status")).expect("text");
    let caught = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .expect("caught signals");
    let noted = [
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGTERM,
    ];
    let noted = noted.iter().fold(0, |all, signal| all | 1 << (signal - 1));
    assert_eq!(
        u64::from_str_radix(caught.trim(), 16),
        Ok(noted),
        "before the first request"
    );
}

#[test]
fn a_setting_that_does_not_exist_is_told_and_passed_over() {
    let server = Alone::start(&Setup::new().admin_value("no.such", "1"));
    assert_eq!(server.log(), "4Unable to set php_admin_value 'no.such'\n");
}

#[test]
fn a_start_that_fails_is_told() {
    let error = Alone::preload(&Setup::new().value("opcache.preload", "a\nb")).expect_err("no such value");
    assert_contains(&error, "php_value opcache.preload");
}

#[test]
fn preloaded_code_is_there_and_never_ran_as_root() {
    let path = scripts().join("preloaded.inc").display().to_string();
    let server = Alone::start(&Setup::new().admin_value("opcache.preload", &path));
    let reply = Request::get(&scripts(), "/preload.php").send(&server.socket);
    assert!(
        reply.body().starts_with("preloaded by ") && !reply.body().ends_with(" 0"),
        "{reply:?}"
    );
}

#[test]
fn preloaded_code_that_is_not_there_is_told() {
    let error =
        Alone::preload(&Setup::new().admin_value("opcache.preload", "/nowhere.php")).expect_err("no file");
    assert_eq!(error, "PHP's module start-up failed");
}
