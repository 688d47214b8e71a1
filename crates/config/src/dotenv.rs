//! Parses dotenv files. `$NAME` is not expanded: the daemon reads the file, and its author must not see the daemon's
//! environment.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// From 1.
    pub line: usize,
    pub why: &'static str,
}

/// Parses a file. The last value of a name wins.
///
/// # Errors
/// The first invalid line.
pub fn parse(text: &str) -> Result<Vec<(String, String)>, Wrong> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut variables: Vec<(String, String)> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let line = 1 + text[..text.len() - rest.len()].matches('\n').count();
        let wrong = |why| Wrong { line, why };
        let (whole, _) = rest.split_once('\n').unwrap_or((rest, ""));
        let trimmed = whole.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            rest = &rest[(whole.len() + 1).min(rest.len())..];
            continue;
        }
        let (left, _) = whole
            .split_once('=')
            .ok_or(wrong("there is no =; write NAME=value"))?;
        let name = left.trim();
        let name = name.strip_prefix("export ").map_or(name, str::trim_start);
        if !is_name(name) {
            return Err(wrong("a name has letters, digits and _, and no digit first"));
        }
        let (value, after) = value(&rest[left.len() + 1..]).map_err(wrong)?;
        if value.contains('\0') {
            return Err(wrong("a value can't have NUL in it"));
        }
        variables.retain(|(known, _)| known != name);
        variables.push((name.to_owned(), value));
        rest = after;
    }
    Ok(variables)
}

fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.starts_with(|c: char| is_part(c) && !c.is_ascii_digit()) && name.chars().all(is_part)
}

fn value(text: &str) -> Result<(String, &str), &'static str> {
    let text = text.trim_start_matches([' ', '\t']);
    let (value, after) = match text.chars().next() {
        Some('\'') => {
            let (value, after) = text[1..]
                .split_once('\'')
                .ok_or("the quotation mark ' is not closed")?;
            (value.to_owned(), after)
        }
        Some('"') => double_quoted(&text[1..])?,
        _ => {
            let (line, _) = text.split_once('\n').unwrap_or((text, ""));
            let end = comment(line).unwrap_or(line.len());
            let value = line[..end].trim_end();
            return Ok((value.to_owned(), &text[(line.len() + 1).min(text.len())..]));
        }
    };
    let (behind, lines) = after.split_once('\n').unwrap_or((after, ""));
    let behind = behind.trim();
    if !behind.is_empty() && !behind.starts_with('#') {
        return Err(
            "something stands behind the closing quotation mark; put all of the value between the marks",
        );
    }
    Ok((value, lines))
}

/// A comment starts with # at the beginning or after a space.
fn comment(line: &str) -> Option<usize> {
    let mut marks = line.match_indices('#');
    let found = marks.find(|(at, _)| *at == 0 || line[..*at].ends_with([' ', '\t']));
    found.map(|(at, _)| at)
}

fn double_quoted(text: &str) -> Result<(String, &str), &'static str> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => value.push(match chars.next() {
                Some((_, 'n')) => '\n',
                Some((_, 'r')) => '\r',
                Some((_, 't')) => '\t',
                Some((_, c @ ('"' | '\\' | '$' | '\'' | '`'))) => c,
                _ => {
                    return Err(
                        "only \\n, \\r, \\t, \\\", \\\\ and \\$ are escapes between \"; use ' for \
                    literal text",
                    );
                }
            }),
            c => value.push(c),
        }
    }
    Err("the quotation mark \" is not closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_dotenv_has_them() {
        let text = "\u{feff}# settings\n\nA=1\r\n  export B = two words  # comment\nC='as $it \\n is' # c\nD=\"a\\nb \\\"q\\\" \\$\"\n\
                    E=\nF=a#b\nURL=postgres://u:p#w@h/d?x=1\nKEY=\"-----BEGIN\nabc\n-----END\"\nA=3\nG=\"\"\nH=last";
        let expected = [
            ("B", "two words"),
            ("C", "as $it \\n is"),
            ("D", "a\nb \"q\" $"),
            ("E", ""),
            ("F", "a#b"),
            ("URL", "postgres://u:p#w@h/d?x=1"),
            ("KEY", "-----BEGIN\nabc\n-----END"),
            ("A", "3"),
            ("G", ""),
            ("H", "last"),
        ];
        let variables = parse(text).unwrap();
        let read: Vec<(&str, &str)> = variables.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(read, expected);
        assert_eq!(parse(""), Ok(Vec::new()));
    }

    #[test]
    fn a_mistake_has_its_line() {
        for (text, line, part) in [
            ("A=1\nB", 2, "NAME=value"),
            ("\n\n2A=1", 3, "letters"),
            ("A-B=1", 1, "letters"),
            ("=1", 1, "letters"),
            ("A=\"x\ny\n", 1, "not closed"),
            ("K=\"a\nb\"\nA='x\n", 3, "not closed"),
            ("A=\"x\" y", 1, "behind"),
            ("A=\"\\q\"", 1, "only"),
            ("A=x\0", 1, "NUL"),
        ] {
            let wrong = parse(text).unwrap_err();
            assert!(
                wrong.line == line && wrong.why.contains(part),
                "{text}: {wrong:?}"
            );
        }
    }
}
