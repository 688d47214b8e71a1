//! Pools of one application that are renewed by a worker: `tmp/restart.txt`, and limits of HTTP programs.

use super::fastcgi_programs::compiled;
use super::programs::Site;
use crate::support::prelude::*;

const SERVER: &str = "require('http').createServer((request, response) => setTimeout(() => \
                      response.end(String(process.pid)), 5)).listen(process.env.PORT);";

/// Sends requests until `done` returns true; returns all pids that answered.
fn under_load(site: &Site, mut done: impl FnMut(&BTreeSet<u32>) -> bool) -> BTreeSet<u32> {
    let is_over = AtomicBool::new(false);
    let seen = std::sync::Mutex::new(BTreeSet::new());
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&is_over);
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let answer = site.daemon.get("app", "x");
                    let pid = answer
                        .body()
                        .parse()
                        .unwrap_or_else(|_| panic!("{}", answer.text()));
                    seen.lock().expect("pids").insert(pid);
                }
            });
        }
        wait_until("what the load is for", || done(&seen.lock().expect("pids")));
    });
    seen.into_inner().expect("pids")
}

#[test]
fn a_program_is_replaced_after_max_requests_in_a_pool_of_one_and_no_request_is_lost() {
    let settings = "pm = \"static\"\nmax_children = 2\nmax_requests = 30\nmax_requests_jitter = 10\n";
    let site = Site::start(&[("app.js", SERVER)], settings, "node", "instances = 2");
    let seen = under_load(&site, |seen| seen.len() >= 6);
    let log = site.daemon.log();
    let line = "[pool app] its program has had max_requests: it gets new processes";
    assert!(log.matches(line).count() >= 2, "{log}");
    wait_until("the old processes to end", || {
        let left = seen.iter().filter(|pid| process::runs(**pid)).count();
        left <= 2
    });
}

#[test]
fn a_program_whose_new_code_does_not_start_is_not_ended_by_its_limits() {
    let settings = "pm = \"static\"\nmax_children = 1\nmax_requests = 5\n";
    let site = Site::start(&[("app.js", SERVER)], settings, "node", "");
    let old = site.get("x");
    fs::write(site.root.join("app.js"), "throw new Error('nothing works');").expect("write");
    under_load(&site, |_| site.daemon.log().contains("can't start"));
    for _ in 0..20 {
        assert_eq!(site.get("x"), old);
    }
    fs::write(site.root.join("app.js"), SERVER).expect("write");
    wait_until("the mended program", || site.get("x") != old);
}

struct Row {
    name: &'static str,
    file: &'static str,
    text: &'static str,
    broken: &'static str,
    table: &'static str,
}

const WSGI: &str = "def application(environ, start_response):\n    start_response('200 OK', [])\n    \
                    return [b'VERSION']\n";
const ASGI: &str = "async def application(scope, receive, send):\n    assert scope['type'] == 'http'\n    \
                    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n    \
                    await send({'type': 'http.response.body', 'body': b'VERSION'})\n";
const NODE: &str = "require('http').createServer((request, response) => response.end('VERSION'))\
                    .listen(process.env.PORT);";

const ROWS: [Row; 6] = [
    Row {
        name: "wsgi",
        file: "wsgi.py",
        text: WSGI,
        broken: "import nothing_of_that_name\n",
        table: "",
    },
    Row {
        name: "asgi",
        file: "asgi.py",
        text: ASGI,
        broken: "import nothing_of_that_name\n",
        table: "",
    },
    Row {
        name: "rack",
        file: "config.ru",
        text: "run ->(env) { [200, {}, ['VERSION']] }\n",
        broken: "abort 'nothing works'\n",
        table: "",
    },
    Row {
        name: "node",
        file: "app.js",
        text: NODE,
        broken: "throw new Error('nothing works');",
        table: "",
    },
    Row {
        name: "http",
        file: "serve.js",
        text: NODE,
        broken: "process.exit(1);",
        table: "start_command = \"node serve.js\"\n",
    },
    Row {
        name: "fastcgi",
        file: "run",
        text: "#!/bin/sh\nexport OWN='VERSION'\nexec PROGRAM\n",
        broken: "#!/bin/sh\nexit 1\n",
        table: "start_command = \"sh run\"\n",
    },
];

fn deploy(root: &Path, file: &str, code: &str, turn: u64) {
    write_file(
        root.join(".new"),
        code.replace("PROGRAM", &compiled().display().to_string()),
    );
    fs::rename(root.join(".new"), root.join(file)).expect("rename");
    if turn > 0 {
        let restart = fs::File::create(root.join("tmp/restart.txt")).expect("restart.txt");
        let when = SystemTime::UNIX_EPOCH + Duration::from_secs(turn);
        restart.set_modified(when).expect("touch");
    }
}

#[test]
fn a_pool_of_one_gets_new_processes_when_its_restart_file_changes() {
    let daemon = Daemon::start(|dir| {
        let pools = ROWS.iter().map(|row| {
            let root = dir.join(row.name);
            fs::create_dir_all(root.join("tmp")).expect("mkdir");
            make_writable(&root);
            deploy(&root, row.file, &row.text.replace("VERSION", "the first"), 1);
            let settings = "pm = \"static\"\nmax_children = 2\n";
            let table = application_in(row.name, root, row.table);
            pool(dir, row.name, settings, &table)
        });
        pools.collect::<String>()
    });
    let ask = |row: &Row| {
        let params = Params::get(&daemon.dir.join(row.name), row.file, "version");
        let answer = daemon.client(row.name).request(&params, b"").expect("an answer");
        assert!(
            !answer.text().starts_with("Status: 5"),
            "{}: {}",
            row.name,
            answer.text()
        );
        let body = answer.body();
        body.split_once("own=")
            .map_or(body.clone(), |(_, own)| own.to_owned())
    };
    let wait_for = |row: &Row, version: &str| {
        wait_until(&format!("{version} of {}", row.name), || ask(row) == version);
    };
    let before: Vec<Vec<u32>> = ROWS.iter().map(|row| daemon.workers(row.name)).collect();
    for row in &ROWS {
        wait_for(row, "the first");
    }
    for row in &ROWS {
        fs::remove_file(daemon.dir.join(row.name).join("tmp/restart.txt")).expect("remove");
    }
    std::thread::sleep(Duration::from_millis(1500));
    for (row, before) in ROWS.iter().zip(&before) {
        assert_eq!(ask(row), "the first");
        let now = daemon.workers(row.name);
        assert!(
            before.is_empty() || before.iter().all(|pid| now.contains(pid)),
            "{}",
            row.name
        );
    }
    assert_lacks(&daemon.log(), "restart.txt");
    for row in &ROWS {
        let root = daemon.dir.join(row.name);
        deploy(&root, row.file, &row.text.replace("VERSION", "the second"), 2);
        wait_for(row, "the second");
        deploy(&root, row.file, row.broken, 3);
        wait_until(&format!("the failed start of {}", row.name), || {
            ask(row);
            let line = format!("failed, and tried again: {}", row.name);
            daemon.log().contains(&line)
        });
        deploy(&root, row.file, &row.text.replace("VERSION", "the third"), 4);
        wait_for(row, "the third");
    }
    for row in &ROWS {
        let line = format!(
            "[pool {}] tmp/restart.txt has changed: it gets new processes",
            row.name
        );
        let count = daemon.log().matches(&line).count();
        assert!((2..=3).contains(&count), "{}", daemon.log());
    }
}
