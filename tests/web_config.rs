//! `--tls-config` compared with recordings of kube-state-metrics: every case runs the program with its files, and a
//! client observes the same as the original's clients.

#[path = "web_config/client.rs"]
mod client;
mod common;
#[path = "web_config/pki.rs"]
mod pki;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Map, Value, json};

use client::{ConnectOutcome, Connection, Unsupported};
use common::Program;
use pki::Pki;

/// Concurrent cases.
const CONCURRENCY: usize = 4;

/// Cases that wait; unit tests of the rate limit cover them with simulated time.
const TIMED_CASES: [&str; 1] = ["rate limit refills"];

/// Probes that the original accepts and rustls deliberately refuses, as (case, probes).
const REFUSED_ON_PURPOSE: [(&str, usize); 6] = [
    ("min_version TLS11, max_version unset", 1),
    ("cipher suites by default, RSA key", 1),
    ("a CBC suite, http2 false", 1),
    ("HTTP/2 over a CBC suite", 2),
    ("curves by default", 2),
    ("two curves, order of the file", 3),
];

/// Starts an API server without objects.
fn api_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().expect("stream"));
                let mut line = String::new();
                let mut path = String::new();
                while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
                    if path.is_empty() {
                        path = line.split(' ').nth(1).unwrap_or_default().to_owned();
                    }
                    if line == "\r\n" {
                        let (status, body) = match path.split('?').next().unwrap_or_default() {
                            "/version" => ("200 OK", r#"{"gitVersion":"v1.34.0"}"#),
                            "/livez" => ("200 OK", "ok"),
                            _ => ("403 Forbidden", "{}"),
                        };
                        let length = body.len();
                        let answer =
                            format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}");
                        if (&stream).write_all(answer.as_bytes()).is_err() {
                            return;
                        }
                        path.clear();
                    }
                    line.clear();
                }
            });
        }
    });
    address
}

/// A running case.
struct Run<'c> {
    case: &'c Value,
    pki: &'c Pki,
    dir: tempfile::TempDir,
    apiserver: SocketAddr,
    program: Option<(Program, SocketAddr, SocketAddr)>,
    connections: BTreeMap<String, Connection>,
    /// Probes that this client does not support.
    unable: usize,
}

