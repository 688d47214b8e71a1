//! Writes the head of an HTTP request from a FastCGI request's parameters (RFC 9112 section 3, RFC 3875 section 4.1).

use super::mount;
use crate::is_token;
use fastcgi::Params;
use forkyard_protocol::upgrade;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    Nothing,
    Length(u64),
    Chunked,
    /// None: after a protocol switch the data belongs to another protocol.
    Upgrade,
}

/// Fields that forkyard writes from the web server's parameters. A client's fields of these names are dropped, so a
/// program that trusts them trusts the web server.
const WRITTEN: &[&[u8]] = &[
    b"CONTENT_LENGTH",
    b"CONTENT_TYPE",
    b"HOST",
    b"TRANSFER_ENCODING",
    b"X_FORKYARD_PREFIX",
    b"X_FORWARDED_FOR",
    b"X_FORWARDED_HOST",
    b"X_FORWARDED_PROTO",
    b"X_REAL_IP",
];

/// Fields of the client's connection (RFC 9110 section 7.6.1), `Forwarded` (RFC 7239), which web servers do not set,
/// and `Proxy`, which programs read as a setting (CVE-2016-5385).
const DROPPED: &[&[u8]] = &[
    b"CONNECTION",
    b"EXPECT",
    b"FORWARDED",
    b"KEEP_ALIVE",
    b"PROXY",
    b"PROXY_CONNECTION",
    b"TE",
    b"TRAILER",
    b"UPGRADE",
];

/// These fields describe the connection to the web server, so a client's are dropped. A prefix is only part of a URL
/// and is passed on, unless the web server sends one.
const FORWARDED: &[u8] = b"X_FORWARDED_";
const PREFIX: &[u8] = b"X_FORWARDED_PREFIX";

/// Whether a client's field reaches the program; `name` without `HTTP_`. Spellings with `-` or `_` and any case are
/// equal, because programs treat them so.
pub(super) fn is_passed(name: &[u8]) -> bool {
    let is_one_of = |names: &[&[u8]]| names.iter().any(|known| is_same(name, known));
    let is_said_by_us = is_one_of(WRITTEN) || begins_with(name, FORWARDED) && !is_same(name, PREFIX);
    let is_token = !name.is_empty() && name.iter().all(|byte| is_token(*byte));
    !is_said_by_us && !is_one_of(DROPPED) && is_token
}

fn is_same(name: &[u8], known: &[u8]) -> bool {
    name.len() == known.len() && begins_with(name, known)
}

fn begins_with(name: &[u8], known: &[u8]) -> bool {
    let plain = name.iter().map(|byte| match byte {
        b'-' => b'_',
        other => other.to_ascii_uppercase(),
    });
    name.len() >= known.len() && plain.zip(known).all(|(byte, known)| byte == *known)
}

