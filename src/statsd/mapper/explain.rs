//! Why a name is mapped as it is: each rule held against it by itself.
//!
//! A look-up finds the rule that decides without looking at most of the others. Here every rule is looked at, one after
//! the other, so that each can say what keeps it from deciding.

use super::config::{MatchType, MetricType, Rule};

/// What comes of a rule and a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// It decides.
    Decides,
    /// It matches too, but another rule goes before it.
    Behind {
        /// Index of the rule that decides.
        rule: usize,
        /// Why that one goes first.
        reason: Precedence,
    },
    /// The name matches, the type does not.
    OtherType {
        /// The only type that the rule is for.
        only: MetricType,
    },
    /// A glob with more or fewer segments.
    SegmentCount {
        /// Segments of the rule.
        rule: usize,
        /// Segments of the name.
        name: usize,
    },
    /// A glob whose segments differ from those of the name.
    Segment {
        /// The first that differs, counted from 1.
        position: usize,
        /// What the rule has there.
        wanted: &'a str,
        /// What the name has there.
        found: &'a str,
    },
    /// A regular expression that is nowhere in the name.
    NotFound,
}

/// Why one of two rules that match goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precedence {
    /// It stands earlier in the file.
    Earlier,
    /// It has a literal segment where the other one has a star (`glob_disable_ordering`).
    MoreSpecific,
    /// Globs go before regular expressions.
    Glob,
}

/// A rule that was held against a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried<'a> {
    /// The rule.
    pub index: usize,
    /// What comes of it.
    pub verdict: Verdict<'a>,
}

impl Tried<'_> {
    /// How near the rule came: it matches the name, or this many segments from the left.
    #[must_use]
    pub const fn nearness(&self) -> usize {
        match self.verdict {
            Verdict::Decides | Verdict::Behind { .. } | Verdict::OtherType { .. } => usize::MAX,
            Verdict::Segment { position, .. } => position - 1,
            Verdict::SegmentCount { rule, name } => {
                if rule < name {
                    rule
                } else {
                    name
                }
            }
            Verdict::NotFound => 0,
        }
    }
}

/// What comes of a rule and a name. `decides` is the rule that does, if any; `is_found` says whether the pattern of a
/// regex rule is in the name.
pub(super) fn verdict<'a>(
    rule: &'a Rule,
    name: &'a str,
    kind: MetricType,
    decides: Option<&Rule>,
    is_ordered: bool,
    is_found: impl Fn(u32) -> bool,
) -> Verdict<'a> {
    let missed = match rule.match_type {
        MatchType::Glob => glob(&rule.pattern, name),
        MatchType::Regex => (!is_found(rule.index as u32)).then_some(Verdict::NotFound),
    };
    if let Some(missed) = missed {
        return missed;
    }
    if let Some(only) = rule.match_metric_type.filter(|only| *only != kind) {
        return Verdict::OtherType { only };
    }
    match decides {
        Some(other) if other.index != rule.index => {
            let reason = if other.match_type != rule.match_type {
                Precedence::Glob
            } else if rule.match_type == MatchType::Glob && !is_ordered {
                Precedence::MoreSpecific
            } else {
                Precedence::Earlier
            };
            Verdict::Behind { rule: other.index, reason }
        }
        _ => Verdict::Decides,
    }
}

/// What keeps a glob from matching.
fn glob<'a>(pattern: &'a str, name: &'a str) -> Option<Verdict<'a>> {
    let differs = pattern
        .split('.')
        .zip(name.split('.'))
        .enumerate()
        .find(|(_, (wanted, found))| *wanted != "*" && wanted != found);
    let (of_rule, of_name) = (pattern.split('.').count(), name.split('.').count());
    match differs {
        Some((at, (wanted, found))) => Some(Verdict::Segment { position: at + 1, wanted, found }),
        None if of_rule != of_name => Some(Verdict::SegmentCount { rule: of_rule, name: of_name }),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Mapper;
    use super::*;

    fn verdicts<'a>(mapper: &'a Mapper, name: &'a str, kind: MetricType) -> Vec<Verdict<'a>> {
        mapper.explain(name, kind).into_iter().map(|tried| tried.verdict).collect()
    }

    #[test]
    fn each_rule_says_what_keeps_it_from_deciding() {
        let mapper = Mapper::from_yaml(
            "mappings:\n\
             - {match: a.*, name: n}\n\
             - {match: a.c.*, name: n}\n\
             - {match: a.b.*, name: n, match_metric_type: gauge}\n\
             - {match: a.b.*, name: n}\n\
             - {match: a.*.c, name: n}\n\
             - {match: '^a[.]b[.]', match_type: regex, name: n}\n\
             - {match: '^b', match_type: regex, name: n}\n",
        )
        .expect("mapping");
        let behind = |reason| Verdict::Behind { rule: 3, reason };
        let expected = [
            Verdict::SegmentCount { rule: 2, name: 3 },
            Verdict::Segment { position: 2, wanted: "c", found: "b" },
            Verdict::OtherType { only: MetricType::Gauge },
            Verdict::Decides,
            behind(Precedence::Earlier),
            behind(Precedence::Glob),
            Verdict::NotFound,
        ];
        assert_eq!(verdicts(&mapper, "a.b.c", MetricType::Counter), expected);
        assert_eq!(mapper.rules().get(3).map(|rule| rule.line), Some(5));
    }

    #[test]
    fn without_file_order_the_more_specific_rule_goes_first() {
        let text = "defaults: {glob_disable_ordering: true}\n\
                    mappings:\n- {match: '*.b', name: n}\n- {match: a.b, name: n}\n";
        let mapper = Mapper::from_yaml(text).expect("mapping");
        let expected =
            [Verdict::Behind { rule: 1, reason: Precedence::MoreSpecific }, Verdict::Decides];
        assert_eq!(verdicts(&mapper, "a.b", MetricType::Counter), expected);
    }
}
