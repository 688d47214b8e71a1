//! The paths that the web server and the settings name, as paths in the release of a generation.
//!
//! Paths are compared as text: only the master reads links, and only when a generation begins.

/// Ends of the names of two further links: to the release that a deployment tries, and to the release before.
pub const NEXT: &str = ".next";
pub const LAST: &str = ".last";

use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Returns the path of another of the three links.
pub fn beside(link: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(link);
    name.push(end);
    PathBuf::from(name)
}

/// A path, and whether a link or a known release contains it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mapped {
    /// The path in the generation's release.
    Inside(Vec<u8>),
    /// A relative path or no path. It needs no change, because the working directory is the release.
    Relative,
    /// An absolute path outside of all releases. It stays unchanged, and is counted.
    Outside,
}

/// The mapped elements of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedList {
    pub list: Vec<u8>,
    /// Elements outside of all releases.
    pub outside: u32,
}

/// The names of one generation's release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map {
    release: Vec<u8>,
    /// The link, [`NEXT`] and [`LAST`].
    links: [Vec<u8>; 3],
    /// Releases, the longest path first.
    known: Vec<Vec<u8>>,
    /// The command that starts the release's program, if its files name one.
    start_command: Option<String>,
}

impl Map {
    /// `link` is the link as written; `release` is its target when the generation begins. `known` are the targets of the three
    /// links now and when each living generation began. All are absolute.
    pub fn new<'a>(link: &[u8], release: &'a [u8], known: impl IntoIterator<Item = &'a [u8]>) -> Map {
        let link = tidy(link);
        let named = |end: &str| [&link, end.as_bytes()].concat();
        let mut known: Vec<Vec<u8>> = known.into_iter().chain([release]).map(tidy).collect();
        order(&mut known);
        Map {
            release: tidy(release),
            links: [link.clone(), named(NEXT), named(LAST)],
            known,
            start_command: None,
        }
    }

    /// Adds the command that starts the release's program, as its files name it.
    pub fn with_start_command(mut self, command: Option<String>) -> Map {
        self.start_command = command;
        self
    }

    pub(super) fn start_command(&self) -> Option<&str> {
        self.start_command.as_deref()
    }

    /// Knows further releases.
    pub fn add(&mut self, known: impl IntoIterator<Item = PathBuf>) {
        self.known.extend(
            known
                .into_iter()
                .map(|path| tidy(path.as_os_str().as_encoded_bytes())),
        );
        order(&mut self.known);
    }

    /// Returns the releases that it knows.
    pub fn known(&self) -> impl Iterator<Item = &Path> {
        self.known.iter().map(|path| shown(path))
    }

    /// Returns the link and the two links next to it.
    pub fn links(&self) -> impl Iterator<Item = &Path> {
        self.links.iter().map(|link| shown(link))
    }

    /// Returns the directory of the release.
    pub fn release(&self) -> &Path {
        shown(&self.release)
    }

    /// Returns the path in the release, or the path itself if it is elsewhere.
    pub fn in_release(&self, path: &Path) -> PathBuf {
        match self.path(path.as_os_str().as_encoded_bytes()) {
            Mapped::Inside(path) => shown(&path).to_owned(),
            Mapped::Relative | Mapped::Outside => path.to_owned(),
        }
    }

    /// Whether a path without links is of another known release, or leads through a link to the release in service.
    pub fn is_of_another(&self, path: &[u8]) -> bool {
        let has = |root: &Vec<u8>| {
            path.strip_prefix(&root[..])
                .is_some_and(|rest| rest.first() == Some(&b'/'))
        };
        // The first is the longest: a release may lie within another one.
        let known = self.known.iter().find(|known| has(known));
        known.is_some_and(|known| *known != self.release) || self.links.iter().any(has)
    }

    /// Maps a path.
    pub fn path(&self, path: &[u8]) -> Mapped {
        if path.first() != Some(&b'/') {
            return Mapped::Relative;
        }
        let found = self
            .links
            .iter()
            .chain(&self.known)
            .find_map(|root| below(path, root));
        match found {
            Some(rest) if !climbs_out(rest) => {
                let slash: &[u8] = if rest.is_empty() || rest[0] == b'/' {
                    b""
                } else {
                    b"/"
                };
                Mapped::Inside([&self.release, slash, rest].concat())
            }
            Some(_) | None => Mapped::Outside,
        }
    }

    /// Maps each element of a list that colons divide, such as `open_basedir` and `include_path`. An element may have the
    /// scheme of a stream: `phar:///srv/shop/current/lib.phar`.
    pub fn list(&self, list: &[u8]) -> MappedList {
        let mut mapped = MappedList {
            list: Vec::with_capacity(list.len()),
            outside: 0,
        };
        for (index, element) in elements(list).into_iter().enumerate() {
            if index > 0 {
                mapped.list.push(b':');
            }
            let path = element.len() - after_scheme(element).len();
            let (scheme, path) = element.split_at(path);
            mapped.list.extend_from_slice(scheme);
            match self.path(path) {
                Mapped::Inside(path) => mapped.list.extend_from_slice(&path),
                Mapped::Relative => mapped.list.extend_from_slice(path),
                Mapped::Outside => {
                    mapped.list.extend_from_slice(path);
                    mapped.outside = mapped.outside.saturating_add(1);
                }
            }
        }
        mapped
    }
}

