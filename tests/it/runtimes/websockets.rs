//! HTTP and WebSocket on a separate address (`http_listen`), with a web server and a real client.

use super::programs::Site;
use crate::support::prelude::*;
use std::process::{ChildStdin, ChildStdout};

const NODE: &str = r#"
const http = require('http');
const { WebSocketServer } = require('ws');
const open = new Set();
const server = http.createServer((request, response) => {
  if (request.url === '/slow') { open.add(response); return request.on('close', () => open.delete(response)); }
  if (request.url === '/open') return response.end(`${open.size}`);
  if (request.url === '/release') {
    for (const waiting of open) waiting.end('released');
    return response.end(`${open.size}`);
  }
  if (request.url === '/gone') {
    response.write('x');
    return request.on('close', () => require('fs').writeFileSync(__dirname + '/gone', 'it is'));
  }
  let size = 0;
  request.on('data', (piece) => { size += piece.length; });
  if (request.url.endsWith('/size')) return request.on('end', () => response.end(`${size}`));
  request.on('end', () => response.end(JSON.stringify({ pid: process.pid, url: request.url, size, headers: request.headers })));
});
new WebSocketServer({ server, path: '/ws' }).on('connection', (socket, request) => {
  socket.on('message', (data, isBinary) => socket.send(isBinary ? data : `${process.pid} ${VERSION} ${data}`));
  if (request.url === '/ws') socket.send(JSON.stringify(request.headers));
});
server.listen(process.env.PORT);
"#;

/// The client: each input line is a message to send, each message received is an output line; the last is the reason of
/// the close.
const CLIENT: &str = r#"
import asyncio, sys, websockets

async def main():
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    extra = {"X-Real-IP": "6.6.6.6", "X-Forwarded-For": "7.7.7.7", "X-Forwarded-Proto": "gopher", "X-Forwarded-User": "root"}
    async with websockets.connect(sys.argv[1], extra_headers=extra, max_size=None) as socket:
        async def send():
            while line := await lines.readline():
                line = line.decode().strip()
                if line.startswith("big "):
                    await socket.send(b"x" * int(line[4:]))
                else:
                    await socket.send(line)
            await socket.close()
        sender = asyncio.create_task(send())
        try:
            while True:
                message = await socket.recv()
                print(message if isinstance(message, str) else f"{len(message)} bytes", flush=True)
        except websockets.ConnectionClosed as error:
            print("closed", error.rcvd.code if error.rcvd else "without a word", flush=True)
        sender.cancel()

asyncio.run(main())
"#;

pub(in crate::it) struct Socket {
    _client: process::Guard,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Socket {
    pub(in crate::it) fn open(address: &str) -> Socket {
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", CLIENT, address]);
        let mut client = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let output = BufReader::new(client.stdout.take().expect("its output"));
        Socket {
            input: client.stdin.take(),
            _client: process::Guard::kill(client),
            output,
        }
    }

    /// A socket whose first message was received.
    fn greeted(address: &str) -> Socket {
        let mut socket = Socket::open(address);
        socket.hear();
        socket
    }

    fn say(&mut self, text: &str) {
        writeln!(self.input.as_mut().expect("it is open"), "{text}").expect("the client");
    }

    pub(in crate::it) fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the client");
        line.trim_end().to_owned()
    }

    pub(in crate::it) fn ask(&mut self, text: &str) -> String {
        self.say(text);
        self.hear()
    }

    pub(in crate::it) fn close(mut self) -> String {
        self.input = None;
        self.hear()
    }
}

pub(in crate::it) fn program(version: &str) -> String {
    NODE.replace("VERSION", &format!("'{version}'"))
}

fn site(pool: &str) -> Site {
    site_of("node", pool)
}

fn site_of(runtime: &str, pool: &str) -> Site {
    let pool = format!("{pool}\nhttp_listen = \"DIRECTORY/http.sock\"\n");
    let application = "start_command = \"env NODE_PATH=/usr/share/nodejs node app.js\"\n";
    Site::start(&[("app.js", &program("one"))], &pool, runtime, application)
}

fn http(site: &Site) -> PathBuf {
    site.daemon.dir.join("http.sock")
}

