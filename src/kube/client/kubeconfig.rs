//! Kubeconfig files: what is in them, and several of them as one.
//!
//! Text flows in, one [`Kubeconfig`] flows out whose relative paths have become those of its file. What
//! follows from it for a connection is decided in [`options`](super::options).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// A kubeconfig, or several merged.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Kubeconfig {
    pub current_context: Option<String>,
    clusters: Option<Vec<NamedCluster>>,
    users: Option<Vec<NamedUser>>,
    contexts: Option<Vec<NamedContext>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NamedCluster {
    name: String,
    cluster: Option<Cluster>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NamedUser {
    name: String,
    user: Option<User>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NamedContext {
    name: String,
    context: Option<Context>,
}

/// Which user acts in which cluster.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Context {
    pub cluster: Option<String>,
    pub user: Option<String>,
}

/// Where an API server is, and how it proves who it is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Cluster {
    pub server: Option<String>,
    pub tls_server_name: Option<String>,
    pub insecure_skip_tls_verify: Option<bool>,
    pub certificate_authority: Option<PathBuf>,
    pub certificate_authority_data: Option<String>,
    pub proxy_url: Option<String>,
    pub extensions: Option<Vec<Extension>>,
}

/// Something that another program understands.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Extension {
    pub name: String,
    pub extension: serde_json::Value,
}

/// How a user proves who it is. Not `Debug`: it holds secrets.
#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct User {
    pub client_certificate: Option<PathBuf>,
    pub client_certificate_data: Option<String>,
    pub client_key: Option<PathBuf>,
    pub client_key_data: Option<String>,
    pub token: Option<String>,
    #[serde(rename = "tokenFile")]
    pub token_file: Option<PathBuf>,
    pub username: Option<String>,
    pub password: Option<String>,
    #[serde(rename = "as")]
    pub impersonate: Option<String>,
    pub as_uid: Option<String>,
    pub as_groups: Option<Vec<String>>,
    pub as_user_extra: Option<BTreeMap<String, Vec<String>>>,
    pub auth_provider: Option<AuthProvider>,
    pub exec: Option<ExecConfig>,
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("User").finish_non_exhaustive()
    }
}

/// A way of proving it that was once built into clients.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AuthProvider {
    pub name: String,
}

/// A program that prints credentials.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ExecConfig {
    pub command: String,
    pub args: Option<Vec<String>>,
    pub env: Option<Vec<ExecVariable>>,
    pub api_version: Option<String>,
    pub install_hint: Option<String>,
    pub interactive_mode: Option<String>,
    pub provide_cluster_info: bool,
}

/// A variable for that program.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ExecVariable {
    pub name: String,
    pub value: String,
}

