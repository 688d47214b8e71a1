//! Files that an application writes for the spawning kit.

use forkyard_base::tick::Tick;
use forkyard_core::spawn::capture::Capture;
use forkyard_core::spawn::handshake::properties::{Address, SocketOwner, check, parse, to_look_at};
use forkyard_core::spawn::handshake::response::{Complaint, Properties, Response, StepFiles};
use forkyard_core::spawn::plan::{Account, Kind, Plan};
use forkyard_core::spawn::start_failure::report;
use forkyard_core::spawn::step::Step;
use forkyard_fuzz::{in_pieces, number_of};
use forkyard_protocol::start_failure::{MOST_BYTES, StartFailure};
use std::path::Path;
use std::sync::{Arc, LazyLock};

const SOCKETS: &str = "/srv/sockets";

static PLAN: LazyLock<Arc<Plan>> = LazyLock::new(|| {
    let account = Account {
        user: "app".to_owned(),
        group: "app".to_owned(),
        uid: 1000,
        gid: 1000,
        groups: Vec::new(),
        home: None,
        shell: None,
    };
    let mut plan = Plan::new("app", "/srv/app".into(), "./app", account);
    plan.kind = Kind::FastCgi;
    plan.socket_dir = Some(SOCKETS.into());
    Arc::new(plan)
});

/// Socket paths stay in their own directory.
pub(super) fn properties(input: &[u8]) {
    let sockets = match parse(input) {
        Ok(sockets) => sockets,
        Err(faults) => {
            assert!(!faults.is_empty() && faults.iter().all(|fault| !fault.is_empty()));
            return;
        }
    };
    assert!((1..=64).contains(&sockets.len()));
    for socket in &sockets {
        match &socket.address {
            Address::Unix(path) => assert!(path.is_absolute()),
            Address::Tcp(host, port) => assert!(!host.is_empty() && *port > 0),
        }
        let said = socket.protocol == "http" || socket.protocol == "session";
        assert!(said || !socket.accept_http_requests);
        assert!(serde_json::to_value(socket).is_ok());
    }
    let plan = &*PLAN;
    let mut found = std::collections::BTreeMap::new();
    for (number, path) in to_look_at(&sockets, plan).enumerate() {
        assert_eq!(path.parent(), Some(Path::new(SOCKETS)), "{}", path.display());
        assert!(path.file_name().is_some_and(|name| name != ".." && name != "."));
        let uid = 1000 + number as u32 % 2;
        found.insert(path.to_path_buf(), SocketOwner::Socket { uid });
    }
    if check(&sockets, &found, plan).is_ok() {
        let is_ours = |path: &Path| found.get(path) == Some(&SocketOwner::Socket { uid: 1000 });
        let is_good = sockets.iter().all(|socket| match &socket.address {
            Address::Unix(path) => is_ours(path),
            Address::Tcp(..) => true,
        });
        assert!(is_good, "{sockets:?}");
    }
}

pub(super) fn response(input: &[u8]) {
    let mut files = input
        .split(|byte| *byte == b'\n')
        .map(|file| Some(file.to_vec()).filter(|file| !file.is_empty()));
    let mut next = || files.next().flatten();
    let complaint = Complaint {
        category: next(),
        summary: next(),
        problem_html: next(),
        problem_text: next(),
        solution_html: next(),
        solution_text: next(),
        details: next(),
        source: next(),
    };
    let mut steps = Vec::new();
    for step in Step::ALL.iter().take(4) {
        let files = StepFiles {
            state: next(),
            begin_monotonic: next(),
            begin: next(),
            end_monotonic: next(),
            end: next(),
        };
        steps.push((*step, files));
    }
    let _ = complaint.category();
    for text in [complaint.problem(), complaint.solution()].into_iter().flatten() {
        assert!(!text.as_str().is_empty() && text.as_str() == text.as_str().trim());
    }
    for text in [complaint.summary(), complaint.details()].into_iter().flatten() {
        assert!(!text.is_empty());
    }
    let response = Response {
        properties: Properties::Missing,
        complaint,
        steps,
        wall_ahead_ns: 1_700_000_000_000_000_000,
        ..Response::default()
    };
    let (records, bad) = response.records();
    assert!(records.len() + usize::from(bad.is_some()) <= response.steps.len());
}

pub(super) fn output(input: &[u8]) {
    let (mut whole, mut pieces) = (Capture::default(), Capture::default());
    for _ in 0..=number_of(input, 3) * 100 {
        whole.push(input);
        in_pieces(input, |piece| pieces.push(piece));
    }
    let text = whole.text();
    assert!(text == pieces.text());
    assert!(text.len() <= 3 * 64 * 1024 + 100);
}

pub(super) fn start_failure(input: &[u8]) {
    let Some(start_failure) = StartFailure::decode(input) else {
        return;
    };
    let again = start_failure.encode();
    assert!(again.len() <= MOST_BYTES);
    assert_eq!(StartFailure::decode(&again), Some(start_failure.clone()));
    let now = Tick::from_nanos(1 << number_of(input, 64));
    let report = report(&start_failure, Arc::clone(&PLAN), now);
    assert!(report.started <= report.ended && report.ended <= now);
    assert_eq!(report.plan.group, "app");
    assert!(!report.text().contains('\u{1b}') && !report.line().contains('\n'));
    assert!(report.html().contains("</html>") && report.json(0).is_object());
}
