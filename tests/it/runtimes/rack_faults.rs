//! Rack applications that fail: to load, to answer, to stay.

use super::rack::Application;
use crate::support::prelude::*;

type Files<'a> = &'a [(&'a str, &'a str)];

fn fails(files: Files<'_>, line: &str) -> String {
    let root = folder(files);
    let daemon = Daemon::serving("rack", root.path(), "pm = \"ondemand\"\nmax_children = 1\n", "");
    let params = Params::get(&daemon.dir, "x", "");
    daemon.client("www").send(&params, b"").expect("send");
    daemon.wait_for(line);
    daemon.log()
}

#[test]
fn what_fails_to_load_is_named() {
    const APP: (&str, &str) = ("config.ru", "run ->(env) {}\n");
    let missing = "require 'nowhere/to/be/found'\nrun ->(env) {}\n";
    let gems = "source 'https://rubygems.org'\ngem 'nowhere-to-be-found'\n";
    let rows: [(Files<'_>, &str, &[&str]); 5] = [
        (&[], "config.ru does not exist", &["entry = \"FILE.ru\""]),
        (&[("config.ru", "run ->(env) {\n  [200, {\n")], "config.ru:", &[]),
        (
            &[("config.ru", missing)],
            "nowhere/to/be/found",
            &["LoadError", "config.ru:1"],
        ),
        (&[APP, ("Gemfile", gems)], "nowhere-to-be-found", &[]),
        (&[("config.ru", "exit 3\n")], "SystemExit", &[]),
    ];
    each(rows, |(files, line, more)| {
        let log = fails(files, line);
        more.iter().for_each(|part| assert_contains(&log, part));
        assert_lacks(&log, "\\x0a");
    });
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
    assert_starts(&answer.text(), "Status: 500 ");
    assert_lacks(&answer.text(), "it broke");
    assert_contains(&answer.error_text(), "it broke (Oops)");
    assert_contains(&answer.error_text(), "config.ru:2");
    application.daemon.wait_for("it broke (Oops)");
}

#[test]
fn what_is_said_of_an_error_is_about_the_application() {
    let text = r##"
run ->(env) {
  case env["QUERY_STRING"]
  when "nothing" then nil
  when "number" then [200, {}, 5]
  when "headers" then [200, 7, []]
  when "object" then [200, {}, Object.new]
  when "parts" then [200, {}, [1, 2]]
  when "raises" then raise "it broke"
  when "body" then [200, {}, Enumerator.new { |out| out << "begun"; raise "it broke" }]
  when "cause" then begin; raise "first"; rescue; raise "second"; end
  when "input" then env["rack.input"].read(-1)
  else [200, {}, ["fine"]]
  end
}"##;
    for threads in [1, 3] {
        let application = Application::start_with(
            &[("config.ru", text)],
            "pm = \"static\"\nmax_children = 1\ncatch_workers_output = true\n",
            &format!("threads = {threads}\n"),
        );
        let rows = [
            ("nothing", "the application's answer is none that Rack allows: "),
            ("number", "the application's answer is none that Rack allows: "),
            ("headers", "the application's answer is none that Rack allows: "),
            ("object", "the application's answer is none that Rack allows: "),
            ("parts", "the application's answer is none that Rack allows: "),
            ("raises", "config.ru:9:in "),
            ("body", "config.ru:10:in "),
            ("cause", "second (RuntimeError)"),
            ("input", "config.ru:12:in "),
        ];
        each(rows, |(query, what)| {
            let answer = application.get("x", query);
            let said = answer.error_text();
            assert!(said.contains(what), "{query}, {threads} threads: {said}");
            assert!(!said.contains("/proc/self"), "{query}, {threads} threads: {said}");
            assert_lacks(&answer.text(), "/proc/self");
            application.daemon.wait_for(what);
        });
        assert_eq!(application.get("x", "").body(), "fine");
        assert_lacks(&application.daemon.log(), "/proc/self");
    }
    for text in [
        "raise 'it broke'\n",
        "require_relative 'nowhere'\n",
        "def f = raise('it broke')\nf\n",
    ] {
        let log = fails(&[("config.ru", text)], "the preloader can't start: ");
        assert_contains(&log, "config.ru:");
        assert_lacks(&log, "/proc/self");
    }
}

#[test]
fn an_exception_in_the_middle_of_a_body_leaves_what_was_sent() {
    let application = Application::of(
        r##"
body = Enumerator.new { |out| out << "begun"; raise "it broke" }
run ->(env) { [200, {}, body] }"##,
    );
    let answer = application.get("x", "");
    assert_eq!(answer.body(), "begun");
    assert_contains(&answer.error_text(), "it broke");
    assert_eq!(application.get("x", "").body(), "begun");
}

#[test]
fn a_process_that_the_application_ends_has_answered_and_is_replaced() {
    let application = Application::of("at_exit { File.write(\"ended\", \"\") }\nrun ->(env) { exit }\n");
    let first = application.daemon.wait_for_workers("www", 1);
    assert!(application.get("x", "").text().starts_with("Status: 500 "));
    wait_until("another worker", || {
        let now = application.daemon.workers("www");
        now.len() == 1 && now != first
    });
    assert!(application.root.path().join("ended").exists());
}

#[test]
fn a_copy_that_the_application_forks_answers_nothing() {
    let application = Application::of(
        r##"
run ->(env) {
  pid = fork
  raise "in the copy" if pid.nil?
  Process.wait(pid)
  [200, {}, ["the worker"]]
}"##,
    );
    let mut client = application.daemon.client("www").kept();
    for _ in 0..2 {
        let params = Params::get(&application.daemon.dir, "x", "");
        assert_eq!(client.request(&params, b"").expect("answer").body(), "the worker");
    }
}

#[test]
fn a_client_that_leaves_ends_its_answer_and_no_worker() {
    let application = Application::of(
        r##"
class Endless
  def each = loop { yield "x" * 100_000 }
  def close = $closed = Process.pid
end
run ->(env) {
  next [200, {}, [($closed == Process.pid).to_s]] if env["PATH_INFO"] == "/closed"
  [200, {}, Endless.new]
}"##,
    );
    let params = Params::get(&application.daemon.dir, "x", "");
    drop(application.daemon.send("www", &params));
    assert_eq!(application.get("closed", "").body(), "true");
}
