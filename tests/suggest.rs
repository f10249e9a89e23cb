//! The promises of `kstatd cardinality suggest`: its rules are a valid mapping, the same lines then create the stated
//! number of series, and every total is unchanged.

mod common;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{Output, Program, get, run, run_with_input, until};
use tempfile::TempDir;

/// Returns the number that follows `before` in a text.
fn number(text: &str, before: &str) -> u64 {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("no {before:?} in {text}"));
    let digits: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
    digits.replace(',', "").parse().unwrap_or_else(|_| panic!("no number after {before:?}: {text}"))
}

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(TempDir::new().expect("a folder"))
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).expect("write");
        path
    }
}

fn suggest(args: &[&str], input: &[u8]) -> String {
    let Output { status, stdout, stderr } =
        run_with_input("kstatd", [&["cardinality", "suggest"], args].concat(), input);
    assert!(status.success(), "{stderr}");
    stdout
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Checks that the rules are a mapping file without problems.
fn checked(rules: &str) {
    let files = Files::new();
    let path = files.write("rules.yml", rules);
    let output = run("kstatd", ["check-config", "--statsd.mapping-config", text(&path)]);
    assert!(output.status.success(), "{}\n{rules}", output.stdout);
    assert!(output.stdout.contains("warnings: 0"), "{}\n{rules}", output.stdout);
}

/// A running exporter with a mapping.
struct Running {
    program: Program,
    http: SocketAddr,
    tcp: SocketAddr,
}

impl Running {
    fn start(mapping: &str) -> Self {
        let files = Files::new();
        let path = files.write("mapping.yml", mapping);
        let flag = format!("--statsd.mapping-config={}", path.display());
        let args = [
            "--web.listen-address=127.0.0.1:0",
            "--statsd.listen-tcp=127.0.0.1:0",
            "--statsd.listen-udp=",
            &flag,
        ];
        let program = Program::start("statsd_exporter", args);
        let http = program.address(&["Accepting Prometheus Requests"], "addr");
        let tcp = program.address(&["Accepting StatsD Traffic"], "tcp");
        Self { program, http, tcp }
    }

    /// Returns its series after these lines, without its own metrics.
    fn after(&self, lines: &str) -> Vec<String> {
        let mut stream = TcpStream::connect(self.tcp).expect("connect");
        stream.set_write_timeout(Some(Duration::from_secs(60))).expect("timeout");
        stream.write_all(lines.as_bytes()).expect("send");
        stream.write_all(b"the.end:1|c\n").expect("send");
        drop(stream);
        let body = until("all lines are counted", || {
            let body = get(self.http, "/metrics").text();
            body.contains("\nthe_end 1\n").then_some(body)
        });
        let own = |line: &&str| {
            let prefixes = ["#", "statsd_", "kstatd_", "process_", "go_", "promhttp_", "the_end"];
            !prefixes.iter().any(|prefix| line.starts_with(prefix))
        };
        body.lines().filter(own).map(str::to_owned).collect()
    }
}

/// Returns the sums of a counter by the value of a label.
fn sums(series: &[String], metric: &str, label: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for line in series.iter().filter(|line| line.starts_with(metric)) {
        let (labels, value) = line.rsplit_once(' ').expect("a value");
        let value: f64 = value.parse().expect("a number");
        let of = labels.split_once(&format!("{label}=\"")).map_or("", |(_, rest)| rest);
        *sums.entry(of.split('"').next().unwrap_or_default().to_owned()).or_default() += value;
    }
    sums
}

/// A typical incident: a URL with its query as a label of one counter.
fn incident(count: u64) -> String {
    let mut lines = String::new();
    for n in 0..count {
        let code = [200, 404, 500][(n % 10 / 8 + n % 10 / 9) as usize];
        // IDs of both forms that were in use.
        let id = match n % 2 {
            0 => n.to_string(),
            _ => format!("{n:08x}-16fd-4a5b-8d5f-{:012x}", n * 7_919),
        };
        lines += &format!("http.requests:1|c|#url:/websocket?appliance={id},code:{code}\n");
    }
    lines + "http.requests:1|c|#url:/login,code:200\njobs.done:2|c|#queue:mail\n"
}

#[test]
fn suggested_rule_has_the_stated_effect() {
    let lines = incident(150_000);
    let files = Files::new();
    let captured = files.write("lines", &lines);
    let rules = suggest(&[text(&captured)], b"");
    checked(&rules);
    assert!(rules.contains("url: [url]\n"), "{rules}");
    let said = "label url of http_requests: 150,001 values, ";
    assert!(rules.contains(said) && rules.contains("/websocket?appliance=<id>; "), "{rules}");
    assert_eq!(number(&rules, "# "), 150_002, "{rules}");
    let promised = number(&rules, "with these rules ");
    assert_eq!((promised, number(&rules, "with this rule ")), (5, 2), "{rules}");
    assert_eq!(number(&rules, "values and "), 4, "{rules}");
    let series = Running::start(&rules).after(&lines);
    assert_eq!(series.len() as u64, promised, "{series:#?}");
    let expected = [("200", 120_001.0), ("404", 15_000.0), ("500", 15_000.0)];
    let expected = BTreeMap::from(expected.map(|(code, sum)| (code.to_owned(), sum)));
    assert_eq!(sums(&series, "http_requests", "code"), expected);
    assert_eq!(sums(&series, "jobs_done", "queue"), BTreeMap::from([("mail".to_owned(), 2.0)]));
    // Rules that are already in the mapping are not suggested again.
    let path = files.write("rules.yml", &rules);
    let again = suggest(&["--statsd.mapping-config", text(&path), text(&captured)], b"");
    assert!(again.starts_with("# 5 series of 2 metrics in 150,002 lines; no rules"), "{again}");
    assert_eq!(again.lines().count(), 1, "{again}");
}

#[test]
fn querying_a_process_changes_nothing() {
    let lines = incident(3_000);
    let running = Running::start("");
    let before = running.after(&lines);
    assert_eq!(before.len(), 3_002);
    let address = running.http.to_string();
    let rules = suggest(&["--addr", &address], b"");
    checked(&rules);
    assert!(rules.contains("url: [url]\n"), "{rules}");
    assert!(rules.contains("label url of http_requests: 3,001 values, "), "{rules}");
    // The last line belongs to the test.
    assert_eq!(number(&rules, "with these rules "), 6, "{rules}");
    let files = Files::new();
    let path = files.write("rules.yml", &rules);
    let trial =
        suggest(&["--addr", &format!("http://{address}/metrics"), "--dry-run", text(&path)], b"");
    let rows: Vec<Vec<&str>> =
        trial.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1], ["all", "series", "3,003", "6"], "{trial}");
    assert_eq!(rows[2], ["http_requests", "3,001", "4"], "{trial}");
    assert_eq!(rows[3].join(" "), "unchanged metrics: 2", "{trial}");
    let after = get(running.http, "/metrics").text();
    assert!(before.iter().all(|line| after.contains(line.as_str())));
    drop(running.program);
    // The process has ended.
    let output = run("kstatd", ["cardinality", "suggest", "--addr", &address]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.contains(&format!("no series from {address}: ")), "{}", output.stderr);
}

