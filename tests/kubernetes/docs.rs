//! The reference of all metrics in `docs/metrics/`, generated from the tables of the resources.
//!
//!     cargo test --test kubernetes docs                  checks that the pages are current
//!     DOCS_UPDATE=1 cargo test --test kubernetes docs    writes them

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use kstatd::exposition::Format;
use kstatd::resources::{FamilyInfo, Resource, Stability, registry};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics")
}

#[test]
fn pages_are_current() {
    let folder = folder();
    let pages = pages();
    if std::env::var_os("DOCS_UPDATE").is_some_and(|value| !value.is_empty()) {
        std::fs::create_dir_all(&folder).expect("docs/metrics");
        for (name, text) in &pages {
            std::fs::write(folder.join(name), text).expect(name);
        }
    }
    for (name, want) in &pages {
        let got = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(
            got == *want,
            "docs/metrics/{name} is not what the tables say; write it with `DOCS_UPDATE=1 cargo test --test kubernetes docs`"
        );
    }
    let known: BTreeSet<_> = pages.into_iter().map(|(name, _)| name).collect();
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(known.contains(&name), "docs/metrics/{name} is of no resource");
    }
}

/// Checks the generated pages, because another test may be writing those in the folder.
#[test]
fn every_family_has_a_row() {
    for resource in registry() {
        let name = resource.name();
        let page = page(*resource);
        for family in resource.families() {
            let row = format!("| `{}` | ", family.name);
            let row = page.lines().find(|line| line.starts_with(&row));
            let row = row.unwrap_or_else(|| panic!("{name}.md has no row for {}", family.name));
            for label in family.labels.iter().chain(family.other_labels.unwrap_or_default()) {
                assert!(row.contains(&format!("`{label}`")), "{row} lacks label {label}");
            }
            let meaning = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
            assert_eq!(meaning, family.help(), "{name}.md");
        }
    }
}

const ORIGIN: &str =
    "<!-- Generated from the tables in src/resources by tests/kubernetes/docs.rs. -->\n\n";

/// Returns the pages: file name and text, the index `README.md` first.
fn pages() -> Vec<(String, String)> {
    let resources = registry();
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
    let identity = labels(&resource.identity_labels());
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
            family.help(),
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
