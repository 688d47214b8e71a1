//! Plain text: a line per field, values from column 23.

use super::escape;
use super::fields::{self, Field, Value};
use super::snapshot::Snapshot;

const VALUE_COLUMN: usize = 22;
const SEPARATOR: &str = "\n************************\n";

pub(super) fn render(snapshot: &Snapshot, full: bool) -> String {
    let mut text = String::new();
    lines(&mut text, snapshot, &fields::pool(snapshot));
    if full {
        for row in &snapshot.workers {
            text.push_str(SEPARATOR);
            lines(&mut text, snapshot, &fields::worker(snapshot, row));
        }
    }
    text
}

fn lines(text: &mut String, snapshot: &Snapshot, fields: &[Field]) {
    for (name, value) in fields {
        let name = if *name == "request uri" {
            "request URI"
        } else {
            name
        };
        let label = format!("{name}:");
        let value = match value {
            Value::Text(value) => escape::plain(value),
            Value::Time(epoch) => escape::timestamp(*epoch, snapshot.utc_offset_s),
            Value::Number(number) => number.clone(),
        };
        text.push_str(&format!("{label:<VALUE_COLUMN$}{value}\n"));
    }
}
