//! How an application in Python is loaded, or is not, and how workers are forked from it.

use crate::it::documents::blocks;
use crate::support::prelude::*;

const STATIC: &str = "pm = \"static\"\nmax_children = 1\ncatch_workers_output = true\n";

fn start(files: &[(&str, &str)], settings: &str, application: &str) -> (Daemon, tempfile::TempDir) {
    start_as("wsgi", files, settings, application)
}

pub(super) fn start_as(
    interface: &str,
    files: &[(&str, &str)],
    settings: &str,
    application: &str,
) -> (Daemon, tempfile::TempDir) {
    let root = folder(files);
    let application = application.replace("ROOT", &root.path().display().to_string());
    let daemon = Daemon::serving(interface, root.path(), settings, &application);
    (daemon, root)
}

fn start_broken(files: &[(&str, &str)], application: &str) -> (Daemon, tempfile::TempDir) {
    let (daemon, root) = start(
        files,
        "pm = \"ondemand\"\nmax_children = 2\ncatch_workers_output = true\n",
        application,
    );
    let _client = daemon.send("www", &Params::get(&daemon.dir, "x", ""));
    (daemon, root)
}

#[test]
fn what_can_not_be_loaded_is_told_and_tried_again() {
    let app = "def application(environ, start): pass\n";
    for (name, source, application, lines) in [
        (
            "other.py",
            "",
            "",
            vec!["none of passenger_wsgi.py, wsgi.py, manage.py, main.py, app.py, app/main.py is in"],
        ),
        (
            "wsgi.py",
            "import a_module_that_is_missing\n",
            "",
            vec![
                "line 1, in <module>",
                "ModuleNotFoundError: No module named 'a_module_that_is_missing'",
            ],
        ),
        (
            "wsgi.py",
            "def application(:\n",
            "",
            vec!["def application(:", "SyntaxError: invalid syntax"],
        ),
        (
            "wsgi.py",
            "nothing = 1\n",
            "",
            vec!["has nothing callable that is named application or app"],
        ),
        (
            "wsgi.py",
            app,
            "entry = \"wsgi:other\"\n",
            vec!["nothing callable that is named other; write entry = \"wsgi:NAME\""],
        ),
        (
            "wsgi.py",
            "async def application(scope, receive, send): pass\n",
            "",
            vec!["is an ASGI application, and the runtime is wsgi"],
        ),
        (
            "wsgi.py",
            "def create_app(): pass\n",
            "",
            vec!["write entry = \"wsgi:create_app()\""],
        ),
        (
            "wsgi.py",
            "def create_app(): return 1\n",
            "entry = \"wsgi:create_app()\"\n",
            vec!["made 1, which is no application"],
        ),
        (
            "wsgi.py",
            app,
            "interpreter = \"ROOT/wsgi.py\"\n",
            vec!["wsgi.py: Permission denied (os error 13)"],
        ),
        (
            "wsgi.py",
            "import sys\nsys.exit('configuration missing')\n",
            "",
            vec!["SystemExit: configuration missing"],
        ),
    ] {
        let (daemon, _root) = start_broken(&[(name, source)], application);
        for line in lines {
            daemon.wait_for(line);
        }
        let log = daemon.log();
        for own in ["forkyard/load.py", "forkyard/preload.py", "frozen importlib"] {
            assert!(
                !log.contains(own),
                "{own} is nothing that its author wrote:\n{log}"
            );
        }
        wait_until("another try", || {
            assert_starts(&daemon.get("www", "x").text(), "Status: 503 ");
            daemon.log().matches(" is started again in ").count() >= 2
        });
    }
}

#[test]
fn an_application_of_the_other_interface_is_told() {
    let app = "class Shop:\n    def __call__(self, environ, start_response): pass\napp = Shop()\n";
    let settings = "pm = \"ondemand\"\nmax_children = 1\n";
    let (daemon, _root) = start_as("asgi", &[("app.py", app)], settings, "");
    assert_starts(&daemon.get("www", "x").text(), "Status: 503 ");
    daemon.wait_for("is a WSGI application, and the runtime is asgi");
}

#[test]
fn an_old_release_loads_its_own_modules() {
    let place = directory();
    for release in ["r1", "r2"] {
        let root = place.path().join(release);
        fs::create_dir(&root).expect("release");
        let app = "def application(environ, start):\n    import late\n    start('200 OK', [])\n    return \
                   [late.WHO.encode()]\n";
        fs::write(root.join("app.py"), app).expect("app.py");
        fs::write(root.join("late.py"), format!("WHO = '{release}'\n")).expect("late.py");
    }
    let current = place.path().join("current");
    symlink("r1", &current).expect("link");
    let application = format!("runtime = \"wsgi\"\nroot = {current:?}\n");
    let daemon = Daemon::start(|dir| pool(dir, "www", STATIC, &application));
    daemon.wait_for_workers("www", 1);
    let next = place.path().join("next");
    symlink("r2", &next).expect("link");
    fs::rename(next, &current).expect("rename");
    assert_eq!(daemon.get("www", "x").body(), "r1");
}