/// Paths of links and releases are UTF-8.
fn shown(path: &[u8]) -> &Path {
    Path::new(std::str::from_utf8(path).unwrap_or_default())
}

/// Returns the path without repeated slashes, single dots, and a slash at the end.
fn tidy(path: &[u8]) -> Vec<u8> {
    let names = path.split(|byte| *byte == b'/').filter(|name| is_name(name));
    let mut tidy: Vec<u8> = names.flat_map(|name| [b"/", name].concat()).collect();
    if tidy.is_empty() {
        tidy.push(b'/');
    }
    tidy
}

/// The root directory is no release: every path is below it.
fn order(known: &mut Vec<Vec<u8>>) {
    known.retain(|path| path.len() > 1);
    known.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
    known.dedup();
}

fn is_name(part: &[u8]) -> bool {
    !matches!(part, b"" | b".")
}

/// Returns the rest of the path after `root`, with its slash, if the path is `root` or below.
fn below<'a>(path: &'a [u8], root: &[u8]) -> Option<&'a [u8]> {
    let mut rest = path;
    for name in root.split(|byte| *byte == b'/').filter(|name| is_name(name)) {
        rest = skip(rest).strip_prefix(name)?;
        if !matches!(rest.first(), None | Some(b'/')) {
            return None;
        }
    }
    Some(rest)
}

/// Skips slashes and single dots.
fn skip(mut path: &[u8]) -> &[u8] {
    loop {
        path = match path {
            [b'/', rest @ ..] => rest,
            [b'.', rest @ ..] if rest.first() == Some(&b'/') => rest,
            _ => return path,
        };
    }
}

/// Whether the path leaves the directory where it begins.
fn climbs_out(path: &[u8]) -> bool {
    let mut depth = 0_u32;
    for name in path.split(|byte| *byte == b'/').filter(|name| is_name(name)) {
        let above = depth.checked_sub(1);
        match (name, above) {
            (b"..", None) => return true,
            (b"..", Some(above)) => depth = above,
            _ => depth = depth.saturating_add(1),
        }
    }
    false
}

/// Splits a list at its colons, except after a scheme.
fn elements(list: &[u8]) -> Vec<&[u8]> {
    let mut elements = Vec::new();
    let mut begin = 0;
    for (at, _) in list.iter().enumerate().filter(|(_, byte)| **byte == b':') {
        if !is_scheme(&list[begin..at], &list[at + 1..]) {
            elements.push(&list[begin..at]);
            begin = at + 1;
        }
    }
    elements.push(&list[begin..]);
    elements
}

