//! Client certificates: whether one is requested, who must have signed it, and which names it must
//! have.
//!
//! The modes are Go's. In every mode, a client must prove possession of the certificate's key.

use std::net::IpAddr;
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::{
    WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::unusable::Unusable;

/// `client_auth_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientAuth {
    No,
    Request,
    RequireAny,
    VerifyIfGiven,
    RequireAndVerify,
}

impl ClientAuth {
    /// # Errors
    ///
    /// When the word is not a known mode.
    pub(super) fn named(word: &str) -> Result<Self, Unusable> {
        match word {
            "" | "NoClientCert" => Ok(Self::No),
            "RequestClientCert" => Ok(Self::Request),
            "RequireAnyClientCert" | "RequireClientCert" => Ok(Self::RequireAny),
            "VerifyClientCertIfGiven" => Ok(Self::VerifyIfGiven),
            "RequireAndVerifyClientCert" => Ok(Self::RequireAndVerify),
            _ => Err(format!(
                "client_auth_type is {word:?}; use one of: NoClientCert, RequestClientCert, RequireAnyClientCert, \
                 VerifyClientCertIfGiven, RequireAndVerifyClientCert"
            ).into()),
        }
    }

    fn requires(self) -> bool {
        matches!(self, Self::RequireAny | Self::RequireAndVerify)
    }

    pub(super) fn verifies(self) -> bool {
        matches!(self, Self::VerifyIfGiven | Self::RequireAndVerify)
    }
}

/// Verifies client certificates.
#[derive(Debug)]
pub(super) struct ClientCertificates {
    mode: ClientAuth,
    /// The verifier of signatures; `None` without CAs.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// The accepted names. A certificate must have one of them.
    names: Option<Vec<String>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertificates {
    /// Creates a verifier. `authorities` are certificates in PEM; unreadable ones are ignored.
    ///
    /// # Errors
    ///
    /// When they cannot be used.
    pub(super) fn new(
        mode: ClientAuth,
        authorities: &[u8],
        names: Option<Vec<String>>,
    ) -> Result<Self, Unusable> {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(
            CertificateDer::pem_slice_iter(authorities).filter_map(Result::ok),
        );
        let algorithms = provider.signature_verification_algorithms;
        let verifier = if roots.is_empty() {
            None
        } else {
            let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            Some(builder.build().map_err(|error| format!("client_ca: {error}"))?)
        };
        Ok(Self { mode, verifier, names, algorithms })
    }

    fn judge(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), CertificateError> {
        if self.mode.verifies() {
            let verifier = self.verifier.as_ref().ok_or(CertificateError::UnknownIssuer)?;
            verifier
                .verify_client_cert(certificate, intermediates, now)
                .map_err(as_the_original)?;
        }
        match &self.names {
            Some(names) if !has_one_of(certificate, names) => {
                tracing::debug!(allowed = ?names, "The certificate of a client has none of the allowed names");
                Err(CertificateError::BadEncoding)
            }
            _ => Ok(()),
        }
    }
}

/// Maps errors to those for which the original has specific alerts; all others become
/// `bad_certificate`, like `BadEncoding`.
fn as_the_original(error: Error) -> CertificateError {
    tracing::debug!(%error, "A client certificate was rejected");
    let Error::InvalidCertificate(error) = error else { return CertificateError::BadEncoding };
    match error {
        // A signature that does not match the authority of this name counts as an unknown
        // authority.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            CertificateError::UnknownIssuer
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => CertificateError::Expired,
        _ => CertificateError::BadEncoding,
    }
}

/// Returns whether one of the certificate's alternative names exactly equals one of `names`.
fn has_one_of(certificate: &CertificateDer<'_>, names: &[String]) -> bool {
    let Ok(certificate) = Certificate::from_der(certificate) else { return false };
    let extension = certificate.tbs_certificate().get_extension::<SubjectAltName>();
    let Ok(Some((_, SubjectAltName(alternatives)))) = extension else { return false };
    alternatives.iter().any(|name| {
        let is = |text: &str| names.iter().any(|name| name == text);
        match name {
            GeneralName::DnsName(name) | GeneralName::Rfc822Name(name) => is(name.as_str()),
            GeneralName::UniformResourceIdentifier(name) => is(name.as_str()),
            GeneralName::IpAddress(bytes) => {
                address(bytes.as_bytes()).is_some_and(|address| is(&address.to_string()))
            }
            _ => false,
        }
    })
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

impl ClientCertVerifier for ClientCertificates {
    fn client_auth_mandatory(&self) -> bool {
        self.mode.requires()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.as_ref().map_or(&[], |verifier| verifier.root_hint_subjects())
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.judge(end_entity, intermediates, now)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
