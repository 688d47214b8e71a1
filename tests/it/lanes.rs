//! Lanes: bots and background work leave workers idle for people.

use crate::it::documents::blocks;
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
        Site::start_as(&["run"], application, settings, address)
    }

    fn start_as(
        arguments: &[&str],
        application: &'static Application,
        settings: &str,
        address: Option<String>,
    ) -> Site {
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
                Daemon::launch(path, forkyard(arguments, path))
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
        self.daemon.reload_until("reload done");
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

const BOTS: &str = "lanes = [{ lane = \"bots\", agent = \"*bot*\" }]\n";

fn php() -> &'static Application {
    &APPLICATIONS[0]
}

/// A single worker of a low lane begins its requests in order of arrival, on new and on kept connections.
#[test]
fn the_order_within_a_lane_stays() {
    let settings = format!("pm = \"static\"\nmax_children = 2\nlane_extra = false\n{BOTS}");
    let site = Site::start(php(), &settings, None);
    // Kept connections have had an answer before.
    let mut kept: Vec<Client> = (0..3).map(|_| site.client().kept()).collect();
    for client in &mut kept {
        let params = site.params("k", Lane::People);
        assert_eq!(client.request(&params, b"").expect("an answer").body(), "done");
    }
    let held = site.hold("h", Lane::Bots);
    let mut parked = Vec::new();
    for number in 0..20 {
        let params = site.params(&format!("b{number}"), Lane::Bots);
        let client = match kept.pop().filter(|_| number % 2 == 0) {
            Some(mut client) => {
                client.send(&params, b"").expect("send");
                client
            }
            None => site.send(&params),
        };
        parked.push(client);
        site.wait_for_parked(Lane::Bots, number + 1);
    }
    site.release();
    answered(held);
    parked.into_iter().for_each(answered);
    let expected: Vec<String> = (0..20).map(|number| format!("b{number}")).collect();
    assert_eq!(site.begun().split_off(4), expected);
}

/// Killed workers, reloads and a killed master lose no parked request.
#[test]
fn parked_requests_survive_workers_reloads_and_masters() {
    let table = MANAGERS
        .iter()
        .flat_map(|manager| ["kill", "reload", "master"].map(|what| (manager, what)));
    for (manager, what) in table {
        let settings = format!("{manager}max_children = 2\n{BOTS}");
        let arguments: &[&str] = if what == "master" {
            &["run", "--keeper"]
        } else {
            &["run"]
        };
        let mut site = Site::start_as(arguments, php(), &settings, None);
        let held = [site.hold("h1", Lane::Bots), site.hold("h2", Lane::Bots)];
        let count = 120;
        let parked: Vec<Client> = (0..count)
            .map(|number| site.send(&site.params(&format!("b{number}"), Lane::Bots)))
            .collect();
        site.wait_for_parked(Lane::Bots, count);
        let mut killed = 0;
        match what {
            "kill" => {
                for worker in site.daemon.workers("www") {
                    killed += 1;
                    kill(Pid::from_raw(worker as i32), Signal::SIGKILL).expect("kill");
                }
                site.release();
                for mut client in held {
                    let answer = client.answer();
                    assert!(!answer.is_ok_and(|answer| answer.ended), "its worker was killed");
                }
            }
            "reload" => {
                site.reload_with(&settings.replace("max_children = 2", "max_children = 3"));
                site.release();
                held.into_iter().for_each(answered);
            }
            _ => {
                let before = site.daemon.kept_master();
                kill(Pid::from_raw(before as i32), Signal::SIGKILL).expect("kill");
                site.daemon.next_kept_master(before);
                site.release();
                held.into_iter().for_each(answered);
            }
        }
        // A worker that takes a request before it is killed takes it with it.
        let is_lost = |mut client: Client| !client.answer().is_ok_and(|answer| answer.body() == "done");
        let lost = parked.into_iter().map(is_lost).filter(|is| *is).count();
        assert!(lost <= killed, "{what} {manager}: {lost} of {killed}");
        let mut begun = site.begun();
        begun.retain(|name| name.starts_with('b'));
        begun.sort();
        begun.dedup();
        assert!(begun.len() + lost >= count as usize, "{what} {manager}");
        assert_eq!(site.lane(Lane::Bots).parked, 0, "{what}");
    }
}

/// A pool that has no lanes any more serves the requests that were parked.
#[test]
fn a_pool_that_drops_its_lanes_serves_what_was_parked() {
    let settings = format!("pm = \"static\"\nmax_children = 2\n{BOTS}");
    let mut site = Site::start(php(), &settings, None);
    let held = [site.hold("h1", Lane::Bots), site.hold("h2", Lane::Bots)];
    let parked: Vec<Client> = (0..30)
        .map(|number| site.send(&site.params(&format!("b{number}"), Lane::Bots)))
        .collect();
    site.wait_for_parked(Lane::Bots, 30);
    site.reload_with("pm = \"static\"\nmax_children = 2\n");
    site.release();
    held.into_iter().for_each(answered);
    parked.into_iter().for_each(answered);
}

