//! PHP as scripts see it: functions, constants, classes, extensions, settings, streams and phpinfo().

use super::client::Request;
use super::scripts;
use super::servers::Setup;
use super::servers::forkyard::Forkyard;
use super::servers::php_fpm::{PHP_FPM, PhpFpm};
use crate::support::forkyard_fpm;
use crate::support::prelude::*;

const DIFFERENCES: [(&str, &str); 4] = [
    (
        "constants/Core/PHP_BINARY",
        "each names a program of its own; see below",
    ),
    (
        "info/Zend OPcache: Interned Strings Used memory",
        "libphp's own words are not php-fpm's",
    ),
    ("info/Zend OPcache: Interned Strings Free memory", "as above"),
    (
        "info/Zend OPcache: Start time",
        "one is started after the other; from PHP 8.4 on",
    ),
];

const BINARY: &str = "constants/Core/PHP_BINARY";

fn all(socket: &Path, directory: &Path) -> BTreeMap<String, Value> {
    let reply = Request::get(&scripts(), "/likeness.php").send(socket);
    assert_eq!(reply.errors(), "");
    let text = reply
        .body()
        .replace(&directory.display().to_string(), "DIRECTORY");
    let value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {reply:?}"));
    let mut all = BTreeMap::new();
    flatten(String::new(), value, &mut all);
    assert!(all.len() > 5000, "{}", all.len());
    all
}

fn flatten(path: String, value: Value, all: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(entries) => {
            for (name, value) in entries {
                let path = if path.is_empty() {
                    name
                } else {
                    format!("{path}/{name}")
                };
                flatten(path, value, all);
            }
        }
        value => _ = all.insert(path, value),
    }
}

#[test]
fn scripts_find_out_nothing_but_what_is_listed() {
    let setup = Setup::new();
    let php_fpm = PhpFpm::start(&setup);
    let expected = all(&php_fpm.socket, php_fpm.directory());
    assert_eq!(expected[BINARY], format!("'{PHP_FPM}'"));

    let ours = PhpFpm::start_as(forkyard_fpm(), &setup);
    let forkyard = Forkyard::start(&setup);
    for (socket, directory, binary) in [
        (&ours.socket, ours.directory(), forkyard_fpm()),
        (
            &forkyard.socket,
            forkyard.directory(),
            concat!("/usr/bin/php", env!("FORKYARD_PHP")),
        ),
    ] {
        let found = all(socket, directory);
        assert_eq!(found[BINARY], format!("'{binary}'"));
        let names = expected.keys().chain(found.keys());
        let different: BTreeMap<&str, _> = names
            .filter(|name| expected.get(*name) != found.get(*name))
            .filter(|name| !DIFFERENCES.iter().any(|(allowed, _)| allowed == name))
            .map(|name| (name.as_str(), (expected.get(name), found.get(name))))
            .collect();
        assert!(different.is_empty(), "name, php-fpm's, ours: {different:#?}");
    }
}

#[test]
fn phpinfo_is_written_as_by_php_fpm() {
    let setup = Setup::new();
    let servers = [PHP_FPM, forkyard_fpm()].map(|program| PhpFpm::start_as(program, &setup));
    for uri in [
        "/phpinfo.php?what=1",
        "/phpinfo.php?what=4",
        "/phpinfo.php?what=8",
        "/phpinfo.php?what=x",
    ] {
        let [theirs, ours] = servers.each_ref().map(|server| {
            let reply = Request::get(&scripts(), uri).send(&server.socket);
            let text = reply
                .text()
                .replace(&server.directory().display().to_string(), "DIRECTORY");
            let is_same_for_both =
                |line: &&str| !line.contains(">Interned Strings ") && !line.contains(">Start time ");
            let lines: Vec<String> = text.lines().filter(is_same_for_both).map(str::to_owned).collect();
            (lines, reply.errors())
        });
        assert_eq!(theirs, ours, "{uri}");
    }
}

#[test]
fn php_on_the_command_line_is_named_only_if_it_runs() {
    let server = Forkyard::start(&Setup::new());
    let reply = Request::get(&scripts(), "/binary.php").send(&server.socket);
    assert_eq!(reply.body(), concat!(env!("FORKYARD_PHP"), " cli\n"), "{reply:?}");
}

#[test]
fn the_jit_of_a_pool_is_its_own() {
    // php-fpm starts PHP before it has read the pools. Except in PHP 8.4 that silently disables the JIT.
    let is_late = env!("FORKYARD_PHP") == "8.4";
    let setup = Setup::new()
        .admin_value("opcache.jit", "tracing")
        .admin_value("opcache.jit_buffer_size", "16M");
    for (program, is_on) in [(PHP_FPM, is_late), (forkyard_fpm(), true)] {
        let server = PhpFpm::start_as(program, &setup);
        let reply = Request::get(&scripts(), "/jit.php").send(&server.socket);
        assert_eq!(reply.body(), format!("{is_on}\n"), "{program}: {reply:?}");
    }
}
