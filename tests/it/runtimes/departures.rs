//! A leaving worker exits when its last request or connection has ended.

use super::programs::Site;
use super::websockets::Socket;
use crate::support::prelude::*;

const ASGI: &str = r#"
import asyncio, os, pathlib
HERE = pathlib.Path(__file__).parent

async def app(scope, receive, send):
    kind = scope["type"]
    if kind == "lifespan":
        while kind != "lifespan.shutdown":
            kind = (await receive())["type"]
            if kind == "lifespan.shutdown":
                (HERE / f"shutdown.{os.getpid()}").touch()
            await send({"type": f"{kind}.complete"})
        return
    if kind == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": str(os.getpid())})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return
    path, name = scope["path"], scope["query_string"].decode()
    async def start():
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    async def leaves():
        while (await receive())["type"] != "http.disconnect":
            pass
    async def goes():
        while not (HERE / f"go.{name}").exists():
            await asyncio.sleep(0.01)
    if path == "/stream":
        await start()
        await send({"type": "http.response.body", "body": b"begun ", "more_body": True})
    if path != "/":
        (HERE / f"begun.{name}").touch()
        waits = [asyncio.create_task(leaves()), asyncio.create_task(goes())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
    if path != "/stream":
        await start()
    await send({"type": "http.response.body", "body": f"pid {os.getpid()} over".encode()})
"#;

const NODE: &str = r#"
const fs = require('fs');
const { WebSocketServer } = require('ws');
const server = require('http').createServer((request, response) => {
  const [path, name] = request.url.split('?');
  const over = () => response.end(`pid ${process.pid} over`);
  if (path === '/') return over();
  if (path === '/stream') response.write('begun ');
  const looks = setInterval(() => {
    if (fs.existsSync(`${__dirname}/go.${name}`)) { clearInterval(looks); over(); }
  }, 10);
  response.on('close', () => clearInterval(looks));
  fs.writeFileSync(`${__dirname}/begun.${name}`, '');
});
new WebSocketServer({ server, path: '/ws' }).on('connection', (socket) => socket.send(`${process.pid}`));
server.listen(process.env.PORT);
"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Request,
    Stream,
    WebSocket,
    ClientLeaves,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Restart,
    MaxRequests,
}

enum Held {
    Fastcgi(Client),
    Http(TcpStream),
    Socket(Socket),
}

struct Place {
    site: Site,
    port: u16,
    runtime: &'static str,
}

impl Place {
    fn start(runtime: &'static str, settings: &str) -> Place {
        let port = free_port();
        let pool = format!("{settings}http_listen = \"127.0.0.1:{port}\"\n");
        let (file, code, application) = match runtime {
            "asgi" => (
                "main.py",
                ASGI,
                "entry = \"main:app\"\ninterpreter = \"/usr/bin/python3\"\n",
            ),
            _ => (
                "app.js",
                NODE,
                "start_command = \"env NODE_PATH=/usr/share/nodejs node app.js\"\n",
            ),
        };
        let site = Site::start(&[(file, code)], &pool, runtime, application);
        Place { site, port, runtime }
    }

    fn params(&self, path: &str, name: &str) -> Params {
        Params::get(&self.site.daemon.dir, path, name)
    }

