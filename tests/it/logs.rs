//! Log destinations, formats, and a full disk.

use crate::support::prelude::*;
use crate::support::{ear, hear};
use std::os::unix::net::UnixDatagram;

const STATIC: &str = "pm = \"static\"\nmax_children = 1\n";

fn start_with_syslog(path: &Path, text: &str) -> (Daemon, UnixDatagram) {
    fs::write(path.join("forkyard.toml"), text).expect("configuration");
    let socket = ear(&path.join("log"));
    let mut command = forkyard(&["run"], path);
    command.env("FORKYARD_SYSLOG_SOCKET", path.join("log"));
    (Daemon::launch(path, command), socket)
}

#[test]
fn syslog_gets_what_php_fpm_would_send() {
    let dir = directory();
    let path = dir.path();
    let text = format!(
        "[global]\nerror_log = \"syslog\"\nsyslog = {{ ident = \"mine\", facility = \"local3\" }}\n{}",
        php_pool(path, STATIC, "")
    );
    let (mut daemon, socket) = start_with_syslog(path, &text);
    let ready = hear(&socket, "ready to handle connections");
    let (head, rest) = ready.split_once(" mine[").expect("the name");
    assert!(head.starts_with("<157>"), "{ready}");
    assert_eq!(head.len(), "<157>Nov 20 18:53:09".len(), "{ready}");
    let expected = format!("{}]: [NOTICE] ready to handle connections", daemon.pid());
    assert_eq!(rest, expected);
    process::signal(daemon.wait_for_workers("www", 1)[0], Signal::SIGKILL);
    assert!(hear(&socket, "exited on signal 9").starts_with("<156>"));
    // No process reads the socket now: the daemon continues and reports it elsewhere.
    drop(socket);
    daemon.signal(Signal::SIGUSR1);
    daemon.wait_for("error log file re-opened");
    daemon.end(Signal::SIGQUIT);
}

#[test]
fn a_full_system_log_is_not_waited_for() {
    let dir = directory();
    let path = dir.path();
    let text = format!("[global]\nerror_log = \"syslog\"\n{}", php_pool(path, STATIC, ""));
    let (mut daemon, socket) = start_with_syslog(path, &text);
    hear(&socket, "ready to handle connections");
    let flood = UnixDatagram::unbound().expect("socket");
    flood.set_nonblocking(true).expect("it is ours");
    while flood.send_to(b"noise", path.join("log")).is_ok() {}
    daemon.end(Signal::SIGQUIT);
    daemon.wait_for("NOTICE: exiting, bye-bye!");
}

#[test]
fn lines_can_be_json() {
    let mut daemon = Daemon::start(|dir| {
        format!(
            "[global]\nlog_format = \"json\"\n{}",
            php_pool(dir, &format!("{STATIC}catch_workers_output = true\n"), "")
        )
    });
    daemon.write(
        "a.php",
        "<?php file_put_contents('php://stderr', \"say \\\"x\\\"\\n\");",
    );
    daemon.get("www", "a.php");
    let line = daemon.wait_for("say ");
    let said: Value = serde_json::from_str(&line).expect("JSON");
    let worker = daemon.workers("www")[0];
    assert_eq!(said["message"], "say \"x\"");
    assert_has(&said, json!({"pool": "www", "stream": "stderr"}));
    assert_has(&said, json!({"pid": worker, "level": "warning"}));
    daemon.end(Signal::SIGQUIT);
    for line in daemon.log().lines() {
        let object: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let time = object["time"].as_str().expect("a time");
        assert_eq!(time.as_bytes().get(10), Some(&b'T'), "{line}");
        assert_eq!(time.len(), "2026-11-20T18:53:12.000042+01:00".len(), "{line}");
        assert!(
            object["pid"].is_number() && object["message"].is_string(),
            "{line}"
        );
    }
}

