//! A route that takes longer in the new release takes it back; one that takes longer in both does not.

use super::Shop;
use super::visitors::{STATIC, Visitors, application};
use crate::support::prelude::*;

/// The route sleeps for so many milliseconds, and three times as long while there is a file that both releases look for.
const PHP: &str = "<?php $slow = $_SERVER['REQUEST_URI'] === '/cart';
clearstatcache();
if ($slow) { usleep(file_exists(dirname(__DIR__, 2) . '/outage') ? 60000 : MILLISECONDS * 1000); }
echo $slow ? 'slow' : 'fast';";
const WSGI: &str = "import os, time
OUTAGE = os.path.join(os.path.dirname(os.path.dirname(os.getcwd())), 'outage')
def application(environ, start):
    slow = environ['REQUEST_URI'] == '/cart'
    if slow:
        time.sleep(0.06 if os.path.exists(OUTAGE) else MILLISECONDS / 1000)
    start('200 OK', [])
    return [b'slow' if slow else b'fast']
";
const ROUTES: [&str; 4] = ["/", "/help", "/cart", "/search"];
const STEPS: &str = "gradual = [50]\nstep_time = \"600s\"\n";

const ROWS: [(&str, &str); 2] = [("zygote", PHP), ("wsgi", WSGI)];

/// Starts a shop whose releases 1 and 2 take so many milliseconds, and visitors that have warmed its workers.
fn start((name, text): (&str, &str), milliseconds: [u32; 2]) -> (Shop, Visitors) {
    let shop = Shop::start(application(name), &format!("{STATIC}{STEPS}"), false);
    for (release, time) in ["1", "2"].into_iter().zip(milliseconds) {
        let directory = shop.daemon.dir.join("releases").join(release);
        let text = text.replace("MILLISECONDS", &time.to_string());
        write_file(directory.join(shop.application.files[0].0), text);
    }
    exited(Some(0), shop.daemon.said(&["restart", "shop", "--wait"]));
    let visitors = Visitors::start(&shop, &ROUTES, 2, false);
    wait_until("requests", || visitors.seen("slow") >= 60);
    (shop, visitors)
}

#[test]
fn a_release_with_a_slower_route_is_taken_back() {
    for row in ROWS {
        let (shop, visitors) = start(row, [20, 60]);
        let before = visitors.seen("slow");
        let (code, said) = shop.deploy(&[&shop.release("2")]);
        let requests = visitors.seen("slow") - before;
        let name = row.0;
        assert_eq!(code, 70, "{name}: {said}");
        assert_contains(&said, "was taken back: GET /cart takes");
        println!("{name}: {requests} requests: {said}");
        assert!(requests <= 500, "{name}: {requests} requests");
        assert_eq!(shop.link("current").as_deref(), Some("releases/1"));
        let seen = visitors.end();
        assert!(seen.keys().all(|text| text.starts_with("200")), "{seen:?}");
    }
}

#[test]
fn a_route_that_becomes_slower_in_both_releases_takes_nothing_back() {
    for row in ROWS {
        let (shop, visitors) = start(row, [20, 20]);
        let mut command = forkyard(&["deploy", "shop", &shop.release("2")], &shop.daemon.dir);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let deploying = command.spawn().expect("a deployment");
        let shown = || parsed(&shop.daemon.shown(&["releases", "--json"]))[0].take();
        let compared = || shown()["under_way"]["compared"].as_u64().unwrap_or(0);
        wait_until("a comparison", || compared() >= 200);
        shop.daemon.write("outage", "");
        let before = visitors.seen("slow");
        wait_until("250 slow requests", || visitors.seen("slow") >= before + 250);
        let now = shown();
        assert_eq!(now["under_way"]["percent"], 50, "{}: {now}", row.0);
        exited(Some(0), shop.daemon.said(&["rollback", "shop"]));
        let output = deploying.wait_with_output().expect("a command");
        assert_contains(&told(&output), "was taken back: an operator asked for it");
        visitors.end();
    }
}
