//! What says where the API server is and who we are there: flags, environment, service account.
//!
//! [`ClientOptions`] flow in, a [`Setup`] flows out that has everything a connection is made from. Files
//! are read, the server is not contacted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderName, HeaderValue, Uri};
use tokio_rustls::rustls::sign::CertifiedKey;

use super::credentials::{Credentials, Source, bearer};
use super::error::ClientError;
use super::exec::Plugin;
use super::files::{Material, Watched};
use super::kubeconfig::{Cluster, Kubeconfig, User};
use super::proxy::{self, Proxy};
use super::tls::{Files, Tls};

/// Where the service account of a pod has its files.
pub(crate) const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What says where the API server is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientOptions {
    /// `--kubeconfig`
    pub kubeconfig: Option<PathBuf>,
    /// `--apiserver`: overrides the server of the kubeconfig.
    pub apiserver: Option<String>,
    /// Whether the variable `KUBECONFIG` counts when neither flag is set.
    pub environment: bool,
    /// The `User-Agent` header, such as `kstatd/0.1.0 (linux/amd64)`.
    pub user_agent: String,
}

/// Where a configuration comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    File(PathBuf),
    Variable,
    Url,
    ServiceAccount,
}

/// Everything that connections and requests are made from.
pub(crate) struct Setup {
    /// The server, without user and password.
    pub url: Uri,
    /// What it is called in its certificate, if not as in the URL.
    pub server_name: Option<String>,
    /// For `https` alone.
    pub tls: Option<Tls>,
    pub credentials: Credentials,
    /// Whom to act as.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub proxy: Option<Proxy>,
}

impl Setup {
    /// For another process like this one, whoever else is asked by way of proxies and with credentials.
    ///
    /// # Errors
    /// The URL or the certificate cannot be used.
    pub(crate) fn of_peer(url: &str, identity: Option<&Arc<CertifiedKey>>) -> Result<Self, String> {
        Ok(Self {
            url: url.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?,
            server_name: None,
            tls: identity.map(Tls::of_own).transpose()?,
            credentials: Credentials::new(Source::Nothing)?,
            headers: Vec::new(),
            proxy: None,
        })
    }
}

impl ClientOptions {
    /// Whether anything says where the API server is.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        self.origin().is_some()
    }

    /// The kubeconfig files that are read, whether they exist or not: what is to be watched for changes.
    /// Files that these name are read again by the client itself.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        match self.origin() {
            Some(Origin::File(path)) => vec![path],
            Some(Origin::Variable) => variable_files(),
            Some(Origin::Url | Origin::ServiceAccount) | None => Vec::new(),
        }
    }

    fn origin(&self) -> Option<Origin> {
        if let Some(path) = &self.kubeconfig {
            Some(Origin::File(path.clone()))
        } else if self.apiserver.is_some() {
            Some(Origin::Url)
        } else if self.environment && std::env::var_os("KUBECONFIG").is_some_and(|v| !v.is_empty())
        {
            Some(Origin::Variable)
        } else if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
            && Path::new(SERVICE_ACCOUNT).join("token").exists()
        {
            Some(Origin::ServiceAccount)
        } else {
            None
        }
    }

    /// Reads all of it.
    ///
    /// # Errors
    /// Nothing says where the server is, or something cannot be used.
    pub(crate) fn setup(&self) -> Result<Setup, ClientError> {
        let (origin, kubeconfig) = match self.origin().ok_or(ClientError::NotConfigured)? {
            Origin::File(path) => {
                let origin = path.display().to_string();
                let kubeconfig = Kubeconfig::read(&path).map_err(fault(&origin))?;
                (origin, kubeconfig)
            }
            Origin::Variable => {
                let value = std::env::var_os("KUBECONFIG").unwrap_or_default();
                let origin = format!("{} (from KUBECONFIG)", value.display());
                let kubeconfig = Kubeconfig::merged(&variable_files()).map_err(fault(&origin))?;
                (origin, kubeconfig)
            }
            Origin::Url => {
                return self.with(Cluster::default(), User::default());
            }
            Origin::ServiceAccount => return service_account(),
        };
        let (cluster, user) =
            chosen(&kubeconfig, self.apiserver.is_some()).map_err(fault(&origin))?;
        self.with(cluster, user).map_err(|error| match error {
            ClientError::Setup { reason, .. } => ClientError::Kubeconfig { origin, reason },
            error => error,
        })
    }

    /// A server and a user as a kubeconfig has them, made into what connections and requests are made from.
    ///
    /// # Errors
    /// What of it cannot be used.
    pub(crate) fn with(&self, mut cluster: Cluster, user: User) -> Result<Setup, ClientError> {
        if let Some(server) = &self.apiserver {
            cluster.server = Some(server.clone());
        }
        let server = cluster.server.clone().unwrap_or_default();
        let tls = cluster.insecure_skip_tls_verify == Some(true)
            || filled(&cluster.certificate_authority_data)
            || named(&cluster.certificate_authority).is_some()
            || filled(&user.client_certificate_data)
            || named(&user.client_certificate).is_some();
        let (url, in_url) = parse_url(&server, if tls { "https" } else { "http" })?;
        let fault = |reason: String| ClientError::Setup { url: url.to_string(), reason };
        let proxy = match &cluster.proxy_url {
            Some(text) if !text.is_empty() => {
                Proxy::parse(text, false).map(Some).map_err(|error| format!("proxy-url: {error}"))
            }
            _ => proxy::of_environment(&url),
        };
        let proxy = proxy.map_err(fault)?;
        let tls = match url.scheme_str() {
            Some("https") => Some(tls_of(&cluster, &user).map_err(fault)?),
            _ => None,
        };
        let headers = impersonation(&user).map_err(fault)?;
        let source = source(user, &cluster, in_url).map_err(fault)?;
        let credentials = Credentials::new(source).map_err(fault)?;
        let server_name = cluster.tls_server_name.filter(|name| !name.is_empty());
        Ok(Setup { url, server_name, tls, credentials, headers, proxy })
    }
}

