//! The regex rules: finds the first rule in file order that matches a name.
//!
//! All patterns are searched at once as a [`RegexSet`]; only the winning rule is run again for its captures.
//! Patterns that do not fit into one set are split into several.

use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

use super::config::MetricType;
use super::coverage;
use crate::go;
use crate::go::regex::{PatternError, Translated};

/// The size limit of a compiled pattern and of a set. Go has no comparable limit; this keeps a mapping file
/// from using all memory.
const SIZE_LIMIT: usize = 64 << 20;

/// The cache limit of a set's lazy DFA, enough for several thousand patterns.
const CACHE_LIMIT: usize = 16 << 20;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    translated: String,
    regex: Regex,
    /// The name of each group, from group 0.
    pub(super) groups: Vec<Option<String>>,
    literals: Vec<String>,
    /// A text such that the pattern matches every name that contains it.
    required_text: Option<String>,
    /// A glob that matches everything the pattern matches.
    pub(super) glob: Option<String>,
}

impl Pattern {
    /// Compiles a pattern in Go's syntax.
    ///
    /// # Errors
    /// Returns the reason, with the position in the pattern if it is known.
    pub(super) fn compile(text: &str) -> Result<Self, PatternError> {
        let Translated { pattern, groups, literals, .. } = go::regex::translate(text)?;
        let regex = RegexBuilder::new(&pattern).size_limit(SIZE_LIMIT).build()?;
        let (required_text, glob) = (coverage::required_text(text), coverage::as_glob(text));
        Ok(Self { translated: pattern, regex, groups, literals, required_text, glob })
    }

    /// Returns true if this pattern matches everything that `other` matches. False means "unknown".
    pub(super) fn covers(&self, other: &Self) -> bool {
        const ANYTHING: [&str; 6] = [".*", "^.*", ".*$", "^.*$", "(.*)", "^(.*)$"];
        let within = |needle: &String| other.literals.iter().any(|text| text.contains(needle));
        self.translated == other.translated
            || ANYTHING.contains(&self.translated.as_str())
            || self.required_text.as_ref().is_some_and(|needle| needle.is_empty() || within(needle))
    }
}

/// A regex rule in a [`Group`].
#[derive(Debug)]
pub(super) struct RegexRule {
    /// The index of the rule.
    pub(super) index: u32,
    kind: Option<MetricType>,
    pub(super) regex: Regex,
}

/// A pattern of a rule.
pub(super) struct IndexedPattern {
    /// The index of the rule.
    pub(super) index: u32,
    /// The only metric type to match; `None` for all.
    pub(super) kind: Option<MetricType>,
    pub(super) pattern: Pattern,
}

/// A group of rules with one regex set. `set` is `None` for a single rule that is too large for a set.
#[derive(Debug)]
struct Group {
    set: Option<RegexSet>,
    rules: Vec<RegexRule>,
}

/// All regex rules.
#[derive(Debug, Default)]
pub(super) struct Regexes {
    groups: Vec<Group>,
}

impl Regexes {
    /// Creates the groups from rules in file order.
    pub(super) fn new(rules: Vec<IndexedPattern>) -> Self {
        let mut groups = Vec::new();
        build_groups(rules, SIZE_LIMIT, &mut groups);
        Self { groups }
    }

    /// Returns the first rule that matches.
    pub(super) fn find(&self, name: &str, kind: MetricType) -> Option<&RegexRule> {
        let fits = |rule: &RegexRule| rule.kind.is_none_or(|of| of == kind);
        for Group { set, rules } in &self.groups {
            let position = match set {
                Some(set) => set
                    .matches(name.as_bytes())
                    .iter()
                    .find(|&position| rules.get(position).is_some_and(fits)),
                None => {
                    rules.iter().position(|rule| fits(rule) && rule.regex.is_match(name.as_bytes()))
                }
            };
            if let Some(position) = position {
                return rules.get(position);
            }
        }
        None
    }

    /// Returns true if rule `index` is a regex rule that matches the name.
    pub(super) fn is_match(&self, index: u32, name: &str) -> bool {
        let mut rules = self.groups.iter().flat_map(|group| &group.rules);
        rules.any(|rule| rule.index == index && rule.regex.is_match(name.as_bytes()))
    }
}

/// Adds groups whose sets have at most `size_limit` bytes. A single rule that exceeds it has no set.
fn build_groups(mut rules: Vec<IndexedPattern>, size_limit: usize, groups: &mut Vec<Group>) {
    if rules.is_empty() {
        return;
    }
    let set = RegexSetBuilder::new(rules.iter().map(|rule| rule.pattern.translated.as_str()))
        .size_limit(size_limit)
        .dfa_size_limit(CACHE_LIMIT)
        .build();
    if set.is_err() && rules.len() > 1 {
        let second = rules.split_off(rules.len() / 2);
        build_groups(rules, size_limit, groups);
        return build_groups(second, size_limit, groups);
    }
    let rule = |IndexedPattern { index, kind, pattern }| {
        let Pattern { regex, .. } = pattern;
        RegexRule { index, kind, regex }
    };
    groups.push(Group { set: set.ok(), rules: rules.into_iter().map(rule).collect() });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rules as groups of at most `size_limit` bytes.
    fn regexes(rules: &[(&str, Option<MetricType>)], size_limit: usize) -> Regexes {
        let rules = rules.iter().enumerate().map(|(index, (text, kind))| IndexedPattern {
            index: index as u32,
            kind: *kind,
            pattern: Pattern::compile(text).expect("a pattern"),
        });
        let mut groups = Vec::new();
        build_groups(rules.collect(), size_limit, &mut groups);
        Regexes { groups }
    }

    #[test]
    fn the_first_rule_in_file_order_wins_in_any_groups() {
        let gauge = Some(MetricType::Gauge);
        let rules = [("^a", gauge), ("b$", None), ("^a", None), ("c", None), ("", gauge)];
        for (size_limit, groups) in [(SIZE_LIMIT, 1), (1, 5)] {
            let regexes = regexes(&rules, size_limit);
            assert_eq!(regexes.groups.len(), groups);
            assert_eq!(
                regexes.groups.iter().filter(|group| group.set.is_none()).count(),
                if groups == 1 { 0 } else { 5 }
            );
            for (name, kind, expected) in [
                ("ax", MetricType::Gauge, Some(0)),
                ("ax", MetricType::Counter, Some(2)),
                ("ab", MetricType::Counter, Some(1)),
                ("xc", MetricType::Observer, Some(3)),
                ("x", MetricType::Observer, None),
                ("x", MetricType::Gauge, Some(4)),
            ] {
                let found = regexes.find(name, kind).map(|hit| hit.index);
                assert_eq!(found, expected, "{name}, {kind:?}, {groups} groups");
            }
        }
    }
}
