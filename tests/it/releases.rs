//! Releases: a generation serves one, and `forkyard deploy` gives a pool another.

mod disturbed;
mod gradual;
mod parts;
mod scripts;
mod slower;
mod soak;
pub(super) mod visitors;
mod workers;

use crate::support::prelude::*;
use std::os::unix::fs::{lchown, symlink};

/// An application that answers with three releases: of its start file, of a file that it loads later, and of its working
/// directory.
pub(super) struct Application {
    pub(super) name: &'static str,
    pub(super) runtime: &'static str,
    pub(super) files: [(&'static str, &'static str); 2],
    more: &'static str,
    /// Whether a missing second file keeps it from starting.
    loads_at_start: bool,
}

const PHP: [(&str, &str); 2] = [
    (
        "index.php",
        "<?php usleep(1000); include 'part.php'; echo 'RELEASE ', part(), ' ', basename($_SERVER['DOCUMENT_ROOT']);",
    ),
    ("part.php", "<?php function part() { return 'RELEASE'; }"),
];

pub(super) const APPLICATIONS: [Application; 7] = [
    Application {
        name: "php",
        runtime: "php",
        files: PHP,
        more: concat!(
            "version = \"",
            env!("FORKYARD_PHP"),
            "\"\npreloader = \"own\"\nphp_value.include_path = \"LINK\"\n"
        ),
        loads_at_start: false,
    },
    Application {
        name: "zygote",
        runtime: "php",
        files: PHP,
        more: concat!(
            "version = \"",
            env!("FORKYARD_PHP"),
            "\"\nphp_admin_value.\"opcache.validate_timestamps\" = 0\nphp_admin_value.open_basedir = \"LINK:/tmp\"\n"
        ),
        loads_at_start: false,
    },
    Application {
        name: "wsgi",
        runtime: "wsgi",
        files: [
            (
                "wsgi.py",
                "import os, part\ndef application(environ, start):\n    start('200 OK', [])\n    return [f\"RELEASE {part.PART} {os.path.basename(os.getcwd())}\".encode()]\n",
            ),
            ("part.py", "PART = 'RELEASE'\n"),
        ],
        more: "root = \"LINK\"\n",
        loads_at_start: true,
    },
    Application {
        name: "asgi",
        runtime: "asgi",
        files: [
            (
                "asgi.py",
                "import os, part\nasync def application(scope, receive, send):\n    assert scope['type'] == 'http'\n    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n    body = f\"RELEASE {part.PART} {os.path.basename(os.getcwd())}\".encode()\n    await send({'type': 'http.response.body', 'body': body})\n",
            ),
            ("part.py", "PART = 'RELEASE'\n"),
        ],
        more: "root = \"LINK\"\n",
        loads_at_start: true,
    },
    Application {
        name: "node",
        runtime: "node",
        files: [
            (
                "app.js",
                "const part = require('./part'), path = require('path');\nrequire('http').createServer((request, answer) => answer.end(`RELEASE ${part} ${path.basename(process.cwd())}`)).listen(process.env.PORT);\n",
            ),
            ("part.js", "module.exports = 'RELEASE';\n"),
        ],
        more: "root = \"LINK\"\n",
        loads_at_start: true,
    },
    Application {
        name: "rack",
        runtime: "rack",
        files: [
            (
                "config.ru",
                "require_relative 'part'\nrun ->(env) { [200, {}, [\"RELEASE #{PART} #{File.basename(Dir.pwd)}\"]] }\n",
            ),
            ("part.rb", "PART = 'RELEASE'\n"),
        ],
        more: "root = \"LINK\"\n",
        loads_at_start: true,
    },
    Application {
        name: "cgi",
        runtime: "cgi",
        files: [
            (
                "index.cgi",
                "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\n'\nprintf 'RELEASE %s %s' \"$(cat part.txt)\" \"$(basename \"${SCRIPT_FILENAME%/*}\")\"\n",
            ),
            ("part.txt", "RELEASE"),
        ],
        more: "root = \"LINK\"\n",
        loads_at_start: false,
    },
];

