//! Requests over `request_terminate_timeout`: their client gets an answer, other clients lose nothing.

use super::faults::assert_well;
use crate::support::prelude::*;

fn daemon(settings: &str) -> Daemon {
    let daemon = Daemon::start(|dir| {
        let settings = format!(
            "pm = \"static\"\nmax_children = 2\nstatus_path = \"/status\"\n\
             request_terminate_timeout = \"1s\"\n{settings}"
        );
        php_pool(dir, &settings, "")
    });
    daemon.wait_for_workers("www", 2);
    daemon.write("ok.php", "<?php echo 'fine';");
    daemon
}

fn is_timeout(answer: &Answer) -> bool {
    answer.ended && answer.text().starts_with("Status: 504 Gateway Timeout\r\n") && !answer.body().is_empty()
}

#[test]
fn a_script_that_sleeps() {
    let daemon = daemon("");
    daemon.write("sleep.php", "<?php echo 'buffered'; sleep(60);");
    let begun = Instant::now();
    let answer = daemon.get("www", "sleep.php?a=1");
    assert!(is_timeout(&answer), "{}", answer.text());
    assert!(begun.elapsed() < Duration::from_secs(20), "sleep(60) went on");
    let line = daemon.wait_for("execution timed out");
    let place = daemon.dir.join("sleep.php");
    let expected = format!(
        ", script '{}' (request: \"GET /sleep.php?a=1\") execution timed out (1.",
        place.display()
    );
    assert_contains(&line, "WARNING: [pool www] child ");
    assert_contains(&line, &expected);
    assert_ends(&line, " sec), terminating");
    daemon.wait_for("exited on signal 15 (SIGTERM) after ");
    assert_well(&daemon);
}

#[test]
fn a_script_that_never_ends() {
    let daemon = daemon("");
    daemon.write("loop.php", "<?php set_time_limit(0); while (true) {}");
    let answer = daemon.get("www", "loop.php");
    assert!(is_timeout(&answer), "{}", answer.text());
    assert_well(&daemon);
}

#[test]
fn a_script_that_waits_for_a_server() {
    let daemon = daemon("");
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("an address");
    daemon.write(
        "wait.php",
        &format!("<?php $s = stream_socket_client('tcp://{address}'); stream_set_timeout($s, 60); echo fread($s, 1);"),
    );
    let answer = daemon.get("www", "wait.php");
    assert!(is_timeout(&answer), "{}", answer.text());
    assert_well(&daemon);
}

#[test]
fn an_answer_that_was_begun_is_cut_and_not_ended() {
    let daemon = daemon("");
    daemon.write(
        "half.php",
        "<?php echo 'the first half'; ob_flush(); flush(); sleep(60); echo 'the second';",
    );
    // A web server that received END_REQUEST would take half of the answer for all of it.
    let answer = daemon.get("www", "half.php");
    assert_eq!((answer.body().as_str(), answer.ended), ("the first half", false));
    assert_well(&daemon);
}

#[test]
fn a_body_that_nobody_reads() {
    let daemon = daemon("");
    daemon.write("sleep.php", "<?php sleep(60);");
    let body = vec![b'x'; 100_000];
    let mut params = Params::get(&daemon.dir, "sleep.php", "");
    params.0.retain(|(name, _)| name != "REQUEST_METHOD");
    params.0.push(("REQUEST_METHOD".into(), "PUT".into()));
    params.0.push(("CONTENT_LENGTH".into(), body.len().to_string()));
    let answer = daemon.client("www").request(&params, &body).expect("no reset");
    assert!(is_timeout(&answer), "{}", answer.text());
}

#[test]
fn other_connections_of_the_worker_lose_nothing() {
    let daemon = daemon("");
    daemon.write("sleep.php", "<?php sleep(60);");
    let ok = Params::get(&daemon.dir, "ok.php", "");
    let mut clients: Vec<Client> = (0..10).map(|_| daemon.client("www").kept()).collect();
    for client in &mut clients {
        assert_eq!(client.request(&ok, b"").expect("answer").body(), "fine");
    }
    let slow = Params::get(&daemon.dir, "sleep.php", "");
    let mut late = clients.split_off(8);
    for client in &mut late {
        client.send(&slow, b"").expect("send");
    }
    for client in &mut clients {
        client.send(&ok, b"").expect("send");
    }
    for client in &mut late {
        let answer = client.answer().expect("answer");
        assert!(is_timeout(&answer), "{}", answer.text());
        assert_eq!(client.read_raw().expect("a clean end"), b"");
    }
    for client in &mut clients {
        assert_eq!(client.answer().expect("answer").body(), "fine");
    }
    assert_well(&daemon);
}

