//! The control socket, and the commands that use it.

use crate::support::prelude::*;

const STATIC: &str = "pm = \"static\"\nmax_children = 1\n";

fn configure(dir: &Path, pools: &[(&str, &str)]) -> String {
    let mut text = with_control(dir);
    for (name, application) in pools {
        text += &pool(dir, name, STATIC, &format!("{PHP}{application}"));
    }
    text
}

fn zone(value: &str) -> String {
    format!("php_value = {{ date.timezone = \"{value}\" }}\n")
}

fn write(daemon: &Daemon, text: &str) {
    fs::write(daemon.dir.join("forkyard.toml"), text).expect("configuration");
}

fn connect(daemon: &Daemon) -> UnixStream {
    UnixStream::connect(daemon.dir.join("control.sock")).expect("connect")
}

fn ask(daemon: &Daemon, request: &str) -> Value {
    let mut stream = connect(daemon);
    stream
        .write_all(format!("{request}\n").as_bytes())
        .expect("write");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("answer");
    serde_json::from_str(&line).expect("JSON")
}

fn forkyard(daemon: &Daemon, arguments: &[&str]) -> Output {
    daemon.run(arguments)
}

fn texts(output: &Output) -> (String, String) {
    (text_of(&output.stdout), text_of(&output.stderr))
}