fn fault(origin: &str) -> impl Fn(String) -> ClientError {
    let origin = origin.to_owned();
    move |reason| ClientError::Kubeconfig { origin: origin.clone(), reason }
}

/// The files that the variable `KUBECONFIG` names.
fn variable_files() -> Vec<PathBuf> {
    let value = std::env::var_os("KUBECONFIG").unwrap_or_default();
    std::env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()).collect()
}

fn filled(text: &Option<String>) -> bool {
    text.as_ref().is_some_and(|text| !text.is_empty())
}

fn named(path: &Option<PathBuf>) -> Option<&Path> {
    path.as_deref().filter(|path| !path.as_os_str().is_empty())
}

/// Cluster and user of the current context. A server given beside the file needs no context.
fn chosen(kubeconfig: &Kubeconfig, server_given: bool) -> Result<(Cluster, User), String> {
    let name = kubeconfig.current_context.as_deref().unwrap_or_default();
    let context = match kubeconfig.context(name) {
        Some(context) => context,
        None if name.is_empty() && server_given => return Ok(Default::default()),
        None if name.is_empty() => return Err("it has no current-context".to_owned()),
        None => return Err(format!("there is no context: {name}")),
    };
    let cluster = context.cluster.unwrap_or_default();
    let cluster = match kubeconfig.cluster(&cluster) {
        Some(cluster) => cluster,
        None if server_given => Cluster::default(),
        None => return Err(format!("context {name}: there is no cluster: {cluster}")),
    };
    if !server_given && !filled(&cluster.server) {
        return Err(format!("context {name}: its cluster has no server"));
    }
    let user = context.user.unwrap_or_default();
    let user = match kubeconfig.user(&user) {
        Some(user) => user,
        None if user.is_empty() => User::default(),
        None => return Err(format!("context {name}: there is no user: {user}")),
    };
    Ok((cluster, user))
}

/// Whether the URL of an API server is one.
///
/// # Errors
///
/// [`ClientError::Url`].
pub fn check_url(text: &str) -> Result<(), ClientError> {
    parse_url(text, "http").map(drop)
}

