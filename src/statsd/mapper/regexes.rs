//! The regex rules: which of them is the first, in file order, to match a name.
//!
//! All patterns are searched for at once; only the rule that won is run again for its captures. Patterns that do not
//! fit into one automaton are divided among several.

use regex::bytes::{CaptureLocations, Regex, RegexBuilder, RegexSet, RegexSetBuilder};

use super::config::MetricType;
use super::cover;
use crate::go;
use crate::go::regex::Translated;

/// Limit of one compiled pattern, and of a set. Go has no small limit; this keeps a mapping file from taking all memory.
const SIZE_LIMIT: usize = 64 << 20;

/// What the lazy automaton of a set may cache before it starts anew: enough for some thousand patterns.
const CACHE_LIMIT: usize = 16 << 20;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    translated: String,
    regex: Regex,
    /// The name of each group, from group 0.
    pub(super) groups: Vec<Option<String>>,
    literals: Vec<String>,
    /// The pattern matches whatever has this text in it.
    wanted: Option<String>,
    /// A glob that matches whatever the pattern matches.
    pub(super) glob: Option<String>,
}

impl Pattern {
    /// Compiles a pattern in Go's dialect.
    ///
    /// # Errors
    /// Why it is none, with the place in the pattern where that is known.
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        let Translated { pattern, groups, literals, .. } =
            go::regex::translate(text).map_err(|error| error.to_string())?;
        let regex =
            RegexBuilder::new(&pattern).size_limit(SIZE_LIMIT).build().map_err(|error| {
                error.to_string().lines().last().unwrap_or_default().trim().to_owned()
            })?;
        let (wanted, glob) = (cover::wanted_text(text), cover::as_glob(text));
        Ok(Self { translated: pattern, regex, groups, literals, wanted, glob })
    }

    /// Whether this pattern matches whatever `other` matches. A `false` means "not known".
    pub(super) fn covers(&self, other: &Self) -> bool {
        const ANYTHING: [&str; 6] = [".*", "^.*", ".*$", "^.*$", "(.*)", "^(.*)$"];
        let within = |needle: &String| other.literals.iter().any(|text| text.contains(needle));
        self.translated == other.translated
            || ANYTHING.contains(&self.translated.as_str())
            || self.wanted.as_ref().is_some_and(|needle| needle.is_empty() || within(needle))
    }
}

#[derive(Debug)]
struct RegexRule {
    index: u32,
    kind: Option<MetricType>,
    regex: Regex,
}

/// Some rules and the automaton for all of them; none if they are too large for one, and then there is one rule.
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

/// The place of a rule among the groups, to find its pattern again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) index: u32,
    group: usize,
    position: usize,
}

impl Regexes {
    /// Rules in file order.
    pub(super) fn new(rules: Vec<(u32, Option<MetricType>, Pattern)>) -> Self {
        let mut groups = Vec::new();
        divide(rules, &mut groups);
        Self { groups }
    }

    /// The first rule that matches.
    pub(super) fn find(&self, name: &str, kind: MetricType) -> Option<Hit> {
        let fits = |rule: &RegexRule| rule.kind.is_none_or(|of| of == kind);
        for (group, Group { set, rules }) in self.groups.iter().enumerate() {
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
                return Some(Hit { index: rules.get(position)?.index, group, position });
            }
        }
        None
    }

    /// Whether rule `index` is a regex rule whose pattern is found in the name.
    pub(super) fn is_match(&self, index: u32, name: &str) -> bool {
        let mut rules = self.groups.iter().flat_map(|group| &group.rules);
        rules.any(|rule| rule.index == index && rule.regex.is_match(name.as_bytes()))
    }

    /// Space for the captures of a rule that was found.
    pub(super) fn locations(&self, hit: Hit) -> Option<CaptureLocations> {
        Some(self.rule(hit)?.regex.capture_locations())
    }

    /// Reads the captures of a rule that was found into space made for it.
    pub(super) fn capture(&self, hit: Hit, name: &str, locations: &mut CaptureLocations) {
        if let Some(rule) = self.rule(hit) {
            rule.regex.captures_read(locations, name.as_bytes());
        }
    }

    fn rule(&self, hit: Hit) -> Option<&RegexRule> {
        self.groups.get(hit.group)?.rules.get(hit.position)
    }
}

fn divide(mut rules: Vec<(u32, Option<MetricType>, Pattern)>, groups: &mut Vec<Group>) {
    if rules.is_empty() {
        return;
    }
    let set = RegexSetBuilder::new(rules.iter().map(|(_, _, pattern)| pattern.translated.as_str()))
        .size_limit(SIZE_LIMIT)
        .dfa_size_limit(CACHE_LIMIT)
        .build();
    match set {
        Ok(set) => groups.push(Group {
            set: Some(set),
            rules: rules.into_iter().map(RegexRule::from).collect(),
        }),
        Err(_) if rules.len() == 1 => {
            groups
                .push(Group { set: None, rules: rules.into_iter().map(RegexRule::from).collect() });
        }
        Err(_) => {
            let second = rules.split_off(rules.len() / 2);
            divide(rules, groups);
            divide(second, groups);
        }
    }
}

impl From<(u32, Option<MetricType>, Pattern)> for RegexRule {
    fn from((index, kind, pattern): (u32, Option<MetricType>, Pattern)) -> Self {
        Self { index, kind, regex: pattern.regex }
    }
}
