//! Random objects and flags for kube-state-metrics.

mod custom;
pub mod deviations;
mod objects;
mod options;
mod oracle;
mod server;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kstatd_endurance::process::free_port;
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::Value;

use crate::program::{Binaries, Side, body, difference, start};
use crate::shrink::{Shrink, lists};
use crate::{Case, Comparison};

use custom::Custom;
use oracle::messages::Schema;
use server::{ApiServer, Change, Placed};

/// Time in which both programs process what they got. The original sends five requests a second.
const PATIENCE: Duration = Duration::from_secs(60);
/// A difference that lasts this long, after all events were processed, is one.
const LASTING: Duration = Duration::from_millis(1_500);
/// The same after a change of definitions of custom resources, which the original looks for every three seconds.
const LASTING_DEFINITIONS: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(20);

/// Formats of the exposition.
const FORMATS: [&str; 2] = ["text/plain", "application/openmetrics-text;version=1.0.0"];

/// A cluster, flags, and changes of the cluster.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The watched kinds, and true for those with namespaces.
    kinds: Vec<(String, bool)>,
    flags: Vec<String>,
    /// Flags that an options file contains.
    options: Vec<String>,
    custom: Option<Custom>,
    /// True if both programs print repeated series.
    repeats: bool,
    objects: Vec<Placed>,
    batches: Vec<Vec<(Change, Placed)>>,
    queries: Vec<String>,
}

fn pick<'a>(rng: &mut StdRng, values: &[&'a str]) -> &'a str {
    values.choose(rng).copied().unwrap_or_default()
}

/// Returns a value of `--metric-labels-allowlist` for some kinds.
fn allow_list(rng: &mut StdRng, kinds: &[(String, bool)]) -> String {
    let mut entries = Vec::new();
    for (kind, _) in kinds {
        let keys = pick(
            rng,
            &[
                "*",
                "app",
                "app,a.b/c,camelCase",
                "camel-case,camel_case",
                "",
                "app*",
                "node-role*,HTTPServer",
            ],
        );
        entries.push(format!("{kind}=[{keys}]"));
    }
    if rng.random_bool(0.2) {
        entries.push("*=[*]".to_owned());
    }
    entries.join(",")
}

fn random_flags(rng: &mut StdRng, kinds: &[(String, bool)]) -> Vec<String> {
    let names: Vec<&str> = kinds.iter().map(|(name, _)| name.as_str()).collect();
    let mut flags = vec![format!("--resources={}", names.join(","))];
    for flag in ["metric-labels-allowlist", "metric-annotations-allowlist"] {
        if rng.random_bool(0.5) {
            flags.push(format!("--{flag}={}", allow_list(rng, kinds)));
        }
    }
    if rng.random_bool(0.5) {
        flags.push(format!(
            "--metric-opt-in-list={}",
            pick(rng, &[".*", "csi", "^kube_pod_nodeselectors$", "x"])
        ));
    }
    let patterns = [
        "_created$",
        "^kube_pod_.*",
        "_labels,_annotations",
        "_status_",
        r"^kube_(?!pod).*_labels",
        "(?<=kube_)s.*",
        "kube_.*_info",
        "_spec_,_owner",
        "_metadata_",
        "resource",
    ];
    match rng.random_range(0..6) {
        0 => flags.push(format!("--metric-allowlist={}", pick(rng, &patterns))),
        1 => flags.push(format!("--metric-denylist={}", pick(rng, &patterns))),
        _ => {}
    }
    match rng.random_range(0..8) {
        0 => flags.push(format!("--namespaces={}", pick(rng, &["a", "a,b", "c,nowhere"]))),
        1 => flags.push(format!("--namespaces-denylist={}", pick(rng, &["a", "a,b", "nowhere"]))),
        2 => flags.extend(["--namespaces=a,b".to_owned(), "--namespaces-denylist=b".to_owned()]),
        _ => {}
    }
    if rng.random_bool(0.2) {
        let total = rng.random_range(1..5);
        flags.push(format!("--shard={}", rng.random_range(0..total)));
        flags.push(format!("--total-shards={total}"));
    }
    if names == ["pods"] {
        match rng.random_range(0..3) {
            0 => flags.push("--node=node-1".to_owned()),
            1 => flags.push("--track-unscheduled-pods".to_owned()),
            _ => {}
        }
    }
    if rng.random_bool(0.2) {
        flags.push("--use-apiserver-cache".to_owned());
    }
    flags
}

