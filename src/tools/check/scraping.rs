//! Everything that refers to the ports and paths of an exporter: probes, Services, monitors and annotations.

use std::collections::BTreeSet;

use serde_json::Value;

use super::inventory::{Inventory, MONITORING, is_same};
use super::listeners::{Listeners, Port};
use super::report::{Outcome, Section};
use super::workload::{Workload, items, texts};
use crate::tools::Result;
use crate::tools::manifests::Manifest;

const PAGE: &str = "docs/migration.md#swap";
const MONITOR_HINT: &str = "correct the port or path of the monitor";

/// The port that is reached through a Service; `None` if the Service's own port has no target, which was reported with it.
type Reached = Option<Result<u16>>;

/// Checks probes, hooks, Services, monitors and annotations. Also returns the values of the label `job` that Prometheus
/// gives the targets; none if the objects do not tell all of them.
pub(crate) fn check(
    workload: &Workload<'_>,
    inventory: &Inventory,
    listeners: &Listeners<'_>,
) -> (Section, BTreeSet<String>) {
    let section = Section::new(format!("{}: ports and probes", workload.title()));
    let mut scraping = Scraping { workload, listeners, section };
    scraping.probes();
    let jobs = scraping.targets(inventory);
    (scraping.section, jobs)
}

struct Scraping<'c> {
    workload: &'c Workload<'c>,
    listeners: &'c Listeners<'c>,
    section: Section,
}

impl<'c> Scraping<'c> {
    /// Checks the probes of the container and the hooks that run in it.
    fn probes(&mut self) {
        let container = self.workload.container;
        for name in ["startupProbe", "livenessProbe", "readinessProbe"] {
            let probe = &container[name];
            let found = if let Some(get) = probe.get("httpGet") {
                let path = get["path"].as_str().unwrap_or("/");
                let port = self.listeners.resolve_probe(&get["port"]);
                port.and_then(|port| self.served(port, path))
                    .map(|port| format!("GET {path} on port {port}"))
            } else if let Some(socket) = probe.get("tcpSocket") {
                let port = self.listeners.resolve_probe(&socket["port"]);
                port.map(|(port, _)| format!("TCP port {port}"))
            } else if probe.get("exec").is_some() || probe.get("grpc").is_some() {
                Err("kstatd's image has no commands to execute, and kstatd does not serve gRPC"
                    .into())
            } else {
                continue;
            };
            let hint = "correct the probe, or the pod does not become ready or is restarted";
            self.add(name, found, hint);
        }
        for (name, hook) in container["lifecycle"].as_object().into_iter().flatten() {
            if hook.get("exec").is_some() {
                let found = Err("kstatd's image has no commands to execute".into());
                self.add(name, found, "remove the hook");
            }
        }
    }

    /// Resolves a port and checks that kstatd answers the path there.
    fn resolved(&self, port: &Value, path: &str) -> Result<u16> {
        self.served(self.listeners.resolve(port, "TCP")?, path)
    }

    /// Checks that kstatd answers the path on a port.
    fn served(&self, (number, port): (u16, Port), path: &str) -> Result<u16> {
        let path = path.split('?').next().unwrap_or(path);
        let place = if path.starts_with('/') { path } else { &format!("/{path}") };
        match self.listeners.serves(&port, place) {
            true => Ok(number),
            false => Err(format!("kstatd does not serve {path:?} on port {number}").into()),
        }
    }

    fn add(&mut self, subject: &str, found: Result<String>, hint: &str) {
        match found {
            Ok(text) => self.section.ok(format!("{subject}: {text}")),
            Err(error) => self.fail(format!("{subject}: {error}"), hint),
        }
    }

    fn fail(&mut self, text: String, hint: &str) {
        self.section.add(Outcome::Failed, text, hint, PAGE);
    }