#[test]
fn a_browser_sees_504() {
    let daemon = daemon("");
    daemon.write("sleep.php", "<?php sleep(60);");
    let nginx = Nginx::start(
        &format!(
            "location / {{ fastcgi_pass backend; fastcgi_keep_conn on; fastcgi_param SCRIPT_FILENAME {}$uri; \
             fastcgi_param SCRIPT_NAME $uri; fastcgi_param REQUEST_METHOD $request_method; \
             fastcgi_param QUERY_STRING $query_string; }}",
            daemon.dir.display()
        ),
        &format!(
            "upstream backend {{ server unix:{}; keepalive 4; }}",
            daemon.socket("www").display()
        ),
    );
    let ask = |path: &str| curl(&["-w", " %{http_code}", &nginx.url(path)]);
    assert_eq!(ask("/ok.php"), "fine 200");
    let answer = ask("/sleep.php");
    assert!(answer.ends_with(" 504") && answer.len() > 10, "{answer}");
    assert_eq!(ask("/ok.php"), "fine 200");
}

#[test]
fn a_stopped_worker_is_killed() {
    let daemon = daemon("");
    daemon.write(
        "sleep.php",
        "<?php file_put_contents('pid', getmypid()); sleep(60);",
    );
    let mut client = daemon.send("www", &Params::get(&daemon.dir, "sleep.php", ""));
    let pid = daemon.dir.join("pid");
    let worker: u32 = until("the script to run", || {
        fs::read_to_string(&pid).ok()?.parse().ok()
    });
    process::signal(worker, Signal::SIGSTOP);
    daemon.wait_for(" sec), terminating");
    let mut params = Params::get(&daemon.dir, "status", "full");
    params.0.retain(|(name, _)| name != "SCRIPT_NAME");
    params.0.push(("SCRIPT_NAME".into(), "/status".into()));
    let status = daemon.ask("www", &params).body();
    let entry = status
        .split("************************")
        .find(|entry| entry.contains(&format!("{worker}\n")))
        .unwrap_or_else(|| panic!("{worker} is not in {status}"));
    let field = |name: &str| {
        let line = entry.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).expect(name).1.trim()
    };
    assert_eq!(field("state"), "Running");
    let micros: u64 = field("request duration").parse().expect("a number");
    assert!((1_000_000..30_000_000).contains(&micros), "{micros}");
    daemon.wait_for(" sec), killing");
    daemon.wait_for("exited on signal 9 (SIGKILL)");
    assert!(!client.answer().is_ok_and(|answer| answer.ended));
    assert_well(&daemon);
}

const WORKS_ON: &str = "<?php echo 'answer'; fastcgi_finish_request(); sleep(3); touch('done');";

#[test]
fn work_after_the_answer_takes_its_time() {
    let daemon = daemon("");
    daemon.write("on.php", WORKS_ON);
    assert_eq!(daemon.get("www", "on.php").body(), "answer");
    let done = daemon.dir.join("done");
    wait_until("the script to end", || done.exists());
    assert_lacks(&daemon.log(), "timed out");
}

#[test]
fn work_after_the_answer_is_ended_where_that_is_wanted() {
    let daemon = daemon("request_terminate_timeout_track_finished = true\n");
    daemon.write("on.php", WORKS_ON);
    assert_eq!(daemon.get("www", "on.php").body(), "answer");
    daemon.wait_for(" sec), terminating");
    daemon.wait_for("exited on signal 15 (SIGTERM)");
    assert!(!daemon.dir.join("done").exists());
    assert_well(&daemon);
}

#[test]
fn no_shutdown_function_runs() {
    let daemon = daemon("");
    daemon.write(
        "shutdown.php",
        "<?php register_shutdown_function(function () { touch(__DIR__ . '/ran'); }); sleep(60);",
    );
    assert!(is_timeout(&daemon.get("www", "shutdown.php")));
    daemon.wait_for("exited on signal 15 (SIGTERM)");
    assert!(!daemon.dir.join("ran").exists());
}

#[test]
fn a_program_goes_with_its_request() {
    let daemon = Daemon::start(|dir| {
        let application = application_in("cgi", dir, "");
        let settings = "pm = \"static\"\nmax_children = 1\nrequest_terminate_timeout = \"1s\"\n";
        pool(dir, "www", settings, &application)
    });
    write_program(
        &daemon.dir.join("sleep.cgi"),
        "#!/bin/sh\necho $$ > pid\nsleep 60\n",
    );
    let answer = daemon.get("www", "sleep.cgi");
    assert!(is_timeout(&answer), "{}", answer.text());
    let text = read_file(daemon.dir.join("pid"));
    let pid: u32 = text.trim().parse().expect("a pid");
    wait_until("the program's end", || !process::runs(pid));
}
