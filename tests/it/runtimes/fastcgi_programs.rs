//! The programs that the tests of the FastCGI runtime start, and how they are started.

use crate::support::prelude::*;
pub use process::wait_for_end;
use std::sync::OnceLock;

pub fn compiled() -> &'static Path {
    static PROGRAM: OnceLock<(PathBuf, tempfile::TempDir)> = OnceLock::new();
    let (path, _) = PROGRAM.get_or_init(|| {
        let dir = directory();
        let path = dir.path().join("program");
        let source = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/it/runtimes/fastcgi_programs.c"
        );
        let done = Command::new("cc")
            .args(["-O1", "-o"])
            .arg(&path)
            .args([source, "-lfcgi"])
            .status();
        assert!(done.expect("cc").success(), "the program can't be compiled");
        (path, dir)
    });
    path
}

pub const ODD: &str = r#"
import os, socket, struct, subprocess, sys, time

mode = sys.argv[1]
if mode == "exits":
    sys.exit("the database is not there")
if mode == "deaf":
    time.sleep(1000)
if mode == "late":
    open("starting", "w").write(str(os.getpid()) + "\n")
    while not os.path.exists("ready"):
        time.sleep(0.01)

def record(kind, content, request=1):
    return struct.pack(">BBHHBB", 1, kind, request, len(content), 0, 0) + content

def take(connection, count):
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            return None
        data += more
    return data

def end(status=0):
    return record(3, struct.pack(">IBBBB", 0, status, 0, 0, 0))

listener = socket.socket(fileno=0)
served = 0
while True:
    connection, _ = listener.accept()
    while True:
        head = take(connection, 8)
        if head is None:
            break
        _, kind, request, length, padding, _ = struct.unpack(">BBHHBB", head)
        content = take(connection, length + padding)
        if kind == 9 and mode == "stranger":
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            break
        if kind != 5 or length:
            continue
        served += 1
        page = b"Content-Type: text/plain\r\n\r\npid=%d served=%d" % (os.getpid(), served)
        if mode == "slow":
            subprocess.call(["sleep", "1.5"])
        if mode == "garbage" and not os.path.exists("mended"):
            connection.sendall(b"no record at all, but as long as one")
        elif mode == "torn" and not os.path.exists("mended"):
            connection.sendall(record(6, page) + b"no record at all")
        elif mode == "alien":
            connection.sendall(record(6, page, request=5))
        elif mode == "overloaded":
            connection.sendall(end(2))
            break
        elif mode == "overloaded-once" and served == 1:
            connection.sendall(end(2))
            break
        elif mode == "leaves" and served % 3 == 0:
            break
        else:
            connection.sendall(record(6, page) + record(6, b"") + end())
            if mode == "closes":
                break
            if mode == "once":
                sys.exit(0)
    connection.close()
"#;

pub fn start(settings: &str, application: impl FnOnce(&Path) -> String) -> Daemon {
    Daemon::start(|dir| {
        fs::write(dir.join("odd.py"), ODD).expect("write");
        let settings = format!("catch_workers_output = true\n{settings}");
        let settings = settings.replace("DIR", &dir.display().to_string());
        let application = application_in("fastcgi", dir, &application(dir));
        pool(dir, "www", &settings, &application)
    })
}

pub fn libfcgi(settings: &str) -> Daemon {
    start(settings, |_| {
        format!("program = \"{}\"\nabort_timeout = \"1s\"", compiled().display())
    })
}

pub fn odd(mode: &str, more: &str) -> Daemon {
    start("", |_| {
        format!("start_command = \"python3 odd.py {mode}\"\n{more}")
    })
}

pub fn ask(daemon: &Daemon, query: &str) -> Answer {
    daemon.get("www", &format!("x?{query}"))
}

pub fn begin(daemon: &Daemon, query: &str) -> Client {
    daemon.send("www", &Params::get(&daemon.dir, "x", query))
}

pub fn pid_of(answer: &Answer) -> u32 {
    let body = answer.body();
    let number = body.strip_prefix("pid=").and_then(|rest| rest.split(' ').next());
    number
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("no pid in {body:?}: {}", answer.text()))
}

pub fn pid_in(daemon: &Daemon, name: &str) -> u32 {
    let path = daemon.dir.join(name);
    until(name, || fs::read_to_string(&path).ok()?.trim().parse().ok())
}
