//! Applications of many kinds in one directory, as `forkyard init sites` sets them up.

use super::first::init;
use super::served::{settle_nginx, settle_toml};
use crate::support::prelude::*;

const FRONT: &str = "<?php echo 'front ', $_SERVER['REQUEST_URI'], ' ', $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['DOCUMENT_ROOT'];";
const SCRIPT: &str = "<?php echo 'script ', $_SERVER['SCRIPT_NAME'], ' ', $_GET['a'] ?? '-', ' ', $_SERVER['PATH_INFO'] ?? '';";
const EXPRESS: &str = r#"
const express = require("express");
const app = express();
const shelf = express.Router();
shelf.get("/list", (request, response) => response.send(`${request.baseUrl} ${request.originalUrl} ${request.url}`));
app.get("/", (request, response) => response.send(`home ${request.get("X-Forwarded-Prefix")}`));
app.get("/hello/:name", (request, response) => response.send(`Hello ${request.params.name}`));
app.get("/query", (request, response) => response.json(request.query));
app.get("/away", (request, response) => response.redirect(`${request.baseUrl}/hello/you`));
app.get("/host", (request, response) => response.send(request.get("X-Forwarded-Host")));
app.use("/shelf", shelf);
app.use("/files", express.static("files"));
app.use(express.json());
app.post("/sum", (request, response) => response.json(request.body.reduce((a, b) => a + b, 0)));
app.listen(process.env.PORT);
"#;
const RAILS: &str = r##"
require "action_controller/railtie"

class Site < Rails::Application
  config.eager_load = true
  config.secret_key_base = "0123456789abcdef" * 8
  config.logger = Logger.new($stderr)
  config.hosts.clear
  routes.append do
    root to: "pages#show"
    get "/articles/:id", to: "pages#show", as: :article
    get "/away", to: "pages#away"
  end
end
Site.initialize!

class PagesController < ActionController::Base
  def show = render(inline: "<%= params[:id] %> <%= root_path %> <%= article_path(7) %> <%= root_url %> <%= image_path('a.png') %>")

  def away = redirect_to(article_path(7))
end
run Rails.application
"##;

const FILES: [(&str, &str); 34] = [
    ("blog/index.php", FRONT),
    ("blog/wp-login.php", SCRIPT),
    ("blog/wp-config.php", "<?php // hunter2\n"),
    ("blog/wp-admin/index.php", SCRIPT),
    ("blog/wp-admin/admin-ajax.php", SCRIPT),
    ("blog/wp-content/themes/a/style.css", "blog's style"),
    ("blog/wp-content/uploads/a.jpg", "blog's picture"),
    ("blog/wp-content/uploads/index.html", "nothing"),
    ("blog/readme.html", "blog's readme"),
    ("blog/.htaccess", "hunter2"),
    ("blog/wp-config.php.bak", "hunter2"),
    ("shop/artisan", "hunter2"),
    ("shop/.env", "hunter2"),
    ("shop/config/app.php", "<?php // hunter2\n"),
    ("shop/vendor/autoload.php", "<?php echo 'hunter2';"),
    ("shop/storage/logs/laravel.log", "hunter2"),
    ("shop/public/index.php", FRONT),
    ("shop/public/css/app.css", "shop's style"),
    ("shop/public/vendor/horizon/app.js", "shop's script"),
    ("shop/public/robots.txt", "shop's robots"),
    ("pages/public/index.html", "pages' home"),
    ("pages/public/about.html", "pages' about"),
    ("pages/public/docs/index.html", "pages' docs"),
    ("pages/public/docs/a b.txt", "pages' text"),
    ("pages/notes.txt", "hunter2"),
    (
        "node/package.json",
        r#"{"name": "hunter2", "scripts": {"start": "NODE_PATH=/usr/share/nodejs node server.js"}}"#,
    ),
    ("node/server.js", EXPRESS),
    ("node/public/logo.svg", "node's logo"),
    ("node/files/d/index.html", "node's files"),
    ("rails/config.ru", RAILS),
    (
        "rails/forkyard.toml",
        "env = { RAILS_RELATIVE_URL_ROOT = \"/rails\" }\n",
    ),
    ("rails/public/404.html", "rails' error"),
    ("rails/config/database.yml", "hunter2"),
    ("django/urls.txt", "hunter2"),
];