/// From `kstatd run` the series of the StatsD side are read, with a password if required.
#[test]
fn suggest_reads_statsd_series_of_run_with_a_password() {
    let files = Files::new();
    let hash = "$2a$04$abcdefghijklmnopqrstuuyvPXIbu7xe6/CED2DzX8z6Si09MlzlW";
    let users = files.write("web.yml", &format!("basic_auth_users:\n  me: {hash}\n"));
    let flag = format!("--web.config.file={}", users.display());
    let listen = ["--listen=127.0.0.1:0", "--telemetry-listen=127.0.0.1:0", &flag];
    let statsd = ["--statsd.listen-udp=", "--statsd.listen-tcp=127.0.0.1:0"];
    let program = Program::start("kstatd", [&listen[..], &statsd].concat());
    let tcp = program.address(&["Accepting StatsD Traffic"], "tcp");
    let address = program.address(&["Started metrics server"], "address").to_string();
    let mut lines: String = (0..200).map(|n| format!("a:1|c|#id:{n}\n")).collect();
    lines += "last:1|c\n";
    TcpStream::connect(tcp).and_then(|mut tcp| tcp.write_all(lines.as_bytes())).expect("sent");
    let asked = ["--addr", &address, "--username=me", "--password=pw"];
    let rules = until("all lines are counted", || {
        let rules = suggest(&asked, b"");
        rules.starts_with("# 201 series of 2 metrics in 201 samples; ").then_some(rules)
    });
    checked(&rules);
    assert!(rules.contains("id: [number]"), "{rules}");
    let output = run("kstatd", ["cardinality", "suggest", "--addr", &address]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.contains("the server returned 401 Unauthorized"), "{}", output.stderr);
}

