//! What a query string asks for.

use forkyard_base::percent::percent_decode;

/// The form of a status page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageFormat {
    /// Lines of text.
    Text,
    /// A page for a browser.
    Html,
    Xml,
    Json,
    /// Metrics for a scraper.
    Openmetrics,
}

/// What a query string asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    /// In which form.
    pub format: PageFormat,
    /// With the workers.
    pub full: bool,
}

impl Selection {
    /// Reads a query string as PHP would. As in php-fpm 8.2 a key counts if a word starts with it (`j` is `json`), its
    /// value doesn't matter, and of several forms the first of this list wins: html, xml, json, openmetrics.
    pub fn from_query(query: &[u8]) -> Selection {
        let keys: Vec<Vec<u8>> = query.split(|byte| *byte == b'&').filter_map(key).collect();
        let asks = |word: &str| keys.iter().any(|key| word.as_bytes().starts_with(key));
        let format = if asks("html") {
            PageFormat::Html
        } else if asks("xml") {
            PageFormat::Xml
        } else if asks("json") {
            PageFormat::Json
        } else if asks("openmetrics") {
            PageFormat::Openmetrics
        } else {
            PageFormat::Text
        };
        Selection {
            format,
            full: asks("full"),
        }
    }
}

/// The key that PHP makes of `key=value`; `None` if it makes none.
fn key(pair: &[u8]) -> Option<Vec<u8>> {
    let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
    let mut name = decoded(name);
    let blanks = name.iter().take_while(|byte| **byte == b' ').count();
    name.drain(..blanks);
    if let Some(end) = name.iter().position(|byte| *byte == 0) {
        name.truncate(end);
    }
    // `key[]` and `key[x]` are entries of an array of that name; a bracket that isn't closed becomes part of the key.
    if let Some(open) = name.iter().position(|byte| *byte == b'[') {
        if name[open..].contains(&b']') {
            name.truncate(open);
        }
    }
    (!name.is_empty()).then_some(name)
}

/// Undoes percent-encoding, and a `+` for a blank; what isn't percent-encoding stays as it is.
fn decoded(name: &[u8]) -> Vec<u8> {
    let blanks: Vec<u8> = (name.iter())
        .map(|byte| if *byte == b'+' { b' ' } else { *byte })
        .collect();
    percent_decode(&blanks).into_owned()
}
