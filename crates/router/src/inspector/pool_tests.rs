use super::*;
use crate::inspector::protocol::Settings as Own;
use crate::inspector::sample;
use forkyard_config::{self as config, Confine, Preloading};
use forkyard_core::applications::Options;
use std::num::NonZeroU32;

struct Users;

impl Database for Users {
    fn user(&self, name: &str) -> Option<UserEntry> {
        let known = [
            ("root", 0, 0),
            ("www-data", 33, 33),
            ("alice", 1001, 1001),
            ("nobody", 65534, 65534),
            ("wheel", 1003, 0),
        ];
        let found = known
            .into_iter()
            .find(|(known, uid, _)| *known == name || uid.to_string() == name);
        found.map(|(name, uid, gid)| UserEntry {
            name: name.to_owned(),
            uid,
            gid,
        })
    }
    fn user_of(&self, uid: u32) -> Option<UserEntry> {
        self.user(&uid.to_string())
    }
    fn group(&self, _name: &str) -> Option<u32> {
        None
    }
    fn has_group(&self, _gid: u32) -> bool {
        false
    }
}

fn template() -> Pool {
    let text = "[pool.www]\nlisten = \"127.0.0.1:9000\"\nuser = \"nobody\"\npm = \"ondemand\"\nmax_children = 2\n\
                env = { A = \"pool\", B = \"pool\" }\n\
                [pool.www.application]\nruntime = \"php\"\nversion = \"8.2\"\npreloader = \"own\"\n";
    let loaded = config::parse(text, Path::new("test.toml"), &config::Host::default());
    let mut pool = loaded.expect("a configuration").config.pools[0].as_ref().clone();
    pool.applications = Some(Box::new(Applications {
        max: NonZeroU32::new(6).unwrap(),
        max_spawning: NonZeroU32::new(2).unwrap(),
        options: Options {
            max_per_app: NonZeroU32::new(4),
            min_instances: 1,
            start_timeout: Duration::from_secs(7),
            ..Options::default()
        },
        min_uid: 1000,
        ..sample::applications(Path::new("/srv"))
    }));
    pool
}

fn found(kind: Kind, file: Option<&str>) -> FoundApplication {
    FoundApplication {
        kind,
        startup_file: file.map(|file| Path::new("/srv/shop").join(file)),
        ..sample::found("/srv/shop", 1001)
    }
}

fn with(found: FoundApplication, settings: Own) -> FoundApplication {
    FoundApplication {
        settings: Some(settings),
        ..found
    }
}

fn php() -> FoundApplication {
    found(Kind::Php, Some("index.php"))
}

fn owned(user: u32) -> FoundApplication {
    FoundApplication {
        owner: (user, user),
        ..php()
    }
}

fn entry(entry: &str) -> Own {
    Own {
        entry: Some(entry.to_owned()),
        ..Own::default()
    }
}

fn command(command: &str) -> Own {
    Own {
        start_command: Some(command.to_owned()),
        ..Own::default()
    }
}

fn make(template: &Pool, found: &FoundApplication) -> Result<Pool, String> {
    pool_of(template, found, &Users, true).map_err(|error| error.to_string())
}

fn applications(pool: &mut Pool) -> &mut Applications {
    pool.applications.as_mut().expect("an application pool")
}

#[test]
fn its_workers_tell_their_memory_where_that_is_limited() {
    let mut template = template();
    assert_eq!(
        make(&template, &php()).unwrap().retirement.told_memory_limit,
        None
    );
    applications(&mut template).options.memory_limit = Some(1 << 20);
    let pool = make(&template, &php()).unwrap();
    assert_eq!(pool.retirement.told_memory_limit, Some(1 << 20));
    assert!(pool.applications.is_none());
}

