//! Parses the file and validates its keys and values.
//!
//! The format is that of the Prometheus exporter toolkit, which kube-state-metrics accepts as
//! `--tls-config`. The result is a [`File`] or all problems. Certificates, keys and password hashes
//! are not validated here, because that happens at other times.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};

use super::names;
use crate::config_file::{
    Document, Entry, Node, Position, Problem, ProblemClass, Resolved, Values, nearest,
};
use crate::go::strconv;

/// The content of the file.
#[derive(Clone, Debug)]
pub(super) struct File {
    /// The TLS settings, if any.
    pub(super) tls: TlsSection,
    /// Offers HTTP/2 with TLS.
    pub(super) http2: bool,
    /// Headers to add to every response.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    /// Users and the hashes of their passwords.
    pub(super) users: BTreeMap<String, String>,
    /// The rate limit.
    pub(super) rate: Rate,
}

/// A value given inline or in a separate file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Material {
    /// The file, which takes precedence.
    pub(super) file: Option<PathBuf>,
    /// The inline text.
    pub(super) text: Option<String>,
}

impl Material {
    /// Returns whether it is set.
    pub(super) fn is_some(&self) -> bool {
        self.file.is_some() || self.text.is_some()
    }
}

/// `tls_server_config`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TlsSection {
    pub(super) certificate: Material,
    pub(super) key: Material,
    pub(super) client_ca: Material,
    /// The mode, which may be unknown.
    pub(super) client_auth: String,
    /// The accepted names of client certificates.
    pub(super) client_names: Option<Vec<String>>,
    /// From 10 for TLS 1.0 to 13.
    pub(super) min_version: Option<u8>,
    pub(super) max_version: Option<u8>,
    /// IANA names; an empty list means all.
    pub(super) suites: Vec<String>,
    /// Go's names; an empty list means all.
    pub(super) curves: Vec<String>,
}

impl TlsSection {
    /// Returns whether any setting requires TLS. Those that only adjust it do not.
    pub(super) fn is_wanted(&self) -> bool {
        self.certificate.is_some()
            || self.key.is_some()
            || self.client_ca.is_some()
            || !self.client_auth.is_empty()
    }
}

/// `rate_limit`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rate {
    /// The interval per request; `None` for no limit.
    pub(super) interval: Option<Duration>,
    /// The number of requests allowed at once.
    pub(super) burst: u32,
}

/// The headers that may be set, with the allowed values; an empty list allows any.
const HEADERS: [(&str, &[&str]); 5] = [
    ("Content-Security-Policy", &[]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-XSS-Protection", &[]),
    ("Strict-Transport-Security", &[]),
];

/// The keys at the top level.
pub(super) const SECTIONS: [&str; 4] =
    ["tls_server_config", "http_server_config", "basic_auth_users", "rate_limit"];

const TLS_KEYS: [&str; 13] = [
    "cert_file",
    "cert",
    "key_file",
    "key",
    "client_auth_type",
    "client_ca_file",
    "client_ca",
    "client_allowed_sans",
    "min_version",
    "max_version",
    "cipher_suites",
    "curve_preferences",
    "prefer_server_cipher_suites",
];

impl File {
    /// Parses the text of a file in `directory`, to which its paths are relative.
    ///
    /// # Errors
    ///
    /// All problems of the file.
    pub(super) fn parse(text: &str, directory: &Path) -> Result<Self, Vec<Problem>> {
        let document = Document::parse(text).map_err(|problem| vec![problem])?;
        let mut reader = Reader { values: Values::new(&document), directory };
        let file = reader.file(document.root());
        let problems = reader.values.problems;
        if problems.is_empty() { Ok(file) } else { Err(problems) }
    }
}

struct Reader<'d> {
    values: Values<'d>,
    directory: &'d Path,
}

impl<'d> Reader<'d> {
    fn file(&mut self, root: Option<&'d Node>) -> File {
        let mut file = File {
            tls: TlsSection::default(),
            http2: true,
            headers: Vec::new(),
            users: BTreeMap::new(),
            rate: Rate::default(),
        };
        let entries = root.and_then(|root| self.entries(root, "the file"));
        for ((key, position), value) in entries.unwrap_or_default() {
            match key {
                "tls_server_config" => file.tls = self.tls(value),
                "http_server_config" => (file.http2, file.headers) = self.http(value),
                "basic_auth_users" => file.users = self.users(value),
                "rate_limit" => file.rate = self.rate(value),
                _ => self.unknown(key, position, &SECTIONS),
            }
        }
        file
    }