fn say(site: &Site, request: &[u8]) -> String {
    let mut client = UnixStream::connect(http(site)).expect("connect");
    client.write_all(request).expect("write");
    let mut text = String::new();
    client.read_to_string(&mut text).expect("read");
    text
}

fn nginx(site: &Site) -> Nginx {
    let locations = format!(
        "location / {{ include /etc/nginx/fastcgi_params; fastcgi_pass unix:{}; }}\n\
         location ~ ^/(ws|proxied) {{\n\
           proxy_pass http://unix:{}:;\n\
           proxy_http_version 1.1;\n\
           proxy_set_header Upgrade $http_upgrade;\n\
           proxy_set_header Connection $connection_upgrade;\n\
           proxy_set_header Host $http_host;\n\
           proxy_set_header X-Real-IP $remote_addr;\n\
           proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
           proxy_set_header X-Forwarded-Proto $scheme;\n\
           proxy_set_header X-Forwarded-Host $http_host;\n\
           proxy_read_timeout 1h;\n\
           proxy_request_buffering off;\n\
           proxy_buffering off;\n\
         }}",
        site.daemon.socket("app").display(),
        http(site).display()
    );
    Nginx::start(
        &locations,
        "map $http_upgrade $connection_upgrade { default upgrade; '' close; }",
    )
}

const STATIC: &str = "pm = \"static\"\nmax_children = 1";

#[test]
fn one_site_has_pages_by_fastcgi_and_websockets_by_http() {
    ["node", "http"].into_iter().for_each(has_pages_and_websockets);
}

fn has_pages_and_websockets(runtime: &str) {
    let site = site_of(runtime, STATIC);
    let nginx = nginx(&site);
    assert_contains(&curl(&[&nginx.url("/page")]), "\"url\":\"/page\"");
    let mut socket = Socket::open(&format!("ws://127.0.0.1:{}/ws", nginx.port));
    let headers: Value = serde_json::from_str(&socket.hear()).expect("headers");
    for (name, expected) in [
        ("x-real-ip", "127.0.0.1"),
        ("x-forwarded-for", "7.7.7.7, 127.0.0.1"),
        ("x-forwarded-proto", "http"),
        ("upgrade", "websocket"),
    ] {
        assert_eq!(headers[name], expected, "{headers}");
    }
    assert!(headers["x-forwarded-user"].is_null(), "{headers}");
    assert!(socket.ask("hello").ends_with(" one hello"));
    assert_eq!(socket.ask("big 3000000"), "3000000 bytes");
    let _other = Socket::greeted(&format!("ws://127.0.0.1:{}/ws", nginx.port));
    assert!(socket.ask("again").ends_with(" one again"));
    assert_eq!(socket.close(), "closed 1000");
}

