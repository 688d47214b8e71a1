//! Parses the status page's query string.

use percent_encoding::percent_decode;

/// Format of the status page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageFormat {
    /// Plain text.
    Text,
    /// For browsers.
    Html,
    Xml,
    Json,
    /// For scrapers.
    Openmetrics,
}

/// The requested page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    /// Its format.
    pub format: PageFormat,
    /// Include the workers.
    pub full: bool,
}

impl Selection {
    /// Parses a query string as php-fpm 8.2 does: a key matches if a word starts with it (`j` is `json`), values are
    /// ignored, and the first match of html, xml, json, openmetrics wins.
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

/// The key that PHP derives from `key=value`, if any.
fn key(pair: &[u8]) -> Option<Vec<u8>> {
    let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
    let mut name = decoded(name);
    let blanks = name.iter().take_while(|byte| **byte == b' ').count();
    name.drain(..blanks);
    if let Some(end) = name.iter().position(|byte| *byte == 0) {
        name.truncate(end);
    }
    // `key[]` and `key[x]` are array entries; an unclosed bracket belongs to the key.
    if let Some(open) = name.iter().position(|byte| *byte == b'[') {
        if name[open..].contains(&b']') {
            name.truncate(open);
        }
    }
    (!name.is_empty()).then_some(name)
}

fn decoded(name: &[u8]) -> Vec<u8> {
    let blanks: Vec<u8> = (name.iter())
        .map(|byte| if *byte == b'+' { b' ' } else { *byte })
        .collect();
    percent_decode(&blanks).collect()
}
