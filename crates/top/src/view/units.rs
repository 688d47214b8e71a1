//! Values as short texts.

use forkyard_base::text::is_control;

const NONE: &str = "-";

fn or_none<T>(value: Option<T>, shown: impl Fn(T) -> String) -> String {
    value.map_or_else(|| NONE.to_owned(), shown)
}

/// `2.9ms`, `41ms`, `1.2s`, `3m`, `5h`, `2d`.
pub(super) fn time(seconds: Option<f64>) -> String {
    or_none(seconds, |seconds| match seconds {
        seconds if seconds < 0.000_95 => format!("{:.0}us", seconds * 1e6),
        seconds if seconds < 0.009_95 => format!("{:.1}ms", seconds * 1e3),
        seconds if seconds < 0.999_5 => format!("{:.0}ms", seconds * 1e3),
        seconds if seconds < 99.95 => format!("{seconds:.1}s"),
        seconds if seconds < 600.0 => format!("{seconds:.0}s"),
        seconds if seconds < 36_000.0 => format!("{:.0}m", seconds / 60.0),
        seconds if seconds < 172_800.0 => format!("{:.0}h", seconds / 3600.0),
        seconds => format!("{:.0}d", seconds / 86_400.0),
    })
}

/// `612M`, `1.2G`.
pub(super) fn bytes(bytes: Option<u64>) -> String {
    const UNITS: [&str; 5] = ["K", "M", "G", "T", "P"];
    or_none(bytes, |bytes| {
        let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
        while value >= 999.5 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let digits = usize::from(value < 9.95 && unit > 0);
        format!("{value:.digits$}{}", UNITS[unit])
    })
}

/// `0.4`, `912`, `12k`.
pub(super) fn rate(rate: Option<f64>) -> String {
    or_none(rate, |rate| match rate {
        rate if rate < 0.05 => "0".to_owned(),
        rate if rate < 9.95 => format!("{rate:.1}"),
        rate => count(rate.round() as u64),
    })
}

/// `812`, `91k`, `3M`.
pub(super) fn count(count: u64) -> String {
    match count {
        0..=9_999 => count.to_string(),
        10_000..=9_999_999 => format!("{}k", count / 1_000),
        10_000_000..=9_999_999_999 => format!("{}M", count / 1_000_000),
        _ => format!("{}G", count / 1_000_000_000),
    }
}

pub(super) fn count_or_none(value: Option<u64>) -> String {
    or_none(value, count)
}

/// `38%`, `0.4%`.
pub(super) fn percent(part: Option<f64>) -> String {
    or_none(part.map(|part| part * 100.0), |percent| match percent {
        percent if percent < 0.05 => "0%".to_owned(),
        percent if percent < 0.95 => format!("{percent:.1}%"),
        percent => format!("{percent:.0}%"),
    })
}

/// The text without what a terminal acts on.
pub(super) fn printable(text: &str) -> String {
    let shown = text.chars().map(|c| if is_control(c) { '?' } else { c });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_short() {
        let times = [
            0.0, 0.000_9, 0.002_94, 0.041, 1.23, 99.94, 300.0, 7_200.0, 90_000.0, 1e6,
        ];
        let shown = times.map(|seconds| time(Some(seconds)));
        assert_eq!(
            shown,
            [
                "0us", "900us", "2.9ms", "41ms", "1.2s", "99.9s", "300s", "120m", "25h", "12d"
            ]
        );
        let sizes = [0, 5 << 10, 1023 << 10, 5 << 20, 612 << 20, 5 << 30, u64::MAX];
        assert_eq!(
            sizes.map(|size| bytes(Some(size))),
            ["0K", "5K", "1.0M", "5.0M", "612M", "5.0G", "16384P"]
        );
        let rates = [0.0, 0.4, 9.9, 912.4, 12_345.0];
        assert_eq!(rates.map(|it| rate(Some(it))), ["0", "0.4", "9.9", "912", "12k"]);
        assert_eq!(
            [9_999, 10_000, u64::MAX].map(count),
            ["9999", "10k", "18446744073G"]
        );
        let parts = [0.0, 0.004, 0.38, 1.0];
        assert_eq!(parts.map(|it| percent(Some(it))), ["0%", "0.4%", "38%", "100%"]);
        assert_eq!([time(None), bytes(None), rate(None), percent(None)], ["-"; 4]);
    }
}
