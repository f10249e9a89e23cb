//! Resolves the address of the API server and our credentials from flags, environment, kubeconfig or service account.
//!
//! kube parses and merges the kubeconfig files. [`ClientOptions::setup`] returns everything needed to open
//! connections and send requests. It does not contact the server.

use std::io::ErrorKind::NotFound;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use ::kube::config::{AuthInfo, Cluster, ExecInteractiveMode, Kubeconfig, KubeconfigError};
use http::{HeaderValue, Uri};
use secrecy::ExposeSecret;

use super::error::{ClientError, causes};
use super::identity::Identity;
use super::proxy::{self, Proxy, split_authority};
use crate::config_file::{self, reader};
use crate::util::percent;

/// The directory of a pod's service account.
pub(crate) const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The flags and variables that select the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientOptions {
    /// `--kubeconfig`
    pub kubeconfig: Option<PathBuf>,
    /// `--apiserver`: overrides the server of the kubeconfig.
    pub apiserver: Option<String>,
    /// The context of the kubeconfig, instead of its current one.
    pub context: Option<String>,
    /// Use the variable `KUBECONFIG` if neither flag is set.
    pub environment: bool,
    /// The `User-Agent` header, such as `kstatd/0.1.0 (linux/amd64)`.
    pub user_agent: String,
}

/// The source of a configuration.
enum Origin {
    Kubeconfig {
        /// The description of the files in errors.
        name: String,
        files: Vec<PathBuf>,
    },
    Url,
    ServiceAccount,
}

/// Everything needed to open connections and send requests.
pub(crate) struct Setup {
    /// The server's URL, without user and password.
    pub url: Uri,
    /// The name in the server's certificate, if it is not the host of the URL.
    pub server_name: Option<String>,
    pub identity: Identity,
    pub proxy: Option<Proxy>,
}

impl ClientOptions {
    /// Returns whether a flag, a variable or a service account specifies the API server.
    pub fn is_configured(&self) -> bool {
        self.origin().is_some()
    }

    /// Returns the paths of the kubeconfig files for the caller to watch; a path may not exist. The client itself
    /// rereads the files that a kubeconfig references.
    pub fn files(&self) -> Vec<PathBuf> {
        match self.origin() {
            Some(Origin::Kubeconfig { files, .. }) => files,
            Some(Origin::Url | Origin::ServiceAccount) | None => Vec::new(),
        }
    }

