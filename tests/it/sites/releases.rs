//! Deployments of applications in an application pool, behind a link to the release in service.

use super::USERS;
use crate::it::releases::visitors::Visitors;
use crate::it::releases::{APPLICATIONS, Application, write_release};
use crate::support::prelude::*;
use std::os::unix::fs::{lchown, symlink};

struct Shop {
    daemon: Daemon,
    application: &'static Application,
    root: PathBuf,
}

/// Gives everything below a directory to the first user.
pub(super) fn own(path: &Path) {
    if !is_root() {
        return;
    }
    let (_, uid) = USERS[0];
    lchown(path, Some(uid), Some(uid)).expect("chown");
    let is_directory = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    for entry in fs::read_dir(path).into_iter().filter(|_| is_directory).flatten() {
        own(&entry.expect("an entry").path());
    }
}

impl Shop {
    fn start(application: &'static Application, keys: &str, is_kept: bool) -> Shop {
        let configure = |dir: &Path| {
            let root = dir.join("apps/shop");
            fs::create_dir_all(&root).expect("a directory");
            for release in ["1", "2", "3"] {
                Shop::write(&root, application, release);
            }
            symlink("releases/1", root.join("current")).expect("a link");
            own(&root);
            let (pool, applications) = match keys.split_once("[applications]\n") {
                Some((pool, applications)) => (pool, applications),
                None => (keys, ""),
            };
            let pool = match pool.contains("gradual") {
                true => pool.to_owned(),
                false => format!("gradual = []\n{pool}"),
            };
            super::configuration(dir, &format!("releases = \"current\"\n{applications}"), &pool)
        };
        let daemon = match is_kept {
            true => Daemon::start_kept(configure),
            false => Daemon::start(configure),
        };
        let root = daemon.dir.join("apps/shop");
        Shop {
            daemon,
            application,
            root,
        }
    }

    fn write(root: &Path, application: &Application, release: &str) {
        write_release(root, application, release);
        if application.runtime == "cgi" {
            let settings = "runtime = \"cgi\"\nentry = \"index.cgi\"\n";
            fs::write(
                root.join("releases").join(release).join("forkyard.toml"),
                settings,
            )
            .expect("settings");
        }
    }

    fn path(&self, name: &str) -> String {
        self.root
            .join(name)
            .display()
            .to_string()
            .trim_end_matches('/')
            .to_owned()
    }

    /// Returns the application's answer to a request for this path.
    fn answer_at(&self, directory: &str) -> String {
        let scripts = match directory {
            "" => self.root.join("current"),
            directory => self.root.join(directory),
        };
        let params = Params::get(&scripts, self.application.files[0].0, "");
        let params = params.with("FORKYARD_APP_ROOT", &self.path(directory));
        self.daemon.ask("sites", &params).body().to_owned()
    }

    fn assert_serves(&self, release: &str) {
        let whole = format!("{release} {release} {release}");
        for directory in ["", "current", &format!("releases/{release}")] {
            let name = self.application.name;
            let log = self.daemon.log();
            assert_eq!(self.answer_at(directory), whole, "{name} at {directory:?}\n{log}");
        }
    }

    fn link(&self, name: &str) -> Option<String> {
        let target = fs::read_link(self.root.join(name)).ok()?;
        Some(target.display().to_string())
    }

    fn move_link(&self, target: &str) {
        let new = self.root.join("new");
        symlink(target, &new).expect("a link");
        own(&new);
        fs::rename(new, self.root.join("current")).expect("rename");
    }

    fn router(&self) -> u32 {
        super::companion(&self.daemon, "router")
    }

    fn said(&self, arguments: &[&str]) -> (i32, String) {
        let (code, text) = self.daemon.said(arguments);
        (code.unwrap_or(-1), text)
    }

    fn deploy(&self, release: &str, more: &[&str]) -> (i32, String) {
        let (root, release) = (self.path(""), self.path(&format!("releases/{release}")));
        self.said(&[&["deploy", &root, &release], more].concat())
    }
}

