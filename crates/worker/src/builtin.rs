//! Answers the pool's status and ping paths.

use super::context::Settings;
use super::request::Request;
use super::service::Service;
use super::snapshot;
use fastcgi::Params;
use forkyard_config::Pool;
use forkyard_scoreboard::status::{self, Snapshot, StatusAnswer};
use forkyard_scoreboard::{Reader, RequestStage};
use std::os::fd::{AsFd, BorrowedFd};

pub(super) fn answer(request: &mut Request<'_>, uri: &[u8], extra_headers: &[u8]) -> bool {
    let service = request.service();
    let is_status = || service.slot_writer().stage(RequestStage::Executing);
    let taken = || snapshot(service);
    let Some(answer) = of(&service.settings.pool, request.params(), uri, is_status, taken) else {
        return false;
    };
    let _ = request.write(&snapshot::encode(&answer, extra_headers));
    true
}

pub(super) fn of(
    pool: &Pool,
    params: &Params,
    uri: &[u8],
    begins: impl FnOnce(),
    snapshot: impl FnOnce() -> Snapshot,
) -> Option<StatusAnswer> {
    let is = |path: &Option<String>| path.as_ref().is_some_and(|path| path.as_bytes() == uri);
    let param = |name: &[u8]| params.get(name).unwrap_or_default();
    if is(&pool.pages.ping_path) {
        Some(status::ping(param(b"REQUEST_METHOD"), &pool.pages.ping_response))
    } else if is(&pool.pages.status_path) {
        begins();
        Some(status::status(
            param(b"REQUEST_METHOD"),
            param(b"QUERY_STRING"),
            &snapshot(),
        ))
    } else {
        None
    }
}

pub(super) fn snapshot(service: &Service) -> Snapshot {
    of_pool(&service.settings, &service.page.board, service.listener.as_fd())
}

pub(super) fn of_pool(settings: &Settings, board: &Reader, listener: BorrowedFd<'_>) -> Snapshot {
    snapshot::take(
        &settings.pool.name,
        settings.pool.pm.name(),
        settings.started,
        board,
        listener,
        settings.pool.application.has_memory_peak(),
    )
}
