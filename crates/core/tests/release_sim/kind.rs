//! Kinds of releases, and how many requests they get.

use super::chance::{part, skewed};
use crate::random::Random;

/// The releases of a simulation. All kinds except `Good` are bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Good,
    AllFail,
    OneOfTwentyFails,
    /// Four of twenty routes fail.
    FifthFails,
    ThreeTimesSlower,
    Leaks,
    DiesAfterFifty,
    FailsCold,
    FailsForOneCookie,
    StartHangs,
    FlappingDatabase,
    NoTraffic,
}

/// The ten kinds of bad releases.
pub(super) const BAD: [Kind; 10] = [
    Kind::AllFail,
    Kind::OneOfTwentyFails,
    Kind::ThreeTimesSlower,
    Kind::Leaks,
    Kind::DiesAfterFifty,
    Kind::FailsCold,
    Kind::FailsForOneCookie,
    Kind::StartHangs,
    Kind::FlappingDatabase,
    Kind::NoTraffic,
];

/// A route of the site.
#[derive(Debug, Clone)]
pub(super) struct Route {
    /// The share of all requests, summed up from the first route on.
    pub until: f64,
    /// The median in seconds, and the deviation of its logarithm.
    pub median: f64,
    pub deviation: f64,
    /// The part that fails in any release.
    pub failing: f64,
    pub has_database: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Site {
    pub rate: f64,
    pub workers: u32,
    pub routes: Vec<Route>,
    /// Outages of the database: the mean seconds between them, and of one.
    pub outages: Option<(f64, f64)>,
    /// Bursts of one client in a second, all on one kept connection.
    pub bursts: f64,
    /// The chance in a second that a client begins to send the same broken request, five times a second for twenty seconds, on
    /// one kept connection.
    pub hammered: f64,
    /// How much the part of the new generation differs from the wanted one, from second to second.
    pub unevenness: f64,
    /// Seconds of a step.
    pub step_time: u64,
}

impl Site {
    /// A site with these requests per second over `routes` equal routes, and nothing unusual.
    pub(super) fn plain(rate: f64, routes: usize) -> Site {
        let route = |index: usize| Route {
            until: (index + 1) as f64 / routes as f64,
            median: 0.05,
            deviation: 0.7,
            failing: 0.0,
            has_database: true,
        };
        Site {
            rate,
            workers: 40,
            routes: (0..routes).map(route).collect(),
            outages: None,
            bursts: 0.0,
            hammered: 0.0,
            unevenness: 0.0,
            step_time: 30,
        }
    }

    /// Gives all routes a database that is out for five seconds of fifteen.
    pub(super) fn flaps(&mut self) {
        self.outages = Some((10.0, 5.0));
        for route in &mut self.routes {
            route.has_database = true;
        }
    }

    /// Any site.
    pub(super) fn any(random: &mut Random) -> Site {
        let count = random.between(1, 60) as usize;
        let weights: Vec<f64> = (0..count).map(|_| skewed(random, 1.0, 1.5)).collect();
        let all: f64 = weights.iter().sum();
        let mut until = 0.0;
        let routes = weights.iter().map(|weight| {
            until += weight / all;
            Route {
                until,
                median: skewed(random, 0.08, 1.2),
                deviation: 0.2 + 1.2 * part(random),
                failing: match random.below(6) {
                    0 => 0.05 * part(random),
                    1 => 0.003 * part(random),
                    2 => 0.0003,
                    _ => 0.0,
                },
                has_database: random.one_in(2),
            }
        });
        let routes = routes.collect();
        Site {
            rate: (0.5_f64).max(10.0_f64.powf(2.6 * part(random))),
            workers: random.between(2, 60),
            routes,
            outages: random
                .one_in(3)
                .then(|| (5.0 + 60.0 * part(random), 0.5 + 15.0 * part(random))),
            bursts: if random.one_in(3) { 0.2 * part(random) } else { 0.0 },
            hammered: if random.one_in(4) {
                0.02 * part(random)
            } else {
                0.0
            },
            unevenness: part(random) * 0.5,
            step_time: random.pick(&[10, 30, 60]),
        }
    }
}
