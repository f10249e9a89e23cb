//! Replays the recorded command lines and HTTP exchanges of statsd_exporter.

#[path = "statsd_cli/command_lines.rs"]
mod command_lines;
mod common;
#[path = "statsd_cli/exporter.rs"]
mod exporter;
#[path = "statsd_cli/recorded.rs"]
mod recorded;

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};

use common::{Program, Response, get, request, until};
use exporter::{Exporter, exporter};
use recorded::{each, expect, of_kind, strings};
use serde_json::Value;

const NAME: &str = "statsd_exporter";

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
    // Cases with the same flags and lines share an exporter, unless a case ends it.
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
            // It still answers, and exits normally.
            expect("answer", get(exporter.web, "/-/healthy").status, 200)?;
            exporter.program.signal("TERM");
            return expect("exit code", exporter.program.ended().code(), Some(0));
        }
        let code = case["exit_code"].as_i64().and_then(|code| i32::try_from(code).ok());
        expect("exit code", exporter.program.ended().code(), code)
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

/// Returns the lines relayed, the lines dropped by the relay, and the relay errors.
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

/// Returns the UDP socket of this machine that is connected to a port.
fn sender_to(port: u16) -> SocketAddr {
    let table = std::fs::read_to_string("/proc/net/udp").expect("sockets");
    let end = format!(":{port:04X}");
    let local = table.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, remote) = (fields.next()?, fields.next()?);
        remote.ends_with(&end).then(|| local.rsplit_once(':')).flatten()
    });
    let (_, local) = local.expect("a socket that is connected to it");
    SocketAddr::from(([127, 0, 0, 1], u16::from_str_radix(local, 16).expect("a port")))
}

#[test]
fn an_unreachable_relay_target_is_reported_and_loses_nothing_after_recovery() {
    let target = UdpSocket::bind("127.0.0.1:0").expect("bind");
    // A connected socket accepts one peer only, so other senders are refused while the port stays taken.
    target.connect("127.0.0.1:9").expect("connect");
    let address = target.local_addr().expect("address");
    let port = address.port();
    let address = address.to_string();
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
    let log = exporter.program.line(&["Relaying failed"]);
    assert!(log.contains("WARN"), "{log}");

    target.connect(sender_to(port)).expect("connect");
    target.set_read_timeout(Some(common::DEADLINE)).expect("timeout");
    let lines: Vec<String> = (0..50).map(|number| format!("up.{number}:1|c")).collect();
    exporter.send(&lines);
    let mut received = String::new();
    while received.matches('\n').count() < 50 {
        let mut datagram = [0; 65_536];
        let size = match target.recv(&mut datagram) {
            // With a read timeout, a signal for the process ends the call.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            result => result.expect("a datagram"),
        };
        received.push_str(std::str::from_utf8(&datagram[..size]).expect("text"));
    }
    let expected: String = lines.iter().map(|line| format!("{line}\n")).collect();
    assert_eq!(received, expected, "nothing is lost to the failures before");
    until("they are counted", || {
        (relay_ledger(&exporter, &address)[..2] == [50, 5_000]).then_some(())
    });
}

#[test]
fn the_last_requested_reload_wins() {
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
        // Opening the FIFO blocks until there is a reader: the earlier reload is running, with the old
        // content.
        let mut pipe = std::fs::OpenOptions::new().write(true).open(&file).expect("open");
        std::fs::rename(&new, &file).expect("rename");
        let (answered, answer) = channel();
        let later = scope.spawn(move || {
            let _ = answered.send(reload());
        });
        // Without serialization the later reload would finish before the earlier one.
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
            // pprof files are compressed with gzip.
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

#[test]
fn kstatd_run_has_lifecycle_paths_if_enabled() {
    let dir = tempfile::tempdir().expect("directory");
    let file = dir.path().join("mapping.yml");
    std::fs::write(&file, "mappings: [{match: 'a.*', name: first}]\n").expect("write");
    let mapping = format!("--statsd.mapping-config={}", file.display());
    let fixed = ["run", "--listen=127.0.0.1:0", "--telemetry-listen=127.0.0.1:0"];
    let statsd = ["--statsd.listen-udp=127.0.0.1:0", "--statsd.listen-tcp=", &mapping];
    for enabled in [false, true] {
        let flag: &[&str] = if enabled { &["--web.enable-lifecycle"] } else { &[] };
        let mut program = Program::start("kstatd", [&fixed, &statsd[..], flag].concat());
        let main = program.address(&["Started metrics server"], "address");
        let post = |path: &str| request(main, "POST", path, &[]).expect("an answer").status;
        if !enabled {
            assert_eq!((post("/-/reload"), post("/-/quit")), (404, 404));
            continue;
        }
        std::fs::write(&file, "mappings: [{match: 'a.*', name: second}]\n").expect("write");
        assert_eq!(post("/-/reload"), 200);
        program.line(&["Config reloaded successfully"]);
        assert_eq!(post("/-/quit"), 200);
        assert_eq!(program.ended().code(), Some(0));
    }
}
