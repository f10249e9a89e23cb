//! Writing the series of one object, for the functions of a family table.

use std::ops::Range;

use crate::cache::Rendered;
use crate::exposition::{float, labels};

use super::options::RenderOptions;
use super::scalars::Time;
use super::values::label_name;
use crate::wire::view::{Map, Str};

/// The maximum text length of one object's series, without names and identity labels, in bytes. The largest objects of
/// real clusters have a sixteenth of it; the product of a few small lists in one object is unbounded.
pub const MAX_TEXT: usize = 16 * 1024 * 1024;

/// A label: name and value.
pub type Label<'a> = (&'a str, &'a str);

/// A field that can be the value of a series.
pub trait Value {
    /// Returns the value as a number, `None` if the field is absent.
    fn number(self) -> Option<f64>;
}

macro_rules! value {
    ($($type:ty: $value:ident => $number:expr),*) => {$(
        impl Value for $type {
            fn number(self) -> Option<f64> {
                let $value = self;
                Some($number)
            }
        }
    )*};
}
value!(
    f64: value => value, i32: value => value.into(), i64: value => value as f64, usize: value => value as f64,
    bool: value => bool_value(value), Time: value => value.seconds()
);

impl<T: Value> Value for Option<T> {
    fn number(self) -> Option<f64> {
        self.and_then(T::number)
    }
}

/// A writer of the series of one object, family by family, in the form of the cache.
pub struct Series<'s> {
    out: &'s mut Rendered,
    options: &'s RenderOptions,
    /// The ranges of the label sets of the current family in `out.lines`.
    keys: Vec<Range<usize>>,
    /// True if the current family prints each label set once, independent of the options.
    distinct: bool,
    /// The start of the current family in `out.lines`.
    family: usize,
    /// The maximum length of `out.lines`; 0 once the current family has exceeded it.
    limit: usize,
}

impl<'s> Series<'s> {
    pub(crate) fn new(out: &'s mut Rendered, options: &'s RenderOptions) -> Self {
        let family = out.lines.len();
        Self { out, options, keys: Vec::new(), distinct: false, family, limit: MAX_TEXT }
    }

    /// Writes the next identity label. All of them must precede the first family.
    pub(crate) fn identity(&mut self, name: &str, value: &str) {
        let first = self.out.identity.is_empty();
        self.out.identity.push(if first { b'{' } else { b',' });
        labels::write(&mut self.out.identity, name, value);
    }

    /// Ends the current family and begins the next one.
    pub(crate) fn end_family(&mut self) {
        let mut series = self.keys.len();
        if series > 1 && (self.distinct || !self.options.keep_duplicates) {
            series = self.drop_duplicates();
        }
        // The limit on the text keeps it far below 2^32.
        self.out.series += series as u32;
        self.keys.clear();
        self.distinct = false;
        self.limit = MAX_TEXT;
        self.family = self.out.lines.len();
        // Far below 4 GiB: see `MAX_TEXT`.
        self.out.ends.push(u32::try_from(self.out.lines.len()).unwrap_or(u32::MAX));
    }

    /// True if the current family has exceeded the limit, so that further series are discarded. Loops over the product
    /// of two lists check it, because the product may be too large to iterate.
    pub fn is_full(&self) -> bool {
        self.limit == 0
    }

    /// Discards the current family, which is too large.
    #[cold]
    fn overflow(&mut self) {
        self.limit = 0;
        self.out.oversized.get_or_insert(self.out.ends.len());
        self.out.lines.truncate(self.family);
        self.keys.clear();
    }

