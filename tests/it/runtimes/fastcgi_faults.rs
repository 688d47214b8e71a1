//! FastCGI programs that fail to start, exit early, or violate the protocol.

use super::fastcgi_programs::*;
use crate::support::prelude::*;

const OK: &str = "200";
const BAD_GATEWAY: &str = "502 Bad Gateway";
const UNAVAILABLE: &str = "503 Service Unavailable";

fn refused(daemon: &Daemon) -> String {
    let answer = ask(daemon, "");
    assert_eq!(answer.status(), UNAVAILABLE, "{}", answer.text());
    assert!(
        answer.ended && answer.text().contains("Retry-After: "),
        "{}",
        answer.text()
    );
    answer.error_id()
}

fn runs(daemon: &Daemon) {
    wait_until("the program to be up again", || ask(daemon, "").status() == OK);
}

#[test]
fn a_program_that_can_not_be_started_is_reported() {
    for (command, step, line) in [
        (
            "program = \"/no/such/program\"",
            "SUBPROCESS_BEFORE_FIRST_EXEC",
            "could not be executed: there is no file /no/such/program",
        ),
        (
            "start_command = \"no-such-program\"",
            "SUBPROCESS_APP_LOAD_OR_EXEC",
            "could not be executed: there is no no-such-program in PATH",
        ),
        (
            "program = \"/etc/passwd\"",
            "SUBPROCESS_BEFORE_FIRST_EXEC",
            "could not be executed: /etc/passwd is not executable (mode 0644)",
        ),
        (
            "start_command = \"./lost\"",
            "SUBPROCESS_APP_LOAD_OR_EXEC",
            "asks in its first line for the interpreter /no/such/interpreter, which is not there",
        ),
        (
            "start_command = \"python3 odd.py exits\"",
            "SUBPROCESS_APP_LOAD_OR_EXEC",
            "exited with code 1 during startup",
        ),
        (
            "start_command = \"python3 odd.py stranger\"",
            "SUBPROCESS_LISTEN",
            "does not speak FastCGI",
        ),
        (
            "start_command = \"python3 odd.py deaf\"\nstart_timeout = \"1s\"",
            "SPAWNING_KIT_HANDSHAKE_PERFORM",
            "took longer than 1 s to start",
        ),
    ] {
        let begun = Instant::now();
        let daemon = start("", |dir| {
            write_program(&dir.join("lost"), "#!/no/such/interpreter\n");
            command.to_owned()
        });
        assert_contains(&daemon.wait_for(line), &format!("step {step}"));
        let id = refused(&daemon);
        daemon.wait_for(&format!("error {id}, how to solve it: "));
        daemon.wait_for(&format!("answered with 503 (error {id}), trying again in "));
        if command.contains("exits") {
            daemon.wait_for("it wrote: the database is not there");
        }
        assert_eq!(daemon.workers("www").len(), 1);
        let tries = daemon.log().matches("could not start").count();
        let most = 2.0 + (begun.elapsed().as_secs_f64() / 0.1 + 1.0).log2();
        assert!((tries as f64) < most, "{tries} tries");
    }
}

#[test]
fn where_visitors_may_see_it_the_report_is_what_they_get() {
    let daemon = start("friendly_error_pages = true\n", |_| {
        "program = \"/no/such/program\"".to_owned()
    });
    daemon.wait_for("trying again in ");
    let answer = ask(&daemon, "");
    assert_eq!(answer.status(), UNAVAILABLE, "{}", answer.text());
    let page = answer.body();
    assert_contains(&page, "<html");
    assert_contains(&page, "/no/such/program");
}

#[test]
fn a_program_that_is_mended_is_started_without_a_reload() {
    let daemon = odd("late", "start_timeout = \"1s\"");
    let first = pid_in(&daemon, "starting");
    wait_for_end(first);
    daemon.wait_for("took longer than 1 s to start");
    refused(&daemon);
    daemon.write("ready", "");
    runs(&daemon);
    daemon.wait_for("the FastCGI program is up again");
}

