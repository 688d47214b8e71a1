//! Nothing to build yet beyond Rust.
fn main() {}