#[test]
fn a_function_makes_the_application() {
    let app = "def make(name='made'):\n    def application(environ, start):\n        start('200 OK', [])\n        \
               return [name.encode()]\n    return application\n";
    let (daemon, _root) = start(&[("shop.py", app)], STATIC, "entry = \"shop:make()\"\n");
    assert_eq!(daemon.get("www", "x").body(), "made");
}

const HOOKS: &str = r#"
import os, forkyard
told = []
os.register_at_fork(before=lambda: told.append("os before"), after_in_child=lambda: told.append("os after"))

@forkyard.before_fork
def before():
    told.append("before")

@forkyard.after_fork
def after():
    told.append("after")

def application(environ, start):
    start("200 OK", [("Content-Type", "text/plain")])
    return [", ".join(told).encode()]
"#;

#[test]
fn functions_around_the_fork_are_called() {
    let (daemon, _root) = start(&[("wsgi.py", HOOKS)], STATIC, "");
    let body = daemon.get("www", "x").body();
    assert_eq!(body, "before, os before, os after, after");
}

#[test]
fn a_worker_whose_function_after_the_fork_fails_is_given_up() {
    let source = HOOKS.replace("told.append(\"after\")", "raise OSError('no database')");
    let (daemon, _root) = start_broken(&[("wsgi.py", &source)], "");
    daemon.wait_for("OSError: no database");
    daemon.wait_for("exited with code 70");
}

const THREADS: &str = r#"
import threading, time, os
def run():
    while True:
        time.sleep(60)
threading.Thread(target=run, name="reporter", daemon=True).start()
def application(environ, start):
    start("200 OK", [("Content-Type", "text/plain")])
    return [f"{threading.active_count()} {os.getppid()}".encode()]
"#;

#[test]
fn threads_of_a_loading_application_are_warned_of_and_forked_with_care() {
    let (daemon, _root) = start(&[("wsgi.py", THREADS)], STATIC, "");
    daemon.wait_for("the application has started threads while it was loaded (reporter)");
    let wanted = format!("1 {}", daemon.pid());
    wait_until("the worker to be the master's child", || {
        daemon.get("www", "x").body() == wanted
    });
    assert_eq!(daemon.wait_for_workers("www", 1).len(), 1);
}

const WHERE: &str = r#"
import sys, os
def application(environ, start):
    start("200 OK", [("Content-Type", "text/plain")])
    return [f"{sys.prefix} {sys.flags.dev_mode} {os.getuid()} {sorted(k for k in os.environ if 'FORKYARD' in k)}".encode()]
"#;

#[test]
fn a_virtual_environment_is_found_and_entered_as_the_pools_user() {
    let make = |root: &Path, name: &str| {
        let place = root.join(name);
        let made = Command::new("/usr/bin/python3")
            .args(["-m", "venv", "--without-pip"])
            .arg(&place)
            .status();
        assert!(made.expect("python3-venv").success());
        let packages = fs::read_dir(place.join("lib"))
            .expect("lib")
            .next()
            .expect("python3.x")
            .expect("entry");
        let start = format!(
            "import os; open('{}/started', 'w').write(str(os.getuid()))",
            root.display()
        );
        fs::write(packages.path().join("site-packages/start.pth"), start).expect("write");
        place
    };
    for (name, interpreter) in [("env", true), ("venv", false), (".venv", false)] {
        let root = folder(&[("wsgi.py", WHERE)]);
        let place = make(root.path(), name);
        let mut application = application_in("wsgi", root.path(), "");
        if interpreter {
            application += &format!("interpreter = \"{}/bin/python\"\n", place.display());
        }
        let daemon = Daemon::start(|dir| pool(dir, "www", STATIC, &application));
        let body = daemon.get("www", "x").body();
        let words: Vec<&str> = body.split(' ').collect();
        assert_eq!(words[0], place.display().to_string());
        let started = read_file(root.path().join("started"));
        assert_eq!(started, words[2], "the interpreter was started by another user");
        if is_root() {
            assert_ne!(started, "0");
        }
        assert_eq!(words[3], "[]");
    }
}

#[test]
fn what_an_application_prints_is_logged() {
    let source = "import sys\nprint('while loading')\ndef application(environ, start):\n    print('in a worker')\n    \
                  sys.stderr.write('an error\\n')\n    start('200 OK', [])\n    return [b'x']\n";
    let (daemon, _root) = start(&[("wsgi.py", source)], STATIC, "");
    daemon.get("www", "x");
    daemon.wait_for("an error");
    daemon.wait_for("while loading");
    daemon.wait_for("in a worker");
}

