//! `env_file`: secrets of an application, for every runtime, in both kinds of pool.

use crate::support::prelude::*;

const USER: u32 = 33;

struct Case {
    runtime: &'static str,
    file: &'static str,
    code: &'static str,
    more: [&'static str; 2],
}

const NODE: &str =
    "require('http').createServer((request, response) => response.end('SECRET ' + process.env.SECRET))
.listen(process.env.PORT, '127.0.0.1')\n";

const CASES: [Case; 9] = [
    Case {
        runtime: "php",
        file: "index.php",
        code: "<?php echo 'SECRET ', getenv('SECRET'), (getenv('SECRET') === $_SERVER['SECRET']) ? '' : ' not in $_SERVER';",
        more: [concat!("version = \"", env!("FORKYARD_PHP"), "\"\n"), ""],
    },
    Case {
        runtime: "php",
        file: "zygote.php",
        code: "<?php echo 'SECRET ', getenv('SECRET'), (getenv('SECRET') === $_SERVER['SECRET']) ? '' : ' not in $_SERVER';",
        more: [
            concat!(
                "version = \"",
                env!("FORKYARD_PHP"),
                "\"\npreloader = \"zygote\"\n"
            ),
            "",
        ],
    },
    Case {
        runtime: "wsgi",
        file: "wsgi.py",
        code: "import os\nsecret = os.environ['SECRET']\ndef application(environ, start_response):\n    \
               start_response('200 OK', [])\n    return [b'SECRET ' + secret.encode()]\n",
        more: ["root = \"ROOT\"\n", ""],
    },
    Case {
        runtime: "asgi",
        file: "asgi.py",
        code: "import os\nsecret = os.environ['SECRET']\nasync def application(scope, receive, send):\n    \
               await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n    \
               await send({'type': 'http.response.body', 'body': b'SECRET ' + secret.encode()})\n",
        more: ["root = \"ROOT\"\n", ""],
    },
    Case {
        runtime: "rack",
        file: "config.ru",
        code: "secret = ENV.fetch('SECRET')\nrun ->(env) { [200, {}, [\"SECRET #{secret}\"]] }\n",
        more: ["root = \"ROOT\"\n", ""],
    },
    Case {
        runtime: "node",
        file: "app.js",
        code: NODE,
        more: ["root = \"ROOT\"\n", ""],
    },
    Case {
        runtime: "http",
        file: "serve.js",
        code: NODE,
        more: [
            "root = \"ROOT\"\nstart_command = \"node serve.js\"\n",
            "start_command = \"node serve.js\"\n",
        ],
    },
    Case {
        runtime: "fastcgi",
        file: "index.php",
        code: "<?php echo 'SECRET ', getenv('SECRET');",
        more: [
            "root = \"ROOT\"\nstart_command = \"php-cgi\"\n",
            "start_command = \"php-cgi\"\n",
        ],
    },
    Case {
        runtime: "cgi",
        file: "index.cgi",
        code: "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\nSECRET %s' \"$SECRET\"\n",
        more: ["root = \"ROOT\"\n", ""],
    },
];

impl Case {
    fn name(&self) -> &'static str {
        match self.file {
            "zygote.php" => "zygote",
            _ => self.runtime,
        }
    }
}

fn write(path: &Path, text: &str, mode: u32) {
    let _ = fs::remove_file(path);
    write_program(path, text);
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
    if is_root() {
        chown(path, Some(USER), Some(USER)).expect("chown");
    }
}

fn secret(root: &Path, value: &str) {
    write(
        &root.join(".env"),
        &format!("# secret\nSECRET='{value}'\n"),
        0o600,
    );
}

fn lay_out(root: &Path, case: &Case) {
    fs::create_dir_all(root).expect("mkdir");
    if is_root() {
        chown(root, Some(USER), Some(USER)).expect("chown");
    }
    write(&root.join(case.file), case.code, 0o755);
    secret(root, "first-value");
}

fn ask(daemon: &Daemon, name: &str, root: &Path, case: &Case) -> Answer {
    let params = Params::get(root, case.file, "").with("FORKYARD_APP_ROOT", &root.display().to_string());
    daemon.ask(name, &params)
}

fn run(daemon: &Daemon, arguments: &[&str]) -> (bool, String) {
    let output = daemon.run(arguments);
    (output.status.success(), told(&output))
}

