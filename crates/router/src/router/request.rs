//! Finds a request's application in its parameters, without copying where possible.

use fastcgi::{HEADER_LENGTH, Header, RecordType, Role, VERSION};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The fallback parameter with the application's root.
const APP_ROOT: &[u8] = b"PASSENGER_APP_ROOT";
/// The last fallback: the root is its parent.
const DOCUMENT_ROOT: &[u8] = b"DOCUMENT_ROOT";
const BEGIN_BYTES: usize = 8;
/// FCGI_KEEP_CONN.
const KEEP: u8 = 1;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeadLook<'w> {
    Partial,
    Request(RequestHead<'w>),
    /// Not a plain request; it needs record-by-record reading.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestHead<'w> {
    pub id: u16,
    pub keep: bool,
    pub root: Option<Cow<'w, [u8]>>,
}

/// Parses the start of a request. Needs all parameters: of duplicates the last counts, as in the worker.
pub(super) fn read_head<'w>(wire: &'w [u8], root_parameter: &[u8]) -> HeadLook<'w> {
    let Some(begin) = Begin::parse(wire) else {
        return if could_begin(wire) {
            HeadLook::Partial
        } else {
            HeadLook::Other
        };
    };
    let (content, end) = gather(wire, begin.id);
    match end {
        End::Open => HeadLook::Partial,
        End::Strange => HeadLook::Other,
        End::Complete => {
            let mut names = Names::default();
            let is_whole = match content {
                Cow::Borrowed(content) => names.read(content, root_parameter, Cow::Borrowed),
                Cow::Owned(content) => {
                    names.read(&content, root_parameter, |value| Cow::Owned(value.to_vec()))
                }
            };
            if !is_whole {
                return HeadLook::Other;
            }
            HeadLook::Request(RequestHead {
                id: begin.id,
                keep: begin.keep,
                root: names.root(),
            })
        }
    }
}

/// Parses a request too large to peek at in full. Assumes that the pool's own parameter occurs only once.
pub(super) fn read_head_early<'w>(wire: &'w [u8], root_parameter: &[u8]) -> Option<RequestHead<'w>> {
    let begin = Begin::parse(wire)?;
    let (content, end) = gather(wire, begin.id);
    if end == End::Strange {
        return None;
    }
    let mut names: Names<'static> = Names::default();
    names.read(&content, root_parameter, |value| Cow::Owned(value.to_vec()));
    Some(RequestHead {
        id: begin.id,
        keep: begin.keep,
        root: Some(names.own?),
    })
}

pub(super) fn root_of<'p>(
    param: impl Fn(&[u8]) -> Option<&'p [u8]>,
    root_parameter: &[u8],
) -> Option<Cow<'p, [u8]>> {
    let names = Names {
        own: param(root_parameter).map(Cow::Borrowed),
        app_root: param(APP_ROOT).map(Cow::Borrowed),
        document_root: param(DOCUMENT_ROOT).map(Cow::Borrowed),
    };
    names.root()
}

struct Begin {
    id: u16,
    keep: bool,
}

impl Begin {
    fn parse(wire: &[u8]) -> Option<Begin> {
        let header = Header::decode(*wire.first_chunk()?);
        let [role_high, role_low, flags, ..] = *wire.get(HEADER_LENGTH..HEADER_LENGTH + BEGIN_BYTES)? else {
            return None;
        };
        let role = u16::from_be_bytes([role_high, role_low]);
        let is_plain = is_begin(header) && Role::from_number(role).is_some();
        is_plain.then_some(Begin {
            id: header.request_id,
            keep: flags & KEEP != 0,
        })
    }
}

fn is_begin(header: Header) -> bool {
    header.version == VERSION
        && header.request_id > 0
        && header.kind == RecordType::BeginRequest as u8
        && usize::from(header.content_length) == BEGIN_BYTES
}

