use serde_json::{Map, Value, json};

use super::*;

fn load(text: &str) -> Mapper {
    Mapper::from_yaml(text).unwrap_or_else(|problems| panic!("{text}\n{problems:?}"))
}

fn refused(text: &str) -> Vec<Problem> {
    Mapper::from_yaml(text).err().unwrap_or_else(|| panic!("accepted: {text}"))
}

/// Rule, escaped name and labels of a look-up.
type Found = (usize, String, Vec<(String, String)>);

fn look_up(mapper: &Mapper, name: &str, kind: MetricType) -> Option<Found> {
    let mut buffer = Buffer::default();
    let mapped = mapper.map(name, kind, &mut buffer)?;
    let labels = mapped.labels().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Some((mapped.rule.index, mapped.name.to_owned(), labels))
}

mod conformance {
    use super::*;

    fn number(value: f64) -> Value {
        if value.is_nan() {
            json!("NaN")
        } else if value.is_infinite() {
            json!(if value > 0.0 { "+Inf" } else { "-Inf" })
        } else {
            json!(value)
        }
    }

    /// Integers of the corpus as doubles, so that 1 and 1.0 compare equal.
    fn doubles(value: &Value) -> Value {
        match value {
            Value::Number(n) => json!(n.as_f64()),
            Value::Array(items) => items.iter().map(doubles).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(key, value)| (key.clone(), doubles(value)))
                .collect::<Map<_, _>>()
                .into(),
            other => other.clone(),
        }
    }

    fn summary(options: &SummaryOptions) -> Value {
        let quantiles: Vec<_> = options
            .quantiles
            .iter()
            .map(|q| json!([number(q.quantile), number(q.error)]))
            .collect();
        doubles(&json!({
            "age_buckets": options.age_buckets,
            "buf_cap": options.buf_cap,
            "max_age_ns": options.max_age.as_nanos() as u64,
            "quantiles": quantiles,
        }))
    }

    fn histogram(options: &HistogramOptions) -> Value {
        let buckets: Vec<_> = options.buckets.iter().copied().map(number).collect();
        doubles(&json!({
            "buckets": buckets,
            "native_histogram_bucket_factor": number(options.native_bucket_factor),
            "native_histogram_max_buckets": options.native_max_buckets,
        }))
    }

    fn observer_type(observer_type: Option<ObserverType>) -> &'static str {
        match observer_type {
            None => "",
            Some(ObserverType::Summary) => "summary",
            Some(ObserverType::Histogram) => "histogram",
        }
    }

    fn match_type(match_type: MatchType) -> &'static str {
        match match_type {
            MatchType::Glob => "glob",
            MatchType::Regex => "regex",
        }
    }

    fn look_up_json(mapper: &Mapper, name: &str, kind: MetricType, buffer: &mut Buffer) -> Value {
        let Some(mapped) = mapper.map(name, kind, buffer) else {
            return json!({"metric": name, "type": kind.as_str(), "matched": false});
        };
        let rule = mapped.rule;
        let mut result = json!({
            "metric": name,
            "type": kind.as_str(),
            "matched": true,
            "rule_index": rule.index,
            "name": mapped.unescaped_name,
            "escaped_name": mapped.name,
            "action": if rule.action == Action::Drop { "drop" } else { "map" },
            "match_type": match_type(rule.match_type),
        });
        let fields = result.as_object_mut().expect("object");
        let labels: Map<String, Value> =
            mapped.labels().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        let optional = [
            ("labels", json!(labels), labels.is_empty()),
            (
                "observer_type",
                json!(observer_type(rule.observer_type)),
                rule.observer_type.is_none(),
            ),
            ("ttl_ns", json!(rule.ttl.as_nanos() as u64), rule.ttl.is_zero()),
            ("scale", rule.scale.map_or(Value::Null, number), rule.scale.is_none()),
            ("honor_labels", json!(true), !rule.honor_labels),
            ("help", json!(rule.help), rule.help == DEFAULT_HELP),
            (
                "summary_options",
                rule.summary_options.as_ref().map_or(Value::Null, summary),
                rule.summary_options.is_none(),
            ),
            (
                "histogram_options",
                rule.histogram_options.as_ref().map_or(Value::Null, histogram),
                rule.histogram_options.is_none(),
            ),
        ];
        for (key, value, absent) in optional {
            if !absent {
                fields.insert(key.to_owned(), value);
            }
        }
        doubles(&result)
    }

    /// What the case expects, with the treatment of quirks that `docs/compatibility.md` lists.
    fn wanted(look_up: &Value) -> Value {
        let mut want = look_up.clone();
        let fields = want.as_object_mut().expect("object");
        if let Some(plain) = fields.remove("plain_expansion") {
            let labels = fields["labels"].as_object_mut().expect("labels");
            labels.extend(plain.as_object().expect("labels").clone());
        }
        // Without an observer type the original fills in the quantiles when the first series is made, not at load.
        if fields.get("observer_type").is_none()
            && let Some(quantiles) =
                fields.get_mut("summary_options").map(|options| &mut options["quantiles"])
            && *quantiles == json!([])
        {
            *quantiles = summary(&Defaults::default().summary_options)["quantiles"].clone();
        }
        doubles(&want)
    }

    /// Cases whose options no summary or histogram can work with: repaired at load, with a warning.
    const REPAIRED: [&str; 4] = [
        "config/histogram_options/buckets: [1, 1]",
        "config/summary_options/quantiles: [{quantile: 1.5, error: 0.1}]",
        "config/summary_options/quantiles: [{quantile: -1, error: 0.1}]",
        "options/default-ttl/12/-5s",
    ];

    /// Cases that refuse a label name of one character, which is taken here: Prometheus has no such rule,
    /// and the mapping that the community chart renders has one.
    const SHORT_LABELS: [&str; 3] = ["config/label/00/a", "config/label/02/_", "config/label/15/A"];

    #[test]
    fn mapper_json() {
        let text = include_str!("../../../tests/conformance/statsd/mapper.json");
        let cases: Vec<Value> = serde_json::from_str(text).expect("corpus");
        let mut failures = Vec::new();
        let mut repaired = 0;
        for case in &cases {
            let name = case["name"].as_str().expect("name");
            if let Err(reason) = check(case, name, &mut repaired) {
                failures.push(format!(
                    "{name}: {reason}\n{}",
                    case["mapping"].as_str().unwrap_or_default()
                ));
            }
        }
        assert!(
            failures.is_empty(),
            "{} of {} fail\n{}",
            failures.len(),
            cases.len(),
            failures.join("\n")
        );
        assert_eq!(repaired, REPAIRED.len());
    }

    fn check(case: &Value, name: &str, repaired: &mut usize) -> Result<(), String> {
        let yaml = case["mapping"].as_str().expect("mapping");
        let loaded = Mapper::from_yaml(yaml);
        let internal = case["quirk"] == "internal_struct_field_accepted";
        if SHORT_LABELS.contains(&name) {
            let refused = |problems| format!("refused: {problems:?}");
            return loaded.map(drop).map_err(refused);
        }
        if case["error"] == json!(true) || internal {
            let want = if internal {
                "unknown_field"
            } else if name == "config/order/label-before-name" {
                // Its first error is a label name of one character.
                "missing_name"
            } else {
                case["error_class"].as_str().expect("class")
            };
            let problems = loaded.err().ok_or("accepted")?;
            let first = problems.first().ok_or("no problem")?;
            if first.line == 0 || first.column == 0 || first.hint.is_empty() {
                return Err(format!("no place or hint: {first:?}"));
            }
            let got = first.class.as_str();
            return if got == want { Ok(()) } else { Err(format!("{got}, not {want}: {first}")) };
        }
        let mapper = loaded.map_err(|problems| format!("refused: {problems:?}"))?;
        if REPAIRED.contains(&name) {
            *repaired += 1;
            let warned = mapper
                .warnings()
                .iter()
                .any(|warning| warning.class == ProblemClass::InvalidOptions);
            return if warned { Ok(()) } else { Err("not warned".to_owned()) };
        }
        if case["mappings_count"] != json!(mapper.rules().len()) {
            return Err(format!("{} rules", mapper.rules().len()));
        }
        let defaults = mapper.defaults();
        let got = json!({
            "glob_disable_ordering": defaults.glob_disable_ordering,
            "histogram_options": histogram(&defaults.histogram_options),
            "match_type": match_type(defaults.match_type),
            "observer_type": observer_type(defaults.observer_type),
            "summary_options": summary(&defaults.summary_options),
            "ttl_ns": defaults.ttl.as_nanos() as f64,
        });
        let want = doubles(&case["defaults"]);
        if got != want {
            return Err(format!("defaults\n  {got}\n  {want}"));
        }
        let mut buffer = Buffer::default();
        for look_up in case["lookups"].as_array().into_iter().flatten() {
            let metric = look_up["metric"].as_str().expect("metric");
            let kind = MetricType::ALL
                .into_iter()
                .find(|kind| look_up["type"] == kind.as_str())
                .expect("type");
            let got = look_up_json(&mapper, metric, kind, &mut buffer);
            if let Some(index) = look_up.get("first_match_rule_index") {
                let got = got.get("rule_index").cloned().unwrap_or(json!(-1.0));
                if got != doubles(index) {
                    return Err(format!("{metric}: rule {got}, not {index}"));
                }
                continue;
            }
            let want = wanted(look_up);
            if got != want {
                return Err(format!("{metric}\n  {got}\n  {want}"));
            }
        }
        Ok(())
    }
}