    /// Returns the Services that select the pods of the workload.
    fn services<'i>(&self, inventory: &'i Inventory) -> Vec<&'i Manifest> {
        let labels = self.labels();
        let selects = |service: &&Manifest| {
            let selector = service.object["spec"]["selector"].as_object();
            is_same(self.workload.namespace(), service.name().0)
                && selector.is_some_and(|terms| {
                    !terms.is_empty() && terms.iter().all(|(name, value)| labels[name] == *value)
                })
        };
        inventory.of("", "Service").filter(selects).collect()
    }

    /// Returns the labels of the workload's pods.
    fn labels(&self) -> &'c Value {
        &self.workload.template()["metadata"]["labels"]
    }

    /// Checks the ports of Services, monitors and annotations. Returns the values of the label `job`.
    fn targets(&mut self, inventory: &Inventory) -> BTreeSet<String> {
        let services = self.services(inventory);
        for service in &services {
            let name = format!("Service {}", service.name().1.unwrap_or_default());
            for port in items(&service.object["spec"]["ports"]) {
                let protocol = port["protocol"].as_str().unwrap_or("TCP");
                let number = &port["port"];
                let found = self.listeners.resolve(target(port), protocol).map(|(target, _)| {
                    format!("{protocol} {number} reaches port {target} of the pods")
                });
                let subject = match port["name"].as_str() {
                    Some(port) => format!("{name}, port {port}"),
                    None => format!("{name}, port {number}"),
                };
                let hint =
                    "correct targetPort, the name of the container's port, or the exporter's flag";
                self.add(&subject, found, hint);
            }
            self.annotations(&name, &service.object["metadata"]);
        }
        self.annotations("pod template", &self.workload.template()["metadata"]);
        let mut jobs = Jobs::default();
        let before = self.section.len();
        for monitor in inventory.of(MONITORING, "ServiceMonitor") {
            self.service_monitor(monitor, &services, &mut jobs);
        }
        for monitor in inventory.of(MONITORING, "PodMonitor") {
            self.pod_monitor(monitor, &mut jobs);
        }
        for config in inventory.of(MONITORING, "ScrapeConfig") {
            self.scrape_config(config, &services, &mut jobs);
        }
        if self.section.len() == before {
            self.section.ok("no ServiceMonitor, PodMonitor or ScrapeConfig selects it; scrape configurations of Prometheus itself are not read");
        }
        if jobs.are_unknown {
            self.section.ok("the label job is set by relabelling from other labels: rules and dashboards are not compared with it");
        }
        if jobs.are_unknown { BTreeSet::new() } else { jobs.names }
    }

    /// Checks the endpoints of a PodMonitor and adds their values of `job`.
    fn pod_monitor(&mut self, monitor: &Manifest, jobs: &mut Jobs) {
        let (spec, labels) = (&monitor.object["spec"], self.labels());
        if !self.is_reached_by(monitor) || !selects(&spec["selector"], labels) {
            return;
        }
        let job = spec["jobLabel"].as_str().and_then(|label| labels[label].as_str());
        let (namespace, name) = monitor.name();
        let default = format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default());
        let job = job.unwrap_or(&default);
        for endpoint in items(&spec["podMetricsEndpoints"]) {
            jobs.add(endpoint, job);
            let port = ["port", "portNumber", "targetPort"].map(|field| &endpoint[field]);
            let port = port.into_iter().find(|port| !port.is_null()).unwrap_or(&Value::Null);
            self.scraped(monitor, path(endpoint), self.resolved(port, path(endpoint)));
        }
    }

    /// Adds the result for an endpoint of a monitor.
    fn scraped(&mut self, monitor: &Manifest, path: &str, found: Result<u16>) {
        let found = found.map(|port| format!("scrapes {path} on port {port}"));
        self.add(&title(monitor), found, MONITOR_HINT);
    }

    /// Returns true if a monitor looks for targets in the namespace of the workload.
    fn is_reached_by(&self, monitor: &Manifest) -> bool {
        let selector = &monitor.object["spec"]["namespaceSelector"];
        let (names, namespace) = (texts(&selector["matchNames"]), self.workload.namespace());
        if selector["any"] == true {
            true
        } else if names.is_empty() {
            is_same(monitor.name().0, namespace)
        } else {
            namespace.is_none_or(|namespace| names.iter().any(|name| name == namespace))
        }
    }

    /// Checks the endpoints of a ServiceMonitor and adds their values of `job`.
    fn service_monitor(&mut self, monitor: &Manifest, services: &[&Manifest], jobs: &mut Jobs) {
        let spec = &monitor.object["spec"];
        if !self.is_reached_by(monitor) {
            return;
        }
        let is_selected = |service: &&&Manifest| {
            selects(&spec["selector"], &service.object["metadata"]["labels"])
        };
        let selected: Vec<&&Manifest> = services.iter().filter(is_selected).collect();
        if selected.is_empty() {
            // Meant for this exporter: it asks for its name and instance, or has its name.
            let (wanted, labels) = (&spec["selector"]["matchLabels"], self.labels());
            let is_meant = monitor.name().1 == self.workload.manifest.name().1
                || ["app.kubernetes.io/instance", "app"]
                    .iter()
                    .any(|label| !wanted[label].is_null() && wanted[label] == labels[label])
                    && wanted["app.kubernetes.io/name"] == labels["app.kubernetes.io/name"];
            if is_meant {
                let text = format!("{}: selects no Service of the exporter", title(monitor));
                self.fail(text, "correct its selector or the labels of the Service");
            }
        }
        for endpoint in items(&spec["endpoints"]) {
            for service in &selected {
                let label = spec["jobLabel"].as_str();
                let label =
                    label.and_then(|label| service.object["metadata"]["labels"][label].as_str());
                label.or(service.name().1).into_iter().for_each(|job| jobs.add(endpoint, job));
                let found = match (&endpoint["port"], &endpoint["targetPort"]) {
                    (Value::Null, target) => Some(self.resolved(target, path(endpoint))),
                    (port, _) => self.through(service, "name", port, path(endpoint)),
                };
                if let Some(found) = found {
                    self.scraped(monitor, path(endpoint), found);
                }
            }
        }
    }

    /// Checks that kstatd answers the path behind the port of a Service with this value in a field.
    fn through(&self, service: &Manifest, field: &str, wanted: &Value, path: &str) -> Reached {
        match items(&service.object["spec"]["ports"]).find(|one| one[field] == *wanted) {
            Some(port) if self.listeners.resolve(target(port), "TCP").is_err() => None,
            Some(port) => Some(self.resolved(target(port), path)),
            None => {
                let (name, wanted) = (service.name().1.unwrap_or_default(), wanted.to_string());
                let wanted = wanted.trim_matches('"');
                Some(Err(format!("the Service {name} has no port {wanted}").into()))
            }
        }
    }

    /// Checks the static targets of a ScrapeConfig that name a Service of the exporter, and adds their value of `job`.
    fn scrape_config(&mut self, config: &Manifest, services: &[&Manifest], jobs: &mut Jobs) {
        let (spec, name) = (&config.object["spec"], title(config));
        let path = spec["metricsPath"].as_str().unwrap_or("/metrics");
        let mut is_scraped = false;
        for target in items(&spec["staticConfigs"]).flat_map(|config| texts(&config["targets"])) {
            let (host, port) = target.rsplit_once(':').unwrap_or((&target, "80"));
            let port = number_or_name(port);
            let mut labels = host.split('.');
            let (host, namespace) = (labels.next(), labels.next().or(config.name().0));
            let is_host =
                |one: &&&Manifest| one.name().1 == host && is_same(one.name().0, namespace);
            let Some(service) = services.iter().find(is_host) else { continue };
            is_scraped = true;
            let found = match service.object["spec"]["clusterIP"] == "None" {
                true => Some(self.resolved(&port, path)),
                false => self.through(service, "port", &port, path),
            };
            let Some(found) = found else { continue };
            let found = found.map(|port| format!("{target} scrapes {path} on port {port}"));
            self.add(&name, found, "correct the port or path of the ScrapeConfig");
        }
        let (namespace, own_name) = config.name();
        let is_meant = own_name == self.workload.manifest.name().1
            && items(&spec["staticConfigs"]).next().is_some();
        if is_meant && !is_scraped && is_same(namespace, self.workload.namespace()) {
            let text = format!("{name}: names no Service of the exporter");
            self.fail(text, "correct its static targets");
        }
        let default = || {
            let (namespace, name) = (namespace.unwrap_or_default(), own_name.unwrap_or_default());
            format!("scrapeConfig/{namespace}/{name}")
        };
        if is_scraped {
            jobs.add(spec, &spec["jobName"].as_str().map_or_else(default, str::to_owned));
        }
    }

    /// Checks the annotations `prometheus.io/port` and `prometheus.io/path`.
    fn annotations(&mut self, name: &str, metadata: &Value) {
        let annotation = |name: &str| metadata["annotations"][name].as_str();
        if annotation("prometheus.io/scrape") != Some("true") {
            return;
        }
        let path = annotation("prometheus.io/path").unwrap_or("/metrics");
        let found = match annotation("prometheus.io/port") {
            None => Ok("prometheus.io/scrape".to_owned()),
            Some(port) => {
                let found = self.resolved(&number_or_name(port), path);
                found.map(|port| format!("prometheus.io/port {port} serves {path}"))
            }
        };
        self.add(name, found, "correct the annotation");
    }
}

