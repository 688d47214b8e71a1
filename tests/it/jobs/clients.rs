//! The push functions: what they accept, refuse and repeat.

use super::{Jobs, with_pages};
use crate::support::prelude::*;
use std::thread;

const PHP: &str = r#"<?php
class Throws implements JsonSerializable {
    function jsonSerialize(): mixed { throw new LogicException('thrown here'); }
}
function nest($depth) { for ($deep = 1; $depth > 0; $depth--) { $deep = [$deep]; } return $deep; }
$given = 'given';
$ring = [];
$ring['ring'] = &$ring;
[$payload, $options] = match ($_GET['case']) {
    'plain', 'ref missing' => [1, []],
    'ref null' => [1, ['ref' => null]],
    'ref text' => [1, ['ref' => 'given']],
    'ref number' => [1, ['ref' => 7]],
    'ref array' => [1, ['ref' => ['given']]],
    'ref reference' => [1, ['ref' => &$given]],
    'null timeout' => [1, ['push_timeout' => null]],
    'infinite timeout' => [1, ['push_timeout' => INF]],
    'deep' => [nest(500), []],
    'NaN' => [['a' => NAN], []],
    'infinite' => [['a' => -INF], []],
    'value' => [['a' => "\xff"], []],
    'key' => [["\xff" => 1], []],
    'ring' => [$ring, []],
    'too deep' => [nest(513), []],
    'throws' => [['a' => new Throws], []],
    'no JSON' => [['a' => fopen('php://memory', 'r')], []],
    'large' => [str_repeat('x', 1 << 21), []],
};
if (isset($_GET['socket'])) { putenv("FORKYARD_JOBS=$_GET[socket]"); }
json_decode('{');
try {
    echo 'stored ' . forkyard_push('mail', $_GET['kind'] ?? 'echo', $payload, $options);
} catch (Forkyard\PushUnknown $unknown) {
    echo "unknown $unknown->ref ", $unknown->getMessage();
} catch (LogicException | ValueError $thrown) {
    echo get_class($thrown), ' ', $thrown->getMessage();
} catch (RuntimeException $refused) {
    echo 'refused ', $refused->getMessage();
}
if (json_last_error() != JSON_ERROR_SYNTAX) { echo ' another last error: ', json_last_error_msg(); }
"#;

const WSGI: &str = r#"
import os
import urllib.parse

import forkyard

class Throws(dict):
    def items(self):
        raise ValueError("thrown here")

class Text(str):
    pass

def nest(depth):
    deep = 1
    for _ in range(depth):
        deep = [deep]
    return deep

ring = []
ring.append(ring)
CASES = {
    "plain": (1, {}), "ref missing": (1, {}),
    "ref null": (1, {"ref": None}),
    "ref text": (1, {"ref": "given"}),
    "ref number": (1, {"ref": 7}),
    "ref array": (1, {"ref": ["given"]}),
    "ref reference": (1, {"ref": Text("given")}),
    "null timeout": (1, {"push_timeout": None}),
    "infinite timeout": (1, {"push_timeout": float("inf")}),
    "deep": (nest(500), {}),
    "NaN": ({"a": float("nan")}, {}),
    "infinite": ({"a": float("-inf")}, {}),
    "value": ({"a": "\udcff"}, {}),
    "key": ({"\udcff": 1}, {}),
    "ring": (ring, {}),
    "too deep": (nest(100_000), {}),
    "throws": ({"a": Throws(a=1)}, {}),
    "no JSON": ({"a": {1, 2}}, {}),
    "large": ("x" * (1 << 21), {}),
}
SOCKET = os.environ["FORKYARD_JOBS"]

def application(environ, start_response):
    query = dict(urllib.parse.parse_qsl(environ["QUERY_STRING"]))
    payload, options = CASES[query["case"]]
    os.environ["FORKYARD_JOBS"] = query.get("socket", SOCKET)
    try:
        text = f"stored {forkyard.jobs.push('mail', query.get('kind', 'echo'), payload, **options)}"
    except forkyard.jobs.PushUnknown as unknown:
        text = f"unknown {unknown.ref} {unknown}"
    except forkyard.jobs.PushError as refused:
        text = f"refused {refused}"
    except Exception as thrown:
        text = f"{type(thrown).__name__} {thrown}"
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [text.encode()]
"#;

