//! Custom resource configurations in the commands that need no cluster: `render kube`, `rbac`, `check-config`.

mod common;

use std::path::PathBuf;

/// A folder with files, and the arguments that name them.
struct Files(tempfile::TempDir);

impl Files {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("write");
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn config(&self) -> String {
        format!("--custom-resource-state-config-file={}", self.path("config.yaml").display())
    }

    /// Returns the series that `kstatd render kube` prints.
    fn render(&self, flags: &[&str]) -> Vec<String> {
        let objects = self.path("objects.yaml").display().to_string();
        let config = self.config();
        let mut args = vec!["render", "kube", &config, "-f", &objects];
        args.extend(flags);
        let output = common::run("kstatd", args);
        assert!(output.status.success(), "{}", output.stderr);
        let series = output.stdout.lines().filter(|line| !line.starts_with('#'));
        series.map(str::to_owned).collect()
    }
}

const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop, uid: u}, \
                   spec: {priority: 7}, status: {qosClass: Burstable}}\n";

const BUILT_IN: &str = r#"
spec:
  resources:
  - groupVersionKind: {group: "", version: v1, kind: Pod}
    labelsFromPath: {pod: [metadata, name]}
    metrics:
    - {name: pod_priority, help: Priority., each: {type: Gauge, gauge: {path: [spec, priority]}}}
  - groupVersionKind: {group: scheduling.k8s.io, version: "*", kind: PriorityClass}
    metricNamePrefix: own
    metrics:
    - {name: value, each: {type: Gauge, gauge: {path: [value]}}}
"#;

/// A built-in kind has the families of an entry in addition to its own, except in compatibility mode, where the entry
/// is ignored; a kind without built-in families has only those of the entry.
#[test]
fn entries_may_name_built_in_kinds() {
    let objects = format!(
        "{POD}---\n{{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {{name: c}}, value: 9}}\n"
    );
    let files = Files::new(&[("config.yaml", BUILT_IN), ("objects.yaml", &objects)]);
    let series = files.render(&[]);
    let own = [
        r#"kube_customresource_pod_priority{customresource_group="",customresource_kind="Pod",customresource_version="v1",pod="p"} 7"#,
        r#"own_value{customresource_group="scheduling.k8s.io",customresource_kind="PriorityClass",customresource_version="v1"} 9"#,
    ];
    for line in own {
        assert!(series.iter().any(|one| one == line), "{line} in {series:#?}");
    }
    let built_in: Vec<&String> =
        series.iter().filter(|line| !own.contains(&line.as_str())).collect();
    assert!(built_in.iter().any(|line| line.starts_with("kube_pod_status_qos_class{")));
    let without = Files::new(&[("config.yaml", "spec: {}"), ("objects.yaml", &objects)]);
    assert_eq!(built_in, without.render(&[]).iter().collect::<Vec<_>>());
    assert_eq!(files.render(&["--compat.duplicate-series"]), without.render(&[]));

    let custom_only = files.render(&["--custom-resource-state-only=true"]);
    assert_eq!(custom_only, own);

    let rbac = common::run("kstatd", ["rbac", "--resources=nodes", &files.config()]);
    for part in
        ["- apiGroups: [\"\"]\n  resources:\n  - nodes\n  - pods\n", "  - priorityclasses\n"]
    {
        assert!(rbac.stdout.contains(part), "{part} in {}", rbac.stdout);
    }
    assert!(rbac.stdout.contains("kind: ClusterRoleBinding\n"), "{}", rbac.stdout);
    assert!(
        rbac.stdout.contains("  name: \"kstatd\"\n  namespace: \"kstatd\"\n"),
        "{}",
        rbac.stdout
    );
    let bound = common::run("kstatd", ["rbac", "--service-account=monitoring/me"]);
    assert!(
        bound.stdout.contains("  name: \"me\"\n  namespace: \"monitoring\"\n"),
        "{}",
        bound.stdout
    );
    let refused = common::run("kstatd", ["rbac", "--service-account=me"]);
    assert!(refused.stderr.contains("must be NAMESPACE/NAME"), "{}", refused.stderr);
    let named = common::run("kstatd", ["rbac", "--name=kstatd-flux"]);
    assert_eq!(named.stdout.matches("  name: kstatd-flux\n").count(), 3, "{}", named.stdout);
    assert!(!named.stdout.contains("  name: kstatd\n"), "{}", named.stdout);
    let refused = common::run("kstatd", ["rbac", "--name=a b"]);
    assert!(refused.stderr.contains("must be a name"), "{}", refused.stderr);
}

