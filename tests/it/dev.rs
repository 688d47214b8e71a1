//! `forkyard dev` serves a directory over HTTP and reloads it when files change.

mod frameworks;
mod pages;
pub(super) mod stand;
mod websockets;

use crate::support::prelude::*;
use stand::{Dev, site};

struct Case {
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
    file: &'static str,
    path: &'static str,
    broken: &'static str,
}

const WSGI: &str = "VALUE = 'one'
def application(environ, start_response):
    body = environ['wsgi.input'].read()
    start_response('200 OK', [('Content-Type', 'text/plain')])
    return [VALUE.encode(), b' %d ' % len(body), environ['QUERY_STRING'].encode()]
";
const FLASK: &str = "from flask import Flask, request
VALUE = 'one'
application = Flask(__name__)
@application.route('/', methods=['GET', 'POST'])
def index():
    return f'{VALUE} {len(request.get_data())} {request.query_string.decode()}'
@application.route('/fail')
def fail():
    raise ValueError('<it broke>')
";
const ASGI: &str = "VALUE = 'one'
async def application(scope, receive, send):
    length = 0
    more = scope['type'] == 'http'
    while more:
        message = await receive()
        length += len(message.get('body', b''))
        more = message.get('more_body', False)
    await send({'type': 'http.response.start', 'status': 200, 'headers': [(b'content-type', b'text/plain')]})
    text = f\"{VALUE} {length} {scope['query_string'].decode()}\"
    await send({'type': 'http.response.body', 'body': text.encode()})