const PAGES: [(&str, u16, &str); 66] = [
    ("/blog", 301, "Location: /blog/"),
    ("/blog/", 200, "front /blog/ /blog/index.php TOP/blog"),
    (
        "/blog/2024/hello/?x=1",
        200,
        "front /blog/2024/hello/?x=1 /blog/index.php",
    ),
    ("/blog/wp-login.php?a=1", 200, "script /blog/wp-login.php 1 "),
    (
        "/blog/wp-login.php/more",
        200,
        "script /blog/wp-login.php - /more",
    ),
    ("/blog/wp-admin", 301, "Location: /blog/wp-admin/"),
    ("/blog/wp-admin/", 200, "script /blog/wp-admin/index.php -"),
    (
        "/blog/wp-admin/admin-ajax.php?a=2",
        200,
        "script /blog/wp-admin/admin-ajax.php 2",
    ),
    ("/blog/wp-content/themes/a/style.css", 200, "blog's style"),
    ("/blog/wp-content/uploads/a.jpg", 200, "blog's picture"),
    ("/blog/wp-content/uploads/", 200, "nothing"),
    ("/blog/wp-content/uploads/a.jpg/x.php", 200, "front "),
    ("/blog/readme.html", 200, "blog's readme"),
    ("/blog/missing.php", 200, "front /blog/missing.php"),
    ("/blog/wp-config.php", 200, ""),
    ("/blog/.htaccess", 404, ""),
    ("/blog/wp-config.php.bak", 404, ""),
    ("/shop", 301, "Location: /shop/"),
    ("/shop/", 200, "front /shop/ /shop/index.php TOP/shop/public"),
    ("/shop/cart?id=3", 200, "front /shop/cart?id=3 /shop/index.php"),
    ("/shop/css/app.css", 200, "shop's style"),
    ("/shop/vendor/horizon/app.js", 200, "shop's script"),
    ("/shop/robots.txt", 200, "shop's robots"),
    ("/shop/.env", 404, ""),
    ("/shop/artisan", 200, "front /shop/artisan"),
    (
        "/shop/vendor/autoload.php",
        200,
        "front /shop/vendor/autoload.php",
    ),
    ("/shop/storage/logs/laravel.log", 200, "front "),
    ("/shop/config/app.php", 200, "front "),
    ("/pages", 301, "Location: /pages/"),
    ("/pages/", 200, "pages' home"),
    ("/pages/index.html", 200, "pages' home"),
    ("/pages/about.html", 200, "pages' about"),
    ("/pages/docs", 301, "Location: /pages/docs/"),
    ("/pages/docs/", 200, "pages' docs"),
    ("/pages/docs/a%20b.txt", 200, "pages' text"),
    ("/pages/%2e%2e/notes.txt", 404, ""),
    ("/pages/notes.txt", 404, ""),
    ("/pages/public/about.html", 404, ""),
    ("/pages/missing", 404, ""),
    ("/node", 301, "Location: /node/"),
    ("/node/", 200, "home /node"),
    ("/node/hello/you", 200, "Hello you"),
    ("/node/query?a=%20b", 200, r#"{"a":" b"}"#),
    ("/node/away", 302, "Location: /node/hello/you"),
    ("/node/host", 200, "127.0.0.1:"),
    (
        "/node/shelf/list?x",
        200,
        "/node/shelf /node/shelf/list?x /list?x",
    ),
    ("/node/files/d", 301, "Location: /node/files/d/"),
    ("/node/files/d/", 200, "node's files"),
    ("/node/logo.svg", 200, "node's logo"),
    ("/node/server.js", 404, ""),
    ("/node/package.json", 404, ""),
    ("/rails/", 200, " /rails/ /rails/articles/7 http://127.0.0.1:"),
    ("/rails/articles/3", 200, "3 /rails/ /rails/articles/7"),
    ("/rails/", 200, " /rails/images/a.png"),
    ("/rails/away", 302, "/rails/articles/7"),
    ("/rails/404.html", 200, "rails' error"),
    ("/rails/config.ru", 404, ""),
    ("/rails/config/database.yml", 404, ""),
    (
        "/django/admin/",
        302,
        "Location: /django/admin/login/?next=/django/admin/",
    ),
    ("/django/admin/login/", 200, "/django/static/admin/css/base.css"),
    ("/django/static/admin/css/base.css", 200, "DJANGO Admin styles"),
    ("/django/static/missing.css", 404, ""),
    ("/django/manage.py", 404, ""),
    ("/django/urls.txt", 404, ""),
    ("/", 404, ""),
    ("/missing/index.php", 404, ""),
];

fn django(root: &Path) {
    let run = |arguments: &[&str]| {
        let mut command = Command::new("/usr/bin/python3");
        let output = command.args(arguments).current_dir(root).output();
        let output = output.expect("python3-django");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
    };
    run(&["-m", "django", "startproject", "mysite", "."]);
    let file = root.join("mysite/settings.py");
    let settings = read_file(&file);
    let settings = settings
        .replace("DEBUG = True", "DEBUG = False")
        .replace(
            "ALLOWED_HOSTS = []",
            "ALLOWED_HOSTS = [\"*\"]\nSTATIC_ROOT = BASE_DIR / \"static\"",
        )
        .replace("'/static/'", "'static/'");
    fs::write(file, settings).expect("settings");
    run(&["manage.py", "collectstatic", "--no-input"]);
}

#[test]
fn applications_of_every_kind_are_served_from_one_directory() {
    let dir = directory();
    let top = dir.path().canonicalize().expect("path").join("sites");
    for (file, text) in FILES {
        let path = top.join(file);
        fs::create_dir_all(path.parent().expect("a directory")).expect("mkdir");
        fs::write(path, text).expect("write");
    }
    django(&top.join("django"));
    if is_root() {
        let owned = Command::new("chown").args(["-R", "www-data:"]).arg(&top).status();
        assert!(owned.expect("chown").success());
    }
    let (other, link) = (dir.path().join("other"), top.join("pages/public/link"));
    fs::write(&other, "hunter2").expect("write");
    symlink(&other, &link).expect("link");
    if is_root() {
        let owned = Command::new("chown")
            .args(["-h", "www-data:"])
            .arg(&link)
            .status();
        assert!(owned.expect("chown").success());
    }
    let (pool, site) = init("sites", "sites", &top);
    let pool = pool.replace("max = 20", "max = 20\nmin_uid = 1");
    let daemon = Daemon::start(|dir: &Path| settle_toml(&pool, dir));
    let port = free_port();
    let nginx = Nginx::start("return 404;", &settle_nginx(&site, &daemon.dir, port));
    let ask = |path: &str| curl(&["-i", "--path-as-is", &format!("http://127.0.0.1:{port}{path}")]);
    let mut wrong = Vec::new();
    for (path, status, wanted) in PAGES {
        let said = ask(path);
        let wanted = wanted.replace("TOP", &top.display().to_string());
        let (head, body) = said.split_once("\r\n\r\n").expect("a head");
        let part = if matches!(status, 301 | 302) { head } else { body };
        let is_right = head.starts_with(&format!("HTTP/1.1 {status} ")) && part.contains(&wanted);
        if !is_right || said.contains("hunter2") {
            wrong.push(format!("{path}: {status} {wanted}\n{said}"));
        }
    }
    let wrong = wrong.join("\n---\n");
    assert!(wrong.is_empty(), "{wrong}\n{}\n{}", nginx.errors(), daemon.log());
    if is_root() {
        assert_lacks(&ask("/pages/link"), "hunter2");
    }
    let url = format!("http://127.0.0.1:{port}/node/sum");
    let json = [
        "-H",
        "Content-Type: application/json",
        "--data",
        "[1, 2, 39]",
        &url,
    ];
    assert_eq!(curl(&json), "42");
    assert_lacks(&nginx.errors(), "uninitialized");
}

#[test]
fn an_application_alone_has_its_files_served_and_websocket() {
    const NODE: &str = "const server = require('http').createServer((request, response) => response.end('node ' + request.url));
server.on('upgrade', (request, socket) => socket.end('HTTP/1.1 101 Switching Protocols\\r\\nConnection: Upgrade\\r\\n' +
  'Upgrade: websocket\\r\\n\\r\\n' + request.url + ' of ' + request.headers['x-forwarded-host']));
server.listen(process.env.PORT);
";
    const ASGI: &str = "async def application(scope, receive, send):
    if scope['type'] == 'websocket':
        await receive()
        await send({'type': 'websocket.accept'})
        await send({'type': 'websocket.send', 'text': scope['path'] + ' of ' + dict(scope['headers'])[b'host'].decode()})
        await send({'type': 'websocket.close'})
    elif scope['type'] == 'http':
        await send({'type': 'http.response.start', 'status': 200, 'headers': []})
        await send({'type': 'http.response.body', 'body': b'asgi ' + scope['path'].encode()})
";
    const RACK: &str = "run ->(env) { [200, {}, [\"ruby #{env['PATH_INFO']}\"]] }\n";
    const WSGI: &str = "def application(environ, start_response):
    start_response('200 OK', [])
    return [('python ' + environ['PATH_INFO']).encode()]
";
    for (kind, file, text) in [
        ("node", "app.js", NODE),
        ("asgi", "asgi.py", ASGI),
        ("ruby", "config.ru", RACK),
        ("python", "wsgi.py", WSGI),
    ] {
        for is_plain in [true, false] {
            let dir = directory();
            let app = dir.path().canonicalize().expect("path").join("app");
            let put = |name: &str, text: &str| {
                let path = app.join(name);
                fs::create_dir_all(path.parent().expect("a directory")).expect("mkdir");
                fs::write(path, text).expect("write");
            };
            put(file, text);
            let is_python = file.ends_with(".py");
            if !is_plain {
                put("public/css/a.css", "the style");
            }
            if is_python && !is_plain {
                put("static/admin/base.css", "gathered");
            }
            let (pool, site) = init(kind, "app", &app);
            let daemon = Daemon::start(|dir: &Path| settle_toml(&pool, dir));
            let port = free_port();
            let _nginx = Nginx::start("return 404;", &settle_nginx(&site, &daemon.dir, port));
            let ask = |path: &str| curl(&[&format!("http://127.0.0.1:{port}{path}")]);
            assert_eq!(ask("/"), format!("{kind} /"), "{}", daemon.log());
            assert_eq!(
                ask("/page/x.css?y"),
                format!("{kind} /page/x.css{}", if kind == "node" { "?y" } else { "" })
            );
            let own = |path: &str, text: &str| match text {
                "" => format!("{kind} {path}"),
                text => text.to_owned(),
            };
            let style = own("/css/a.css", if is_plain { "" } else { "the style" });
            assert_eq!(ask("/css/a.css"), style);
            let gathered = if is_python && !is_plain { "gathered" } else { "" };
            assert_eq!(
                ask("/static/admin/base.css"),
                own("/static/admin/base.css", gathered)
            );
            assert!(ask(&format!("/{file}")).starts_with(kind), "{file}");
            if is_python && kind != "asgi" || kind == "ruby" {
                continue;
            }
            let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connect");
            let head = "GET /any/socket HTTP/1.1\r\nHost: shop.test:81\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
            stream.write_all(head.as_bytes()).expect("write");
            let mut said = Vec::new();
            let wanted = "/any/socket of shop.test:81";
            let mut bytes = [0; 1024];
            while !String::from_utf8_lossy(&said).contains(wanted) {
                let read = stream.read(&mut bytes).expect("read");
                let text = String::from_utf8_lossy(&said);
                assert!(read > 0, "{kind}: {text}\n{}", daemon.log());
                said.extend_from_slice(&bytes[..read]);
            }
            assert!(said.starts_with(b"HTTP/1.1 101 "), "{kind}");
        }
    }
}