/// Prometheus treats a label with an empty value as absent.
#[test]
fn series_that_differ_by_an_empty_label_are_one() {
    let entry = "spec:\n  resources:\n  - groupVersionKind: {group: a.org, version: v1, kind: Thing}\n    metrics:\n    \
        - name: parts\n      each: {type: Gauge, gauge: {path: [spec, parts], valueFrom: [v], \
        labelsFromPath: {a: [a], b: [b]}}}\n";
    let object = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: things.a.org}, \
        spec: {group: a.org, names: {kind: Thing, plural: things}, scope: Namespaced, \
        versions: [{name: v1, served: true, storage: true}]}}\n---\n\
        {apiVersion: a.org/v1, kind: Thing, metadata: {name: t, namespace: n, uid: u}, spec: {parts: [\
        {a: x, v: 1}, {a: x, b: '', v: 2}, {a: '', b: '', v: 3}, {b: '', v: 4}, {v: 5}, {b: x, v: 6}]}}\n";
    let files = Files::new(&[("config.yaml", entry), ("objects.yaml", object)]);
    let of = |flags: &[&str]| -> Vec<String> {
        let parts = files.render(flags).into_iter().filter(|line| line.contains("parts{"));
        parts.filter_map(|line| line.rsplit_once(' ').map(|(_, value)| value.to_owned())).collect()
    };
    assert_eq!(of(&[]), ["1", "3", "6"]);
    assert_eq!(of(&["--compat.duplicate-series"]), ["1", "2", "3", "4", "5", "6"]);
}

/// Returns the output of `kstatd check-config` for a configuration, without the path.
fn checked(text: &str, more: &[(&str, &str)]) -> (bool, Vec<String>) {
    let files = Files::new(&[&[("config.yaml", text)], more].concat());
    let mut args = vec!["check-config".to_owned(), files.config()];
    for (name, _) in more {
        args.extend(["-f".to_owned(), files.path(name).display().to_string()]);
    }
    let output = common::run("kstatd", args);
    let name = format!("{}: ", files.path("config.yaml").display());
    let lines = output.stdout.lines().map(|line| line.replace(&name, ""));
    (output.status.success(), lines.collect())
}

#[test]
fn misspelt_built_in_kind_is_reported() {
    let entry = |gvk: &str| {
        format!(
            "spec:\n  resources:\n  - groupVersionKind: {gvk}\n    metrics:\n    \
             - {{name: a, each: {{type: Gauge, gauge: {{path: [spec, replicas]}}}}}}\n"
        )
    };
    for (gvk, part) in [
        ("{group: apps, version: v1, kind: Deploymnet}", "write Deployment"),
        ("{group: \"\", version: v1, kind: \"*\"}", "the kind is needed"),
        ("{group: apps, version: v2, kind: Deployment}", "apps/v2, Deployment is no kind"),
    ] {
        let (good, lines) = checked(&entry(gvk), &[]);
        assert!(good && lines.len() == 2, "{gvk}: {lines:?}");
        assert!(lines[0].contains("line 3, column 5") && lines[0].contains(part), "{lines:?}");
    }
    for gvk in ["{group: \"\", version: v1, kind: Pod}", "{group: e.io, kind: K}"] {
        let (good, lines) = checked(&entry(gvk), &[]);
        assert!(good && lines.len() == 1, "{gvk}: {lines:?}");
    }
}

const COUNTS: &str = r#"
spec:
  resources:
  - groupVersionKind: {group: e.io, version: v1, kind: Widget}
    labelsFromPath: {name: [metadata, name]}
    commonLabels: {team: a}
    metrics:
    - name: widgets
      labelsFromPath: {namespace: [metadata, namespace]}
      each: {type: Count, count: {labelsFromPath: {phase: [status, phase]}, labelDefaults: {phase: None}}}
    - name: conditions
      each: {type: count, count: {path: [status, conditions], labelsFromPath: {type: [type], status: [status]}}}
    - name: finalizers
      each: {type: Count, count: {path: [metadata, finalizers], labelsFromPath: {finalizer: []}}}
    - name: parts
      each: {type: Count, count: {path: [spec, parts], labelFromKey: part, labelsFromPath: {size: [size]}}}
    - name: size
      each: {type: Gauge, gauge: {path: [spec, size]}}
