//! The parameters of a request, with the paths of the release.

use super::map::{Map, Mapped};
use super::settings::setting;

/// Parameters that are a path.
const PATHS: [&str; 6] = [
    "SCRIPT_FILENAME",
    "DOCUMENT_ROOT",
    "PATH_TRANSLATED",
    "CONTEXT_DOCUMENT_ROOT",
    "ORIG_SCRIPT_FILENAME",
    "ORIG_PATH_TRANSLATED",
];
/// Parameters with php.ini settings, one in a line.
const SETTINGS: [&str; 2] = ["PHP_VALUE", "PHP_ADMIN_VALUE"];
/// What mod_proxy of Apache writes before the host and the path.
const PROXY: [&str; 2] = ["proxy:fcgi://", "proxy:balancer://"];
/// The parameter that chooses the code.
const SCRIPT: &str = PATHS[0];

/// What a request's parameters have to be.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub changes: Vec<(&'static str, Vec<u8>)>,
    /// The script lies outside of all releases.
    pub is_outside: bool,
}

/// Maps a request's parameters. `get` returns a parameter by its name.
pub fn map_request<'p>(map: &Map, get: impl Fn(&str) -> Option<&'p [u8]>) -> Request {
    let mut request = Request::default();
    for name in PATHS {
        let Some(path) = get(name) else { continue };
        let (proxy, path) = after_proxy(path);
        match map.path(path) {
            Mapped::Inside(mapped) if mapped != path => {
                request.changes.push((name, [proxy, &mapped].concat()));
            }
            Mapped::Inside(_) | Mapped::Relative => {}
            Mapped::Outside => request.is_outside |= name == SCRIPT,
        }
    }
    for name in SETTINGS {
        let mapped = get(name).and_then(|text| lines(text, map));
        request.changes.extend(mapped.map(|mapped| (name, mapped)));
    }
    request
}

/// Splits a path from what mod_proxy of Apache writes before it: `proxy:fcgi://HOST`.
pub fn after_proxy(path: &[u8]) -> (&[u8], &[u8]) {
    let proxy = PROXY.iter().find(|proxy| {
        let begin = path.get(..proxy.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(proxy.as_bytes()))
    });
    let slash = proxy.and_then(|proxy| {
        let slash = path[proxy.len()..].iter().position(|byte| *byte == b'/');
        slash.map(|slash| proxy.len() + slash)
    });
    path.split_at(slash.unwrap_or(0))
}

fn lines(text: &[u8], map: &Map) -> Option<Vec<u8>> {
    let mut changed = false;
    let line = |line: &[u8]| {
        let at = line.iter().position(|byte| *byte == b'=')?;
        let name = std::str::from_utf8(&line[..at]).ok()?.trim();
        let value = line[at + 1..].trim_ascii();
        let mapped = setting(name, value, map)?;
        Some([&line[..=at], &mapped].concat())
    };
    let mapped: Vec<Vec<u8>> = text
        .split(|byte| *byte == b'\n')
        .map(|one| match line(one) {
            Some(mapped) => {
                changed = true;
                mapped
            }
            None => one.to_vec(),
        })
        .collect();
    changed.then(|| mapped.join(&b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn paths_and_settings_of_a_request_are_those_of_the_release() {
        let map = Map::new(b"/srv/current", b"/srv/r/2", [&b"/srv/r/1"[..]]);
        let rows = [
            ("SCRIPT_FILENAME", "/srv/current/i.php", "/srv/r/2/i.php"),
            ("DOCUMENT_ROOT", "/srv/r/1", "/srv/r/2"),
            ("PATH_TRANSLATED", "/srv/current/x", "/srv/r/2/x"),
            ("CONTEXT_DOCUMENT_ROOT", "/srv/current.last", "/srv/r/2"),
            ("ORIG_PATH_TRANSLATED", "", ""),
            (
                "ORIG_SCRIPT_FILENAME",
                "Proxy:fcgi://h:9/srv/current/i?q",
                "Proxy:fcgi://h:9/srv/r/2/i?q",
            ),
            ("REQUEST_URI", "/srv/current/i.php", "/srv/current/i.php"),
            (
                "PHP_VALUE",
                "open_basedir=/srv/current:/tmp\nmemory_limit=1M\nauto_prepend_file = \"/srv/r/1/a.php\"",
                "open_basedir=/srv/r/2:/tmp\nmemory_limit=1M\nauto_prepend_file =\"/srv/r/2/a.php\"",
            ),
            (
                "PHP_ADMIN_VALUE",
                "error_log=/srv/current/log",
                "error_log=/srv/current/log",
            ),
        ];
        let table: BTreeMap<&str, &[u8]> = rows
            .iter()
            .map(|(name, value, _)| (*name, value.as_bytes()))
            .collect();
        let request = map_request(&map, |name| table.get(name).copied());
        assert!(!request.is_outside);
        for (name, value, expected) in rows {
            let changed = request.changes.iter().find(|(changed, _)| *changed == name);
            let changed = changed.map_or(value.into(), |(_, changed)| String::from_utf8_lossy(changed));
            assert_eq!(changed, expected, "{name}");
        }
        let elsewhere = map_request(&map, |name| (name == SCRIPT).then_some(&b"/srv/other/i.php"[..]));
        assert!(elsewhere.is_outside && elsewhere.changes.is_empty());
        let rows = [
            ("/srv/r/2/i.php", None),
            ("proxy:balancer://b/srv/other/i.php", Some(true)),
            ("proxy:fcgi://h", Some(false)),
            ("proxy:", Some(false)),
        ];
        for (script, is_outside) in rows {
            let request = map_request(&map, |name| (name == SCRIPT).then_some(script.as_bytes()));
            assert_eq!(request.is_outside, is_outside.unwrap_or(false), "{script}");
            assert!(request.changes.is_empty(), "{script}");
        }
    }
}