const RACK: &str = r##"
require "uri"

class Throws
  def to_json(*) = raise("thrown here")
end

def nest(depth) = (1..depth).reduce(1) { |deep, _| [deep] }

ring = []
ring << ring
cases = {
  "plain" => [1, {}], "ref missing" => [1, {}],
  "ref null" => [1, { ref: nil }],
  "ref text" => [1, { ref: "given" }],
  "ref number" => [1, { ref: 7 }],
  "ref array" => [1, { ref: ["given"] }],
  "ref reference" => [1, { ref: :given }],
  "null timeout" => [1, { push_timeout: nil }],
  "infinite timeout" => [1, { push_timeout: Float::INFINITY }],
  "deep" => [nest(500), {}],
  "NaN" => [{ a: Float::NAN }, {}],
  "infinite" => [{ a: -Float::INFINITY }, {}],
  "value" => [{ a: "\xff" }, {}],
  "key" => [{ "\xff" => 1 }, {}],
  "ring" => [ring, {}],
  "too deep" => [nest(513), {}],
  "throws" => [{ a: Throws.new }, {}],
  "no JSON" => [{ a: proc {} }, {}],
  "large" => ["x" * (1 << 21), {}]
}
own = ENV["FORKYARD_JOBS"]

run(lambda do |env|
  query = URI.decode_www_form(env["QUERY_STRING"]).to_h
  payload, options = cases.fetch(query["case"])
  ENV["FORKYARD_JOBS"] = query["socket"] || own
  text = begin
    "stored #{Forkyard::Jobs.push('mail', query['kind'] || 'echo', payload, **options)}"
  rescue Forkyard::Jobs::PushUnknown => unknown
    "unknown #{unknown.ref} #{unknown.message}"
  rescue Forkyard::Jobs::PushError => refused
    "refused #{refused.message}"
  rescue StandardError => thrown
    "#{thrown.class} #{thrown.message}"
  end
  [200, { "content-type" => "text/plain" }, [text.b]]
end)
"##;

const CLIENTS: [(&str, &str); 3] = [("www", "push.php"), ("wsgi", "/"), ("rack", "/")];

fn start() -> Jobs {
    let daemon = Daemon::start(|dir| with_pages(dir, PHP, WSGI, RACK));
    Jobs { daemon }
}

fn pushed(jobs: &Jobs, (pool, path): (&str, &str), query: &str) -> String {
    let uri = format!("{path}?{}", query.replace(' ', "+"));
    jobs.daemon.get(pool, &uri).body().to_owned()
}

#[test]
fn a_job_has_the_ref_that_is_given_or_one_of_its_own() {
    let jobs = start();
    for client in CLIENTS {
        for (case, expected) in [
            ("ref missing", "own"),
            ("ref null", "own"),
            ("ref text", "given"),
            ("ref reference", "given"),
            ("ref number", "refused"),
            ("ref array", "refused"),
            ("null timeout", "own"),
            ("infinite timeout", "push_timeout"),
            ("deep", "own"),
        ] {
            let said = pushed(&jobs, client, &format!("case={case}"));
            let what = format!("{case} of {client:?}: {said}");
            let Some(id) = said.strip_prefix("stored ") else {
                assert!(said.contains(expected), "{what}");
                assert!(!said.starts_with("unknown"), "{what}");
                continue;
            };
            let job = jobs.show(id.parse().unwrap_or_else(|_| panic!("{what}")));
            let reference = job["ref"].as_str().unwrap_or_else(|| panic!("{what}: {job}"));
            match expected {
                "own" => assert!(
                    reference.len() == 32 && reference.bytes().all(|byte| byte.is_ascii_hexdigit()),
                    "{what}: {job}"
                ),
                _ => assert_eq!(reference, expected, "{what}: {job}"),
            }
        }
    }
}

