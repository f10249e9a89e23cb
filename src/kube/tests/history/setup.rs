//! The watched kinds, and a client of the simulated server.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::cluster::Kind;
use super::network::SimulatedNetwork;
use super::plugin::{PluginRuns, SimulatedPlugin};
use super::server::Server;
use crate::cache::{Family, MetricKind, Rendered, Schema};
use crate::kube::frame::ObjectIdentity;
use crate::kube::{ApiResource, Client, ClientOptions, PipelineConfig, Timing, WatchedResource};
use crate::resources::select::filter::FamilyFilter;
use crate::resources::select::selection::Selection;
use crate::resources::{ObjectBytes, RenderOptions, Renderer, find};
use crate::wire::view::{DecodeError, Str, decode, view};

/// The staleness limit (`--staleness-limit`).
pub(super) const STALENESS_LIMIT: Duration = Duration::from_secs(60);

view! {
    /// An object of the custom kind.
    pub struct Widget<'a> {
        metadata: ObjectIdentity<'a> = 1 "metadata",
        spec: Spec<'a> = 2 "spec",
    }

    /// The specification of a widget.
    pub struct Spec<'a> {
        state: Str<'a> = 1 "state",
    }
}

/// Renders one series per widget.
struct WidgetRenderer {
    schema: Arc<Schema>,
}

impl Renderer for WidgetRenderer {
    fn schema(&self) -> Arc<Schema> {
        Arc::clone(&self.schema)
    }

    fn render(&self, object: ObjectBytes<'_>, out: &mut Rendered) -> Result<(), DecodeError> {
        out.clear();
        let Widget { metadata, spec, .. } = decode(object)?;
        out.uid.extend_from_slice(metadata.uid.as_bytes());
        out.resource_version.push_str(&metadata.resource_version);
        out.namespace.extend_from_slice(metadata.namespace.as_bytes());
        out.series = 1;
        let (namespace, name, uid) = (&*metadata.namespace, &*metadata.name, &*metadata.uid);
        let identity = format!("{{namespace=\"{namespace}\",name=\"{name}\",uid=\"{uid}\"");
        out.identity.extend(identity.bytes());
        out.lines.extend(format!("}} {}\n", &*spec.state).bytes());
        out.ends.push(out.lines.len() as u32);
        Ok(())
    }
}

/// Returns what lists and watches a kind, and renders its objects.
pub(super) fn watched(kind: Kind) -> WatchedResource {
    watched_with(kind, 0)
}

/// The same with other options, of which `number` tells one from another. They do not change the series.
pub(super) fn watched_with(kind: Kind, number: u32) -> WatchedResource {
    if kind == Kind::Widget {
        let api = ApiResource {
            group: "example.com".to_owned(),
            version: "v1".to_owned(),
            plural: kind.plural().to_owned(),
            kind: kind.name().to_owned(),
            list_kind: String::new(),
            namespaced: true,
            protobuf: false,
            label: "widgets".to_owned(),
        };
        let name = "widget_state".to_owned();
        let family = Family { name, help: String::new(), kind: MetricKind::Gauge };
        let schema = Schema { resource: "widgets".to_owned(), families: vec![family] };
        return WatchedResource {
            api,
            renderer: Arc::new(WidgetRenderer { schema: Arc::new(schema) }),
            observers: Vec::new(),
        };
    }
    let families: &[&str] = match kind {
        Kind::Job => &["kube_job_info", "kube_job_labels"],
        Kind::ConfigMap => &["kube_configmap_labels", "kube_configmap_metadata_resource_version"],
        Kind::Node => &["kube_node_labels", "kube_node_spec_taint", "kube_node_spec_unschedulable"],
        Kind::Secret => &["kube_secret_labels", "kube_secret_type"],
        _ => &["kube_pod_labels", "kube_pod_status_phase"],
    };
    let families: Vec<String> = families.iter().map(|name| format!("^{name}$")).collect();
    let filter = FamilyFilter::new(&families, &[], &[]).expect("patterns");
    let mut keys = vec!["*".to_owned()];
    keys.extend((number > 0).then(|| format!("unused-{number}")));
    let options = RenderOptions {
        labels: Selection::new(&keys),
        families: Arc::new(filter),
        ..RenderOptions::default()
    };
    WatchedResource::built_in(find(kind.plural()).expect("a resource"), &options)
}