#[test]
fn a_request_waits_for_a_program_that_is_slow_to_start() {
    let daemon = odd("late", "");
    pid_in(&daemon, "starting");
    let mut client = begin(&daemon, "");
    daemon.write("ready", "");
    assert_eq!(client.answer().expect("answer").status(), OK);
}

#[test]
fn a_program_that_is_killed_is_replaced_at_each_stage() {
    let daemon = libfcgi("");
    for _ in 0..3 {
        let pid = pid_of(&ask(&daemon, ""));
        process::signal(pid, Signal::SIGKILL);
        // Until the process runs again and exits, the kernel may still queue connections for it.
        wait_for_end(pid);
        assert_ne!(pid_of(&ask(&daemon, "")), pid);
        daemon.wait_for(&format!("the FastCGI program (pid {pid}) was killed by signal 9"));
    }
    let mut client = begin(&daemon, "hang");
    process::signal(pid_in(&daemon, "hanging"), Signal::SIGKILL);
    let answer = client.answer().expect("answer");
    assert_eq!(answer.status(), BAD_GATEWAY);
    assert!(answer.ended);
    daemon.wait_for("the program gave no answer: it closed the connection");
    let mut client = begin(&daemon, "half");
    process::signal(pid_in(&daemon, "halved"), Signal::SIGKILL);
    let answer = client.answer().expect("answer");
    assert!(answer.body() == "half" && !answer.ended, "{}", answer.text());
    daemon.wait_for("an answer of the program is cut short");
    assert_eq!(ask(&daemon, "").status(), OK);
}

#[test]
fn requests_that_end_their_programs_have_no_others_refused() {
    let daemon = libfcgi("");
    for _ in 0..4 {
        let mut client = begin(&daemon, "hang");
        let pid = pid_in(&daemon, "hanging");
        fs::remove_file(daemon.dir.join("hanging")).expect("remove");
        process::signal(pid, Signal::SIGKILL);
        assert_eq!(client.answer().expect("answer").status(), BAD_GATEWAY);
    }
    assert_eq!(ask(&daemon, "").status(), OK);
    assert_lacks(&daemon.log(), "requests are answered with 503");
}

#[test]
fn a_program_that_is_killed_while_it_starts_is_reported() {
    let daemon = odd("late", "");
    process::signal(pid_in(&daemon, "starting"), Signal::SIGKILL);
    daemon.wait_for("was killed by signal 9 (SIGKILL) during startup");
    daemon.write("ready", "");
    runs(&daemon);
}

#[test]
fn a_request_that_was_not_accepted_goes_to_the_next_program() {
    let daemon = start("", |_| format!("program = \"{}\"", compiled().display()));
    let pid = pid_of(&ask(&daemon, ""));
    process::signal(pid, Signal::SIGSTOP);
    let params = Params::get(&daemon.dir, "x", "echo")
        .with("REQUEST_METHOD", "POST")
        .with("CONTENT_LENGTH", "5");
    let mut client = daemon.client("www");
    client.send(&params, b"hello").expect("send");
    let worker = daemon.wait_for_workers("www", 1)[0];
    until("the worker to wait", || {
        let call = fs::read_to_string(format!("/proc/{worker}/syscall")).ok()?;
        let poll = ["7 ", "271 "].iter().any(|number| call.starts_with(number));
        poll.then_some(())
    });
    process::signal(pid, Signal::SIGKILL);
    let answer = client.answer().expect("answer");
    assert_eq!(answer.body(), "hello", "{}", answer.text());
}

#[test]
fn a_program_that_does_not_keep_to_the_protocol_is_killed() {
    for (mode, why) in [
        ("garbage", "its answer is not FastCGI"),
        ("alien", "it answered a request that it was not asked"),
    ] {
        let daemon = odd(mode, "");
        let answer = ask(&daemon, "");
        assert_eq!(answer.status(), BAD_GATEWAY, "{}", answer.text());
        assert!(answer.ended);
        daemon.wait_for(&format!("was killed: {why}"));
        if mode == "garbage" {
            daemon.write("mended", "");
            assert_eq!(ask(&daemon, "").status(), OK);
        }
    }
    let daemon = odd("torn", "");
    let answer = ask(&daemon, "");
    assert!(
        answer.body().starts_with("pid=") && !answer.ended,
        "{}",
        answer.text()
    );
    wait_for_end(pid_of(&answer));
    daemon.write("mended", "");
    assert_eq!(ask(&daemon, "").status(), OK);
}

