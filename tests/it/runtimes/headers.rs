//! Request headers and mount path, as an application sees them.

use super::python::start_as;
use super::serve_http;
use crate::support::prelude::*;

const STATIC: &str = "pm = \"static\"\nmax_children = 1\ncatch_workers_output = true\n";

const APPLICATIONS: [(&str, &str, &str, &str); 6] = [
    (
        "php",
        "app.php",
        "<?php echo $_SERVER['HTTP_X_A'], \"\\n\", $_SERVER['HTTP_COOKIE'], \"\\n\";",
        concat!("version = \"", env!("FORKYARD_PHP"), "\"\n"),
    ),
    (
        "cgi",
        "app.cgi",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\n%s\\n%s\\n' \"$HTTP_X_A\" \"$HTTP_COOKIE\"\n",
        "root = \"ROOT\"\n",
    ),
    (
        "wsgi",
        "wsgi.py",
        "def application(environ, start):\n    start('200 OK', [])\n    \
         return [f\"{environ['HTTP_X_A']}\\n{environ['HTTP_COOKIE']}\\n\".encode()]\n",
        "root = \"ROOT\"\n",
    ),
    (
        "asgi",
        "asgi.py",
        r#"
async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    fields = [b"\n".join(value for name, value in scope["headers"] if name == wanted) for wanted in (b"x-a", b"cookie")]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"\n".join(fields) + b"\n"})
"#,
        "root = \"ROOT\"\n",
    ),
    (
        "rack",
        "config.ru",
        "run ->(env) { [200, {}, [\"#{env['HTTP_X_A']}\\n#{env['HTTP_COOKIE']}\\n\"]] }\n",
        "root = \"ROOT\"\n",
    ),
    (
        "http",
        "app.py",
        r#"
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass
    def do_GET(self):
        body = "".join("|".join(self.headers.get_all(name)) + "\n" for name in ("X-A", "Cookie")).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#,
        "address = \"127.0.0.1:PORT\"\n",
    ),
];

#[test]
fn headers_that_the_web_server_sends_twice_are_joined_except_for_php() {
    for (runtime, file, text, application) in APPLICATIONS {
        place_library();
        let root = directory();
        make_writable(root.path());
        let path = root.path().join(file);
        write_program(&path, text);
        let port = free_port();
        let mut program = (runtime == "http").then(|| serve_http(&path, port));
        let application = application
            .replace("ROOT", &root.path().display().to_string())
            .replace("PORT", &port.to_string());
        let application = format!("runtime = \"{runtime}\"\n{application}");
        let daemon = Daemon::start(|dir| pool(dir, "www", STATIC, &application));
        let mut params = Params::get(root.path(), file, "");
        for (name, value) in [
            ("HTTP_X_A", "one"),
            ("HTTP_COOKIE", "a=1"),
            ("HTTP_X_A", "two, three"),
            ("HTTP_COOKIE", "b=2"),
        ] {
            params.0.push((name.to_owned(), value.to_owned()));
        }
        let answer = daemon.ask("www", &params);
        let expected = match runtime {
            "php" => "two, three\nb=2\n",
            _ => "one, two, three\na=1; b=2\n",
        };
        assert_eq!(answer.body(), expected, "{runtime}: {}", answer.text());
        if let Some(program) = &mut program {
            program.kill().expect("kill");
            program.wait().expect("wait");
        }
    }
}

const SCOPE: &str = r#"
async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    body = f'{scope["root_path"]} {scope["path"]} {scope["raw_path"].decode()}'.encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})
"#;

#[test]
fn the_path_of_an_asgi_request_begins_with_its_root_path() {
    let requests = [
        ("", "", "/items/", "/items/?q", " /items/ /items/"),
        (
            "",
            "/shop",
            "/items/",
            "/shop/items/",
            "/shop /shop/items/ /shop/items/",
        ),
        ("", "/shop", "", "/shop", "/shop /shop /shop"),
        (
            "",
            "/shop",
            "/a b",
            "/shop/a%20b?x=y",
            "/shop /shop/a b /shop/a%20b",
        ),
        (
            "/shop",
            "",
            "/shop/items/",
            "/shop/items/",
            "/shop /shop/items/ /shop/items/",
        ),
        ("/shop", "", "/shopping", "/shopping", " /shopping /shopping"),
        (
            "/shop",
            "/shop",
            "/items/",
            "/shop/items/",
            "/shop /shop/items/ /shop/items/",
        ),
    ];
    for prefix in ["", "/shop"] {
        let settings = format!("{STATIC}env = {{ SCRIPT_NAME = \"{prefix}\" }}\n");
        let (daemon, root) = start_as("asgi", &[("main.py", SCOPE)], &settings, "");
        for (_, script, path, uri, expected) in requests.iter().filter(|row| row.0 == prefix) {
            let params = Params::get(root.path(), "x", "")
                .with("SCRIPT_NAME", script)
                .with("PATH_INFO", path)
                .with("REQUEST_URI", uri);
            let answer = daemon.ask("www", &params);
            assert_eq!(&answer.body(), expected, "{prefix:?} {script:?} {path:?}");
        }
    }
}

const STARLETTE: &str = r#"
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

async def items(request):
    return PlainTextResponse(f"{request.url.path} {request.url_for('items')}")

app = Starlette(routes=[Route("/items/", items, name="items"), Mount("/sub", routes=[Route("/items/", items)])])
"#;

#[test]
fn starlette_finds_its_routes_and_redirects_below_a_prefix() {
    let (daemon, root) = start_as("asgi", &[("main.py", STARLETTE)], STATIC, "");
    let request = |path: &str| {
        let params = Params::get(root.path(), "x", "")
            .with("SCRIPT_NAME", "/shop")
            .with("PATH_INFO", path)
            .with("REQUEST_URI", &format!("/shop{path}"));
        daemon.ask("www", &params)
    };
    let page = request("/items/").body();
    assert_starts(&page, "/shop/items/ ");
    assert_ends(&page, "/shop/items/");
    each(["/items", "/sub/items"], |path| {
        let answer = request(path).text();
        assert_contains(&answer, &format!("location: http://localhost/shop{path}/\r\n"));
    });
    assert!(request("/sub/items/").body().starts_with("/shop/sub/items/ "));
}
