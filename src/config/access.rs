//! What the access log holds: php-fpm's `access.format`, parsed once.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// php-fpm's default.
pub const DEFAULT_FORMAT: &str = "%R - %u %t \"%m %r\" %s";
/// How times are written unless the format says otherwise, for strftime(3).
const DEFAULT_TIME: &str = "%d/%b/%Y:%H:%M:%S %z";
/// Bytes of a time's format; php-fpm cuts there as well.
const TIME_BYTES: usize = 128;

/// A pool's access log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessLog {
    /// The file.
    pub path: PathBuf,
    /// What a line is made of.
    pub format: Vec<Token>,
    /// Successful GET and HEAD requests without query and body that have one of these URIs leave no line.
    pub suppress_paths: Vec<String>,
}

/// A part of a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Token {
    /// The text itself.
    Text(String),
    /// `%C`: CPU time in percent of the request's time.
    Cpu(CpuPart),
    /// `%d`: how long it took.
    Duration(DurationUnit),
    /// `%{NAME}e`: a FastCGI parameter.
    Param(String),
    /// `%f`: path of the script.
    Script,
    /// `%l`: length of the request's body.
    ContentLength,
    /// `%m`: request method.
    Method,
    /// `%M`: peak memory, in units of this many bytes.
    Memory(u64),
    /// `%n`: the pool's name.
    Pool,
    /// `%{NAME}o`: a header of the answer.
    Header(String),
    /// `%p`: process id.
    Pid,
    /// `%P`: the parent's process id.
    ParentPid,
    /// `%q`: query string.
    Query,
    /// `%Q`: a question mark if there is a query string.
    QueryMark,
    /// `%r`: the URI, without query string.
    Uri,
    /// `%R`: address of the FastCGI client.
    Peer,
    /// `%s`: status of the answer.
    Status,
    /// `%t`: when the request was taken up, by this strftime(3) format.
    Begun(String),
    /// `%T`: when the line was written, by this strftime(3) format.
    Logged(String),
    /// `%u`: authenticated user.
    User,
}

/// Whose CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CpuPart {
    /// User and system.
    Total,
    /// The process itself.
    User,
    /// The kernel on its behalf.
    System,
}

/// How a duration is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DurationUnit {
    /// With three decimals.
    Seconds,
    /// With three decimals.
    Milliseconds,
    /// Whole ones.
    Microseconds,
}

/// Reads a format.
///
/// # Errors
/// What is wrong with it, in php-fpm's words.
pub fn parse_format(format: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        add_text(&mut tokens, &rest[..at]);
        rest = &rest[at + 1..];
        let mut name = None;
        while let Some(inside) = rest.strip_prefix('{') {
            let (word, after) = inside
                .split_once('}')
                .filter(|(_, after)| !after.is_empty())
                .ok_or("missing closing embrace in the access.format")?;
            name = Some(word).filter(|word| !word.is_empty());
            rest = after;
        }
        let Some(letter) = rest.chars().next() else {
            return Ok(tokens);
        };
        rest = &rest[letter.len_utf8()..];
        match token(letter, name)? {
            Token::Text(text) => add_text(&mut tokens, &text),
            token => tokens.push(token),
        }
    }
    add_text(&mut tokens, rest);
    Ok(tokens)
}

fn add_text(tokens: &mut Vec<Token>, text: &str) {
    match tokens.last_mut() {
        _ if text.is_empty() => {}
        Some(Token::Text(before)) => before.push_str(text),
        _ => tokens.push(Token::Text(text.to_owned())),
    }
}

