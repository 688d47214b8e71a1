//! forkyard-fpm is forkyard by another name.

use super::both::forkyard_fpm;
use super::service::{Daemon, Site};
use crate::support::prelude::*;

const FORKYARD: &str = env!("CARGO_BIN_EXE_forkyard");

fn help(command: &mut Command) -> String {
    let output = command.arg("--help").output().expect("it can be run");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn the_executed_file_s_name_decides_and_no_other() {
    let directory = tempfile::tempdir().expect("there is room");
    let at = |name: &str| directory.path().join(name);
    crate::support::copy_program(FORKYARD.as_ref(), &at("php-fpm8.2"));
    symlink(FORKYARD, at("our-own-company-fpm")).expect("there is room");
    symlink(forkyard_fpm(), at("forkyard")).expect("there is room");
    for name in ["php-fpm8.2", "our-own-company-fpm"] {
        assert_starts(&help(&mut Command::new(at(name))), &format!("Usage: {name} "));
    }
    let said = help(Command::new(at("php-fpm8.2")).arg0("daemon"));
    assert_starts(&said, "Usage: php ");
    for command in [
        &mut Command::new(at("forkyard")),
        Command::new(FORKYARD).arg0("php-fpm: reporter www"),
    ] {
        assert!(help(command).starts_with("A FastCGI process manager"));
    }
}

#[test]
fn a_link_to_forkyard_runs_under_its_own_name() {
    let (false, Some(site)) = (needs_root(), Site::new()) else {
        return;
    };
    let link = site.path("php-fpm8.2");
    symlink(FORKYARD, &link).expect("writable");
    let file = site.path("php-fpm.conf");
    let mut daemon = Daemon::run(Command::new(&link).args(["-F", "-O", "-y"]).arg(file)).ready();
    for _ in 0..2 {
        assert_eq!(site.ask(), "fpm-fcgi 128M ");
        let name = |pid: i32| fs::read_to_string(format!("/proc/{pid}/comm"));
        for pid in std::iter::once(daemon.pid().as_raw()).chain(daemon.children()) {
            let is_preloader = super::service::title(pid).contains("preloader");
            assert!(
                is_preloader || name(pid).is_ok_and(|name| name == "php-fpm8.2\n"),
                "{pid} is {:?}",
                name(pid)
            );
        }
        let program = fs::read_link(format!("/proc/{}/exe", daemon.pid())).expect("a link");
        assert_eq!(program, Path::new(FORKYARD));
        daemon.signal(Signal::SIGUSR2);
        daemon.expect("ready to handle connections");
    }
    daemon.stop(Signal::SIGTERM);
}
