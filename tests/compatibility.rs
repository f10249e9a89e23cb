//! The tables of docs/compatibility.md: exactly one row for each name of the originals (tests/data/originals.txt),
//! and each row is true of the program. Names marked *absent* must be absent.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Instant;

use common::cluster::Cluster;
use common::{DEADLINE, Program, get, request, run, until};

/// The verdict of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Same,
    Better,
    Differs,
    Absent,
}

/// A name of an original, a probe for its presence, and its verdict.
#[derive(Clone, Debug)]
struct Name {
    name: String,
    probe: String,
    verdict: Verdict,
}

/// The sections of the list of names, with the headings of their tables.
const SECTIONS: [(&str, &str); 11] = [
    ("kube-state-metrics commands", "kube-state-metrics: commands"),
    ("kube-state-metrics flags", "kube-state-metrics: flags"),
    ("kube-state-metrics options file", "kube-state-metrics: keys of the options file"),
    ("web configuration", "kube-state-metrics: keys of the web configuration"),
    ("kube-state-metrics main paths", "kube-state-metrics: paths of the main port"),
    ("kube-state-metrics telemetry paths", "kube-state-metrics: paths of the telemetry port"),
    ("kube-state-metrics self metrics", "kube-state-metrics: metrics of itself"),
    ("statsd_exporter flags", "statsd_exporter: flags"),
    ("statsd_exporter mapping file", "statsd_exporter: keys of the mapping file"),
    ("statsd_exporter paths", "statsd_exporter: paths"),
    ("statsd_exporter self metrics", "statsd_exporter: metrics of itself"),
];

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect(path)
}

/// Returns the names and probes of each section.
fn originals() -> BTreeMap<String, Vec<(String, String)>> {
    let mut sections = BTreeMap::<String, Vec<_>>::new();
    let mut section = String::new();
    for line in read("tests/data/originals.txt").lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.to_owned();
        } else if !line.is_empty() && !line.starts_with('#') {
            let (name, probe) = line.split_once('\t').unwrap_or((line, ""));
            let names = sections.entry(section.clone()).or_default();
            names.push((name.to_owned(), probe.to_owned()));
        }
    }
    sections
}

/// Returns the rows of the table under a heading: name, verdict, text.
fn rows(text: &str, heading: &str) -> Vec<(String, Verdict, String)> {
    let part = text.split(&format!("\n### {heading}\n")).nth(1);
    let part = part.unwrap_or_else(|| panic!("docs/compatibility.md has no {heading:?}"));
    let part = part.split("\n#").next().unwrap_or_default();
    let rows = part.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| `")?.strip_suffix('|')?.split(" | ").collect();
        let [name, verdict, why] = cells.as_slice() else { panic!("three cells: {line}") };
        let verdict = match *verdict {
            "same" => Verdict::Same,
            "better" => Verdict::Better,
            "differs" => Verdict::Differs,
            "absent" => Verdict::Absent,
            other => panic!("{other:?} is no verdict: {line}"),
        };
        Some((name.trim_end_matches('`').to_owned(), verdict, why.trim().to_owned()))
    });
    rows.collect()
}

/// Returns the names of a section with their verdicts.
fn section(key: &str) -> Vec<Name> {
    let text = read("docs/compatibility.md");
    let (_, heading) = SECTIONS.iter().find(|(name, _)| *name == key).expect("a section");
    let rows = rows(&text, heading);
    let names = originals().remove(key).expect("names");
    let with_row = |(name, probe): (String, String)| {
        let row = rows.iter().find(|row| row.0 == name);
        let (_, verdict, _) =
            row.unwrap_or_else(|| panic!("{heading:?} has no row for {name}")).clone();
        Name { name, probe, verdict }
    };
    names.into_iter().map(with_row).collect()
}

