//! The original: its address, and the commands that replace it by kstatd.

use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use serde::Serialize;
use serde_json::Value;
use tokio::time::timeout;

use super::candidate::{CommandLine, Original};
use crate::kube::ClientOptions;
use crate::kube::client::endpoint::{Access, Endpoint};
use crate::telemetry::VERSION;
use crate::tools::Result;
use crate::tools::diff::shown;

/// The time in which the API server must describe a pod.
const POD_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of the description of a pod, in bytes.
const MAX_POD: usize = 4 << 20;

/// The original.
pub(crate) struct Target {
    /// The address without its password.
    pub(super) name: String,
    pub(super) metrics: Endpoint,
    pub(super) telemetry: Option<Endpoint>,
    place: Place,
}

/// The place of the original in the cluster, as far as it is known.
struct Place {
    namespace: Option<String>,
    /// The object that is described by the API server.
    pod: Option<Endpoint>,
    /// The name of the Service, which is that of the workload in most manifests.
    workload: Option<String>,
}

/// The commands that swap the original for kstatd, and back.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Commands {
    pub swap: Vec<String>,
    pub roll_back: Vec<String>,
}

impl Target {
    /// Resolves the address of the original: a URL, NAMESPACE/POD or NAMESPACE/svc/SERVICE.
    ///
    /// # Errors
    /// The address or the access settings are invalid.
    pub(crate) fn new(
        address: &str,
        telemetry: Option<&str>,
        access: &Access,
        api_server: &ClientOptions,
        line: &CommandLine,
    ) -> Result<Self> {
        let direct = |url: &str| {
            let endpoint = Endpoint::new(url, access.clone());
            endpoint.map_err(|error| format!("{}: {error}", shown(url)))
        };
        let given = telemetry.map(direct).transpose()?;
        let is_statsd = matches!(line.original, Original::StatsdExporter(_));
        if address.contains("://") {
            let metrics = direct(address)?;
            let telemetry = given.or_else(|| is_statsd.then(|| metrics.clone()));
            let place = Place { namespace: None, pod: None, workload: None };
            return Ok(Self { name: shown(address), metrics, telemetry, place });
        }
        let parts: Vec<&str> = address.split('/').collect();
        let (namespace, kind, name) = match parts[..] {
            [namespace, name] | [namespace, "pod", name] => (namespace, "pods", name),
            [namespace, "svc", name] => (namespace, "services", name),
            _ => {
                return Err(format!(
                    "{address:?} is neither a URL nor NAMESPACE/POD nor NAMESPACE/svc/SERVICE"
                )
                .into());
            }
        };
        if let Some(part) = [namespace, name].iter().find(|part| !is_plain(part, "-.")) {
            return Err(
                format!("{address:?}: {part:?} is not a name of a Kubernetes object").into()
            );
        }
        let ports = Ports::of(line)?;
        let scheme = if ports.tls { "https:" } else { "" };
        let object = format!("/api/v1/namespaces/{namespace}/{kind}/");
        let through = |port: u16, path: &str| {
            Endpoint::of_api_server(
                api_server,
                format!("{object}{scheme}{name}:{port}/proxy{path}"),
            )
        };
        let metrics = through(ports.metrics, line.path())?;
        let telemetry = match (given, ports.telemetry) {
            (Some(given), _) => given,
            (None, Some(port)) => through(port, "/metrics")?,
            (None, None) => metrics.clone(),
        };
        let pod = (kind == "pods")
            .then(|| Endpoint::of_api_server(api_server, format!("{object}{name}")));
        let place = Place {
            namespace: Some(namespace.to_owned()),
            pod: pod.transpose()?,
            workload: (kind == "services").then(|| name.to_owned()),
        };
        Ok(Self { name: address.to_owned(), metrics, telemetry: Some(telemetry), place })
    }

    /// Returns the commands for the swap and back. Asks the API server for the pod's workload; without an
    /// answer the commands have placeholders.
    pub(super) async fn commands(&self, line: &CommandLine) -> Commands {
        let pod = match &self.place.pod {
            Some(endpoint) => timeout(POD_TIMEOUT, fetch_pod(endpoint)).await.ok().flatten(),
            None => None,
        };
        commands(&self.place, pod.as_ref(), line)
    }
}

/// The ports of the original by its flags.
struct Ports {
    metrics: u16,
    telemetry: Option<u16>,
    tls: bool,
}