#[test]
fn names_with_ids_become_one_metric() {
    let mut lines = String::new();
    for n in 0..2_000 {
        lines += &format!("user.{n}.login:1|c\nuser.{n}.seconds:20|ms|#zone:{}\n", n % 3);
    }
    lines += "queue.size:3|g\n";
    let rules = suggest(&[], lines.as_bytes());
    checked(&rules);
    // A pipe and a file give the same result.
    let files = Files::new();
    assert_eq!(suggest(&[text(&files.write("lines", &lines))], b""), rules);
    for expected in ["match: 'user.*.login'", "name: user_login", "name: user_seconds"] {
        assert!(rules.contains(expected), "{rules}");
    }
    let promised = number(&rules, "with these rules ");
    let series = Running::start(&rules).after(&lines);
    assert_eq!(series.len() as u64, promised, "{rules}\n{series:#?}");
    assert!(series.contains(&"user_login 2000".to_owned()), "{series:#?}");
    // The same for the series of a process.
    let running = Running::start("");
    let before = running.after(&lines);
    let rules = suggest(&["--addr", &running.http.to_string()], b"");
    checked(&rules);
    assert_eq!(number(&rules, "# ") as usize, before.len() + 1, "{rules}");
    assert_eq!(number(&rules, "with these rules "), promised + 1, "{rules}");
    let series = Running::start(&rules).after(&lines);
    assert_eq!(series.len() as u64, promised, "{rules}\n{series:#?}");
    assert!(series.contains(&"user_login 2000".to_owned()), "{series:#?}");
}

#[test]
fn incompressible_values_get_alternatives() {
    // Random words of five letters.
    let word = |n: u32| {
        let letter =
            |at: u32| char::from(b'a' + (n.wrapping_mul(2_654_435_761) >> (5 * at) & 15) as u8);
        (0..6).map(letter).collect::<String>()
    };
    let mut lines: String =
        (0..2_000).map(|n| format!("search:1|c|#q:{},lang:en\n", word(n))).collect();
    let rules = suggest(&[], lines.as_bytes());
    checked(&rules);
    assert!(rules.contains("no rules to suggest"), "{rules}");
    assert!(
        rules.contains("label q of search: ") && rules.contains("--limit.values-per-label"),
        "{rules}"
    );
    assert!(rules.lines().all(|line| line.starts_with('#')), "{rules}");
    // The label can be dropped, as the text says.
    assert!(rules.contains("with labels: {q: all}"), "{rules}");
    let given_up = "mappings:\n- {match: search, name: search, labels: {q: all}}\n";
    let series = Running::start(given_up).after(&lines);
    assert_eq!(series, ["search{lang=\"en\",q=\"all\"} 2000"]);
    // Few values are ignored, whatever their form.
    lines = (0..99).map(|n| format!("a:1|c|#id:{n}\n")).collect();
    assert_eq!(
        suggest(&[], lines.as_bytes()),
        "# 99 series of 1 metric in 99 lines; no rules to suggest.\n"
    );
    assert!(suggest(&["--min-values=50"], lines.as_bytes()).contains("id: [number]"));
    assert!(suggest(&[], b"").starts_with("# 0 series"));
}

/// The same label of another metric keeps its values, and existing steps of the mapping stay.
#[test]
fn labels_with_few_values_are_ignored() {
    let mut lines: String =
        (0..500).map(|n| format!("big.one:1|c|#id:{n},who:u{n}@x.org\n")).collect();
    lines += &(0..20).map(|n| format!("small:1|c|#id:{n}\n")).collect::<String>();
    let files = Files::new();
    let mapping = "defaults:\n  normalise:\n    who: uuid\n\
                   mappings:\n- {match: other.*, name: other, normalise: {id: uuid}}\n";
    let path = files.write("mapping.yml", mapping);
    let rules = suggest(&["--statsd.mapping-config", text(&path)], lines.as_bytes());
    checked(&rules);
    assert!(rules.contains("who: [uuid, email]") && rules.contains("match: 'big.one'"), "{rules}");
    assert_eq!(number(&rules, "with these rules "), 21, "{rules}");
    let series = Running::start(&rules).after(&lines);
    assert_eq!(series.len(), 21, "{series:#?}");
    assert_eq!(sums(&series, "small", "id").len(), 20);
    // A rule with its own steps is reported, because the suggested ones do not apply to it.
    let lines: String = (0..500).map(|n| format!("other.x:1|c|#id:{n}\n")).collect();
    let rules = suggest(&["--statsd.mapping-config", text(&path)], lines.as_bytes());
    checked(&rules);
    assert!(rules.contains("the rule in line 5 of the mapping file has its own steps"), "{rules}");
    // So is a rule whose metric name contains the variable part.
    let path = files.write("mapping.yml", "mappings:\n- {match: v.*.x, name: 'v_${1}'}\n");
    let lines: String = (0..500).map(|n| format!("v.{n}.x:1|c\n")).collect();
    let rules = suggest(&["--statsd.mapping-config", text(&path)], lines.as_bytes());
    checked(&rules);
    assert!(
        rules.contains("The rule in line 2 of the mapping file (v.*.x) leads to 500 metrics"),
        "{rules}"
    );
}