impl Run<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Replaces the placeholders in the text of a file.
    fn filled(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (what, after) = after.split_once("}}").expect("the end of a placeholder");
            filled.push_str(before);
            if what == "dir" {
                filled.push_str(&self.dir.path().display().to_string());
            } else if let Some(name) = what.strip_prefix("json:") {
                filled.push_str(&Value::from(self.pki.text(name)).to_string());
            } else if let Some((count, name)) =
                what.strip_prefix("indent").and_then(|what| what.split_once(':'))
            {
                let blanks = " ".repeat(count.parse().expect("a number"));
                let text = self.pki.text(name);
                let lines: Vec<&str> = text.trim_end().lines().collect();
                filled.push_str(&lines.join(&format!("\n{blanks}")));
            } else {
                filled.push_str(&self.path(what).display().to_string());
            }
            rest = after;
        }
        filled + rest
    }

    /// Writes or replaces a file atomically.
    fn write(&self, name: &str, content: &Value) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("directory");
        let bytes = match content {
            Value::String(text) => self.filled(text).into_bytes(),
            other if other["directory"] == json!(true) => {
                return std::fs::create_dir(path).expect("directory");
            }
            other => {
                let name = other["pki"].as_str().expect("a file of the PKI");
                self.pki.get(name).unwrap_or_else(|| panic!("no {name}")).to_vec()
            }
        };
        let aside = self.path("aside");
        std::fs::write(&aside, bytes).expect("write");
        std::fs::rename(aside, path).expect("rename");
    }

    fn prepare(&self) {
        let open = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("mode");
        };
        open(self.dir.path(), 0o755);
        // Files that a text mentions without describing them.
        let files = self.case["files"].as_object().cloned().unwrap_or_default();
        let steps = self.case["steps"].as_array().expect("steps").iter();
        let texts = steps.filter_map(|step| step["content"].as_str());
        let texts: Vec<&str> = files.values().filter_map(Value::as_str).chain(texts).collect();
        for text in texts {
            for part in text.split("{{").skip(1) {
                let name = part.split("}}").next().expect("the end of a placeholder");
                if self.pki.get(name).is_some() {
                    self.write(name, &json!({ "pki": name }));
                }
            }
        }
        for (name, content) in &files {
            self.write(name, content);
        }
        for (name, mode) in self.case["modes"].as_object().into_iter().flatten() {
            let mode = u32::from_str_radix(mode.as_str().expect("text"), 8).expect("octal");
            open(&self.path(name), mode);
        }
    }

    fn start(&mut self, seen: &Value) -> Result<(), String> {
        self.prepare();
        let file = self.case["tls_config"].as_str().unwrap_or("{{dir}}/web.yml");
        let args = [
            format!("--apiserver=http://{}", self.apiserver),
            format!("--tls-config={}", self.filled(file)),
        ];
        let fixed = [
            "--resources=pods",
            "--host=127.0.0.1",
            "--telemetry-host=127.0.0.1",
            "--port=0",
            "--telemetry-port=0",
        ];
        let args = fixed.into_iter().map(str::to_owned).chain(args);
        let mut command = common::command("kube-state-metrics", args);
        command.stdin(Stdio::null());
        if self.case["non_root"] == json!(true)
            && std::fs::metadata("/proc/self").is_ok_and(is_root)
        {
            command.uid(65_534);
        }
        let mut program = Program::spawn(&mut command);
        let main = program.try_line(&["Started metrics server"]);
        let telemetry = main.and_then(|_| program.try_line(&["Started self metrics server"]));
        let running = telemetry.is_some();
        if running != (seen["running"] == json!(true)) {
            return Err(format!("running is {running}: {:#?}", program.log()));
        }
        if !running {
            let code = program.ended().code();
            let wanted = seen["exit_code"].as_i64().map(|code| code as i32);
            return if code == wanted { Ok(()) } else { Err(format!("exit code {code:?}")) };
        }
        let main = program.address(&["Started metrics server"], "address");
        let telemetry = program.address(&["Started self metrics server"], "address");
        self.program = Some((program, main, telemetry));
        Ok(())
    }

    async fn probe(&mut self, request: &Value, wanted: &Value) -> Result<(), String> {
        let (_, main, telemetry) = self.program.as_ref().expect("started");
        let address = if request["port"] == "telemetry" { *telemetry } else { *main };
        let name = request["connection"].as_str().map(str::to_owned);
        let kept = name.as_ref().and_then(|name| self.connections.remove(name));
        let reused = kept.is_some();
        let reached = match kept {
            Some(connection) => Ok(ConnectOutcome::Connection(Box::new(connection))),
            None => {
                client::connect(
                    address,
                    request,
                    self.pki,
                    wanted.get("cipher").is_some() || wanted.get("status").is_some(),
                )
                .await
            }
        };
        let (mut seen, statuses, connection) = match reached {
            Err(Unsupported) => {
                self.unable += 1;
                return Ok(());
            }
            Ok(ConnectOutcome::Failure(seen)) => (seen, Vec::new(), None),
            Ok(ConnectOutcome::Connection(mut connection)) => {
                let mut statuses = Vec::new();
                let mut seen = Map::new();
                for _ in 0..request["repeat"].as_u64().unwrap_or(1) {
                    seen = connection.send(request).await;
                    statuses.push(seen.get("status").cloned().unwrap_or_default());
                }
                (seen, statuses, Some(*connection))
            }
        };
        seen.insert("statuses".into(), json!(statuses));
        seen.insert("reused".into(), json!(reused));
        if let (Some(name), Some(connection)) = (name, connection) {
            self.connections.insert(name, connection);
        }
        let wanted = wanted.as_object().expect("seen");
        let differs = |(key, value): &(&String, &Value)| {
            let informative = ["log", "detail"].contains(&key.as_str());
            // A client that sees a failure sees nothing else.
            let unseen = wanted.contains_key("failure")
                && !seen.contains_key(key.as_str())
                && ["tls", "alpn", "server_cert", "cipher"].contains(&key.as_str());
            !informative && !unseen && seen.get(key.as_str()) != Some(value)
        };
        match wanted.iter().find(differs) {
            Some((key, value)) => {
                Err(format!("{request}: {key} is {:?}, not {value}: {seen:?}", seen.get(key)))
            }
            None => Ok(()),
        }
    }

    async fn step(&mut self, step: &Value) -> Result<(), String> {
        match step["do"].as_str().expect("what to do") {
            "start" => self.start(&step["seen"]),
            "probe" => self.probe(&step["request"], &step["seen"]).await,
            "write" => {
                self.write(step["file"].as_str().expect("file"), &step["content"]);
                Ok(())
            }
            "remove" => {
                let path = self.path(step["file"].as_str().expect("file"));
                std::fs::remove_file(path).map_err(|error| error.to_string())
            }
            "reload_signal" => {
                let (program, main, _) = self.program.as_ref().expect("started");
                program.signal("HUP");
                program.line(&["kubeconfig have not changed"]);
                let request = json!({});
                let main = *main;
                match client::connect(main, &request, self.pki, true).await {
                    Ok(ConnectOutcome::Connection(mut connection)) => {
                        let seen = connection.send(&request).await;
                        if seen["status"] == 200 { Ok(()) } else { Err(format!("{seen:?}")) }
                    }
                    _ => Err("gone after SIGHUP".to_owned()),
                }
            }
            other => Err(format!("cannot do {other}")),
        }
    }
}

