//! Finds the error message in a program's output.

const TRACEBACK: &str = "Traceback (most recent call last):";
const MOST_CHARACTERS: usize = 400;
/// Suffixes of error names before a colon.
const ENDINGS: [&str; 3] = ["Error", "Exception", "Exit"];

/// Returns the line with the error's type and message, as Python, Ruby, Node.js and Go write it.
pub fn headline(output: &str) -> Option<&str> {
    let lines = || output.lines().map(str::trim_end);
    let found = match output.rfind(TRACEBACK) {
        Some(at) => output[at..].lines().skip(1).find(|line| is_flush(line)),
        None => lines()
            .rfind(|line| is_of_ruby(line))
            .or_else(|| lines().rfind(|line| is_error(line))),
    };
    let found = found?.trim_end();
    let end = found
        .char_indices()
        .nth(MOST_CHARACTERS)
        .map_or(found.len(), |(at, _)| at);
    Some(&found[..end])
}

/// Returns a remedy if the error reports a missing environment variable.
pub fn missing_variable(headline: &str, output: &str) -> Option<String> {
    let (_, quoted) = headline.split_once("KeyError: '").unwrap_or_default();
    let (_, fetched) = headline.split_once("key not found: \"").unwrap_or_default();
    let is_read =
        output.contains("os.environ") || output.contains("/os.py\", line") || output.contains("<frozen os>");
    let name = match (quoted.split_once('\''), fetched.split_once('"')) {
        (Some((name, _)), _) if is_read => name,
        (_, Some((name, rest))) if rest.contains("KeyError") && output.contains("fetch") => name,
        _ if headline.to_lowercase().contains("environment variable") => "the variable that is named",
        _ => return None,
    };
    Some(format!(
        "Set {name} in env or env_file: the application reads it from the environment, where it is not set. Variables of a login \
         shell are not there."
    ))
}

fn is_flush(line: &str) -> bool {
    line.starts_with(|first: char| !first.is_whitespace())
}

fn is_of_ruby(line: &str) -> bool {
    let place = line.split_once(":in `").or_else(|| line.split_once(":in '"));
    is_flush(line) && place.is_some_and(|(_, rest)| rest.contains("': "))
}

/// `NAME: MESSAGE`, perhaps with a code: `TypeError [ERR_INVALID_ARG_TYPE]: …`.
fn is_error(line: &str) -> bool {
    let line = line.strip_prefix("Uncaught ").unwrap_or(line);
    let (name, _) = line.split_once(": ").unwrap_or((line, ""));
    let (name, code) = name.split_once(" [").unwrap_or((name, "]"));
    let is_name = !name.is_empty()
        && name
            .chars()
            .all(|one| one.is_alphanumeric() || one == '_' || one == '.');
    is_name && code.ends_with(']') && (ENDINGS.iter().any(|ending| name.ends_with(ending)) || name == "panic")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_itself_is_found() {
        for (output, wanted) in [
            ("starting\nlistening soon\n", None),
            (
                "Traceback (most recent call last):\n  File \"m.py\", line 1, in f\n    connect()\nsqlalchemy.exc.OperationalError: \
                 (psycopg2.OperationalError) connection refused\n\tIs the server running?\n\n(Background on this error at: \
                 https://sqlalche.me/e/20/e3q8)\n",
                Some("sqlalchemy.exc.OperationalError: (psycopg2.OperationalError) connection refused"),
            ),
            (
                "Traceback (most recent call last):\n  File \"a\", line 1\nKeyError: 'a'\n\nDuring handling of the above exception, \
                 another exception occurred:\n\nTraceback (most recent call last):\n  File \"b\", line 2\nValueError: wrong\n",
                Some("ValueError: wrong"),
            ),
            (
                "RuntimeError: the application's start failed: Traceback (most recent call last):\n  File \"main.py\", line 8, in \
                 app\nmain.DbError: refused\n(Background on this error at: https://example/e3q8)\n",
                Some("main.DbError: refused"),
            ),
            (
                "config.ru:1:in `fetch': key not found: \"DB\" (KeyError)\n\tfrom config.ru:1:in `<main>'\n",
                Some("config.ru:1:in `fetch': key not found: \"DB\" (KeyError)"),
            ),
            (
                "node:internal/modules/cjs/loader:1080\n  throw err;\n  ^\n\nError: Cannot find module 'x'\nRequire stack:\n- \
                 /srv/app.js\n    at Module._resolveFilename (node:internal:1:1) {\n  code: 'MODULE_NOT_FOUND',\n}\n\nNode.js \
                 v18.19.0\n",
                Some("Error: Cannot find module 'x'"),
            ),
            (
                "/srv/app.js:1\nlet x = ;\n        ^\n\nSyntaxError: Unexpected token ';'\n    at internal\n\nNode.js v18\n",
                Some("SyntaxError: Unexpected token ';'"),
            ),
            (
                "Error: listen EADDRINUSE: address already in use :::3000\n    at Server\nEmitted 'error' event on Server \
                 instance at:\n    at emit {\n  code: 'EADDRINUSE',\n  port: 3000\n}\n",
                Some("Error: listen EADDRINUSE: address already in use :::3000"),
            ),
            (
                "TypeError [ERR_INVALID_ARG_TYPE]: The \"path\" argument\n    at x\n",
                Some("TypeError [ERR_INVALID_ARG_TYPE]: The \"path\" argument"),
            ),
            (
                "panic: no database\n\ngoroutine 1 [running]:\n",
                Some("panic: no database"),
            ),
        ] {
            assert_eq!(headline(output), wanted, "{output}");
        }
    }

    #[test]
    fn a_missing_variable_leads_to_env() {
        let read = "  File \"/usr/lib/python3.11/os.py\", line 679, in __getitem__\n";
        for (headline, output, name) in [
            ("KeyError: 'DATABASE_URL'", read, Some("Set DATABASE_URL in")),
            ("KeyError: 'article'", "  File \"shop.py\", line 1\n", None),
            (
                "config.ru:1:in `fetch': key not found: \"DB\" (KeyError)",
                "in `fetch'",
                Some("Set DB in"),
            ),
            (
                "ImproperlyConfigured: Set the DB environment variable",
                "",
                Some("variable that is named in"),
            ),
            ("ValueError: wrong", read, None),
        ] {
            let advice = missing_variable(headline, output);
            match name {
                Some(name) => assert!(
                    advice.is_some_and(|it| it.contains(name) && it.contains("env_file")),
                    "{headline}"
                ),
                None => assert_eq!(advice, None, "{headline}"),
            }
        }
    }
}
