//! Requests that two parsers could read differently (RFC 9112 section 11.2): `http_listen`, directly or behind nginx,
//! reads one request or none.

use crate::support::prelude::*;

const PROGRAM: &str = r#"
const all = [];
require("http").createServer({ insecureHTTPParser: true, requireHostHeader: false }, (request, response) => {
  if (request.url === "/all") return response.end(JSON.stringify(all));
  all.push(request.url);
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => response.end(`<${request.url} ${Buffer.concat(parts)}>`));
}).listen(process.env.PORT);
"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Refused,
    One(&'static str),
    Open,
}

use Fate::{One, Open, Refused};

const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";
const TE: &str = "POST / HTTP/1.1\r\nHost: a\r\n";
const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

const CORPUS: &[(&str, &str, Fate)] = &[
    // Both length headers, in every order (CVE-2024-1135, CVE-2024-6827, CVE-2023-38697).
    (
        TE,
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Refused,
    ),
    (
        TE,
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        Refused,
    ),
    (
        TE,
        "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Refused,
    ),
    (
        TE,
        "content-length: 5\r\nTRANSFER-ENCODING: CHUNKED\r\n\r\n0\r\n\r\n",
        Refused,
    ),
    (
        TE,
        "Transfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello",
        Refused,
    ),
    (
        TE,
        "Transfer_Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello",
        One("hello"),
    ),
    (
        TE,
        "Content_Length: 50\r\nContent-Length: 5\r\n\r\nhello",
        One("hello"),
    ),
    (TE, "Transfer-Encoding: gzip\r\n\r\n0\r\n\r\n", Refused),
    (TE, "Transfer-Encoding: identity\r\n\r\n", Refused),
    (TE, "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", Refused),
    (TE, "Transfer-Encoding: chunkedx\r\n\r\n0\r\n\r\n", Refused),
    (
        TE,
        "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        Refused,
    ),
    (
        TE,
        "Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
        Refused,
    ),
    (TE, "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", Refused),
    (
        TE,
        "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        Refused,
    ),
    (TE, "Transfer-Encoding: chunked,\r\n\r\n0\r\n\r\n", Refused),
    (TE, "Transfer-Encoding: ,chunked\r\n\r\n0\r\n\r\n", Refused),
    (TE, "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", Refused),
    (TE, "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n", Refused),
    (
        TE,
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Refused,
    ),
    (
        TE,
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        Refused,
    ),
    (
        TE,
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Refused,
    ),
    (TE, "Transfer-Encoding:\r\n\r\n0\r\n\r\n", Refused),
    (TE, "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", Refused),
    (TE, "Transfer-Encoding: chunked\x00\r\n\r\n0\r\n\r\n", Refused),
    (TE, "Transfer-Encoding: chunked\r\r\n\r\n0\r\n\r\n", Refused),
    (TE, "Transfer-Encoding: chun\u{212a}ed\r\n\r\n0\r\n\r\n", Refused),
    (TE, "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", Refused),
    (TE, "Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n", Refused),
    (TE, " Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Refused),
    (
        TE,
        "X: y\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Refused,
    ),
    (TE, "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", Refused),
    (TE, "Transfer\x00-Encoding: chunked\r\n\r\n0\r\n\r\n", Refused),
    (
        TE,
        "X: y\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        One("hi"),
    ),
    (TE, "X: y\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Refused),
    (TE, "TE: chunked\r\n\r\n", One("")),
    (
        TE,
        "Transfer-Encoding: \tchunked \r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        One("hi"),
    ),
    (
        TE,
        "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        One("hi"),
    ),
    (
        TE,
        "Connection: Content-Length\r\nContent-Length: 5\r\n\r\nhello",
        One("hello"),
    ),
    (TE, "Content-Length: 5\r\n\r\nhello", One("hello")),
    (TE, "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", Refused),
    (TE, "Content-Length: 5\r\nContent-Length: 0\r\n\r\nhello", Refused),
    (TE, "Content-Length: 5, 5\r\n\r\nhello", Refused),
    (TE, "Content-Length: 0, 5\r\n\r\nhello", Refused),
    (TE, "Content-Length: +5\r\n\r\nhello", Refused),
    (TE, "Content-Length: -5\r\n\r\nhello", Refused),
    (TE, "Content-Length: 0x5\r\n\r\nhello", Refused),
    (TE, "Content-Length: 5_0\r\n\r\nhello", Refused),
    (TE, "Content-Length: 5 0\r\n\r\nhello", Refused),
    (TE, "Content-Length: 5.0\r\n\r\nhello", Refused),
    (TE, "Content-Length:\r\n\r\n", Refused),
    (TE, "Content-Length: \u{0665}\r\n\r\nhello", Refused),
    (TE, "Content-Length: 18446744073709551621\r\n\r\nhello", Refused),
    (TE, "Content-Length: 005\r\n\r\nhello", One("hello")),
    (TE, "Content-Length : 5\r\n\r\nhello", Refused),
    (TE, "Content-Length: 5\x00\r\n\r\nhello", Refused),
    // Chunks (CVE-2025-43859).
    (CHUNKED, "5\r\nhello\r\n0\r\n\r\n", One("hello")),
    (CHUNKED, "5;a=b;c=\"d\"\r\nhello\r\n0;last\r\n\r\n", One("hello")),
    (CHUNKED, "005\r\nhello\r\n000\r\n\r\n", One("hello")),
    (CHUNKED, "5 \r\nhello\r\n0\r\n\r\n", One("hello")),
    (CHUNKED, "5\r\nhelloXX0\r\n\r\n", Refused),
    (CHUNKED, "5\r\nhello0\r\n\r\n", Refused),
    (CHUNKED, "5\r\nhello\n0\r\n\r\n", Refused),
    (CHUNKED, "5\r\nhello\r0\r\n\r\n", Refused),
    (CHUNKED, "5\nhello\n0\n\n", Refused),
    (CHUNKED, "5;\nhello\r\n0\r\n\r\n", Refused),
    (CHUNKED, "5;a\nb\r\nhello\r\n0\r\n\r\n", Refused),
    (CHUNKED, "5;a\rb\r\nhello\r\n0\r\n\r\n", Refused),
    (CHUNKED, "0x5\r\nhello\r\n0\r\n\r\n", Refused),
    (CHUNKED, "+5\r\nhello\r\n0\r\n\r\n", Refused),
    (CHUNKED, "-5\r\nhello\r\n0\r\n\r\n", Refused),
    (CHUNKED, " 5\r\nhello\r\n0\r\n\r\n", Refused),
    (CHUNKED, "5 5\r\nhello\r\n0\r\n\r\n", Refused),
    (CHUNKED, "5_0\r\nhello\r\n0\r\n\r\n", Refused),
    (CHUNKED, "5g\r\nhello\r\n0\r\n\r\n", Refused),
    (CHUNKED, "\r\n", Refused),
    (CHUNKED, ";a\r\n\r\n", Refused),
    (CHUNKED, " \r\n\r\n", Refused),
    (CHUNKED, "5\r\nhello\r\n\r\n\r\n", Refused),
    (CHUNKED, "10000000000000005\r\nhello\r\n0\r\n\r\n", Refused),
    (CHUNKED, "100000005\r\nhello\r\n0\r\n\r\n", Open),
    (CHUNKED, "0\r\nTrailer: x\r\nContent-Length: 9\r\n\r\n", One("")),
    (CHUNKED, "0\r\nTrailer: x\nTransfer-Encoding: y\r\n\r\n", Refused),
    (CHUNKED, "0\r\n\n", Refused),
    (
        "POST / HTTP/1.0\r\nHost: a\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Refused,
    ),
    (
        "POST / HTTP/1.0\r\nHost: a\r\n",
        "Content-Length: 5\r\nConnection: keep-alive\r\n\r\nhello",
        One("hello"),
    ),
    ("GET / HTTP/1.0\r\n", "\r\n", One("")),
    ("GET /\r\n", "\r\n", Refused),
    ("GET / \r\n", "\r\n", Refused),
    ("GET / HTTP/2.0\r\nHost: a\r\n", "\r\n", Refused),
    ("GET / HTTP/1.1.1\r\nHost: a\r\n", "\r\n", Refused),
    ("GET / http/1.1\r\nHost: a\r\n", "\r\n", Refused),
    ("GET / HTTP/1.1\r\n", "\r\n", Refused),
    ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n", "\r\n", Refused),
    ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n", "\r\n", Refused),
    ("GET / HTTP/1.1\r\n Host: a\r\n", "\r\n", Refused),
    ("GET http://a/ HTTP/1.1\r\nHost: a\r\n", "\r\n", Refused),
    ("GET a/ HTTP/1.1\r\nHost: a\r\n", "\r\n", Refused),
    ("CONNECT a:80 HTTP/1.1\r\nHost: a\r\n", "\r\n", Refused),
    ("GET / HTTP/1.1 HTTP/1.1\r\nHost: a\r\n", "\r\n", Refused),
    ("GET  / HTTP/1.1\r\nHost: a\r\n", "\r\n", Refused),
    ("GET\t/ HTTP/1.1\r\nHost: a\r\n", "\r\n", Refused),
    ("GET / HTTP/1.1\nHost: a\n", "\n", One("")),
    ("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n", "\r\n", One("")),
    (
        "GET / HTTP/1.1\r\nHost: a\r\n",
        "Content-Length: 5\r\n\r\nhello",
        One("hello"),
    ),
    (
        "GET / HTTP/1.1\r\nHost: a\r\n",
        "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
        One(""),
    ),
    (
        "GET / HTTP/1.1\r\nHost: a\r\n",
        "Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
        One("hello"),
    ),
    ("GET / HTTP/1.1\r\nHost: a\r\n", ": x\r\n\r\n", Refused),
    ("GET / HTTP/1.1\r\nHost: a\r\n", "X\r\n\r\n", Refused),
    ("GET / HTTP/1.1\r\nHost: a\r\n", "X: \x00\r\n\r\n", Refused),
    ("GET / HTTP/1.1\r\nHost: a\r\n", "X: \x7f\r\n\r\n", Refused),
];

struct Site {
    daemon: Daemon,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Site {
    fn start() -> Site {
        let root = folder(&[("app.js", PROGRAM)]);
        let port = free_port();
        let daemon = Daemon::start(|dir| {
            let settings = format!("pm = \"static\"\nmax_children = 1\nhttp_listen = \"127.0.0.1:{port}\"\n");
            let application = application_in("node", root.path(), "start_command = \"node app.js\"\n");
            pool(dir, "app", &settings, &application)
        });
        Site {
            daemon,
            port,
            _dir: root,
        }
    }
}

fn case(number: usize, (head, rest, _): (&str, &str, Fate)) -> String {
    let path = format!("/case{number}x");
    let is_open = matches!(head.find("/ "), Some(0..=12));
    let head = match is_open {
        true => head.replacen("/ ", &format!("{path} "), 1),
        false => head.replacen("/\r\n", &format!("{path}\r\n"), 1),
    };
    format!("{head}{rest}{HIDDEN}")
}

/// Reads a connection until it closes or stays silent.
fn say(port: u16, text: &str, is_open: bool) -> String {
    let mut client = TcpStream::connect(("127.0.0.1", port)).expect("connect");
    let limit = if is_open { 1 } else { 30 };
    client
        .set_read_timeout(Some(Duration::from_secs(limit)))
        .expect("a limit");
    client.write_all(text.as_bytes()).expect("send");
    let mut said = Vec::new();
    let ended = client.read_to_end(&mut said);
    assert!(
        is_open || ended.is_ok(),
        "{text:?}: {ended:?} {}",
        String::from_utf8_lossy(&said)
    );
    text_of(&said)
}

fn answers(said: &str) -> usize {
    said.matches("HTTP/1.1 ").count() - said.matches(" HTTP/1.1 ").count()
}

fn seen(port: u16) -> Vec<String> {
    let said = say(port, "GET /all HTTP/1.1\r\nHost: a\r\n\r\n", false);
    let list = &said[said.find('[').expect("a list")..=said.rfind(']').expect("its end")];
    serde_json::from_str(list).expect("a list")
}

#[test]
fn what_comes_to_http_listen_is_one_request_or_none() {
    let site = Site::start();
    let mut wrong = Vec::new();
    for (number, found) in CORPUS.iter().enumerate() {
        let text = case(number, *found);
        let path = format!("/case{number}x");
        let said = say(site.port, &text, found.2 == Open);
        let is_right = match found.2 {
            Refused => {
                answers(&said) == 1 && said.starts_with("HTTP/1.1 400 ") && said.contains("Connection: close")
            }
            One(body) => answers(&said) == 1 && said.contains(&format!("<{path} {body}>")),
            Open => said.is_empty(),
        };
        if !is_right {
            wrong.push(format!("{text:?} {:?}:\n  {said:?}", found.2));
        }
        let next = say(
            site.port,
            &format!("GET /next{number}x HTTP/1.1\r\nHost: a\r\n\r\n"),
            false,
        );
        if !next.contains(&format!("</next{number}x >")) {
            wrong.push(format!("after {text:?}: {next:?}"));
        }
    }
    let seen = seen(site.port);
    for (number, case) in CORPUS.iter().enumerate() {
        let count = |path: &str| seen.iter().filter(|url| *url == path).count();
        let path = format!("/case{number}x");
        let most = usize::from(case.2 != Refused || case.0 == CHUNKED);
        if count(&path) > most {
            wrong.push(format!("{path} {} times", count(&path)));
        }
    }
    let other = seen
        .iter()
        .filter(|url| !url.starts_with("/case") && !url.starts_with("/next"));
    wrong.extend(other.map(|url| format!("the program has seen {url}")));
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), site.daemon.log());
}

/// nginx keeps the connection and could read hidden text as a request; the program must receive exactly the requests
/// that nginx sent.
#[test]
fn what_nginx_passes_on_is_what_the_program_sees() {
    let site = Site::start();
    let record = site.daemon.dir.join("requests");
    fs::write(&record, "").expect("write");
    make_writable(&record);
    let http = "log_format passed '$request_uri $upstream_status .';";
    let mut wrong = Vec::new();
    for buffering in ["on", "off"] {
        let server = format!(
            "access_log {} passed; location / {{ proxy_pass http://127.0.0.1:{}; proxy_http_version 1.1; proxy_request_buffering {buffering}; }}",
            record.display(),
            site.port
        );
        let nginx = Nginx::start(&server, http);
        for (number, found) in CORPUS.iter().enumerate() {
            let text = case(number, *found) + "GET /end HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            let said = say(nginx.port, &text, found.2 == Open);
            let named: Vec<&str> = said
                .split("</")
                .skip(1)
                .filter_map(|rest| rest.split(' ').next())
                .collect();
            let own = format!("case{number}x");
            let strange = named
                .iter()
                .find(|name| name.starts_with("case") && **name != own);
            if let Some(strange) = strange {
                wrong.push(format!("{text:?}: the answer to {strange}"));
            }
        }
    }
    let passed = until("the last line", || {
        let text = fs::read_to_string(&record).ok()?;
        text.ends_with(".\n").then_some(text)
    });
    let mut sent: Vec<&str> = passed
        .lines()
        .filter(|line| !line.ends_with(" - ."))
        .filter_map(|line| line.split(' ').next())
        .collect();
    let mut seen = seen(site.port);
    seen.sort();
    sent.sort();
    for url in &seen {
        match sent.iter().position(|sent| sent == url) {
            Some(at) => drop(sent.remove(at)),
            None => wrong.push(format!("the program has seen {url}, which nginx has not sent")),
        }
    }
    assert!(
        seen.iter().any(|url| url == "/hidden"),
        "nothing has come through"
    );
    assert!(wrong.is_empty(), "{}\n{passed}", wrong.join("\n"));
}