fn is_root(metadata: std::fs::Metadata) -> bool {
    std::os::unix::fs::MetadataExt::uid(&metadata) == 0
}

/// Runs a case; returns the number of probes that this client does not support.
async fn run(case: &Value, pki: &Pki, apiserver: SocketAddr) -> Result<usize, String> {
    let dir = tempfile::tempdir().expect("directory");
    let (program, connections) = (None, BTreeMap::new());
    let mut run = Run { case, pki, dir, apiserver, program, connections, unable: 0 };
    for (number, step) in case["steps"].as_array().expect("steps").iter().enumerate() {
        run.step(step).await.map_err(|error| format!("step {number}: {error}"))?;
    }
    Ok(run.unable)
}

#[test]
fn all_recorded_cases() {
    let text = include_str!("conformance/ksm/web_config.json");
    let recorded: Value = serde_json::from_str(text).expect("JSON");
    let all = recorded["cases"].as_array().expect("cases");
    let about_time = |case: &&Value| TIMED_CASES.iter().any(|name| case["name"] == *name);
    let cases: Vec<&Value> = all.iter().filter(|case| !about_time(case)).collect();
    assert_eq!(cases.len() + TIMED_CASES.len(), all.len(), "no other case is left out");
    let (pki, apiserver) = (Pki::new(), api_server());
    let only = std::env::var("CASE").unwrap_or_default();
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let unable = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..CONCURRENCY {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let runtime = runtime.expect("runtime");
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let name = case["name"].as_str().expect("name");
                    if !name.contains(&only) {
                        continue;
                    }
                    match runtime.block_on(run(case, &pki, apiserver)) {
                        Ok(0) => {}
                        Ok(count) => drop(unable.lock().expect("lock").insert(name, count)),
                        Err(error) => {
                            failures.lock().expect("lock").push(format!("{name}: {error}"))
                        }
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("lock");
    let unable = unable.into_inner().expect("lock");
    let passed = cases.len() - failures.len();
    eprintln!(
        "{passed} of {} cases, {} of them without a probe of what rustls refuses; {} more are about time",
        cases.len(),
        unable.len(),
        TIMED_CASES.len()
    );
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    if only.is_empty() {
        assert_eq!(unable, BTreeMap::from(REFUSED_ON_PURPOSE), "what cannot be tried");
    }
}
