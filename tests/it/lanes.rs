//! Lanes: bots and background work leave workers idle for people.

use crate::it::documents::blocks;
use crate::it::holding::{APPLICATIONS, Application, Site, answered, configuration};
use crate::support::prelude::*;
use forkyard_protocol::lanes::{Lane, Lanes};
use std::fmt::Display;

const MANAGERS: [&str; 3] = [
    "pm = \"static\"\n",
    "pm = \"dynamic\"\nmin_spare_servers = 1\nmax_spare_servers = 1\n",
    "pm = \"ondemand\"\n",
];

fn visit(site: &Site, name: &str, lane: Lane) -> Params {
    site.params(name).with("LANE", lane.name())
}

/// Sends a request on a new connection.
fn send(site: &Site, name: impl Display, lane: Lane) -> Client {
    site.send(&visit(site, &name.to_string(), lane))
}

/// Bots' requests that run until [`Site::release`].
fn hold<const N: usize>(site: &Site, names: [&str; N]) -> [Client; N] {
    names.map(|name| site.hold(name, visit(site, name, Lane::Bots)))
}

/// Bots' requests that wait parked behind those.
fn park(site: &Site, count: u32) -> Vec<Client> {
    let parked = (0..count).map(|number| send(site, format!("b{number}"), Lane::Bots));
    let parked = parked.collect();
    wait_for_parked(site, count);
    parked
}

fn lanes(site: &Site) -> Lanes {
    let status = site.daemon.status(&["www"]);
    serde_json::from_value(status["pools"][0]["lanes"].clone()).expect("lanes")
}

fn wait_for_parked(site: &Site, count: u32) {
    wait_until("parked requests", || lanes(site).bots.parked == count);
}

/// Each kind of application, manager and socket: two of three workers hold bots, the others wait parked in order, and
/// people are answered at once.
#[test]
fn bots_wait_and_people_do_not() {
    for (index, application) in APPLICATIONS[..3].iter().enumerate() {
        for (manager, address) in
            MANAGERS
                .iter()
                .zip([None, Some(format!("127.0.0.1:{}", free_port())), None])
        {
            let settings =
                format!("{manager}max_children = 2\nlanes = [{{ lane = \"bots\", agent = \"*bot*\" }}]\n");
            let site = Site::start(application, &settings, address.clone());
            let what = format!("{} {manager} {address:?} {index}", application.runtime);
            let held = hold(&site, ["h1", "h2"]);
            let mut parked = Vec::new();
            for number in 0..5 {
                parked.push(send(&site, format!("b{number}"), Lane::Bots));
                wait_for_parked(&site, number + 1);
            }
            for number in 0..3 {
                answered(send(&site, format!("p{number}"), Lane::People));
            }
            answered(send(&site, "f", Lane::First));
            let begun = site.begun();
            assert_eq!(begun, ["h1", "h2", "p0", "p1", "p2", "f"], "{what}");
            site.release();
            held.into_iter().for_each(answered);
            parked.into_iter().for_each(answered);
            let mut begun = site.begun().split_off(6);
            // Two workers begin them at almost the same time.
            begun.sort();
            assert_eq!(begun, ["b0", "b1", "b2", "b3", "b4"], "{what}");
            let lanes = lanes(&site);
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
        let params = visit(&site, "k", Lane::People);
        assert_eq!(client.request(&params, b"").expect("an answer").body(), "done");
    }
    let [held] = hold(&site, ["h"]);
    let mut parked = Vec::new();
    for number in 0..20 {
        let params = visit(&site, &format!("b{number}"), Lane::Bots);
        let client = match kept.pop().filter(|_| number % 2 == 0) {
            Some(mut client) => {
                client.send(&params, b"").expect("send");
                client
            }
            None => site.send(&params),
        };
        parked.push(client);
        wait_for_parked(&site, number + 1);
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
        let site = Site::start_as(arguments, php(), &settings, None);
        let held = hold(&site, ["h1", "h2"]);
        let count = 120;
        let parked = park(&site, count);
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
        assert_eq!(lanes(&site).bots.parked, 0, "{what}");
    }
}

/// A pool that has no lanes any more serves the requests that were parked.
#[test]
fn a_pool_that_drops_its_lanes_serves_what_was_parked() {
    let settings = format!("pm = \"static\"\nmax_children = 2\n{BOTS}");
    let site = Site::start(php(), &settings, None);
    let held = hold(&site, ["h1", "h2"]);
    let parked = park(&site, 30);
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
        let held = hold(&site, ["h1", "h2"]);
        let parked = park(&site, 30);
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
    let held = hold(&site, ["h1", "h2"]);
    let parked = park(&site, 64);
    for number in 0..5 {
        let answer = send(&site, format!("r{number}"), Lane::Bots).answer();
        let answer = answer.expect("an answer");
        assert_starts(&answer.status(), "503");
        assert_contains(&answer.text(), "Retry-After: ");
        answered(send(&site, "p", Lane::People));
    }
    assert_eq!(lanes(&site).bots.refused, 5);
    site.release();
    held.into_iter().for_each(answered);
    parked.into_iter().for_each(answered);
}

/// A parked request does not begin after its client has left.
#[test]
fn parked_requests_that_nobody_waits_for_do_not_begin() {
    let settings = format!("pm = \"static\"\nmax_children = 2\nlane_extra = false\n{BOTS}");
    let site = Site::start(php(), &settings, None);
    let [held] = hold(&site, ["h"]);
    let left: Vec<Client> = (0..10)
        .map(|number| send(&site, format!("left{number}"), Lane::Bots))
        .collect();
    let stays = send(&site, "stays", Lane::Bots);
    wait_for_parked(&site, 11);
    drop(left);
    // Requests are skipped after a second.
    let sent = Instant::now();
    wait_until("a second", || sent.elapsed() > Duration::from_millis(1_100));
    site.release();
    answered(held);
    answered(stays);
    assert_eq!(site.begun(), ["h", "stays"]);
    assert_eq!(lanes(&site).bots.requests, 2, "skipped requests do not begin");
}

/// With a single worker, a person waits for one bot, however many came before.
#[test]
fn a_person_waits_for_one_bot_in_a_pool_of_one_worker() {
    let settings = format!("pm = \"static\"\nmax_children = 1\nlane_extra = false\n{BOTS}");
    let site = Site::start(php(), &settings, None);
    let [held] = hold(&site, ["h"]);
    let bots: Vec<Client> = (0..200)
        .map(|number| send(&site, format!("b{number}"), Lane::Bots))
        .collect();
    let person = send(&site, "p", Lane::People);
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
        file: "app.php",
        text: "<?php echo explode(' ', explode(') ', file_get_contents('/proc/self/stat'))[1])[16];",
        more: php().more,
    };
    let root = directory();
    let path = root.path();
    write_program(&path.join(nice.script), nice.text);
    let user = if is_root() { "user = \"root\"\n" } else { "" };
    let settings = format!("{user}pm = \"static\"\nmax_children = 1\nlane_extra = false\n{BOTS}");
    let text = configuration(path, &nice, &settings, &None);
    write_file(
        path.join("forkyard.toml"),
        text.replacen("[global]\n", "[global]\nallow_root = true\n", 1),
    );
    let daemon = Daemon::launch(path, forkyard(&["run"], path)).ready();
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
    let lanes = lanes(&site);
    assert!(lanes.people.requests >= 20, "{lanes:?}");
    assert!(lanes.bots.requests > 0, "{lanes:?}");
    assert_eq!(lanes.people.requests + lanes.bots.requests, 60, "{lanes:?}");
}
