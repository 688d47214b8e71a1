//! What a worker answers itself: the pool's status and ping.

use super::request::Request;

/// Answers the request if `uri` is the pool's status or ping path.
pub(super) fn answer(request: &mut Request<'_>, uri: &[u8], extra_headers: &[u8]) -> bool {
    let pool = &request.service().settings.pool;
    let is = |path: &Option<String>| path.as_ref().is_some_and(|path| path.as_bytes() == uri);
    if is(&pool.ping_path) {
        let body = pool.ping_response.clone();
        let _ = request.write(extra_headers);
        let _ = request.write(b"Content-type: text/plain;charset=UTF-8\r\nExpires: Thu, 01 Jan 1970 00:00:00 GMT\r\nCache-Control: no-cache, no-store, must-revalidate, max-age=0\r\n\r\n");
        let _ = request.write(body.as_bytes());
        return true;
    }
    false
}