#[test]
fn every_name_has_exactly_one_row() {
    let text = read("docs/compatibility.md");
    let originals = originals();
    assert_eq!(
        originals.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        SECTIONS.iter().map(|(key, _)| *key).collect()
    );
    let mut wrong = Vec::new();
    for (key, heading) in SECTIONS {
        let rows = rows(&text, heading);
        for (name, _) in &originals[key] {
            let found = rows.iter().filter(|row| row.0 == *name).count();
            if found != 1 {
                wrong.push(format!("{heading}: {found} rows for {name}"));
            }
        }
        for (name, verdict, why) in &rows {
            if !originals[key].iter().any(|(known, _)| known == name) {
                wrong.push(format!("{heading}: a row for {name}, which no original has"));
            }
            if *verdict != Verdict::Same && why.is_empty() {
                wrong
                    .push(format!("{heading}: {name} is {verdict:?}, and nothing says how or why"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns `--name=value`, or the flag alone.
fn argument(name: &Name) -> String {
    match name.probe.as_str() {
        "" => name.name.clone(),
        value => format!("{}={value}", name.name),
    }
}

#[test]
fn every_command_and_flag_is_accepted() {
    let mut wrong = Vec::new();
    for name in section("kube-state-metrics commands") {
        let output = run("kube-state-metrics", name.probe.split(' '));
        if !output.status.success() || output.stdout.is_empty() {
            wrong.push(format!("kube-state-metrics {}: {}", name.probe, output.stderr));
        }
    }
    for program in ["kube-state-metrics", "statsd_exporter"] {
        let help = run(program, ["--help"]).stdout;
        let mut flags = section(&format!("{program} flags"));
        flags.push(Name { name: "--nonsense".into(), probe: "".into(), verdict: Verdict::Same });
        for flag in flags {
            // Arguments before `--help` are parsed first.
            let output = run(program, [&argument(&flag), "--help"]);
            let taken = output.status.success();
            if taken != (flag.name != "--nonsense") {
                wrong.push(format!("{program} {}: taken {taken}: {}", flag.name, output.stderr));
            }
            // Not in the original's help either; a switch is listed once for both forms.
            let hidden = ["--completion", "--no-", "--help-"];
            let hidden = hidden.iter().any(|prefix| flag.name.starts_with(prefix));
            let shown = help
                .split([' ', '=', ',', '\n'])
                .any(|word| word == flag.name || word.replace("[no-]", "") == flag.name);
            if taken && !hidden && !shown {
                wrong.push(format!("{program} --help does not show {}", flag.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_key_is_known() {
    let dir = tempfile::tempdir().expect("directory");
    let path = |name: &str| dir.path().join(name);
    let write = |name: &str, text: &str| std::fs::write(path(name), text).expect("write");
    write("crs.yml", "spec: {resources: []}\n");
    write("web.yml", "rate_limit: {}\n");
    let mut wrong = Vec::new();
    let mut keys = section("kube-state-metrics options file");
    keys.push(Name { name: "nonsense".into(), probe: "1".into(), verdict: Verdict::Same });
    for Name { name, probe, .. } in keys {
        let probe = match probe.ends_with(".yml") {
            true => path(&probe).display().to_string(),
            false => probe,
        };
        write("options.yml", &format!("{name}: {probe}\n"));
        let file = path("options.yml");
        let output = run("kstatd", ["check-config", "--config", &file.display().to_string()]);
        let known = !(output.stdout + &output.stderr).contains("unknown");
        if !output.status.success() || known != (name != "nonsense") {
            wrong.push(format!("options file: {name}: known {known}, {}", output.status));
        }
    }
    let mut keys = section("statsd_exporter mapping file");
    let nonsense = "defaults: {nonsense: 1}";
    keys.push(Name { name: "x".into(), probe: nonsense.into(), verdict: Verdict::Same });
    for Name { name, probe, .. } in keys {
        let rule = probe.strip_prefix("RULE").map(|more| {
            let more = if more.is_empty() { String::new() } else { format!(",{more}") };
            format!("mappings: [{{match: a, name: b{more}}}]")
        });
        write("mapping.yml", &rule.unwrap_or(probe));
        let flag = format!("--statsd.mapping-config={}", path("mapping.yml").display());
        let output = run("statsd_exporter", [&flag, "--check-config"]);
        if output.status.success() != (name != "x") {
            wrong.push(format!("mapping file: {name}: {}", output.stderr));
        }
    }
    let mut keys = section("web configuration");
    keys.push(Name { name: "nonsense".into(), probe: "".into(), verdict: Verdict::Same });
    keys.push(Name {
        name: "tls_server_config.nonsense".into(),
        probe: "".into(),
        verdict: Verdict::Same,
    });
    for Name { name, .. } in keys {
        // Null is valid for every type, and a file of nulls sets nothing.
        let (open, close) = (name.replace('.', ": {"), "}".repeat(name.matches('.').count()));
        write("web.yml", &format!("{open}: null{close}\n"));
        write("options.yml", &format!("tls_config: {}\n", path("web.yml").display()));
        let file = path("options.yml");
        let output = run("kstatd", ["check-config", "--config", &file.display().to_string()]);
        let unknown = (output.stdout + &output.stderr).contains("nonsense");
        if unknown != name.ends_with("nonsense") {
            wrong.push(format!("web configuration: {name}: unknown {unknown}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the errors in the paths of a listener.
fn check_paths(key: &str, address: SocketAddr) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut names = section(key);
    // It ends the process, so it comes last.
    names.sort_by_key(|name| name.name == "/-/quit");
    for Name { name, probe, verdict } in names {
        let (method, status) = probe.split_once(' ').expect("method and status");
        let wanted: u16 = status.parse().expect("status");
        let wanted = if verdict == Verdict::Absent { 404 } else { wanted };
        let answer = request(address, method, &name, &[]).expect(&name);
        if answer.status != wanted {
            wrong.push(format!("{key}: {method} {name}: {}, not {wanted}", answer.status));
        }
        // The original has a profile here, kstatd an explanation.
        if verdict == Verdict::Absent && name.contains("pprof") && answer.text().len() < 30 {
            wrong.push(format!("{key}: {name}: {:?} says nothing", answer.text()));
        }
    }
    wrong
}

/// Returns the errors in the own metrics of a scrape.
fn check_metrics(key: &str, scrape: &str) -> Vec<String> {
    let types: BTreeMap<&str, &str> = scrape
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .filter(|(name, _)| scrape.lines().any(|line| line.starts_with(name)))
        .collect();
    let mut wrong = Vec::new();
    for Name { name, probe, verdict } in section(key) {
        let found = match name.strip_suffix('*') {
            Some(prefix) => {
                types.range(prefix..).next().filter(|(name, _)| name.starts_with(prefix))
            }
            None => types.get_key_value(name.as_str()),
        };
        match (found, verdict) {
            (None, Verdict::Absent) => {}
            (Some((_, kind)), Verdict::Same | Verdict::Better | Verdict::Differs)
                if **kind == *probe => {}
            (found, verdict) => wrong.push(format!("{key}: {name}: {verdict:?}, but {found:?}")),
        }
    }
    wrong
}

/// Waits until the probe returns no errors, and fails with the remaining ones.
fn until_no_errors(mut probe: impl FnMut() -> Vec<String>) {
    let end = Instant::now() + DEADLINE;
    loop {
        let wrong = probe();
        if wrong.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "{}", wrong.join("\n"));
    }
}

#[test]
fn every_path_and_own_metric_of_kube_state_metrics() {
    let cluster = Cluster::new(3);
    let dir = tempfile::tempdir().expect("directory");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("write");
        path.display().to_string()
    };
    let program = Program::start(
        "kube-state-metrics",
        [
            cluster.flag(),
            format!("--config={}", file("options.yml", "port: 0\ntelemetry_port: 0\n")),
            format!(
                "--custom-resource-state-config-file={}",
                file("crs.yml", "spec: {resources: []}\n")
            ),
            "--host=127.0.0.1".to_owned(),
            "--telemetry-host=127.0.0.1".to_owned(),
            "--resources=pods".to_owned(),
            "--object-limit=100".to_owned(),
        ],
    );
    let main = program.address(&["Started metrics server"], "address");
    let telemetry = program.address(&["Started self metrics server"], "address");
    until("pods are there", || {
        get(main, "/metrics").text().contains("kube_pod_info{").then_some(())
    });
    until_no_errors(|| {
        check_metrics("kube-state-metrics self metrics", &get(telemetry, "/metrics").text())
    });
    let mut wrong = check_paths("kube-state-metrics main paths", main);
    wrong.extend(check_paths("kube-state-metrics telemetry paths", telemetry));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_path_and_own_metric_of_statsd_exporter() {
    let dir = tempfile::tempdir().expect("directory");
    let mapping = dir.path().join("mapping.yml");
    std::fs::write(&mapping, "mappings: [{match: mapped, name: mapped}]\n").expect("write");
    let target = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let program = Program::start(
        "statsd_exporter",
        [
            "--web.listen-address=127.0.0.1:0".to_owned(),
            "--web.enable-lifecycle".to_owned(),
            "--statsd.listen-udp=".to_owned(),
            "--statsd.listen-tcp=127.0.0.1:0".to_owned(),
            format!("--statsd.mapping-config={}", mapping.display()),
            format!("--statsd.relay.address={}", target.local_addr().expect("address")),
        ],
    );
    let web = program.address(&["Accepting Prometheus Requests"], "addr");
    let statsd = program.address(&["Accepting StatsD Traffic"], "tcp");
    // A counter, an invalid line, a conflict, an error, a rule.
    let lines = "a:1|c\n:\na:1|g\nb:-1|c\nmapped:1|c|#x:y\n";
    TcpStream::connect(statsd).expect("connect").write_all(lines.as_bytes()).expect("send");
    assert_eq!(request(web, "POST", "/-/reload", &[]).expect("reload").status, 200);
    until_no_errors(|| check_metrics("statsd_exporter self metrics", &get(web, "/metrics").text()));
    let wrong = check_paths("statsd_exporter paths", web);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
