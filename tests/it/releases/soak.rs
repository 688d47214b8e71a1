//! Deploys again and again while visitors fetch pages and assets: a short `scripts/soak deployments`.

use crate::support::prelude::*;

#[test]
fn nothing_is_lost_in_deployments_under_load() {
    let output = Command::new("python3")
        .args([
            "-B",
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/soak/deployments.py"),
            // A gradual one of PHP, and one of WSGI.
            "12",
            "--visitors",
            "4",
            // Between nginx's looks at files, which the links' moves are to meet.
            "--stretch",
            "300",
            "--steps",
            "50",
        ])
        .args(["--php", env!("FORKYARD_PHP")])
        .args(["--program", env!("CARGO_BIN_EXE_forkyard")])
        .output()
        .expect("python3");
    let said = text_of(&[output.stdout, output.stderr].concat());
    assert!(output.status.success(), "{said}");
    for part in [
        "12 deployments in ",
        "{'deployed': 12}",
        "24 pages kept open",
        "0 lost, 0 mixed, 0 stale, 0 missing, 0 wrong",
        "at once: 11, ",
        "gradual: 1, ",
    ] {
        assert_contains(&said, part);
    }
}
