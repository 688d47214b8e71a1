//! `forkyard deploy`, `rollback` and `releases`: their links, refusals and exit codes.

use crate::support::prelude::*;
use std::os::unix::fs::lchown;

/// Serves its release. A release with a FIFO waits for it at its start.
const WSGI: &str = "import os
if os.path.exists('gate'):
    open('gate').read()
def application(environ, start):
    start('200 OK', [])
    return [os.path.basename(os.getcwd()).encode()]
";
const LINKS: [&str; 3] = ["current", "current.next", "current.last"];

struct Shop {
    daemon: Daemon,
    /// The directory of the link, as the configuration names it.
    place: PathBuf,
}

impl Shop {
    fn start(place: &str) -> Shop {
        let daemon = Daemon::start(|dir| {
            let real = dir.join("real");
            for release in ["1", "2", "3"] {
                let directory = real.join("releases").join(release);
                fs::create_dir_all(&directory).expect("a release");
                write_file(directory.join("wsgi.py"), WSGI);
            }
            make_writable(&real);
            symlink("releases/1", real.join("current")).expect("a link");
            symlink("real", dir.join("way")).expect("a link");
            let link = dir.join(place).join("current").display().to_string();
            let settings = format!("gradual = []\nrelease = {link:?}\n");
            with_control(dir) + &pool(dir, "shop", &settings, &application_in("wsgi", link, ""))
        });
        let place = daemon.dir.join(place);
        Shop { daemon, place }
    }

    fn page(&self) -> String {
        let params = Params::get(&self.place.join("current"), "", "");
        self.daemon.ask("shop", &params).body().to_owned()
    }

    fn release(&self, release: &str) -> PathBuf {
        self.daemon.dir.join("real/releases").join(release)
    }

