//! Applies a mapping: from a captured sample to the metric and label set it would have.
//!
//! Lines pass through the rules as in the pipeline. The StatsD name of an exposed series is
//! unknown: the rules that produce its metric determine the treatment of its labels, and the rules
//! under trial are matched against its exposed name, where each `_` matches any one character.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use super::captured::{CapturedSample, Form};
use crate::mapper::name::escape;
use crate::mapper::{
    Action, Buffer, Mapper, MatchType, MetricType, Normaliser, ObserverType, Rule,
};

/// The number of family names whose rules are cached.
const REMEMBERED: usize = 65_536;

/// A label set of a metric.
pub(super) struct MappedSample<'a> {
    pub metric: &'a str,
    pub kind: MetricType,
    pub is_set: bool,
    /// The index of the rule.
    pub rule: Option<usize>,
    /// True if the metric name of the rule varies with the match.
    pub names_vary: bool,
    /// The labels, sorted by name.
    pub labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    pub part: Option<&'a str>,
    /// The number of series of the label set.
    pub weight: u64,
    /// The metric cannot have one of the labels.
    pub is_refused: bool,
}

/// A mapping to apply.
pub(super) struct Mapping {
    mapper: Mapper,
    /// The rules under trial alone: an exposition has passed the others already.
    tried: Mapper,
    form: Form,
    buffer: Buffer,
    families: HashMap<(String, MetricType), Option<FamilyMapping>>,
    /// Labels that normalisation emptied, so that a series lost them.
    pub emptied: BTreeSet<String>,
}

/// The treatment of a family.
#[derive(Clone, Debug)]
struct FamilyMapping {
    metric: String,
    /// The index of the rule that produces the family.
    written_by: Option<usize>,
    /// The index of the rule under trial, with the labels it adds.
    tried_by: Option<(usize, Vec<(String, String)>)>,
}

impl Mapping {
    /// `mapper` is the entire mapping, `tried` the part under trial.
    pub(super) fn new(mapper: Mapper, tried: Mapper, form: Form) -> Self {
        let (buffer, families, emptied) = Default::default();
        Self { mapper, tried, form, buffer, families, emptied }
    }

    /// Passes the resulting series to `then`, if there is one.
    pub(super) fn place(
        &mut self,
        seen: &CapturedSample<'_>,
        then: &mut dyn FnMut(&MappedSample<'_>),
    ) {
        match self.form {
            Form::Lines(_) => self.place_line(seen, then),
            Form::Exposition => self.place_series(seen, then),
        }
    }

    fn place_line(&mut self, seen: &CapturedSample<'_>, then: &mut dyn FnMut(&MappedSample<'_>)) {
        let mapped = self.mapper.map(seen.name, seen.kind, &mut self.buffer);
        let rule = mapped.map(|mapped| mapped.rule);
        if rule.is_some_and(|rule| rule.action == Action::Drop) {
            return;
        }
        let escaped = escape(seen.name);
        let metric = mapped.map_or(&*escaped, |mapped| mapped.name);
        let scale = rule.and_then(|rule| rule.scale).unwrap_or(1.0);
        let falls = seen.kind == MetricType::Counter && seen.is_negative != (scale < 0.0);
        if metric.is_empty() || falls && scale != 0.0 || crate::statsd::is_own_name(metric) {
            return;
        }
        let own = mapped.iter().flat_map(|mapped| mapped.labels());
        let own = own.map(|(name, value)| (Cow::Borrowed(name), Cow::Borrowed(value)));
        let honor = rule.is_some_and(|rule| rule.honor_labels);
        let labels = joined(seen.labels, own.collect(), honor);
        let (reserved, weight) = match (seen.kind, self.mapper.observer_type(rule)) {
            (MetricType::Observer, ObserverType::Summary) => {
                ("quantile", self.mapper.summary_options(rule).quantiles.len() + 2)
            }
            (MetricType::Observer, ObserverType::Histogram) => {
                let bounds = self.mapper.buckets(rule);
                let infinite = bounds.last().is_some_and(|last| *last == f64::INFINITY);
                ("le", bounds.len() + usize::from(!infinite) + 2)
            }
            _ => ("", 1),
        };
        let is_refused = labels.iter().any(|(name, _)| name.starts_with("__") || *name == reserved);
        let normalise = rule.map_or(&self.mapper.defaults().normalise, |rule| &rule.normalise);
        then(&MappedSample {
            metric,
            kind: seen.kind,
            is_set: seen.is_set,
            rule: rule.map(|rule| rule.index),
            names_vary: rule.is_some_and(|rule| rule.literal_name().is_none()),
            labels: normalised(labels, normalise, &mut self.emptied),
            part: None,
            weight: weight as u64,
            is_refused,
        });
    }

