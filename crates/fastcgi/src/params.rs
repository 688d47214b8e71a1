//! The parameters of a request (section 5.2), stored with NULs so that C code can read them.

use std::fmt;

/// Limits on a request's parameters, counting repeated names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Total bytes of names and values.
    pub params_bytes: usize,
    /// Number of pairs.
    pub params_count: usize,
}

impl Default for Limits {
    /// Far more than web servers accept as headers (8 to 64 KiB), and still little memory.
    fn default() -> Limits {
        Limits {
            params_bytes: 1024 * 1024,
            params_count: 10_000,
        }
    }
}

/// How to handle a repeated name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Repeated {
    /// The last value wins, as in php-fpm.
    #[default]
    Replace,
    /// Joins headers (`HTTP_…`) with `", "` and cookies with `"; "` (RFC 3875 section 4.1.18, RFC 9110 section 5.3, RFC
    /// 6265 section 4.2.1): some web servers, such as nginx before 1.23, send a parameter per header line. The last
    /// value wins for single-valued headers (`SINGLE`) and other names, which a web server's configuration may
    /// override.
    JoinHeaders,
}

/// Single-valued in RFC 9110, or descriptions of the client.
const SINGLE: [&[u8]; 16] = [
    b"HTTP_AUTHORIZATION",
    b"HTTP_CONTENT_LENGTH",
    b"HTTP_CONTENT_TYPE",
    b"HTTP_FROM",
    b"HTTP_HOST",
    b"HTTP_IF_MODIFIED_SINCE",
    b"HTTP_IF_UNMODIFIED_SINCE",
    b"HTTP_MAX_FORWARDS",
    b"HTTP_PROXY_AUTHORIZATION",
    b"HTTP_REFERER",
    b"HTTP_USER_AGENT",
    b"HTTP_X_FORWARDED_HOST",
    b"HTTP_X_FORWARDED_PORT",
    b"HTTP_X_FORWARDED_PREFIX",
    b"HTTP_X_FORWARDED_PROTO",
    b"HTTP_X_REAL_IP",
];

fn separator(name: &[u8]) -> Option<&'static [u8]> {
    match name {
        b"HTTP_COOKIE" => Some(b"; "),
        _ if name.starts_with(b"HTTP_") && !SINGLE.contains(&name) => Some(b", "),
        _ => None,
    }
}

/// A request's parameters: bytes, in order of arrival, with unique names.
///
/// A repeated name keeps its place ([`Repeated`]). A NUL follows every name and value in memory; the `_with_nul`
/// methods include it for C. Memory is reused, so similar requests don't allocate.
#[derive(Clone)]
pub struct Params {
    text: Vec<u8>,
    used: usize,
    entries: Vec<Entry>,
    buckets: [u32; BUCKETS],
}

#[derive(Clone, Copy)]
struct Entry {
    name: Span,
    value: Span,
    /// Reserved bytes, without the NUL.
    room: usize,
    hash: u32,
    next: u32,
}

#[derive(Clone, Copy)]
struct Span {
    at: usize,
    length: usize,
}

const BUCKETS: usize = 64;
const END_OF_CHAIN: u32 = u32::MAX;

/// Short texts are copied with this fixed length: two instructions instead of a call. The excess goes to unused bytes.
const SHORT: usize = 32;

/// Freed after the request if larger.
const KEPT_BYTES: usize = 64 * 1024;
const KEPT_ENTRIES: usize = 1024;

impl Params {
    /// Memory in use.
    pub fn memory(&self) -> usize {
        self.text.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// Creates an empty set without allocating.
    pub fn new() -> Params {
        Params {
            text: Vec::new(),
            used: 0,
            entries: Vec::new(),
            buckets: [END_OF_CHAIN; BUCKETS],
        }
    }

    /// Removes all parameters. Keeps the memory unless the last request was large.
    pub fn clear(&mut self) {
        if self.text.len() > KEPT_BYTES {
            self.text = Vec::new();
        }
        if self.entries.capacity() > KEPT_ENTRIES {
            self.entries = Vec::new();
        }
        self.used = 0;
        self.entries.clear();
        self.buckets = [END_OF_CHAIN; BUCKETS];
    }

    /// Number of parameters.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns a value.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let entry = &self.entries[self.find(name, hash(name))?];
        Some(self.text(entry.value))
    }

