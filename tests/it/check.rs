//! `forkyard check` of PHP, programs and directories.

use super::security::NOBODY;
use crate::support::prelude::*;

const ONDEMAND: &str = "pm = \"ondemand\"\nmax_children = 2\n";

fn check(dir: &Path, text: &str, options: &[&str]) -> (Option<i32>, String) {
    fs::write(dir.join("forkyard.toml"), text).expect("configuration");
    let (code, said) = said_by(forkyard(&["check"], dir).args(options));
    (code, said.replace(&format!("{}/", dir.display()), ""))
}

/// The output of a check that ends with this exit code.
fn ends(code: i32, dir: &Path, text: &str, options: &[&str]) -> String {
    let (found, said) = check(dir, text, options);
    assert_eq!(found, Some(code), "{said}");
    said
}

fn php_ends(code: i32, dir: &Path, application: &str) -> String {
    ends(code, dir, &php_pool(dir, ONDEMAND, application), &[])
}

#[test]
fn the_autopilot_s_first_number_and_the_number_before_it_are_shown() {
    let dir = directory();
    let path = dir.path();
    for manager in [
        "pm = \"static\"\n",
        "pm = \"dynamic\"\nmin_spare_servers = 1\nmax_spare_servers = 2\n",
        "pm = \"ondemand\"\n",
    ] {
        let settings = format!("{manager}max_children = \"auto\"\nmax_children_most = 2\n");
        let said = ends(0, path, &php_pool(path, &settings, ""), &[]);
        let (line, rest) = said.split_once('\n').expect("two lines");
        let begin = "pool www: max_children = \"auto\" begins with 2 and follows the load up to 2; before the autopilot it was ";
        let before = line.strip_prefix(begin).unwrap_or_else(|| panic!("{said}"));
        let before: u32 = before.parse().expect("a number");
        assert!((2..=1024).contains(&before), "{said}");
        assert_eq!(rest, "forkyard.toml: configuration is valid: 1 pool\n");
    }
}

#[test]
fn php_is_asked_whether_it_starts() {
    let dir = directory();
    let path = dir.path();
    let said = php_ends(0, path, "");
    assert_eq!(said, "forkyard.toml: configuration is valid: 1 pool\n");
    let text = php_pool(path, ONDEMAND, "").replace(concat!("\"", env!("FORKYARD_PHP"), "\""), "\"7.0\"");
    let said = ends(78, path, &text, &[]);
    assert_contains(
        &said,
        "error: [pool www] application: forkyard-php was built without PHP 7.0's headers",
    );
    assert_contains(
        &said,
        concat!(
            "write a version that forkyard-php was built for (",
            env!("FORKYARD_PHP")
        ),
    );

    let ini = path.join("php.ini");
    let named = format!("php_ini = \"{}\"\n", ini.display());
    fs::write(&ini, "memory_limit = 64M\nfoo = \"not closed\n").expect("php.ini");
    let said = php_ends(78, path, &named);
    assert_contains(&said, "syntax error, ");
    assert_contains(&said, "php.ini on line 3; correct it: PHP does without");
    assert_eq!(said.lines().count(), 1, "{said}");

    write_file(
        &ini,
        "extension = nonexistent\ndisplay_errors = On\nlog_errors = Off\n",
    );
    let said = php_ends(0, path, &named);
    assert_contains(
        &said,
        "warning: [pool www] application: PHP Warning:  PHP Startup: Unable to load dynamic library 'nonexistent'",
    );
    let said = ends(78, path, &php_pool(path, ONDEMAND, &named), &["--strict"]);
    assert_contains(&said, "error: [pool www] application: PHP Warning:");
    assert_lacks(&said, "valid");

    let preload = path.join("preload.php");
    let seen = path.join("seen");
    fs::write(&preload, format!("<?php touch('{}');", seen.display())).expect("script");
    write_file(
        &ini,
        format!(
            "opcache.preload = {}\nopcache.preload_user = nobody\n",
            preload.display()
        ),
    );
    php_ends(0, path, &named);
    assert!(!seen.exists());

    let said = php_ends(78, path, &format!("{named}library = \"{}\"\n", preload.display()));
    assert_contains(
        &said,
        "preload.php is not libphp; name libphp of the pool's version",
    );

    if is_root() {
        fs::set_permissions(&ini, fs::Permissions::from_mode(0o600)).expect("chmod");
        let said = php_ends(78, path, &named);
        assert_contains(&said, "Permission denied");
        assert_contains(&said, "let the pool's user read the file");
    }
}

