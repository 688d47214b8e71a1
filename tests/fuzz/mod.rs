//! Every parser that other crates can see, with anything: see `forkyard_fuzz`.

#[path = "targets.rs"]
mod targets;

#[test]
fn every_parser_keeps_its_promises_whatever_it_is_given() {
    forkyard_fuzz::check(targets::TARGETS);
}
