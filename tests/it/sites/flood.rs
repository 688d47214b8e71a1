//! A user floods the control socket while root uses it.

use super::Sites;
use crate::support::prelude::*;
use std::process::ChildStdout;

const FLOOD: usize = 1500;
const MOST_GUESTS_BEFORE: usize = 32;

const FLOODER: &str = r#"
import os, socket, sys, threading
path, count = sys.argv[1], int(sys.argv[2])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
held = []
while True:
    it = socket.socket(socket.AF_UNIX); it.setblocking(False)
    try: it.connect(path)
    except BlockingIOError: break
    held.append(it)
def flood():
    while True:
        with socket.socket(socket.AF_UNIX) as it:
            try:
                it.connect(path); it.sendall(b'{"command":"status"}\n'); it.recv(100)
            except OSError: pass
threading.stack_size(65536)
for _ in range(count): threading.Thread(target=flood, daemon=True).start()
print(len(held), flush=True)
sys.stdin.read()
"#;

const HOLDER: &str = r#"
import os, socket, sys, time
os.setgroups([]); os.setgid(65534); os.setuid(65534)
held = []
for _ in range(40):
    it = socket.socket(socket.AF_UNIX); it.connect(sys.argv[1]); it.sendall(b'{"command":"ping"}\n'); it.recv(100)
    held.append(it)
def lives(it):
    it.setblocking(False)
    try: return it.recv(1) != b''
    except BlockingIOError: return True
    except ConnectionError: return False
print(sum(map(lives, held)), flush=True)
sys.stdin.read()
"#;

/// A running program, killed on drop, and its first line.
struct Guest(#[expect(dead_code, reason = "it is held")] process::Guard, usize);

impl Guest {
    fn start(script: &str, socket: &Path) -> Guest {
        let mut child = Command::new("/usr/bin/python3")
            .args(["-c", script])
            .arg(socket)
            .arg(FLOOD.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let mut line = String::new();
        let mut output: BufReader<ChildStdout> = BufReader::new(child.stdout.take().expect("output"));
        output.read_line(&mut line).expect("a line");
        Guest(
            process::Guard::kill(child),
            line.trim().parse().expect("a number"),
        )
    }
}

fn owners(sites: &Sites) -> PathBuf {
    sites.daemon.dir.join("control.sock.owners")
}

#[test]
fn a_user_s_flood_of_connections_does_not_make_root_wait() {
    skip_if!(needs_root());
    let sites = Sites::start("max = 2");
    let master = sites.daemon.pid();
    let trace = sites.daemon.dir.join("trace");
    let mut strace =
        crate::support::strace::attach(master, &trace, &["-yy", "-s", "64", "-e", "trace=accept4,sendto"]);
    process::signal(master, Signal::SIGSTOP);
    until("the master to stop", || {
        let state = process::status_line(master, "State")?;
        state.starts_with(['T', 't']).then_some(())
    });
    let flood = Guest::start(FLOODER, &owners(&sites));
    assert!(flood.1 > 0, "the queue held nothing");
    // Root's connection needs room in the queue, or connect(2) would block.
    let mut root = UnixStream::connect(sites.daemon.dir.join("control.sock")).expect("connect");
    root.write_all(b"{\"command\":\"ping\"}\n").expect("write");
    process::signal(master, Signal::SIGCONT);
    let mut answer = String::new();
    BufReader::new(root).read_line(&mut answer).expect("answer");
    assert_contains(&answer, "\"result\":\"pong\"");
    process::signal(strace.id(), Signal::SIGINT);
    process::wait(&mut strace, "strace's end");
    let trace = read_file(trace);
    let is_to_root = |line: &str| line.starts_with("sendto(") && line.contains("control.sock\"");
    let answered = trace
        .lines()
        .position(|line| is_to_root(line) && line.contains("pong"));
    let answered = answered.unwrap_or_else(|| panic!("no answer to root: {trace}"));
    let is_guest = |line: &&str| line.contains("control.sock.owners\"") && line.starts_with("accept4(");
    let guests = trace.lines().take(answered).filter(is_guest).count();
    assert!(
        guests <= MOST_GUESTS_BEFORE,
        "{guests} guests came first: {trace}"
    );
    for _ in 0..20 {
        assert!(sites.forkyard(&["status"]).status.success());
    }
    drop(flood);
}

#[test]
fn a_user_has_few_conversations_and_takes_no_other_s() {
    skip_if!(needs_root());
    let sites = Sites::start("max = 2");
    let root: Vec<UnixStream> = (0..16)
        .map(|_| UnixStream::connect(sites.daemon.dir.join("control.sock")).expect("connect"))
        .collect();
    let holder = Guest::start(HOLDER, &owners(&sites));
    assert_eq!(holder.1, 4);
    for mut stream in root {
        stream.write_all(b"{\"command\":\"ping\"}\n").expect("write");
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).expect("answer");
        assert!(answer.contains("pong"), "{answer:?}");
    }
    drop(holder);
}
