//! Normalisation of label values to reduce their cardinality: variable parts are replaced by a placeholder.
//!
//! The steps come from the mapping file or a flag and are compiled once. For StatsD they run when a label set is first
//! resolved, so a known line costs nothing extra; for Kubernetes labels they run when an object is rendered.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use regex::bytes::{Regex, RegexBuilder};

use crate::go;
use crate::util::reasons::reason;

/// Size limit of one compiled expression, in bytes.
const SIZE_LIMIT: usize = 8 << 20;
/// Minimum number of digits of a hexadecimal id.
const MIN_HEX_DIGITS: usize = 8;
/// Minimum number of characters of a base64 run.
const MIN_BASE64_LENGTH: usize = 16;
/// A regular expression replaces at least this many matches in any value.
const MIN_REPLACED: usize = 32;
/// All matches are replaced in values of at most this many bytes.
const SHORT: usize = 256;

/// One normalisation step.
#[derive(Clone, Debug)]
pub enum Step {
    /// `uuid`: each UUID becomes `<uuid>`.
    Uuid,
    /// `hex`: each run of at least 8 hexadecimal digits, at least one of them decimal, becomes `<hex>`.
    Hex,
    /// `number`: each run of digits that is not part of a word becomes `<number>`.
    Number,
    /// `ip`: each address becomes `<ip>`; ports stay.
    Ip,
    /// `email`: each address becomes `<email>`.
    Email,
    /// `timestamp`: each date, with or without a time, and each Unix time becomes `<timestamp>`.
    Timestamp,
    /// `base64`: each run of at least 16 base64 characters with both cases and digits becomes `<base64>`.
    Base64,
    /// `url`: query and fragment are removed, and each path segment that is a number or an id becomes `<id>`.
    Url,
    /// `truncate`: the value is cut after this number of bytes.
    Truncate(usize),
    /// A regular expression: each match is replaced by this text, in which `$1` is its first group.
    Replace(Box<Regex>, String),
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Truncate(one), Self::Truncate(other)) => one == other,
            (Self::Replace(one, with), Self::Replace(other, text)) => {
                one.as_str() == other.as_str() && with == text
            }
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl Step {
    /// The steps without a parameter, by keyword.
    pub(crate) const KEYWORDS: [(&'static str, Self); 8] = [
        ("uuid", Self::Uuid),
        ("hex", Self::Hex),
        ("number", Self::Number),
        ("ip", Self::Ip),
        ("email", Self::Email),
        ("timestamp", Self::Timestamp),
        ("base64", Self::Base64),
        ("url", Self::Url),
    ];

    /// Parses a keyword, or `truncate:BYTES`.
    fn parse(text: &str) -> Option<Self> {
        if let Some(bytes) = text.strip_prefix("truncate:") {
            return bytes.parse().ok().filter(|bytes| *bytes > 0).map(Self::Truncate);
        }
        Self::KEYWORDS.into_iter().find(|(word, _)| *word == text).map(|(_, step)| step)
    }

    /// Compiles the expression of a replacement, in Go's dialect.
    ///
    /// # Errors
    /// The compiler's message.
    pub(crate) fn replace(pattern: &str) -> Result<Box<Regex>, go::regex::PatternError> {
        let translated = go::regex::translate(pattern)?;
        let regex = RegexBuilder::new(&translated.pattern).size_limit(SIZE_LIMIT).build();
        Ok(Box::new(regex?))
    }

    /// Applies the step to a value.
    pub(crate) fn apply(&self, value: &str) -> String {
        // Letters and digits, and these signs.
        let part = |signs: &'static [u8]| {
            move |byte: u8| byte.is_ascii_alphanumeric() || signs.contains(&byte)
        };
        let whole = |signs: &'static [u8], is: fn(&str) -> bool, word: &str| {
            runs(value, part(signs), |run, out| out.push_str(if is(run) { word } else { run }))
        };
        match self {
            Self::Uuid => runs(value, part(b"-"), uuids),
            Self::Hex => whole(b"", is_hex, "<hex>"),
            Self::Number => whole(b"", is_number, "<number>"),
            Self::Ip => runs(value, part(b".:"), addresses),
            Self::Email => whole(b"._%+-@", is_email, "<email>"),
            Self::Timestamp => whole(b"-:.+", is_timestamp, "<timestamp>"),
            Self::Base64 => whole(b"+_-=", is_base64, "<base64>"),
            Self::Url => url(value),
            Self::Truncate(most) => {
                value.get(..value.floor_char_boundary(*most)).unwrap_or_default().to_owned()
            }
            Self::Replace(regex, with) => {
                // For some expressions, such as `[^z]*x|y`, each search reads the rest of the value.
                let most = (SHORT * SHORT / value.len().max(1)).max(MIN_REPLACED);
                let replaced = regex.replacen(value.as_bytes(), most, with.as_bytes());
                String::from_utf8_lossy(&replaced).into_owned()
            }
        }
    }
}

