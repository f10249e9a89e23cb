//! `--auth-filter` compared with recordings of kube-state-metrics with a real API server. Every case runs the
//! program; a replayed API server checks the requests and answers as recorded.

#[path = "web_config/client.rs"]
#[allow(dead_code, reason = "the other test uses the rest")]
mod client;
mod common;
#[path = "web_config/pki.rs"]
#[allow(dead_code, reason = "the other test uses the rest")]
mod pki;

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use serde_json::{Map, Value, json};

use client::ConnectOutcome;
use common::{DEADLINE, Program};
use pki::Pki;

const CONCURRENCY: usize = 8;

/// Cases that depend on minutes; unit tests of the filter cover them with simulated time.
const TIMED_CASES: [&str; 4] = [
    "right granted: time until it is noticed",
    "right revoked: time until it is noticed",
    "garbage token is asked for every time",
    "token review is repeated after a minute",
];

/// Deliberate improvements: a limit of 10 s for a review, and failures are not shared between callers.
const IMPROVED_CASES: [(&str, usize, u16); 4] = [
    ("API server silent to tokenreviews", 2, 500),
    ("API server silent to subjectaccessreviews", 2, 500),
    ("API server answers 429 with Retry-After 1 to subjectaccessreviews", 2, 500),
    ("caller gives up while the API server is silent", 4, 200),
];

/// Marks a missing response.
const NO_RESPONSE: u16 = 0;

/// The hash of the password `pw`.
const HASH: &str = "$2a$04$abcdefghijklmnopqrstuuyvPXIbu7xe6/CED2DzX8z6Si09MlzlW";

/// The expected and the received requests of the API server.
#[derive(Default)]
struct Script {
    expected: VecDeque<Value>,
    wrong: Vec<String>,
    down: bool,
    /// Default answers: the user of each token, and the permissions of each account.
    known: BTreeMap<String, Value>,
}

struct ApiServer {
    address: SocketAddr,
    script: Arc<Mutex<Script>>,
}

impl ApiServer {
    fn start(known: BTreeMap<String, Value>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("address");
        let script = Arc::new(Mutex::new(Script { known, ..Script::default() }));
        let shared = Arc::clone(&script);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let script = Arc::clone(&shared);
                std::thread::spawn(move || serve(&stream, &script));
            }
        });
        Self { address, script }
    }
}

/// Answers requests of one connection; `None` when it ends.
fn serve(stream: &TcpStream, script: &Mutex<Script>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut first, mut length) = (String::new(), 0);
        reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
            if line == "\r\n" {
                break;
            }
            let (name, value) = line.split_once(':')?;
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let mut words = first.split(' ');
        let (method, path) = (words.next()?, words.next()?);
        let mut script = script.lock().expect("script");
        if script.down {
            return None;
        }
        let answer = match path {
            "/version" => (200, r#"{"gitVersion":"v1.34.0"}"#.to_owned()),
            "/livez" => (200, "ok".to_owned()),
            path if path.contains("reviews") => review(&mut script, method, path, &body)?,
            _ => (403, "{}".to_owned()),
        };
        drop(script);
        let (status, text) = answer;
        if status == NO_RESPONSE {
            // Hangs until the caller disconnects.
            return std::io::copy(&mut reader, &mut std::io::sink()).ok().map(drop);
        }
        let retry = if status == 429 { "Retry-After: 1\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {status} Recorded\r\nContent-Type: application/json\r\n{retry}Content-Length: {}\r\n\r\n",
            text.len()
        );
        let mut stream = stream;
        stream.write_all(format!("{head}{text}").as_bytes()).ok()?;
    }
}

/// Replays a review; `None` if the connection ends.
fn review(script: &mut Script, method: &str, path: &str, body: &[u8]) -> Option<(u16, String)> {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let Some(wanted) = script.expected.pop_front() else {
        // Not recorded: the default answer.
        let known = script.known.get(&key(&body)).cloned();
        let Some(status) = known else {
            script.wrong.push(format!("{method} {path} {body} was not asked by the original"));
            return None;
        };
        return Some((201, with_status(&body, &status)));
    };
    // A repeated request is recorded without its body.
    let same = wanted["method"] == method
        && wanted["path"] == path
        && (wanted.get("body").is_none() || wanted["body"] == body);
    if !same {
        script.wrong.push(format!("asked {method} {path} {body}, not {wanted}"));
    }
    if wanted["answer"] == "connection closed" {
        return None;
    }
    // Without a status there was no response.
    let Some(status) = wanted["answer_status"].as_u64() else {
        return Some((NO_RESPONSE, String::new()));
    };
    let text = match (wanted.get("answer"), wanted["answer_text"].as_str()) {
        (_, Some(text)) => text.to_owned(),
        (Some(answer), None) => with_status(&body, answer),
        (None, None) => {
            json!({"kind": "Status", "apiVersion": "v1", "message": "made up"}).to_string()
        }
    };
    Some((u16::try_from(status).expect("a status"), text))
}

