//! `forkyard top`: on paper, as JSON, and in a terminal.

use crate::support::prelude::*;
use nix::fcntl::{Flock, FlockArg};

const PROGRAM: &str = "forkyard-top";

/// Scripts, and what their worker is seen to wait for.
const CAUSES: [(&str, &str, &str); 7] = [
    ("sleep", "sleep(60);", "sleep"),
    ("computes", "while (true) {}", "computing"),
    (
        "database",
        "$s = stream_socket_client('unix://' . __DIR__ . '/mysqld.sock'); stream_set_timeout($s, 60); fread($s, 1);",
        "database",
    ),
    (
        "network",
        "$s = stream_socket_client('tcp://ADDRESS'); stream_set_timeout($s, 60); fread($s, 1);",
        "network",
    ),
    (
        "lock",
        "$f = fopen(__DIR__ . '/locked', 'r'); flock($f, LOCK_EX);",
        "lock",
    ),
    (
        "child",
        "$p = proc_open(['sleep', '60'], [], $pipes); proc_close($p);",
        "process",
    ),
    ("fifo", "fopen(__DIR__ . '/gate', 'r');", "process"),
];

/// Servers and locks that let scripts wait.
struct Others {
    address: String,
    database: UnixListener,
    server: TcpListener,
    locked: Flock<File>,
}

impl Others {
    fn start(dir: &Path) -> Others {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let database = UnixListener::bind(dir.join("mysqld.sock")).expect("a socket");
        fs::set_permissions(dir.join("mysqld.sock"), Permissions::from_mode(0o666)).expect("chmod");
        let locked = File::create(dir.join("locked")).expect("a file");
        let locked = Flock::lock(locked, FlockArg::LockExclusive).expect("the lock");
        let mode = nix::sys::stat::Mode::from_bits_truncate(0o666);
        nix::unistd::mkfifo(&dir.join("gate"), mode).expect("a FIFO");
        Others {
            address: server.local_addr().expect("an address").to_string(),
            database,
            server,
            locked,
        }
    }
}

fn top(daemon: &Daemon, arguments: &[&str]) -> Output {
    let arguments = [&["top", "--once", "--interval", "300ms"], arguments].concat();
    let mut command = forkyard(&arguments, &daemon.dir);
    command.env("LANG", "C.UTF-8").env_remove("LC_ALL");
    command.output().expect("forkyard")
}

fn frame(daemon: &Daemon) -> Value {
    let output = top(daemon, &["--json"]);
    assert!(output.status.success(), "{}", told(&output));
    parsed(&text_of(&output.stdout))
}

fn row<'f>(frame: &'f Value, list: &str, key: &str, value: &str) -> Option<&'f Value> {
    let mut rows = frame[list].as_array()?.iter();
    rows.find(|row| row[key].as_str().is_some_and(|text| text.contains(value)))
}

fn php(workers: usize) -> Daemon {
    let daemon = Daemon::start(|dir| {
        let settings = format!("pm = \"static\"\nmax_children = {workers}\nrequest_terminate_timeout = 0\n");
        with_control(dir) + &php_pool(dir, &settings, "")
    });
    daemon.wait_for_workers("www", workers);
    daemon.write("hello.php", "<?php echo 'hello';");
    daemon
}

#[test]
fn a_frame_has_the_rates_of_the_load() {
    let daemon = php(3);
    daemon.write("long.php", "<?php sleep(600);");
    let _long = daemon.send("www", &Params::get(&daemon.dir, "long.php", "who=me"));
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        // A failure ends the load as well.
        let _stop = StopAtEnd(Arc::clone(&stop));
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(daemon.get("www", "hello.php").body(), "hello");
            }
        });
        let found = until("a frame under load", || {
            let found = frame(&daemon);
            let request = row(&found, "workers", "request", "GET /long.php?who=me")?;
            let rate = row(&found, "pools", "name", "www")?["requests_per_second"].as_f64()?;
            (rate > 5.0 && request["is_busy"] == true).then_some(found)
        });
        let pool = row(&found, "pools", "name", "www").expect("the pool");
        let number = |key: &str| pool[key].as_f64().unwrap_or_else(|| panic!("{key}: {pool}"));
        assert!(
            number("p50") > 0.0 && number("p50") <= number("p99") && number("p99") < 600.0,
            "{pool}"
        );
        assert_eq!(number("errors"), 0.0, "{pool}");
        assert!((0.0..=1.0).contains(&number("saturated")), "{pool}");
        assert!(
            number("busy") >= 1.0 && number("cpu") > 0.0 && number("memory") > 1e5,
            "{pool}"
        );
        let parts = ["cpu", "queue", "wait"].map(|part| pool["why"][part].as_f64().expect("a part"));
        assert!((parts.iter().sum::<f64>() - 1.0).abs() < 0.01, "{parts:?}");
        let interval = found["interval_seconds"].as_f64().expect("an interval");
        assert!((0.3..30.0).contains(&interval), "{interval}");
        let shown = text_of(&top(&daemon, &[]).stdout);
        assert_contains(&shown, "POOL  STATE");
        assert_contains(&shown, "GET /long.php?who=me");
        let ascii = text_of(&top(&daemon, &["--ascii", "--view", "workers"]).stdout);
        assert!(
            ascii.is_ascii() && ascii.contains("GET /long.php?who=me"),
            "{ascii}"
        );
    });
}

