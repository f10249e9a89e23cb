//! Everything that refers to the ports and paths of an exporter: probes, Services, monitors and annotations.

use std::collections::BTreeSet;

use serde_json::Value;

use super::inventory::{Inventory, MONITORING, is_same};
use super::listeners::{Listeners, Port};
use super::report::{Outcome, Section};
use super::workload::{Workload, texts};
use crate::tools::CommandError;
use crate::tools::manifests::Manifest;

const PAGE: &str = "docs/migration.md#swap";

/// Checks the probes of the container and the hooks that run in it.
pub(crate) fn probes(workload: &Workload<'_>, listeners: &Listeners<'_>, section: &mut Section) {
    for name in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let probe = &workload.container[name];
        let found = if let Some(get) = probe.get("httpGet") {
            let path = get["path"].as_str().unwrap_or("/");
            listeners
                .resolve_probe(&get["port"])
                .and_then(|port| served(listeners, port, path))
                .map(|port| format!("GET {path} on port {port}"))
        } else if let Some(socket) = probe.get("tcpSocket") {
            let port = listeners.resolve_probe(&socket["port"]);
            port.map(|(port, _)| format!("TCP port {port}"))
        } else if probe.get("exec").is_some() || probe.get("grpc").is_some() {
            Err("kstatd's image has no commands to execute, and kstatd does not serve gRPC".into())
        } else {
            continue;
        };
        let hint = "correct the probe, or the pod does not become ready or is restarted";
        add(section, name, found, hint);
    }
    for (name, hook) in workload.container["lifecycle"].as_object().into_iter().flatten() {
        if hook.get("exec").is_some() {
            let found = Err("kstatd's image has no commands to execute".into());
            add(section, name, found, "remove the hook");
        }
    }
}

/// Resolves a port and checks that kstatd answers the path there.
fn resolved(listeners: &Listeners<'_>, port: &Value, path: &str) -> Result<u16, CommandError> {
    served(listeners, listeners.resolve(port, "TCP")?, path)
}

/// Checks that kstatd answers the path on a port.
fn served(
    listeners: &Listeners<'_>,
    (number, port): (u16, Port),
    path: &str,
) -> Result<u16, CommandError> {
    let path = path.split('?').next().unwrap_or(path);
    let place = if path.starts_with('/') { path } else { &format!("/{path}") };
    match listeners.serves(&port, place) {
        true => Ok(number),
        false => Err(format!("kstatd does not serve {path:?} on port {number}").into()),
    }
}

fn add(section: &mut Section, subject: &str, found: Result<String, CommandError>, hint: &str) {
    match found {
        Ok(text) => section.ok(format!("{subject}: {text}")),
        Err(error) => section.add(Outcome::Failed, format!("{subject}: {error}"), hint, PAGE),
    }
}

/// Returns true if labels have all the values of a selector.
fn selects(selector: &Value, labels: &Value) -> bool {
    let exact = selector.get("matchLabels").unwrap_or(&Value::Null).as_object();
    exact.into_iter().flatten().all(|(name, value)| labels[name] == *value)
        && expressions(selector).iter().all(|expression| {
            let value = expression["key"].as_str().map_or(&Value::Null, |key| &labels[key]);
            let is_listed = value.as_str().is_some_and(|value| {
                texts(&expression["values"]).iter().any(|listed| listed == value)
            });
            match expression["operator"].as_str() {
                Some("In") => is_listed,
                Some("NotIn") => !is_listed,
                Some("Exists") => !value.is_null(),
                Some("DoesNotExist") => value.is_null(),
                _ => false,
            }
        })
}

fn expressions(selector: &Value) -> &[Value] {
    selector["matchExpressions"].as_array().map_or(&[], Vec::as_slice)
}

/// Returns the Services that select the pods of a workload.
fn services<'i>(workload: &Workload<'_>, inventory: &'i Inventory) -> Vec<&'i Manifest> {
    let labels = &workload.template()["metadata"]["labels"];
    let selects = |service: &&Manifest| {
        let selector = service.object["spec"]["selector"].as_object();
        is_same(workload.namespace(), service.name().0)
            && selector.is_some_and(|terms| {
                !terms.is_empty() && terms.iter().all(|(name, value)| labels[name] == *value)
            })
    };
    inventory.of("", "Service").filter(selects).collect()
}

