//! Error pages, with excerpts of the developer's code.

use crate::reply::{self, Reply};
use bytes::Bytes;
use forkyard_core::spawn::report::{SOURCE_MARK, exception, source_section};
use forkyard_spawn::source;
use hyper::StatusCode;
use std::path::Path;

/// `remedy` and `text` may be empty.
pub(crate) fn page(status: StatusCode, title: &str, remedy: &str, text: &str) -> Reply {
    let kind = status.canonical_reason().unwrap_or("Error");
    reply::html(status, exception(kind, title, remedy, text, None))
}

pub(crate) fn raised(text: &str, root: &Path) -> Reply {
    let excerpt = source::blamed(text, root);
    let title = title(text);
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    let page = exception(
        "The application failed while it answered",
        &title,
        "",
        text,
        excerpt.as_ref(),
    );
    reply::html(status, page)
}

/// The short message of an exception: Python's last line, otherwise the first.
fn title(text: &str) -> String {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let line = match text.starts_with("Traceback ") {
        true => lines.rfind(|line| !line.starts_with(' ')),
        false => lines.next(),
    };
    let line = line.unwrap_or("It raised an exception").trim();
    line.strip_prefix("PHP message: ").unwrap_or(line).to_owned()
}

/// Adds the failed line of code, and the daemon's socket in its advice, to the daemon's page about a failed start.
pub(crate) fn completed(page: &Bytes, root: &Path, control: &Path) -> Option<String> {
    let page = std::str::from_utf8(page).ok()?;
    let (before, behind) = page.split_once(SOURCE_MARK)?;
    let section = source::blamed(&unescaped(page), root).map_or_else(String::new, |it| source_section(&it));
    let command = format!("`forkyard error --socket {} ", control.display());
    Some(format!(
        "{before}{section}{}",
        behind.replace("`forkyard error ", &command)
    ))
}

fn unescaped(page: &str) -> String {
    let mut text = page.to_owned();
    for (escape, meant) in [
        ("&#60;", "<"),
        ("&#62;", ">"),
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&#38;", "&"),
    ] {
        text = text.replace(escape, meant);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_s_page_is_completed_with_the_line_of_code() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        std::fs::write(root.join("app.js"), "const a = <b>\n").unwrap();
        let page = format!(
            "<p>{}/app.js:1&#39;</p>{SOURCE_MARK}<p>`forkyard error ab`</p>",
            root.display()
        );
        let control = Path::new("/tmp/c.sock");
        let whole = completed(&Bytes::from(page), &root, control).unwrap();
        assert!(
            whole.contains("const a = &#60;b&#62;")
                && whole.ends_with("<p>`forkyard error --socket /tmp/c.sock ab`</p>"),
            "{whole}"
        );
        assert!(!whole.contains(SOURCE_MARK));
        assert_eq!(completed(&Bytes::from_static(b"<p>no</p>"), &root, control), None);
    }

    #[test]
    fn an_exception_has_a_title() {
        assert_eq!(
            title("Traceback (most recent call last):\n  File\nValueError: no\n"),
            "ValueError: no"
        );
        assert_eq!(
            title("\nPHP message: PHP Fatal error: x in a\nStack"),
            "PHP Fatal error: x in a"
        );
        assert_eq!(title(""), "It raised an exception");
    }
}
