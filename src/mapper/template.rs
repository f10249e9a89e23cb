//! Templates for names and label values, with references to captures.
//!
//! Templates are parsed once, when the file is loaded. Captured text is inserted verbatim; references and
//! format directives in it have no effect.

use std::sync::LazyLock;

use regex::Regex;

/// The characters of a reference in a regex rule: letters, digits and underscores as Go's `unicode.IsLetter` and
/// `unicode.IsDigit` tell them. Rust's `char::is_alphanumeric` has other numbers too, such as `²`.
static WORD: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^[\p{L}\p{Nd}_]+").ok());

/// A piece of a template.
#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Literal(String),
    /// A capture by number. 0 is the whole name (glob) or the whole match (regex).
    Capture(usize),
    /// The first of these groups that took part in the match.
    FirstOf(Vec<usize>),
}

/// A parsed template.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Template {
    pieces: Vec<Piece>,
    /// References that are always empty, as written.
    pub(super) empty_references: Vec<String>,
}

/// The captures of a match.
pub(super) trait Captures {
    /// Returns the text of capture `index`; `None` if that group took no part in the match.
    fn get(&self, index: usize) -> Option<&str>;
}

impl Template {
    /// Parses a template of a glob rule with `stars` captures.
    ///
    /// A reference is `$`, an optional `{`, the longest run of letters, digits, underscores and `$`, and an
    /// optional `}`. It expands to nothing unless it is the number of a capture.
    pub(super) fn glob(text: &str, stars: usize) -> Self {
        let mut template = Self::default();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            let inner = after.strip_prefix('{').unwrap_or(after);
            let length = inner
                .bytes()
                .take_while(|&byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$'))
                .count();
            let (reference, behind) = inner.split_at(length);
            template.literal(before);
            if reference.is_empty() {
                template.literal("$");
                rest = after;
                continue;
            }
            rest = behind.strip_prefix('}').unwrap_or(behind);
            match reference.parse::<usize>() {
                Ok(index) if index <= stars => template.pieces.push(Piece::Capture(index)),
                _ => template.empty_references.push(format!("${reference}")),
            }
        }
        template.literal(rest);
        template
    }

    /// Parses a template of a regex rule, in the syntax of Go's `Regexp.Expand`. `groups[n]` is the name of
    /// group `n`.
    pub(super) fn regex(text: &str, groups: &[Option<String>]) -> Self {
        let mut template = Self::default();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            template.literal(before);
            if let Some(after) = after.strip_prefix('$') {
                template.literal("$");
                rest = after;
                continue;
            }
            let Some((reference, behind)) = regex_reference(after) else {
                template.literal("$");
                rest = after;
                continue;
            };
            rest = behind;
            // A number with a leading zero is a name, which no group has.
            let number = reference.bytes().all(|byte| byte.is_ascii_digit())
                && (reference.len() == 1 || !reference.starts_with('0'));
            let found: Vec<usize> = if number {
                reference
                    .parse()
                    .into_iter()
                    .filter(|&index: &usize| index < groups.len())
                    .collect()
            } else {
                let named = groups
                    .iter()
                    .enumerate()
                    .filter(|(_, name)| name.as_deref() == Some(reference));
                named.map(|(index, _)| index).collect()
            };
            match found.as_slice() {
                [] => template.empty_references.push(format!("${reference}")),
                [index] => template.pieces.push(Piece::Capture(*index)),
                _ => template.pieces.push(Piece::FirstOf(found)),
            }
        }
        template.literal(rest);
        template
    }

    fn literal(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.pieces.last_mut() {
            Some(Piece::Literal(last)) => last.push_str(text),
            _ => self.pieces.push(Piece::Literal(text.to_owned())),
        }
    }

    /// Returns the text of a template without effective references.
    pub(super) fn as_literal(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// Returns true if the template refers to captures, including `$0`.
    pub(super) fn has_references(&self) -> bool {
        self.pieces.iter().any(|piece| !matches!(piece, Piece::Literal(_)))
    }

    /// Appends the expanded template.
    #[inline]
    pub(super) fn expand(&self, captures: &impl Captures, out: &mut String) {
        for piece in &self.pieces {
            let text = match piece {
                Piece::Literal(text) => text,
                Piece::Capture(index) => captures.get(*index).unwrap_or_default(),
                Piece::FirstOf(groups) => {
                    groups.iter().find_map(|&group| captures.get(group)).unwrap_or_default()
                }
            };
            out.push_str(text);
        }
    }
}

