//! Writes an answer and its end.

use super::Service;
use crate::request::ClientGone;
use crate::transfer::{drain_input, send_pieces, send_some};
use fastcgi::{MAX_CONTENT, Output, ProtocolStatus, RecordType, header};
use std::io::IoSlice;

const GATHER_BYTES: usize = 16 * 1024;
/// Records per gathered write, two pieces each; the kernel allows 1024 (IOV_MAX).
const GATHER_RECORDS: usize = 256;

impl Service {
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), ClientGone> {
        if let Some(recorder) = &mut self.recorder {
            recorder.output(bytes);
        }
        self.tally.answer.take(bytes);
        if self.finished || self.client_gone {
            return Err(ClientGone);
        }
        let result = if bytes.len() >= GATHER_BYTES && bytes.len() > self.output.room() {
            self.write_gathered(bytes)
        } else {
            self.write_buffered(bytes, Output::stdout)
        };
        self.note(result)
    }

    pub(crate) fn write_error(&mut self, bytes: &[u8]) -> Result<(), ClientGone> {
        if self.finished || self.client_gone {
            return Err(ClientGone);
        }
        let result = self.write_buffered(bytes, Output::stderr);
        self.note(result)
    }

    pub(crate) fn flush(&mut self) -> Result<(), ClientGone> {
        if self.client_gone {
            return Err(ClientGone);
        }
        let result = self.drain_output();
        self.note(result)
    }

    fn note(&mut self, result: Result<(), ClientGone>) -> Result<(), ClientGone> {
        self.client_gone |= result.is_err();
        result
    }

    fn write_buffered(
        &mut self,
        mut bytes: &[u8],
        put: fn(&mut Output, &[u8]) -> usize,
    ) -> Result<(), ClientGone> {
        loop {
            let taken = put(&mut self.output, bytes);
            bytes = &bytes[taken..];
            if bytes.is_empty() {
                return Ok(());
            }
            self.drain_output()?;
        }
    }

    fn drain_output(&mut self) -> Result<(), ClientGone> {
        let Some(connection) = self.current.as_deref() else {
            return Err(ClientGone);
        };
        let timeout = self.settings.pool.serving.client_timeout;
        loop {
            let pending = self.output.pending();
            if pending.is_empty() {
                return Ok(());
            }
            self.timeout_response.begin_output();
            let count = send_some(connection, pending, timeout)?;
            self.tally.sent += count as u64;
            self.output.consume(count);
        }
    }

    fn write_gathered(&mut self, bytes: &[u8]) -> Result<(), ClientGone> {
        const PADDING: [u8; 8] = [0; 8];
        let id = self.current().ok_or(ClientGone)?.responder.request_id();
        for batch in bytes.chunks(GATHER_RECORDS * MAX_CONTENT) {
            let chunks: Vec<&[u8]> = batch.chunks(MAX_CONTENT).collect();
            let padding = |chunk: &[u8]| (8 - chunk.len() % 8) % 8;
            let headers: Vec<[u8; 8]> = chunks
                .iter()
                .map(|chunk| header(RecordType::Stdout, id, chunk.len() as u16, padding(chunk) as u8))
                .collect();
            let buffered = self.output.pending();
            let before = buffered.len();
            let mut pieces = vec![IoSlice::new(buffered)];
            for (header, chunk) in headers.iter().zip(&chunks) {
                pieces.push(IoSlice::new(header));
                pieces.push(IoSlice::new(chunk));
            }
            if let Some(last) = chunks.last() {
                pieces.push(IoSlice::new(&PADDING[..padding(last)]));
            }
            let Some(connection) = self.current.as_deref() else {
                return Err(ClientGone);
            };
            self.timeout_response.begin_output();
            let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
            send_pieces(connection, &mut pieces, self.settings.pool.serving.client_timeout)?;
            self.tally.sent += bytes as u64;
            self.output.consume(before);
        }
        Ok(())
    }

    pub(super) fn send_all(&mut self, mut bytes: &[u8]) -> Result<(), ClientGone> {
        let Some(connection) = self.current.as_deref() else {
            return Err(ClientGone);
        };
        let timeout = self.settings.pool.serving.client_timeout;
        while !bytes.is_empty() {
            let count = send_some(connection, bytes, timeout)?;
            self.tally.sent += count as u64;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    pub(crate) fn break_off(&mut self) {
        let _ = self.flush();
        self.client_gone = true;
    }

    pub(crate) fn finish(&mut self) -> Result<(), ClientGone> {
        if let Some(recorder) = &mut self.recorder {
            recorder.finish(self.page.board.header());
        }
        if self.finished {
            return if self.client_gone { Err(ClientGone) } else { Ok(()) };
        }
        if !self.client_gone {
            self.output.end(self.app_status, ProtocolStatus::RequestComplete);
            self.refuse_more();
            let result = self.drain_output();
            self.client_gone = result.is_err();
        }
        if self.client_gone {
            self.output.abandon();
        }
        self.finished = true;
        self.timeout_response.disarm();
        let Some(connection) = self.current.as_deref_mut() else {
            return Ok(());
        };
        let keep = connection.keeps() && !self.client_gone && !self.input_ended;
        connection.responder.finish();
        self.skip_body();
        if !keep {
            self.hang_up();
        }
        if self.client_gone { Err(ClientGone) } else { Ok(()) }
    }

    fn hang_up(&mut self) {
        let Some(connection) = self.current.take() else {
            return;
        };
        // Unread client data makes close(2) reset the connection and drop the answer.
        if !self.client_gone
            && !self.input_ended
            && (self.has_input() || !connection.responder.is_between_requests())
        {
            drain_input(&connection, &mut self.input);
        }
        self.close(connection);
    }
}