fn applications() -> impl Iterator<Item = &'static Application> {
    // The preloader of PHP makes no difference in an application pool.
    APPLICATIONS.iter().filter(|it| it.name != "zygote")
}

#[test]
fn every_runtime_serves_one_release_until_a_deployment() {
    for application in applications() {
        let shop = Shop::start(application, "", false);
        let name = application.name;
        shop.assert_serves("1");
        // A link that somebody else moves changes nothing, nor do a killed instance, a reload and another router.
        shop.move_link("releases/2");
        assert_eq!(shop.answer_at(""), "1 1 1", "{name}");
        shop.daemon.reload_until("reload done");
        assert_eq!(shop.answer_at("current"), "1 1 1", "{name}");
        let router = shop.router();
        process::signal(router, Signal::SIGKILL);
        wait_until("another router", || shop.router() != router);
        assert_eq!(shop.answer_at(""), "1 1 1", "{name}");
        // A restart reads it.
        let (code, text) = shop.said(&["restart", &shop.path(""), "--wait"]);
        assert_eq!(code, 0, "{name}: {text}");
        shop.assert_serves("2");
        let (code, text) = shop.deploy("3", &["--wait"]);
        assert_eq!(code, 0, "{name}: {text}\n{}", shop.daemon.log());
        assert_contains(&text, "releases/3 is in service");
        shop.assert_serves("3");
        let links = ["current", "current.last", "current.next"].map(|name| shop.link(name));
        let expected = ["3", "2", "3"].map(|release| Some(format!("releases/{release}")));
        assert_eq!(links, expected, "{name}");
        let shown = shop.daemon.shown(&["releases"]);
        assert_contains(&shown, &format!("{}: {}", shop.path(""), shop.path("releases/3")));
        let (code, text) = shop.said(&["rollback", &shop.path("current"), "--wait"]);
        assert_eq!(code, 0, "{name}: {text}");
        shop.assert_serves("2");
        assert_eq!(shop.link("current.last").as_deref(), Some("releases/3"));
    }
}

impl Shop {
    /// Visitors that send these routes to the application.
    fn visitors(&self, routes: &[&str], count: usize, is_kept: bool) -> Visitors {
        let (root, script) = (self.root.join("current"), self.application.files[0].0);
        let params = routes.iter().map(|route| {
            Params::get(&root, script, "")
                .with("REQUEST_URI", route)
                .with("FORKYARD_APP_ROOT", &self.path(""))
        });
        Visitors::asking(
            &self.daemon.socket("sites"),
            &params.collect::<Vec<_>>(),
            count,
            is_kept,
        )
    }

    fn begin(&self, release: &str) -> Child {
        let (root, release) = (self.path(""), self.path(&format!("releases/{release}")));
        let mut command = forkyard(&["deploy", &root, &release], &self.daemon.dir);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("a deployment")
    }

    /// Asserts that no visitor lost a request or got an answer of two releases.
    fn assert_whole(&self, visitors: Visitors, note: &str) {
        let seen = visitors.end();
        let whole = ["1 1 1", "2 2 2", "3 3 3"];
        let is_whole = |text: &str| {
            let body = text.trim().trim_start_matches("200 OK").trim_start_matches("200");
            whole.contains(&body.trim())
        };
        let others: Vec<_> = seen.iter().filter(|(text, _)| !is_whole(text)).collect();
        assert!(others.is_empty(), "{note}: {seen:?}\n{}", self.daemon.log());
    }
}

fn named(name: &str) -> &'static Application {
    applications().find(|it| it.name == name).expect("an application")
}

fn ended(child: Child) -> (i32, String) {
    let output = child.wait_with_output().expect("a command");
    let text = text_of(&[&output.stdout[..], &output.stderr].concat());
    (output.status.code().unwrap_or(-1), text)
}

