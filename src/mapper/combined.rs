//! Combines two mapping files, to preview the effect of suggested rules.

use super::Mapper;
use super::config::{Defaults, ObserverType};
use super::load;
use super::raw::{RawFile, RawRule};
use crate::config_file::Problem;

impl Mapper {
    /// Loads `base` with the rules of `rules` inserted before its own and the `defaults` of `rules` merged
    /// into its own. The positions of problems refer to either text.
    ///
    /// # Errors
    /// Returns every problem that makes one of the texts unusable.
    pub(crate) fn combined(rules: &str, base: &str) -> Result<Self, Vec<Problem>> {
        let (rules, base) = (load::load(rules), load::load(base));
        let mut file = RawFile {
            rules: apply_defaults(rules.rules, &rules.defaults),
            errors: rules.errors,
            invalid: rules.invalid,
            ..RawFile::default()
        };
        file.rules.extend(apply_defaults(base.rules, &base.defaults));
        file.errors.extend(base.errors);
        file.defaults = merge_defaults(rules.defaults, base.defaults);
        Self::new(file)
    }
}

/// Applies the defaults of the rules' own file to them.
fn apply_defaults(mut rules: Vec<RawRule>, defaults: &Defaults) -> Vec<RawRule> {
    for rule in &mut rules {
        rule.match_type = rule.match_type.or(Some(defaults.match_type));
        // The type of a rule with options must come from its own file.
        let has_options = rule.histogram_options.is_some() || rule.summary_options.is_some();
        if has_options {
            rule.rule.observer_type = rule.rule.observer_type.or(defaults.observer_type);
        }
        if rule.rule.ttl.is_zero() {
            rule.rule.ttl = defaults.ttl;
        }
    }
    rules
}

fn merge_defaults(over: Defaults, under: Defaults) -> Defaults {
    let Defaults { mut summary_options, mut histogram_options, .. } = under;
    if !over.summary_options.quantiles.is_empty() {
        summary_options = over.summary_options;
    }
    if !over.histogram_options.buckets.is_empty() {
        histogram_options = over.histogram_options;
    }
    let observer_type: Option<ObserverType> = over.observer_type.or(under.observer_type);
    Defaults {
        observer_type,
        glob_disable_ordering: over.glob_disable_ordering || under.glob_disable_ordering,
        ttl: if over.ttl.is_zero() { under.ttl } else { over.ttl },
        normalise: over.normalise.or(&under.normalise),
        summary_options,
        histogram_options,
        match_type: under.match_type,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Buffer, MetricType};
    use super::*;

    #[test]
    fn inserted_rules_come_first_and_defaults_are_merged() {
        let base = "defaults: {match_type: regex, normalise: {url: uuid, who: email}}\n\
                    mappings:\n- {match: '^a', name: base}\n- {match: '^b', name: other}\n";
        let rules = "defaults: {normalise: {url: [uuid, number]}}\n\
                     mappings:\n- {match: a.*, name: pasted}\n";
        let mapper = Mapper::combined(rules, base).expect("valid");
        let mut buffer = Buffer::default();
        for (name, metric) in [("a.b", "pasted"), ("a", "base"), ("b", "other")] {
            let mapped = mapper.map(name, MetricType::Counter, &mut buffer).expect("a rule");
            assert_eq!(mapped.name, metric);
            assert_eq!(mapped.rule.normalise.value("url", "x-1"), "x-<number>");
            assert_eq!(mapped.rule.normalise.value("who", "a@b.cc"), "<email>");
        }
        assert!(Mapper::combined("mappings: 1", "").is_err());
        assert!(Mapper::combined("", "mappings: 1").is_err());
    }
}
