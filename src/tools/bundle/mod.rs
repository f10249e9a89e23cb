//! `kstatd bundle`: a support archive of a running process.
//!
//! All parts are requested at the same time. A part that cannot be read does not hinder the others; its error is in the
//! archive. The process removes secrets from its log and configuration, and this command from every text again.

mod names;
mod tar;

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::names::Names;
use super::check::pods::{Pod, path};
use super::process_client::{ProcessClient, refusal};
use crate::kube::Client;
use crate::server::cardinality::{CARDINALITY_PATH, KSTATD_PREFIX};
use crate::server::status::{PATH, PREFIXED_PATH};
use crate::server::support::{CONFIGURATION_PATH, LOG_PATH};
use crate::telemetry::{REVISION, VERSION};
use crate::tools::{CommandError, Result};
use crate::util::percent::{self, UNRESERVED};
use crate::util::redaction;

/// The timeout of a part.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The timeout of a profile, which takes 5 s on an idle host.
const PROFILE_TIMEOUT: Duration = Duration::from_secs(30);

/// The process to describe.
pub(crate) struct Subject {
    /// Its main listener.
    pub(crate) main: ProcessClient,
    /// Its listener for own metrics and profiles; that of another process is detected.
    pub(crate) telemetry: ProcessClient,
    /// The pod, if the API server is asked, with a client for its description and log.
    pub(crate) pod: Option<ProcessClient>,
    /// The name of its container; empty for the only one.
    pub(crate) container: String,
}

impl Subject {
    /// Describes a pod.
    pub(crate) fn of_pod(client: &Client, pod: &Pod) -> Self {
        let below = |base: String| ProcessClient::of_pod(client, pod, base);
        Self {
            main: below(pod.proxy_path(pod.port)),
            telemetry: below(pod.proxy_path(pod.telemetry_port)),
            pod: Some(below(path(&pod.namespace, &pod.name))),
            container: pod.container.clone(),
        }
    }
}

/// A part of the archive, without secrets.
pub(crate) struct Part {
    name: &'static str,
    content: Result<Content>,
}

/// Requests a part from the first of some targets that the process has.
async fn read_part(
    name: &'static str,
    process: Arc<ProcessClient>,
    targets: Vec<String>,
    timeout: Duration,
) -> Part {
    let mut content = Err(CommandError::from(""));
    for target in &targets {
        content = match process.get_within(target, "*/*", timeout).await {
            Ok((200, body)) => Ok(body),
            // The failed checks are in the body.
            Ok((503, body)) if name == "readyz.txt" => Ok(body),
            Ok((status, body)) => Err(refusal(status, &String::from_utf8_lossy(&body)).into()),
            Err(error) => Err(error),
        };
        // The others are for processes that do not have this one.
        if !content.as_ref().is_err_and(|error| error.to_string().starts_with("404")) {
            break;
        }
    }
    let content = content.map(|bytes| Content::new(name, bytes));
    Part {
        name,
        content: content.map_err(|error| format!("{}: {error}", process.address()).into()),
    }
}

