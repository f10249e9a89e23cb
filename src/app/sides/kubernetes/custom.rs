//! Custom resources: what the configuration asks for and what the cluster defines, brought together.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::cli::config::KubeConfig;
use crate::kube::Watched;
use crate::kube::discovery::Discovery;
use crate::kube::value_errors::ValueErrorLog;
use crate::resources::custom::resolve;
use crate::telemetry::KubeMetrics;

/// What custom resources need beside their configuration.
pub(crate) struct Custom {
    discovery: Discovery,
    /// Told some time after the cluster's definitions have changed, so that several changes are one.
    settled: watch::Receiver<u64>,
    errors: Arc<ValueErrorLog>,
    /// What the log has said of the last resolution.
    said: String,
}

/// How long the definitions of a cluster are left to settle. A new one is served a moment after it has come.
pub(super) const SETTLE: Duration = Duration::from_millis(500);

impl Custom {
    /// For this configuration, if it has custom resources.
    pub(crate) fn new(config: &KubeConfig, metrics: &KubeMetrics) -> Option<Self> {
        let custom = config.custom.as_ref()?;
        let discovery = Discovery::new(metrics);
        let mut changes = discovery.changes();
        let (sender, settled) = watch::channel(0);
        tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                tokio::time::sleep(SETTLE).await;
                sender.send_modify(|changes| *changes += 1);
            }
        });
        let errors = Arc::new(ValueErrorLog::new(metrics.clone(), custom.verbosity));
        Some(Self { discovery, settled, errors, said: String::new() })
    }

    /// The definitions, and the resources among them that have metrics.
    pub(crate) fn watched(&mut self, config: &KubeConfig) -> Vec<Watched> {
        let mut watched = vec![self.discovery.watched()];
        let Some(custom) = &config.custom else { return watched };
        let Some(entries) = &custom.config else { return watched };
        let manner = custom.manner(Arc::clone(&self.errors) as _);
        let served = custom.served(self.discovery.served());
        let said = match resolve(entries, &served, &manner) {
            Ok(resolution) => {
                let names: Vec<String> = resolution
                    .resources
                    .iter()
                    .map(|resolved| resolved.definition.resource_name())
                    .collect();
                watched.extend(resolution.resources.into_iter().map(Watched::custom));
                let mut said = format!("custom resources with metrics: {names:?}");
                if !resolution.replaced.is_empty() {
                    let replaced = &resolution.replaced;
                    said.push_str(&format!(
                        "; a later entry replaces an earlier one of {replaced:?}"
                    ));
                }
                if !resolution.groupless.is_empty() {
                    let groupless = &resolution.groupless;
                    said.push_str(&format!(
                        "; entries without a group are left out: {groupless:?}"
                    ));
                }
                Ok(said)
            }
            Err(error) => Err(format!("no custom resource metrics: {error}")),
        };
        let (Ok(text) | Err(text)) = &said;
        if *text != self.said {
            match &said {
                Ok(text) => tracing::info!("{text}"),
                Err(text) => tracing::error!("{text}"),
            }
            self.said.clone_from(text);
        }
        watched
    }
}

/// Completes some time after the cluster defines other custom resources than before; it may be dropped at any time.
pub(crate) async fn redefined(custom: &mut Option<Custom>) {
    let changed = match custom {
        Some(custom) => custom.settled.changed().await.is_ok(),
        None => false,
    };
    if !changed {
        // Nobody looks for them, or does any more.
        std::future::pending::<()>().await;
    }
}
