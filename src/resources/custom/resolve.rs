//! Which kinds of a cluster the entries are for, and what renders their objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cache::Schema;
use crate::resources::kind::Renderer;
use crate::resources::select::filter::FamilyFilter;

use super::config::{Config, Entry};
use super::program::{CompileError, Program};
use super::render::{CustomRenderer, ValueErrors};

/// A kind that a cluster serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Definition {
    /// Group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Plural, lower-case.
    pub plural: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
}

impl Definition {
    /// The name in the catalog, as kube-state-metrics has it.
    #[must_use]
    pub fn resource_name(&self) -> String {
        format!("{}/{}, Resource={}", self.group, self.version, self.plural)
    }
}

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
    /// Whether the entry is for this kind.
    pub(crate) fn is_for(&self, definition: &Definition) -> bool {
        let fits = |wanted: &str, own: &str| matches!(wanted, "" | "*") || wanted == own;
        self.group == definition.group
            && fits(&self.version, &definition.version)
            && fits(&self.kind, &definition.kind)
    }

    /// Whether it names a group, as it has to.
    pub(crate) fn has_group(&self) -> bool {
        !matches!(self.group.as_str(), "" | "*")
    }
}

impl Config {
    /// Whether all metrics can be compiled, whatever kinds there are.
    ///
    /// # Errors
    /// The first that cannot.
    pub fn compile(&self) -> Result<(), CompileError> {
        let wildcards = |entry: &Entry| Program::default().add(entry, ["", "", ""]);
        self.entries.iter().filter(|entry| entry.has_group()).try_for_each(wildcards)
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
        if !entry.has_group() {
            let name = format!("{}/{}, Kind={}", entry.group, entry.version, entry.kind);
            resolution.groupless.push(name);
            continue;
        }
        for definition in served.iter().filter(|definition| entry.is_for(definition)) {
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
