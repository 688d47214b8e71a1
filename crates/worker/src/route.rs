//! The route of a request: its method, and its path with ids and digits left out.

use fastcgi::Params;
use forkyard_scoreboard::Counters;
use forkyard_scoreboard::routes::RouteRow;
use forkyard_scoreboard::slot_writer::Description;

const NAME_BYTES: usize = 128;
/// Names of the last requests, by a number of their bytes.
const REMEMBERED: usize = 64;
/// The shortest id of hexadecimal digits, and of letters and digits.
const HEX_ID: usize = 8;
const MIXED_ID: usize = 16;

/// Finds the rows of routes.
#[derive(Debug)]
pub(super) struct RouteFinder {
    remembered: Box<[Option<(u64, RouteRow)>; REMEMBERED]>,
}

impl Default for RouteFinder {
    fn default() -> RouteFinder {
        RouteFinder {
            remembered: Box::new([None; REMEMBERED]),
        }
    }
}

impl RouteFinder {
    /// Returns the row of a request.
    pub(super) fn find(
        &mut self,
        counters: Counters<'_>,
        about: &Description<'_>,
        params: &Params,
    ) -> RouteRow {
        let path = path(about, params);
        let raw = hash(hash(1, about.method), path);
        let place = &mut self.remembered[raw as usize % REMEMBERED];
        let routes = counters.routes();
        match *place {
            Some((known, row)) if known == raw && routes.has(row) => row,
            _ => {
                let mut name = Vec::with_capacity(NAME_BYTES);
                write_name(about.method, path, &mut name);
                let row = routes.row(hash(1, &name).max(1), &name);
                *place = Some((raw, row));
                row
            }
        }
    }
}

/// Returns the path that names the route: of the URI, or of the script if the URI names its directory.
fn path<'p>(about: &Description<'p>, params: &'p Params) -> &'p [u8] {
    let uri = params.get(b"REQUEST_URI").unwrap_or_default();
    let end = uri.iter().position(|byte| *byte == b'?').unwrap_or(uri.len());
    let uri = &uri[..end];
    let is_index = uri.ends_with(b"/") && about.uri.starts_with(uri);
    match uri {
        [] if about.uri.is_empty() => below_root(about.script, params),
        [] => about.uri,
        _ if is_index => about.uri,
        _ => uri,
    }
}

/// Returns a script's path below the document root, or its name.
fn below_root<'p>(script: &'p [u8], params: &Params) -> &'p [u8] {
    let root = params.get(b"DOCUMENT_ROOT").unwrap_or_default();
    let root = root.strip_suffix(b"/").unwrap_or(root);
    let below = script
        .strip_prefix(root)
        .filter(|path| !root.is_empty() && path.starts_with(b"/"));
    below.unwrap_or_else(|| {
        let name = script.iter().rposition(|byte| *byte == b'/');
        &script[name.unwrap_or(0)..]
    })
}

/// A multiplicative hash of eight bytes at a time.
fn hash(begin: u64, bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let chunks = bytes.chunks_exact(8);
    let mut last = [0; 8];
    last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
    let words = chunks
        .filter_map(<[u8]>::first_chunk)
        .chain(std::iter::once(&last));
    let mixed = words.fold(begin ^ bytes.len() as u64, |sum, word| {
        (sum.rotate_left(23) ^ u64::from_ne_bytes(*word)).wrapping_mul(FACTOR)
    });
    mixed ^ mixed >> 32
}

fn write_name(method: &[u8], path: &[u8], name: &mut Vec<u8>) {
    let is_method = |method: &[u8]| !method.is_empty() && method.iter().all(u8::is_ascii_alphabetic);
    name.extend_from_slice(if is_method(method) {
        &method[..method.len().min(16)]
    } else {
        b"-"
    });
    name.push(b' ');
    for (index, segment) in path.split(|byte| *byte == b'/').enumerate() {
        if index > 0 {
            name.push(b'/');
        }
        if name.len() >= NAME_BYTES {
            break;
        }
        match is_id(segment) {
            true => name.push(b'#'),
            false => write_segment(segment, name),
        }
    }
    name.truncate(NAME_BYTES);
}

