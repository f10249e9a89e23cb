//! `tests/bounds.csv` has every bound of memory, instructions, sizes and times, with the values that it had; `docs/trend.md` shows
//! them. `KSTATD_RENEW=1 cargo test --test bounds` writes the page.

#[path = "support/bounds.rs"]
mod bounds;
#[path = "common/repository.rs"]
#[allow(dead_code, reason = "folders are not listed")]
mod repository;

use std::fmt::Write as _;

use bounds::{Bounds, Value};

fn read(path: &str) -> String {
    repository::read(&repository::root().join(path))
}

fn all() -> Bounds {
    Bounds::parse(&read("tests/bounds.csv")).expect("the bounds")
}

/// Returns the values of each bound of a gate, in the order of the first ones.
fn histories(all: &Bounds, gate: &str) -> Vec<Vec<Value>> {
    let mut out: Vec<Vec<Value>> = Vec::new();
    for value in all.0.iter().filter(|value| value.gate == gate) {
        match out.iter_mut().find(|values| values[0].bound == value.bound) {
            Some(values) => values.push(value.clone()),
            None => out.push(vec![value.clone()]),
        }
    }
    out
}

/// Returns a diagram of the bounds that have changed, relative to their first value.
fn diagram(histories: &[Vec<Value>], title: &str) -> String {
    let mut moments: Vec<&str> = Vec::new();
    for value in histories.iter().flatten() {
        if !moments.contains(&value.since.as_str()) {
            moments.push(&value.since);
        }
    }
    moments.sort_unstable();
    let changed: Vec<_> = histories.iter().filter(|values| values.len() > 1).collect();
    if moments.len() < 2 || changed.is_empty() {
        return String::new();
    }
    let labels: Vec<String> = moments
        .iter()
        .map(|moment| format!("\"{}\"", moment.split(' ').next_back().unwrap_or_default()))
        .collect();
    let mut lines = String::new();
    let (mut least, mut most) = (100.0_f64, 100.0_f64);
    for values in &changed {
        let mut points = Vec::new();
        let mut now = values[0].value;
        for moment in &moments {
            if let Some(value) = values.iter().find(|value| value.since == **moment) {
                now = value.value;
            }
            let percent = 100.0 * now / values[0].value;
            (least, most) = (least.min(percent), most.max(percent));
            points.push(format!("{percent:.0}"));
        }
        let _ = writeln!(lines, "    line [{}]", points.join(", "));
    }
    format!(
        "```mermaid\nxychart-beta\n    title \"{title}, % of the first value\"\n    x-axis [{}]\n    y-axis \"%\" {} --> {}\n{lines}```\n\n",
        labels.join(", "),
        (least - 5.0).floor(),
        (most + 5.0).ceil(),
    )
}

fn page(all: &Bounds) -> String {
    let mut out = "# Trend of the bounds\n\n\
        The bounds that CI enforces, and each value that they had. The source is [tests/bounds.csv](../tests/bounds.csv), which \
        the gates read: `deploy/build.sh` (size),\n`.ci/instructions`, `kstatd-endurance memory` and the simulated histories (times). Before the first release a value is that of a commit, so a \
        regression is found by bisecting between two of\nthem. `KSTATD_RENEW=1 cargo test --test bounds` writes this page.\n\n\
        A rise is a decision to allow more, which the commit explains; a gate fails before that.\n"
        .to_owned();
    for (gate, title) in [
        ("size", "Size of the program"),
        ("instructions", "Instructions per operation"),
        ("ratio", "Ratios of instructions"),
        ("memory", "Memory"),
        ("time", "Simulated times of histories"),
    ] {
        let histories = histories(all, gate);
        let _ = write!(out, "\n## {title}\n\n{}", diagram(&histories, title));
        let _ = writeln!(out, "| Bound | Unit | Values | Change |\n|---|---|---|---|");
        for values in &histories {
            let (first, last) = (&values[0], &values[values.len() - 1]);
            let texts: Vec<String> =
                values.iter().map(|value| format!("{} ({})", value.value, value.since)).collect();
            let change = (last.value / first.value - 1.0) * 100.0;
            let _ = writeln!(
                out,
                "| {} | {} | {} | {change:+.0}% |",
                first.bound,
                first.unit,
                texts.join(", ")
            );
        }
    }
    out
}

#[test]
fn the_trend_page_shows_the_bounds() {
    let page = page(&all());
    if std::env::var_os("KSTATD_RENEW").is_some() {
        std::fs::write(repository::root().join("docs/trend.md"), &page).expect("write");
    }
    assert!(
        page == read("docs/trend.md"),
        "docs/trend.md: KSTATD_RENEW=1 cargo test --test bounds writes it"
    );
}

#[test]
fn the_limits_of_the_memory_page_are_the_bounds() {
    let all = all();
    let mut rows = 0;
    for line in read("docs/memory.md").lines().filter(|line| line.contains(" MB | ")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [what, moment, _, limit, _] = cells[..] else { continue };
        let bound = all.current("memory", &format!("{what}: {moment}")).expect("a bound");
        assert_eq!(format!("{bound:.1} MB"), limit, "{what}, {moment}");
        rows += 1;
    }
    assert!(rows > 30, "{rows} rows");
}

#[test]
fn the_last_value_of_a_bound_applies() {
    let mut some =
        Bounds::parse("since;gate;bound;unit;value\n1;size;a;bytes;3\n2;size;a;bytes;4\n")
            .expect("bounds");
    assert_eq!(some.current("size", "a"), Ok(4.0));
    some.set("size", "a", "bytes", 5.0);
    some.set("size", "a", "bytes", 6.0);
    assert_eq!(some.current("size", "a"), Ok(6.0));
    assert!(some.text().ends_with("2;size;a;bytes;4\nunreleased;size;a;bytes;6\n"));
    assert!(some.current("size", "b").is_err());
    assert!(Bounds::parse("since;gate;bound;unit;value\na;b;c\n").is_err());
}
