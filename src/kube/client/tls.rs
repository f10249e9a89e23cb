//! TLS between kstatd processes that share a certificate.

use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use super::error::{TransportError, causes};

/// Returns the client configuration for TLS with a process that has the same certificate and key. It presents this
/// certificate and trusts no other.
///
/// # Errors
/// There is no certificate, or TLS cannot be set up.
pub(crate) fn of_own(identity: &Arc<CertifiedKey>) -> Result<ClientConfig, TransportError> {
    let provider = Arc::new(ring::default_provider());
    let only = identity.cert.first().ok_or("no certificate")?.clone();
    let algorithms = provider.signature_verification_algorithms;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| causes(&error))?;
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Only { algorithms, only }))
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(identity)))))
}

/// A verifier that accepts exactly one certificate, regardless of its names and validity period. Handshake signatures
/// are still verified.
#[derive(Debug)]
struct Only {
    algorithms: WebPkiSupportedAlgorithms,
    only: CertificateDer<'static>,
}

impl ServerCertVerifier for Only {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.only == *end_entity {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(Error::General("it does not show our own certificate".to_owned()))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