"#;

const WIDGETS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.e.io}
spec:
  group: e.io
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions: [{name: v1, served: true, storage: true}]
---
apiVersion: e.io/v1
kind: Widget
metadata: {name: one, namespace: shop, finalizers: [f1, f2]}
spec: {size: 1, parts: {left: {size: 2}, right: {size: 2}, none: null}}
status: {phase: Ready, conditions: [{type: A, status: "True"}, {type: B, status: "False"}]}
---
apiVersion: e.io/v1
kind: Widget
metadata: {name: two, namespace: shop, finalizers: [f1]}
spec: {size: 2, parts: {left: {size: 3}}}
status: {phase: Ready, conditions: [{type: A, status: "True"}, null, {type: A, status: "True"}]}
---
apiVersion: e.io/v1
kind: Widget
metadata: {name: three, namespace: other}
"#;

/// A label that the members of a map have is not replaced by the default, although the map itself does not have it.
#[test]
fn defaults_replace_no_labels_of_the_members_of_a_map() {
    const CONFIG: &str = "
spec:
  resources:
  - groupVersionKind: {group: e.io, version: v1, kind: Widget}
    metrics:
    - name: size
      each:
        type: Gauge
        gauge:
          path: [spec, parts]
          labelFromKey: part
          valueFrom: [size]
          labelsFromPath: {maker: [maker], owner: [owner], zone: [zone]}
          labelDefaults: {maker: none, owner: nobody, zone: anywhere}
";
    let objects =
        WIDGETS.replace("left: {size: 2}", "owner: me, left: {size: 2, maker: A, owner: you}");
    let files = Files::new(&[("config.yaml", CONFIG), ("objects.yaml", &objects)]);
    let series = files.render(&[]).into_iter();
    let labels = |line: String| Some(line.split_once("maker=")?.1.to_owned());
    assert_eq!(
        series.filter_map(labels).collect::<Vec<_>>(),
        [
            r#""A",owner="me",part="left",zone="anywhere"} 2"#,
            r#""none",owner="me",part="right",zone="anywhere"} 2"#,
            r#""none",owner="nobody",part="left",zone="anywhere"} 3"#,
        ]
    );
}

/// A Count has a series for each label set, not for each object, and excludes the labels of the resource, such as its
/// name.
#[test]
fn counts_are_by_labels() {
    let files = Files::new(&[("config.yaml", COUNTS), ("objects.yaml", WIDGETS)]);
    let labels =
        r#"customresource_group="e.io",customresource_kind="Widget",customresource_version="v1""#;
    let series: Vec<String> =
        files.render(&[]).iter().map(|line| line.replace(labels, "@")).collect();
    assert_eq!(
        series,
        [
            r#"kube_customresource_widgets{@,namespace="other",phase="None",team="a"} 1"#,
            r#"kube_customresource_widgets{@,namespace="shop",phase="Ready",team="a"} 2"#,
            r#"kube_customresource_conditions{@,status="False",team="a",type="B"} 1"#,
            r#"kube_customresource_conditions{@,status="True",team="a",type="A"} 3"#,
            r#"kube_customresource_finalizers{@,finalizer="f1",team="a"} 2"#,
            r#"kube_customresource_finalizers{@,finalizer="f2",team="a"} 1"#,
            r#"kube_customresource_parts{@,part="left",size="2",team="a"} 1"#,
            r#"kube_customresource_parts{@,part="left",size="3",team="a"} 1"#,
            r#"kube_customresource_parts{@,part="right",size="2",team="a"} 1"#,
            r#"kube_customresource_size{@,name="one",team="a"} 1"#,
            r#"kube_customresource_size{@,name="two",team="a"} 2"#,
        ]
    );
    // Namespaces that are watched separately are counted together.
    let both = files.render(&["--namespaces=shop,other", "--metric-allowlist=.*_finalizers"]);
    assert_eq!(both.len(), 2, "{both:?}");
}

