//! Applications load in the preloader or in each worker.

use super::python::start_as;
use super::rack::Application;
use crate::support::prelude::*;
use std::collections::HashSet;

const LEFT_OPEN: &str = "has left connections open while it was loaded";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Open {
    Nothing,
    File,
    Unix,
    Tcp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Static,
    Dynamic,
    Ondemand,
    Applications,
}

use Kind::{Applications, Dynamic, Ondemand, Static};
use Open::{File, Nothing, Tcp, Unix};

const TABLE: [(&str, &str, Open, Kind); 16] = [
    ("asgi", "\"auto\"", Tcp, Ondemand),
    ("asgi", "\"auto\"", Unix, Dynamic),
    ("asgi", "false", File, Dynamic),
    ("asgi", "true", File, Applications),
    ("asgi", "true", Nothing, Static),
    ("rack", "\"auto\"", Nothing, Applications),
    ("rack", "false", File, Ondemand),
    ("rack", "false", Tcp, Static),
    ("rack", "false", Unix, Static),
    ("rack", "true", Tcp, Dynamic),
    ("wsgi", "\"auto\"", File, Static),
    ("wsgi", "\"auto\"", Nothing, Ondemand),
    ("wsgi", "\"auto\"", Unix, Applications),
    ("wsgi", "false", Nothing, Dynamic),
    ("wsgi", "false", Tcp, Applications),
    ("wsgi", "true", Unix, Ondemand),
];

const PYTHON: &str = "
import os, socket, sqlite3
loaded = os.getpid()
def answer():
    return f\"{ask()} {loaded == os.getpid()}\".encode()
";

