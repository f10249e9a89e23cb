//! Credentials of exec plugins and token providers, and the headers that kube's layers add for credentials of any
//! kind.

use std::sync::Arc;
use std::time::Duration;

use ::kube::Config;
use ::kube::client::{AuthError, ConfigExt as _};
use ::kube::config::AuthInfo;
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use jiff::{SignedDuration, Timestamp};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tokio_rustls::rustls::ClientConfig;
use tower::{BoxError, Layer as _, Service as _, service_fn};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use super::state::{Dynamic, FILES_CHANGED, Printed, Run, Signed, Signer, State};
use crate::kube::client::error::{TransportError, causes};

/// The timeout of a credential plugin.
const LIMIT: Duration = Duration::from_secs(25);
/// The timeout of a token provider. Its requests are given up then, whereas a plugin is awaited again.
const PROVIDER_LIMIT: Duration = Duration::from_secs(20);
/// The minimum pause before a plugin runs again after it failed or the server rejected its credentials. For this time,
/// headers are also reused without calling kube, which runs the plugin for each request in the last minute of a token:
/// a plugin that keeps its tokens prints the same one until it expires. The same goes for certificates.
pub(super) const AGAIN: Duration = Duration::from_secs(5);
/// A plugin's certificate is replaced this long before it expires.
const EARLY: SignedDuration = SignedDuration::from_secs(10);
/// The maximum length of a plugin's stderr in an error, in bytes; the end is kept.
const MAX_COMPLAINT: usize = 1024;

/// The start of the error if a plugin cannot be started.
const UNSTARTED: &str = "it cannot be started";
/// The error if kube panics, because a plugin's token is not a valid header value.
const UNSENDABLE: &str = "what the exec plugin prints cannot be sent";

impl State {
    /// Calls the plugin or provider if its last credentials are due for renewal, or if the server has rejected them.
    pub(super) async fn refresh(&mut self, refused: bool) -> Result<(), TransportError> {
        let now = Instant::now();
        let Dynamic { ran, asked, running, certificate, .. } = &self.dynamic;
        let is_recent = |at: Instant, pause| now.duration_since(at) < pause;
        match ran {
            Some((at, result)) if is_recent(*at, AGAIN) && (refused || result.is_err()) => {
                return result.clone();
            }
            Some((_, Ok(()))) if !refused && running.is_none() => {
                let is_over = |end: Timestamp| end.duration_since(Timestamp::now()) <= EARLY;
                let is_fresh = asked.is_some_and(|at| is_recent(at, AGAIN));
                let is_used = match *certificate {
                    Some(Some(end)) if end == FILES_CHANGED => false,
                    Some(end) => is_fresh || !end.is_some_and(is_over),
                    None => is_fresh,
                };
                if is_used {
                    return Ok(());
                }
            }
            _ => {}
        }
        // Only the signer of an OpenID provider holds the refreshed tokens, so keep it.
        let provider = self.user.auth_provider.as_ref();
        let is_oidc = provider.is_some_and(|one| one.name == "oidc");
        if self.dynamic.running.is_none() {
            let config = self.config_of_credentials()?;
            let signer = self.dynamic.signer.take().filter(|_| !refused || is_oidc);
            let https = self.tls.is_some();
            self.dynamic.running = Some(self.dynamic.start(config, signer, https)?);
        }
        let dynamic = &mut self.dynamic;
        let Some(running) = &mut dynamic.running else { return Ok(()) };
        let Ok(ended) = timeout(LIMIT, running).await else {
            let error = format!("the exec plugin is not ready within {} s", LIMIT.as_secs());
            let error = TransportError::from(error);
            dynamic.ran = Some((Instant::now(), Err(error.clone())));
            return Err(error);
        };
        dynamic.running = None;
        let is_outdated = std::mem::take(&mut dynamic.is_outdated);
        let (signer, result) = ended.unwrap_or_else(|_| (None, Err(UNSENDABLE.into())));
        let now = Instant::now();
        // After an error a new one is made: kube's accepts nothing but another token with an expiry.
        dynamic.signer = signer.filter(|_| result.is_ok() || is_oidc);
        dynamic.asked = Some(now);
        let Signed { headers, certificate, is_new } = match result {
            Ok(signed) => signed,
            Err(error) => {
                (dynamic.ran, dynamic.certificate) = (Some((now, Err(error.clone()))), None);
                return Err(error);
            }
        };
        if is_new || *self.headers != headers || !matches!(dynamic.ran, Some((_, Ok(())))) {
            dynamic.ran = Some((now, Ok(())));
        }
        self.headers = Arc::new(headers);
        // The plugin runs again at once if files have changed since this run began.
        let end = |end| if is_outdated { Some(FILES_CHANGED) } else { end };
        dynamic.certificate = certificate.as_ref().map(|(_, until)| end(*until));
        if let Some((config, _)) = certificate
            && !is_outdated
            && (self.broken
                || self.tls.as_ref().is_none_or(|built| chain(&built.config) != chain(&config)))
        {
            self.broken = false;
            self.use_tls(config);
        }
        Ok(())
    }
}

