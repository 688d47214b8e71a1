//! Collects comments by line.

use super::ini::{self, Statement};

#[derive(Debug, Default)]
pub(super) struct Remarks {
    above: Vec<String>,
}

impl Remarks {
    /// Reads a line and returns the comments above and after its statement. Lines without a valid statement return
    /// none.
    pub(super) fn of(&mut self, line: &str) -> Vec<String> {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix(';') {
            self.above.push(comment.trim_end().to_owned());
            return Vec::new();
        }
        let mut comments = std::mem::take(&mut self.above);
        let statements = statements(line);
        if statements.is_empty() {
            return Vec::new();
        }
        comments.extend(behind(line, &statements));
        comments
    }
}

fn statements(line: &str) -> Vec<Statement> {
    let (statements, error) = ini::parse(&format!("{line}\n"), &|_| None);
    if error.is_some() { Vec::new() } else { statements }
}

/// The trailing comment: the part that can be removed without changing the statements.
fn behind(line: &str, whole: &[Statement]) -> Option<String> {
    let mut marks = line.match_indices(';').map(|(at, _)| at);
    let at = marks.find(|at| statements(&line[..*at]) == whole)?;
    let comment = line[at + 1..].trim_end();
    (!comment.trim().is_empty()).then(|| comment.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_above_and_behind_belong_to_a_line() {
        let text = "; far\n\n; above\n;too\npid = a;b\n[www] ; section\nenv[A] = \"x;y\" ; behind\nb = 1\n";
        let mut remarks = Remarks::default();
        let found: Vec<_> = text.lines().map(|line| remarks.of(line)).collect();
        let none: Vec<&str> = Vec::new();
        assert_eq!(found[4], [" above", "too", "b"]);
        assert_eq!(found[5..7], [[" section"], [" behind"]]);
        assert_eq!(found[7], none);
    }
}
