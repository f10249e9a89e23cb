//! The command lines: exit codes, messages, and output streams.

#[path = "cli/check_config.rs"]
mod check_config;
mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use common::{Program, Reserved, run, run_with_input};

const KSM: &str = "kube-state-metrics";

#[test]
fn help_version_and_completions_succeed_on_stdout() {
    for (name, args, part) in [
        ("kstatd", vec!["--help"], "kube-state-metrics"),
        ("kstatd", vec!["version"], "kstatd "),
        ("kstatd", vec!["--version"], "kstatd "),
        ("kstatd", vec!["run", "--help"], "--metric-labels-allowlist"),
        ("kstatd", vec!["demo", "--help"], "--statsd-rate"),
        ("kstatd", vec!["render", "kube", "--help"], "--filename"),
        ("kstatd", vec!["completion", "bash"], "complete "),
        ("kstatd", vec!["completion", "zsh"], "#compdef kstatd"),
        ("kstatd", vec!["completion", "fish"], "complete -c kstatd"),
        ("kstatd", vec![KSM, "--help"], "--telemetry-port"),
        ("kstatd", vec!["help", "statsd_exporter"], "usage: statsd_exporter [<flags>]"),
        ("kstatd", vec!["statsd_exporter", "--help"], "usage: statsd_exporter [<flags>]"),
        ("kstatd", vec![KSM, "version"], "kube-state-metrics, version "),
        (KSM, vec!["version"], "kube-state-metrics, version "),
        (KSM, vec!["help", "version"], "Print version information."),
        (KSM, vec!["--help"], "Use \"kube-state-metrics [command] --help\""),
        (KSM, vec!["-h"], "Available Commands:"),
        (KSM, vec!["completion", "bash"], "complete "),
        (KSM, vec!["c", "fish"], "complete -c kube-state-metrics"),
        (KSM, vec!["completion", "--help"], "completion script"),
        ("/bin/statsd_exporter", vec!["--version"], "statsd_exporter, version "),
        ("/bin/statsd_exporter", vec!["--help-man"], ".TH statsd_exporter 1"),
    ] {
        let output = run(name, &args);
        assert!(output.status.success(), "{name} {args:?}: {output:?}");
        assert!(output.stdout.contains(part), "{name} {args:?}: {part:?} in {}", output.stdout);
        assert_eq!(output.stderr, "", "{name} {args:?}");
    }
}

#[test]
fn the_help_of_rbac_lists_only_flags_that_affect_the_roles() {
    let help = run("kstatd", ["rbac", "--help"]).stdout;
    for flag in ["--resources", "--namespaces", "--auth-filter", "--pod-namespace"] {
        assert!(help.contains(&format!("{flag} ")) || help.contains(&format!("{flag}[")), "{flag}");
    }
    for flag in
        ["--server-read-timeout", "--total-shards", "--metric-allowlist", "--staleness-limit"]
    {
        assert!(!help.contains(flag), "{flag} in {help}");
    }
    // The flags of a deployment can be passed unchanged.
    let roles = |args: &[&str]| run("kstatd", [&["rbac", "--resources=nodes"], args].concat());
    let (with, without) = (roles(&["--server-read-timeout=5s", "--total-shards=2"]), roles(&[]));
    assert!(with.status.success() && with.stdout == without.stdout, "{with:?}");
    // StatsD senders are recognised by pods and their owners.
    let senders = roles(&["--statsd.enrich=workload", "--metric-denylist=.*"]).stdout;
    for kind in ["pods", "replicasets", "jobs"] {
        assert!(senders.contains(&format!("  - {kind}\n")), "{senders}");
    }
}

#[test]
fn synopsis_says_options() {
    let run_page = run("kstatd", ["man", "run"]).stdout;
    let synopsis = |page: &str| {
        let (_, rest) = page.split_once(".SH SYNOPSIS").expect("a synopsis");
        rest.split(".SH").next().expect("a section").to_owned()
    };
    assert_eq!(synopsis(&run_page).trim(), "\\fBkstatd run\\fR [OPTIONS]");
    let render = synopsis(&run("kstatd", ["man", "render", "kube"]).stdout);
    assert!(render.contains("kstatd render kube") && render.contains("[OPTIONS]"), "{render}");
}

