//! Processes that a worker started and left: which of its ends kill them.

use crate::support::prelude::*;

const PYTHON: &str = r#"
import asyncio, os, subprocess, time
import forkyard
eaten = []
def start(**more):
    null = subprocess.DEVNULL
    child = subprocess.Popen(["sleep", "600"], stdin=null, stdout=null, stderr=null, **more)
    return f"{child.pid} {os.getpid()}"
early = None
@forkyard.after_fork
def begin():
    global early
    if os.path.exists("early"): early = start()
def answer(path):
    if path == "/early": return early
    if path == "/apart": return start(start_new_session=True)
    text = start()
    if path == "/eat": eaten.append(b"x" * 200_000_000)
    if path == "/hang":
        with open("child.new", "w") as file: file.write(text)
        os.rename("child.new", "child")
        time.sleep(600)
    return text
def application(environ, start_response):
    start_response("200 OK", [])
    return [answer(environ["PATH_INFO"]).encode()]
async def app(scope, receive, send):
    if scope["type"] != "http": raise RuntimeError("no lifespan")
    text = answer(scope["path"])
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": text.encode()})
"#;
const RACK: &str = r##"
$eaten = []
def start(**more)
  "#{spawn("sleep", "600", in: :close, out: "/dev/null", err: "/dev/null", **more)} #{Process.pid}"
end
run(lambda do |env|
  path = env["PATH_INFO"]
  text = path == "/apart" ? `setsid sh -c 'sleep 600 >/dev/null 2>&1 & echo $!'`.strip + " #{Process.pid}" : start
  $eaten << "x" * 200_000_000 if path == "/eat"
  if path == "/hang"
    File.write("child.new", text)
    File.rename("child.new", "child")
    sleep 600
  end
  [200, {}, [text]]
end)
"##;
const CGI: &str = r#"#!/bin/sh
case $PATH_INFO in
/apart) setsid sleep 600 >/dev/null 2>&1 & ;;
*) sleep 600 >/dev/null 2>&1 & ;;
esac
echo "Content-Type: text/plain"
echo
echo "$! $PPID"
if [ "$PATH_INFO" = /hang ]; then echo "$! $PPID" >child.new; mv child.new child; wait; fi
"#;
const PHP: &str = r#"<?php
$text = trim(shell_exec('sleep 600 >/dev/null 2>&1 & echo $!')) . ' ' . getmypid();
if ($_SERVER['PATH_INFO'] === '/hang') {
    file_put_contents('child.new', $text);
    rename('child.new', 'child');
    sleep(600);
}
echo $text;
"#;

#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    runtime: &'static str,
    file: &'static str,
    text: &'static str,
    application: &'static str,
}

const WSGI: Kind = Kind {
    name: "wsgi",
    runtime: "wsgi",
    file: "wsgi.py",
    text: PYTHON,
    application: "",
};
const KINDS: [Kind; 6] = [
    WSGI,
    Kind {
        name: "threads",
        application: "threads = 2\n",
        ..WSGI
    },
    Kind {
        name: "asgi",
        runtime: "asgi",
        application: "entry = \"wsgi:app\"\n",
        ..WSGI
    },
    Kind {
        name: "rack",
        runtime: "rack",
        file: "config.ru",
        text: RACK,
        application: "",
    },
    Kind {
        name: "cgi",
        runtime: "cgi",
        file: "x",
        text: CGI,
        application: "",
    },
    Kind {
        name: "php",
        runtime: "php",
        file: "x.php",
        text: PHP,
        application: "",
    },
];

struct Site {
    daemon: Daemon,
    root: tempfile::TempDir,
    kind: Kind,
    left: Vec<u32>,
}

impl Site {
    fn start(kind: Kind, settings: &str) -> Site {
        Site::start_with(kind, settings, &[])
    }

    fn start_with(kind: Kind, settings: &str, files: &[&str]) -> Site {
        let root = folder(&[(kind.file, kind.text)]);
        for file in files {
            fs::write(root.path().join(file), "").expect("write");
        }
        let daemon = Daemon::start(|dir| {
            let text = configuration(dir, kind, root.path(), settings);
            let other = pool(
                dir,
                "other",
                "pm = \"ondemand\"\nmax_children = 1\n",
                "runtime = \"cgi\"\nroot = \"/srv\"\n",
            );
            format!("[global]\ncontrol = \"DIR/control\"\n{text}{other}")
        });
        Site {
            daemon,
            root,
            kind,
            left: Vec::new(),
        }
    }

