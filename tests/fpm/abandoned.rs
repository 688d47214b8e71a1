//! Requests whose client has left: both run them, and forkyard-fpm counts them.

use super::both::forkyard_fpm;
use super::pair::{Fpm, STOCK, is_possible};
use crate::support::prelude::*;

const SCRIPT: &str = "<?php
$times = isset($_SERVER['REQUEST_START']) && isset($_SERVER['REQUEST_TIMEOUT']);
file_put_contents(__DIR__ . '/begun', $_GET['n'] . ($times ? '!' : '') . \"\\n\", FILE_APPEND);
while (isset($_GET['hold']) && !file_exists($_GET['hold'])) { usleep(1000); clearstatcache(); }
echo 'done';";

#[test]
fn abandoned_and_late_requests_run_and_keep_their_parameters() {
    skip_if!(!is_possible());
    for program in [STOCK, forkyard_fpm()] {
        let fpm = Fpm::start(program, "", "", &[("a.php", SCRIPT)]);
        fs::write(fpm.path("begun"), "").expect("writable");
        fs::set_permissions(fpm.path("begun"), Permissions::from_mode(0o666)).expect("it is ours");
        let client = || Client::connect_tcp(&fpm.address).expect("it listens");
        let begun = || fpm.read("begun").lines().map(str::to_owned).collect::<Vec<_>>();
        let go = fpm.path("go").display().to_string();
        let mut held = client();
        held.send(&fpm.params("a.php", &format!("n=held&hold={go}")), b"")
            .expect("send");
        wait_until("the held request", || begun().len() == 1);
        let now = SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("now");
        let params = |name: &str| {
            fpm.params("a.php", &format!("n={name}"))
                .with("REMOTE_ADDR", "198.51.100.7")
                .with("REQUEST_START", &format!("{:.3}", now.as_secs_f64() - 5.0))
                .with("REQUEST_TIMEOUT", "3")
        };
        client().send(&params("left"), b"").expect("send");
        let mut late = client();
        late.send(&params("late"), b"").expect("send");
        fs::write(&go, "").expect("writable");
        // php-fpm waits until the client closes an answered connection.
        for (name, mut client) in [("held", held), ("late", late)] {
            let answer = client
                .answer()
                .unwrap_or_else(|error| panic!("{program} {name}: {error}; {:?}", begun()));
            assert_eq!(answer.body(), "done", "{program}");
        }
        assert_eq!(begun(), ["held", "left!", "late!"], "{program}");
        if program != STOCK {
            let mut command = Command::new(env!("CARGO_BIN_EXE_forkyard"));
            let command = command
                .args(["status", "--socket"])
                .arg(fpm.path("control"))
                .arg("www");
            assert_contains(
                &text_of(&command.output().expect("forkyard").stdout),
                "dead work: ran 2",
            );
        }
    }
}
