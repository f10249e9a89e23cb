//! The ports of an exporter's pods and the paths that kstatd serves on them.

use std::sync::Arc;

use serde_json::Value;

use super::configuration::Settings;
use super::workload::{Workload, items};
use crate::cli::config::{Config, Name};
use crate::exposition::Source;
use crate::server::health::Checks;
use crate::server::listen::ListenAddress;
use crate::server::readiness::Readiness;
use crate::server::router::Router;
use crate::server::routes::native::MetricsEndpoint;
use crate::server::routes::{kube_state_metrics, native, statsd_exporter, telemetry};
use crate::status::Board;
use crate::telemetry::scrapes::ScrapeLog;
use crate::telemetry::{HttpMetrics, Recorder};
use crate::tools::Result;

/// A port of a pod.
pub(crate) enum Port {
    /// An HTTP listener of the exporter; the place in [`Listeners::routers`].
    Http(usize),
    /// A StatsD listener of the exporter.
    Statsd,
    /// A port of another container.
    Sidecar,
}

/// The ports of a pod.
pub(crate) struct Listeners<'o> {
    routers: Vec<(u16, Router)>,
    statsd: Vec<(&'static str, u16)>,
    containers: Vec<&'o Value>,
    own: &'o Value,
}

impl<'o> Listeners<'o> {
    pub(crate) fn new(workload: &Workload<'o>, settings: &Settings) -> Self {
        let port = |address: &str| ListenAddress::parse(address).ok().map(|address| address.port);
        let statsd = settings.statsd.iter().flat_map(|args| {
            let addresses = [("TCP", &args.listen_tcp), ("UDP", &args.listen_udp)];
            addresses.map(|(protocol, address)| Some((protocol, port(address)?)))
        });
        Self {
            routers: routers(&settings.config),
            statsd: statsd.flatten().collect(),
            containers: items(&workload.pod()["containers"]).collect(),
            own: workload.container,
        }
    }

    /// Returns the port that a name or a number refers to.
    ///
    /// # Errors
    /// There is no such port.
    pub(crate) fn resolve(&self, reference: &Value, protocol: &str) -> Result<(u16, Port)> {
        let declared = |container: &&'o Value| {
            let found = items(&container["ports"]).find(|port| {
                let is_protocol = port["protocol"].as_str().unwrap_or("TCP") == protocol;
                is_protocol && (port["name"] == *reference || port["containerPort"] == *reference)
            })?;
            Some((*container, u16::try_from(found["containerPort"].as_u64()?).ok()?))
        };
        let found = self.containers.iter().find_map(declared);
        let number = reference.as_u64().and_then(|number| u16::try_from(number).ok());
        let number = number.or(found.map(|(_, number)| number));
        let shown = reference.as_str().map_or_else(|| reference.to_string(), str::to_owned);
        let number = number.ok_or_else(|| format!("no container has a {protocol} port {shown}"))?;
        if protocol == "TCP"
            && let Some(at) = self.routers.iter().position(|(port, _)| *port == number)
        {
            return Ok((number, Port::Http(at)));
        }
        if self.statsd.contains(&(protocol, number)) {
            return Ok((number, Port::Statsd));
        }
        let is_of_sidecar = match found {
            Some((container, _)) => !std::ptr::eq(container, self.own),
            // Sidecars need not declare their ports.
            None => self.containers.len() > 1,
        };
        if is_of_sidecar {
            return Ok((number, Port::Sidecar));
        }
        Err(format!("the exporter does not listen on {protocol} port {number}").into())
    }

    /// Returns the port of a probe, whose name must be one of the same container.
    ///
    /// # Errors
    /// There is no such port.
    pub(crate) fn resolve_probe(&self, reference: &Value) -> Result<(u16, Port)> {
        let mut own = items(&self.own["ports"]);
        match reference.as_str() {
            Some(name) if !own.any(|port| port["name"] == name) => {
                Err(format!("the container has no port {name}").into())
            }
            _ => self.resolve(reference, "TCP"),
        }
    }

    /// Returns whether kstatd answers a path of a port; that of a sidecar is not known.
    pub(crate) fn serves(&self, port: &Port, path: &str) -> bool {
        match port {
            Port::Http(at) => self.routers.get(*at).is_some_and(|(_, router)| router.serves(path)),
            Port::Statsd => false,
            Port::Sidecar => true,
        }
    }
}

/// Builds the routes that kstatd has with this configuration, by port.
fn routers(config: &Config) -> Vec<(u16, Router)> {
    let (own, http, checks) = (Recorder::new().finish(), HttpMetrics::default(), Checks::default());
    let board = Arc::new(Board::new("", ScrapeLog::default(), Vec::new()));
    let source: Arc<dyn Source> = Arc::new(own.clone());
    let main = match config.name {
        Name::KubeStateMetrics => {
            kube_state_metrics::router(Vec::new(), &[], false, None, &checks, &board, &http)
        }
        Name::StatsdExporter => {
            let path = config.statsd.as_ref().map_or("/metrics", |args| &args.web_telemetry_path);
            statsd_exporter::router(Vec::new(), source, &[], path, None, &board, &http)
        }
        Name::Kstatd | Name::Node => {
            let endpoint = |path| MetricsEndpoint {
                path,
                about: "",
                source: Arc::clone(&source),
                protobuf: true,
            };
            let endpoints = ["/metrics/kubernetes", "/metrics/statsd"].map(endpoint);
            let readiness = Readiness::default();
            native::router(&endpoints, &[], false, readiness, &checks, &board, &http)
        }
    };
    let native = config.name == Name::Kstatd;
    let telemetry = config.telemetry.as_ref().map(|listener| {
        (listener.address.port, telemetry::router(&own, "", native, None, &checks, &board))
    });
    [(config.main.address.port, main)].into_iter().chain(telemetry).collect()
}
