//! How many sessions a second the application pool's book can lend and close, with many applications in it.
//!
//! `cargo run --release --example application_pool_load [APPLICATIONS]`

use forkyard_base::tick::Tick;
use forkyard_core::applications::action::Action;
use forkyard_core::applications::event::{Event, Get, Return, SessionId, Target, Wait};
use forkyard_core::applications::{ApplicationPool, Options};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

const ROUNDS: u64 = 1_000_000;

fn main() {
    let said = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let applications: u32 = said.unwrap_or(10_000);
    let names: Vec<Arc<str>> = (0..applications)
        .map(|app| Arc::from(format!("/srv/app{app}")))
        .collect();
    // All have an instance; then a tenth more ask than there are places for.
    for places in [applications, applications - applications / 11] {
        let (elapsed, begun) = measure(&names, places);
        let rate = ROUNDS as f64 / elapsed.as_secs_f64();
        println!(
            "{applications} applications, {places} places: {rate:.0} sessions/s, {begun} instances begun"
        );
    }
}

fn measure(names: &[Arc<str>], places: u32) -> (Duration, u64) {
    let places = NonZeroU32::new(places).unwrap_or(NonZeroU32::MIN);
    let mut pool = ApplicationPool::new(places, places);
    let options = Options::default();
    let mut actions = Vec::new();
    let mut queue = Vec::new();
    let mut drawn = 1_u64;
    let mut begun = 0;
    let start = Instant::now();
    for round in 1..=ROUNDS {
        drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let app = (drawn >> 33) as usize % names.len();
        let now = Tick::from_nanos(round * 1_000);
        let get = Get {
            session: SessionId(round),
            target: Target::Application(Arc::clone(&names[app]), options),
            wait: Wait::Endless,
            restart_files: None,
            alone: false,
        };
        queue.push(Event::Get(get));
        while let Some(event) = queue.pop() {
            pool.handle(event, now, &mut actions);
            for action in actions.drain(..) {
                match action {
                    Action::Spawn(id, ..) => {
                        begun += 1;
                        queue.push(Event::Spawned(id));
                    }
                    Action::Stop(id, _) => queue.push(Event::Exited(id)),
                    Action::CheckOut(session, _) => queue.push(Event::Close(session, Return::Ok)),
                    _ => {}
                }
            }
        }
    }
    (start.elapsed(), begun)
}