#[test]
fn a_good_release_gets_more_and_more_and_nothing_is_lost() {
    for (name, is_kept) in [
        ("php", false),
        ("php", true),
        ("wsgi", true),
        ("asgi", true),
        ("node", false),
        ("rack", false),
        ("cgi", true),
    ] {
        // With several users, connections are closed after each answer.
        let applications = match is_kept && is_root() {
            true => "[applications]\nuser_switching = false\ndefault_user = \"www-data\"\n",
            false => "",
        };
        let steps = "gradual = [10, 50]\nstep_time = \"1s\"\n";
        let shop = Shop::start(named(name), &format!("{steps}{applications}"), false);
        shop.assert_serves("1");
        let visitors = shop.visitors(&["/"], 3, is_kept);
        let (code, text) = shop.deploy("2", &["--json", "--wait"]);
        assert_eq!(code, 0, "{name}: {text}\n{}", shop.daemon.log());
        for percent in [10, 50] {
            let line = format!("the new release gets {percent} % of the requests");
            assert_contains(&shop.daemon.log(), &line);
        }
        shop.assert_serves("2");
        assert!(visitors.seen("1 1 1") > 0 && visitors.seen("2 2 2") > 0);
        shop.assert_whole(visitors, name);
    }
}

#[test]
fn a_release_that_fails_or_does_not_start_is_taken_back() {
    let broken = "<?php if ($_SERVER['REQUEST_URI'] === '/4') { http_response_code(500); } echo 'bad';";
    let shop = Shop::start(named("php"), "gradual = [10, 50]\nstep_time = \"10s\"\n", false);
    let script = shop.root.join("releases/2/index.php");
    fs::write(&script, broken).expect("a release");
    shop.assert_serves("1");
    let visitors = shop.visitors(&["/0", "/1", "/2", "/3", "/4"], 3, false);
    let text = exited(70, shop.deploy("2", &[]));
    assert_contains(&text, " failed in ");
    assert_eq!(shop.link("current").as_deref(), Some("releases/1"));
    assert_eq!(shop.link("current.next"), None);
    let failed = visitors.seen("500");
    let seen = visitors.end();
    assert!(
        failed > 0 && seen.keys().all(|text| !text.contains("lost")),
        "{seen:?}"
    );
    shop.assert_serves("1");
    let events = shop.daemon.shown(&["events"]);
    assert_contains(&events, "releases/2 was taken back: ");

    // The start-up file of other runtimes is asked for before the trial.
    let shop = Shop::start(named("cgi"), "gradual = [20, 50]\nstep_time = \"10s\"\n", false);
    fs::remove_file(shop.root.join("releases/2").join(shop.application.files[0].0)).expect("remove");
    shop.assert_serves("1");
    let visitors = shop.visitors(&["/"], 3, false);
    let text = exited(70, shop.deploy("2", &[]));
    assert_contains(&text, " requests named a script that is missing or refused, ");
    let seen = visitors.end();
    assert!(seen.keys().all(|text| !text.contains("lost")), "{seen:?}");
    shop.assert_serves("1");

    for name in ["wsgi", "rack", "node"] {
        let shop = Shop::start(named(name), "", false);
        shop.assert_serves("1");
        fs::remove_file(shop.root.join("releases/2").join(shop.application.files[1].0)).expect("remove");
        let (code, text) = shop.deploy("2", &[]);
        assert_eq!(code, 70, "{name}: {text}");
        assert_contains(&text, "releases/2 did not start: ");
        assert_contains(&text, "forkyard error");
        assert_eq!(shop.link("current").as_deref(), Some("releases/1"));
        shop.assert_serves("1");
        // The next deployment waits for no other.
        let (code, text) = shop.deploy("3", &["--wait"]);
        assert_eq!(code, 0, "{name}: {text}");
        shop.assert_serves("3");
    }
    // A directory without an application, or of two owners, is refused before anything changes.
    let shop = Shop::start(named("wsgi"), "", false);
    shop.assert_serves("1");
    fs::create_dir(shop.root.join("releases/4")).expect("a directory");
    own(&shop.root.join("releases/4"));
    let text = exited(78, shop.deploy("4", &[]));
    assert_contains(&text, "nothing was changed");
    assert_contains(&text, "is no application");
    if is_root() {
        let other = shop.root.join("releases/3/wsgi.py");
        chown(&other, Some(USERS[1].1), None).expect("chown");
        let text = exited(78, shop.deploy("3", &[]));
        assert_contains(&text, "both must belong to the user");
    }
    shop.assert_serves("1");
}

