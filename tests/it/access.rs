//! The JSON access log: Python's parser reads every line, whatever a client sends.

use crate::support::prelude::*;

const STRICT: &str = "
import json, sys
for line in sys.stdin.buffer:
    assert line.endswith(b'\\n'), line
    value = json.loads(line.decode('utf-8', 'strict'), strict=True, parse_constant=sys.exit)
    assert isinstance(value, dict), line
    print(json.dumps(value))
";

pub(crate) fn objects(log: &Path) -> Vec<Value> {
    let text = fs::read(log).expect("the access log");
    let mut python = Command::new("python3")
        .args(["-c", STRICT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    let mut input = python.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || input.write_all(&text));
    let output = python.wait_with_output().expect("python3");
    writer.join().expect("no panic").expect("Python reads it");
    assert!(output.status.success(), "not JSON: {}", log.display());
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let objects = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    objects.collect()
}

fn hostile() -> Vec<(Vec<u8>, String)> {
    let mut all: Vec<(Vec<u8>, String)> = [
        "a\"b\\c",
        "\\\"}\\",
        "tab\t\u{1b}[2J\u{7f}\u{9b}end",
        "line\nbreak\r\n{\"forged\":1}",
        "caf\u{e9} \u{1f600} \u{2028}\u{85}",
        "%22%5c\\u0041",
        "",
    ]
    .into_iter()
    .map(|text| (text.as_bytes().to_vec(), text.to_owned()))
    .collect();
    for bytes in [
        &b"\xff\xfe"[..],
        b"\xc3(",
        b"\xed\xa0\x80",
        b"ends in the middle \xe2\x82",
    ] {
        all.push((bytes.to_vec(), text_of(bytes)));
    }
    let every: Vec<u8> = (1..=255).collect();
    all.push((every.clone(), text_of(&every)));
    all
}

fn ask(client: &mut Client, params: &Params, values: &[(&str, &[u8])]) -> String {
    let mut pairs: Vec<(&[u8], &[u8])> = Vec::new();
    for (name, value) in &params.0 {
        if values.iter().all(|(own, _)| own != name) {
            pairs.push((name.as_bytes(), value.as_bytes()));
        }
    }
    pairs.extend(values.iter().map(|(name, value)| (name.as_bytes(), *value)));
    let wire = encoded(&Request {
        params: &pairs,
        ..Request::default()
    });
    client.send_raw(&wire).expect("send");
    client.answer().expect("an answer").body()
}

fn start(format: &str) -> Daemon {
    let daemon = Daemon::start(|dir| {
        let settings = format!(
            "pm = \"static\"\nmax_children = 1\naccess = {{ log = \"DIR/access\", format = '{format}' }}\n"
        );
        php_pool(dir, &settings, "")
    });
    daemon.write(
        "a.php",
        "<?php header('X-Own: \"\\\\' . chr(255)); echo 'served';",
    );
    daemon
}

fn ask_all(daemon: &Daemon, texts: &[(Vec<u8>, String)]) {
    let params = Params::get(&daemon.dir, "a.php", "");
    for (bytes, _) in texts {
        let values = [
            ("QUERY_STRING", bytes.as_slice()),
            ("REQUEST_URI", bytes),
            ("HTTP_USER_AGENT", bytes),
            ("HTTP_REFERER", bytes),
            ("HTTP_HOST", bytes),
        ];
        assert_eq!(ask(&mut daemon.client("www"), &params, &values), "served");
    }
}

#[test]
fn a_json_line_is_json_whatever_comes() {
    let daemon = start("json");
    let texts = hostile();
    ask_all(&daemon, &texts);
    let log = daemon.dir.join("access");
    let lines = objects(&log);
    assert_eq!(lines.len(), texts.len());
    let worker = daemon.workers("www")[0];
    for (line, (_, shown)) in lines.iter().zip(&texts) {
        for name in ["query", "request_uri", "user_agent", "referer", "host"] {
            let said = line[name].as_str().expect("a string");
            // Only the line with every byte exceeds the limit.
            let is_whole = said == shown;
            let is_cut = said
                .strip_suffix("...")
                .is_some_and(|cut| shown.starts_with(cut) && shown.len() > 200);
            assert!(is_whole || is_cut, "{name}: {line}");
        }
        assert_eq!((&line["pool"], &line["pid"]), (&"www".into(), &worker.into()));
        assert_has(line, json!({"method": "GET", "status": 200}));
        assert_eq!(line["uri"], "/a.php");
        assert_eq!(line["remote_addr"], "127.0.0.1");
        assert_eq!(line["user"], "");
        assert!(
            line["memory"].as_u64().is_some_and(|bytes| bytes > 100_000),
            "{line}"
        );
        let [duration, cpu] = ["duration", "cpu"].map(|name| line[name].as_f64().expect("a number"));
        assert!(duration > 0.0 && duration < 60.0 && cpu < 60.0, "{line}");
        let time = line["time"].as_str().expect("a time");
        assert_eq!(time.len(), "2026-11-20T18:53:09.000042+01:00".len(), "{time}");
    }
    for line in read_file(&log).lines() {
        for name in ["\"duration\":", "\"cpu\":"] {
            let (_, number) = line.split_once(name).expect("a field");
            let (number, _) = number.split_once(',').expect("more");
            let (_, decimals) = number.split_once('.').expect("decimals");
            assert_eq!(decimals.len(), 6, "{line}");
        }
    }
}

#[test]
fn a_long_json_line_keeps_its_end() {
    let daemon = start("json");
    let params = Params::get(&daemon.dir, "a.php", "");
    for (length, text) in [(2_000, "x"), (900, "\u{1}"), (700, "\""), (900, "\u{1f600}")] {
        let long = text.repeat(length);
        let values = [
            ("HTTP_USER_AGENT", long.as_bytes()),
            ("REQUEST_URI", long.as_bytes()),
        ];
        assert_eq!(ask(&mut daemon.client("www"), &params, &values), "served");
    }
    let log = daemon.dir.join("access");
    let lines = objects(&log);
    assert_eq!(lines.len(), 4);
    for line in &lines {
        let agent = line["user_agent"].as_str().expect("a string");
        assert!(agent.ends_with("...") && agent.len() > 30, "{line}");
        assert_eq!(line["status"], 200);
    }
    for line in read_file(&log).lines() {
        assert!(line.len() < 1024, "{} bytes", line.len());
        assert!(line.len() > 1024 - 16, "{} bytes", line.len());
    }
    daemon.wait_for("The access log request has been truncated.");
}

#[test]
fn a_format_of_ones_own_can_be_json() {
    let format = r#"escape=json {"agent":"%{HTTP_USER_AGENT}e","own":"%{X-Own}o","none":"%{NONE}e%R","s":%s,"d":%{milli}d}"#;
    let daemon = start(format);
    let texts = hostile();
    ask_all(&daemon, &texts);
    let lines = objects(&daemon.dir.join("access"));
    assert_eq!(lines.len(), texts.len());
    for (line, (_, shown)) in lines.iter().zip(&texts) {
        assert_eq!(line["agent"], shown.as_str());
        assert_eq!(line["own"], "\"\\\u{fffd}");
        assert_eq!((&line["none"], &line["s"]), (&"".into(), &200.into()));
    }
}

#[test]
fn nothing_is_escaped_if_that_is_said() {
    let daemon = start("escape=none %q|%{X-Own}o|%{NONE}e");
    let texts = [(b"a\"b\\c\xff".to_vec(), String::new())];
    ask_all(&daemon, &texts);
    let line = fs::read(daemon.dir.join("access")).expect("the access log");
    assert_eq!(line, b"a\"b\\c\xff|\"\\\xff|-\n");
}
