//! What php-fpm's own tests of options and configuration look at, with both programs.

use super::both::{STOCK, compare, forkyard_fpm, is_stock_there, said, without_time};
use super::service::{Daemon, Site};
use crate::support::prelude::*;

fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("there is room");
    let mode = std::fs::Permissions::from_mode(0o777);
    fs::set_permissions(directory.path(), mode).expect("it is ours");
    directory
}

fn put(path: &Path, text: &str) -> String {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).expect("writable");
    }
    fs::write(path, text).expect("writable");
    path.to_string_lossy().into_owned()
}

fn files(path: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            let inner = files(&entry.path());
            let name = entry.file_name().to_string_lossy().into_owned();
            found.extend(inner.into_iter().map(|file| format!("{name}/{file}")));
        } else {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found.sort();
    found
}

#[test]
fn relative_files_are_below_the_prefixes() {
    skip_if!(!is_stock_there() || needs_root());
    let made = [STOCK, forkyard_fpm()].map(|program| {
        let directory = directory();
        let own = directory.path();
        fs::create_dir_all(own.join("var/log")).expect("writable");
        fs::create_dir_all(own.join("pools/one")).expect("writable");
        let text = "pid = var/fpm.pid\nerror_log = var/log/fpm.log\n[global]\ndaemonize = no\n\
                    [one]\nprefix = pools/$pool\nuser = www-data\nlisten = $pool.sock\npm = static\n\
                    pm.max_children = 1\naccess.log = $pool.access\nslowlog = $pool.slow\n\
                    request_slowlog_timeout = 5s\n";
        put(&own.join("etc/php-fpm.conf"), text);
        let prefix = own.to_string_lossy().into_owned();
        let (text, code) = said(program, &["-n", "-t", "--prefix", &prefix]);
        assert_eq!(code, Some(0), "{program}: {text}");
        let tested = files(own);
        let mut daemon = Daemon::run(Command::new(program).args(["-n", "-O", "--prefix", &prefix])).ready();
        let running = files(own);
        daemon.stop(Signal::SIGTERM);
        (tested, running, files(own))
    });
    assert_eq!(made[0], made[1]);
    let expected = [
        "etc/php-fpm.conf",
        "pools/one/one.access",
        "pools/one/one.slow",
        "pools/one/one.sock",
        "var/fpm.pid",
        "var/log/fpm.log",
    ];
    assert_eq!(made[1].1, expected);
    assert_eq!(made[1].0, made[1].2);
}

#[test]
fn included_pools_come_in_alphabetical_order_and_g_is_a_default_only() {
    skip_if!(!is_stock_there());
    let directory = directory();
    let own = directory.path();
    let log = own.join("log");
    for name in ["p3", "p1", "p2"] {
        let text = format!("[{name}]\nlisten = /run/{name}\npm = static\npm.max_children = 1\n");
        put(&own.join(format!("d/{name}.conf")), &text);
    }
    let include = format!(
        "error_log = {}\ninclude = {}/d/*.conf\n",
        log.display(),
        own.display()
    );
    let file = put(&own.join("php-fpm.conf"), &include);
    let arguments = ["-n", "-tt", "-R", "-g", "rel.pid", "-y", &file];
    let dump = compare("include", &arguments).unwrap_or_else(|text| panic!("{text}"));
    let at = |name: &str| dump.find(&format!("[{name}]")).expect("it is in the dump");
    assert!(at("p1") < at("p2") && at("p2") < at("p3"), "{dump}");
    assert_contains(&dump, "pid = /var/rel.pid");

    let file = put(&own.join("pid.conf"), &format!("pid = /run/own.pid\n{include}"));
    let arguments = ["-n", "-tt", "-R", "--pid=/run/other.pid", "--fpm-config", &file];
    let dump = compare("pid", &arguments).unwrap_or_else(|text| panic!("{text}"));
    assert_contains(&dump, "pid = /run/own.pid");
}

#[test]
fn at_level_warning_starts_and_stops_say_nothing() {
    skip_if!(!is_stock_there() || needs_root());
    for program in [STOCK, forkyard_fpm()] {
        let directory = directory();
        let own = directory.path();
        let socket = own.join("a.sock");
        let text = format!(
            "[global]\nlog_level = warning\nerror_log = {0}/log\n[www]\nuser = www-data\nlisten = {0}/a.sock\n\
             pm = dynamic\npm.max_children = 5\npm.min_spare_servers = 1\npm.max_spare_servers = 3\n",
            own.display()
        );
        let file = put(&own.join("php-fpm.conf"), &text);
        let mut daemon = Daemon::run(Command::new(program).args(["-n", "-F", "-O", "-y", &file]));
        until("the socket", || UnixStream::connect(&socket).ok());
        daemon.signal(Signal::SIGTERM);
        assert!(daemon.child.wait().expect("it is our child").success());
        assert_eq!(daemon.lines.iter().collect::<Vec<_>>(), [""; 0], "{program}");
    }
}