#[test]
fn a_release_that_its_user_can_not_enter_is_refused_and_changes_nothing() {
    // The inspector of a daemon without root's rights can't look into such a directory either.
    for application in applications().filter(|_| is_root()) {
        let name = application.name;
        let shop = Shop::start(application, "", false);
        shop.assert_serves("1");
        let closed = shop.path("releases/2");
        let set_mode = |mode| {
            fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).expect("chmod");
        };
        // Root's directory with the application's files; and one of the application's user, without any rights.
        let (_, uid) = USERS[0];
        for (owner, mode) in [(0, 0o700), (0, 0o744), (uid, 0o000)] {
            chown(&closed, Some(owner), Some(owner)).expect("chown");
            set_mode(mode);
            let (code, text) = shop.deploy("2", &[]);
            assert_eq!(code, 78, "{name} {owner} {mode:o}: {text}");
            let expected =
                format!("nothing was changed: release: {closed}: user {uid}, as which the release runs");
            assert_contains(&text, &expected);
            assert_contains(&text, "chmod o+x it");
            shop.assert_serves("1");
            let links = ["current", "current.last", "current.next"].map(|name| shop.link(name));
            assert_eq!(links, [Some("releases/1".to_owned()), None, None], "{name}");
        }
        chown(&closed, Some(uid), Some(uid)).expect("chown");
        set_mode(0o700);
        // The directory above the releases.
        let above = shop.path("releases");
        chown(&above, Some(0), Some(0)).expect("chown");
        fs::set_permissions(&above, fs::Permissions::from_mode(0o700)).expect("chmod");
        let text = exited(78, shop.deploy("2", &[]));
        assert_contains(&text, &format!("release: {above}: user {uid}, as which"));
        fs::set_permissions(&above, fs::Permissions::from_mode(0o755)).expect("chmod");
        exited(0, shop.deploy("2", &[]));
        shop.assert_serves("2");
    }
}

#[test]
fn a_deployment_in_the_middle_is_taken_back_replaced_or_outlives_the_router() {
    let steps = "gradual = [10, 60]\nstep_time = \"600s\"\n";
    let shop = Shop::start(named("wsgi"), steps, false);
    shop.assert_serves("1");
    let visitors = shop.visitors(&["/"], 2, false);
    let under_way = |release: &str| {
        let child = shop.begin(release);
        let begun = format!("releases/{release} gets 10 % of the requests");
        wait_until("a deployment", || {
            shop.daemon.shown(&["releases"]).contains(&begun)
        });
        child
    };
    let first = under_way("2");
    wait_until("an answer of the new release", || visitors.seen("2 2 2") > 0);
    let router = shop.router();
    process::signal(router, Signal::SIGKILL);
    wait_until("another router", || shop.router() != router);
    let before = visitors.seen("2 2 2");
    wait_until("answers of the new release", || visitors.seen("2 2 2") > before);
    let second = under_way("3");
    exited(75, ended(first));
    wait_until("answers of the newest release", || visitors.seen("3 3 3") > 0);
    exited(0, shop.said(&["rollback", &shop.path("")]));
    let text = exited(70, ended(second));
    assert_contains(&text, "an operator asked for it");
    assert_eq!(shop.link("current").as_deref(), Some("releases/1"));
    shop.assert_serves("1");
    let seen = visitors.end();
    // The router that was killed had connections.
    let lost = seen
        .iter()
        .filter(|(text, _)| text.contains("lost"))
        .map(|(_, count)| count);
    assert!(lost.sum::<u64>() <= 2, "{seen:?}");
    wait_until("the workers of the other releases to go", || {
        let shown = shop.daemon.shown(&["releases"]);
        !shown.contains(&format!(" of {}\n", shop.path("releases/3")))
    });
}

