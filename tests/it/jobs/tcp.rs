//! The TCP socket: without the secret, a client gets nothing.

use super::{Jobs, configuration};
use crate::support::prelude::*;
use std::net::SocketAddr;
use std::sync::OnceLock;

const SECRET: &str = "0123456789abcdefghij";

struct JobsOverTcp {
    jobs: Jobs,
    address: SocketAddr,
}

struct Line(BufReader<TcpStream>);

impl Line {
    fn connect(address: SocketAddr) -> Line {
        let stream = until("the TCP socket", || TcpStream::connect(address).ok());
        stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        Line(BufReader::new(stream))
    }

    fn say(&mut self, bytes: &[u8]) {
        let _ = self.0.get_mut().write_all(bytes);
    }

    /// The next answer, or `None` at the end.
    fn hear(&mut self) -> Option<Value> {
        let mut line = String::new();
        let _ = self.0.read_line(&mut line);
        serde_json::from_str(&line).ok()
    }

    fn ask(&mut self, request: &Value) -> Option<Value> {
        self.say(format!("{request}\n").as_bytes());
        self.hear()
    }

    fn tell(&mut self, secret: &str) -> Option<Value> {
        self.ask(&json!({"command": "secret", "secret": secret}))
    }

    fn is_over(&mut self) -> bool {
        let mut rest = Vec::new();
        let read = self.0.read_to_end(&mut rest);
        rest.is_empty() && read.is_ok_or(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
    }
}

trait IsOkOr {
    fn is_ok_or(&self, holds: impl Fn(&std::io::Error) -> bool) -> bool;
}

impl<T> IsOkOr for std::io::Result<T> {
    fn is_ok_or(&self, holds: impl Fn(&std::io::Error) -> bool) -> bool {
        self.as_ref().map_or_else(holds, |_| true)
    }
}

fn write_secret(dir: &Path, secret: &str, mode: u32) -> PathBuf {
    let path = dir.join("secret");
    fs::write(&path, format!("{secret}\n")).expect("a secret");
    fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
    path
}

#[test]
fn a_secret_that_the_daemon_would_refuse_is_refused_by_a_check() {
    let dir = directory();
    let check = || {
        let output = forkyard(&["check"], dir.path()).output().expect("forkyard");
        (output.status.code(), text_of(&output.stdout))
    };
    fs::write(dir.path().join("forkyard.toml"), text(dir.path(), address())).expect("a configuration");
    assert_eq!(check().0, Some(0), "{}", check().1);
    for (secret, mode, says) in [
        (
            SECRET,
            0o644,
            "is no secret: it has to be a file of root or of this user",
        ),
        (
            "short",
            0o600,
            "has no secret: it has to be one word of 16 to 255",
        ),
    ] {
        write_secret(dir.path(), secret, mode);
        let said = exited(Some(78), check());
        assert!(said.contains(says) && said.contains("secret_file"), "{said}");
    }
}

fn text(dir: &Path, address: SocketAddr) -> String {
    let global = format!("control = \"{}/control.sock\"\n", dir.display());
    let text = configuration(dir, &global, "max_children = 2\n", "", "");
    let secret = write_secret(dir, SECRET, 0o600);
    let tcp = format!(
        "[jobs]\nlisten_tcp = \"{address}\"\nsecret_file = \"{}\"\n",
        secret.display()
    );
    text.replace("[jobs]\n", &tcp)
}

fn address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

fn start() -> JobsOverTcp {
    let address = address();
    let daemon = Daemon::start(|dir| text(dir, address));
    JobsOverTcp {
        jobs: Jobs { daemon },
        address,
    }
}

impl JobsOverTcp {
    fn trusted(&self) -> Line {
        let mut line = Line::connect(self.address);
        assert_eq!(line.tell(SECRET), Some(json!({"result": "done"})));
        line
    }

