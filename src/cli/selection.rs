//! Resolves the selection of resources, families and object labels from the flags.

use std::sync::Arc;

use super::error::{ConfigError, ConfigErrors, Result};
use super::kube_args::KubeArgs;
use crate::resources::select::filter::{FamilyFilter, FilterError};
use crate::resources::select::selection::AllowLists;
use crate::resources::{self, RenderOptions, Resource};

/// Returns all errors of resources, families and allow lists.
pub(super) fn problems(args: &KubeArgs) -> Vec<ConfigError> {
    let mut problems = Vec::new();
    problems.extend(selected(args).err().into_iter().flat_map(|errors| errors.0));
    let lists =
        [(&args.metric_allowlist, 0), (&args.metric_denylist, 1), (&args.metric_opt_in_list, 2)];
    for (patterns, list) in lists {
        for pattern in patterns {
            let mut lists = [&[][..]; 3];
            lists[list] = std::slice::from_ref(pattern);
            let compiled = FamilyFilter::new(lists[0], lists[1], lists[2]);
            problems.extend(compiled.err().map(|error| error.to_string().into()));
        }
    }
    if !args.metric_allowlist.is_empty() && !args.metric_denylist.is_empty() {
        problems.push(FilterError::Both.to_string().into());
    }
    let names = || {
        let known = args.resources.iter().filter_map(|name| resources::find(name));
        let known: Vec<&'static dyn Resource> = known.collect();
        if args.resources.is_empty() { default_resources() } else { known }
    };
    for lists in [&args.labels_allowlist, &args.annotations_allowlist] {
        let resolved = lists.resolve(names().iter().map(|one| one.name()), exists);
        problems.extend(resolved.err().map(|error| unknown(&error.0)));
    }
    let selected = args.selector.keys().chain(args.field_selector.keys());
    // The kinds of custom resources, named PLURAL.VERSION.GROUP, are not known yet.
    problems.extend(
        selected.filter(|name| !name.contains('.') && !exists(name)).map(|name| unknown(name)),
    );
    problems
}

/// Returns the namespaces to watch, in the given order; empty for all, which an empty name also
/// means.
pub fn namespaces(args: &KubeArgs) -> Vec<String> {
    let mut namespaces = args.namespaces.clone();
    if namespaces.iter().any(String::is_empty) {
        return Vec::new();
    }
    if !args.duplicate_series {
        // A namespace watched twice would produce duplicate series.
        let mut seen = std::collections::BTreeSet::new();
        namespaces.retain(|namespace| seen.insert(namespace.clone()));
    }
    namespaces
}

/// Returns the default resources.
fn default_resources() -> Vec<&'static dyn Resource> {
    let all = resources::registry().iter().copied();
    all.filter(|resource| resource.api().default_enabled).collect()
}

/// Returns the resources selected by `args`, or the default ones if they name none. With custom resources only, names are not
/// even checked.
fn selected(args: &KubeArgs) -> Result<Vec<&'static dyn Resource>> {
    if args.custom_resources_only {
        return Ok(Vec::new());
    }
    if args.resources.is_empty() {
        return Ok(default_resources());
    }
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for name in &args.resources {
        match resources::find(name) {
            Some(resource) => found.push(resource),
            None => missing.push(unknown(name)),
        }
    }
    if missing.is_empty() { Ok(found) } else { Err(ConfigErrors(missing)) }
}

/// Returns the resources selected by `args` with their render options.
///
/// # Errors
///
/// When a resource is unknown or a pattern invalid.
pub fn rendering(args: &KubeArgs) -> Result<Vec<(&'static dyn Resource, RenderOptions)>> {
    let selected = selected(args)?;
    let families = Arc::new(family_filter(args)?);
    let resolve = |lists: &AllowLists| {
        let names = selected.iter().map(|resource| resource.name());
        let resolved = lists.resolve(names, exists);
        resolved.map_err(|error| unknown(&error.0))
    };
    let labels = resolve(&args.labels_allowlist)?;
    let annotations = resolve(&args.annotations_allowlist)?;
    let normalise = Arc::new(args.labels_normalise.clone());
    let options = |resource: &'static dyn Resource| RenderOptions {
        labels: labels.selection(resource.name()),
        annotations: annotations.selection(resource.name()),
        normalise: Arc::clone(&normalise),
        families: Arc::clone(&families),
        keep_duplicates: args.duplicate_series,
        skip_zero_states: args.skip_zero_states,
    };
    Ok(selected.into_iter().map(|resource| (resource, options(resource))).collect())
}

/// Returns the filter of families.
pub(super) fn family_filter(args: &KubeArgs) -> Result<FamilyFilter, ConfigError> {
    let list = |set: &std::collections::BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>();
    let filter = FamilyFilter::new(
        &list(&args.metric_allowlist),
        &list(&args.metric_denylist),
        &list(&args.metric_opt_in_list),
    );
    filter.map_err(|error| error.to_string().into())
}

fn exists(name: &str) -> bool {
    resources::find(name).is_some()
}

fn unknown(name: &str) -> ConfigError {
    let available: Vec<&str> = resources::registry().iter().map(|one| one.name()).collect();
    let available = available.join(",");
    format!("resource {name} does not exist. Available resources: {available}").into()
}