fn with_status(review: &Value, status: &Value) -> String {
    let mut answer = review.clone();
    answer["status"] = status.clone();
    answer.to_string()
}

/// Returns the subject of a review.
fn key(body: &Value) -> String {
    let spec = &body["spec"];
    match spec["token"].as_str() {
        Some(token) => format!("token {token}"),
        None => format!("{} {}", spec["user"], spec["nonResourceAttributes"]),
    }
}

/// Returns the answers of all cases in which the API server works.
fn known(cases: &[Value]) -> BTreeMap<String, Value> {
    let mut known = BTreeMap::new();
    let well = |case: &&Value| ["rights", "identity"].iter().any(|topic| case["topic"] == *topic);
    for case in cases.iter().filter(well) {
        for step in case["steps"].as_array().expect("steps") {
            for request in step["seen"]["requests"].as_array().into_iter().flatten() {
                if let (Some(body), Some(answer)) = (request.get("body"), request.get("answer")) {
                    known.insert(key(&filled(body)), answer.clone());
                }
            }
        }
    }
    known
}

/// Replaces the placeholders in a value.
fn filled(value: &Value) -> Value {
    match value {
        Value::String(text) => fill(text).into(),
        Value::Array(items) => items.iter().map(filled).collect(),
        Value::Object(entries) => {
            entries.iter().map(|(key, value)| (key.clone(), filled(value))).collect()
        }
        other => other.clone(),
    }
}

fn fill(text: &str) -> String {
    let mut done = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let (what, after) = after.split_once("}}").expect("the end of a placeholder");
        done.push_str(before);
        match what.split_once(':') {
            Some(("token", name)) => done.push_str(&format!("token.{name}")),
            Some(("token64", name)) => done.push_str(
                &base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(format!("token.{name}")),
            ),
            Some(("bcrypt", "pw")) => done.push_str(HASH),
            _ if what == "long" => done.push_str(&"x".repeat(20_000)),
            _ if what == "random" => done.push_str("random"),
            _ => done.push_str(&format!("{{{{{what}}}}}")),
        }
        rest = after;
    }
    done + rest
}

struct Run<'c> {
    pki: &'c Pki,
    api: ApiServer,
    program: Program,
    main: SocketAddr,
    telemetry: SocketAddr,
    _dir: tempfile::TempDir,
}

impl<'c> Run<'c> {
    fn start(case: &Value, pki: &'c Pki, known: BTreeMap<String, Value>) -> Self {
        let dir = tempfile::tempdir().expect("directory");
        let api = ApiServer::start(known);
        let mut args = vec![
            "--auth-filter".to_owned(),
            "--resources=pods".to_owned(),
            "--host=127.0.0.1".to_owned(),
            "--telemetry-host=127.0.0.1".to_owned(),
            "--port=0".to_owned(),
            "--telemetry-port=0".to_owned(),
            format!("--apiserver=http://{}", api.address),
        ];
        if let Some(web) = case["web"].as_str() {
            let mut text = fill(web);
            for (name, file) in [
                ("server.crt", "server.crt"),
                ("server.key", "server.key"),
                ("kapi-ca.crt", "ca.crt"),
            ] {
                let path = dir.path().join(name);
                std::fs::write(&path, pki.text(file)).expect("write");
                text = text.replace(&format!("{{{{{name}}}}}"), &path.display().to_string());
            }
            let path = dir.path().join("web.yml");
            std::fs::write(&path, text).expect("write");
            args.push(format!("--tls-config={}", path.display()));
        }
        let program =
            Program::spawn(common::command("kube-state-metrics", args).stdin(Stdio::null()));
        let main = program.address(&["Started metrics server"], "address");
        let telemetry = program.address(&["Started self metrics server"], "address");
        Self { pki, api, program, main, telemetry, _dir: dir }
    }

    async fn probe(&self, step: &Value, better: Option<u16>) -> Result<(), String> {
        let (mut request, wanted) = (filled(&step["request"]), filled(&step["seen"]));
        let entries = request.as_object_mut().expect("request");
        entries.entry("scheme").or_insert_with(|| json!("http"));
        if request["client_cert"] == "kapi-admin" {
            request["client_cert"] = json!("client");
        }
        {
            let mut script = self.api.script.lock().expect("script");
            let requests = wanted["requests"].as_array().cloned().unwrap_or_default();
            let reviews = requests.into_iter().filter(|request| request["path"] != "/livez");
            script.expected = reviews.collect();
        }
        let address = if request["port"] == "telemetry" { self.telemetry } else { self.main };
        let limit = request["client_timeout_s"].as_f64().map_or(DEADLINE, Duration::from_secs_f64);
        let talk = async {
            match client::connect(address, &request, self.pki, true).await {
                Ok(ConnectOutcome::Connection(mut connection)) => connection.send(&request).await,
                Ok(ConnectOutcome::Failure(seen)) => seen,
                Err(unable) => panic!("{unable:?}"),
            }
        };
        let timed_out = || {
            Map::from_iter([
                ("failure".to_owned(), json!("timeout")),
                ("at".to_owned(), json!("request")),
            ])
        };
        let seen = tokio::time::timeout(limit, talk).await.unwrap_or_else(|_| timed_out());
        let script = self.api.script.lock().expect("script");
        if !script.wrong.is_empty() {
            return Err(script.wrong.join("; "));
        }
        if let Some(status) = better {
            return if seen.get("status") == Some(&json!(status)) {
                Ok(())
            } else {
                Err(format!("{request}: not {status}: {seen:?}"))
            };
        }
        if !script.expected.is_empty() {
            return Err(format!("not asked: {:?}", script.expected));
        }
        let informative = ["log", "requests", "after_ms", "detail", "tls", "alpn", "server_cert"];
        let differs = |(key, value): &(&String, &Value)| {
            !informative.contains(&key.as_str()) && seen.get(key.as_str()) != Some(value)
        };
        match wanted.as_object().expect("seen").iter().find(differs) {
            Some((key, value)) => Err(format!("{request}: {key} is not {value}: {seen:?}")),
            None => Ok(()),
        }
    }
}

