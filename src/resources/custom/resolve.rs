//! Which kinds of a cluster the entries are for, and what renders their objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cache::Schema;
use crate::resources::kind::Renderer;
use crate::resources::select::filter::FamilyFilter;

use super::built_in;
use super::config::{Config, Entry, Metric, valid_name};
use super::definition::Definition;
use super::program::{COUNT_ALONE, CompileError, Program};
use super::render::{CustomRenderer, ValueErrors};

/// What becomes of a kind that several entries are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twice {
    /// It has the metrics of all of them.
    Both,
    /// The last one counts, as in kube-state-metrics.
    Last,
}

/// How objects are rendered.
#[derive(Clone)]
pub struct Manner {
    /// Which families there are.
    pub families: Arc<FamilyFilter>,
    /// Whether a series is printed as often as an object gives rise to it.
    pub keep_duplicates: bool,
    /// What becomes of a kind with several entries.
    pub twice: Twice,
    /// Who is told of value errors.
    pub errors: Arc<dyn ValueErrors>,
}

/// A kind with metrics.
#[derive(Clone)]
pub struct Resolved {
    /// The kind.
    pub definition: Definition,
    /// What renders its objects.
    pub renderer: Arc<dyn Renderer>,
}

/// What came of a configuration in a cluster.
#[derive(Clone, Default)]
pub struct Resolution {
    /// Kinds with metrics, by their names in the catalog.
    pub resources: Vec<Resolved>,
    /// Kinds of which an entry was replaced by a later one.
    pub replaced: Vec<String>,
    /// Entries that are for no kind whatever: they name no group.
    pub groupless: Vec<String>,
}

impl Entry {
    /// Whether the entry is for this kind. One that is built in has to be named.
    pub(crate) fn is_for(&self, definition: &Definition) -> bool {
        let is_any = |wanted: &str| matches!(wanted, "" | "*");
        self.group == definition.group
            && (is_any(&self.version) || self.version == definition.version)
            && (self.kind == definition.kind
                || is_any(&self.kind) && !built_in::is_built_in(definition))
    }

    /// Whether both may be for one kind.
    fn overlaps(&self, other: &Self) -> bool {
        let fits = |one: &str, other: &str| {
            one == other || [one, other].iter().any(|text| matches!(*text, "" | "*"))
        };
        self.group == other.group
            && fits(&self.version, &other.version)
            && fits(&self.kind, &other.kind)
    }

    /// Whether it names a group, or a kind of the one that has no name, as it has to.
    pub(crate) fn has_group(&self) -> bool {
        !matches!(self.group.as_str(), "" | "*") || built_in::is_named(self)
    }
}

impl Config {
    /// Whether all metrics can be compiled, whatever kinds there are.
    ///
    /// # Errors
    /// The first that cannot.
    pub fn compile(&self) -> Result<(), CompileError> {
        let entries = || self.entries.iter().filter(|entry| entry.has_group());
        entries().try_for_each(|entry| Program::default().add(entry, [""; 3]))?;
        match self.count_clashes().first() {
            Some((metric, _)) => Err(CompileError::of(metric, COUNT_ALONE.to_owned())),
            None => Ok(()),
        }
    }

    /// The metrics that have the name of one before them which may be for the same kind, one of the two being a Count.
    pub(super) fn count_clashes(&self) -> Vec<(&Metric, &Metric)> {
        let mut names: BTreeMap<String, Vec<(&Entry, &Metric)>> = BTreeMap::new();
        let mut clashes = Vec::new();
        for entry in self.entries.iter().filter(|entry| entry.has_group()) {
            for metric in &entry.metrics {
                let earlier =
                    names.entry(valid_name(&entry.family_name(metric), true)).or_default();
                let is_beside = |(other, one): &&(&Entry, &Metric)| {
                    (metric.is_count() || one.is_count()) && other.overlaps(entry)
                };
                clashes.extend(earlier.iter().find(is_beside).map(|(_, one)| (metric, *one)));
                earlier.push((entry, metric));
            }
        }
        clashes
    }

    /// The names of all families.
    pub fn families(&self) -> impl Iterator<Item = String> {
        let names = |entry: &Entry| -> Vec<String> {
            entry.metrics.iter().map(|metric| entry.family_name(metric)).collect()
        };
        self.entries.iter().flat_map(names)
    }
}

/// Finds the kinds that `config` is for among those that are served, and compiles their metrics.
///
/// # Errors
/// A metric of one of them that cannot be compiled. None of the configuration is used then.
pub fn resolve(
    config: &Config,
    served: &[Definition],
    manner: &Manner,
) -> Result<Resolution, CompileError> {
    let mut resolution = Resolution::default();
    let mut programs: BTreeMap<String, (&Definition, Program)> = BTreeMap::new();
    for entry in &config.entries {
        let kinds: Vec<&Definition> =
            served.iter().filter(|definition| entry.is_for(definition)).collect();
        if kinds.is_empty() && matches!(entry.group.as_str(), "" | "*") {
            let name = format!("{}/{}, Kind={}", entry.group, entry.version, entry.kind);
            resolution.groupless.push(name);
        }
        for definition in kinds {
            let name = definition.resource_name();
            let Definition { group, version, kind, .. } = definition;
            let mut program = Program::default();
            if let Some((_, earlier)) = programs.remove(&name) {
                match manner.twice {
                    Twice::Both => program = earlier,
                    Twice::Last if resolution.replaced.contains(&name) => {}
                    Twice::Last => resolution.replaced.push(name.clone()),
                }
            }
            program.add(entry, [group, version, kind])?;
            programs.insert(name, (definition, program));
        }
    }
    for (resource, (definition, mut program)) in programs {
        program.metrics.retain(|metric| manner.families.enabled(&metric.name, false));
        if !manner.keep_duplicates {
            program.join_families();
        }
        program.finish();
        let families = program.metrics.iter().map(|metric| metric.family()).collect();
        let schema = Arc::new(Schema { resource, families });
        let errors = Arc::clone(&manner.errors);
        let renderer = CustomRenderer::new(schema, program, manner.keep_duplicates, errors);
        let definition = definition.clone();
        resolution.resources.push(Resolved { definition, renderer: Arc::new(renderer) });
    }
    Ok(resolution)
}