/// Returns the TLS configuration of the server; clients do not verify it.
pub fn tls() -> TlsAcceptor {
    static CONFIG: OnceLock<Arc<ServerConfig>> = OnceLock::new();
    let make = || {
        let certified = rcgen::generate_simple_self_signed(["api.test".to_owned()]);
        let certified = certified.expect("a certificate");
        let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let mut config = config
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)
            .expect("a pair");
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    };
    Arc::clone(CONFIG.get_or_init(make)).into()
}

pub(super) fn write_token(server: &Server, folder: &Path) {
    let number = server.token();
    // The length differs each time.
    let text = format!("token-{number}{}", " ".repeat(number as usize % 50));
    std::fs::write(folder.join("token"), text).expect("written");
}

/// Replaces the token by another one that the server rejects, too.
pub(super) fn write_wrong_token(server: &Server, folder: &Path) {
    let text = format!("another-token-{}", server.token());
    std::fs::write(folder.join("token"), text).expect("written");
}

/// Returns a client of the server, with its kubeconfig and token in `folder`. With the seed of an exec plugin, it prints the
/// token.
pub fn connect(
    server: &Arc<Server>,
    folder: &Path,
    (http2, plugin): (bool, Option<u64>),
) -> Client {
    write_token(server, folder);
    let kubeconfig = folder.join("config");
    let url = if http2 { "https://api.test:6443" } else { "http://api.test:8080" };
    let user = match plugin {
        Some(_) => "{exec: {apiVersion: client.authentication.k8s.io/v1, command: simulated}}",
        None => "{tokenFile: token}",
    };
    let text = format!(
        "clusters: [{{name: c, cluster: {{server: '{url}', insecure-skip-tls-verify: {http2}}}}}]\n\
         users: [{{name: u, user: {user}}}]\n\
         contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
         current-context: x\n",
    );
    std::fs::write(&kubeconfig, text).expect("written");
    let options = ClientOptions {
        kubeconfig: Some(kubeconfig),
        user_agent: "kstatd/test".to_owned(),
        ..ClientOptions::default()
    };
    let network = Arc::new(SimulatedNetwork(Arc::clone(server)));
    let client = Client::over(&options, network).expect("a client");
    let Some(seed) = plugin else { return client };
    server.state().plugin = PluginRuns::new(seed);
    let plugin = SimulatedPlugin { server: Arc::clone(server), file: folder.join("token") };
    client.with_plugin(Arc::new(plugin))
}

/// Returns the configuration of a pipeline that watches these kinds in these namespaces. The ledger adds Events, and
/// custom resources their kinds if these have a definition.
pub(super) fn pipeline_config(kinds: &[Kind], namespaces: &[&str]) -> PipelineConfig {
    let is_defined = kinds.contains(&Kind::Definition);
    let is_added = |kind: &Kind| match kind {
        Kind::Definition | Kind::Event | Kind::WidgetV2 => true,
        Kind::Widget => is_defined,
        _ => false,
    };
    PipelineConfig {
        resources: kinds.iter().copied().filter(|kind| !is_added(kind)).map(watched).collect(),
        namespaces: namespaces.iter().map(|&name| name.to_owned()).collect(),
        timing: Timing { staleness_limit: Some(STALENESS_LIMIT), ..Timing::default() },
        ..PipelineConfig::default()
    }
}

/// Runs a future in simulated time.
pub fn in_simulated_time<T>(seed: u64, future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("an event loop");
    fastrand::seed(seed);
    runtime.block_on(future)
}
