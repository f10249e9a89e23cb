//! Replaces names of the cluster by salted hashes.
//!
//! A word stays if the program's own texts contain it, unless a field for names has it. All other words are replaced,
//! because names also occur in sentences, which have no structure. The same word always has the same hash.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

use crate::tools::Result;
use crate::util::memory_map::mapping;
use memchr::memmem;
use regex::{Captures, Regex};
use ring::hmac;
use ring::rand::SystemRandom;
use serde_json::Value;

/// Keys of JSON objects below which all strings are names, and keys of their maps.
const NAMED: [&str; 14] = [
    "annotations",
    "hostname",
    "label",
    "labels",
    "matchLabels",
    "metadata",
    "missing_namespaces",
    "namespace",
    "nodeName",
    "pod",
    "serviceAccount",
    "serviceAccountName",
    "tag",
    "unresolved",
];

/// The length from which a word also stays as a part of a longer one, because the program's texts are not separated.
const LONG: usize = 6;

/// Names in texts: values of flags, fields and labels.
static FIELDS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r#"(?i)\b(?:namespaces?(?:[-_]denylist)?|pod(?:[-_]name(?:space)?)?|object|node|label|service[-_]?account)\\?["']?\s*[=:]\s*[\[\\"']*([^\s"'\\\[\]{}()]+)"#,
    )
    .ok()
});

/// Escape sequences, and words.
static WORDS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(\\(?:[nrt]|x[0-9a-f]{2}|u[0-9a-f]{4}))|(\w(?:[\w.-]*\w)?)").ok()
});

/// Words that are numbers, unless a field for names has them: amounts with units, times, addresses.
static NUMBERS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^(?:[\d._-]+|\d[\dTZ.e-]*|[\d.]+[a-zA-Zµ]{1,3}|0x[0-9a-f]+)$").ok()
});

/// Words that are no names in a field for names either: numbers, the parts of a time, addresses.
static NAMELESS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^(?:\d+|\d{4}-\d\d-\d\d(?:T\d\d)?|\d\d(?:\.\d+)?Z|\d+(?:\.\d+){3})$").ok()
});

/// The words of the program and the names found so far.
pub(super) struct Names {
    key: hmac::Key,
    program: Vec<u8>,
    names: HashSet<String>,
    known: HashMap<String, bool>,
}

impl Names {
    /// Creates a random salt and reads the texts of the program.
    ///
    /// # Errors
    /// The system has no random numbers, or the texts cannot be read.
    pub(super) fn new() -> Result<Self> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        let key = key.map_err(|_| "the system has no random numbers".to_owned())?;
        let program = texts().map_err(|error| format!("the program cannot be read: {error}"))?;
        Ok(Self { key, program, names: HashSet::new(), known: HashMap::new() })
    }

    /// Learns the names in a text.
    pub(super) fn learn(&mut self, text: &str) {
        let fields = FIELDS.iter().flat_map(|fields| fields.captures_iter(text));
        let values: Vec<&str> = fields.filter_map(|found| Some(found.get(1)?.as_str())).collect();
        values.into_iter().for_each(|value| self.learn_words(value));
    }

    /// Learns the names in a value; all of its strings if it `is_named`.
    pub(super) fn learn_value(&mut self, value: &Value, is_named: bool) {
        match value {
            Value::String(text) if is_named => self.learn_words(text),
            Value::String(text) => self.learn(text),
            Value::Array(items) => items.iter().for_each(|item| self.learn_value(item, is_named)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.learn_value(value, is_named || NAMED.contains(&name.as_str()));
                }
            }
            _ => {}
        }
    }

    fn learn_words(&mut self, text: &str) {
        let words = WORDS.iter().flat_map(|words| words.captures_iter(text));
        let words = words.filter_map(|found| found.get(2)).map(|word| word.as_str().to_owned());
        let is_name = |word: &String| !NAMELESS.as_ref().is_some_and(|one| one.is_match(word));
        self.names.extend(words.filter(is_name));
    }

    /// Replaces the names in a text.
    pub(super) fn hide(&mut self, text: &str) -> String {
        let Some(words) = WORDS.as_ref() else { return String::new() };
        let hidden = words.replace_all(text, |found: &Captures<'_>| match found.get(2) {
            Some(word) if !self.stays(word.as_str()) => self.hash(word.as_str()),
            _ => found[0].to_owned(),
        });
        hidden.into_owned()
    }

    /// Replaces the names in a value, also as keys.
    pub(super) fn hide_value(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.hide(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide_value(item)),
            Value::Object(fields) => {
                let renamed = std::mem::take(fields).into_iter().map(|(name, mut value)| {
                    self.hide_value(&mut value);
                    // Fields of the format are in the program, but not as separate words.
                    let is_kept = !self.names.contains(&name)
                        && memmem::find(&self.program, name.as_bytes()).is_some();
                    (if is_kept { name } else { self.hide(&name) }, value)
                });
                *fields = renamed.collect();
            }
            _ => {}
        }
    }

    fn hash(&self, word: &str) -> String {
        let hash = hmac::sign(&self.key, word.as_bytes());
        let digits: String =
            hash.as_ref().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        format!("h-{digits}")
    }

    /// Returns whether a word is no name.
    fn stays(&mut self, word: &str) -> bool {
        if !self.names.contains(word) && is_number(word) {
            return true;
        }
        if let Some(known) = self.known.get(word) {
            return *known;
        }
        let is_separate = |at: usize| {
            let is_word = |byte: Option<&u8>| {
                byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
            };
            let before = at.checked_sub(1).and_then(|before| self.program.get(before));
            !is_word(before) && !is_word(self.program.get(at + word.len()))
        };
        let mut places = memmem::find_iter(&self.program, word.as_bytes());
        let is_known =
            !self.names.contains(word) && places.any(|at| word.len() >= LONG || is_separate(at));
        self.known.insert(word.to_owned(), is_known);
        is_known
    }
}