const R: &str = "mappings:\n- match: a.*\n  name: n\n";

#[test]
fn problems_have_line_column_and_hint() {
    let cases: [(&str, ProblemClass, u64, u64, &str); 12] = [
        (
            "mappings:\n- match: a\n  name: n\n  timer_type: x\n",
            ProblemClass::UnknownField,
            4,
            3,
            "observer_type",
        ),
        (
            "mappings:\n- match: a\n  name: n\n  Match_Type: x\n",
            ProblemClass::UnknownField,
            4,
            3,
            "write match_type",
        ),
        ("mapping: []\n", ProblemClass::UnknownField, 1, 1, "use mappings"),
        ("mappings:\n- match: a\n  name: n\n  ttl: 1d\n", ProblemClass::YamlType, 4, 8, "30s"),
        (
            "mappings:\n- match: a\n  name: n\n  labels: {ok: v, a-b: v}\n",
            ProblemClass::InvalidLabelName,
            4,
            19,
            "no digit first",
        ),
        (
            "mappings:\n- match: 'a\\.(b)'\n  name: n\n",
            ProblemClass::InvalidGlob,
            2,
            10,
            "match_type: regex",
        ),
        ("mappings:\n- match: é.*\n  name: n\n", ProblemClass::InvalidGlob, 2, 10, "segments"),
        ("mappings:\n- match: *.a\n  name: n\n", ProblemClass::YamlSyntax, 2, 10, "quote"),
        (
            "mappings:\n- match: \"a\\.b\"\n  name: n\n",
            ProblemClass::YamlSyntax,
            2,
            10,
            "single quotes",
        ),
        ("mappings:\n\t- match: a\n", ProblemClass::YamlSyntax, 2, 2, "blanks"),
        ("defaults:\n  a: 1\n  a: 2\n", ProblemClass::UnknownField, 2, 3, "known keys are"),
        (
            "mappings:\n- match: 'a(b**)'\n  match_type: regex\n  name: n\n",
            ProblemClass::InvalidRegex,
            2,
            10,
            "RE2",
        ),
    ];
    for (text, class, line, column, hint) in cases {
        let problems = refused(text);
        let first = &problems[0];
        assert_eq!((first.class, first.line, first.column), (class, line, column), "{text}{first}");
        assert!(first.hint.contains(hint), "{text}{first}");
        assert_eq!(first.severity, Severity::Error);
        assert!(
            first.to_string().starts_with(&format!("line {line}, column {column}: ")),
            "{first}"
        );
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let text = "mappings:\n- {match: a*, name: 0n, labels: {a-b: y}, foo: 1}\n- {match: b, name: n, ttl: x}\n- {match: c}\n";
    let classes: Vec<_> = refused(text).iter().map(|problem| problem.class).collect();
    assert_eq!(
        classes,
        [
            ProblemClass::UnknownField,
            ProblemClass::YamlType,
            ProblemClass::InvalidLabelName,
            ProblemClass::InvalidMetricName,
            ProblemClass::InvalidGlob,
            ProblemClass::MissingName,
        ]
    );
}

#[test]
fn control_characters_are_refused_where_they_stand() {
    let problems = refused("mappings: []\n# ok\n#é\u{1}\n");
    assert_eq!((problems[0].line, problems[0].column), (3, 3));
}

#[test]
fn merge_keys_keep_what_the_rule_says_itself() {
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
fn aliases_cannot_grow_without_bound() {
    let mut text = String::from("x0: &x0 [a, a, a, a, a, a, a, a, a, a]\n");
    for level in 1..30 {
        let items = format!("*x{}, ", level - 1).repeat(10);
        text.push_str(&format!("x{level}: &x{level} [{items}]\n"));
    }
    assert_eq!(refused(&text)[0].message, "excessive aliasing");
    assert_eq!(refused("mappings: &a\n- *a\n")[0].class, ProblemClass::YamlSyntax);
    let repeated = format!("mappings:\n- &r {{match: a.*, name: n}}\n{}", "- *r\n".repeat(1000));
    assert_eq!(load(&repeated).rules().len(), 1001);
}

#[test]
fn only_the_first_document_counts() {
    assert_eq!(load("mappings: []\n---\nfoo: [\n").rules().len(), 0);
}

#[test]
fn what_is_probably_not_meant_is_warned_about() {
    let cases = [
        (format!("{R}  ttl: 10\n"), ProblemClass::Suspicious, 4, "nanoseconds"),
        (format!("{R}  ttl: -5s\n"), ProblemClass::InvalidOptions, 4, "negative"),
        (format!("{R}  labels: {{le: v}}\n"), ProblemClass::Suspicious, 4, "collides"),
        (format!("{R}  labels: {{__a: v}}\n"), ProblemClass::Suspicious, 4, "reserved"),
        (
            format!("{R}  labels: {{la: $1_x}}\n"),
            ProblemClass::Suspicious,
            4,
            "$1_x is always empty",
        ),
        (format!("{R}  histogram_options: {{}}\n"), ProblemClass::Suspicious, 4, "no effect"),
        (
            format!(
                "{R}  observer_type: histogram\n  histogram_options: {{buckets: [2, 1, .nan, 2]}}\n"
            ),
            ProblemClass::InvalidOptions,
            5,
            "[1.0, 2.0]",
        ),
        (
            format!("{R}  summary_options: {{quantiles: [{{quantile: 95, error: 0.1}}]}}\n"),
            ProblemClass::InvalidOptions,
            4,
            "95",
        ),
    ];
    for (text, class, line, message) in cases {
        let mapper = load(&text);
        let [warning] = mapper.warnings() else { panic!("{text}{:?}", mapper.warnings()) };
        assert_eq!(
            (warning.class, warning.line, warning.severity),
            (class, line, Severity::Warning),
            "{text}"
        );
        assert!(warning.message.contains(message), "{text}{warning}");
    }
    assert!(load(R).warnings().is_empty());
}

#[test]
fn options_are_repaired() {
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

/// Line of each shadowed rule and of what wins.
fn shadowed(text: &str) -> Vec<(u64, String)> {
    let mapper = load(text);
    let shadows =
        mapper.warnings().iter().filter(|warning| warning.class == ProblemClass::ShadowedRule);
    shadows
        .map(|warning| {
            let winners = warning.message.trim_start_matches("this rule can never match: ");
            (warning.line, winners.trim_end_matches(" always wins").to_owned())
        })
        .collect()
}

#[test]
fn rules_that_can_never_match_are_found() {
    let rules = |rules: &[&str]| {
        let items: String =
            rules.iter().map(|rule| format!("- {{name: n, match: {rule}}}\n")).collect();
        format!("mappings:\n{items}")
    };
    let one = |line: u64, winner: &str| vec![(line, winner.to_owned())];
    for (list, want) in [
        (&["'a.*'", "a.b"][..], one(3, "line 2")),
        (&["a.b", "'a.*'"], vec![]),
        (&["'*.b'", "'a.*'", "a.b", "'*.*'"], one(4, "line 2")),
        (&["a.b.c", "a.b"], vec![]),
        (&["'a.*', match_metric_type: counter", "a.b"], vec![]),
        (&["'a.*'", "a.b, match_metric_type: counter"], one(3, "line 2")),
        (
            &[
                "'a.*', match_metric_type: counter",
                "'a.*', match_metric_type: gauge",
                "'*.b', match_metric_type: observer",
                "a.b",
            ],
            one(5, "line 2 and line 3 and line 4"),
        ),
        (&["'a.*', match_type: regex", "a.b"], vec![]),
        (&["'foo\\.', match_type: regex", "'^foo\\.(.*)', match_type: regex"], one(3, "line 2")),
        (&["'foo\\.x', match_type: regex", "'^foo\\.(.*)', match_type: regex"], vec![]),
        (&["'.*', match_type: regex", "'x|y', match_type: regex"], one(3, "line 2")),
        (&["'a+', match_type: regex, match_metric_type: gauge", "'a+', match_type: regex"], vec![]),
        (&["'foo.*', match_type: regex", "foobar, match_type: regex"], one(3, "line 2")),
        (&["'fo.*o', match_type: regex", "foobar, match_type: regex"], vec![]),
        // Globs win over regular expressions wherever they stand, but this one also matches elsewhere.
        (&["'a.*'", "'^a\\.b$', match_type: regex"], one(3, "line 2")),
        (&["'a.*'", "'a\\.b', match_type: regex"], vec![]),
        (&["'^a\\.(\\w+)\\.c$', match_type: regex", "'a.*.c'"], one(2, "line 3")),
        (&["'^a\\.(.+)\\.c$', match_type: regex", "'a.*.c'"], vec![]),
        (&["'a.*', match_metric_type: gauge", "'^a\\.b$', match_type: regex"], vec![]),
    ] {
        assert_eq!(shadowed(&rules(list)), want, "{list:?}");
    }
    let unordered = "defaults: {glob_disable_ordering: true}\n";
    assert_eq!(shadowed(&format!("{unordered}{}", rules(&["'a.*'", "a.b"]))), vec![]);
    assert_eq!(shadowed(&format!("{unordered}{}", rules(&["'a.*'", "'a.*'"]))), one(4, "line 3"));
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
    let text = include_str!("../../../tests/conformance/statsd/cli_http.json");
    let cases: Vec<Value> = serde_json::from_str(text).expect("corpus");
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
        // Breadth first: targets come in order.
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
fn a_rule_set_made_to_branch_costs_no_more_than_its_size() {
    // Every combination of literal and star in ten segments: the search may not try more than the tree has.
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

mod properties {
    use super::*;
    use proptest::prelude::*;

    /// The plain reading of glob rules.
    fn matches(pattern: &str, name: &str) -> bool {
        let (pattern, name): (Vec<&str>, Vec<&str>) =
            (pattern.split('.').collect(), name.split('.').collect());
        pattern.len() == name.len() && pattern.iter().zip(&name).all(|(p, n)| *p == "*" || p == n)
    }

    /// Literals before stars, from left to right.
    fn specificity(pattern: &str) -> Vec<bool> {
        pattern.split('.').map(|segment| segment == "*").collect()
    }

    fn pattern() -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(vec!["a", "b", "*", "c"]), 1..5)
            .prop_map(|segments| segments.join("."))
    }

    fn name() -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(vec!["a", "b", "", "c", "é"]), 1..6)
            .prop_map(|segments| segments.join("."))
    }

    fn kind() -> impl Strategy<Value = Option<MetricType>> {
        prop::sample::select(vec![None, None, Some(MetricType::Counter), Some(MetricType::Gauge)])
    }

    proptest! {
        #[test]
        fn globs_follow_the_plain_reading(
            rules in prop::collection::vec((pattern(), kind()), 1..12),
            names in prop::collection::vec(name(), 8),
            ordered in any::<bool>(),
        ) {
            let items: String = rules
                .iter()
                .map(|(pattern, kind)| {
                    let kind = kind.map_or("~", MetricType::as_str);
                    format!("- {{match: '{pattern}', match_metric_type: {kind}, name: n}}\n")
                })
                .collect();
            let mapper = load(&format!("defaults: {{glob_disable_ordering: {}}}\nmappings:\n{items}", !ordered));
            let shadowed: Vec<u64> = mapper
                .warnings()
                .iter()
                .filter(|warning| warning.class == ProblemClass::ShadowedRule)
                .map(|warning| warning.line)
                .collect();
            for name in &names {
                for of in MetricType::ALL {
                    let candidates = rules.iter().enumerate().filter(|(_, (pattern, kind))| {
                        matches(pattern, name) && kind.is_none_or(|kind| kind == of)
                    });
                    let want = if ordered {
                        candidates.map(|(index, _)| index).next()
                    } else {
                        candidates.min_by_key(|(index, (pattern, _))| (specificity(pattern), *index)).map(|(index, _)| index)
                    };
                    prop_assert_eq!(look_up(&mapper, name, of).map(|found| found.0), want, "{} {:?}", name, of);
                    if let Some(index) = want {
                        // Two lines before the rules.
                        prop_assert!(!shadowed.contains(&(index as u64 + 3)), "rule {} is not shadowed", index);
                    }
                }
            }
        }

        #[test]
        fn any_text_loads_or_has_problems(text in "[-a-z0-9:{}\\[\\]\"'*&!|>#%@,. \n\t\\\\$()é]{0,80}") {
            if let Err(problems) = Mapper::from_yaml(&text) {
                prop_assert!(!problems.is_empty());
                prop_assert!(problems.iter().all(|problem| problem.line > 0 && problem.column > 0));
            }
        }

        #[test]
        fn any_regex_compiles_or_has_a_reason(text in "[a-c(){}|*+?.^$\\[\\]:<>P0-9,\\\\dwsbQEpLixUé -]{0,16}") {
            if let Err(reason) = super::super::regexes::Pattern::compile(&text) {
                prop_assert!(!reason.is_empty());
            }
        }
    }
}

/// A problem is said once, and nothing that only follows from it is said at all.
#[test]
fn causes_are_named_and_not_what_follows_from_them() {
    use ProblemClass::*;
    for (text, classes) in [
        ("mappings:\n- {match: a.*, name: [x]}\n", &[YamlType][..]),
        ("mappings:\n- {match: [a], name: x}\n", &[YamlType]),
        ("mappings:\n- {match: '(a)', match_type: regexp, name: x}\n", &[InvalidMatchType]),
        ("defaults: {match_type: re}\nmappings:\n- {match: '(a)', name: x}\n", &[InvalidMatchType]),
        (
            "defaults: {observer_type: summary}\nmappings:\n\
             - {match: a, name: x, observer_type: histo, histogram_options: {}}\n",
            &[InvalidObserverType],
        ),
        ("mappings:\n- {mach: a.*, name: x}\n", &[UnknownField]),
        ("mappings:\n- {match: a.*, nmae: x}\n", &[UnknownField]),
        ("mappings:\n- {regex: a.*, name: x}\n", &[UnknownField]),
        ("mappings:\n- a\n- b\n", &[YamlType, YamlType]),
        ("mappings:\n- &a {match: a.*, name: x, ttl: z}\n- {<<: *a, match: b.*}\n", &[YamlType]),
        ("mappings:\n- {name: x}\n", &[InvalidGlob]),
        ("mappings:\n- {match: a}\n", &[MissingName]),
        ("mappings:\n-\n", &[MissingName, InvalidGlob]),
    ] {
        let problems = refused(text);
        let found: Vec<_> = problems.iter().map(|problem| problem.class).collect();
        assert_eq!(found, classes, "{text}: {problems:?}");
    }
}