/// `check` starts PHP as the daemon does, so that the pool's own script runs.
#[test]
fn a_setting_that_php_does_not_start_with_is_named_with_its_line() {
    let dir = directory();
    let path = dir.path();
    for (name, text) in [
        ("exits.php", "<?php exit(1);"),
        ("hangs.php", "<?php while (true) {}"),
        ("fine.php", "<?php "),
    ] {
        fs::write(path.join(name), text).expect("script");
    }
    let script = |name: &str| path.join(name).display().to_string();
    let cases = [
        ("preload", script("missing.php"), "Failed opening required"),
        ("preload", script("exits.php"), "PHP's module start-up failed"),
        ("preload", script("hangs.php"), "it has not started after 1 s"),
        ("memory_consumption", "8".to_owned(), "Insufficient shared memory"),
        (
            "lockfile_path",
            "/missing".to_owned(),
            "Unable to create lock file",
        ),
    ];
    for (name, value, reason) in &cases {
        let timeout = if value.ends_with("hangs.php") { "1s" } else { "60s" };
        let application = format!(
            "start_timeout = \"{timeout}\"\n[pool.www.application.php_admin_value]\nmemory_limit = \"64M\"\n\
             opcache.validate_timestamps = true\nopcache.{name} = \"{value}\"\n"
        );
        let said = php_ends(78, path, &application);
        let text = read_file(path.join("forkyard.toml"));
        let line = text
            .lines()
            .position(|line| line.starts_with(&format!("opcache.{name}")));
        let place = format!("forkyard.toml:{}:", line.expect("it is there") + 1);
        assert_eq!(said.lines().count(), 1, "{said}");
        let shown = value.replace(&format!("{}/", path.display()), "");
        assert_starts(&said, &place);
        assert_contains(
            &said,
            &format!(
                ": error: [pool www] application.php_admin_value.opcache.{name}: PHP does not start with {shown:?}: "
            ),
        );
        assert_contains(&said, reason);
        assert_contains(&said, "; correct the value, or leave the key out");
    }
    php_ends(
        0,
        path,
        &format!(
            "php_admin_value = {{ opcache.preload = \"{}\" }}\n",
            script("fine.php")
        ),
    );
}

#[test]
fn many_pools_start_php_once_and_each_setting_is_told_with_its_pool() {
    let dir = directory();
    let path = dir.path();
    let ini = path.join("php.ini");
    fs::write(&ini, "extension = nonexistent\n").expect("php.ini");
    let mut text = String::new();
    for number in 0..300 {
        let wrong = if number == 123 {
            "no.such_setting = 1, "
        } else {
            ""
        };
        let application = format!(
            "runtime = \"php\"\nversion = \"{PHP_VERSION}\"\nphp_ini = \"{}\"\nphp_admin_value = {{ {wrong}memory_limit = \"{}M\" }}\n",
            ini.display(),
            number + 16
        );
        text += &pool(path, &format!("p{number}"), ONDEMAND, &application);
    }
    let said = ends(0, path, &text, &[]);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert_contains(lines[0], "[pool p0]");
    assert_contains(lines[0], "(so it is for 299 other pools)");
    assert_contains(
        lines[1],
        "[pool p123] application: Unable to set php_admin_value 'no.such_setting'",
    );
}

