//! Restores a worker after each of many requests, of two users, with all extensions: a short `scripts/soak boot-once`.

use super::PHP;
use std::process::Command;

#[test]
fn memory_is_what_it_was_after_a_mixture_of_all_extensions() {
    let output = Command::new("python3")
        .args([
            "-B",
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/soak/boot_once.py"),
        ])
        .args(["--requests", "40", "--seed", "5", "--php", PHP])
        .args(["--program", env!("CARGO_BIN_EXE_forkyard")])
        .output()
        .expect("python3");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}{errors}");
    for part in [
        "40 requests in ",
        "4 requests in ",
        "memory is what it was after [1, 10, 40] requests",
        "curl",
        "dom",
        "apcu",
        "each once",
    ] {
        assert!(said.contains(part), "{part} is not in {said}{errors}");
    }
}
