//! A thousand pools.

use super::Place;
use crate::support::prelude::*;

const POOLS: usize = 1000;
/// A scrape lasts some 50 ms with the release profile. Prometheus waits 10 s by default.
const LONGEST: Duration = Duration::from_secs(5);

#[test]
fn a_thousand_pools_are_one_scrape() {
    let mut place = None;
    let daemon = Daemon::start(|dir| {
        let own = Place::new(super::Transport::Unix, dir);
        let pools = (0..POOLS).map(|number| {
            let application = format!("{PHP}preloader = \"zygote\"\n");
            pool(
                dir,
                &format!("p{number}"),
                "pm = \"ondemand\"\nmax_children = 2\n",
                &application,
            )
        });
        let text = format!("[global]\n{}{}", own.key(), pools.collect::<String>());
        place = Some(own);
        text
    });
    let place = place.expect("an address");
    place.wait_for("/health/ready", 200);
    let begun = Instant::now();
    let got = place.get("/metrics");
    let took = begun.elapsed();
    assert_eq!(got.status, 200);
    let up = got
        .body
        .lines()
        .filter(|line| line.starts_with("forkyard_pool_up{") && line.ends_with(" 1"));
    assert_eq!(up.count(), POOLS);
    assert!(took < LONGEST, "{took:?}");
    assert_eq!(place.get("/health/busy").body, "{\"state\":\"ready\"}\n");
    drop(daemon);
}
