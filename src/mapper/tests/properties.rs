//! Property tests against a naive implementation of globs.

use super::*;
use proptest::prelude::*;

/// A naive implementation of glob matching.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<&str>, Vec<&str>) =
        (pattern.split('.').collect(), name.split('.').collect());
    pattern.len() == name.len() && pattern.iter().zip(&name).all(|(p, n)| *p == "*" || p == n)
}

/// Orders literals before `*`, from left to right.
fn specificity(pattern: &str) -> Vec<bool> {
    pattern.split('.').map(|segment| segment == "*").collect()
}

fn pattern() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "*", "c"]), 1..5)
        .prop_map(|segments| segments.join("."))
}

fn name() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "", "c", "é"]), 1..6)
        .prop_map(|segments| segments.join("."))
}

fn kind() -> impl Strategy<Value = Option<MetricType>> {
    prop::sample::select(vec![None, None, Some(MetricType::Counter), Some(MetricType::Gauge)])
}

proptest! {
    #[test]
    fn globs_match_a_naive_implementation(
        rules in prop::collection::vec((pattern(), kind()), 1..12),
        names in prop::collection::vec(name(), 8),
        ordered in any::<bool>(),
    ) {
        let items: String = rules
            .iter()
            .map(|(pattern, kind)| {
                let kind = kind.map_or("~", MetricType::as_str);
                format!("- {{match: '{pattern}', match_metric_type: {kind}, name: n}}\n")
            })
            .collect();
        let mapper = load(&format!("defaults: {{glob_disable_ordering: {}}}\nmappings:\n{items}", !ordered));
        let shadowed: Vec<u64> = mapper
            .warnings()
            .iter()
            .filter(|warning| warning.class == ProblemClass::ShadowedRule)
            .map(|warning| warning.line)
            .collect();
        for name in &names {
            for of in MetricType::ALL {
                let candidates = rules.iter().enumerate().filter(|(_, (pattern, kind))| {
                    matches(pattern, name) && kind.is_none_or(|kind| kind == of)
                });
                let want = if ordered {
                    candidates.map(|(index, _)| index).next()
                } else {
                    candidates.min_by_key(|(index, (pattern, _))| (specificity(pattern), *index)).map(|(index, _)| index)
                };
                prop_assert_eq!(look_up(&mapper, name, of).map(|found| found.0), want, "{} {:?}", name, of);
                for tried in mapper.explain(name, of) {
                    let (pattern, kind) = &rules[tried.index];
                    let deciding = want == Some(tried.index);
                    prop_assert_eq!(tried.verdict == Verdict::Wins, deciding, "{:?}", tried);
                    let is_behind = matches!(tried.verdict, Verdict::Overridden { .. });
                    let fits = matches(pattern, name) && kind.is_none_or(|kind| kind == of);
                    prop_assert_eq!(is_behind, fits && !deciding, "{:?}", tried);
                }
                if let Some(index) = want {
                    // The rules begin on the third line.
                    prop_assert!(!shadowed.contains(&(index as u64 + 3)), "rule {} is not shadowed", index);
                }
            }
        }
    }

    #[test]
    fn any_text_loads_or_has_problems(text in "[-a-z0-9:{}\\[\\]\"'*&!|>#%@,. \n\t\\\\$()é]{0,80}") {
        if let Err(problems) = Mapper::from_yaml(&text) {
            prop_assert!(!problems.is_empty());
            prop_assert!(problems.iter().all(|problem| problem.line > 0 && problem.column > 0));
        }
    }

    #[test]
    fn any_regex_compiles_or_has_a_reason(text in "[a-c(){}|*+?.^$\\[\\]:<>P0-9,\\\\dwsbQEpLixUé -]{0,16}") {
        if let Err(reason) = super::super::regexes::Pattern::compile(&text) {
            prop_assert!(!reason.to_string().is_empty());
        }
    }
}
