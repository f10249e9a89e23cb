//! The tags of a line in all dialects.

use std::borrow::Cow;

use super::event::{Label, MAX_TAGS, ParserFlags};
use super::split::{split, split_once};
use crate::mapper::name;
use crate::util::work_counter;

/// The name of the label for a container ID.
const CONTAINER_ID: &str = "container_id";

/// The labels of one line and the number of rejected tags.
#[derive(Default)]
pub(super) struct Labels<'a> {
    items: Vec<Label<'a>>,
    sorted: usize,
    errors: u64,
    /// The number of tags so far, including malformed ones.
    tags: usize,
}

impl<'a> Labels<'a> {
    /// Returns the labels so far, sorted by name. Of duplicates, the last one wins.
    pub(super) fn sorted(&mut self) -> &[Label<'a>] {
        if self.sorted != self.items.len() {
            // The sort is stable, so duplicates keep their order.
            self.items.sort_by(|a, b| {
                // A comparison costs about one step per 16 bytes.
                work_counter::add(1 + a.name.len().min(b.name.len()) / 16);
                a.name.cmp(&b.name)
            });
            self.items.dedup_by(|later, kept| {
                let same = later.name == kept.name;
                if same {
                    kept.value = later.value;
                }
                same
            });
            self.sorted = self.items.len();
        }
        &self.items
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns true if the line has more than [`MAX_TAGS`] tags. Further tags are not parsed.
    pub(super) fn is_full(&self) -> bool {
        self.tags > MAX_TAGS
    }

    /// Returns the number of rejected tags since the last call.
    pub(super) fn take_errors(&mut self) -> u64 {
        std::mem::take(&mut self.errors)
    }

    pub(super) fn push_container_id(&mut self, id: &'a str) {
        self.items.push(Label { name: Cow::Borrowed(CONTAINER_ID), value: id });
    }

    /// Parses `key:value,key:value`; each key may start with `#`.
    pub(super) fn push_dogstatsd(&mut self, list: &'a str) {
        self.push_list(list, b':', |tag| tag.strip_prefix('#').unwrap_or(tag));
    }

    /// Removes the tag list from a name: SignalFX brackets first, otherwise from the first `#` or `,`.
    /// Returns the name without it.
    pub(super) fn take_from_name(&mut self, name: &'a str, flags: ParserFlags) -> Cow<'a, str> {
        // Most names have no tags. This branch-free scan detects them quickly.
        if !name
            .bytes()
            .fold(false, |found, byte| found | matches!(byte, b'[' | b']' | b'#' | b','))
        {
            return Cow::Borrowed(name);
        }
        if flags.signalfx && (name.contains('[') || name.contains(']')) {
            let (before, opened) = name.split_once('[').unwrap_or((name, ""));
            let Some((list, after)) = opened.split_once(']').filter(|_| !before.contains(']'))
            else {
                // statsd_exporter crashes if `]` comes before `[`.
                self.errors += 1;
                return Cow::Borrowed(name);
            };
            self.push_list(list, b'=', |tag| tag);
            return join(before, after);
        }
        let separator =
            |character| (character == '#' && flags.librato) || (character == ',' && flags.influxdb);
        match name.split_once(separator) {
            Some((before, list)) => {
                self.push_list(list, b'=', |tag| tag);
                Cow::Borrowed(before)
            }
            None => Cow::Borrowed(name),
        }
    }

    fn push_list(&mut self, list: &'a str, separator: u8, trim: impl Fn(&'a str) -> &'a str) {
        if list.is_empty() {
            return;
        }
        // A single trailing comma is not an empty tag, but a comma on its own is.
        let list = list.strip_suffix(',').unwrap_or(list);
        for tag in split(list, b',') {
            self.tags += 1;
            if self.is_full() {
                return;
            }
            work_counter::add(tag.len());
            match split_once(trim(tag), separator) {
                Some((key, value)) if !key.is_empty() && !value.is_empty() => {
                    self.items.push(Label { name: name::escape(key), value });
                }
                _ => self.errors += 1,
            }
        }
    }
}

/// Returns the name of a metric in the text before the colon of a line, which may have tags.
pub(crate) fn name_without_tags(text: &str, flags: ParserFlags) -> Cow<'_, str> {
    Labels::default().take_from_name(text, flags)
}

fn join<'a>(before: &'a str, after: &'a str) -> Cow<'a, str> {
    if before.is_empty() {
        Cow::Borrowed(after)
    } else if after.is_empty() {
        Cow::Borrowed(before)
    } else {
        Cow::Owned([before, after].concat())
    }
}
