//! Parses the file and validates its keys and values.
//!
//! The format is that of the Prometheus exporter toolkit, which kube-state-metrics accepts as
//! `--tls-config`. The result is a [`File`] or all problems. Certificates, keys and password hashes
//! are not validated here, because that happens at other times.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};

use crate::config_file::{
    Document, Entry, Node, Position, Problem, ProblemClass, Resolved, Values, nearest,
};
use crate::go::strconv;

/// The content of the file.
#[derive(Clone, Debug, Default)]
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

/// The suites known to the original; those of TLS 1.3 are always enabled.
const SUITES: [&str; 13] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
];

/// Go's names of curves.
const CURVES: [&str; 4] = ["CurveP256", "CurveP384", "CurveP521", "X25519"];

/// Parses the value of a key into a part of the file.
type Setter<T> = for<'d> fn(&mut Reader<'d>, &mut T, &'d Node, &str);

/// The keys of a section.
type Keys<T> = [(&'static str, Setter<T>)];

const SECTIONS: &Keys<File> = &[
    ("tls_server_config", |reader, file, node, key| {
        reader.section(node, key, TLS_KEYS, &mut file.tls);
    }),
    ("http_server_config", |reader, file, node, key| {
        // A section that is present but null turns everything off.
        file.http2 = !node.is_null();
        reader.section(node, key, HTTP_KEYS, file);
    }),
    ("basic_auth_users", |reader, file, node, _| file.users = reader.users(node)),
    ("rate_limit", |reader, file, node, key| {
        reader.section(node, key, RATE_KEYS, &mut file.rate);
    }),
];

const TLS_KEYS: &Keys<TlsSection> = &[
    ("cert_file", |reader, tls, node, key| tls.certificate.file = reader.path(node, key)),
    ("cert", |reader, tls, node, key| tls.certificate.text = reader.some_text(node, key)),
    ("key_file", |reader, tls, node, key| tls.key.file = reader.path(node, key)),
    ("key", |reader, tls, node, key| tls.key.text = reader.some_text(node, key)),
    ("client_auth_type", |reader, tls, node, key| {
        tls.client_auth = reader.values.text(node, key).unwrap_or_default();
    }),
    ("client_ca_file", |reader, tls, node, key| tls.client_ca.file = reader.path(node, key)),
    ("client_ca", |reader, tls, node, key| tls.client_ca.text = reader.some_text(node, key)),
    ("client_allowed_sans", |reader, tls, node, key| tls.client_names = reader.texts(node, key)),
    ("min_version", |reader, tls, node, key| tls.min_version = reader.version(node, key)),
    ("max_version", |reader, tls, node, key| tls.max_version = reader.version(node, key)),
    ("cipher_suites", |reader, tls, node, key| {
        tls.suites = reader.words(node, key, "cipher suite", &SUITES);
    }),
    ("curve_preferences", |reader, tls, node, key| {
        tls.curves = reader.words(node, key, "curve", &CURVES);
    }),
    ("prefer_server_cipher_suites", |reader, _, node, key| {
        reader.values.boolean(node, key);
    }),
];

const HTTP_KEYS: &Keys<File> = &[
    ("http2", |reader, file, node, key| {
        file.http2 = reader.values.boolean(node, key).unwrap_or(false);
    }),
    ("headers", |reader, file, node, _| file.headers = reader.headers(node)),
];

const RATE_KEYS: &Keys<Rate> = &[
    ("interval", |reader, rate, node, key| {
        // A negative interval means no limit, too.
        let nanos = reader.duration(node, key).and_then(|nanos| u64::try_from(nanos).ok());
        rate.interval = nanos.filter(|nanos| *nanos > 0).map(Duration::from_nanos);
    }),
    ("burst", |reader, rate, node, key| {
        let burst = reader.int(node, key).unwrap_or(0).clamp(0, u32::MAX.into());
        rate.burst = u32::try_from(burst).unwrap_or(0);
    }),
];

/// Returns whether a key is one of the top level.
pub(super) fn is_section(name: &str) -> bool {
    SECTIONS.iter().any(|(known, _)| *known == name)
}

impl File {
    /// Parses the text of a file in `directory`, to which its paths are relative.
    ///
    /// # Errors
    ///
    /// All problems of the file.
    pub(super) fn parse(text: &str, directory: &Path) -> Result<Self, Vec<Problem>> {
        let document = Document::parse(text).map_err(|problem| vec![problem])?;
        let mut reader = Reader { values: Values::new(&document), directory };
        let mut file = File { http2: true, ..Self::default() };
        if let Some(root) = document.root() {
            reader.section(root, "the file", SECTIONS, &mut file);
        }
        let problems = reader.values.problems;
        if problems.is_empty() { Ok(file) } else { Err(problems) }
    }
}

struct Reader<'d> {
    values: Values<'d>,
    directory: &'d Path,
}

impl<'d> Reader<'d> {
    /// Parses a section. It may be null.
    fn section<T>(&mut self, node: &'d Node, what: &str, keys: &Keys<T>, into: &mut T) {
        for ((key, position), value) in self.entries(node, what).unwrap_or_default() {
            if let Some((_, set)) = keys.iter().find(|(known, _)| *known == key) {
                set(self, into, value, key);
            } else {
                let known: Vec<&str> = keys.iter().map(|(known, _)| *known).collect();
                let (message, hint) = (format!("unknown key {key:?}"), suggestion(key, &known));
                self.values.error(ProblemClass::UnknownField, position, message, hint);
            }
        }
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