#[test]
fn lines_of_json_say_whose_words_they_are_decorated_or_not() {
    let mut daemon = Daemon::start(|dir| {
        let settings = format!("{STATIC}catch_workers_output = true\ndecorate_workers_output = false\n");
        format!(
            "[global]\nlog_format = \"json\"\n{}",
            php_pool(dir, &settings, "")
        )
    });
    // A forged JSON line about another pool.
    daemon.write(
        "a.php",
        "<?php file_put_contents('php://stderr', '{\"level\":\"alert\",\"pid\":1,\"pool\":\"other\",\"message\":\"forged\"}' . \"\\n\");",
    );
    daemon.get("www", "a.php");
    let line = daemon.wait_for("forged");
    let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
    assert_has(
        &said,
        json!({"pool": "www", "level": "warning", "pid": daemon.workers("www")[0]}),
    );
    assert!(
        said["message"]
            .as_str()
            .is_some_and(|text| text.starts_with("{\"level\"")),
        "{line}"
    );
    daemon.end(Signal::SIGQUIT);
}

#[test]
fn a_log_of_everything_says_where_it_comes_from() {
    let mut daemon =
        Daemon::start(|dir| format!("[global]\nlog_level = \"debug\"\n{}", php_pool(dir, STATIC, "")));
    let line = daemon.wait_for("ready to handle connections");
    let (time, rest) = line.split_once("] ").expect("a time");
    assert_eq!(time.len(), "[20-Nov-2026 18:53:09.000042".len(), "{line}");
    let start = format!("NOTICE: pid {}, start(), line ", daemon.pid());
    assert!(rest.starts_with(&start), "{line}");
    daemon.end(Signal::SIGQUIT);
}

#[test]
fn a_full_disk_does_not_stop_requests() {
    let mut daemon = Daemon::start(|dir| {
        php_pool(
            dir,
            &format!("{STATIC}access = {{ log = \"/dev/full\", format = \"%r\" }}\n"),
            "",
        )
    });
    daemon.write("a.php", "<?php echo 'served';");
    for _ in 0..3 {
        assert_eq!(daemon.get("www", "a.php").body(), "served");
    }
    daemon.wait_for("the access log /dev/full can't be written: No space left on device");
    daemon.end(Signal::SIGQUIT);
    let said = daemon.log().matches("can't be written").count();
    assert_eq!(said, 1, "it is said once:\n{}", daemon.log());
}

/// Else a rotation that moves the directory away would stop the site at the next upgrade.
#[test]
fn a_pool_that_runs_goes_on_without_the_directory_of_its_logs() {
    let mut daemon = Daemon::start_kept(|dir| {
        fs::create_dir(dir.join("logs")).expect("a directory");
        let settings = format!(
            "{STATIC}access.log = \"{0}/logs/access\"\nslowlog = \"{0}/logs/slow\"\nrequest_slowlog_timeout = \"60s\"\n\
             app_log = \"{0}/logs/app\"\n",
            dir.display()
        );
        make_writable(&dir.join("logs"));
        with_control(dir) + &php_pool(dir, &settings, "")
    });
    daemon.write("a.php", "<?php echo 'served';");
    let away = daemon.dir.join("away");
    fs::rename(daemon.dir.join("logs"), &away).expect("rename");
    let lines = |count: usize| {
        wait_until("the lines in the old file", || {
            fs::read_to_string(away.join("access")).is_ok_and(|text| text.lines().count() == count)
        });
    };
    let said = exited(Some(0), daemon.said(&["restart", "www", "--wait"]));
    assert_lacks(&said, "failed");
    assert_eq!(daemon.get("www", "a.php").body(), "served");
    lines(1);
    exited(Some(0), daemon.said(&["reload"]));
    for log in ["access", "slow", "app"] {
        let file = daemon.dir.join("logs").join(log).display().to_string();
        wait_until(&file, || {
            let log = daemon.log();
            log.lines()
                .any(|line| line.contains("ERROR: [pool www] ") && line.contains(&file))
        });
    }
    daemon.wait_for("; the pool goes on");
    assert_eq!(daemon.get("www", "a.php").body(), "served");
    lines(2);
    let before = daemon.kept_master();
    process::signal(before, Signal::SIGKILL);
    daemon.next_kept_master(before);
    wait_until("an answer of the next master", || {
        daemon.said(&["ping"]).0 == Some(0)
    });
    assert_eq!(daemon.get("www", "a.php").body(), "served");
    daemon.end(Signal::SIGQUIT);
}

