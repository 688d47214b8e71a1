//! Django, Flask and Starlette from Debian, behind nginx, with curl as the browser.

use crate::support::prelude::*;
use std::sync::OnceLock;

pub(super) struct Site {
    pub(super) daemon: Daemon,
    pub(super) nginx: Nginx,
    pub(super) root: tempfile::TempDir,
}

impl Site {
    /// `prepare` fills the application's directory; ROOT and SOCKET in nginx's `extra` locations are replaced.
    pub(super) fn start(
        interface: &str,
        prepare: impl FnOnce(&Path),
        settings: &str,
        application: &str,
        extra: &str,
    ) -> Site {
        let root = directory();
        prepare(root.path());
        let workers = match settings.contains("max_children") {
            true => "",
            false => "max_children = 3\n",
        };
        let settings = format!("pm = \"static\"\n{workers}catch_workers_output = true\n{settings}");
        let daemon = Daemon::serving(interface, root.path(), &settings, application);
        let locations = format!(
            "{extra}\nlocation / {{ include /etc/nginx/fastcgi_params; fastcgi_param HTTP_HOST $http_host; \
             fastcgi_pass unix:SOCKET; }}"
        );
        let locations = locations
            .replace("ROOT", &root.path().display().to_string())
            .replace("SOCKET", &daemon.socket("www").display().to_string());
        let nginx = Nginx::start(&locations, "");
        Site { daemon, nginx, root }
    }

    pub(super) fn browse(&self, path: &str, arguments: &[&str]) -> String {
        let jar = self.root.path().join("cookies").display().to_string();
        let url = self.nginx.url(path);
        let mut all = vec![
            "--cookie",
            &jar,
            "--cookie-jar",
            &jar,
            "--include",
            "--compressed",
        ];
        all.extend(arguments);
        all.push(&url);
        curl(&all)
    }

    fn cookie(&self, name: &str) -> String {
        let jar = read_file(self.root.path().join("cookies"));
        let line = jar
            .lines()
            .find(|line| line.split('\t').nth(5) == Some(name))
            .expect(name);
        line.rsplit('\t').next().expect("a value").to_owned()
    }
}

fn manage(root: &Path, arguments: &[&str]) {
    let output = Command::new("/usr/bin/python3")
        .arg("manage.py")
        .args(arguments)
        .env("DJANGO_SUPERUSER_PASSWORD", "correct horse")
        .current_dir(root)
        .output()
        .expect("python3-django");
    assert!(
        output.status.success(),
        "manage.py {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

type Kept = (PathBuf, fs::Permissions, Vec<u8>);

fn files_below(root: &Path) -> Vec<Kept> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                left.push(path);
                continue;
            }
            let within = path.strip_prefix(root).expect("below it").to_owned();
            let mode = fs::metadata(&path).expect("a mode").permissions();
            found.push((within, mode, fs::read(&path).expect("a file")));
        }
    }
    found
}

/// A project made by Django's own commands. They take seconds, so they run once for all tests.
fn project() -> &'static [Kept] {
    static MADE: OnceLock<Vec<Kept>> = OnceLock::new();
    MADE.get_or_init(|| {
        let kept = directory();
        let root = kept.path();
        let made = Command::new("/usr/bin/python3")
            .args(["-m", "django", "startproject", "shop", "."])
            .current_dir(root)
            .status();
        assert!(made.expect("python3-django").success());
        let settings = root.join("shop/settings.py");
        let text = read_file(&settings);
        let text = text.replace("ALLOWED_HOSTS = []", "ALLOWED_HOSTS = ['127.0.0.1']")
            + "\nSTATIC_ROOT = BASE_DIR / 'static'\nDEBUG = False\n";
        fs::write(settings, text).expect("settings.py");
        manage(root, &["migrate"]);
        manage(root, &["collectstatic", "--noinput"]);
        manage(
            root,
            &[
                "createsuperuser",
                "--noinput",
                "--username",
                "admin",
                "--email",
                "admin@example.org",
            ],
        );
        files_below(root)
    })
}

pub(super) fn django(root: &Path) {
    for (within, mode, content) in project() {
        let path = root.join(within);
        fs::create_dir_all(path.parent().expect("a directory")).expect("create");
        fs::write(&path, content).expect("write");
        fs::set_permissions(path, mode.clone()).expect("chmod");
    }
    if is_root() {
        let owned = Command::new("chown").args(["-R", "www-data:"]).arg(root).status();
        assert!(owned.expect("chown").success());
    }
}

const STATIC: &str = "location /static/ { alias ROOT/static/; }";

