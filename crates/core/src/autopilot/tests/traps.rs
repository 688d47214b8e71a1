//! Simple loops of a pool and a database. Each shows a fault of a simpler rule.

use super::super::*;

const MACHINE: Machine = Machine {
    cores: 4.0,
    memory: 16 << 30,
    requests_a_worker: 1,
};
/// Seconds that a request computes, and waits in calm.
const RUN: f64 = 0.008;
const WAIT: f64 = 0.04;

/// A pool with a database; `wait` returns the wait of a request for a number of workers.
struct Loop<W> {
    autopilot: Autopilot,
    wait: W,
    /// The wait for processors, as a part of the processor time.
    queued: f64,
    /// Each second's answers.
    done: Vec<f64>,
}

impl<W: Fn(f64) -> f64> Loop<W> {
    fn new(wait: W) -> Loop<W> {
        Loop {
            autopilot: Autopilot::start(&MACHINE, 0),
            wait,
            queued: 0.0,
            done: Vec::new(),
        }
    }

    fn most(&self) -> f64 {
        f64::from(self.autopilot.decision().most)
    }

    /// Runs seconds with this many requests each. The workers serve up to their capacity.
    fn pass(&mut self, seconds: u32, load: f64) -> f64 {
        for _ in 0..seconds {
            let most = self.most();
            let wait = (self.wait)(most);
            let capacity = most / (RUN + wait);
            let is_full = load > capacity;
            // With less load, fewer workers are busy, and the database is at ease.
            let wait = if is_full { wait } else { (self.wait)(1.0) };
            let done = load.min(capacity).floor();
            let busy = (done * (RUN + wait)).min(most);
            self.done.push(done);
            self.autopilot.second(&Second {
                live: most as u32,
                busy: busy as u32,
                waiting: u32::from(is_full),
                full: f64::from(u32::from(is_full)),
                done: done as u32,
                run: done * RUN,
                queued: done * RUN * self.queued,
                held: done * (RUN * (1.0 + self.queued) + wait),
                routes: vec![route(1, done as u32, wait)],
                private: vec![30 << 20; 4],
                ..blank(done, wait)
            });
        }
        self.most()
    }

    fn work(&self, seconds: usize) -> f64 {
        self.done[self.done.len() - seconds..].iter().sum::<f64>() / seconds as f64
    }
}

/// A database that serves this many connections well.
fn database(good: f64) -> impl Fn(f64) -> f64 {
    move |workers| {
        let over = (workers - good).max(0.0) / good;
        WAIT * (1.0 + over) * (1.0 + 0.25 * over)
    }
}

#[test]
fn a_busy_database_gets_fewer_workers_and_does_as_much() {
    let mut pool = Loop::new(database(10.0));
    let calm = pool.pass(60, 100.0);
    assert!(calm > 15.0, "{calm}");
    let most = pool.pass(120, 1000.0);
    assert!((9.0..=14.0).contains(&most), "{most}");
    let best = 10.0 / (RUN + WAIT);
    assert!(pool.work(30) > 0.93 * best, "{} of {best}", pool.work(30));
    let reason = pool.autopilot.decision().reason.to_string();
    assert!(reason.starts_with("what requests wait for "), "{reason}");
}

/// After a failed first trial there is no limit.
#[test]
fn a_database_that_is_slow_by_itself_keeps_its_workers() {
    let slower = std::cell::Cell::new(1.0);
    let mut pool = Loop::new(|_| WAIT * slower.get());
    let before = pool.pass(60, 100.0);
    slower.set(2.5);
    let most = pool.pass(40, 1000.0);
    assert!(most >= before, "{most} of {before}");
    assert!(pool.autopilot.learnt.waiting.most() > before);
    // It is usual now, so that more workers wait.
    assert!(most > 1.5 * before, "{most} of {before}");
}

/// Longer waits than usual do not ask for more workers.
#[test]
fn a_slow_database_is_not_a_reason_for_more_workers() {
    let mut processors = Processors::default();
    let mut usual = Usual::default();
    let mut numbers = Vec::new();
    for slower in [1.0, 3.0] {
        let wait = WAIT * slower;
        let second = Second {
            routes: vec![route(1, 100, wait)],
            ..blank(100.0, wait)
        };
        for _ in 0..100 {
            usual.second(&second.routes, slower == 1.0);
            numbers.push(processors.second(&second, usual.times_slower()).0);
        }
    }
    let (calm, last) = (numbers[99], numbers[199]);
    assert!((last - calm).abs() <= 2.0, "{calm} {last}");
}