#[test]
fn requests_that_wait_for_the_release_before_are_served_by_the_next() {
    let slow = "<?php usleep(300000); echo 'RELEASE RELEASE RELEASE';";
    let shop = Shop::start(
        named("php"),
        "[applications]\nmax = 2\nreserve = 0\nmax_per_app = 1\n",
        false,
    );
    for release in ["1", "2"] {
        let text = slow.replace("RELEASE", release);
        fs::write(shop.root.join("releases").join(release).join("index.php"), text).expect("a release");
    }
    let visitors = shop.visitors(&["/"], 6, false);
    wait_until("answers", || visitors.seen("1 1 1") > 3);
    exited(0, shop.deploy("2", &["--wait"]));
    let before = visitors.seen("2 2 2");
    wait_until("answers of the new release", || {
        visitors.seen("2 2 2") > before + 6
    });
    shop.assert_whole(visitors, "waiting");
}

#[test]
fn requests_that_wait_for_a_release_that_is_taken_back_are_served_by_the_one_before() {
    let slow = "<?php usleep(200000); echo 'RELEASE RELEASE RELEASE';";
    for back in ["rollback", "interrupt"] {
        let steps = "gradual = [50]\nstep_time = \"600s\"\n[applications]\nmax = 2\nreserve = 0\n";
        let shop = Shop::start(named("php"), steps, false);
        for release in ["1", "2"] {
            let text = slow.replace("RELEASE", release);
            fs::write(shop.root.join("releases").join(release).join("index.php"), text).expect("a release");
        }
        let visitors = shop.visitors(&["/"], 8, false);
        wait_until("answers", || visitors.seen("1 1 1") > 3);
        let deployment = shop.begin("2");
        wait_until("answers of the new release", || visitors.seen("2 2 2") > 5);
        match back {
            "rollback" => assert_eq!(shop.said(&["rollback", &shop.path("")]).0, 0),
            _ => process::signal(deployment.id(), Signal::SIGTERM),
        }
        assert_eq!(ended(deployment).0, 70, "{back}");
        let before = visitors.seen("1 1 1");
        wait_until("answers of the release before", || {
            visitors.seen("1 1 1") > before + 10
        });
        shop.assert_whole(visitors, back);
    }
}

#[test]
fn the_release_in_service_is_deployed_again_and_then_the_next() {
    for name in ["php", "wsgi"] {
        let steps = "gradual = [50]\nstep_time = \"1s\"\n";
        let shop = Shop::start(named(name), steps, false);
        shop.assert_serves("1");
        for release in ["1", "1", "2", "2", "3"] {
            let (code, text) = shop.deploy(release, &["--wait"]);
            assert_eq!(code, 0, "{name} {release}: {text}\n{}", shop.daemon.log());
            shop.assert_serves(release);
        }
    }
}

#[test]
fn a_killed_master_and_an_upgrade_keep_the_release() {
    let shop = Shop::start(named("wsgi"), "", true);
    shop.assert_serves("1");
    exited(0, shop.deploy("2", &["--wait"]));
    shop.move_link("releases/3");
    exited(0, shop.said(&["upgrade"]));
    wait_until("an answer", || shop.answer_at("") == "2 2 2");
    process::signal(shop.daemon.pid(), Signal::SIGKILL);
    wait_until("another master", || shop.daemon.said(&["status"]).0 == Some(0));
    wait_until("an answer", || !shop.answer_at("").is_empty());
    assert_eq!(shop.answer_at(""), "2 2 2");
}

