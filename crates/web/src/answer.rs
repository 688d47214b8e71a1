//! An answer with its header.

use super::request::Refusal;
use std::fmt::Write as _;
use std::rc::Rc;

pub(crate) const TEXT: &str = "text/plain; charset=utf-8";
pub(crate) const JSON: &str = "application/json";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    pub(crate) content_type: &'static str,
    /// Many clients may get the same text.
    pub(crate) body: Rc<[u8]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Ok,
    BadRequest,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    ContentTooLarge,
    MisdirectedRequest,
    FieldsTooLarge,
    ServiceUnavailable,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Status::Ok => "200 OK",
            Status::BadRequest => "400 Bad Request",
            Status::Forbidden => "403 Forbidden",
            Status::NotFound => "404 Not Found",
            Status::MethodNotAllowed => "405 Method Not Allowed",
            Status::ContentTooLarge => "413 Content Too Large",
            Status::MisdirectedRequest => "421 Misdirected Request",
            Status::FieldsTooLarge => "431 Request Header Fields Too Large",
            Status::ServiceUnavailable => "503 Service Unavailable",
        }
    }
}

impl Answer {
    pub(crate) fn text(status: Status, text: &str) -> Answer {
        Answer {
            status,
            content_type: TEXT,
            body: format!("{text}\n").into_bytes().into(),
        }
    }

    pub(crate) fn refusal(refusal: Refusal) -> Answer {
        let (status, text) = match refusal {
            Refusal::Malformed => (Status::BadRequest, "The request is not HTTP/1.1."),
            Refusal::NoHost => (Status::BadRequest, "The request has no Host."),
            Refusal::Host => (
                Status::MisdirectedRequest,
                "The request's Host is not one of this address: web_hosts in [global] names more.",
            ),
            Refusal::Method => (Status::MethodNotAllowed, "The methods are GET and HEAD."),
            Refusal::Body => (Status::ContentTooLarge, "The request may not have a body."),
            Refusal::TooLong => (Status::FieldsTooLarge, "The request's head is too long."),
        };
        Answer::text(status, text)
    }

    /// Returns the header. `date`: the time, in the format of RFC 9110, section 5.6.7.
    pub(crate) fn header(&self, keeps: bool, date: &str) -> Vec<u8> {
        let mut header = format!(
            "HTTP/1.1 {}\r\nDate: {date}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\n",
            self.status.line(),
            self.content_type,
            self.body.len()
        );
        if self.status == Status::MethodNotAllowed {
            header.push_str("Allow: GET, HEAD\r\n");
        }
        if !keeps {
            header.push_str("Connection: close\r\n");
        }
        let _ = write!(header, "\r\n");
        header.into_bytes()
    }
}