/// Checks the ports of Services, monitors and annotations. Returns the values of the label `job` that Prometheus gives
/// the targets, as far as the objects tell.
pub(crate) fn targets(
    workload: &Workload<'_>,
    inventory: &Inventory,
    listeners: &Listeners<'_>,
    section: &mut Section,
) -> BTreeSet<String> {
    let services = services(workload, inventory);
    for service in &services {
        let name = format!("Service {}", service.name().1.unwrap_or_default());
        for port in service.object["spec"]["ports"].as_array().into_iter().flatten() {
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            let found = listeners.resolve(target(port), protocol);
            let number = &port["port"];
            let found = found.map(|(target, _)| {
                format!("{protocol} {number} reaches port {target} of the pods")
            });
            let subject = match port["name"].as_str() {
                Some(port) => format!("{name}, port {port}"),
                None => format!("{name}, port {number}"),
            };
            let hint =
                "correct targetPort, the name of the container's port, or the exporter's flag";
            add(section, &subject, found, hint);
        }
        annotations(&name, &service.object["metadata"], listeners, section);
    }
    annotations("pod template", &workload.template()["metadata"], listeners, section);
    let mut jobs = BTreeSet::new();
    let before = section.len();
    for monitor in inventory.of(MONITORING, "ServiceMonitor") {
        jobs.extend(service_monitor(workload, monitor, &services, listeners, section));
    }
    let labels = &workload.template()["metadata"]["labels"];
    for monitor in inventory.of(MONITORING, "PodMonitor") {
        let spec = &monitor.object["spec"];
        if !reaches(monitor, workload) || !selects(&spec["selector"], labels) {
            continue;
        }
        let name = monitor_name(monitor);
        for endpoint in spec["podMetricsEndpoints"].as_array().into_iter().flatten() {
            let port = ["port", "portNumber", "targetPort"].map(|field| &endpoint[field]);
            let port = port.into_iter().find(|port| !port.is_null()).unwrap_or(&Value::Null);
            let found = resolved(listeners, port, path(endpoint));
            let found = found.map(|port| format!("scrapes {} on port {port}", path(endpoint)));
            add(section, &name, found, "correct the port or path of the monitor");
        }
        let job = spec["jobLabel"].as_str().and_then(|label| labels[label].as_str());
        let default = || {
            let (namespace, name) = monitor.name();
            format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default())
        };
        jobs.insert(job.map_or_else(default, str::to_owned));
    }
    for config in inventory.of(MONITORING, "ScrapeConfig") {
        jobs.extend(scrape_config(workload, config, &services, listeners, section));
    }
    if section.len() == before {
        section.ok("no ServiceMonitor, PodMonitor or ScrapeConfig selects it; scrape configurations of Prometheus itself are not read");
    }
    jobs
}

/// Returns the target of a Service's port.
fn target(port: &Value) -> &Value {
    match &port["targetPort"] {
        Value::Null => &port["port"],
        target => target,
    }
}

fn path(endpoint: &Value) -> &str {
    endpoint["path"].as_str().filter(|path| !path.is_empty()).unwrap_or("/metrics")
}

fn monitor_name(monitor: &Manifest) -> String {
    format!("{} {}", monitor.kind, monitor.name().1.unwrap_or_default())
}

/// Returns true if a monitor looks for targets in the namespace of a workload.
fn reaches(monitor: &Manifest, workload: &Workload<'_>) -> bool {
    let selector = &monitor.object["spec"]["namespaceSelector"];
    let names = texts(&selector["matchNames"]);
    if selector["any"] == true {
        true
    } else if names.is_empty() {
        is_same(monitor.name().0, workload.namespace())
    } else {
        workload.namespace().is_none_or(|namespace| names.iter().any(|name| name == namespace))
    }
}

/// Checks the endpoints of a ServiceMonitor. Returns the values of `job`.
fn service_monitor(
    workload: &Workload<'_>,
    monitor: &Manifest,
    services: &[&Manifest],
    listeners: &Listeners<'_>,
    section: &mut Section,
) -> BTreeSet<String> {
    let (spec, name) = (&monitor.object["spec"], monitor_name(monitor));
    let mut jobs = BTreeSet::new();
    if !reaches(monitor, workload) {
        return jobs;
    }
    let is_selected =
        |service: &&&Manifest| selects(&spec["selector"], &service.object["metadata"]["labels"]);
    let selected: Vec<&&Manifest> = services.iter().filter(is_selected).collect();
    if selected.is_empty() {
        // Meant for this exporter: it asks for its name and instance, or has its name.
        let labels = &workload.template()["metadata"]["labels"];
        let is_meant = monitor.name().1 == workload.manifest.name().1
            || ["app.kubernetes.io/instance", "app"].iter().any(|label| {
                let value = &spec["selector"]["matchLabels"][label];
                !value.is_null() && *value == labels[label]
            }) && spec["selector"]["matchLabels"]["app.kubernetes.io/name"]
                == labels["app.kubernetes.io/name"];
        if is_meant {
            let text = format!("{name}: selects no Service of the exporter");
            let hint = "correct its selector or the labels of the Service";
            section.add(Outcome::Failed, text, hint, PAGE);
        }
        return jobs;
    }
    for endpoint in spec["endpoints"].as_array().into_iter().flatten() {
        for service in &selected {
            let found = match (&endpoint["port"], &endpoint["targetPort"]) {
                (Value::Null, target) => Some(resolved(listeners, target, path(endpoint))),
                (port, _) => through(service, "name", port, path(endpoint), listeners),
            };
            let Some(found) = found else { continue };
            let found = found.map(|port| format!("scrapes {} on port {port}", path(endpoint)));
            add(section, &name, found, "correct the port or path of the monitor");
        }
    }
    for service in selected {
        let label = spec["jobLabel"].as_str();
        let job = label.and_then(|label| service.object["metadata"]["labels"][label].as_str());
        jobs.extend(job.or(service.name().1).map(str::to_owned));
    }
    jobs
}