impl Ports {
    fn of(line: &CommandLine) -> Result<Self> {
        let port = |flag: &str, port: &str| {
            let parsed = port.parse().ok().filter(|port| *port > 0);
            parsed.ok_or_else(|| format!("--{flag}={port}: not a port of the original"))
        };
        match &line.original {
            Original::KubeStateMetrics(args) => Ok(Self {
                metrics: port("port", &args.port.to_string())?,
                telemetry: Some(port("telemetry-port", &args.telemetry_port.to_string())?),
                tls: !args.tls_config.is_empty(),
            }),
            Original::StatsdExporter(args) => {
                let address = &args.web_listen_address;
                let number = address.rsplit(':').next().unwrap_or_default();
                let metrics = port("web.listen-address", number)?;
                Ok(Self { metrics, telemetry: None, tls: !args.web_config_file.is_empty() })
            }
        }
    }
}

/// The object of a pod.
struct Pod(Value);

impl Pod {
    fn label(&self, name: &str) -> Option<&str> {
        let label = self.0["metadata"]["labels"][name].as_str();
        label.filter(|value| is_plain(value, "-._"))
    }

    /// Returns kind and name of the workload.
    fn workload(&self) -> Option<String> {
        let owner = &self.0["metadata"]["ownerReferences"][0];
        let (kind, name) = (owner["kind"].as_str()?, owner["name"].as_str()?);
        let hash = self.label("pod-template-hash").map(|hash| format!("-{hash}"));
        let workload = match (kind, hash) {
            ("ReplicaSet", Some(hash)) => format!("deployment/{}", name.strip_suffix(&hash)?),
            (kind, _) => format!("{}/{name}", kind.to_ascii_lowercase()),
        };
        is_plain(&workload, "-./").then_some(workload)
    }

    /// Returns name and image of the container of the original: the one whose image names it, or the only one.
    fn container(&self, program: &str) -> Option<(&str, &str)> {
        let containers = self.0["spec"]["containers"].as_array()?.iter();
        let containers: Vec<(&str, &str)> = containers
            .filter_map(|of| Some((of["name"].as_str()?, of["image"].as_str()?)))
            .collect();
        let words = [program, &program.replace('_', "-")];
        let named =
            containers.iter().find(|(_, image)| words.iter().any(|word| image.contains(word)));
        let found = named.or(containers.first().filter(|_| containers.len() == 1))?;
        (is_plain(found.0, "-") && is_plain(found.1, "-._/:@")).then_some(*found)
    }
}

async fn fetch_pod(endpoint: &Endpoint) -> Option<Pod> {
    let answer = endpoint.get("application/json", "identity").await.ok()?;
    let body = Limited::new(answer.into_body(), MAX_POD).collect().await.ok()?;
    let pod: Value = serde_json::from_slice(&body.to_bytes()).ok()?;
    pod["spec"]["containers"].is_array().then_some(Pod(pod))
}

/// Returns whether a text has only letters, digits and some further characters, so that a shell takes it
/// for one word.
fn is_plain(text: &str, more: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || more.contains(c);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(fits)
}