reason! {
    /// The reason why a flag's value is refused.
    pub struct NormaliserError;
}

/// The normalisation steps of labels, by label name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Normaliser {
    labels: Vec<(String, Vec<Step>)>,
}

impl Normaliser {
    /// Parses `LABEL=STEP+STEP,LABEL=STEP`, where a step is a keyword or `truncate:BYTES`.
    ///
    /// # Errors
    /// A description of the first malformed item.
    pub fn parse_flag(text: &str) -> Result<Self, NormaliserError> {
        let mut normaliser = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (label, steps) =
                part.rsplit_once('=').ok_or_else(|| format!("{part:?} is no LABEL=STEP"))?;
            if label.is_empty() {
                return Err(format!("{part:?} has no label").into());
            }
            if normaliser.steps(label).is_some() {
                return Err(format!("label {label:?} is there twice").into());
            }
            let steps = steps.split('+').map(|step| {
                Step::parse(step).ok_or_else(|| {
                    let words = Step::KEYWORDS.map(|(word, _)| word).join(", ");
                    format!("step {step:?} of label {label:?} is none of {words}, truncate:BYTES")
                })
            });
            normaliser.set(label, steps.collect::<Result<_, _>>()?);
        }
        Ok(normaliser)
    }

    /// True if no label has steps.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Sets the steps of a label, replacing earlier ones.
    pub(crate) fn set(&mut self, label: &str, steps: Vec<Step>) {
        self.labels.retain(|(known, _)| known != label);
        self.labels.push((label.to_owned(), steps));
    }

    /// Adds the steps of `other` for labels that have none here.
    pub(crate) fn or(self, other: &Self) -> Self {
        let mut all = other.clone();
        self.labels.into_iter().for_each(|(label, steps)| all.set(&label, steps));
        all
    }

    /// Returns the steps of the label, if any are configured.
    pub(crate) fn steps(&self, label: &str) -> Option<&[Step]> {
        self.labels.iter().find(|(known, _)| known == label).map(|(_, steps)| steps.as_slice())
    }

    /// True if the label has steps to apply.
    pub(crate) fn changes(&self, label: &str) -> bool {
        self.steps(label).is_some_and(|steps| !steps.is_empty())
    }

    /// Returns the normalised value. If it is empty, the series does not get the label.
    pub(crate) fn value<'v>(&self, label: &str, value: &'v str) -> Cow<'v, str> {
        let take = |value: Cow<'v, str>, step: &Step| Cow::Owned(step.apply(&value));
        self.steps(label).unwrap_or_default().iter().fold(Cow::Borrowed(value), take)
    }
}

/// Passes each longest run of bytes that satisfy `part` to `change`, which writes the replacement; other bytes are
/// copied.
fn runs(value: &str, part: impl Fn(u8) -> bool, change: impl Fn(&str, &mut String)) -> String {
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    while !rest.is_empty() {
        // Runs are ASCII, so every cut is at a character boundary.
        let start = rest.bytes().position(&part).unwrap_or(rest.len());
        let (before, from) = rest.split_at(start);
        let end = from.bytes().position(|byte| !part(byte)).unwrap_or(from.len());
        let (run, behind) = from.split_at(end);
        out.push_str(before);
        if !run.is_empty() {
            change(run, &mut out);
        }
        rest = behind;
    }
    out
}

