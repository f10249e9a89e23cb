//! A mapping file as written, before it is validated.

use super::config::{Defaults, HistogramOptions, MatchType, Rule, SummaryOptions};
use crate::config_file::{Position, Problem};

/// A value and its position.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Positioned<T> {
    pub(super) value: T,
    pub(super) position: Position,
}

/// A label of a rule as written in the file.
#[derive(Clone, Debug)]
pub(super) struct RawLabel {
    pub(super) name: Positioned<String>,
    pub(super) value: Positioned<String>,
}

/// A rule as written in the file.
#[derive(Clone, Debug, Default)]
pub(super) struct RawRule {
    pub(super) position: Position,
    pub(super) pattern: Option<Positioned<String>>,
    pub(super) name: Option<Positioned<String>>,
    pub(super) labels: Vec<RawLabel>,
    pub(super) match_type: Option<MatchType>,
    pub(super) summary_options: Option<Positioned<SummaryOptions>>,
    pub(super) histogram_options: Option<Positioned<HistogramOptions>>,
    /// The other fields, which need no position.
    pub(super) rule: Rule,
    pub(super) invalid: InvalidFields,
}

/// Fields that are present but invalid. Their absence from the rule must not cause further problems.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InvalidFields {
    pub(super) pattern: bool,
    pub(super) name: bool,
    pub(super) match_type: bool,
    pub(super) observer_type: bool,
}

impl InvalidFields {
    /// Marks the field of a key as invalid if `wrong`.
    pub(super) fn note(&mut self, key: &str, wrong: bool) {
        match key {
            "match" => self.pattern |= wrong,
            "name" => self.name |= wrong,
            "match_type" => self.match_type |= wrong,
            "observer_type" => self.observer_type |= wrong,
            _ => {}
        }
    }
}

/// A mapping file as written. Lists in `defaults` are empty if the file has none.
#[derive(Debug, Default)]
pub(super) struct RawFile {
    pub(super) defaults: Defaults,
    /// The invalid fields of `defaults`.
    pub(super) invalid: InvalidFields,
    pub(super) rules: Vec<RawRule>,
    pub(super) errors: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
}
