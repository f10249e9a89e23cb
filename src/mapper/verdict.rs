//! Explains a look-up: the result of each rule for a name.
//!
//! A normal look-up visits few rules. Here each rule is tried on its own, so the reason why it does not win
//! is known.

use super::config::{MatchType, MetricType, Rule};

/// The result of trying a rule on a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// The rule wins.
    Wins,
    /// The rule matches, but another rule takes precedence.
    Overridden {
        /// The index of the rule that wins.
        rule: usize,
        /// The reason why that rule takes precedence.
        reason: Precedence,
    },
    /// The name matches, but not the type.
    OtherType {
        /// The only type that the rule matches.
        only: MetricType,
    },
    /// The glob has a different number of segments.
    SegmentCount {
        /// The number of segments of the rule.
        rule: usize,
        /// The number of segments of the name.
        name: usize,
    },
    /// A segment of the glob differs from the name.
    Segment {
        /// The first such segment, counted from 1.
        position: usize,
        /// The segment of the rule.
        wanted: &'a str,
        /// The segment of the name.
        found: &'a str,
    },
    /// The regular expression does not match.
    NoMatch,
}

/// The reason why one of two matching rules takes precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precedence {
    /// It comes earlier in the file.
    Earlier,
    /// It has a literal segment where the other has `*` (`glob_disable_ordering`).
    MoreSpecific,
    /// Globs take precedence over regular expressions.
    Glob,
}

/// A rule and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleResult<'a> {
    /// The index of the rule.
    pub index: usize,
    /// The result.
    pub verdict: Verdict<'a>,
}

impl RuleResult<'_> {
    /// Returns how close the rule came: the number of matching segments from the left, or `usize::MAX` if the
    /// name matches.
    pub fn closeness(&self) -> usize {
        match self.verdict {
            Verdict::Wins | Verdict::Overridden { .. } | Verdict::OtherType { .. } => usize::MAX,
            Verdict::Segment { position, .. } => position - 1,
            Verdict::SegmentCount { rule, name } => rule.min(name),
            Verdict::NoMatch => 0,
        }
    }
}

/// Returns the result of a rule. `decides` is the rule that wins, if any; `is_found` tells if the regex rule
/// with this index matches.
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
        MatchType::Regex => (!is_found(rule.index as u32)).then_some(Verdict::NoMatch),
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
            } else if rule.match_type == MatchType::Glob
                && !is_ordered
                && other.pattern != rule.pattern
            {
                Precedence::MoreSpecific
            } else {
                Precedence::Earlier
            };
            Verdict::Overridden { rule: other.index, reason }
        }
        _ => Verdict::Wins,
    }
}

/// Returns the reason why a glob does not match, if it does not.
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
    fn each_rule_reports_why_it_does_not_win() {
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
        let behind = |reason| Verdict::Overridden { rule: 3, reason };
        let expected = [
            Verdict::SegmentCount { rule: 2, name: 3 },
            Verdict::Segment { position: 2, wanted: "c", found: "b" },
            Verdict::OtherType { only: MetricType::Gauge },
            Verdict::Wins,
            behind(Precedence::Earlier),
            behind(Precedence::Glob),
            Verdict::NoMatch,
        ];
        assert_eq!(verdicts(&mapper, "a.b.c", MetricType::Counter), expected);
        assert_eq!(mapper.rules().get(3).map(|rule| rule.line), Some(5));
    }

    #[test]
    fn without_file_order_the_more_specific_rule_wins() {
        let text = "defaults: {glob_disable_ordering: true}\n\
                    mappings:\n- {match: '*.b', name: n}\n- {match: a.b, name: n}\n";
        let mapper = Mapper::from_yaml(text).expect("mapping");
        let expected =
            [Verdict::Overridden { rule: 1, reason: Precedence::MoreSpecific }, Verdict::Wins];
        assert_eq!(verdicts(&mapper, "a.b", MetricType::Counter), expected);
        let text = text.replace("'*.b'", "a.b");
        let mapper = Mapper::from_yaml(&text).expect("mapping");
        let winner = mapper
            .explain("a.b", MetricType::Counter)
            .into_iter()
            .find_map(|tried| (tried.verdict == Verdict::Wins).then_some(tried.index));
        let behind = |rule| Verdict::Overridden { rule, reason: Precedence::Earlier };
        assert_eq!(winner, Some(0));
        assert_eq!(verdicts(&mapper, "a.b", MetricType::Counter), [Verdict::Wins, behind(0)]);
    }

    #[test]
    fn closeness_is_the_number_of_matching_segments() {
        let closeness = |verdict| RuleResult { index: 0, verdict }.closeness();
        let reason = Precedence::Earlier;
        for verdict in [
            Verdict::Wins,
            Verdict::Overridden { rule: 1, reason },
            Verdict::OtherType { only: MetricType::Gauge },
        ] {
            assert_eq!(closeness(verdict), usize::MAX);
        }
        for (position, expected) in [(1, 0), (3, 2)] {
            assert_eq!(closeness(Verdict::Segment { position, wanted: "a", found: "b" }), expected);
        }
        for (rule, name, expected) in [(2, 5, 2), (5, 2, 2), (1, 3, 1)] {
            assert_eq!(closeness(Verdict::SegmentCount { rule, name }), expected);
        }
        assert_eq!(closeness(Verdict::NoMatch), 0);
    }
}