    /// Returns a value with its NUL.
    pub fn get_with_nul(&self, name: &[u8]) -> Option<&[u8]> {
        let entry = &self.entries[self.find(name, hash(name))?];
        Some(self.text_with_nul(entry.value))
    }

    /// Returns name and value by index, in order of arrival.
    pub fn at(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let entry = self.entries.get(index)?;
        Some((self.text(entry.name), self.text(entry.value)))
    }

    /// Like [`Params::at`], with NULs.
    pub fn at_with_nul(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let entry = self.entries.get(index)?;
        Some((self.text_with_nul(entry.name), self.text_with_nul(entry.value)))
    }

    /// Iterates in order of arrival.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.entries
            .iter()
            .map(|entry| (self.text(entry.name), self.text(entry.value)))
    }

    /// Replaces or appends a parameter.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        let hash = hash(name);
        match self.find(name, hash) {
            Some(index) => self.replace(index, value, value.len()),
            None => {
                let name = self.append(name, name.len());
                let value = self.append(value, value.len());
                self.link(name, value, hash);
            }
        }
    }

    /// Removes a parameter; returns whether it existed.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let Some(index) = self.find(name, hash(name)) else {
            return false;
        };
        self.entries.remove(index);
        self.buckets = [END_OF_CHAIN; BUCKETS];
        for (index, entry) in self.entries.iter_mut().enumerate() {
            let bucket = &mut self.buckets[bucket_of(entry.hash)];
            entry.next = *bucket;
            *bucket = index as u32;
        }
        true
    }

    /// `wire` starts with the complete name, followed by the complete value. Short copies may read beyond them.
    pub(super) fn set_from_wire(
        &mut self,
        wire: &[u8],
        name_length: usize,
        value_length: usize,
        repeated: Repeated,
    ) {
        let (name, values) = (&wire[..name_length], &wire[name_length..]);
        let hash = hash(name);
        match self.find(name, hash) {
            Some(index) => match separator(name).filter(|_| repeated == Repeated::JoinHeaders) {
                Some(separator) => self.join(index, separator, &values[..value_length]),
                None => self.replace(index, values, value_length),
            },
            None => {
                let name = self.append(wire, name_length);
                let value = self.append(values, value_length);
                self.link(name, value, hash);
            }
        }
    }

    fn find(&self, name: &[u8], hash: u32) -> Option<usize> {
        let mut next = self.buckets[bucket_of(hash)];
        while let Some(entry) = self.entries.get(next as usize) {
            if entry.hash == hash && self.text(entry.name) == name {
                return Some(next as usize);
            }
            next = entry.next;
        }
        None
    }

    fn link(&mut self, name: Span, value: Span, hash: u32) {
        let bucket = &mut self.buckets[bucket_of(hash)];
        let next = std::mem::replace(bucket, self.entries.len() as u32);
        self.entries.push(Entry {
            name,
            value,
            room: value.length,
            hash,
            next,
        });
    }

    /// Reuses the space if the value fits, so that repeated changes need no memory.
    fn replace(&mut self, index: usize, from: &[u8], length: usize) {
        let Entry { value: old, room, .. } = self.entries[index];
        if length <= room {
            self.text[old.at..old.at + length].copy_from_slice(&from[..length]);
            self.text[old.at + length] = 0;
            self.entries[index].value = Span { at: old.at, length };
        } else {
            self.entries[index].value = self.append(from, length);
            self.entries[index].room = length;
        }
    }

    /// Doubles the space when the value moves, so repetitions need at most four times the received bytes.
    fn join(&mut self, index: usize, separator: &[u8], more: &[u8]) {
        let Entry { value: old, room, .. } = self.entries[index];
        let separator = if old.length == 0 || more.is_empty() {
            b""
        } else {
            separator
        };
        let length = old.length + separator.len() + more.len();
        let at = if length <= room {
            old.at
        } else {
            let (at, room) = (self.used, length * 2);
            if self.text.len() - at <= room {
                self.grow(room + 1);
            }
            self.text.copy_within(old.at..old.at + old.length, at);
            self.used = at + room + 1;
            self.entries[index].room = room;
            at
        };
        let middle = at + old.length + separator.len();
        self.text[at + old.length..middle].copy_from_slice(separator);
        self.text[middle..at + length].copy_from_slice(more);
        self.text[at + length] = 0;
        self.entries[index].value = Span { at, length };
    }

    #[inline]
    fn append(&mut self, from: &[u8], length: usize) -> Span {
        let at = self.used;
        let room = length.max(SHORT) + 1;
        if self.text.len() - at < room {
            self.grow(room);
        }
        let into = &mut self.text[at..at + room];
        if length <= SHORT
            && let Some(whole) = from.first_chunk::<SHORT>()
        {
            into[..SHORT].copy_from_slice(whole);
        } else {
            into[..length].copy_from_slice(&from[..length]);
        }
        into[length] = 0;
        self.used = at + length + 1;
        Span { at, length }
    }

    #[cold]
    fn grow(&mut self, room: usize) {
        const FIRST: usize = 4096;
        let wanted = (self.used + room).max(self.text.len() * 2).max(FIRST);
        self.text.resize(wanted, 0);
    }

    fn text(&self, place: Span) -> &[u8] {
        &self.text[place.at..place.at + place.length]
    }

    fn text_with_nul(&self, place: Span) -> &[u8] {
        &self.text[place.at..=place.at + place.length]
    }
}