#[test]
fn it_is_seen_what_requests_wait_for() {
    skip_if!(needs_root());
    let daemon = php(2);
    let others = Others::start(&daemon.dir);
    for (name, script, cause) in CAUSES {
        let script = script.replace("ADDRESS", &others.address);
        daemon.write(
            &format!("{name}.php"),
            &format!("<?php set_time_limit(0); {script}"),
        );
        let client = daemon.send("www", &Params::get(&daemon.dir, &format!("{name}.php"), ""));
        // The other end has no inode before the connection is accepted.
        let _accepted = (name == "database").then(|| others.database.accept().expect("accept"));
        let pid = until(&format!("{name}: {cause}"), || {
            let found = frame(&daemon);
            assert_eq!(found["is_denied"], false, "{found}");
            let worker = row(&found, "workers", "request", &format!("/{name}.php"))?;
            (worker["last_seen"]["cause"] == cause && worker["is_busy"] == true)
                .then(|| worker["pid"].as_u64().expect("a pid"))
        });
        let before = daemon.workers("www");
        process::signal(u32::try_from(pid).expect("a pid"), Signal::SIGKILL);
        drop(client);
        wait_until("another worker", || {
            let now = daemon.workers("www");
            now.len() == before.len() && !now.contains(&u32::try_from(pid).expect("a pid"))
        });
    }
    let _ = (&others.server, &others.locked);
}

#[test]
fn a_route_has_what_its_requests_wait_for() {
    skip_if!(needs_root());
    let daemon = php(3);
    daemon.write("nap.php", "<?php usleep(60000); echo 'slept';");
    daemon.write(
        "spin.php",
        "<?php $end = microtime(true) + 0.06; while (microtime(true) < $end); echo 'spun';",
    );
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        // A failure ends the load as well.
        let _stop = StopAtEnd(Arc::clone(&stop));
        for (script, said) in [("nap.php", "slept"), ("spin.php", "spun")] {
            let (daemon, stop) = (&daemon, Arc::clone(&stop));
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(daemon.get("www", script).body(), said);
                }
            });
        }
        until("routes with causes", || {
            let found = frame(&daemon);
            let causes = |route: &str| {
                let row = row(&found, "routes", "route", route)?;
                let causes = row["why"]["causes"].as_array()?.iter();
                let names = causes.map(|cause| cause[0].as_str().unwrap_or_default().to_owned());
                Some(names.collect::<Vec<String>>())
            };
            let (nap, spin) = (causes("GET /nap.php")?, causes("GET /spin.php")?);
            let is_seen = nap.iter().any(|cause| cause == "sleep");
            assert!(!spin.iter().any(|cause| cause == "sleep"), "{spin:?}");
            is_seen.then_some(())
        });
    });
}

#[test]
fn what_failed_is_listed_with_its_report() {
    let daemon = php(2);
    daemon.write("dies.php", "<?php sleep(600);");
    let _client = daemon.send("www", &Params::get(&daemon.dir, "dies.php", ""));
    let pid = until("a request that runs", || {
        let found = frame(&daemon);
        let worker = row(&found, "workers", "request", "GET /dies.php")?;
        (worker["is_busy"] == true).then(|| worker["pid"].as_u64().expect("a pid"))
    });
    process::signal(u32::try_from(pid).expect("a pid"), Signal::SIGKILL);
    let shown = until("the death", || {
        let shown = text_of(&top(&daemon, &["--view", "failures"]).stdout);
        shown.contains("signal 9").then_some(shown)
    });
    assert_contains(&shown, "workers: signal 9");
    assert_contains(&shown, "GET /dies.php");
}

#[test]
fn a_program_that_is_not_installed_is_named() {
    let daemon = php(1);
    let alone = directory();
    let copy = alone.path().join("forkyard");
    crate::support::copy_program(env!("CARGO_BIN_EXE_forkyard").as_ref(), &copy);
    let run = |path: &Path| {
        let mut command = Command::new(&copy);
        command.args(["top", "--once", "--interval", "1ms", "-c"]);
        command.arg(daemon.dir.join("forkyard.toml")).env("PATH", path);
        said_by(&mut command)
    };
    let said = exited(Some(70), run(alone.path()));
    assert_contains(&said, "install the package forkyard-top");
    let said = exited(
        Some(0),
        run(Path::new(env!("CARGO_BIN_EXE_forkyard"))
            .parent()
            .expect("a directory")),
    );
    assert_contains(&said, "www");
}

