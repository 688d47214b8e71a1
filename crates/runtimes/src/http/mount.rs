//! Splits a request's path at the prefix where the web server has mounted the program.

use fastcgi::Params;
use percent_encoding::percent_decode;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) prefix: Vec<u8>,
    pub(super) target: Vec<u8>,
}

/// The mount that SCRIPT_NAME and PATH_INFO describe (RFC 3875 sections 4.1.5 and 4.1.13). `None`: most web servers
/// send the whole path as SCRIPT_NAME and no PATH_INFO.
pub(super) fn of(params: &Params) -> Option<Mount> {
    let value = |name: &[u8]| params.get(name).unwrap_or_default();
    let name = value(b"SCRIPT_NAME");
    let name = name.strip_suffix(b"/").unwrap_or(name);
    let path = value(b"PATH_INFO");
    if !name.starts_with(b"/") || !path.starts_with(b"/") {
        return None;
    }
    let uri = value(b"REQUEST_URI");
    let (asked, query) = match uri.iter().position(|byte| *byte == b'?') {
        Some(at) => uri.split_at(at),
        None => (uri, &b""[..]),
    };
    // Prefers the client's spelling, unless the web server has rewritten or normalised the path.
    let as_written = below(asked, name)
        .filter(|rest| rest.starts_with(b"/") && percent_decode(rest).eq(path.iter().copied()));
    let mut target = as_written.map_or_else(|| encoded(path), encoded_in_line);
    if uri.is_empty() && !value(b"QUERY_STRING").is_empty() {
        target.push(b'?');
        target.extend(encoded_in_line(value(b"QUERY_STRING")));
    }
    target.extend(encoded_in_line(query));
    Some(Mount {
        prefix: encoded(name),
        target,
    })
}

fn below<'a>(asked: &'a [u8], path: &[u8]) -> Option<&'a [u8]> {
    let mut rest = asked;
    for wanted in path {
        let (byte, length) = first(rest)?;
        if byte != *wanted {
            return None;
        }
        rest = &rest[length..];
    }
    Some(rest)
}

fn first(text: &[u8]) -> Option<(u8, usize)> {
    let digit = |at: usize| text.get(at).and_then(|byte| (*byte as char).to_digit(16));
    match (text.first()?, digit(1), digit(2)) {
        (b'%', Some(high), Some(low)) => Some(((high * 16 + low) as u8, 3)),
        (byte, _, _) => Some((*byte, 1)),
    }
}

/// Percent-encodes a path (RFC 3986 section 3.3).
fn encoded(path: &[u8]) -> Vec<u8> {
    written(path, |byte| {
        byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&byte)
    })
}

/// Percent-encodes what can't stand in a request line.
pub(super) fn encoded_in_line(text: &[u8]) -> Vec<u8> {
    written(text, |byte| byte.is_ascii_graphic() || byte >= 0x80)
}

fn written(text: &[u8], is_plain: impl Fn(u8) -> bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for byte in text {
        if is_plain(*byte) {
            out.push(*byte);
        } else {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(name: &str, path: &str, uri: &str) -> Option<(String, String)> {
        let mut params = Params::new();
        for (key, value) in [
            ("SCRIPT_NAME", name),
            ("PATH_INFO", path),
            ("REQUEST_URI", uri),
            ("QUERY_STRING", "q=1"),
        ] {
            if !value.is_empty() {
                params.set(key.as_bytes(), value.as_bytes());
            }
        }
        let text = |bytes| String::from_utf8(bytes).unwrap();
        of(&params).map(|mount| (text(mount.prefix), text(mount.target)))
    }

    #[test]
    fn a_program_gets_the_path_below_its_mount_as_the_client_wrote_it() {
        for (name, path, uri, prefix, target) in [
            ("/shop", "/", "/shop/", "/shop", "/"),
            ("/shop", "/page", "/shop/page?a=%20", "/shop", "/page?a=%20"),
            ("/shop", "/a b/c", "/shop/a%20b%2Fc", "/shop", "/a%20b%2Fc"),
            ("/my shop", "/ü", "/my%20shop/%C3%BC", "/my%20shop", "/%C3%BC"),
            ("/a/b/", "/c", "/a/b/c", "/a/b", "/c"),
            ("/shop", "/admin", "/shop/x/../admin?a", "/shop", "/admin?a"),
            ("/shop", "/a?b", "//shop/a%3fb", "/shop", "/a%3Fb"),
            ("/shop", "/page", "/other/thing", "/shop", "/page"),
            ("/shop", "/page", "", "/shop", "/page?q=1"),
        ] {
            let wanted = Some((prefix.to_owned(), target.to_owned()));
            assert_eq!(mount(name, path, uri), wanted, "{name} {path} {uri}");
        }
    }

    #[test]
    fn a_whole_path_is_no_mount() {
        for (name, path) in [
            ("", "/page"),
            ("/", "/page"),
            ("/shop/page", ""),
            ("/shop", "x"),
            ("x", "/"),
        ] {
            assert_eq!(mount(name, path, "/shop/page"), None, "{name} {path}");
        }
    }

    #[test]
    fn nothing_in_it_ends_the_line() {
        let (prefix, target) = mount("/a\r\nb", "/c\r\nX: y", "").unwrap();
        assert_eq!(
            (prefix.as_str(), target.as_str()),
            ("/a%0D%0Ab", "/c%0D%0AX:%20y?q=1")
        );
    }
}
