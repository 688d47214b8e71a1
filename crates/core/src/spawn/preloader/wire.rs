//! What is said to a preloader and what it answers: one line of JSON each way, on a connection of its own.

use serde::Deserialize;
use serde_json::json;
use std::path::Path;

/// Longest answer, in bytes.
pub const MOST_ANSWER: usize = 10_240;

/// The command to fork a process for which this work directory was made; with its newline.
pub fn spawn_command(work_directory: &Path) -> Vec<u8> {
    let command = json!({ "command": "spawn", "work_dir": work_directory });
    let mut line = command.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It has forked this process.
    Forked(i32),
    /// It could not.
    Refused(String),
}

#[derive(Deserialize)]
struct Document {
    result: String,
    pid: Option<i64>,
    message: Option<String>,
}

/// Reads an answer.
///
/// # Errors
/// What is wrong with it.
pub fn parse(line: &[u8]) -> Result<Answer, String> {
    if line.len() > MOST_ANSWER {
        return Err(format!("it is longer than {MOST_ANSWER} bytes"));
    }
    let document: Document = serde_json::from_slice(line)
        .map_err(|error| format!("it is not the JSON that is expected: {error}"))?;
    match (document.result.as_str(), document.pid, document.message) {
        ("ok", Some(pid), _) => match i32::try_from(pid) {
            Ok(pid) if pid > 1 => Ok(Answer::Forked(pid)),
            _ => Err(format!("its pid {pid} is none")),
        },
        ("ok", None, _) => Err("it has no \"pid\"".to_owned()),
        ("error", _, Some(message)) => Ok(Answer::Refused(message)),
        ("error", _, None) => Err("it has no \"message\"".to_owned()),
        _ => Err("its \"result\" is neither \"ok\" nor \"error\"".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        assert_eq!(parse(br#"{"result":"ok","pid":12}"#), Ok(Answer::Forked(12)));
        let refused = parse(b"{\"result\":\"error\",\"message\":\"no\"}\n");
        assert_eq!(refused, Ok(Answer::Refused("no".to_owned())));
        for wrong in [
            "",
            "12",
            "{",
            r#"{"result":"ok"}"#,
            r#"{"result":"ok","pid":0}"#,
            r#"{"result":"ok","pid":1}"#,
            r#"{"result":"ok","pid":99999999999}"#,
            r#"{"result":"ok","pid":"12"}"#,
            r#"{"result":"error"}"#,
            r#"{"result":"maybe","pid":12}"#,
        ] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(parse(&[b' '; MOST_ANSWER + 1]).is_err());
    }

    #[test]
    fn the_command_is_one_line() {
        let line = spawn_command(Path::new("/tmp/a\nb"));
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert_eq!(line.last(), Some(&b'\n'));
    }
}