const MANAGERS: [&str; 3] = [
    "pm = \"static\"\nmax_children = 2\n",
    "pm = \"dynamic\"\nmax_children = 3\nmin_spare_servers = 1\nmax_spare_servers = 2\n",
    "pm = \"ondemand\"\nmax_children = 2\n",
];

struct Shop {
    application: &'static Application,
    daemon: Daemon,
}

pub(super) fn write_release(root: &Path, application: &Application, release: &str) {
    let directory = root.join("releases").join(release);
    fs::create_dir_all(&directory).expect("a release");
    for (name, text) in application.files {
        let text = text.replace("RELEASE", release);
        match text.starts_with("#!") {
            true => write_program(&directory.join(name), text),
            false => write_file(directory.join(name), text),
        }
    }
}

fn configuration(dir: &Path, application: &Application, settings: &str) -> String {
    let link = dir.join("current");
    let more = application.more.replace("LINK", &link.display().to_string());
    let more = more.replace("DIR", &dir.display().to_string());
    let at_once = match settings.contains("gradual") {
        true => "",
        false => "gradual = []\n",
    };
    let settings = settings.replace("DIR", &dir.display().to_string());
    let settings = format!("{settings}{at_once}release = {:?}\n", link.display().to_string());
    with_control(dir)
        + &pool(
            dir,
            "shop",
            &settings,
            &format!("runtime = {:?}\n{more}", application.runtime),
        )
}

impl Shop {
    fn start(application: &'static Application, settings: &str, is_kept: bool) -> Shop {
        let configure = |dir: &Path| {
            for release in ["1", "2", "3"] {
                write_release(dir, application, release);
            }
            symlink("releases/1", dir.join("current")).expect("a link");
            configuration(dir, application, settings)
        };
        let daemon = match is_kept {
            true => Daemon::start_kept(configure),
            false => Daemon::start(configure),
        };
        Shop { application, daemon }
    }

    fn link(&self, name: &str) -> Option<String> {
        let target = fs::read_link(self.daemon.dir.join(name)).ok()?;
        Some(target.display().to_string())
    }

    /// Returns the application's answer for its start file below a directory.
    fn answer_at(&self, directory: &str) -> String {
        let root = self.daemon.dir.join(directory);
        let params = Params::get(&root, self.application.files[0].0, "");
        self.daemon.ask("shop", &params).body().to_owned()
    }

    /// Asserts that requests for the link and for these releases get one release.
    fn assert_serves(&self, release: &str, others: &[&str]) {
        let whole = format!("{release} {release} {release}");
        let others = others.iter().map(|release| format!("releases/{release}"));
        let own = ["current".to_owned(), format!("releases/{release}")];
        for directory in &own.into_iter().chain(others).collect::<Vec<_>>() {
            let name = self.application.name;
            assert_eq!(self.answer_at(directory), whole, "{name} at {directory}");
        }
    }

    fn deploy(&self, arguments: &[&str]) -> (i32, String) {
        let (code, text) = self.daemon.said(&[&["deploy", "shop"], arguments].concat());
        (code.unwrap_or(-1), text)
    }

    fn release(&self, release: &str) -> String {
        self.daemon
            .dir
            .join("releases")
            .join(release)
            .display()
            .to_string()
    }

    /// Points the link elsewhere, as other tools do.
    fn move_link(&self, target: &str) {
        let new = self.daemon.dir.join("new");
        symlink(target, &new).expect("a link");
        fs::rename(new, self.daemon.dir.join("current")).expect("rename");
    }
}