/// A URL with a scheme and a host, and user and password apart from it.
fn parse_url(text: &str, scheme: &str) -> Result<(Uri, Option<(String, String)>), ClientError> {
    let full = if text.contains("://") { text.to_owned() } else { format!("{scheme}://{text}") };
    let (head, rest) = full.split_once("://").unwrap_or_default();
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (user, place) = match authority.rsplit_once('@') {
        Some((user, place)) => (Some(user), place),
        None => (None, authority),
    };
    let bare = format!("{head}://{place}{path}");
    let shown = if user.is_some() { bare.as_str() } else { text };
    let fault =
        |reason: &str| ClientError::Url { url: shown.to_owned(), reason: reason.to_owned() };
    let url: Uri =
        bare.parse().map_err(|error: http::uri::InvalidUri| fault(&error.to_string()))?;
    match (url.scheme_str(), url.host()) {
        (Some("http" | "https"), Some(host)) if !host.is_empty() => {}
        (Some("http" | "https"), _) => return Err(fault("no host")),
        _ => return Err(fault("the scheme must be http or https")),
    }
    let user = user.map(|user| {
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        Ok::<_, String>((proxy::decode(name)?, proxy::decode(password)?))
    });
    let user = user.transpose().map_err(|error| fault(&error))?;
    Ok((url, user))
}

/// A file, or what stands in the kubeconfig itself.
fn material(
    what: &str,
    data: &Option<String>,
    path: &Option<PathBuf>,
) -> Result<Option<Material>, String> {
    if let Some(data) = data.as_ref().filter(|data| !data.is_empty()) {
        let text: String = data.split_ascii_whitespace().collect();
        let bytes = BASE64_STANDARD.decode(text);
        let bytes = bytes.map_err(|error| format!("{what}-data: not base64: {error}"))?;
        return Ok(Some(Material::Inline(bytes)));
    }
    let file = named(path).map(|path| {
        let file = Watched::read(path);
        file.map_err(|error| format!("{what} {}: {error}", path.display()))
    });
    Ok(file.transpose()?.map(Material::File))
}

fn tls_of(cluster: &Cluster, user: &User) -> Result<Tls, String> {
    let insecure = cluster.insecure_skip_tls_verify == Some(true);
    let authorities = material(
        "certificate-authority",
        &cluster.certificate_authority_data,
        &cluster.certificate_authority,
    )?;
    if insecure && authorities.is_some() {
        return Err(
            "certificate-authority and insecure-skip-tls-verify contradict each other".to_owned()
        );
    }
    let certificate =
        material("client-certificate", &user.client_certificate_data, &user.client_certificate)?;
    let key = material("client-key", &user.client_key_data, &user.client_key)?;
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => return Err("client-certificate without a client-key".to_owned()),
        (None, Some(_)) => return Err("client-key without a client-certificate".to_owned()),
    };
    Tls::new(Files { authorities, identity }, insecure)
}

/// Where the credentials of a user come from; `in_url` are those of the server's URL.
fn source(
    user: User,
    cluster: &Cluster,
    in_url: Option<(String, String)>,
) -> Result<Source, String> {
    let name = user.username.filter(|name| !name.is_empty());
    let token = user.token.filter(|token| !token.is_empty());
    let file = named(&user.token_file);
    if name.is_some() && (token.is_some() || file.is_some()) {
        return Err("username and token contradict each other".to_owned());
    }
    if let Some(provider) = user.auth_provider {
        let name = provider.name;
        return Err(format!("auth-provider {name:?} is not supported, use an exec plugin"));
    }
    let basic = |name: &str, password: &str| {
        proxy::basic(name, password).ok_or_else(|| "the password cannot be sent".to_owned())
    };
    if let Some(path) = file {
        let file = Watched::read(path);
        let first = token.as_deref().map(bearer).transpose()?;
        let file = file.map_err(|error| format!("token file {}: {error}", path.display()))?;
        return Ok(Source::File { file, first });
    }
    if let Some(token) = token {
        return bearer(&token).map(Source::Fixed);
    }
    if let Some(name) = name {
        return basic(&name, &user.password.unwrap_or_default()).map(Source::Fixed);
    }
    if let Some(exec) = user.exec {
        return Plugin::new(exec, cluster).map(Source::Program);
    }
    match in_url {
        Some((name, password)) => basic(&name, &password).map(Source::Fixed),
        None => Ok(Source::Nothing),
    }
}