/// A pool that ends refuses the requests that are parked: it is taken out, or the daemon ends.
#[test]
fn a_pool_that_ends_refuses_what_is_parked() {
    for is_end in [false, true] {
        let settings = format!("pm = \"static\"\nmax_children = 2\n{BOTS}");
        let mut site = Site::start(php(), &settings, None);
        let held = [site.hold("h1", Lane::Bots), site.hold("h2", Lane::Bots)];
        let parked: Vec<Client> = (0..30)
            .map(|number| site.send(&site.params(&format!("b{number}"), Lane::Bots)))
            .collect();
        site.wait_for_parked(Lane::Bots, 30);
        let path = site.root.path().to_owned();
        if is_end {
            site.daemon.signal(Signal::SIGQUIT);
        } else {
            let other = pool(&path, "other", "", &format!("runtime = \"php\"\n{}", php().more));
            write_file(path.join("forkyard.toml"), with_control(&path) + &other);
            site.daemon.signal(Signal::SIGUSR2);
        }
        site.release();
        held.into_iter().for_each(answered);
        for mut client in parked {
            let answer = client.answer().expect("an answer");
            assert!(
                answer.body() == "done" || answer.status().starts_with("503"),
                "{answer:?}"
            );
        }
        if is_end {
            assert!(site.daemon.wait().success());
        }
    }
}

/// A flood of bots is refused beyond the bound, people are not.
#[test]
fn too_many_bots_are_refused() {
    let settings = format!("pm = \"static\"\nmax_children = 2\nrlimit_files = 256\n{BOTS}");
    let site = Site::start(php(), &settings, None);
    let held = [site.hold("h1", Lane::Bots), site.hold("h2", Lane::Bots)];
    let parked: Vec<Client> = (0..64)
        .map(|number| site.send(&site.params(&format!("b{number}"), Lane::Bots)))
        .collect();
    site.wait_for_parked(Lane::Bots, 64);
    for number in 0..5 {
        let answer = site
            .send(&site.params(&format!("r{number}"), Lane::Bots))
            .answer();
        let answer = answer.expect("an answer");
        assert_starts(&answer.status(), "503");
        assert_contains(&answer.text(), "Retry-After: ");
        answered(site.send(&site.params("p", Lane::People)));
    }
    assert_eq!(site.lane(Lane::Bots).refused, 5);
    site.release();
    held.into_iter().for_each(answered);
    parked.into_iter().for_each(answered);
}

/// A parked request does not begin after its client has left.
#[test]
fn parked_requests_that_nobody_waits_for_do_not_begin() {
    let settings = format!("pm = \"static\"\nmax_children = 2\nlane_extra = false\n{BOTS}");
    let site = Site::start(php(), &settings, None);
    let held = site.hold("h", Lane::Bots);
    let left: Vec<Client> = (0..10)
        .map(|number| site.send(&site.params(&format!("left{number}"), Lane::Bots)))
        .collect();
    let stays = site.send(&site.params("stays", Lane::Bots));
    site.wait_for_parked(Lane::Bots, 11);
    drop(left);
    // Requests are skipped after a second.
    let sent = Instant::now();
    wait_until("a second", || sent.elapsed() > Duration::from_millis(1_100));
    site.release();
    answered(held);
    answered(stays);
    assert_eq!(site.begun(), ["h", "stays"]);
    assert_eq!(site.lane(Lane::Bots).requests, 2, "skipped requests do not begin");
}

/// With a single worker, a person waits for one bot, however many came before.
#[test]
fn a_person_waits_for_one_bot_in_a_pool_of_one_worker() {
    let settings = format!("pm = \"static\"\nmax_children = 1\nlane_extra = false\n{BOTS}");
    let site = Site::start(php(), &settings, None);
    let held = site.hold("h", Lane::Bots);
    let bots: Vec<Client> = (0..200)
        .map(|number| site.send(&site.params(&format!("b{number}"), Lane::Bots)))
        .collect();
    let person = site.send(&site.params("p", Lane::People));
    site.release();
    answered(held);
    answered(person);
    assert_eq!(site.begun()[..2], ["h", "p"]);
    bots.into_iter().for_each(answered);
}

