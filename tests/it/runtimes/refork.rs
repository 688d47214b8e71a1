//! Preloaders that are made from workers (`refork_after`).

use crate::support::prelude::*;

pub(super) const STATIC: &str = "pm = \"static\"\nmax_children = 3\ncatch_workers_output = true\n";

/// Answers with its pid, how many requests its process and those that it was forked from have answered, and what hooks ran.
pub(super) const PYTHON: &str = r#"
import os, forkyard
served, told = 0, []

@forkyard.before_fork
def before():
    told.append("before")

@forkyard.after_fork
def after():
    told.append("after")

@forkyard.after_promotion
def promoted():
    told.append("promoted")

def application(environ, start):
    global served
    served += 1
    start("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()} {served} {','.join(told)}".encode()]
"#;

const ASGI: &str = r#"
import os
served, told = 0, []

async def application(scope, receive, send):
    global served
    if scope["type"] == "lifespan":
        while True:
            step = (await receive())["type"].removeprefix("lifespan.")
            told.append(step)
            await send({"type": f"lifespan.{step}.complete"})
            if step == "shutdown":
                return
    served += 1
    text = f"{os.getpid()} {served} {','.join(told)}"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": text.encode()})
"#;

pub(super) const RUBY: &str = r##"
$served, $told = 0, []
Forkyard.before_fork { $told << "before" }
Forkyard.after_fork { $told << "after" }
Forkyard.after_promotion { $told << "promoted" }
run ->(env) { $served += 1; [200, {}, ["#{Process.pid} #{$served} #{$told.join(",")}"]] }
"##;

pub(super) struct Site {
    pub(super) daemon: Daemon,
    pub(super) root: tempfile::TempDir,
}

/// The facts that an application reports about its worker.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) pid: u32,
    pub(super) served: u32,
    pub(super) hooks: Vec<String>,
}

impl Site {
    pub(super) fn start(runtime: &str, source: &str, settings: &str, application: &str) -> Site {
        let root = directory();
        let name = match runtime {
            "rack" => "config.ru",
            "asgi" => "asgi.py",
            _ => "wsgi.py",
        };
        fs::write(root.path().join(name), source).expect("write");
        let application = application_in(runtime, root.path(), application);
        let daemon = Daemon::start(|dir| {
            let control = dir.join("control.sock");
            let pool = pool(dir, "www", settings, &application);
            format!("[global]\ncontrol = \"{}\"\n{pool}", control.display())
        });
        Site { daemon, root }
    }

    pub(super) fn ask(&self) -> Told {
        told(&mut self.daemon.client("www"), &self.daemon)
    }

    /// Asks until a worker answers that was forked from one that had answered so many requests.
    fn ask_until_forked_from(&self, requests: u32) -> Told {
        let known: BTreeSet<u32> = self.daemon.workers("www").into_iter().collect();
        until("a worker of another preloader", || {
            let told = self.ask();
            (!known.contains(&told.pid) && told.served > requests).then_some(told)
        })
    }

    /// The only preloader that there is in the end.
    pub(super) fn preloader(&self) -> u32 {
        let preloaders = until("one preloader", || {
            let preloaders = self.daemon.preloaders("www");
            (preloaders.len() == 1).then_some(preloaders)
        });
        preloaders[0]
    }
}

fn told(client: &mut Client, daemon: &Daemon) -> Told {
    let answer = client.request(&params(daemon, ""), b"");
    read_told(&answer.expect("an answer"))
}

fn params(daemon: &Daemon, query: &str) -> Params {
    Params::get(&daemon.dir, "x", query)
        .with("CONTENT_TYPE", "")
        .with("CONTENT_LENGTH", "")
}

fn read_told(answer: &Answer) -> Told {
    assert!(answer.ended, "{}", answer.text());
    let body = answer.body();
    let mut parts = body.split(' ');
    let mut number = || parts.next().and_then(|part| part.parse().ok()).expect(&body);
    let (pid, served) = (number(), number());
    let hooks = parts.next().unwrap_or_default();
    Told {
        pid,
        served,
        hooks: hooks.split(',').map(str::to_owned).collect(),
    }
}

/// Every worker is replaced by one that was forked from a worker, and the first preloader ends.
pub(super) fn assert_renewed(site: &Site) -> Told {
    assert_renewed_with(site, 0)
}

