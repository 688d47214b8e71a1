//! HTML: a table of the pool and one of its workers.

use super::escape;
use super::fields::{self, Value};
use super::snapshot::Snapshot;

const HEAD: &str = "\
<!DOCTYPE html PUBLIC \"-//W3C//DTD XHTML 1.0 Strict//EN\" \"http://www.w3.org/TR/xhtml1/DTD/xhtml1-strict.dtd\">
<html xmlns=\"http://www.w3.org/1999/xhtml\" xml:lang=\"en\" lang=\"en\">
<head><title>PHP-FPM Status Page</title></head>
<body>
<table>
";

pub(super) fn render(snapshot: &Snapshot, full: bool) -> String {
    let mut html = HEAD.to_owned();
    for (name, value) in fields::pool(snapshot) {
        html.push_str(&format!(
            "<tr><th>{name}</th><td>{}</td></tr>\n",
            cell(snapshot, &value)
        ));
    }
    html.push_str("</table>\n");
    if full {
        html.push_str("<table border=\"1\">\n");
        let names = fields::worker_names(snapshot).into_iter();
        let names: String = names.map(|name| format!("<th>{name}</th>")).collect();
        html.push_str(&format!("<tr>{names}</tr>\n"));
        for row in &snapshot.workers {
            let cells = fields::worker(snapshot, row).into_iter();
            let cells: String = cells
                .map(|(_, value)| format!("<td>{}</td>", cell(snapshot, &value)))
                .collect();
            html.push_str(&format!("<tr>{cells}</tr>\n"));
        }
        html.push_str("</table>");
    }
    html.push_str("</body></html>");
    html
}

fn cell(snapshot: &Snapshot, value: &Value) -> String {
    match value {
        Value::Text(text) => escape::markup(text),
        Value::Time(epoch) => escape::timestamp(*epoch, snapshot.utc_offset_s),
        Value::Number(number) => number.clone(),
    }
}
