//! Percent-encoding in URLs.

use std::borrow::Cow;

/// Decodes `%` with two hexadecimal digits; everything else stays as it is.
pub fn percent_decode(text: &[u8]) -> Cow<'_, [u8]> {
    percent_encoding::percent_decode(text).into()
}

#[cfg(test)]
mod tests {
    use super::percent_decode;

    #[test]
    fn percent_signs() {
        assert_eq!(&*percent_decode(b"/1%202+%zz%4"), b"/1 2+%zz%4");
    }
}
