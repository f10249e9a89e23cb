//! The connection to the API server.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::app::sides::{PrepareFuture, RejectedFile};
use crate::cli::config::{Config, KubeConfig, Name};
use crate::cli::kube_flags::KubeArgs;
use crate::config_file::reader;
use crate::kube::resharding::ListenerIdentity;
use crate::kube::{Account, Client, ClientError, ClientOptions, Decision};
use crate::server::authorisation::{Access, Action, Caller, Review, ReviewError, Reviews};
use crate::server::web_config::WebConfig;
use crate::telemetry::VERSION;

/// A client together with the options and files it was built from; reused until they change.
#[derive(Clone)]
pub(crate) struct Connection {
    options: ClientOptions,
    files: Vec<(PathBuf, Option<Vec<u8>>)>,
    pub(crate) client: Arc<Client>,
    /// The kubeconfig whose current content is rejected, and the reason.
    pub(crate) rejected: Option<RejectedFile>,
}

/// Returns true if an API server is configured by flags, environment or service account.
pub(crate) fn is_configured(args: &KubeArgs) -> bool {
    let non_empty = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let kubeconfig = non_empty(&args.kubeconfig).map(PathBuf::from);
    client_options(kubeconfig, non_empty(&args.apiserver), Name::Kstatd).is_configured()
}

/// Returns the options that the client of this configuration is built from.
pub(super) fn options(config: &KubeConfig, name: Name) -> ClientOptions {
    client_options(config.kubeconfig.clone(), config.apiserver.clone(), name)
}

fn client_options(
    kubeconfig: Option<PathBuf>,
    apiserver: Option<String>,
    name: Name,
) -> ClientOptions {
    let (os, arch) = (std::env::consts::OS, crate::telemetry::go_arch());
    let user_agent = match name {
        Name::KubeStateMetrics => {
            format!("kube-state-metrics/v{VERSION} ({os}/{arch}) kstatd")
        }
        _ => format!("kstatd/{VERSION} ({os}/{arch})"),
    };
    // kube-state-metrics only considers flags and the service account.
    let environment = name == Name::Kstatd;
    ClientOptions { kubeconfig, apiserver, environment, user_agent, ..ClientOptions::default() }
}

impl Connection {
    /// Returns the connection of a client.
    #[cfg(test)]
    pub(crate) fn of(client: Client) -> Self {
        let (options, files) = (ClientOptions::default(), Vec::new());
        Self { options, files, client: Arc::new(client), rejected: None }
    }

    /// Builds the client for these options. Returns the `current` client if its options and files are unchanged,
    /// or if a changed file is invalid. Does not contact the server.
    ///
    /// # Errors
    ///
    /// Returns an error if no API server is configured, or if the credentials of changed options are invalid.
    pub(crate) async fn open(
        options: ClientOptions,
        current: Option<Self>,
    ) -> Result<Self, ClientError> {
        // Read before the client reads them, so that a change in between is noticed.
        let content = |path: PathBuf| {
            let content = reader::peek(&path).ok();
            (path, content)
        };
        let files: Vec<_> = options.files().into_iter().map(content).collect();
        let current = current.filter(|current| current.options == options);
        if let Some(current) = &current
            && current.files == files
        {
            files.iter().for_each(|(path, _)| reader::forget(path));
            return Ok(Self { rejected: None, ..current.clone() });
        }
        match (Client::new(&options).await, current) {
            (Ok(client), _) => {
                Ok(Self { options, files, client: Arc::new(client), rejected: None })
            }
            (Err(error), Some(current)) if !files.is_empty() => {
                let paths = files.iter().map(|(path, _)| path.display().to_string());
                let path = paths.collect::<Vec<_>>().join(", ");
                Ok(Self {
                    rejected: Some(RejectedFile { path, error: error.to_string() }),
                    ..current
                })
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Returns a future that [opens](Self::open) the connection for other options or changed files, and the receiver of the connection.
    pub(crate) fn reopen(self, options: ClientOptions) -> (PrepareFuture, oneshot::Receiver<Self>) {
        let (sender, reopened) = oneshot::channel();
        let open = async move {
            // Reads files, which may block.
            let runtime = Handle::current();
            let opening = tokio::task::spawn_blocking(move || {
                runtime.block_on(Self::open(options, Some(self)))
            });
            let connection = opening.await?;
            // The receiver has been dropped if a newer configuration replaced this one.
            let _ = sender.send(connection?);
            Ok(())
        };
        (Box::pin(open), reopened)
    }
}

/// Returns the TLS identity of our own listeners for requests to other shards and replicas. `None` without TLS or any
/// of these, or if the web configuration is invalid, which the listeners report.
pub(crate) fn own_identity(config: &Config) -> Option<ListenerIdentity> {
    let is_shard = config.kube.as_ref().is_some_and(|kube| kube.pod.is_some());
    if !is_shard && config.standby.is_none() {
        return None;
    }
    let web = WebConfig::load(config.web_config.as_deref()?).ok().filter(|web| web.is_tls)?;
    let web = Arc::new(web);
    Some(Arc::new(move || {
        let web = Arc::clone(&web);
        Box::pin(async move { Some(Arc::clone(&web.settings().await.ok()?.identity)) })
    }))
}

/// Logs whether the API server answers.
pub(crate) async fn log_version(client: Arc<Client>) {
    match client.version().await {
        Ok(version) => tracing::info!(server = %client.url(), version, "The API server answers"),
        Err(error) => {
            tracing::warn!(%error, "The API server does not respond yet, retrying");
        }
    }
}

/// Describes an error of the client for the server, which does not know the client.
pub(crate) fn unanswered(error: ClientError) -> ReviewError {
    error.to_string().into()
}

/// Reviews callers of the metrics endpoints with the currently connected API server.
pub(crate) struct ApiServerReviews(pub(crate) Arc<ArcSwap<Client>>);

impl Reviews for ApiServerReviews {
    fn client_number(&self) -> u64 {
        self.0.load().number()
    }

    fn caller(&self, token: &str) -> Review<Option<Caller>> {
        let (client, token) = (self.0.load_full(), token.to_owned());
        Box::pin(async move {
            let account = client.review_token(&token).await.map_err(unanswered)?;
            let Some(account) = account else { return Ok(None) };
            let identity = serde_json::to_string(&account).map_err(|error| error.to_string())?;
            Ok(Some(Caller { name: account.user.unwrap_or_default(), identity: identity.into() }))
        })
    }

    fn access(&self, caller: &Caller, action: &Action) -> Review<Access> {
        let (client, action) = (self.0.load_full(), action.clone());
        let identity = Arc::clone(&caller.identity);
        Box::pin(async move {
            let account: Account =
                serde_json::from_str(&identity).map_err(|error| error.to_string())?;
            let decision = match &action {
                Action::Path { path, verb } => client.review_access(&account, path, verb).await,
                Action::Namespace(name) => client.review_namespace(&account, name).await,
            };
            let Decision { allowed, denied } = decision.map_err(unanswered)?;
            Ok(Access { allowed, denied })
        })
    }
}