fn commands(place: &Place, pod: Option<&Pod>, line: &CommandLine) -> Commands {
    let program = line.program();
    let (chart, repository, container) = match &line.original {
        Original::KubeStateMetrics(_) => (
            "kube-state-metrics",
            "image.registry=REGISTRY,image.repository=kstatd/kube-state-metrics",
            program,
        ),
        Original::StatsdExporter(_) => (
            "prometheus-statsd-exporter",
            "image.repository=REGISTRY/kstatd/statsd-exporter",
            "statsd-exporter",
        ),
    };
    let namespace = place.namespace.as_deref().unwrap_or("NAMESPACE");
    let of_place = place.workload.as_deref();
    let guessed = of_place.unwrap_or(if place.pod.is_some() { "WORKLOAD" } else { container });
    let workload = pod.and_then(Pod::workload).unwrap_or_else(|| format!("deployment/{guessed}"));
    let found = pod.and_then(|pod| pod.container(program));
    let name = found.map_or(container, |(name, _)| name);
    let image = format!("REGISTRY/kstatd/{container}:{VERSION}");
    let set = format!("kubectl set image -n {namespace} {workload} {name}=");
    let undo = match found {
        Some((_, image)) => format!("{set}{image}"),
        None => format!("kubectl rollout undo -n {namespace} {workload}"),
    };
    let release = pod.filter(|pod| pod.label("app.kubernetes.io/managed-by") == Some("Helm"));
    let release = release.and_then(|pod| pod.label("app.kubernetes.io/instance"));
    // The labels of a pod do not tell whether its chart is that of the release or a dependency of it, as in
    // kube-prometheus-stack. The upgrade to another chart would delete everything else that the release has installed.
    let helm = |release: &str| {
        let condition =
            format!("only if `helm list -n {namespace}` shows the chart {chart} for {release}");
        let upgrade = format!(
            "helm upgrade {release} prometheus-community/{chart} -n {namespace} --reuse-values --set {repository},image.tag={VERSION}  # {condition}"
        );
        (upgrade, format!("helm rollback {release} -n {namespace}  # after that upgrade"))
    };
    let by_kubectl = (set + &image, undo);
    let pairs = match (release, pod) {
        (Some(release), _) => vec![by_kubectl, helm(release)],
        (None, Some(_)) => vec![by_kubectl],
        (None, None) => vec![by_kubectl, helm("RELEASE")],
    };
    let (swap, roll_back) = pairs.into_iter().unzip();
    Commands { swap, roll_back }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::CommandError;

    fn line(words: &[&str]) -> CommandLine {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        CommandLine::parse(&words).expect("flags")
    }

    fn of_pod(json: &str) -> Commands {
        let pod = Pod(serde_json::from_str(json).expect("a pod"));
        let place =
            Place { namespace: Some("m".into()), pod: None, workload: Some("ksm-5d4-x".into()) };
        commands(&place, Some(&pod), &line(&[]))
    }

    #[test]
    fn commands_name_the_workload_of_the_pod() {
        let known = of_pod(
            r#"{"metadata": {"labels": {"pod-template-hash": "5d4"}, "ownerReferences": [{"kind": "ReplicaSet", "name": "ksm-5d4"}]},
                "spec": {"containers": [{"name": "proxy", "image": "p"}, {"name": "main", "image": "r/kube-state-metrics:v2.20.0"}]}}"#,
        );
        let set = "kubectl set image -n m deployment/ksm main=";
        assert_eq!(known.swap, [format!("{set}REGISTRY/kstatd/kube-state-metrics:{VERSION}")]);
        assert_eq!(known.roll_back, [format!("{set}r/kube-state-metrics:v2.20.0")]);
        let helm = of_pod(
            r#"{"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "r"}}, "spec": {"containers": []}}"#,
        );
        assert_eq!(
            helm.roll_back,
            [
                "kubectl rollout undo -n m deployment/ksm-5d4-x",
                "helm rollback r -n m  # after that upgrade"
            ]
        );
        // The release may be of another chart, of which this one is a dependency.
        assert!(helm.swap[0].starts_with("kubectl set image -n m "), "{helm:?}");
        let condition = "# only if `helm list -n m` shows the chart kube-state-metrics for r";
        assert!(helm.swap[1].ends_with(condition), "{helm:?}");
        let hostile = of_pod(
            r#"{"metadata": {"ownerReferences": [{"kind": "X", "name": "$(reboot)"}]}, "spec": {"containers": [{"name": "c", "image": ";reboot"}]}}"#,
        );
        assert!(!format!("{hostile:?}").contains("reboot"), "{hostile:?}");
        let place = Place { namespace: None, pod: None, workload: None };
        let unknown = commands(&place, None, &line(&["statsd_exporter"]));
        assert_eq!(
            unknown.roll_back[0],
            "kubectl rollout undo -n NAMESPACE deployment/statsd-exporter"
        );
        assert!(
            unknown.swap[1].contains("prometheus-community/prometheus-statsd-exporter"),
            "{unknown:?}"
        );
    }

    #[test]
    fn addresses() {
        let options = ClientOptions {
            apiserver: Some("http://127.0.0.1:1".to_owned()),
            user_agent: "test/1".to_owned(),
            ..ClientOptions::default()
        };
        let target = |address: &str, words: &[&str]| {
            let target = Target::new(address, None, &Access::default(), &options, &line(words))?;
            Ok::<_, CommandError>(
                [Some(target.metrics), target.telemetry]
                    .map(|of| of.map(|of| of.target().to_owned())),
            )
        };
        let proxied = |port: u16| Some(format!("/api/v1/namespaces/a/pods/b:{port}/proxy/metrics"));
        assert_eq!(target("a/b", &[]), Ok([proxied(8080), proxied(8081)]));
        assert_eq!(
            target("a/b", &["--port=1", "--telemetry-port=2"]),
            Ok([proxied(1), proxied(2)])
        );
        assert_eq!(target("a/b", &["statsd_exporter"]), Ok([proxied(9102), proxied(9102)]));
        let service = Some("/api/v1/namespaces/a/services/https:b:8080/proxy/metrics".to_owned());
        assert_eq!(target("a/svc/b", &["--tls-config=f"]).expect("valid")[0], service);
        assert_eq!(target("http://a", &[]), Ok([Some("/metrics".to_owned()), None]));
        for address in ["a", "a/b/c", "a/../b", "a/b?c", "/b", ""] {
            assert!(target(address, &[]).is_err(), "{address}");
        }
    }
}