/// Reads all parts.
pub(crate) async fn collect(subject: Subject) -> Vec<Part> {
    let (main, telemetry) = (Arc::new(subject.main), Arc::new(subject.telemetry));
    let (identity, other) = tokio::join!(identity(&main), identity(&telemetry));
    // statsd_exporter has one listener, and port 8081 may be that of any process.
    let is_named = |name| identity.as_ref().is_some_and(|process: &Value| process["name"] == name);
    let is_single = is_named("statsd_exporter");
    let is_same = identity.is_none() || other.is_none() || identity == other;
    let telemetry = if is_single { Arc::clone(&main) } else { telemetry };
    let is_foreign = !is_single && !is_same;
    let (mut tasks, mut parts) = (JoinSet::new(), Vec::new());
    let mut read = |name, process: &Arc<ProcessClient>, targets: &[String], timeout| {
        if is_foreign && Arc::ptr_eq(process, &telemetry) {
            let error = format!("{}: another process, see --telemetry-addr", process.address());
            return parts.push(Part { name, content: Err(error.into()) });
        }
        tasks.spawn(read_part(name, Arc::clone(process), targets.to_vec(), timeout));
    };
    let both = |query: &str| [PREFIXED_PATH, PATH].map(|path| format!("{path}?{query}"));
    read("status.txt", &main, &both("format=text"), TIMEOUT);
    read("status.json", &main, &both("format=json"), TIMEOUT);
    let paths = ["/readyz?verbose", "/-/ready"].map(str::to_owned);
    read("readyz.txt", &telemetry, &paths, TIMEOUT);
    let cardinality =
        ["", KSTATD_PREFIX].map(|prefix| format!("{prefix}{CARDINALITY_PATH}?limit=50"));
    if !is_named("kstatd node") {
        read("cardinality.json", &main, &cardinality, TIMEOUT);
    }
    let mut metrics = vec!["/kstatd/metrics".to_owned()];
    // Those of a main listener are the cluster's.
    metrics.extend((!Arc::ptr_eq(&main, &telemetry)).then(|| "/metrics".to_owned()));
    read("metrics.txt", &telemetry, &metrics, TIMEOUT);
    read("configuration.json", &telemetry, &[CONFIGURATION_PATH.to_owned()], TIMEOUT);
    read("log.txt", &telemetry, &[LOG_PATH.to_owned()], TIMEOUT);
    read("threads.txt", &telemetry, &["/debug/pprof/threads".to_owned()], TIMEOUT);
    let cpu = "/debug/pprof/profile?seconds=5".to_owned();
    read("cpu.pb.gz", &telemetry, &[cpu], PROFILE_TIMEOUT);
    read("heap.pb.gz", &telemetry, &["/debug/pprof/heap".to_owned()], PROFILE_TIMEOUT);
    if let Some(pod) = subject.pod.map(Arc::new) {
        read("pod.json", &pod, &[String::new()], TIMEOUT);
        let container = percent::encode(&subject.container, UNRESERVED);
        let log = format!("/log?container={container}&tailLines=5000");
        read("pod-log-previous.txt", &pod, &[format!("{log}&previous=true")], TIMEOUT);
        read("pod-log.txt", &pod, &[log], TIMEOUT);
    }
    while let Some(read) = tasks.join_next().await {
        parts.extend(read);
    }
    // Most pods have had no other container.
    parts.retain(|part| part.name != "pod-log-previous.txt" || part.content.is_ok());
    parts.sort_unstable_by_key(|part| part.name);
    parts
}

/// Returns name and start of the process at a listener.
async fn identity(process: &ProcessClient) -> Option<Value> {
    let status: Value = process.status().await.ok()?;
    let program = &status["program"];
    Some(json!({"name": program["name"], "started": program["started"]}))
}

/// A complete archive.
pub(crate) struct Bundle {
    /// The archive.
    pub(crate) bytes: Vec<u8>,
    /// The list of its parts, as in the archive.
    pub(crate) list: Value,
    /// True if every part could be read.
    pub(crate) is_complete: bool,
}

impl Bundle {
    /// Packs the parts into a folder. Removes secrets and, with `hash_names`, names.
    ///
    /// # Errors
    /// No part could be read, or names cannot be hashed.
    pub(crate) fn pack(
        mut parts: Vec<Part>,
        folder: &str,
        time: u64,
        hash_names: bool,
    ) -> Result<Self> {
        if let Some(Part { content: Err(error), .. }) = parts.first()
            && parts.iter().all(|part| part.content.is_err())
        {
            return Err(error.clone());
        }
        for error in parts.iter_mut().filter_map(|part| part.content.as_mut().err()) {
            *error = redaction::redact(&error.to_string()).into();
        }
        if hash_names {
            let mut names = Names::new()?;
            parts.iter().for_each(|part| part.learn(&mut names));
            parts.iter_mut().for_each(|part| part.hide(&mut names));
        }
        let is_complete = parts.iter().all(|part| part.content.is_ok());
        let files: Vec<File> = parts
            .into_iter()
            .map(|Part { name, content }| (name, content.map(Content::into_bytes)))
            .collect();
        let described = files.iter().map(|(name, content)| {
            let error = content.as_ref().err().map(ToString::to_string);
            json!({"name": name, "bytes": content.as_ref().map_or(0, Vec::len), "error": error})
        });
        let list = json!({
            "command": {"version": VERSION, "revision": REVISION},
            "time": time,
            "names_are_hashed": hash_names,
            "files": described.collect::<Vec<Value>>(),
        });
        let bytes = archive(&files, &list, folder, time).map_err(|error| error.to_string())?;
        Ok(Self { bytes, list, is_complete })
    }