fn is_number(run: &str) -> bool {
    run.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_hex(run: &str) -> bool {
    let digits = run.strip_prefix("0x").unwrap_or(run);
    digits.len() >= MIN_HEX_DIGITS
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        && digits.bytes().any(|byte| byte.is_ascii_digit())
}

fn is_uuid(parts: &[&str]) -> bool {
    parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12])
        && parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Replaces UUIDs, which may be joined to other words by dashes.
fn uuids(run: &str, out: &mut String) {
    let parts: Vec<&str> = run.split('-').collect();
    let mut at = 0;
    while let Some(part) = parts.get(at) {
        if at > 0 {
            out.push('-');
        }
        if parts.get(at..at + 5).is_some_and(is_uuid) {
            out.push_str("<uuid>");
            at += 5;
        } else {
            out.push_str(part);
            at += 1;
        }
    }
}

/// Replaces addresses in a run of letters, digits, dots and colons.
fn addresses(run: &str, out: &mut String) {
    // Double colons are common in names, such as `std::a`: a short IPv6 address must contain a digit and be the entire
    // run.
    if run.bytes().any(|byte| byte.is_ascii_digit()) && matches!(run.parse(), Ok(IpAddr::V6(_))) {
        return out.push_str("<ip>");
    }
    let part = |byte: u8| byte.is_ascii_hexdigit() || b".:".contains(&byte);
    out.push_str(&runs(run, part, address));
}

fn address(run: &str, out: &mut String) {
    let is_address = |text: &str| match text.parse() {
        Ok(IpAddr::V4(_)) => true,
        Ok(IpAddr::V6(_)) => text.matches(':').count() > 2,
        Err(_) => false,
    };
    if is_address(run) {
        out.push_str("<ip>");
    } else if let (Ok(SocketAddr::V4(_)), Some((_, port))) = (run.parse(), run.rsplit_once(':')) {
        out.push_str("<ip>:");
        out.push_str(port);
    } else {
        out.push_str(run);
    }
}

fn is_email(run: &str) -> bool {
    let Some((user, host)) = run.split_once('@') else { return false };
    let Some((name, top)) = host.rsplit_once('.') else { return false };
    !user.is_empty()
        && !name.is_empty()
        && !host.contains('@')
        && top.len() > 1
        && top.bytes().all(|byte| byte.is_ascii_alphabetic())
}

fn is_timestamp(run: &str) -> bool {
    if is_number(run) {
        return matches!(run.len(), 10 | 13 | 16 | 19) && run.starts_with('1');
    }
    let Some((date, time)) = run.split_at_checked(10) else { return false };
    let is_date = date.bytes().enumerate().all(|(at, byte)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    is_date
        && (time.is_empty() || time.starts_with('T'))
        && time.bytes().skip(1).all(|byte| byte.is_ascii_digit() || b":.Z+-".contains(&byte))
}

fn is_base64(run: &str) -> bool {
    let has = |class: fn(&u8) -> bool| run.as_bytes().iter().any(class);
    run.len() >= MIN_BASE64_LENGTH
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_digit)
        && !run.trim_end_matches('=').contains('=')
}

