//! Writing the series of one object: what the functions of a family table write to.

use std::ops::Range;

use crate::cache::Rendered;
use crate::exposition::{escape, float};

use super::options::RenderOptions;
use super::values::label_name;
use crate::wire::view::Str;

/// The most text that the series of one object may have, without names and identity labels, in bytes. The
/// largest objects that clusters have in practice come to a sixteenth of it; what a few small lists in one
/// object can be multiplied to has no bound.
pub const MAX_TEXT: usize = 16 * 1024 * 1024;

/// A label: name and value.
pub type Label<'a> = (&'a str, &'a str);

/// Takes the series of one object, family after family, and writes them as the cache keeps them.
pub struct Series<'s> {
    out: &'s mut Rendered,
    options: &'s RenderOptions,
    /// Where the labels of each line of the current family stand in `out.lines`.
    keys: Vec<Range<usize>>,
    /// Whether the current family prints a label set once, whatever the options say.
    distinct: bool,
    /// Where the lines of the current family begin in `out.lines`.
    family: usize,
    /// The most text that there may be; nothing more once the current family has had too much.
    limit: usize,
}

impl<'s> Series<'s> {
    pub(super) fn new(out: &'s mut Rendered, options: &'s RenderOptions) -> Self {
        let family = out.lines.len();
        Self { out, options, keys: Vec::new(), distinct: false, family, limit: MAX_TEXT }
    }

    /// Writes the next identity label; all of them before the first family.
    pub(super) fn identity(&mut self, name: &str, value: &str) {
        let first = self.out.identity.is_empty();
        self.out.identity.push(if first { b'{' } else { b',' });
        write_label(&mut self.out.identity, name, value);
    }

    /// Closes the current family: what follows belongs to the next one.
    pub(super) fn end_family(&mut self) {
        let mut series = self.keys.len();
        if series > 1 && (self.distinct || !self.options.keep_duplicates) {
            series = self.drop_duplicates();
        }
        // Far below 2^32, as is their text.
        self.out.series += series as u32;
        self.keys.clear();
        self.distinct = false;
        self.limit = MAX_TEXT;
        self.family = self.out.lines.len();
        // Far below 4 GiB: see `MAX_TEXT`.
        self.out.ends.push(u32::try_from(self.out.lines.len()).unwrap_or(u32::MAX));
    }

    /// Whether the current family has had too much: what is written to it now is lost. Whoever writes a
    /// product of two lists asks, since it may be far more than can be tried.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.limit == 0
    }

    /// Takes back the current family, whose lines would be too many.
    #[cold]
    fn overflow(&mut self) {
        self.limit = 0;
        self.out.oversized.get_or_insert(self.out.ends.len());
        self.out.lines.truncate(self.family);
        self.keys.clear();
    }

    /// The flags for this resource.
    #[must_use]
    pub fn options(&self) -> &'s RenderOptions {
        self.options
    }

    /// Makes the current family print a label set once, in kube-state-metrics too.
    pub fn distinct(&mut self) {
        self.distinct = true;
    }

    /// A series with the identity labels alone.
    pub fn value(&mut self, value: f64) {
        self.with(&[], value);
    }

    /// A series with these labels after the identity labels.
    pub fn with(&mut self, labels: &[Label<'_>], value: f64) {
        let start = self.out.lines.len();
        for (name, text) in labels {
            self.separate(start);
            write_label(&mut self.out.lines, name, text);
        }
        self.finish(start, value);
    }

    /// A series with these labels, and after them the labels that an object's own keys become:
    /// sanitised, prefixed with `prefix` and an underscore, told apart where they collide.
    pub fn with_object_labels<'p>(
        &mut self,
        labels: &[Label<'_>],
        prefix: &str,
        pairs: impl Iterator<Item = (&'p str, &'p str)> + Clone,
        value: f64,
    ) {
        let start = self.out.lines.len();
        for (name, text) in labels {
            self.separate(start);
            write_label(&mut self.out.lines, name, text);
        }
        // All kinds with object labels have identity labels, so a comma always stands before them.
        label_name::write_labels(&mut self.out.lines, prefix, pairs);
        self.finish(start, value);
    }

    /// Three series for a condition's status: `label` = `true`, `false`, `unknown`, the one that
    /// `status` says 1 and the others 0; after `labels`.
    pub fn condition(&mut self, labels: &[Label<'_>], label: &str, status: &str) {
        for (text, word) in [("true", "True"), ("false", "False"), ("unknown", "Unknown")] {
            let start = self.out.lines.len();
            for (name, text) in labels {
                self.separate(start);
                write_label(&mut self.out.lines, name, text);
            }
            self.separate(start);
            write_label(&mut self.out.lines, label, text);
            self.finish(start, f64::from(u8::from(status == word)));
        }
    }

    /// One series for each of `all`, `label` = that text; 1 for the one equal to `current`, else 0.
    pub fn one_of(&mut self, label: &str, all: &[&str], current: &str) {
        for text in all {
            self.with(&[(label, text)], f64::from(u8::from(*text == current)));
        }
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

    /// Keeps the first line of each label set, a second one would make the exposition ambiguous; tells how many lines
    /// that are.
    fn drop_duplicates(&mut self) -> usize {
        let lines = &self.out.lines;
        let repeated = if self.keys.len() <= 16 {
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
            if seen.insert(&lines[key.clone()]) {
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

fn write_label(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"=\"");
    escape::label_value(out, value);
    out.push(b'"');
}

/// The text of an optional field, empty when absent.
#[must_use]
pub fn or_empty<'v>(text: &'v Option<Str<'_>>) -> &'v str {
    text.as_deref().unwrap_or("")
}

/// `true` or `false`.
#[must_use]
pub fn bool_text(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

/// 1 or 0.
#[must_use]
pub fn bool_value(value: bool) -> f64 {
    f64::from(u8::from(value))
}
