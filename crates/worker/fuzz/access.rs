//! Fuzz targets for the access log's format and lines.

use super::LoggedRequest;
use super::head::AnswerHead;
use super::line::{RequestFacts, render};
use forkyard_config::access::{DEFAULT_FORMAT, Escape, Format, parse_format};
use forkyard_fuzz::{in_pieces, number_of};
use forkyard_sys::clock::CpuTimes;
use std::sync::LazyLock;

fn request(input: &[u8], head: AnswerHead, params: Vec<Option<Vec<u8>>>) -> LoggedRequest {
    let mut texts = input.split(|byte| *byte == b'\n');
    let mut next = || texts.next().unwrap_or_default().to_vec();
    LoggedRequest {
        method: next(),
        uri: next(),
        query: next(),
        script: next(),
        user: next(),
        params,
        content_length: u64::MAX,
        head,
        memory: u64::MAX,
        begun_epoch_micros: number_of(input, 1 << 60) as u64,
        ..LoggedRequest::default()
    }
}

fn facts<'a>(input: &[u8], request: &'a LoggedRequest) -> RequestFacts<'a> {
    RequestFacts {
        pool: "www",
        request,
        status: request.head.status(),
        micros: number_of(input, usize::MAX) as u64,
        cpu: CpuTimes::default(),
        logged_epoch: 0,
    }
}

static FORMATS: LazyLock<[Format; 2]> =
    LazyLock::new(|| [DEFAULT_FORMAT, "json"].map(|text| parse_format(text).unwrap_or_default()));

pub(crate) fn lines(input: &[u8]) {
    let mut head = AnswerHead::default();
    head.take(input);
    let params: Vec<_> = input
        .split(|byte| *byte == b'\n')
        .map(|text| Some(text.to_vec()))
        .collect();
    let request = request(input, head, params);
    let facts = facts(input, &request);
    let limit = 700 + number_of(input, 2000);
    for format in &*FORMATS {
        let mut line = Vec::new();
        let is_whole = render(format, &facts, limit, &mut line);
        assert!(line.len() < limit, "{} of {limit}", line.len());
        let shown = line.escape_ascii();
        assert!(!line.iter().any(u8::is_ascii_control), "{shown}");
        if format.escape == Escape::Json {
            let object: serde_json::Result<serde_json::Map<_, _>> = serde_json::from_slice(&line);
            let object = object.unwrap_or_else(|error| panic!("{error}: {shown}"));
            assert_eq!(object.len(), 18);
            assert_eq!(object["pool"], "www");
            assert!(!is_whole || object["uri"] == *String::from_utf8_lossy(&request.uri));
        }
    }
}

pub(crate) fn head(input: &[u8]) {
    let (mut whole, mut pieces) = (AnswerHead::default(), AnswerHead::default());
    whole.take(input);
    in_pieces(input, |piece| pieces.take(piece));
    assert_eq!(whole.status(), pieces.status());
    for name in ["X-A", "Content-Type", "Status", ""] {
        assert_eq!(whole.value(name), pieces.value(name), "{name}");
    }
    whole.clear();
    assert_eq!(whole.status(), 200);
}

pub(crate) fn format(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let format = match parse_format(&text) {
        Ok(format) => format,
        Err(why) => {
            assert!(!why.to_string().is_empty());
            return;
        }
    };
    let written = serde_json::to_vec(&format).expect("plain values");
    assert_eq!(
        serde_json::from_slice::<Format>(&written).expect("its own"),
        format
    );
    let mut line = Vec::new();
    let request = request(b"GET\n/a", AnswerHead::default(), Vec::new());
    let facts = facts(b"GET\n/a", &request);
    let is_whole = render(&format, &facts, 256, &mut line);
    assert!(line.len() < 256 && (is_whole || line.len() > 200));
}
