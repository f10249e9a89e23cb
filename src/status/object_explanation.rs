//! The answer to the question why an object has its series, or none.
//!
//! The Kubernetes side creates it, as the result of one check after another. Its text contains no control characters.

use serde::Serialize;

use super::words::count;
use super::writer::Writer;

/// An object to explain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ObjectName {
    /// The plural name, such as `pods` or `widgets.v1.example.io`, or the kind.
    pub(crate) resource: String,
    /// Empty for objects without a namespace.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// The explanation of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ObjectExplanation {
    pub(crate) object: ObjectName,
    /// The number of its series.
    pub(crate) series: u64,
    /// The checks in order, up to the one that explains the answer.
    pub(crate) checks: Vec<ObjectCheck>,
    /// The enabled families of the kind, with the object's number of series; at most [`FAMILIES`].
    pub(crate) families: Vec<FamilySeries>,
    /// Families of the kind that allow and deny lists disable; at most [`FAMILIES`].
    pub(crate) disabled_families: Vec<String>,
}

/// The maximum number of families listed.
pub(crate) const FAMILIES: usize = 500;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ObjectCheck {
    /// The subject, such as `shard`.
    pub(crate) check: &'static str,
    /// False if it is the reason why series are missing or outdated; absent if it could not be checked.
    pub(crate) passed: Option<bool>,
    /// The result in one sentence.
    pub(crate) text: String,
}

/// The series of one family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct FamilySeries {
    pub(crate) name: String,
    pub(crate) series: u64,
}

impl ObjectExplanation {
    /// Creates an explanation without any checks.
    pub(crate) fn new(object: ObjectName) -> Self {
        let (checks, families, disabled_families) = (Vec::new(), Vec::new(), Vec::new());
        Self { object, series: 0, checks, families, disabled_families }
    }

    /// Adds the result of a check.
    pub(crate) fn add(&mut self, check: &'static str, passed: Option<bool>, text: String) {
        self.checks.push(ObjectCheck { check, passed, text });
    }

    /// Formats the explanation for a terminal, ending with a line feed.
    pub(crate) fn text(&self) -> String {
        let mut out = Writer::default();
        let ObjectName { resource, namespace, name } = &self.object;
        let slash = if namespace.is_empty() { "" } else { "/" };
        let series = if self.series == 0 {
            "no series".to_owned()
        } else {
            format!("{} series", count(self.series))
        };
        out.line(0, &format!("{resource} {namespace}{slash}{name}: {series}"));
        for ObjectCheck { check, passed, text } in &self.checks {
            let mark = match passed {
                Some(true) => '√',
                Some(false) => '×',
                None => '?',
            };
            out.line(1, &format!("{mark} {check}: {text}"));
        }
        let (with, without): (Vec<_>, Vec<_>) =
            self.families.iter().partition(|family| family.series > 0);
        if !with.is_empty() {
            out.line(1, "series by metric:");
        }
        with.iter().for_each(|of| out.line(2, &format!("{}: {}", of.name, count(of.series))));
        if self.series > 0 && !without.is_empty() {
            out.line(1, "metrics without series, because the object lacks the field:");
            without.iter().for_each(|of| out.line(2, &of.name));
        }
        if !self.disabled_families.is_empty() {
            out.line(1, "metrics disabled by --metric-allowlist, --metric-denylist or --metric-opt-in-list:");
            self.disabled_families.iter().for_each(|name| out.line(2, name));
        }
        out.text()
    }
}
