//! Compares the new generation with the old one while both serve, and decides whether the new one goes back.
//!
//! ```text
//!  sums of a second ──▶ windows by route ──▶ evidence ──▶ weighted mean ──▶ verdict
//! ```
//!
//! Only a difference at the same time on the same route counts. The verdict may be asked after each second: the evidence stays
//! valid for any number of looks, routes and steps, because it is shared out among them beforehand.

mod evidence;
mod plain;
mod sums;
#[cfg(test)]
mod tests;
mod verdict;
mod window;

use evidence::Evidence;
use forkyard_protocol::routes::OTHER;
use plain::{Deaths, Plain};
use std::collections::BTreeMap;
pub use sums::{Counts, Events, Pair, Second, Times};
pub use verdict::{Figures, Verdict, Why};
use window::Window;

/// The evidence that rolls back. A good release has it once in so many deployments.
const ENOUGH: f64 = 1000.0;
/// The evidence of one question that is a reason to wait for more: about the whole generation, and about one of many routes.
const SUSPICIOUS: f64 = 10.0;
const SUSPICIOUS_ROUTE: f64 = 10.0;

/// Stakes of the questions. Their sum is 1.
const ALL_ERRORS: f64 = 0.25;
const ALL_TIMES: f64 = 0.15;
const DEATHS: f64 = 0.1;
const STARTS: f64 = 0.05;
const ROUTE_ERRORS: f64 = 0.2 / (sums::MOST_ROUTES + 1) as f64;
const ROUTE_TIMES: f64 = 0.25 / (sums::MOST_ROUTES + 1) as f64;

/// A smaller part of failures is no reason to go back, even with strong evidence.
const LEAST_ERRORS: f64 = 0.002;
const LEAST_DEATHS: f64 = 0.0005;
/// The smallest difference of medians, in seconds.
const LEAST_SLOWER: f64 = 0.001;

/// The most starts in a second.
const MOST_STARTS: u64 = 1000;
/// Seconds without evidence from starts after a failed start of the old generation.
const AFTER_OLD_FAILURE: u32 = 10;

#[derive(Debug, Clone, PartialEq, Default)]
struct Route {
    window: Window,
    errors: Evidence,
    times: Evidence,
    plain: Plain,
}

/// A question about the whole generation.
#[derive(Debug, Clone, PartialEq, Default)]
struct Whole {
    window: Window,
    evidence: Evidence,
}

