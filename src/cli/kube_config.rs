//! Resolves the flags of kube-state-metrics to the configuration of the Kubernetes side.

use std::path::PathBuf;
use std::sync::Arc;

use super::custom::{self, CustomConfigSource};
use super::error::{Result, named};
use super::kube_flags::KubeArgs;
use super::load::{Load, OptionsFile};
use super::selection::{family_filter, namespaces, rendering};
use super::shared::Name;
use crate::exposition::budget::{Budget, BudgetMode};
use crate::go::strconv;
use crate::kube::autosharding::PodName;
use crate::kube::selector;
use crate::kube::shard::Shard;
use crate::kube::workloads::ledger::{self, LedgerOptions};
use crate::kube::workloads::{FAMILIES, PodLabels, WorkloadFamily, WorkloadOptions};
use crate::kube::{PipelineConfig, Timing, WatchedResource};
use crate::resources::custom::resolve::ResolveOptions;
use crate::resources::custom::{Config as CustomConfig, Definition, ValueErrors, with_built_in};
use crate::resources::select::filter::FamilyFilter;
use crate::resources::{self, Resource};

/// The settings of the Kubernetes side.
#[derive(Clone)]
pub struct KubeConfig {
    /// The path of the kubeconfig, if set.
    pub kubeconfig: Option<PathBuf>,
    /// The URL of the API server, if set; overrides the kubeconfig's.
    pub apiserver: Option<String>,
    /// The pipeline with the built-in resources, in byte order of the names. Its shard is that of
    /// this process, unless it is derived from the pod.
    pub pipeline: PipelineConfig,
    /// Serves nothing until the first lists are complete.
    pub gate: bool,
    /// The StatefulSet pod whose ordinal and replica count determine the shard.
    pub pod: Option<PodName>,
    /// The telemetry port of the other pods of the StatefulSet.
    pub telemetry_port: u16,
    /// The custom resource metrics, if configured.
    pub custom: Option<CustomResources>,
    /// The families of workloads and of totals over pods.
    pub workloads: WorkloadOptions,
}

impl KubeConfig {
    /// Adds the kinds by which the senders of StatsD lines are recognised. Those without families are watched without any.
    pub fn watch_senders(&mut self) {
        let watched = &mut self.pipeline.resources;
        for name in self.workloads.of_senders() {
            if !watched.iter().any(|watched| watched.api.plural == name)
                && let Some(resource) = resources::find(name)
            {
                watched.push(WatchedResource::observed(resource.api()));
            }
        }
        watched.sort_by(|one, other| one.api.plural.cmp(&other.api.plural));
    }
}

/// The custom resource metrics.
#[derive(Clone)]
pub struct CustomResources {
    /// The configuration; `None` while an optional file is missing.
    pub config: Option<Arc<CustomConfig>>,
    /// The configuration file, unless a flag contains the configuration.
    pub file: Option<OptionsFile>,
    /// The families to serve.
    pub families: Arc<FamilyFilter>,
    /// Shows duplicates like kube-state-metrics does.
    pub as_original: bool,
    /// The verbosity of the log.
    pub verbosity: i64,
}

impl CustomResources {
    /// Returns the kinds that may have metrics: those `defined` and the built-in ones, which
    /// kube-state-metrics ignores.
    pub fn served(&self, defined: Vec<Definition>) -> Vec<Definition> {
        if self.as_original { defined } else { with_built_in(defined) }
    }

    /// Returns the render settings of objects.
    pub fn resolve_options(&self, errors: Arc<dyn ValueErrors>) -> ResolveOptions {
        ResolveOptions {
            families: Arc::clone(&self.families),
            keep_duplicates: self.as_original,
            errors,
        }
    }
}

/// Returns the custom resource settings, if configured.
///
/// # Errors
///
/// When the configuration is unreadable or invalid and there is no earlier version of it to keep.
pub fn custom_resources(args: &KubeArgs, load: Load<'_>) -> Result<Option<CustomResources>> {
    let Some(CustomConfigSource { flag, loaded, file }) = custom::read(args, load)? else {
        return Ok(None);
    };
    for problem in loaded.iter().flat_map(|loaded| &loaded.problems) {
        tracing::warn!(config = flag, "{problem}");
    }
    if loaded.is_none() {
        tracing::warn!(config = flag, "No custom resource metrics until the file exists");
    }
    Ok(Some(CustomResources {
        config: loaded.map(|loaded| Arc::new(loaded.config)),
        file,
        families: Arc::new(family_filter(args)?),
        as_original: args.duplicate_series,
        verbosity: args.klog.verbosity,
    }))
}

