//! Limits log lines about roots, since clients can name any number. After the first lines of a minute, the rest is
//! counted and summarized with the last line.

use forkyard_base::tick::Tick;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

const WINDOW: Duration = Duration::from_secs(60);
const MOST: usize = 20;
const MOST_OF_ONE: usize = MOST / 2;

#[derive(Debug, Default)]
pub(super) struct Gathered {
    since: Option<Tick>,
    told: usize,
    by_directory: HashMap<PathBuf, usize>,
    more: u64,
    last: String,
}

impl Gathered {
    /// Returns the line to log, or `None` if it is only counted.
    pub(super) fn add(&mut self, root: &Path, line: String, now: Tick) -> Option<String> {
        self.since.get_or_insert(now);
        let directory = root.parent().unwrap_or(root);
        let of_directory = self.by_directory.get(directory).copied().unwrap_or(0);
        if self.told < MOST && of_directory < MOST_OF_ONE {
            self.told += 1;
            self.by_directory.insert(directory.to_owned(), of_directory + 1);
            return Some(line);
        }
        self.more += 1;
        self.last = line;
        None
    }

    pub(super) fn next_deadline(&self) -> Option<Tick> {
        Some(self.since? + WINDOW)
    }

    pub(super) fn end(&mut self, now: Tick) -> Option<(u64, String)> {
        if self.next_deadline().is_none_or(|due| due > now) {
            return None;
        }
        let ended = std::mem::take(self);
        (ended.more > 0).then_some((ended.more, ended.last))
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
            let mut told = 0;
            for number in 0..10_000 {
                let root = format!("/srv/{number}");
                told += usize::from(gathered.add(Path::new(&root), root.clone(), now).is_some());
            }
            assert_eq!(told, MOST_OF_ONE);
            let other = gathered.add(Path::new("/home/b/site"), "b".to_owned(), now);
            assert_eq!(other.as_deref(), Some("b"));
            for number in 0..10_000 {
                let root = format!("/var/{number}/x");
                told += usize::from(gathered.add(Path::new(&root), root.clone(), now).is_some());
            }
            assert_eq!(told, MOST - 1);
            assert_eq!(gathered.end(at(minute * 60 + 59)), None);
            let more = 20_000 - told as u64;
            assert_eq!(
                gathered.end(at(minute * 60 + 60)),
                Some((more, "/var/9999/x".to_owned()))
            );
        }
        assert_eq!(gathered.next_deadline(), None);
    }
}