/// Splits `name` or `{name}` after a `$` from the following text.
fn regex_reference(after: &str) -> Option<(&str, &str)> {
    let (inner, braced) = match after.strip_prefix('{') {
        Some(inner) => (inner, true),
        None => (after, false),
    };
    let (reference, behind) = inner.split_at(WORD.as_ref()?.find(inner)?.end());
    if braced {
        behind.strip_prefix('}').map(|behind| (reference, behind))
    } else {
        Some((reference, behind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Vec<Option<&'static str>>);

    impl Captures for Fixed {
        fn get(&self, index: usize) -> Option<&str> {
            self.0.get(index).copied().flatten()
        }
    }

    fn expand(template: &Template, captures: &[Option<&'static str>]) -> String {
        let mut out = String::new();
        template.expand(&Fixed(captures.to_vec()), &mut out);
        out
    }

    #[test]
    fn glob_references() {
        let captures = [Some("a.x.y"), Some("x"), Some("%s$2")];
        for (text, want) in [
            ("$1", "x"),
            ("${1}b", "xb"),
            ("$1}b", "xb"),
            ("${1", "x"),
            ("$1b", ""),
            ("$01", "x"),
            ("$0", "a.x.y"),
            ("$3", ""),
            ("$1$2", ""),
            ("$1-$2", "x-%s$2"),
            ("100% $1%", "100% x%"),
            ("$", "$"),
            ("$-", "$-"),
            ("${}", "${}"),
            ("$$1", ""),
            ("$99999999999999999999999", ""),
            ("é$1é", "éxé"),
        ] {
            assert_eq!(expand(&Template::glob(text, 2), &captures), want, "{text}");
        }
    }

    #[test]
    fn ten_stars() {
        let captures: Vec<_> =
            "0abcdefghij".chars().map(|c| Some(&*c.to_string().leak())).collect();
        assert_eq!(expand(&Template::glob("$1 $10", 10), &captures), "a j");
    }

    #[test]
    fn regex_references() {
        let groups = [None, Some("n".to_owned()), None, Some("n".to_owned())];
        let captures = [Some("all"), None, Some("two"), Some("three")];
        for (text, want) in [
            ("$2", "two"),
            ("$2_x", ""),
            ("$2²", "two²"),
            ("$2é", ""),
            ("$2٣", ""),
            ("${2}_x", "two_x"),
            ("$n", "three"),
            ("$1", ""),
            ("$0", "all"),
            ("$$2", "$2"),
            ("$9", ""),
            ("$02", ""),
            ("${2", "${2"),
            ("${2-}", "${2-}"),
            ("$", "$"),
            ("a$-b", "a$-b"),
        ] {
            assert_eq!(expand(&Template::regex(text, &groups), &captures), want, "{text}");
        }
    }

    #[test]
    fn empty_references_are_detected() {
        assert_eq!(Template::glob("$1 $3 $x", 2).empty_references, ["$3", "$x"]);
        assert!(Template::glob("$0 $1 $2", 2).empty_references.is_empty());
        assert_eq!(Template::glob("$7", 2).as_literal(), Some(""));
        assert_eq!(Template::glob("abc", 2).as_literal(), Some("abc"));
        assert!(!Template::glob("$7", 2).has_references());
    }
}
