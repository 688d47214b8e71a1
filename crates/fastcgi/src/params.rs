//! The parameters of a request (section 5.2), stored with NULs so that C code can read them.

use super::pairs::{Excess, PairHead, Pairs};
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
/// A repeated name keeps its place ([`Repeated`]). The `_with_nul` methods include a NUL for C. Received pairs stay
/// where they arrived: the bytes of their lengths make room for the NULs. Memory is reused, so similar requests don't
/// allocate.
#[derive(Clone)]
pub struct Params {
    /// Received bytes, then a NUL.
    wire: Vec<u8>,
    /// Names and values that were set or joined, with their NULs.
    own: Vec<u8>,
    entries: Vec<Entry>,
    buckets: [u32; BUCKETS],
    /// The first entries, whose names have a NUL.
    ended_names: usize,
}

#[derive(Clone, Copy)]
struct Entry {
    name: Span,
    value: Span,
    /// Bytes in `own` that the value may grow to, without the NUL; 0 for a received value.
    room: usize,
    hash: u32,
    next: u32,
}

/// A text in `wire`, or in `own` if `at` has the bit `OWN`.
#[derive(Clone, Copy)]
struct Span {
    at: usize,
    length: usize,
}

const OWN: usize = 1 << (usize::BITS - 1);
const BUCKETS: usize = 64;
const END_OF_CHAIN: u32 = u32::MAX;

/// Freed after the request if larger.
const KEPT_BYTES: usize = 64 * 1024;
const KEPT_ENTRIES: usize = 1024;

impl Params {
    /// Memory in use.
    pub fn memory(&self) -> usize {
        self.wire.capacity() + self.own.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    /// Creates an empty set without allocating.
    pub fn new() -> Params {
        Params {
            wire: Vec::new(),
            own: Vec::new(),
            entries: Vec::new(),
            buckets: [END_OF_CHAIN; BUCKETS],
            ended_names: 0,
        }
    }

    /// Removes all parameters. Keeps the memory unless the last request was large.
    pub fn clear(&mut self) {
        for text in [&mut self.wire, &mut self.own] {
            text.clear();
            if text.capacity() > KEPT_BYTES {
                *text = Vec::new();
            }
        }
        if !self.entries.is_empty() {
            self.entries.clear();
            self.buckets = [END_OF_CHAIN; BUCKETS];
            self.ended_names = 0;
        }
        if self.entries.capacity() > KEPT_ENTRIES {
            self.entries = Vec::new();
        }
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
    #[inline]
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let index = self.find(name, hash(name))?;
        Some(self.text(self.entries[index].value))
    }

    /// Returns a value with its NUL.
    #[inline]
    pub fn get_with_nul(&self, name: &[u8]) -> Option<&[u8]> {
        let index = self.find(name, hash(name))?;
        Some(self.text_with_nul(self.entries[index].value))
    }

    /// Returns name and value by index, in order of arrival.
    pub fn at(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let entry = self.entries.get(index)?;
        Some((self.text(entry.name), self.text(entry.value)))
    }

    /// Like [`Params::at`], with NULs.
    pub fn at_with_nul(&mut self, index: usize) -> Option<(&[u8], &[u8])> {
        self.end_names();
        let entry = self.entries.get(index)?;
        Some((self.text_with_nul(entry.name), self.text_with_nul(entry.value)))
    }

    /// Moves received names one byte to the front, over the bytes of their lengths, to add their NULs.
    fn end_names(&mut self) {
        for entry in &mut self.entries[self.ended_names..] {
            let Span { at, length } = entry.name;
            if at & OWN == 0 {
                self.wire.copy_within(at..at + length, at - 1);
                self.wire[at - 1 + length] = 0;
                entry.name.at = at - 1;
            }
        }
        self.ended_names = self.entries.len();
    }

    /// Iterates in order of arrival.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.entries
            .iter()
            .map(|entry| (self.text(entry.name), self.text(entry.value)))
    }