pub(super) fn write(params: &Params) -> (Vec<u8>, Framing) {
    let value = |name: &str| params.get(name.as_bytes()).filter(|value| !value.is_empty());
    let framing = framing(params);
    let mut head = Vec::with_capacity(1024);
    let method = value("REQUEST_METHOD").unwrap_or(b"GET").iter();
    head.extend(method.filter(|byte| is_token(**byte)));
    head.push(b' ');
    let mount = mount::of(params);
    match &mount {
        Some(mount) => head.extend_from_slice(&mount.target),
        None => target(params, &mut head),
    }
    head.extend_from_slice(b" HTTP/1.1\r\n");
    let host = value("HTTP_HOST");
    let name = host.or(value("SERVER_NAME")).unwrap_or(b"localhost");
    field(&mut head, *b"Host", name);
    if let Some(kind) = value("CONTENT_TYPE") {
        field(&mut head, *b"Content-Type", kind);
    }
    match framing {
        Framing::Nothing => {}
        Framing::Length(_) => {
            let length = value("CONTENT_LENGTH").unwrap_or(b"0");
            field(&mut head, *b"Content-Length", length.trim_ascii());
        }
        Framing::Chunked => field(&mut head, *b"Transfer-Encoding", b"chunked"),
        Framing::Upgrade => {
            field(&mut head, *b"Connection", b"Upgrade");
            let protocol = value(upgrade::PARAMETER).unwrap_or_default();
            field(&mut head, *b"Upgrade", protocol);
        }
    }
    for (name, value) in params.iter() {
        let Some(name) = name.strip_prefix(b"HTTP_") else {
            continue;
        };
        if is_passed(name) && !(mount.is_some() && is_same(name, PREFIX)) {
            field(&mut head, capitalised(name), value);
        }
    }
    if let Some(mount) = &mount {
        for name in ["X-Forwarded-Prefix", "X-Forkyard-Prefix"] {
            field(&mut head, name.bytes(), &mount.prefix);
        }
    }
    if let Some(peer) = value("REMOTE_ADDR") {
        let known = value("HTTP_X_FORWARDED_FOR").map(|known| [known, b", "].concat());
        let all = [&known.unwrap_or_default(), peer].concat();
        field(&mut head, *b"X-Forwarded-For", &all);
        field(&mut head, *b"X-Real-IP", peer);
    }
    field(&mut head, *b"X-Forwarded-Proto", scheme(params));
    if let Some(host) = host {
        field(&mut head, *b"X-Forwarded-Host", host);
    }
    head.extend_from_slice(b"\r\n");
    (head, framing)
}

fn field(head: &mut Vec<u8>, name: impl IntoIterator<Item = u8>, value: &[u8]) {
    head.extend(name);
    head.extend_from_slice(b": ");
    let begin = head.len();
    head.extend_from_slice(value);
    for byte in &mut head[begin..] {
        if matches!(byte, b'\r' | b'\n' | 0) {
            *byte = b' ';
        }
    }
    head.extend_from_slice(b"\r\n");
}

fn target(params: &Params, to: &mut Vec<u8>) {
    let value = |name: &str| params.get(name.as_bytes()).unwrap_or_default();
    let uri = value("REQUEST_URI");
    let built;
    let uri = if uri.is_empty() {
        let mut path = [value("SCRIPT_NAME"), value("PATH_INFO")].concat();
        let query = value("QUERY_STRING");
        if !query.is_empty() {
            path.push(b'?');
            path.extend_from_slice(query);
        }
        built = path;
        &built
    } else {
        uri
    };
    if !uri.starts_with(b"/") && uri != b"*" {
        to.push(b'/');
    }
    to.extend(mount::encoded_in_line(uri));
}

fn framing(params: &Params) -> Framing {
    if params
        .get(upgrade::PARAMETER.as_bytes())
        .is_some_and(|wanted| !wanted.is_empty())
    {
        return Framing::Upgrade;
    }
    let length = params.get(b"CONTENT_LENGTH").unwrap_or_default().trim_ascii();
    if !length.is_empty() && length.iter().all(u8::is_ascii_digit) {
        let is_zero = length.iter().all(|digit| *digit == b'0');
        let has_no_body = is_zero && matches!(params.get(b"REQUEST_METHOD"), Some(b"GET" | b"HEAD"));
        return if has_no_body {
            Framing::Nothing
        } else {
            // A longer body can't come.
            let number = std::str::from_utf8(length)
                .ok()
                .and_then(|length| length.parse().ok());
            Framing::Length(number.unwrap_or(u64::MAX))
        };
    }
    match params.get(b"HTTP_TRANSFER_ENCODING") {
        Some(coding) if !coding.is_empty() => Framing::Chunked,
        _ => Framing::Nothing,
    }
}

/// The scheme. Behind a proxy that terminates TLS, an operator adds `HTTPS` to the web server's parameters.
fn scheme(params: &Params) -> &[u8] {
    let is_on = |value: &[u8]| !value.is_empty() && !value.eq_ignore_ascii_case(b"off");
    match params.get(b"REQUEST_SCHEME") {
        _ if params.get(b"HTTPS").is_some_and(is_on) => b"https",
        Some(scheme) if !scheme.is_empty() => scheme,
        _ => b"http",
    }
}

