//! A pool of an application that notes each request it begins, and holds one until a file is there.

use crate::support::prelude::*;
use forkyard_protocol::numbers::PoolNumbers;

/// The application notes `!` with a request that has a variable which forkyard is to keep to itself.
#[derive(Debug)]
pub(super) struct Application {
    pub(super) runtime: &'static str,
    pub(super) script: &'static str,
    pub(super) file: &'static str,
    pub(super) text: &'static str,
    pub(super) more: &'static str,
}

pub(super) const VISITOR: &str = "198.51.100.7";

pub(super) const APPLICATIONS: [Application; 4] = [
    Application {
        runtime: "php",
        script: "app.php",
        file: "app.php",
        text: "<?php
$told = isset($_SERVER['REQUEST_START']) || isset($_SERVER['REQUEST_TIMEOUT']) || isset($_SERVER['LANE']);
file_put_contents(__DIR__ . '/begun', $_GET['n'] . ($told ? '!' : '') . \"\\n\", FILE_APPEND);
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
echo \"$n${REQUEST_START:+!}${REQUEST_TIMEOUT:+!}${LANE:+!}\" >> \"${SCRIPT_FILENAME%/*}/begun\"
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
    told = "!" if {"REQUEST_START", "REQUEST_TIMEOUT", "LANE"} & set(environ) else ""
    with open(os.path.dirname(os.path.abspath(__file__)) + "/begun", "a") as begun:
        begun.write(query["n"] + told + "\n")
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

pub(super) struct Site {
    pub(super) application: &'static Application,
    pub(super) daemon: Daemon,
    pub(super) root: TempDir,
    address: Option<String>,
}

impl Site {
    pub(super) fn start(application: &'static Application, settings: &str, address: Option<String>) -> Site {
        Site::start_as(&["run"], application, settings, address)
    }

    pub(super) fn start_as(
        arguments: &[&str],
        application: &'static Application,
        settings: &str,
        address: Option<String>,
    ) -> Site {
        let root = directory();
        let path = root.path();
        write_program(&path.join(application.file), application.text);
        let text = configuration(path, application, settings, &address);
        write_file(path.join("forkyard.toml"), text);
        Site {
            application,
            daemon: Daemon::launch(path, forkyard(arguments, path)).ready(),
            address,
            root,
        }
    }

    pub(super) fn reload_with(&self, settings: &str) {
        let path = self.root.path();
        let text = configuration(path, self.application, settings, &self.address);
        write_file(path.join("forkyard.toml"), text);
        self.daemon.reload_until("reload done");
    }

    pub(super) fn client(&self) -> Client {
        match &self.address {
            Some(address) => Client::connect_tcp(address).expect("connect"),
            None => self.daemon.client("www"),
        }
    }

    pub(super) fn params(&self, name: &str) -> Params {
        Params::get(self.root.path(), self.application.script, &format!("n={name}"))
            .with("REMOTE_ADDR", VISITOR)
    }

    /// Sends a request on a new connection.
    pub(super) fn send(&self, params: &Params) -> Client {
        let mut client = self.client();
        client.send(params, b"").expect("send");
        client
    }

    /// Occupies a worker by a request with these parameters until [`Site::release`].
    pub(super) fn hold(&self, name: &str, params: Params) -> Client {
        let query = format!("n={name}&hold={}", self.root.path().join("go").display());
        let held = self.send(&params.with("QUERY_STRING", &query));
        wait_until("the held request", || self.begun().contains(&name.to_owned()));
        held
    }

    pub(super) fn release(&self) {
        write_file(self.root.path().join("go"), "");
    }

    pub(super) fn begun(&self) -> Vec<String> {
        begun(self.root.path())
    }

    pub(super) fn numbers(&self) -> PoolNumbers {
        let status = self.daemon.status(&["www"]);
        serde_json::from_value(status["pools"][0]["numbers"].clone()).expect("numbers")
    }
}

/// The requests that an application in a directory has begun.
pub(super) fn begun(root: &Path) -> Vec<String> {
    let text = fs::read_to_string(root.join("begun")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

pub(super) fn configuration(
    path: &Path,
    application: &Application,
    settings: &str,
    address: &Option<String>,
) -> String {
    let root = path.display().to_string();
    let more = application.more.replace("ROOT", &root);
    let more = format!("runtime = \"{}\"\n{more}", application.runtime);
    let listen = (address.as_ref()).map(|address| format!("listen = \"{address}\"\n"));
    let settings = format!("{}{settings}", listen.unwrap_or_default()).replace("ROOT", &root);
    with_control(path) + &pool(path, "www", &settings, &more)
}

pub(super) fn answered(mut client: Client) {
    assert_eq!(client.answer().expect("an answer").body(), "done");
}