    fn command(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let address = self.address.to_string();
        let mut all = vec!["jobs", "--connect", &address];
        all.extend(arguments);
        let output = forkyard(&all, &self.jobs.dir()).output().expect("forkyard");
        let said = text_of(&output.stdout) + &String::from_utf8_lossy(&output.stderr);
        (output.status.code(), said)
    }
}

#[test]
fn the_secret_opens_the_tcp_socket_and_nothing_else_does() {
    let over_tcp = start();
    let mut trusted = over_tcp.trusted();
    let pushed =
        trusted.ask(&json!({"command": "push", "job": {"queue": "mail", "kind": "echo", "payload": 7}}));
    let id = pushed.expect("an answer")["jobs"][0]["id"].clone();
    let waited = trusted
        .ask(&json!({"command": "wait", "id": id}))
        .expect("an answer");
    assert_eq!(waited["job"]["result"], "7 mail ");
    let mut at_once = Line::connect(over_tcp.address);
    at_once.say(
        format!("{{\"command\":\"secret\",\"secret\":\"{SECRET}\"}}\n{{\"command\":\"queues\"}}\n")
            .as_bytes(),
    );
    assert_eq!(at_once.hear().expect("an answer")["result"], "done");
    assert_eq!(at_once.hear().expect("an answer")["result"], "queues");

    let long = format!("{{\"command\":\"secret\",\"secret\":\"{}", "x".repeat(5_000));
    let rows = [
        (
            "{\"command\":\"queues\"}\n",
            "the first request of a connection is the secret",
        ),
        (
            "{\"command\":\"push\",\"job\":{\"queue\":\"mail\",\"kind\":\"echo\"}}\n",
            "the first request",
        ),
        (
            "{\"command\":\"queues\",\"secret\":\"0123456789abcdefghij\"}\n",
            "the first request",
        ),
        ("GET / HTTP/1.1\r\n\r\n", "the first request"),
        ("\n", "the first request"),
        (
            "{\"command\":\"secret\",\"secret\":\"\"}\n",
            "this is not the secret",
        ),
        (
            "{\"command\":\"secret\",\"secret\":\"0123456789abcdefghi\"}\n",
            "this is not the secret",
        ),
        (
            "{\"command\":\"secret\",\"secret\":\"0123456789abcdefghijk\"}\n",
            "this is not the secret",
        ),
        (&long, "a request has at most"),
    ];
    each(rows, |(said, expected)| {
        let mut stranger = Line::connect(over_tcp.address);
        stranger.say(said.as_bytes());
        let answer = stranger.hear().unwrap_or_else(|| panic!("no answer to {said:?}"));
        assert_contains(answer["message"].as_str().unwrap_or_default(), expected);
        stranger.say(format!("{{\"command\":\"secret\",\"secret\":\"{SECRET}\"}}\n").as_bytes());
        assert!(stranger.is_over(), "{said:?}");
    });
    let listed = over_tcp.jobs.ask(&json!({"command": "list"}));
    assert_eq!(listed["jobs"].as_array().map(Vec::len), Some(1), "{listed}");

    let (code, said) = over_tcp.command(&["push", "mail", "echo", "--payload", "8", "--wait"]);
    assert!(code == Some(0) && said.contains("8 mail"), "{said}");
    let said = exited(Some(0), over_tcp.command(&["connections"]));
    assert_contains(&said, "127.0.0.1:");
    assert_contains(&said, "queues");
    write_file(
        over_tcp.jobs.dir().join("other"),
        "another secret, which is wrong",
    );
    let other = over_tcp.jobs.dir().join("other").display().to_string();
    let (code, said) = over_tcp.command(&["--secret-file", &other, "queues"]);
    assert!(code == Some(78) && said.contains("is no secret"), "{said}");
    fs::set_permissions(&other, Permissions::from_mode(0o600)).expect("a mode");
    let (code, said) = over_tcp.command(&["--secret-file", &other, "queues"]);
    assert!(code == Some(78) && said.contains("has no secret"), "{said}");
    fs::write(&other, "another-secret-which-is-wrong").expect("a file");
    let said = exited(Some(70), over_tcp.command(&["--secret-file", &other, "queues"]));
    assert_contains(&said, "this is not the secret");
}

/// Every user of the machine can do this, because TCP has no user.
#[test]
fn a_flood_of_strangers_keeps_nobody_out_who_knows_the_secret() {
    let over_tcp = start();
    let mut before = over_tcp.trusted();
    let mut strangers: Vec<Line> = Vec::new();
    for round in 0..4 {
        for _ in 0..100 {
            let mut stranger = Line::connect(over_tcp.address);
            stranger.say(b"{\"command\":\"secret\",\"sec");
            strangers.push(stranger);
        }
        let queues = json!({"command": "queues"});
        assert_eq!(
            before.ask(&queues).expect("an answer")["result"],
            "queues",
            "round {round}"
        );
        assert_eq!(
            over_tcp.trusted().ask(&queues).expect("an answer")["result"],
            "queues"
        );
    }
    let shown = before.ask(&json!({"command": "connections"})).expect("an answer");
    let all = shown["connections"].as_array().cloned().unwrap_or_default();
    let count = all.iter().filter(|one| one["rights"] == "none").count();
    assert!((1..=64).contains(&count), "{count}");
    assert!(strangers[0].is_over());
    let last = strangers.last_mut().expect("the last");
    last.say(format!("ret\":\"{SECRET}\"}}\n").as_bytes());
    assert_eq!(last.hear(), Some(json!({"result": "done"})), "it was only slow");
    let mut silent = Line::connect(over_tcp.address);
    silent.say(b"{");
    assert!(silent.is_over());
}

struct Thief {
    is_over: Arc<AtomicBool>,
    listener: Arc<OnceLock<TcpListener>>,
}

impl Thief {
    fn start(address: SocketAddr) -> Thief {
        let thief = Thief {
            is_over: Arc::default(),
            listener: Arc::default(),
        };
        let (is_over, listener) = (Arc::clone(&thief.is_over), Arc::clone(&thief.listener));
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) && listener.get().is_none() {
                if let Ok(got) = TcpListener::bind(address) {
                    let _ = listener.set(got);
                }
                std::thread::yield_now();
            }
        });
        thief
    }

    fn has_it(&self) -> bool {
        self.listener.get().is_some()
    }
}