/// Checks that kstatd answers the path behind the port of a Service with this value in a field. Returns `None` if the
/// port has no target, which was reported with the Service.
fn through(
    service: &Manifest,
    field: &str,
    wanted: &Value,
    path: &str,
    listeners: &Listeners<'_>,
) -> Option<Result<u16, CommandError>> {
    let mut ports = service.object["spec"]["ports"].as_array().into_iter().flatten();
    match ports.find(|one| one[field] == *wanted) {
        Some(port) if listeners.resolve(target(port), "TCP").is_err() => None,
        Some(port) => Some(resolved(listeners, target(port), path)),
        None => {
            let (name, wanted) = (service.name().1.unwrap_or_default(), wanted.to_string());
            Some(Err(format!("the Service {name} has no port {}", wanted.trim_matches('"')).into()))
        }
    }
}

/// Checks the static targets of a ScrapeConfig that name a Service of the exporter. Returns the value of `job`.
fn scrape_config(
    workload: &Workload<'_>,
    config: &Manifest,
    services: &[&Manifest],
    listeners: &Listeners<'_>,
    section: &mut Section,
) -> Option<String> {
    let (spec, name) = (&config.object["spec"], monitor_name(config));
    let path = spec["metricsPath"].as_str().unwrap_or("/metrics");
    let static_configs = spec["staticConfigs"].as_array().map_or(&[][..], Vec::as_slice);
    let mut is_scraped = false;
    for target in static_configs.iter().flat_map(|config| texts(&config["targets"])) {
        let (host, port) = target.rsplit_once(':').unwrap_or((&target, "80"));
        let port = port.parse::<u16>().map_or_else(|_| port.into(), Value::from);
        let mut labels = host.split('.');
        let (host, namespace) = (labels.next(), labels.next().or(config.name().0));
        let is_host = |one: &&&Manifest| one.name().1 == host && is_same(one.name().0, namespace);
        let Some(service) = services.iter().find(is_host) else { continue };
        is_scraped = true;
        let found = match service.object["spec"]["clusterIP"] == "None" {
            true => Some(resolved(listeners, &port, path)),
            false => through(service, "port", &port, path, listeners),
        };
        let Some(found) = found else { continue };
        let found = found.map(|port| format!("{target} scrapes {path} on port {port}"));
        add(section, &name, found, "correct the port or path of the ScrapeConfig");
    }
    let (namespace, own_name) = config.name();
    let is_meant = own_name == workload.manifest.name().1 && !static_configs.is_empty();
    if is_meant && !is_scraped && is_same(namespace, workload.namespace()) {
        let text = format!("{name}: names no Service of the exporter");
        section.add(Outcome::Failed, text, "correct its static targets", PAGE);
    }
    let default = || {
        let (namespace, name) = (namespace.unwrap_or_default(), own_name.unwrap_or_default());
        format!("scrapeConfig/{namespace}/{name}")
    };
    is_scraped.then(|| spec["jobName"].as_str().map_or_else(default, str::to_owned))
}

/// Checks the annotations `prometheus.io/port` and `prometheus.io/path`.
fn annotations(name: &str, metadata: &Value, listeners: &Listeners<'_>, section: &mut Section) {
    let annotation = |name: &str| metadata["annotations"][name].as_str();
    if annotation("prometheus.io/scrape") != Some("true") {
        return;
    }
    let path = annotation("prometheus.io/path").unwrap_or("/metrics");
    let found = match annotation("prometheus.io/port") {
        None => Ok("prometheus.io/scrape".to_owned()),
        Some(port) => {
            let number = port.parse::<u16>().map_or_else(|_| port.into(), Value::from);
            let found = resolved(listeners, &number, path);
            found.map(|port| format!("prometheus.io/port {port} serves {path}"))
        }
    };
    add(section, name, found, "correct the annotation");
}