/// A Count covers all objects, so another metric of its name would duplicate series.
#[test]
fn count_cannot_share_its_name() {
    let twice = COUNTS.replace("name: size\n", "name: parts\n");
    let files = Files::new(&[("config.yaml", &twice), ("objects.yaml", WIDGETS)]);
    let objects = files.path("objects.yaml").display().to_string();
    let output = common::run("kstatd", ["render", "kube", &files.config(), "-f", &objects]);
    let part = "line 17, column 7: metric parts: a Count needs a name";
    assert!(!output.status.success() && output.stderr.contains(part), "{}", output.stderr);
    let (good, lines) = checked(&twice, &[]);
    assert!(!good && lines.iter().any(|line| line.contains("a Count needs")), "{lines:?}");
}

const SCHEMA: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.e.io}
spec:
  group: e.io
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              replicas: {type: integer}
              mode: {type: string, enum: [Auto, Manual]}
              port: {x-kubernetes-int-or-string: true}
              limits: {type: object, additionalProperties: {type: string}}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true}
              items:
                type: array
                items: {type: object, properties: {id: {type: string}, size: {type: integer}}}
          status:
            type: object
            properties:
              since: {type: string, format: date-time}
  - name: v2
    served: true
    storage: false
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {count: {type: integer}}}
"#;

/// Returns a configuration with one metric, whose `each` starts in line 7; of version `v1` unless set.
fn one_metric(version: &str, each: &str) -> String {
    format!(
        "spec:\n  resources:\n  - groupVersionKind: {{group: e.io, version: {version}, kind: Widget}}\n    \
         metrics:\n    - name: a\n      each:\n        {each}\n"
    )
}

/// Every problem has line, column and hint; paths that the schema leaves open are accepted.
#[test]
fn paths_are_checked_against_the_schema() {
    let crd = [("crd.yaml", SCHEMA)];
    for (each, part) in [
        (
            "{type: Gauge, gauge: {path: [spec, replcias]}}",
            "line 7, column 37: [spec,replcias] leads nowhere in Widget of e.io/v1: spec is a map without \"replcias\" (write replicas)",
        ),
        (
            "{type: Gauge, gauge: {path: [spec, replicas, x]}}",
            "spec.replicas is neither map nor list without \"x\" (leave it out)",
        ),
        (
            "{type: Gauge, gauge: {path: [spec, items, id]}}",
            "spec.items is a list without \"id\" (write a number, or [key=value] in quotes, before it)",
        ),
        (
            "{type: Gauge, gauge: {path: [spec, items, \"[di=3]\", size]}}",
            "spec.items is a list without \"[di=3]\" (write id)",
        ),
        (
            "{type: Gauge, gauge: {path: [spec, items], valueFrom: [seize]}}",
            "[seize] leads nowhere",
        ),
        (
            "{type: Gauge, gauge: {path: [spec, mode]}}",
            "[spec,mode] is never a number (take a StateSet",
        ),
        (
            "{type: Info, info: {path: [spec, items], labelsFromPath: {i: [idd]}}}",
            "column 70: [idd] leads nowhere",
        ),
        (
            "{type: Info, info: {labelsFromPath: {\"l_*\": [spec, mode]}}}",
            "[spec,mode] is no map, l_* copies nothing",
        ),
        ("{type: Info, info: {labelsFromPath: {since: [status, since]}}}", "is a time"),
        (
            "{type: StateSet, stateSet: {labelName: m, path: [spec, mode], list: [Auto, manual]}}",
            "is never \"manual\", whose series is always 0 (write Manual)",
        ),
        (
            "{type: StateSet, stateSet: {labelName: m, path: [spec, replicas], list: [a]}}",
            "[spec,replicas] is never a text",
        ),
        (
            "{type: Count, count: {path: [spec, items], labelsFromPath: {i: [spec]}}}",
            "[spec] leads nowhere",
        ),
    ] {
        let (good, lines) = checked(&one_metric("v1", each), &crd);
        assert!(good && lines.len() == 2, "{each}: {lines:?}");
        assert!(
            lines[0].contains("line 7, column") && lines[0].contains(part),
            "{each}: {lines:?}"
        );
        assert!(lines[0].ends_with(')'), "no hint: {lines:?}");
        // Paths cannot be checked without the definition, or for a version without a schema.
        let without = checked(&one_metric("v1", each), &[]).1;
        assert_eq!(without.len(), 1, "{without:?}");
    }
    for each in [
        "{type: Gauge, gauge: {path: [spec, replicas]}}",
        "{type: Gauge, gauge: {path: [spec, port]}}",
        "{type: Gauge, gauge: {path: [spec, limits], labelFromKey: resource}}",
        "{type: Gauge, gauge: {path: [spec, limits, cpu]}}",
        "{type: Gauge, gauge: {path: [spec, free, a, 0, b]}}",
        "{type: Gauge, gauge: {path: [spec, items], valueFrom: [size], labelsFromPath: {id: [id]}}}",
        "{type: Gauge, gauge: {path: [spec, items, \"[id=3]\", size]}}",
        "{type: Gauge, gauge: {path: [spec, items, \"-1\", size]}}",
        "{type: Gauge, gauge: {path: [spec], valueFrom: [replicas]}}",
        "{type: Gauge, gauge: {path: [status, since]}}",
        "{type: Gauge, gauge: {path: [metadata, generation]}}",
        "{type: Info, info: {labelsFromPath: {\"*\": [metadata, labels], name: [metadata, name]}}}",
        "{type: StateSet, stateSet: {labelName: m, path: [spec, mode], list: [Auto, Manual]}}",
        "{type: Count, count: {path: [spec, items], labelsFromPath: {i: [id]}}}",
    ] {
        let (good, lines) = checked(&one_metric("v1", each), &crd);
        assert!(good && lines.len() == 1, "{each}: {lines:?}");
    }
    // With several versions it must be valid in one of them.
    for (version, member, problems) in
        [("v2", "replicas", 1), ("v2", "count", 0), ("'*'", "count", 0), ("'*'", "none", 1)]
    {
        let each = format!("{{type: Gauge, gauge: {{path: [spec, {member}]}}}}");
        let (good, lines) = checked(&one_metric(version, &each), &crd);
        assert!(good && lines.len() == 1 + problems, "{version} {member}: {lines:?}");
    }
    let other = one_metric("v3", "{type: Gauge, gauge: {path: [a]}}");
    let lines = checked(&other, &crd).1;
    assert!(
        lines[0].contains("line 3") && lines[0].contains("its versions are v1, v2"),
        "{lines:?}"
    );
}

