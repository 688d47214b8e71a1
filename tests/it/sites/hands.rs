//! A site that changes owners: a new application at an old path runs as its own owner, or not at all.

use super::{Sites, USERS};
use crate::support::prelude::*;

fn applications(whose: &str) -> Vec<(&'static str, Vec<(&'static str, String)>)> {
    let php = format!("<?php echo posix_geteuid(), ' {whose}';");
    let python = format!(
        "import os\ndef application(environ, start_response):\n    start_response('200 OK', [])\n    \
         return [f'{{os.geteuid()}} {whose}'.encode()]\n"
    );
    let ruby = format!("run ->(env) {{ [200, {{}}, [\"#{{Process.euid}} {whose}\"]] }}\n");
    let cgi = format!(
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\n'\nprintf '%s' \"$(id -u) {whose}\"\n"
    );
    let node = format!(
        "require('http').createServer((request, answer) => answer.end(`${{process.geteuid()}} {whose}`))\
         .listen(process.env.PORT, '127.0.0.1')\n"
    );
    let own = "runtime = \"cgi\"\nentry = \"run.cgi\"\n".to_owned();
    let fastcgi = concat!(
        "runtime = \"fastcgi\"\nstart_command = \"php-cgi",
        env!("FORKYARD_PHP"),
        "\"\nentry = \"index.php\"\n"
    )
    .to_owned();
    vec![
        ("php", vec![("index.php", php.clone())]),
        ("python", vec![("passenger_wsgi.py", python)]),
        ("ruby", vec![("config.ru", ruby)]),
        ("cgi", vec![("run.cgi", cgi), ("forkyard.toml", own)]),
        ("fastcgi", vec![("index.php", php), ("forkyard.toml", fastcgi)]),
        ("node", vec![("app.js", node)]),
    ]
}

