//! Fuzz targets: what workers send for the log.

use forkyard_fuzz::{Target, target};

pub const TARGETS: &[Target] = &[target("log_message", 400, crate::logs::fuzz::message)];

#[cfg(test)]
mod tests {
    #[test]
    fn every_parser_keeps_its_promises_whatever_it_is_given() {
        forkyard_fuzz::check(super::TARGETS);
    }
}