#[test]
fn an_access_log_that_can_not_be_opened_is_an_error() {
    let mut daemon = Daemon::start(|dir| php_pool(dir, STATIC, ""));
    daemon.write("a.php", "<?php echo 'served';");
    let settings = format!(
        "{STATIC}access.log = \"{}/missing/access\"\n",
        daemon.dir.display()
    );
    daemon.write("forkyard.toml", &php_pool(&daemon.dir, &settings, ""));
    daemon.signal(Signal::SIGUSR2);
    let line = daemon.wait_for("the old one stays in force");
    assert_contains(&line, "[pool www] access.log: failed to open");
    assert_contains(&line, "No such file");
    assert_eq!(daemon.get("www", "a.php").body(), "served");
    daemon.end(Signal::SIGQUIT);
}

#[test]
fn no_line_is_lost_over_reloads_and_rotations() {
    let mut daemon = Daemon::start(|dir| {
        let settings =
            "pm = \"static\"\nmax_children = 4\naccess = { log = \"DIR/access\", format = \"%q %m\" }\n";
        php_pool(dir, settings, "")
    });
    daemon.write("a.php", "<?php echo 'served';");
    let mut rotated = Vec::new();
    for number in 0..200 {
        assert_eq!(daemon.get("www", &format!("a.php?{number}")).body(), "served");
        if number % 50 == 10 {
            let name = daemon.dir.join(format!("access.{number}"));
            fs::rename(daemon.dir.join("access"), &name).expect("it is there");
            rotated.push(name);
            daemon.signal(Signal::SIGUSR1);
        }
        if number % 50 == 30 {
            daemon.signal(Signal::SIGUSR2);
        }
        if number % 50 == 10 {
            daemon.wait_for_count("access log file re-opened", rotated.len());
        }
    }
    daemon.end(Signal::SIGQUIT);
    rotated.push(daemon.dir.join("access"));
    let mut lines: Vec<String> = Vec::new();
    for path in &rotated {
        let text = read_file(path);
        assert!(!text.is_empty(), "{}", path.display());
        lines.extend(text.lines().map(str::to_owned));
    }
    let expected: Vec<String> = (0..200).map(|number| format!("{number} GET")).collect();
    assert_eq!(lines, expected);
}

#[test]
fn the_service_manager_is_told_what_the_pools_do() {
    let dir = directory();
    let path = dir.path();
    let text = format!(
        "[global]\nsystemd_interval = \"200ms\"\n{}",
        php_pool(path, "pm = \"static\"\nmax_children = 2\n", "")
    );
    let (mut daemon, socket) = Daemon::start_notified(path, &text, &[]);
    daemon.wait_for("systemd monitor interval set to 200ms");
    daemon.wait_for_workers("www", 2);
    hear(&socket, "Processes active: 0, idle: 2, Requests: 0, slow: 0");
    daemon.write("a.php", "<?php");
    daemon.get("www", "a.php");
    let text = hear(&socket, "Requests: 1, ");
    let expected = "READY=1\nSTATUS=Processes active: 0, idle: 2, Requests: 1, slow: 0, Traffic: ";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.ends_with("req/sec"), "{text}");
    hear(&socket, "Traffic: 0.00req/sec");
    daemon.end(Signal::SIGQUIT);
}

tests! {
    /// php-fpm's test gh9754-daemonized-stderr-close: a reader of the launcher's standard error reads its end.
    fn a_daemon_in_the_background_lets_go_of_its_standard_streams() => go_to_the_background(&["run", "-D"]);
    fn a_keeper_in_the_background_lets_go_of_its_standard_streams() => go_to_the_background(&["run", "-D", "--keeper"]);
}

fn go_to_the_background(arguments: &[&str]) {
    let dir = directory();
    let path = dir.path();
    let text = format!(
        "[global]\npid = \"{0}/pid\"\nerror_log = \"{0}/log\"\n{1}",
        path.display(),
        php_pool(path, STATIC, "")
    );
    fs::write(path.join("forkyard.toml"), text).expect("configuration");
    let mut command = forkyard(arguments, path);
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(command.output()));
    let output = receiver.recv_timeout(PATIENCE);
    let pid: u32 = read_file(path.join("pid")).parse().expect("a pid");
    let is_running = process::runs(pid);
    process::signal(pid, Signal::SIGQUIT);
    wait_until("the daemon to end", || !process::runs(pid));
    let output = output.expect("the streams end").expect("forkyard");
    assert!(output.status.success() && is_running);
}