#[test]
fn conflicting_labels_and_names_are_reported() {
    let entry = |rest: &str| {
        format!(
            "spec:\n  resources:\n  - groupVersionKind: {{group: e.io, version: v1, kind: Widget}}\n{rest}"
        )
    };
    let metric = "    metrics:\n    - name: a\n      each: {type: Info, info: {labelsFromPath: {x: [spec, x]}}}\n";
    for (text, part) in [
        (
            entry(
                "    metricNamePrefix: kube\n    metrics:\n    - {name: pod_info, each: {type: Info, info: {}}}\n",
            ),
            "line 6, column 14: kube_pod_info is the name of a built-in family",
        ),
        (
            entry(&format!("    commonLabels: {{x: y}}\n{metric}")),
            "line 7, column 53: label x comes from commonLabels and from labelsFromPath of the value",
        ),
        (
            entry(&format!("    labelsFromPath: {{a-b: [spec, a], a_b: [spec, b]}}\n{metric}")),
            "line 4, column 43: label a_b comes from labelsFromPath and from labelsFromPath",
        ),
        (
            entry(&format!("    commonLabels: {{customresource_kind: y}}\n{metric}")),
            "label customresource_kind comes from kstatd itself",
        ),
        (
            entry(
                "    metrics:\n    - name: a\n      each: {type: Gauge, gauge: {path: [a], labelFromKey: k, labelsFromPath: {k: [b]}}}\n",
            ),
            "label k comes from labelsFromPath of the value and from labelFromKey",
        ),
        (
            entry(&format!("    labelsFromPath: {{uid: [metadata, uid]}}\n{metric}")),
            "line 4, column 27: label uid: [metadata,uid] is another for each object",
        ),
        (
            entry(&format!("    labelsFromPath: {{at: [status, lastTransitionTime]}}\n{metric}")),
            "is a time: each one begins a new series (make it a Gauge",
        ),
        (
            entry(&format!("    labelsFromPath: {{\"*\": [metadata, annotations]}}\n{metric}")),
            "copies all annotations",
        ),
        (
            entry(
                "    metrics:\n    - name: a\n      each: {type: Count, count: {labelsFromPath: {n: [metadata, name]}}}\n",
            ),
            "a series for each of them (leave the label out, or take a Gauge)",
        ),
        (
            entry(&format!("    labelDefaults: {{y: none}}\n{metric}")),
            "labelDefaults: y has no effect",
        ),
    ] {
        let (good, lines) = checked(&text, &[]);
        assert!(good && lines.len() == 2, "{text}: {lines:?}");
        assert!(lines[0].contains(part), "{part} in {lines:?}");
    }
    let fine = entry(&format!(
        "    commonLabels: {{team: a}}\n    labelsFromPath: {{name: [metadata, name]}}\n{metric}"
    ));
    assert_eq!(checked(&fine, &[]).1.len(), 1);
    // A path that is repeated for the whole object protects its label from those that `*` copies; within a list it is
    // a different path.
    let repeated = |path: &str| {
        entry(&format!(
            "    labelsFromPath: {{name: [metadata, name]}}\n    metrics:\n    - name: a\n      \
             each: {{type: Info, info: {{{path}labelsFromPath: {{\"*\": [metadata, labels], name: [metadata, name]}}}}}}\n"
        ))
    };
    assert_eq!(checked(&repeated(""), &[]).1.len(), 1);
    assert_eq!(checked(&repeated("path: [spec, x], "), &[]).1.len(), 2);
}