#[test]
fn a_worker_goes_on_without_its_preloader() {
    let (daemon, _root) = start(&[("wsgi.py", WHERE)], STATIC, "");
    assert!(daemon.get("www", "x").text().contains("200 OK"));
    for preloader in daemon.preloaders("www") {
        process::signal(preloader, Signal::SIGKILL);
        wait_until("the preloader's end", || !process::runs(preloader));
    }
    assert!(daemon.get("www", "x").text().contains("200 OK"));
}

const AROUND_THE_EXAMPLE: &str = r#"
import os
loaded = shop


def application(environ, start):
    try:
        loaded.execute("SELECT 1")
        closed = "open"
    except sqlite3.ProgrammingError:
        closed = "closed"
    price = shop.execute("SELECT price FROM prices").fetchone()[0]
    metrics.sendall(b"%d" % os.getpid())
    start("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()} {closed} {price} {prices}".encode()]
"#;

#[test]
fn the_connections_of_the_documents_example_are_each_workers_own() {
    let examples = blocks::read(&blocks::root().join("docs/reference/python.md"));
    let example = examples
        .iter()
        .find(|block| block.kind == "python" && block.text.contains("2003"))
        .expect("example");
    let server = TcpListener::bind("127.0.0.1:0").expect("listen");
    let port = server.local_addr().expect("address").port();
    let database = "import sqlite3\nwith sqlite3.connect('shop.db') as made:\n    \
                    made.execute('CREATE TABLE prices (article, price)')\n    \
                    made.execute(\"INSERT INTO prices VALUES ('tea', 3)\")\nmade.close()\n";
    let own = format!(", {port}))");
    assert!(example.text.contains(", 2003))"), "{example}: the port");
    let source = database.to_owned() + &example.text.replace(", 2003))", &own) + AROUND_THE_EXAMPLE;
    let settings = "pm = \"static\"\nmax_children = 2\nmax_requests = 1\ncatch_workers_output = true\n";
    let (daemon, root) = start(&[("wsgi.py", &source)], settings, "");
    let held = |pid: u32| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors");
        let links = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        links.filter(|link| *link == root.path().join("shop.db")).count()
    };
    daemon.wait_for_workers("www", 2);
    for preloader in daemon.preloaders("www") {
        assert_eq!(held(preloader), 0, "the preloader has closed the database");
    }
    let mut served = Vec::new();
    for _ in 0..4 {
        let body = daemon.get("www", "x").body();
        let (pid, rest) = body.split_once(' ').expect("pid");
        assert_eq!(rest, "closed 3 {'tea': 3}");
        served.push(pid.to_owned());
    }
    server.set_nonblocking(true).expect("non-blocking");
    let mut told = Vec::new();
    wait_until("each worker's own connection", || {
        if let Ok((mut connection, _)) = server.accept() {
            connection.set_nonblocking(false).expect("blocking");
            connection
                .set_read_timeout(Some(Duration::from_millis(200)))
                .expect("timeout");
            let mut bytes = Vec::new();
            let _ = std::io::Read::read_to_end(&mut connection, &mut bytes);
            told.extend((!bytes.is_empty()).then(|| text_of(&bytes)));
        }
        told.len() == served.len()
    });
    told.sort();
    served.sort();
    assert_eq!(told, served);
    for worker in daemon.wait_for_workers("www", 2) {
        assert_eq!(
            until("the worker's own", || Some(held(worker)).filter(|held| *held > 0)),
            1
        );
    }
}

#[test]
fn code_is_in_huge_pages_where_the_settings_say_so() {
    const WSGI: &str = "def application(environ, start):\n    start('200 OK', [])\n    return [b'well']\n";
    const ASGI: &str = "async def application(scope, receive, send):\n    \
        if scope['type'] == 'http':\n        \
        await send({'type': 'http.response.start', 'status': 200})\n        \
        await send({'type': 'http.response.body', 'body': b'well'})\n";
    let has_them = Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    for (interface, source, more) in [
        ("wsgi", WSGI, ""),
        ("wsgi", WSGI, "threads = 2\n"),
        ("asgi", ASGI, ""),
    ] {
        let file = format!("{interface}.py");
        for wanted in [true, false] {
            let application = format!("huge_code_pages = {wanted}\n{more}");
            let (daemon, _root) = start_as(interface, &[(&file, source)], STATIC, &application);
            assert_eq!(daemon.get("www", "x").body(), "well");
            let worker = daemon.wait_for_workers("www", 1)[0];
            let maps = read_file(format!("/proc/{worker}/maps"));
            let moved: Vec<&str> = maps
                .lines()
                .filter(|line| line.contains("/memfd:forkyard code"))
                .collect();
            if wanted && !has_them {
                daemon.wait_for("huge_code_pages: the interpreter's code can't be put into huge pages here");
            } else {
                assert_eq!(moved.len(), usize::from(wanted), "{interface}: {maps}");
            }
            let may_write = |line: &&str| line.split(' ').nth(1).is_some_and(|rights| rights.contains('w'));
            assert!(!moved.iter().any(may_write), "{maps}");
        }
    }
}