#[test]
fn it_runs_as_its_owner() {
    let pool = make(&template(), &owned(1001)).unwrap();
    assert_eq!(
        (pool.account.user.as_deref(), pool.account.group.as_deref()),
        (Some("1001"), Some("1001"))
    );
    let refusals = [
        (0, "root (user 0)", "nothing is run as root"),
        (33, "www-data (user 33)", "min_uid is 1000"),
        (4711, "user 4711", "there is no such user"),
    ];
    let mut answering_503 = template();
    applications(&mut answering_503).default_user = Some("nobody".to_owned());
    for (uid, who, why) in refusals {
        let error = make(&template(), &owned(uid)).unwrap_err();
        let text = format!(
            "/srv/shop belongs to {who}, whom applications do not run as: {why}; give it to the site's user (chown), or set \
             applications.default_user"
        );
        assert_eq!(error, text);
        let pool = make(&answering_503, &owned(uid)).unwrap();
        assert_eq!(pool.account.user.as_deref(), Some("65534"));
    }
    assert_eq!(
        make(&answering_503, &owned(1001))
            .unwrap()
            .account
            .user
            .as_deref(),
        Some("1001")
    );
    applications(&mut answering_503).user_switching = false;
    assert_eq!(
        make(&answering_503, &owned(1001))
            .unwrap()
            .account
            .user
            .as_deref(),
        Some("65534")
    );
    for wrong in ["root", "ghost", "wheel", "0"] {
        applications(&mut answering_503).default_user = Some(wrong.to_owned());
        let error = make(&answering_503, &owned(0)).unwrap_err();
        assert!(error.contains(&format!("default_user = \"{wrong}\"")), "{error}");
    }
    assert!(
        make(&template(), &owned(1003))
            .unwrap_err()
            .contains("its group is root's")
    );
}

#[test]
fn a_daemon_that_is_not_root_runs_everything_as_its_user() {
    for owner in [0, 33, 1001, 4711] {
        let pool = pool_of(&template(), &owned(owner), &Users, false).unwrap();
        assert_eq!((pool.account.user, pool.account.group), (None, None));
    }
}

#[test]
fn php_has_the_pool_s_settings_and_its_kind_of_preloader() {
    let pool = make(&template(), &php()).unwrap();
    let Application::Php(php) = &pool.application else {
        panic!("{:?}", pool.application);
    };
    assert_eq!((php.version.as_str(), php.preloading), ("8.2", Preloading::Own));
    assert_eq!(pool.setup.chdir.as_deref(), Some(Path::new("/srv/shop")));
    assert!(pool.applications.is_none() && pool.pages.status_listen.is_none());
    let mut python = template();
    python.application = Application::Rust;
    assert_eq!(
        make(&python, &self::php()).unwrap_err(),
        "/srv/shop is an application in php, which pool www does not run; write [pool.www.application] with runtime = \
         \"php\" and version = \"8.2\""
    );
}

#[test]
fn python_and_ruby_have_the_nearest_interpreter() {
    let wrapped = |template: &Pool, found: &FoundApplication| match make(template, found).unwrap().application
    {
        Application::Wrapped(wrapped) => wrapped,
        other => panic!("{other:?}"),
    };
    let python = found(Kind::Wsgi, Some("passenger_wsgi.py"));
    let usual = wrapped(&template(), &python);
    assert_eq!(
        (usual.interface, usual.entry.as_deref()),
        (Interface::Wsgi, Some("passenger_wsgi.py"))
    );
    assert_eq!(usual.interpreter, Path::new(PYTHON));
    assert_eq!(usual.start_timeout, Duration::from_secs(7));
    let mut named = template();
    named.application = Application::Wrapped(Wrapped {
        interpreter: "/opt/python".into(),
        preloader_idle_timeout: Duration::from_secs(3),
        ..usual.clone()
    });
    let asgi = found(Kind::Asgi, Some("asgi.py"));
    assert_eq!(wrapped(&named, &asgi).interpreter, Path::new("/opt/python"));
    let ruby = found(Kind::Rack, Some("config.ru"));
    let rack = wrapped(&named, &ruby);
    assert_eq!(
        (rack.interpreter.as_path(), rack.preloader_idle_timeout),
        (Path::new(RUBY), Duration::from_secs(3))
    );
    let own = FoundApplication {
        python: Some("/srv/shop/venv/bin/python".into()),
        ..python.clone()
    };
    assert_eq!(
        wrapped(&named, &own).interpreter,
        Path::new("/srv/shop/venv/bin/python")
    );
    assert_eq!(
        wrapped(&template(), &with(python, entry("shop.wsgi:app")))
            .entry
            .as_deref(),
        Some("shop.wsgi:app")
    );
    assert_eq!(wrapped(&template(), &found(Kind::Wsgi, None)).entry, None);
}

#[test]
fn cgi_programs_are_below_the_root() {
    let cgi = |own| make(&template(), &with(found(Kind::Cgi, None), own)).map(|pool| pool.application);
    let expected = |script: Option<&str>| {
        Ok(Application::Cgi(Cgi {
            script: script.map(PathBuf::from),
            root: Some("/srv/shop".into()),
            search_arguments: false,
            parameters: Vec::new(),
        }))
    };
    assert_eq!(cgi(Own::default()), expected(None));
    assert_eq!(cgi(entry("cgi-bin/run")), expected(Some("/srv/shop/cgi-bin/run")));
    for wrong in ["/bin/sh", "../other/run", "a/../../b"] {
        let error = cgi(entry(wrong)).unwrap_err();
        assert!(error.contains("is not below the application's root"), "{error}");
    }
}