#[test]
fn invalid_label_names_are_reported_with_their_position() {
    let text = |value: &str| {
        format!(
            "spec:\n  resources:\n  - groupVersionKind: {{group: e.io, version: v1, kind: Widget}}\n    \
             metrics:\n    - name: a\n      each: {value}\n"
        )
    };
    for (value, part) in [
        (
            "{type: Info, info: {labelsFromPath: {3scale: [spec, x]}}}",
            "line 6, column 58: \"3scale\" is no name of a label, it becomes _3scale",
        ),
        (
            "{type: Info, info: {labelsFromPath: {__name__: [spec, x]}}}",
            "\"__name__\" is no name of a label, it becomes ___name__",
        ),
        // A problem without a path has no position.
        (
            "{type: Gauge, gauge: {labelFromKey: a-b}}",
            "line 6, column 20: \"a-b\" is no name of a label",
        ),
    ] {
        let (good, lines) = checked(&text(value), &[]);
        assert!(good && lines.len() == 2, "{value}: {lines:?}");
        assert!(lines[0].contains(part), "{part} in {lines:?}");
    }
}

#[test]
fn unusable_definitions_are_reported() {
    let dir = tempfile::tempdir().expect("directory");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("write");
        path.display().to_string()
    };
    let crd = |group: &str, rest: &str| {
        format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: others.{group}}}\n\
             spec: {{group: {group}, names: {{kind: Other, plural: others}}, scope: Namespaced{rest}}}\n"
        )
    };
    let other = crd("other.io", ", versions: [{name: v1, served: true, storage: true}]");
    let config = |group: &str, kind: &str| {
        format!(
            "spec:\n  resources:\n  - groupVersionKind: {{group: {group}, version: v1, kind: {kind}}}\n    \
             metrics:\n    - {{name: a, each: {{type: Info, info: {{}}}}}}\n"
        )
    };
    let check = |config: &str, manifest: &str| {
        let custom = file("custom.yaml", config);
        let manifest = file("manifest.yaml", manifest);
        let flag = format!("--custom-resource-state-config-file={custom}");
        common::run("kstatd", ["check-config", &flag, "-f", &manifest])
    };
    let output = check(&config("e.io", "Widget"), &other);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let part = "line 3, column 5: no definition of e.io is among the given files";
    assert!(output.stdout.contains(part), "{output:?}");
    // A built-in kind needs no definition.
    for (group, kind) in [("other.io", "Other"), ("apps", "Deployment")] {
        let output = check(&config(group, kind), &other);
        assert!(output.stdout.contains("warnings: 0"), "{output:?}");
    }
    let output = check(&config("e.io", "Widget"), &crd("e.io", ", versions: wrong"));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let part = "manifest.yaml";
    assert!(output.stderr.contains(part) && output.stderr.contains("others.e.io"), "{output:?}");
}
