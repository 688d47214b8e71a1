//! Random number generators that the boot has used: no two requests get the same number.

use super::{PHP, mode_pool, ordinary_pool};
use crate::support::prelude::*;

const GENERATORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/php_worker/generators.php");
const PAGE: &str = "<?php require_once __DIR__ . '/generators.php';
echo json_encode(draw(isset($_GET['gmp'])) + ['pid' => getmypid()]);";
const WORKER: &str = "<?php require_once __DIR__ . '/generators.php'; draw(true);
while (forkyard_handle_request(function () { require __DIR__ . '/page.php'; }));";
const PRELOAD: &str = "<?php require_once __DIR__ . '/generators.php'; draw(true);";
const REQUESTS: usize = 40;

fn php_ini(dir: &Path, name: &str, more: &str) -> PathBuf {
    let said = Command::new(format!("php-config{PHP}"))
        .arg("--extension-dir")
        .output()
        .expect("php-config");
    let place = PathBuf::from(String::from_utf8(said.stdout).expect("a path").trim());
    assert!(
        place.join("gmp.so").exists(),
        "gmp.so is missing: package php{PHP}-gmp"
    );
    let path = dir.join(name);
    fs::write(&path, format!("extension = gmp.so\nffi.enable = true\n{more}")).expect("php.ini");
    path
}

#[test]
fn no_number_comes_twice() {
    let daemon = Daemon::start(|dir| {
        fs::copy(GENERATORS, dir.join("generators.php")).expect("copy");
        for (name, text) in [
            ("page.php", PAGE),
            ("worker.php", WORKER),
            ("preload.php", PRELOAD),
        ] {
            fs::write(dir.join(name), text).expect("write");
        }
        let settings = "pm = \"static\"\nmax_children = 2\n";
        let own = format!("php_ini = \"{}\"\n", php_ini(dir, "php.ini", "").display());
        let preload = format!("opcache.preload = {}/preload.php\n", dir.display());
        let preload = php_ini(dir, "preload.ini", &preload);
        let replaced = format!("{settings}max_requests = 10\n");
        ordinary_pool(
            dir,
            "www",
            &replaced,
            &format!("php_ini = \"{}\"\n", preload.display()),
        ) + &["loop", "rewind"]
            .map(|name| {
                let mode = match name {
                    "loop" => "worker_mode = \"loop\"\nloop_requests = 10\n".to_owned(),
                    isolation => format!("worker_mode = \"snapshot\"\nisolation = \"{isolation}\"\n"),
                };
                let application = format!("{own}{mode}warm_up_requests = [\"/?gmp=1\"]\n");
                let settings = if name == "loop" { settings } else { &replaced };
                mode_pool(dir, name, "worker.php", settings, &application)
            })
            .concat()
    });
    let mut seen = BTreeSet::new();
    let mut again: BTreeMap<String, usize> = BTreeMap::new();
    for pool in ["www", "loop", "rewind"] {
        let mut workers = BTreeSet::new();
        for number in 0..REQUESTS {
            let query = if number % 5 == 0 { "?gmp=1" } else { "" };
            let answer = daemon.get(pool, &format!("page.php{query}"));
            let drawn: serde_json::Map<String, Value> =
                serde_json::from_str(&answer.body()).unwrap_or_else(|_| panic!("{pool}: {}", answer.text()));
            for (name, value) in drawn {
                if name == "pid" {
                    workers.insert(value.to_string());
                } else if !seen.insert(format!("{name} {value}")) {
                    *again.entry(format!("{pool}: {name}")).or_default() += 1;
                }
            }
        }
        assert!(workers.len() > 1, "{pool}: {workers:?}");
    }
    assert!(again.is_empty(), "had come before: {again:?}");
}
