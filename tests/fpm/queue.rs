//! `max listen queue` reports a full pool's backlog, as in php-fpm.

use super::pair::{Fpm, is_possible};
use crate::support::prelude::*;

const CLIENTS: u64 = 40;
const WORKERS: u64 = 2;
const LOAD: Duration = Duration::from_millis(2_600);

fn after_a_load(fpm: &Fpm) -> Value {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let params = fpm.params("slow.php", "");
        for _ in 0..CLIENTS {
            let (stop, params) = (&stop, params.clone());
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let mut client = Client::connect_tcp(&fpm.address).expect("it listens");
                    assert_eq!(client.request(&params, b"").expect("an answer").body(), "done");
                }
            });
        }
        let end = Instant::now() + LOAD;
        while Instant::now() < end {
            let _ = nix::poll::poll(&mut [], 50_u8);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let text = fpm.ask(&fpm.params("status", "json"), b"").body();
    parsed(&text)
}

#[test]
fn the_longest_queue_of_a_full_pool_is_no_shorter_than_php_fpm_s() {
    skip_if!(!is_possible());
    let pool = format!("pm.max_children = {WORKERS}\npm.status_path = /status");
    let scripts = [("slow.php", "<?php usleep(10000); echo 'done';")];
    let [stock, ours] = Fpm::both("", &pool, &scripts).map(|fpm| after_a_load(&fpm));
    let longest = |page: &Value| page["max listen queue"].as_u64().expect("a number");
    // Every other request waits. Between an answer and the next accept there may be one more.
    let waiting = CLIENTS - WORKERS;
    assert!(longest(&stock) >= waiting / 2, "{stock}");
    assert!(
        longest(&ours) >= longest(&stock).min(waiting),
        "php-fpm: {stock}\nforkyard-fpm: {ours}"
    );
    assert_eq!(ours["listen queue"], 0, "{ours}");
}
