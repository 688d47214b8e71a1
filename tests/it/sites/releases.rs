//! Applications of an application pool whose releases change places behind a link.

use super::USERS;
use crate::it::releases::{APPLICATIONS, Application, write_release};
use crate::support::prelude::*;
use std::os::unix::fs::{lchown, symlink};

struct Shop {
    daemon: Daemon,
    application: &'static Application,
    root: PathBuf,
}

/// Gives everything below a directory to the first user.
fn own(path: &Path) {
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
        place_library();
        let configure = |dir: &Path| {
            let root = dir.join("apps/shop");
            fs::create_dir_all(&root).expect("a directory");
            for release in ["1", "2", "3"] {
                Shop::write(&root, application, release);
            }
            symlink("releases/1", root.join("current")).expect("a link");
            own(&root);
            let (pool, applications) = match keys.contains("gradual") {
                true => (keys, "max = 6\n"),
                false => ("gradual = []\n", keys),
            };
            super::configuration(dir, &format!("releases = \"current\"\n{applications}"), pool)
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
            fs::write(root.join("releases").join(release).join("forkyard.toml"), settings).expect("settings");
        }
    }

    fn path(&self, name: &str) -> String {
        self.root.join(name).display().to_string().trim_end_matches('/').to_owned()
    }

    /// What the application answers to a request that names it by this path.
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
        let expected = [Some("releases/3".to_owned()), Some("releases/2".to_owned()), None];
        assert_eq!(links, expected, "{name}");
        let shown = shop.daemon.shown(&["releases"]);
        assert_contains(&shown, &format!("{}: {}", shop.path(""), shop.path("releases/3")));
        let (code, text) = shop.said(&["rollback", &shop.path("current"), "--wait"]);
        assert_eq!(code, 0, "{name}: {text}");
        shop.assert_serves("2");
        assert_eq!(shop.link("current.last").as_deref(), Some("releases/3"));
    }
}
