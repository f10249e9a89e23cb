//! Percent-encoding, as in URLs.

/// The punctuation that needs no encoding in any part of a URL (RFC 3986).
pub(crate) const UNRESERVED: &[u8] = b"-._~";

/// Encodes all bytes but ASCII letters, digits and those in `kept`.
pub(crate) fn encode(text: impl AsRef<[u8]>, kept: &[u8]) -> String {
    let mut encoded = String::with_capacity(text.as_ref().len());
    for byte in text.as_ref() {
        if byte.is_ascii_alphanumeric() || kept.contains(byte) {
            encoded.push(char::from(*byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Decodes `%XX`; `None` if an escape is invalid.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2)?;
        let digit = |byte: u8| (byte as char).to_digit(16);
        bytes.push((digit(digits[0])? * 16 + digit(digits[1])?) as u8);
        rest = tail;
    }
    Some(bytes)
}
