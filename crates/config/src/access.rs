//! The access log's format: php-fpm's `access.format`. Additions: the format `json`, with the fields of `JSON`, and the
//! prefixes `escape=default`, `escape=json` and `escape=none`, as in nginx's `log_format`.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

pub const DEFAULT_FORMAT: &str = "%R - %u %t \"%m %r\" %s";
const DEFAULT_TIME: &str = "%d/%b/%Y:%H:%M:%S %z";
const TIME_BYTES: usize = 128;

const JSON_NAME: &str = "json";
const ESCAPE: &str = "escape=";

type Field = (&'static str, bool, fn() -> Token);

const JSON: &[Field] = &[
    ("time", true, || Token::BegunExactly),
    ("pool", true, || Token::Pool),
    ("pid", false, || Token::Pid),
    ("remote_addr", true, || param("REMOTE_ADDR")),
    ("user", true, || Token::User),
    ("host", true, || param("HTTP_HOST")),
    ("method", true, || Token::Method),
    ("request_uri", true, || param("REQUEST_URI")),
    ("uri", true, || Token::Uri),
    ("query", true, || Token::Query),
    ("script", true, || Token::Script),
    ("content_length", false, || Token::ContentLength),
    ("status", false, || Token::Status),
    ("duration", false, || Token::Duration(DurationUnit::Exact)),
    ("cpu", false, || Token::CpuTime),
    ("memory", false, || Token::Memory(1)),
    ("referer", true, || param("HTTP_REFERER")),
    ("user_agent", true, || param("HTTP_USER_AGENT")),
];

fn param(name: &str) -> Token {
    Token::Param(name.to_owned())
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessLog {
    pub path: PathBuf,
    pub format: Format,
    /// URIs of successful GET and HEAD requests, without query and body, that are not logged.
    pub suppress_paths: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Format {
    pub tokens: Vec<Token>,
    pub escape: Escape,
}

/// Escaping of text from clients or the application, with nginx's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Escape {
    /// Escapes characters that could end a line or field as `\x0A`. A missing value is a dash.
    #[default]
    Default,
    /// JSON string escapes. A missing value is empty.
    Json,
    None,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Token {
    Text(String),
    /// `%C`: CPU time in percent of the request's time.
    Cpu(CpuPart),
    /// `%d`: the request's duration.
    Duration(DurationUnit),
    /// `%{NAME}e`: a FastCGI parameter.
    Param(String),
    /// `%f`: the script's path.
    Script,
    ContentLength,
    Method,
    /// `%M`: peak memory, in units of this many bytes.
    Memory(u64),
    Pool,
    /// `%{NAME}o`: a response header.
    Header(String),
    Pid,
    ParentPid,
    Query,
    /// `%Q`: a question mark if there is a query string.
    QueryMark,
    /// `%r`: the URI, without query string.
    Uri,
    Peer,
    Status,
    /// CPU time in seconds with six decimals. Only in `json`.
    CpuTime,
    /// Start time in RFC 3339 format with six decimals. Only in `json`.
    BegunExactly,
    /// `%t`: start time, in this strftime(3) format.
    Begun(String),
    /// `%T`: time of the log line, in this strftime(3) format.
    Logged(String),
    User,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CpuPart {
    Total,
    User,
    System,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DurationUnit {
    Seconds,
    Milliseconds,
    Microseconds,
    /// Seconds with six decimals. Only in `json`.
    Exact,
}

/// Known errors have php-fpm's words.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    #[error("only escape=default, escape=json and escape=none are known in the access.format ('{0}')")]
    Escape(String),
    #[error("missing closing embrace in the access.format")]
    Embrace,
    #[error("only {words} are allowed as a modifier for %{letter} ('{name}')")]
    Modifier {
        words: &'static str,
        letter: char,
        name: String,
    },
    #[error("the name of the {kind} must be set between embraces for %{letter}")]
    Name { kind: &'static str, letter: char },
    #[error("embrace is not allowed for modifier %{0}")]
    NoModifier(char),
    #[error("Invalid token in the access.format (%{0})")]
    Token(char),
}

/// Parses a format.
///
/// # Errors
/// The format is invalid.
pub fn parse_format(format: &str) -> Result<Format, FormatError> {
    if format == JSON_NAME {
        return Ok(json());
    }
    let (name, own) = match format.strip_prefix(ESCAPE) {
        Some(rest) => rest.split_once(' ').unwrap_or((rest, "")),
        None => ("default", format),
    };
    let escape = match name {
        "default" => Escape::Default,
        "json" => Escape::Json,
        "none" => Escape::None,
        _ => return Err(FormatError::Escape(name.to_owned())),
    };
    Ok(Format {
        tokens: parse_tokens(own)?,
        escape,
    })
}

fn json() -> Format {
    let mut tokens = Vec::new();
    for (index, (name, is_string, value)) in JSON.iter().enumerate() {
        let before = if index == 0 { "{" } else { "," };
        let quote = if *is_string { "\"" } else { "" };
        add_text(&mut tokens, &format!("{before}\"{name}\":{quote}"));
        tokens.push(value());
        add_text(&mut tokens, quote);
    }
    add_text(&mut tokens, "}");
    Format {
        tokens,
        escape: Escape::Json,
    }
}

fn parse_tokens(format: &str) -> Result<Vec<Token>, FormatError> {
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
                .ok_or(FormatError::Embrace)?;
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

fn token(letter: char, name: Option<&str>) -> Result<Token, FormatError> {
    let only = |words| FormatError::Modifier {
        words,
        letter,
        name: name.unwrap_or_default().to_owned(),
    };
    let named = |kind| name.map(str::to_owned).ok_or(FormatError::Name { kind, letter });
    let modifier = name.unwrap_or_default().to_ascii_lowercase();
    let time = || cut(name.unwrap_or(DEFAULT_TIME), TIME_BYTES).to_owned();
    let plain = match letter {
        'C' => {
            return match modifier.as_str() {
                "" | "total" => Ok(CpuPart::Total),
                "user" => Ok(CpuPart::User),
                "system" => Ok(CpuPart::System),
                _ => Err(only("'total', 'user' or 'system'")),
            }
            .map(Token::Cpu);
        }
        'd' => {
            return match modifier.as_str() {
                "" | "seconds" => Ok(DurationUnit::Seconds),
                "mili" | "milli" | "miliseconds" | "milliseconds" => Ok(DurationUnit::Milliseconds),
                "micro" | "microseconds" => Ok(DurationUnit::Microseconds),
                _ => Err(only(
                    "'seconds', 'milli', 'milliseconds', 'micro' or 'microseconds'",
                )),
            }
            .map(Token::Duration);
        }
        'M' => {
            return match modifier.as_str() {
                "" | "bytes" => Ok(1),
                "kilo" | "kilobytes" => Ok(1 << 10),
                "mega" | "megabytes" => Ok(1 << 20),
                _ => Err(only("'bytes', 'kilo', 'kilobytes', 'mega' or 'megabytes'")),
            }
            .map(Token::Memory);
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
        _ => return Err(FormatError::Token(letter)),
    };
    match name {
        Some(_) => Err(FormatError::NoModifier(letter)),
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
        let format = parse_format(DEFAULT_FORMAT).unwrap();
        assert_eq!(format.tokens, expected);
        assert_eq!(format.escape, Escape::Default);
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
            assert_eq!(parse_format(format).unwrap().tokens, [expected], "{format}");
        }
        assert_eq!(
            parse_format("a%%b %").unwrap().tokens,
            [Token::Text("a%b ".to_owned())]
        );
    }

    #[test]
    fn a_format_says_how_it_escapes() {
        for (format, escape) in [
            ("escape=default %m", Escape::Default),
            ("escape=json %m", Escape::Json),
            ("escape=none %m", Escape::None),
        ] {
            let read = parse_format(format).unwrap();
            assert_eq!(
                (read.escape, read.tokens),
                (escape, vec![Token::Method]),
                "{format}"
            );
        }
        assert_eq!(parse_format("escape=json").unwrap().tokens, []);
        assert_eq!(parse_format("%m escape=json").unwrap().escape, Escape::Default);
        assert_eq!(
            parse_format("escape=xml %m").unwrap_err().to_string(),
            "only escape=default, escape=json and escape=none are known in the access.format ('xml')"
        );
    }

    #[test]
    fn json_has_the_fields_of_the_table() {
        let format = parse_format("json").unwrap();
        assert_eq!(format.escape, Escape::Json);
        assert_eq!(format.tokens[0], Token::Text("{\"time\":\"".to_owned()));
        assert_eq!(format.tokens[1], Token::BegunExactly);
        assert_eq!(format.tokens.last(), Some(&Token::Text("\"}".to_owned())));
        assert_eq!(format.tokens.len(), 2 * JSON.len() + 1);
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
            assert_eq!(
                parse_format(format).unwrap_err().to_string(),
                expected,
                "{format}"
            );
        }
    }
}
