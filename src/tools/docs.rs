//! The reference of all metrics as Markdown, made from the tables of the [resources].
//!
//! Nothing is read but the registry, so that the pages say what the program does. The pages in
//! `docs/metrics/` are what `kstatd docs metrics --out docs/metrics` writes; a test compares them.

use std::fmt::Write;

use crate::exposition::Format;
use crate::resources::{self, FamilyInfo, Resource, Stability};

const ORIGIN: &str =
    "<!-- Written by `kstatd docs metrics` from the tables in src/resources. -->\n\n";

/// The pages: file name and text, the index `README.md` first.
#[must_use]
pub fn metrics_docs() -> Vec<(String, String)> {
    let resources = resources::registry();
    let pages = resources.iter().map(|resource| {
        let name = format!("{}.md", resource.name());
        (name, page(*resource))
    });
    std::iter::once(("README.md".to_owned(), index(resources))).chain(pages).collect()
}

fn index(resources: &[&'static dyn Resource]) -> String {
    let mut out = format!("# Metrics of Kubernetes objects\n\n{ORIGIN}");
    out.push_str(
        "One page for each resource that `--resources` can name. HELP of a stable metric begins with\n\
         `[STABLE]`: its name and labels stay. Resources marked *off* are watched only if named.\n\n\
         | Resource | Kind | Metrics | Default |\n|---|---|---|---|\n",
    );
    for resource in resources {
        let name = resource.name();
        let api = resource.api();
        let default = if api.default_enabled { "on" } else { "*off*" };
        let families = resource.families().len();
        line(
            &mut out,
            format_args!(
                "| [{name}]({name}.md) | `{}` {} | {families} | {default} |",
                group_version(*resource),
                api.kind
            ),
        );
    }
    out
}

fn page(resource: &'static dyn Resource) -> String {
    let api = resource.api();
    let mut out = format!("# {}\n\n{ORIGIN}", resource.name());
    let scope = if api.namespaced { "namespaced" } else { "cluster-wide" };
    let default = if api.default_enabled {
        "watched by default"
    } else {
        "watched if `--resources` names it"
    };
    line(&mut out, format_args!("`{}` {}, {scope}, {default}.", group_version(resource), api.kind));
    let identity = labels(resource.identity_labels());
    line(
        &mut out,
        format_args!(
            "Every series begins with {identity}; the labels below follow in this order.\n"
        ),
    );
    out.push_str("| Metric | Type | Stability | Labels | Meaning |\n|---|---|---|---|---|\n");
    for family in resource.families() {
        row(&mut out, &family);
    }
    if resource
        .families()
        .iter()
        .any(|family| family.labels.iter().any(|label| label.ends_with('*')))
    {
        out.push_str(
            "\nA label that ends in `*` stands for one label for each key of the object's map: the key in\n\
             lower case, with `_` for what a label name cannot hold.\n",
        );
    }
    out
}

fn row(out: &mut String, family: &FamilyInfo) {
    let stability = match family.stability {
        Stability::Stable => "stable",
        Stability::Alpha => "alpha",
    };
    let opt_in = if family.opt_in { ", opt-in" } else { "" };
    let deprecated =
        family.deprecated.map_or(String::new(), |since| format!(", deprecated since {since}"));
    let alternative = match family.other_labels {
        Some([]) => " or none".to_owned(),
        Some(other) => format!(" or {}", labels(other)),
        None => String::new(),
    };
    line(
        out,
        format_args!(
            "| `{}` | {} | {stability}{opt_in}{deprecated} | {}{alternative} | {} |",
            family.name,
            family.kind.text(Format::OpenMetrics),
            labels(family.labels),
            family.help,
        ),
    );
}

fn labels(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn group_version(resource: &'static dyn Resource) -> String {
    let api = resource.api();
    let slash = if api.group.is_empty() { "" } else { "/" };
    format!("{}{slash}{}", api.group, api.version)
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{text}");
}
