//! Parses the CGI header of an answer.

use hyper::header::{HeaderMap, HeaderName, HeaderValue, InvalidHeaderName, InvalidHeaderValue};
use hyper::{StatusCode, header};

pub(crate) const MOST_BYTES: usize = 256 * 1024;
const MOST_FIELDS: usize = 256;

#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) length: usize,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum HeadError {
    #[error("the header has no end")]
    Endless,
    #[error("the header is wrong: {0}")]
    Wrong(httparse::Error),
    #[error("the status is no number")]
    Status,
    #[error(transparent)]
    Name(#[from] InvalidHeaderName),
    #[error(transparent)]
    Value(#[from] InvalidHeaderValue),
}

/// Parses the header; `None`: incomplete.
pub(crate) fn head(bytes: &[u8]) -> Result<Option<Head>, HeadError> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let (length, fields) = match httparse::parse_headers(bytes, &mut fields) {
        Ok(httparse::Status::Complete(parsed)) => parsed,
        Ok(httparse::Status::Partial) if bytes.len() < MOST_BYTES => return Ok(None),
        Ok(httparse::Status::Partial) => return Err(HeadError::Endless),
        Err(error) => return Err(HeadError::Wrong(error)),
    };
    let mut status = None;
    let mut headers = HeaderMap::new();
    for field in fields {
        if field.name.eq_ignore_ascii_case("status") {
            let number = field
                .value
                .get(..3)
                .and_then(|digits| StatusCode::from_bytes(digits).ok());
            status = Some(number.ok_or(HeadError::Status)?);
            continue;
        }
        let name = HeaderName::from_bytes(field.name.as_bytes())?;
        let value = HeaderValue::from_bytes(field.value)?;
        if name != header::CONNECTION && name != header::TRANSFER_ENCODING {
            headers.append(name, value);
        }
    }
    let usual = match headers.contains_key(header::LOCATION) {
        true => StatusCode::FOUND,
        false => StatusCode::OK,
    };
    Ok(Some(Head {
        status: status.unwrap_or(usual),
        headers,
        length,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_soon_as_it_is_there() {
        assert!(head(b"Content-Type: text/plain\r\n").unwrap().is_none());
        let whole = head(b"Status: 404 Not Found\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\r\nbody").unwrap();
        let whole = whole.unwrap();
        assert_eq!((whole.status.as_u16(), whole.length), (404, 55));
        assert_eq!(whole.headers.get_all("set-cookie").iter().count(), 2);
        let moved = head(b"Location: /x\n\n").unwrap().unwrap();
        assert_eq!(moved.status, 302);
        assert!(head(b"Status: yes\r\n\r\n").is_err());
        assert!(head(b"no header\r\n\r\n").is_err());
    }
}