    fn tls(&mut self, node: &'d Node) -> TlsSection {
        let mut tls = TlsSection::default();
        for ((key, position), value) in self.entries(node, "tls_server_config").unwrap_or_default()
        {
            match key {
                "cert_file" => tls.certificate.file = self.path(value, key),
                "cert" => tls.certificate.text = self.some_text(value, key),
                "key_file" => tls.key.file = self.path(value, key),
                "key" => tls.key.text = self.some_text(value, key),
                "client_ca_file" => tls.client_ca.file = self.path(value, key),
                "client_ca" => tls.client_ca.text = self.some_text(value, key),
                "client_auth_type" => {
                    tls.client_auth = self.values.text(value, key).unwrap_or_default()
                }
                "client_allowed_sans" => tls.client_names = self.texts(value, key),
                "min_version" => tls.min_version = self.version(value, key),
                "max_version" => tls.max_version = self.version(value, key),
                "cipher_suites" => {
                    tls.suites = self.words(value, key, "cipher suite", &names::SUITES);
                }
                "curve_preferences" => {
                    tls.curves = self.words(value, key, "curve", &names::CURVES);
                }
                "prefer_server_cipher_suites" => drop(self.values.boolean(value, key)),
                _ => self.unknown(key, position, &TLS_KEYS),
            }
        }
        tls
    }

    /// Returns whether HTTP/2 is on, and the headers. A section that is present but null turns
    /// everything off.
    fn http(&mut self, node: &'d Node) -> (bool, Vec<(HeaderName, HeaderValue)>) {
        let (mut http2, mut headers) = (!node.is_null(), Vec::new());
        for ((key, position), value) in self.entries(node, "http_server_config").unwrap_or_default()
        {
            match key {
                "http2" => http2 = self.values.boolean(value, key).unwrap_or(false),
                "headers" => headers = self.headers(value),
                _ => self.unknown(key, position, &["http2", "headers"]),
            }
        }
        (http2, headers)
    }

    fn headers(&mut self, node: &'d Node) -> Vec<(HeaderName, HeaderValue)> {
        let mut headers = Vec::new();
        for ((key, position), node) in self.entries(node, "headers").unwrap_or_default() {
            let before = self.values.problems.len();
            let value = self.values.text(node, key).unwrap_or_default();
            if self.values.problems.len() > before {
                continue;
            }
            let Some((_, allowed)) = HEADERS.iter().find(|(name, _)| *name == key) else {
                let names = HEADERS.map(|(name, _)| name);
                self.bad(position, format!("header {key:?} cannot be set"), one_of(&names));
                continue;
            };
            if !allowed.is_empty() && !allowed.contains(&value.as_str()) {
                let message = format!("{key} is {value:?}");
                self.bad(node.position, message, one_of(allowed));
                continue;
            }
            // A header is one line.
            let line: Vec<u8> =
                value.bytes().map(|b| if b < b' ' || b == 127 { b' ' } else { b }).collect();
            let name = HeaderName::from_bytes(key.as_bytes());
            headers.extend(name.ok().zip(HeaderValue::from_bytes(line.trim_ascii()).ok()));
        }
        headers
    }

    fn users(&mut self, node: &'d Node) -> BTreeMap<String, String> {
        let entries = self.entries(node, "basic_auth_users").unwrap_or_default();
        let user = |((name, _), value): Entry<'d>| {
            let hash = self.values.text(value, &format!("the hash of user {name:?}"));
            (name.to_owned(), hash.unwrap_or_default())
        };
        entries.into_iter().map(user).collect()
    }

    fn rate(&mut self, node: &'d Node) -> Rate {
        let mut rate = Rate::default();
        for ((key, position), value) in self.entries(node, "rate_limit").unwrap_or_default() {
            match key {
                // A negative interval means no limit, too.
                "interval" => {
                    let nanos = self.duration(value, key).unwrap_or(0);
                    let nanos = u64::try_from(nanos).ok().filter(|nanos| *nanos > 0);
                    rate.interval = nanos.map(Duration::from_nanos);
                }
                "burst" => {
                    let burst = self.int(value, key).unwrap_or(0).clamp(0, u32::MAX.into());
                    rate.burst = u32::try_from(burst).unwrap_or(0);
                }
                _ => self.unknown(key, position, &["interval", "burst"]),
            }
        }
        rate
    }

    /// Returns the entries of a section; `None` if it is null.
    fn entries(&mut self, node: &'d Node, what: &str) -> Option<Vec<Entry<'d>>> {
        self.values.entries(node, what, "keys with values")
    }

    fn some_text(&mut self, node: &Node, what: &str) -> Option<String> {
        self.values.text(node, what).filter(|text| !text.is_empty())
    }

    fn path(&mut self, node: &Node, what: &str) -> Option<PathBuf> {
        self.some_text(node, what).map(|path| self.directory.join(path))
    }

    fn texts(&mut self, node: &Node, what: &str) -> Option<Vec<String>> {
        let items = self.values.items(node, what)?;
        Some(items.iter().map(|item| self.values.text(item, what).unwrap_or_default()).collect())
    }

    /// Parses a list of known words. A null item names nothing, and does not mean all.
    fn words(&mut self, node: &Node, key: &str, what: &str, known: &[&str]) -> Vec<String> {
        let texts = self.texts(node, key).unwrap_or_default();
        for text in texts.iter().filter(|text| !text.is_empty()) {
            if !known.contains(&text.as_str()) {
                let message = format!("unknown {what}: {text}");
                self.bad(node.position, message, suggestion(text, known));
            }
        }
        texts
    }

    fn version(&mut self, node: &Node, what: &str) -> Option<u8> {
        const VERSIONS: [&str; 4] = ["TLS10", "TLS11", "TLS12", "TLS13"];
        let text = self.values.text(node, what)?;
        let version = VERSIONS.iter().zip(10_u8..).find(|(name, _)| **name == text);
        if version.is_none() {
            self.bad(node.position, format!("unknown TLS version: {text}"), one_of(&VERSIONS));
        }
        version.map(|(_, number)| number)
    }

    fn int(&mut self, node: &Node, what: &str) -> Option<i64> {
        self.values.read(node, what, "a number without quotes", |_, resolved| match resolved {
            Resolved::Int(number) => i64::try_from(number).ok(),
            Resolved::Float(number) => whole(number),
            _ => None,
        })
    }

    /// Parses a duration to nanoseconds, which is also the unit of a bare number.
    fn duration(&mut self, node: &Node, what: &str) -> Option<i64> {
        const WANTED: &str = "a time such as 1s, 500ms or 1m30s";
        self.values.read(node, what, WANTED, |text, resolved| match resolved {
            Resolved::Int(number) => i64::try_from(number).ok(),
            Resolved::Float(number) => whole(number),
            Resolved::Text => strconv::parse_duration(text).ok(),
            _ => None,
        })
    }

    fn bad(&mut self, position: Position, message: String, hint: String) {
        self.values.error(ProblemClass::InvalidOptions, position, message, hint);
    }

    fn unknown(&mut self, key: &str, position: Position, known: &[&str]) {
        let message = format!("unknown key {key:?}");
        let hint = suggestion(key, known);
        self.values.error(ProblemClass::UnknownField, position, message, hint);
    }
}

