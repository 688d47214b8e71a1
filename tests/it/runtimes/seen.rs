//! What an application of every runtime sees: scheme, host, prefix, client and headers of a request, and its environment.

use crate::support::prelude::*;
use crate::support::process::Guard;
use nix::unistd::{Uid, User};

/// A runtime's name (`address`: a program that somebody else starts), and an application that shows a line about where
/// the request came from, two headers, and then its environment.
const ROWS: [(&str, &str, &str, &str); 8] = [
    (
        "php",
        "index.php",
        PHP,
        concat!("version = \"", env!("FORKYARD_PHP"), "\"\n"),
    ),
    ("cgi", "app.cgi", CGI, "root = \"ROOT\"\n"),
    ("wsgi", "wsgi.py", WSGI, "root = \"ROOT\"\n"),
    ("asgi", "asgi.py", ASGI, "root = \"ROOT\"\n"),
    ("rack", "config.ru", RACK, "root = \"ROOT\"\n"),
    ("node", "app.js", NODE, "root = \"ROOT\"\n"),
    (
        "http",
        "serve.js",
        NODE,
        "root = \"ROOT\"\nstart_command = \"node serve.js\"\n",
    ),
    ("address", "app.js", NODE, "address = \"127.0.0.1:PORT\"\n"),
];

const PHP: &str = r#"<?php
$it = $_SERVER;
$scheme = ($it['HTTPS'] ?? '') === 'on' ? 'https' : 'http';
echo implode(' ', [$scheme, $it['HTTP_HOST'], '/shop', $it['REMOTE_ADDR'], $it['HTTP_X_FORWARDED_FOR'] ?? '-']);
echo "\n", $it['HTTP_X_A'] ?? '', "\n", $it['HTTP_COOKIE'] ?? '', "\n";
foreach (getenv() as $name => $value) echo "$name=$value\n";
"#;
const CGI: &str = "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\n\\n%s\\n%s\\n' \"$HTTP_X_A\" \"$HTTP_COOKIE\"\n/usr/bin/env\n";
const WSGI: &str = r#"
import os
found = "".join(f"{name}={value}\n" for name, value in os.environ.items())
def application(environ, start_response):
    start_response("200 OK", [])
    names = ["wsgi.url_scheme", "HTTP_HOST", "SCRIPT_NAME", "REMOTE_ADDR", "HTTP_X_FORWARDED_FOR"]
    seen = " ".join(environ.get(name, "-") for name in names)
    return [f"{seen}\n{environ.get('HTTP_X_A')}\n{environ.get('HTTP_COOKIE')}\n{found}".encode()]
"#;
const ASGI: &str = r#"
import os
found = "".join(f"{name}={value}\n" for name, value in os.environ.items())
async def application(scope, receive, send):
    assert scope["type"] == "http"
    headers = dict(scope["headers"])
    seen = [scope["scheme"], headers[b"host"].decode(), scope["root_path"], scope["client"][0],
            headers.get(b"x-forwarded-for", b"-").decode()]
    fields = ["\n".join(value.decode() for name, value in scope["headers"] if name == wanted) for wanted in (b"x-a", b"cookie")]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": "\n".join([" ".join(seen), *fields, found]).encode()})
"#;
const RACK: &str = r##"
found = ENV.map { |name, value| "#{name}=#{value}\n" }.join
run ->(env) {
  names = %w[rack.url_scheme HTTP_HOST SCRIPT_NAME REMOTE_ADDR HTTP_X_FORWARDED_FOR]
  seen = names.map { |name| env[name] || "-" }.join(" ")
  [200, {}, ["#{seen}\n#{env["HTTP_X_A"]}\n#{env["HTTP_COOKIE"]}\n#{found}"]]
}
"##;
const NODE: &str = r#"
const found = Object.entries(process.env).map(([name, value]) => `${name}=${value}\n`).join('');
require('http').createServer((request, response) => {
  const it = request.headers;
  const all = (name) => (request.headersDistinct[name] ?? []).join('|');
  const known = it['x-forwarded-for'].split(', ');
  const last = known.pop();
  const isSame = last === it['x-real-ip'] && it.host === it['x-forwarded-host'] && request.url === '/page';
  const seen = [it['x-forwarded-proto'], it.host, it['x-forwarded-prefix'], last, known.join(', ') || '-'].join(' ');
  response.end(`${isSame ? seen : 'they differ'}\n${all('x-a')}\n${all('cookie')}\n${found}`);
}).listen(process.env.PORT);
"#;

