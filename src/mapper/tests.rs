//! Tests of the mapper through its public interface. The modules contain recorded cases, problems of files,
//! and properties.

mod conformance;
mod problems;
mod properties;

use serde_json::{Map, Value, json};

use super::*;
use crate::util::work_counter;

fn load(text: &str) -> Mapper {
    Mapper::from_yaml(text).unwrap_or_else(|problems| panic!("{text}\n{problems:?}"))
}

fn refused(text: &str) -> Vec<Problem> {
    Mapper::from_yaml(text).err().unwrap_or_else(|| panic!("accepted: {text}"))
}

/// The rule index, escaped name and labels of a look-up.
type Found = (usize, String, Vec<(String, String)>);

fn look_up(mapper: &Mapper, name: &str, kind: MetricType) -> Option<Found> {
    let mut buffer = Buffer::default();
    let mapped = mapper.map(name, kind, &mut buffer)?;
    let labels = mapped.labels().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Some((mapped.rule.index, mapped.name.to_owned(), labels))
}

const R: &str = "mappings:\n- match: a.*\n  name: n\n";

#[test]
fn merge_keys_do_not_override_the_rule() {
    let text = "mappings:\n\
        - &base {match: a.*, name: base, help: h, labels: {one: q, two: q}}\n\
        - {match: b.*, <<: *base, labels: {two: w}}\n\
        - {<<: [{name: first}, *base], match: c.*}\n";
    let mapper = load(text);
    let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        look_up(&mapper, "b.x", MetricType::Counter),
        Some((1, "base".to_owned(), vec![label("one", "q"), label("two", "w")]))
    );
    assert_eq!(
        look_up(&mapper, "c.x", MetricType::Counter).map(|found| found.1),
        Some("first".to_owned())
    );
    assert_eq!(mapper.rules()[1].help, "h");
    assert_eq!(
        refused("mappings:\n- {<<: x, match: b, name: c}\n")[0].class,
        ProblemClass::YamlSyntax
    );
}

#[test]
fn only_the_first_document_counts() {
    assert_eq!(load("mappings: []\n---\nfoo: [\n").rules().len(), 0);
}

#[test]
fn invalid_options_are_corrected() {
    let text = "mappings:\n- match: a\n  name: n\n  observer_type: histogram\n  ttl: -1s\n  \
                histogram_options: {buckets: [2, 1, .nan, 2, .inf]}\n";
    let mapper = load(text);
    let rule = mapper.rules().first();
    assert_eq!(mapper.buckets(rule), [1.0, 2.0, f64::INFINITY]);
    assert_eq!(rule.map(|rule| rule.ttl), Some(std::time::Duration::ZERO));
}

#[test]
fn options_of_a_series() {
    let text = "defaults: {observer_type: histogram, histogram_options: {native_histogram_bucket_factor: 2}}\n\
        mappings:\n\
        - {match: a, name: n, observer_type: summary, summary_options: {max_age: 1m}}\n\
        - {match: b, name: n, histogram_options: {native_histogram_bucket_factor: 1, native_histogram_max_buckets: 9}}\n";
    let mapper = load(text);
    let [summary, histogram] = mapper.rules() else { panic!("two rules") };
    assert_eq!(mapper.observer_type(Some(summary)), ObserverType::Summary);
    assert_eq!(mapper.observer_type(None), ObserverType::Histogram);
    assert_eq!(Mapper::default().observer_type(None), ObserverType::Summary);
    assert_eq!(mapper.summary_options(Some(summary)).max_age.as_secs(), 60);
    assert_eq!(mapper.summary_options(Some(summary)).quantiles.len(), 3);
    assert_eq!(
        (mapper.native_bucket_factor(Some(histogram)), mapper.native_bucket_factor(None)),
        (1.0, 2.0)
    );
    assert_eq!(
        (mapper.native_max_buckets(Some(histogram)), mapper.native_max_buckets(None)),
        (9, 256)
    );
}

#[test]
fn one_buffer_serves_several_mappers() {
    let mapper = |pattern: &str| {
        load(&format!(
            "mappings:\n- {{match: '{pattern}', match_type: regex, name: n, labels: {{la: $1, lb: $2}}}}\n"
        ))
    };
    let (first, second) = (mapper("a(.)"), mapper("(.)(.)(.)"));
    let mut buffer = Buffer::default();
    for _ in 0..2 {
        let labels = |mapper: &Mapper, buffer: &mut Buffer| -> Vec<String> {
            let mapped = mapper.map("abc", MetricType::Gauge, buffer).expect("match");
            mapped.labels().map(|(_, value)| value.to_owned()).collect()
        };
        assert_eq!(labels(&first, &mut buffer), ["b", ""]);
        assert_eq!(labels(&second, &mut buffer), ["a", "b"]);
    }
}

#[test]
fn names_are_escaped_after_expansion() {
    let mapper = load("mappings:\n- {match: '*', name: $1, labels: {la: 'x$1'}}\n");
    let mut buffer = Buffer::default();
    let mapped = mapper.map("1é-b", MetricType::Counter, &mut buffer).expect("match");
    assert_eq!((mapped.unescaped_name, mapped.name), ("1é-b", "_1__b"));
    assert_eq!(mapped.labels().collect::<Vec<_>>(), [("la", "x1é-b")]);
    let mapped = mapper.map("", MetricType::Counter, &mut buffer).expect("match");
    assert_eq!(mapped.name, "");
}

