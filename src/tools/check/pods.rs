//! The pods of kstatd, for commands that ask one through the proxy of the API server.

use serde_json::{Value, json};

use super::configuration;
use super::inventory::{Inventory, Selection};
use super::report::Section;
use super::workload::{self, Workload};
use crate::cli::check::WorkloadName;
use crate::cli::config::{Config, Name};
use crate::kube::Client;
use crate::tools::Result;
use crate::tools::manifests::Manifest;

/// A pod of kstatd.
pub(crate) struct Pod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The port of its main listener.
    pub(crate) port: u16,
    /// The port of its own metrics and profiles.
    pub(crate) telemetry_port: u16,
    pub(crate) is_tls: bool,
    /// The name of its container; empty if it is not known.
    pub(crate) container: String,
}

impl Pod {
    /// Describes a pod of a workload.
    pub(crate) fn new(pod: &Manifest, workload: &Workload<'_>, config: &Config) -> Self {
        let (namespace, name) = pod.name();
        let port = config.main.address.port;
        Self {
            namespace: namespace.unwrap_or_default().to_owned(),
            name: name.unwrap_or_default().to_owned(),
            port,
            telemetry_port: config.telemetry.as_ref().map_or(port, |of| of.address.port),
            is_tls: workload.is_tls(),
            container: workload.container["name"].as_str().unwrap_or_default().to_owned(),
        }
    }

    /// Returns the path of the API server below which it forwards requests to a port.
    pub(crate) fn proxy_path(&self, port: u16) -> String {
        let scheme = if self.is_tls { "https:" } else { "" };
        format!("{}/proxy", path(&self.namespace, &format!("{scheme}{}:{port}", self.name)))
    }
}

/// Returns the path of a pod at the API server.
pub(crate) fn path(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods/{name}")
}

/// Finds the only pod of kstatd with this name, or of the workload with this name.
///
/// # Errors
/// There is none, or more than one, or the API server does not answer.
pub(crate) async fn only(
    client: &Client,
    namespace: Option<String>,
    target: Option<&str>,
) -> Result<Pod> {
    let named = target.map(WorkloadName::parse).transpose()?;
    let is_named = named.is_some();
    let mut inventory = Inventory::default();
    if let (Some(namespace), Some(WorkloadName { kind: None, name })) = (&namespace, &named) {
        inventory.read_object(client, &path(namespace, name)).await?;
    }
    let pod = inventory.objects.pop();
    let selection = Selection { namespace, workload: named };
    match &pod {
        Some(pod) => inventory.objects.push(template_of(pod)),
        None => inventory.read_workloads(client, &selection).await?,
    }
    inventory.read_config_maps(client, &selection).await?;
    let mut found = workload::find(&inventory, &selection);
    found.retain(|one| is_named || one.runs_kstatd || one.program == Name::Kstatd);
    let place = || match (target, &selection.namespace) {
        (Some(target), None) => format!("named {target}; a pod needs its namespace, -n NAMESPACE"),
        (Some(target), Some(namespace)) => format!("named {target} in namespace {namespace}"),
        (None, None) => "that runs kstatd's image; name it with --target".to_owned(),
        (None, Some(namespace)) => format!("that runs kstatd's image in namespace {namespace}"),
    };
    let workload = match found.as_slice() {
        [] if inventory.gaps.is_empty() => {
            return Err(format!("no pod or workload {}", place()).into());
        }
        [] => return Err(format!("no pod found: {}", inventory.gaps.join("; ")).into()),
        [workload] => workload,
        several => {
            let names: Vec<String> = several.iter().map(Workload::title).collect();
            return Err(format!(
                "several workloads run kstatd, select one with -n and --target: {}",
                names.join(", ")
            )
            .into());
        }
    };
    let settings = configuration::check(workload, &inventory, &mut Section::new(""));
    let title = workload.title();
    let settings = settings.ok_or_else(|| {
        format!("the flags of {title} are not valid, so its port is not known; use --addr")
    })?;
    if let Some(pod) = &pod {
        return Ok(Pod::new(pod, workload, &settings.config));
    }
    let mut pods = of_workload(client, workload).await?;
    pods.objects.retain(|pod| pod.object["status"]["phase"] == "Running");
    match pods.objects.as_slice() {
        [pod] => Ok(Pod::new(pod, workload, &settings.config)),
        [] if pods.gaps.is_empty() => Err(format!("{title} has no running pod").into()),
        [] => Err(format!("the pods of {title} are not known: {}", pods.gaps.join("; ")).into()),
        several => {
            let names: Vec<&str> = several.iter().filter_map(|pod| pod.name().1).collect();
            let namespace = workload.namespace().unwrap_or_default();
            let names = names.join(", ");
            Err(format!(
                "{title} has several pods, select one with -n {namespace} --target: {names}"
            )
            .into())
        }
    }
}

/// Returns the pods of a workload that have not ended. Others may have the labels that it selects by.
///
/// # Errors
/// The API server does not answer.
pub(crate) async fn of_workload(client: &Client, workload: &Workload<'_>) -> Result<Inventory> {
    let mut pods = Inventory::default();
    let labels = &workload.manifest.object["spec"]["selector"]["matchLabels"];
    pods.read_pods(client, workload.namespace(), labels).await?;
    let kind = workload.manifest.kind.as_str();
    let name = workload.manifest.name().1.unwrap_or_default();
    let is_own = |owner: &Value| {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        match kind {
            "Deployment" => {
                let hash = text("name").strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
                text("kind") == "ReplicaSet" && hash.is_some_and(|hash| !hash.contains('-'))
            }
            _ => (text("kind"), text("name")) == (kind, name),
        }
    };
    pods.objects.retain(|pod| {
        let (metadata, phase) = (&pod.object["metadata"], &pod.object["status"]["phase"]);
        let owners = metadata["ownerReferences"].as_array();
        let mut owners = owners.into_iter().flatten().filter(|owner| owner["controller"] == true);
        !(phase == "Succeeded" || phase == "Failed")
            && metadata["deletionTimestamp"].is_null()
            && owners.next().is_none_or(is_own)
    });
    Ok(pods)
}

/// Returns a workload with the template of a pod, whose flags are read like those of any other.
fn template_of(pod: &Manifest) -> Manifest {
    let object: &Value = &pod.object;
    let object = json!({
        "metadata": object["metadata"],
        "spec": {"template": {"metadata": {"labels": object["metadata"]["labels"]}, "spec": object["spec"]}},
    });
    let (api_version, kind) = ("apps/v1".to_owned(), "Deployment".to_owned());
    Manifest { place: pod.place.clone(), api_version, kind, object }
}