impl Dynamic {
    /// Starts a call of the plugin or provider, on a separate thread with its own event loop, so that a plugin that hangs
    /// does not delay shutdown.
    fn start(
        &self,
        config: Config,
        signer: Option<Signer>,
        https: bool,
    ) -> Result<oneshot::Receiver<Run>, TransportError> {
        #[cfg(any(test, fuzzing))]
        if let Some(start) = &self.simulated {
            return Ok(start(signer));
        }
        let certificate = self.certificate.is_some();
        let (sender, receiver) = oneshot::channel();
        let thread = move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            let run = match runtime {
                Ok(runtime) => {
                    let run = runtime.block_on(sign(config, signer, certificate, https));
                    // Does not wait for the name of a provider that was given up.
                    runtime.shutdown_background();
                    run
                }
                Err(error) => (None, Err(format!("credentials: {error}").into())),
            };
            // The receiver is dropped with the client.
            let _ = sender.send(run);
        };
        let started = std::thread::Builder::new().name("credentials".to_owned()).spawn(thread);
        started.map(|_| receiver).map_err(|error| format!("credentials: {error}").into())
    }
}

/// Returns the headers for fixed credentials.
pub(super) fn headers_now(config: &Config) -> Result<HeaderMap, TransportError> {
    let mut signer = signer(config)?.0;
    match signer.call(Request::default()).now_or_never() {
        Some(signed) => signed.map(headers).map_err(|error| fault(&*error).into()),
        None => Err("credentials that have to be waited for".into()),
    }
}

pub(super) fn headers(signed: Response<()>) -> HeaderMap {
    signed.into_parts().0.headers
}

/// Builds the signer from kube's layers, which runs an exec plugin. Also returns whether it sets `Authorization`.
fn signer(config: &Config) -> Result<(Signer, bool), TransportError> {
    let fault = |error: ::kube::Error| fault(&error);
    let headers = service_fn(|request: Request<Full<Bytes>>| async {
        let mut response = Response::new(());
        *response.headers_mut() = request.into_parts().0.headers;
        Ok::<_, BoxError>(response)
    });
    let extra = config.extra_headers_layer().map_err(fault)?;
    Ok(match config.auth_layer().map_err(fault)? {
        Some(auth) => (Signer::new(extra.layer(auth.layer(headers))), true),
        None => (Signer::new(extra.layer(headers)), false),
    })
}

