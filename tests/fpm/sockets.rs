//! A socket whose file was deleted: php-fpm's never comes back.

use super::pair::{Fpm, is_possible};
use crate::support::fcgi::Client;
use nix::sys::signal::Signal;

#[test]
fn a_reload_brings_a_deleted_socket_back_as_php_fpm_s_does_not() {
    if !is_possible() {
        return;
    }
    let pool = "listen = {DIR}/main.sock\nlisten.mode = 0666";
    let daemons = Fpm::both("", pool, &[("ok.php", "<?php echo 'fine';")]);
    let serves = |fpm: &Fpm| {
        let mut client = Client::connect(&fpm.path("main.sock")).ok()?;
        let answer = client.request(&fpm.params("ok.php", ""), b"").ok()?;
        Some(answer.body() == "fine")
    };
    for fpm in &daemons {
        assert_eq!(serves(fpm), Some(true));
        std::fs::remove_file(fpm.path("main.sock")).expect("it is there");
        fpm.signal(Signal::SIGUSR2);
    }
    let [stock, ours] = &daemons;
    stock.wait_for("error", "using inherited socket fd=");
    ours.wait_for("error", "its socket's file was gone: it is bound again");
    assert_eq!(serves(stock), None, "{}", stock.read("error"));
    assert_eq!(serves(ours), Some(true), "{}", ours.read("error"));
}