/// Returns the resources to list and watch: those selected by `args`, those of StatsD `senders` if these are resolved, and
/// those that lead from pods to workloads.
///
/// # Errors
///
/// When a resource is unknown or a pattern invalid.
pub fn watched(args: &KubeArgs, name: Name, senders: bool) -> Result<Vec<&'static dyn Resource>> {
    let selected = rendering(args)?;
    let mut all: Vec<_> = selected.into_iter().map(|(resource, _)| resource).collect();
    let workloads = workloads(args, name, &Budget::default())?;
    for name in workloads.of_senders().filter(|_| senders) {
        let is_known = all.iter().any(|resource| resource.name() == name);
        all.extend(resources::find(name).filter(|_| !is_known));
    }
    let names: Vec<&str> = all.iter().map(|resource| resource.name()).collect();
    all.extend(workloads.links(&names));
    Ok(all)
}

/// Returns the families of workloads and of events. They are off for a part of the pods, such as those of a node.
///
/// # Errors
///
/// When a pattern is invalid.
pub fn workloads(args: &KubeArgs, name: Name, budget: &Budget) -> Result<WorkloadOptions> {
    let filter = family_filter(args)?;
    let is_whole = watches_all_pods(args);
    let is_enabled = |family: &str| is_whole && filter.enabled(family, name != Name::Kstatd);
    let is_on = |family: &&'static WorkloadFamily| is_enabled(family.name);
    let max_series = if budget.mode == BudgetMode::Enforce { budget.series_per_kind } else { 0 };
    let ledger = ledger::RESOURCES.iter().flat_map(|resource| resource.families);
    let counts = |name: &&'static str| match *name {
        ledger::KUBE_EVENTS => {
            counts_kube_events(args) && filter.enabled(ledger::KUBE_EVENTS, false)
        }
        name => is_enabled(name),
    };
    let ledger = ledger.map(|family| family.name).filter(counts).collect();
    let ledger = LedgerOptions {
        families: ledger,
        budget: Arc::new(budget.clone()),
        retention: strconv::positive_duration(args.workload_counter_retention).unwrap_or_default(),
    };
    let families = FAMILIES.iter().filter(is_on).collect();
    let normalise = Arc::new(args.labels_normalise.clone());
    let pod_labels = PodLabels { normalise, ..args.pod_workload_labels.clone() };
    let (is_partial, may_change) = (!is_whole, !args.config.is_empty());
    Ok(WorkloadOptions { families, max_series, ledger, pod_labels, is_partial, may_change })
}

fn watches_all_pods(args: &KubeArgs) -> bool {
    args.node.is_empty() && !args.track_unscheduled_pods
}

/// Returns whether the flags ask for counters of Kubernetes Events, and do not restrict the process to a part of the pods
/// or to custom resources.
pub fn counts_kube_events(args: &KubeArgs) -> bool {
    args.kubernetes_events && watches_all_pods(args) && !args.custom_resources_only
}

/// Returns the configuration of the Kubernetes side.
///
/// # Errors
///
/// When a resource is unknown or a pattern invalid.
pub fn kube(
    args: &KubeArgs,
    name: Name,
    budget: Budget,
    custom: Option<CustomResources>,
    telemetry_port: u16,
) -> Result<KubeConfig> {
    let resources = rendering(args)?;
    let watched =
        resources.iter().map(|(resource, options)| WatchedResource::built_in(*resource, options));
    Ok(KubeConfig {
        workloads: workloads(args, name, &budget)?,
        kubeconfig: named(&args.kubeconfig).map(PathBuf::from),
        apiserver: named(&args.apiserver),
        custom,
        pipeline: PipelineConfig {
            resources: watched.collect(),
            namespaces: namespaces(args),
            selector: selector::build(
                &args.namespaces_denylist,
                &args.node,
                args.track_unscheduled_pods,
            ),
            field_selectors: args.field_selector.clone(),
            label_selectors: args.selector.clone(),
            drop_completed_after: strconv::positive_duration(args.drop_completed_pods_after),
            object_limit: u64::try_from(args.object_limit).unwrap_or(0),
            budget: Arc::new(budget),
            use_apiserver_cache: args.use_apiserver_cache,
            shard: Shard::new(args.shard, args.total_shards),
            timing: Timing {
                staleness_limit: strconv::positive_duration(args.staleness_limit),
                ..Timing::default()
            },
        },
        gate: args.gate.unwrap_or(false),
        pod: named(&args.pod)
            .zip(named(&args.pod_namespace))
            .map(|(name, namespace)| PodName { namespace, name }),
        telemetry_port,
    })
}
