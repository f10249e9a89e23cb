//! `kstatd check-config`, and the same errors at startup.

use super::KSM;
use super::common::{self, run, run_with_input};

/// Runs `check-config` for an options file with this text.
fn check_options(text: &str) -> (common::Output, String) {
    let file = tempfile::NamedTempFile::new().expect("file");
    std::fs::write(file.path(), text).expect("write");
    let path = file.path().display().to_string();
    (run("kstatd", ["check-config".to_owned(), format!("--config={path}")]), path)
}

#[test]
fn check_config_prints_every_problem_of_an_options_file() {
    let (output, path) = check_options(
        "resources:\n  pods: {}\n  foo: {}\nport: x\nauth_filter: true\ntls_config: web.yml\n\
         metric_allowlist: {\"(\": }\nresorces: {}\nlabels_allow_list: {pods: [\"a*b*\"]}\n\
         node: a\nnode: b\ncustom_resource_state_config_file: f\n",
    );
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let lines: Vec<&str> = output.stdout.lines().collect();
    for (line, (severity, place, part)) in lines.iter().zip([
        ("error", "line 3, column 3", "resource foo does not exist"),
        ("error", "line 4, column 7", "port is x"),
        ("error", "line 6, column 13", "web.yml: No such file"),
        ("error", "line 7, column 20", "pattern \"(\""),
        ("warning", "line 8, column 1", "write resources"),
        ("error", "line 9, column 28", "more than one *"),
        ("error", "line 11, column 1", "occurs twice"),
        ("error", "line 12, column 36", "Custom Resource State metrics"),
    ]) {
        assert!(line.starts_with(&format!("{path}: {severity}: {place}: ")), "{line}");
        assert!(line.contains(part), "{part:?} in {line}");
    }
    assert_eq!(lines.len(), 9, "{}", output.stdout);
    assert_eq!(lines[8], format!("{path}: errors: 7, warnings: 1"));
}

