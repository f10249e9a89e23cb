//! TLS to the API server: whom we trust, who we are, and both anew when their files change.
//!
//! Certificates and keys flow in, a configuration of rustls with the number of its generation flows out.
//! A connection is good for new requests as long as it is of the current generation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::error::causes;
use super::files::Material;

/// Certificate chain and key of a client, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

/// What the connections to one server are made from.
pub(crate) struct Tls {
    insecure: bool,
    state: Mutex<State>,
}

struct State {
    files: Files,
    /// From the exec plugin; counts before the files.
    identity: Option<Arc<Identity>>,
    /// Whether what was last read could not be used, so that it has to be tried again.
    broken: bool,
    /// Whether the log says so.
    complained: bool,
    built: Option<Built>,
}

/// Where certificates and keys come from.
#[derive(Default)]
pub(crate) struct Files {
    /// Certificates of the authorities that sign the server's; without them those of the system.
    pub authorities: Option<Material>,
    /// Our own certificate and its key.
    pub identity: Option<(Material, Material)>,
}

/// A configuration, and how many were there before it.
#[derive(Clone)]
pub(crate) struct Built {
    pub config: Arc<ClientConfig>,
    pub generation: u64,
}

impl Tls {
    /// Reads everything. `insecure` trusts any server.
    ///
    /// # Errors
    /// What cannot be used.
    pub(crate) fn new(files: Files, insecure: bool) -> Result<Self, String> {
        let state = State { files, identity: None, broken: false, complained: false, built: None };
        let tls = Self { insecure, state: Mutex::new(state) };
        tls.rebuild(&mut tls.state())?;
        Ok(tls)
    }

    /// For another process with the same certificate and key: nobody else is trusted, and it is shown ours.
    ///
    /// # Errors
    /// There is no certificate, or TLS cannot be set up.
    pub(crate) fn of_own(identity: &Arc<CertifiedKey>) -> Result<Self, String> {
        let provider = Arc::new(ring::default_provider());
        let only = Some(identity.cert.first().ok_or("no certificate")?.clone());
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| causes(&error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone { provider, only }))
            .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(identity))));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let (files, built) = (Files::default(), Built { config: Arc::new(config), generation: 0 });
        let built = Some(built);
        let state = State { files, identity: None, broken: false, complained: false, built };
        Ok(Self { insecure: false, state: Mutex::new(state) })
    }

    /// The configuration for a connection now.
    ///
    /// # Errors
    /// There is none that can be used.
    pub(crate) fn current(&self, identity: Option<&Arc<Identity>>) -> Result<Built, String> {
        let mut state = self.state();
        let mut changed = state.reread(false);
        if state.identity.as_ref() != identity {
            state.identity = identity.cloned();
            changed = true;
        }
        if changed {
            self.replace(&mut state);
        }
        state.built.clone().ok_or_else(|| "no TLS configuration".to_owned())
    }

    /// Reads all files, for the server has refused a request on a connection of this generation. Whether
    /// there is a newer one.
    pub(crate) fn refused(&self, generation: u64) -> bool {
        let mut state = self.state();
        let known = state.built.as_ref().is_some_and(|built| built.generation == generation);
        if known && state.reread(true) {
            self.replace(&mut state);
        }
        state.built.as_ref().is_some_and(|built| built.generation != generation)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Builds what is to be used from now on; what cannot be used leaves what was there. A certificate may
    /// be there before its key.
    fn replace(&self, state: &mut State) {
        match self.rebuild(state) {
            Ok(()) => state.complained = false,
            Err(error) => state.complain(&error),
        }
    }

    fn rebuild(&self, state: &mut State) -> Result<(), String> {
        state.broken = true;
        let config = self.build(state)?;
        state.broken = false;
        let generation = state.built.as_ref().map_or(0, |built| built.generation + 1);
        if generation > 0 {
            tracing::info!("TLS certificates have changed, new connections use the new ones");
        }
        state.built = Some(Built { config: Arc::new(config), generation });
        Ok(())
    }

    fn build(&self, state: &State) -> Result<ClientConfig, String> {
        let provider = Arc::new(ring::default_provider());
        let fault = |error: Error| causes(&error);
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(fault)?;
        let verifier: Arc<dyn ServerCertVerifier> = if self.insecure {
            Arc::new(Anyone { provider, only: None })
        } else {
            let roots = match &state.files.authorities {
                Some(authorities) => trusted(authorities.content())?,
                None => system_roots()?,
            };
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| causes(&error))?
        };
        let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
        let identity = match (&state.identity, &state.files.identity) {
            (Some(identity), _) => Some((identity.certificate.as_slice(), identity.key.as_slice())),
            (None, Some((certificate, key))) => Some((certificate.content(), key.content())),
            (None, None) => None,
        };
        let mut config = match identity {
            Some((certificate, key)) => {
                let chain = certificates(certificate)
                    .map_err(|error| format!("client certificate: {error}"))?;
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|error| format!("client key: {}", causes(&error)))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| format!("client certificate: {}", causes(&error)))?
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

impl State {
    /// Reads the files that have changed, or all; whether there is something new to build from.
    fn reread(&mut self, all: bool) -> bool {
        let mut changed = self.broken;
        let mut failed = None;
        let Files { authorities, identity } = &mut self.files;
        let (certificate, key) = identity.as_mut().map(|(one, two)| (one, two)).unzip();
        for material in [authorities.as_mut(), certificate, key].into_iter().flatten() {
            match material.refresh(all) {
                Ok(new) => changed |= new,
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            self.complain(&error);
        }
        changed
    }

    /// Says what cannot be used, once: each request would say it again.
    fn complain(&mut self, error: &str) {
        if !std::mem::replace(&mut self.complained, true) {
            tracing::warn!(
                error,
                "cannot use the new TLS certificates, going on with the old ones"
            );
        }
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|error| causes(&error))?;
    if chain.is_empty() { Err("no certificate in it".to_owned()) } else { Ok(chain) }
}

fn trusted(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let fault = |error: String| format!("certificate authority: {error}");
    for certificate in certificates(pem).map_err(fault)? {
        roots.add(certificate).map_err(|error| fault(causes(&error)))?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let reason = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
        return Err(format!(
            "no certificate authority is given, and the system has none that can be read{reason}"
        ));
    }
    Ok(roots)
}

/// Trusts whoever answers (`insecure-skip-tls-verify`), or has one certificate whatever it is called there; signatures
/// must be right.
#[derive(Debug)]
struct Anyone {
    provider: Arc<CryptoProvider>,
    only: Option<CertificateDer<'static>>,
}

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.only {
            Some(only) if only != end_entity => {
                Err(Error::General("it does not show our own certificate".to_owned()))
            }
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// For a server that the system's authorities vouch for, and who need not know us.
///
/// # Errors
/// The system has no authorities.
pub(crate) fn of_system() -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| causes(&error))?;
    Ok(builder.with_root_certificates(system_roots()?).with_no_client_auth())
}
