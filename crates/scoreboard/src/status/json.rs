//! JSON, in php-fpm's layout.

use super::escape;
use super::fields::{self, Field, Value};
use super::snapshot::Snapshot;

pub(super) fn render(snapshot: &Snapshot, full: bool) -> String {
    let mut json = format!("{{{}", members(&fields::pool(snapshot)));
    if full {
        let workers = snapshot
            .workers
            .iter()
            .map(|row| format!("{{{}}}", members(&fields::worker(snapshot, row))));
        json.push_str(", \"processes\":[");
        json.push_str(&workers.collect::<Vec<_>>().join(","));
        json.push(']');
    }
    json.push('}');
    json
}

fn members(fields: &[Field]) -> String {
    let member = |(name, value): &Field| {
        let value = match value {
            Value::Text(text) => escape::json(text),
            Value::Time(time) => time.to_string(),
            Value::Number(number) => number.clone(),
        };
        format!("\"{name}\":{value}")
    };
    fields.iter().map(member).collect::<Vec<_>>().join(",")
}