fn is_scheme(before: &[u8], after: &[u8]) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    after.starts_with(b"//") && before.iter().all(is_word) && before.iter().any(u8::is_ascii_alphabetic)
}

/// Returns the element without a scheme and its `://`.
fn after_scheme(element: &[u8]) -> &[u8] {
    let colon = element.iter().position(|byte| *byte == b':');
    match colon.map(|at| (&element[..at], &element[at + 1..])) {
        Some((before, after)) if is_scheme(before, after) => &after[2..],
        Some(_) | None => element,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> Map {
        let known = ["/srv/shop/releases/4", "/srv/shop/releases/41/", "/srv/old"];
        Map::new(
            b"/srv/shop/current/",
            b"/srv/shop/releases/42",
            known.map(str::as_bytes),
        )
    }

    fn told(mapped: Mapped) -> String {
        match mapped {
            Mapped::Inside(path) => String::from_utf8(path).unwrap(),
            Mapped::Relative => "relative".to_owned(),
            Mapped::Outside => "outside".to_owned(),
        }
    }

    #[test]
    fn paths_by_table() {
        let rows = [
            // The link.
            ("/srv/shop/current", "/srv/shop/releases/42"),
            ("/srv/shop/current/", "/srv/shop/releases/42/"),
            ("/srv/shop/current/index.php", "/srv/shop/releases/42/index.php"),
            (
                "/srv/shop/current/a b/\u{e4}.php",
                "/srv/shop/releases/42/a b/\u{e4}.php",
            ),
            // The other two links.
            ("/srv/shop/current.next/i.php", "/srv/shop/releases/42/i.php"),
            ("/srv/shop/current.last/i.php", "/srv/shop/releases/42/i.php"),
            ("/srv/shop/current.next", "/srv/shop/releases/42"),
            ("/srv/shop/current.nextish/i.php", "outside"),
            ("/srv/shop/current.lost/i.php", "outside"),
            // Known releases.
            ("/srv/shop/releases/42/i.php", "/srv/shop/releases/42/i.php"),
            ("/srv/shop/releases/41/i.php", "/srv/shop/releases/42/i.php"),
            ("/srv/shop/releases/4/i.php", "/srv/shop/releases/42/i.php"),
            ("/srv/old", "/srv/shop/releases/42"),
            // Prefixes that only look alike.
            ("/srv/shop/current2/i.php", "outside"),
            ("/srv/shop/curren", "outside"),
            ("/srv/shop/releases/421/i.php", "outside"),
            ("/srv/shop/releases/40/i.php", "outside"),
            ("/srv/shop/releases", "outside"),
            ("/srv/older/i.php", "outside"),
            ("/data/srv/shop/current/i.php", "outside"),
            ("/", "outside"),
            // Slashes and dots.
            ("//srv///shop/current//i.php", "/srv/shop/releases/42//i.php"),
            ("/srv/./shop/././current/./i.php", "/srv/shop/releases/42/./i.php"),
            ("/./srv/shop/current", "/srv/shop/releases/42"),
            ("/srv/.shop/current", "outside"),
            ("/srv/shop/current/.env", "/srv/shop/releases/42/.env"),
            ("/srv/shop/current/a/../b", "/srv/shop/releases/42/a/../b"),
            ("/srv/shop/current/..", "outside"),
            ("/srv/shop/current/a/../../b", "outside"),
            (
                "/srv/shop/current/..hidden/...",
                "/srv/shop/releases/42/..hidden/...",
            ),
            // A directory before `..` may be a link elsewhere.
            ("/srv/shop/x/../current/i.php", "outside"),
            ("/srv/shop/current/../releases/42/i.php", "outside"),
            // No absolute path.
            ("", "relative"),
            (".", "relative"),
            ("index.php", "relative"),
            ("../lib", "relative"),
        ];
        for (path, expected) in rows {
            assert_eq!(told(map().path(path.as_bytes())), expected, "{path}");
        }
    }

    #[test]
    fn files_of_another_release_by_table() {
        let rows = [
            ("/srv/shop/releases/42/a.php", false),
            ("/srv/shop/releases/41/a.php", true),
            ("/srv/shop/releases/4/a.php", true),
            ("/srv/shop/releases/421/a.php", false),
            ("/srv/shop/current/a.php", true),
            ("/srv/shop/current.last/a.php", true),
            ("/srv/shop/shared/a.php", false),
            ("phar:///srv/old/a.phar/a.php", false),
            ("", false),
        ];
        for (path, expected) in rows {
            assert_eq!(map().is_of_another(path.as_bytes()), expected, "{path}");
        }
        let within = Map::new(b"/app/live", b"/app/r/2", [&b"/app"[..]]);
        assert!(!within.is_of_another(b"/app/r/2/a.php") && within.is_of_another(b"/app/r/1/a.php"));
    }

    #[test]
    fn lists_by_table() {
        let rows = [
            ("", "", 0),
            (":", ":", 0),
            (
                ".:/srv/shop/current/lib:/usr/share/php",
                ".:/srv/shop/releases/42/lib:/usr/share/php",
                1,
            ),
            (
                "/srv/shop/releases/41/:/tmp/:/srv/shop/current.last",
                "/srv/shop/releases/42/:/tmp/:/srv/shop/releases/42",
                1,
            ),
            (
                "phar:///srv/shop/current/a.phar/lib:/srv/old/lib",
                "phar:///srv/shop/releases/42/a.phar/lib:/srv/shop/releases/42/lib",
                0,
            ),
            ("/a://srv/shop/current", "/a:/srv/shop/releases/42", 1),
            ("://srv/shop/current", ":/srv/shop/releases/42", 0),
            ("lib:", "lib:", 0),
        ];
        for (list, expected, outside) in rows {
            let mapped = map().list(list.as_bytes());
            assert_eq!(String::from_utf8(mapped.list).unwrap(), expected, "{list}");
            assert_eq!(mapped.outside, outside, "{list}");
        }
    }

    #[test]
    fn a_release_within_another_one_is_the_longer_path() {
        let known = ["/srv/app", "/srv/app/releases/1"];
        let map = Map::new(b"/srv/app/live", b"/srv/app/releases/2", known.map(str::as_bytes));
        let rows = [
            ("/srv/app/live/x", "/srv/app/releases/2/x"),
            ("/srv/app/releases/1/x", "/srv/app/releases/2/x"),
            ("/srv/app/releases/2/x", "/srv/app/releases/2/x"),
            ("/srv/app/x", "/srv/app/releases/2/x"),
        ];
        for (path, expected) in rows {
            assert_eq!(told(map.path(path.as_bytes())), expected, "{path}");
        }
    }

    #[test]
    fn a_mapped_path_maps_to_itself_and_no_bytes_panic() {
        let mut state = 7_u64;
        let words = [
            "srv", "shop", "current", ".next", "releases", "4", "2", "/", "//", ".", "..", ":", "\u{ff}", "",
            "phar",
        ];
        for _ in 0..20_000 {
            let mut path = String::new();
            for _ in 0..state % 12 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                path += words[(state >> 33) as usize % words.len()];
            }
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1) >> 1;
            if let Mapped::Inside(once) = map().path(path.as_bytes()) {
                assert_eq!(map().path(&once), Mapped::Inside(once.clone()), "{path}");
            }
            let once = map().list(path.as_bytes());
            assert_eq!(map().list(&once.list).list, once.list, "{path}");
        }
    }

    /// Every root would be below it.
    #[test]
    fn the_root_directory_is_no_release() {
        let map = Map::new(b"/srv/current", b"/srv/1", [&b"/"[..], b""]);
        assert_eq!(map.path(b"/etc/passwd"), Mapped::Outside);
    }
}
