//! Fuzz targets for the input of a runtime, from clients and programs.

use forkyard_fuzz::{Target, target};

/// All fuzz targets of this crate.
pub const TARGETS: &[Target] = &[
    target("cgi_variables", 1024, crate::cgi::fuzz::variables),
    target("http_request", 1024, crate::http::fuzz::request),
    target("cgi_head", 1024, crate::cgi::fuzz::head),
    target("http_answer", 1024, crate::http::fuzz::answer),
    target("http_table", 800, crate::http::fuzz::table),
];

#[cfg(test)]
mod tests {
    #[test]
    fn every_parser_keeps_its_promises_whatever_it_is_given() {
        forkyard_fuzz::check(super::TARGETS);
    }
}
