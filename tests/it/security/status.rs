//! What clients and tenants choose, in every form of the status: it stays a value (CVE-2026-6735).

use crate::support::prelude::*;
use forkyard_base::text::is_control;
use std::fs::OpenOptions;

const ODD: &str = "</td><script>alert(1)</script>\"'&lt;]]><!--\\\",\"forged\":1}\u{1b}[2J\u{7f}\u{9b}2J\u{202e}\u{2028}\u{2066}\
                   \r\npool: forged\n# HELP forged x\nforged{a=\"b\"} 1\n";
const NAME: &str = "<b>\"'&\u{1b}[2J\u{202e}\npool: forged\n.php";

const STRICT: &str = r#"
import html.parser, json, re, sys, xml.etree.ElementTree
kind, page = sys.argv[1], sys.stdin.buffer.read().decode("utf-8", "strict")
if kind == "html":
    class Reader(html.parser.HTMLParser):
        tags = set()
        def handle_starttag(self, tag, attributes): self.tags.add(tag)
        def handle_comment(self, text): sys.exit("a comment: " + text)
    reader = Reader()
    reader.feed(page)
    reader.close()
    known = {"html", "head", "title", "style", "meta", "body", "table", "tr", "th", "td", "h1", "h2", "hr"}
    sys.exit(str(reader.tags - known) if reader.tags - known else 0)
if kind == "xml":
    root = xml.etree.ElementTree.fromstring(page)
    names = {element.tag for element in root.iter()}
    sys.exit("forged" if any("forged" in name or "script" == name.lower() and "alert" in name for name in names) else 0)
if kind == "json":
    def keys(value):
        if isinstance(value, dict):
            for key, below in value.items():
                yield key
                yield from keys(below)
        elif isinstance(value, list):
            for below in value: yield from keys(below)
    sys.exit("forged" if "forged" in set(keys(json.loads(page))) else 0)
sample = re.compile(r'(#( HELP| TYPE| UNIT) [a-z_]+ .*|# EOF|[a-z_]+(\{([a-z_]+="(\\.|[^"\\])*"(,[a-z_]+="(\\.|[^"\\])*")*)?\})? [-+0-9.eE]+( [0-9.]+)?)$')
for line in page.split("\n"):
    if line and (not sample.match(line) or "forged" in line.split("{")[0]):
        sys.exit("no sample: " + repr(line))
"#;

fn read_strictly(kind: &str, page: &[u8]) {
    let mut python = Command::new("python3")
        .args(["-c", STRICT, kind])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python3");
    python
        .stdin
        .take()
        .expect("a pipe")
        .write_all(page)
        .expect("Python reads it");
    let output = python.wait_with_output().expect("python3");
    assert!(
        output.status.success(),
        "{kind}: {}\n{}",
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(page)
    );
}

fn assert_lines(name: &str, page: &str) {
    let odd = page.chars().find(|c| is_control(*c) && !matches!(c, '\n' | '\t'));
    assert_eq!(odd, None, "{name}: {page:?}");
    let forged = page
        .lines()
        .find(|line| line.starts_with("pool: forged") || line.starts_with("forged"));
    assert_eq!(forged, None, "{name}: {page}");
}

fn start() -> Daemon {
    let daemon = Daemon::start(|dir| {
        let place = dir.display();
        let settings = format!(
            "pm = \"static\"\nmax_children = 2\nstatus_path = \"/status\"\nstatus_listen = \"{place}/status.sock\"\n\
             access = {{ log = \"{place}/access\" }}\n"
        );
        format!(
            "[global]\ncontrol = \"{place}/control.sock\"\n{}",
            php_pool(dir, &settings, "")
        )
    });
    make_fifo(&daemon.dir.join("gate"));
    daemon.write(NAME, "<?php fopen(__DIR__ . '/gate', 'r'); echo 'through';");
    daemon
}

fn send(daemon: &Daemon, odd: &[u8]) -> Client {
    let script = daemon.dir.join(NAME);
    let script = script.to_str().expect("UTF-8").as_bytes();
    let user = [b"user ".as_slice(), odd].concat();
    let pairs: [(&[u8], &[u8]); 14] = [
        (b"SCRIPT_FILENAME", script),
        (b"SCRIPT_NAME", odd),
        (b"REQUEST_URI", odd),
        (b"QUERY_STRING", odd),
        (b"REQUEST_METHOD", odd),
        (b"CONTENT_TYPE", odd),
        (b"REMOTE_USER", &user),
        (b"AUTH_TYPE", odd),
        (b"PATH_INFO", odd),
        (b"DOCUMENT_ROOT", odd),
        (b"REMOTE_ADDR", odd),
        (b"SERVER_NAME", odd),
        (b"HTTP_HOST", odd),
        (b"HTTP_AUTHORIZATION", b"Basic PGI+IgrigK46eA=="),
    ];
    let wire = encoded(&Request {
        params: &pairs,
        ..Request::default()
    });
    let mut client = daemon.client("www");
    client.send_raw(&wire).expect("send");
    client
}

#[test]
fn what_a_client_chose_is_a_value_in_every_form_of_the_status() {
    let daemon = start();
    let invalid = [ODD.as_bytes(), b"\xff\xfe\xc3(\xed\xa0\x80\0end"].concat();
    for odd in [ODD.as_bytes(), &invalid] {
        let mut client = send(&daemon, odd);
        let full = |query: &str| {
            let mut reporter = Client::connect(&daemon.dir.join("status.sock")).expect("connect");
            let params = Params::get(&daemon.dir, "", query).with("SCRIPT_NAME", "/status");
            reporter.request(&params, b"").expect("an answer").body()
        };
        wait_until("the request to be shown", || full("full").contains("forged"));
        for query in ["", "full"] {
            assert_lines(query, &full(query));
            for kind in ["html", "xml", "json", "openmetrics"] {
                let query = format!("{kind}&{query}&mark=<b>");
                let params = Params::get(&daemon.dir, "", &query).with("SCRIPT_NAME", "/status");
                let own = daemon.ask("www", &params).body();
                for page in [full(&query), own] {
                    read_strictly(kind, page.as_bytes());
                    assert!(kind == "json" || !page.contains("<script>alert"), "{page}");
                    let odd = page.chars().find(|c| is_control(*c) && !matches!(c, '\n' | '\t'));
                    assert_eq!(odd, None, "{kind}: {page:?}");
                }
            }
        }
        for (arguments, kind) in [
            (&["status"][..], ""),
            (&["status", "www"], ""),
            (&["status", "--json"], "json"),
            (&["status", "www", "--json"], "json"),
            (&["status", "--metrics"], "openmetrics"),
            (&["status", "--metrics=prometheus"], "openmetrics"),
        ] {
            let output = daemon.run(arguments);
            assert!(output.status.success(), "{arguments:?}: {output:?}");
            assert_lines(
                &arguments.join(" "),
                std::str::from_utf8(&output.stdout).expect("UTF-8"),
            );
            if !kind.is_empty() {
                read_strictly(kind, &output.stdout);
            }
        }
        drop(
            OpenOptions::new()
                .write(true)
                .open(daemon.dir.join("gate"))
                .expect("FIFO"),
        );
        assert_eq!(client.answer().expect("an answer").body(), "through");
    }
    assert_lines("the log", &daemon.log());
    let access = fs::read(daemon.dir.join("access")).expect("the access log");
    let access = String::from_utf8_lossy(&access);
    let forged = access
        .lines()
        .find(|line| line.starts_with("pool: forged") || line.starts_with("forged"));
    assert_eq!(forged, None, "{access}");
}
