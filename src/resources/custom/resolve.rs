//! Matching of entries with the kinds of a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cache::Schema;
use crate::resources::kind::Renderer;
use crate::resources::select::filter::FamilyFilter;

use super::built_in;
use super::config::{Config, Entry, Metric, valid_name};
use super::definition::Definition;
use super::program::{COUNT_NAME_TAKEN, CompileError, Program};
use super::render::{CustomRenderer, ValueErrors};

/// The rendering options of custom resources.
#[derive(Clone)]
pub struct ResolveOptions {
    /// The families to expose.
    pub families: Arc<FamilyFilter>,
    /// True if duplicate series are exposed, and the last of several entries for a kind wins, as in kube-state-metrics.
    /// Otherwise the kind has the metrics of all of them.
    pub keep_duplicates: bool,
    /// The consumer of value errors.
    pub errors: Arc<dyn ValueErrors>,
}

/// A kind with metrics.
#[derive(Clone)]
pub struct Resolved {
    /// The definition of the kind.
    pub definition: Definition,
    /// The renderer of its objects.
    pub renderer: Arc<dyn Renderer>,
    /// Family and path of the metrics of which every object should have a value.
    pub required: BTreeSet<(String, String)>,
}

/// The result of matching a configuration with a cluster.
#[derive(Clone, Default)]
pub struct Resolution {
    /// Kinds with metrics, sorted by resource name.
    pub resources: Vec<Resolved>,
    /// Kinds with an entry that a later one replaced.
    pub replaced: Vec<String>,
    /// Entries that match no kind because they name no group.
    pub groupless: Vec<String>,
}

impl Entry {
    /// True if the entry is for this kind. A built-in kind must be named.
    pub(crate) fn is_for(&self, definition: &Definition) -> bool {
        let is_any = |wanted: &str| matches!(wanted, "" | "*");
        self.group == definition.group
            && (is_any(&self.version) || self.version == definition.version)
            && (self.kind == definition.kind
                || is_any(&self.kind) && !built_in::is_built_in(definition))
    }

    /// True if both may match the same kind.
    fn overlaps(&self, other: &Self) -> bool {
        let fits = |one: &str, other: &str| {
            one == other || [one, other].iter().any(|text| matches!(*text, "" | "*"))
        };
        self.group == other.group
            && fits(&self.version, &other.version)
            && fits(&self.kind, &other.kind)
    }

    /// True if the entry names a group as required, or a kind of the core group.
    pub(crate) fn has_group(&self) -> bool {
        !matches!(self.group.as_str(), "" | "*") || built_in::is_named(self)
    }
}

impl Config {
    /// Checks that all metrics compile, independent of the kinds served.
    ///
    /// # Errors
    /// The first metric that does not compile.
    pub fn compile(&self) -> Result<(), CompileError> {
        let entries = || self.entries.iter().filter(|entry| entry.has_group());
        entries().try_for_each(|entry| Program::default().add(entry, [""; 3]))?;
        match self.count_clashes().first() {
            Some((metric, _)) => Err(CompileError::of(metric, COUNT_NAME_TAKEN.to_owned())),
            None => Ok(()),
        }
    }

    /// Returns pairs of metrics with the same name that may be for the same kind, one of the two being a Count.
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

    /// Returns the entries with a group that match none of the served kinds.
    pub(crate) fn unserved(&self, served: &[Definition]) -> Vec<String> {
        let is_unserved = |entry: &&Entry| {
            entry.has_group() && !served.iter().any(|definition| entry.is_for(definition))
        };
        let name =
            |Entry { group, version, kind, .. }: &Entry| format!("{kind} of {group}/{version}");
        self.entries.iter().filter(is_unserved).map(name).collect()
    }

    /// Returns the names of all families.
    pub fn families(&self) -> impl Iterator<Item = String> {
        let names = |entry: &Entry| -> Vec<String> {
            entry.metrics.iter().map(|metric| entry.family_name(metric)).collect()
        };
        self.entries.iter().flat_map(names)
    }
}

/// Finds the served kinds that `config` matches, and compiles their metrics.
///
/// # Errors
/// A metric that does not compile. The entire configuration is rejected then.
pub fn resolve(
    config: &Config,
    served: &[Definition],
    options: &ResolveOptions,
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
                if !options.keep_duplicates {
                    program = earlier;
                } else if !resolution.replaced.contains(&name) {
                    resolution.replaced.push(name.clone());
                }
            }
            program.add(entry, [group, version, kind])?;
            programs.insert(name, (definition, program));
        }
    }
    for (resource, (definition, mut program)) in programs {
        program.metrics.retain(|metric| options.families.enabled(&metric.name, false));
        if !options.keep_duplicates {
            program.join_families();
        }
        program.finish();
        let families = program.metrics.iter().map(|metric| metric.family()).collect();
        let required = program.metrics.iter().filter(|metric| metric.error_log_v <= 0);
        let required = required.map(|metric| (metric.name.clone(), metric.path.clone())).collect();
        let schema = Arc::new(Schema { resource, families });
        let errors = Arc::clone(&options.errors);
        let renderer =
            CustomRenderer::new(schema, definition, program, options.keep_duplicates, errors);
        let definition = definition.clone();
        resolution.resources.push(Resolved { definition, renderer: Arc::new(renderer), required });
    }
    Ok(resolution)
}
