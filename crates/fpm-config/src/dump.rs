//! The output of `-tt`.

use super::journal::Journal;
use super::parse::Written;
use super::values::{Item, NO_PRIORITY, Value, Values};
use forkyard_config::settings::{Directive, Shown};
use forkyard_config::units::Manager;

pub(super) fn dump(written: &Written, journal: &mut Journal) {
    section("global", &written.global, journal);
    for pool in &written.pools {
        section(&pool.name, &pool.values, journal);
    }
}

fn section(name: &str, values: &Values, journal: &mut Journal) {
    journal.notice(format!("[{name}]"));
    for (directive, value) in values.all().filter(|(d, _)| d.shown != Shown::Never) {
        let name = directive.name;
        if let Value::List(list) = value {
            // php-fpm keeps entries in reverse order.
            for Item { key, value, .. } in list.iter().rev() {
                journal.notice(format!("\t{name}[{key}] = {value}"));
            }
            continue;
        }
        journal.notice(format!("\t{name} = {}", shown(directive, value)));
    }
    journal.notice(" ");
}

fn shown(directive: &Directive, value: &Value) -> String {
    let undefined = || "undefined".to_owned();
    match value {
        Value::Text(text) => text.clone().unwrap_or_else(undefined),
        Value::Flag(flag) => (if *flag { "yes" } else { "no" }).to_owned(),
        Value::Number(NO_PRIORITY) if directive.shown == Shown::Priority => undefined(),
        Value::Number(number) | Value::Time(number) | Value::Facility(number) => {
            let unit = if directive.shown == Shown::Seconds {
                "s"
            } else {
                ""
            };
            format!("{number}{unit}")
        }
        Value::Core(limit) => limit.to_string(),
        Value::Level(level) => level.map_or("unknown value".to_owned(), |level| {
            format!("{level:?}").to_ascii_uppercase()
        }),
        Value::Manager(manager) => manager.map_or("undefined", Manager::name).to_owned(),
        Value::List(_) => String::new(),
    }
}
