//! A deployment is disturbed while both releases have visitors. Each answer comes, whole and from one release; links, service
//! and workers agree afterwards.

use super::visitors::{DYNAMIC, ONDEMAND, STATIC, Visitors, application};
use super::{Shop, configuration};
use crate::support::daemon::placed;
use crate::support::prelude::*;

/// Steps that do not end by themselves, and quick ones.
const AT_10: &str = "gradual = [10]\nstep_time = \"600s\"\n";
const AT_50: &str = "gradual = [50]\nstep_time = \"600s\"\n";
const QUICK: &str = "gradual = [50]\nstep_time = \"1s\"\n";

struct Stand {
    shop: Shop,
    manager: &'static str,
    visitors: [Visitors; 2],
    /// The release in service, and the one before.
    now: (&'static str, Option<&'static str>),
}

/// A command `forkyard deploy` that runs.
struct Deploying {
    child: Child,
    release: &'static str,
}

impl Deploying {
    fn signal(&self, signal: Signal) {
        process::signal(self.child.id(), signal);
    }

    #[track_caller]
    fn ends(self, code: Option<i32>, part: &str) {
        let output = self.child.wait_with_output().expect("a command");
        assert_eq!(output.status.code(), code, "{}", told(&output));
        assert_contains(&told(&output), part);
    }
}

impl Stand {
    fn start(name: &str, manager: &'static str) -> Stand {
        let shop = Shop::start(application(name), &format!("{manager}{AT_10}"), true);
        shop.assert_serves("1", &[]);
        let visitors = [false, true].map(|is_kept| Visitors::start(&shop, &["/"], 2, is_kept));
        Stand {
            shop,
            manager,
            visitors,
            now: ("1", None),
        }
    }

    fn write(&self, steps: &str) {
        let dir = &self.shop.daemon.dir;
        let text = configuration(dir, self.shop.application, &format!("{}{steps}", self.manager));
        self.shop.daemon.write("forkyard.toml", &placed(&text, dir));
    }

    /// Has deployments go by these steps.
    fn configure(&self, steps: &str) {
        self.write(steps);
        exited(Some(0), self.shop.daemon.said(&["reload"]));
    }

    fn begin(&self, release: &'static str, more: &[&str]) -> Deploying {
        let directory = self.shop.release(release);
        let words = [&["deploy", "shop", &directory], more].concat();
        let mut command = with_signals(&forkyard(&words, &self.shop.daemon.dir));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Deploying {
            child: command.spawn().expect("a deployment"),
            release,
        }
    }

    fn releases(&self) -> Value {
        parsed(&self.shop.daemon.shown(&["releases", "shop", "--json"]))[0].take()
    }

    fn seen(&self, release: &str) -> [u64; 2] {
        let part = format!("{release} {release} {release}");
        self.visitors.each_ref().map(|some| some.seen(&part))
    }

    /// Begins a deployment, and waits until new and kept connections get answers of it.
    fn share(&self, release: &'static str, percent: u8) -> Deploying {
        let before = self.seen(release);
        let deploying = self.begin(release, &[]);
        wait_until("a deployment under way", || {
            self.releases()["under_way"]["percent"] == percent
        });
        wait_until("an answer of the new release", || {
            let now = self.seen(release);
            now.iter().zip(before).all(|(now, before)| *now > before)
        });
        let links = self.links();
        assert_eq!(links[1], Some(format!("releases/{}", deploying.release)));
        assert_eq!(links[0], Some(format!("releases/{}", self.now.0)));
        deploying
    }

    fn links(&self) -> [Option<String>; 3] {
        ["current", "current.next", "current.last"].map(|name| self.shop.link(name))
    }

    /// Asserts that a deployment has ended with this release in service. `next`: what `current.next` names.
    #[track_caller]
    fn rests(&mut self, release: &'static str, next: Option<&str>, what: &str) {
        if release != self.now.0 {
            self.now = (release, Some(self.now.0));
        }
        let name = format!("/releases/{release}");
        let is_at_rest = |shown: &Value| {
            let workers = shown["workers"].as_array().cloned().unwrap_or_default();
            let is_own = |workers: &Value| workers["release"].as_str().is_some_and(|it| it.ends_with(&name));
            shown["under_way"].is_null() && !workers.is_empty() && workers.iter().all(is_own)
        };
        let end = Instant::now() + PATIENCE;
        while let shown = self.releases()
            && !is_at_rest(&shown)
        {
            assert!(
                Instant::now() < end,
                "{what}: workers of another release: {shown}"
            );
            pause();
        }
        for visitors in &self.visitors {
            assert_eq!(visitors.seen("503"), 0, "{what}\n{}", self.shop.daemon.log());
        }
        let before: Vec<&str> = self.now.1.into_iter().collect();
        self.shop.assert_serves(release, &before);
        let link = |release: Option<&str>| release.map(|release| format!("releases/{release}"));
        let expected = [link(Some(release)), link(next), link(self.now.1)];
        assert_eq!(self.links(), expected, "{what}");
        let before = self.seen(release);
        wait_until("more answers", || {
            let now = self.seen(release);
            now.iter().zip(before).all(|(now, before)| *now > before)
        });
    }