#[test]
fn a_pool_is_named_by_its_application_s_directory_link_and_release() {
    let application = APPLICATIONS.iter().find(|it| it.name == "wsgi").expect("wsgi");
    let shop = Shop::start(application, MANAGERS[0], false);
    let path = |name: &str| {
        let path = shop.daemon.dir.join(name).display().to_string();
        path.trim_end_matches('/').to_owned()
    };
    shop.assert_serves("1", &[]);
    let said = |arguments: &[&str]| exited(Some(0), shop.daemon.said(arguments));
    let routes = said(&["routes", "shop", "--json"]);
    let releases = said(&["releases", "shop"]);
    for name in ["", "current", "releases/1"].map(path) {
        assert_eq!(said(&["routes", &name, "--json"]), routes, "{name}");
        assert_eq!(said(&["releases", &name]), releases, "{name}");
    }
    for name in ["", "current", "releases/1"].map(path) {
        said(&["deploy", &name, &shop.release("2"), "--wait"]);
        shop.assert_serves("2", &[]);
        said(&["rollback", "shop", "--wait"]);
        shop.assert_serves("1", &[]);
        // A restart reads the link.
        shop.move_link("releases/2");
        said(&["restart", &name, "--wait"]);
        shop.assert_serves("2", &[]);
        said(&["deploy", "shop", &shop.release("1"), "--wait"]);
        shop.assert_serves("1", &[]);
    }
    for command in ["restart", "routes", "releases"] {
        let (code, text) = shop.daemon.said(&[command, &path("releases/2")]);
        assert_ne!(code, Some(0), "{command}: {text}");
    }
}

#[test]
fn every_runtime_serves_one_release_until_a_deployment() {
    let rows = APPLICATIONS
        .iter()
        .flat_map(|application| MANAGERS.map(|manager| (application, manager)));
    for (application, manager) in rows {
        let shop = Shop::start(application, manager, false);
        shop.assert_serves("1", &[]);
        // A link that somebody else moves changes nothing: not for a reload, nor for a worker that follows.
        shop.move_link("releases/2");
        shop.assert_serves("1", &["2"]);
        shop.daemon.reload_until("reload done");
        let workers = shop.daemon.workers("shop");
        workers
            .iter()
            .for_each(|pid| process::signal(*pid, Signal::SIGKILL));
        process::wait_for_ends(&workers);
        shop.assert_serves("1", &[]);
        // A restart reads it.
        exited(Some(0), shop.daemon.said(&["restart", "shop", "--wait"]));
        shop.assert_serves("2", &[]);
        let text = exited(0, shop.deploy(&[&shop.release("3"), "--wait"]));
        assert_contains(&text, "releases/3 is in service");
        shop.assert_serves("3", &["2"]);
        let links = ["current", "current.last", "current.next"].map(|name| shop.link(name));
        let expected = ["3", "2", "3"].map(|release| Some(format!("releases/{release}")));
        assert_eq!(links, expected, "{}", application.name);
        exited(Some(0), shop.daemon.said(&["rollback", "shop", "--wait"]));
        shop.assert_serves("2", &["3"]);
        assert_eq!(shop.link("current.last").as_deref(), Some("releases/3"));
        let shown = shop.daemon.shown(&["releases"]);
        assert_contains(&shown, "shop: ");
        assert_contains(&shown, "releases/2 is in service");
        // A directory that no link ever named.
        let other = shop.daemon.dir.join("other");
        fs::create_dir(&other).expect("a directory");
        if application.runtime == "php" {
            for (name, text) in application.files {
                write_file(other.join(name), text.replace("RELEASE", "9"));
            }
            assert_contains(&shop.answer_at("other"), "9 ");
            assert_contains(
                &shop.daemon.shown(&["releases"]),
                "1 requests had a script in no release",
            );
            shop.daemon.wait_for("is in no release of");
        }
    }
}