async fn run(case: &Value, pki: &Pki, known: BTreeMap<String, Value>) -> Result<(), String> {
    let name = case["name"].as_str().expect("name");
    let run = Run::start(case, pki, known);
    for (number, step) in case["steps"].as_array().expect("steps").iter().enumerate() {
        let better = IMPROVED_CASES.iter().find(|(case, at, _)| *case == name && *at == number);
        match step["do"].as_str().expect("what to do") {
            "start" => {}
            "api" => {
                let mut script = run.api.script.lock().expect("script");
                script.down = step["mode"] == "down";
            }
            "probe" => run
                .probe(step, better.map(|(_, _, status)| *status))
                .await
                .map_err(|error| format!("step {number}: {error}\n{:#?}", run.program.log()))?,
            other => return Err(format!("cannot do {other}")),
        }
    }
    Ok(())
}

/// Decisions of one API server are not used for another, although they would be cached for minutes.
#[test]
fn decisions_are_not_reused_for_another_api_server() {
    let user = json!({"username": "me", "groups": ["system:authenticated"]});
    let seen = json!({"user": "me", "groups": ["system:authenticated"]});
    let attributes = json!({"path": "/metrics", "verb": "get"});
    let access = format!("{} {attributes}", seen["user"]);
    let server = |allowed: bool| {
        ApiServer::start(BTreeMap::from([
            ("token mine".to_owned(), json!({"authenticated": true, "user": user})),
            (access.clone(), json!({"allowed": allowed})),
        ]))
    };
    let (one, other) = (server(true), server(false));
    let dir = tempfile::tempdir().expect("directory");
    let file = dir.path().join("options.yaml");
    let options = |server: &ApiServer| format!("apiserver: http://{}\n", server.address);
    std::fs::write(&file, options(&one)).expect("write");
    let config = format!("--config={}", file.display());
    let args = [
        "--auth-filter",
        "--resources=pods",
        "--host=127.0.0.1",
        "--telemetry-host=127.0.0.1",
        "--port=0",
        "--telemetry-port=0",
        &config,
    ];
    let program = Program::start("kube-state-metrics", args);
    let addresses = ["Started metrics server", "Started self metrics server"]
        .map(|line| program.address(&[line], "address"));
    let status = |address: SocketAddr| {
        let mine = [("Authorization", "Bearer mine")];
        common::request(address, "GET", "/metrics", &mine).expect("an answer").status
    };
    assert_eq!(addresses.map(status), [200; 2], "{:?}", program.log());
    common::replace(&file, &options(&other));
    common::until("the other one is asked", || (addresses.map(status) == [403; 2]).then_some(()));
    common::replace(&file, &options(&one));
    common::until("and the first again", || (addresses.map(status) == [200; 2]).then_some(()));
}

#[test]
fn all_recorded_cases() {
    let text = include_str!("conformance/ksm/auth_filter.json");
    let recorded: Value = serde_json::from_str(text).expect("JSON");
    let all = recorded["cases"].as_array().expect("cases");
    let only = std::env::var("CASE").unwrap_or_default();
    let (pki, known) = (Pki::new(), known(all));
    let cases: Vec<&Value> = all
        .iter()
        .filter(|case| {
            let name = case["name"].as_str().expect("name");
            !TIMED_CASES.contains(&name) && name.contains(&only)
        })
        .collect();
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..CONCURRENCY {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let runtime = runtime.expect("runtime");
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = runtime.block_on(run(case, &pki, known.clone())) {
                        let name = case["name"].as_str().expect("name");
                        failures.lock().expect("lock").push(format!("{name}: {error}"));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("lock");
    let passed = cases.len() - failures.len();
    eprintln!("{passed} of {} cases, {} more are about time", cases.len(), TIMED_CASES.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(
        !only.is_empty() || cases.len() + TIMED_CASES.len() == all.len(),
        "no case is left out"
    );
}