    /// Formats the list for a terminal.
    pub(crate) fn text(&self) -> String {
        let files = self.list["files"].as_array().into_iter().flatten().map(|file| {
            let name = file["name"].as_str().unwrap_or_default();
            match file["error"].as_str() {
                Some(error) => format!("  {name:22} MISSING {error}\n"),
                None => format!("  {name:22} {} bytes\n", file["bytes"]),
            }
        });
        files.collect()
    }
}

/// The name and the content of a file, or the error because of which it is not in the archive.
type File = (&'static str, Result<Vec<u8>>);

fn archive(files: &[File], list: &Value, folder: &str, time: u64) -> io::Result<Vec<u8>> {
    let mut out = GzEncoder::new(Vec::new(), Compression::default());
    let list = format!("{list:#}\n");
    tar::append(&mut out, &format!("{folder}/bundle.json"), list.as_bytes(), time)?;
    for (name, content) in files {
        if let Ok(bytes) = content {
            tar::append(&mut out, &format!("{folder}/{name}"), bytes, time)?;
        }
    }
    tar::finish(&mut out)?;
    out.flush()?;
    out.finish()
}

/// The content of a part.
enum Content {
    Json(Value),
    Text(String),
    Binary(Vec<u8>),
}

impl Content {
    fn new(name: &str, bytes: Vec<u8>) -> Self {
        // Profiles have names of functions only.
        if name.ends_with(".gz") {
            return Self::Binary(bytes);
        }
        let text = String::from_utf8_lossy(&bytes);
        match serde_json::from_str(&text) {
            Ok(value) if name == "pod.json" => Self::Json(described(&value)),
            Ok(mut value) if name.ends_with(".json") => {
                redaction::redact_value(&mut value);
                redact_strings(&mut value);
                Self::Json(value)
            }
            _ => Self::Text(redaction::redact(&text)),
        }
    }

    fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Json(value) => format!("{value:#}\n").into_bytes(),
            Self::Text(text) => text.into_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }
}

impl Part {
    fn learn(&self, names: &mut Names) {
        match &self.content {
            Ok(Content::Json(value)) => names.learn_value(value, false),
            Ok(Content::Text(text)) => names.learn(text),
            Ok(Content::Binary(_)) => {}
            Err(error) => {
                let error = error.to_string();
                let pod = error.strip_prefix("pod ").and_then(|error| error.split_once(": "));
                if let Some((pod, _)) = pod {
                    names.learn_value(&pod.into(), true);
                }
            }
        }
    }

    fn hide(&mut self, names: &mut Names) {
        match &mut self.content {
            Ok(Content::Json(value)) => names.hide_value(value),
            Ok(Content::Text(text)) => *text = names.hide(text),
            Ok(Content::Binary(_)) => {}
            Err(error) => *error = names.hide(&error.to_string()).into(),
        }
    }
}

/// Removes secrets from all strings.
fn redact_strings(value: &mut Value) {
    match value {
        Value::String(text) => *text = redaction::redact(text),
        Value::Array(items) => items.iter_mut().for_each(redact_strings),
        Value::Object(fields) => fields.values_mut().for_each(redact_strings),
        _ => {}
    }
}

/// Returns the part of a pod that tells how it runs, without environment variables and annotations.
fn described(pod: &Value) -> Value {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten().map(|container| {
        let words = |field: &str| {
            let words = container[field].as_array().into_iter().flatten();
            redaction::redact_arguments(words.filter_map(|word| word.as_str().map(str::to_owned)))
        };
        json!({
            "name": container["name"],
            "image": container["image"],
            "command": words("command"),
            "args": words("args"),
            "ports": container["ports"],
            "resources": container["resources"],
        })
    });
    let metadata = &pod["metadata"];
    let mut value = json!({
        "metadata": {
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "labels": metadata["labels"],
            "created": metadata["creationTimestamp"],
        },
        "containers": containers.collect::<Vec<Value>>(),
        "nodeName": pod["spec"]["nodeName"],
        "serviceAccountName": pod["spec"]["serviceAccountName"],
        "status": pod["status"],
    });
    redact_strings(&mut value);
    value
}
