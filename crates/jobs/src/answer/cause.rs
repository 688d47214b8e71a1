//! The reason of a failure: the exception on the job's error stream.

const MOST_CHARACTERS: usize = 300;

pub(crate) fn explained(error: String, log: &[u8]) -> String {
    let is_exit = error.starts_with("exit code ");
    if !is_exit && !error.starts_with("status ") {
        return error;
    }
    let log = String::from_utf8_lossy(log);
    let last = || is_exit.then(|| last_line(&log)).flatten();
    match exception(&log).or_else(last) {
        Some(cause) => {
            let cause: String = cause.chars().take(MOST_CHARACTERS).collect();
            format!("{cause} ({error})")
        }
        None => error,
    }
}

/// The class and first line of the last uncaught exception.
fn exception(log: &str) -> Option<String> {
    php(log)
        .or_else(|| python(log))
        .or_else(|| ruby(log))
        .or_else(|| named(log))
}

/// `PHP Fatal error:  Uncaught RuntimeException: no route in /srv/a.php:3`, and errors that are no exceptions.
fn php(log: &str) -> Option<String> {
    let (_, rest) = log
        .rsplit_once("Fatal error: ")
        .or_else(|| log.rsplit_once("Parse error: "))?;
    let line = rest.lines().next()?.trim();
    let line = line.strip_prefix("Uncaught ").unwrap_or(line);
    let place = line.rfind(" in ").filter(|at| line[at + 4..].starts_with('/'));
    Some(line[..place.unwrap_or(line.len())].to_owned())
}

/// The first unindented line after a traceback.
fn python(log: &str) -> Option<String> {
    let (_, rest) = log.rsplit_once("Traceback (most recent call last):")?;
    let is_own = |line: &&str| !line.is_empty() && !line.starts_with([' ', '\t']);
    rest.lines().find(is_own).map(|line| line.trim_end().to_owned())
}

fn ruby(log: &str) -> Option<String> {
    log.lines().find_map(|line| {
        let (_, rest) = line.split_once(".rb:").or_else(|| line.split_once(".ru:"))?;
        let (message, class) = rest.trim_end().strip_suffix(')')?.rsplit_once(" (")?;
        let is_class = class.starts_with(char::is_uppercase) && class.chars().all(is_of_name);
        let (_, message) = message.split_once(": ")?;
        is_class.then(|| format!("{class}: {message}"))
    })
}

fn named(log: &str) -> Option<String> {
    log.lines().rev().map(str::trim).find_map(|line| {
        let class = line.split(':').next()?;
        let is_error = ["Error", "Exception"].iter().any(|end| class.ends_with(end));
        (is_error && class.chars().all(is_of_name)).then(|| line.to_owned())
    })
}

fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || "_.:\\".contains(character)
}

fn last_line(log: &str) -> Option<String> {
    let is_own = |line: &&str| !line.is_empty() && !line.contains("Forkyard-Progress:");
    log.lines()
        .rev()
        .map(str::trim)
        .find(is_own)
        .map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_is_found_in_what_each_runtime_writes() {
        for (error, log, expected) in [
            (
                "status 500",
                "PHP message: PHP Fatal error:  Uncaught RuntimeException: no route in /srv/a.php:3\nStack trace:\n#0 {main}\n",
                "RuntimeException: no route (status 500)",
            ),
            (
                "status 500",
                "PHP message: PHP Fatal error:  Uncaught App\\Gone: one\ntwo in /srv/a.php:3",
                "App\\Gone: one (status 500)",
            ),
            (
                "status 500",
                "PHP message: PHP Parse error:  syntax error, unexpected token \"}\" in /srv/a.php on line 4",
                "syntax error, unexpected token \"}\" (status 500)",
            ),
            (
                "status 500",
                "Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'x'\n\nDuring handling:\n\n\
                 Traceback (most recent call last):\n  File \"a.py\", line 3\n    f()\nshop.Gone: not there\nmore",
                "shop.Gone: not there (status 500)",
            ),
            (
                "status 500",
                "noise\n/srv/config.ru:3:in 'block in <main>': no route (Shop::Gone)\n\tfrom x.rb:7:in 'call'\n",
                "Shop::Gone: no route (status 500)",
            ),
            (
                "exit code 1",
                "/srv/a.js:1\nx()\n^\n\nReferenceError: x is not defined\n    at Object.<anonymous> (/srv/a.js:1:1)\n\nNode.js v20",
                "ReferenceError: x is not defined (exit code 1)",
            ),
            (
                "exit code 3",
                "begun\nForkyard-Progress: 10\ncurl: (6) no host\n",
                "curl: (6) no host (exit code 3)",
            ),
            ("exit code 3", "", "exit code 3"),
            ("status 500", "said", "status 500"),
            ("no route", "TypeError: x", "no route"),
        ] {
            assert_eq!(explained(error.to_owned(), log.as_bytes()), expected, "{log}");
        }
        let long = explained("exit code 1".into(), "ü".repeat(1_000).as_bytes());
        assert_eq!(long.chars().count(), MOST_CHARACTERS + " (exit code 1)".len());
    }
}