/// The values of the label `job` of the exporter's targets.
#[derive(Default)]
struct Jobs {
    names: BTreeSet<String>,
    /// Some are computed from labels that the objects do not tell.
    are_unknown: bool,
}

impl Jobs {
    /// Adds the value of a target, which is `job` unless its endpoint relabels it.
    fn add(&mut self, endpoint: &Value, job: &str) {
        let mut job = Some(job.to_owned());
        let rules = ["relabelings", "metricRelabelings"].into_iter();
        for rule in rules.flat_map(|field| items(&endpoint[field])) {
            let action = rule["action"].as_str().unwrap_or("replace").to_ascii_lowercase();
            let is_filter = matches!(&*action, "keepequal" | "dropequal");
            if rule["targetLabel"] != "job" || is_filter {
                continue;
            }
            let replacement = rule["replacement"].as_str().filter(|text| !text.contains('$'));
            let has_input =
                items(&rule["sourceLabels"]).next().is_some() || !rule["regex"].is_null();
            job = replacement.filter(|_| action == "replace" && !has_input).map(str::to_owned);
        }
        self.are_unknown |= job.is_none();
        self.names.extend(job);
    }
}

/// Returns true if labels have all the values of a selector.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    let exact = selector["matchLabels"].as_object();
    exact.into_iter().flatten().all(|(name, value)| labels[name] == *value)
        && items(&selector["matchExpressions"]).all(|expression| {
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

fn number_or_name(port: &str) -> Value {
    port.parse::<u16>().map_or_else(|_| port.into(), Value::from)
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

fn title(monitor: &Manifest) -> String {
    format!("{} {}", monitor.kind, monitor.name().1.unwrap_or_default())
}