    fn place_series(&mut self, seen: &CapturedSample<'_>, then: &mut dyn FnMut(&MappedSample<'_>)) {
        if crate::statsd::is_own_name(seen.name) {
            return;
        }
        let key = (seen.name.to_owned(), seen.kind);
        let family = match self.families.get(&key) {
            Some(known) => known.clone(),
            None => {
                if self.families.len() >= REMEMBERED {
                    self.families.clear();
                }
                let family = self.family(seen);
                self.families.insert(key, family.clone());
                family
            }
        };
        let Some(family) = family else { return };
        let written_by = family.written_by.and_then(|index| self.mapper.rules().get(index));
        let tried_by = family.tried_by.as_ref();
        let tried = tried_by.and_then(|(index, _)| self.tried.rules().get(*index));
        let honor = tried.is_some_and(|rule| rule.honor_labels);
        let own = tried_by.into_iter().flat_map(|(_, labels)| labels);
        let own = own.map(|(name, value)| (Cow::Borrowed(&**name), Cow::Borrowed(&**value)));
        let labels = joined(seen.labels, own.collect(), honor);
        let normalise = match (tried, written_by) {
            (Some(rule), _) | (None, Some(rule)) => &rule.normalise,
            (None, None) => &self.mapper.defaults().normalise,
        };
        // A bucket or quantile of a renamed metric is a different series.
        let part = seen.part.map(|part| part.strip_prefix(seen.name).unwrap_or(part));
        then(&MappedSample {
            metric: &family.metric,
            kind: seen.kind,
            is_set: seen.is_set,
            rule: written_by.map(|rule| rule.index),
            names_vary: false,
            labels: normalised(labels, normalise, &mut self.emptied),
            part,
            weight: 1,
            is_refused: false,
        });
    }

    /// Returns the treatment of a family; `None` if it is dropped.
    fn family(&mut self, seen: &CapturedSample<'_>) -> Option<FamilyMapping> {
        let is_for = |rule: &&Rule| rule.match_metric_type.is_none_or(|kind| kind == seen.kind);
        let writes = |rule: &&Rule| {
            rule.action == Action::Map && rule.literal_name() == Some(seen.name) && is_for(rule)
        };
        let metric = seen.name.to_owned();
        let tried_names: Vec<String> = std::iter::once(seen.name.to_owned())
            .chain(self.tried.rules().iter().filter_map(|rule| as_sent(rule, seen.name)))
            .collect();
        for name in &tried_names {
            let Some(mapped) = self.tried.map(name, seen.kind, &mut self.buffer) else { continue };
            if mapped.rule.action == Action::Drop {
                return None;
            }
            let labels = mapped.labels().map(|(name, value)| (name.to_owned(), value.to_owned()));
            return Some(FamilyMapping {
                metric: mapped.name.to_owned(),
                written_by: None,
                tried_by: Some((mapped.rule.index, labels.collect())),
            });
        }
        let written_by = self.mapper.rules().iter().find(writes).map(|rule| rule.index);
        Some(FamilyMapping { metric, written_by, tried_by: None })
    }
}

/// Returns a name that matches the glob and is exposed as `shown`.
fn as_sent(rule: &Rule, shown: &str) -> Option<String> {
    if rule.match_type != MatchType::Glob {
        return None;
    }
    let segments: Vec<&str> = rule.pattern.split('.').collect();
    let (mut rest, mut out) = (shown, Vec::new());
    for (at, segment) in segments.iter().enumerate() {
        let is_last = at + 1 == segments.len();
        let taken = if *segment != "*" {
            escape(segment).len()
        } else if is_last {
            rest.len()
        } else {
            // Match as little as the next literal segment allows.
            let next = segments.get(at + 1).filter(|next| **next != "*");
            let end = next.map_or_else(|| "_".to_owned(), |next| format!("_{}", escape(next)));
            rest.find(&end)?
        };
        let (found, behind) = rest.split_at_checked(taken)?;
        if found.is_empty() || *segment != "*" && found != escape(segment) {
            return None;
        }
        out.push(if *segment == "*" { found } else { segment });
        rest = if is_last { behind } else { behind.strip_prefix('_')? };
    }
    rest.is_empty().then(|| out.join("."))
}

/// Merges tags and the labels of a rule, sorted by name. On conflicts the rule wins, unless it
/// honours tags.
fn joined<'a>(
    tags: &[(&'a str, &'a str)],
    own: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    honor: bool,
) -> Vec<(Cow<'a, str>, Cow<'a, str>)> {
    let mut all: Vec<(Cow<'a, str>, Cow<'a, str>)> = tags
        .iter()
        .filter(|(name, _)| honor || !own.iter().any(|(known, _)| known == name))
        .map(|(name, value)| (Cow::Borrowed(*name), Cow::Borrowed(*value)))
        .collect();
    for label in own {
        if !all.iter().any(|(name, _)| *name == label.0) {
            all.push(label);
        }
    }
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all
}

/// Normalises the labels and removes those that become empty, which are added to `emptied`.
fn normalised<'a>(
    labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    normalise: &Normaliser,
    emptied: &mut BTreeSet<String>,
) -> Vec<(Cow<'a, str>, Cow<'a, str>)> {
    let normal = |(name, value): (Cow<'a, str>, Cow<'a, str>)| {
        let normal = normalise.value(&name, &value).into_owned();
        if normal.is_empty() && normalise.changes(&name) {
            if !value.is_empty() && !emptied.contains(&*name) {
                emptied.insert(name.into_owned());
            }
            return None;
        }
        let value = if normal == *value { value } else { Cow::Owned(normal) };
        Some((name, value))
    };
    labels.into_iter().filter_map(normal).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_glob_may_have_come_from() {
        let mapper = Mapper::from_yaml(
            "mappings:\n- {match: user.*.login, name: a}\n- {match: a-b.*, name: b}\n- {match: x.y, name: c}\n",
        );
        let mapper = mapper.expect("valid");
        for (rule, shown, sent) in [
            (0, "user_12_login", Some("user.12.login")),
            (0, "user_a_b_login", Some("user.a_b.login")),
            (0, "user_login", None),
            (0, "user_1_login_2", None),
            (1, "a_b_c_d", Some("a-b.c_d")),
            (2, "x_y", Some("x.y")),
            (2, "x_y_z", None),
        ] {
            assert_eq!(as_sent(&mapper.rules()[rule], shown).as_deref(), sent, "{shown}");
        }
    }
}
