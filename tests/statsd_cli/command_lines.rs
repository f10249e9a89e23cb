//! Replays recorded command lines; each must exit or serve as in statsd_exporter.
//!
//! [`instead`] lists the outcomes of cases marked `quirk`, which record defects of statsd_exporter.

use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::NAME;
use crate::common::{Program, request, run, until};
use crate::recorded::{data, each, expect, of_kind, strings};

/// The outcome of a command line that crashes statsd_exporter.
enum Instead {
    /// A usage error with this text.
    Refused(&'static str),
    /// The program starts.
    Runs,
    /// The program runs and exits.
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

/// Returns a part of the message for each class of error. The texts are ours.
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

/// The environment of a case beside its arguments.
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
        // Some cases hide this line with a log level; those answer over HTTP or wait for a signal.
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
    // These bind default ports, which another test may use.
    let defaults = ["flag/double-dash-empty"];
    cases.retain(|case| !case["name"].as_str().is_some_and(|name| defaults.contains(&name)));
    // docs/compatibility.md: statsd_exporter does not have this flag.
    let added = ["flag/web-config-file"];
    cases.retain(|case| !case["name"].as_str().is_some_and(|name| added.contains(&name)));
    let quiet = |case: &Value| {
        // Without the line about listening there is nothing to wait for.
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
