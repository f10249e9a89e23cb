//! The pages in `docs/metrics/` against the tables of the resources.

use std::collections::BTreeSet;
use std::path::Path;

use kstatd::resources::registry;
use kstatd::tools::docs::metrics_docs;

#[test]
fn pages_are_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics");
    let pages = metrics_docs();
    for (name, want) in &pages {
        let got = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(
            got == *want,
            "docs/metrics/{name} is not what the tables say; \
             write it with `cargo run -- docs metrics --out docs/metrics`"
        );
    }
    let known: BTreeSet<_> = pages.into_iter().map(|(name, _)| name).collect();
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(known.contains(&name), "docs/metrics/{name} is of no resource");
    }
}

#[test]
fn every_family_has_a_row() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics");
    for resource in registry() {
        let name = resource.name();
        let page = std::fs::read_to_string(folder.join(format!("{name}.md"))).unwrap_or_default();
        for family in resource.families() {
            let row = format!("| `{}` | ", family.name);
            let row = page.lines().find(|line| line.starts_with(&row));
            let row = row.unwrap_or_else(|| panic!("{name}.md has no row for {}", family.name));
            for label in family.labels.iter().chain(family.other_labels.unwrap_or_default()) {
                assert!(row.contains(&format!("`{label}`")), "{row} lacks label {label}");
            }
            let meaning = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
            assert_eq!(meaning, family.help, "{name}.md");
        }
    }
}
