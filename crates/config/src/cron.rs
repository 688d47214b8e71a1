//! Computes times of crontab(5) schedules in a time zone.
//!
//! A schedule with fixed hours follows the wall clock: a skipped time is due right after the gap, and a repeated time
//! only the first time. An hourly schedule (`*` or `*/N`) follows elapsed time.

use cronexpr::{Crontab, MakeTimestamp};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

const MOST_TRIES: usize = 10_000;

#[derive(Debug, Clone)]
pub struct Times {
    zone: TimeZone,
    /// Evaluated as UTC, to match the wall clock.
    wall: Crontab,
    /// In the zone, for schedules by elapsed time.
    elapsed: Option<Crontab>,
}

#[derive(Debug, thiserror::Error)]
pub enum CronError {
    #[error("it has {0} fields, not 5")]
    Fields(usize),
    #[error("{0}")]
    Expression(String),
    #[error("it never comes: no month that it names has such a day")]
    Never,
    #[error(transparent)]
    Zone(#[from] jiff::Error),
}

/// Checks an expression.
///
/// # Errors
/// Describes the mistake in one line.
pub fn check(cron: &str) -> Result<(), CronError> {
    let times = Times::new(cron, "UTC")?;
    times.after(0).map(|_| ()).ok_or(CronError::Never)
}

pub fn is_zone(name: &str) -> bool {
    TimeZone::get(name).is_ok()
}

fn parse(cron: &str, zone: &str) -> Result<Crontab, CronError> {
    let fields = cron.split_whitespace().count();
    if fields != 5 {
        return Err(CronError::Fields(fields));
    }
    cronexpr::parse_crontab(&format!("{cron} {zone}")).map_err(|error| {
        let text = error.to_string();
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        CronError::Expression(lines.collect::<Vec<_>>().join(" "))
    })
}

impl Times {
    /// Parses an expression in a zone.
    ///
    /// # Errors
    /// The problem in one line.
    pub fn new(cron: &str, zone: &str) -> Result<Times, CronError> {
        let wall = parse(cron, "UTC")?;
        let follows_time = cron
            .split_whitespace()
            .nth(1)
            .is_some_and(|hour| hour.starts_with('*'));
        let elapsed = follows_time.then(|| parse(cron, zone)).transpose()?;
        let zone = TimeZone::get(zone)?;
        Ok(Times { zone, wall, elapsed })
    }

    /// The first time after a moment, both in milliseconds since 1970, or `None`.
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
        // Start a day earlier: a skipped time precedes its due moment.
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

    /// When the wall clock first shows or skips this time.
    fn moment_of(&self, wall: &Zoned) -> Option<Timestamp> {
        let shown = self.zone.to_ambiguous_zoned(wall.datetime());
        if !shown.is_ambiguous() {
            return Some(shown.compatible().ok()?.timestamp());
        }
        let earlier = shown.clone().earlier().ok()?.timestamp();
        let later = shown.later().ok()?.timestamp();
        // In a gap, the earlier interpretation shows a different time.
        let is_gap = earlier.to_zoned(self.zone.clone()).datetime() != wall.datetime();
        if !is_gap {
            return Some(earlier);
        }
        let change = self.zone.preceding(later).next()?;
        Some(change.timestamp())
    }
}

fn as_utc(zoned: &Zoned) -> Option<Timestamp> {
    Some(zoned.datetime().to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests;