    fn origin(&self) -> Option<Origin> {
        let variable = || std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty());
        if let Some(path) = &self.kubeconfig {
            let name = path.display().to_string();
            Some(Origin::Kubeconfig { name, files: vec![path.clone()] })
        } else if self.apiserver.is_some() {
            Some(Origin::Url)
        } else if self.environment
            && let Some(paths) = variable()
        {
            let name = format!("{} (from KUBECONFIG)", paths.display());
            let files = std::env::split_paths(&paths);
            let files = files.filter(|path| !path.as_os_str().is_empty()).collect();
            Some(Origin::Kubeconfig { name, files })
        } else if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
            && reader::exists(&Path::new(SERVICE_ACCOUNT).join("token"))
        {
            Some(Origin::ServiceAccount)
        } else {
            None
        }
    }

    /// Reads the configuration and the files it references.
    ///
    /// # Errors
    /// No API server is configured, or its configuration cannot be used.
    pub(crate) fn setup(&self) -> Result<Setup, ClientError> {
        let (origin, found) = match self.origin().ok_or(ClientError::NotConfigured)? {
            Origin::Kubeconfig { name, mut files } => {
                // The variable may name files that do not exist.
                files.retain(|path| self.kubeconfig.is_some() || !is_missing(path));
                (format!("kubeconfig {name}"), self.chosen_of(&files))
            }
            Origin::Url => return self.with(Cluster::default(), AuthInfo::default()),
            Origin::ServiceAccount => ("service account of this pod".to_owned(), service_account()),
        };
        let fault = |reason| ClientError::Other(format!("{origin}: {reason}"));
        let (cluster, user) = found.map_err(fault)?;
        self.with(cluster, user).map_err(|error| match error {
            ClientError::Setup { reason, .. } => fault(reason),
            error => error,
        })
    }

    fn chosen_of(&self, files: &[PathBuf]) -> Result<(Cluster, AuthInfo), String> {
        let mut kubeconfig = merged(files)?;
        kubeconfig.current_context = self.context.clone().or(kubeconfig.current_context);
        chosen(kubeconfig, self.apiserver.is_some())
    }

    /// Prepares requests to this cluster as this user.
    ///
    /// # Errors
    /// The URL, the proxy, a file or a credential cannot be used.
    pub(crate) fn with(
        &self,
        mut cluster: Cluster,
        mut user: AuthInfo,
    ) -> Result<Setup, ClientError> {
        if let Some(server) = &self.apiserver {
            cluster.server = Some(server.clone());
        }
        clear_empty(&mut cluster, &mut user);
        let tls = cluster.insecure_skip_tls_verify == Some(true)
            || cluster.certificate_authority_data.is_some()
            || cluster.certificate_authority.is_some()
            || user.client_certificate_data.is_some()
            || user.client_certificate.is_some();
        let server = cluster.server.as_deref().unwrap_or_default();
        let (url, in_url) = parse_url(server, if tls { "https" } else { "http" })?;
        let fault = |reason: String| ClientError::Setup { url: url.to_string(), reason };
        cluster.server = Some(url.to_string());
        check(&cluster, &mut user).map_err(fault)?;
        let is_anonymous = user.auth_provider.is_none()
            && user.username.is_none()
            && user.token.is_none()
            && user.token_file.is_none()
            && user.exec.is_none();
        if let Some((name, password)) = in_url.filter(|_| is_anonymous) {
            (user.username, user.password) = (Some(name), Some(password.into()));
        } else if user.username.is_some() {
            user.password.get_or_insert_default();
        }
        let proxy = match &cluster.proxy_url {
            Some(text) => {
                Proxy::parse(text, false).map(Some).map_err(|error| format!("proxy-url: {error}"))
            }
            None => proxy::of_environment(&url).map_err(|error| error.to_string()),
        };
        let proxy = proxy.map_err(fault)?;
        let user_agent = HeaderValue::from_str(&self.user_agent)
            .map_err(|_| fault(format!("{:?} cannot be sent as user agent", self.user_agent)))?;
        let server_name = cluster.tls_server_name.clone();
        let identity = Identity::new(cluster, user, user_agent, url.scheme_str() == Some("https"))
            .map_err(|error| fault(error.to_string()))?;
        Ok(Setup { url, server_name, identity, proxy })
    }
}

fn is_missing(path: &Path) -> bool {
    reader::metadata(path).is_err_and(|error| error.kind() == NotFound)
}

/// Returns the cluster and the user of the service account of the pod. kube's own loader also requires the namespace
/// file, which a projected volume may lack.
fn service_account() -> Result<(Cluster, AuthInfo), String> {
    let variable = |name: &str| {
        let value = std::env::var(name).ok().filter(|value| !value.is_empty());
        value.ok_or_else(|| format!("the variable {name} is not set"))
    };
    let host = variable("KUBERNETES_SERVICE_HOST")?;
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let file = |name: &str| Some(format!("{SERVICE_ACCOUNT}/{name}"));
    let cluster = Cluster {
        server: Some(format!("https://{host}:{}", variable("KUBERNETES_SERVICE_PORT")?)),
        certificate_authority: file("ca.crt"),
        ..Cluster::default()
    };
    Ok((cluster, AuthInfo { token_file: file("token"), ..AuthInfo::default() }))
}

/// Merges kubeconfig files; the first value of each name wins.
fn merged(files: &[PathBuf]) -> Result<Kubeconfig, String> {
    let mut merged = Kubeconfig::default();
    for path in files {
        let next = read(path).and_then(|next| merged.merge(next).map_err(|error| in_words(&error)));
        let named =
            |error| if files.len() > 1 { format!("{}: {error}", path.display()) } else { error };
        merged = next.map_err(named)?;
    }
    Ok(merged)
}

