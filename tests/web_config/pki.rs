//! The keys and certificates of the recorded cases, generated for each run.
//!
//! Certificates are signed here; the few keys whose encoding matters (SEC 1, PKCS 1, encrypted) are in `keys/`,
//! because this code does not write those formats.

use std::collections::BTreeMap;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    SanType, date_time_ymd,
};

/// Every file of the cases' `pki`, by name.
pub struct Pki(BTreeMap<String, Vec<u8>>);

const EC: &str = include_str!("keys/ec_pkcs8.pem");
const EC_SEC1: &str = include_str!("keys/ec_sec1.pem");
const RSA: &str = include_str!("keys/rsa_pkcs8.pem");

/// The parameters of P-256 that precede a key.
const PARAMETERS: &str =
    "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";

fn params(name: &str, sans: &[SanType]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.subject_alt_names = sans.to_vec();
    params
}

fn authority(name: &str) -> (CertificateParams, KeyPair) {
    let mut params = params(name, &[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    (params, KeyPair::generate().expect("key"))
}

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().expect("name"))
}

impl Pki {
    pub fn new() -> Self {
        let mut files = BTreeMap::new();
        let mut put =
            |name: &str, text: String| drop(files.insert(name.to_owned(), text.into_bytes()));
        let (ca, ca_key) = authority("test-ca");
        let (ca2, ca2_key) = authority("other-ca");
        let ca_pem = ca.self_signed(&ca_key).expect("certificate").pem();
        let ca2_pem = ca2.self_signed(&ca2_key).expect("certificate").pem();
        let (ca, ca2) = (Issuer::new(ca, ca_key), Issuer::new(ca2, ca2_key));

        let local = [dns("localhost"), SanType::IpAddress([127, 0, 0, 1].into())];
        let server_auth = |name: &str| {
            let mut params = params(name, &local);
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            params
        };
        let old = |mut params: CertificateParams| {
            (params.not_before, params.not_after) =
                (date_time_ymd(2020, 1, 1), date_time_ymd(2020, 1, 31));
            params
        };
        let ed25519 = KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("key");
        for (name, params, key) in [
            ("server", server_auth("localhost"), KeyPair::from_pem(EC).expect("key")),
            ("server2", server_auth("localhost-two"), KeyPair::generate().expect("key")),
            ("expired", old(server_auth("localhost")), KeyPair::generate().expect("key")),
            ("rsa", server_auth("localhost"), KeyPair::from_pem(RSA).expect("key")),
            ("ed25519", server_auth("localhost"), ed25519),
        ] {
            put(&format!("{name}.crt"), params.signed_by(&key, &ca).expect("certificate").pem());
            put(&format!("{name}.key"), key.serialize_pem());
        }
        put("server.key", EC_SEC1.to_owned());
        put("server_pkcs8.key", EC.to_owned());
        put("server_params.key", format!("{PARAMETERS}{EC_SEC1}"));
        put("server_encrypted.key", include_str!("keys/ec_encrypted_sec1.pem").to_owned());
        put("server_encrypted_pkcs8.key", include_str!("keys/ec_encrypted_pkcs8.pem").to_owned());
        put("rsa_pkcs1.key", include_str!("keys/rsa_pkcs1.pem").to_owned());

        let (middle, middle_key) = authority("test-intermediate");
        let middle_pem = middle.signed_by(&middle_key, &ca).expect("certificate").pem();
        let middle = Issuer::new(middle, middle_key);
        let key = KeyPair::generate().expect("key");
        let leaf = server_auth("localhost").signed_by(&key, &middle).expect("certificate").pem();
        put("chain.crt", format!("{leaf}{middle_pem}"));
        put("chain_reversed.crt", format!("{middle_pem}{leaf}"));
        put("chain.key", key.serialize_pem());

        let client_names = [
            dns("client.example"),
            SanType::URI("spiffe://example/client".try_into().expect("URI")),
            SanType::Rfc822Name("client@example.com".try_into().expect("address")),
            SanType::IpAddress([10, 9, 8, 7].into()),
        ];
        let client_auth = |name: &str, names: &[SanType]| {
            let mut params = params(name, names);
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            params
        };
        let example = [dns("client.example")];
        let mut client_serverauth = client_auth("client-cn", &example);
        client_serverauth.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        for (name, params, issuer) in [
            ("client", client_auth("client-cn", &client_names), &ca),
            ("client_nosan", client_auth("client.example", &[]), &ca),
            ("client_serverauth", client_serverauth, &ca),
            ("client2", client_auth("client2-cn", &example), &ca2),
            ("client_expired", old(client_auth("client-cn", &example)), &ca),
        ] {
            let key = KeyPair::generate().expect("key");
            put(&format!("{name}.crt"), params.signed_by(&key, issuer).expect("certificate").pem());
            put(&format!("{name}.key"), key.serialize_pem());
        }
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        put("bundle.crt", format!("{ca_pem}{ca2_pem}"));
        put("garbage.crt", "no certificate here\n".to_owned());
        put("empty.crt", String::new());
        put("broken.crt", broken.to_owned());
        put("ca_then_broken.crt", format!("{ca_pem}{broken}"));
        put("ca.crt", ca_pem);
        put("ca2.crt", ca2_pem);
        let mut pki = Self(files);
        let server = pki.text("server.crt");
        pki.0.insert("both.pem".to_owned(), format!("{server}{EC_SEC1}").into_bytes());
        pki.0.insert("server.der".to_owned(), pki.first_certificate("server.crt"));
        pki
    }

    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(Vec::as_slice)
    }

    pub fn text(&self, name: &str) -> String {
        let bytes = self.get(name).unwrap_or_else(|| panic!("no file {name}"));
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    /// Returns the first certificate of a file, as DER.
    pub fn first_certificate(&self, name: &str) -> Vec<u8> {
        use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};
        let bytes = self.get(name).expect("file");
        CertificateDer::from_pem_slice(bytes).expect("certificate").to_vec()
    }

    /// Returns the file whose first certificate this is.
    pub fn name_of(&self, certificate: &[u8]) -> String {
        let has_it = |name: &&String| {
            name.ends_with(".crt")
                && !["garbage.crt", "empty.crt"].contains(&name.as_str())
                && self.first_certificate(name) == certificate
        };
        self.0.keys().find(has_it).cloned().unwrap_or_else(|| "another".to_owned())
    }
}
