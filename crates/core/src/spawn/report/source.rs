//! Finds the application's source line that failed: a file below the application's root, outside of third-party
//! directories.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Lines before and after the failed one.
pub const AROUND: usize = 5;
const MOST_LINES: usize = 2 * AROUND + 1;
const MOST_CHARS: usize = 300;
const OTHERS: [&str; 9] = [
    "site-packages",
    "dist-packages",
    "node_modules",
    "vendor",
    "venv",
    ".venv",
    "env",
    "gems",
    "bower_components",
];

/// Lines of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excerpt {
    /// The file as the application names it.
    pub file: String,
    /// The failed line, from 1.
    pub line: usize,
    /// The first line's number.
    pub first: usize,
    /// The lines without line ends.
    pub lines: Vec<String>,
}

impl Excerpt {
    /// Returns an excerpt; `None`: no such line, except one past the end.
    pub fn of(file: &Path, line: usize, text: &str) -> Option<Excerpt> {
        let total = text.lines().count();
        let line = if line == total.checked_add(1)? {
            total
        } else {
            line
        };
        let first = line.checked_sub(1)?.saturating_sub(AROUND) + 1;
        let last = line.checked_add(AROUND)?;
        let all = text.lines().skip(first - 1).take(last + 1 - first);
        let lines: Vec<String> = all.map(|line| line.chars().take(MOST_CHARS).collect()).collect();
        (first + lines.len() > line).then(|| Excerpt {
            file: file.display().to_string(),
            line,
            first,
            lines,
        })
    }

    /// Parses an application's own excerpt.
    pub fn parse(bytes: &[u8]) -> Option<Excerpt> {
        let excerpt: Excerpt = serde_json::from_slice(bytes).ok()?;
        let ends = excerpt.first.checked_add(excerpt.lines.len())?;
        let is_whole = excerpt.first >= 1 && (excerpt.first..ends).contains(&excerpt.line);
        let is_short = excerpt.lines.len() <= MOST_LINES
            && excerpt
                .lines
                .iter()
                .all(|line| line.chars().count() <= MOST_CHARS);
        (is_whole && is_short).then_some(excerpt)
    }

    /// Returns lines with their numbers, and whether it is the failed one.
    pub fn numbered(&self) -> impl Iterator<Item = (usize, &str, bool)> {
        let lines = self.lines.iter().enumerate();
        lines.map(|(index, line)| {
            let number = self.first + index;
            (number, line.as_str(), number == self.line)
        })
    }
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
}

/// Returns the innermost call below `root` in a backtrace or error message.
pub fn blamed(text: &str, root: &Path) -> Option<Location> {
    let mut python = text
        .lines()
        .filter_map(python)
        .filter(|location| is_own(location, root));
    // The innermost call is last in Python, and first elsewhere.
    python.next_back().or_else(|| {
        let mut others = text.lines().filter_map(|line| other(line, root));
        others.find(|location| is_own(location, root))
    })
}

fn is_own(location: &Location, root: &Path) -> bool {
    let Ok(below) = location.file.strip_prefix(root) else {
        return false;
    };
    let mut names = below.iter().filter_map(|name| name.to_str());
    !names.any(|name| name == ".." || OTHERS.contains(&name))
}

/// `  File "/srv/shop/app.py", line 6, in deep`
fn python(line: &str) -> Option<Location> {
    let (file, rest) = line
        .trim_start()
        .strip_prefix("File \"")?
        .split_once("\", line ")?;
    Some(Location {
        file: PathBuf::from(file),
        line: number(rest)?,
    })
}

/// `/srv/shop/app.rb:6:in …`, `at f (/srv/shop/app.js:6:9)`, `in /srv/shop/a.php:6`, `in /srv/shop/a.php on line 6`,
/// `at /srv/shop/a.pl line 6.`
fn other(text: &str, root: &Path) -> Option<Location> {
    let root = root.to_str()?;
    for (at, _) in text.match_indices(root) {
        let rest = text.get(at + root.len()..)?;
        if !rest.starts_with('/') {
            continue;
        }
        for between in [" on line ", " line ", ":"] {
            let mut searched = rest.match_indices(between);
            let found = searched.find_map(|(end, _)| {
                let line = number(rest.get(end + between.len()..)?)?;
                let file = rest.get(..end)?;
                let is_plain = !file.contains(['"', '\'', '(', ')', '<', '>']);
                is_plain.then(|| Location {
                    file: PathBuf::from(format!("{root}{file}")),
                    line,
                })
            });
            if found.is_some() {
                return found;
            }
        }
    }
    None
}