/// A daemon with a pool of each runtime, named after it.
fn start(settings: &str, port: u16) -> Daemon {
    Daemon::start(|dir| {
        let one = |(name, file, text, keys): &(&str, &str, &str, &str)| {
            let root = dir.join(name);
            fs::create_dir(&root).expect("mkdir");
            write_program(&root.join(file), text);
            let keys = keys.replace("ROOT", &root.display().to_string());
            let keys = keys.replace("PORT", &port.to_string());
            let runtime = name.replace("address", "http");
            pool(dir, name, settings, &format!("runtime = \"{runtime}\"\n{keys}"))
        };
        ROWS.iter().map(one).collect()
    })
}

fn params(daemon: &Daemon, name: &str, file: &str) -> Params {
    let params = Params::get(&daemon.dir.join(name), file, "").with("REQUEST_URI", "/shop/page");
    match name {
        "php" | "cgi" => params,
        _ => params.with("SCRIPT_NAME", "/shop").with("PATH_INFO", "/page"),
    }
}

fn serve_at_an_address(daemon: &Daemon, port: u16) -> Guard {
    let mut program = Command::new("node");
    program
        .arg(daemon.dir.join("address/app.js"))
        .env("PORT", port.to_string());
    let program = Guard::kill(program.spawn().expect("node"));
    until("the program to listen", || {
        TcpStream::connect(("127.0.0.1", port)).ok()
    });
    program
}

#[test]
fn every_runtime_sees_the_same_scheme_host_prefix_and_client() {
    let port = free_port();
    let daemon = start("", port);
    let _program = serve_at_an_address(&daemon, port);
    let cases = [
        (
            "http",
            "",
            "192.0.2.7",
            "",
            "http shop.test:8080 /shop 192.0.2.7 -",
        ),
        (
            "https",
            "on",
            "192.0.2.7",
            "",
            "https shop.test:8080 /shop 192.0.2.7 -",
        ),
        // TLS ends before nginx, and the operator has added `fastcgi_param HTTPS on`.
        (
            "http",
            "on",
            "192.0.2.7",
            "",
            "https shop.test:8080 /shop 192.0.2.7 -",
        ),
        // Behind two proxies: nginx doesn't trust the first one, and applications decide whom to trust.
        (
            "http",
            "on",
            "10.0.0.1",
            "192.0.2.7",
            "https shop.test:8080 /shop 10.0.0.1 192.0.2.7",
        ),
    ];
    each(
        ROWS.into_iter().filter(|row| row.0 != "cgi"),
        |(name, file, ..)| {
            for (scheme, https, client, forwarded, seen) in cases {
                let mut params = params(&daemon, name, file)
                    .with("REQUEST_SCHEME", scheme)
                    .with("HTTP_HOST", "shop.test:8080")
                    .with("REMOTE_ADDR", client)
                    .with("HTTP_X_FORWARDED_PREFIX", "/forged");
                for (name, value) in [("HTTPS", https), ("HTTP_X_FORWARDED_FOR", forwarded)] {
                    if !value.is_empty() {
                        params = params.with(name, value);
                    }
                }
                let body = daemon.ask(name, &params).body();
                assert_eq!(
                    body.lines().next(),
                    Some(seen),
                    "{scheme} {https} {client} {forwarded}"
                );
            }
        },
    );
}