/// Gets headers from `signer`. Without one, creates it, which runs the plugin. `certificate` is set if the plugin is
/// known to print a certificate.
pub(super) async fn sign(
    mut config: Config,
    signer: Option<Signer>,
    certificate: bool,
    https: bool,
) -> Run {
    let is_new = signer.is_none();
    let exec = config.auth_info.exec.clone();
    let provider = provider(&config.auth_info).map(str::to_owned);
    let named = |error: String| {
        let Some(exec) = &exec else { return format!("credentials: {error}") };
        let hint = exec.install_hint.as_deref().unwrap_or_default().trim();
        let has_hint = error.starts_with(UNSTARTED) && !hint.is_empty();
        let hint = if has_hint { format!("; {hint}") } else { String::new() };
        format!("exec plugin {}: {error}{hint}", exec.command.as_deref().unwrap_or_default())
    };
    let made = match signer {
        Some(signer) => Ok((signer, None)),
        None => make(&mut config, certificate, https),
    };
    let (mut signer, certificate) = match made {
        Ok(made) => made,
        Err(error) => return (None, Err(named(error.to_string()).into())),
    };
    let call = signer.call(Request::default());
    let signed = match provider {
        Some(name) => timeout(PROVIDER_LIMIT, call).await.unwrap_or_else(|_| {
            let seconds = PROVIDER_LIMIT.as_secs();
            Err(format!("no answer from the {name} provider within {seconds} s").into())
        }),
        None => call.await,
    };
    let signed = signed.map_err(|error| named(fault(&*error)).into());
    let kept = certificate.is_none().then_some(signer);
    (kept, signed.map(|signed| Signed { headers: headers(signed), certificate, is_new }))
}

/// Returns the name of the token provider to which requests are sent. A command is none, because it cannot be given up.
fn provider(user: &AuthInfo) -> Option<&str> {
    let provider = user.auth_provider.as_ref()?;
    let is_command = user.exec.is_some() || provider.config.contains_key("cmd-path");
    (!is_command).then_some(&provider.name)
}

/// Creates a signer, which runs the plugin. Also returns the certificate if the plugin prints one instead of a token.
fn make(
    config: &mut Config,
    certificate: bool,
    https: bool,
) -> Result<(Signer, Option<Printed>), TransportError> {
    if !certificate && let (signer, true) = signer(config)? {
        return Ok((signer, None));
    }
    // kube can only get the certificate by running the plugin again.
    let tls = config.rustls_client_config().map_err(|error| fault(&error))?;
    if !https || !tls.client_auth_cert_resolver.has_certs() {
        if certificate && let (signer, true) = signer(config)? {
            // It prints a token now. If it has failed, this has told why.
            return Ok((signer, None));
        }
        return Err("it prints neither a token nor a certificate".into());
    }
    let end = chain(&tls).and_then(|chain| end(&chain));
    config.auth_info.exec = None;
    Ok((signer(config)?.0, Some((tls, end))))
}

/// Describes why there are no credentials. Omits the plugin's stdout, which may contain a token.
fn fault(error: &(dyn std::error::Error + 'static)) -> String {
    let error = match error.downcast_ref() {
        Some(::kube::Error::Auth(error)) => error,
        _ => match error.downcast_ref() {
            Some(error) => error,
            None => return causes(error),
        },
    };
    match error {
        AuthError::AuthExecRun { out, .. } => {
            let complaint = String::from_utf8_lossy(&out.stderr);
            let complaint = complaint.trim();
            let start = complaint.ceil_char_boundary(complaint.len().saturating_sub(MAX_COMPLAINT));
            format!("{}: {}", out.status, complaint[start..].replace('\n', " | "))
        }
        AuthError::AuthExecStart(error) => format!("{UNSTARTED}: {error}"),
        AuthError::AuthExecParse(_) => "it prints no ExecCredential".to_owned(),
        error => causes(error),
    }
}

/// Returns the client certificate that a configuration presents, in DER.
pub(super) fn chain(config: &ClientConfig) -> Option<Vec<u8>> {
    let shown = config.client_auth_cert_resolver.resolve(&[], &[])?;
    shown.cert.first().map(|certificate| certificate.to_vec())
}

/// Returns when a DER certificate expires.
pub(super) fn end(certificate: &[u8]) -> Option<Timestamp> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let end = certificate.tbs_certificate().validity().not_after.to_unix_duration();
    Timestamp::from_second(i64::try_from(end.as_secs()).ok()?).ok()
}
