//! Fuzz targets for the input of a worker, from clients, programs and other workers.

use forkyard_fuzz::{Target, target};

/// All fuzz targets of this crate.
pub const TARGETS: &[Target] = &[
    target("cgi_variables", 1024, crate::runtime::cgi::fuzz::variables),
    target("http_request", 1024, crate::runtime::http::fuzz::request),
    target("access_lines", 800, crate::worker::fuzz::lines),
    target("cgi_head", 1024, crate::runtime::cgi::fuzz::head),
    target("http_answer", 1024, crate::runtime::http::fuzz::answer),
    target("access_head", 600, crate::worker::fuzz::head),
    target("worker_note", 40, crate::worker::fuzz::note),
    target("http_table", 800, crate::runtime::http::fuzz::table),
    target("slowlog_told", 800, crate::slowlog::fuzz::told),
    target("slowlog_php", 1024, crate::slowlog::fuzz::php),
    target("access_format", 200, crate::worker::fuzz::format),
];

#[cfg(test)]
mod tests {
    #[test]
    fn every_parser_keeps_its_promises_whatever_it_is_given() {
        forkyard_fuzz::check(super::TARGETS);
    }
}