#[test]
fn what_json_can_not_have_is_refused_with_the_reason() {
    let jobs = start();
    let rows = [
        ("NaN", ["Inf and NaN", "Out of range float", "NaN not allowed"]),
        (
            "infinite",
            ["Inf and NaN", "Out of range float", "-Infinity not allowed"],
        ),
        ("value", ["Malformed UTF-8", "surrogates not allowed", "source"]),
        ("key", ["Malformed UTF-8", "surrogates not allowed", "source"]),
        ("ring", ["", "Circular reference", "nesting of"]),
        (
            "too deep",
            ["Maximum stack depth", "maximum recursion depth", "nesting of"],
        ),
        (
            "no JSON",
            ["Type is not supported", "type set is not", "Proc has no form"],
        ),
    ];
    for (number, client) in CLIENTS.into_iter().enumerate() {
        for (case, words) in rows {
            let said = pushed(&jobs, client, &format!("kind=unwritten&case={case}"));
            let text = said.to_lowercase();
            let (before, why) = text.split_once("can't be written as json: ").unwrap_or_default();
            assert!(
                before.starts_with("refused ") && why.contains(&words[number].to_lowercase()),
                "{case} of {client:?}: {said}, and not {}",
                words[number]
            );
            assert_lacks(&said, "another last error");
        }
        let thrown = pushed(&jobs, client, "kind=unwritten&case=throws");
        let expected = ["LogicException", "ValueError", "RuntimeError"][number];
        assert_eq!(thrown, format!("{expected} thrown here"), "{client:?}");
    }
    let stored = jobs.ask(&json!({"command": "list", "kind": "unwritten"}));
    assert_eq!(stored["jobs"], json!([]));
}

#[derive(Debug, Clone, Copy)]
enum Deed {
    Closes,
    Reads,
    Answers(&'static str),
}

fn serve(stream: UnixStream, deed: Deed) -> Option<String> {
    if matches!(deed, Deed::Closes) {
        return None;
    }
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let request: Value = serde_json::from_str(&line).ok()?;
    if let Deed::Answers(text) = deed {
        writeln!(reader.get_mut(), "{text}").ok()?;
    }
    request["job"]["ref"].as_str().map(str::to_owned)
}

#[test]
fn a_push_whose_connection_ends_is_repeated_with_its_ref() {
    use Deed::{Answers, Closes, Reads};
    let jobs = start();
    let stored = Answers(r#"{"result":"pushed","jobs":[{"id":7,"existed":false}]}"#);
    let rows: [(&[Deed], &str); 6] = [
        (&[Closes, stored], "stored 7"),
        (&[Reads, stored], "stored 7"),
        (&[Closes, Reads, stored], "stored 7"),
        (&[Closes, Closes, Closes], "refused "),
        (&[Reads, Closes, Reads], "unknown REF "),
        (&[Answers("no JSON")], "unknown REF "),
    ];
    for client in CLIENTS {
        for (row, (deeds, expected)) in rows.iter().enumerate() {
            let what = format!("{client:?}: {deeds:?}");
            let socket = jobs.dir().join(format!("{}{row}.sock", client.0));
            let listener = UnixListener::bind(&socket).expect("a socket");
            make_writable(&socket);
            let said = thread::scope(|scope| {
                let served = scope.spawn(|| {
                    let serve = |deed: &Deed| serve(listener.accept().expect("a connection").0, *deed);
                    deeds.iter().filter_map(serve).collect::<Vec<String>>()
                });
                let query = format!("case=large&socket={}", socket.display());
                let said = pushed(&jobs, client, &query);
                for _ in deeds.iter() {
                    let _ = UnixStream::connect(&socket);
                }
                let refs = served.join().expect("the process");
                assert!(
                    refs.iter().all(|found| Some(found) == refs.first()),
                    "{what}: {refs:?}"
                );
                let is_first_unread = matches!(deeds, [Closes, Closes, Closes]);
                assert_eq!(refs.is_empty(), is_first_unread, "{what}: {said}");
                said.replace(refs.first().map_or("no ref", String::as_str), "REF")
            });
            assert!(said.starts_with(expected), "{what}: {said}");
        }
    }
}
