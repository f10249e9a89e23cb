//! The health of running kstatd processes, from their status.

use serde_json::Value;

use super::pods::{self, Pod};
use super::report::{Outcome, Section};
use super::workload::{Workload, items};
use crate::cli::config::Config;
use crate::kube::Client;
use crate::telemetry::VERSION;
use crate::tools::Result;
use crate::tools::process_client::ProcessClient;

const PAGE: &str = "docs/status.md";

/// Reports the health of the process at an address.
pub(crate) async fn of_process(process: &ProcessClient) -> Section {
    let mut section = Section::new(format!("process at {}", process.address()));
    report(process, &mut section).await;
    section
}

/// Reports the health of each pod of a workload, through the proxy of the API server.
///
/// # Errors
/// The API server does not answer.
pub(crate) async fn of_pods(
    client: &Client,
    workload: &Workload<'_>,
    config: &Config,
    section: &mut Section,
) -> Result<()> {
    let found = pods::of_workload(client, workload).await?;
    for gap in &found.gaps {
        section.add(Outcome::Failed, format!("pods are not known: {gap}"), "", PAGE);
    }
    let (status, count) =
        (&workload.manifest.object["status"], |field: &Value| field.as_u64().unwrap_or(0));
    let (ready, wanted) = match workload.manifest.kind.as_str() {
        "DaemonSet" => (count(&status["numberReady"]), count(&status["desiredNumberScheduled"])),
        _ => (count(&status["readyReplicas"]), workload.replicas()),
    };
    let text = format!("{ready} of {wanted} pods are ready");
    match ready >= wanted {
        true => section.ok(text),
        false => {
            let hint = "see `kubectl describe pod`";
            section.add(Outcome::Failed, text, hint, "docs/runbook/KstatdNotReady.md");
        }
    }
    if matches!(config.main.address.host.as_str(), "127.0.0.1" | "::1" | "localhost") {
        let hint = "use `kubectl port-forward` and --addr";
        section.add(Outcome::Warning, "it listens only inside its pods", hint, PAGE);
        return Ok(());
    }
    for pod in &found.objects {
        let pod = Pod::new(pod, workload, config);
        let process = ProcessClient::of_pod(client, &pod, pod.proxy_path(pod.port));
        let mut of_pod = Section::new("");
        report(&process, &mut of_pod).await;
        section.append(&format!("pod {}: ", pod.name), of_pod);
    }
    Ok(())
}

/// Reports the status of a process.
async fn report(process: &ProcessClient, section: &mut Section) {
    let facts = process.with_timeout(process.status::<Value>()).await.flatten();
    let facts = facts.and_then(|facts| match facts["state"].as_str() {
        Some("ok" | "warn" | "degraded") => Ok(facts),
        _ => Err("it is not kstatd's".into()),
    });
    let facts = match facts {
        Ok(facts) => facts,
        Err(error) => {
            let hint = "see whether the process runs and the port is that of its main listener";
            let text = format!("no status: {error}");
            return section.add(Outcome::Failed, text, hint, "docs/runbook/KstatdDown.md");
        }
    };
    let state = facts["state"].as_str().unwrap_or_default().to_uppercase();
    let problems = [("reasons", Outcome::Failed), ("warnings", Outcome::Warning)];
    if state == "OK" {
        section.ok("its state is OK");
    }
    for (field, outcome) in problems {
        for problem in items(&facts[field]) {
            let text = |field: &str| problem[field].as_str().unwrap_or_default();
            let text_and_state = format!("it is {state}: {}", text("text"));
            section.add(outcome, text_and_state, "", text("runbook"));
        }
    }
    let version = facts["program"]["version"].as_str().unwrap_or("unknown");
    if version == VERSION {
        section.ok(format!("its version is {version}"));
    } else {
        let text = format!("its version is {version}, that of this command {VERSION}");
        section.add(Outcome::Warning, text, "use the same version", PAGE);
    }
    kinds(&facts["kubernetes"], section);
    for file in items(&facts["files"]) {
        let name = file["path"].as_str().unwrap_or_default();
        match file["error"].as_str() {
            None if file["in_force"] == true => section.ok(format!("{name} is applied")),
            None => section.add(Outcome::Warning, format!("{name} is pending"), "", PAGE),
            Some(error) => {
                let text = format!("{name} is rejected: {error}");
                let page = "docs/runbook/KstatdConfigReloadFailed.md";
                section.add(Outcome::Failed, text, "the previous content stays in force", page);
            }
        }
    }
    let listeners = facts["statsd"]["listeners"].as_array();
    let count = |listener: &Value| listener["dropped"].as_u64().unwrap_or(0);
    // The status warns of recent ones.
    if let Some(dropped) = listeners.map(|all| all.iter().map(count).sum::<u64>()) {
        section.ok(format!("datagrams dropped by the kernel since the start: {dropped}"));
    }
}

/// Reports the kinds of the Kubernetes side.
fn kinds(kubernetes: &Value, section: &mut Section) {
    let Some(kinds) = kubernetes["kinds"].as_array() else { return };
    let number = |health: &str| kinds.iter().filter(|kind| kind["health"] == health).count();
    // Older servers lack some of the default kinds.
    let (synced, served) = (number("ok"), kinds.len() - number("absent"));
    let text = format!("{synced} of {served} kinds are synced");
    match synced == served {
        true => section.ok(text),
        false => section.add(Outcome::Failed, text, "", "docs/runbook/KstatdKindStale.md"),
    }
    for kind in kinds {
        if let Some(rule) = kind["missing_rule"].as_str() {
            let text =
                format!("{} may not be listed", kind["resource"].as_str().unwrap_or_default());
            let rule: Vec<&str> = rule.split_whitespace().collect();
            let hint = format!("add to its role: {}", rule.join(" "));
            section.add(Outcome::Failed, text, hint, "docs/runbook/KstatdKindForbidden.md");
        }
    }
}
