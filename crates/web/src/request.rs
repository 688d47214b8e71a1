//! Parses a request's head.

use super::hosts::Hosts;
use super::metrics::Form;

/// The longest head, in bytes.
pub(crate) const MOST_BYTES: usize = 8 * 1024;
const MOST_FIELDS: usize = 64;
const OPENMETRICS: &str = "application/openmetrics-text";
const PLAIN: &str = "text/plain";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) is_head: bool,
    /// As sent, with percent signs.
    pub(crate) path: String,
    pub(crate) query: String,
    /// Whether the connection stays open.
    pub(crate) keeps: bool,
    /// The form of metrics that the client reads.
    pub(crate) form: Form,
}

/// Why a request is refused. The connection is closed: the next request's place is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Malformed,
    NoHost,
    /// A name that the operator has not allowed.
    Host,
    Method,
    Body,
    TooLong,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// The head is not complete.
    More,
    /// A request, and the bytes of its head.
    Request(Request, usize),
    Refused(Refusal),
}

pub(crate) fn parse(bytes: &[u8], hosts: &Hosts) -> Parsed {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut head = httparse::Request::new(&mut fields);
    match head.parse(&bytes[..bytes.len().min(MOST_BYTES)]) {
        Ok(httparse::Status::Complete(used)) => match read(&head, hosts) {
            Ok(request) => Parsed::Request(request, used),
            Err(refusal) => Parsed::Refused(refusal),
        },
        Ok(httparse::Status::Partial) if bytes.len() >= MOST_BYTES => Parsed::Refused(Refusal::TooLong),
        Ok(httparse::Status::Partial) => Parsed::More,
        Err(httparse::Error::TooManyHeaders) => Parsed::Refused(Refusal::TooLong),
        Err(_) => Parsed::Refused(Refusal::Malformed),
    }
}

fn read(head: &httparse::Request<'_, '_>, hosts: &Hosts) -> Result<Request, Refusal> {
    let (Some(method), Some(target), Some(version)) = (head.method, head.path, head.version) else {
        return Err(Refusal::Malformed);
    };
    let (mut host, mut accepted, mut has_body) = (None, String::new(), false);
    let mut keeps = version > 0;
    for field in head.headers.iter() {
        let text = std::str::from_utf8(field.value).map(str::trim);
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        if is("host") {
            let text = text.map_err(|_| Refusal::Malformed)?;
            if host.replace(text).is_some() {
                return Err(Refusal::Malformed);
            }
        } else if is("content-length") {
            has_body |= text != Ok("0");
        } else if is("transfer-encoding") {
            has_body = true;
        } else if is("connection") {
            let mut words = text.unwrap_or_default().split(',');
            keeps &= !words.any(|word| word.trim().eq_ignore_ascii_case("close"));
        } else if is("accept") {
            accepted.push_str(&text.unwrap_or_default().to_ascii_lowercase());
        }
    }
    let (authority, target) = split(target)?;
    match (authority, host) {
        (None, None) if version > 0 => return Err(Refusal::NoHost),
        (authority, host) if authority.into_iter().chain(host).all(|name| hosts.allows(name)) => {}
        _ => return Err(Refusal::Host),
    }
    let is_head = match method {
        "GET" => false,
        "HEAD" => true,
        _ => return Err(Refusal::Method),
    };
    if has_body {
        return Err(Refusal::Body);
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Ok(Request {
        is_head,
        path: path.to_owned(),
        query: query.to_owned(),
        keeps,
        form: match accepted.contains(PLAIN) && !accepted.contains(OPENMETRICS) {
            true => Form::Prometheus,
            false => Form::OpenMetrics,
        },
    })
}

/// Splits a target into its authority, if it has one, and the path with the query.
fn split(target: &str) -> Result<(Option<&str>, &str), Refusal> {
    if target.starts_with('/') {
        return Ok((None, target));
    }
    let rest = target.strip_prefix("http://").ok_or(Refusal::Malformed)?;
    match rest.find('/') {
        Some(at) => Ok((Some(&rest[..at]), &rest[at..])),
        None => Err(Refusal::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Parsed {
        parse(text.as_bytes(), &Hosts::new(Vec::new()))
    }

    fn refused(text: &str) -> Refusal {
        match parsed(text) {
            Parsed::Refused(refusal) => refusal,
            other => panic!("{text:?} is {other:?}"),
        }
    }

    fn request(text: &str) -> Request {
        match parsed(text) {
            Parsed::Request(request, used) if used == text.len() => request,
            other => panic!("{text:?} is {other:?}"),
        }
    }

    #[test]
    fn requests_are_read_whatever_the_pieces() {
        let text = "HEAD /status/www?json HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\n\r\n";
        for end in 0..text.len() {
            assert_eq!(parsed(&text[..end]), Parsed::More);
        }
        let read = request(text);
        assert!(read.is_head && read.keeps && read.form == Form::Prometheus);
        assert_eq!((read.path.as_str(), read.query.as_str()), ("/status/www", "json"));
    }

    #[test]
    fn the_form_and_the_connection_follow_the_header() {
        for (fields, form, keeps) in [
            ("", Form::OpenMetrics, true),
            ("Accept: */*\r\n", Form::OpenMetrics, true),
            ("Accept: text/plain\r\n", Form::Prometheus, true),
            (
                "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n",
                Form::OpenMetrics,
                true,
            ),
            ("Connection: keep-alive, Close\r\n", Form::OpenMetrics, false),
            ("Content-Length: 0\r\n", Form::OpenMetrics, true),
        ] {
            let read = request(&format!("GET / HTTP/1.1\r\nHost: 127.0.0.1:9180\r\n{fields}\r\n"));
            assert_eq!((read.form, read.keeps), (form, keeps), "{fields}");
        }
        assert!(!request("GET / HTTP/1.0\r\n\r\n").keeps);
        assert_eq!(
            request("GET http://127.0.0.1/metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").path,
            "/metrics"
        );
    }

    #[test]
    fn wrong_requests_are_refused() {
        for (text, refusal) in [
            ("GET / HTTP/1.1\r\n\r\n", Refusal::NoHost),
            ("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", Refusal::Host),
            ("GET / HTTP/1.0\r\nHost: a.test\r\n\r\n", Refusal::Host),
            (
                "GET http://a.test/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
                Refusal::Host,
            ),
            (
                "GET http://localhost/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
                Refusal::Host,
            ),
            (
                "GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
                Refusal::Malformed,
            ),
            ("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", Refusal::Method),
            ("get / HTTP/1.1\r\nHost: localhost\r\n\r\n", Refusal::Method),
            (
                "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n",
                Refusal::Body,
            ),
            (
                "GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
                Refusal::Body,
            ),
            ("GET * HTTP/1.1\r\nHost: localhost\r\n\r\n", Refusal::Malformed),
            (
                "GET http://localhost HTTP/1.1\r\nHost: localhost\r\n\r\n",
                Refusal::Malformed,
            ),
            ("GET / HTTP/3.0\r\n\r\n", Refusal::Malformed),
            ("\u{1}\u{5}\0\0", Refusal::Malformed),
        ] {
            assert_eq!(refused(text), refusal, "{text:?}");
        }
        let long = "x".repeat(MOST_BYTES);
        assert_eq!(refused(&format!("GET /{long}")), Refusal::TooLong);
        let many = "a: b\r\n".repeat(MOST_FIELDS + 1);
        assert_eq!(
            refused(&format!("GET / HTTP/1.1\r\n{many}\r\n")),
            Refusal::TooLong
        );
    }
}