/// Fewer workers don't help if processors are short, because a neighbour may use the processors.
#[test]
fn nobody_tries_fewer_while_processors_are_short() {
    let slower = std::cell::Cell::new(1.0);
    let mut pool = Loop::new(|_| WAIT * slower.get());
    pool.pass(60, 100.0);
    slower.set(2.0);
    pool.queued = 0.6;
    pool.pass(60, 1000.0);
    assert_eq!(pool.autopilot.learnt.waiting.most(), f64::from(MOST));
}

/// Work that falls by a twentieth at each step is compared with the best, not with the step before.
#[test]
fn small_losses_do_not_add_up() {
    let is_hot = std::cell::Cell::new(false);
    let mut pool = Loop::new(|workers: f64| match is_hot.get() {
        false => WAIT,
        true => workers / (600.0 * (workers / 30.0).powf(0.2)) - RUN,
    });
    pool.pass(60, 100.0);
    is_hot.set(true);
    let first = pool.pass(1, 1000.0);
    pool.pass(200, 2000.0);
    let least = pool.done[61..]
        .iter()
        .fold(f64::INFINITY, |least, done| least.min(*done));
    let hottest = pool.done[61..].iter().fold(0.0_f64, |most, done| most.max(*done));
    assert!(
        least > 0.8 * hottest,
        "{least} of {hottest}, from {first} workers"
    );
}

/// Load that goes during a trial gives no answer: the limit goes back.
#[test]
fn a_trial_without_load_is_taken_back() {
    let mut pool = Loop::new(database(10.0));
    let before = pool.pass(60, 100.0);
    let mut seconds = 0;
    while pool.autopilot.learnt.waiting.most() > before {
        pool.pass(1, 1000.0);
        seconds += 1;
        assert!(seconds < 60, "no trial begins");
    }
    let during = pool.autopilot.learnt.waiting.most();
    pool.pass(2, 10.0);
    assert!(pool.autopilot.learnt.waiting.most() >= (1.3 * during).min(before));
}

/// A pool with overload from its first second on does not know the usual waits. It tries fewer workers all the same.
#[test]
fn a_pool_that_was_never_calm_tries_fewer() {
    let mut pool = Loop::new(database(5.0));
    let most = pool.pass(120, 2000.0);
    assert!(most < 12.0, "{most}");
}

/// A few very long requests of a route move its mean, but hardly its logarithm.
#[test]
fn a_long_tail_is_no_alarm() {
    let mut usual = Usual::default();
    for second in 0..200 {
        let mut route = route(1, 100, WAIT);
        if second % 10 == 9 {
            // One request took a hundred times as long: the mean doubles.
            route.log_blocked += 100_f64.ln();
            route.blocked += 99.0 * WAIT;
        }
        usual.second(&[route], false);
        assert!(usual.times_slower() < 1.12, "{}", usual.times_slower());
    }
}

/// A mix of other routes is not slower.
#[test]
fn another_mix_of_routes_is_no_alarm() {
    let mut usual = Usual::default();
    for second in 0..200 {
        let (fast, slow) = if second < 100 { (99, 1) } else { (50, 50) };
        usual.second(&[route(1, fast, WAIT), route(2, slow, 50.0 * WAIT)], true);
        assert!(usual.times_slower() < 1.05, "{}", usual.times_slower());
    }
}

fn route(key: u64, done: u32, wait: f64) -> Route {
    let count = f64::from(done);
    Route {
        key,
        done,
        log_blocked: count * (wait + 0.001).ln(),
        blocked: count * wait,
    }
}

/// A second of requests with this wait each.
fn blank(done: f64, wait: f64) -> Second {
    Second {
        elapsed: 1.0,
        machine: MACHINE,
        shared: 0,
        others: 0,
        current: 0,
        pressure: false,
        live: 20,
        busy: 20,
        waiting: 1,
        full: 0.3,
        done: done as u32,
        run: done * RUN,
        queued: 0.0,
        held: done * (RUN + wait),
        routes: Vec::new(),
        private: Vec::new(),
    }
}
