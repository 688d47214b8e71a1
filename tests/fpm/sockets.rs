//! Socket files that were deleted, which php-fpm never binds again, or that have too long a name.

use super::pair::{Fpm, is_possible};
use crate::support::prelude::*;

#[test]
fn a_reload_brings_a_deleted_socket_back_as_php_fpm_s_does_not() {
    skip_if!(!is_possible());
    let pool = "listen = {DIR}/main.sock\nlisten.mode = 0666";
    let daemons = Fpm::both("", pool, &[("ok.php", "<?php echo 'fine';")]);
    let serves = |fpm: &Fpm| {
        let mut client = Client::connect(&fpm.path("main.sock")).ok()?;
        let answer = client.request(&fpm.params("ok.php", ""), b"").ok()?;
        Some(answer.body() == "fine")
    };
    for fpm in &daemons {
        assert_eq!(serves(fpm), Some(true));
        fs::remove_file(fpm.path("main.sock")).expect("it is there");
        fpm.signal(Signal::SIGUSR2);
    }
    let [stock, ours] = &daemons;
    stock.wait_for("error", "using inherited socket fd=");
    ours.wait_for("error", "its socket's file was gone: it is bound again");
    assert_eq!(serves(stock), None, "{}", stock.read("error"));
    assert_eq!(serves(ours), Some(true), "{}", ours.read("error"));
}

#[test]
fn a_path_that_is_too_long_is_cut_as_in_php_fpm() {
    skip_if!(!is_possible());
    let name = "long".repeat(30);
    let pool = format!("listen = {{DIR}}/{name}.sock\nlisten.mode = 0666");
    let daemons = Fpm::both("", &pool, &[("ok.php", "<?php echo 'fine';")]);
    for (fpm, says) in daemons.iter().zip([env!("FORKYARD_PHP") != "8.2", true]) {
        let path = fpm.path(&name).display().to_string();
        let cut = &path[..107];
        let mut client = Client::connect(Path::new(cut)).expect("the cut path");
        let answer = client.request(&fpm.params("ok.php", ""), b"").expect("an answer");
        assert_eq!(answer.body(), "fine");
        let directory = fpm.path("").display().to_string();
        let line = format!(
            "WARNING: [pool www] cannot bind to UNIX socket 'DIR/{name}.sock' as path is too long (found length: {}, maximal \
             length: 108), trying cut socket path instead '{}'",
            path.len() + ".sock".len(),
            cut.replace(directory.trim_end_matches('/'), "DIR")
        );
        let log = fpm.read("error");
        assert_eq!(log.contains(&line), says, "{line}\n{log}");
    }
}
