//! The forkyard daemon and its subcommands.
fn main() {}
