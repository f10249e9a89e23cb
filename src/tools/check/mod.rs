//! `kstatd check`: reports what a swap of the originals for kstatd would change, and the health afterwards.
//!
//! It changes nothing. The objects come from manifests or from the API server and are checked alike.

mod access;
mod api;
pub(crate) mod compatibility;
mod configuration;
mod expressions;
pub(crate) mod health;
pub(crate) mod inventory;
mod listeners;
pub(crate) mod pods;
pub(crate) mod report;
mod scraping;
mod workload;

use std::collections::{BTreeMap, BTreeSet};

use self::configuration::Settings;
use self::inventory::{Inventory, Selection};
use self::listeners::Listeners;
use self::report::{Outcome, Report, Section};
use self::workload::Workload;
use crate::cli::config::Name;
use crate::cli::kube_flags::KubeArgs;
use crate::kube::Client;
use crate::tools::Result;

/// The maximum number of exporters in one report.
const MAX_EXPORTERS: usize = 32;

/// Checks the exporters before a swap.
///
/// # Errors
/// The API server does not answer.
pub(crate) async fn before(
    inventory: &Inventory,
    selection: &Selection,
    client: Option<&Client>,
) -> Result<Report> {
    let mut report = Report::default();
    let found =
        searched(inventory, selection, "kube-state-metrics or statsd_exporter", &mut report);
    let mut all = Vec::new();
    for workload in found {
        let mut flags =
            Section::new(format!("{}: {}", workload.program.as_str(), workload.title()));
        let settings = configuration::check(&workload, inventory, &mut flags);
        flags.ok(format!("image {}", workload.container["image"].as_str().unwrap_or_default()));
        report.push(flags);
        let Some(settings) = settings else { continue };
        report.push(access::check(&workload, &settings, inventory, client).await?);
        let listeners = Listeners::new(&workload, &settings);
        let (ports, jobs) = scraping::check(&workload, inventory, &listeners);
        report.push(ports);
        all.push((workload, settings, jobs));
    }
    let jobs_of_all = jobs_by_program(inventory);
    for (workload, _, jobs) in &all {
        let mut queries = Section::new(format!("{}: alerts and dashboards", workload.title()));
        let of_program = jobs_of_all.get(workload.program.as_str()).unwrap_or(jobs);
        expressions::check(workload, inventory, (jobs, of_program), &mut queries);
        report.push(queries);
    }
    report.push(shards(&all));
    Ok(report)
}

/// Returns the jobs of all exporters, also of those that the user does not ask about, by program.
fn jobs_by_program(inventory: &Inventory) -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut all = BTreeMap::<_, BTreeSet<_>>::new();
    for workload in workload::find(inventory, &Selection::default()) {
        let settings = configuration::check(&workload, inventory, &mut Section::new(""));
        if let Some(settings) = settings {
            let listeners = Listeners::new(&workload, &settings);
            let (_, jobs) = scraping::check(&workload, inventory, &listeners);
            all.entry(workload.program.as_str()).or_default().extend(jobs);
        }
    }
    all
}

/// Reports the health of running kstatd workloads.
///
/// # Errors
/// The API server does not answer.
pub(crate) async fn after(
    inventory: &Inventory,
    selection: &Selection,
    client: &Client,
) -> Result<Report> {
    let mut report = Report::default();
    let mut found = searched(inventory, selection, "kstatd", &mut report);
    if selection.workload.is_none() {
        found.retain(|workload| workload.runs_kstatd || workload.program == Name::Kstatd);
    }
    if found.is_empty() && !report.failed() {
        let mut section = Section::new("kstatd");
        let hint = "name its workload, or check the originals with --pre";
        section.add(Outcome::Failed, "no workload runs kstatd's image", hint, "docs/commands.md");
        report.push(section);
    }
    for workload in found {
        let mut section = Section::new(format!("kstatd: {}", workload.title()));
        let mut flags = Section::new("");
        let settings = configuration::check(&workload, inventory, &mut flags);
        match settings {
            Some(settings) => {
                health::of_pods(client, &workload, &settings.config, &mut section).await?;
                report.push(section);
                report.push(access::check(&workload, &settings, inventory, Some(client)).await?);
            }
            None => {
                section.append("", flags);
                report.push(section);
            }
        }
    }
    Ok(report)
}

