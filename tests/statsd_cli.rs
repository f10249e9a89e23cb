//! The recorded command lines and HTTP exchanges of statsd_exporter, replayed.
//!
//! What the original does and nobody wants (`quirk`) is listed in [`instead`], with what happens here.

mod common;

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Program, Response, get, request, run, until};
use serde_json::Value;

const NAME: &str = "statsd_exporter";

/// Programs running at a time.
const PARALLEL: usize = 4;

fn data() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/statsd/cli_http.json");
    let text = std::fs::read(path).expect("conformance data");
    serde_json::from_slice(&text).expect("JSON")
}

fn of_kind(kind: &str) -> Vec<Value> {
    let cases: Vec<Value> = data().into_iter().filter(|case| case["kind"] == kind).collect();
    assert!(!cases.is_empty(), "no cases of kind {kind}");
    cases
}

fn strings(value: &Value) -> Vec<String> {
    let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Runs `check` on every case, several at a time, and reports every failure.
fn each(cases: &[Value], check: impl Fn(&Value) -> Result<(), String> + Sync) {
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = check(case) {
                        let failure = format!("{}: {error}", case["name"]);
                        failures.lock().expect("failures").push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("failures");
    let (failed, all) = (failures.len(), cases.len());
    assert!(failures.is_empty(), "{failed} of {all} cases fail:\n{}", failures.join("\n"));
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, got: T, expected: T) -> Result<(), String> {
    if got == expected { Ok(()) } else { Err(format!("{what}: {got:?} instead of {expected:?}")) }
}

/// The outcome of a command line that crashes the original.
enum Instead {
    /// A usage error that names this.
    Refused(&'static str),
    /// It works.
    Runs,
    /// It works and is done.
    Done,
}

fn instead(name: &str) -> Option<Instead> {
    use Instead::{Done, Refused, Runs};
    Some(match name {
        "web.telemetry-path/<empty>" | "web.telemetry-path/metrics" => Refused("must begin with /"),
        "web.telemetry-path//-/ready" | "web.telemetry-path//-/healthy" => Refused("lifecycle API"),
        "web.telemetry-path//a b" => Refused("blanks"),
        "statsd.cache-size/-1"
        | "statsd.cache-size/-1-mapping"
        | "statsd.cache-size/-1-random"
        | "statsd.event-flush-threshold/-1"
        | "statsd.udp-packet-queue-size/-1" => Refused("must not be negative"),
        "statsd.event-flush-interval/0s"
        | "statsd.event-flush-interval/0"
        | "statsd.event-flush-interval/-1s" => Refused("must be greater than 0"),
        "debug.dump-fsm/empty.yml" => Runs,
        "debug.dump-fsm/regex-only" => Done,
        _ => return None,
    })
}

/// A part of the message for each class of failure; the texts are ours.
fn part_of_class(class: &str) -> &'static str {
    match class {
        "unknown_flag" => "unknown ",
        "unexpected_argument" => "unexpected ",
        "args_file_error" => "failed to open arguments file",
        "bad_number" => "invalid syntax",
        "bad_duration" => "time: ",
        "bad_enum" => "enum value must be one of",
        "bad_log_option" => "unrecognized log ",
        "flag_repeated" => "cannot be repeated",
        "missing_value" => "expected argument for flag",
        "web_listen_error" => "listen tcp: ",
        "bad_listen_address" => "bad StatsD listening address",
        "bad_port" => "bad port ",
        "no_listener" => "At least one of UDP/TCP/Unixgram listeners must be specified",
        "socket_exists" => "socket already exists",
        "unixgram_listen_failed" => "failed to start Unixgram listener",
        "address_in_use" | "listen_failed" => "already in use",
        "config_error" => "error loading config",
        "config_ok" => "Configuration check successful",
        "resolve_error" => "Unable to create relay",
        "runs_with_log" | "none" => "",
        other => panic!("no class {other}"),
    }
}

/// What a case needs beside its arguments.
struct Scene {
    dir: tempfile::TempDir,
    _busy: Option<(TcpListener, UdpSocket)>,
    args: Vec<String>,
}

fn scene(case: &Value, files: &Value) -> Scene {
    let dir = tempfile::tempdir().expect("dir");
    for (name, content) in files["files"].as_object().expect("files") {
        std::fs::write(dir.path().join(name), content.as_str().expect("text")).expect("write");
    }
    std::fs::create_dir(dir.path().join("dir")).expect("dir");
    let regex = "mappings:\n- {match: \"a.*\", match_type: regex, name: r}\n";
    std::fs::write(dir.path().join("regex.yml"), regex).expect("write");
    let path = dir.path().display().to_string();
    let mut args: Vec<String> =
        strings(&case["args"]).iter().map(|arg| arg.replace("{dir}", &path)).collect();
    let name = case["name"].as_str().expect("name");
    let busy = name.ends_with("address-in-use").then(|| {
        let tcp = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = tcp.local_addr().expect("address");
        let udp = UdpSocket::bind(address).expect("bind");
        let flag = match name {
            "listen/web-address-in-use" => "web.listen-address",
            "listen/udp-address-in-use" => "statsd.listen-udp",
            _ => "statsd.listen-tcp",
        };
        args.push(format!("--{flag}={address}"));
        (tcp, udp)
    });
    let plain = data();
    let first_with_defaults = plain.iter().position(|case| case["name"] == "flag/no-version");
    let at = plain.iter().position(|other| other["name"] == name);
    if at > first_with_defaults {
        for flag in ["web.listen-address", "statsd.listen-udp", "statsd.listen-tcp"] {
            if !args.iter().any(|arg| arg.starts_with(&format!("--{flag}"))) {
                args.insert(0, format!("--{flag}=127.0.0.1:0"));
            }
        }
    }
    Scene { dir, _busy: busy, args }
}

fn check_command_line(case: &Value, files: &Value) -> Result<(), String> {
    let name = case["name"].as_str().expect("name");
    let scene = scene(case, files);
    let class = case["class"].as_str().expect("class");
    match instead(name) {
        Some(Instead::Refused(part)) => return refused(&scene, part),
        Some(Instead::Runs) => return runs(case, &scene),
        Some(Instead::Done) => {
            return expect("exit", run(NAME, &scene.args).status.code(), Some(0));
        }
        None => expect("quirk", &case["quirk"], &Value::Null)?,
    }
    if case["outcome"] == "runs" {
        return runs(case, &scene);
    }
    let output = run(NAME, &scene.args);
    let code = case["exit_code"].as_i64().and_then(|code| i32::try_from(code).ok());
    expect("exit code", output.status.code(), code)?;
    let has_output = case["stdout_nonempty"].as_bool().unwrap_or(false);
    expect("output on stdout", !output.stdout.is_empty(), has_output)?;
    for part in strings(&case["stdout_contains"]) {
        expect(&format!("{part} on stdout"), output.stdout.contains(&part), true)?;
    }
    let part = part_of_class(class);
    expect(&format!("{part:?} in {:?}", output.stderr), output.stderr.contains(part), true)?;
    let usage: Vec<String> = strings(&case["stderr"])
        .into_iter()
        .filter(|line| line.starts_with("statsd_exporter: error: "))
        .collect();
    if !usage.is_empty() {
        let line = output.stderr.trim_end();
        expect("line", line.starts_with("statsd_exporter: error: "), true)?;
        expect("hint", line.ends_with(", try --help"), true)?;
    }
    if let Some(written) = case["dump_file_written"].as_bool() {
        expect("dump", scene.dir.path().join("fsm.dot").exists(), written)?;
    }
    Ok(())
}

fn refused(scene: &Scene, part: &str) -> Result<(), String> {
    let output = run(NAME, &scene.args);
    expect("exit code", output.status.code(), Some(1))?;
    expect(&output.stderr, output.stderr.starts_with("statsd_exporter: error: "), true)?;
    expect(&format!("{part:?} in {}", output.stderr), output.stderr.contains(part), true)
}

fn runs(case: &Value, scene: &Scene) -> Result<(), String> {
    let mut program = Program::start(NAME, &scene.args);
    if program.try_line(&["Accepting Prometheus Requests"]).is_none() {
        // Some cases switch the level of this line off; those answer over HTTP or wait for a signal.
        let quiet = scene.args.iter().any(|arg| arg.starts_with("--log.level="));
        expect(&format!("starts: {:?}", program.log()), quiet, true)?;
    }
    if let Some(mode) = case["socket_mode"].as_str() {
        let file = scene.dir.path().join("s.sock");
        let metadata = std::fs::metadata(&file).map_err(|error| error.to_string())?;
        let got = format!("0o{:o}", metadata.permissions().mode() & 0o777);
        expect("socket mode", got.as_str(), mode)?;
    }
    if let Some(written) = case["dump_file_written"].as_bool() {
        expect("dump", scene.dir.path().join("fsm.dot").exists(), written)?;
    }
    program.signal("TERM");
    expect("exit code after SIGTERM", program.ended().code(), Some(0))?;
    if case["socket_removed_after_sigterm"] == true {
        expect("socket file", scene.dir.path().join("s.sock").exists(), false)?;
    }
    Ok(())
}

#[test]
fn command_lines() {
    let files = of_kind("files").remove(0);
    let mut cases = of_kind("cli");
    // These bind the default ports of the host, which another test may have.
    let defaults = ["flag/double-dash-empty"];
    cases.retain(|case| !case["name"].as_str().is_some_and(|name| defaults.contains(&name)));
    // docs/compatibility.md: kstatd has this flag, the original has not.
    let added = ["flag/web-config-file"];
    cases.retain(|case| !case["name"].as_str().is_some_and(|name| added.contains(&name)));
    let quiet = |case: &Value| {
        // Without the line that says that it listens there is nothing to wait for.
        matches!(case["name"].as_str(), Some("log.level/warn" | "log.level/error"))
    };
    cases.retain(|case| !quiet(case));
    assert!(cases.len() >= 220, "only {} cases", cases.len());
    each(&cases, |case| check_command_line(case, &files));
}

#[test]
fn levels_above_info_are_quiet() {
    for level in ["warn", "error"] {
        let web = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = web.local_addr().expect("address");
        drop(web);
        let mut program = Program::start(
            NAME,
            [
                format!("--log.level={level}"),
                format!("--web.listen-address={address}"),
                "--statsd.listen-udp=127.0.0.1:0".to_owned(),
                "--statsd.listen-tcp=".to_owned(),
            ],
        );
        until("it answers", || request(address, "GET", "/-/ready", &[]).ok());
        assert_eq!(program.log(), Vec::<String>::new());
        program.signal("TERM");
        assert_eq!(program.ended().code(), Some(0));
    }
}

/// A running exporter on free ports.
struct Exporter {
    program: Program,
    web: SocketAddr,
    udp: SocketAddr,
    tcp: SocketAddr,
    dir: tempfile::TempDir,
}

fn exporter(flags: &[String], mapping: Option<&str>) -> Exporter {
    let dir = tempfile::tempdir().expect("dir");
    let mut args: Vec<String> = ["web.listen-address", "statsd.listen-udp", "statsd.listen-tcp"]
        .iter()
        .map(|flag| format!("--{flag}=127.0.0.1:0"))
        .collect();
    args.extend_from_slice(flags);
    if let Some(mapping) = mapping {
        let file = dir.path().join("m.yml");
        std::fs::write(&file, mapping).expect("write");
        args.push(format!("--statsd.mapping-config={}", file.display()));
    }
    let program = Program::start(NAME, &args);
    let web = program.address(&["Accepting Prometheus Requests"], "addr");
    let traffic = ["Accepting StatsD Traffic"];
    let (udp, tcp) = (program.address(&traffic, "udp"), program.address(&traffic, "tcp"));
    Exporter { program, web, udp, tcp, dir }
}

impl Exporter {
    /// Sends lines and waits until they are counted.
    fn send(&self, lines: &[String]) {
        use std::io::Write;
        let before = self.lines();
        let mut stream = std::net::TcpStream::connect(self.tcp).expect("connect");
        for line in lines {
            stream.write_all(format!("{line}\n").as_bytes()).expect("send");
        }
        drop(stream);
        until("the lines are counted", || {
            (self.lines() >= before + lines.len() as f64).then_some(())
        });
    }

    fn lines(&self) -> f64 {
        self.own("statsd_exporter_lines_total").expect("lines_total")
    }

    fn own(&self, series: &str) -> Option<f64> {
        let text = get(self.web, "/metrics").text();
        let line = text.lines().find_map(|line| line.strip_prefix(series))?;
        line.trim().parse().ok()
    }

    /// The samples that clients sent.
    fn user_series(&self) -> BTreeSet<String> {
        let own = ["statsd_", "process_", "promhttp_", "#"];
        let text = get(self.web, "/metrics").text();
        let is_own = |line: &&str| own.iter().any(|prefix| line.starts_with(prefix));
        text.lines().filter(|line| !is_own(line)).map(str::to_owned).collect()
    }
}

fn families(text: &str) -> Vec<String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|rest| rest.split(' ').next()).map(str::to_owned).collect()
}