fn url(value: &str) -> String {
    let path = value.split(['?', '#']).next().unwrap_or_default();
    let segment = |segment: &str| {
        let parts: Vec<&str> = segment.split('-').collect();
        let is_id = !segment.is_empty()
            && (is_number(segment) || is_hex(segment) || is_uuid(&parts) || is_base64(segment));
        if is_id { "<id>".to_owned() } else { segment.to_owned() }
    };
    path.split('/').map(segment).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_keyword_replaces_only_variable_parts() {
        for (word, value, expected) in [
            ("uuid", "order-550e8400-e29b-41d4-a716-446655440000-x", "order-<uuid>-x"),
            ("uuid", "550E8400-E29B-41D4-A716-446655440000", "<uuid>"),
            ("uuid", "550e8400-e29b-41d4-a716-44665544000", "550e8400-e29b-41d4-a716-44665544000"),
            ("hex", "rs-7d4b9c6f5d deadbeef 0xdeadbee1 12345678", "rs-<hex> deadbeef <hex> <hex>"),
            ("number", "/users/123/v2/a_45", "/users/<number>/v2/a_<number>"),
            ("number", "ü1é", "ü<number>é"),
            ("ip", "10.0.0.1:8080 and 2001:db8::1, std::a", "<ip>:8080 and <ip>, std::a"),
            ("ip", "1.2.3", "1.2.3"),
            ("ip", "::1 fe80::1%eth0 1:: [::1]:80", "<ip> <ip>%eth0 <ip> [<ip>]:80"),
            ("ip", ":: a::b std::a v1:: ::1x x10.0.0.1", ":: a::b std::a v1:: ::1x x<ip>"),
            ("email", "to a.b+c@example.org", "to <email>"),
            ("email", "a@b @c.de x@y.z1", "a@b @c.de x@y.z1"),
            (
                "timestamp",
                "2026-11-22T13:00:05.1Z 2026-11-22 1763816405 123",
                "<timestamp> <timestamp> <timestamp> 123",
            ),
            (
                "base64",
                "k=dGhpcyBpcyBhIHRlc3Q= but_not_this_one_here",
                "k=dGhpcyBpcyBhIHRlc3Q= but_not_this_one_here",
            ),
            ("base64", "dGhpcyBpcyBhIHRlc3Q1= and NotThisOne", "<base64> and NotThisOne"),
            ("url", "/websocket?appliance=1234", "/websocket"),
            ("url", "https://a.org/u/123/7d4b9c6f5d/x#y", "https://a.org/u/<id>/<id>/x"),
            ("url", "", ""),
        ] {
            let step = Step::KEYWORDS.into_iter().find(|(known, _)| *known == word);
            assert_eq!(step.expect(word).1.apply(value), expected, "{word} {value}");
        }
    }

    /// Each search for this expression reads the whole rest of the value.
    #[test]
    fn regular_expressions_take_linear_time() {
        let step = Step::Replace(Step::replace("[^z]*x|(y)").expect("valid"), "<$1>".to_owned());
        for length in [SHORT, 1 << 16] {
            let replaced = step.apply(&"y".repeat(length));
            let found = replaced.matches("<y>").count();
            let expected = if length == SHORT { SHORT } else { MIN_REPLACED };
            assert_eq!((found, replaced.len()), (expected, length + 2 * expected));
        }
    }

    #[test]
    fn regular_expressions_replace_what_go_replaces() {
        for (pattern, with, value, expected) in [
            ("a*", "-", "baac", "-b-c-"),
            ("(a)(b)?", "[$1$2]", "ab a ü", "[ab] [a] ü"),
            ("^/", "", "//", "/"),
            ("é", "e", "café é", "cafe e"),
            ("x", "y", "", ""),
        ] {
            let step = Step::Replace(Step::replace(pattern).expect(pattern), with.to_owned());
            assert_eq!(step.apply(value), expected, "{pattern}");
        }
    }

    #[test]
    fn steps_follow_one_another_and_the_rule_goes_before_the_defaults() {
        let mut rule = Normaliser::default();
        let regex = Regex::new("^(/[^/]*)/.*$").expect("valid");
        rule.set("url", vec![Step::Url, Step::Replace(Box::new(regex), "$1".to_owned())]);
        let mut defaults = Normaliser::default();
        defaults.set("url", vec![Step::Truncate(0)]);
        defaults.set("who", vec![Step::Truncate(3)]);
        let both = rule.or(&defaults);
        assert_eq!(both.value("url", "/a/1/b?c"), "/a");
        assert_eq!(both.value("who", "aéé"), "aé");
        assert!(matches!(both.value("else", "x"), Cow::Borrowed("x")));
    }
}