    fn begin(&self, kind: Kind, by_http: bool, name: &str) -> Held {
        let path = match kind {
            Kind::Request => "held",
            Kind::Stream | Kind::ClientLeaves => "stream",
            Kind::WebSocket if by_http => {
                let mut socket = Socket::open(&format!("ws://127.0.0.1:{}/ws", self.port));
                assert!(socket.hear().parse::<u32>().is_ok());
                return Held::Socket(socket);
            }
            Kind::WebSocket => return self.websocket_by_fastcgi(),
        };
        let held = if by_http {
            let mut client = TcpStream::connect(("127.0.0.1", self.port)).expect("connect");
            let head = format!("GET /{path}?{name} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            client.write_all(head.as_bytes()).expect("write");
            Held::Http(client)
        } else {
            let client = self.site.daemon.send("app", &self.params(path, name));
            Held::Fastcgi(client)
        };
        wait_until("its beginning", || {
            self.site.root.join(format!("begun.{name}")).exists()
        });
        held
    }

    fn websocket_by_fastcgi(&self) -> Held {
        let params = self
            .params("ws", "")
            .with("FORKYARD_UPGRADE", "websocket")
            .with("HTTP_UPGRADE", "websocket")
            .with("HTTP_CONNECTION", "Upgrade")
            .with("HTTP_SEC_WEBSOCKET_VERSION", "13")
            .with("HTTP_SEC_WEBSOCKET_KEY", "dGhlIHNhbXBsZSBub25jZQ==");
        let pairs = params.pairs();
        let mut wire = Vec::new();
        let request = Request {
            params: &pairs,
            ..Request::default()
        };
        request.encode_head(&mut wire);
        let mut client = self.site.daemon.client("app");
        client.send_raw(&wire).expect("send");
        assert_contains(&client.read_some().expect("an answer"), "101");
        Held::Fastcgi(client)
    }

    fn pid(&self, by_http: bool) -> Option<u32> {
        let text = if by_http {
            curl(&[&format!("http://127.0.0.1:{}/", self.port)])
        } else {
            let mut client = self.site.daemon.client("app");
            client.request(&self.params("", ""), b"").ok()?.body()
        };
        text.split(' ').nth(1)?.parse().ok()
    }

    fn end(&self, held: Held, kind: Kind, name: &str) {
        if matches!(kind, Kind::Request | Kind::Stream) {
            fs::write(self.site.root.join(format!("go.{name}")), "").expect("go");
        }
        match (held, kind) {
            (Held::Socket(socket), _) => assert_eq!(socket.close(), "closed 1000"),
            (Held::Fastcgi(client), Kind::WebSocket) => drop(client),
            (held, Kind::ClientLeaves) => drop(held),
            (Held::Fastcgi(mut client), _) => {
                assert!(client.answer().expect("answer").text().ends_with(" over"));
            }
            (Held::Http(mut client), _) => {
                let mut text = String::new();
                client.read_to_string(&mut text).expect("read");
                assert_contains(&text, " over");
            }
        }
    }

    fn leaves(&self, kind: Kind, by_http: bool, reason: Reason) {
        let what = format!("{} {kind:?} by_http: {by_http} {reason:?}", self.runtime);
        let name = what.replace([' ', ':'], "");
        let old_worker = self.site.daemon.wait_for_workers("app", 1)[0];
        let old = until("an answer", || self.pid(by_http));
        let held = self.begin(kind, by_http, &name);
        match reason {
            Reason::Restart => {
                let done = forkyard(&["restart", "app", "--wait"], &self.site.daemon.dir).output();
                assert!(done.as_ref().is_ok_and(|done| done.status.success()), "{done:?}");
                until("the new one", || self.pid(by_http).filter(|pid| *pid != old));
            }
            Reason::MaxRequests if self.runtime == "asgi" => {
                assert_eq!(self.pid(by_http), Some(old), "{what}");
            }
            Reason::MaxRequests => {
                until("the new one", || self.pid(by_http).filter(|pid| *pid != old));
            }
        }
        assert!(process::runs(old), "{what}");
        self.end(held, kind, &name);
        wait_until(&format!("the end of the old process: {what}"), || {
            !process::runs(old)
        });
        if reason == Reason::Restart || self.runtime != "asgi" {
            wait_until(&format!("the end of the old worker: {what}"), || {
                !process::runs(old_worker)
            });
        }
        assert_ne!(until("the next", || self.pid(by_http)), old, "{what}");
        if self.runtime == "asgi" {
            let mark = self.site.root.join(format!("shutdown.{old}"));
            wait_until("the lifespan's end", || mark.exists());
        }
    }
}

fn leaves(runtime: &'static str, reason: Reason) {
    for kind in [Kind::Request, Kind::Stream, Kind::WebSocket, Kind::ClientLeaves] {
        for by_http in [false, true] {
            let most = match reason {
                Reason::Restart => "",
                Reason::MaxRequests if runtime == "asgi" => "max_requests = 2\n",
                Reason::MaxRequests => "max_requests = 3\n",
            };
            let place = Place::start(runtime, &format!("pm = \"static\"\nmax_children = 1\n{most}"));
            place.leaves(kind, by_http, reason);
        }
    }
}

tests! {
    fn a_restarted_asgi_worker_ends_with_its_last_connection() => leaves("asgi", Reason::Restart);
    fn a_restarted_node_program_ends_with_its_last_connection() => leaves("node", Reason::Restart);
    fn a_restarted_http_program_ends_with_its_last_connection() => leaves("http", Reason::Restart);
    fn an_asgi_worker_at_max_requests_ends_with_its_last_connection() => leaves("asgi", Reason::MaxRequests);
    fn a_node_program_at_max_requests_ends_with_its_last_connection() => leaves("node", Reason::MaxRequests);
    fn an_http_program_at_max_requests_ends_with_its_last_connection() => leaves("http", Reason::MaxRequests);
}

#[test]
fn workers_at_max_requests_are_replaced_while_requests_come_by_http() {
    let settings = "pm = \"dynamic\"\nmax_children = 4\nstart_servers = 2\nmin_spare_servers = 1\nmax_spare_servers = 3\n\
                    max_requests = 4\n";
    let place = Place::start("asgi", settings);
    for number in 0..40 {
        assert!(place.pid(true).is_some(), "request {number}");
    }
    assert!(place.pid(false).is_some());
}

#[test]
fn a_pool_whose_workers_are_all_on_their_way_out_says_so() {
    let settings = "pm = \"static\"\nmax_children = 1\nmax_requests = 2\n";
    for by_http in [false, true] {
        let place = Place::start("asgi", settings);
        let held = place.begin(Kind::Stream, by_http, "one");
        assert!(place.pid(by_http).is_some());
        assert!(place.pid(by_http).is_some());
        let mut late = place.site.daemon.send("app", &place.params("", ""));
        place.site.daemon.wait_for(
            "no worker takes requests, and requests wait: each is on its way out or full (workers: 1)",
        );
        place.end(held, Kind::Stream, "one");
        assert!(late.answer().expect("answer").text().ends_with(" over"));
    }
}

#[test]
fn an_open_websocket_is_shown_as_what_it_is() {
    for runtime in ["asgi", "node"] {
        for by_http in [false, true] {
            let place = Place::start(runtime, "pm = \"static\"\nmax_children = 1\n");
            let _held = place.begin(Kind::WebSocket, by_http, "");
            wait_until("its stage", || {
                let said = forkyard(&["status", "app"], &place.site.daemon.dir).output();
                let said = text_of(&said.expect("forkyard").stdout);
                said.contains("Open WebSocket")
            });
        }
    }
}