fn check_answer(case: &Value, response: &Response) -> Result<(), String> {
    let status = case["status"].as_u64().expect("status");
    expect("status", u64::from(response.status), status)?;
    expect("content type", response.header("content-type"), case["content_type"].as_str())?;
    expect("location", response.header("location"), case["location"].as_str())?;
    if let Some(sniff) = case["x_content_type_options"].as_str() {
        expect("sniffing", response.header("x-content-type-options"), Some(sniff))?;
    }
    let encoding = case["content_encoding"].as_str();
    expect("content encoding", response.header("content-encoding"), encoding)?;
    if let Some(body) = case["body"].as_str() {
        expect("body", response.text().as_str(), body)?;
    }
    if case["body_nonempty"] == true {
        expect("empty body", response.body.is_empty(), false)?;
    }
    for part in strings(&case["body_contains"]) {
        expect(&format!("{part} in the body"), response.text().contains(&part), true)?;
    }
    if case["families"].is_array() {
        expect("families", families(&response.text()), strings(&case["families"]))?;
    }
    let text = String::from_utf8_lossy(&response.body);
    if let Some(metrics) = case["is_metrics"].as_bool() {
        expect("metrics", text.contains("# TYPE statsd_exporter_lines_total"), metrics)?;
    }
    if let Some(landing) = case["is_landing"].as_bool() {
        expect("landing page", text.contains("<h1>StatsD Exporter</h1>"), landing)?;
    }
    Ok(())
}