impl Case for Scenario {
    fn random(rng: &mut StdRng) -> Self {
        let schema = Schema::read();
        let apis = if rng.random_bool(0.1) {
            kstatd_double::APIS.iter().filter(|api| api.name == "pods").collect()
        } else {
            objects::kinds(rng)
        };
        let kinds: Vec<_> = apis.iter().map(|api| (api.name.to_owned(), api.namespaced)).collect();
        let mut flags = random_flags(rng, &kinds);
        let mut all = Vec::new();
        for api in &apis {
            for number in 0..rng.random_range(0..6) {
                all.push(objects::object(&schema, api, number, rng));
            }
        }
        let mut custom = None;
        if rng.random_bool(0.4) {
            let kinds = custom::kinds(&flags);
            let objects = custom::objects(&kinds, rng);
            let new = Custom::random(&kinds, &objects, rng);
            if new.is_only {
                flags.push("--custom-resource-state-only".to_owned());
                flags.retain(|flag| !is_for_pods_alone(flag));
                all.clear();
            }
            all.extend(objects);
            custom = Some(new);
        }
        let mut batches = Vec::new();
        for _ in 0..rng.random_range(0..3) {
            let count = rng.random_range(1..8);
            let batch = (0..count).filter_map(|_| {
                let change = if rng.random_bool(0.3) { Change::Delete } else { Change::Set };
                if let Some(custom) = &custom
                    && (custom.is_only || rng.random())
                {
                    return Some((change, custom::changed(&custom::kinds(&flags), rng)));
                }
                let api = apis.choose(rng)?;
                let number = rng.random_range(0..8);
                Some((change, objects::object(&schema, api, number, rng)))
            });
            batches.push(batch.collect());
        }
        let mut queries = vec![String::new()];
        // kstatd can select custom resources, too.
        if custom.is_none() && rng.random_bool(0.3) {
            let (one, _) = kinds.choose(rng).cloned().unwrap_or_default();
            queries.push(match rng.random_range(0..4) {
                0 => format!("?resources={one}"),
                1 => format!("?exclude_resources={one}"),
                2 => format!("?resources=pods,{one}&exclude_resources=nodes"),
                _ => "?resources=".to_owned(),
            });
        }
        // Without it, kstatd applies all entries for a kind.
        let repeats = custom.is_some() || rng.random();
        let mut options = Vec::new();
        if rng.random_bool(0.3) {
            (options, flags) = flags.into_iter().partition(|_| rng.random());
        }
        Self { kinds, flags, options, custom, repeats, objects: all, batches, queries }
    }

    fn run(&self, binaries: &Binaries) -> Result<Comparison> {
        let server = ApiServer::start(self.objects.clone())?;
        let directory = tempfile::tempdir()?;
        let mut running = Vec::new();
        for (at, side) in Side::BOTH.into_iter().enumerate() {
            let directory = directory.path().join(side.name());
            std::fs::create_dir(&directory)?;
            let (port, telemetry) = (free_port()?, free_port()?);
            let mut arguments = self.flags.clone();
            arguments.extend(self.files(&directory)?);
            arguments.extend([
                "--host=127.0.0.1".to_owned(),
                format!("--port={port}"),
                "--telemetry-host=127.0.0.1".to_owned(),
                format!("--telemetry-port={telemetry}"),
                format!("--apiserver={}", server.url(at)),
            ]);
            if self.repeats && side == Side::Kstatd {
                arguments.push("--compat.duplicate-series".to_owned());
            }
            let ready = (port, "/healthz");
            let program =
                start(binaries, (side, "kube-state-metrics"), &arguments, ready, &directory)?;
            running.push((port, program));
        }
        let ended = |side: usize| running.get(side).is_none_or(|(_, program)| program.is_none());
        match (ended(0), ended(1)) {
            (false, false) => {}
            (true, true) => return Ok(Comparison { difference: None, lines: 1 }),
            (original, _) => {
                let name = if original { "original" } else { "kstatd" };
                let difference = Some(format!("  {name} does not start"));
                return Ok(Comparison { difference, lines: 1 });
            }
        }
        let mut lines = 0;
        for step in 0..=self.batches.len() {
            if let Some(batch) = step.checked_sub(1).and_then(|at| self.batches.get(at)) {
                server.change(batch);
            }
            let wanted = self.watches(&server.objects());
            server.wait_for_watches(&wanted, PATIENCE).with_context(|| {
                let log = |at: usize| {
                    running.get(at).and_then(|(_, program)| program.as_ref()?.output().ok())
                };
                format!("{:?}\n{:?}", log(0), log(1))
            })?;
            for query in &self.queries {
                for format in FORMATS {
                    let ports = [0, 1].map(|at| running.get(at).map_or(0, |(port, _)| *port));
                    let (found, compared) = self.lasting_difference(ports, query, format)?;
                    lines += compared;
                    if let Some(found) = found {
                        let difference = Some(format!(
                            " after batch {step} in /metrics{query} as {format}:\n{found}"
                        ));
                        return Ok(Comparison { difference, lines });
                    }
                }
            }
        }
        Ok(Comparison { difference: None, lines })
    }
}

