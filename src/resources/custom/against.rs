//! Validation of a configuration against the schemas of its kinds.

use std::collections::BTreeMap;

use crate::config_file::{Position, Problem, ProblemClass, hint, nearest};

use super::built_in;
use super::config::{Block, Config, Entry, LabelPaths, Metric, PathText, copies_map};
use super::definition::Definition;
use super::labels_check;
use super::metric::MetricType;
use super::number;
use super::path::Path;
use super::shape::{DeadEnd, Scalar, Shape, follow};

/// The maximum number of members that a hint lists.
const MAX_HINT_MEMBERS: usize = 12;

impl Config {
    /// Returns the parts of the configuration that can never apply to objects of these kinds, in the order of the file.
    /// A part that can apply to one of an entry's kinds is not a problem.
    pub fn problems_against(&self, kinds: &[(Definition, Shape)]) -> Vec<Problem> {
        let mut problems = Vec::new();
        for entry in &self.entries {
            let own: Vec<&(Definition, Shape)> =
                kinds.iter().filter(|(definition, _)| entry.is_for(definition)).collect();
            let mut found = own.iter().map(|(kind, shape)| SchemaProblems::of(entry, kind, shape));
            let Some(first) = found.next() else {
                problems.extend(undefined(entry, kinds));
                continue;
            };
            let others: Vec<SchemaProblems<'_>> = found.collect();
            let everywhere = first.problems.into_iter().filter(|(about, _)| {
                others.iter().all(|others| others.problems.contains_key(about))
            });
            problems.extend(everywhere.map(|(_, problem)| problem));
        }
        problems
    }
}

impl Config {
    /// Returns a problem if no given definition belongs to the group of an entry that needs a definition.
    pub fn problem_without_definitions(&self, kinds: &[(Definition, Shape)]) -> Option<Problem> {
        let built_in = built_in::definitions();
        let is_defined = |entry: &&Entry| {
            entry.has_group() && built_in.iter().all(|kind| kind.group != entry.group)
        };
        let mut entries = self.entries.iter().filter(is_defined).peekable();
        let first = entries.peek()?.position;
        let mut groups = Vec::new();
        for Entry { group, .. } in entries {
            if kinds.iter().any(|(kind, _)| kind.group == *group) {
                return None;
            }
            if !groups.contains(&group.as_str()) {
                groups.push(group);
            }
        }
        Some(Problem::warning(
            ProblemClass::Suspicious,
            first.0,
            format!("no definition of {} is among the given files", groups.join(", ")),
            "give the files with the CustomResourceDefinitions, no path is held against them",
        ))
    }
}

/// Returns a problem if the entry matches none of the given kinds.
fn undefined(entry: &Entry, kinds: &[(Definition, Shape)]) -> Option<Problem> {
    let of_group = || kinds.iter().filter(|(kind, _)| kind.group == entry.group);
    of_group().next()?;
    let Entry { group, version, kind, .. } = entry;
    let names: Vec<_> = of_group().map(|(definition, _)| definition.kind.as_str()).collect();
    let hint = match nearest(kind, names) {
        Some(name) if name == kind => {
            let versions: Vec<&str> = of_group()
                .filter(|(definition, _)| definition.kind == *kind)
                .map(|(definition, _)| definition.version.as_str())
                .collect();
            format!("its versions are {}", versions.join(", "))
        }
        Some(name) => format!("write {name}"),
        None => "give the definition of this kind, too".to_owned(),
    };
    let message = format!("{kind} of {group}/{version} is not among the given definitions");
    Some(Problem::warning(ProblemClass::NeverMatches, entry.position.0, message, hint))
}

/// The problems of one kind by line, column and a number that distinguishes problems at the same position.
struct SchemaProblems<'k> {
    kind: &'k Definition,
    problems: BTreeMap<(u64, u64, u8), Problem>,
}

impl<'k> SchemaProblems<'k> {
    fn of(entry: &Entry, kind: &'k Definition, shape: &Shape) -> Self {
        let mut findings = Self { kind, problems: BTreeMap::new() };
        findings.labels(&entry.labels_from_path, vec![shape]);
        for metric in &entry.metrics {
            findings.labels(&metric.labels_from_path, vec![shape]);
            let Some(kind) = MetricType::of(&metric.kind) else { continue };
            if let Some(block) = kind.block(metric) {
                findings.block(kind, block, metric, shape);
            }
        }
        findings
    }

    fn add(
        &mut self,
        position: Position,
        number: u8,
        class: ProblemClass,
        message: String,
        hint: String,
    ) {
        let problem = Problem::warning(class, position, message, hint);
        self.problems.entry((position.line, position.column, number)).or_insert(problem);
    }

    fn block(&mut self, kind: MetricType, block: &Block, metric: &Metric, shape: &Shape) {
        let Some(found) = self.path(&block.path, vec![shape]) else { return };
        let has_key = !block.label_from_key.is_empty();
        let each = |with_members: bool, with_itself: bool| -> Vec<&Shape> {
            let starts = found.iter().flat_map(|shape| match shape {
                Shape::Map(..) if with_members => {
                    [shape.elements(), with_itself.then_some(*shape).into_iter().collect()].concat()
                }
                Shape::Map(..) => with_itself.then_some(*shape).into_iter().collect(),
                Shape::List(_) => shape.elements(),
                _ => vec![*shape],
            });
            starts.collect()
        };
        let labelled = match kind {
            MetricType::Gauge | MetricType::Info => each(true, true),
            MetricType::StateSet => each(false, true),
            MetricType::Count => each(has_key, !has_key),
        };
        self.labels(&block.labels_from_path, labelled);
        let values = match kind {
            // The path may refer to a key of the map itself.
            MetricType::Gauge => {
                self.path(&block.value_from, each(true, block.value_from.segments.len() == 1))
            }
            MetricType::StateSet => self.path(&block.value_from, each(false, true)),
            MetricType::Info | MetricType::Count => None,
        };
        if let Some(values) = values {
            self.values(kind, block, metric, &values);
        }
    }

