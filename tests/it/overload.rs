//! Dead work: requests do not begin if their client has left, their time is over, or too many wait.

mod queue;
mod routed;
mod storm;

use crate::support::prelude::*;
use forkyard_protocol::dead_work::{DeadWork, REASONS};
use forkyard_protocol::history::LastHour;
use forkyard_protocol::numbers::PoolNumbers;

const VISITOR: &str = "198.51.100.7";

/// An application that notes each request it begins, and holds one until a file is there.
#[derive(Debug)]
struct Application {
    runtime: &'static str,
    script: &'static str,
    file: &'static str,
    text: &'static str,
    more: &'static str,
}

const APPLICATIONS: [Application; 4] = [
    Application {
        runtime: "php",
        script: "app.php",
        file: "app.php",
        text: "<?php
$times = isset($_SERVER['REQUEST_START']) || isset($_SERVER['REQUEST_TIMEOUT']);
file_put_contents(__DIR__ . '/begun', $_GET['n'] . ($times ? '!' : '') . \"\\n\", FILE_APPEND);
while (isset($_GET['hold']) && !file_exists($_GET['hold'])) { usleep(1000); clearstatcache(); }
if (isset($_GET['takes'])) usleep($_GET['takes'] * 1000);
$end = hrtime(true) + ($_GET['computes'] ?? 0) * 1e6;
while (hrtime(true) < $end);
echo 'done';",
        more: concat!("version = \"", env!("FORKYARD_PHP"), "\"\n"),
    },
    Application {
        runtime: "cgi",
        script: "app.cgi",
        file: "app.cgi",
        text: "#!/bin/sh
n=${QUERY_STRING#n=}; n=${n%%&*}
echo \"$n${REQUEST_START:+!}${REQUEST_TIMEOUT:+!}\" >> \"${SCRIPT_FILENAME%/*}/begun\"
case $QUERY_STRING in *hold=*) while ! test -e \"${QUERY_STRING#*hold=}\"; do sleep 0.01; done;; esac
printf 'Content-Type: text/plain\\r\\n\\r\\ndone'\n",
        more: "root = \"ROOT\"\n",
    },
    Application {
        runtime: "wsgi",
        script: "app",
        file: "wsgi.py",
        text: r#"
import os, time, urllib.parse
def application(environ, start):
    query = dict(urllib.parse.parse_qsl(environ["QUERY_STRING"]))
    times = "!" if "REQUEST_START" in environ or "REQUEST_TIMEOUT" in environ else ""
    with open(os.path.dirname(os.path.abspath(__file__)) + "/begun", "a") as begun:
        begun.write(query["n"] + times + "\n")
    while "hold" in query and not os.path.exists(query["hold"]):
        time.sleep(0.001)
    start("200 OK", [("Content-Type", "text/plain")])
    return [b"done"]
"#,
        more: "root = \"ROOT\"\n",
    },
    Application {
        runtime: "asgi",
        script: "app",
        file: "asgi.py",
        text: r#"
import asyncio, os, urllib.parse
async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    query = dict(urllib.parse.parse_qsl(scope["query_string"].decode()))
    with open(os.path.dirname(os.path.abspath(__file__)) + "/begun", "a") as begun:
        begun.write(query["n"] + "\n")
    while "hold" in query and not os.path.exists(query["hold"]):
        await asyncio.sleep(0.001)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"Content-Type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"done"})
"#,
        more: "root = \"ROOT\"\nconcurrency = 1\n",
    },
];

struct Site {
    application: &'static Application,
    daemon: Daemon,
    address: Option<String>,
    root: TempDir,
}

impl Site {
    fn start(application: &'static Application, settings: &str, address: Option<String>) -> Site {
        place_library();
        let root = directory();
        let path = root.path();
        make_writable(path);
        write_program(&path.join(application.file), application.text);
        let more = application.more.replace("ROOT", &path.display().to_string());
        let more = format!("runtime = \"{}\"\n{more}", application.runtime);
        let listen = address
            .as_ref()
            .map(|address| format!("listen = \"{address}\"\n"));
        let settings = format!("{}{settings}", listen.unwrap_or_default());
        let settings = settings.replace("ROOT", &path.display().to_string());
        let text = with_control(path) + &pool(path, "www", &settings, &more);
        write_file(path.join("forkyard.toml"), text);
        let daemon = Daemon::launch(path, forkyard(&["run"], path));
        daemon.wait_for("ready to handle connections");
        Site {
            application,
            daemon,
            address,
            root,
        }
    }

    fn client(&self) -> Client {
        match &self.address {
            Some(address) => Client::connect_tcp(address).expect("connect"),
            None => self.daemon.client("www"),
        }
    }

    /// A visitor's request that the web server has passed on `ago` seconds ago.
    fn params(&self, name: &str, ago: f64) -> Params {
        let query = format!("n={name}");
        let now = SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("now");
        Params::get(self.root.path(), self.application.script, &query)
            .with("REMOTE_ADDR", VISITOR)
            .with(
                "REQUEST_START",
                &(((now.as_secs_f64() - ago) * 1000.0) as u64).to_string(),
            )
    }

    fn begun(&self) -> Vec<String> {
        let text = fs::read_to_string(self.root.path().join("begun")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Occupies a worker until [`Site::release`].
    fn hold(&self) -> Client {
        let go = self.root.path().join("go");
        let params = self.params("held", 0.0);
        let query = format!("n=held&hold={}", go.display());
        let mut client = self.client();
        client
            .send(&params.with("QUERY_STRING", &query), b"")
            .expect("send");
        wait_until("the held request", || self.begun().contains(&"held".to_owned()));
        client
    }

    fn release(&self, mut held: Client) {
        write_file(self.root.path().join("go"), "");
        assert_eq!(held.answer().expect("an answer").body(), "done");
    }

    fn numbers(&self) -> PoolNumbers {
        let status = self.daemon.status(&["www"]);
        serde_json::from_value(status["pools"][0]["numbers"].clone()).expect("numbers")
    }

    fn dead(&self) -> DeadWork {
        self.numbers().dead_work
    }

    /// Waits until the last hour also has all requests that did not begin.
    fn wait_for_last_hour(&self, row: &str) -> LastHour {
        until(&format!("{row}: the last hour"), || {
            let numbers = self.numbers();
            let hour = numbers.last_hour?;
            (hour.dead_work.counts() == numbers.dead_work.counts()[..REASONS]).then_some(hour)
        })
    }
}