impl Scenario {
    /// Writes the files of a program, and returns the flags that name them.
    fn files(&self, directory: &Path) -> Result<Vec<String>> {
        let mut flags = Vec::new();
        let mut options = self.options.clone();
        if let Some(custom) = &self.custom {
            let text = custom.file.to_string();
            let flag = if custom.is_inline {
                format!("--custom-resource-state-config={text}")
            } else {
                let path = directory.join("custom.yaml");
                std::fs::write(&path, text)?;
                format!("--custom-resource-state-config-file={}", path.display())
            };
            if custom.is_option { options.push(flag) } else { flags.push(flag) }
        }
        if !options.is_empty() {
            let path = directory.join("options.yaml");
            std::fs::write(&path, options::options_file(&options).to_string())?;
            flags.push(format!("--config={}", path.display()));
        }
        Ok(flags)
    }

    /// Returns the number of watches of each kind that both programs have at least, with these objects on the server.
    fn watches(&self, objects: &[Placed]) -> Vec<(String, usize)> {
        let list = |name: &str| -> BTreeSet<&str> {
            let mut flags = self.flags.iter().chain(&self.options);
            let flag = flags.find_map(|flag| flag.strip_prefix(&format!("--{name}=")));
            flag.into_iter().flat_map(|names| names.split(',')).collect()
        };
        let (namespaces, denied) = (list("namespaces"), list("namespaces-denylist"));
        let count = namespaces.difference(&denied).count().max(1);
        let of_kind = |namespaced: bool| if namespaced { count } else { 1 };
        let mut out = Vec::new();
        if let Some(custom) = &self.custom {
            out.push((custom::DEFINITIONS.to_owned(), 1));
            let watched = custom.watched(objects);
            out.extend(
                watched
                    .into_iter()
                    .map(|(name, versions, namespaced)| (name, versions * of_kind(namespaced))),
            );
        }
        if !self.custom.as_ref().is_some_and(|custom| custom.is_only) {
            let kinds = self.kinds.iter();
            out.extend(kinds.map(|(name, namespaced)| (name.clone(), of_kind(*namespaced))));
        }
        out
    }

    fn answer(&self, port: u16, query: &str, format: &str, side: Side) -> Result<Vec<String>> {
        let body = body(port, &format!("/metrics{query}"), format)?;
        let text = String::from_utf8_lossy(&body);
        let mut families: Vec<Vec<String>> = vec![Vec::new()];
        for line in text.split_terminator('\n') {
            if line.starts_with("# HELP ") {
                families.push(Vec::new());
            }
            let line = match line.strip_prefix("# HELP ").and_then(|line| line.split_once(' ')) {
                Some((name, help)) if is_built_in(name) => format!("# HELP {name} {}", mark(help)),
                _ => line.to_owned(),
            };
            families.extend(families.is_empty().then(Vec::new));
            if let Some(family) = families.last_mut() {
                family.push(line);
            }
        }
        // The order of objects within a family is not specified.
        let mut out = Vec::new();
        for mut family in families {
            if side == Side::Original && !self.repeats {
                family = deviations::distinct(family);
            }
            family.sort();
            out.extend(family);
        }
        Ok(out)
    }

    fn lasting_difference(
        &self,
        ports: [u16; 2],
        query: &str,
        format: &str,
    ) -> Result<(Option<String>, usize)> {
        let lasting = if self.custom.is_some() { LASTING_DEFINITIONS } else { LASTING };
        let deadline = Instant::now() + lasting;
        loop {
            let original =
                self.answer(ports[0], query, format, Side::Original).context("the original")?;
            let kstatd = self.answer(ports[1], query, format, Side::Kstatd).context("kstatd")?;
            let found = difference(&original, &kstatd);
            if found.is_none() || Instant::now() > deadline {
                return Ok((found, original.len()));
            }
            std::thread::sleep(POLL);
        }
    }
}