#[test]
fn a_program_may_refuse_and_may_close_after_each_answer() {
    let daemon = odd("overloaded", "");
    assert_eq!(ask(&daemon, "").status(), UNAVAILABLE);
    daemon.wait_for("the program refuses requests: it is overloaded");
    let daemon = odd("overloaded-once", "");
    let answer = ask(&daemon, "");
    assert!(answer.body().ends_with(" served=2"), "{}", answer.text());
    let daemon = odd("closes", "");
    let pids: Vec<u32> = (0..10).map(|_| pid_of(&ask(&daemon, ""))).collect();
    assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?}");
    let daemon = odd("once", "");
    let pids: BTreeSet<u32> = (0..10).map(|_| pid_of(&ask(&daemon, ""))).collect();
    assert_eq!(pids.len(), 10);
    assert_lacks(&daemon.log(), "gave no answer");
}

#[test]
fn a_request_that_comes_to_nothing_on_a_kept_connection_is_asked_again() {
    let daemon = odd("leaves", "");
    for _ in 0..2 {
        assert_eq!(ask(&daemon, "").status(), OK);
    }
    assert!(ask(&daemon, "").body().ends_with(" served=4"));
    assert!(ask(&daemon, "").body().ends_with(" served=5"));
    let params = Params::get(&daemon.dir, "x", "")
        .with("REQUEST_METHOD", "POST")
        .with("CONTENT_LENGTH", "5");
    let answer = daemon.client("www").request(&params, b"hello").expect("answer");
    assert_eq!(answer.status(), BAD_GATEWAY);
}

#[test]
fn a_program_may_end_what_it_does_for_a_client_that_left() {
    let daemon = libfcgi("access.log = \"DIR/access\"\naccess.format = \"%s %m %q\"\n");
    let pid = pid_of(&ask(&daemon, ""));
    let client = begin(&daemon, "slow");
    assert_eq!(pid_in(&daemon, "slow"), pid);
    drop(client);
    daemon.wait_for("a request is called off: the client left");
    daemon.write("go", "");
    assert_eq!(pid_of(&ask(&daemon, "")), pid, "it was not killed");
    let client = begin(&daemon, "hang");
    pid_in(&daemon, "hanging");
    drop(client);
    daemon.wait_for("it went on with a request for 1 s after its client had left");
    let log = read_file(daemon.dir.join("access"));
    assert_eq!(log, "200 GET \n499 GET slow\n200 GET \n499 GET hang\n");
    wait_for_end(pid);
    assert_eq!(ask(&daemon, "").status(), OK);
}

#[test]
fn nothing_outlives_a_program() {
    let daemon = start("env = { PHP_FCGI_CHILDREN = \"2\" }\n", |_| {
        concat!("start_command = \"/usr/bin/php-cgi", env!("FORKYARD_PHP"), "\"").to_owned()
    });
    daemon.write("pid.php", "<?php echo 'pid=', getmypid(), ' ';");
    let family = || {
        let worker = daemon.wait_for_workers("www", 1)[0];
        until("three processes", || {
            let program = *process::children(worker).first()?;
            let children = process::children(program);
            (children.len() == 2).then(|| [vec![program], children].concat())
        })
    };
    assert_eq!(daemon.get("www", "pid.php").status(), OK);
    let first = family();
    process::signal(first[0], Signal::SIGKILL);
    first.into_iter().for_each(wait_for_end);
    assert_eq!(daemon.get("www", "pid.php").status(), OK);
    let second = family();
    process::signal(daemon.wait_for_workers("www", 1)[0], Signal::SIGKILL);
    second.into_iter().for_each(wait_for_end);
    assert_eq!(daemon.get("www", "pid.php").status(), OK);
    let third = family();
    daemon.signal(Signal::SIGTERM);
    third.into_iter().for_each(wait_for_end);
}