#[test]
fn headers_that_the_web_server_sends_twice_are_joined_except_for_php() {
    let port = free_port();
    let daemon = start("", port);
    let _program = serve_at_an_address(&daemon, port);
    each(ROWS, |(name, file, ..)| {
        let mut params = params(&daemon, name, file);
        for (name, value) in [
            ("HTTP_X_A", "one"),
            ("HTTP_COOKIE", "a=1"),
            ("HTTP_X_A", "two, three"),
            ("HTTP_COOKIE", "b=2"),
        ] {
            params.0.push((name.to_owned(), value.to_owned()));
        }
        let expected = match name {
            "php" => ["two, three", "b=2"],
            _ => ["one, two, three", "a=1; b=2"],
        };
        let body = daemon.ask(name, &params).body();
        assert_eq!(body.lines().skip(1).take(2).collect::<Vec<_>>(), expected);
    });
}

fn assert_has(daemon: &Daemon, (name, file): (&str, &str), expected: &[(&str, Option<&str>)]) {
    let body = daemon.ask(name, &params(daemon, name, file)).body();
    let pairs = body.lines().skip(3).filter_map(|line| line.split_once('='));
    let found: BTreeMap<&str, &str> = pairs.collect();
    for (name, value) in expected {
        assert_eq!(found.get(*name).copied(), *value, "{name} in {found:?}");
    }
}

#[test]
fn applications_have_a_path_a_home_and_a_language_unless_env_sets_them() {
    let user = if is_root() {
        "www-data".to_owned()
    } else {
        own_name()
    };
    let entry = User::from_name(&user).expect("getpwnam").expect("a user");
    let (home, shell) = (entry.dir.to_str(), entry.shell.to_str());
    let place = directory();
    let variables = place.path().join("variables");
    write_file(&variables, "HOME=/of/file\n");
    fs::set_permissions(&variables, Permissions::from_mode(0o600)).expect("chmod");
    let more = format!(
        "env = {{ PATH = \"/usr/bin:/usr/local/bin:/opt/bin\", LANG = \"C\", SHELL = \"/bin/own\", USER = \"me\", HOME = \"/of/env\" }}\n\
         env_file = \"{}\"\n",
        variables.display()
    );
    let (plain, set) = (start("", free_port()), start(&more, free_port()));
    each(
        ROWS.into_iter().filter(|row| row.0 != "address"),
        |(name, file, ..)| {
            if name == "php" {
                let of_user = |value| if is_root() { value } else { None };
                let expected = [
                    ("PATH", None),
                    ("LANG", None),
                    ("SHELL", None),
                    ("LOGNAME", None),
                    ("USER", of_user(Some(&*user))),
                    ("HOME", of_user(home)),
                ];
                return assert_has(&plain, (name, file), &expected);
            }
            let expected = [
                ("PATH", Some("/usr/local/bin:/usr/bin:/bin")),
                ("LANG", Some("C.UTF-8")),
                ("SHELL", shell),
                ("LOGNAME", Some(&*user)),
                ("USER", Some(&*user)),
                ("HOME", home),
            ];
            assert_has(&plain, (name, file), &expected);
            let expected = [
                ("PATH", Some("/usr/bin:/usr/local/bin:/opt/bin")),
                ("LANG", Some("C")),
                ("SHELL", Some("/bin/own")),
                ("LOGNAME", Some(&*user)),
                ("USER", Some("me")),
                ("HOME", Some("/of/file")),
            ];
            assert_has(&set, (name, file), &expected);
        },
    );
}

#[test]
fn a_user_without_an_entry_has_the_root_directory_as_home() {
    skip_if!(needs_root());
    let root = folder(&[("wsgi.py", WSGI)]);
    let daemon = Daemon::serving("wsgi", root.path(), "user = \"54321\"\ngroup = \"54321\"\n", "");
    let body = daemon.get("www", "x").body();
    assert_contains(&body, "\nHOME=/\n");
    for name in ["USER", "LOGNAME", "SHELL"] {
        assert_lacks(&body, &format!("\n{name}="));
    }
}

fn own_name() -> String {
    let user = User::from_uid(Uid::effective()).expect("getpwuid");
    user.expect("an entry").name
}
