//! REQUEST_START, the time at which the web server passes a request on. nginx: `fastcgi_param REQUEST_START $msec;`.

use forkyard_base::tick::Tick;
use forkyard_sys::clock;
use std::time::Duration;

pub(super) const NAME: &[u8] = b"REQUEST_START";
/// A longer wait is a wrong clock.
const LONGEST: Duration = Duration::from_secs(3600);
/// Clocks differ, and web servers round.
const EARLY_MICROS: u64 = 1_000_000;
/// Seconds, milliseconds and microseconds since 1970: the lowest number of the next unit, and microseconds per unit.
const UNITS: [(f64, f64); 3] = [(1e11, 1e6), (1e14, 1e3), (1e17, 1.0)];

/// Returns a request's wait until `taken`, if `text` is a valid REQUEST_START.
pub(super) fn waited(text: &[u8], taken: Tick) -> Option<Duration> {
    let begun = epoch_micros(text)?;
    let since_taken = clock::now().since(taken);
    waited_since(begun, clock::epoch_micros(), since_taken)
}

fn waited_since(begun_micros: u64, now_micros: u64, since_taken: Duration) -> Option<Duration> {
    if begun_micros > now_micros.saturating_add(EARLY_MICROS) {
        return None;
    }
    let waited = Duration::from_micros(now_micros.saturating_sub(begun_micros));
    (waited < LONGEST).then(|| waited.saturating_sub(since_taken))
}

/// Reads a time in microseconds since 1970, with or without the prefix `t=`.
fn epoch_micros(text: &[u8]) -> Option<u64> {
    let text = text.strip_prefix(b"t=").unwrap_or(text);
    let is_number = !text.is_empty() && text.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let text = std::str::from_utf8(text).ok().filter(|_| is_number)?;
    let number: f64 = text.parse().ok()?;
    let (_, factor) = UNITS.into_iter().find(|(below, _)| number < *below)?;
    Some((number * factor) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_all_units_and_nonsense_is_none() {
        for text in [
            "1700000000.123",
            "t=1700000000.123",
            "1700000000123",
            "1700000000123000",
        ] {
            let micros = epoch_micros(text.as_bytes()).unwrap_or(0);
            assert!(micros.abs_diff(1_700_000_000_123_000) <= 1, "{text}: {micros}");
        }
        for text in [
            "",
            "t=",
            "nan",
            "inf",
            "-1",
            "1e9",
            "1.2.3",
            "99999999999999999999999",
        ] {
            assert_eq!(epoch_micros(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_wait_ends_when_the_request_is_taken() {
        let since = |begun, now, taken| waited_since(begun, now, Duration::from_micros(taken));
        assert_eq!(since(100, 1_100, 200), Some(Duration::from_micros(800)));
        assert_eq!(since(100, 1_100, 5_000), Some(Duration::ZERO));
        assert_eq!(since(1_101, 1_100, 0), Some(Duration::ZERO));
        assert_eq!(since(1_001_101, 1_100, 0), None);
        assert_eq!(since(0, 3_600_000_000, 0), None);
    }
}