/// The same of workers that serve by so many threads.
fn assert_renewed_with(site: &Site, threads: usize) -> Told {
    let daemon = &site.daemon;
    let first = site.preloader();
    let before = daemon.wait_for_workers("www", 3);
    let told = site.ask_until_forked_from(5);
    daemon.wait_for("makes the workers from now on; the old ones are replaced");
    daemon.wait_for_other_workers("www", 3, &before);
    wait_until("the first preloader to end", || !process::runs(first));
    let second = site.preloader();
    assert_ne!(second, first);
    // Ruby forks twice: there may be one in between for a moment.
    wait_until("workers to be the master's children", || {
        process::children(second).is_empty()
    });
    // A worker that serves has a thread that looks after its connections.
    let threads_of = |pid: u32| {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
        let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).ok();
        let names = tasks.filter_map(|task| name(task.ok()?));
        names.filter(|name| name.trim() != "idle-watch").count()
    };
    // A worker forked during the stop may still be leaving.
    wait_until("three workers and a preloader with their threads", || {
        let workers = daemon.workers("www");
        let have = workers.len() == 3 && workers.iter().all(|pid| threads_of(*pid) == 1 + threads);
        have && threads_of(second) == 1
    });
    told
}

fn assert_forked_from_one_that_has_served(runtime: &str, source: &str, threads: usize) {
    let settings = match threads {
        0 => "refork_after = [5, 0]\n".to_owned(),
        threads => format!("refork_after = [5, 0]\nthreads = {threads}\n"),
    };
    let site = Site::start(runtime, source, STATIC, &settings);
    let mut hooks = assert_renewed_with(&site, threads).hooks.clone();
    hooks.dedup();
    assert_eq!(
        hooks,
        ["before", "after", "before", "promoted", "before", "after"]
    );
}

#[test]
fn workers_in_python_are_forked_from_one_that_has_served() {
    assert_forked_from_one_that_has_served("wsgi", PYTHON, 0);
    assert_forked_from_one_that_has_served("wsgi", PYTHON, 3);
}

#[test]
fn workers_in_ruby_are_forked_from_one_that_has_served() {
    assert_forked_from_one_that_has_served("rack", RUBY, 0);
    assert_forked_from_one_that_has_served("rack", RUBY, 3);
}

#[test]
fn a_lifespan_ends_before_the_copy_and_begins_anew_in_workers_of_it() {
    let site = Site::start("asgi", ASGI, STATIC, "refork_after = [5, 0]\n");
    assert_eq!(assert_renewed(&site).hooks, ["startup", "shutdown", "startup"]);
}

#[test]
fn the_last_number_is_for_all_further_times() {
    let site = Site::start("wsgi", PYTHON, STATIC, "refork_after = [5, 8]\n");
    let mut promoted = 0;
    while promoted < 4 {
        promoted = site.ask().hooks.iter().filter(|hook| *hook == "promoted").count();
    }
    // Each line of preloaders has served more requests than the previous one.
    assert!(site.ask().served >= 5 + 3 * 8);
    assert_lacks(&site.daemon.log(), "ERROR");
}