fn is_number(word: &str) -> bool {
    NUMBERS.as_ref().is_some_and(|numbers| numbers.is_match(word))
}

/// Reads the constant texts of this program from its memory: the mapping that has this one.
fn texts() -> io::Result<Vec<u8>> {
    let place = REFERENCE.as_ptr().addr() as u64;
    let maps = fs::read_to_string("/proc/self/maps")?;
    let mut ranges = maps.lines().filter_map(mapping).map(|mapping| mapping.start..mapping.end);
    let range = ranges.find(|range| range.contains(&place));
    let range = range.ok_or_else(|| io::Error::other("its memory is not known"))?;
    let mut texts = vec![0; usize::try_from(range.end - range.start).map_err(io::Error::other)?];
    fs::File::open("/proc/self/mem")?.read_exact_at(&mut texts, range.start)?;
    Ok(texts)
}

/// A constant text of the program.
static REFERENCE: &str = "kstatd's constant texts";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_hidden_and_words_of_the_program_stay() {
        // A constant name would be a text of this program.
        let of_cluster = |reversed: &str| reversed.chars().rev().collect::<String>();
        let (pod, label) = (of_cluster("0-oec/yap-emca"), of_cluster("maet_emca"));
        let mut names = Names::new().expect("names");
        let log = format!(
            "2026-01-02T15:04:05.000Z  INFO no answer within 15 s namespace=payments object={pod}\\n{label}"
        );
        names.learn(&log);
        let hidden = names.hide(&log);
        let kept = "2026-01-02T15:04:05.000Z  INFO no answer within 15 s namespace=h-";
        assert!(hidden.starts_with(kept), "{hidden}");
        for part in ["payments", "emca", "oec"] {
            assert!(!hidden.contains(part) && !hidden.contains(&of_cluster(part)), "{hidden}");
        }
        let mut value = serde_json::json!({"kinds": [{"resource": "pods", "namespace": "payments", "labels": {label: pod}}]});
        names.learn_value(&value, false);
        names.hide_value(&mut value);
        let text = value.to_string();
        assert!(
            text.contains("\"resource\":\"pods\"") && text.contains("\"namespace\":\"h-"),
            "{text}"
        );
        assert!(!text.contains("payments") && !text.contains(&of_cluster("emca")), "{text}");
        let hash = value["kinds"][0]["namespace"].as_str().expect("a hash").to_owned();
        assert!(hidden.contains(&hash), "the same in each: {hidden} {hash}");
        // Names that look like numbers, and numbers.
        let mut value = serde_json::json!({
            "namespace": "e2e", "nodeName": "10-0-0-5", "metadata": {"creationTimestamp": "2026-01-02T15:04:05Z"}
        });
        names.learn_value(&value, false);
        names.learn("namespace=42lab took 12ms");
        names.hide_value(&mut value);
        let text = value.to_string()
            + &names.hide("namespace=42lab took 12ms, 1.5e+09 B in 3s at 15:04:05Z");
        for part in ["e2e", "10-0-0-5", "42lab"] {
            assert!(!text.contains(part), "{part} in {text}");
        }
        for part in ["2026-01-02T15:04:05Z", "took 12ms, 1.5e+09 B in 3s at 15:04:05Z"] {
            assert!(text.contains(part), "no {part} in {text}");
        }
        let other = Names::new().expect("names").hash("payments");
        assert_ne!(hash, other, "the salt is random");
    }
}