    /// Replaces or appends a parameter.
    #[inline]
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        self.set_hashed(name, hash(name), value);
    }

    fn set_hashed(&mut self, name: &[u8], hash: u32, value: &[u8]) {
        match self.find(name, hash) {
            Some(index) if self.fits(index, value) => self.overwrite(index, 0, value),
            Some(index) => {
                self.entries[index].value = self.append(value);
                self.entries[index].room = value.len();
            }
            None => {
                let (name, value) = (self.append(name), self.append(value));
                self.link(name, value, value.length, hash);
            }
        }
    }

    /// Removes a parameter; returns whether it existed.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let Some(index) = self.find(name, hash(name)) else {
            return false;
        };
        self.entries.remove(index);
        self.ended_names -= usize::from(index < self.ended_names);
        self.buckets = [END_OF_CHAIN; BUCKETS];
        for (index, entry) in self.entries.iter_mut().enumerate() {
            let bucket = &mut self.buckets[bucket_of(entry.hash)];
            entry.next = *bucket;
            *bucket = index as u32;
        }
        true
    }

    /// Appends received bytes, which may end anywhere in a pair, and adds the pairs that are complete.
    pub(super) fn receive(&mut self, piece: &[u8], pairs: &mut Pairs) -> Result<(), Excess> {
        self.wire.pop();
        self.wire.reserve(piece.len() + 1);
        self.wire.extend_from_slice(piece);
        self.wire.push(0);
        let last = self.wire.len() - 1;
        while let Some(window) = self.wire.get_mut(pairs.decoded..last) {
            let Some(pair) = PairHead::decode(window) else {
                break;
            };
            pairs.check(pair)?;
            let Some(received) = window.get_mut(..pair.total()) else {
                break;
            };
            // The NUL of the previous value.
            received[0] = 0;
            let text = &received[pair.head..][..pair.name];
            let hash = hash(text);
            let at = pairs.decoded + pair.head;
            let name = Span {
                at,
                length: pair.name,
            };
            let value = Span {
                at: at + pair.name,
                length: pair.value,
            };
            pairs.count_in(pair);
            match self.buckets[bucket_of(hash)] {
                END_OF_CHAIN => self.link(name, value, 0, hash),
                _ => self.link_or_repeat(name, value, hash, pairs.repeated),
            }
        }
        Ok(())
    }

    /// Number of received bytes.
    pub(super) fn received(&self) -> usize {
        self.wire.len().saturating_sub(1)
    }

    fn link_or_repeat(&mut self, name: Span, value: Span, hash: u32, repeated: Repeated) {
        match self.find(self.text(name), hash) {
            None => self.link(name, value, 0, hash),
            Some(index) => self.repeat(index, value, repeated),
        }
    }

    #[cold]
    fn repeat(&mut self, index: usize, value: Span, repeated: Repeated) {
        let separator = separator(self.text(self.entries[index].name));
        match separator.filter(|_| repeated == Repeated::JoinHeaders) {
            Some(separator) => self.join(index, separator, value),
            None => {
                self.entries[index].value = value;
                self.entries[index].room = 0;
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

    #[inline]
    fn link(&mut self, name: Span, value: Span, room: usize, hash: u32) {
        let bucket = &mut self.buckets[bucket_of(hash)];
        let next = std::mem::replace(bucket, self.entries.len() as u32);
        self.entries.push(Entry {
            name,
            value,
            room,
            hash,
            next,
        });
    }

    fn fits(&self, index: usize, value: &[u8]) -> bool {
        let entry = &self.entries[index];
        entry.value.at & OWN != 0 && value.len() <= entry.room
    }

    /// Writes to a value's room in `own`, after its first `kept` bytes.
    fn overwrite(&mut self, index: usize, kept: usize, more: &[u8]) {
        let value = &mut self.entries[index].value;
        let at = (value.at & !OWN) + kept;
        value.length = kept + more.len();
        self.own[at..at + more.len()].copy_from_slice(more);
        self.own[at + more.len()] = 0;
    }

    /// Doubles the space when the value moves, so repetitions need at most four times the received bytes.
    fn join(&mut self, index: usize, separator: &[u8], more: Span) {
        let Entry { value: old, room, .. } = self.entries[index];
        let has_both = old.length > 0 && more.length > 0;
        let separator = if has_both { separator } else { b"" };
        let more = [separator, self.text(more)].concat();
        let length = old.length + more.len();
        if length > room {
            let (at, room) = (self.own.len(), length * 2);
            let text = self.text(old).to_vec();
            self.own.extend_from_slice(&text);
            self.own.resize(at + room + 1, 0);
            self.entries[index].value.at = OWN | at;
            self.entries[index].room = room;
        }
        self.overwrite(index, old.length, &more);
    }

    fn append(&mut self, text: &[u8]) -> Span {
        let at = OWN | self.own.len();
        self.own.extend_from_slice(text);
        self.own.push(0);
        Span {
            at,
            length: text.len(),
        }
    }

    #[inline]
    fn text(&self, Span { at, length }: Span) -> &[u8] {
        match at & OWN {
            0 => &self.wire[at..at + length],
            _ => &self.own[at & !OWN..(at & !OWN) + length],
        }
    }

    #[inline]
    fn text_with_nul(&self, Span { at, length }: Span) -> &[u8] {
        self.text(Span {
            at,
            length: length + 1,
        })
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

/// Computed by the compiler for a constant name.
#[inline(always)]
fn hash(name: &[u8]) -> u32 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |state: u64, word: u64| (state.rotate_left(29) ^ word).wrapping_mul(MULTIPLIER);
    let mut state = name.len() as u64;
    if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
        state = mix(state, u64::from_le_bytes(*first));
        if name.len() > 16 {
            for word in name[8..name.len() - 8]
                .chunks_exact(8)
                .filter_map(<[u8]>::first_chunk)
            {
                state = mix(state, u64::from_le_bytes(*word));
            }
            if let Some(word) = name[..name.len() - 8].last_chunk() {
                state = mix(state, u64::from_le_bytes(*word));
            }
        }
        state = mix(state, u64::from_le_bytes(*last));
    } else {
        state = mix(
            state,
            name.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        );
    }
    (state >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::super::pairs::{Pairs, append_pair};
    use super::*;

    fn receive<'p>(
        params: &mut Params,
        repeated: Repeated,
        pairs: impl Iterator<Item = (&'p [u8], &'p [u8])>,
    ) {
        let mut wire = Vec::new();
        pairs.for_each(|(name, value)| append_pair(&mut wire, name, value));
        let mut decoder = Pairs::new(Limits::default());
        (decoder.repeated, decoder.decoded) = (repeated, params.received());
        params.receive(&wire, &mut decoder).unwrap();
    }

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
            receive(
                &mut params,
                repeated,
                pairs.iter().map(|(a, b)| (a.as_bytes(), b.as_bytes())),
            );
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
        let names = [&b"HTTP_A"[..], b"HTTP_B"].into_iter().cycle().take(10_000);
        receive(
            &mut params,
            Repeated::JoinHeaders,
            names.map(|name| (name, &[b'x'; 90][..])),
        );
        let arrived = params.wire.len();
        assert_eq!(params.get(b"HTTP_A").map(<[u8]>::len), Some(5_000 * 92 - 2));
        assert!(
            params.own.len() <= 4 * arrived,
            "{} of {arrived}",
            params.own.len()
        );
    }

    #[test]
    fn texts_are_followed_by_nul() {
        let mut params = Params::new();
        for length in 0..100 {
            let name: Vec<u8> = (0..length).map(|_| b'n').collect();
            match length % 3 {
                0 => receive(
                    &mut params,
                    Repeated::Replace,
                    [(&name[..], &name[..length / 2])].into_iter(),
                ),
                1 => params.set(&name, &name),
                _ => receive(
                    &mut params,
                    Repeated::Replace,
                    [(&name[..], &name[..])].into_iter(),
                ),
            }
            params.set(&name, &name[..length / 2]);
        }
        for length in 0..100 {
            let (name, value) = params.at_with_nul(length).unwrap();
            let value = value.to_vec();
            assert_eq!((name.len(), name.last()), (length + 1, Some(&0)));
            assert_eq!((value.len(), value.last()), (length / 2 + 1, Some(&0)));
            assert_eq!(params.get_with_nul(&vec![b'n'; length]), Some(&value[..]));
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
        let kept = params.own.as_ptr();
        params.clear();
        assert!(params.is_empty() && params.get(b"A").is_none());
        params.set(b"B", &[b'y'; 1000]);
        assert_eq!(params.own.as_ptr(), kept);
        params.set(b"C", &[b'z'; 200_000]);
        params.clear();
        assert_eq!(params.own.capacity(), 0);
    }
}