#[test]
fn programs_that_are_missing_are_told_once() {
    let dir = directory();
    let path = dir.path();
    let alone = path.join("alone");
    fs::create_dir(&alone).expect("directory");
    let program = alone.join("renamed");
    crate::support::copy_program(env!("CARGO_BIN_EXE_forkyard").as_ref(), &program);
    let application = PHP;
    let status = format!("{ONDEMAND}status_listen = \"{}/status\"\n", path.display());
    let jobs = "[jobs]\nuser = \"nobody\"\nstore = \"postgresql:///shop\"\n\
                [jobs.queue.mail]\npool = \"a\"\nscript = \"/dev/null\"\n";
    let text = pool(path, "a", ONDEMAND, application) + &pool(path, "b", &status, application) + jobs;
    fs::write(path.join("forkyard.toml"), text).expect("configuration");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        let output = command.args(arguments).output().expect("forkyard");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), text_of(&said))
    };
    let said = exited(
        Some(78),
        run(&["check", "-c", &path.join("forkyard.toml").display().to_string()]),
    );
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert_contains(lines[0], "[pool a]");
    assert_contains(lines[0], "alone/forkyard-php is missing; install it");
    assert_contains(lines[2], "[pool b]");
    assert_contains(lines[2], "alone/forkyard is missing; install it");
    assert_contains(
        lines[1],
        "alone/forkyard-jobs-postgresql is missing; install the package forkyard-jobs-postgresql",
    );
    let said = exited(Some(70), run(&["php"]));
    assert_contains(&said, "can't run");
    assert_contains(&said, "forkyard-php");
}

#[test]
fn what_a_user_who_is_not_root_can_not_do_is_named() {
    let dir = directory();
    let path = dir.path();
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("chmod");
    let application = application_in("cgi", path, "");
    let text = format!(
        "[pool.a]\npm = \"ondemand\"\nmax_children = 1\n\
         listen = {{ address = \"/forkyard-a.sock\", owner = \"www-data\", group = \"www-data\" }}\n\
         [pool.a.application]\n{application}\
         [pool.b]\npm = \"ondemand\"\nmax_children = 1\n\
         listen = {{ address = \"{0}/b.sock\", group = \"www-data\" }}\n[pool.b.application]\n{application}\
         [pool.c]\npm = \"ondemand\"\nmax_children = 1\nlisten = \"{0}/c.sock\"\n[pool.c.application]\n{application}",
        path.display()
    );
    fs::write(path.join("forkyard.toml"), text).expect("configuration");
    let mut command = forkyard(&["check"], path);
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.output().expect("forkyard");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let warnings: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("this user can't"))
        .collect();
    assert_eq!(warnings.len(), 3, "{said}");
    for (warning, pool, what) in [
        (warnings[0], "[pool a]", "make a socket in /;"),
        (
            warnings[1],
            "[pool a]",
            "give the socket to the user www-data; start forkyard as root",
        ),
        (warnings[2], "[pool b]", "give the socket to the group www-data"),
    ] {
        assert!(warning.contains(pool) && warning.contains(what), "{said}");
        assert_contains(warning, "listen");
        assert_contains(warning, "warning");
    }
}

#[test]
fn a_closed_directory_on_the_way_to_an_application_is_named() {
    let dir = directory();
    let path = dir.path();
    let closed = path.join("closed");
    let root = closed.join("shop");
    fs::create_dir_all(&root).expect("directories");
    fs::write(root.join("wsgi.py"), "application = None\n").expect("application");
    let applications = [
        ("python", application_in("wsgi", &root, "")),
        (
            "php",
            format!(
                concat!(
                    "runtime = \"php\"\nversion = \"",
                    env!("FORKYARD_PHP"),
                    "\"\nscript_root = \"{}\""
                ),
                root.display()
            ),
        ),
    ];
    let mode = |mode| fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).expect("chmod");
    for (name, application) in applications {
        let text = pool(path, name, ONDEMAND, &application);
        mode(0o755);
        ends(0, path, &text, &[]);
        if is_root() {
            mode(0o700);
            let said = ends(0, path, &text, &[]);
            let wanted = format!(
                "warning: [pool {name}] application: The directory closed can't be entered by user www-data; let user www-data \
                 enter it (chmod o+x closed), put"
            );
            assert!(said.contains(&wanted), "{said}");
        }
    }
}