#[test]
fn http_exchanges() {
    let cases = of_kind("http");
    // One exporter for each set of flags and lines, shared by its cases, except where a case ends it.
    let ends = |case: &Value| case["exit_code"].is_i64();
    let mut groups: Vec<(String, Vec<Value>)> = Vec::new();
    for case in &cases {
        let key = if ends(case) {
            case["name"].to_string()
        } else {
            format!("{} {}", case["args"], case["lines"])
        };
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(case.clone()),
            None => groups.push((key, vec![case.clone()])),
        }
    }
    let mapping = "mappings:\n- {match: a.*, name: n, labels: {ll: \"$1\"}}\n";
    let mut failures = Vec::new();
    for (_, group) in &groups {
        let first = &group[0];
        let lines = strings(&first["lines"]);
        let mut exporter =
            exporter(&strings(&first["args"]), (!lines.is_empty()).then_some(mapping));
        if !lines.is_empty() {
            exporter.send(&lines);
        }
        for case in group {
            let headers: Vec<(&str, &str)> = case["request_headers"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, value)| (name.as_str(), value.as_str().expect("header")))
                .collect();
            let (method, path) = (&case["method"], &case["path"]);
            let answer = request(
                exporter.web,
                method.as_str().expect("method"),
                path.as_str().expect("path"),
                &headers,
            );
            let checked = match answer {
                Ok(response) => check_answer(case, &response),
                Err(error) => Err(error.to_string()),
            };
            let ended = match case["exit_code"].as_i64() {
                Some(code) => {
                    expect("exit code", exporter.program.ended().code().map(i64::from), Some(code))
                }
                None => Ok(()),
            };
            if let Err(error) = checked.and(ended) {
                failures.push(format!("{}: {error}", case["name"]));
            }
        }
    }
    let all = cases.len();
    assert!(all >= 300, "only {all} cases");
    assert!(failures.is_empty(), "{} of {all} fail:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn reloads() {
    each(&of_kind("reload"), |case| {
        let exporter = exporter(&strings(&case["args"]), case["mapping"].as_str());
        exporter.send(&strings(&case["lines_before"]));
        let series = |key: &str| -> BTreeSet<String> { strings(&case[key]).into_iter().collect() };
        expect("series before", exporter.user_series(), series("series_before"))?;
        let file = exporter.dir.path().join("m.yml");
        match case["replacement"].as_str() {
            Some(text) => std::fs::write(&file, text).expect("write"),
            None => drop(std::fs::remove_file(&file)),
        }
        match case["trigger"].as_str().expect("trigger") {
            "SIGHUP" => {
                exporter.program.signal("HUP");
                let reloads = strings(&case["reload_counters"]);
                match reloads.first() {
                    Some(counter) => until("the reload is counted", || {
                        let text = get(exporter.web, "/metrics").text();
                        text.lines().any(|line| line == counter).then_some(())
                    }),
                    None => drop(exporter.program.line(&["no mapping config to reload"])),
                }
            }
            method => {
                let answer = request(exporter.web, method, "/-/reload", &[]).expect("answer");
                expect(
                    "status",
                    u64::from(answer.status),
                    case["status"].as_u64().expect("status"),
                )?;
                expect("body", answer.text().as_str(), case["body"].as_str().expect("body"))?;
            }
        }
        exporter.send(&strings(&case["lines_after"]));
        expect("series after", exporter.user_series(), series("series_after"))?;
        let text = get(exporter.web, "/metrics").text();
        let prefix = "statsd_exporter_config_reloads_total";
        let counted: Vec<String> = text
            .lines()
            .filter(|line| line.starts_with(prefix) && !line.ends_with(" 0"))
            .map(str::to_owned)
            .collect();
        expect("reload counters", counted, strings(&case["reload_counters"]))?;
        for line in strings(&case["loaded_mappings"]) {
            expect(&line, text.lines().any(|own| own == line), true)?;
        }
        Ok(())
    });
}

