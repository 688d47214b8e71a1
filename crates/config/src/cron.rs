//! When schedules are due: crontab(5) in a time zone.
//!
//! A schedule with fixed hours follows the clock on the wall. A time that the clock leaves out, when it is put forward, is due
//! at the first moment after it; one that comes twice, when it is put back, the first time only. A schedule for every hour
//! (`*` or `*/N`) follows elapsed time: it is due in each hour that passes.

use cronexpr::{Crontab, MakeTimestamp};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// Times of the wall clock that were left out or have passed, of which none is after the moment asked for.
const MOST_TRIES: usize = 10_000;

/// A schedule's times.
#[derive(Debug, Clone)]
pub struct Times {
    zone: TimeZone,
    /// In UTC, whose times are then those of the wall clock.
    wall: Crontab,
    /// In the zone; where it follows elapsed time.
    elapsed: Option<Crontab>,
}

/// What is wrong with an expression.
///
/// # Errors
/// In a line.
pub fn check(cron: &str) -> Result<(), String> {
    parse(cron, "UTC").map(|_| ())
}

/// Whether there is a time zone of this name.
pub fn is_zone(name: &str) -> bool {
    TimeZone::get(name).is_ok()
}

fn parse(cron: &str, zone: &str) -> Result<Crontab, String> {
    let fields = cron.split_whitespace().count();
    if fields != 5 {
        return Err(format!("it has {fields} fields, not 5"));
    }
    cronexpr::parse_crontab(&format!("{cron} {zone}")).map_err(|error| {
        let text = error.to_string();
        text.lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect::<Vec<_>>()
            .join(" ")
    })
}

impl Times {
    /// The times of an expression in a zone.
    ///
    /// # Errors
    /// What is wrong, in a line.
    pub fn new(cron: &str, zone: &str) -> Result<Times, String> {
        let wall = parse(cron, "UTC")?;
        let follows_time = cron
            .split_whitespace()
            .nth(1)
            .is_some_and(|hour| hour.starts_with('*'));
        let elapsed = follows_time.then(|| parse(cron, zone)).transpose()?;
        let zone = TimeZone::get(zone).map_err(|error| error.to_string())?;
        Ok(Times { zone, wall, elapsed })
    }

    /// The first time after a moment, both in milliseconds since 1970; `None`: never again.
    pub fn after(&self, millis: i64) -> Option<i64> {
        let moment = Timestamp::from_millisecond(millis).ok()?;
        if let Some(elapsed) = &self.elapsed {
            return Some(
                elapsed
                    .find_next(MakeTimestamp(moment))
                    .ok()?
                    .timestamp()
                    .as_millisecond(),
            );
        }
        let mut wall = as_utc(&moment.to_zoned(self.zone.clone()))?;
        // Put back by a day: a time that was left out, and is due after it, is before it on the wall clock.
        wall = wall.checked_sub(jiff::SignedDuration::from_hours(24)).ok()?;
        for _ in 0..MOST_TRIES {
            let next = self.wall.find_next(MakeTimestamp(wall)).ok()?;
            let due = self.moment_of(&next)?;
            if due > moment {
                return Some(due.as_millisecond());
            }
            wall = next.timestamp();
        }
        None
    }

    /// When the wall clock shows this for the first time, or has passed over it.
    fn moment_of(&self, wall: &Zoned) -> Option<Timestamp> {
        let shown = self.zone.to_ambiguous_zoned(wall.datetime());
        if !shown.is_ambiguous() {
            return Some(shown.compatible().ok()?.timestamp());
        }
        let earlier = shown.clone().earlier().ok()?.timestamp();
        let later = shown.later().ok()?.timestamp();
        // In a gap, the earlier of the two readings is after the change in offset and shows a time before it.
        let is_gap = earlier.to_zoned(self.zone.clone()).datetime() != wall.datetime();
        if !is_gap {
            return Some(earlier);
        }
        let change = self.zone.preceding(later).next()?;
        Some(change.timestamp())
    }
}

/// The moment at which UTC shows what the clock on the wall shows now.
fn as_utc(zoned: &Zoned) -> Option<Timestamp> {
    Some(zoned.datetime().to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests;
