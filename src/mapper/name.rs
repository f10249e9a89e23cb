//! Escapes StatsD names and tag keys into Prometheus names.
//!
//! A leading ASCII digit gets the prefix `_`. Each character outside `[a-zA-Z0-9_]` becomes `_`, and a run of
//! dashes becomes a single `_`. The empty name stays empty.

use std::borrow::Cow;

const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns true if `name` needs no escaping.
pub fn is_escaped(name: &str) -> bool {
    name.as_bytes().first().is_none_or(|first| !first.is_ascii_digit())
        && name.bytes().all(is_plain)
}

/// Returns the escaped name; borrowed if nothing changed.
pub fn escape(name: &str) -> Cow<'_, str> {
    if is_escaped(name) {
        return Cow::Borrowed(name);
    }
    // The exact length in most cases, so that callers can box it without a reallocation.
    let prefix = name.as_bytes().first().is_some_and(u8::is_ascii_digit);
    let mut out = String::with_capacity(name.len() + usize::from(prefix));
    escape_into(&mut out, name);
    Cow::Owned(out)
}

/// Appends the escaped `name` to `out`.
pub fn escape_into(out: &mut String, name: &str) {
    if name.as_bytes().first().is_some_and(u8::is_ascii_digit) {
        out.push('_');
    }
    let (mut rest, mut after_dash) = (name, false);
    while let Some(other) = rest.bytes().position(|byte| !is_plain(byte)) {
        let (plain, others) = rest.split_at(other);
        out.push_str(plain);
        let mut characters = others.chars();
        let dash = characters.next() == Some('-');
        if !(dash && after_dash && plain.is_empty()) {
            out.push('_');
        }
        (rest, after_dash) = (characters.as_str(), dash);
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_names_are_borrowed() {
        for name in ["", "a", "a_b9", "_"] {
            assert!(matches!(escape(name), Cow::Borrowed(text) if text == name), "{name}");
        }
    }

    #[test]
    fn only_runs_of_dashes_collapse() {
        let cases = [
            ("a.b", "a_b"),
            ("a..b", "a__b"),
            ("a--b", "a_b"),
            ("a.-b", "a__b"),
            ("a-.-b", "a___b"),
            ("a---", "a_"),
            ("1a", "_1a"),
            ("a:b", "a_b"),
            ("äß", "__"),
            ("-1", "_1"),
            ("٣", "_"),
        ];
        for (name, want) in cases {
            assert_eq!(escape(name), want, "{name}");
        }
    }
}
