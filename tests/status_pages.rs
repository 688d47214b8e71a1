//! Status and ping pages, compared byte for byte with those of an installed php-fpm 8.2.

use crate::support::prelude::*;

use forkyard_scoreboard::status::{ListenQueue, Snapshot, StatusAnswer, WorkerRow, ping, status};
use nix::sys::signal::killpg;

const PHP_FPM: &str = concat!("/usr/sbin/php-fpm", env!("FORKYARD_PHP"));
const CGI_FCGI: &str = "/usr/bin/cgi-fcgi";
const ZONE: &str = "IST-5:30";
const UTC_OFFSET_S: i32 = 5 * 3600 + 1800;
const MAX_ATTEMPTS: usize = 50;

struct PhpFpm {
    master: Child,
    socket: PathBuf,
    _directory: tempfile::TempDir,
}

impl PhpFpm {
    fn start() -> PhpFpm {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("fpm.sock");
        let file = directory.path().join("fpm.conf");
        let text = format!(
            "[global]\nerror_log = {log}\ndaemonize = no\n[www]\nlisten = {socket}\npm = static\n\
             pm.max_children = 2\npm.status_path = /status\nping.path = /ping\nping.response = \"pong <é>\"\nenv[TZ] = \"{ZONE}\"\n",
            log = directory.path().join("fpm.log").display(),
            socket = socket.display()
        );
        fs::write(&file, text).unwrap();
        let mut master = Command::new(PHP_FPM)
            .args(["-F", "-R", "-n", "-O", "-y"])
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{PHP_FPM} is needed for this test: {error}"));
        let stderr = BufReader::new(master.stderr.take().unwrap());
        let fpm = PhpFpm {
            master,
            socket,
            _directory: directory,
        };
        let mut said = Vec::new();
        for line in stderr.lines() {
            let line = line.unwrap();
            if line.contains("ready to handle connections") {
                return fpm;
            }
            said.push(line);
        }
        panic!("php-fpm did not start: {said:#?}");
    }

    fn ask(&self, method: &str, path: &str, query: &str) -> (Vec<String>, String) {
        let output = Command::new(CGI_FCGI)
            .args(["-bind", "-connect"])
            .arg(&self.socket)
            .env_clear()
            .env("REQUEST_METHOD", method)
            .env("SCRIPT_NAME", path)
            .env("SCRIPT_FILENAME", "/nowhere/index.php")
            .env("QUERY_STRING", query)
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("{CGI_FCGI} is needed for this test: {error}"));
        let answer = String::from_utf8(output.stdout).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let ours = |line: &&str| !line.starts_with("X-Powered-By: ");
        (
            head.split("\r\n").filter(ours).map(str::to_owned).collect(),
            body.to_owned(),
        )
    }

    fn ask_until_all_rows_show(&self, query: &str, mark: &str) -> (Vec<String>, String) {
        for _ in 0..MAX_ATTEMPTS {
            let (head, body) = self.ask("GET", "/status", query);
            if body.matches(mark).count() == 2 && body.contains("Idle") {
                return (head, body);
            }
        }
        panic!("one of the two workers never got the request");
    }

    fn start_time(&self) -> i64 {
        let (_, body) = self.ask("GET", "/status", "json");
        let (_, rest) = body.split_once("\"start time\":").unwrap();
        rest.split(',').next().unwrap().parse().unwrap()
    }
}

impl Drop for PhpFpm {
    fn drop(&mut self) {
        let group = Pid::from_raw(i32::try_from(self.master.id()).unwrap());
        let _ = killpg(group, Signal::SIGTERM);
        let _ = self.master.wait();
    }
}

fn row(state: &'static str, start: i64, query: &str) -> WorkerRow {
    WorkerRow {
        pid: 1,
        state,
        start,
        requests: 1,
        duration_us: 1,
        method: b"GET".to_vec(),
        uri: b"/status".to_vec(),
        query: query.as_bytes().to_vec(),
        content_length: 0,
        user: Vec::new(),
        script: Vec::new(),
        last_cpu: 0.0,
        last_memory: 0,
        in_flight: None,
        quiet: 0,
    }
}