/// Returns the long flags in a text; `[no-]` precedes the name of a switch.
fn flags(text: &str) -> std::collections::BTreeSet<String> {
    let words = text.split(|c: char| c.is_whitespace() || ",=[<(`".contains(c));
    let name = |word: &str| {
        let end = word[2..].find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)));
        word[..end.map_or(word.len(), |end| end + 2)].trim_end_matches('.').to_owned()
    };
    words.filter(|word| word.starts_with("--") && word.len() > 3).map(name).collect()
}

#[test]
fn man_pages_list_every_flag() {
    let folder = tempfile::tempdir().expect("folder");
    let pages = folder.path().join("man");
    let written = run("kstatd", ["man", "--out", &pages.display().to_string()]);
    assert!(written.status.success() && written.stdout.is_empty(), "{written:?}");
    let mut commands = vec![Vec::new()];
    let mut at = 0;
    while at < commands.len() {
        let words: Vec<String> = commands[at].clone();
        at += 1;
        let help = match words.first().map(String::as_str) {
            // The originals' help, which lists a switch once for both forms.
            Some(original @ ("kube-state-metrics" | "statsd_exporter")) => {
                run(original, ["--help"]).stdout.replace("--[no-]", "--")
            }
            _ => run("kstatd", [&words[..], &["--help".to_owned()]].concat()).stdout,
        };
        let file =
            pages.join(format!("{}.1", [&["kstatd".to_owned()], &words[..]].concat().join("-")));
        let page =
            std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file:?}: {error}"));
        assert!(page.contains("\n.TH kstatd"), "{file:?}: {page}");
        assert_eq!(run("kstatd", [&["man".to_owned()], &words[..]].concat()).stdout, page);
        let known = flags(&page.replace("\\-", "-").replace("\\fR", " ").replace("\\fB", " "));
        let missing: Vec<_> =
            flags(&help).into_iter().filter(|flag| !known.contains(flag)).collect();
        assert!(missing.is_empty(), "{file:?} has no {missing:?} in {known:?}");
        // Returns the entries below `Commands:`.
        let listed = help.split("\nCommands:\n").nth(1).unwrap_or_default();
        for line in listed.lines().take_while(|line| line.starts_with("  ")) {
            let name = line.trim_start().split(' ').next().unwrap_or_default();
            if line.starts_with("  ") && !line.starts_with("   ") && name != "help" {
                commands.push([&words[..], &[name.to_owned()]].concat());
            }
        }
    }
    assert!(commands.len() >= 12, "{commands:?}");
    assert_eq!(std::fs::read_dir(&pages).expect("folder").count(), commands.len());
    let unknown = run("kstatd", ["man", "nonsense"]);
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
    assert!(unknown.stderr.contains("unknown command \"nonsense\""), "{unknown:?}");
}

