//! Custom resources: matches the configuration with the definitions in the cluster.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::cli::config::KubeConfig;
use crate::kube::WatchedResource;
use crate::kube::discovery::Discovery;
use crate::kube::value_errors::ValueErrorLog;
use crate::resources::custom::resolve;
use crate::telemetry::KubeMetrics;
use crate::util::waiting;

/// The state needed to resolve custom resources.
pub(crate) struct CustomState {
    discovery: Arc<Discovery>,
    /// Changes after the cluster's definitions have settled, which debounces them.
    settled: watch::Receiver<u64>,
    errors: Arc<ValueErrorLog>,
    metrics: KubeMetrics,
    /// The last logged resolution.
    last_logged: String,
    /// The number of changes of the definitions before the last resolution.
    resolved: u64,
}

/// Debounce time for definitions. A new one is served shortly after it appears.
pub(super) const DEBOUNCE: Duration = Duration::from_millis(500);

impl CustomState {
    /// Creates the state, if the configuration has custom resources.
    pub(crate) fn new(config: &KubeConfig, metrics: &KubeMetrics) -> Option<Self> {
        let custom = config.custom.as_ref()?;
        let discovery = Discovery::new(metrics);
        let mut changes = discovery.changes();
        let (sender, settled) = watch::channel(0);
        tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                tokio::time::sleep(DEBOUNCE).await;
                sender.send_modify(|changes| *changes += 1);
            }
        });
        let errors = Arc::new(ValueErrorLog::new(metrics.clone(), custom.verbosity));
        let metrics = metrics.clone();
        let last_logged = String::new();
        Some(Self { discovery, settled, errors, metrics, last_logged, resolved: 0 })
    }

    /// Returns the resources to watch: the definitions and every configured custom resource that is defined.
    pub(crate) fn watched(&mut self, config: &KubeConfig) -> Vec<WatchedResource> {
        self.resolved = self.discovery.change_count();
        let mut watched = vec![self.discovery.watched()];
        let Some(custom) = &config.custom else { return watched };
        let Some(entries) = &custom.config else { return watched };
        let options = custom.resolve_options(Arc::clone(&self.errors) as _);
        let served = custom.served(self.discovery.served());
        self.metrics.custom.lock().unserved = entries.unserved(&served);
        let outcome = match resolve(entries, &served, &options) {
            Ok(resolution) => {
                let names: Vec<String> = resolution
                    .resources
                    .iter()
                    .map(|resolved| resolved.definition.resource_name())
                    .collect();
                let required = resolution.resources.iter();
                let required =
                    required.map(|one| (one.definition.dotted_name(), one.required.clone()));
                self.metrics.custom.lock().require(required.collect());
                watched.extend(resolution.resources.into_iter().map(WatchedResource::custom));
                let mut summary = format!("Custom resources with metrics: {names:?}");
                for (what, list) in [
                    ("a later entry replaces an earlier one of", &resolution.replaced),
                    ("ignoring entries without a group:", &resolution.groupless),
                ] {
                    if !list.is_empty() {
                        summary.push_str(&format!("; {what} {list:?}"));
                    }
                }
                Ok(summary)
            }
            Err(error) => Err(format!("No custom resource metrics: {error}")),
        };
        let (Ok(text) | Err(text)) = &outcome;
        if *text != self.last_logged {
            match &outcome {
                Ok(text) => tracing::info!("{text}"),
                Err(text) => tracing::error!("{text}"),
            }
            self.last_logged.clone_from(text);
        }
        watched
    }

    /// Returns a function that tells whether definitions have changed since the resources to watch were determined, so that others will
    /// follow.
    pub(crate) fn news(&self) -> impl Fn() -> bool + Send + use<> {
        let (discovery, resolved) = (Arc::clone(&self.discovery), self.resolved);
        move || discovery.change_count() != resolved
    }

    /// Completes when the cluster's definitions have changed and settled; cancel-safe.
    pub(crate) async fn changed(&mut self) {
        waiting::changed(&mut self.settled).await;
    }
}
