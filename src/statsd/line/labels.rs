//! Tags of a line, and the dialects that write them.

use std::borrow::Cow;

use super::event::{Label, ParserFlags};
use crate::statsd::name;

/// The label a container id gets.
const CONTAINER_ID: &str = "container_id";

/// The labels of one line, with a count of the tags that were refused.
#[derive(Default)]
pub(super) struct Labels<'a> {
    items: Vec<Label<'a>>,
    sorted: usize,
    errors: u64,
}

impl<'a> Labels<'a> {
    /// The labels so far: sorted by name, the last value of a repeated name.
    pub(super) fn sorted(&mut self) -> &[Label<'a>] {
        if self.sorted != self.items.len() {
            // Stable, so that of equal names the last one stands last.
            self.items.sort_by(|a, b| a.name.cmp(&b.name));
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

    /// Refused tags since the last call.
    pub(super) fn take_errors(&mut self) -> u64 {
        std::mem::take(&mut self.errors)
    }

    pub(super) fn push_container_id(&mut self, id: &'a str) {
        self.items.push(Label { name: Cow::Borrowed(CONTAINER_ID), value: id });
    }

    /// `key:value,key:value`, each key with an optional `#`.
    pub(super) fn push_dogstatsd(&mut self, list: &'a str) {
        self.push_list(list, ':', |tag| tag.strip_prefix('#').unwrap_or(tag));
    }

    /// Takes the tag list out of a name: SignalFX brackets first, then whichever of `#` and `,` comes first.
    pub(super) fn take_from_name(&mut self, name: &'a str, flags: ParserFlags) -> Cow<'a, str> {
        // Most names have none of it; one pass without a branch for each byte says so.
        if !name
            .bytes()
            .fold(false, |found, byte| found | matches!(byte, b'[' | b']' | b'#' | b','))
        {
            return Cow::Borrowed(name);
        }
        if flags.signalfx {
            match (name.split_once('['), name.split_once(']')) {
                (Some((before, opened)), Some((closing, after))) => {
                    if let Some((list, _)) =
                        opened.split_once(']').filter(|_| before.len() < closing.len())
                    {
                        self.push_list(list, '=', |tag| tag);
                        return join(before, after);
                    }
                    // `]` before `[`: statsd_exporter dies here.
                    self.errors += 1;
                    return Cow::Borrowed(name);
                }
                (Some(_), None) | (None, Some(_)) => {
                    self.errors += 1;
                    return Cow::Borrowed(name);
                }
                (None, None) => {}
            }
        }
        let separator =
            |character| (character == '#' && flags.librato) || (character == ',' && flags.influxdb);
        match name.split_once(separator) {
            Some((before, list)) => {
                self.push_list(list, '=', |tag| tag);
                Cow::Borrowed(before)
            }
            None => Cow::Borrowed(name),
        }
    }

    fn push_list(&mut self, list: &'a str, separator: char, trim: impl Fn(&'a str) -> &'a str) {
        if list.is_empty() {
            return;
        }
        // One comma at the end is no empty tag, but a comma alone is.
        let list = list.strip_suffix(',').unwrap_or(list);
        for tag in list.split(',') {
            match trim(tag).split_once(separator) {
                Some((key, value)) if !key.is_empty() && !value.is_empty() => {
                    self.items.push(Label { name: name::escape(key), value });
                }
                _ => self.errors += 1,
            }
        }
    }
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