#[test]
fn a_release_whose_directory_is_gone_gives_way_to_the_link() {
    let shop = Shop::start(named("cgi"), "", false);
    shop.assert_serves("1");
    shop.move_link("releases/2");
    assert_eq!(shop.answer_at(""), "1 1 1");
    fs::remove_dir_all(shop.root.join("releases/1")).expect("remove");
    assert_eq!(shop.answer_at(""), "2 2 2", "{}", shop.daemon.log());
    assert_contains(&shop.daemon.log(), "is in service and is gone");
    shop.assert_serves("2");
}

#[test]
fn a_release_of_an_application_that_sleeps_is_deployed_and_shares_its_requests() {
    for application in applications() {
        let name = application.name;
        let shop = Shop::start(application, "gradual = [50]\nstep_time = \"1s\"\n", false);
        let (code, text) = shop.deploy("2", &["--wait"]);
        assert_eq!(code, 0, "{name}: {text}\n{}", shop.daemon.log());
        assert_contains(&text, "not enough requests to compare at 50 %");
        shop.assert_serves("2");
        let shop = Shop::start(application, "gradual = [50]\nstep_time = \"600s\"\n", false);
        let deployment = shop.begin("2");
        shop.daemon.wait_for("the new release gets 50 % of the requests");
        let mut seen = BTreeSet::new();
        wait_until("an answer of each release", || {
            seen.insert(shop.answer_at(""));
            seen.len() == 2
        });
        assert_eq!(Vec::from_iter(&seen), ["1 1 1", "2 2 2"], "{name}");
        let (code, text) = shop.said(&["rollback", &shop.path("")]);
        assert_eq!(code, 0, "{name}: {text}");
        assert_eq!(ended(deployment).0, 70, "{name}");
        shop.assert_serves("1");
    }
}

#[test]
fn a_release_that_was_asked_for_before_its_deployment_is_deployed() {
    for application in applications() {
        let name = application.name;
        for steps in ["gradual = []\n", "gradual = [50]\nstep_time = \"1s\"\n"] {
            let shop = Shop::start(application, steps, false);
            shop.assert_serves("1");
            assert_eq!(
                shop.answer_at("releases/2"),
                "2 2 2",
                "{name}: a look at the next one"
            );
            shop.assert_serves("1");
            let visitors = shop.visitors(&["/"], 2, false);
            let (code, text) = shop.deploy("2", &["--wait"]);
            assert_eq!(code, 0, "{name} {steps}: {text}\n{}", shop.daemon.log());
            shop.assert_serves("2");
            shop.assert_whole(visitors, name);
            let (code, text) = shop.deploy("3", &["--wait"]);
            assert_eq!(code, 0, "{name} {steps}: {text}\n{}", shop.daemon.log());
            shop.assert_serves("3");
        }
    }
}

#[test]
fn an_application_in_service_outlives_its_link() {
    for application in applications() {
        let name = application.name;
        let shop = Shop::start(application, "[applications]\nstat_throttle_rate = 0\n", false);
        shop.assert_serves("1");
        for target in [None, Some("releases/none"), Some("../../nowhere"), Some("/etc")] {
            fs::remove_file(shop.root.join("current")).expect("the link");
            if let Some(target) = target {
                symlink(target, shop.root.join("current")).expect("a link");
                own(&shop.root.join("current"));
            }
            for directory in ["", "current", "releases/1"] {
                if target == Some("/etc") && directory == "current" {
                    continue;
                }
                let answer = shop.answer_at(directory);
                assert_eq!(answer, "1 1 1", "{name} {target:?} {directory}");
            }
            if target.is_none() {
                symlink("releases/2", shop.root.join("current")).expect("a link");
            }
        }
        let (code, text) = shop.deploy("2", &[]);
        assert_eq!(code, 78, "{name}: {text}");
        assert_contains(
            &text,
            "current leads to no release; make it a link to the one in service",
        );
        shop.move_link("releases/1");
        let (code, text) = shop.deploy("3", &["--wait"]);
        assert_eq!(code, 0, "{name}: {text}");
        shop.assert_serves("3");
    }
}
