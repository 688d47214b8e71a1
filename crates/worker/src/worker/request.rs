//! One request, as a runtime sees it.

use super::builtin;
use super::service::Service;
use crate::scoreboard::RequestStage;
use crate::scoreboard::slot_writer::Description;
use fastcgi::{Params, Role};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The client closed the connection, or was silent or deaf for longer than `client_timeout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientGone;

impl fmt::Display for ClientGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client is gone")
    }
}

impl std::error::Error for ClientGone {}

/// One request. Borrowed by the runtime until its answer is done.
#[derive(Debug)]
pub struct Request<'w> {
    service: &'w mut Service,
    params: Params,
}

impl<'w> Request<'w> {
    /// The parameters are taken out of the connection, so that they outlive it: a runtime may go on after the answer
    /// has ended. The connection gets the memory of an earlier request's.
    pub(super) fn new(service: &'w mut Service) -> Request<'w> {
        let mut params = std::mem::take(&mut service.spare_params);
        if let Some(connection) = service.current_mut() {
            std::mem::swap(&mut params, connection.responder.params_mut());
        }
        Request { service, params }
    }

    /// Gives the parameters' memory back for the next request.
    pub fn release(self) {
        let Request { service, mut params } = self;
        params.clear();
        service.spare_params = params;
    }

    /// The parameters, in the order in which they came.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The parameters, to be corrected.
    pub fn params_mut(&mut self) -> &mut Params {
        &mut self.params
    }

    /// A parameter's value, empty where there is none.
    pub fn param(&self, name: &[u8]) -> &[u8] {
        self.params.get(name).unwrap_or_default()
    }

    /// Tells the scoreboard what the request is.
    pub fn describe(&mut self, about: &Description<'_>) {
        self.service.describe(about, &self.params);
    }

    /// Tells the scoreboard what the request is, from its parameters as they are now.
    pub fn describe_from_params(&mut self) {
        self.service.describe(&description(&self.params), &self.params);
    }

    /// Enters a stage: INFO, EXECUTING or END; the worker's loop enters the others.
    pub fn set_stage(&mut self, stage: RequestStage) {
        let is_over = self.service.is_finished() && stage != RequestStage::End;
        if matches!(
            stage,
            RequestStage::Info | RequestStage::Executing | RequestStage::End
        ) && !is_over
        {
            self.service.stage(stage);
        }
    }

    /// The status for the access log, if it is not the one that was sent.
    pub fn log_status(&mut self, status: u16) {
        if let Some(recorder) = &mut self.service.recorder {
            recorder.status(status);
        }
    }

    /// Tells the scoreboard the request's peak memory in bytes.
    pub fn set_memory(&mut self, bytes: u64) {
        self.service.memory(bytes);
    }

    /// Counts what a program has used for the request that was waited for (wait4(2)): CPU time, and the most memory that it has
    /// had. The access log counts those by itself.
    pub(crate) fn count_waited(&mut self, cpu_micros: u64, memory_bytes: u64) {
        self.service.program_micros = self.service.program_micros.saturating_add(cpu_micros);
        self.set_memory(memory_bytes);
    }

    /// Whether the access log shows how much processor time or memory a request takes.
    pub(crate) fn logs_usage(&self) -> bool {
        let recorder = self.service.recorder.as_ref();
        recorder.is_some_and(|recorder| recorder.wants_usage())
    }

    /// Counts what a program used on behalf of the request: CPU time, and the memory that it has now.
    pub(crate) fn count_program(&mut self, cpu_micros: u64, memory_bytes: u64) {
        self.service.program_micros = self.service.program_micros.saturating_add(cpu_micros);
        if let Some(recorder) = &mut self.service.recorder {
            recorder.program_cpu(cpu_micros);
        }
        self.set_memory(memory_bytes);
    }

    /// What the web server asks the application to be.
    pub(crate) fn role(&self) -> Role {
        let connection = self.service.current();
        connection.map_or(Role::Responder, |connection| connection.responder.role())
    }

    /// The application's own status, for the end of the answer; 0 if nothing is said.
    pub(crate) fn set_app_status(&mut self, status: u32) {
        self.service.app_status = status;
    }

    /// Answers the request itself if `uri` is the pool's status or ping path. `extra_headers` are whole header lines
    /// that come first (`X-Powered-By: …\r\n`).
    pub fn answer_builtin(&mut self, uri: &[u8], extra_headers: &[u8]) -> bool {
        builtin::answer(self, uri, extra_headers)
    }

    /// Begins the request of an application that knows only its parameters: tells the scoreboard what it is, and
    /// answers it if it is for the pool's status or ping path. True: it is the application's to answer.
    pub fn is_for_application(&mut self) -> bool {
        self.describe_from_params();
        let uri = self.param(b"SCRIPT_NAME").to_vec();
        let is_ours = !self.answer_builtin(&uri, b"");
        if is_ours {
            self.set_stage(RequestStage::Executing);
        }
        is_ours
    }

    /// The pool as its scoreboard shows it now.
    pub fn pool_status(&self) -> crate::status::Snapshot {
        builtin::snapshot(self.service)
    }

    /// Reads the next bytes of the body; 0 at its end.
    ///
    /// # Errors
    /// The client is gone.
    pub fn read_body(&mut self, buffer: &mut [u8]) -> Result<usize, ClientGone> {
        self.service.read_body(buffer)
    }

    /// Reads the next bytes of the body if they are there; 0 at its end, `None` where they have yet to come.
    pub(crate) fn body_now(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, ClientGone> {
        self.service.body_now(buffer)
    }

    /// The connection, to wait for what comes on it.
    pub(crate) fn connection(&self) -> Option<BorrowedFd<'_>> {
        self.service.current().map(|connection| connection.socket())
    }

    pub(crate) fn client_timeout(&self) -> Duration {
        self.service.settings.pool.client_timeout
    }

    /// The pool's name, for the log.
    pub fn pool(&self) -> &str {
        &self.service.settings.pool.name
    }

    /// Whether what an application writes to its standard error is logged (`catch_workers_output`).
    pub(crate) fn catches_output(&self) -> bool {
        self.service.settings.pool.catch_workers_output
    }

    /// Writes output: the CGI response's headers, an empty line, the body. Buffered.
    ///
    /// # Errors
    /// The client is gone.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), ClientGone> {
        self.service.write(bytes)
    }

    /// Writes text for the web server's error log. Buffered.
    ///
    /// # Errors
    /// The client is gone.
    pub fn write_error(&mut self, bytes: &[u8]) -> Result<(), ClientGone> {
        self.service.write_error(bytes)
    }

    /// Sends what is buffered.
    ///
    /// # Errors
    /// The client is gone.
    pub fn flush(&mut self) -> Result<(), ClientGone> {
        self.service.flush()
    }

    /// Closes the connection in the middle of the answer: the rest can't be had, and the web server has to see that.
    pub fn break_off(&mut self) {
        self.service.break_off();
    }

    /// Ends the answer now, while the runtime goes on working. Not needed at the end of an answer.
    ///
    /// # Errors
    /// The client is gone.
    pub fn finish(&mut self) -> Result<(), ClientGone> {
        let result = self.service.finish();
        // Whatever the application does now, it answers no client.
        self.service.stage(RequestStage::End);
        // A connection whose next request has been read in part can't be given to another worker: it stays with this one.
        if !self.service.has_input() {
            self.service.hold_current();
        }
        result
    }

    /// As [`Request::finish`], for a runtime that is about to return. The connection stays current: to look after it
    /// meanwhile would cost more than the moment until the worker does.
    ///
    /// # Errors
    /// The client is gone.
    pub fn end(&mut self) -> Result<(), ClientGone> {
        // A client that has the whole answer finds its line in the access log.
        self.service.stage(RequestStage::End);
        self.service.finish()
    }

    /// Lets the worker end after this request, as with `max_requests`.
    pub fn retire(&mut self) {
        self.service.leaving = true;
    }

    /// Asks for out-of-band work: to be called once when no client waits ([`super::Runtime::work`]).
    pub fn want_work(&mut self) {
        self.service.want = self.service.want.ask();
    }

    /// Whether the answer has ended.
    pub fn is_finished(&self) -> bool {
        self.service.is_finished()
    }

    pub(super) fn service(&self) -> &Service {
        self.service
    }
}

impl std::io::Read for Request<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.read_body(buffer)
            .map_err(|gone| std::io::Error::new(std::io::ErrorKind::ConnectionAborted, gone))
    }
}

impl std::io::Write for Request<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match Request::write(self, bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(gone) => Err(std::io::Error::new(std::io::ErrorKind::BrokenPipe, gone)),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Request::flush(self).map_err(|gone| std::io::Error::new(std::io::ErrorKind::BrokenPipe, gone))
    }
}

/// What a request is, by its parameters.
pub fn description(params: &Params) -> Description<'_> {
    let param = |name: &[u8]| params.get(name).unwrap_or_default();
    Description {
        method: param(b"REQUEST_METHOD"),
        uri: param(b"SCRIPT_NAME"),
        query: param(b"QUERY_STRING"),
        script: param(b"SCRIPT_FILENAME"),
        user: param(b"REMOTE_USER"),
        content_length: parse_length(param(b"CONTENT_LENGTH")),
    }
}

/// A decimal length; 0 where there is none.
pub(super) fn parse_length(text: &[u8]) -> u64 {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}