#[test]
fn every_runtime_has_its_secrets_in_a_pool_of_its_own() {
    let daemon = Daemon::start(|dir| {
        let mut text = with_control(dir);
        for case in &CASES {
            let root = dir.join(case.name());
            lay_out(&root, case);
            let shown = root.display().to_string();
            let settings = format!(
                "pm = \"ondemand\"\nmax_children = 2\nenv = {{ SECRET = \"less\" }}\nenv_file = \"{shown}/.env\"\n"
            );
            let application = format!(
                "runtime = \"{}\"\n{}",
                case.runtime,
                case.more[0].replace("ROOT", &shown)
            );
            text += &pool(dir, case.name(), &settings, &application);
        }
        text
    });
    for case in &CASES {
        let (name, root) = (case.name(), daemon.dir.join(case.name()));
        let answer = ask(&daemon, name, &root, case).body();
        assert_eq!(answer, "SECRET first-value", "{name}: {}", daemon.log());
        secret(&root, "second-value");
        let (done, said) = run(&daemon, &["restart", name, "--wait"]);
        assert!(done, "{name}: {said} {}", daemon.log());
        let answer = ask(&daemon, name, &root, case).body();
        assert_eq!(answer, "SECRET second-value", "{name}: {}", daemon.log());
    }
}

#[test]
fn every_runtime_has_its_secrets_in_an_application_pool() {
    let daemon = Daemon::start(|dir| {
        for case in &CASES {
            let root = dir.join("apps").join(case.name());
            lay_out(&root, case);
            let own = match case.runtime {
                "wsgi" => "env_file = \"secrets\"\n",
                _ => "",
            };
            write(&root.join("secrets"), "SECRET=first-value\n", 0o600);
            let text = format!("runtime = \"{}\"\n{}{own}", case.runtime, case.more[1]);
            write(&root.join("forkyard.toml"), &text, 0o644);
        }
        format!(
            "{}[pool.sites]\nlisten = {{ address = \"{path}/sites.sock\", mode = \"0666\" }}\nrouting = \"application\"\n\
             env_file = \".env\"\n[pool.sites.applications]\ndirectories = [\"{path}/apps\"]\nmin_uid = 1\nmax = 20\n\
             stat_throttle_rate = 0\n",
            with_control(dir),
            path = dir.display()
        )
    });
    for case in &CASES {
        let (name, root) = (case.name(), daemon.dir.join("apps").join(case.name()));
        let answer = ask(&daemon, "sites", &root, case).body();
        assert_eq!(answer, "SECRET first-value", "{name}: {}", daemon.log());
        match name {
            "wsgi" => write(&root.join("secrets"), "SECRET=second-value\n", 0o600),
            _ => secret(&root, "second-value"),
        }
        let (done, said) = run(&daemon, &["restart", &root.display().to_string(), "--blocking"]);
        assert!(done, "{name}: {said}");
        let answer = ask(&daemon, "sites", &root, case).body();
        assert_eq!(answer, "SECRET second-value", "{name}: {}", daemon.log());
    }
}

fn refused(spoil: impl Fn(&Path)) -> String {
    let case = CASES.iter().find(|case| case.runtime == "wsgi").expect("wsgi");
    let daemon = Daemon::start(|dir| {
        let root = dir.join("wsgi");
        lay_out(&root, case);
        spoil(&root);
        let shown = root.display();
        let settings = format!("pm = \"ondemand\"\nmax_children = 1\nenv_file = \"{shown}/.env\"\n");
        with_control(dir)
            + &pool(
                dir,
                "wsgi",
                &settings,
                &format!("runtime = \"wsgi\"\nroot = \"{shown}\"\n"),
            )
    });
    let root = daemon.dir.join("wsgi");
    assert_contains(&ask(&daemon, "wsgi", &root, case).text(), "503");
    wait_until("the failure in the log", || daemon.log().contains("env_file"));
    let (_, said) = run(&daemon, &["error"]);
    assert_contains(&said, "env_file: ");
    assert_contains(&said, "/.env");
    said
}

