//! Applications whose status or Content-Length is wrong: the log names it, and the connection carries the next request.

use crate::support::prelude::*;

const WSGI: &str = r#"
CASES = {
    "word": ("OK", None, [b"x"]),
    "four": ("2000 OK", None, [b"x"]),
    "zero": ("099 Low", None, [b"x"]),
    "joined": ("200OK", None, [b"x"]),
    "line": ("200 OK\nX-A: b", None, [b"x"]),
    "number": (200, None, [b"x"]),
    "length": ("200 OK", "five", [b"x"]),
    "minus": ("200 OK", "-5", [b"x"]),
    "short": ("200 OK", "10", [b"four"]),
    "short_parts": ("200 OK", "9", iter([b"fo", b"ur"])),
    "none": ("200 OK", "7", []),
    "long": ("200 OK", "4", [b"four and more"]),
    "long_parts": ("200 OK", "4", iter([b"fo", b"ur and", b"more"])),
    "empty": ("200 OK", "0", iter([b"fifth"])),
    "bare": ("200", None, [b"fine"]),
    "fine": ("299 Of my own", " 4 ", iter([b"fi", b"ne"])),
}

def application(environ, start):
    status, length, body = CASES[environ["QUERY_STRING"]]
    start(status, [] if length is None else [("Content-Length", length)])
    return body
"#;

const ASGI: &str = r#"
CASES = {
    "word": ("OK", None, [b"x"]),
    "four": (2000, None, [b"x"]),
    "zero": (99, None, [b"x"]),
    "length": (200, b"five", [b"x"]),
    "minus": (200, b"-5", [b"x"]),
    "short": (200, b"10", [b"four"]),
    "short_parts": (200, b"9", [b"fo", b"ur"]),
    "none": (200, b"7", [b""]),
    "long": (200, b"4", [b"four and more"]),
    "long_parts": (200, b"4", [b"fo", b"ur and", b"more"]),
    "empty": (200, b"0", [b"fifth"]),
    "fine": (299, b" 4 ", [b"fi", b"ne"]),
}

async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    status, length, body = CASES[scope["query_string"].decode()]
    headers = [] if length is None else [(b"Content-Length", length)]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    for part in body:
        await send({"type": "http.response.body", "body": part, "more_body": part is not body[-1]})
"#;

const RACK: &str = r#"
class Parts
  def initialize(*parts) = @parts = parts
  def each(&) = @parts.each(&)
end
CASES = {
  "word" => ["OK", nil, ["x"]],
  "four" => [2000, nil, ["x"]],
  "zero" => [99, nil, ["x"]],
  "number" => [nil, nil, ["x"]],
  "length" => [200, "five", ["x"]],
  "minus" => [200, "-5", ["x"]],
  "short" => [200, "10", ["four"]],
  "short_parts" => [200, "9", Parts.new("fo", "ur")],
  "none" => [200, "7", []],
  "long" => [200, "4", ["four and more"]],
  "long_parts" => [200, "4", Parts.new("fo", "ur and", "more")],
  "empty" => [200, "0", Parts.new("fifth")],
  "bare" => ["200", nil, ["fine"]],
  "fine" => [299, " 4 ", Parts.new("fi", "ne")],
}.freeze
run(lambda do |env|
  status, length, body = CASES.fetch(env["QUERY_STRING"])
  [status, length ? { "content-length" => length } : {}, body]
end)
"#;

const STATUS: &str = " is no status: ";
const LENGTH: &str = " is no Content-Length: ";

/// The case, the status and body that the client gets, and what the log says.
const ROWS: [(&str, &str, &str, &str); 16] = [
    ("word", "500", "", STATUS),
    ("four", "500", "", STATUS),
    ("zero", "500", "", STATUS),
    ("joined", "500", "", STATUS),
    ("line", "500", "", STATUS),
    ("number", "500", "", STATUS),
    ("length", "500", "", LENGTH),
    ("minus", "500", "", LENGTH),
    (
        "short",
        "200",
        "four",
        "is 6 bytes shorter than its Content-Length",
    ),
    (
        "short_parts",
        "200",
        "four",
        "is 5 bytes shorter than its Content-Length",
    ),
    ("none", "200", "", "is 7 bytes shorter than its Content-Length"),
    ("long", "200", "four", "longer than its Content-Length by 9 bytes"),
    (
        "long_parts",
        "200",
        "four",
        "longer than its Content-Length by 4 bytes",
    ),
    ("empty", "200", "", "longer than its Content-Length by 5 bytes"),
    ("bare", "200", "fine", ""),
    ("fine", "299", "fine", ""),
];

fn tells_bad_answers(runtime: &str, file: &str, text: &str, more: &str) {
    let root = folder(&[(file, text)]);
    let settings = "pm = \"static\"\nmax_children = 1\ncatch_workers_output = true\n";
    let daemon = Daemon::serving(runtime, root.path(), settings, more);
    let mut kept = daemon.client("www").kept();
    let rows = ROWS.iter().filter(|row| text.contains(&format!("\"{}\"", row.0)));
    let mut told = BTreeMap::new();
    for (case, status, body, line) in rows {
        let params = Params::get(root.path(), "x", case);
        let answer = kept.request(&params, b"").expect("answer");
        let seen = format!("{runtime} {more:?}, {case}: {answer:?}");
        assert!(answer.status().starts_with(status) && answer.ended, "{seen}");
        if *status != "500" {
            assert_eq!(answer.body(), *body, "{seen}");
        }
        if !line.is_empty() {
            let count = told.entry(line).or_insert(0);
            *count += 1;
            daemon.wait_for_count(line, *count);
        }
    }
    assert_lacks(&daemon.log(), "a connection was closed");
}

tests! {
    fn a_wrong_status_or_length_of_wsgi_is_told() => ["", "threads = 3\n"].iter()
        .for_each(|more| tells_bad_answers("wsgi", "wsgi.py", WSGI, more));
    fn a_wrong_status_or_length_of_asgi_is_told() => tells_bad_answers("asgi", "asgi.py", ASGI, "");
    fn a_wrong_status_or_length_of_rack_is_told() => ["", "threads = 3\n"].iter()
        .for_each(|more| tells_bad_answers("rack", "config.ru", RACK, more));
}