#[test]
fn a_release_that_does_not_start_changes_nothing() {
    for application in APPLICATIONS
        .iter()
        .filter(|application| application.loads_at_start)
    {
        for manager in MANAGERS {
            let shop = Shop::start(application, manager, false);
            shop.assert_serves("1", &[]);
            let broken = shop.daemon.dir.join("releases/2").join(application.files[1].0);
            fs::rename(&broken, broken.with_extension("away")).expect("rename");
            let text = exited(70, shop.deploy(&["--json", &shop.release("2")]));
            assert_contains(&text, "\"outcome\": \"failed\"");
            assert_contains(&text, "no new worker came up: ");
            shop.assert_serves("1", &[]);
            let links = ["current", "current.last", "current.next"].map(|name| shop.link(name));
            assert_eq!(links, [Some("releases/1".to_owned()), None, None]);
            // The same directory, mended.
            fs::rename(broken.with_extension("away"), &broken).expect("rename");
            exited(0, shop.deploy(&[&shop.release("2")]));
            shop.assert_serves("2", &[]);
        }
    }
}

#[test]
fn a_master_that_is_killed_or_replaced_keeps_the_release() {
    for manager in MANAGERS {
        let shop = Shop::start(&APPLICATIONS[1], manager, true);
        shop.assert_serves("1", &[]);
        exited(0, shop.deploy(&[&shop.release("2"), "--wait"]));
        shop.move_link("releases/3");
        let master = shop.daemon.kept_master();
        process::signal(master, Signal::SIGKILL);
        let next = shop.daemon.next_kept_master(master);
        shop.assert_serves("2", &[]);
        exited(Some(0), shop.daemon.said(&["upgrade"]));
        process::wait_for_end(next.min(master));
        shop.assert_serves("2", &[]);
        // A later release is known, although no link names the serving release.
        exited(0, shop.deploy(&[&shop.release("1")]));
        shop.assert_serves("1", &[]);
        // A restart in between keeps no later deployment waiting.
        for release in ["2", "1"] {
            exited(Some(0), shop.daemon.said(&["restart", "shop", "--wait"]));
            exited(0, shop.deploy(&[&shop.release(release)]));
            shop.assert_serves(release, &[]);
        }
    }
}

#[test]
fn a_pool_whose_release_was_deleted_gets_what_the_link_names() {
    for application in &APPLICATIONS {
        for manager in [MANAGERS[0], MANAGERS[2]] {
            let shop = Shop::start(application, manager, false);
            let name = application.name;
            let (code, text) = shop.deploy(&[&shop.release("2"), "--wait"]);
            assert_eq!(code, 0, "{name}: {text}");
            shop.assert_serves("2", &[]);
            // The link still names the deleted release, so requests get an error.
            fs::remove_dir_all(shop.release("2")).expect("remove");
            let ask = || {
                let params = Params::get(&shop.daemon.dir.join("current"), application.files[0].0, "");
                shop.daemon.ask("shop", &params).body().to_owned()
            };
            wait_until("the error", || {
                ask();
                shop.daemon
                    .log()
                    .contains("leads to releases/2, which is not there")
            });
            assert_contains(&shop.daemon.log(), "the directory of its release is gone");
            shop.move_link("releases/3");
            let (code, text) = shop.daemon.said(&["restart", "shop", "--wait"]);
            assert_eq!(code, Some(0), "{name}: {text}");
            shop.assert_serves("3", &[]);
            shop.move_link("releases/1");
            shop.assert_serves("3", &[]);
            fs::remove_dir_all(shop.release("3")).expect("remove");
            wait_until("the release that the link names", || ask() == "1 1 1");
        }
    }
}