    fn send(&self, path: &str) -> Client {
        let script = self.root.path().join(self.kind.file);
        let params = Params::get(self.root.path(), "", "")
            .with("SCRIPT_NAME", "")
            .with("SCRIPT_FILENAME", &script.display().to_string())
            .with("PATH_INFO", path);
        let params = match self.kind.runtime {
            "cgi" => params.with("SCRIPT_NAME", &format!("/{}", self.kind.file)),
            _ => params,
        };
        self.daemon.send("www", &params)
    }

    fn begin(&self, path: &str) -> [u32; 2] {
        let mut client = self.send(path);
        self.pids(&client.answer().expect("an answer").body())
    }

    fn pids(&self, text: &str) -> [u32; 2] {
        let mut pids = text.split_whitespace().map_while(|word| word.parse().ok());
        let mut next = || {
            pids.next()
                .unwrap_or_else(|| panic!("{}: {text}\n{}", self.kind.name, self.daemon.log()))
        };
        [next(), next()]
    }

    fn hang(&self) -> ([u32; 2], Client) {
        let client = self.send("/hang");
        let text = until("the request to begin", || {
            fs::read_to_string(self.root.path().join("child")).ok()
        });
        (self.pids(&text), client)
    }

    fn wait_for_end(&self, what: &str, pid: u32) {
        wait_until(
            &format!("{}: {what} to end\n{}", self.kind.name, self.daemon.log()),
            || !process::runs(pid),
        );
    }

    fn status(&self) -> String {
        text_of(&self.daemon.run(&["status", "www"]).stdout)
    }

    fn ends(&mut self, what: &str, child: u32) {
        if self.kind.runtime == "php" {
            assert!(process::runs(child), "{what}");
            self.left.push(child);
        } else {
            self.wait_for_end(what, child);
        }
    }

