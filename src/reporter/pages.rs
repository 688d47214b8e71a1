//! What a request is answered.

use super::brief::Brief;
use crate::fastcgi::Params;
use crate::status::{self, Snapshot};
use crate::worker::snapshot::encode;

/// What php-fpm answers where there is no such script.
const NOT_FOUND: &[u8] = b"Status: 404 Not Found\r\nContent-type: text/html; charset=UTF-8\r\n\r\n";
const NOT_FOUND_BODY: &[u8] = b"File not found.\n";
const NOT_FOUND_ERROR: &[u8] = b"Primary script unknown";

/// The pages of one pool.
#[derive(Debug)]
pub struct Pages<'b> {
    brief: &'b Brief,
}

/// An answer: STDOUT, and what goes to STDERR.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) output: Vec<u8>,
    pub(super) error: &'static [u8],
}

impl<'b> Pages<'b> {
    /// The pages that a pool has.
    pub fn new(brief: &'b Brief) -> Pages<'b> {
        Pages { brief }
    }

    /// The answer to a request. `snapshot` is called only where it is to be shown.
    pub(super) fn answer(&self, params: &Params, snapshot: &mut dyn FnMut() -> Snapshot) -> Page {
        let param = |name: &[u8]| params.get(name).unwrap_or_default();
        let uri = param(b"SCRIPT_NAME");
        let method = param(b"REQUEST_METHOD");
        let ping_path = self.brief.ping_path.as_ref();
        let answer = if ping_path.is_some_and(|path| path.as_bytes() == uri) {
            status::ping(method, &self.brief.ping_response)
        } else if self.brief.status_path.as_bytes() == uri {
            status::status(method, param(b"QUERY_STRING"), &snapshot())
        } else {
            let body: &[u8] = if method == b"HEAD" { b"" } else { NOT_FOUND_BODY };
            return Page {
                output: [NOT_FOUND, body].concat(),
                error: NOT_FOUND_ERROR,
            };
        };
        Page {
            output: encode(&answer, b""),
            error: b"",
        }
    }
}
