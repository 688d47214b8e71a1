//! Whether an access log's format can be used.

/// What is wrong with it; `None`: nothing.
pub(super) fn problem(format: &str) -> Option<String> {
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        rest = &rest[at + 1..];
        let mut name = None;
        if let Some(inside) = rest.strip_prefix('{') {
            let Some((word, after)) = inside.split_once('}') else {
                return Some("missing closing embrace in the access.format".to_owned());
            };
            name = Some(word);
            rest = after;
        }
        let token = rest.chars().next()?;
        rest = &rest[token.len_utf8()..];
        if let Some(problem) = token_problem(token, name.filter(|name| !name.is_empty())) {
            return Some(problem);
        }
    }
    None
}

fn token_problem(token: char, name: Option<&str>) -> Option<String> {
    let only = |allowed: &[&str], words: &str| match name {
        Some(name) if !allowed.iter().any(|word| word.eq_ignore_ascii_case(name)) => Some(format!(
            "only {words} are allowed as a modifier for %{token} ('{name}')"
        )),
        _ => None,
    };
    match token {
        'C' => only(&["total", "user", "system"], "'total', 'user' or 'system'"),
        'd' => only(
            &[
                "seconds",
                "mili",
                "milli",
                "miliseconds",
                "milliseconds",
                "micro",
                "microseconds",
            ],
            "'seconds', 'milli', 'milliseconds', 'micro' or 'microseconds'",
        ),
        'M' => only(
            &["bytes", "kilo", "kilobytes", "mega", "megabytes"],
            "'bytes', 'kilo', 'kilobytes', 'mega' or 'megabytes'",
        ),
        'e' if name.is_none() => Some(format!(
            "the name of the environment variable must be set between embraces for %{token}"
        )),
        'o' if name.is_none() => Some(format!(
            "the name of the header must be set between embraces for %{token}"
        )),
        't' | 'T' | 'e' | 'o' | '%' => None,
        'f' | 'l' | 'm' | 'n' | 'p' | 'P' | 'q' | 'Q' | 'r' | 'R' | 's' | 'u' if name.is_some() => {
            Some(format!("embrace is not allowed for modifier %{token}"))
        }
        'f' | 'l' | 'm' | 'n' | 'p' | 'P' | 'q' | 'Q' | 'r' | 'R' | 's' | 'u' => None,
        _ => Some(format!("Invalid token in the access.format (%{token})")),
    }
}
