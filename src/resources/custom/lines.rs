//! The series of one object while its families are written.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use crate::cache::CountedLabels;
use crate::exposition::{float, labels};
use crate::resources::series::MAX_TEXT;

use super::label::Labels;
use super::number::Reason;
use super::tree::Json;

/// Returns a truncated value for a message.
fn excerpt(value: Option<&Json<'_>>) -> String {
    const LONGEST: usize = 80;
    match value {
        None | Some(Json::Null) => "null".to_owned(),
        Some(Json::Text(text)) if text.chars().count() > LONGEST => {
            format!("{:?}...", text.chars().take(LONGEST).collect::<String>())
        }
        Some(Json::Text(text)) => format!("{text:?}"),
        Some(Json::List(_)) => "a list".to_owned(),
        Some(Json::Map(_)) => "a map".to_owned(),
        Some(Json::Bool(on)) => on.to_string(),
        Some(Json::Int(number)) => number.to_string(),
        Some(Json::Float(number)) => number.to_string(),
    }
}

/// The series of one object, written in full.
pub(super) struct Lines<'b> {
    pub(super) text: Vec<u8>,
    /// For each series, the range of its labels and the end of its value.
    pub(super) lines: Vec<(Range<usize>, usize)>,
    /// The start of the current family in `lines`.
    pub(super) family: usize,
    pub(super) base: &'b Labels<'b>,
    pub(super) errors: BTreeMap<Reason, (u64, String)>,
    pub(super) full: bool,
    pub(super) counted: CountedLabels,
    /// The index of the family, for counts.
    pub(super) number: u32,
}

impl Lines<'_> {
    /// Adds a series with labels that override those common to all series of the metric. Returns `false` to end the
    /// family.
    pub(super) fn series(&mut self, labels: &Labels<'_>, value: f64) -> bool {
        let start = self.text.len();
        self.base.write(labels, &mut self.text);
        let end = self.text.len();
        float::write(&mut self.text, value);
        self.lines.push((start..end, self.text.len()));
        self.full = self.text.len() + self.counted.text_len() > MAX_TEXT;
        !self.full
    }

    /// Counts an item with labels as for a series. Returns `false` to end the family.
    pub(super) fn count(&mut self, labels: &Labels<'_>) -> bool {
        let start = self.text.len();
        self.text.push(b'{');
        self.base.write(labels, &mut self.text);
        self.text.push(b'}');
        let written = &self.text[start..];
        self.counted.push(self.number, if written == b"{}" { b"" } else { written });
        self.text.truncate(start);
        self.full = self.text.len() + self.counted.text_len() > MAX_TEXT;
        !self.full
    }

    /// Notes a value that is not a number.
    pub(super) fn value_error(&mut self, reason: Reason, value: Option<&Json<'_>>) {
        let (count, _) = self.errors.entry(reason).or_insert_with(|| (0, excerpt(value)));
        *count += 1;
    }

    /// Removes the lines of the current family.
    pub(super) fn discard_family(&mut self) {
        if let Some((labels, _)) = self.lines.get(self.family) {
            self.text.truncate(labels.start);
        }
        self.lines.truncate(self.family);
        self.counted.truncate_family(self.number);
        self.full = false;
    }

    /// Removes duplicate label sets, ignoring empty labels, from the current family. `start` is the start of the first
    /// family with the same name, which directly precede this one and have no duplicates.
    pub(super) fn drop_duplicates(&mut self, start: usize) {
        if self.lines.len() == self.family || self.lines.len() - start < 2 {
            return;
        }
        let text = &self.text;
        let mut seen: hashbrown::HashSet<Cow<'_, [u8]>> = hashbrown::HashSet::new();
        let mut at = 0;
        self.lines.retain(|(labels, _)| {
            at += 1;
            at <= start || seen.insert(labels::without_empty(&text[labels.clone()]))
        });
    }
}
