//! Clients of a simulated network, and an exec plugin in simulated time, which runs on the caller's event loop.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response};
use tokio::sync::{Mutex, oneshot};
use tokio::time::Instant;
use tower::{Service as _, service_fn};

use crate::kube::client::connection::Network;
use crate::kube::client::error::TransportError;
use crate::kube::client::identity::plugins::headers;
use crate::kube::client::identity::state::{Run, Signed, Signer};
use crate::kube::client::{Client, ClientError, ClientOptions};

/// The time before the expiry of a token from which on kube runs the plugin for each call.
const RENEWAL: Duration = Duration::from_secs(60);

/// A token, and the time of its expiry.
pub(crate) type PrintedToken = (String, Option<Instant>);

/// A simulated exec plugin.
pub(crate) trait Plugin: Send + Sync {
    /// Runs the plugin and returns what it prints.
    fn run(&self) -> Pin<Box<dyn Future<Output = Result<PrintedToken, String>> + Send>>;
}

/// Gets headers from `signer`. Without one, creates it, which runs the plugin.
fn start(plugin: Arc<dyn Plugin>, signer: Option<Signer>) -> oneshot::Receiver<Run> {
    let (sender, receiver) = oneshot::channel();
    tokio::spawn(async move {
        let is_new = signer.is_none();
        let signer = match signer {
            Some(signer) => Ok(signer),
            None => plugin.run().await.map(|printed| signer_of(plugin, printed)),
        };
        let run = match signer {
            Err(error) => (None, Err(error.into())),
            Ok(mut signer) => {
                let signed = signer.call(Request::default()).await;
                let signed = signed.map_err(|error| TransportError::from(error.to_string()));
                let signed = signed.map(|signed| Signed {
                    headers: headers(signed),
                    certificate: None,
                    is_new,
                });
                (Some(signer), signed)
            }
        };
        // The receiver is dropped with the client.
        let _ = sender.send(run);
    });
    receiver
}

/// Returns what kube makes of the token.
fn signer_of(plugin: Arc<dyn Plugin>, printed: PrintedToken) -> Signer {
    let printed = Arc::new(Mutex::new(printed));
    Signer::new(service_fn(move |_| {
        let (plugin, printed) = (Arc::clone(&plugin), Arc::clone(&printed));
        async move {
            let mut printed = printed.lock().await;
            if printed.1.is_some_and(|end| end <= Instant::now() + RENEWAL) {
                *printed = plugin.run().await?;
            }
            let mut response = Response::new(());
            let token = HeaderValue::try_from(format!("Bearer {}", printed.0))?;
            response.headers_mut().insert(AUTHORIZATION, token);
            Ok(response)
        }
    }))
}

impl Client {
    /// Creates a client whose connections use a simulated network.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub(crate) fn over(
        options: &ClientOptions,
        network: Arc<dyn Network>,
    ) -> Result<Self, ClientError> {
        Ok(Self::of(options.setup()?).with_network(network))
    }

    /// Uses a simulated network for all connections.
    ///
    /// # Panics
    /// Panics if the client is shared already.
    pub(crate) fn with_network(mut self, network: Arc<dyn Network>) -> Self {
        let inner = Arc::get_mut(&mut self.0).expect("nobody else has it yet");
        inner.connections.over(network);
        self
    }

    /// Runs a simulated exec plugin.
    ///
    /// # Panics
    /// Panics if the client is shared already.
    pub(crate) fn with_plugin(mut self, plugin: Arc<dyn Plugin>) -> Self {
        let inner = Arc::get_mut(&mut self.0).expect("nobody else has it yet");
        let begin = move |signer| start(Arc::clone(&plugin), signer);
        inner.identity.state.get_mut().dynamic.simulated = Some(Arc::new(begin));
        self
    }
}
