//! Where the API server is, and the client that is made of it.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::cli::config::{Config, KubeConfig, Name};
use crate::cli::kube_flags::KubeArgs;
use crate::kube::resharding::OwnIdentity;
use crate::kube::{Account, Client, ClientError, ClientOptions, Judgement};
use crate::server::authorisation::{Access, Action, Caller, Review, Reviews};
use crate::server::web_config::WebConfig;
use crate::telemetry::VERSION;

/// A client, and what it was made from: as long as that is the same, so is the client.
#[derive(Clone)]
pub(crate) struct Connection {
    options: ClientOptions,
    files: Vec<(PathBuf, Option<Vec<u8>>)>,
    pub(crate) client: Arc<Client>,
}

/// Whether kstatd finds an API server: by flags, by the environment or by the pod it runs in.
pub(crate) fn is_configured(args: &KubeArgs) -> bool {
    let named = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let kubeconfig = named(&args.kubeconfig).map(PathBuf::from);
    client_options(kubeconfig, named(&args.apiserver), Name::Kstatd).is_configured()
}

/// The files from which the client of this configuration would be made.
pub(crate) fn files(config: &KubeConfig, name: Name) -> Vec<PathBuf> {
    options(config, name).files()
}

fn options(config: &KubeConfig, name: Name) -> ClientOptions {
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
    // kube-state-metrics knows its flags and the service account only.
    let environment = name == Name::Kstatd;
    ClientOptions { kubeconfig, apiserver, environment, user_agent }
}

impl Connection {
    /// The client for this configuration: the `current` one, if nothing that it was made from has changed.
    /// The server is not asked.
    ///
    /// # Errors
    ///
    /// When nothing says where the API server is, or credentials cannot be used.
    pub(crate) async fn open(
        config: &KubeConfig,
        name: Name,
        current: Option<Self>,
    ) -> Result<Self, ClientError> {
        let options = options(config, name);
        // Read before the client does: what changes in between is seen as a change.
        let content = |path: PathBuf| {
            let content = std::fs::read(&path).ok();
            (path, content)
        };
        let files: Vec<_> = options.files().into_iter().map(content).collect();
        if let Some(current) = current
            && current.options == options
            && current.files == files
        {
            return Ok(current);
        }
        let client = Arc::new(Client::new(&options).await?);
        Ok(Self { options, files, client })
    }
}

/// The certificate and key that our own listeners show, if they speak TLS and other pods are to be asked. A web
/// configuration that cannot be used is the listeners' to complain of.
pub(crate) fn own_identity(config: &Config) -> Option<OwnIdentity> {
    config.kube.as_ref()?.pod.as_ref()?;
    let web = WebConfig::load(config.web_config.as_deref()?).ok().filter(WebConfig::is_tls)?;
    let web = Arc::new(web);
    Some(Arc::new(move || {
        let web = Arc::clone(&web);
        Box::pin(async move { Ok(Arc::clone(&web.settings().await?.identity)) })
    }))
}

/// Says in the log whether the API server answers.
pub(crate) async fn greet(client: Arc<Client>) {
    match client.version().await {
        Ok(version) => tracing::info!(server = %client.url(), version, "the API server answers"),
        Err(error) => {
            tracing::warn!(%error, "the API server does not answer yet, asking again until it does");
        }
    }
}

/// Asks the API server that is followed at that moment about those who ask us.
pub(crate) struct Reviewer(pub(crate) Arc<ArcSwap<Client>>);

impl Reviews for Reviewer {
    fn asked(&self) -> u64 {
        self.0.load().number()
    }

    fn caller(&self, token: &str) -> Review<Option<Caller>> {
        let (client, token) = (self.0.load_full(), token.to_owned());
        Box::pin(async move {
            let Some(account) = client.review_token(&token).await? else { return Ok(None) };
            let identity = serde_json::to_string(&account).map_err(|error| error.to_string())?;
            Ok(Some(Caller { name: account.name, identity: identity.into() }))
        })
    }

    fn access(&self, caller: &Caller, action: &Action) -> Review<Access> {
        let (client, action) = (self.0.load_full(), action.clone());
        let identity = Arc::clone(&caller.identity);
        Box::pin(async move {
            let account: Account =
                serde_json::from_str(&identity).map_err(|error| error.to_string())?;
            let Judgement { allowed, denied } = match &action {
                Action::Path { path, verb } => client.review_access(&account, path, verb).await?,
                Action::Namespace(name) => client.review_namespace(&account, name).await?,
            };
            Ok(Access { allowed, denied })
        })
    }
}