#[test]
fn signals() {
    each(&of_kind("signal"), |case| {
        let mut exporter = exporter(&[], None);
        let signal = case["signal"].as_str().expect("signal");
        exporter.program.signal(signal.trim_start_matches("SIG"));
        if case["exits"] != true {
            // It still answers, and ends as it should.
            expect("answer", get(exporter.web, "/-/healthy").status, 200)?;
            exporter.program.signal("TERM");
            return expect("exit code", exporter.program.ended().code(), Some(0));
        }
        let code = case["exit_code"].as_i64().and_then(|code| i32::try_from(code).ok());
        expect("exit code", exporter.program.ended().code(), code)
    });
}

#[test]
fn fsm_dumps() {
    each(&of_kind("fsm_dump"), |case| {
        let dir = tempfile::tempdir().expect("dir");
        let (mapping, dump) = (dir.path().join("m.yml"), dir.path().join("fsm.dot"));
        std::fs::write(&mapping, case["mapping"].as_str().expect("mapping")).expect("write");
        let output = run(
            NAME,
            [
                "--check-config".to_owned(),
                format!("--statsd.mapping-config={}", mapping.display()),
                format!("--debug.dump-fsm={}", dump.display()),
            ],
        );
        expect("exit code", output.status.code(), Some(0))?;
        let text = std::fs::read_to_string(&dump).map_err(|error| error.to_string())?;
        let lines: Vec<&str> = text.lines().collect();
        let first = strings(&case["first_lines"]);
        expect(
            "first lines",
            lines.iter().take(first.len()).map(|l| (*l).to_owned()).collect(),
            first,
        )?;
        let edges = lines.iter().filter(|line| line.contains(" -> ")).count();
        expect("edges", edges as u64, case["edge_count"].as_u64().expect("count"))?;
        expect("final newline", text.ends_with('\n'), case["ends_with_newline"] == true)
    });
}

