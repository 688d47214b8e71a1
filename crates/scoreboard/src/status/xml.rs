//! XML: an element per field, named with dashes.

use super::escape;
use super::fields::{self, Field, Value};
use super::snapshot::Snapshot;

pub(super) fn render(snapshot: &Snapshot, full: bool) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" ?>\n<status>\n");
    for field in fields::pool(snapshot) {
        xml.push_str(&element(&field));
        xml.push('\n');
    }
    if full {
        xml.push_str("<processes>\n");
        for row in &snapshot.workers {
            xml.push_str("<process>");
            fields::worker(snapshot, row)
                .iter()
                .for_each(|field| xml.push_str(&element(field)));
            xml.push_str("</process>\n");
        }
        xml.push_str("</processes>\n");
    }
    xml.push_str("</status>");
    xml
}

fn element((name, value): &Field) -> String {
    let name = name.replace(' ', "-");
    let value = match value {
        Value::Text(text) => escape::markup(text),
        Value::Time(time) => time.to_string(),
        Value::Number(number) => number.clone(),
    };
    format!("<{name}>{value}</{name}>")
}