impl Drop for Thief {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

#[test]
fn nobody_gets_the_port_in_an_upgrade() {
    let over_tcp = start();
    let thief = Thief::start(over_tcp.address);
    let upgrade = forkyard(&["upgrade"], &over_tcp.jobs.dir())
        .output()
        .expect("upgrade");
    assert_success(&upgrade);
    assert!(!thief.has_it());
    let mut line = Line::connect(over_tcp.address);
    assert_eq!(line.tell(SECRET), Some(json!({"result": "done"})));
    assert!(!thief.has_it());
}

#[test]
fn nobody_gets_the_port_while_processes_are_killed_and_replaced() {
    let address = address();
    let daemon = Daemon::start_kept(|dir| text(dir, address));
    let jobs = Jobs { daemon };
    let over_tcp = JobsOverTcp { jobs, address };
    let thief = Thief::start(address);
    let goes_on = |what: &str| {
        let done = until("an answer", || {
            let mut line = Line::connect(address);
            line.tell(SECRET)?;
            line.ask(&json!({"command": "push", "job": {"queue": "mail", "kind": "echo"}}))
        });
        assert_eq!(done["result"], "pushed", "{what}: {done}");
        assert!(!thief.has_it(), "{what}");
    };
    goes_on("the start");
    let keeper = over_tcp.jobs.keeper_of_jobs(over_tcp.jobs.daemon.kept_master());
    process::signal(keeper, Signal::SIGKILL);
    goes_on("the process that keeps jobs is killed");
    process::signal(over_tcp.jobs.daemon.kept_master(), Signal::SIGKILL);
    over_tcp
        .jobs
        .daemon
        .wait_for_count("ready to handle connections", 2);
    goes_on("the master is killed");
    let upgrade = forkyard(&["upgrade"], &over_tcp.jobs.dir())
        .output()
        .expect("upgrade");
    assert_success(&upgrade);
    goes_on("an upgrade");
    let reload = || {
        forkyard(&["reload"], &over_tcp.jobs.dir())
            .output()
            .expect("reload")
    };

    // A secret that others can read is refused, and the old one holds.
    let mut told_before = over_tcp.trusted();
    write_secret(&over_tcp.jobs.dir(), "the-next-secret-of-all", 0o644);
    let refused = reload();
    assert!(!refused.status.success(), "{refused:?}");
    over_tcp.jobs.daemon.wait_for("is no secret");
    goes_on("a reload that is refused");
    drop(thief);
    // A new secret ends connections with the old one.
    write_secret(&over_tcp.jobs.dir(), "the-next-secret-of-all", 0o600);
    assert!(reload().status.success());
    assert!(told_before.is_over());
    let mut line = Line::connect(address);
    assert_eq!(
        line.tell(SECRET).expect("an answer")["message"],
        "this is not the secret"
    );
    let mut line = Line::connect(address);
    assert_eq!(
        line.tell("the-next-secret-of-all"),
        Some(json!({"result": "done"}))
    );
    let file = over_tcp.jobs.dir().join("forkyard.toml");
    let text = read_file(&file);
    let without: Vec<&str> = text
        .lines()
        .filter(|line| !line.contains("listen_tcp") && !line.contains("secret_file"))
        .collect();
    fs::write(&file, without.join("\n")).expect("configuration");
    assert!(reload().status.success());
    until("the port is free", || TcpListener::bind(address).ok());
    assert!(line.is_over());
}