#[test]
fn strict_takes_warnings_for_errors() {
    let dir = directory();
    let path = dir.path();
    let text = php_pool(
        path,
        &format!("{ONDEMAND}access.log = \"/nowhere/access.log\"\n"),
        "",
    );
    let said = ends(0, path, &text, &[]);
    assert_contains(
        &said,
        "warning: [pool www] access.log: \"/nowhere\" is not an existing directory",
    );
    let said = ends(78, path, &text, &["--strict"]);
    assert!(
        said.contains("error: [pool www] access.log:") && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn a_stop_that_may_take_longer_than_systemd_waits_is_a_warning() {
    let dir = directory();
    let path = dir.path();
    let text = |control: &str, stop: &str| {
        let pool = pool(
            path,
            "www",
            &format!("{ONDEMAND}{stop}"),
            &application_in("cgi", path, ""),
        );
        format!("[global]\n{control}\n{pool}")
    };
    ends(0, path, &text("", ""), &["--strict"]);
    let rows = [
        ("process_control_timeout = \"1h\"", ""),
        ("", "stop_timeout = \"1h\"\n"),
    ];
    each(rows, |(control, stop)| {
        let said = ends(0, path, &text(control, stop), &[]);
        let warning = "warning: [pool www] stop_timeout: with process_control_timeout a stop may take 36";
        assert_contains(&said, warning);
        assert_contains(&said, "TimeoutStopSec");
    });
}

#[test]
fn the_versions_of_php_are_listed() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkyard"));
    let output = command.arg("php").output().expect("forkyard");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let line = said
        .lines()
        .find(|line| line.starts_with(concat!(env!("FORKYARD_PHP"), ": ")))
        .expect("a line");
    assert_contains(
        line,
        concat!(
            "libphp",
            env!("FORKYARD_PHP"),
            ".so, php.ini: /etc/php/",
            env!("FORKYARD_PHP"),
            "/"
        ),
    );
}

#[test]
fn what_can_not_be_had_at_the_start_is_told_with_a_remedy() {
    let dir = directory();
    let path = dir.path();
    let taken = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = taken.local_addr().expect("address").port();
    let listen = |address: &str| {
        let settings = format!("listen = \"{address}\"\n{ONDEMAND}");
        php_pool(path, &settings, "")
    };
    let global = |line: &str| format!("[global]\n{line}\n{}", php_pool(path, ONDEMAND, ""));
    for (text, problem, remedy) in [
        (
            listen("/nowhere/www.sock"),
            "[pool www] listen: bind /nowhere/www.sock: No such file or directory (2); ".to_owned(),
            "make the directory /nowhere before the start, or give another path",
        ),
        (
            listen(&format!("127.0.0.1:{port}")),
            format!("[pool www] listen: another process already listens on 127.0.0.1:{port}; "),
            "end it, or listen elsewhere",
        ),
        (
            listen("192.0.2.1:9"),
            "[pool www] listen: bind 192.0.2.1:9: Cannot assign requested address (99); ".to_owned(),
            "give an address that this machine has, or bring it up before the start",
        ),
        (
            global("pid = \"/nowhere/x.pid\""),
            "Unable to create the PID file (/nowhere/x.pid): ".to_owned(),
            "make the directory /nowhere before the start, or give another path",
        ),
        (
            global("error_log = \"/nowhere/x.log\""),
            "error_log: failed to open /nowhere/x.log: ".to_owned(),
            "make the directory /nowhere before the start, or give another path",
        ),
        (
            global("control = \"/nowhere/x.sock\""),
            "control: bind /nowhere/x.sock: No such file or directory (2); ".to_owned(),
            "make the directory /nowhere before the start, or give another path",
        ),
    ] {
        fs::write(path.join("forkyard.toml"), &text).expect("configuration");
        let output = forkyard(&["run"], path).output().expect("forkyard");
        assert_eq!(output.status.code(), Some(78), "{text}");
        let said = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = said.lines().filter(|line| line.contains(&problem)).collect();
        assert_eq!(lines.len(), 1, "{problem}\n{said}");
        assert!(lines[0].ends_with(remedy), "{said}");
        assert_lacks(&said, ": warning:");
        assert_lacks(&said, ": error:");
    }
}

/// A socket owned by root: a web server could not connect.
#[test]
fn a_socket_of_roots_without_an_owner_is_a_warning() {
    let dir = directory();
    let path = dir.path();
    let warned = "the socket is root's with mode 0660, and a web server that runs as another user can't connect; give it to \
                  the web server's user, with listen.owner = \"www-data\" for example, or set listen.group or listen.mode\n";
    let rows = [
        ("", true),
        (", mode = \"0600\"", true),
        (", mode = \"0666\"", false),
        (", owner = \"www-data\"", false),
        (", group = \"www-data\"", false),
        (", acl_users = [\"www-data\"]", false),
        (", acl_groups = [\"www-data\"]", false),
    ];
    each(rows, |(attributes, is_closed)| {
        let listen = format!(
            "listen = {{ address = \"{}/www.sock\"{attributes} }}\n",
            path.display()
        );
        let text = php_pool(path, &format!("{listen}{ONDEMAND}"), "");
        let (code, said) = check(path, &text, &[]);
        let warned = warned.replace(
            "0660",
            if attributes.contains("0600") {
                "0600"
            } else {
                "0660"
            },
        );
        let line = if is_root() { "3:12" } else { "2:12" };
        let is_told = said.contains(&format!(
            "forkyard.toml:{line}: warning: [pool www] listen: {warned}"
        ));
        assert_eq!((code, is_told), (Some(0), is_closed && is_root()), "{said}");
        let (code, _) = check(path, &text, &["--strict"]);
        assert!(!is_root() || (code == Some(0)) != is_closed, "{attributes}");
    });
    let text = php_pool(path, &format!("listen = \"127.0.0.1:9\"\n{ONDEMAND}"), "");
    let (_, said) = check(path, &text, &[]);
    assert_lacks(&said, "warning");
}

/// `run` refuses these at the start.
#[test]
fn what_the_kernel_or_a_link_does_not_allow_is_told_with_its_line() {
    let dir = directory();
    let path = dir.path();
    fs::create_dir(path.join("run")).expect("mkdir");
    std::os::unix::fs::symlink("run", path.join("link")).expect("link");
    let one = |name: &str, socket: &str| {
        let settings = format!("{ONDEMAND}listen = \"DIR/{socket}\"\n");
        pool(path, name, &settings, &application_in("cgi", path, ""))
    };
    for (a, b) in [
        ("run/s", "link/s"),
        ("run/s", "run/../run/s"),
        ("link/../run/s", "link/s"),
    ] {
        let said = ends(78, path, &(one("a", a) + &one("b", b)), &[]);
        let wanted = format!("[pool b] listen: pool a already listens on \"{b}\", with the path \"{a}\"; ");
        assert_contains(&said, &wanted);
    }
    let enabled = fs::read_to_string("/sys/module/apparmor/parameters/enabled").unwrap_or_default();
    if enabled.trim() != "Y" {
        let settings = format!("{ONDEMAND}apparmor_hat = \"www\"\n");
        let text = pool(path, "www", &settings, &application_in("cgi", path, ""));
        let line = text.lines().position(|line| line.starts_with("apparmor_hat"));
        let said = ends(78, path, &text, &[]);
        let wanted = format!(
            "forkyard.toml:{}:1: error: [pool www] apparmor_hat: failed to query apparmor confinement.",
            line.expect("the key") + 1
        );
        assert_contains(&said, &wanted);
        assert_contains(&said, "so there is no hat \"www\" to change to; leave it out\n");
    }
}

#[test]
fn a_file_of_secrets_that_the_start_would_refuse_is_a_warning() {
    let dir = directory();
    let path = dir.path();
    let root = path.join("srv");
    fs::create_dir(&root).expect("mkdir");
    let file = root.join(".env");
    let settings = format!("{ONDEMAND}env_file = \"DIR/srv/.env\"\n");
    let text = pool(path, "www", &settings, &application_in("cgi", path, ""));
    let line = text.lines().position(|line| line.starts_with("env_file"));
    let place = format!(
        "forkyard.toml:{}:1: warning: [pool www] env_file: ",
        line.expect("the key") + 1
    );
    let rows = [
        (None, 0, "srv/.env: No such file or directory; "),
        (
            Some("A=1\nB\n"),
            0o600,
            "srv/.env:2: there is no =; write NAME=value; ",
        ),
        (
            Some("A=1\n"),
            0o644,
            "srv/.env: others than its owner may use it (mode 0644); chmod 600 it; ",
        ),
    ];
    for (content, mode, problem) in rows {
        if let Some(content) = content {
            fs::write(&file, content).expect("write");
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("chmod");
        }
        let said = ends(0, path, &text, &[]);
        let wanted = format!("{place}{problem}the application does not start without it\n");
        assert_contains(&said, &wanted);
    }
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("chmod");
    assert_lacks(&ends(0, path, &text, &[]), "env_file");
}