/// Returns true for the families of built-in kinds.
fn is_built_in(family: &str) -> bool {
    family.starts_with("kube_") && !family.starts_with("kube_customresource")
}

/// Returns true for flags that only `--resources=pods` allows.
fn is_for_pods_alone(flag: &str) -> bool {
    flag.starts_with("--node=") || flag == "--track-unscheduled-pods"
}

/// Returns the prefix of a help text for stability and deprecation; the wording after it is kstatd's own.
fn mark(help: &str) -> &str {
    let rest = help.strip_prefix("[STABLE] ").unwrap_or(help);
    let rest = match rest.strip_prefix("(Deprecated since ").and_then(|rest| rest.split_once(") "))
    {
        Some((_, rest)) => rest,
        None => rest,
    };
    help.get(..help.len() - rest.len()).unwrap_or_default()
}

/// Returns copies of a JSON value without one of its parts, the outermost first.
fn without_parts(value: &Value, depth: usize) -> Vec<Value> {
    let kept = ["apiVersion", "kind", "name", "namespace", "uid"];
    let mut out = Vec::new();
    match value {
        Value::Object(fields) => {
            for (key, inner) in fields {
                if depth < 2 && kept.contains(&key.as_str()) {
                    continue;
                }
                if !(depth == 0 && key == "metadata") {
                    let mut less = fields.clone();
                    less.remove(key);
                    out.push(Value::Object(less));
                }
                for inner in without_parts(inner, depth + 1) {
                    let mut less = fields.clone();
                    less.insert(key.clone(), inner);
                    out.push(Value::Object(less));
                }
            }
        }
        Value::Array(items) => {
            for (at, inner) in items.iter().enumerate() {
                let mut less = items.clone();
                less.remove(at);
                out.push(Value::Array(less));
                for inner in without_parts(inner, depth + 1) {
                    let mut less = items.clone();
                    if let Some(place) = less.get_mut(at) {
                        *place = inner;
                    }
                    out.push(Value::Array(less));
                }
            }
        }
        _ => {}
    }
    out
}

impl Shrink for Scenario {
    fn smaller(&self) -> Vec<Self> {
        let with_batches = |batches| Self { batches, ..self.clone() };
        let with_objects = |objects| Self { objects, ..self.clone() };
        let mut out: Vec<Self> = lists(&self.batches).into_iter().map(with_batches).collect();
        out.extend(lists(&self.objects).into_iter().map(with_objects));
        // The flag that names the kinds stays.
        let names_kinds = |flag: &String| flag.starts_with("--resources=");
        let first = self.flags.iter().position(names_kinds).map_or(0, |at| at + 1);
        let (first, rest) = self.flags.split_at(first);
        out.extend(
            lists(rest)
                .into_iter()
                .map(|rest| Self { flags: [first, &rest].concat(), ..self.clone() }),
        );
        let options = lists(&self.options).into_iter();
        out.extend(options.map(|options| Self { options, ..self.clone() }));
        if let Some(custom) = &self.custom {
            let files = without_parts(&custom.file, 2).into_iter();
            let less =
                files.map(|file| Custom { file, ..custom.clone() }).filter(Custom::is_complete);
            out.extend(less.map(|custom| Self { custom: Some(custom), ..self.clone() }));
        }
        for (at, batch) in self.batches.iter().enumerate() {
            for batch in lists(batch) {
                let mut batches = self.batches.clone();
                if let Some(place) = batches.get_mut(at) {
                    *place = batch;
                    out.push(with_batches(batches));
                }
            }
        }
        for (at, placed) in self.objects.iter().enumerate().filter(|_| self.objects.len() < 3) {
            for object in without_parts(&placed.object, 0) {
                let mut objects = self.objects.clone();
                if let Some(place) = objects.get_mut(at) {
                    place.object = object;
                    out.push(with_objects(objects));
                }
            }
        }
        out
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "flags: {}", self.flags.join(" "))?;
        if !self.options.is_empty() {
            writeln!(f, "flags in an options file: {}", self.options.join(" "))?;
        }
        if let Some(custom) = &self.custom {
            writeln!(f, "custom resources: {}", custom.file)?;
        }
        if self.repeats {
            writeln!(f, "kstatd has --compat.duplicate-series")?;
        }
        for placed in &self.objects {
            writeln!(f, "object: {}", placed.object)?;
        }
        for (at, batch) in self.batches.iter().enumerate() {
            for (change, placed) in batch {
                writeln!(f, "batch {}: {change:?} {}", at + 1, placed.object)?;
            }
        }
        Ok(())
    }
}