";
const RACK: &str = "VALUE = 'one'
run ->(env) {
  [200, { 'content-type' => 'text/plain' }, [\"#{VALUE} #{env['rack.input'].read.to_s.bytesize} #{env['QUERY_STRING']}\"]]
}
";
const SINATRA: &str = "require 'sinatra'
VALUE = 'one'
handler = -> { \"#{VALUE} #{request.body.read.bytesize} #{request.query_string}\" }
get('/', &handler)
post('/', &handler)
run Sinatra::Application
";
const NODE: &str = "const VALUE = 'one'
require('http').createServer((request, response) => {
  let length = 0
  request.on('data', (data) => { length += data.length })
  request.on('end', () => response.end(`${VALUE} ${length} ${request.url.split('?')[1] || ''}`))
}).listen(process.env.PORT, '127.0.0.1')
";
const PHP: &str = "<?php
$VALUE = 'one';
echo $VALUE, ' ', strlen(file_get_contents('php://input')), ' ', $_SERVER['QUERY_STRING'];
";
const CGI: &str = "#!/usr/bin/python3
import os, sys
VALUE = 'one'
length = len(sys.stdin.buffer.read(int(os.environ.get('CONTENT_LENGTH') or 0)))
print('Content-Type: text/plain\\n')
print(VALUE, length, os.environ['QUERY_STRING'], end='')
";

const CASES: [Case; 9] = [
    case("wsgi", &[("wsgi.py", WSGI)], "wsgi.py", "/", "VALUE = (\n"),
    case("flask", &[("wsgi.py", FLASK)], "wsgi.py", "/", "VALUE = (\n"),
    case("asgi", &[("asgi.py", ASGI)], "asgi.py", "/", "VALUE = (\n"),
    case("rack", &[("config.ru", RACK)], "config.ru", "/", "VALUE = (\n"),
    case(
        "sinatra",
        &[("config.ru", SINATRA)],
        "config.ru",
        "/",
        "VALUE = (\n",
    ),
    case("node", &[("app.js", NODE)], "app.js", "/", "const VALUE = (\n"),
    case("php", &[("index.php", PHP)], "index.php", "/", "$VALUE = (;\n"),
    case(
        "documents",
        &[("page.php", PHP)],
        "page.php",
        "/page.php",
        "$VALUE = (;\n",
    ),
    case(
        "cgi",
        &[("page.cgi", CGI), ("forkyard.toml", "runtime = \"cgi\"\n")],
        "page.cgi",
        "/page.cgi",
        "VALUE = (\n",
    ),
];

const fn case(
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
    file: &'static str,
    path: &'static str,
    broken: &'static str,
) -> Case {
    Case {
        name,
        files,
        file,
        path,
        broken,
    }
}

fn develop(name: &str) {
    let case = CASES.iter().find(|case| case.name == name).expect("the case");
    let (_dir, root) = site(case.files);
    let dev = Dev::start(&root);
    let name = case.name;
    let page = dev.get(&format!("{}?a=1", case.path));
    assert_eq!(
        (page.status, page.body.as_str()),
        (200, "one 0 a=1"),
        "{name}: {}",
        dev.said()
    );
    let form = dev.post(case.path, b"b=2");
    assert_eq!(
        (form.status, form.body.as_str()),
        (200, "one 3 "),
        "{name}: {}",
        dev.said()
    );
    let large = dev.post(case.path, &vec![b'x'; 5_000_000]);
    assert_eq!(
        (large.status, large.body.as_str()),
        (200, "one 5000000 "),
        "{name}: {}",
        dev.said()
    );
    let file = root.join(case.file);
    let code = read_file(&file);
    for value in ["two", "three"] {
        fs::write(&file, code.replace("'one'", &format!("'{value}'"))).expect("change");
        let page = dev.get(case.path);
        assert_eq!(page.body, format!("{value} 0 "), "{name}: {}", dev.said());
    }
    let line = code
        .lines()
        .find(|line| line.contains("VALUE = "))
        .expect("the line");
    fs::write(&file, code.replacen(line, case.broken, 1)).expect("break");
    let page = dev.get(case.path);
    assert!(page.status >= 500, "{name}: {page:?} {}", dev.said());
    assert_eq!(
        page.kind.starts_with("text/html"),
        name != "cgi",
        "{name}: {page:?}"
    );
    fs::write(&file, code.replace("'one'", "'mended'")).expect("mend");
    let page = dev.get(case.path);
    assert_eq!(
        (page.status, page.body.as_str()),
        (200, "mended 0 "),
        "{name}: {}",
        dev.said()
    );
}

tests! {
    fn a_wsgi_application_is_developed() => develop("wsgi");
    fn a_flask_application_is_developed() => develop("flask");
    fn an_asgi_application_is_developed() => develop("asgi");
    fn a_rack_application_is_developed() => develop("rack");
    fn a_sinatra_application_is_developed() => develop("sinatra");
    fn a_node_application_is_developed() => develop("node");
    fn a_php_application_is_developed() => develop("php");
    fn a_directory_of_php_is_developed() => develop("documents");
    fn a_cgi_program_is_developed() => develop("cgi");
}

#[test]
fn an_exception_is_on_the_terminal_and_in_the_browser() {
    let (_dir, root) = site(&[("wsgi.py", FLASK)]);
    let dev = Dev::start(&root);
    let page = dev.get("/fail");
    assert_eq!(page.status, 500, "{page:?}");
    assert!(page.body.contains("ValueError: &#60;it broke&#62;"), "{page:?}");
    assert!(!page.body.contains("<it broke>"), "{page:?}");
    wait_until("the traceback", || dev.said().contains("ValueError: <it broke>"));
}

#[test]
fn an_answer_is_streamed() {
    let code = "import os
def application(environ, start_response):
    start_response('200 OK', [('Content-Type', 'text/plain')])
    yield b'first'
    os.open('go', os.O_RDONLY)
    yield b'second'
";
    let (_dir, root) = site(&[("wsgi.py", code)]);
    let fifo = root.join("go");
    nix::unistd::mkfifo(
        &fifo,
        nix::sys::stat::Mode::S_IRWXU | nix::sys::stat::Mode::S_IROTH,
    )
    .expect("mkfifo");
    let dev = Dev::start(&root);
    let mut stream = dev.connect();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("request");
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    while !text.ends_with(b"first") {
        let count = stream.read(&mut piece).expect("the first part");
        assert!(count > 0, "{}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&piece[..count]);
    }
    drop(fs::OpenOptions::new().write(true).open(&fifo).expect("go"));
    stream.read_to_end(&mut text).expect("the rest");
    assert!(text.ends_with(b"firstsecond"));
}

#[test]
fn public_files_are_served_with_their_types() {
    let files = [
        ("wsgi.py", WSGI),
        ("public/style.css", "a {}"),
        ("public/app.js", "1"),
        ("public/.secret", "no"),
        ("forkyard.toml", ""),
    ];
    let (_dir, root) = site(&files);
    let dev = Dev::start(&root);
    let css = dev.get("/style.css");
    assert_eq!(
        (css.status, css.kind.as_str(), css.body.as_str()),
        (200, "text/css; charset=utf-8", "a {}")
    );
    assert_eq!(dev.get("/app.js").kind, "text/javascript; charset=utf-8");
    for path in ["/.secret", "/forkyard.toml", "/wsgi.py", "/other"] {
        assert_eq!(dev.get(path).body, "one 0 ", "{path}");
    }
    assert_eq!(dev.get("/../forkyard.toml").status, 400);
}

#[test]
fn what_is_wrong_is_said_with_what_would_be_right() {
    let (_dir, root) = site(&[("notes.txt", "")]);
    let said = Dev::refused(&root, &[]);
    assert_contains(
        &said,
        "is no application: it has none of passenger_wsgi.py, wsgi.py, asgi.py, manage.py, config.ru, app.js",
    );
    let (_dir, root) = site(&[("main.py", "from made import app\n")]);
    let said = Dev::refused(&root, &[]);
    assert_contains(&said, "main.py alone does not show the runtime");
    assert_contains(&said, "runtime = \"asgi\"");
    let (_dir, root) = site(&[("wsgi.py", WSGI)]);
    let dev = Dev::start(&root);
    let port = dev.port.to_string();
    let said = Dev::refused(&root, &["--port", &port]);
    let holder = format!("forkyard-dev (pid {})", dev.pid());
    assert!(said.contains(&holder) && said.contains("--port"), "{said}");
    assert_contains(&Dev::refused(&root.join("missing"), &[]), "No such file");
}

#[test]
fn a_missing_runtime_names_its_package() {
    let (_dir, root) = site(&[("app.js", NODE)]);
    let said = Dev::refused_with(&root, &[], Some("/nonexistent"));
    assert_contains(&said, "apt install nodejs");
}

#[test]
fn nothing_is_left_when_it_is_killed() {
    let (_dir, root) = site(&[("app.js", NODE)]);
    let dev = Dev::start(&root);
    assert_eq!(dev.get("/").status, 200);
    dev.kill();
}

#[test]
fn a_name_that_is_not_this_machine_s_is_refused() {
    let (_dir, root) = site(&[("index.php", "<?php echo 'mine';"), ("page.html", "mine")]);
    let names = ["--allowed-host", ".shop.test", "--allowed-host", "one.test"];
    let dev = Dev::start_with(&root, &names);
    let rows = [
        ("localhost", 200),
        ("127.0.0.1:8000", 200),
        ("a.shop.test", 200),
        ("one.test", 200),
        ("a.one.test", 403),
        ("evil.test", 403),
        ("127.0.0.1.evil.test", 403),
    ];
    each(rows, |(host, status)| {
        for path in ["/", "/page.html", "/missing.css"] {
            let page = dev.get_by(host, path);
            let status = if path == "/missing.css" && status == 200 {
                404
            } else {
                status
            };
            assert_eq!(page.status, status, "{host} {path}: {}", page.body);
            assert_eq!(page.body.contains("mine"), status == 200, "{path}: {}", page.body);
        }
    });
    assert_contains(&dev.get_by("evil.test", "/").body, "--allowed-host");
}

#[test]
fn a_link_out_of_the_directory_is_not_followed() {
    let (dir, root) = site(&[("wsgi.py", WSGI), ("public/a.css", "css")]);
    let secret = dir.path().join("secret.txt");
    fs::write(&secret, "hunter2").expect("write");
    symlink(&secret, root.join("public/b.css")).expect("link");
    symlink(root.join("wsgi.py"), root.join("public/c.css")).expect("link");
    let dev = Dev::start(&root);
    let page = dev.get("/b.css");
    assert_eq!(page.status, 403, "{}", page.body);
    assert_lacks(&page.body, "hunter2");
    assert_eq!(dev.get("/a.css").body, "css");
    assert_eq!(dev.get("/c.css").body, WSGI);
}

#[test]
fn a_page_about_a_failed_start_has_no_values_of_the_environment() {
    let (_dir, root) = site(&[("app.js", "throw new Error('it broke')\n")]);
    let dev = Dev::start_in(&root, &[("DATABASE_URL", "postgres://u:hunter2@db/x")]);
    let page = dev.get("/");
    assert_eq!(page.status, 503, "{}", page.body);
    assert_contains(&page.body, "it broke");
    assert_contains(&page.body, "DATABASE_URL");
    assert_lacks(&page.body, "hunter2");
    let (_, rest) = page
        .body
        .split_once("`forkyard error --socket ")
        .expect("the command");
    let (words, _) = rest.split_once('`').expect("its end");
    let (socket, id) = words.split_once(' ').expect("an id");
    let shown = Command::new(env!("CARGO_BIN_EXE_forkyard"))
        .args(["error", "--socket", socket, id])
        .output()
        .expect("forkyard error");
    assert_contains(&String::from_utf8_lossy(&shown.stdout), "hunter2");
}