    /// Returns the rendering options of this resource.
    pub fn options(&self) -> &'s RenderOptions {
        self.options
    }

    /// Makes the current family print each label set once, even with `keep_duplicates`, as kube-state-metrics does.
    pub fn distinct(&mut self) {
        self.distinct = true;
    }

    /// Writes a series with the identity labels only, nothing if there is no value.
    pub fn value(&mut self, value: impl Value) {
        if let Some(value) = value.number() {
            self.with(&[], value);
        }
    }

    /// Writes a series with these labels after the identity labels.
    pub fn with(&mut self, labels: &[Label<'_>], value: f64) {
        let start = self.begin(labels);
        self.finish(start, value);
    }

    /// Writes a series of value 1 with labels derived from an object's own keys: sanitised, prefixed with `prefix` and
    /// an underscore, and made unique where they collide.
    pub fn with_object_labels<'p>(
        &mut self,
        prefix: &str,
        pairs: impl Iterator<Item = (&'p str, &'p str)> + Clone,
    ) {
        let start = self.out.lines.len();
        // All kinds with object labels have identity labels, so a comma always precedes these.
        label_name::write_labels(&mut self.out.lines, prefix, pairs);
        self.finish(start, 1.0);
    }

    /// The same for all entries of a map.
    pub fn with_entries(&mut self, prefix: &str, map: &Map<'_>) {
        let entries = map.entries();
        self.with_object_labels(prefix, entries.iter().map(|(key, value)| (&**key, &**value)));
    }

    /// Writes three series for a condition's status, with `label` after `labels`: `true`, `false` and `unknown`. The
    /// one that matches `status` is 1, the others are 0 or [omitted](RenderOptions::skip_zero_states).
    pub fn condition(&mut self, labels: &[Label<'_>], label: &str, status: &str) {
        for (text, word) in [("true", "True"), ("false", "False"), ("unknown", "Unknown")] {
            if status != word && self.options.skip_zero_states {
                continue;
            }
            let start = self.begin(labels);
            self.separate(start);
            labels::write(&mut self.out.lines, label, text);
            self.finish(start, f64::from(u8::from(status == word)));
        }
    }

    /// Writes one series for each of `all`, with `label` set to it; 1 if it equals `current`, else 0 or
    /// [omitted](RenderOptions::skip_zero_states).
    pub fn state_set(&mut self, label: &str, all: &[&str], current: &str) {
        for text in all.iter().filter(|text| **text == current || !self.options.skip_zero_states) {
            self.with(&[(label, text)], f64::from(u8::from(*text == current)));
        }
    }

    /// The same, without series if `current` is empty.
    pub fn known_state(&mut self, label: &str, all: &[&str], current: &str) {
        if !current.is_empty() {
            self.state_set(label, all, current);
        }
    }

    /// Writes the first labels of a series. Returns the start of the series.
    #[inline]
    fn begin(&mut self, labels: &[Label<'_>]) -> usize {
        let start = self.out.lines.len();
        for (name, text) in labels {
            self.separate(start);
            labels::write(&mut self.out.lines, name, text);
        }
        start
    }

    fn separate(&mut self, start: usize) {
        let first = self.out.lines.len() == start && self.out.identity.is_empty();
        self.out.lines.push(if first { b'{' } else { b',' });
    }

    fn finish(&mut self, start: usize, value: f64) {
        let lines = &mut self.out.lines;
        self.keys.push(start..lines.len());
        if lines.len() > start || !self.out.identity.is_empty() {
            lines.push(b'}');
        }
        lines.push(b' ');
        float::write(lines, value);
        lines.push(b'\n');
        if lines.len() > self.limit {
            self.overflow();
        }
    }

    /// Keeps the first line of each label set, because duplicates would make the exposition invalid. Label sets that
    /// differ only in labels with empty values are equal. Returns the number of remaining lines.
    fn drop_duplicates(&mut self) -> usize {
        let lines = &self.out.lines;
        let family = lines.get(self.family..).unwrap_or_default();
        let repeated = if self.keys.len() <= 16 && !labels::has_empty(family) {
            (1..self.keys.len()).any(|at| {
                let key = &lines[self.keys[at].clone()];
                self.keys[..at].iter().any(|earlier| lines[earlier.clone()] == *key)
            })
        } else {
            true
        };
        if !repeated {
            return self.keys.len();
        }
        let mut seen = hashbrown::HashSet::with_capacity(self.keys.len());
        let start = self.keys.first().map_or(0, |key| key.start);
        let mut kept = Vec::with_capacity(lines.len() - start);
        for (at, key) in self.keys.iter().enumerate() {
            if seen.insert(labels::without_empty(&lines[key.clone()])) {
                let end = self.keys.get(at + 1).map_or(lines.len(), |next| next.start);
                kept.extend_from_slice(&lines[key.start..end]);
            }
        }
        let distinct = seen.len();
        drop(seen);
        self.out.lines.truncate(start);
        self.out.lines.extend_from_slice(&kept);
        distinct
    }
}

/// Returns the text of an optional field, empty if absent.
pub fn or_empty<'v>(text: &'v Option<Str<'_>>) -> &'v str {
    text.as_deref().unwrap_or("")
}

/// Returns the digits of an optional number, empty if absent.
pub fn number_text<I: itoa::Integer>(number: Option<I>, digits: &mut itoa::Buffer) -> &str {
    number.map_or("", |number| digits.format(number))
}

/// Returns `true` or `false`.
pub fn bool_text(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

/// Returns 1 or 0.
pub fn bool_value(value: bool) -> f64 {
    f64::from(u8::from(value))
}