#[test]
fn hostile_values_are_data() {
    let mut lines = Vec::new();
    for n in 0..300 {
        for (label, value) in [
            ("a", format!("it's \\ \"q\" \u{1}\u{1b}[2J #: {{{n}}} <&> $1 ${{2}} é\u{202e}")),
            ("b", format!("{}{n}", "x".repeat(60_000))),
            ("y", format!("- ? : *a &b !c %d @e `f {n}")),
            ("null", format!("\u{7f}\u{85}\u{2028}key: [{n}")),
        ] {
            lines.extend_from_slice(format!("evil\u{1}.{label}:1|c|#{label}:").as_bytes());
            lines.extend(value.into_bytes().into_iter().filter(|byte| !b",|\n".contains(byte)));
            lines.push(b'\n');
        }
        lines.extend_from_slice(b"\xff\xfe:1|c\nnot a line\n");
    }
    let rules = suggest(&[], &lines);
    checked(&rules);
    let plain = |c: char| c == '\n' || !c.is_control() && !matches!(c, '\u{202e}' | '\u{2028}');
    assert!(rules.chars().all(plain), "{rules:?}");
    assert!(rules.len() < 20_000, "{} bytes", rules.len());
    let promised = number(&rules, "with these rules ");
    assert!(promised < 400, "{rules}");
    let files = Files::new();
    let (path, captured) = (files.write("rules.yml", &rules), files.0.path().join("lines"));
    std::fs::write(&captured, &lines).expect("write");
    let trial = suggest(&["--dry-run", text(&path), text(&captured)], b"");
    let all = trial.lines().nth(1).expect("all series");
    assert!(all.starts_with("all series") && all.ends_with(&format!(" {promised}")), "{trial}");
}

/// A small number of names can be suggested with a lower `--min-values`.
#[test]
fn min_values_below_the_default_is_supported() {
    let lines: String = [0, 7_919, 15_838].map(|n| format!("part.{n}:1|g\n")).concat();
    let rules = suggest(&["--min-values=2"], lines.as_bytes());
    checked(&rules);
    assert!(rules.starts_with("# 3 series of 3 metrics in 3 lines; "), "{rules}");
}

#[test]
fn invalid_inputs_are_reported() {
    let files = Files::new();
    let broken = files.write("broken.yml", "mappings:\n- {match: a.*}\n");
    for (args, part) in [
        (vec!["/no/such/file"], "/no/such/file: "),
        (vec!["--dry-run", text(&broken)], "broken.yml: "),
        (vec!["--statsd.mapping-config", text(&broken)], "broken.yml: "),
        (vec!["--min-values=1"], "--min-values"),
        (vec!["x", "--addr=y"], "--addr"),
    ] {
        let output = run("kstatd", [&["cardinality", "suggest"], &args[..]].concat());
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(output.stderr.contains(part), "{args:?}: {}", output.stderr);
        assert_eq!(output.stdout, "", "{args:?}");
    }
}

/// The step `url` would empty some values, which would merge their series with those without the label.
#[test]
fn no_rule_removes_a_label() {
    let files = Files::new();
    let mut lines: String = (0..500).map(|n| format!("m:1|c|#url:/item?id={n}\n")).collect();
    lines += "m:1|c\nm:1|c|#url:?id=1\nm:1|c|#url:?id=2\n";
    let captured = files.write("lines", &lines);
    let rules = suggest(&[text(&captured)], b"");
    checked(&rules);
    let after = Running::start(&rules).after(&lines);
    assert_eq!(after.len() as u64, number(&rules, "with these rules "), "{rules}");
    let sums = sums(&after, "m", "url");
    assert_eq!(sums.values().sum::<f64>(), 503.0);
    assert_eq!(sums.get(""), Some(&1.0), "only the series that has no label: {rules}\n{after:?}");
    assert!(sums.len() < 10, "{rules}");
}