    fn stays(&mut self, what: &str, child: u32) {
        assert!(process::runs(child), "{}: {what}", self.kind.name);
        self.left.push(child);
        let is_counted = || {
            self.status()
                .contains("left by workers that are gone: 1 processes")
        };
        match self.kind.runtime {
            "php" => assert!(!is_counted(), "{}: {}", self.kind.name, self.status()),
            name => wait_until(&format!("{name}: the count"), is_counted),
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for child in &self.left {
            let _ = kill(Pid::from_raw(*child as i32), Signal::SIGKILL);
        }
    }
}

fn configuration(dir: &Path, kind: Kind, root: &Path, settings: &str) -> String {
    let root = match kind.runtime {
        "php" => format!(
            concat!("version = \"", env!("FORKYARD_PHP"), "\"\n{}"),
            kind.application
        ),
        _ => format!("root = \"{}\"\n{}", root.display(), kind.application),
    };
    pool(
        dir,
        "www",
        &format!("catch_workers_output = true\nreload = \"always\"\n{settings}"),
        &format!("runtime = \"{}\"\n{root}", kind.runtime),
    )
}

fn each_kind(test: impl Fn(Kind) + Sync) {
    each_but(&[], test);
}

fn each_but(names: &[&str], test: impl Fn(Kind) + Sync) {
    std::thread::scope(|scope| {
        for kind in KINDS.into_iter().filter(|kind| !names.contains(&kind.name)) {
            let test = &test;
            scope.spawn(move || test(kind));
        }
    });
}

#[test]
fn it_ends_with_the_daemon() {
    for signal in [Signal::SIGQUIT, Signal::SIGTERM] {
        each_kind(|kind| {
            let mut site = Site::start(kind, "");
            let [child, _] = site.begin("/");
            site.daemon.signal(signal);
            site.daemon.wait();
            site.ends("a child of a stopped daemon's worker", child);
        });
    }
}

#[test]
fn it_ends_with_its_pool() {
    each_kind(|kind| {
        let mut site = Site::start(kind, "");
        let [child, worker] = site.begin("/");
        let file = site.daemon.dir.join("forkyard.toml");
        let text = read_file(&file);
        let without = text.replace("[pool.www", "[pool.gone").replace("/www", "/gone");
        fs::write(&file, without).expect("write");
        site.daemon.signal(Signal::SIGUSR2);
        site.wait_for_end("the worker", worker);
        site.ends("a child of a closed pool's worker", child);
    });
}

#[test]
fn it_ends_with_a_worker_whose_request_takes_too_long() {
    each_kind(|kind| {
        let mut site = Site::start(kind, "request_terminate_timeout = \"300ms\"\n");
        let ([child, worker], _client) = site.hang();
        site.wait_for_end("the worker", worker);
        site.ends("a child of a worker that was ended", child);
    });
}

#[test]
fn it_ends_with_a_worker_that_stays_after_it_was_told_to_go() {
    each_kind(|kind| {
        let mut site = Site::start(kind, "");
        let file = site.daemon.dir.join("forkyard.toml");
        let text = read_file(&file);
        let short = text.replace("[global]\n", "[global]\nprocess_control_timeout = \"300ms\"\n");
        fs::write(&file, short).expect("write");
        let ([child, worker], _client) = site.hang();
        site.daemon.signal(Signal::SIGUSR2);
        site.wait_for_end("the worker", worker);
        site.ends("a child of a worker that stayed", child);
    });
}

#[test]
fn it_ends_with_a_worker_that_uses_too_much_memory() {
    each_but(&["cgi", "php"], |kind| {
        let mut site = Site::start(kind, "memory_limit = \"150M\"\n");
        let [child, worker] = site.begin("/eat");
        wait_until("the worker's memory to be looked at", || {
            site.begin("/")[1] != worker
        });
        site.wait_for_end("the worker", worker);
        site.ends("a child of a worker that used too much", child);
    });
}

#[test]
fn it_stays_when_its_worker_is_recycled_and_is_counted() {
    each_kind(|kind| {
        let mut site = Site::start(kind, "max_requests = 1\n");
        let [child, worker] = site.begin("/");
        site.wait_for_end("the worker", worker);
        site.stays("a child of a worker after max_requests", child);
        site.daemon.signal(Signal::SIGTERM);
        site.daemon.wait();
        site.ends("what was left, with the daemon", child);
    });
}

#[test]
fn it_stays_when_its_worker_was_idle_and_ends_with_the_pool() {
    each_kind(|kind| {
        let idle = "pm = \"ondemand\"\nmax_children = 1\nprocess_idle_timeout = \"100ms\"\n";
        let mut site = Site::start(kind, idle);
        let [child, worker] = site.begin("/");
        site.wait_for_end("the worker", worker);
        site.stays("a child of a worker that was idle", child);
        let file = site.daemon.dir.join("forkyard.toml");
        let text = read_file(&file);
        let without = text.replace("[pool.www", "[pool.gone").replace("/www", "/gone");
        fs::write(&file, without).expect("write");
        site.daemon.signal(Signal::SIGUSR2);
        site.ends("what was left, with the pool", child);
    });
}

#[test]
fn it_stays_at_a_reload() {
    each_kind(|kind| {
        let mut site = Site::start(kind, "");
        let [child, worker] = site.begin("/");
        site.daemon.signal(Signal::SIGUSR2);
        site.wait_for_end("the worker", worker);
        site.stays("a child of a worker that a reload replaced", child);
    });
}

#[test]
fn what_has_a_session_of_its_own_is_left_alone() {
    each_but(&["php"], |kind| {
        let mut site = Site::start(kind, "");
        let [child, _] = site.begin("/apart");
        site.daemon.signal(Signal::SIGTERM);
        site.daemon.wait();
        site.left.push(child);
        assert!(process::runs(child), "{}", kind.name);
    });
}

#[test]
fn what_starts_before_the_first_request_belongs_to_its_worker() {
    let mut site = Site::start_with(WSGI, "max_requests = 1\n", &["early"]);
    let [child, worker] = site.begin("/early");
    site.wait_for_end("the worker", worker);
    assert!(process::runs(child));
    wait_until("the count", || {
        site.status().contains("left by workers that are gone: ")
    });
    site.daemon.signal(Signal::SIGTERM);
    site.daemon.wait();
    site.wait_for_end("what was left", child);
}