impl Kubeconfig {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or is no kubeconfig.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let mut config = Self::parse(&text)?;
        // "config" has the parent "", which joins to the same relative path.
        config.resolve(path.parent().unwrap_or(Path::new("")));
        Ok(config)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut bytes = text.as_bytes();
        let options = serde_saphyr::Options::default();
        let first: Option<Result<Option<Self>, _>> =
            serde_saphyr::read_with_options(&mut bytes, options).next();
        // A snippet could show a secret.
        let config = first
            .transpose()
            .map_err(|error| format!("not YAML: {}", error.without_snippet().render()))?;
        Ok(config.flatten().unwrap_or_default())
    }

    /// Several files as one: what comes first counts, files that do not exist do not.
    ///
    /// # Errors
    /// One of them cannot be read, or is no kubeconfig.
    pub(crate) fn merged(paths: &[PathBuf]) -> Result<Self, String> {
        let mut merged = Self::default();
        for path in paths {
            if matches!(path.try_exists(), Ok(false)) {
                continue;
            }
            let next = Self::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
            merged.add(next);
        }
        Ok(merged)
    }

    fn add(&mut self, other: Self) {
        fn join<T>(mine: &mut Option<Vec<T>>, more: Option<Vec<T>>) {
            mine.get_or_insert_default().extend(more.unwrap_or_default());
        }
        if self.current_context.as_ref().is_none_or(String::is_empty) {
            self.current_context = other.current_context;
        }
        join(&mut self.clusters, other.clusters);
        join(&mut self.users, other.users);
        join(&mut self.contexts, other.contexts);
    }

    fn resolve(&mut self, folder: &Path) {
        let resolve = |path: &mut Option<PathBuf>| {
            if let Some(path) = path.as_mut().filter(|path| !path.as_os_str().is_empty()) {
                *path = folder.join(&*path);
            }
        };
        for cluster in self.clusters.iter_mut().flatten().filter_map(|named| named.cluster.as_mut())
        {
            resolve(&mut cluster.certificate_authority);
        }
        for user in self.users.iter_mut().flatten().filter_map(|named| named.user.as_mut()) {
            resolve(&mut user.client_certificate);
            resolve(&mut user.client_key);
            resolve(&mut user.token_file);
            // A bare name is looked for on the PATH.
            if let Some(exec) = user.exec.as_mut().filter(|exec| exec.command.contains('/')) {
                let command = folder.join(&exec.command);
                exec.command = command.to_string_lossy().into_owned();
            }
        }
    }

    /// The context of this name.
    pub(crate) fn context(&self, name: &str) -> Option<Context> {
        let mut contexts = self.contexts.iter().flatten();
        contexts
            .find(|named| named.name == name)
            .map(|named| named.context.clone().unwrap_or_default())
    }

    /// The cluster of this name.
    pub(crate) fn cluster(&self, name: &str) -> Option<Cluster> {
        let mut clusters = self.clusters.iter().flatten();
        clusters
            .find(|named| named.name == name)
            .map(|named| named.cluster.clone().unwrap_or_default())
    }

    /// The user of this name.
    pub(crate) fn user(&self, name: &str) -> Option<User> {
        let mut users = self.users.iter().flatten();
        users.find(|named| named.name == name).map(|named| named.user.clone().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_merged_and_the_first_counts() {
        let dir = tempfile::tempdir().expect("a directory");
        let (one, two) = (dir.path().join("one"), dir.path().join("deep/two"));
        std::fs::create_dir(dir.path().join("deep")).expect("a directory");
        std::fs::write(&one, "users: [{name: u, user: {tokenFile: t, exec: {command: ./p}}}]\n")
            .expect("written");
        std::fs::write(
            &two,
            "current-context: x\n\
             users: [{name: u, user: {token: other}}, {name: v, user: {client-key: k, exec: {command: p}}}]\n\
             clusters: [{name: c, cluster: {certificate-authority: /ca}}]\n\
             contexts: [{name: x, context: {cluster: c, user: u}}]\n",
        )
        .expect("written");
        let missing = dir.path().join("missing");
        let merged = Kubeconfig::merged(&[one, missing, two]).expect("readable");
        assert_eq!(merged.current_context.as_deref(), Some("x"));
        let user = merged.user("u").expect("there");
        assert_eq!(user.token_file, Some(dir.path().join("t")));
        assert_eq!(user.exec.expect("there").command, dir.path().join("./p").to_string_lossy());
        assert_eq!(user.token, None);
        let other = merged.user("v").expect("there");
        assert_eq!(other.client_key, Some(dir.path().join("deep/k")));
        assert_eq!(other.exec.expect("there").command, "p");
        let cluster = merged.cluster("c").expect("there");
        assert_eq!(cluster.certificate_authority, Some(PathBuf::from("/ca")));
        assert_eq!(merged.context("x").expect("there").user.as_deref(), Some("u"));
        assert!(merged.context("y").is_none());
    }

    #[test]
    fn errors_show_no_secret() {
        let error = Kubeconfig::parse("users:\n- name: u\n  user: {token: very-secret, ]\n");
        let error = error.expect_err("broken");
        assert!(!error.contains("very-secret"), "{error}");
        assert!(Kubeconfig::parse("").expect("empty").current_context.is_none());
    }
}
