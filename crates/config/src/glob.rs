//! File name patterns: `*`, `?` and `[a-z]`, within one path component.

pub(super) fn is_pattern(part: &str) -> bool {
    part.contains(['*', '?', '['])
}

/// Matches a name. As in a shell, only a dot matches a leading dot.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut p, mut n) = (0, 0);
    // Where to resume if the text after the last star doesn't match.
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&'*') {
            retry = Some((p + 1, n));
            p += 1;
        } else if let Some(length) = one(&pattern[p..], name[n]) {
            p += length;
            n += 1;
        } else if let Some((after_star, from)) = retry {
            (p, n) = (after_star, from + 1);
            retry = Some((after_star, from + 1));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

fn one(pattern: &[char], c: char) -> Option<usize> {
    match pattern.first()? {
        '?' => Some(1),
        '[' => match set(pattern, c) {
            Some((length, hit)) => hit.then_some(length),
            None => (c == '[').then_some(1),
        },
        literal => (*literal == c).then_some(1),
    }
}

/// The length of a `[…]` and whether it matches. `None` if unclosed.
fn set(pattern: &[char], c: char) -> Option<(usize, bool)> {
    let negated = matches!(pattern.get(1), Some('!' | '^'));
    let first = if negated { 2 } else { 1 };
    let mut at = first;
    let mut hit = false;
    loop {
        let low = *pattern.get(at)?;
        if low == ']' && at > first {
            return Some((at + 1, hit != negated));
        }
        match (pattern.get(at + 1), pattern.get(at + 2)) {
            (Some('-'), Some(high)) if *high != ']' => {
                hit |= (low..=*high).contains(&c);
                at += 3;
            }
            _ => {
                hit |= low == c;
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn names_match_as_in_a_shell() {
        for (pattern, name, expected) in [
            ("*.toml", "a.toml", true),
            ("*.toml", ".hidden.toml", false),
            (".*.toml", ".hidden.toml", true),
            ("*.toml", "a.tom", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b-d", false),
            ("?x", "ax", true),
            ("?x", "x", false),
            ("[a-c]1", "b1", true),
            ("[!a-c]1", "b1", false),
            ("[]]", "]", true),
            ("[", "[", true),
            ("", "", true),
            ("", "a", false),
            ("**", "abc", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
