//! Requests that wait in the router of an application pool.

use crate::it::holding::{APPLICATIONS, VISITOR, answered, begun};
use crate::support::prelude::*;
use forkyard_protocol::numbers::PoolNumbers;

const FORMAT: &str = "%s %m %r%Q%q %n %{REMOTE_ADDR}e";

struct Pool {
    daemon: Daemon,
    root: PathBuf,
}

impl Pool {
    /// `settings`: of the pool's applications.
    fn start(settings: &str) -> Pool {
        let daemon = Daemon::start(|dir| {
            let root = dir.join("apps/shop");
            fs::create_dir_all(root.join("tmp")).expect("mkdir");
            write_file(root.join("index.php"), APPLICATIONS[0].text);
            if is_root() {
                let user = nix::unistd::User::from_name("www-data")
                    .expect("users")
                    .expect("www-data");
                for path in [root.clone(), root.join("index.php")] {
                    chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("chown");
                }
            }
            let dir = dir.display();
            format!(
                "[global]\ncontrol = \"{dir}/control.sock\"\n[pool.www]\n\
                 listen = {{ address = \"{dir}/www.sock\", mode = \"0666\" }}\nrouting = \"application\"\n\
                 access.log = \"{dir}/access\"\naccess.format = \"{FORMAT}\"\n\
                 [pool.www.applications]\ndirectories = [\"{dir}/apps\"]\nmin_uid = 1\nmax = 1\n{settings}"
            )
        });
        let root = daemon.dir.join("apps/shop");
        Pool { daemon, root }
    }

    fn params(&self, query: &str) -> Params {
        Params::get(&self.root, "index.php", query)
            .with("FORKYARD_APP_ROOT", &self.root.display().to_string())
            .with("REMOTE_ADDR", VISITOR)
    }

    fn hold(&self) -> Client {
        let mut held = self.daemon.client("www");
        let query = format!("n=held&hold={}", self.root.join("go").display());
        held.send(&self.params(&query), b"").expect("send");
        wait_until("the held request", || begun(&self.root) == ["held"]);
        held
    }