/// Whether a part of a path is an id: hexadecimal digits such as a UUID's, or letters and digits in a long row.
fn is_id(segment: &[u8]) -> bool {
    let has_digit = segment.iter().any(u8::is_ascii_digit);
    let is_hex = |byte: &u8| byte.is_ascii_hexdigit() || *byte == b'-';
    let is_mixed = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    has_digit
        && (segment.len() >= HEX_ID && segment.iter().all(is_hex)
            || segment.len() >= MIXED_ID && segment.iter().all(is_mixed))
}

/// Writes a part of a path with `#` for each number, except for a version such as `v2`.
fn write_segment(segment: &[u8], name: &mut Vec<u8>) {
    if let [b'v' | b'V', digits @ ..] = segment
        && matches!(digits.len(), 1 | 2)
        && digits.iter().all(u8::is_ascii_digit)
    {
        return name.extend_from_slice(segment);
    }
    let mut was_digit = false;
    for byte in segment.iter().take(NAME_BYTES) {
        let is_digit = byte.is_ascii_digit();
        match byte {
            _ if is_digit && was_digit => {}
            _ if is_digit => name.push(b'#'),
            b' '..=b'~' => name.push(*byte),
            _ => name.push(b'?'),
        }
        was_digit = is_digit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(method: &str, path: &str) -> String {
        let mut name = Vec::new();
        write_name(method.as_bytes(), path.as_bytes(), &mut name);
        String::from_utf8(name).unwrap()
    }

    #[test]
    fn ids_and_digits_are_left_out() {
        for (path, expected) in [
            ("/", "GET /"),
            ("/index.php", "GET /index.php"),
            ("/item/42", "GET /item/#"),
            ("/item/42/", "GET /item/#/"),
            ("/api/v2/users/7/posts", "GET /api/v2/users/#/posts"),
            ("/report-2026-11.pdf", "GET /report-#-#.pdf"),
            ("/0f8fad5b-d9cb-469f-a165-70867728950e/x", "GET /#/x"),
            ("/o/deadbeef01", "GET /o/#"),
            ("/deadbeef", "GET /deadbeef"),
            ("/s/aZ09bX81kLmN42qQ", "GET /s/#"),
            ("/jquery-3.6.0.min.js", "GET /jquery-#.#.#.min.js"),
            ("/a\u{1b}b", "GET /a?b"),
            ("", "GET "),
        ] {
            assert_eq!(name("GET", path), expected);
        }
        assert_eq!(name("", "/a"), "- /a");
        assert_eq!(name("G\u{7f}T", "/a"), "- /a");
        let long = "/x".repeat(500);
        assert_eq!(name("GET", &long).len(), NAME_BYTES);
        assert_eq!(name("GET", &"1".repeat(500)), "GET #");
    }

    fn chosen(uri: &str, script_name: &str, script: &str) -> String {
        let mut params = Params::new();
        for (key, value) in [("REQUEST_URI", uri), ("DOCUMENT_ROOT", "/srv/releases/7/public")] {
            if !value.is_empty() {
                params.set(key.as_bytes(), value.as_bytes());
            }
        }
        let about = Description {
            uri: script_name.as_bytes(),
            script: script.as_bytes(),
            ..Description::default()
        };
        String::from_utf8(path(&about, &params).to_vec()).unwrap()
    }

    #[test]
    fn a_route_is_the_uri_s_or_the_script_s() {
        for (uri, script_name, script, expected) in [
            ("/a.php?x=1", "/a.php", "/srv/a.php", "/a.php"),
            ("/", "/index.php", "/srv/index.php", "/index.php"),
            ("/shop/", "/shop/index.php", "", "/shop/index.php"),
            ("/basket/7?x", "/index.php", "", "/basket/7"),
            ("", "/run.cgi", "", "/run.cgi"),
            ("", "", "/srv/releases/7/public/a/b.php", "/a/b.php"),
            ("", "", "/elsewhere/b.php", "/b.php"),
            ("", "", "", ""),
        ] {
            assert_eq!(chosen(uri, script_name, script), expected, "{uri} {script_name}");
        }
    }

    #[test]
    fn hashes_differ() {
        let names = [
            "",
            "a",
            "b",
            "aaaaaaaa",
            "aaaaaaaab",
            "baaaaaaaa",
            "GET /a",
            "GET /b",
        ];
        let hashes: std::collections::BTreeSet<u64> =
            names.iter().map(|name| hash(1, name.as_bytes())).collect();
        assert_eq!(hashes.len(), names.len());
    }
}