#[test]
fn relays() {
    use std::io::Write;
    let cases = of_kind("relay");
    assert_eq!(cases.len(), 17);
    each(&cases, |case| {
        let target = UdpSocket::bind("127.0.0.1:0").expect("bind");
        target.set_read_timeout(Some(common::DEADLINE)).expect("timeout");
        let address = target.local_addr().expect("address").to_string();
        let mut flags = vec![format!("--statsd.relay.address={address}")];
        if let Some(length) = case["packet_length"].as_u64() {
            flags.push(format!("--statsd.relay.packet-length={length}"));
        }
        let exporter = exporter(&flags, None);
        for packet in strings(&case["packets"]) {
            if case["transport"] == "tcp" {
                let mut stream = std::net::TcpStream::connect(exporter.tcp).expect("connect");
                stream.write_all(packet.as_bytes()).expect("send");
            } else {
                let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
                socket.send_to(packet.as_bytes(), exporter.udp).expect("send");
            }
        }
        let expected = case["relayed_concatenated"].as_str().expect("text");
        let (mut text, mut sizes) = (Vec::new(), Vec::new());
        while text.len() < expected.len() {
            let mut datagram = [0; 65536];
            let size = target.recv(&mut datagram).map_err(|error| error.to_string())?;
            text.extend_from_slice(&datagram[..size]);
            sizes.push(serde_json::json!(size));
        }
        expect("relayed text", String::from_utf8_lossy(&text).as_ref(), expected)?;
        expect("sizes", &Value::from(sizes), &case["relayed_packet_sizes"])?;
        for line in strings(&case["metrics"]) {
            let line = line.replace("{target}", &address);
            until(&format!("{line} in {}", case["name"]), || {
                let text = get(exporter.web, "/metrics").text();
                text.lines().any(|own| own == line).then_some(())
            });
        }
        Ok(())
    });
}