    fn release(&self, held: Client) {
        write_file(self.root.join("go"), "");
        answered(held);
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.daemon.dir.join("access")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn numbers(&self) -> PoolNumbers {
        let status = self.daemon.status(&["www"]);
        serde_json::from_value(status["pools"][0]["numbers"].clone()).expect("numbers")
    }

    fn application(&self) -> Value {
        let status = self.daemon.status(&["www"]);
        status["pools"][0]["applications"]["book"]["applications"][0].clone()
    }
}

#[test]
fn waiting_requests_of_an_application_pool_are_skipped_by_the_same_rule() {
    let pool = Pool::start("");
    let held = pool.hold();
    let leave = |name: &str, changes: &[(&str, &str)]| {
        let params = pool.params(&format!("n={name}"));
        let params = changes
            .iter()
            .fold(params, |all, (name, value)| all.with(name, value));
        pool.daemon.client("www").send(&params, b"").expect("send");
    };
    leave("left", &[]);
    leave("posted", &[("REQUEST_METHOD", "POST")]);
    leave("own", &[("REMOTE_ADDR", "127.0.0.1")]);
    leave("wanted", &[("RUN_ABANDONED", "1")]);
    let mut half = pool.daemon.client("www");
    half.send(&pool.params("n=half"), b"").expect("send");
    half.shut();
    wait_until("the request that is skipped", || {
        pool.application()["counters"]["abandoned"] == 1
    });
    pool.release(held);
    assert_eq!(half.answer().expect("an answer").body(), "done");
    wait_until("all requests", || begun(&pool.root).len() == 5);
    assert_eq!(begun(&pool.root), ["held", "posted", "own", "wanted", "half"]);
}

/// What happens to a request while the only instance is busy.
#[derive(Debug, Clone, Copy)]
struct Row {
    name: &'static str,
    settings: &'static str,
    /// Other requests that wait.
    waiting: usize,
    changes: &'static [(&'static str, &'static str)],
    leaves: bool,
    status: u16,
    /// As in `DeadCount`.
    dead: [u64; 4],
    line: &'static str,
}

const ROWS: [Row; 6] = [
    Row {
        name: "abandoned",
        settings: "",
        waiting: 0,
        changes: &[],
        leaves: true,
        status: 499,
        dead: [1, 0, 0, 0],
        line: "499 GET /index.php?n=abandoned www:shop 198.51.100.7",
    },
    Row {
        name: "late",
        settings: "max_request_queue_time = \"2s\"\n",
        waiting: 0,
        changes: &[],
        leaves: false,
        status: 504,
        dead: [0, 0, 1, 0],
        line: "504 GET /index.php?n=late www:shop 198.51.100.7",
    },
    Row {
        name: "posted",
        settings: "max_request_queue_time = \"2s\"\n",
        waiting: 0,
        changes: &[("REQUEST_METHOD", "POST")],
        leaves: false,
        status: 504,
        dead: [0, 0, 1, 0],
        line: "504 POST /index.php?n=posted www:shop 198.51.100.7",
    },
    Row {
        name: "many",
        settings: "max_request_queue_size = 1\n",
        waiting: 1,
        changes: &[],
        leaves: false,
        status: 503,
        dead: [0, 0, 0, 1],
        line: "503 GET /index.php?n=many www:shop 198.51.100.7",
    },
    Row {
        name: "nowhere",
        settings: "",
        waiting: 0,
        changes: &[("FORKYARD_APP_ROOT", "/nowhere")],
        leaves: false,
        status: 404,
        dead: [0; 4],
        line: "404 GET /index.php?n=nowhere www 198.51.100.7",
    },
    Row {
        name: "unnamed",
        settings: "",
        waiting: 0,
        changes: &[("FORKYARD_APP_ROOT", "relative")],
        leaves: false,
        status: 403,
        dead: [0; 4],
        line: "403 GET /index.php?n=unnamed www 198.51.100.7",
    },
];

fn assert_refusal_is_known(row: Row) {
    let pool = Pool::start(row.settings);
    let held = pool.hold();
    let ask = |name: &str, changes: &[(&str, &str)]| {
        let params = pool.params(&format!("n={name}"));
        let params = changes
            .iter()
            .fold(params, |all, (name, value)| all.with(name, value));
        let mut client = pool.daemon.client("www");
        client.send(&params, b"").expect("send");
        client
    };
    let mut others: Vec<Client> = (0..row.waiting).map(|_| ask("other", &[])).collect();
    wait_until("the others to wait", || {
        pool.application()["waiting"] == row.waiting
    });
    let refuse = || {
        let mut client = ask(row.name, row.changes);
        if !row.leaves {
            let answer = client.answer().expect("an answer");
            assert_eq!(&answer.status()[..3], row.status.to_string(), "{row:?}");
        }
    };
    refuse();
    let numbers = until(&format!("{}: the counts", row.name), || {
        let numbers = pool.numbers();
        (numbers.last_hour.is_some()).then_some(numbers)
    });
    let hour = numbers.last_hour.clone().expect("an hour");
    let class = |status: u16| numbers.requests.counts()[usize::from(status / 100 - 1)];
    assert_eq!(
        (hour.requests, hour.errors, class(row.status)),
        (1, u64::from(row.status >= 500), 1),
        "{row:?}: {numbers:?}"
    );
    assert_eq!(hour.dead_work.counts(), row.dead, "{row:?}");
    assert_eq!(numbers.dead_work.counts()[..4], row.dead, "{row:?}");
    assert_eq!(pool.lines(), [row.line], "{row:?}");

    // The log is opened again.
    let access = pool.daemon.dir.join("access");
    fs::rename(&access, pool.daemon.dir.join("old")).expect("rename");
    assert_eq!(pool.daemon.said(&["reopen-logs"]).0, Some(0));
    wait_until("the new log", || access.exists());
    refuse();
    wait_until("the line in the new log", || pool.lines() == [row.line]);
    assert!(pool.daemon.run(&["reload", "--all"]).status.success());
    pool.release(held);
    for other in &mut others {
        assert_eq!(other.answer().expect("an answer").body(), "done", "{row:?}");
    }
    let all = 3 + row.waiting as u64;
    wait_until("all requests", || {
        let hour = pool.numbers().last_hour;
        hour.is_some_and(|hour| hour.requests == all)
    });
    let held = "200 GET /index.php?n=held";
    let lines = pool.lines();
    assert!(
        lines.iter().any(|line| line.starts_with(held)),
        "{row:?}: {lines:?}"
    );
}

#[test]
fn requests_that_the_router_refuses_have_lines_and_counts() {
    each(ROWS, assert_refusal_is_known);
}