#[test]
fn a_file_that_is_not_safe_or_not_right_keeps_the_application_from_starting() {
    let said = refused(|root| write(&root.join(".env"), "A=1\n\nSECRET 'x'\n", 0o600));
    assert_contains(&said, "/.env:3: there is no =; write NAME=value");
    let said = refused(|root| write(&root.join(".env"), "SECRET=x\n", 0o640));
    assert_contains(&said, "(mode 0640); chmod 600 it");
    let said = refused(|root| fs::remove_file(root.join(".env")).expect("remove"));
    assert_contains(&said, "No such file");
    let said = refused(|root| {
        fs::rename(root.join(".env"), root.join("real")).expect("rename");
        symlink("real", root.join(".env")).expect("link");
    });
    assert_contains(&said, "a link is not followed");
    let said = refused(|root| fs::hard_link(root.join(".env"), root.join("other")).expect("link"));
    assert_contains(&said, "2 names");
    let said = refused(|root| {
        fs::remove_file(root.join(".env")).expect("remove");
        nix::unistd::mkfifo(&root.join(".env"), nix::sys::stat::Mode::S_IRUSR).expect("mkfifo");
    });
    assert_contains(&said, "no regular file");
}

#[test]
fn another_user_s_file_is_not_read() {
    skip_if!(needs_root());
    let said = refused(|root| chown(root.join(".env"), Some(34), Some(34)).expect("chown"));
    assert_contains(&said, "belongs to user 34");
    let said = refused(|root| {
        let other = root.with_file_name("other");
        fs::create_dir(&other).expect("mkdir");
        fs::write(other.join(".env"), "SECRET=of root\n").expect("write");
        fs::set_permissions(other.join(".env"), fs::Permissions::from_mode(0o600)).expect("chmod");
        fs::remove_dir_all(root).expect("remove");
        symlink(&other, root).expect("link");
    });
    assert_contains(&said, "a link is on the way");
}

#[test]
fn a_file_of_root_s_is_not_read_because_an_application_names_it() {
    skip_if!(needs_root());
    let case = CASES.iter().find(|case| case.runtime == "wsgi").expect("wsgi");
    for own in [true, false] {
        let daemon = Daemon::start(|dir| {
            let root = dir.join("apps/wsgi");
            lay_out(&root, case);
            secret(&root, "root-s");
            chown(root.join(".env"), Some(0), Some(0)).expect("chown");
            let key = if own { "env_file = \".env\"\n" } else { "" };
            let text = format!("runtime = \"wsgi\"\n{key}");
            write(&root.join("forkyard.toml"), &text, 0o644);
            let of_pool = if own { "" } else { "env_file = \".env\"\n" };
            format!(
                "{}[pool.sites]\nlisten = {{ address = \"{path}/sites.sock\", mode = \"0666\" }}\n\
                 routing = \"application\"\n{of_pool}[pool.sites.applications]\ndirectories = [\"{path}/apps\"]\n\
                 min_uid = 1\nmax = 20\n",
                with_control(dir),
                path = dir.display()
            )
        });
        let answer = ask(&daemon, "sites", &daemon.dir.join("apps/wsgi"), case);
        if own {
            assert_contains(&answer.text(), "503");
            daemon.wait_for("it is root's, and the application itself names it");
        } else {
            assert_eq!(answer.body(), "SECRET root-s", "{}", daemon.log());
        }
    }
}

#[test]
fn no_report_shows_a_secret() {
    let python = "import os\nprint('url', os.environ['SECRET'])\nraise ValueError(os.environ['SECRET'])\n";
    let node =
        "console.log('url', process.env.SECRET);\nthrow new TypeError('ValueError ' + process.env.SECRET);\n";
    each([("wsgi", python), ("node", node)], |(name, code)| {
        let case = CASES.iter().find(|case| case.runtime == name).expect("the case");
        let daemon = Daemon::start(|dir| {
            let root = dir.join(name);
            lay_out(&root, case);
            write(&root.join(case.file), code, 0o644);
            write(
                &root.join(".env"),
                "SECRET=postgres://u:hunter22@db/x\nPIN=12\n",
                0o400,
            );
            let shown = root.display();
            let settings = format!(
                "pm = \"ondemand\"\nmax_children = 1\nfriendly_error_pages = true\nenv_file = \"{shown}/.env\"\n"
            );
            let application = format!("runtime = \"{name}\"\nroot = \"{shown}\"\n");
            with_control(dir) + &pool(dir, name, &settings, &application)
        });
        let page = ask(&daemon, name, &daemon.dir, case).text();
        let shown = ["--json", "--html"].map(|form| run(&daemon, &["error", form]).1);
        for text in [page, run(&daemon, &["error"]).1].iter().chain(&shown) {
            assert!(text.contains("ValueError"), "{name}: {text}");
            assert_lacks(text, "hunter22");
            assert_lacks(text, "PIN=12");
        }
        let is_shown = shown[1].contains("PIN=&#60;hidden&#62;");
        assert_eq!(is_shown, name == "node", "{name}: {}", shown[1]);
    });
}
