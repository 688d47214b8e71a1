//! The names of an application with releases: its root, the link, and the directory of the release in service. Each
//! command that takes an application does the same for all of them, and for a plain application.

use super::releases::own;
use crate::support::prelude::*;

/// The start takes a while, so that a command that does not wait for it is seen.
const CODE: &str = "import os, time\ntime.sleep(0.5)\ndef application(environ, start):\n    start('200 OK', [])\n    \
                    return [f'{os.path.basename(os.getcwd())} {os.getpid()}'.encode()]\n";
const BROKEN: &str = "def (";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Root,
    Link,
    Release,
    Plain,
}

const SITE: [Name; 3] = [Name::Root, Name::Link, Name::Release];
const ALL: [Name; 4] = [Name::Root, Name::Link, Name::Release, Name::Plain];

struct Named {
    daemon: Daemon,
    apps: PathBuf,
}

impl Named {
    fn start() -> Named {
        let daemon = Daemon::start(|dir| {
            for directory in ["shop/releases/1", "shop/releases/2", "plain"] {
                let directory = dir.join("apps").join(directory);
                fs::create_dir_all(&directory).expect("a directory");
                write_file(directory.join("wsgi.py"), CODE);
            }
            symlink("releases/1", dir.join("apps/shop/current")).expect("a link");
            own(&dir.join("apps/shop"));
            own(&dir.join("apps/plain"));
            super::configuration(dir, "releases = \"current\"\n", "gradual = []\n")
        });
        let apps = daemon.dir.join("apps");
        Named { daemon, apps }
    }

    /// Returns the directory of the release in service, or of the plain application.
    fn directory(&self, name: Name) -> PathBuf {
        match name {
            Name::Plain => self.apps.join("plain"),
            _ => (self.apps.join("shop/current").canonicalize()).expect("a release"),
        }
    }

    fn path(&self, name: Name) -> String {
        let path = match name {
            Name::Root => self.apps.join("shop"),
            Name::Link => self.apps.join("shop/current"),
            Name::Release | Name::Plain => self.directory(name),
        };
        path.display().to_string()
    }

    /// Returns the release that serves, and its process.
    fn served(&self, name: Name) -> (String, u32) {
        let root = match name {
            Name::Plain => self.apps.join("plain"),
            _ => self.apps.join("shop"),
        };
        let params = Params::get(&root, "wsgi.py", "");
        let params = params.with("FORKYARD_APP_ROOT", &root.display().to_string());
        let answer = self.daemon.ask("sites", &params);
        let text = answer.body();
        let (release, pid) = text.split_once(' ').unwrap_or_default();
        (release.to_owned(), pid.trim().parse().unwrap_or_default())
    }

    fn said(&self, command: &str, name: Name, more: &[&str]) -> (i32, String) {
        let path = self.path(name);
        let mut command = forkyard(&[&[command, &path], more].concat(), &self.daemon.dir);
        // `take` ends with its input.
        let (code, text) = said_by(command.stdin(Stdio::null()));
        (code.unwrap_or(-1), text)
    }

    fn write(&self, name: Name, code: &str) {
        let directory = self.directory(name);
        write_file(directory.join("wsgi.py"), code);
        own(&directory);
    }

    fn move_link(&self, target: &str) {
        let new = self.apps.join("shop/new");
        symlink(target, &new).expect("a link");
        own(&new);
        fs::rename(new, self.apps.join("shop/current")).expect("rename");
    }
}

#[test]
fn a_restart_tells_the_truth_by_each_name() {
    let named = Named::start();
    for name in ALL {
        let (_, before) = named.served(name);
        assert!(before > 0, "{name:?}: {}", named.daemon.log());
        let (code, text) = named.said("restart", name, &["--wait"]);
        assert_eq!(code, 0, "{name:?}: {text}");
        assert_contains(&text, " is restarted: 1 new instances serve");
        let (_, now) = named.served(name);
        assert_ne!(now, before, "{name:?}");

        named.write(name, BROKEN);
        let (code, text) = named.said("restart", name, &["--wait"]);
        assert_eq!(code, 70, "{name:?}: {text}");
        assert_contains(&text, "the old ones go on; see forkyard error");
        assert_eq!(named.served(name).1, now, "{name:?}: the old one goes on");
        named.write(name, CODE);
        let (code, text) = named.said("restart", name, &["--wait", "--blocking"]);
        assert_eq!(code, 0, "{name:?}: {text}");
        assert_ne!(named.served(name).1, now, "{name:?}");
        let (code, text) = named.said("restart", name, &[]);
        assert_eq!(code, 0, "{name:?}: {text}");
        assert_contains(&text, "instances");
    }
    // A restart by each name reads the link.
    for name in SITE {
        for release in ["2", "1"] {
            let path = named.path(name);
            named.move_link(&format!("releases/{release}"));
            let (code, text) = named.daemon.said(&["restart", &path, "--wait"]);
            assert_eq!(code, Some(0), "{name:?}: {text}");
            assert_eq!(named.served(name).0, release, "{name:?}: {text}");
        }
    }
}

#[test]
fn each_command_takes_each_name() {
    let named = Named::start();
    for name in ALL {
        let (_, pid) = named.served(name);
        let (code, text) = named.said("take", name, &["--wait", "10s"]);
        assert_eq!(code, 0, "{name:?}: {text}");
        assert_contains(&text, &format!("\"pid\":{pid}"));
        let (code, text) = named.said("routes", name, &["--json"]);
        assert_eq!(code, 0, "{name:?}: {text}");
        let routes: Value = serde_json::from_str(&text).expect("routes");
        assert!(
            routes.as_array().is_some_and(|it| !it.is_empty()),
            "{name:?}: {text}"
        );
    }
    let routes = SITE.map(|name| named.said("routes", name, &["--json"]));
    assert!(routes.iter().all(|one| *one == routes[0]), "{routes:?}");
    let releases = SITE.map(|name| named.said("releases", name, &[]));
    assert!(
        releases.iter().all(|one| *one == releases[0] && one.0 == 0),
        "{releases:?}"
    );
    for name in SITE {
        let next = named.apps.join("shop/releases/2").display().to_string();
        let (code, text) = named.said("deploy", name, &[&next, "--wait"]);
        assert_eq!(code, 0, "{name:?}: {text}");
        assert_eq!(named.served(name).0, "2", "{name:?}");
        let (code, text) = named.said("rollback", name, &["--wait"]);
        assert_eq!(code, 0, "{name:?}: {text}");
        assert_eq!(named.served(name).0, "1", "{name:?}");
    }
    for command in ["releases", "rollback"] {
        let (code, text) = named.said(command, Name::Plain, &[]);
        assert_eq!(code, 78, "{text}");
    }
    // A release that is not in service is no name of the application.
    let other = named.apps.join("shop/releases/2").display().to_string();
    for command in ["take", "releases"] {
        assert_ne!(named.daemon.said(&[command, &other]).0, Some(0), "{command}");
    }
}
