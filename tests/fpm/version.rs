//! The PHP version: by the configuration's path, or by the program's name.

use super::both::forkyard_fpm;
use crate::support::prelude::*;

const FORKYARD: &str = env!("CARGO_BIN_EXE_forkyard");
const OTHER: &str = "7.9";

fn configuration(directory: &Path) -> PathBuf {
    let fpm = directory.join(format!("etc/php/{OTHER}/fpm"));
    fs::create_dir_all(&fpm).expect("there is room");
    let path = fpm.join("php-fpm.conf");
    let text = format!(
        "[global]\nerror_log = {0}/log\n[www]\nuser = www-data\nlisten = {0}/www.sock\npm = static\npm.max_children = 1\n",
        directory.display()
    );
    fs::write(&path, text).expect("there is room");
    path
}

fn output(command: &mut Command) -> (Output, String) {
    let output = command.output().expect("it can be run");
    let said = text_of(&output.stderr);
    (output, said)
}

#[test]
fn an_import_takes_the_version_of_the_path() {
    let directory = tempfile::tempdir().expect("there is room");
    let path = configuration(directory.path());
    let (output, said) = output(Command::new(FORKYARD).arg("import").arg(path));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(&format!("version = \"{OTHER}\"\n")), "{text}{said}");
}

#[test]
fn the_name_says_where_the_configuration_is_and_which_php_answers() {
    let directory = tempfile::tempdir().expect("there is room");
    let link = directory.path().join(format!("php-fpm{OTHER}"));
    symlink(forkyard_fpm(), &link).expect("there is room");
    let (started, said) = output(Command::new(&link).arg("-F"));
    assert_eq!(started.status.code(), Some(78), "{said}");
    let path = format!("/etc/php/{OTHER}/fpm/php-fpm.conf");
    assert_contains(&said, &format!("failed to open configuration file '{path}'"));
    each(["-t", "-v"], |option| {
        let (asked, said) = output(Command::new(&link).arg(option));
        assert_eq!(asked.status.code(), Some(70), "{option}: {said}");
        assert_contains(&said, &format!("built without PHP {OTHER}"));
    });
}

#[test]
fn a_path_of_a_version_that_is_not_there_starts_no_other() {
    let directory = tempfile::tempdir().expect("there is room");
    let path = configuration(directory.path());
    let (asked, said) = output(Command::new(forkyard_fpm()).args(["-v", "-y"]).arg(&path));
    assert!(
        asked.status.success(),
        "as in php-fpm, -v ends the options: {said}"
    );
    let (asked, said) = output(Command::new(forkyard_fpm()).arg("-y").arg(&path).arg("-v"));
    assert_eq!(asked.status.code(), Some(70), "{said}");
    let mut daemon = Command::new(forkyard_fpm());
    let (ran, said) = output(daemon.args(["-F", "-O", "-R", "-y"]).arg(&path));
    assert!(!ran.status.success(), "{said}");
    assert_contains(&said, &format!("PHP {OTHER}"));
}