fn number(text: &str) -> Option<usize> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok().filter(|line| *line > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_s_way_to_name_a_line_is_understood() {
        let python = "Traceback (most recent call last):\n  File \"/srv/shop/wsgi.py\", line 3, in <module>\n    import a\n  File \
                      \"/srv/shop/a.py\", line 7, in f\n    g()\n  File \"/srv/shop/.venv/lib/x.py\", line 9, in g\nValueError: x";
        let syntax = "  File \"/srv/shop/wsgi.py\", line 12\n    VALUE = (\n            ^\nSyntaxError: '(' was never closed";
        let ruby =
            "/srv/shop/config.ru:4:in `block': undefined (NameError)\n\tfrom /srv/shop/vendor/a.rb:9:in `b'";
        let node = "/srv/shop/app.js:5\nconst x = (\n           ^\nSyntaxError: Unexpected token\n    at wrapSafe (node:internal:1:2)";
        let stack =
            "Error: no\n    at f (/srv/shop/node_modules/e/i.js:1:2)\n    at main (/srv/shop/lib/b.js:31:9)";
        let php = "PHP Parse error:  syntax error, unexpected token \";\" in /srv/shop/index.php on line 2";
        let fatal =
            "PHP Fatal error:  Uncaught Exception: no in /srv/shop/a b.php:8\nStack trace:\n#0 {main}";
        let perl = "Can't locate X.pm at /srv/shop/app.pl line 3.";
        for (text, file, line) in [
            (python, "/srv/shop/a.py", 7),
            (syntax, "/srv/shop/wsgi.py", 12),
            (ruby, "/srv/shop/config.ru", 4),
            (node, "/srv/shop/app.js", 5),
            (stack, "/srv/shop/lib/b.js", 31),
            (php, "/srv/shop/index.php", 2),
            (fatal, "/srv/shop/a b.php", 8),
            (perl, "/srv/shop/app.pl", 3),
        ] {
            let location = blamed(text, Path::new("/srv/shop"));
            let file = PathBuf::from(file);
            assert_eq!(location, Some(Location { file, line }), "{text}");
        }
        for text in [
            "",
            "/srv/shop",
            "/srv/shopping/a.rb:3",
            "File \"/srv/shop/../x.py\", line 3",
            "/srv/shop/a.rb:0",
        ] {
            assert_eq!(blamed(text, Path::new("/srv/shop")), None, "{text}");
        }
    }

    #[test]
    fn an_excerpt_has_the_line_and_those_around_it() {
        let text: String = (1..=20).map(|line| format!("line {line}\n")).collect();
        let path = Path::new("a.py");
        let excerpt = Excerpt::of(path, 2, &text).unwrap();
        assert_eq!((excerpt.first, excerpt.lines.len()), (1, 7));
        let excerpt = Excerpt::of(path, 12, &text).unwrap();
        assert_eq!((excerpt.first, excerpt.lines.len()), (7, 11));
        let failed: Vec<_> = excerpt.numbered().filter(|(.., failed)| *failed).collect();
        assert_eq!(failed, [(12, "line 12", true)]);
        assert_eq!(Excerpt::of(path, 20, &text).unwrap().lines.len(), 6);
        assert_eq!(Excerpt::of(path, 21, &text).unwrap().line, 20);
        assert_eq!(Excerpt::of(path, 22, &text), None);
        assert_eq!(Excerpt::of(path, 1, ""), None);
        assert_eq!(Excerpt::of(path, 0, &text), None);
        assert_eq!(Excerpt::of(path, usize::MAX, &text), None);
    }

    #[test]
    fn what_an_application_says_is_checked() {
        let excerpt = Excerpt::of(Path::new("a.py"), 2, "a\nb\nc\n").unwrap();
        let bytes = serde_json::to_vec(&excerpt).unwrap();
        assert_eq!(Excerpt::parse(&bytes), Some(excerpt));
        for wrong in [
            "",
            "[]",
            r#"{"file":"a","line":1,"first":1,"lines":[]}"#,
            r#"{"file":"a","line":3,"first":1,"lines":["a"]}"#,
            r#"{"file":"a","line":0,"first":0,"lines":["a"]}"#,
            r#"{"file":"a","line":1,"first":18446744073709551615,"lines":["a"]}"#,
        ] {
            assert_eq!(Excerpt::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
