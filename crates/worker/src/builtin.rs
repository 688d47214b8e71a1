//! Answers the pool's status and ping paths.

use super::context::Settings;
use super::page::Page;
use super::snapshot;
use fastcgi::Params;
use forkyard_scoreboard::RequestStage;
use forkyard_scoreboard::status::{self, Snapshot};
use std::os::fd::BorrowedFd;

/// The answer to a request for the pool's status or ping path, after `extra_headers`.
pub(super) fn answer(
    settings: &Settings,
    page: &Page,
    listener: BorrowedFd<'_>,
    params: &Params,
    uri: &[u8],
    extra_headers: &[u8],
) -> Option<Vec<u8>> {
    let pages = &settings.pool.pages;
    let is = |path: &Option<String>| path.as_ref().is_some_and(|path| path.as_bytes() == uri);
    let param = |name: &[u8]| params.get(name).unwrap_or_default();
    let method = param(b"REQUEST_METHOD");
    let answer = if is(&pages.ping_path) {
        status::ping(method, &pages.ping_response)
    } else if is(&pages.status_path) {
        page.writer().stage(RequestStage::Executing);
        let snapshot = snapshot(settings, page, listener);
        status::status(method, param(b"QUERY_STRING"), &snapshot)
    } else {
        return None;
    };
    Some(snapshot::encode(&answer, extra_headers))
}

pub(super) fn snapshot(settings: &Settings, page: &Page, listener: BorrowedFd<'_>) -> Snapshot {
    snapshot::take(
        &settings.pool.name,
        settings.pool.pm.name(),
        settings.started,
        &page.board,
        listener,
        settings.pool.application.has_memory_peak(),
    )
}
