//! Tests of the errors and warnings about mapping files.

use super::*;

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
            "must not start with a digit",
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
        ("mappings:\n- match: \"a\\.b\"\n  name: n\n", ProblemClass::YamlSyntax, 2, 10, "quotes"),
        ("mappings:\n\t- match: a\n", ProblemClass::YamlSyntax, 2, 2, "indentation"),
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
fn control_characters_are_rejected_with_their_position() {
    let problems = refused("mappings: []\n# ok\n#é\u{1}\n");
    assert_eq!((problems[0].line, problems[0].column), (3, 3));
}

#[test]
fn alias_expansion_is_bounded() {
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
fn suspicious_settings_cause_warnings() {
    let cases = [
        (format!("{R}  ttl: 10\n"), ProblemClass::Suspicious, 4, "nanoseconds"),
        (format!("{R}  ttl: -5s\n"), ProblemClass::InvalidOptions, 4, "negative"),
        (format!("{R}  labels: {{le: v}}\n"), ProblemClass::Suspicious, 4, "conflicts"),
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

/// Returns the line of each shadowed rule, and the rules that win.
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
fn shadowed_rules_are_reported() {
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
        (&["'a.*', match_metric_type: gauge", "a.b, match_metric_type: counter"], vec![]),
        (&["'a.*', match_metric_type: gauge", "a.b, match_metric_type: gauge"], one(3, "line 2")),
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
        // Globs take precedence over regular expressions anywhere in the file, but this pattern also matches
        // other names.
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

/// Each problem is reported once, without consequential errors.
#[test]
fn consequential_errors_are_not_reported() {
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
        (
            "mappings:\n- {match: a, name: x, observer_type: histo, summary_options: {}}\n",
            &[InvalidObserverType],
        ),
        (
            "mappings:\n- {match: a, name: x, observer_type: summary, histogram_options: {}}\n",
            &[ObserverOptionsConflict],
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
