//! Percent-encoding in URLs.

use std::borrow::Cow;

/// Decodes `%41` to `A`; keeps `+`, and `%` without two hexadecimal digits.
pub fn percent_decode(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'%') {
        return Cow::Borrowed(text);
    }
    let digit = |at: usize| text.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut decoded = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        match (text[at], digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                at += 3;
            }
            (byte, _, _) => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    Cow::Owned(decoded)
}

#[cfg(test)]
mod tests {
    use super::percent_decode;

    #[test]
    fn percent_signs() {
        assert_eq!(&*percent_decode(b"/1%202+%zz%4"), b"/1 2+%zz%4");
    }
}
