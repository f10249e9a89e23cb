//! Static analysis of regular expressions, to warn about rules that never win.
//!
//! It proves coverage for simple forms of patterns and returns "unknown" for all others.

use crate::go;

/// Returns the text that a pattern searches for, if it matches every name with that text: `foo`, `^.*foo`,
/// `foo.*$`.
pub(super) fn required_text(pattern: &str) -> Option<String> {
    // `.` excludes only the line feed, which no name contains.
    let from_anywhere = pattern.strip_prefix("^.*").or_else(|| pattern.strip_prefix(".*"));
    let core = from_anywhere.unwrap_or(pattern);
    let core = core.strip_suffix(".*$").or_else(|| core.strip_suffix(".*")).unwrap_or(core);
    literal(core)
}

/// Returns a glob that matches every name the pattern matches: `app.*.count` for `^app\.([^.]+)\.count$`.
pub(super) fn as_glob(pattern: &str) -> Option<String> {
    let inner = pattern.strip_prefix('^')?.strip_suffix('$')?;
    let segments: Option<Vec<String>> = inner.split(r"\.").map(segment).collect();
    Some(segments?.join("."))
}

fn segment(pattern: &str) -> Option<String> {
    if is_within_segment(pattern) {
        return Some("*".to_owned());
    }
    literal(pattern).filter(|text| !text.is_empty() && !text.contains(['.', '*']))
}

/// Returns true if the pattern matches only non-empty texts without dots.
fn is_within_segment(pattern: &str) -> bool {
    const KNOWN: [&str; 11] = [
        "[^.]+",
        r"[^\.]+",
        r"\w+",
        r"\d+",
        "[a-z]+",
        "[0-9]+",
        "[a-z0-9]+",
        "[a-zA-Z]+",
        "[a-zA-Z0-9]+",
        "[a-zA-Z0-9_]+",
        "[a-zA-Z0-9_-]+",
    ];
    let inner = pattern.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let inner = match inner {
        Some(named) if named.starts_with("?P<") => named.split_once('>').map(|(_, inner)| inner),
        Some(group) => Some(group.strip_prefix("?:").unwrap_or(group)),
        None => Some(pattern),
    };
    inner.is_some_and(|inner| KNOWN.contains(&inner))
}

/// Returns the text of the pattern, if it is a literal.
fn literal(pattern: &str) -> Option<String> {
    let translated = go::regex::translate(pattern).ok()?;
    translated.only_literal.then(|| translated.literals.into_iter().next()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_texts_of_patterns() {
        for (pattern, text) in [
            ("foo", "foo"),
            ("foo.*", "foo"),
            (".*foo", "foo"),
            ("^.*foo.*$", "foo"),
            (r"a\.b.*", "a.b"),
            (r"a\\.*", "a\\"),
        ] {
            assert_eq!(required_text(pattern).as_deref(), Some(text), "{pattern}");
        }
        for pattern in ["^foo", "foo$", "fo.*o", r"a\.*", "a|b.*", "(?i)foo.*", "fo+", "a..*"] {
            assert_eq!(required_text(pattern), None, "{pattern}");
        }
    }

    #[test]
    fn globs_that_cover_patterns() {
        for (pattern, glob) in [
            (r"^a\.b$", "a.b"),
            ("^a$", "a"),
            (r"^app\.([^.]+)\.count$", "app.*.count"),
            (r"^(?P<service>\w+)\.x$", "*.x"),
            (r"^a\.(?:\d+)$", "a.*"),
        ] {
            assert_eq!(as_glob(pattern).as_deref(), Some(glob), "{pattern}");
        }
        for pattern in [
            r"a\.b", r"^a\.b", r"a\.b$", "^a.b$", r"^a\..*$", r"^a\.\*$", r"^a\\.b$", r"^a\.$",
            "^(a|b)$",
        ] {
            assert_eq!(as_glob(pattern), None, "{pattern}");
        }
    }
}
