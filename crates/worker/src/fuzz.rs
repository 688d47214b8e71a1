//! Fuzz targets for the input of a worker, from clients, programs and other workers.

use forkyard_fuzz::{Grammar, Target, target, words};

/// All fuzz targets of this crate.
#[rustfmt::skip]
pub const TARGETS: &[Target] = &[
    target("cgi_variables", Grammar::Lines, words::CGI, 1024, crate::runtime::cgi::fuzz::variables),
    target("http_request", Grammar::Lines, words::CGI, 1024, crate::runtime::http::fuzz::request),
    target("access_lines", Grammar::Lines, words::MARKUP, 800, crate::worker::fuzz::lines),
    target("cgi_head", Grammar::Lines, words::HEADERS, 1024, crate::runtime::cgi::fuzz::head),
    target("http_answer", Grammar::Lines, words::HEADERS, 1024, crate::runtime::http::fuzz::answer),
    target("access_head", Grammar::Lines, words::HEADERS, 600, crate::worker::fuzz::head),
    target("worker_note", Grammar::Bytes, &[], 40, crate::worker::fuzz::note),
    target("http_table", Grammar::Bytes, &[], 800, crate::runtime::http::fuzz::table),
    target("slowlog_told", Grammar::Lines, words::CALLS, 800, crate::slowlog::fuzz::told),
    target("slowlog_php", Grammar::Bytes, &[], 1024, crate::slowlog::fuzz::php),
    target("access_format", Grammar::Bytes, words::ACCESS, 200, crate::worker::fuzz::format),
];

#[cfg(test)]
mod tests {
    #[test]
    fn every_parser_keeps_its_promises_whatever_it_is_given() {
        forkyard_fuzz::check(super::TARGETS);
    }
}