/// Returns the exporters, and reports if there is none, or what could not be read.
fn searched<'i>(
    inventory: &'i Inventory,
    selection: &Selection,
    what: &str,
    report: &mut Report,
) -> Vec<Workload<'i>> {
    let mut section = Section::new("objects");
    for gap in &inventory.gaps {
        let hint = "use credentials that may list them, or check manifests with -f";
        section.add(Outcome::Warning, format!("not read: {gap}"), hint, "docs/commands.md");
    }
    let mut found = workload::find(inventory, selection);
    if found.is_empty() {
        let text = format!("no Deployment, StatefulSet or DaemonSet runs {what}");
        section.add(Outcome::Failed, text, "name it: -n NAMESPACE NAME", "docs/commands.md");
    } else if found.len() > MAX_EXPORTERS {
        let text =
            format!("{} exporters, of which the first {MAX_EXPORTERS} are checked", found.len());
        section.add(Outcome::Warning, text, "name one: -n NAMESPACE NAME", "docs/commands.md");
        found.truncate(MAX_EXPORTERS);
    }
    report.push(section);
    found
}

/// Checks that each object belongs to exactly one of the processes.
fn shards(all: &[(Workload<'_>, Settings, BTreeSet<String>)]) -> Section {
    let mut section = Section::new("shards");
    let page = "docs/scaling.md";
    for (workload, settings, _) in all {
        let Some(kube) = settings.kube.as_ref() else { continue };
        let (title, replicas) = (workload.title(), workload.replicas());
        let is_autosharded = !kube.pod.is_empty() && !kube.pod_namespace.is_empty();
        let is_daemon_set = workload.manifest.kind == "DaemonSet";
        if is_autosharded && workload.manifest.kind != "StatefulSet" {
            let text = format!("{title}: --pod needs a StatefulSet");
            section.add(Outcome::Failed, text, "remove --pod and --pod-namespace", page);
        } else if is_autosharded {
            section.ok(format!("{title}: one shard for each of {replicas} pods"));
        } else if replicas > 1 && settings.config.standby.is_none() && !is_daemon_set {
            let each = if kube.total_shards > 1 { "of one shard" } else { "without shards" };
            let text =
                format!("{title}: {replicas} pods {each} expose every series {replicas} times");
            section.add(Outcome::Warning, text, "use one replica, or shards", page);
        } else if kube.total_shards > 1 {
            let others = all.iter().filter_map(|(_, other, _)| other.kube.as_ref());
            // Others may watch other objects.
            let what = |args: &KubeArgs| {
                let KubeArgs { resources, namespaces, total_shards, .. } = args.clone();
                (resources, namespaces, total_shards)
            };
            let same = others.filter(|other| what(other) == what(kube));
            let mut shards: Vec<i64> = same.map(|other| other.shard.into()).collect();
            shards.sort_unstable();
            let (total, shard) = (kube.total_shards, i64::from(kube.shard));
            let text = format!("{title}: shard {shard} of {total}");
            let same = shards.iter().filter(|other| **other == shard).count();
            if !(0..total).contains(&shard) {
                let text = format!("{text}: shards are 0 to {}", total - 1);
                section.add(Outcome::Warning, text, "number them from 0", page);
            } else if same > 1 {
                let text = format!("{text}, which {same} workloads expose");
                section.add(Outcome::Warning, text, "give each its own --shard", page);
            } else if shards.iter().copied().eq(0..total) {
                section.ok(text);
            } else {
                let found = shards.len();
                let text = format!("{text}, but only {found} of {total} shards run");
                section.add(
                    Outcome::Warning,
                    text,
                    "run the others too",
                    "docs/runbook/KstatdShardMissing.md",
                );
            }
        } else if settings.config.standby.is_some() && replicas > 1 {
            section.ok(format!("{title}: {replicas} pods, of which one exposes (--standby)"));
        } else if is_daemon_set && kube.node.is_empty() {
            let text = format!("{title}: each pod of the DaemonSet exposes every series");
            section.add(Outcome::Warning, text, "set --node, or use a Deployment", page);
        } else {
            section.ok(format!("{title}: not sharded"));
        }
    }
    section
}