fn snapshot(start: i64, workers: Vec<WorkerRow>) -> Snapshot {
    Snapshot {
        pool: "www".to_owned(),
        process_manager: "static",
        start,
        now: start + 1,
        utc_offset_s: UTC_OFFSET_S,
        accepted: 1,
        listen_queue: ListenQueue::default(),
        idle: 1,
        active: 1,
        total: 2,
        max_active: 1,
        max_children_reached: 0,
        slow: 0,
        memory_peak: None,
        in_flight: None,
        quiet: 0,
        workers,
    }
}

fn without_numbers(page: &str, known: &[String]) -> String {
    let mut page = page.to_owned();
    for (at, text) in known.iter().enumerate() {
        let mark = char::from(b'A' + u8::try_from(at).unwrap());
        page = page.replace(text, &format!("<start {mark}>"));
    }
    let mut normal = String::new();
    let mut in_number = false;
    for c in page.chars() {
        if c.is_ascii_digit() {
            if !in_number {
                normal.push('N');
            }
            in_number = true;
        } else {
            in_number = false;
            normal.push(c);
        }
    }
    normal
}

fn head(answer: &StatusAnswer) -> Vec<String> {
    answer
        .headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect()
}

fn body(answer: StatusAnswer) -> String {
    String::from_utf8(answer.body).unwrap()
}

fn known(start: i64) -> [String; 2] {
    let page = body(status(b"GET", b"", &snapshot(start, Vec::new())));
    let line = page.lines().find(|line| line.starts_with("start time:")).unwrap();
    [
        line.trim_start_matches("start time:").trim().to_owned(),
        start.to_string(),
    ]
}

#[test]
fn pages_are_php_fpms_to_the_byte() {
    assert!(Path::new(PHP_FPM).exists(), "{PHP_FPM} is needed for this test");
    let fpm = PhpFpm::start();
    let start = fpm.start_time();
    let known = known(start);
    each(["text", "html", "xml", "json", "openmetrics"], |format| {
        let (php_head, php_body) = fpm.ask("GET", "/status", format);
        let ours = status(b"GET", format.as_bytes(), &snapshot(start, Vec::new()));
        assert_eq!(head(&ours), php_head, "{format}");
        assert!(
            format == "openmetrics" || known.iter().any(|text| php_body.contains(text)),
            "{php_body}"
        );
        assert_eq!(
            without_numbers(&body(ours), &known),
            without_numbers(&php_body, &known)
        );

        // Characters that are special in one of the formats, and multi-byte ones.
        let query = format!("{format}&full&mark={format}&q=<b>\"'\\/é\u{1F600};&lt;");
        let (php_head, php_body) = if format == "openmetrics" {
            fpm.ask("GET", "/status", &query)
        } else {
            fpm.ask_until_all_rows_show(&query, &format!("mark={format}"))
        };
        let states = if php_body.find("Idle") < php_body.find("Running") {
            ["Idle", "Running"]
        } else {
            ["Running", "Idle"]
        };
        let rows = states.map(|state| row(state, start, &query)).to_vec();
        let ours = status(b"GET", query.as_bytes(), &snapshot(start, rows));
        assert_eq!(head(&ours), php_head, "{query}");
        assert_eq!(
            without_numbers(&body(ours), &[]),
            without_numbers(&php_body, &[]),
            "{query}"
        );
    });
}

#[test]
fn answers_to_other_methods_and_pings_are_php_fpms() {
    assert!(Path::new(PHP_FPM).exists(), "{PHP_FPM} is needed for this test");
    let fpm = PhpFpm::start();
    let start = fpm.start_time();
    let known = known(start);
    for method in ["GET", "HEAD", "POST"] {
        for query in ["", "json", "j&h"] {
            let (php_head, php_body) = fpm.ask(method, "/status", query);
            let ours = status(method.as_bytes(), query.as_bytes(), &snapshot(start, Vec::new()));
            assert_eq!(head(&ours), php_head, "{method} {query}");
            assert_eq!(
                without_numbers(&body(ours), &known),
                without_numbers(&php_body, &known),
                "{method} {query}"
            );
        }
        let (php_head, php_body) = fpm.ask(method, "/ping", "");
        let ours = ping(method.as_bytes(), "pong <é>");
        assert_eq!((head(&ours), body(ours)), (php_head, php_body), "{method}");
    }
}
