//! What a worker answers itself: the pool's status and ping.

use super::request::Request;
use super::service::Service;
use super::snapshot;
use crate::scoreboard::Stage;
use crate::status::{self, Snapshot};
use std::os::fd::AsFd;

/// Answers the request if `uri` is the pool's status or ping path.
pub(super) fn answer(request: &mut Request<'_>, uri: &[u8], extra_headers: &[u8]) -> bool {
    let pool = &request.service().settings.pool;
    let is = |path: &Option<String>| path.as_ref().is_some_and(|path| path.as_bytes() == uri);
    let method = request.param(b"REQUEST_METHOD");
    let answer = if is(&pool.ping_path) {
        status::ping(method, &pool.ping_response)
    } else if is(&pool.status_path) {
        request.service().stamp().stage(Stage::Executing);
        status::status(
            method,
            request.param(b"QUERY_STRING"),
            &snapshot(request.service()),
        )
    } else {
        return false;
    };
    // A client that is gone needs no answer.
    let _ = request.write(&snapshot::encode(&answer, extra_headers));
    true
}

/// The pool as its scoreboard shows it now.
pub(super) fn snapshot(service: &Service) -> Snapshot {
    let settings = &service.settings;
    snapshot::take(
        &settings.pool.name,
        settings.pool.pm.name(),
        settings.started,
        &service.board,
        service.listener.as_fd(),
        settings.pool.application.has_memory_peak(),
    )
}