    /// Asserts that each answer came, whole and from one release.
    fn end(self) {
        let whole = ["1", "2", "3"].map(|release| format!("{release} {release} {release}"));
        for (visitors, kind) in self.visitors.into_iter().zip(["new", "kept"]) {
            let seen = visitors.end();
            let is_whole = |text: &str| {
                let body = text.trim().strip_prefix("200 ").unwrap_or_default();
                let body = body.strip_prefix("OK ").unwrap_or(body);
                whole.iter().any(|whole| whole == body)
            };
            let others: Vec<_> = seen.iter().filter(|(text, _)| !is_whole(text)).collect();
            let name = self.shop.application.name;
            assert!(others.is_empty(), "{name} {}, {kind}: {seen:?}", self.manager);
        }
    }
}

fn disturb(name: &str, manager: &'static str) {
    let mut stand = Stand::start(name, manager);
    // A second deployment replaces one with less than half of the requests.
    let first = stand.share("2", 10);
    stand.begin("3", &["--at-once"]).ends(Some(0), "is in service");
    first.ends(Some(75), "was replaced by a newer deployment");
    stand.rests("3", Some("3"), "replaced");

    // It waits for one with half of the requests. A rollback takes the first one back.
    stand.configure(AT_50);
    let first = stand.share("2", 50);
    let mut second = stand.begin("1", &["--at-once"]);
    let mut errors = BufReader::new(second.child.stderr.take().expect("its errors"));
    let mut line = String::new();
    errors.read_line(&mut line).expect("a line");
    assert_contains(&line, "waiting: ");
    exited(Some(0), stand.shop.daemon.said(&["rollback", "shop"]));
    first.ends(Some(70), "was taken back: an operator asked for it");
    second.ends(Some(0), "is in service");
    stand.rests("1", Some("1"), "waited");

    let first = stand.share("2", 50);
    exited(Some(0), stand.shop.daemon.said(&["rollback", "shop", "--wait"]));
    first.ends(Some(70), "was taken back: an operator asked for it");
    stand.rests("1", Some("1"), "rolled back");

    // An interrupted command takes its deployment back, and so does the daemon if the command is killed.
    let first = stand.share("2", 50);
    first.signal(Signal::SIGINT);
    first.ends(Some(70), "was taken back: an operator asked for it");
    stand.rests("1", Some("1"), "interrupted");
    let first = stand.share("2", 50);
    first.signal(Signal::SIGKILL);
    first.ends(None, "");
    stand
        .shop
        .daemon
        .wait_for("releases/2 was taken back: its command has ended");
    stand.rests("1", Some("2"), "its command is killed");

    // The command asks the next master, which reads the configuration again. A program that speaks HTTP would end
    // together with a killed master.
    if name != "node" {
        let first = stand.share("3", 50);
        stand.write(QUICK);
        let master = stand.shop.daemon.kept_master();
        process::signal(master, Signal::SIGKILL);
        stand.shop.daemon.next_kept_master(master);
        first.ends(Some(0), "releases/3 is in service");
        stand.rests("3", Some("3"), "the master is killed");
    }

    stand.configure(AT_50);
    let first = stand.share("2", 50);
    stand.write(QUICK);
    exited(Some(0), stand.shop.daemon.said(&["upgrade"]));
    first.ends(Some(0), "releases/2 is in service");
    stand.rests("2", Some("2"), "upgraded");
    stand.end();
}

#[test]
fn php_with_its_own_preloader_survives_each_disturbance() {
    disturb("php", STATIC);
    disturb("php", ONDEMAND);
}

#[test]
fn php_of_a_zygote_survives_each_disturbance() {
    disturb("zygote", STATIC);
    disturb("zygote", DYNAMIC);
    disturb("zygote", ONDEMAND);
}

#[test]
fn other_runtimes_survive_each_disturbance() {
    disturb("node", ONDEMAND);
    disturb("wsgi", DYNAMIC);
    disturb("asgi", STATIC);
}
