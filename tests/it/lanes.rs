//! Lanes: bots and background work leave workers idle for people.

use crate::support::prelude::*;
use forkyard_protocol::lanes::{Lane, LaneNumbers, Lanes};

/// An application that notes each request it begins, and holds one until a file is there.
struct Application {
    runtime: &'static str,
    script: &'static str,
    text: &'static str,
    more: &'static str,
}

const APPLICATIONS: [Application; 3] = [
    Application {
        runtime: "php",
        script: "app.php",
        text: "<?php
file_put_contents(__DIR__ . '/begun', $_GET['n'] . (isset($_SERVER['LANE']) ? '!' : '') . \"\\n\", FILE_APPEND);
while (isset($_GET['hold']) && !file_exists($_GET['hold'])) { usleep(1000); clearstatcache(); }
echo 'done';",
        more: concat!("version = \"", env!("FORKYARD_PHP"), "\"\n"),
    },
    Application {
        runtime: "cgi",
        script: "app.cgi",
        text: "#!/bin/sh
n=${QUERY_STRING#n=}; n=${n%%&*}
echo \"$n${LANE:+!}\" >> \"${SCRIPT_FILENAME%/*}/begun\"
case $QUERY_STRING in *hold=*) while ! test -e \"${QUERY_STRING#*hold=}\"; do sleep 0.01; done;; esac
printf 'Content-Type: text/plain\\r\\n\\r\\ndone'\n",
        more: "root = \"ROOT\"\n",
    },
    Application {
        runtime: "wsgi",
        script: "wsgi.py",
        text: r#"
import os, time, urllib.parse
def application(environ, start):
    query = dict(urllib.parse.parse_qsl(environ["QUERY_STRING"]))
    with open(os.path.dirname(os.path.abspath(__file__)) + "/begun", "a") as begun:
        begun.write(query["n"] + ("!" if "LANE" in environ else "") + "\n")
    while "hold" in query and not os.path.exists(query["hold"]):
        time.sleep(0.001)
    start("200 OK", [("Content-Type", "text/plain")])
    return [b"done"]
"#,
        more: "root = \"ROOT\"\n",
    },
];

const MANAGERS: [&str; 3] = [
    "pm = \"static\"\n",
    "pm = \"dynamic\"\nmin_spare_servers = 1\nmax_spare_servers = 1\n",
    "pm = \"ondemand\"\n",
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
        write_program(&path.join(application.script), application.text);
        let site = Site {
            application,
            daemon: {
                write_file(
                    path.join("forkyard.toml"),
                    configuration(path, application, settings, &address),
                );
                Daemon::launch(path, forkyard(&["run"], path))
            },
            address,
            root,
        };
        site.daemon.wait_for("ready to handle connections");
        site
    }

    fn reload_with(&mut self, settings: &str) {
        let path = self.root.path();
        let text = configuration(path, self.application, settings, &self.address);
        write_file(path.join("forkyard.toml"), text);
        self.daemon.reload_until("ready to handle connections");
    }

    fn client(&self) -> Client {
        match &self.address {
            Some(address) => Client::connect_tcp(address).expect("connect"),
            None => self.daemon.client("www"),
        }
    }

    fn params(&self, name: &str, lane: Lane) -> Params {
        Params::get(self.root.path(), self.application.script, &format!("n={name}"))
            .with("REMOTE_ADDR", "198.51.100.7")
            .with("LANE", lane.name())
    }

    /// Sends a request on a new connection.
    fn send(&self, params: &Params) -> Client {
        let mut client = self.client();
        client.send(params, b"").expect("send");
        client
    }

    /// A request that runs until [`Site::release`].
    fn hold(&self, name: &str, lane: Lane) -> Client {
        let query = format!("n={name}&hold={}", self.root.path().join("go").display());
        let held = self.send(&self.params(name, lane).with("QUERY_STRING", &query));
        wait_until("the held request", || self.begun().contains(&name.to_owned()));
        held
    }

    fn release(&self) {
        write_file(self.root.path().join("go"), "");
    }

    fn begun(&self) -> Vec<String> {
        let text = fs::read_to_string(self.root.path().join("begun")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn lanes(&self) -> Lanes {
        let status = self.daemon.status(&["www"]);
        serde_json::from_value(status["pools"][0]["lanes"].clone()).expect("lanes")
    }

    fn lane(&self, lane: Lane) -> LaneNumbers {
        *self.lanes().each()[lane.index()].1
    }

    fn wait_for_parked(&self, lane: Lane, count: u32) {
        wait_until("parked requests", || self.lane(lane).parked == count);
    }
}

fn configuration(path: &Path, application: &Application, settings: &str, address: &Option<String>) -> String {
    let more = application.more.replace("ROOT", &path.display().to_string());
    let more = format!("runtime = \"{}\"\n{more}", application.runtime);
    let listen = (address.as_ref()).map(|address| format!("listen = \"{address}\"\n"));
    let settings = format!("{}{settings}", listen.unwrap_or_default());
    with_control(path) + &pool(path, "www", &settings, &more)
}

fn answered(mut client: Client) {
    assert_eq!(client.answer().expect("an answer").body(), "done");
}

/// Each kind of application, manager and socket: two of three workers hold bots, the others wait parked in order, and
/// people are answered at once.
#[test]
fn bots_wait_and_people_do_not() {
    for (index, application) in APPLICATIONS.iter().enumerate() {
        for (manager, address) in
            MANAGERS
                .iter()
                .zip([None, Some(format!("127.0.0.1:{}", free_port())), None])
        {
            let settings =
                format!("{manager}max_children = 2\nlanes = [{{ lane = \"bots\", agent = \"*bot*\" }}]\n");
            let site = Site::start(application, &settings, address.clone());
            let what = format!("{} {manager} {address:?} {index}", application.runtime);
            let mut held = vec![site.hold("h1", Lane::Bots), site.hold("h2", Lane::Bots)];
            let mut parked = Vec::new();
            for number in 0..5 {
                parked.push(site.send(&site.params(&format!("b{number}"), Lane::Bots)));
                site.wait_for_parked(Lane::Bots, number + 1);
            }
            for number in 0..3 {
                answered(site.send(&site.params(&format!("p{number}"), Lane::People)));
            }
            answered(site.send(&site.params("f", Lane::First)));
            let begun = site.begun();
            assert_eq!(begun, ["h1", "h2", "p0", "p1", "p2", "f"], "{what}");
            site.release();
            held.drain(..).for_each(answered);
            parked.into_iter().for_each(answered);
            let mut begun = site.begun().split_off(6);
            // Two workers begin them at almost the same time.
            begun.sort();
            assert_eq!(begun, ["b0", "b1", "b2", "b3", "b4"], "{what}");
            let lanes = site.lanes();
            let counts = lanes.each().map(|(_, numbers)| numbers.requests);
            assert_eq!(counts, [1, 3, 0, 7], "{what}");
            assert_eq!(lanes.bots.parked, 0, "{what}");
        }
    }
}