#[test]
fn without_root_users_and_priorities_are_ignored_with_a_notice() {
    skip_if!(!is_stock_there() || needs_root());
    let mut all = Vec::new();
    for program in [STOCK, forkyard_fpm()] {
        let directory = directory();
        let own = directory.path();
        let text = format!(
            "[global]\nprocess.priority = 5\nerror_log = {0}/log\n[www]\nuser = root\ngroup = root\n\
             listen = {0}/a.sock\npm = static\npm.max_children = 1\nprocess.priority = 3\nchroot = /tmp\n",
            own.display()
        );
        let file = put(&own.join("php-fpm.conf"), &text);
        let copy = |from: &Path| {
            let target = own.join("bin").join(from.file_name().expect("a name"));
            fs::create_dir_all(own.join("bin")).expect("writable");
            fs::copy(from, &target).expect("writable");
            target
        };
        let target = copy(Path::new(program));
        if program == forkyard_fpm() {
            copy(&Path::new(forkyard_fpm()).with_file_name("forkyard-php"));
        }
        let mut command = Command::new(target);
        command
            .args(["-n", "-F", "-O", "-y", &file])
            .uid(65534)
            .gid(65534)
            .current_dir("/");
        let mut daemon = Daemon::run(&mut command);
        let mut lines = daemon.expect("ready to handle connections");
        lines.extend(daemon.stop(Signal::SIGTERM));
        lines.retain(|line| line.contains("is ignored"));
        lines.sort();
        all.push(lines);
    }
    assert_eq!(all[0], all[1]);
    assert_eq!(all[0].len(), 5, "{all:#?}");
}

#[test]
fn a_numeric_user_has_its_primary_group() {
    let (true, false, Some(site)) = (is_stock_there(), needs_root(), Site::new()) else {
        return;
    };
    let root = site.path("");
    site.append(&format!(
        "user = 33\ngroup =\nphp_admin_value[doc_root] = {}\n",
        root.display()
    ));
    site.write(
        "a.php",
        "<?php echo posix_getuid(), ' ', posix_getgid(), ' ', implode(',', posix_getgroups());",
    );
    for program in [STOCK, forkyard_fpm()] {
        let file = site.path("php-fpm.conf");
        let mut daemon = Daemon::run(Command::new(program).args(["-F", "-O", "-y"]).arg(&file)).ready();
        assert_eq!(site.ask(), "33 33 33", "{program}");
        daemon.signal(Signal::SIGTERM);
        assert!(daemon.child.wait().expect("it is our child").success());
    }
}

#[test]
fn options_come_in_every_form() {
    skip_if!(!is_stock_there());
    let directory = directory();
    let log = directory.path().join("log");
    let text = format!(
        "error_log = {}\n[www]\nlisten = /run/x\npm = static\npm.max_children = 1\n",
        log.display()
    );
    let file = put(&directory.path().join("php-fpm.conf"), &text);
    let glued = format!("-y{file}");
    let long = format!("--fpm-config={file}");
    let lines: [&[&str]; 10] = [
        &["-n", "-t", "-R", &glued],
        &["-ntR", "-y", &file],
        &["-n", "--test", "--allow-to-run-as-root", &long],
        &["--no-php-ini", "-tR", "--fpm-config", &file],
        &["-n", "-tD", "-R", &glued, "--nodaemonize"],
        &["-n", "-t", "-R", &glued, "--"],
        &["-n", "-t", "-R", &glued, "-", "x"],
        &["-n", "-t", "-R", "--fpm-config"],
        &["-n", "-t", "-R", "-y=/nope"],
        &[
            "-dx=y",
            "-n",
            "-t",
            "-R",
            "--define",
            "a.b=\"c d\"",
            "--define=e",
            &glued,
        ],
    ];
    for arguments in lines {
        compare(&format!("{arguments:?}"), arguments).unwrap_or_else(|text| panic!("{text}"));
    }
    for arguments in [&["-dx=y", "-v"][..], &["-t", "-v", "--nope"], &["-v", "extra"]] {
        let outputs = [STOCK, forkyard_fpm()].map(|program| {
            let output = Command::new(program)
                .args(arguments)
                .stdin(Stdio::null())
                .output();
            let output = output.expect("it can be run");
            let text = text_of(&output.stdout);
            let lines: Vec<String> = text.lines().map(|line| without_time(line).to_owned()).collect();
            (lines, output.status.code())
        });
        assert_eq!(outputs[0], outputs[1], "{arguments:?}");
    }
}