#[test]
fn a_program_that_speaks_fastcgi_says_how_it_is_started() {
    let missing = make(&template(), &found(Kind::Fastcgi, None)).unwrap_err();
    assert!(
        missing.starts_with("/srv/shop/forkyard.toml: start_command is missing"),
        "{missing}"
    );
    let own = command("./serve --fast");
    let pool = make(&template(), &with(found(Kind::Fastcgi, None), own)).unwrap();
    let Application::FastCgi(program) = pool.application else {
        panic!("{:?}", pool.application);
    };
    assert_eq!(program.command, StartCommand::Shell("./serve --fast".to_owned()));
    assert_eq!(program.root.as_deref(), Some(Path::new("/srv/shop")));
    assert_eq!(program.start_timeout, Duration::from_secs(7));
}

#[test]
fn programs_that_speak_http_are_started() {
    let started = |found: &FoundApplication| match make(&template(), found).map(|pool| pool.application) {
        Ok(Application::Program(program)) => {
            assert_eq!(
                (program.root.as_path(), program.instances),
                (Path::new("/srv/shop"), 1)
            );
            program.start_command
        }
        other => panic!("{other:?}"),
    };
    let within = |script: &str| {
        format!("/bin/sh -c 'PATH='\\''/srv/shop/node_modules/.bin'\\'':$PATH; export PATH; {script}'")
    };
    let node = found(Kind::Node, Some("app.js"));
    assert_eq!(started(&node), within("exec node '\\''app.js'\\''"));
    assert_eq!(
        started(&with(node.clone(), command("next start"))),
        within("exec next start")
    );
    assert_eq!(started(&with(node, command("a && b"))), within("a && b"));
    let http = found(Kind::Http, None);
    assert_eq!(
        started(&with(http.clone(), command("./serve $PORT"))),
        "./serve $PORT"
    );
    assert!(
        make(&template(), &http)
            .unwrap_err()
            .contains("start_command is missing")
    );
}

#[test]
fn what_can_not_be_run_is_said() {
    let mut jailed = template();
    jailed.setup.chroot = Some("/srv".into());
    assert!(make(&jailed, &php()).unwrap_err().contains("chroot"));
    let mut plain = template();
    plain.applications = None;
    assert!(
        make(&plain, &php())
            .unwrap_err()
            .contains("routing = \"application\"")
    );
}

#[test]
fn its_variables_are_kept_from_what_runs_as_root() {
    let env = [("B", "own"), ("LD_PRELOAD", "/srv/shop/evil.so")];
    let own = Own {
        env: env
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        ..Own::default()
    };
    let pool = make(&template(), &with(php(), own)).unwrap();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(pool.environment.env, [pair("A", "pool"), pair("B", "pool")]);
    assert_eq!(
        pool.environment.own_env,
        [pair("B", "own"), pair("LD_PRELOAD", "/srv/shop/evil.so")]
    );
}

#[test]
fn names_differ_and_are_fit_for_files() {
    let mut several = template();
    applications(&mut several).directories.push("/home".into());
    let name = |template: &Pool, root: &str| {
        let found = FoundApplication {
            root: root.into(),
            ..php()
        };
        make(template, &found).map(|pool| pool.name)
    };
    let named = [
        ("/srv/shop", "www:shop"),
        ("/srv/shop/releases/1", "www:shop:releases:1"),
        ("/srv/shop:releases/1", "www:shop%3Areleases:1"),
        ("/srv/a b\n%", "www:a b%0A%25"),
        ("/srv/\u{e9}", "www:\u{e9}"),
    ];
    for (root, right) in named {
        assert_eq!(name(&template(), root).as_deref(), Ok(right));
    }
    assert_eq!(name(&several, "/home/shop").as_deref(), Ok("www:home:shop"));
    let long = format!("/srv/{}", "x".repeat(250));
    assert!(name(&template(), &long).unwrap_err().contains("too long to name"));
}

#[test]
fn what_is_confined_to_paths_has_its_own() {
    let mut confined = template();
    confined.confine = Confine {
        paths: Some(Paths {
            read: vec!["/usr/share/php".into()],
            write: vec!["/tmp".into()],
        }),
        ..Confine::default()
    };
    let paths = make(&confined, &php()).unwrap().confine.paths.unwrap();
    assert_eq!(paths.write, [PathBuf::from("/tmp"), PathBuf::from("/srv/shop")]);
}