#[test]
fn a_tool_tells_what_it_does_if_it_is_asked() {
    let daemon = Daemon::start(|dir| {
        let control = with_control(dir);
        control + &php_pool(dir, STATIC, "")
    });
    let said = |filter: Option<&str>| {
        let mut command = forkyard(&["status"], &daemon.dir);
        command.env_remove("FORKYARD_LOG");
        if let Some(filter) = filter {
            command.env("FORKYARD_LOG", filter);
        }
        let output = command.output().expect("forkyard");
        assert_success(&output);
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    assert_eq!(said(None), "");
    let (config, control) = (daemon.dir.join("forkyard.toml"), daemon.dir.join("control.sock"));
    let reads = format!("[DEBUG forkyard::config] reading {}\n", config.display());
    let connects = format!(
        "[DEBUG forkyard::control] connecting to the daemon at {}\n",
        control.display()
    );
    assert_starts(&said(Some("debug")), &format!("{reads}{connects}"));
    assert_eq!(said(Some("forkyard::config=debug")), reads);
}

#[test]
fn the_daemon_tells_what_it_does_until_its_log_is_open() {
    let dir = directory();
    let path = dir.path();
    let log = path.join("log");
    let text = format!(
        "[global]\nerror_log = \"{}\"\nlog_level = \"debug\"\n{}",
        log.display(),
        php_pool(path, STATIC, "")
    );
    fs::write(path.join("forkyard.toml"), text).expect("configuration");
    let mut command = forkyard(&["run"], path);
    command.env("FORKYARD_LOG", "debug");
    let mut daemon = Daemon::launch(path, command);
    let logged = until("the log", || {
        let text = fs::read_to_string(&log).ok()?;
        (text.contains("ready to handle connections") && text.contains("child ")).then_some(text)
    });
    assert_contains(&logged, "] DEBUG: ");
    assert_lacks(&logged, "forkyard.toml");
    daemon.end(Signal::SIGQUIT);
    let reads = format!(
        "[DEBUG forkyard::config] reading {}",
        path.join("forkyard.toml").display()
    );
    let said = daemon.log();
    assert_eq!(said.lines().next(), Some(&*reads), "{said}");
    assert_lacks(&said, "ready to handle");
}

#[test]
fn the_access_log_of_the_documents_is_written() {
    let document = read_file(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/logging.md"));
    let format = document
        .lines()
        .find_map(|line| line.strip_prefix("access.format = '")?.strip_suffix('\''))
        .expect("the document has a format");
    let shown = document
        .lines()
        .skip_while(|line| !line.starts_with("access.format"))
        .find(|line| line.starts_with("127.0.0.1 - alice "))
        .expect("the document shows a line");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let address = port.expect("there are ports").to_string();
    let daemon = Daemon::start(|dir| {
        let settings = format!(
            "{STATIC}listen = \"{address}\"\naccess = {{ log = \"DIR/access\", format = '{format}' }}\n"
        );
        php_pool(dir, &settings, "")
    });
    daemon.write("a.php", "<?php echo 'served';");
    let params = Params::get(&daemon.dir, "a.php", "page=2");
    let params = params.with("HTTP_AUTHORIZATION", "Basic YWxpY2U6eA==");
    let mut client = Client::connect_tcp(&address).expect("connect");
    let answer = client.request(&params.with("HTTP_USER_AGENT", "curl/7.88.1"), b"");
    assert_eq!(answer.expect("answer").body(), "served");
    let line = until("the line", || {
        fs::read_to_string(daemon.dir.join("access"))
            .ok()
            .filter(|text| text.ends_with('\n'))
    });
    let shape = |line: &str| {
        let line: String = line
            .chars()
            .map(|c| if c.is_ascii_digit() { '9' } else { c })
            .collect();
        let mut parts: Vec<String> = line.split('/').map(str::to_owned).collect();
        parts[1] = "Nov".to_owned();
        let line = parts.join("/");
        let mut text = String::new();
        for c in line.chars() {
            if c != '9' || !text.ends_with('9') {
                text.push(c);
            }
        }
        text
    };
    assert_eq!(shape(line.trim_end()), shape(shown));
}