/// The headers that say whom to act as.
fn impersonation(user: &User) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let mut headers = Vec::new();
    let mut put = |name: &str, value: &str| {
        let text = format!("impersonate-{}", name.to_ascii_lowercase());
        let fault = |_| format!("{text}: {value:?} cannot be sent");
        let name = HeaderName::try_from(&text).map_err(|_| format!("{text:?} is no header"))?;
        headers.push((name, HeaderValue::from_str(value).map_err(fault)?));
        Ok::<_, String>(())
    };
    let whom = user.impersonate.as_deref().filter(|name| !name.is_empty());
    let uid = user.as_uid.as_deref().filter(|uid| !uid.is_empty());
    let groups = user.as_groups.iter().flatten();
    let extra = user.as_user_extra.iter().flatten();
    let Some(whom) = whom else {
        return match (uid, groups.clone().next(), extra.clone().next()) {
            (None, None, None) => Ok(headers),
            _ => Err("as-uid, as-groups and as-user-extra need a user to act as".to_owned()),
        };
    };
    put("user", whom)?;
    if let Some(uid) = uid {
        put("uid", uid)?;
    }
    for group in groups {
        put("group", group)?;
    }
    for (key, values) in extra {
        let key = escaped(key);
        for value in values {
            put(&format!("extra-{key}"), value)?;
        }
    }
    Ok(headers)
}

/// A key as part of a header's name: everything that cannot stand there, and `%`, percent-encoded.
fn escaped(key: &str) -> String {
    let mut out = String::new();
    for byte in key.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => out.push(char::from(byte)),
            b'!' | b'#' | b'$' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`'
            | b'|' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The service account of the pod that we run in.
fn service_account() -> Result<Setup, ClientError> {
    let fault = ClientError::ServiceAccount;
    let variable = |name: &str| {
        let value = std::env::var(name).ok().filter(|value| !value.is_empty());
        value.ok_or_else(|| fault(format!("the variable {name} is not set")))
    };
    let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
    let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
    let (url, _) = parse_url(&format!("https://{open}{host}{close}:{port}"), "https")?;
    let folder = Path::new(SERVICE_ACCOUNT);
    let read = |name: &str| {
        let path = folder.join(name);
        Watched::read(&path).map_err(|error| fault(format!("{}: {error}", path.display())))
    };
    let source = Source::File { file: read("token")?, first: None };
    let credentials = Credentials::new(source).map_err(fault)?;
    let files = Files { authorities: Some(Material::File(read("ca.crt")?)), identity: None };
    let tls = Some(Tls::new(files, false).map_err(fault)?);
    let proxy = proxy::of_environment(&url).map_err(fault)?;
    Ok(Setup { url, server_name: None, tls, credentials, headers: Vec::new(), proxy })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let url = |text: &str| {
            let (url, user) = parse_url(text, "http").expect(text);
            (url.to_string(), user)
        };
        let user = Some(("me@x".to_owned(), "se:cret".to_owned()));
        assert_eq!(url("https://me%40x:se:cret@a:1/b"), ("https://a:1/b".to_owned(), user));
        assert_eq!(url("[::1]:1").0, "http://[::1]:1/");
        let error = parse_url("ftp://me:secret@a", "http").expect_err("a scheme");
        assert!(!error.to_string().contains("secret"), "{error}");
        let error = parse_url("http://me:%secret@a", "http").expect_err("an escape");
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn users_act_as_others() {
        let user = User {
            impersonate: Some("jane".to_owned()),
            as_groups: Some(vec!["a".to_owned(), "b".to_owned()]),
            as_user_extra: Some([("Some/Key".to_owned(), vec!["v".to_owned()])].into()),
            ..User::default()
        };
        let headers = impersonation(&user).expect("well-formed");
        let text: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap_or_default()))
            .collect();
        let expected = [
            ("impersonate-user", "jane"),
            ("impersonate-group", "a"),
            ("impersonate-group", "b"),
            ("impersonate-extra-some%2fkey", "v"),
        ];
        assert_eq!(text, expected);
        let alone = User { as_uid: Some("1".to_owned()), ..User::default() };
        assert!(impersonation(&alone).is_err());
    }

    #[test]
    fn contradictions_are_refused() {
        let both =
            User { username: Some("u".to_owned()), token: Some("t".to_owned()), ..User::default() };
        assert!(source(both, &Cluster::default(), None).is_err());
        let half = User { client_key_data: Some("aGk=".to_owned()), ..User::default() };
        assert!(tls_of(&Cluster::default(), &half).is_err());
    }
}
