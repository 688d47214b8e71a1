//! Text in the format of OpenMetrics.

use crate::text::is_control;
use std::fmt::{Display, Write};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Gauge,
    Counter,
    Histogram,
}

#[derive(Debug, Default)]
pub struct OpenMetrics(String);

impl OpenMetrics {
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) {
        self.help(name, help);
        self.kind(name, kind);
    }

    pub fn help(&mut self, name: &str, help: &str) {
        self.0 += &format!("# HELP {name} {help}\n");
    }

    pub fn kind(&mut self, name: &str, kind: Kind) {
        let kind = match kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
        };
        self.0 += &format!("# TYPE {name} {kind}\n");
    }

    /// Adds a number without labels.
    pub fn number(&mut self, name: &str, number: impl Display) {
        self.0 += &format!("{name} {number}\n");
    }

    pub fn sample(&mut self, name: &str, labels: &[(&str, String)], number: impl Display) {
        let text = &mut self.0;
        text.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            text.push(if index == 0 { '{' } else { ',' });
            text.push_str(label);
            text.push_str("=\"");
            push_label_value(value, text);
            text.push('"');
        }
        let begin = if labels.is_empty() { "{" } else { "" };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{begin}}} {number}");
    }

    pub fn into_text(self) -> String {
        self.0
    }

    /// Returns the text with the end marker.
    pub fn end(self) -> String {
        self.0 + "# EOF\n"
    }
}

/// Labels have no escape for control characters.
fn push_label_value(value: &str, text: &mut String) {
    let is_plain = !value.contains(|one| is_control(one) || matches!(one, '\\' | '"'));
    match is_plain {
        true => text.push_str(value),
        false => text.push_str(&escape(value).replace(is_control, "\u{fffd}")),
    }
}

pub fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('\n', "\\n")
        .replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_label_imitates_another_line() {
        let mut metrics = OpenMetrics::default();
        metrics.family("a", Kind::Histogram, "What it is.");
        metrics.sample(
            "a_bucket",
            &[("le", "+Inf".into()), ("x", "\\\"\n\r\u{7}é".into())],
            3,
        );
        metrics.sample("a_sum", &[], 0.25);
        assert_eq!(
            metrics.end(),
            "# HELP a What it is.\n# TYPE a histogram\na_bucket{le=\"+Inf\",x=\"\\\\\\\"\\n\u{fffd}\u{fffd}é\"} 3\n\
             a_sum{} 0.25\n# EOF\n"
        );
    }
}
