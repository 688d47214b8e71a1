//! WordPress by the recipe of the documents: what its pages for readers say, byte for byte.

use super::{ONE, mode_pool, ordinary_pool, status_of};
use crate::support::mariadb::MariaDb;
use crate::support::prelude::*;

const SITE: &str = "/usr/share/wordpress";
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/scripts/wordpress");

const EDIT: &str = r#"<?php
require __DIR__ . '/wp-load.php';
update_option('blogname', 'Other Notes');
wp_insert_post(['post_title' => 'The newest', 'post_content' => 'Text.', 'post_status' => 'publish', 'post_author' => 1]);
echo 'edited';
"#;

fn copy(dir: &Path) {
    assert!(
        Path::new(SITE).join("wp-load.php").exists(),
        "{SITE} is missing (Debian packages wordpress, wordpress-theme-twentytwentythree)"
    );
    let copied = Command::new("cp")
        .args(["-rL", SITE])
        .arg(dir.join("site"))
        .status();
    assert!(copied.is_ok_and(|status| status.success()));
    for script in ["wp-config.php", "install.php"] {
        fs::copy(Path::new(SCRIPTS).join(script), dir.join("site").join(script)).expect("copy");
    }
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/howto/boot-once.md");
    let blocks = super::super::documents::blocks::read(&document);
    let recipe = blocks
        .into_iter()
        .find(|block| block.text.contains("wp-load.php"))
        .expect("the recipe");
    fs::write(dir.join("site/worker.php"), recipe.text).expect("write");
    fs::write(dir.join("site/edit.php"), EDIT).expect("write");
    fs::create_dir(dir.join("database")).expect("mkdir");
}

#[test]
fn wordpress_says_to_readers_what_it_says_in_an_ordinary_pool() {
    let dir = directory();
    let path = dir.path().to_owned();
    copy(&path);
    make_writable(&path.join("site"));
    let _database = MariaDb::start_in(&path.join("database"));
    let application = "warm_up_server = { HTTP_HOST = \"localhost\", REQUEST_METHOD = \"GET\", REQUEST_URI = \"/\" }\n\
                       isolation = \"rewind\"\nboot_connections = \"refuse\"\nboot_timeout = \"120s\"\n";
    let application = format!("worker_mode = \"snapshot\"\n{application}");
    let ondemand = "pm = \"ondemand\"\nmax_children = 1\nprocess_idle_timeout = \"1h\"\n";
    let text = with_control(&path)
        + &ordinary_pool(&path, "www", ONE, "")
        + &mode_pool(&path, "snap", "site/worker.php", ondemand, &application);
    fs::write(path.join("forkyard.toml"), text).expect("configuration");
    let daemon = Daemon::start_in(&path).keeping(dir);
    let site = path.join("site");
    let ask = |pool: &str, script: &str, uri: &str| {
        let query = uri.split_once('?').map_or("", |(_, query)| query);
        let params = Params::get(&site, script, query)
            .with("REQUEST_URI", uri)
            .with("SERVER_NAME", "localhost")
            .with("HTTP_HOST", "localhost");
        daemon.ask(pool, &params)
    };
    assert_eq!(ask("www", "install.php", "/install.php").body(), "installed");
    let is_alike = |round: u32, part: &str| {
        for uri in [
            "/",
            "/?p=5",
            "/?s=text",
            "/?feed=rss2",
            "/?p=99999",
            "/?m=202601",
            "/?author=1",
        ] {
            let [ordinary, own] = ["www", "snap"].map(|pool| ask(pool, "index.php", uri));
            assert_eq!(ordinary.text(), own.text(), "{uri}, round {round}");
            assert!(own.text().contains(part), "{uri}: {}", own.text());
        }
    };
    for round in 0..2 {
        is_alike(round, "Notes");
    }
    assert_eq!(ask("www", "edit.php", "/edit.php").body(), "edited");
    assert!(ask("snap", "index.php", "/").text().contains("The newest"));
    is_alike(2, "Other Notes");
    let pool = status_of(&daemon, "snap");
    assert_eq!(pool["counts"]["starts"], 1, "one worker: {pool:#}");
}
