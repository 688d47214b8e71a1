//! Fuzz targets of the router's input.

use forkyard_fuzz::{Target, target};

pub const TARGETS: &[Target] = &[
    target("router_requests", 1024, crate::router::fuzz::requests),
    target("router_bodies", 1024, crate::router::fuzz::bodies),
];

#[cfg(test)]
mod tests {
    #[test]
    fn every_parser_keeps_its_promises_whatever_it_is_given() {
        forkyard_fuzz::check(super::TARGETS);
    }
}