/// Reads a kubeconfig and resolves its relative paths against its directory. Does not use kube's reader, which would
/// block on a file that does not respond.
fn read(path: &Path) -> Result<Kubeconfig, String> {
    let text = config_file::read(path).map_err(|error| error.to_string())?;
    let mut kubeconfig = Kubeconfig::from_yaml(&text).map_err(|error| in_words(&error))?;
    kubeconfig.current_context.take_if(|name| name.is_empty());
    // "config" has the parent "", which joins to the same relative path.
    let folder = path.parent().unwrap_or(Path::new(""));
    let join = |path: &mut Option<String>| {
        if let Some(path) = path.as_mut().filter(|path| !path.is_empty()) {
            *path = folder.join(&*path).to_string_lossy().into_owned();
        }
    };
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        join(&mut cluster.certificate_authority);
    }
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        join(&mut user.client_certificate);
        join(&mut user.client_key);
        join(&mut user.token_file);
        // A command without a slash is looked up in `PATH`.
        let command = user.exec.as_mut().map(|exec| &mut exec.command);
        if let Some(command) =
            command.filter(|name| name.as_ref().is_some_and(|name| name.contains('/')))
        {
            join(command);
        }
    }
    Ok(kubeconfig)
}

/// Describes an error. Omits the file snippet of a YAML error, which may contain a secret.
fn in_words(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(error) => {
            format!("not YAML of a kubeconfig: {}", error.without_snippet().render())
        }
        error => causes(error),
    }
}

/// Returns the cluster and the user of the current context. With `server_given`, the context and its cluster are
/// optional.
fn chosen(kubeconfig: Kubeconfig, server_given: bool) -> Result<(Cluster, AuthInfo), String> {
    let Kubeconfig { clusters, auth_infos, contexts, current_context, .. } = kubeconfig;
    let name = match current_context {
        Some(name) => name,
        None if server_given => return Ok(Default::default()),
        None => return Err("it has no current-context".to_owned()),
    };
    let context = contexts.into_iter().find(|context| context.name == name);
    let context =
        context.ok_or_else(|| format!("there is no context: {name}"))?.context.unwrap_or_default();
    let cluster = match clusters.into_iter().find(|cluster| cluster.name == context.cluster) {
        Some(cluster) => cluster.cluster.unwrap_or_default(),
        None if server_given => Cluster::default(),
        None => return Err(format!("context {name}: there is no cluster: {}", context.cluster)),
    };
    if !server_given && cluster.server.as_ref().is_none_or(String::is_empty) {
        return Err(format!("context {name}: its cluster has no server"));
    }
    // kube treats a missing user as anonymous.
    let user = match context.user.filter(|user| !user.is_empty()) {
        None => AuthInfo::default(),
        Some(user) => {
            let found = auth_infos.into_iter().find(|named| named.name == user);
            found
                .ok_or_else(|| format!("context {name}: there is no user: {user}"))?
                .auth_info
                .unwrap_or_default()
        }
    };
    Ok((cluster, user))
}

/// Removes empty fields, which kube would send, and whitespace in base64 data, which kube would reject.
fn clear_empty(cluster: &mut Cluster, user: &mut AuthInfo) {
    let texts = [
        &mut cluster.certificate_authority,
        &mut cluster.certificate_authority_data,
        &mut cluster.proxy_url,
        &mut cluster.tls_server_name,
        &mut user.username,
        &mut user.token_file,
        &mut user.client_certificate,
        &mut user.client_certificate_data,
        &mut user.client_key,
        &mut user.impersonate,
        &mut user.impersonate_uid,
    ];
    for text in texts {
        text.take_if(|text| text.is_empty());
    }
    for secret in [&mut user.password, &mut user.token, &mut user.client_key_data] {
        secret.take_if(|secret| secret.expose_secret().is_empty());
    }
    let joined = |text: &str| text.split_ascii_whitespace().collect::<String>();
    for data in [&mut cluster.certificate_authority_data, &mut user.client_certificate_data]
        .into_iter()
        .flatten()
    {
        *data = joined(data);
    }
    if let Some(data) = &mut user.client_key_data {
        *data = joined(data.expose_secret()).into();
    }
}

