use super::*;
use crate::{Brief, Refusal};
use fastcgi::{Answer, Part, Request};
use forkyard_config::{Limits as ConfigLimits, ProcessManager};
use forkyard_host::event_loop::Connection as _;
use forkyard_scoreboard::status::ListenQueue;
use std::time::Duration;

const LIMITS: Limits = Limits {
    params_bytes: 4096,
    params_count: 100,
};

fn brief() -> Brief {
    Brief {
        title: "t".to_owned(),
        process_name: String::new(),
        powered_by: None,
        pool: "www".to_owned(),
        pm: ProcessManager::Static { max_children: 1 },
        status_path: Some("/".to_owned()),
        ping_path: Some("/ping".to_owned()),
        ping_response: "pong".to_owned(),
        allowed_clients: Vec::new(),
        limits: ConfigLimits {
            params_bytes: 4096,
            params_count: 100,
        },
        keepalive_timeout: Duration::from_secs(1),
        identity: None,
        has_memory_peak: false,
        started: 0,
        slots: 1,
        descriptor_limit: None,
        refusal: None,
        access: None,
        log_limit: 0,
    }
}

fn snapshot() -> Snapshot {
    let row = forkyard_scoreboard::status::WorkerRow {
        pid: 1,
        state: "Idle",
        start: 0,
        requests: 0,
        duration_us: 0,
        method: Vec::new(),
        uri: vec![b'u'; 1000],
        query: Vec::new(),
        content_length: 0,
        user: Vec::new(),
        script: Vec::new(),
        last_cpu: 0.0,
        last_memory: 0,
        in_flight: None,
        quiet: 0,
    };
    Snapshot {
        pool: "www".to_owned(),
        process_manager: "static",
        start: 0,
        now: 0,
        utc_offset_s: 0,
        accepted: 0,
        listen_queue: ListenQueue::default(),
        idle: 1,
        active: 0,
        total: 1,
        max_active: 0,
        max_children_reached: 0,
        slow: 0,
        memory_peak: None,
        in_flight: None,
        quiet: 0,
        workers: vec![row; 500],
    }
}

fn request(uri: &str, query: &str, keep: bool) -> Vec<u8> {
    let pairs: [(&[u8], &[u8]); 3] = [
        (b"SCRIPT_NAME", uri.as_bytes()),
        (b"REQUEST_METHOD", b"GET"),
        (b"QUERY_STRING", query.as_bytes()),
    ];
    let mut wire = Vec::new();
    let request = Request {
        keep,
        params: &pairs,
        ..Request::default()
    };
    request.encode(&mut wire);
    wire
}

/// Sends `input` in pieces of `step` bytes, and returns the texts of the complete answers.
fn talk(connection: &mut Connection, input: &[u8], step: usize) -> Vec<String> {
    talk_with(&brief(), connection, input, step)
}

fn talk_with(brief: &Brief, connection: &mut Connection, input: &[u8], step: usize) -> Vec<String> {
    let pages = Pages::new(brief, brief.refusal.as_ref(), None);
    let (mut wire, mut answers, mut text) = (Answer::new(), Vec::new(), Vec::new());
    for piece in input.chunks(step) {
        connection.receive(piece, &pages, &mut snapshot);
        while connection.wait() == Wait::Room {
            let bytes = connection.pending().to_vec();
            connection.written(bytes.len(), &pages, &mut snapshot);
            let mut at = 0;
            while at < bytes.len() {
                let (used, part) = wire.receive(&bytes[at..]);
                at += used;
                match part {
                    Part::Stdout(bytes) => text.extend_from_slice(bytes),
                    Part::End { .. } => {
                        answers.push(String::from_utf8(std::mem::take(&mut text)).expect("UTF-8"));
                        wire = Answer::new();
                    }
                    Part::More => break,
                    _ => {}
                }
            }
        }
    }
    answers
}

#[test]
fn requests_are_answered_however_they_are_cut() {
    let mut input = request("/ping", "", true);
    input.extend(request("/", "", true));
    input.extend(request("/none", "", true));
    input.extend(request("/", "full", false));
    for step in [1, 7, 100, input.len()] {
        let mut connection = Connection::new(LIMITS);
        let answers = talk(&mut connection, &input, step);
        assert_eq!(answers.len(), 4, "step {step}");
        assert!(answers[0].ends_with("\r\n\r\npong"), "{}", answers[0]);
        assert!(answers[1].contains("\npool:                 www\n") || answers[1].contains("pool:  "));
        assert!(answers[2].starts_with("Status: 404 Not Found\r\n"));
        assert_eq!(answers[3].matches("request URI:").count(), 500);
        assert_eq!(connection.wait(), Wait::Over);
        assert_eq!(connection.served(), 4);
    }
}

#[test]
fn a_client_that_does_not_read_is_not_read_either() {
    let brief = brief();
    let pages = Pages::new(&brief, brief.refusal.as_ref(), None);
    let mut connection = Connection::new(LIMITS);
    let mut input = request("/", "full", true);
    input.extend(request("/", "full", true));
    connection.receive(&input, &pages, &mut snapshot);
    assert_eq!(connection.wait(), Wait::Room);
    assert_eq!(connection.served(), 0);
}

#[test]
fn what_is_no_fastcgi_ends_the_connection() {
    for input in [
        b"GET / HTTP/1.0\r\n\r\n".as_slice(),
        &[0xff; 64],
        &[1, 1, 0, 1, 0, 8, 0],
    ] {
        let mut connection = Connection::new(LIMITS);
        talk(&mut connection, input, 5);
        assert!(matches!(connection.wait(), Wait::Over | Wait::Request));
    }
    let mut connection = Connection::new(LIMITS);
    talk(&mut connection, b"GET / HTTP/1.0\r\n\r\n", 100);
    assert_eq!(connection.wait(), Wait::Over);
}

#[test]
fn a_503_responder_refuses_and_closes_but_shows_the_status() {
    let mut brief = brief();
    brief.status_path = Some("/status".to_owned());
    brief.refusal = Some(Refusal {
        id: "0badcafe".to_owned(),
        retry_at_ns: (forkyard_sys::clock::now() + std::time::Duration::from_secs(7)).as_nanos(),
        page: None,
    });
    let input = [request("/index.php", "", true), request("/index.php", "", true)].concat();
    let mut connection = Connection::new(LIMITS);
    let answers = talk_with(&brief, &mut connection, &input, input.len());
    assert_eq!(answers.len(), 1, "the next request is for others");
    assert!(
        answers[0].starts_with("Status: 503 Service Unavailable\r\n"),
        "{}",
        answers[0]
    );
    assert!(answers[0].contains("\r\nRetry-After: 7\r\n") && answers[0].contains("(error 0badcafe)"));
    assert_eq!(connection.wait(), Wait::Over);
    for (uri, text) in [("/ping", "pong"), ("/status", "pool:")] {
        let mut connection = Connection::new(LIMITS);
        let answers = talk_with(&brief, &mut connection, &request(uri, "", false), 1000);
        assert!(answers[0].contains(text), "{}", answers[0]);
    }
}
