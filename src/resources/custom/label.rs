//! Labels of series: their sources, and their assembly.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::exposition::{float, labels};

use super::config::{LabelPaths, LabelTexts};
use super::mask::Mask;
use super::path::Path;
use super::tree::Json;
use crate::resources::series::bool_text;
use crate::util::work_counter;

/// The compiled label sources of a metric.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sources {
    /// Maps whose entries are all copied, with the prefix of their label names, in byte order of their notation.
    copies: Vec<(String, Path)>,
    /// Labels with a path: valid name, path, and default value.
    plain: Vec<(String, Path, Option<String>)>,
}

impl Sources {
    /// Compiles label paths.
    ///
    /// # Errors
    /// A description of an invalid path.
    pub(super) fn compile(paths: &LabelPaths, defaults: &LabelTexts) -> Result<Self, String> {
        let mut sources = Self::default();
        for (label, text) in paths {
            let error = |error| format!("labelsFromPath: {label}: {error}");
            let path = Path::compile(&text.segments).map_err(error)?;
            if let Some(prefix) = label.strip_suffix('*') {
                sources.copies.push((prefix.to_owned(), path));
            } else if label.starts_with('*') {
                sources.copies.push((String::new(), path));
            } else {
                let default = defaults.get(label).cloned();
                sources.plain.push((sanitised(label).into_owned(), path, default));
            }
        }
        Ok(sources)
    }

    /// True if a label of this name may be set.
    pub(super) fn may_set(&self, label: &str) -> bool {
        !self.copies.is_empty() || self.plain.iter().any(|(name, ..)| name == label)
    }

    /// Adds the paths to the mask.
    pub(super) fn extend_mask(&self, mask: &mut Mask) {
        let copies = self.copies.iter().map(|(_, path)| path);
        for path in copies.chain(self.plain.iter().map(|(_, path, _)| path)) {
            mask.follow(path, &Mask::select_all);
        }
    }

    /// Adds the labels that `value` has and, if wanted, defaults instead of those that it has not.
    pub(super) fn add<'v>(
        &'v self,
        value: &'v Json<'_>,
        labels: &mut Labels<'v>,
        has_defaults: bool,
    ) {
        for (prefix, path) in &self.copies {
            let Some(Json::Map(entries)) = path.get(value) else { continue };
            work_counter::add(entries.len());
            labels.set_many(entries.iter().map(|(key, value)| {
                let name = if prefix.is_empty() {
                    sanitised(key)
                } else {
                    Cow::Owned(sanitised(&format!("{prefix}{key}")).into_owned())
                };
                (name, text(value))
            }));
        }
        for (name, path, default) in &self.plain {
            let default = default.as_deref().filter(|_| has_defaults);
            let value = path.get(value).map(text);
            if let Some(value) = value.or_else(|| default.map(Cow::Borrowed)) {
                labels.set(Cow::Borrowed(name), value);
            }
        }
    }
}

/// Returns a label name that every format accepts: invalid characters become `_`, and a reserved name gets a leading
/// `_`. The keys of maps are arbitrary, and one invalid name makes the entire exposition invalid.
pub(super) fn sanitised(name: &str) -> Cow<'_, str> {
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let may_be_one = can_be_a_name(name);
    if may_be_one && name.chars().all(valid) {
        return Cow::Borrowed(name);
    }
    let first = (!may_be_one).then_some('_');
    let others = name.chars().map(|c| if valid(c) { c } else { '_' });
    Cow::Owned(first.into_iter().chain(others).collect())
}

/// True if a label can have this name once its characters are valid. Prometheus stores the family as `__name__`.
pub(super) fn can_be_a_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name != "__name__"
}

/// The labels of a series, sorted by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Labels<'v>(Vec<(Cow<'v, str>, Cow<'v, str>)>);

impl<'v> Labels<'v> {
    /// Adds a label or replaces its value.
    pub(super) fn set(&mut self, name: Cow<'v, str>, value: Cow<'v, str>) {
        match self.0.binary_search_by(|(own, _)| own.cmp(&name)) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (name, value)),
        }
    }

    /// The same for many labels, in any order; the last value of a name counts.
    fn set_many(&mut self, labels: impl Iterator<Item = (Cow<'v, str>, Cow<'v, str>)>) {
        self.0.extend(labels);
        self.0.sort_by(|one, other| one.0.cmp(&other.0));
        self.0.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same {
                std::mem::swap(later, kept);
            }
            is_same
        });
    }

    /// Adds the labels of `over`, which take precedence.
    pub(super) fn set_over(&mut self, over: &'v Labels<'_>) {
        for (name, value) in &over.0 {
            self.set(Cow::Borrowed(name), Cow::Borrowed(value));
        }
    }

    /// Adds labels with constant values.
    pub(super) fn set_all(&mut self, texts: &'v LabelTexts) {
        for (name, value) in texts {
            self.set(Cow::Borrowed(name), Cow::Borrowed(value));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all labels, keeping the allocation.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Writes these labels merged with those of `over`, which take precedence, in byte order of the names and without
    /// braces.
    pub(super) fn write(&self, over: &Labels<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        let mut own = self.0.iter().map(|(name, value)| (&**name, &**value)).peekable();
        let mut other = over.0.iter().map(|(name, value)| (&**name, &**value)).peekable();
        loop {
            let next = match (own.peek(), other.peek()) {
                (Some(a), Some(b)) if a.0 == b.0 => {
                    own.next();
                    other.next()
                }
                (Some(a), Some(b)) if a.0 < b.0 => own.next(),
                (_, Some(_)) => other.next(),
                _ => own.next(),
            };
            let Some((name, value)) = next else { return };
            if out.len() > start {
                out.push(b',');
            }
            labels::write(out, name, value);
        }
    }
}

/// Returns a value as label text, in Go's default format.
fn text<'v>(value: &'v Json<'_>) -> Cow<'v, str> {
    match value {
        Json::Text(text) => Cow::Borrowed(text),
        Json::Bool(on) => Cow::Borrowed(bool_text(*on)),
        Json::Null => Cow::Borrowed("<nil>"),
        _ => {
            let mut out = String::new();
            print(value, &mut out);
            Cow::Owned(out)
        }
    }
}

/// Appends a value, in work linear in its text.
fn print(value: &Json<'_>, out: &mut String) {
    match value {
        Json::Text(_) | Json::Bool(_) | Json::Null => out.push_str(&text(value)),
        Json::Int(number) => {
            let _ = write!(out, "{number}");
        }
        Json::Float(number) if *number == 0.0 && number.is_sign_negative() => out.push_str("-0"),
        Json::Float(number) => {
            let mut digits = Vec::new();
            float::write(&mut digits, *number);
            out.push_str(&String::from_utf8_lossy(&digits));
        }
        Json::List(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { " " } else { "" });
                print(item, out);
            }
            out.push(']');
        }
        Json::Map(entries) => {
            out.push_str("map[");
            for (at, (key, value)) in entries.iter().enumerate() {
                let _ = write!(out, "{}{key}:", if at > 0 { " " } else { "" });
                print(value, out);
            }
            out.push(']');
        }
    }
}