    fn values(&mut self, kind: MetricType, block: &Block, metric: &Metric, values: &[&Shape]) {
        let text =
            if block.value_from.segments.is_empty() { &block.path } else { &block.value_from };
        let position = text.position.or(metric.positions.kind).0;
        let scalars: Vec<&Scalar> = values
            .iter()
            .filter_map(|shape| match shape {
                Shape::Scalar(scalar) => Some(scalar),
                _ => None,
            })
            .collect();
        let are_scalars = scalars.len() == values.len();
        let can_be_text =
            |shape: &&Shape| matches!(shape, Shape::Any | Shape::Scalar(Scalar { text: true, .. }));
        if kind == MetricType::StateSet {
            if !values.iter().any(can_be_text) {
                let message = format!("{text} is never a text, a state set has no other states");
                let hint = "take a Gauge, or the path of a text".to_owned();
                self.add(position, 1, ProblemClass::NeverMatches, message, hint);
            }
            let texts = scalars.iter().flat_map(|scalar| &scalar.texts);
            let listed: Vec<&str> = texts.map(String::as_str).collect();
            if !are_scalars || scalars.iter().any(|scalar| scalar.texts.is_empty()) {
                return;
            }
            let unknown = block.list.iter().find(|state| !listed.contains(&state.as_str()));
            if let Some(state) = unknown {
                let hint = hint(state, &listed, "it can be");
                let message = format!("{text} is never {state:?}, whose series is always 0");
                self.add(metric.positions.kind.0, 2, ProblemClass::NeverMatches, message, hint);
            }
            return;
        }
        let never_number = |scalar: &&Scalar| {
            let mut texts = scalar.texts.iter();
            !scalar.texts.is_empty() && texts.all(|text| number::of_text(text).is_err())
        };
        if are_scalars && !scalars.is_empty() && scalars.iter().all(never_number) {
            let message = format!("{text} is never a number");
            let hint = "take a StateSet, or an Info with a label".to_owned();
            self.add(position, 1, ProblemClass::NeverMatches, message, hint);
        }
    }

    /// Checks label paths that start at any of `starts`; skips them if there is no start.
    fn labels(&mut self, paths: &LabelPaths, starts: Vec<&Shape>) {
        if starts.is_empty() {
            return;
        }
        for (label, text) in paths {
            let Some(found) = self.path(text, starts.clone()) else { continue };
            let position = text.position.0;
            if copies_map(label) {
                if !found.iter().any(|shape| matches!(shape, Shape::Any | Shape::Map(..))) {
                    let message = format!("{text} is no map, {label} copies nothing");
                    let hint = "leave the star out of the label".to_owned();
                    self.add(position, 1, ProblemClass::NeverMatches, message, hint);
                }
                continue;
            }
            let is_time =
                |shape: &&Shape| matches!(shape, Shape::Scalar(Scalar { time: true, .. }));
            if found.iter().all(is_time) && labels_check::cardinality(label, text, false).is_none()
            {
                let (message, hint) = labels_check::timestamp_warning(label, text);
                self.add(position, 1, ProblemClass::HighCardinality, message, hint);
            }
        }
    }

    fn path<'s>(&mut self, text: &PathText, starts: Vec<&'s Shape>) -> Option<Vec<&'s Shape>> {
        // A path that does not compile is reported elsewhere.
        let path = Path::compile(&text.segments).ok()?;
        match follow(starts, &path) {
            Ok(found) => Some(found),
            Err(dead) => {
                let (message, hint) = self.dead(text, &dead);
                self.add(text.position.0, 0, ProblemClass::NeverMatches, message, hint);
                None
            }
        }
    }

    fn dead(&self, text: &PathText, dead: &DeadEnd) -> (String, String) {
        let Definition { group, version, kind, .. } = self.kind;
        let segment = text.segments.get(dead.segment).map_or("", String::as_str);
        let before = text.segments.get(..dead.segment).unwrap_or_default().join(".");
        let at = if before.is_empty() { "the value".to_owned() } else { before };
        let message = format!(
            "{text} leads nowhere in {kind} of {group}/{version}: {at} is {} without {segment:?}",
            dead.what
        );
        let wanted = match segment.trim_matches(['[', ']']).split_once('=') {
            Some((key, _)) => key,
            None => segment,
        };
        let members = dead.members.iter().map(String::as_str);
        let hint = match (dead.what, nearest(wanted, members.clone())) {
            ("a list", _) if !segment.starts_with('[') => {
                "write a number, or [key=value] in quotes, before it".to_owned()
            }
            (_, Some(name)) if name != segment => format!("write {name}"),
            _ if dead.members.is_empty() => "leave it out".to_owned(),
            _ => {
                let some: Vec<&str> = members.take(MAX_HINT_MEMBERS).collect();
                let more = if dead.members.len() > MAX_HINT_MEMBERS { ", ..." } else { "" };
                format!("members are {}{more}", some.join(", "))
            }
        };
        (message, hint)
    }
}