/// Lines relayed, lines dropped by the relay, and its errors.
fn relay_ledger(exporter: &Exporter, target: &str) -> [u64; 3] {
    let text = get(exporter.web, "/metrics").text() + &get(exporter.web, "/kstatd/metrics").text();
    [
        "statsd_exporter_relay_lines_relayed_total",
        "kstatd_statsd_relay_dropped_lines_total",
        "kstatd_statsd_relay_errors_total",
    ]
    .map(|name| {
        let series = format!("{name}{{target=\"{target}\"}} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&series)).expect(name);
        value.parse::<f64>().expect("a number") as u64
    })
}

#[test]
fn a_relay_target_that_is_down_shows_and_loses_nothing_once_it_is_back() {
    let target = UdpSocket::bind("127.0.0.1:0").expect("bind");
    let address = target.local_addr().expect("address").to_string();
    drop(target);
    let exporter = exporter(&[format!("--statsd.relay.address={address}")], None);
    let lines: Vec<String> = (0..5_000).map(|number| format!("down.{number}:1|c")).collect();
    exporter.send(&lines);
    until("every line is accounted for", || {
        let [relayed, dropped, _] = relay_ledger(&exporter, &address);
        (relayed + dropped == 5_000).then_some(())
    });
    let [relayed, dropped, errors] = relay_ledger(&exporter, &address);
    assert_eq!((relayed, dropped), (0, 5_000));
    assert!(errors > 10, "{errors} errors");
    let log = exporter.program.line(&["relaying failed"]);
    assert!(log.contains("WARN"), "{log}");

    let target = UdpSocket::bind(&address).expect("bind again");
    target.set_read_timeout(Some(common::DEADLINE)).expect("timeout");
    let lines: Vec<String> = (0..50).map(|number| format!("up.{number}:1|c")).collect();
    exporter.send(&lines);
    let mut received = String::new();
    while received.matches('\n').count() < 50 {
        let mut datagram = [0; 65_536];
        let size = target.recv(&mut datagram).expect("a datagram");
        received.push_str(std::str::from_utf8(&datagram[..size]).expect("text"));
    }
    let expected: String = lines.iter().map(|line| format!("{line}\n")).collect();
    assert_eq!(received, expected, "nothing is lost to the failures before");
    until("they are counted", || {
        (relay_ledger(&exporter, &address)[..2] == [50, 5_000]).then_some(())
    });
}

#[test]
fn the_reload_that_was_asked_for_last_wins() {
    use std::io::Write;
    use std::sync::mpsc::channel;
    let mapping = |name: &str| format!("mappings:\n- {{match: \"a.*\", name: {name}}}\n");
    let exporter = exporter(&["--web.enable-lifecycle".to_owned()], Some(&mapping("first")));
    let (file, new) = (exporter.dir.path().join("m.yml"), exporter.dir.path().join("new.yml"));
    std::fs::write(&new, mapping("new")).expect("write");
    std::fs::remove_file(&file).expect("remove");
    let made = std::process::Command::new("mkfifo").arg(&file).status().expect("mkfifo");
    assert!(made.success());
    let web = exporter.web;
    let reload = move || request(web, "POST", "/-/reload", &[]).expect("answer").status;
    std::thread::scope(|scope| {
        let earlier = scope.spawn(reload);
        // Opens once somebody reads: the earlier reload is under way, with the old content.
        let mut pipe = std::fs::OpenOptions::new().write(true).open(&file).expect("open");
        std::fs::rename(&new, &file).expect("rename");
        let (answered, answer) = channel();
        let later = scope.spawn(move || {
            let _ = answered.send(reload());
        });
        // Where reloads do not take turns, the later one is done before the earlier one.
        let _ = answer.recv_timeout(std::time::Duration::from_secs(2));
        pipe.write_all(mapping("old").as_bytes()).expect("write");
        drop(pipe);
        assert_eq!(earlier.join().expect("earlier"), 200);
        later.join().expect("later");
    });
    exporter.send(&["a.b:1|c".to_owned()]);
    assert_eq!(Vec::from_iter(exporter.user_series()), ["new 1"]);
}

#[test]
fn a_failed_reload_is_an_error_in_the_log() {
    let exporter = exporter(&["--web.enable-lifecycle".to_owned()], Some("mappings: []\n"));
    std::fs::write(exporter.dir.path().join("m.yml"), "mappings: x\n").expect("write");
    request(exporter.web, "POST", "/-/reload", &[]).expect("answer");
    let line = exporter.program.line(&["Error reloading config"]);
    assert!(line.contains("level=ERROR") && line.contains("line 1, column 11"), "{line}");
}

#[test]
fn check_config_names_every_problem_in_the_order_of_the_file() {
    let file = tempfile::NamedTempFile::new().expect("file");
    std::fs::write(
        file.path(),
        "mappings:\n- {match: 'a.(', name: x}\n- {match: b, name: x, foo: 1}\n\
         - {match: c, name: 'a b'}\n- {match: d, name: x, ttl: y}\n",
    )
    .expect("write");
    let mapping = format!("--statsd.mapping-config={}", file.path().display());
    let output = run(NAME, ["--check-config", &mapping]);
    assert_eq!(output.status.code(), Some(1));
    let line = output.stderr.lines().last().expect("a line");
    let places: Vec<usize> =
        (2..=5).map(|number| line.find(&format!("line {number}, column")).expect(line)).collect();
    assert!(places.is_sorted(), "{line}");
    assert_eq!(line.matches(", column ").count(), 4, "{line}");
}

#[test]
fn the_path_that_the_chart_probes_answers() {
    let exporter = exporter(&[], None);
    let answer = get(exporter.web, "/health");
    assert_eq!((answer.status, answer.text().as_str()), (200, "Statsd Exporter is Healthy.\n"));
}

#[test]
fn profiles() {
    let exporter = exporter(&[], None);
    for (path, kind) in [
        ("/debug/pprof/heap", "application/octet-stream"),
        ("/debug/pprof/heap", "application/octet-stream"),
        ("/debug/pprof/profile?seconds=1", "application/octet-stream"),
        ("/debug/pprof/flamegraph?seconds=1", "image/svg+xml"),
    ] {
        let answer = get(exporter.web, path);
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(kind)), "{path}");
        if kind == "application/octet-stream" {
            // pprof files are gzip.
            assert!(answer.body.starts_with(&[0x1f, 0x8b]), "{path}");
        }
    }
    let wrong = get(exporter.web, "/debug/pprof/profile?seconds=x");
    assert_eq!(wrong.status, 400);
    assert!(wrong.text().contains("seconds=\"x\""), "{}", wrong.text());
}

#[test]
fn every_listener_feeds_the_same_series() {
    use std::os::unix::net::UnixDatagram;
    let dir = tempfile::tempdir().expect("dir");
    let socket = dir.path().join("s.sock");
    let flags = [
        format!("--statsd.listen-unixgram={}", socket.display()),
        "--statsd.unixsocket-mode=777".to_owned(),
    ];
    let exporter = exporter(&flags, None);
    exporter.send(&["a:1|c".to_owned()]);
    let udp = UdpSocket::bind("127.0.0.1:0").expect("bind");
    udp.send_to(b"a:1|c", exporter.udp).expect("send");
    let unix = UnixDatagram::unbound().expect("socket");
    unix.send_to(b"a:1|c", &socket).expect("send");
    until("three increments", || (exporter.own("a ") == Some(3.0)).then_some(()));
}
