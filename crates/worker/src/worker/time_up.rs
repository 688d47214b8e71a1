//! What a client reads whose request took longer than `request_terminate_timeout`.

use fastcgi::{Output, ProtocolStatus};

pub(super) const TEXT: &[u8] =
    b"Status: 504 Gateway Timeout\r\nContent-Type: text/plain; charset=UTF-8\r\n\r\n\
                      The application did not answer in time.\n";

/// The whole answer to a request with this number, as records.
pub(super) fn answer(request_id: u16) -> Vec<u8> {
    let mut output = Output::new();
    output.begin(request_id);
    output.stdout(TEXT);
    output.end(0, ProtocolStatus::RequestComplete);
    output.pending().to_vec()
}