fn administer(site: &Site) {
    let page = site.browse("/admin/", &[]);
    assert_contains(&page, "302 Found");
    assert_contains(&page, "/admin/login/");
    let page = site.browse("/admin/login/?next=/admin/", &[]);
    assert_contains(&page, "200 OK");
    assert_contains(&page, "csrfmiddlewaretoken");
    let refused = site.browse("/admin/login/", &["-d", "username=admin&password=correct+horse"]);
    assert!(refused.contains("403 Forbidden"), "without its token: {refused}");
    let token = format!("csrfmiddlewaretoken={}", site.cookie("csrftoken"));
    let form = [
        "-d",
        &token,
        "-d",
        "username=admin",
        "-d",
        "next=/admin/",
        "-d",
        "password=correct horse",
    ];
    let page = site.browse("/admin/login/", &form);
    assert_contains(&page, "302 Found");
    let page = site.browse("/admin/", &[]);
    assert_contains(&page, "Site administration");
    let token = format!("csrfmiddlewaretoken={}", site.cookie("csrftoken"));
    let page = site.browse("/admin/auth/group/add/", &["-d", &token, "-d", "name=Gärtner"]);
    assert_contains(&page, "302 Found");
    let page = site.browse("/admin/auth/group/", &[]);
    assert_contains(&page, "was added successfully");
    assert_contains(&page, "Gärtner");
    let style = site.browse("/static/admin/css/base.css", &[]);
    assert!(style.contains("200 OK") && style.contains("DJANGO Admin styles"));
    assert_contains(&site.browse("/nowhere/", &[]), "404 Not Found");
    assert_lacks(&site.daemon.log(), "Traceback");
}

#[test]
fn djangos_administration_works() {
    for application in ["", "entry = \"shop.wsgi\"\nthreads = 4\n"] {
        administer(&Site::start("wsgi", django, "", application, STATIC));
    }
}

#[test]
fn djangos_administration_works_by_asgi() {
    administer(&Site::start("asgi", django, "", "", STATIC));
}

const FLASK: &str = r#"
import os, time
from flask import Flask, request, session, url_for, Response, redirect

app = Flask(__name__)
app.secret_key = "not one"

@app.route("/count")
def count():
    session["count"] = session.get("count", 0) + 1
    return f"visit {session['count']}"

@app.route("/upload", methods=["POST"])
def upload():
    file = request.files["file"]
    data = file.read()
    return {"name": file.filename, "size": len(data), "same": data == bytes([7]) * len(data), "word": request.form["word"]}

@app.route("/stream")
def stream():
    return Response((f"line {n}\n" for n in range(1000)), mimetype="text/plain")

@app.route("/where/<name>")
def where(name):
    return redirect(url_for("count", from_=name, _external=True))

@app.route("/fails")
def fails():
    raise KeyError("on purpose")

@app.route("/wait/<name>")
def wait(name):
    here = os.path.dirname(os.path.abspath(__file__))
    open(os.path.join(here, f"waits.{name}"), "w").close()
    while not os.path.exists(os.path.join(here, "go")):
        time.sleep(0.005)
    return f"{request.path} {session.get('count')}"
"#;

#[test]
fn a_flask_application_serves_fast_requests_beside_slow_ones() {
    let write = |root: &Path| fs::write(root.join("app.py"), FLASK).expect("write");
    let site = Site::start("wsgi", write, "max_children = 1\n", "threads = 4\n", "");
    let slow: Vec<_> = (0..3)
        .map(|number| {
            let url = site.nginx.url(&format!("/wait/{number}"));
            std::thread::spawn(move || curl(&[&url]))
        })
        .collect();
    wait_until("all of them", || {
        let waits = |number| site.root.path().join(format!("waits.{number}")).exists();
        (0..3).all(waits)
    });
    for count in 1..20 {
        assert!(site.browse("/count", &[]).ends_with(&format!("visit {count}")));
    }
    fs::write(site.root.path().join("go"), "").expect("go");
    for (number, slow) in slow.into_iter().enumerate() {
        assert_eq!(slow.join().expect("curl"), format!("/wait/{number} None"));
    }
}

#[test]
fn a_flask_application_keeps_sessions_and_takes_files() {
    ["", "threads = 4\n"].into_iter().for_each(use_flask);
}

fn use_flask(threads: &str) {
    let write = |root: &Path| fs::write(root.join("app.py"), FLASK).expect("write");
    let site = Site::start("wsgi", write, "", threads, "");
    assert!(site.browse("/count", &[]).ends_with("visit 1"));
    assert!(site.browse("/count", &[]).ends_with("visit 2"));
    let file = site.root.path().join("file.bin");
    fs::write(&file, vec![7; 5_000_000]).expect("write");
    let part = format!("file=@{}", file.display());
    let page = site.browse("/upload", &["-F", &part, "-F", "word=grün"]);
    assert_contains(&page, "\"size\":5000000");
    assert_contains(&page, "\"same\":true");
    assert_contains(&page, "file.bin");
    assert_contains(&page, "gr\\u00fcn");
    assert_eq!(site.browse("/stream", &[]).matches("line ").count(), 1000);
    let url = site.nginx.url("/count?from_=b%C3%A4r");
    assert_contains(&site.browse("/where/b%C3%A4r", &[]), &format!("Location: {url}"));
    assert_contains(&site.browse("/fails", &[]), "500 INTERNAL SERVER ERROR");
    site.daemon.wait_for("KeyError: 'on purpose'");
}