const WSGI: &str = "
def application(environ, start):
    start(\"200 OK\", [])
    return [answer()]
";

const ASGI: &str = "
async def application(scope, receive, send):
    assert scope[\"type\"] == \"http\"
    await send({\"type\": \"http.response.start\", \"status\": 200})
    await send({\"type\": \"http.response.body\", \"body\": answer()})
";

fn application(runtime: &str, open: Open, dir: &Path, port: u16) -> (&'static str, String) {
    let server = dir.join("server.sock");
    let server = server.display();
    if runtime == "rack" {
        let connect = match open {
            Nothing => "def ask = \"pong\"".to_owned(),
            File => "FILE = File.open(__FILE__)\ndef ask = FILE.closed? ? \"\" : \"pong\"".to_owned(),
            Unix => format!(
                "SERVER = UNIXSocket.new(\"{server}\")\ndef ask = (SERVER.puts(\"pong\"); SERVER.gets.chomp)"
            ),
            Tcp => format!(
                "SERVER = TCPSocket.new(\"127.0.0.1\", {port})\ndef ask = (SERVER.puts(\"pong\"); SERVER.gets.chomp)"
            ),
        };
        let serve =
            "run ->(env) { [200, {}, [\"#{ask} #{LOADED == Process.pid ? \"True\" : \"False\"}\"]] }\n";
        let text = format!("require \"socket\"\nLOADED = Process.pid\n{connect}\n{serve}");
        return ("config.ru", text);
    }
    let connect = match open {
        Nothing => "def ask(): return \"pong\"".to_owned(),
        File => "db = sqlite3.connect(os.path.join(os.path.dirname(__file__), \"db\"))\n\
                 def ask(): return db.execute(\"select 'pong'\").fetchone()[0]"
            .to_owned(),
        Unix => format!("s = socket.socket(socket.AF_UNIX)\ns.connect(\"{server}\")\n{ASK}"),
        Tcp => format!("s = socket.create_connection((\"127.0.0.1\", {port}))\n{ASK}"),
    };
    let serve = if runtime == "asgi" { ASGI } else { WSGI };
    let file = if runtime == "asgi" { "main.py" } else { "wsgi.py" };
    (file, format!("{PYTHON}{connect}\n{serve}"))
}

const ASK: &str = "def ask():\n    s.sendall(b\"pong\\n\")\n    return s.recv(9).decode().strip()";

/// An echo server for lines on a unix socket and a port. Prints the port.
fn serve(dir: &Path) -> u16 {
    let unix = UnixListener::bind(dir.join("server.sock")).expect("bind");
    make_writable(&dir.join("server.sock"));
    let tcp = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = tcp.local_addr().expect("address").port();
    std::thread::spawn(move || {
        for stream in unix.incoming().map_while(Result::ok) {
            let reader = stream.try_clone().expect("dup");
            std::thread::spawn(move || answer_lines(reader, stream));
        }
    });
    std::thread::spawn(move || {
        for stream in tcp.incoming().map_while(Result::ok) {
            let reader = stream.try_clone().expect("dup");
            std::thread::spawn(move || answer_lines(reader, stream));
        }
    });
    port
}

fn answer_lines(reader: impl std::io::Read, mut writer: impl Write) {
    for line in BufReader::new(reader).lines().map_while(Result::ok) {
        if writer.write_all(format!("{line}\n").as_bytes()).is_err() {
            return;
        }
    }
}

fn name(row: usize) -> String {
    format!("row{row}")
}

fn place(root: &Path, row: usize, dir: &Path, port: u16) {
    let (runtime, preload, open, kind) = TABLE[row];
    let (file, text) = application(runtime, open, dir, port);
    make_folder(root);
    let mut files = vec![root.join(file)];
    fs::write(&files[0], text).expect("write");
    if kind == Applications {
        files.push(root.join("forkyard.toml"));
        write_file(
            &files[1],
            format!("runtime = \"{runtime}\"\npreload = {preload}\n"),
        );
    }
    if is_root() && kind == Applications {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(root, fs::Permissions::from_mode(0o755)).expect("chmod");
        for path in files.iter().map(PathBuf::as_path).chain([root]) {
            chown(path, Some(33), Some(33)).expect("chown");
        }
    }
}

fn configure(dir: &Path, port: u16) -> String {
    let path = dir.display();
    let mut text = format!("[global]\ncontrol = \"{path}/control.sock\"\n");
    for (row, (runtime, preload, _, kind)) in TABLE.into_iter().enumerate() {
        let settings = match kind {
            Static => "pm = \"static\"\nmax_children = 2\n",
            Dynamic => {
                "pm = \"dynamic\"\nmax_children = 3\nstart_servers = 2\nmin_spare_servers = 1\nmax_spare_servers = 2\n"
            }
            Ondemand => "pm = \"ondemand\"\nmax_children = 2\n",
            Applications => {
                place(&dir.join("apps").join(name(row)), row, dir, port);
                continue;
            }
        };
        let root = dir.join(name(row));
        place(&root, row, dir, port);
        let application = application_in(runtime, root, &format!("preload = {preload}\n"));
        text.push_str(&pool(dir, &name(row), settings, &application));
    }
    text + &format!(
        "[pool.sites]\nlisten = {{ address = \"{path}/sites.sock\", mode = \"0666\" }}\nrouting = \"application\"\n\
         catch_workers_output = true\n[pool.sites.applications]\ndirectories = [\"{path}/apps\"]\nmin_uid = 1\n"
    )
}

#[test]
fn each_cell_of_runtime_setting_connection_and_pool() {
    let mut pairs = HashSet::new();
    for (runtime, preload, open, kind) in TABLE {
        pairs.insert(format!("{runtime} {preload}"));
        pairs.insert(format!("{runtime} {open:?}"));
        pairs.insert(format!("{runtime} {kind:?}"));
        pairs.insert(format!("{preload} {open:?}"));
        pairs.insert(format!("{preload} {kind:?}"));
        pairs.insert(format!("{open:?} {kind:?}"));
    }
    assert_eq!(pairs.len(), 9 + 3 * 4 * 4 + 16, "a pair is missing");

    let dir = directory();
    let port = serve(dir.path());
    fs::write(dir.path().join("forkyard.toml"), configure(dir.path(), port)).expect("configuration");
    let daemon = Daemon::start_in(dir.path()).keeping(dir);
    for (row, cell @ (_, preload, open, kind)) in TABLE.into_iter().enumerate() {
        let row = name(row);
        let (pool, params, label) = match kind {
            Applications => {
                let root = daemon.dir.join("apps").join(&row);
                let params =
                    Params::get(&root, "x", "").with("FORKYARD_APP_ROOT", &root.display().to_string());
                ("sites".to_owned(), params, format!("sites:{row}"))
            }
            Static | Dynamic | Ondemand => (row.clone(), Params::get(&daemon.dir, "x", ""), row.clone()),
        };
        let is_connected = matches!(open, Unix | Tcp);
        let is_found = preload == "\"auto\"" && is_connected;
        let wanted = match is_found || preload == "false" {
            true => "pong True",
            false => "pong False",
        };
        for _ in 0..3 {
            let answer = daemon.ask(&pool, &params);
            assert_eq!(answer.body(), wanted, "{cell:?}: {}", answer.text());
        }
        let server = match open {
            Unix => daemon.dir.join("server.sock").display().to_string(),
            Nothing | File | Tcp => format!("127.0.0.1:{port}"),
        };
        let log = daemon.log();
        let label = format!("[pool {label}]");
        let warnings: Vec<&str> = log
            .lines()
            .filter(|line| line.contains(&label) && line.contains(LEFT_OPEN))
            .collect();
        assert_eq!(warnings.len(), usize::from(is_found), "{cell:?}: {log}");
        for line in warnings {
            assert!(line.contains("WARNING") && line.contains(&server), "{line}");
            assert_contains(line, "orkyard.after_fork, ");
            assert_contains(line, ", or write preload = false");
        }
        let status = daemon.shown(&["status", &pool]);
        let told: Vec<&str> = status
            .lines()
            .filter(|line| line.contains("each worker loads"))
            .collect();
        let is_told = told.iter().any(|line| line.contains(&server));
        assert!(
            is_told == is_found && told.len() < 2 || kind == Applications,
            "{cell:?}: {status}"
        );
        assert!(!is_found || is_told, "{cell:?}: {status}");
    }
}

const SHARER: &str = "
import os, socket, time
s = socket.socket(socket.AF_UNIX)
s.connect(os.path.join(os.path.dirname(__file__), \"server.sock\"))
def application(environ, start):
    query = environ[\"QUERY_STRING\"]
    s.sendall((query + \"\\n\").encode())
    time.sleep(0.02)
    start(\"200 OK\", [])
    return [s.recv(99).strip()]
";

#[test]
fn requests_of_workers_get_their_own_answers_and_none_fails() {
    let root = folder(&[("wsgi.py", SHARER)]);
    serve(root.path());
    let daemon = Daemon::serving("wsgi", root.path(), "pm = \"static\"\nmax_children = 4\n", "");
    std::thread::scope(|scope| {
        for client in 0..8 {
            let daemon = &daemon;
            scope.spawn(move || {
                for turn in 0..5 {
                    let asked = format!("{client}-{turn}");
                    let answer = daemon.get("www", &format!("x?{asked}"));
                    assert_eq!(answer.body(), asked, "{}", answer.text());
                }
            });
        }
    });
    assert_eq!(daemon.log().matches(LEFT_OPEN).count(), 1, "{}", daemon.log());
}

const HOLDER: &str = "
import threading
lock, held = threading.Lock(), threading.Event()
def hold():
    with lock:
        held.set()
        threading.Event().wait()
threading.Thread(target=hold, daemon=True, name=\"metrics\").start()
held.wait()
def application(environ, start):
    start(\"200 OK\", [])
    return [f\"{[thread.name for thread in threading.enumerate()]}\".encode()]
";

const RUBY_HOLDER: &str = "
Thread.new { sleep }.name = \"metrics\"
Thread.new { sleep }.thread_variable_set(:fork_safe, true)
run ->(env) { [200, {}, [Thread.list.map { |thread| thread.name.to_s }.join(\" \")]] }
";

#[test]
fn a_thread_of_the_loaded_application_is_a_warning_and_there_is_none_where_each_worker_loads_it() {
    const THREADS: &str = "the application has started threads while it was loaded (metrics)";
    let settings = "pm = \"static\"\nmax_children = 2\n";
    let (daemon, _root) = start_as("wsgi", &[("wsgi.py", HOLDER)], settings, "");
    let line = daemon.wait_for(THREADS);
    assert_contains(&line, "WARNING: [pool www]");
    assert_contains(&line, "preload = false");
    assert_eq!(daemon.get("www", "x").body(), "['MainThread']");
    let (daemon, _root) = start_as("wsgi", &[("wsgi.py", HOLDER)], settings, "preload = false\n");
    assert_eq!(daemon.get("www", "x").body(), "['MainThread', 'metrics']");
    assert_lacks(&daemon.log(), "threads while");

    let ruby = Application::start_with(&[("config.ru", RUBY_HOLDER)], settings, "");
    let line = ruby.daemon.wait_for(THREADS);
    assert_contains(&line, "WARNING: [pool www]");
    assert_contains(&line, "Forkyard.after_fork");
    assert!(!ruby.get("x", "").body().contains("metrics"));
    let ruby = Application::start_with(&[("config.ru", RUBY_HOLDER)], settings, "preload = false\n");
    assert!(ruby.get("x", "").body().contains("metrics"));
    assert_lacks(&ruby.daemon.log(), "threads while");
}

const CLOSER: &str = "
import forkyard, os, socket
loaded = os.getpid()
s = socket.socket(socket.AF_UNIX)
s.connect(os.path.join(os.path.dirname(__file__), \"server.sock\"))
calls = []
@forkyard.before_fork
def close():
    calls.append(os.getpid())
    s.close()
def application(environ, start):
    start(\"200 OK\", [])
    return [f\"{loaded == os.getpid()} {len(calls)}\".encode()]
";

const RUBY_CLOSER: &str = "
require \"socket\"
LOADED = Process.pid
SERVER = UNIXSocket.new(File.join(__dir__, \"server.sock\"))
$calls = []
Forkyard.before_fork { $calls << Process.pid; SERVER.close unless SERVER.closed? }
run ->(env) { [200, {}, [\"#{LOADED == Process.pid ? \"True\" : \"False\"} #{$calls.size}\"]] }
";

#[test]
fn a_connection_that_is_closed_before_the_fork_is_none() {
    for (runtime, file, text) in [("wsgi", "wsgi.py", CLOSER), ("rack", "config.ru", RUBY_CLOSER)] {
        let root = folder(&[(file, text)]);
        serve(root.path());
        let daemon = Daemon::serving(runtime, root.path(), "pm = \"static\"\nmax_children = 1\n", "");
        assert_eq!(daemon.get("www", "x").body(), "False 1", "{runtime}");
        assert!(!daemon.log().contains(LEFT_OPEN), "{}", daemon.log());
    }
}

#[test]
fn a_preloader_that_is_started_again_remembers_and_the_log_has_one_warning() {
    let root = folder(&[("wsgi.py", SHARER)]);
    serve(root.path());
    let application = application_in("wsgi", root.path(), "preloader_idle_timeout = \"10ms\"\n");
    let settings = "pm = \"ondemand\"\nmax_children = 1\nprocess_idle_timeout = \"10ms\"\n";
    let daemon = Daemon::start(|dir| {
        let path = dir.display();
        format!(
            "[global]\ncontrol = \"{path}/control.sock\"\n{}",
            pool(dir, "www", settings, &application)
        )
    });
    assert_eq!(daemon.get("www", "x?1").body(), "1");
    wait_until("the preloader's end", || daemon.preloaders("www").is_empty());
    assert_eq!(daemon.get("www", "x?2").body(), "2");
    assert_eq!(daemon.log().matches(LEFT_OPEN).count(), 1, "{}", daemon.log());
    let status = daemon.shown(&["status", "www"]);
    assert_contains(&status, "each worker loads the application");
}

#[test]
fn an_application_that_a_worker_can_not_load_is_refused_and_reported() {
    let settings = "pm = \"ondemand\"\nmax_children = 1\ncatch_workers_output = true\n";
    let python = "import nowhere_to_be_found\ndef application(environ, start): pass\n";
    let (daemon, root) = start_as("wsgi", &[("wsgi.py", python)], settings, "preload = false\n");
    assert_starts(&daemon.get("www", "x").text(), "Status: 503");
    daemon.wait_for("a worker can't begin: ModuleNotFoundError: No module named 'nowhere_to_be_found'");
    let right = "def application(environ, start):\n    start(\"200 OK\", [])\n    return [b\"right\"]\n";
    fs::write(root.path().join("wsgi.py"), right).expect("write");
    wait_until("the application to be right", || {
        daemon.get("www", "x").body() == "right"
    });

    let ruby = "raise \"the cache is down\"\n";
    let ruby = Application::start_with(&[("config.ru", ruby)], settings, "preload = false\n");
    assert_starts(&ruby.get("x", "").text(), "Status: 503");
    let line = ruby.daemon.wait_for("a worker can't begin: ");
    assert_contains(&line, "the cache is down");
}

#[test]
fn a_worker_in_which_loading_takes_too_long_ends() {
    let settings = "pm = \"ondemand\"\nmax_children = 1\ncatch_workers_output = true\n";
    let python = "import threading\nthreading.Event().wait()\n";
    let application = "preload = false\nstart_timeout = \"4s\"\n";
    let (daemon, _root) = start_as("wsgi", &[("wsgi.py", python)], settings, application);
    assert_starts(&daemon.get("www", "x").text(), "Status: 503");
    daemon.wait_for("wsgi.py\", line 2 in <module>");

    let ruby = Application::start_with(&[("config.ru", "sleep\n")], settings, application);
    assert_starts(&ruby.get("x", "").text(), "Status: 503");
    ruby.daemon.wait_for("The application is still being loaded, at:");
}

const LATE: &str = "
import os, socket
s = None
def application(environ, start):
    global s
    if s is None:
        s = socket.socket(socket.AF_UNIX)
        s.connect(os.path.join(os.path.dirname(__file__), \"server.sock\"))
    start(\"200 OK\", [])
    return [b\"right\"]
";

const RUBY_LATE: &str = "
require \"socket\"
run ->(env) { $server ||= UNIXSocket.new(File.join(__dir__, \"server.sock\")); [200, {}, [\"right\"]] }
";

#[test]
fn no_preloader_is_made_of_a_worker_that_has_a_connection() {
    let rows = [("wsgi", "wsgi.py", LATE), ("rack", "config.ru", RUBY_LATE)];
    each(rows, |(runtime, file, text)| {
        for threads in ["", "threads = 2\n"] {
            let root = folder(&[(file, text)]);
            serve(root.path());
            let daemon = Daemon::serving(runtime, root.path(), "", &format!("refork_after = 2\n{threads}"));
            for _ in 0..4 {
                assert_eq!(daemon.get("www", "x").body(), "right");
            }
            let line = daemon.wait_for("a worker can't be made a preloader: it has connections open: ");
            assert!(line.contains("server.sock. Close them"), "{threads}: {line}");
            assert_eq!(daemon.get("www", "x").body(), "right");
        }
    });
}