impl Whole {
    fn second(&mut self, second: &Pair<Counts>, part: f64) {
        if let Some(window) = self.window.second(second, part) {
            self.evidence.add(&window, evidence::errors(&window));
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Compare {
    /// The smaller part of requests that a generation should have.
    part: f64,
    routes: BTreeMap<String, Route>,
    /// Routes with few requests, as one route.
    rare: Window,
    all_errors: Evidence,
    all_times: Evidence,
    deaths: Whole,
    starts: Evidence,
    after_old_failure: u32,
    compared: u64,
    /// Requests of the new generation whose times were compared.
    timed: u64,
    /// All requests of this step.
    plain: Plain,
    plain_deaths: Deaths,
    plain_refusals: Plain,
}

impl Compare {
    /// Begins with the first step. `percent`: the part of requests for the new generation.
    pub fn new(percent: u8) -> Compare {
        Compare {
            part: smaller_part(percent),
            routes: BTreeMap::from([(OTHER.to_owned(), Route::default())]),
            ..Compare::default()
        }
    }

    /// Begins the next step.
    pub fn step(&mut self, percent: u8) {
        self.part = smaller_part(percent);
        self.windows(|_, window| window.end());
        let rare = self.rare.end();
        self.rare(rare);
        (self.compared, self.timed) = (0, 0);
        for route in self.routes.values_mut() {
            route.errors.renew();
            route.times.renew();
            route.plain = Plain::default();
        }
        (self.plain, self.plain_deaths, self.plain_refusals) = Default::default();
        if let Some(window) = self.deaths.window.end() {
            self.deaths.evidence.add(&window, evidence::errors(&window));
        }
        self.deaths.evidence.renew();
        self.all_errors.renew();
        self.all_times.renew();
    }

    /// Whether one question has so much evidence that a longer step would answer it.
    pub fn is_suspicious(&self) -> bool {
        self.plain_deaths.doubts()
            || self.plain_refusals.doubts()
            || self.questions().any(|(route, why, _, evidence)| {
                let enough = route.map_or(SUSPICIOUS, |_| SUSPICIOUS_ROUTE);
                evidence.mean() >= enough && matters(why, &evidence.sums)
            })
    }

    /// Returns how many requests of the new generation were compared in this step, for failures and for times. A slow release
    /// has few after the first ones of each worker.
    pub fn compared(&self) -> u64 {
        self.compared.min(self.timed)
    }

    /// Takes the sums of a second.
    pub fn second(&mut self, second: &Second) -> Verdict {
        let mut other = Pair::<Counts>::default();
        let mut all = Pair::<Counts>::default();
        for (name, counts) in &second.routes {
            all.merge(counts);
            let is_known = self.routes.contains_key(name);
            if name == OTHER || (!is_known && self.routes.len() > sums::MOST_ROUTES) {
                other.merge(counts);
            } else if !is_known {
                self.routes.insert(name.clone(), Route::default());
            }
        }
        self.plain.second(&all);
        for (name, counts) in &second.routes {
            if let Some(route) = self.routes.get_mut(name).filter(|_| name != OTHER) {
                route.plain.second(counts);
            }
        }
        let nothing = Pair::default();
        let part = self.part;
        let mut rare = Pair::<Counts>::default();
        self.windows(|name, window| {
            let counts = match name {
                OTHER => &other,
                _ => second.routes.get(name).unwrap_or(&nothing),
            };
            let complete = window.second(counts, part);
            if window.is_rare {
                rare.merge(counts);
            }
            complete
        });
        let rare = self.rare.second(&rare, part);
        self.rare(rare);
        self.events(&second.events, &all);
        self.verdict()
    }

    /// Takes the windows of routes that are complete.
    fn windows(&mut self, mut complete: impl FnMut(&str, &mut Window) -> Option<Pair<Counts>>) {
        for (name, route) in &mut self.routes {
            let Some(window) = complete(name, &mut route.window) else {
                continue;
            };
            let gains = evidence::errors(&window);
            route.errors.add(&window, gains);
            if !route.window.is_rare {
                self.compared = self.compared.saturating_add(compared(&window));
                self.all_errors.add(&window, gains);
            }
            if window.old.times.count() > 0 {
                self.timed = self.timed.saturating_add(window.new.times.count());
            }
            let gains = evidence::times(&window);
            route.times.add(&window, gains);
            self.all_times.add(&window, gains);
        }
    }

    fn rare(&mut self, window: Option<Pair<Counts>>) {
        if let Some(window) = window {
            self.compared = self.compared.saturating_add(compared(&window));
            self.all_errors.add(&window, evidence::errors(&window));
        }
    }

    fn events(&mut self, events: &Pair<Events>, all: &Pair<Counts>) {
        let with = |of: fn(&Events) -> u64| {
            let of_requests = |counts: &Counts, failed: u64| Counts {
                requests: counts.requests.max(failed),
                errors: failed,
                evident: failed,
                times: Times::default(),
            };
            Pair {
                old: of_requests(&all.old, of(&events.old)),
                new: of_requests(&all.new, of(&events.new)),
            }
        };
        let deaths = with(|events| events.deaths);
        self.deaths.second(&deaths, self.part);
        self.plain_deaths.second(&deaths);
        self.plain_refusals.second(&with(|events| events.refused));
        self.after_old_failure = match events.old.failed_starts {
            0 => self.after_old_failure.saturating_sub(1),
            _ => AFTER_OLD_FAILURE,
        };
        let starts = events.new.starts.min(MOST_STARTS);
        if self.after_old_failure == 0 && starts > 0 {
            let failed = events.new.failed_starts.min(starts);
            let mut sums = Pair::<Counts>::default();
            (sums.new.requests, sums.new.errors) = (starts, failed);
            self.starts.add(&sums, evidence::starts(starts, failed));
        }
    }

    /// Returns the route, the difference, the stake and the evidence of each question.
    fn questions(&self) -> impl Iterator<Item = (Option<&String>, Why, f64, &Evidence)> {
        let wholes = [
            (None, Why::Errors, ALL_ERRORS, &self.all_errors),
            (None, Why::Slower, ALL_TIMES, &self.all_times),
            (None, Why::Deaths, DEATHS, &self.deaths.evidence),
            (None, Why::FailedStarts, STARTS, &self.starts),
        ];
        let routes = self.routes.iter().flat_map(|(name, route)| {
            [
                (Some(name), Why::Errors, ROUTE_ERRORS, &route.errors),
                (Some(name), Why::Slower, ROUTE_TIMES, &route.times),
            ]
        });
        wholes.into_iter().chain(routes)
    }

    fn verdict(&self) -> Verdict {
        let mut sum = 0.0;
        let mut strongest = (0.0, Verdict::GoOn);
        for (route, why, stake, evidence) in self.questions() {
            let value = stake * evidence.value();
            if value <= 1.0 || !matters(why, &evidence.sums) {
                continue;
            }
            sum += value;
            if value > strongest.0 {
                strongest = (value, Verdict::roll_back(route, why, &evidence.sums));
            }
        }
        match sum >= ENOUGH {
            true => strongest.1,
            false => self.plain_verdict(),
        }
    }

    fn plain_verdict(&self) -> Verdict {
        if self.plain_deaths.fails() {
            return Verdict::roll_back(None, Why::Deaths, &self.plain_deaths.sums);
        }
        if self.plain_refusals.fails() {
            return Verdict::roll_back(None, Why::Refusals, &self.plain_refusals.sums);
        }
        let routes = self.routes.iter().map(|(name, route)| (Some(name), &route.plain));
        let mut all = [(None, &self.plain)].into_iter().chain(routes);
        let failing = all.find(|(_, plain)| plain.fails());
        failing.map_or(Verdict::GoOn, |(route, plain)| {
            Verdict::roll_back(route, Why::Errors, &plain.sums)
        })
    }
}

/// Returns the new generation's requests, if the old one also has some.
fn compared(window: &Pair<Counts>) -> u64 {
    match window.old.requests {
        0 => 0,
        _ => window.new.requests,
    }
}

fn smaller_part(percent: u8) -> f64 {
    let part = f64::from(percent.clamp(1, 99)) / 100.0;
    part.min(1.0 - part)
}

/// Whether the difference is large enough to go back.
fn matters(why: Why, sums: &Pair<Counts>) -> bool {
    let failed = sums.new.errors as f64 / sums.new.requests.max(1) as f64;
    match why {
        Why::Errors => failed >= LEAST_ERRORS,
        Why::Deaths => failed >= LEAST_DEATHS,
        Why::Refusals | Why::FailedStarts => true,
        Why::Slower => {
            let median = |times: &Times| times.median().unwrap_or(0.0);
            median(&sums.new.times) - median(&sums.old.times) >= LEAST_SLOWER
        }
    }
}