#[test]
fn without_a_daemon_or_a_terminal_it_says_so() {
    let mut daemon = php(1);
    let (code, said) = daemon.said(&["top"]);
    assert_eq!(code, Some(70), "{said}");
    assert_contains(&said, "--once prints a frame");
    daemon.end(Signal::SIGTERM);
    let output = top(&daemon, &[]);
    assert_eq!(output.status.code(), Some(69), "{}", told(&output));
    assert_contains(&told(&output), "is the daemon running");
}

/// A terminal of 100 columns and 30 lines, with a server of its own.
struct Tmux {
    socket: PathBuf,
}

impl Tmux {
    fn start(dir: &Path, command: &str) -> Tmux {
        let tmux = Tmux {
            socket: dir.join("tmux"),
        };
        tmux.run(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            "100",
            "-y",
            "30",
            command,
        ]);
        tmux
    }

    fn run(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.arg("-u").arg("-S").arg(&self.socket).args(arguments);
        let output = command
            .env("LANG", "C.UTF-8")
            .env_remove("LC_ALL")
            .env_remove("TMUX")
            .output();
        text_of(&output.expect("tmux").stdout)
    }

    fn press(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    fn shown(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    #[track_caller]
    fn wait_for(&self, text: &str) -> String {
        let mut last = String::new();
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            last = self.shown();
            if last.contains(text) {
                return last;
            }
            pause();
        }
        panic!("no {text:?} in\n{last}");
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

#[test]
fn a_terminal_that_only_appends_gets_no_screen() {
    let daemon = php(1);
    let command = format!(
        "env TERM=dumb {} top -c {}; sleep 600",
        env!("CARGO_BIN_EXE_forkyard"),
        daemon.dir.join("forkyard.toml").display()
    );
    let tmux = Tmux::start(&daemon.dir, &command);
    tmux.wait_for("--once prints a frame");
}

#[test]
fn keys_are_obeyed_in_a_terminal() {
    let daemon = php(2);
    daemon.write("long.php", "<?php sleep(600);");
    let mut long = daemon.send("www", &Params::get(&daemon.dir, "long.php", ""));
    let command = format!(
        "{} top -c {} --interval 200ms",
        env!("CARGO_BIN_EXE_forkyard"),
        daemon.dir.join("forkyard.toml").display()
    );
    assert!(
        Path::new(env!("CARGO_BIN_EXE_forkyard"))
            .with_file_name(PROGRAM)
            .exists()
    );
    let tmux = Tmux::start(&daemon.dir, &command);
    let shown = tmux.wait_for("GET /long.php");
    assert_contains(&shown, "1 pools 2 workers");
    assert_contains(&shown, "requests in flight");
    tmux.press(&["2"]);
    tmux.wait_for("REQUESTS");
    tmux.press(&["?"]);
    tmux.wait_for("the report of the row's error");
    tmux.press(&["Escape"]);
    // A key right behind it would be another one, with Alt.
    tmux.wait_for("REQUESTS");
    // The request is ended only after a yes.
    tmux.press(&["3"]);
    tmux.wait_for("FOR");
    tmux.press(&["k"]);
    tmux.wait_for("end the request of process");
    tmux.press(&["n"]);
    tmux.wait_for("nothing was done");
    tmux.press(&["k"]);
    tmux.wait_for("(y/n)");
    tmux.press(&["y"]);
    let answer = long.answer().expect("an answer");
    assert_starts(&answer.text(), "Status: 504");
    tmux.wait_for("no requests in flight");
    // The pool gets new processes.
    let before = daemon.wait_for_workers("www", 2);
    tmux.press(&["1"]);
    tmux.wait_for("POOL");
    tmux.press(&["r"]);
    tmux.wait_for("give pool www new processes? (y/n)");
    tmux.press(&["y"]);
    daemon.wait_for_other_workers("www", 2, &before);
    tmux.press(&["/", "x", "y", "z", "Enter"]);
    tmux.wait_for("no row has the text of the filter");
    tmux.press(&["q"]);
    wait_until("its end", || tmux.run(&["list-sessions"]).is_empty());
}

#[test]
fn a_terminal_that_closes_ends_the_view() {
    let daemon = php(1);
    let top = format!(
        "{} top -c {}",
        env!("CARGO_BIN_EXE_forkyard"),
        daemon.dir.join("forkyard.toml").display()
    );
    // With and without the signal.
    for begin in ["", "trap '' HUP; "] {
        let tmux = Tmux::start(&daemon.dir, &format!("{begin}exec {top}"));
        tmux.wait_for("no requests in flight");
        let pid = tmux.run(&["display-message", "-p", "#{pane_pid}"]);
        let pid: u32 = pid.trim().parse().expect("a pid");
        drop(tmux);
        process::wait_for_end(pid);
    }
}
