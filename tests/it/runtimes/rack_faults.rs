//! Rack applications that fail: to load, to answer, to stay.

use super::rack::Application;
use crate::support::daemon::{Daemon, directory, pool};
use crate::support::{place_library, until};
use std::fs;

/// Starts a pool that can't come up; waits for this in its log.
fn fails(files: &[(&str, &str)], line: &str) -> String {
    place_library();
    let root = directory();
    for (name, text) in files {
        fs::write(root.path().join(name), text).expect("write");
    }
    let application = format!("runtime = \"rack\"\nroot = \"{}\"\n", root.path().display());
    let settings = "pm = \"ondemand\"\nmax_children = 1\n";
    let daemon = Daemon::start(|dir| pool(dir, "www", settings, &application));
    let params = crate::support::fcgi::Params::get(&daemon.dir, "x", "");
    daemon.client("www").send(&params, b"").expect("send");
    daemon.wait_for(line);
    daemon.log()
}

#[test]
fn a_missing_file_is_named() {
    let log = fails(&[], "config.ru does not exist");
    assert!(log.contains("application.entry"), "{log}");
}

#[test]
fn an_error_of_syntax_is_told_with_its_line() {
    fails(&[("config.ru", "run ->(env) {\n  [200, {\n")], "config.ru:");
}

#[test]
fn a_library_that_is_missing_is_named_with_who_wants_it() {
    let log = fails(
        &[("config.ru", "require 'nowhere/to/be/found'\nrun ->(env) {}\n")],
        "nowhere/to/be/found",
    );
    assert!(log.contains("LoadError"), "{log}");
    assert!(log.contains("config.ru:1"), "{log}");
    assert!(!log.contains("\\x0a"), "{log}");
}

#[test]
fn a_gem_that_is_missing_is_named() {
    let gemfile = "source 'https://rubygems.org'\ngem 'nowhere-to-be-found'\n";
    fails(
        &[("config.ru", "run ->(env) {}\n"), ("Gemfile", gemfile)],
        "nowhere-to-be-found",
    );
}

#[test]
fn an_application_that_ends_its_process_while_it_loads_is_told() {
    fails(&[("config.ru", "exit 3\n")], "SystemExit");
}

#[test]
fn an_exception_is_an_answer_and_its_backtrace_is_in_both_logs() {
    let application = Application::start_with(
        &[(
            "config.ru",
            "class Oops < StandardError; end\ndef fail_here = raise(Oops, 'it broke')\nrun ->(env) { fail_here }\n",
        )],
        "pm = \"static\"\nmax_children = 1\ncatch_workers_output = true\n",
        "",
    );
    let answer = application.get("x", "");
    assert!(answer.text().starts_with("Status: 500 "), "{}", answer.text());
    assert!(!answer.text().contains("it broke"), "{}", answer.text());
    assert!(
        answer.error_text().contains("it broke (Oops)"),
        "{}",
        answer.error_text()
    );
    assert!(
        answer.error_text().contains("config.ru:2"),
        "{}",
        answer.error_text()
    );
    application.daemon.wait_for("it broke (Oops)");
}

#[test]
fn an_exception_in_the_middle_of_a_body_leaves_what_was_sent() {
    let application = Application::start(&[(
        "config.ru",
        r##"
body = Enumerator.new { |out| out << "begun"; raise "it broke" }
run ->(env) { [200, {}, body] }"##,
    )]);
    let answer = application.get("x", "");
    assert_eq!(answer.body(), "begun");
    assert!(
        answer.error_text().contains("it broke"),
        "{}",
        answer.error_text()
    );
    assert_eq!(application.get("x", "").body(), "begun");
}

#[test]
fn a_process_that_the_application_ends_has_answered_and_is_replaced() {
    let application = Application::start(&[(
        "config.ru",
        "at_exit { File.write(\"ended\", \"\") }\nrun ->(env) { exit }\n",
    )]);
    let first = application.daemon.wait_for_workers("www", 1);
    assert!(application.get("x", "").text().starts_with("Status: 500 "));
    until("another worker", || {
        let now = application.daemon.workers("www");
        (now.len() == 1 && now != first).then_some(())
    });
    assert!(application.root.path().join("ended").exists());
}

#[test]
fn a_copy_that_the_application_forks_answers_nothing() {
    let application = Application::start(&[(
        "config.ru",
        r##"
run ->(env) {
  pid = fork
  raise "in the copy" if pid.nil?
  Process.wait(pid)
  [200, {}, ["the worker"]]
}"##,
    )]);
    let mut client = application.daemon.client("www").kept();
    for _ in 0..2 {
        let params = crate::support::fcgi::Params::get(&application.daemon.dir, "x", "");
        assert_eq!(client.request(&params, b"").expect("answer").body(), "the worker");
    }
}

#[test]
fn a_client_that_leaves_ends_its_answer_and_no_worker() {
    let application = Application::start(&[(
        "config.ru",
        r##"
class Endless
  def each = loop { yield "x" * 100_000 }
  def close = $closed = Process.pid
end
run ->(env) {
  next [200, {}, [($closed == Process.pid).to_s]] if env["PATH_INFO"] == "/closed"
  [200, {}, Endless.new]
}"##,
    )]);
    let params = crate::support::fcgi::Params::get(&application.daemon.dir, "x", "");
    let mut client = application.daemon.client("www");
    client.send(&params, b"").expect("send");
    drop(client);
    assert_eq!(application.get("closed", "").body(), "true");
}

#[test]
fn a_request_whose_time_is_up_is_answered_and_its_worker_ended() {
    let application = Application::start_with(
        &[(
            "config.ru",
            "run ->(env) { sleep if env['PATH_INFO'] == '/slow'; [200, {}, ['fast']] }\n",
        )],
        "pm = \"static\"\nmax_children = 1\nrequest_terminate_timeout = \"1s\"\n",
        "",
    );
    let answer = application.get("slow", "");
    assert!(answer.text().starts_with("Status: 504 "), "{}", answer.text());
    assert_eq!(application.get("x", "").body(), "fast");
}
