//! Converts the TLS section of the file to handshake settings.
//!
//! The file may request features that rustls deliberately lacks: TLS 1.0 and 1.1, CBC suites, the
//! curve P-521. The section is interpreted like in the original, and unsupported features are left
//! out: a client that supports nothing else is refused with the alert it would get if nothing
//! matched.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::{CryptoProvider, SupportedKxGroup, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, NoClientAuth};
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::{
    AlertDescription, CipherSuite, Error, ServerConfig, SupportedCipherSuite,
    SupportedProtocolVersion, version,
};

use super::client_certificate::{ClientAuth, ClientCertificates};
use super::file::{Material, TlsSection};
use super::unusable::Unusable;

/// The suites required by HTTP/2, unless only TLS 1.3 is enabled.
const HTTP2_SUITES: [&str; 2] =
    ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"];

/// Suites in order of preference: the fastest first on processors with AES instructions, which all
/// servers have, unless the client indicates that its own does not.
const SUITES: [SupportedCipherSuite; 9] = [
    ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
    ring::cipher_suite::TLS13_AES_256_GCM_SHA384,
    ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ring::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ring::cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ring::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ring::cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ring::cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ring::cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

const CHACHA: [CipherSuite; 3] = [
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// The settings of a handshake.
#[derive(Debug)]
pub(crate) struct Settings {
    configs: Result<ServerConfigs, AlertDescription>,
    /// True if TLS 1.2 is enabled without any of its suites.
    old_without_suites: bool,
    /// True if names are required although the mode admits clients without a certificate.
    pub(crate) names_wanted: bool,
    /// True if client certificates are verified.
    pub(crate) verifies_clients: bool,
    /// The server certificate and key.
    pub(crate) identity: Arc<CertifiedKey>,
}

#[derive(Debug)]
struct ServerConfigs {
    aes_first: Arc<ServerConfig>,
    chacha_first: Arc<ServerConfig>,
}

impl Settings {
    /// Returns the configuration for a client, or the alert for all clients.
    pub(crate) fn choose(
        &self,
        client: &ClientHello<'_>,
    ) -> Result<Arc<ServerConfig>, AlertDescription> {
        let configs = self.configs.as_ref().map_err(|alert| *alert)?;
        let known = |suite: &&CipherSuite| SUITES.iter().any(|ours| ours.suite() == **suite);
        let first = client.cipher_suites().iter().find(known);
        let slow = first.is_some_and(|suite| CHACHA.contains(suite));
        Ok(Arc::clone(if slow { &configs.chacha_first } else { &configs.aes_first }))
    }

    /// Returns alerts with another meaning here than in rustls before the connection is encrypted:
    /// (rustls', ours).
    pub(crate) fn alerts(&self) -> Vec<(u8, u8)> {
        let refused = u8::from(AlertDescription::HandshakeFailure);
        let mut alerts = vec![(AlertDescription::CertificateRequired.into(), refused)];
        if self.old_without_suites {
            alerts.push((AlertDescription::ProtocolVersion.into(), refused));
        }
        alerts
    }
}

/// Returns the files that a section refers to, to be read for [`build`].
pub(super) fn files(section: &TlsSection) -> Vec<&Path> {
    [&section.certificate, &section.key, &section.client_ca]
        .into_iter()
        .filter_map(|material| material.file.as_deref())
        .collect()
}

/// Builds the settings. `read` provides the files of the section.
///
/// # Errors
///
/// The reason why no client can be served with this section, with the position.
pub(super) fn build(
    section: &TlsSection,
    http2: bool,
    read: impl Fn(&Path) -> Result<Vec<u8>, Unusable>,
) -> Result<Settings, Unusable> {
    if !section.certificate.is_some() {
        return Err("missing one of cert or cert_file".into());
    }
    if !section.key.is_some() {
        return Err("missing one of key or key_file".into());
    }
    let content = |material: &Material, key: &str| -> Result<(Vec<u8>, String), Unusable> {
        match (&material.file, &material.text) {
            (Some(path), _) => {
                let place = format!("{key}_file ({})", path.display());
                let content =
                    read(path).map_err(|error| format!("failed to read {place}: {error}"))?;
                Ok((content, place))
            }
            (None, text) => Ok((text.clone().unwrap_or_default().into_bytes(), key.to_owned())),
        }
    };
    let (chain, chain_place) = content(&section.certificate, "cert")?;
    let (key, key_place) = content(&section.key, "key")?;
    let identity = Arc::new(identity(&chain, &chain_place, &key, &key_place)?);

    let mode = ClientAuth::named(&section.client_auth)?;
    let authorities = match section.client_ca.is_some() {
        true if mode == ClientAuth::No => {
            return Err(format!(
                "client CAs are configured, but client_auth_type is {:?}: set it to one that asks for certificates",
                section.client_auth
            ).into());
        }
        true => content(&section.client_ca, "client_ca")?.0,
        false => Vec::new(),
    };

    let (min, max) = (section.min_version.unwrap_or(12), section.max_version.unwrap_or(13));
    let versions: Vec<&'static SupportedProtocolVersion> =
        [(12, &version::TLS12), (13, &version::TLS13)]
            .into_iter()
            .filter(|(number, _)| (min..=max).contains(number))
            .map(|(_, version)| version)
            .collect();
    let old = versions.iter().any(|version| **version == version::TLS12);
    let groups = groups(&section.curves);
    let suites = suites(&section.suites);
    let usable = |suite: &SupportedCipherSuite| versions.contains(&suite.version());
    let old_without_suites = old && !suites.iter().any(|suite| *suite.version() == version::TLS12);
    let names_wanted = mode != ClientAuth::No && section.client_names.is_some();
    let verifies_clients = mode.verifies();
    let refused = if versions.is_empty() {
        Some(AlertDescription::ProtocolVersion)
    } else if groups.is_empty() || !suites.iter().any(usable) {
        Some(AlertDescription::HandshakeFailure)
    } else {
        None
    };
    let configs = match refused {
        Some(alert) => Err(alert),
        None => {
            let clients = match mode {
                ClientAuth::No => None,
                mode => {
                    let names = section.client_names.clone();
                    Some(Arc::new(ClientCertificates::new(mode, &authorities, names)?))
                }
            };
            let config =
                |suites: Vec<SupportedCipherSuite>| -> Result<Arc<ServerConfig>, Unusable> {
                    let provider = CryptoProvider {
                        cipher_suites: suites,
                        kx_groups: groups.clone(),
                        ..ring::default_provider()
                    };
                    let builder = ServerConfig::builder_with_provider(Arc::new(provider))
                        .with_protocol_versions(&versions)
                        .map_err(|error| error.to_string())?;
                    let builder = match &clients {
                        Some(clients) => {
                            builder.with_client_cert_verifier(Arc::clone(clients) as _)
                        }
                        None => builder.with_client_cert_verifier(Arc::new(NoClientAuth)),
                    };
                    let resolver = SingleCertAndKey::from(Arc::clone(&identity));
                    let mut config = builder.with_cert_resolver(Arc::new(resolver));
                    config.ignore_client_order = true;
                    if http2 {
                        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
                    }
                    Ok(Arc::new(config))
                };
            let (chacha, aes): (Vec<_>, Vec<_>) =
                suites.iter().copied().partition(|suite| CHACHA.contains(&suite.suite()));
            let chacha_first = config(chacha.into_iter().chain(aes).collect())?;
            Ok(ServerConfigs { aes_first: config(suites)?, chacha_first })
        }
    };
    Ok(Settings { configs, old_without_suites, names_wanted, verifies_clients, identity })
}

/// Checks what the original rejects only at start-up.
///
/// # Errors
///
/// When HTTP/2 is enabled without a suite that it requires.
pub(super) fn check_http2(section: &TlsSection, http2: bool) -> Result<(), Unusable> {
    let has = |name: &str| section.suites.iter().any(|suite| suite == name);
    let old = section.min_version.unwrap_or(12) < 13;
    if http2 && old && !section.suites.is_empty() && !HTTP2_SUITES.iter().any(|name| has(name)) {
        return Err(format!(
            "cipher_suites has none of those that HTTP/2 needs: add {}, or set http2 to false",
            HTTP2_SUITES.join(" or ")
        )
        .into());
    }
    Ok(())
}

fn identity(
    chain: &[u8],
    chain_place: &str,
    key: &[u8],
    key_place: &str,
) -> Result<CertifiedKey, Unusable> {
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(chain).filter_map(Result::ok).collect();
    if chain.is_empty() {
        return Err(format!("{chain_place}: no certificate in PEM").into());
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| format!("{key_place}: no private key in PEM that can be read: {error}"))?;
    let key = ring::default_provider()
        .key_provider
        .load_private_key(key)
        .map_err(|error| format!("{key_place}: the private key cannot be used: {error}"))?;
    let identity = CertifiedKey::new(chain, key);
    match identity.keys_match() {
        Ok(()) => Ok(identity),
        Err(Error::InconsistentKeys(_)) => Err(format!(
            "{key_place}: the private key does not match the certificate of {chain_place}"
        )
        .into()),
        Err(error) => Err(format!("{chain_place}: malformed certificate: {error}").into()),
    }
}

fn groups(names: &[String]) -> Vec<&'static dyn SupportedKxGroup> {
    let all = [
        ("X25519", ring::kx_group::X25519),
        ("CurveP256", ring::kx_group::SECP256R1),
        ("CurveP384", ring::kx_group::SECP384R1),
    ];
    let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    all.into_iter().filter(|(name, _)| wanted(name)).map(|(_, group)| group).collect()
}

fn suites(names: &[String]) -> Vec<SupportedCipherSuite> {
    let wanted = |suite: &SupportedCipherSuite| {
        let name = suite.suite();
        let name = name.as_str().unwrap_or_default();
        *suite.version() == version::TLS13
            || names.is_empty()
            || names.iter().any(|wanted| wanted == name)
    };
    SUITES.into_iter().filter(wanted).collect()
}
