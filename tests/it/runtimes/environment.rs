//! The environment that applications of every runtime find.

use crate::support::prelude::*;
use nix::unistd::{Uid, User};
use std::fs::Permissions;

const APPLICATIONS: [(&str, &str, &str, &str); 6] = [
    (
        "php",
        "app.php",
        "<?php foreach (getenv() as $name => $value) echo \"$name=$value\\n\";",
        concat!("version = \"", env!("FORKYARD_PHP"), "\"\n"),
    ),
    (
        "cgi",
        "app.cgi",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\n'\n/usr/bin/env\n",
        "root = \"ROOT\"\n",
    ),
    (
        "wsgi",
        "wsgi.py",
        "import os\nfound = ''.join(f'{name}={value}\\n' for name, value in os.environ.items())\n\
         def application(environ, start):\n    start('200 OK', [])\n    return [found.encode()]\n",
        "root = \"ROOT\"\n",
    ),
    (
        "asgi",
        "asgi.py",
        r#"
import os
found = "".join(f"{name}={value}\n" for name, value in os.environ.items())
async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": found.encode()})
"#,
        "root = \"ROOT\"\n",
    ),
    (
        "rack",
        "config.ru",
        "found = ENV.map { |name, value| \"#{name}=#{value}\\n\" }\nrun ->(_) { [200, {}, found] }\n",
        "root = \"ROOT\"\n",
    ),
    (
        "node",
        "app.js",
        "const found = Object.entries(process.env).map(([name, value]) => `${name}=${value}\\n`).join('');\n\
         require('http').createServer((request, answer) => answer.end(found)).listen(3000);\n",
        "root = \"ROOT\"\n",
    ),
];

#[test]
fn applications_have_a_path_a_home_and_a_language_unless_env_sets_them() {
    let user = if is_root() {
        "www-data".to_owned()
    } else {
        own_name()
    };
    let entry = User::from_name(&user).expect("getpwnam").expect("a user");
    let settings = format!(
        "pm = \"static\"\nmax_children = 1\n{}",
        if is_root() { "user = \"www-data\"\n" } else { "" }
    );
    for (runtime, file, text, application) in APPLICATIONS {
        let root = folder(&[(file, text)]);
        let file_of_variables = root.path().join("variables");
        fs::write(&file_of_variables, "HOME=/of/file\n").expect("write");
        fs::set_permissions(&file_of_variables, Permissions::from_mode(0o600)).expect("chmod");
        let application = application.replace("ROOT", &root.path().display().to_string());
        let application = format!("runtime = \"{runtime}\"\n{application}");
        let ask = |more: &str| {
            let daemon = Daemon::start(|dir| pool(dir, "www", &format!("{settings}{more}"), &application));
            let params = Params::get(root.path(), file, "");
            let answer = daemon.ask("www", &params);
            let body = answer.body();
            let pairs = body.lines().filter_map(|line| line.split_once('='));
            pairs
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        let assert_has = |found: &BTreeMap<String, String>, expected: &[(&str, Option<&str>)]| {
            for (name, value) in expected {
                let found_value = found.get(*name).map(String::as_str);
                assert_eq!(found_value, *value, "{runtime}: {name} in {found:?}");
            }
        };
        let home = entry.dir.to_str();
        let shell = entry.shell.to_str();
        if runtime == "php" {
            let of_user = |value| if is_root() { value } else { None };
            let expected = [
                ("PATH", None),
                ("LANG", None),
                ("SHELL", None),
                ("LOGNAME", None),
                ("USER", of_user(Some(&*user))),
                ("HOME", of_user(home)),
            ];
            assert_has(&ask(""), &expected);
            continue;
        }
        let expected = [
            ("PATH", Some("/usr/local/bin:/usr/bin:/bin")),
            ("LANG", Some("C.UTF-8")),
            ("SHELL", shell),
            ("LOGNAME", Some(&*user)),
            ("USER", Some(&*user)),
            ("HOME", home),
        ];
        assert_has(&ask(""), &expected);
        let more = format!(
            "env = {{ PATH = \"/usr/bin:/usr/local/bin:/opt/bin\", LANG = \"C\", SHELL = \"/bin/own\", USER = \"me\", HOME = \"/of/env\" }}\n\
             env_file = \"{}\"\n",
            file_of_variables.display()
        );
        let expected = [
            ("PATH", Some("/usr/bin:/usr/local/bin:/opt/bin")),
            ("LANG", Some("C")),
            ("SHELL", Some("/bin/own")),
            ("LOGNAME", Some(&*user)),
            ("USER", Some("me")),
            ("HOME", Some("/of/file")),
        ];
        assert_has(&ask(&more), &expected);
    }
}

#[test]
fn a_user_without_an_entry_has_the_root_directory_as_home() {
    skip_if!(needs_root());
    place_library();
    let root = directory();
    make_writable(root.path());
    let (_, file, text, _) = APPLICATIONS[2];
    write_program(&root.path().join(file), text);
    let settings = "pm = \"static\"\nmax_children = 1\nuser = \"54321\"\ngroup = \"54321\"\n";
    let daemon = Daemon::serving("wsgi", root.path(), settings, "");
    let params = Params::get(root.path(), file, "");
    let body = daemon.ask("www", &params).body();
    assert_contains(&body, "\nHOME=/\n");
    for name in ["USER", "LOGNAME", "SHELL"] {
        assert!(
            !body.lines().any(|line| line.starts_with(&format!("{name}="))),
            "{body}"
        );
    }
}

fn own_name() -> String {
    let user = User::from_uid(Uid::effective()).expect("getpwuid");
    user.expect("an entry").name
}