/// The operator's mistakes, with their remedies.
#[test]
fn wrong_lanes_are_named() {
    for (settings, application, expected) in [
        (
            "lanes = \"wordpres\"",
            "",
            "lanes: \"wordpres\" is not \"off\", \"wordpress\"",
        ),
        ("lanes = []", "", "write [{ lane = \"bots\""),
        ("lanes = [{ agent = \"*bot*\" }]", "", "has a rule without a lane"),
        (
            "lanes = [{ lane = \"robots\" }]",
            "",
            "\"first\", \"people\", \"background\" or \"bots\"",
        ),
        (
            "lanes = [{ lane = \"bots\", agents = \"x\" }]",
            "",
            "unknown key \"agents\"",
        ),
        ("lanes = [{ lane = \"bots\", uri = \"x\" }]", "", "write \"*x\""),
        (
            "lanes = [{ lane = \"bots\", agent = 7 }]",
            "",
            "a pattern for agent",
        ),
        ("lanes = \"wordpress\"\nlane_reserve = 9", "", "from 1 to 4"),
        ("lane_reserve = 1", "", "it has no effect without lanes"),
        (
            "lanes = \"wordpress\"\nhttp_listen = \"127.0.0.1:1\"",
            "",
            "a pool with http_listen has no lanes",
        ),
        (
            "lanes = \"wordpress\"",
            "runtime = \"asgi\"\nroot = \"ROOT\"\n",
            "several requests at a time have no lanes",
        ),
    ] {
        let root = directory();
        let path = root.path();
        let application = match application {
            "" => php().more.to_owned() + "runtime = \"php\"\n",
            other => other.replace("ROOT", &path.display().to_string()),
        };
        let settings = format!("pm = \"static\"\nmax_children = 4\n{settings}\n");
        write_file(
            path.join("forkyard.toml"),
            with_control(path) + &pool(path, "www", &settings, &application),
        );
        let output = forkyard(&["check"], path).output().expect("check");
        let text = text_of(&output.stdout) + &text_of(&output.stderr);
        assert_contains(&text, expected);
        assert_contains(&text, "forkyard.toml:");
    }
}

/// Low requests run at a lower priority, if workers may change it, and others do not.
#[test]
fn low_requests_have_a_lower_priority() {
    let nice = Application {
        runtime: "php",
        script: "app.php",
        text: "<?php echo explode(' ', explode(') ', file_get_contents('/proc/self/stat'))[1])[16];",
        more: php().more,
    };
    let root = directory();
    let path = root.path();
    place_library();
    make_writable(path);
    write_program(&path.join(nice.script), nice.text);
    let user = if is_root() { "user = \"root\"\n" } else { "" };
    let settings = format!("{user}pm = \"static\"\nmax_children = 1\nlane_extra = false\n{BOTS}");
    let text = configuration(path, &nice, &settings, &None);
    write_file(
        path.join("forkyard.toml"),
        text.replacen("[global]\n", "[global]\nallow_root = true\n", 1),
    );
    let daemon = Daemon::launch(path, forkyard(&["run"], path));
    daemon.wait_for("ready to handle connections");
    // Root may change priorities; other users where the machine lets them.
    let may_change = is_root();
    for (lane, expected) in [
        ("people", 0),
        ("bots", 10),
        ("bots", 10),
        ("first", 0),
        ("background", 10),
        ("people", 0),
    ] {
        let answer = daemon.ask("www", &Params::get(path, nice.script, "").with("LANE", lane));
        let found: i32 = answer.body().trim().parse().expect("a number");
        if may_change || found == 0 {
            assert_eq!(found, if may_change { expected } else { 0 }, "{lane}");
        }
    }
}

/// The document's map for nginx: clients with too many requests are bots.
#[test]
fn nginx_can_give_requests_their_lane() {
    let site = Site::start(
        php(),
        "pm = \"static\"\nmax_children = 2\nlanes = \"wordpress\"\n",
        None,
    );
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/howto/lanes.md");
    let block = blocks::read(&page)
        .into_iter()
        .find(|block| block.kind == "nginx");
    let text = block.expect("a block").text;
    let (http, server) = text.split_once("server {").expect("a server");
    let server = server.trim_end().trim_end_matches('}').replace("listen 80;", "");
    let server = server.replace(
        "/run/forkyard-www.sock",
        &site.daemon.socket("www").display().to_string(),
    );
    let script = site.root.path().join("app.php");
    let fastcgi = format!(
        "include /etc/nginx/fastcgi_params; fastcgi_param SCRIPT_FILENAME {};",
        script.display()
    );
    let server = server.replace("include fastcgi_params;", &fastcgi);
    let nginx = Nginx::start(&server, http);
    for number in 0..60 {
        let said = curl(&[
            "--user-agent",
            "Firefox",
            &nginx.url(&format!("/app.php?n={number}")),
        ]);
        assert_eq!(said, "done");
    }
    let lanes = site.lanes();
    assert!(lanes.people.requests >= 20, "{lanes:?}");
    assert!(lanes.bots.requests > 0, "{lanes:?}");
    assert_eq!(lanes.people.requests + lanes.bots.requests, 60, "{lanes:?}");
}