impl Default for Params {
    fn default() -> Params {
        Params::new()
    }
}

impl fmt::Debug for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy;
        f.debug_map()
            .entries(self.iter().map(|(name, value)| (text(name), text(value))))
            .finish()
    }
}

fn bucket_of(hash: u32) -> usize {
    hash as usize % BUCKETS
}

#[inline]
fn hash(name: &[u8]) -> u32 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |state: u64, word: u64| (state.rotate_left(29) ^ word).wrapping_mul(MULTIPLIER);
    let mut state = name.len() as u64;
    match name.last_chunk::<8>() {
        Some(last) => {
            for word in name[..name.len() - 1].chunks_exact(8) {
                state = mix(
                    state,
                    word.iter()
                        .rev()
                        .fold(0, |word, byte| word << 8 | u64::from(*byte)),
                );
            }
            state = mix(state, u64::from_le_bytes(*last));
        }
        None => {
            state = mix(
                state,
                name.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)),
            )
        }
    }
    (state >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_arrival_is_kept_and_a_repeated_name_keeps_its_place() {
        let mut params = Params::new();
        params.set(b"A", b"1");
        params.set(b"B", b"2");
        params.set(b"A", b"three");
        params.set(b"", b"");
        let all: Vec<_> = params.iter().collect();
        assert_eq!(all, [(&b"A"[..], &b"three"[..]), (b"B", b"2"), (b"", b"")]);
        assert_eq!(params.get(b"A"), Some(&b"three"[..]));
        assert_eq!(params.get(b""), Some(&b""[..]));
        assert_eq!(params.get(b"C"), None);
    }

    #[test]
    fn headers_that_are_repeated_are_joined_where_asked_for() {
        let store = |repeated, pairs: &[(&str, &str)]| {
            let mut params = Params::new();
            for (name, value) in pairs {
                let wire = [name.as_bytes(), value.as_bytes()].concat();
                params.set_from_wire(&wire, name.len(), value.len(), repeated);
            }
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let all: Vec<_> = params
                .iter()
                .map(|(name, value)| (text(name), text(value)))
                .collect();
            for (index, (_, value)) in all.iter().enumerate() {
                assert_eq!(
                    params.at_with_nul(index).unwrap().1,
                    [value.as_bytes(), &[0]].concat()
                );
            }
            all.iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect::<Vec<_>>()
                .join("|")
        };
        let pairs = [
            ("HTTP_X_A", "1"),
            ("HTTP_COOKIE", "a=b"),
            ("QUERY_STRING", "x"),
            ("HTTP_X_A", "2"),
            ("HTTP_COOKIE", "c=d"),
            ("QUERY_STRING", "y"),
            ("HTTP_X_A", ""),
            ("HTTP_X_A", "3"),
            ("HTTP_EMPTY", ""),
            ("HTTP_EMPTY", "z"),
            ("HTTP_HOST", "a"),
            ("HTTP_HOST", "b"),
        ];
        assert_eq!(
            store(Repeated::JoinHeaders, &pairs),
            "HTTP_X_A=1, 2, 3|HTTP_COOKIE=a=b; c=d|QUERY_STRING=y|HTTP_EMPTY=z|HTTP_HOST=b"
        );
        assert_eq!(
            store(Repeated::Replace, &pairs),
            "HTTP_X_A=3|HTTP_COOKIE=c=d|QUERY_STRING=y|HTTP_EMPTY=z|HTTP_HOST=b"
        );
    }

    #[test]
    fn many_repeated_headers_take_little_memory() {
        let mut params = Params::new();
        let (mut arrived, value) = (0, [b'x'; 90]);
        for number in 0..10_000 {
            let name: &[u8] = if number % 2 == 0 { b"HTTP_A" } else { b"HTTP_B" };
            let wire = [name, &value[..]].concat();
            arrived += wire.len();
            params.set_from_wire(&wire, name.len(), value.len(), Repeated::JoinHeaders);
        }
        assert_eq!(params.get(b"HTTP_A").map(<[u8]>::len), Some(5_000 * 92 - 2));
        assert!(params.used <= 4 * arrived, "{} of {arrived}", params.used);
    }

    #[test]
    fn texts_are_followed_by_nul() {
        let mut params = Params::new();
        for length in 0..100 {
            let name: Vec<u8> = (0..length).map(|_| b'n').collect();
            params.set(&name, &name);
            params.set(&name, &name[..length / 2]);
        }
        for length in 0..100 {
            let (name, value) = params.at_with_nul(length).unwrap();
            assert_eq!((name.len(), name.last()), (length + 1, Some(&0)));
            assert_eq!((value.len(), value.last()), (length / 2 + 1, Some(&0)));
            assert_eq!(params.get_with_nul(&name[..length]), Some(value));
            assert!(value[..length / 2].iter().all(|byte| *byte == b'n'));
        }
    }

    #[test]
    fn what_is_removed_is_gone_and_the_rest_is_found() {
        let mut params = Params::new();
        for number in 0..300u32 {
            params.set(number.to_string().as_bytes(), &number.to_be_bytes());
        }
        for number in (0..300u32).step_by(3) {
            assert!(params.remove(number.to_string().as_bytes()));
            assert!(!params.remove(number.to_string().as_bytes()));
        }
        assert_eq!(params.len(), 200);
        for number in 0..300u32 {
            let expected = (number % 3 != 0).then(|| number.to_be_bytes());
            assert_eq!(
                params.get(number.to_string().as_bytes()),
                expected.as_ref().map(|value| &value[..])
            );
        }
        assert_eq!(params.at(0), Some((&b"1"[..], &1u32.to_be_bytes()[..])));
    }

    #[test]
    fn memory_is_kept_for_the_next_request_but_not_all_of_it() {
        let mut params = Params::new();
        params.set(b"A", &[b'x'; 1000]);
        let kept = params.text.as_ptr();
        params.clear();
        assert!(params.is_empty() && params.get(b"A").is_none());
        params.set(b"B", &[b'y'; 1000]);
        assert_eq!(params.text.as_ptr(), kept);
        params.set(b"C", &[b'z'; 200_000]);
        params.clear();
        assert_eq!(params.text.capacity(), 0);
    }
}
