//! A request, as a runtime sees it.

use super::builtin;
use super::dead_work::Dead;
use super::service::Service;
use fastcgi::{Params, Role};
use forkyard_base::tick::Tick;
use forkyard_scoreboard::RequestStage;
use forkyard_scoreboard::slot_writer::Description;
use forkyard_sys::clock;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// nginx's status of a request whose client has left.
pub const CLIENT_CLOSED: u16 = 499;

/// The client disconnected or timed out (`client_timeout`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the client is gone")]
pub struct ClientGone;

/// One request, borrowed by the runtime until its answer is complete.
#[derive(Debug)]
pub struct Request<'w> {
    service: &'w mut Service,
    params: Box<Params>,
}

impl<'w> Request<'w> {
    /// Moves the parameters out of the connection, because a runtime may continue after the answer. The connection
    /// reuses an earlier request's memory.
    pub(super) fn new(service: &'w mut Service) -> Request<'w> {
        let mut params = service.spare_params.take().unwrap_or_default();
        if let Some(connection) = service.current_mut() {
            std::mem::swap(&mut params, connection.responder.params_mut());
        }
        Request { service, params }
    }

    /// Returns the parameters' memory for the next request.
    pub fn release(self) {
        let Request { service, mut params } = self;
        params.clear();
        service.spare_params = Some(params);
    }

    /// The parameters, in order of arrival.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The parameters, for corrections.
    pub fn params_mut(&mut self) -> &mut Params {
        &mut self.params
    }

    /// A parameter's value; empty if missing.
    pub fn param(&self, name: &[u8]) -> &[u8] {
        self.params.get(name).unwrap_or_default()
    }

    /// Whether a script, after resolving links, is a file outside of the generation's release and of `release_shared`,
    /// although it is named there. It must not run.
    pub fn leads_out(&self, script: &[u8]) -> bool {
        self.service.release.leads_out(script)
    }

    /// Whether the runtime should name the files that this request includes: one of the worker's first in a release.
    pub fn looks_at_files(&mut self) -> bool {
        self.service.release.looks_at_files()
    }

    /// Takes a file that the request has included, without links.
    pub fn included(&self, file: &[u8]) {
        self.service.release.included(file, &self.service.page);
    }

    /// Shows the request in the scoreboard.
    pub fn describe(&mut self, about: &Description<'_>) {
        self.service.describe(about, &self.params);
    }

    /// Shows the request in the scoreboard, from its current parameters.
    pub fn describe_from_params(&mut self) {
        self.service.describe(&description(&self.params), &self.params);
    }

    /// Enters a stage: INFO, EXECUTING or END. The worker's loop enters the others.
    pub fn set_stage(&mut self, stage: RequestStage) {
        let is_over = self.service.finished && stage != RequestStage::End;
        if matches!(
            stage,
            RequestStage::Info | RequestStage::Executing | RequestStage::End
        ) && !is_over
        {
            self.service.stage(stage);
        }
    }

    /// The status for the access log, if it differs from the one sent.
    pub fn log_status(&mut self, status: u16) {
        self.service.tally.answer.set(status);
        if let Some(recorder) = &mut self.service.recorder {
            recorder.status(status);
        }
    }

    /// The status for the access log of a request that ended because its client had left.
    pub fn log_client_gone(&mut self) {
        self.log_status(CLIENT_CLOSED);
    }

    /// Records the peak memory in bytes.
    pub fn set_memory(&mut self, bytes: u64) {
        self.service.memory(bytes);
    }

    /// Adds the CPU time and peak memory of a reaped program (wait4(2)). The access log gets these itself.
    pub fn count_waited(&mut self, cpu_micros: u64, memory_bytes: u64) {
        self.service.program_micros = self.service.program_micros.saturating_add(cpu_micros);
        self.set_memory(memory_bytes);
    }

    /// Returns when the request began, and how long the one before it took.
    pub fn timing(&self) -> (Tick, Duration) {
        (self.service.taken, self.service.took[0])
    }

    pub fn logs_usage(&self) -> bool {
        let recorder = self.service.recorder.as_ref();
        recorder.is_some_and(|recorder| recorder.wants_usage())
    }

    pub fn count_program(&mut self, cpu_micros: u64, memory_bytes: u64) {
        self.service.program_micros = self.service.program_micros.saturating_add(cpu_micros);
        if let Some(recorder) = &mut self.service.recorder {
            recorder.program_cpu(cpu_micros);
        }
        self.set_memory(memory_bytes);
    }

    pub fn role(&self) -> Role {
        let connection = self.service.current();
        connection.map_or(Role::Responder, |connection| connection.responder.role())
    }

    /// The application's status in the answer's end; 0 by default.
    pub fn set_app_status(&mut self, status: u32) {
        self.service.app_status = status;
    }

    /// Answers the pool's status and ping paths. `extra_headers`: complete header lines that come first (`X-Powered-By:
    /// …\r\n`).
    pub fn answer_builtin(&mut self, uri: &[u8], extra_headers: &[u8]) -> bool {
        let Service {
            settings,
            page,
            listener,
            ..
        } = &*self.service;
        let listener = listener.as_fd();
        let answer = builtin::answer(settings, page, listener, &self.params, uri, extra_headers);
        answer.is_some_and(|answer| {
            let _ = self.write(&answer);
            true
        })
    }

    /// Describes the request and answers the status and ping paths. Returns true if the application should answer.
    pub fn is_for_application(&mut self) -> bool {
        self.describe_from_params();
        let uri = self.param(b"SCRIPT_NAME").to_vec();
        let is_ours = !self.answer_builtin(&uri, b"");
        if is_ours {
            self.set_stage(RequestStage::Executing);
        }
        is_ours
    }

    /// The pool's status from the scoreboard.
    pub fn pool_status(&self) -> forkyard_scoreboard::status::Snapshot {
        let service = &self.service;
        builtin::snapshot(&service.settings, &service.page, service.listener.as_fd())
    }

    /// Reads from the body; 0 at its end.
    ///
    /// # Errors
    /// The client is gone.
    pub fn read_body(&mut self, buffer: &mut [u8]) -> Result<usize, ClientGone> {
        self.service.read_body(buffer)
    }

    /// Reads from the body without waiting; `None`: no data yet.
    ///
    /// # Errors
    /// The client is gone.
    pub fn body_now(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, ClientGone> {
        self.service.body_now(buffer)
    }

    pub fn connection(&self) -> Option<BorrowedFd<'_>> {
        self.service.current().map(|connection| connection.socket())
    }

    pub fn client_timeout(&self) -> Duration {
        self.service.settings.pool.serving.client_timeout
    }

    /// The pool's name, for the log.
    pub fn pool(&self) -> &str {
        &self.service.settings.pool.name
    }

    pub fn catches_output(&self) -> bool {
        self.service.settings.pool.logs.catch_workers_output
    }

    /// Writes output, buffered: the CGI response's headers, an empty line, the body.
    ///
    /// # Errors
    /// The client is gone.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), ClientGone> {
        self.service.write(bytes)
    }

