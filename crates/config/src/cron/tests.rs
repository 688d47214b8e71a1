use super::*;

fn at(text: &str) -> i64 {
    text.parse::<Timestamp>().expect("a moment").as_millisecond()
}

fn due(cron: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
    let times = Times::new(cron, zone).expect("an expression");
    let mut now = at(from);
    (0..count)
        .map(|_| {
            now = times.after(now).expect("a time");
            Timestamp::from_millisecond(now).expect("a moment").to_string()
        })
        .collect()
}

#[test]
fn fixed_hours_follow_the_clock_on_the_wall() {
    // In 2026 Berlin's clock goes from 02:00 to 03:00 on 29 March and back on 25 October.
    assert_eq!(
        due("30 2 * * *", "Europe/Berlin", "2026-03-27T12:00:00Z", 3),
        [
            "2026-03-28T01:30:00Z",
            "2026-03-29T01:00:00Z",
            "2026-03-30T00:30:00Z"
        ]
    );
    assert_eq!(
        due("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2),
        ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
    );
    assert_eq!(
        due("30 2 * * *", "Europe/Berlin", "2026-10-25T01:10:00Z", 1),
        ["2026-10-26T01:30:00Z"]
    );
}

#[test]
fn every_hour_follows_elapsed_time() {
    assert_eq!(
        due("15 * * * *", "Europe/Berlin", "2026-10-24T23:30:00Z", 4),
        [
            "2026-10-25T00:15:00Z",
            "2026-10-25T01:15:00Z",
            "2026-10-25T02:15:00Z",
            "2026-10-25T03:15:00Z"
        ]
    );
    assert_eq!(
        due("*/30 * * * *", "Europe/Berlin", "2026-03-29T00:29:00Z", 3),
        [
            "2026-03-29T00:30:00Z",
            "2026-03-29T01:00:00Z",
            "2026-03-29T01:30:00Z"
        ]
    );
}

#[test]
fn what_is_no_expression_is_refused() {
    for wrong in [
        "",
        "* * * *",
        "61 * * * *",
        "* * * * * *",
        "a b c d e",
        "0 0 31 2,4 *",
    ] {
        assert!(check(wrong).is_err(), "{wrong}");
    }
    for right in ["*/5 9-17 * * 1-5", "* * 31 * *", "0 0 29 2 *"] {
        assert!(check(right).is_ok(), "{right}");
    }
    assert!(is_zone("America/New_York") && !is_zone("Europe/Nowhere"));
}

const QUARTER: i64 = 15 * 60_000;

/// Ten years in zones with changes of an hour, half an hour and a whole day, and at midnight; fewer schedules in the
/// last zone.
#[test]
fn years_agree_with_a_clock_that_is_looked_at_again_and_again() {
    let is_short = std::env::var_os("FORKYARD_SIM_SEEDS").is_some();
    let end = if is_short {
        "2027-01-01T00:00:00Z"
    } else {
        "2036-01-01T00:00:00Z"
    };
    for zone in [
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "America/Santiago",
        "Africa/Casablanca",
    ] {
        let times = Times::new("30 2 * * *", zone).expect("an expression");
        let clock = TimeZone::get(zone).expect("a zone");
        let (start, end) = (at("2026-01-01T00:00:00Z"), at(end));
        let mut expected = Vec::new();
        let mut before = Timestamp::from_millisecond(start)
            .expect("a moment")
            .to_zoned(clock.clone())
            .datetime();
        let mut last: Option<jiff::civil::Date> = None;
        let look = |at| {
            Timestamp::from_millisecond(at)
                .expect("a time")
                .to_zoned(clock.clone())
        };
        let mut now = start;
        while now < end {
            now += QUARTER;
            let mut shown = look(now);
            // Skip to the next night unless the offset changes.
            if shown.hour() == 4 && look(now + 88 * QUARTER).offset() == shown.offset() {
                now += 84 * QUARTER;
                shown = look(now);
            }
            let shown = shown.datetime();
            let wanted = shown.date().at(2, 30, 0, 0);
            if before < wanted && wanted <= shown && last != Some(shown.date()) {
                last = Some(shown.date());
                expected.push(now);
            }
            before = shown;
        }
        let mut found = Vec::new();
        let mut at = start;
        while let Some(next) = times.after(at).filter(|next| *next <= end) {
            found.push(next);
            at = next;
        }
        assert_eq!(found.len(), expected.len(), "{zone}");
        assert_eq!(found, expected, "{zone}");
    }
}