#[test]
fn it_answers_what_is_asked() {
    let daemon = Daemon::start(|dir| configure(dir, &[("www", "")]));
    let worker = daemon.wait_for_workers("www", 1)[0];
    daemon.write("hello.php", "<?php echo 'hello';");
    assert_eq!(daemon.get("www", "hello.php").body(), "hello");
    let pong = ask(&daemon, r#"{"command":"ping"}"#);
    assert_has(&pong, json!({"result": "pong", "pid": daemon.pid()}));
    wait_until("the worker to be idle", || {
        let status = ask(&daemon, r#"{"command":"status"}"#);
        let www = &status["pools"][0];
        assert_eq!(www["name"], "www");
        assert_eq!(www["generations"][0]["state"], "serving");
        assert_eq!(www["generations"][0]["preloader"], daemon.preloaders("www")[0]);
        let found = &www["generations"][0]["workers"][0];
        assert_eq!((&found["pid"], &found["requests"]), (&worker.into(), &1.into()));
        assert_ends(found["script"].as_str().unwrap_or_default(), "/hello.php");
        found["stage"] == "Idle"
    });
    for nonsense in ["", "{}", "reload", r#"{"command":"reload","now":1}"#] {
        assert_eq!(ask(&daemon, nonsense)["result"], "error", "{nonsense}");
    }
    let (output, errors) = texts(&forkyard(&daemon, &["status", "www"]));
    assert!(
        output.contains("pool www on /") && output.contains(&worker.to_string()),
        "{output}{errors}"
    );
    let (output, _) = texts(&forkyard(&daemon, &["status", "--json"]));
    let status: Value = serde_json::from_str(&output).expect("JSON");
    assert_eq!(status["pid"], daemon.pid());
    let mode = fs::metadata(daemon.dir.join("control.sock"))
        .expect("socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn reload_says_what_it_did_once_it_is_done() {
    let pools = |dir: &Path, value: &str, last: &str| {
        configure(dir, &[("kept", ""), ("www", &zone(value)), (last, "")])
    };
    let daemon = Daemon::start(|dir| pools(dir, "Europe/Paris", "old"));
    daemon.write("zone.php", "<?php echo date_default_timezone_get();");
    assert_eq!(daemon.get("www", "zone.php").body(), "Europe/Paris");
    write(&daemon, &pools(&daemon.dir, "Asia/Tokyo", "new"));
    let output = forkyard(&daemon, &["reload"]);
    assert_eq!(daemon.get("www", "zone.php").body(), "Asia/Tokyo");
    assert_eq!(
        texts(&output),
        (
            "replaced www: its settings changed\nadded new\nremoved old\nkept kept\n".to_owned(),
            String::new()
        )
    );
    assert_eq!(output.status.code(), Some(0));
    let (output, _) = texts(&forkyard(&daemon, &["reload"]));
    assert_eq!(output, "kept kept\nkept www\nkept new\n");
    let (output, _) = texts(&forkyard(&daemon, &["reload", "--all"]));
    assert_eq!(output.matches("replaced ").count(), 3, "{output}");
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let daemon = Daemon::start(|dir| configure(dir, &[("www", "")]));
    let old = daemon.wait_for_workers("www", 1);
    let wrong = configure(&daemon.dir, &[("www", "verison = 1\n")]);
    let line = 1 + wrong
        .lines()
        .position(|line| line.starts_with("verison"))
        .expect("the line");
    write(&daemon, &wrong);
    let output = forkyard(&daemon, &["reload"]);
    assert_eq!(output.status.code(), Some(78));
    assert!(
        texts(&output)
            .1
            .contains(&format!("forkyard.toml:{line}:1: error")),
        "{output:?}"
    );
    let answer = ask(&daemon, r#"{"command":"reload"}"#);
    let error = &answer["errors"][0];
    assert_eq!(
        (&answer["result"], &error["line"], &error["column"]),
        (&"error".into(), &line.into(), &1.into())
    );
    assert_ends(error["file"].as_str().unwrap_or_default(), "forkyard.toml");
    let output = daemon.at_socket(&["reload"]).output().expect("forkyard");
    assert_eq!(output.status.code(), Some(78));
    let errors = texts(&output).1;
    assert_contains(&errors, &format!("forkyard.toml:{line}:1: error"));
    assert_contains(&errors, "the old one stays in force");
    assert_eq!(daemon.workers("www"), old);
    let taken = daemon.dir.join("taken.sock");
    let _listener = UnixListener::bind(&taken).expect("bind");
    write(&daemon, &configure(&daemon.dir, &[("www", ""), ("taken", "")]));
    let output = forkyard(&daemon, &["reload"]);
    assert_ne!(output.status.code(), Some(0));
    assert!(texts(&output).1.contains("[pool taken]"), "{output:?}");
    assert_eq!(daemon.workers("www"), old);
}

#[test]
fn a_daemon_is_found_though_its_configuration_has_become_invalid() {
    let daemon = Daemon::start(|dir| configure(dir, &[("www", "")]));
    let socket = daemon.dir.join("control.sock").display().to_string();
    let valid = configure(&daemon.dir, &[("www", "")]);
    let global = format!("[global]\ncontrol = \"{socket}\"\n");
    daemon.write("broken.toml", "[pool.other\n");
    for wrong in [
        configure(&daemon.dir, &[("www", "verison = 1\n")]),
        valid.replace(&global, &format!("{global}demonize = true\n")),
        valid.replace(&global, &format!("{global}include = [\"broken.toml\"]\n")),
        valid.replace("www.sock", "control.sock"),
        global.clone(),
    ] {
        write(&daemon, &wrong);
        let (output, errors) = texts(&forkyard(&daemon, &["status"]));
        assert!(output.contains("\nwww "), "{wrong}{output}{errors}");
        let file = daemon.dir.join("forkyard.toml");
        let said = format!(
            "forkyard: {file} is not valid (see forkyard check -c {file}); asking the daemon at {socket}\n",
            file = file.display()
        );
        assert_eq!(errors, said);
        let (_, errors) = texts(&forkyard(&daemon, &["error", "00000000"]));
        assert_starts(&errors, &said);
        assert_contains(&errors, "00000000");
    }
    each(["forkyard.toml", "missing.toml"], |file| {
        let output = Command::new(env!("CARGO_BIN_EXE_forkyard"))
            .args(["ping", "-c"])
            .arg(daemon.dir.join(file))
            .env("FORKYARD_GLOBAL__CONTROL", &socket)
            .output();
        let (output, errors) = texts(&output.expect("forkyard"));
        assert!(output.contains(" pid ") && errors.is_empty(), "{output}{errors}");
    });
    for wrong in [
        valid.replace("[global]", "[global"),
        valid.replace(&global, "[global]\ncontrol = \"control.sock\"\n"),
        valid.replace(&global, "[globul]\n"),
    ] {
        write(&daemon, &wrong);
        let output = forkyard(&daemon, &["status"]);
        assert_eq!(output.status.code(), Some(78), "{wrong}");
        let errors = texts(&output).1;
        assert!(
            errors.contains("forkyard.toml:") && errors.contains(": error: ") && errors.contains("--socket"),
            "{wrong}{errors}"
        );
    }
}

#[test]
fn new_workers_that_do_not_come_up_are_reported() {
    let daemon = Daemon::start(|dir| configure(dir, &[("www", "")]));
    let old = daemon.wait_for_workers("www", 1);
    daemon.write("preload.php", "<?php throw new Exception('not today');");
    let preload = format!(
        "php_admin_value = {{ opcache.preload = \"{}/preload.php\" }}\n",
        daemon.dir.display()
    );
    write(&daemon, &configure(&daemon.dir, &[("www", &preload)]));
    let output = forkyard(&daemon, &["reload"]);
    assert_eq!(output.status.code(), Some(70));
    let errors = texts(&output).1;
    assert_starts(&errors, "failed www: ");
    assert_contains(&errors, "not today");
    assert_eq!(daemon.workers("www"), old);
}

#[test]
fn strangers_are_refused() {
    skip_if!(needs_root());
    let daemon = Daemon::start(|dir| configure(dir, &[("www", "")]));
    let socket = daemon.dir.join("control.sock");
    let as_nobody = || {
        Command::new(env!("CARGO_BIN_EXE_forkyard"))
            .args(["status", "--socket"])
            .arg(&socket)
            .uid(65534)
            .gid(65534)
            .output()
    };
    // The user "nobody" may have no access to the executable's directory.
    let Ok(output) = as_nobody() else {
        return crate::skip::skip("the user nobody can't execute forkyard where it was built");
    };
    assert_eq!(output.status.code(), Some(69));
    assert!(
        texts(&output).1.contains("root and the daemon's own user"),
        "{output:?}"
    );
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).expect("chmod");
    let output = as_nobody().expect("forkyard");
    assert_eq!(output.status.code(), Some(70));
    assert!(texts(&output).1.contains("permission denied"), "{output:?}");
}

#[test]
fn silent_and_endless_clients_are_in_nobodys_way() {
    let daemon = Daemon::start(|dir| configure(dir, &[("www", "")]));
    daemon.write("hello.php", "<?php echo 'hello';");
    let mut silent: Vec<UnixStream> = Vec::new();
    for _ in 0..40 {
        silent.push(connect(&daemon));
        assert_eq!(ask(&daemon, r#"{"command":"ping"}"#)["result"], "pong");
    }
    assert_eq!(silent[0].read(&mut [0; 1]).expect("the end"), 0);
    let mut endless = connect(&daemon);
    let chunk = [b'x'; 4096];
    while endless.write_all(&chunk).is_ok() {}
    let mut deaf = connect(&daemon);
    deaf.set_nonblocking(true).expect("O_NONBLOCK");
    for _ in 0..20_000 {
        if deaf.write_all(b"{\"command\":\"status\"}\n").is_err() {
            break;
        }
    }
    assert_eq!(daemon.get("www", "hello.php").body(), "hello");
    assert_eq!(ask(&daemon, r#"{"command":"ping"}"#)["result"], "pong");
}

#[test]
fn without_a_socket_it_is_said_what_to_do() {
    let daemon = Daemon::start(|dir| pool(dir, "www", STATIC, PHP));
    let output = forkyard(&daemon, &["reload"]);
    assert_eq!(output.status.code(), Some(78));
    assert!(
        texts(&output)
            .1
            .contains("names no control socket; write control ="),
        "{output:?}"
    );
    write(&daemon, &configure(&daemon.dir, &[("www", "")]));
    let output = forkyard(&daemon, &["reload"]);
    assert_eq!(output.status.code(), Some(69));
    assert!(texts(&output).1.contains("is the daemon running"), "{output:?}");
    daemon.signal(Signal::SIGUSR2);
    until("the control socket", || {
        UnixStream::connect(daemon.dir.join("control.sock")).ok()
    });
    assert_eq!(ask(&daemon, r#"{"command":"reload"}"#)["kept"][0], "www");
    write(&daemon, &pool(&daemon.dir, "www", STATIC, PHP));
    daemon.signal(Signal::SIGUSR2);
    wait_until("the control socket to go", || {
        !daemon.dir.join("control.sock").exists()
    });
}

#[test]
fn a_stale_socket_is_replaced_and_the_end_removes_it() {
    let mut daemon = Daemon::start(|dir| configure(dir, &[("www", "")]));
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    wait_until("the workers to leave", || {
        UnixStream::connect(daemon.socket("www")).is_err()
    });
    let mut second = Daemon::start_in(&daemon.dir);
    assert_eq!(ask(&second, r#"{"command":"ping"}"#)["pid"], second.pid());
    second.signal(Signal::SIGTERM);
    second.wait();
    assert!(!daemon.dir.join("control.sock").exists());
}

#[test]
fn a_second_daemon_names_the_one_behind_the_socket_and_leaves_it_alone() {
    let daemon = Daemon::start(|dir| configure(dir, &[("www", "")]));
    let other = tempfile::tempdir().expect("there is room");
    let control = daemon.dir.join("control.sock");
    let text = format!(
        "[global]\ncontrol = \"{}\"\n{}",
        control.display(),
        pool(other.path(), "other", STATIC, PHP)
    );
    fs::write(other.path().join("forkyard.toml"), text).expect("configuration");
    let second = crate::support::daemon::forkyard(&["run"], other.path());
    let second = { second }.output().expect("forkyard");
    assert_eq!(second.status.code(), Some(78), "{second:?}");
    let expected = format!(
        "control: another process (pid {}) already listens on {}; end it, or listen elsewhere",
        daemon.pid(),
        control.display()
    );
    assert!(texts(&second).1.contains(&expected), "{second:?}");
    let is_socket = |entry: &fs::DirEntry| entry.path().extension().is_some_and(|ending| ending == "sock");
    let left = fs::read_dir(other.path()).expect("a directory");
    let left: Vec<_> = left.flatten().filter(is_socket).collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(ask(&daemon, r#"{"command":"ping"}"#)["pid"], daemon.pid());
}

#[test]
fn without_a_place_for_the_default_control_socket_the_daemon_serves() {
    skip_if!(needs_root());
    for (global, starts) in [
        ("", true),
        ("[global]\ncontrol = \"/run/forkyard.sock\"\n", false),
    ] {
        let dir = directory();
        let place = dir.path().display().to_string();
        let text = global.to_owned() + &php_pool(dir.path(), "", "");
        fs::write(dir.path().join("forkyard.toml"), text).expect("configuration");
        let program = env!("CARGO_BIN_EXE_forkyard");
        let script = format!(
            "set -e; cp -a /etc {place}/etc; mkdir -p {place}/etc/forkyard; cp {place}/forkyard.toml {place}/etc/forkyard/; \
             mount --bind {place}/etc /etc; mount -t tmpfs -o ro none /run; exec {program} run"
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        let mut daemon = Daemon::launch(dir.path(), command);
        if !starts {
            daemon.wait_for("/run/forkyard.sock");
            assert_eq!(daemon.wait().code(), Some(78), "{}", daemon.log());
            continue;
        }
        let line = daemon.wait_for("there is no control socket");
        assert_contains(&line, "WARNING");
        assert_contains(&line, "/run/forkyard.sock");
        assert_contains(&line, "write control = ");
        daemon.wait_for("ready to handle connections");
        daemon.write("ok.php", "<?php echo 'fine';");
        assert_eq!(daemon.get("www", "ok.php").body(), "fine");
    }
}
