//! What happens around the fork of a Rack worker.

use super::children::assert_child_keeps_no_descriptor;
use super::rack::Application;
use crate::support::prelude::*;
use std::collections::HashSet;

const HOOKS: &str = r##"
require "rack"
$told = []
Forkyard.before_fork { $told << "before #{Process.pid == LOADED}" }
Forkyard.after_fork { $told << "after #{Process.pid == LOADED}" }
PhusionPassenger.on_event(:starting_worker_process) { |forked| $told << "Passenger's #{forked}" }
module Counted
  def _fork = super.tap { |pid| $told << "gem's" if pid == 0 }
end
Process.singleton_class.prepend(Counted)
LOADED = Process.pid
Thread.new { sleep }
run ->(env) { [200, {}, ["#{$told.join(", ")}; #{Process.pid} #{rand(1 << 60)} #{Thread.list.size}"]] }
"##;

#[test]
fn hooks_run_once_for_each_worker_and_workers_differ() {
    let settings = "pm = \"static\"\nmax_children = 3\nmax_requests = 1\n";
    let application = Application::start_with(&[("config.ru", HOOKS)], settings, "");
    let mut seen = HashSet::new();
    for _ in 0..5 {
        let body = application.get("x", "").body();
        let (told, drawn) = body.split_once("; ").expect("parts");
        let last = told.replace("before true, ", "");
        assert_eq!(last, "gem's, after false, Passenger's true");
        let drawn: Vec<&str> = drawn.split(' ').collect();
        assert!(seen.insert(drawn[0].to_owned()), "a process answered twice");
        assert!(
            seen.insert(drawn[1].to_owned()),
            "a random number was drawn twice"
        );
        assert_eq!(drawn[2], "1", "threads");
    }
}

#[test]
fn workers_are_the_masters_children_and_nothing_is_left_between() {
    let settings = "pm = \"static\"\nmax_children = 4\n";
    let file = "run ->(env) { [200, {}, [Process.ppid.to_s]] }\n";
    let application = Application::start_with(&[("config.ru", file)], settings, "");
    let daemon = &application.daemon;
    assert_eq!(daemon.wait_for_workers("www", 4).len(), 4);
    assert_eq!(application.get("x", "").body(), daemon.pid().to_string());
    for preloader in daemon.preloaders("www") {
        assert_eq!(process::children(preloader), [] as [u32; 0]);
    }
}

#[test]
fn workers_that_are_no_longer_wanted_run_what_is_to_be_run_at_their_end() {
    let file = "Forkyard.at_stop { File.write(\"stopped\", \"\") }\nrun ->(env) { [200, {}, [\"ok\"]] }\n";
    let settings = "pm = \"static\"\nmax_children = 1\nmax_requests = 1\n";
    let application = Application::start_with(&[("config.ru", file)], settings, "");
    assert_eq!(application.get("x", "").body(), "ok");
    let stopped = application.root.path().join("stopped");
    until("the hook", || stopped.exists().then_some(()));
}

const FORKS: &str = r##"
run ->(env) do
  child = fork do
    Process.setsid
    sleep
  end
  [200, {}, [child.to_s]]
end
"##;

#[test]
fn a_child_of_a_worker_does_not_keep_its_descriptors() {
    for threads in ["", "threads = 3\n"] {
        let port = free_port();
        let settings = format!("listen = \"127.0.0.1:{port}\"\npm = \"static\"\nmax_children = 1\n");
        let application = Application::start_with(&[("config.ru", FORKS)], &settings, threads);
        assert_child_keeps_no_descriptor(application.daemon, port, "x", threads);
    }
}

/// Counts a worker's open descriptors of the database that was used at load time.
const RECORDS: &str = r##"
require "active_record"
ActiveRecord::Base.establish_connection(adapter: "sqlite3", database: File.join(__dir__, "shop.db"))
ActiveRecord::Base.connection.execute("create table if not exists orders (id integer)")
def open = Dir["/proc/self/fd/*"].count { |name| File.readlink(name).end_with?("shop.db") rescue false }
LOADED = open
run ->(env) { [200, {}, ["#{LOADED} #{open} #{ActiveRecord::Base.connection.select_value("select count(*) from orders")} #{open}"]] }
"##;

#[test]
fn connections_of_active_record_are_closed_before_each_fork() {
    let settings = "pm = \"static\"\nmax_children = 1\nmax_requests = 1\n";
    let application = Application::start_with(&[("config.ru", RECORDS)], settings, "");
    for _ in 0..3 {
        assert_eq!(application.get("x", "").body(), "1 0 0 1");
    }
}