fn could_begin(wire: &[u8]) -> bool {
    match wire.first_chunk() {
        Some(header) => is_begin(Header::decode(*header)) && wire.len() < HEADER_LENGTH + BEGIN_BYTES,
        None => true,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    Complete,
    Strange,
}

fn gather(wire: &[u8], id: u16) -> (Cow<'_, [u8]>, End) {
    let mut content = Cow::Borrowed(&[][..]);
    let mut at = HEADER_LENGTH + BEGIN_BYTES + padding(wire);
    loop {
        let Some(header) = wire.get(at..).and_then(|rest| rest.first_chunk()) else {
            return (content, End::Open);
        };
        let header = Header::decode(*header);
        let is_ours = header.kind == RecordType::Params as u8 && header.request_id == id;
        if header.version != VERSION || !is_ours {
            return (content, End::Strange);
        }
        if header.content_length == 0 {
            return (content, End::Complete);
        }
        let from = at + HEADER_LENGTH;
        let to = from + usize::from(header.content_length);
        let piece = &wire[from.min(wire.len())..to.min(wire.len())];
        match &mut content {
            Cow::Borrowed([]) => content = Cow::Borrowed(piece),
            more => more.to_mut().extend_from_slice(piece),
        }
        if to > wire.len() {
            return (content, End::Open);
        }
        at = to + usize::from(header.padding_length);
    }
}

fn padding(wire: &[u8]) -> usize {
    wire.first_chunk()
        .map_or(0, |header| usize::from(Header::decode(*header).padding_length))
}

#[derive(Debug, Default)]
struct Names<'w> {
    own: Option<Cow<'w, [u8]>>,
    app_root: Option<Cow<'w, [u8]>>,
    document_root: Option<Cow<'w, [u8]>>,
}

impl<'w> Names<'w> {
    /// Reads name-value pairs (section 3.4). Returns `false` if the last is truncated.
    fn read<'c>(
        &mut self,
        mut content: &'c [u8],
        own: &[u8],
        keep: impl Fn(&'c [u8]) -> Cow<'w, [u8]>,
    ) -> bool {
        while !content.is_empty() {
            let Some((name_length, rest)) = length(content) else {
                return false;
            };
            let Some((value_length, rest)) = length(rest) else {
                return false;
            };
            let Some((name, rest)) = rest.split_at_checked(name_length) else {
                return false;
            };
            let Some((value, rest)) = rest.split_at_checked(value_length) else {
                return false;
            };
            content = rest;
            if name == own {
                self.own = Some(keep(value));
            } else if name == APP_ROOT {
                self.app_root = Some(keep(value));
            } else if name == DOCUMENT_ROOT {
                self.document_root = Some(keep(value));
            }
        }
        true
    }

    fn root(self) -> Option<Cow<'w, [u8]>> {
        let is_said = |value: &Cow<'w, [u8]>| !value.is_empty();
        let named = self.own.filter(is_said).or(self.app_root.filter(is_said));
        named.or_else(|| parent(self.document_root.filter(is_said)?))
    }
}

fn parent(of: Cow<'_, [u8]>) -> Option<Cow<'_, [u8]>> {
    match of {
        Cow::Borrowed(path) => {
            let parent = Path::new(OsStr::from_bytes(path)).parent()?;
            Some(Cow::Borrowed(parent.as_os_str().as_bytes()))
        }
        Cow::Owned(path) => {
            let parent = Path::new(OsStr::from_bytes(&path)).parent()?;
            Some(Cow::Owned(parent.as_os_str().as_bytes().to_vec()))
        }
    }
}

fn length(wire: &[u8]) -> Option<(usize, &[u8])> {
    match *wire {
        [short, ref rest @ ..] if short < 0x80 => Some((usize::from(short), rest)),
        [a, b, c, d, ref rest @ ..] => Some((u32::from_be_bytes([a & 0x7f, b, c, d]) as usize, rest)),
        _ => None,
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