#[test]
fn check_config_recognizes_files_by_their_keys() {
    let dir = tempfile::tempdir().expect("dir");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("write");
        path.display().to_string()
    };
    let mapping = file("mapping", "mappings:\n- {match: a.*, name: a}\n");
    let options = file("options", "resources: {pods: {}}\n");
    let custom = file("custom", "kind: CustomResourceStateMetrics\nspec: {resources: []}\n");
    let web = file("web", "http_server_config: {http2: false}\n");
    let output = run("kstatd", ["check-config", &mapping, &options, &custom, &web]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for part in [
        "mapping: valid, rules: 1",
        "options: valid, resources: 1",
        "custom: valid, resources: 0",
        "web: valid, TLS: no, users: no",
    ] {
        assert!(output.stdout.contains(part), "{part}: {}", output.stdout);
    }
    // A malformed file is recognized, too, and all problems are listed with their places.
    let users = file("users", "basic_auth_users: {me: plain}\nrate_limits: {}\n");
    let broken = file("broken", "mappings:\n- match: [\n");
    let output = run("kstatd", ["check-config", &broken, &users, &mapping, "-o", "json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stderr.contains(&format!("{broken}, {users} cannot be used")), "{output:?}");
    let reports: serde_json::Value = serde_json::from_str(&output.stdout).expect("JSON");
    let valid: Vec<_> =
        (0..3).map(|index| reports[index]["valid"].as_bool().expect("a boolean")).collect();
    assert_eq!(valid, [false, false, true], "{reports}");
    assert_eq!(reports[1]["problems"][0]["line"], 2, "{reports}");
    assert_eq!(reports[2]["contents"], "rules: 1");
    let output = run("kstatd", ["check-config", "--web.config.file", &users]);
    assert!(
        output.stdout.contains(": error: line 2, column 1: ") && !output.status.success(),
        "{output:?}"
    );
    let missing = file("tls", "tls_server_config: {cert_file: absent.pem, key_file: absent.key}\n");
    let output = run("kstatd", ["check-config", &missing]);
    assert!(output.stdout.contains("absent.pem") && !output.status.success(), "{output:?}");
    // One that fits no kind, or several, needs the flag.
    for (text, part) in [
        ("", "no kind"),
        ("foo: 1\n", "no kind"),
        ("mappings: []\nresources: {}\n", "several kinds"),
    ] {
        let unclear = file("unclear", text);
        let output = run("kstatd", ["check-config", &unclear]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        for part in [part, &unclear, "--statsd.mapping-config", "--web.config.file"] {
            assert!(output.stderr.contains(part), "{part}: {output:?}");
        }
    }
    // A pipe can be read once.
    let pipe = |args: &[&str]| {
        let args = [&["check-config"], args].concat();
        run_with_input("kstatd", args, b"mappings:\n- {match: a.*}\n")
    };
    let output = pipe(&["/dev/stdin"]);
    assert!(output.stderr.contains("/dev/stdin: not a regular file"), "{output:?}");
    let output = pipe(&["--statsd.mapping-config", "/dev/stdin"]);
    assert!(output.stdout.contains("/dev/stdin: error: "), "{output:?}");
    let output = run("kstatd", ["check-config", "/absent"]);
    assert!(output.stderr.contains("/absent: No such file"), "{output:?}");
}

/// `check-config` rejects exactly the files that startup rejects, with the same position and reason.
#[test]
fn check_config_and_startup_report_the_same_errors() {
    for text in [
        "tls_config: web.yml\n",
        "custom_resource_config: 'spec: ['\n",
        "custom_resource_config_file: f\n",
        "custom_resource_state_config_file: f\n",
        "resources: {foo: {}}\n",
        "resources: [pods]\n",
        "labels_allow_list: {foo: [a]}\n",
        "annotations_allow_list: {pods: ['a*b*']}\n",
        "metric_allowlist: {a: }\nmetric_denylist: {b: }\n",
        "metric_denylist: {'(': }\n",
        "metric_opt_in_list: {'(?!a)': }\n",
        "port: 65536\n",
        "port: -1\n",
        "port: 8081\n",
        "telemetry_port: 8080\n",
        "apiserver: 'ftp://x'\n",
        "shard: 4294967296\n",
        "server_read_timeout: 5\n",
        "node: [n]\n",
        "\tnode: n\n",
        "{{\n",
        "- a\n",
        "port: 1\nport: 1\n",
    ] {
        let (checked, path) = check_options(text);
        assert_eq!(checked.status.code(), Some(1), "{text:?}: {checked:?}");
        let first = checked.stdout.lines().find(|line| line.contains(": error: ")).expect(text);
        std::fs::write(&path, text).expect("write");
        let started = run(KSM, [format!("--config={path}")]);
        std::fs::remove_file(&path).expect("remove");
        assert_eq!(started.status.code(), Some(1), "{text:?}: {started:?}");
        let reason = first.split_once(": error: ").expect(first).1;
        let said = started.stderr.lines().last().unwrap_or_default();
        // A conflict between two keys is described in terms of the flags.
        let words = reason.split_once(": ").map_or(reason, |(_, words)| words);
        let quoted = |text: &str| text.replace(['\\', '"'], "");
        assert!(quoted(said).contains(&quoted(words)), "{text:?}: {words:?} in {said}");
    }
    for text in [
        "",
        "# nothing\n",
        "resources: {pods: {}}\nunknown: 1\n",
        "continue_without_config: true\n",
    ] {
        let (checked, _) = check_options(text);
        assert!(checked.status.success(), "{text:?}: {checked:?}");
        assert!(checked.stdout.contains(": valid, resources: "), "{}", checked.stdout);
    }
}

/// Every configuration file may be UTF-8 or UTF-16; other bytes are reported with their line.
#[test]
fn bytes_that_are_not_text_are_reported_with_their_line() {
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("file.yml");
    let flag = |name: &str| format!("{name}={}", file.display());
    let utf_16 = |text: &str| -> Vec<u8> {
        "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(u16::to_be_bytes).collect()
    };
    let half_a_unit = [utf_16("# one\n# two\n"), vec![0]].concat();
    let half_a_pair = [utf_16("# one\n# two\n"), vec![0xd8, 0, 0, b'x']].concat();
    let not_utf_8 = b"# one\n# two\n\xff".to_vec();
    let files = [(half_a_unit, "UTF-16"), (half_a_pair, "UTF-16"), (not_utf_8, "UTF-8")];
    for (content, encoding) in files {
        std::fs::write(&file, content).expect("write");
        let commands = [
            ("kstatd", vec!["check-config".to_owned(), flag("--statsd.mapping-config")]),
            ("kstatd", vec!["check-config".to_owned(), flag("--config")]),
            (
                "kstatd",
                vec!["check-config".to_owned(), flag("--custom-resource-state-config-file")],
            ),
            ("statsd_exporter", vec![flag("--statsd.mapping-config")]),
            ("statsd_exporter", vec![flag("--web.config.file")]),
            (KSM, vec![flag("--config")]),
            (KSM, vec![flag("--custom-resource-state-config-file")]),
        ];
        for (name, args) in commands {
            let result = run(name, &args);
            assert_eq!(result.status.code(), Some(1), "{args:?}: {result:?}");
            let output = format!("{}{}", result.stdout, result.stderr);
            assert!(output.contains("line 3"), "{args:?}: {output}");
            assert!(output.contains(&format!("not {encoding}")), "{args:?}: {output}");
        }
    }
}

#[test]
fn check_config_prints_every_problem() {
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("mapping.yml");
    let check = || {
        run(
            "kstatd",
            ["check-config".to_owned(), format!("--statsd.mapping-config={}", file.display())],
        )
    };
    std::fs::write(&file, "mappings:\n- {match: a.*, name: n}\n").expect("write");
    let valid = check();
    assert!(valid.status.success() && valid.stdout.contains("valid, rules: 1"), "{valid:?}");
    let text = "mappings:\n- {match: a.*, name: \"bad name\"}\n- {match: b, name: n, foo: 1}\n";
    std::fs::write(&file, text).expect("write");
    let broken = check();
    assert_eq!(broken.status.code(), Some(1), "{broken:?}");
    for part in ["line 2, column ", "line 3, column ", "bad name", "foo"] {
        assert!(broken.stdout.contains(part), "{part:?} in {broken:?}");
    }
}