#[test]
fn what_can_not_be_a_release_is_refused_with_the_remedy() {
    let shop = Shop::start(&APPLICATIONS[1], MANAGERS[0], false);
    let file = shop.daemon.write("a-file", "");
    write_release(&shop.daemon.dir, shop.application, "11:15");
    let colon = shop.release("11:15");
    fs::create_dir(shop.daemon.dir.join("releases/1/public")).expect("a directory");
    let part = shop.release("1/public");
    let rows = [
        (colon.as_str(), 78, "has a colon in its name"),
        (part.as_str(), 78, "releases/1; name that"),
        ("/nowhere/at/all", 78, "name the directory of a release"),
        (file.to_str().expect("a path"), 78, "is no directory"),
        ("/", 78, "/ contains the pool's link "),
    ];
    for (release, expected, part) in rows {
        let (code, text) = shop.deploy(&[release]);
        assert_eq!(code, expected, "{release}: {text}");
        assert_contains(&text, part);
    }
    // A directory at a link's place keeps a deployment from its start.
    for name in ["current.next", "current.last"] {
        let path = shop.daemon.write(name, "");
        let text = exited(78, shop.deploy(&[&shop.release("2")]));
        assert_contains(&text, &format!("{name} is no link; move it away"));
        fs::remove_file(path).expect("remove");
    }
    assert_eq!(shop.link("current.next"), None);
    let text = exited(
        Some(78),
        shop.daemon.said(&["deploy", "nothing", &shop.release("2")]),
    );
    assert_contains(&text, "there is no pool nothing");
    // A directory in place of a link.
    fs::rename(shop.daemon.dir.join("current"), shop.daemon.dir.join("away")).expect("rename");
    fs::create_dir(shop.daemon.dir.join("current")).expect("a directory");
    let text = exited(78, shop.deploy(&[&shop.release("2")]));
    assert_contains(&text, "current is no link; move it away");
    shop.assert_serves("1", &[]);
}

#[test]
fn a_release_that_the_pool_s_user_can_not_enter_is_refused_and_changes_nothing() {
    for application in &APPLICATIONS {
        let shop = Shop::start(application, MANAGERS[0], false);
        let name = application.name;
        shop.assert_serves("1", &[]);
        let workers = || BTreeSet::from_iter(shop.daemon.workers("shop"));
        shop.daemon.wait_for_workers("shop", 2);
        let before = workers();
        let closed = shop.release("2");
        let empty = shop.release("empty");
        fs::create_dir(&empty).expect("a directory");
        let set_mode = |mode| {
            fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).expect("chmod");
        };
        let assert_unchanged = || {
            shop.assert_serves("1", &[]);
            let links = ["current", "current.last", "current.next"].map(|name| shop.link(name));
            assert_eq!(links, [Some("releases/1".to_owned()), None, None], "{name}");
            assert_eq!(workers(), before, "{name}");
        };
        // Nobody may search it; only its owner, root, may; it can be listed, but not searched.
        let others = if is_root() {
            [0o000, 0o700, 0o744]
        } else {
            [0o000, 0o600, 0o444]
        };
        for mode in others {
            set_mode(mode);
            let (code, text) = shop.deploy(&[&closed]);
            assert_eq!(code, 78, "{name} {mode:o}: {text}");
            for part in [
                &format!("nothing was changed: release: {closed}: user "),
                "chmod o+x it",
            ] {
                assert_contains(&text, part);
            }
            assert_unchanged();
        }
        let text = exited(78, shop.deploy(&[&empty]));
        assert_contains(&text, &format!("nothing was changed: release: {empty} is empty"));
        assert_unchanged();
        // A restart, which reads the link, keeps the processes as well.
        for directory in ["releases/2", "releases/empty"] {
            shop.move_link(directory);
            let (code, text) = shop.daemon.said(&["restart", "shop", "--wait"]);
            assert!(code != Some(0), "{name} {directory}: {text}");
            shop.move_link("releases/1");
            assert_unchanged();
        }
        set_mode(0o755);
        exited(0, shop.deploy(&[&closed]));
        shop.assert_serves("2", &[]);
    }
}