#[test]
fn kube_state_metrics_usage_errors() {
    for (args, error) in [
        (vec!["--foo"], "unknown flag: --foo"),
        (vec!["foo"], "unknown command \"foo\" for \"kube-state-metrics\""),
        (vec!["--", "foo"], "unknown command \"foo\" for \"kube-state-metrics\""),
        (vec!["-port=1"], "unknown shorthand flag: 'p' in -port=1"),
        (vec!["--port"], "flag needs an argument: --port"),
        (
            vec!["--port=abc"],
            "invalid argument \"abc\" for \"--port\" flag: strconv.ParseInt: parsing \"abc\": \
             invalid syntax",
        ),
        (
            vec!["--auth-filter=maybe"],
            "invalid argument \"maybe\" for \"--auth-filter\" flag: strconv.ParseBool: parsing \
             \"maybe\": invalid syntax",
        ),
        (
            vec!["--server-read-timeout=5"],
            "invalid argument \"5\" for \"--server-read-timeout\" flag: time: missing unit in \
             duration \"5\"",
        ),
        (
            vec!["--log_file_max_size=-1"],
            "invalid argument \"-1\" for \"--log_file_max_size\" flag: parse error",
        ),
        (
            vec!["-vx"],
            "invalid argument \"x\" for \"-v, --v\" flag: strconv.ParseInt: parsing \"x\": invalid \
             syntax",
        ),
        (vec!["foo", "--bogus"], "unknown flag: --bogus"),
        (vec!["foo", "version"], "unknown command \"foo\" for \"kube-state-metrics\""),
        (
            vec!["--log_backtrace_at=a.go:0"],
            "invalid argument \"a.go:0\" for \"--log_backtrace_at\" flag: negative or zero value for \
             level",
        ),
        (vec!["version", "--port=1"], "unknown flag: --port"),
        (vec!["completion"], "accepts 1 arg(s), received 0"),
        (vec!["completion", "bash", "zsh"], "accepts 1 arg(s), received 2"),
    ] {
        let output = run(KSM, &args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
        let mut lines = output.stderr.lines();
        assert_eq!(lines.next(), Some(format!("Error: {error}").as_str()), "{args:?}");
        assert_eq!(lines.next(), Some("Usage:"), "{args:?}");
        assert_eq!(output.stdout, "", "{args:?}");
    }
    let unknown_shell = run(KSM, ["completion", "tcsh"]);
    assert!(unknown_shell.status.success() && unknown_shell.stdout.is_empty());
}

#[test]
fn kube_state_metrics_rejects_unsupported_combinations() {
    for (args, parts) in [
        (vec!["--resources=pods,foo"], vec!["resource foo does not exist"]),
        (vec!["--metric-allowlist=a", "--metric-denylist=b"], vec!["--metric-allowlist"]),
        (vec!["--port=8081"], vec!["--port and --telemetry-port are the same address"]),
        (vec!["--config=/nonexistent.yaml"], vec!["/nonexistent.yaml", "No such file"]),
        (vec!["--tls-config=x"], vec!["--tls-config"]),
        (
            vec!["--custom-resource-state-config-file=x"],
            vec!["--custom-resource-state-config-file"],
        ),
    ] {
        let output = run(KSM, &args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
        let line = output.stderr.lines().last().unwrap_or_default();
        assert!(line.starts_with('E'), "{args:?}: {line}");
        for part in parts {
            assert!(line.contains(part), "{args:?}: {part:?} in {line}");
        }
    }
}

#[test]
fn usage_errors_name_the_argument() {
    for (args, parts) in [
        (vec!["--foo"], vec!["--foo"]),
        (vec!["foo"], vec!["foo"]),
        (vec!["--listen=foo"], vec!["--listen=foo", "missing port"]),
        (vec!["--telemetry-listen=:x"], vec!["--telemetry-listen=:x", "port"]),
        (vec!["--listen=:1", "--telemetry-listen=:1"], vec!["--listen", "--telemetry-listen"]),
        (vec!["--shard=x"], vec!["--shard", "invalid syntax"]),
        (vec!["--statsd.cache-size=-1"], vec!["--statsd.cache-size", "negative"]),
        (vec!["completion", "tcsh"], vec!["tcsh"]),
        (vec!["check-config"], vec!["--statsd.mapping-config"]),
    ] {
        let output = run("kstatd", &args);
        assert!(!output.status.success(), "{args:?}");
        for part in parts {
            assert!(output.stderr.contains(part), "{args:?}: {part:?} in {}", output.stderr);
        }
        assert_eq!(output.stdout, "", "{args:?}");
    }
    // 1 is a result of these commands.
    for command in ["bundle", "check", "diff", "shadow", "status", "top"] {
        let output = run("kstatd", [command, "--foo"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}

#[test]
fn a_full_disk_is_an_error() {
    for args in [
        &["rbac"][..],
        &["render", "kube", "-"],
        &["check-config", "/dev/null"],
        &["explain", "a:1|c"],
    ] {
        let mut command = common::command("kstatd", args);
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        let output = command.stdin(std::process::Stdio::null()).stdout(full).output().expect("run");
        assert!(!output.status.success(), "{args:?}: {output:?}");
    }
}

const POD: &str =
    "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: ns, labels: {app: web}}\n";

#[test]
fn render_kube_reads_files_and_standard_input() {
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("pod.yaml");
    std::fs::write(&file, POD).expect("write");
    let path = file.to_str().expect("path");
    let flags = ["--metric-labels-allowlist=pods=[*]", "--metric-allowlist=^kube_pod_labels$"];
    let expected = "kube_pod_labels{namespace=\"ns\",pod=\"p\",uid=\"\",label_app=\"web\"} 1";
    for (args, input) in [(vec!["-f", path], ""), (vec![], POD), (vec!["-f", "-"], POD)] {
        let args = [vec!["render", "kube"], args, flags.to_vec()].concat();
        let output = run_with_input("kstatd", &args, input.as_bytes());
        assert!(output.status.success(), "{args:?}: {output:?}");
        assert_eq!(common::valid_text(&output.stdout), [expected], "{args:?}");
    }
    let options = dir.path().join("options.yaml");
    std::fs::write(
        &options,
        "labels_allow_list: {pods: [app]}\nmetric_allowlist: {kube_pod_labels: }\n",
    )
    .expect("write");
    let config = format!("--config={}", options.display());
    let output = run("kstatd", ["render", "kube", "-f", path, &config, "--openmetrics"]);
    assert!(output.stdout.contains(expected) && output.stdout.ends_with("# EOF\n"), "{output:?}");
}

#[test]
fn options_file_keys_override_flags() {
    let file = tempfile::NamedTempFile::new().expect("file");
    let config = format!("--config={}", file.path().display());
    let families = |options: &str, flags: &[&str]| {
        std::fs::write(file.path(), options).expect("write");
        let args = [&["render", "kube", &config], flags].concat();
        let output = run_with_input("kstatd", &args, POD.as_bytes());
        assert!(output.status.success(), "{options:?}: {output:?}");
        let samples = common::valid_text(&output.stdout);
        let name = |sample: &&str| sample.split('{').next().unwrap_or_default().to_owned();
        samples.iter().map(name).collect::<std::collections::BTreeSet<_>>()
    };
    let labels = "--metric-labels-allowlist=pods=[*]";
    assert!(families("port: 9\n", &[labels]).contains("kube_pod_labels"));
    for options in ["labels_allow_list: {}\n", "labels_allow_list:\n"] {
        assert!(!families(options, &[labels]).contains("kube_pod_labels"), "{options:?}");
    }
    let info = "--metric-allowlist=^kube_pod_info$";
    assert_eq!(families("metric_allowlist: {}\n", &[info]).len(), 1);
    assert!(families("metric_allowlist:\n", &[info]).len() > 1);
    assert!(families("port: 9\n", &["--namespaces=zzz"]).is_empty());
    for options in ["namespaces:\n", "namespaces: ['']\n", "namespaces: ['', zzz]\n"] {
        let found = families(options, &["--namespaces=zzz"]);
        assert!(found.contains("kube_pod_info"), "{options:?}");
    }
}

#[test]
fn patterns_use_the_originals_dialects() {
    let families = |flag: &str| {
        let output = run_with_input("kstatd", ["render", "kube", flag], POD.as_bytes());
        assert!(output.status.success(), "{flag}: {output:?}");
        output.stdout.lines().filter(|line| line.starts_with("# TYPE ")).count()
    };
    for pattern in [r"\cA", r"\k<x>", r"\8", r"\Qpod_info\E", r"\p{L}+", "pod_[[:alpha:]]+"] {
        assert_eq!(families(&format!("--metric-allowlist={pattern}")), 0, "{pattern}");
    }
    assert_eq!(families(r"--metric-allowlist=^kube_pod_\info$"), 1);
    let without = families("--metric-opt-in-list=zzz");
    assert_eq!(families(r"--metric-opt-in-list=\Qkube_pod_nodesel\E"), without + 1);
}

#[test]
fn render_kube_reports_errors() {
    for (args, input, parts) in [
        (vec!["-f", "/none.yaml"], "", vec!["/none.yaml", "No such file"]),
        (vec![], "a: b: c\n", vec!["standard input, document 1", "line 1"]),
        (vec!["--resources=foo"], POD, vec!["resource foo does not exist"]),
        (vec!["--metric-allowlist=("], POD, vec!["--metric-allowlist"]),
        (vec!["--metric-allowlist=info*+"], POD, vec!["--metric-allowlist", "character 6"]),
        (vec!["--metric-opt-in-list=a**"], POD, vec!["--metric-opt-in-list", "a**"]),
    ] {
        let args = [vec!["render", "kube"], args].concat();
        let output = run_with_input("kstatd", &args, input.as_bytes());
        assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
        for part in parts {
            assert!(output.stderr.contains(part), "{args:?}: {part:?} in {}", output.stderr);
        }
    }
    let nothing = run_with_input("kstatd", ["render", "kube"], b"# nothing\n");
    assert!(nothing.status.success() && nothing.stdout.is_empty(), "{nothing:?}");
    assert_eq!(nothing.stderr, "warning: no objects in the input\n");
    let restricted = ["render", "kube", "--resources=pods"];
    let output = run_with_input("kstatd", restricted, b"kind: Foo\napiVersion: v1\n");
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert_eq!(output.stderr, "skipped 1 object: no metrics for Foo of v1 (1)\n");
}

/// Output of `helm template`: comments, empty documents, kinds without metrics, disabled kinds.
#[test]
fn render_kube_accepts_helm_output() {
    let chart = "---\n# Source: a/templates/empty.yaml\n---\n# Source: a/templates/crd.yaml\n\
                 apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
                 metadata: {name: foos.example.com}\nspec: {group: example.com}\n---\n\
                 apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: sa, namespace: ns}\n---\n\
                 apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n\
                 metadata: {name: r}\n---\n\
                 apiVersion: example.com/v1\nkind: Foo\nmetadata: {name: f}\n---\n\
                 apiVersion: extensions/v1beta1\nkind: Ingress\nmetadata: {name: i}\n---\n\
                 apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  \
                 metadata: {name: p, namespace: ns}\n- {apiVersion: example.com/v1, kind: Foo}\n---\n";
    let families = |args: &[&str]| {
        let output = run_with_input("kstatd", args, chart.as_bytes());
        assert!(output.status.success(), "{args:?}: {output:?}");
        let prefixes = common::valid_text(&output.stdout)
            .iter()
            .map(|sample| sample.split('_').take(2).collect::<Vec<_>>().join("_"))
            .collect::<std::collections::BTreeSet<_>>();
        (Vec::from_iter(prefixes), output.stderr)
    };
    let (found, said) = families(&["render", "kube", "-f", "-"]);
    assert_eq!(found, ["kube_pod"]);
    assert_eq!(
        said,
        "skipped 6 objects: no metrics for CustomResourceDefinition of apiextensions.k8s.io/v1 (1); \
         Foo of example.com/v1 (2); Ingress of extensions/v1beta1 (1); \
         off unless --resources names them: clusterroles (1), serviceaccounts (1)\n"
    );
    let (found, said) = families(&["render", "kube", "--resources=serviceaccounts,clusterroles"]);
    assert_eq!(found, ["kube_clusterrole", "kube_serviceaccount"]);
    assert!(said.starts_with("skipped 4 objects: ") && said.lines().count() == 1, "{said}");
}

#[test]
fn render_kube_accepts_the_charts() {
    let charts = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/charts");
    for entry in std::fs::read_dir(charts).expect("charts") {
        let chart = entry.expect("entry").path();
        // The recorded value sets and a README are next to them.
        if chart.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let output = run("kstatd", ["render", "kube", "-f", chart.to_str().expect("path")]);
        assert!(output.status.success(), "{}: {}", chart.display(), output.stderr);
        assert!(!common::valid_text(&output.stdout).is_empty(), "{}", chart.display());
        assert!(output.stderr.lines().count() <= 1, "{}", output.stderr);
    }
}

#[test]
fn render_statsd_reports_each_rejected_line_with_its_cause() {
    let input = "ok:1|c\nq:1|c|#__x:1\nbad\nok:1|g\nx:100|g\nx:+1|g\nfall:-1|c\n";
    let output = run_with_input("kstatd", ["render", "statsd"], input.as_bytes());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(common::valid_text(&output.stdout), ["ok 1", "x 101"]);
    let said: Vec<&str> = output.stderr.lines().collect();
    for (said, begin) in said.iter().zip([
        "standard input, line 2: invalid_label_name (",
        "standard input, line 3: malformed_line (",
        "standard input, line 4: other_kind (",
        "standard input, line 7: illegal_negative_counter (",
        "error: 4 of 7 lines were rejected",
    ]) {
        assert!(said.starts_with(begin), "{begin:?} in {said}");
    }
    assert_eq!(said.len(), 5, "{}", output.stderr);
    // Any number of them.
    let many = run_with_input("kstatd", ["render", "statsd"], "bad\n".repeat(5_000).as_bytes());
    assert_eq!(many.stderr.lines().count(), 5_001);
}

#[test]
fn explain_shows_why_rules_match_or_not() {
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("mapping.yml");
    let mapping = "mappings:\n- match: api.*\n  name: short\n- match: api.*.*\n  name: api_requests_total\n  \
                   labels:\n    what: $1\n    method: $2\n- match: ^api\n  match_type: regex\n  name: any\n";
    std::fs::write(&file, mapping).expect("write");
    let flag = format!("--statsd.mapping-config={}", file.display());
    let output = run("kstatd", ["explain", "api.users.get:1|c|#code:200", &flag]);
    assert!(output.status.success(), "{output:?}");
    let expected = "api.users.get:1|c|#code:200\n  counter api.users.get: 1\n    tags: code=\"200\"\n    \
         rule 1, line 2: api.*: no match: want 2 segments, got 3\n    \
         rule 2, line 4: api.*.*: match\n    \
         rule 3, line 9: regex ^api: match, but rule 2 takes precedence: globs come first\n    \
         metric: api_requests_total\n    labels from the rule: method=\"get\", what=\"users\"\n  \
         resulting series:\n    \
         api_requests_total{code=\"200\",method=\"get\",what=\"users\"} 1\n";
    assert_eq!(output.stdout, expected);
    // Several lines, one of them invalid; a disabled tag dialect.
    let args = ["explain", "a:1|c|#x:y", "b", "--no-statsd.parse-dogstatsd-tags"];
    let output = run("kstatd", args);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.contains("\n    a 1\n") && output.stdout.contains("malformed_line"));
    assert_eq!(output.stderr, "error: 1 of 2 lines were rejected\n");
    assert_eq!(run("kstatd", ["explain"]).status.code(), Some(1));
}

#[test]
fn demo_prints_the_address_of_the_status_page_first() {
    let ports = [Reserved::new(), Reserved::new(), Reserved::new()];
    let flags = ["--listen", "--telemetry-listen", "--statsd-listen"];
    let flags = flags.iter().zip(&ports).map(|(flag, port)| format!("{flag}={}", port.address));
    let args = ["demo".to_owned(), "--pods=5".to_owned()].into_iter().chain(flags);
    let mut command = common::command("kstatd", args);
    let mut demo = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("start");
    let mut line = String::new();
    let stdout = demo.stdout.take().expect("stdout");
    BufReader::new(stdout).read_line(&mut line).expect("a line");
    demo.kill().and_then(|()| demo.wait()).expect("ended");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words, ["status", "page", &format!("http://{}/status", ports[0].address)]);
}

#[test]
fn the_version_is_logged_first() {
    for (name, message) in [
        ("kstatd", "Starting kstatd"),
        ("statsd_exporter", "Starting StatsD -> Prometheus Exporter"),
    ] {
        let listen = if name == "kstatd" {
            "--listen=127.0.0.1:0"
        } else {
            "--web.listen-address=127.0.0.1:0"
        };
        // Port 8081 may be in use.
        let telemetry = (name == "kstatd").then_some("--telemetry-listen=127.0.0.1:0");
        let args = [listen, "--statsd.listen-udp=127.0.0.1:0", "--statsd.listen-tcp="];
        let program = Program::start(name, args.into_iter().chain(telemetry));
        program.line(&[message, env!("CARGO_PKG_VERSION")]);
        assert!(program.log()[0].contains(message), "{:?}", program.log());
    }
}