/// Runs something while three clients ask; every request has to be answered. Says how many were. One client keeps its
/// connection, which is handed from worker to worker.
pub(super) fn under_load(site: &Site, act: impl FnOnce()) -> usize {
    let daemon = &site.daemon;
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|number| {
                let ends = &ends;
                scope.spawn(move || {
                    let mut count = 0;
                    let mut client = daemon.client("www").kept();
                    while !ends.load(Ordering::SeqCst) {
                        if number > 0 {
                            client = daemon.client("www");
                        }
                        told(&mut client, daemon);
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let end = StopAtEnd(&ends);
        act();
        drop(end);
        clients
            .into_iter()
            .map(|client| client.join().expect("a client"))
            .sum()
    })
}

#[test]
fn no_request_is_lost_and_most_workers_serve_all_the_time() {
    let settings = "pm = \"static\"\nmax_children = 4\n";
    for (runtime, source) in [("wsgi", PYTHON), ("rack", RUBY)] {
        let site = Site::start(runtime, source, settings, "refork_after = [20, 30]\n");
        let daemon = &site.daemon;
        daemon.wait_for_workers("www", 4);
        let mut fewest = 4;
        let answered = under_load(&site, || {
            wait_until("three preloaders", || {
                fewest = fewest.min(daemon.workers("www").len());
                let log = daemon.log();
                log.matches("made from a worker").count() >= 3
            });
        });
        // One may be leaving or starting, and another may not have set its title.
        assert!(fewest >= 2, "{fewest} workers of 4 were there");
        assert!(answered > 100, "{answered}");
        let log = daemon.log();
        assert_lacks(&log, "WARNING");
        assert_lacks(&log, "ERROR");
    }
}

/// The slow log can read the calls of workers that later preloaders forked.
#[test]
fn slow_requests_of_later_workers_are_told_of() {
    // Each request stays slow until the test has read its log entry.
    let dawdle = "import os, time\ndef dawdle():\n    while not os.path.exists('told'): time.sleep(0.01)\n";
    let python = PYTHON.replace(
        "served += 1",
        "served += 1\n    if environ['QUERY_STRING'] == 'slow': dawdle()",
    );
    let ruby = RUBY.replace(
        "$served += 1;",
        "$served += 1; dawdle if env[\"QUERY_STRING\"] == \"slow\";",
    );
    let async_dawdle = "import os, asyncio\nasync def dawdle():\n    while not os.path.exists('told'): await \
                        asyncio.sleep(0.01)\n";
    let asgi = ASGI.replace(
        "    served += 1\n",
        "    served += 1\n    if scope['query_string'] == b'slow': await dawdle()\n",
    );
    for (runtime, source) in [
        ("wsgi", format!("{dawdle}{python}")),
        ("asgi", format!("{async_dawdle}{asgi}")),
        (
            "rack",
            format!("def dawdle = (sleep(0.01) until File.exist?('told'))\n{ruby}"),
        ),
    ] {
        let log = directory();
        let path = log.path().join("slow");
        let settings = format!(
            "{STATIC}request_slowlog_timeout = \"100ms\"\nslowlog = \"{}\"\n",
            path.display()
        );
        let site = Site::start(runtime, &source, &settings, "refork_after = [5, 5, 0]\n");
        let before = site.daemon.wait_for_workers("www", 3);
        while before.contains(&site.ask().pid) {}
        // An older worker may take the request and log it; the next request goes to another worker.
        while before.contains(&told_while_slow(runtime, &site, &path)) {}
    }
}

/// Sends a request that stays slow until its calls are in the log. Returns the worker that answered.
fn told_while_slow(runtime: &str, site: &Site, log: &Path) -> u32 {
    let calls = || {
        let text = fs::read_to_string(log).unwrap_or_default();
        text.matches("dawdle").count()
    };
    let before = calls();
    let mut client = site.daemon.send("www", &params(&site.daemon, "slow"));
    wait_until(&format!("the calls of {runtime}"), || calls() > before);
    let mark = site.root.path().join("told");
    fs::write(&mark, "").expect("write");
    let told = read_told(&client.answer().expect("an answer"));
    fs::remove_file(&mark).expect("unlink");
    told.pid
}

/// The first preloader has replaced the worker that should become a preloader; the others still run.
fn assert_goes_on(site: &Site, preloader: u32, before: &[u32]) {
    let now = until("another worker", || {
        let now = site.daemon.workers("www");
        (now.len() == 3 && now != before).then_some(now)
    });
    assert_eq!(now.iter().filter(|pid| before.contains(pid)).count(), 2);
    assert!(now.contains(&site.ask().pid));
    assert_eq!(site.preloader(), preloader);
}

#[test]
fn a_worker_with_threads_is_no_preloader() {
    let source = format!(
        "{PYTHON}\nimport threading\n@forkyard.after_fork\ndef start():\n    \
         threading.Thread(target=threading.Event().wait, name='cache keeper', daemon=True).start()\n"
    );
    let site = Site::start("wsgi", &source, STATIC, "refork_after = 5\n");
    let first = site.preloader();
    let before = site.daemon.wait_for_workers("www", 3);
    for _ in 0..15 {
        site.ask();
    }
    let line = site
        .daemon
        .wait_for("a worker can't be made a preloader: it has threads besides the first one");
    assert!(line.ends_with("cache keeper"), "{line}");
    let line = site.daemon.wait_for("no preloader could be made from a worker");
    assert_ends(
        &line,
        "the pool continues unchanged, and the next try is in 10 s at the earliest",
    );
    assert_goes_on(&site, first, &before);
}

#[test]
fn a_copy_that_fails_dies_or_hangs_changes_nothing() {
    for (hook, words) in [
        (
            "raise RuntimeError('the cache is not there')",
            "RuntimeError: the cache is not there",
        ),
        ("os.kill(os.getpid(), 9)", "(on signal 9 (SIGKILL))"),
        (
            "import time; time.sleep(1000)",
            "the preloader did not answer within 2 s, killing",
        ),
    ] {
        let source = PYTHON.replace("told.append(\"promoted\")", hook);
        let site = Site::start("wsgi", &source, STATIC, "refork_after = 5\nstart_timeout = 2\n");
        let first = site.preloader();
        let before = site.daemon.wait_for_workers("www", 3);
        for _ in 0..15 {
            site.ask();
        }
        site.daemon.wait_for(words);
        site.daemon.wait_for("no preloader could be made from a worker");
        assert_goes_on(&site, first, &before);
    }
}