#[test]
fn an_owner_deploys_below_the_link_s_directory_and_a_stranger_nothing() {
    skip_if!(needs_root());
    const OWNER: u32 = 33;
    const STRANGER: u32 = 34;
    let shop = Shop::start(&APPLICATIONS[1], MANAGERS[0], false);
    let root = &shop.daemon.dir;
    chown(root, Some(OWNER), Some(OWNER)).expect("chown");
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).expect("chmod");
    let ask = |uid: u32, release: &Path| {
        let release = release.display().to_string();
        let mut command = forkyard(&["deploy", "shop", &release], root);
        command.uid(uid).gid(uid);
        let (code, text) = said_by(&mut command);
        (code.unwrap_or(-1), text)
    };
    let elsewhere = directory();
    let elsewhere = elsewhere.path().canonicalize().expect("a path");
    for (name, text) in PHP {
        write_file(elsewhere.join(name), text.replace("RELEASE", "9"));
    }
    let own = root.join("releases/2");
    let (code, text) = ask(STRANGER, &own);
    assert!(code != 0 && text.contains("permission denied"), "{text}");
    let text = exited(78, ask(OWNER, &elsewhere));
    assert_contains(&text, "only root may name a release elsewhere");
    shop.assert_serves("1", &[]);
    exited(0, ask(OWNER, &own));
    shop.assert_serves("2", &["1"]);
    // The link is the owner's, so that it may not lead elsewhere either.
    lchown(root.join("current"), Some(OWNER), Some(OWNER)).expect("lchown");
    fs::remove_file(root.join("current")).expect("remove");
    symlink(&elsewhere, root.join("current")).expect("a link");
    lchown(root.join("current"), Some(OWNER), Some(OWNER)).expect("lchown");
    let (code, text) = shop.daemon.said(&["restart", "shop", "--wait"]);
    assert!(code != Some(0), "{text}");
    assert_contains(&text, "only root may name a release elsewhere");
    exited(0, shop.deploy(&[&elsewhere.display().to_string()]));
    assert_contains(&shop.answer_at("current"), "9 9 ");
    // A release of somebody else.
    chown(&own, Some(STRANGER), Some(STRANGER)).expect("chown");
    let text = exited(78, shop.deploy(&[&own.display().to_string()]));
    assert_contains(&text, "belongs to user 34");
}

#[test]
fn a_node_application_is_started_as_its_release_says() {
    let node = APPLICATIONS.iter().find(|it| it.name == "node").expect("node");
    let daemon = Daemon::start(|dir| {
        for (release, file) in [("1", "app.js"), ("2", "other.js"), ("3", "app.js")] {
            write_release(dir, node, release);
            let root = dir.join("releases").join(release);
            fs::rename(root.join("app.js"), root.join("main.tmp")).expect("rename");
            fs::rename(root.join("main.tmp"), root.join(file)).expect("rename");
            if release == "2" {
                write_file(
                    root.join("package.json"),
                    r#"{"scripts": {"start": "node other.js"}}"#,
                );
            }
        }
        symlink("releases/1", dir.join("current")).expect("a link");
        // The pool's user may own the link: package.json is read with this user's rights.
        lchown(dir.join("current"), Some(33), Some(33)).ok();
        configuration(dir, node, MANAGERS[0])
    });
    let shop = Shop {
        application: node,
        daemon,
    };
    assert_eq!(shop.answer_at("current"), "1 1 1");
    for release in ["2", "3", "2"] {
        exited(0, shop.deploy(&[&shop.release(release), "--wait"]));
        assert_eq!(
            shop.answer_at("current"),
            format!("{release} {release} {release}")
        );
    }
    shop.move_link("releases/1");
    exited(Some(0), shop.daemon.said(&["reload"]));
    assert_eq!(shop.answer_at("current"), "2 2 2");
    // A release without a command is refused.
    fs::remove_file(shop.daemon.dir.join("releases/3/app.js")).expect("remove");
    let text = exited(78, shop.deploy(&[&shop.release("3")]));
    assert_contains(&text, "no package.json with a script");
    assert_eq!(shop.answer_at("current"), "2 2 2");
}