/// Rejects contradictory and unsupported settings, which kube would apply in part. Prevents exec plugins from
/// prompting on a terminal.
fn check(cluster: &Cluster, user: &mut AuthInfo) -> Result<(), String> {
    let authority =
        cluster.certificate_authority.is_some() || cluster.certificate_authority_data.is_some();
    if cluster.insecure_skip_tls_verify == Some(true) && authority {
        return Err(
            "certificate-authority and insecure-skip-tls-verify contradict each other".to_owned()
        );
    }
    if user.username.is_some() && (user.token.is_some() || user.token_file.is_some()) {
        return Err("username and token contradict each other".to_owned());
    }
    let more = user.impersonate_uid.is_some()
        || user.impersonate_groups.as_ref().is_some_and(|groups| !groups.is_empty())
        || user.impersonate_user_extra.as_ref().is_some_and(|extra| !extra.is_empty());
    if user.impersonate.is_none() && more {
        return Err("as-uid, as-groups and as-user-extra need a user to act as".to_owned());
    }
    if let Some(exec) = &mut user.exec {
        let version = exec.api_version.as_deref().unwrap_or_default();
        if !["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"]
            .contains(&version)
        {
            return Err(format!("exec: apiVersion {version:?} is not supported"));
        }
        if exec.interactive_mode == Some(ExecInteractiveMode::Always) {
            return Err(
                "exec: a program that needs a terminal (interactiveMode Always) cannot be run"
                    .to_owned(),
            );
        }
        exec.interactive_mode = Some(ExecInteractiveMode::Never);
    }
    Ok(())
}

/// Checks the URL of an API server.
///
/// # Errors
///
/// [`ClientError::Url`].
pub fn check_url(text: &str) -> Result<(), ClientError> {
    parse_url(text, "http").map(drop)
}

/// Splits a URL into a URL without user info, and its user and password. Prepends `scheme` if it has none.
fn parse_url(text: &str, scheme: &str) -> Result<(Uri, Option<(String, String)>), ClientError> {
    let full = if text.contains("://") { text.to_owned() } else { format!("{scheme}://{text}") };
    let (head, authority, path) = split_authority(&full);
    let (user, place) = match authority.rsplit_once('@') {
        Some((user, place)) => (Some(user), place),
        None => (None, authority),
    };
    let bare = format!("{head}{}{path}", with_brackets(place));
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
        Ok::<_, String>((decode(name)?, decode(password)?))
    });
    let user = user.transpose().map_err(|error| fault(&error))?;
    Ok((url, user))
}

/// Adds the brackets of an IPv6 address, with or without a port, that has none. A manifest that takes the address from a field of the pod
/// cannot know whether it needs them. If the end may be either a port or a part of the address, it stays an error.
fn with_brackets(place: &str) -> String {
    let is_address = |text: &str| text.parse::<Ipv6Addr>().is_ok();
    match place.rsplit_once(':') {
        Some((host, _)) if is_address(host) && is_address(place) => place.to_owned(),
        _ if is_address(place) => format!("[{place}]"),
        Some((host, port)) if is_address(host) => format!("[{host}]:{port}"),
        _ => place.to_owned(),
    }
}

