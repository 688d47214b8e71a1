//! Answers to status and ping requests, with headers.

use super::query::{PageFormat, Selection};
use super::snapshot::Snapshot;
use super::{html, json, openmetrics, text, xml};

const EXPIRES: (&str, &str) = ("Expires", "Thu, 01 Jan 1970 00:00:00 GMT");
const CACHE_CONTROL: (&str, &str) = ("Cache-Control", "no-cache, no-store, must-revalidate, max-age=0");
/// PHP's spelling for its default type.
const CONTENT_TYPE: &str = "Content-type";

/// An answer with status 200.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusAnswer {
    /// Headers in order.
    pub headers: Vec<(&'static str, &'static str)>,
    pub body: Vec<u8>,
}

impl StatusAnswer {
    /// The Content-Type.
    pub fn content_type(&self) -> &'static str {
        let is_type = |name: &str| name.eq_ignore_ascii_case(CONTENT_TYPE);
        self.headers
            .iter()
            .find(|(name, _)| is_type(name))
            .map_or("", |(_, value)| value)
    }
}

/// Answers a status request.
pub fn status(method: &[u8], query: &[u8], snapshot: &Snapshot) -> StatusAnswer {
    if method == b"HEAD" {
        let content_type = (CONTENT_TYPE, "text/html; charset=UTF-8");
        return StatusAnswer {
            headers: vec![EXPIRES, CACHE_CONTROL, content_type],
            body: Vec::new(),
        };
    }
    let selection = Selection::from_query(query);
    let content_type = match selection.format {
        PageFormat::Text => (CONTENT_TYPE, "text/plain;charset=UTF-8"),
        PageFormat::Html => (CONTENT_TYPE, "text/html;charset=UTF-8"),
        PageFormat::Xml => (CONTENT_TYPE, "text/xml;charset=UTF-8"),
        PageFormat::Json => ("Content-Type", "application/json"),
        PageFormat::Openmetrics => (
            "Content-Type",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
    };
    let body = render(snapshot, selection).into_bytes();
    StatusAnswer {
        headers: vec![EXPIRES, CACHE_CONTROL, content_type],
        body,
    }
}

/// Answers a ping.
pub fn ping(method: &[u8], response: &str) -> StatusAnswer {
    let body = if method == b"HEAD" {
        Vec::new()
    } else {
        response.as_bytes().to_vec()
    };
    StatusAnswer {
        headers: vec![(CONTENT_TYPE, "text/plain;charset=UTF-8"), EXPIRES, CACHE_CONTROL],
        body,
    }
}

/// Renders a snapshot.
pub fn render(snapshot: &Snapshot, selection: Selection) -> String {
    match selection.format {
        PageFormat::Text => text::render(snapshot, selection.full),
        PageFormat::Html => html::render(snapshot, selection.full),
        PageFormat::Xml => xml::render(snapshot, selection.full),
        PageFormat::Json => json::render(snapshot, selection.full),
        PageFormat::Openmetrics => openmetrics::render(snapshot),
    }
}