fn add(sites: &Sites, name: &str, user: usize, files: &[(&'static str, String)]) -> PathBuf {
    let files: Vec<(&str, &str)> = files.iter().map(|(file, text)| (*file, text.as_str())).collect();
    sites.add(name, user, &files)
}

pub(super) fn as_user(user: usize, command: &str) {
    let uid = USERS[user].1.to_string();
    let status = Command::new("setpriv")
        .args([
            "--reuid",
            &uid,
            "--regid",
            &uid,
            "--clear-groups",
            "sh",
            "-ec",
            command,
        ])
        .status();
    assert!(status.expect("setpriv").success(), "{command}");
}

fn said(user: usize, whose: &str) -> String {
    format!("{} {whose}", USERS[user].1)
}

/// Sends requests until the new owner's application answers; neither owner ever runs the other's code.
fn becomes(sites: &Sites, path: &str, wanted: &str) {
    wait_until(&format!("{path}: {wanted}"), || {
        let (status, body) = sites.get(path);
        assert!(
            status != 200 || body.trim() == wanted,
            "{path}: {body}, not {wanted}"
        );
        status == 200
    });
}

fn made_anew(rate: &str) {
    skip_if!(needs_root());
    let sites = Sites::start(&format!("max = 8\nstat_throttle_rate = {rate}"));
    for (name, files) in applications("first") {
        add(&sites, name, 0, &files);
        assert_eq!(
            sites.body(&format!("/{name}/")).trim(),
            said(0, "first"),
            "{name}"
        );
    }
    for (name, files) in applications("second") {
        fs::remove_dir_all(sites.apps.join(name)).expect("rmdir");
        add(&sites, name, 1, &files);
        becomes(&sites, &format!("/{name}/"), &said(1, "second"));
    }
}

tests! {
    fn what_another_user_makes_anew_never_runs_as_the_old_owner() => made_anew("0");
    fn nor_between_two_looks() => made_anew("\"1h\"");
}

#[test]
fn nor_what_the_owner_of_the_directory_above_renames() {
    skip_if!(needs_root());
    let sites = Sites::start("max = 8\nstat_throttle_rate = \"1h\"");
    chown(&sites.apps, Some(USERS[1].1), Some(USERS[1].1)).expect("chown");
    let secret = |whose: &str| {
        format!(
            "echo posix_geteuid(), ' {whose} ', @file_get_contents(__DIR__ . '/../../secret') ?: 'nothing';"
        )
    };
    let file = sites.daemon.write("secret", "the first one's");
    chown(&file, Some(USERS[0].1), Some(USERS[0].1)).expect("chown");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("chmod");
    sites.php("shop", 0, &secret("first"));
    sites.php("mine", 1, &secret("second"));
    assert_eq!(sites.body("/shop/"), said(0, "first the first one's"));
    let apps = sites.apps.display();
    as_user(
        1,
        &format!("mv {apps}/shop {apps}/old; mv {apps}/mine {apps}/shop"),
    );
    becomes(&sites, "/shop/", &said(1, "second nothing"));
    as_user(
        1,
        &format!("mv {apps}/shop {apps}/mine; mv {apps}/old {apps}/shop"),
    );
    becomes(&sites, "/shop/", &said(0, "first the first one's"));
}

#[test]
fn a_directory_above_belongs_to_the_owner_or_to_root() {
    skip_if!(needs_root());
    let sites = Sites::start("max = 3");
    sites.php("shop", 0, "echo 'shop';");
    let team = sites.apps.join("team");
    fs::create_dir(&team).expect("mkdir");
    let root = team.join("shop");
    fs::rename(sites.apps.join("shop"), &root).expect("rename");
    let params = Params::get(&root, "index.php", "").with("FORKYARD_APP_ROOT", &root.display().to_string());
    let ask = || sites.daemon.ask("sites", &params);
    chown(&team, Some(USERS[1].1), Some(USERS[1].1)).expect("chown");
    assert_contains(&ask().text(), "503 ");
    sites.daemon.wait_for(&format!(
        "{} belongs to user {}, who could put another directory in the place of {}",
        team.display(),
        USERS[1].1,
        root.display()
    ));
    for user in [0, USERS[0].1] {
        chown(&team, Some(user), Some(user)).expect("chown");
        wait_until("an answer", || ask().body() == "shop");
    }
    let current = team.join("current");
    symlink(&root, &current).expect("link");
    let params = params.with("FORKYARD_APP_ROOT", &current.display().to_string());
    assert_eq!(sites.daemon.ask("sites", &params).body(), "shop");
}

fn replace(root: &Path, file: &str, text: &str, user: usize) {
    let new = root.join("new");
    fs::write(&new, text).expect("write");
    chown(&new, Some(USERS[user].1), Some(USERS[user].1)).expect("chown");
    fs::rename(new, root.join(file)).expect("rename");
}

#[test]
fn a_start_up_file_of_another_owner_is_another_application() {
    skip_if!(needs_root());
    for rate in ["0", "\"1h\""] {
        let sites = Sites::start(&format!("max = 8\nstat_throttle_rate = {rate}"));
        let code = |whose: &str| format!("<?php echo posix_geteuid(), ' {whose}';");
        let root = sites.add("shop", 0, &[("index.php", &code("first"))]);
        chown(&root, Some(0), Some(0)).expect("chown");
        becomes(&sites, "/shop/", &said(0, "first"));
        let first = sites.instances();
        replace(&root, "index.php", &code("second"), 1);
        becomes(&sites, "/shop/", &said(1, "second"));
        process::wait_for_ends(&first);
        let second = sites.instances();
        replace(&root, "index.php", &code("third, and longer"), 1);
        becomes(&sites, "/shop/", &said(1, "third, and longer"));
        wait_until("the same instances", || sites.instances() == second);
    }
}

/// The inspection retires them without a request to the old instance, which may be busy for long.
#[test]
fn a_look_retires_at_once_what_runs_as_the_old_owner() {
    skip_if!(needs_root());
    let sites = Sites::start("max = 8\nstat_throttle_rate = 0");
    let wait = "touch(__DIR__ . '/begun'); while (!file_exists(__DIR__ . '/../../go')) { usleep(1000); clearstatcache(); } \
                echo 'first';";
    let root = sites.php("shop", 0, wait);
    let port = sites.nginx.port;
    let busy = std::thread::spawn(move || super::get(port, "/shop/").expect("answer"));
    wait_until("a busy instance", || root.join("begun").exists());
    let old = root.with_file_name("old");
    fs::rename(&root, &old).expect("rename");
    sites.php("shop", 1, "echo posix_geteuid();");
    becomes(&sites, "/shop/", &USERS[1].1.to_string());
    sites
        .daemon
        .wait_for("is another directory now, or has another owner; its instances retire");
    sites.daemon.write("go", "");
    assert_eq!(busy.join().expect("an answer"), (200, "first".to_owned()));
}

#[test]
fn a_start_looks_again_when_it_has_become_the_user() {
    skip_if!(needs_root());
    for (name, files) in applications("first") {
        let sites = Sites::start("max = 8\nstat_throttle_rate = \"1h\"");
        let root = add(&sites, name, 0, &files);
        let others = applications("second")
            .into_iter()
            .find(|(other, _)| *other == name);
        let (_, others) = others.expect("the same one");
        let source = match name {
            "php" => sites.daemon.preloaders("zygote")[0],
            _ => sites.daemon.pid(),
        };
        let held = Failing::hold(source, &sites.daemon.dir, "chdir", 500);
        let params =
            Params::get(&root, "index.php", "").with("FORKYARD_APP_ROOT", &root.display().to_string());
        let mut client = sites.daemon.send("sites", &params);
        held.wait_until_held(nix::libc::SYS_chdir);
        fs::rename(&root, sites.daemon.dir.join("old")).expect("rename");
        add(&sites, name, 1, &others);
        let answer = client.answer().expect("answer");
        held.end();
        assert!(
            answer.text().contains("503 ") || answer.body().trim() == said(1, "second"),
            "{name}: {}",
            answer.text()
        );
        sites
            .daemon
            .wait_for("has been replaced, or has another owner, since forkyard inspected it");
        becomes(&sites, &format!("/{name}/"), &said(1, "second"));
    }
}