fn token(letter: char, name: Option<&str>) -> Result<Token, String> {
    let only = |words: &str| {
        format!(
            "only {words} are allowed as a modifier for %{letter} ('{}')",
            name.unwrap_or_default()
        )
    };
    let named = |kind: &str| {
        let missing = || format!("the name of the {kind} must be set between embraces for %{letter}");
        name.map(str::to_owned).ok_or_else(missing)
    };
    let modifier = name.unwrap_or_default().to_ascii_lowercase();
    let time = || cut(name.unwrap_or(DEFAULT_TIME), TIME_BYTES).to_owned();
    let plain = match letter {
        'C' => {
            return match modifier.as_str() {
                "" | "total" => Ok(Token::Cpu(CpuPart::Total)),
                "user" => Ok(Token::Cpu(CpuPart::User)),
                "system" => Ok(Token::Cpu(CpuPart::System)),
                _ => Err(only("'total', 'user' or 'system'")),
            };
        }
        'd' => {
            return match modifier.as_str() {
                "" | "seconds" => Ok(Token::Duration(DurationUnit::Seconds)),
                "mili" | "milli" | "miliseconds" | "milliseconds" => {
                    Ok(Token::Duration(DurationUnit::Milliseconds))
                }
                "micro" | "microseconds" => Ok(Token::Duration(DurationUnit::Microseconds)),
                _ => Err(only(
                    "'seconds', 'milli', 'milliseconds', 'micro' or 'microseconds'",
                )),
            };
        }
        'M' => {
            return match modifier.as_str() {
                "" | "bytes" => Ok(Token::Memory(1)),
                "kilo" | "kilobytes" => Ok(Token::Memory(1 << 10)),
                "mega" | "megabytes" => Ok(Token::Memory(1 << 20)),
                _ => Err(only("'bytes', 'kilo', 'kilobytes', 'mega' or 'megabytes'")),
            };
        }
        'e' => return named("environment variable").map(Token::Param),
        'o' => return named("header").map(Token::Header),
        't' => return Ok(Token::Begun(time())),
        'T' => return Ok(Token::Logged(time())),
        '%' => Token::Text("%".to_owned()),
        'f' => Token::Script,
        'l' => Token::ContentLength,
        'm' => Token::Method,
        'n' => Token::Pool,
        'p' => Token::Pid,
        'P' => Token::ParentPid,
        'q' => Token::Query,
        'Q' => Token::QueryMark,
        'r' => Token::Uri,
        'R' => Token::Peer,
        's' => Token::Status,
        'u' => Token::User,
        _ => return Err(format!("Invalid token in the access.format (%{letter})")),
    };
    match name {
        Some(_) => Err(format!("embrace is not allowed for modifier %{letter}")),
        None => Ok(plain),
    }
}

fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_read() {
        let text = |text: &str| Token::Text(text.to_owned());
        let expected = [
            Token::Peer,
            text(" - "),
            Token::User,
            text(" "),
            Token::Begun(DEFAULT_TIME.to_owned()),
            text(" \""),
            Token::Method,
            text(" "),
            Token::Uri,
            text("\" "),
            Token::Status,
        ];
        assert_eq!(parse_format(DEFAULT_FORMAT).unwrap(), expected);
    }

    #[test]
    fn modifiers_are_read() {
        for (format, expected) in [
            ("%{USER}C", Token::Cpu(CpuPart::User)),
            ("%{mili}d", Token::Duration(DurationUnit::Milliseconds)),
            ("%{}d", Token::Duration(DurationUnit::Seconds)),
            ("%{mega}M", Token::Memory(1 << 20)),
            ("%{a}{b}e", Token::Param("b".to_owned())),
            ("%{X-A}o", Token::Header("X-A".to_owned())),
            ("%{%H}T", Token::Logged("%H".to_owned())),
            ("%%", Token::Text("%".to_owned())),
        ] {
            assert_eq!(parse_format(format).unwrap(), [expected], "{format}");
        }
        assert_eq!(parse_format("a%%b %").unwrap(), [Token::Text("a%b ".to_owned())]);
    }

    #[test]
    fn mistakes_are_named_as_php_fpm_does() {
        for (format, expected) in [
            ("%Z", "Invalid token in the access.format (%Z)"),
            ("%{x}r", "embrace is not allowed for modifier %r"),
            ("%{x}%r", "embrace is not allowed for modifier %%"),
            ("%{x", "missing closing embrace in the access.format"),
            ("%{x}", "missing closing embrace in the access.format"),
            (
                "%e",
                "the name of the environment variable must be set between embraces for %e",
            ),
            ("%o", "the name of the header must be set between embraces for %o"),
            (
                "%{x}C",
                "only 'total', 'user' or 'system' are allowed as a modifier for %C ('x')",
            ),
        ] {
            assert_eq!(parse_format(format).unwrap_err(), expected, "{format}");
        }
    }
}