/// Truncates a number to an integer, if it fits.
fn whole(number: f64) -> Option<i64> {
    // The bounds are powers of two, which a float represents exactly.
    let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number);
    #[expect(clippy::cast_possible_truncation, reason = "the fraction is to go, and the rest fits")]
    fits.then_some(number as i64)
}

fn one_of(words: &[&str]) -> String {
    format!("use one of: {}", words.join(", "))
}

fn suggestion(word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None => one_of(known),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<File, Vec<(u64, u64)>> {
        File::parse(text, Path::new("/etc/web")).map_err(|problems| {
            problems.iter().map(|problem| (problem.line, problem.column)).collect()
        })
    }

    #[test]
    fn paths_are_relative_to_the_file() {
        let file = parse("tls_server_config: {cert_file: a/b, key_file: /k}\n").expect("valid");
        assert_eq!(file.tls.certificate.file, Some(PathBuf::from("/etc/web/a/b")));
        assert_eq!(file.tls.key.file, Some(PathBuf::from("/k")));
        for text in ["", "tls_server_config: {min_version: TLS13, client_allowed_sans: [a]}"] {
            assert!(!parse(text).expect("valid").tls.is_wanted(), "{text}");
        }
        for key in ["client_auth_type", "client_ca", "client_ca_file", "key", "cert"] {
            let text = format!("tls_server_config: {{{key}: x}}");
            assert!(parse(&text).expect("valid").tls.is_wanted(), "{text}");
        }
    }

    #[test]
    fn every_problem_has_a_position() {
        let text = "tls_server_config:\n  min_version: TLS14\n  cipher_suites: [TLS_NOPE]\n\
                    http_server_config:\n  headers: {X-A: b, X-Frame-Options: DENY}\nnope: 1\n\
                    rate_limit: {burst: x, interval: often}\nnope: 2\n";
        let mut positions = parse(text).expect_err("invalid");
        positions.sort_unstable();
        assert_eq!(
            positions,
            [(2, 16), (3, 18), (5, 13), (5, 38), (6, 1), (7, 21), (7, 34), (8, 1), (8, 1)]
        );
    }

    #[test]
    fn values_are_parsed_like_in_the_original() {
        for (text, http2) in [
            ("{}", true),
            ("http_server_config:", false),
            ("http_server_config: {}", true),
            ("http_server_config: {http2: }", false),
            ("http_server_config: {http2: n}", false),
        ] {
            assert_eq!(parse(text).expect(text).http2, http2, "{text}");
        }
        for (text, interval, burst) in [
            ("rate_limit: {interval: 5, burst: 1.5}", Some(5), 1),
            ("rate_limit: {interval: '10s', burst: -1}", Some(10_000_000_000), 0),
            ("rate_limit: {interval: -1m}", None, 0),
            ("rate_limit: {interval: 0s, burst: 2}", None, 2),
        ] {
            let rate = parse(text).expect(text).rate;
            let want = Rate { interval: interval.map(Duration::from_nanos), burst };
            assert_eq!(rate, want, "{text}");
        }
        let text = "http_server_config: {headers: {X-XSS-Protection: \"a\\nb\"}}";
        assert_eq!(parse(text).expect(text).headers[0].1, "a b");
    }
}
