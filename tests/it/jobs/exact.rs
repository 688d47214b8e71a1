use crate::support::tests;
use std::process::Command;

fn soak(count: u32, deeds: &str) {
    let output = Command::new("python3")
        .args(["-B", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/soak/jobs.py")])
        .args([
            &count.to_string(),
            "--deeds",
            deeds,
            "--seed",
            "7",
            "--pause",
            "0.1",
        ])
        .args([
            "--php",
            env!("FORKYARD_PHP"),
            "--program",
            env!("CARGO_BIN_EXE_forkyard"),
        ])
        .output()
        .expect("python3");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}{errors}");
    for line in [
        &format!("{count} jobs, "),
        "missing: 0\n",
        "at once: 0\n",
        "a start twice, or out of order: 0\n",
        "again without an end: 0\n",
    ] {
        assert!(said.contains(line), "{line} is not in {said}{errors}");
    }
    for deed in deeds.split(',') {
        assert!(
            said.contains(&format!(" {deed}")),
            "nothing was done about {deed}: {said}"
        );
    }
}

tests! {
    fn jobs_are_exact_while_workers_and_the_process_that_keeps_them_are_killed() => soak(100, "worker,jobs,worker,jobs");
    fn jobs_are_exact_over_reloads_upgrades_and_killed_masters() => soak(100, "reload,upgrade,master");
    fn jobs_are_exact_when_the_whole_daemon_is_killed() => soak(100, "keeper,worker,all");
}
