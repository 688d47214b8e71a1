//! Queries and parameters without the values of secrets.

const HIDDEN: &str = "[hidden]";
/// Parts of the names of secrets.
const PARTS: [&str; 10] = [
    "token",
    "passw",
    "passphrase",
    "pwd",
    "secret",
    "authoriz",
    "session",
    "credential",
    "signature",
    "jwt",
];
const NAMES: [&str; 7] = ["auth", "sid", "sig", "code", "otp", "pin", "pass"];

/// Parts of the names of parameters, between `_`.
const WORDS: [&str; 7] = ["AUTH", "PASS", "PW", "OTP", "PIN", "SIG", "DSN"];

/// Replaces the values of secrets, which are known by their names.
pub fn without_secrets(query: &str) -> String {
    let mut kept = String::with_capacity(query.len());
    for pair in query.split_inclusive(['&', ';']) {
        let end = pair.ends_with(['&', ';']).then(|| &pair[pair.len() - 1..]);
        let pair = pair.trim_end_matches(['&', ';']);
        match pair.split_once('=') {
            Some((name, value)) if !value.is_empty() && is_secret(name) => {
                kept.extend([name, "=", HIDDEN]);
            }
            _ => kept.push_str(pair),
        }
        kept.push_str(end.unwrap_or_default());
    }
    kept
}

/// Whether a query or a parameter lacks values.
pub fn has_hidden(query: &str) -> bool {
    query.contains(HIDDEN)
}

/// Returns a parameter's value without secrets: those of its name, of a query in it, and a password in an address.
pub fn without_secret(name: &str, value: &str) -> String {
    let is_named = |word: &str| name.split(['_', '-']).any(|part| part.eq_ignore_ascii_case(word));
    let is_word = WORDS.iter().any(|word| is_named(word)) && name != "AUTH_TYPE";
    if value.is_empty() {
        return String::new();
    }
    if is_word || is_secret(name) || name.to_ascii_uppercase().contains("COOKIE") {
        return HIDDEN.to_owned();
    }
    if name == "QUERY_STRING" {
        return without_secrets(value);
    }
    let (address, query) = match value.split_once('?') {
        Some((address, query)) => (address, Some(without_secrets(query))),
        None => (value, None),
    };
    let address = without_password(address);
    query.map_or(address.clone(), |query| format!("{address}?{query}"))
}

/// `scheme://user:password@host`.
fn without_password(address: &str) -> String {
    let parts = address.split_once("://").and_then(|(scheme, rest)| {
        let end = rest.find(['/', ' ']).unwrap_or(rest.len());
        let at = rest[..end].rfind('@')?;
        Some((scheme, &rest[at..]))
    });
    match parts {
        Some((scheme, host)) => format!("{scheme}://{HIDDEN}{host}"),
        None => address.to_owned(),
    }
}

fn is_secret(name: &str) -> bool {
    let name = decoded(name).to_ascii_lowercase();
    // `user[password]`, `key[]`.
    let last = name.trim_end_matches(['[', ']']);
    let last = last.rsplit(['[', '.']).next().unwrap_or(last);
    PARTS.iter().any(|part| name.contains(part)) || last.ends_with("key") || NAMES.contains(&last)
}

fn decoded(name: &str) -> String {
    let mut plain = Vec::new();
    let mut rest = name.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).filter(|_| *first == b'%');
        let digits = digits.and_then(|two| std::str::from_utf8(two).ok());
        let number = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        rest = if number.is_some() { &after[2..] } else { after };
        plain.push(number.unwrap_or(*first));
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_secrets_are_hidden_and_others_stay() {
        for (query, expected) in [
            ("", ""),
            ("a=1&b=2", "a=1&b=2"),
            ("id=7&token=abc&x=", "id=7&token=[hidden]&x="),
            ("API_KEY=abc;b=1", "API_KEY=[hidden];b=1"),
            ("user%5Bp%61ssword%5D=x&&", "user%5Bp%61ssword%5D=[hidden]&&"),
            ("key[]=a&author=me", "key[]=[hidden]&author=me"),
            ("token&secret=", "token&secret="),
            ("job=1&attempt=2&queue=mail", "job=1&attempt=2&queue=mail"),
            ("code=4711&codec=mp3", "code=[hidden]&codec=mp3"),
            ("%=1&%zz=2&token%=3", "%=1&%zz=2&token%=[hidden]"),
            ("ümläut=é&sid=9", "ümläut=é&sid=[hidden]"),
        ] {
            assert_eq!(without_secrets(query), expected);
            assert_eq!(has_hidden(&without_secrets(query)), expected.contains("hidden"));
        }
    }

    #[test]
    fn parameters_lack_cookies_authorization_and_other_secrets() {
        for (name, value, expected) in [
            ("HTTP_COOKIE", "PHPSESSID=1", HIDDEN),
            ("HTTP_AUTHORIZATION", "Basic eA==", HIDDEN),
            ("HTTP_PROXY_AUTHORIZATION", "Basic eA==", HIDDEN),
            ("PHP_AUTH_PW", "x", HIDDEN),
            ("HTTP_X_AUTH", "x", HIDDEN),
            ("HTTP_X_API_KEY", "x", HIDDEN),
            ("HTTP_X_CSRF_TOKEN", "x", HIDDEN),
            ("DB_PASSWORD", "x", HIDDEN),
            ("HTTP_COOKIE", "", ""),
            ("AUTH_TYPE", "Basic", "Basic"),
            ("HTTP_ACCEPT", "*/*", "*/*"),
            ("SCRIPT_FILENAME", "/srv/key/x.php", "/srv/key/x.php"),
            ("QUERY_STRING", "a=1&token=x", "a=1&token=[hidden]"),
            ("REQUEST_URI", "/x?pin=1&b=2", "/x?pin=[hidden]&b=2"),
            ("HTTP_REFERER", "https://a/x?sid=1", "https://a/x?sid=[hidden]"),
            ("DATABASE_URL", "pg://u:p@h/d", "pg://[hidden]@h/d"),
            ("HTTP_REFERER", "https://a/@x", "https://a/@x"),
        ] {
            assert_eq!(without_secret(name, value), expected, "{name}");
        }
    }
}
