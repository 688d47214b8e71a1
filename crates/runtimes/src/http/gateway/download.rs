//! A process's answer on its way to the client: in CGI form for FastCGI, unchanged for HTTP.

use super::super::answer::{HttpAnswer, Malformed, Part};
use crate::queue::Queue;

const STATUS_BYTES: usize = 12;
const SWITCHING_PROTOCOLS: u16 = 101;
const CUT: &str = "it closed the connection in the middle of its answer";

#[derive(Debug)]
pub(super) struct Download {
    form: Form,
    pub(super) out: Queue,
}

#[derive(Debug)]
enum Form {
    Cgi {
        answer: HttpAnswer,
        /// Incomplete input.
        torn: Vec<u8>,
    },
    /// Bytes wait in `out` until they show the status.
    Http { status: Option<u16>, may_switch: bool },
}

#[derive(Debug)]
pub(super) enum Taken {
    More,
    /// To another protocol.
    Switched,
    /// `keeps`: the connection can carry another request.
    End {
        keeps: bool,
    },
    Malformed(Malformed),
}

/// The meaning of the end of the process's connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Whole,
    /// Part of the answer may be with the client.
    Cut(&'static str),
    Nothing,
    NoHead(String),
}

impl Download {
    pub(super) fn cgi(is_head: bool, may_switch: bool) -> Download {
        Download {
            form: Form::Cgi {
                answer: HttpAnswer::new(is_head, may_switch),
                torn: Vec::new(),
            },
            out: Queue::default(),
        }
    }

    pub(super) fn http(may_switch: bool) -> Download {
        Download {
            form: Form::Http {
                status: None,
                may_switch,
            },
            out: Queue::default(),
        }
    }

    /// Puts an answer of forkyard in the place of the process's.
    pub(super) fn replace(&mut self, bytes: Vec<u8>, number: Option<u16>) {
        self.out = Queue::from(bytes);
        if let Form::Http { status, .. } = &mut self.form {
            *status = number;
        }
    }

    /// The status of an HTTP answer.
    pub(super) fn status(&self) -> Option<u16> {
        match self.form {
            Form::Http { status, .. } => status,
            Form::Cgi { .. } => None,
        }
    }

    pub(super) fn has_begun(&self) -> bool {
        match &self.form {
            Form::Cgi { answer, .. } => answer.has_begun(),
            Form::Http { status, .. } => status.is_some(),
        }
    }

    /// Whether there are bytes that the client may get.
    pub(super) fn has_more(&self) -> bool {
        self.has_begun() && !self.out.is_empty()
    }

    pub(super) fn take(&mut self, bytes: &[u8]) -> Taken {
        match &mut self.form {
            Form::Cgi { answer, torn } => take_cgi(answer, torn, bytes, self.out.room()),
            Form::Http { status, may_switch } => {
                self.out.room().extend_from_slice(bytes);
                let first = self.out.rest();
                if status.is_some() || first.len() < STATUS_BYTES {
                    return Taken::More;
                }
                *status = Some(status_of(&first[..STATUS_BYTES]));
                match *may_switch && *status == Some(SWITCHING_PROTOCOLS) {
                    true => Taken::Switched,
                    false => Taken::More,
                }
            }
        }
    }

    pub(super) fn ending(&self) -> Ending {
        match &self.form {
            Form::Cgi { answer, .. } if answer.may_end() => Ending::Whole,
            Form::Cgi { answer, .. } if answer.has_begun() => Ending::Cut(CUT),
            Form::Cgi { torn, .. } if !torn.is_empty() => Ending::NoHead(format!("{CUT}'s head")),
            Form::Http { status: Some(_), .. } => Ending::Whole,
            Form::Cgi { .. } | Form::Http { .. } => Ending::Nothing,
        }
    }
}

fn take_cgi(answer: &mut HttpAnswer, torn: &mut Vec<u8>, bytes: &[u8], out: &mut Vec<u8>) -> Taken {
    let had_switched = answer.has_switched();
    let mut joined = std::mem::take(torn);
    let mut rest = if joined.is_empty() {
        bytes
    } else {
        joined.extend_from_slice(bytes);
        &joined[..]
    };
    loop {
        let (used, part) = match answer.take(rest) {
            Ok(taken) => taken,
            Err(malformed) => return Taken::Malformed(malformed),
        };
        match &part {
            Part::Head(head) => out.extend_from_slice(head),
            Part::Body(range) => out.extend_from_slice(&rest[range.clone()]),
            Part::More | Part::End => {}
        }
        rest = &rest[used..];
        if part == Part::End {
            let keeps = answer.keeps() && rest.is_empty();
            return Taken::End { keeps };
        }
        if part == Part::More && used == 0 {
            *torn = rest.to_vec();
            return match answer.has_switched() && !had_switched {
                true => Taken::Switched,
                false => Taken::More,
            };
        }
    }
}

/// The number in a status line; 0: it is none.
fn status_of(line: &[u8]) -> u16 {
    let text = std::str::from_utf8(line).ok();
    let number = text.and_then(|text| text.strip_prefix("HTTP/1.")?.get(2..)?.parse().ok());
    number.unwrap_or(0)
}