fn capitalised(name: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let mut begins = true;
    name.iter().map(move |byte| {
        let letter = if begins {
            byte.to_ascii_uppercase()
        } else {
            byte.to_ascii_lowercase()
        };
        begins = *byte == b'_';
        if *byte == b'_' { b'-' } else { letter }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(pairs: &[(&str, &str)]) -> (String, Framing) {
        let mut params = Params::new();
        for (name, value) in pairs {
            params.set(name.as_bytes(), value.as_bytes());
        }
        let (head, framing) = write(&params);
        (String::from_utf8(head).unwrap(), framing)
    }

    #[test]
    fn a_request_is_written_as_the_client_sent_it() {
        let (text, framing) = head(&[
            ("REQUEST_METHOD", "POST"),
            ("REQUEST_URI", "/a%20b?c=d"),
            ("SCRIPT_NAME", "/a b"),
            ("CONTENT_LENGTH", "3"),
            ("CONTENT_TYPE", "text/plain"),
            ("HTTP_HOST", "example.org"),
            ("HTTP_USER_AGENT", "curl/8"),
            ("HTTP_CONNECTION", "close"),
            ("HTTP_X_FORWARDED_FOR", "10.0.0.1"),
            ("REMOTE_ADDR", "127.0.0.1"),
            ("HTTPS", "on"),
        ]);
        let wanted = "POST /a%20b?c=d HTTP/1.1\r\nHost: example.org\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\
            User-Agent: curl/8\r\nX-Forwarded-For: 10.0.0.1, 127.0.0.1\r\nX-Real-IP: 127.0.0.1\r\nX-Forwarded-Proto: https\r\n\
            X-Forwarded-Host: example.org\r\n\r\n";
        assert_eq!((text.as_str(), framing), (wanted, Framing::Length(3)));
    }

    fn spellings(name: &str) -> [String; 4] {
        let lower = name.to_ascii_lowercase();
        let mixed = String::from_utf8(capitalised(name.as_bytes()).collect()).unwrap();
        let half = format!("{}{}", &name[..1], &lower[1..]);
        [name.to_owned(), lower, mixed, half].map(|name| format!("HTTP_{name}"))
    }

    const SAID: [(&str, &str); 8] = [
        ("REQUEST_METHOD", "POST"),
        ("REQUEST_URI", "/"),
        ("CONTENT_LENGTH", "3"),
        ("CONTENT_TYPE", "text/plain"),
        ("HTTP_HOST", "example.org"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("HTTPS", "on"),
        ("SERVER_NAME", "example.org"),
    ];

    #[test]
    fn whatever_forkyard_writes_is_on_its_list() {
        let chunked = [("HTTP_TRANSFER_ENCODING", "chunked"), ("HTTP_HOST", "a")];
        let mounted = [("SCRIPT_NAME", "/shop"), ("PATH_INFO", "/")];
        for pairs in [&SAID[..], &chunked, &mounted] {
            for line in head(pairs).0.lines().skip(1).filter(|line| !line.is_empty()) {
                let name = line.split(':').next().unwrap();
                let name = name.to_ascii_uppercase().replace('-', "_");
                let is_known = WRITTEN.contains(&name.as_bytes()) || name.as_bytes() == PREFIX;
                assert!(is_known, "{line}");
            }
        }
    }

    #[test]
    fn a_client_says_nothing_in_the_place_of_forkyard() {
        let honest = head(&SAID).0;
        let meant = |name: &str| {
            matches!(
                name,
                "HTTP_HOST" | "HTTP_X_FORWARDED_FOR" | "HTTP_TRANSFER_ENCODING"
            )
        };
        let family: [&[u8]; 2] = [b"X_FORWARDED_PORT", b"X_FORWARDED_SSL"];
        for name in WRITTEN.iter().chain(DROPPED).chain(&family) {
            for spelling in spellings(std::str::from_utf8(name).unwrap()) {
                if !meant(&spelling) {
                    let lied = head(&[&SAID[..], &[(&spelling, "9.9.9.9")]].concat()).0;
                    assert_eq!(lied, honest, "{spelling}");
                }
            }
        }
        let unknown = head(&[("REQUEST_URI", "/"), ("HTTP_X_REAL_IP", "9.9.9.9")]).0;
        assert!(!unknown.contains("9.9.9.9"), "{unknown}");
        let prefix = head(&[("HTTP_X_FORWARDED_PREFIX", "/shop"), ("HTTP_X_REAL_IPS", "1")]).0;
        assert!(
            prefix.contains("X-Forwarded-Prefix: /shop\r\n") && prefix.contains("X-Real-Ips: 1\r\n"),
            "{prefix}"
        );
        let mounted = [("SCRIPT_NAME", "/blog"), ("PATH_INFO", "/")];
        for spelling in spellings("X_FORWARDED_PREFIX") {
            let lied = head(&[&mounted[..], &[(&spelling, "/shop")]].concat()).0;
            assert_eq!(lied, head(&mounted).0, "{spelling}");
        }
    }

    #[test]
    fn no_parameter_begins_a_line_of_its_own() {
        let (text, _) = head(&[
            ("REQUEST_METHOD", "GET /evil HTTP/1.1\r\nX: y"),
            ("REQUEST_URI", "/a b\r\nX-Evil: 1"),
            ("HTTP_X_A", "b\r\nX-Evil: 1"),
            ("HTTP_X:EVIL", "1"),
            ("HTTP_", "1"),
        ]);
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert_eq!(lines[0], "GETevilHTTP1.1Xy /a%20b%0D%0AX-Evil:%201 HTTP/1.1");
        assert_eq!(lines[2], "X-A: b  X-Evil: 1");
        assert!(
            !lines
                .iter()
                .any(|line| line.starts_with("X-Evil") || line.starts_with("X:") || line.starts_with(':')),
            "{text}"
        );
    }

    #[test]
    fn a_body_is_marked_off_as_it_came() {
        assert_eq!(
            head(&[("REQUEST_METHOD", "GET"), ("CONTENT_LENGTH", "")]).1,
            Framing::Nothing
        );
        assert_eq!(
            head(&[("REQUEST_METHOD", "POST"), ("CONTENT_LENGTH", "0")]).1,
            Framing::Length(0)
        );
        let (text, framing) = head(&[("REQUEST_METHOD", "PUT"), ("HTTP_TRANSFER_ENCODING", "chunked")]);
        assert_eq!(framing, Framing::Chunked);
        assert!(text.contains("Transfer-Encoding: chunked\r\n"));
        assert!(head(&[("CONTENT_LENGTH", "-5")]).1 == Framing::Nothing);
        let huge = "9".repeat(30);
        assert_eq!(head(&[("CONTENT_LENGTH", &huge)]).1, Framing::Length(u64::MAX));
        let asked = [("HTTP_UPGRADE", "websocket"), ("HTTP_CONNECTION", "upgrade")];
        assert_eq!(head(&asked).1, Framing::Nothing);
        let (text, framing) = head(&[asked[0], asked[1], ("FORKYARD_UPGRADE", "websocket")]);
        assert_eq!(framing, Framing::Upgrade);
        assert_eq!(
            text.matches("Connection: Upgrade\r\nUpgrade: websocket\r\n")
                .count(),
            1,
            "{text}"
        );
        assert_eq!(text.to_ascii_lowercase().matches("upgrade:").count(), 1, "{text}");
    }

    #[test]
    fn the_scheme_is_https_where_the_web_server_says_so_in_either_way() {
        for (scheme, https, seen) in [
            ("", "", "http"),
            ("http", "", "http"),
            ("https", "", "https"),
            ("", "on", "https"),
            ("http", "on", "https"),
            ("http", "1", "https"),
            ("http", "off", "http"),
            ("http", "OFF", "http"),
            ("https", "off", "https"),
        ] {
            let (text, _) = head(&[("REQUEST_SCHEME", scheme), ("HTTPS", https)]);
            let line = format!("X-Forwarded-Proto: {seen}\r\n");
            assert!(text.contains(&line), "{scheme} {https}: {text}");
        }
    }
}