#[test]
fn requests_pass_by_http_as_they_are() {
    let site = site(STATIC);
    let nginx = nginx(&site);
    let answer = curl(&[
        "-H",
        "X-Real-IP: 6.6.6.6",
        "-H",
        "X-Forwarded-Port: 1",
        &nginx.url("/proxied?a=b"),
    ]);
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(answer["url"], "/proxied?a=b");
    assert_eq!(answer["headers"]["x-real-ip"], "127.0.0.1", "{answer}");
    assert!(answer["headers"]["x-forwarded-port"].is_null(), "{answer}");
    let file = site.root.join("upload");
    fs::write(&file, vec![b'x'; 5_000_000]).expect("write");
    assert_eq!(upload(&file, &nginx.url("/proxied/size")), "5000000");
    let text = say(&site, b"POST /one HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /hidden HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_contains(&text, "/one");
    assert_lacks(&text, "/hidden");
    let text = say(&site, b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    assert_starts(&text, "HTTP/1.1 400 ");
    let mut client = UnixStream::connect(http(&site)).expect("connect");
    client
        .write_all(b"GET /gone HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("write");
    client.read_exact(&mut [0; 12]).expect("the head");
    drop(client);
    wait_until("the program to see it", || site.root.join("gone").exists());
}

fn set_control_timeout(site: &Site, time: &str) {
    let text = read_file(site.daemon.dir.join("forkyard.toml"));
    let line = format!("[global]\nprocess_control_timeout = \"{time}\"\n");
    site.daemon
        .write("forkyard.toml", &text.replacen("[global]\n", &line, 1));
    site.daemon.signal(Signal::SIGUSR2);
    site.daemon.wait_for("reload done");
}

/// Opens a WebSocket to version "one", replaces the application's file and reloads, until new WebSockets are answered by the
/// next version. Returns the old WebSocket, and when the reload began.
fn reload_under_websocket(
    site: &Site,
    address: &str,
    file: &str,
    code: &str,
    version: &str,
) -> (Socket, Instant) {
    let mut old = Socket::greeted(address);
    assert!(old.ask("a").ends_with(" one a"));
    fs::write(site.root.join(file), code).expect("write");
    let begun = Instant::now();
    site.daemon.signal(Signal::SIGUSR2);
    wait_until("the new version", || {
        let mut new = Socket::greeted(address);
        new.ask("b").ends_with(&format!(" {version} b"))
    });
    (old, begun)
}

#[test]
fn a_reload_keeps_websockets_until_their_time_is_over() {
    let site = site(STATIC);
    set_control_timeout(&site, "3s");
    let nginx = nginx(&site);
    let address = format!("ws://127.0.0.1:{}/ws", nginx.port);
    let (mut old, begun) = reload_under_websocket(&site, &address, "app.js", &program("two"), "two");
    if begun.elapsed() < Duration::from_secs(2) {
        assert!(old.ask("c").ends_with(" one c"), "the old one goes on");
    }
    assert!(old.hear().starts_with("closed"), "its time is over");
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_killed_program_or_worker_closes_its_websockets_and_the_next_serves() {
    let site = site(STATIC);
    let nginx = nginx(&site);
    let address = format!("ws://127.0.0.1:{}/ws", nginx.port);
    let mut socket = Socket::greeted(&address);
    let pid: u32 = socket
        .ask("x")
        .split(' ')
        .next()
        .and_then(|pid| pid.parse().ok())
        .expect("a pid");
    process::signal(pid, Signal::SIGKILL);
    assert!(socket.hear().starts_with("closed"));
    // Until then the kernel may still give connections to the dying process.
    site.daemon.wait_for("it is started again");
    let mut socket = Socket::greeted(&address);
    process::signal(site.daemon.workers("app")[0], Signal::SIGKILL);
    assert!(socket.hear().starts_with("closed"));
    let mut socket = Socket::greeted(&address);
    assert!(socket.ask("y").ends_with(" one y"));
}

#[test]
fn a_killed_keeper_leaves_websockets_open() {
    let mut site = site(STATIC);
    let mut command = forkyard(&["run", "--keeper"], &site.daemon.dir);
    command.env("TMPDIR", &site.temporary);
    site.start_again(command);
    let nginx = nginx(&site);
    let address = format!("ws://127.0.0.1:{}/ws", nginx.port);
    let mut socket = Socket::greeted(&address);
    let before = socket.ask("x");
    let keeper = site.daemon.pid();
    let master = site.daemon.kept_master();
    process::signal(keeper, Signal::SIGKILL);
    wait_until("the keeper's end", || !process::runs(keeper));
    assert!(process::runs(master));
    assert_eq!(socket.ask("x"), before, "the same program");
    let mut other = Socket::greeted(&address);
    assert!(other.ask("y").ends_with(" one y"));
    process::signal(master, Signal::SIGTERM);
    wait_until("the master's end", || !process::runs(master));
    assert!(socket.hear().starts_with("closed"));
}

#[test]
fn an_upgrade_leaves_websockets_open() {
    let site = site(STATIC);
    let nginx = nginx(&site);
    let address = format!("ws://127.0.0.1:{}/ws", nginx.port);
    let mut socket = Socket::greeted(&address);
    assert_success(&site.daemon.run(&["upgrade"]));
    site.daemon.wait_for_count("ready to handle connections", 2);
    assert!(socket.ask("hello").ends_with(" one hello"));
    let mut other = Socket::greeted(&address);
    assert!(other.ask("x").ends_with(" one x"));
    site.daemon.signal(Signal::SIGUSR2);
    site.daemon.wait_for("reload done");
    let mut third = Socket::greeted(&address);
    assert!(third.ask("y").ends_with(" one y"));
}

#[test]
fn a_thousand_requests_are_under_way_in_one_worker() {
    let site = site("pm = \"static\"\nmax_children = 1");
    let socket = http(&site);
    let slow: Vec<UnixStream> = (0..600)
        .map(|_| {
            let mut client = UnixStream::connect(&socket).expect("connect");
            client
                .write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
                .expect("write");
            client
        })
        .collect();
    let params = Params::get(&site.daemon.dir, "slow", "").with("REQUEST_URI", "/slow");
    let mut clients: Vec<_> = (0..400).map(|_| site.daemon.client("app")).collect();
    for client in &mut clients {
        client.send(&params, b"").expect("send");
    }
    let open = || {
        let params = Params::get(&site.daemon.dir, "open", "").with("REQUEST_URI", "/open");
        site.daemon.ask("app", &params).body()
    };
    wait_until("all of them", || open() == "1000");
    assert_eq!(site.daemon.workers("app").len(), 1);
    drop(slow);
    drop(clients);
    wait_until("them to be gone", || open() == "0");
}

pub(in crate::it) const ASGI: &str = r#"
import contextlib, os
from fastapi import FastAPI, Request, WebSocket

@contextlib.asynccontextmanager
async def lifespan(app):
    app.state.ready = "ready"
    yield

app = FastAPI()

@app.on_event("startup")
async def begin():
    app.state.ready = "ready"

@app.get("/page")
@app.get("/proxied")
async def page(request: Request):
    return {"pid": os.getpid(), "scheme": request.url.scheme, "client": request.client and request.client.host}

@app.websocket("/ws")
async def echo(socket: WebSocket):
    await socket.accept()
    await socket.send_text(f"{socket.app.state.ready} {socket.client.host}")
    while True:
        await socket.send_text(f"{os.getpid()} VERSION {await socket.receive_text()}")
"#;

fn asgi(application: &str) -> Site {
    let pool = "pm = \"static\"\nmax_children = 1\nhttp_listen = \"DIRECTORY/http.sock\"\n";
    let files = [("main.py", ASGI.replace("VERSION", "one"))];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    Site::start(&files, pool, "asgi", application)
}

#[test]
fn asgi_applications_serve_pages_by_fastcgi_and_websockets_by_http() {
    let site = asgi("entry = \"main:app\"\ninterpreter = \"/usr/bin/python3\"");
    let nginx = nginx(&site);
    let page = curl(&[&nginx.url("/page")]);
    assert_contains(&page, "\"client\":\"127.0.0.1\"");
    let proxied = curl(&[
        "-H",
        "X-Real-IP: 6.6.6.6",
        "-H",
        "X-Forwarded-For: 7.7.7.7",
        &nginx.url("/proxied"),
    ]);
    assert_eq!(proxied, page, "the same worker, client and scheme");
    let address = format!("ws://127.0.0.1:{}/ws", nginx.port);
    let mut socket = Socket::open(&address);
    assert_eq!(socket.hear(), "ready 127.0.0.1");
    assert!(socket.ask("hello").ends_with(" one hello"));
    let mut other = Socket::greeted(&address);
    assert!(other.ask("x").ends_with(" one x"));
    assert_eq!(other.close(), "closed 1000");
    site.daemon.signal(Signal::SIGTERM);
    let last = socket.hear();
    assert!(["closed 1012", "closed 1001"].contains(&last.as_str()), "{last}");
}

#[test]
fn a_reload_keeps_websockets_of_asgi_applications_until_their_time_is_over() {
    let site = asgi("entry = \"main:app\"\ninterpreter = \"/usr/bin/python3\"");
    set_control_timeout(&site, "5s");
    let nginx = nginx(&site);
    let address = format!("ws://127.0.0.1:{}/ws", nginx.port);
    let code = ASGI.replace("VERSION", "number two");
    let (mut old, begun) = reload_under_websocket(&site, &address, "main.py", &code, "number two");
    // On a busy machine the time may be over.
    if begun.elapsed() < Duration::from_secs(3) {
        assert!(old.ask("c").ends_with(" one c"), "the old worker goes on");
    }
    assert_eq!(old.hear(), "closed 1012");
}

const CODES: &str = r#"
import os
from fastapi import FastAPI, WebSocket, WebSocketDisconnect

app = FastAPI()

@app.websocket("/ws{number}")
async def tell(socket: WebSocket, number: str):
    await socket.accept()
    await socket.send_text("ready")
    try:
        await socket.receive_text()
    except WebSocketDisconnect as gone:
        with open(os.path.join(os.path.dirname(__file__), f"code{number}"), "x") as file:
            file.write(f"{gone.code}.")
"#;

#[test]
fn client_and_application_learn_that_a_worker_ends_by_the_same_code() {
    let pool = format!("{STATIC}\nhttp_listen = \"DIRECTORY/http.sock\"\n");
    // Without websockets uvicorn takes wsproto.
    for other in ["other.py", "websockets.py"] {
        let files = [("main.py", CODES), (other, "raise ImportError('not here')\n")];
        let application = "entry = \"main:app\"\ninterpreter = \"/usr/bin/python3\"";
        let site = Site::start(&files, &pool, "asgi", application);
        set_control_timeout(&site, "1s");
        let nginx = nginx(&site);
        // Answered when a worker is up.
        curl(&[&nginx.url("/x")]);
        let open = |number: u32| Socket::greeted(&format!("ws://127.0.0.1:{}/ws{number}", nginx.port));
        let seen = |number: u32| {
            until("the application's code", || {
                let code = fs::read_to_string(site.root.join(format!("code{number}"))).ok();
                code.filter(|code| code.ends_with('.'))
            })
        };
        assert_eq!(
            (open(1).close(), seen(1)),
            ("closed 1000".into(), "1000.".into()),
            "{other}"
        );
        let mut socket = open(2);
        site.daemon.signal(Signal::SIGUSR2);
        assert_eq!(
            (socket.hear(), seen(2)),
            ("closed 1012".into(), "1012.".into()),
            "{other}"
        );
        let (mut socket, closed) = (open(3), open(4));
        assert_eq!(
            (closed.close(), seen(4)),
            ("closed 1000".into(), "1000.".into()),
            "{other}"
        );
        site.daemon.signal(Signal::SIGTERM);
        assert_eq!(
            (socket.hear(), seen(3)),
            ("closed 1012".into(), "1012.".into()),
            "{other}"
        );
    }
}

#[test]
fn addresses_that_are_not_allowed_can_not_speak_http_either() {
    let (fastcgi, http) = (free_port(), free_port());
    let pool = format!(
        "pm = \"static\"\nmax_children = 1\nhttp_listen = \"127.0.0.1:{http}\"\n\
         listen = {{ address = \"127.0.0.1:{fastcgi}\", allowed_clients = [\"127.0.0.2\"] }}\n"
    );
    let application = "start_command = \"env NODE_PATH=/usr/share/nodejs node app.js\"\n";
    let site = Site::start(&[("app.js", &program("one"))], &pool, "node", application);
    let ask = |from: &str| {
        let url = format!("http://127.0.0.1:{http}/page");
        let mut curl = Command::new("curl");
        curl.args(["-s", "--max-time", "60", "--interface", from]);
        let output = curl
            .args(["-w", "%{http_code}", "-o", "/dev/null", &url])
            .output();
        text_of(&output.expect("curl").stdout)
    };
    assert_eq!(ask("127.0.0.2"), "200");
    assert_eq!(ask("127.0.0.1"), "000");
    site.daemon.wait_for("Connection disallowed");
    assert_eq!(ask("127.0.0.2"), "200");
}

#[test]
fn without_uvicorn_http_is_refused_with_its_reason() {
    let plain = "async def app(scope, receive, send):\n    if scope['type'] == 'http':\n        \
        await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n        \
        await send({'type': 'http.response.body', 'body': b'page'})\n    else:\n        raise RuntimeError\n";
    let pool = "pm = \"static\"\nmax_children = 1\nhttp_listen = \"DIRECTORY/http.sock\"\n\
                env.PYTHONPATH = \"DIRECTORY/app/without\"\n";
    let files = [
        ("main.py", plain),
        ("uvicorn.py", "raise ImportError('not here')\n"),
    ];
    let site = Site::start(
        &files,
        pool,
        "asgi",
        "entry = \"main:app\"\ninterpreter = \"/usr/bin/python3\"",
    );
    assert_eq!(site.get("x"), "page");
    let text = say(&site, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_starts(&text, "HTTP/1.1 503 ");
    assert_contains(&text, "uvicorn is not installed");
    site.daemon
        .wait_for("there is no uvicorn in the application's environment");
}