#[test]
fn the_dump_has_a_tree_for_each_type() {
    let cases = crate::recorded::cases("statsd/cli_http.json", 4);
    let dumps: Vec<&Value> = cases.iter().filter(|case| case["kind"] == "fsm_dump").collect();
    assert_eq!(dumps.len(), 4);
    for case in dumps {
        let dump = load(case["mapping"].as_str().expect("mapping")).dump_dot();
        let lines: Vec<&str> = dump.lines().collect();
        for (line, want) in lines.iter().zip(case["first_lines"].as_array().expect("lines")) {
            assert_eq!(want, line);
        }
        assert!(dump.ends_with(&format!("{}\n}}", case["start_line"].as_str().expect("line"))));
        let edge =
            regex::Regex::new(case["edge_line_regex"].as_str().expect("pattern")).expect("pattern");
        let edges: Vec<&&str> = lines.iter().filter(|line| edge.is_match(line)).collect();
        assert_eq!(case["edge_count"], edges.len());
        let count = |style: &Value| {
            lines.iter().filter(|line| line.ends_with(style.as_str().expect("style"))).count()
        };
        assert_eq!(case["leaf_count"], count(&case["leaf_style"]));
        assert_eq!(count(&case["type_node_style"]), 3);
        assert_eq!(tree(&edges, "0"), case["tree"]);
        // Breadth first: target nodes are in ascending order.
        let targets: Vec<usize> = edges
            .iter()
            .map(|line| line.split(' ').nth(2).and_then(|to| to.parse().ok()).expect("node"))
            .collect();
        assert!(targets.is_sorted());
    }
    let types = load("mappings:\n- {match: a, match_type: regex, name: n}\n").dump_dot();
    assert_eq!(types.matches(" -> ").count(), 3);
}

fn tree(edges: &[&&str], node: &str) -> Value {
    let prefix = format!("{node} -> ");
    let children = edges.iter().filter_map(|line| line.strip_prefix(&prefix)).map(|rest| {
        let (child, label) = rest.split_once("  [label = \"").expect("edge");
        (label.trim_end_matches("\"];").to_owned(), tree(edges, child))
    });
    children.collect::<Map<_, _>>().into()
}

#[test]
fn the_cost_of_branching_rules_is_linear() {
    // A rule for every combination of literal and `*` in ten segments: the search must not visit more than
    // the nodes of the trie.
    let rule = |bits: u32| {
        let segments: Vec<&str> =
            (0..10).map(|at| if bits >> at & 1 == 1 { "'*'" } else { "a" }).collect();
        format!("- {{match: '{}.z', name: n{bits}}}\n", segments.join(".").replace('\'', ""))
    };
    let rules: String = (1..1024).map(rule).collect();
    let mapper = load(&format!("mappings:\n{rules}"));
    let miss = "a.".repeat(10) + "y";
    assert_eq!(look_up(&mapper, &miss, MetricType::Counter), None);
    let hit = "a.".repeat(10) + "z";
    assert_eq!(look_up(&mapper, &hit, MetricType::Counter).map(|found| found.0), Some(0));
}

#[test]
fn branches_with_rules_of_other_types_are_not_searched() {
    let gauges = "- {match: a.bb.ccc.dddd, match_metric_type: gauge, name: n}\n";
    let mapper = load(&format!("mappings:\n- {{match: a.x, name: n}}\n{gauges}"));
    work_counter::take();
    assert_eq!(look_up(&mapper, "a.bb.ccc.dddd", MetricType::Counter), None);
    assert_eq!(work_counter::take(), "a".len() as u64 + "bb".len() as u64);
}

#[test]
fn whole_numbers_have_32_bits() {
    let text = |number: &str| format!("{R}  limits: {{series: {number}}}\n");
    for (number, value) in [("4294967295", u32::MAX), ("4294967295.9", u32::MAX), ("-0.9", 0)] {
        let limits = load(&text(number)).rules()[0].limits;
        assert_eq!(limits.series, Some(u64::from(value)), "{number}");
    }
    for number in ["4294967296", "4294967296.0", "-1", "-1.0"] {
        assert_eq!(refused(&text(number))[0].class, ProblemClass::YamlType, "{number}");
    }
}

#[test]
fn limits_of_a_rule_replace_each_budget() {
    let limits = |text: &str| load(&format!("{R}  limits: {text}\n")).rules()[0].limits;
    let all = limits("{series: 5, values_per_label: 6, value_bytes: 7}");
    assert_eq!((all.series, all.values_per_label, all.value_bytes), (Some(5), Some(6), Some(7)));
    let none = limits("{series: 0}");
    assert_eq!((none.series, none.values_per_label, none.value_bytes), (Some(0), None, None));
}

#[test]
fn binary_values_are_no_text() {
    let text = |tag: &str| format!("mappings:\n- match: a.*\n  name: n\n  help: {tag} aGVscA==\n");
    let problem = &refused(&text("!!binary"))[0];
    assert_eq!((problem.class, problem.line), (ProblemClass::YamlType, 4));
    assert_eq!(load(&text("!!str")).rules()[0].help, "aGVscA==");
}