    /// Writes to the web server's error log, buffered.
    ///
    /// # Errors
    /// The client is gone.
    pub fn write_error(&mut self, bytes: &[u8]) -> Result<(), ClientGone> {
        self.service.write_error(bytes)
    }

    /// Sends buffered output.
    ///
    /// # Errors
    /// The client is gone.
    pub fn flush(&mut self) -> Result<(), ClientGone> {
        self.service.flush()
    }

    /// Closes the connection mid-answer, so that the web server sees an incomplete answer.
    pub fn break_off(&mut self) {
        self.service.break_off();
    }

    /// Ends the answer while the runtime continues. Optional otherwise.
    ///
    /// # Errors
    /// The client is gone.
    pub fn finish(&mut self) -> Result<(), ClientGone> {
        let result = self.service.finish();
        self.service.tally.ended.get_or_insert_with(clock::now);
        self.service.stage(RequestStage::End);
        if !self.service.has_input() {
            self.service.hold_current();
        }
        result
    }

    /// [`Request::finish`] for a runtime that is about to return. The connection stays current, because holding it
    /// would cost more.
    ///
    /// # Errors
    /// The client is gone.
    pub fn end(&mut self) -> Result<(), ClientGone> {
        self.service.stage(RequestStage::End);
        self.service.finish()
    }

    /// Ends a request that must not begin.
    pub(super) fn die(&mut self, dead: Dead, now: Tick) {
        self.service.tally.dead = Some(dead);
        match dead.answer(now.as_nanos() >> 10) {
            Some(answer) => {
                let _ = self.write(answer.as_bytes());
            }
            None => {
                self.log_client_gone();
                self.break_off();
            }
        }
    }

    /// Makes the worker exit after this request, as `max_requests` does.
    pub fn retire(&mut self) {
        self.service.wear.is_over = true;
    }

    /// Requests out-of-band work ([`super::Worker::has_out_of_band_work`]).
    pub fn want_work(&mut self) {
        self.service.router.want = self.service.router.want.ask();
    }

    /// Whether the answer has ended.
    pub fn is_finished(&self) -> bool {
        self.service.finished
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

/// Describes a request from its parameters.
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

pub(super) fn parse_length(text: &[u8]) -> u64 {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}
