//! Rate limit for lines that pools cause: the first lines of each cause are logged, the others are counted and
//! summarized once a minute with the last of them.

use forkyard_base::tick::Tick;
use forkyard_config::LogLevel;
use std::collections::HashMap;
use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(60);
const MOST: u64 = 20;
/// Per pool; all further causes share one.
const MOST_CAUSES: usize = 40;
/// Digits are left out.
const CAUSE_BYTES: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Cause {
    Place(String, u32),
    Words(String),
    Other,
}

impl Cause {
    pub(super) fn of_words(text: &str) -> Cause {
        let letters = text.chars().filter(|letter| !letter.is_ascii_digit());
        Cause::Words(letters.take(CAUSE_BYTES).collect())
    }
}

#[derive(Debug)]
struct Lines {
    since: Tick,
    count: u64,
    level: LogLevel,
    last: String,
}

#[derive(Debug, Default)]
pub(super) struct Gathered {
    pools: HashMap<String, HashMap<Cause, Lines>>,
    due: Option<Tick>,
}

impl Gathered {
    /// Returns whether to log the line.
    pub(super) fn add(&mut self, pool: &str, cause: Cause, level: LogLevel, line: &str, now: Tick) -> bool {
        let causes = self.pools.entry(pool.to_owned()).or_default();
        let has_room = causes.len() < MOST_CAUSES;
        let cause = match has_room || causes.contains_key(&cause) {
            true => cause,
            false => Cause::Other,
        };
        let lines = causes.entry(cause).or_insert_with(|| Lines {
            since: now,
            count: 0,
            level,
            last: String::new(),
        });
        self.due.get_or_insert(lines.since + WINDOW);
        lines.count += 1;
        if lines.count <= MOST {
            return true;
        }
        lines.level = lines.level.max(level);
        line.clone_into(&mut lines.last);
        false
    }

    pub(super) fn next_deadline(&self) -> Option<Tick> {
        self.due
    }

    pub(super) fn end(&mut self, now: Tick) -> Vec<(LogLevel, String)> {
        let mut told = Vec::new();
        if self.due.is_none_or(|due| due > now) {
            return told;
        }
        for causes in self.pools.values_mut() {
            causes.retain(|_, lines| {
                let is_over = lines.since + WINDOW <= now;
                let more = lines.count.saturating_sub(MOST);
                if is_over && more > 0 {
                    told.push((
                        lines.level,
                        format!("{} ({more} such lines in a minute)", lines.last),
                    ));
                }
                !is_over
            });
        }
        self.pools.retain(|_, causes| !causes.is_empty());
        let all = self.pools.values().flat_map(HashMap::values);
        self.due = all.map(|lines| lines.since + WINDOW).min();
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Tick {
        Tick::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_flood_is_some_lines_and_a_number_each_minute() {
        let mut gathered = Gathered::default();
        assert_eq!(gathered.next_deadline(), None);
        for minute in 0..3 {
            let now = at(minute * 60);
            let mut add = |pool: &str, cause, line: &str| {
                gathered.add(
                    pool,
                    cause,
                    LogLevel::Error,
                    &format!("[pool {pool}] {line}"),
                    now,
                )
            };
            let told = (0..1000).filter(|number| {
                let line = format!("failed {number}");
                add("a", Cause::of_words(&line), &line)
            });
            assert_eq!(told.count() as u64, MOST);
            assert!(add("a", Cause::Place("worker".to_owned(), 1), "gone"));
            assert!(add("b", Cause::of_words("failed 1"), "failed 1"));
            assert_eq!(gathered.end(at(minute * 60 + 59)), []);
            assert_eq!(gathered.next_deadline(), Some(at(minute * 60 + 60)));
            let line = "[pool a] failed 999 (980 such lines in a minute)".to_owned();
            assert_eq!(gathered.end(at(minute * 60 + 60)), [(LogLevel::Error, line)]);
        }
        assert_eq!(gathered.next_deadline(), None);
    }

    #[test]
    fn who_thinks_of_ever_new_words_fills_no_memory_and_no_log() {
        let mut gathered = Gathered::default();
        let told = (0..100_000_u32).filter(|number| {
            let letters: String = number
                .to_string()
                .bytes()
                .map(|digit| char::from(digit + 49))
                .collect();
            gathered.add("a", Cause::of_words(&letters), LogLevel::Notice, &letters, at(0))
        });
        assert!(told.count() as u64 <= (MOST_CAUSES as u64 + 1) * MOST);
        assert!(gathered.pools["a"].len() <= MOST_CAUSES + 1);
    }
}
