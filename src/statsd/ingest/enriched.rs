//! The labels of a line together with those of its sender.

use std::borrow::Cow;

use super::shared::Mapping;
use crate::pods::SenderLabels;
use crate::statsd::line::Label;

/// Returns the tags of a line with the labels of its sender, if it is known, and the result of the mapping. A tag or a label of the rule with
/// the name of one of the sender's labels is renamed to `exported_NAME`, as Prometheus does with labels of a target, unless
/// there is such a label already.
pub(crate) fn enriched<'a>(
    tags: &'a [Label<'a>],
    mapping: &'a Mapping,
    sender: Option<&'a SenderLabels>,
) -> (Cow<'a, [Label<'a>]>, Cow<'a, Mapping>) {
    let Some(sender) = sender else { return (Cow::Borrowed(tags), Cow::Borrowed(mapping)) };
    let has_tag = |name: &str| tags.iter().any(|tag| tag.name == name);
    let own = tags.iter().filter_map(|tag| {
        Some(Label { name: exported(&tag.name, sender, has_tag)?, value: tag.value })
    });
    let labels = sender.pairs.iter();
    let labels = labels.map(|(label, value)| Label { name: label.as_str().into(), value });
    let mut all: Vec<Label<'_>> = own.chain(labels).collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    if !mapping.labels.iter().any(|(name, _)| sender.has(name)) {
        return (Cow::Owned(all), Cow::Borrowed(mapping));
    }
    let has_label = |name: &str| mapping.labels.iter().any(|(label, _)| **label == *name);
    let labels = mapping.labels.iter().filter_map(|(name, value)| {
        Some((exported(name, sender, has_label)?.into(), value.clone()))
    });
    let mut labels: Vec<(Box<str>, Box<str>)> = labels.collect();
    labels.sort_unstable();
    (Cow::Owned(all), Cow::Owned(Mapping { labels: labels.into(), ..mapping.clone() }))
}

/// Returns the name under which a label is kept beside those of the sender; `None` if it is not kept.
fn exported<'n>(
    name: &'n str,
    sender: &SenderLabels,
    exists: impl Fn(&str) -> bool,
) -> Option<Cow<'n, str>> {
    if !sender.has(name) {
        return Some(Cow::Borrowed(name));
    }
    let name = format!("exported_{name}");
    (!exists(&name)).then_some(Cow::Owned(name))
}