const FASTAPI: &str = r#"
import asyncio, hashlib, os
from fastapi import FastAPI, Request, BackgroundTasks
from starlette.responses import StreamingResponse, PlainTextResponse

app = FastAPI()
here = os.path.dirname(os.path.abspath(__file__))
started = []

def mark(name):
    open(os.path.join(here, name), "w").close()

@app.on_event("startup")
async def startup():
    started.append(os.getpid())

@app.on_event("shutdown")
async def shutdown():
    mark(f"shutdown.{os.getpid()}")

@app.get("/started")
def is_started():
    return {"here": started == [os.getpid()]}

@app.get("/items/{name}")
async def item(name: str, q: int = 0):
    await asyncio.sleep(0)
    return {"name": name, "q": q}

@app.post("/sum")
async def total(request: Request):
    digest, size = hashlib.md5(), 0
    async for part in request.stream():
        digest.update(part)
        size += len(part)
    return PlainTextResponse(f"{size} {digest.hexdigest()}")

@app.get("/stream")
async def stream():
    async def parts():
        yield "first\n"
        while not os.path.exists(os.path.join(here, "go")):
            await asyncio.sleep(0.005)
        yield "second\n"
    return StreamingResponse(parts())

@app.get("/endless")
async def endless():
    async def parts():
        try:
            yield "begun\n"
            await asyncio.sleep(3600)
        finally:
            mark("left")
    return StreamingResponse(parts())

async def later():
    while not os.path.exists(os.path.join(here, "answered")):
        await asyncio.sleep(0.005)
    mark("later")

@app.get("/background")
async def background(tasks: BackgroundTasks):
    tasks.add_task(later)
    return "soon"

@app.get("/fails")
async def fails():
    raise KeyError("on purpose")
"#;

#[test]
fn a_fastapi_application_streams_both_ways_and_notices_who_leaves() {
    use super::wsgi::{open, read_until};
    let write = |root: &Path| fs::write(root.join("main.py"), FASTAPI).expect("write");
    let unbuffered = "fastcgi_buffering off; fastcgi_request_buffering off;";
    let site = Site::start("asgi", write, "", "", unbuffered);
    assert!(site.browse("/started", &[]).ends_with("{\"here\":true}"));
    assert!(
        site.browse("/items/b%C3%A4r?q=7", &[])
            .ends_with("{\"name\":\"bär\",\"q\":7}")
    );
    assert_contains(&site.browse("/items/x?q=no", &[]), "422 Unprocessable Entity");
    let file = site.root.path().join("body");
    fs::write(&file, vec![7; 3_000_000]).expect("write");
    let data = format!("@{}", file.display());
    let plain = site.browse("/sum", &["--data-binary", &data]);
    let sum = plain.lines().last().expect("a sum").to_owned();
    assert!(sum.starts_with("3000000 "), "{plain}");
    let headers = ["-H", "Transfer-Encoding: chunked", "-H", "Content-Length:"];
    let chunked = site.browse("/sum", &[&["--data-binary", &data], &headers[..]].concat());
    assert!(chunked.ends_with(&sum), "{chunked}");

    let mut client = open(site.nginx.port, "/stream");
    read_until(&mut client, "first\n");
    fs::write(site.root.path().join("go"), "").expect("write");
    read_until(&mut client, "second\n");

    let exists = |name: &str| site.root.path().join(name).exists();
    let mut client = open(site.nginx.port, "/endless");
    read_until(&mut client, "begun\n");
    drop(client);
    until("the application to notice", || exists("left").then_some(()));

    assert!(site.browse("/background", &[]).ends_with("\"soon\""));
    assert!(!exists("later"));
    fs::write(site.root.path().join("answered"), "").expect("write");
    until("the background task", || exists("later").then_some(()));

    assert!(site.browse("/fails", &[]).contains("500 Internal Server Error"));
    site.daemon.wait_for("KeyError: 'on purpose'");
    let workers = site.daemon.wait_for_workers("www", 3);
    site.daemon.signal(Signal::SIGUSR2);
    for worker in workers {
        let name = format!("shutdown.{worker}");
        until(&name, || exists(&name).then_some(()));
    }
}

#[test]
fn a_lifespan_that_fails_gives_the_worker_up() {
    let source = FASTAPI.replace("started.append(os.getpid())", "raise OSError('no broker')");
    let write = |root: &Path| fs::write(root.join("main.py"), source).expect("write");
    let site = Site::start("asgi", write, "", "", "");
    site.daemon.wait_for("OSError: no broker");
    site.daemon.wait_for("exited with code 70");
}