    fn command(&self, words: &[&str], release: &str) -> Command {
        let mut command = with_signals(&forkyard(words, &self.daemon.dir));
        command.arg(self.release(release));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn deploy(&self, release: &str) -> (Option<i32>, String) {
        said_by(&mut self.command(&["deploy", "shop"], release))
    }

    fn links(&self) -> [Option<String>; 3] {
        LINKS.map(|name| {
            let target = fs::read_link(self.place.join(name)).ok()?;
            Some(target.display().to_string())
        })
    }

    /// Starts a deployment whose start waits, and returns once it is under way.
    fn begin_hanging(&self, release: &str, words: &[&str]) -> Child {
        let gate = self.release(release).join("gate");
        make_fifo(&gate);
        let child = self.command(words, release).spawn().expect("forkyard");
        wait_until("the deployment to be under way", || {
            let shown = parsed(&self.daemon.shown(&["releases", "shop", "--json"]));
            let under_way = &shown[0]["under_way"]["release"];
            under_way
                .as_str()
                .is_some_and(|it| Path::new(it) == self.release(release))
        });
        child
    }
}

fn links(texts: [&str; 3]) -> [Option<String>; 3] {
    texts.map(|text| Some(text.to_owned()).filter(|text| !text.is_empty()))
}

#[test]
fn a_deployment_names_its_release_in_a_link_until_it_is_replaced_or_taken_back() {
    let shop = Shop::start("real");
    let first = shop.begin_hanging("2", &["deploy", "shop"]);
    assert_eq!(shop.links(), links(["releases/1", "releases/2", ""]));
    let shown = shop.daemon.shown(&["releases", "shop"]);
    assert_contains(&shown, "real/releases/2 is tried");
    let (code, said) = shop.deploy("3");
    assert_eq!(code, Some(0), "{said}\n{}", shop.daemon.log());
    let first = first.wait_with_output().expect("the first command");
    assert_eq!(first.status.code(), Some(75), "{}", told(&first));
    assert_contains(&told(&first), "was replaced by a newer deployment");
    assert_eq!(shop.links(), links(["releases/3", "releases/3", "releases/1"]));
    assert_eq!(shop.page(), "3");

    fs::remove_file(shop.release("2").join("gate")).expect("remove");
    let second = shop.begin_hanging("2", &["deploy", "shop", "--json"]);
    let (code, said) = shop.daemon.said(&["rollback", "shop"]);
    assert_eq!(code, Some(0), "{said}");
    assert_contains(&said, "is taken back");
    let second = second.wait_with_output().expect("the second command");
    assert_eq!(second.status.code(), Some(70), "{}", told(&second));
    let result = parsed(&text_of(&second.stdout));
    assert_eq!(result["outcome"], "rolled-back", "{result}");
    assert_eq!(shop.links(), links(["releases/3", "releases/3", "releases/1"]));
    assert_eq!(shop.page(), "3");
}

#[test]
fn nothing_is_written_through_a_link_of_another() {
    // The way to the link is a link.
    let shop = Shop::start("way");
    let said = exited(Some(78), shop.deploy("2"));
    assert_contains(&said, "a path without links");
    assert_eq!(shop.links(), links(["releases/1", "", ""]));
    assert_eq!(fs::read_dir(&shop.place).expect("the place").count(), 2);
    assert_eq!(shop.page(), "1");

    let shop = Shop::start("real");
    let elsewhere = shop.daemon.dir.join("elsewhere");
    fs::create_dir(&elsewhere).expect("a directory");
    for name in ["current.next", "current.last"] {
        symlink(&elsewhere, shop.place.join(name)).expect("a link");
    }
    exited(Some(0), shop.deploy("2"));
    assert_eq!(fs::read_dir(&elsewhere).expect("the directory").count(), 0);
    assert_eq!(shop.links(), links(["releases/2", "releases/2", "releases/1"]));
    fs::remove_file(shop.place.join("current.next")).expect("remove");
    fs::create_dir(shop.place.join("current.next")).expect("a directory");
    let said = exited(Some(78), shop.deploy("3"));
    assert_contains(&said, "current.next is no link");
    assert_eq!(shop.page(), "2");
}

#[test]
fn the_link_and_directories_around_it_are_no_releases() {
    let shop = Shop::start("real");
    for path in ["real/current", "real", ""] {
        let path = shop.daemon.dir.join(path).display().to_string();
        let (code, said) = shop.daemon.said(&["deploy", "shop", &path]);
        assert_eq!(code, Some(78), "{path}: {said}");
        assert_contains(&said, "real/current; name the directory of a release");
    }
    let said = exited(Some(78), shop.daemon.said(&["deploy", "shop", "/"]));
    assert_contains(&said, "forkyard: / contains the pool's link ");
    assert_contains(&said, "real/current; name the directory of a release");
    let (code, said) = shop.daemon.said(&["rollback", "shop"]);
    assert_eq!(code, Some(78), "there is no release before: {said}");
    assert_eq!(shop.links(), links(["releases/1", "", ""]));
    let last = shop.place.join("current.last");
    fs::create_dir(&last).expect("a directory");
    let said = exited(Some(78), shop.daemon.said(&["rollback", "shop"]));
    assert_contains(
        &said,
        "real/current.last is no link; move it away, and deploy its contents as a release",
    );
    fs::remove_dir(&last).expect("remove");
    if is_root() {
        let link = shop.place.join("current");
        fs::remove_file(&link).expect("remove");
        symlink("/", &link).expect("a link");
        let said = exited(Some(70), shop.daemon.said(&["restart", "shop"]));
        assert_contains(
            &said,
            "release: / is the root of all directories, and can't be a release; ",
        );
        assert_eq!(shop.page(), "1");
    }
}

#[test]
fn a_missing_link_is_made_and_a_moved_one_is_reported() {
    let shop = Shop::start("real");
    let link = shop.place.join("current");
    fs::remove_file(&link).expect("remove");
    exited(Some(0), shop.deploy("2"));
    let made = fs::read_link(&link).expect("a link");
    assert_eq!(made, shop.release("2"));
    fs::remove_file(&link).expect("remove");
    symlink("releases/3", &link).expect("a link");
    let shown = shop.daemon.shown(&["releases"]);
    assert_contains(&shown, "releases/3, and ");
    assert_contains(&shown, "releases/2 is in service: forkyard deploy shop with one");
    assert_contains(&shown, "before: ");
    assert_eq!(shop.page(), "2");
}

#[test]
fn links_by_root_belong_to_the_owner_of_the_link() {
    let shop = Shop::start("real");
    // Another user can't give links away.
    let owner = match is_root() {
        true => 33,
        false => nix::unistd::getuid().as_raw(),
    };
    lchown(shop.place.join("current"), Some(owner), None).expect("lchown");
    exited(Some(0), shop.deploy("2"));
    for name in ["current", "current.last"] {
        let found = fs::symlink_metadata(shop.place.join(name)).expect("a link");
        assert_eq!(found.uid(), owner, "{name}");
    }
}

#[test]
fn a_command_that_ends_early_takes_its_deployment_back() {
    let rows = [
        (Signal::SIGINT, Some(70), ""),
        (Signal::SIGTERM, Some(70), ""),
        (Signal::SIGHUP, Some(70), ""),
        (Signal::SIGKILL, None, "releases/2"),
    ];
    for (signal, code, next) in rows {
        let shop = Shop::start("real");
        let child = shop.begin_hanging("2", &["deploy", "shop"]);
        process::signal(child.id(), signal);
        let output = child.wait_with_output().expect("a command");
        assert_eq!(output.status.code(), code, "{signal}: {}", told(&output));
        wait_until("the end of the deployment", || {
            parsed(&shop.daemon.shown(&["releases", "shop", "--json"]))[0]["under_way"].is_null()
        });
        assert_eq!(shop.links(), links(["releases/1", next, ""]), "{signal}");
        assert_eq!(shop.page(), "1");
        // The next deployment has the link.
        exited(Some(0), shop.deploy("3"));
        assert_eq!(shop.links(), links(["releases/3", "releases/3", "releases/1"]));
    }
}

#[test]
fn a_release_in_service_goes_back_if_its_command_is_killed_before_the_link_moves() {
    let shop = Shop::start("real");
    assert_eq!(shop.page(), "1");
    // An idle worker that does not leave keeps the command waiting.
    wait_until("an idle worker", || {
        let status = shop.daemon.status(&["shop"]);
        let workers = &status["pools"][0]["generations"][0]["workers"];
        workers[0]["stage"] == "Idle"
    });
    let old = shop.daemon.workers("shop");
    old.iter().for_each(|pid| process::signal(*pid, Signal::SIGSTOP));
    let mut child = shop.command(&["deploy", "shop"], "2").spawn().expect("forkyard");
    let released = || parsed(&shop.daemon.shown(&["releases", "shop", "--json"]))[0]["release"].take();
    let is_in_service = |release: &str| {
        let now = released();
        now.as_str()
            .is_some_and(|it| Path::new(it) == shop.release(release))
    };
    wait_until("the release in service", || is_in_service("2"));
    child.kill().expect("kill");
    child.wait().expect("wait");
    shop.daemon
        .wait_for("its command has ended, so the release before is deployed");
    old.iter().for_each(|pid| process::signal(*pid, Signal::SIGCONT));
    wait_until("the release before", || is_in_service("1"));
    wait_until("its page", || shop.page() == "1");
    assert_eq!(shop.links(), links(["releases/1", "releases/2", ""]));
}
