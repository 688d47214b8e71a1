//! Files that root opens where a tenant may write: root's own files are neither read nor changed, and nothing blocks
//! (CVE-2026-54420, CVE-2026-48172).

use super::{NOBODY, needs_root};
use crate::support::prelude::*;
use nix::sys::stat::Mode;
use nix::unistd::{Uid, chown, mkfifo};

const SECRET: &str = "SECRET=of-root\n";
const SETTINGS: [&str; 6] = ["error_log", "pid", "access.log", "slowlog", "app_log", "env_file"];
const PUT: [&str; 5] = ["a link", "a link's link", "a hard link", "a FIFO", "a directory"];

fn put(what: &str, place: &Path, precious: &Path) {
    match what {
        "a link" => symlink(precious, place).expect("symlink"),
        "a link's link" => {
            let between = place.with_extension("between");
            symlink(precious, &between).expect("symlink");
            symlink(&between, place).expect("symlink");
        }
        "a hard link" => fs::hard_link(precious, place).expect("link"),
        "a FIFO" => mkfifo(place, Mode::from_bits_truncate(0o666)).expect("FIFO"),
        _ => fs::create_dir(place).expect("mkdir"),
    }
    if what != "a hard link" && !what.contains("link") {
        chown(place, Some(Uid::from_raw(NOBODY)), None).expect("chown");
    }
}

fn places() -> tempfile::TempDir {
    let dir = directory();
    let precious = dir.path().join("precious");
    fs::write(&precious, SECRET).expect("write");
    fs::set_permissions(&precious, fs::Permissions::from_mode(0o600)).expect("chmod");
    let theirs = dir.path().join("theirs");
    fs::create_dir(&theirs).expect("mkdir");
    chown(&theirs, Some(Uid::from_raw(NOBODY)), None).expect("chown");
    make_writable(&theirs);
    dir
}

fn assert_untouched(dir: &Path, case: &str) {
    let precious = dir.join("precious");
    let known = fs::metadata(&precious).expect("stat");
    assert_eq!(read_file(&precious), SECRET, "{case}");
    assert_eq!(
        (known.mode() & 0o777, known.uid(), known.gid()),
        (0o600, 0, 0),
        "{case}"
    );
}

fn configuration(dir: &Path, setting: &str) -> String {
    let line = format!("{setting} = \"{}\"\n", dir.join("theirs/file").display());
    let (global, own) = match setting {
        "error_log" | "pid" => (line, String::new()),
        "slowlog" => (
            String::new(),
            format!("{line}request_slowlog_timeout = \"60s\"\n"),
        ),
        _ => (String::new(), line),
    };
    let control = dir.join("control").display().to_string();
    let settings = format!("user = \"nobody\"\npm = \"static\"\nmax_children = 1\nclear_env = false\n{own}");
    let php = concat!(
        "runtime = \"php\"\nversion = \"",
        env!("FORKYARD_PHP"),
        "\"\npreloader = \"own\"\n"
    );
    format!(
        "[global]\ncontrol = \"{control}\"\n{global}{}",
        pool(dir, "app", &settings, php)
    )
}

fn assert_ignorant(daemon: &Daemon, case: &str) {
    daemon.write("env.php", "<?php echo 'knows ', getenv('SECRET') ?: 'nothing';");
    let said = daemon.get("app", "env.php").body();
    let is_right =
        said == "knows nothing" || case.starts_with("env_file") && said.starts_with("Service Unavailable");
    assert!(is_right, "{case}: {said}\n{}", daemon.log());
}

fn listens(dir: &Path) -> bool {
    UnixStream::connect(dir.join("app.sock")).is_ok()
}

fn each_case(test: impl Fn(&str, &str, &Path)) {
    for setting in SETTINGS {
        for what in PUT {
            let dir = places();
            test(setting, what, dir.path());
        }
    }
}