/// Percent-decodes the user or password of a URL.
fn decode(text: &str) -> Result<String, String> {
    let bytes = percent::decode(text).ok_or("its user or password has a bad escape")?;
    String::from_utf8(bytes).map_err(|_| "its user or password is not UTF-8".to_owned())
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
        for (text, shown) in [
            ("[::1]:1", "http://[::1]:1/"),
            ("[::1]", "http://[::1]/"),
            ("::1", "http://[::1]/"),
            ("https://fd00::1:10250", "https://[fd00::1]:10250/"),
            ("https://1:2:3:4:5:6:7:8:443/x", "https://[1:2:3:4:5:6:7:8]:443/x"),
        ] {
            assert_eq!(url(text).0, shown);
        }
        assert!(parse_url("https://fd00::1:6443", "http").is_err(), "the port is ambiguous");
        let error = parse_url("ftp://me:secret@a", "http").expect_err("a scheme");
        assert!(!error.to_string().contains("secret"), "{error}");
        let error = parse_url("http://me:%secret@a", "http").expect_err("an escape");
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    /// Returns the error for a cluster and user that are rejected.
    fn refused(cluster: Cluster, user: AuthInfo) -> String {
        let options =
            ClientOptions { apiserver: Some("https://a".to_owned()), ..ClientOptions::default() };
        options.with(cluster, user).err().expect("an error").to_string()
    }

    #[test]
    fn contradictions_are_refused() {
        let text = |text: &str| Some(text.to_owned());
        let both = AuthInfo { username: text("u"), token: Some("t".into()), ..AuthInfo::default() };
        assert!(refused(Cluster::default(), both).contains("username and token"));
        let half = AuthInfo { client_key_data: Some("aGk=".into()), ..AuthInfo::default() };
        assert!(refused(Cluster::default(), half).contains("client certificate"));
        let nobody = AuthInfo { impersonate_uid: text("1"), ..AuthInfo::default() };
        assert!(refused(Cluster::default(), nobody).contains("need a user to act as"));
        let trusting = Cluster {
            insecure_skip_tls_verify: Some(true),
            certificate_authority_data: text("aGk="),
            ..Cluster::default()
        };
        assert!(refused(trusting, AuthInfo::default()).contains("contradict"));
        let none = Cluster { certificate_authority_data: text("aGk="), ..Cluster::default() };
        assert!(refused(none, AuthInfo::default()).contains("no certificate in it"));
    }

    #[test]
    fn files_are_merged_and_the_first_counts() {
        let dir = tempfile::tempdir().expect("a directory");
        let (one, two) = (dir.path().join("one"), dir.path().join("deep/two"));
        std::fs::create_dir(dir.path().join("deep")).expect("a directory");
        std::fs::write(
            &one,
            "current-context: ''\nusers: [{name: u, user: {tokenFile: t, exec: {command: ./p}}}]\n",
        )
        .expect("written");
        std::fs::write(
            &two,
            "current-context: x\n\
             users: [{name: u, user: {token: other}}, {name: v, user: {client-key: k, exec: {command: p}}}]\n\
             clusters: [{name: c, cluster: {server: s, certificate-authority: /ca}}]\n\
             contexts: [{name: x, context: {cluster: c, user: u}}]\n",
        )
        .expect("written");
        let merged = merged(&[one, two]).expect("readable");
        let other = merged.auth_infos[1].auth_info.clone().expect("there");
        let path = |path: &str| Some(dir.path().join(path).to_string_lossy().into_owned());
        assert_eq!(other.client_key, path("deep/k"));
        assert_eq!(other.exec.expect("there").command.as_deref(), Some("p"));
        let (cluster, user) = chosen(merged, false).expect("a context");
        assert_eq!(user.token_file, path("t"));
        assert_eq!(user.exec.expect("there").command, path("./p"));
        assert!(user.token.is_none());
        assert_eq!(cluster.certificate_authority.as_deref(), Some("/ca"));
    }

    #[test]
    fn errors_show_no_secret() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("config");
        std::fs::write(&path, "users:\n- name: u\n  user: {token: very-secret, ]\n")
            .expect("written");
        let error = merged(&[path]).expect_err("broken");
        assert!(error.contains("line 3") && !error.contains("very-secret"), "{error}");
    }

    /// kube treats a missing user as anonymous; client-go rejects it, and so does this module.
    #[test]
    fn a_user_that_is_missing_is_named() {
        let text = "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: nobody}}]\n\
                    clusters: [{name: c, cluster: {server: 'http://a'}}]\n";
        let kubeconfig = Kubeconfig::from_yaml(text).expect("YAML");
        assert!(::kube::Config::try_from(kubeconfig.clone()).is_ok());
        assert_eq!(chosen(kubeconfig, false).unwrap_err(), "context x: there is no user: nobody");
    }
}