#[test]
fn what_a_tenant_puts_in_the_place_of_a_file_is_not_root_s_file_at_a_start() {
    skip_if!(needs_root());
    each_case(|setting, what, path| {
        let case = format!("{setting}: {what}");
        put(what, &path.join("theirs/file"), &path.join("precious"));
        fs::write(path.join("forkyard.toml"), configuration(path, setting)).expect("configuration");
        let check = forkyard(&["check"], path).output().expect("forkyard");
        assert_untouched(path, &case);
        let daemon = Daemon::launch(path, forkyard(&["run"], path));
        let is_up = until("ready, or the end", || {
            let said = daemon.log();
            let is_ready = said.contains("ready to handle connections");
            let is_over = said.contains("ERROR") || said.contains("error:");
            let answers = setting == "error_log" && listens(path);
            (is_ready || is_over || answers).then_some(is_ready || answers)
        });
        if is_up {
            assert_ignorant(&daemon, &case);
        } else {
            assert!(daemon.log().contains("theirs/file"), "{case}\n{}", daemon.log());
        }
        assert_untouched(path, &format!("{case} {check:?}"));
    });
}

#[test]
fn what_a_tenant_puts_there_later_is_not_root_s_file_either() {
    skip_if!(needs_root());
    each_case(|setting, what, path| {
        let case = format!("{setting}: {what}");
        let file = path.join("theirs/file");
        if setting == "env_file" {
            fs::write(&file, "OTHER=1\n").expect("write");
        }
        fs::write(path.join("forkyard.toml"), configuration(path, setting)).expect("configuration");
        let daemon = Daemon::launch(path, forkyard(&["run"], path));
        wait_until("the pool to listen", || listens(path));
        assert_ignorant(&daemon, &case);
        let _ = fs::remove_file(&file);
        put(what, &file, &path.join("precious"));
        daemon.signal(Signal::SIGUSR1);
        for arguments in [
            &["reopen-logs"][..],
            &["reload"],
            &["reload", "--all"],
            &["status"],
        ] {
            let output = forkyard(arguments, path).output().expect("forkyard");
            assert_untouched(path, &format!("{case} {arguments:?} {output:?}"));
        }
        assert_ignorant(&daemon, &case);
        assert_untouched(path, &case);
    });
}

#[test]
fn a_package_json_that_is_no_file_of_its_own_holds_up_nobody_and_shows_nothing() {
    skip_if!(needs_root());
    let dir = places();
    let (theirs, precious) = (dir.path().join("theirs"), dir.path().join("precious"));
    fs::write(&precious, r#"{"scripts": {"start": "node of-root.js"}}"#).expect("write");
    let package = theirs.join("package.json");
    fs::write(&package, r#"{"scripts": {"start": "node server.js"}}"#).expect("write");
    let application = application_in("node", theirs, "");
    let settings = "user = \"nobody\"\npm = \"ondemand\"\nmax_children = 1\n";
    let daemon = Daemon::start(|own| {
        format!("[global]\ncontrol = \"{}/control\"\n", own.display())
            + &pool(own, "node", settings, &application)
    });
    for what in PUT {
        let _ = fs::remove_file(&package);
        put(what, &package, &precious);
        for (command, is_right) in [("check", false), ("reload", false), ("status", true)] {
            let mut client = forkyard(&[command], &daemon.dir);
            let output = daemon.dir.join("output");
            let file = fs::File::create(&output).expect("output");
            client.stdout(file.try_clone().expect("clone")).stderr(file);
            let mut client = client.spawn().expect("forkyard");
            let ended = process::wait(&mut client, &format!("{what}: {command}"));
            let said = read_file(&output);
            assert_eq!(ended.success(), is_right, "{what}: {command}: {said}");
            assert!(!said.contains("of-root"), "{what}: {command}: {said}");
        }
        let before = daemon.log().matches("package.json: ").count();
        daemon.signal(Signal::SIGUSR2);
        wait_until("the master to have read it", || {
            daemon.log().matches("package.json: ").count() > before
        });
        assert!(!daemon.log().contains("of-root"), "{what}: {}", daemon.log());
    }
}
