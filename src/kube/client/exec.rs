//! Programs that print credentials (`exec` in a kubeconfig).
//!
//! A program is given what it may need to know in `KUBERNETES_EXEC_INFO`, and prints an `ExecCredential`
//! with a token, a certificate, or both. When it is run is decided in [`credentials`](super::credentials).

use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use super::kubeconfig::{Cluster, ExecConfig};
use super::tls::Identity;

/// How long a program may take.
const LIMIT: Duration = Duration::from_secs(25);
/// What is read of its output at most, in bytes.
const MAX_OUTPUT: u64 = 1024 * 1024;
/// What is shown of its complaints at most, in bytes.
const MAX_COMPLAINT: usize = 1024;
/// The extension of a cluster that its programs are told.
const EXTENSION: &str = "client.authentication.k8s.io/exec";

/// A program that prints credentials.
pub(crate) struct Plugin {
    config: ExecConfig,
    version: String,
    info: String,
}

/// What it printed.
pub(crate) struct Printed {
    pub token: Option<String>,
    pub identity: Option<Arc<Identity>>,
    pub expires: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    api_version: Option<String>,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<String>,
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
}

impl Plugin {
    /// A program as a kubeconfig has it, for this cluster.
    ///
    /// # Errors
    /// It cannot be used here.
    pub(crate) fn new(config: ExecConfig, cluster: &Cluster) -> Result<Self, String> {
        if config.command.is_empty() {
            return Err("exec: command must be specified".to_owned());
        }
        let version = config.api_version.clone().unwrap_or_default();
        if !matches!(
            version.as_str(),
            "client.authentication.k8s.io/v1" | "client.authentication.k8s.io/v1beta1"
        ) {
            return Err(format!("exec: apiVersion {version:?} is not supported"));
        }
        match config.interactive_mode.as_deref() {
            None | Some("" | "Never" | "IfAvailable") => {}
            Some("Always") => {
                return Err("exec: a program that needs a terminal (interactiveMode Always) \
                            cannot be run"
                    .to_owned());
            }
            Some(other) => return Err(format!("exec: interactiveMode {other:?} is not supported")),
        }
        let mut spec = json!({ "interactive": false });
        if config.provide_cluster_info {
            spec["cluster"] = describe(cluster);
        }
        let info = json!({ "apiVersion": version, "kind": "ExecCredential", "spec": spec });
        Ok(Self { config, version, info: info.to_string() })
    }

    /// Runs it.
    ///
    /// # Errors
    /// It cannot be run, fails, takes too long, or prints something else; with what it complained about.
    pub(crate) async fn run(&self) -> Result<Printed, String> {
        let name = &self.config.command;
        match tokio::time::timeout(LIMIT, self.output()).await {
            Ok(Ok(output)) => {
                self.read(&output).map_err(|error| format!("exec plugin {name}: {error}"))
            }
            Ok(Err(error)) => Err(format!("exec plugin {name}: {error}")),
            Err(_) => Err(format!("exec plugin {name}: not ready within {} s", LIMIT.as_secs())),
        }
    }

    async fn output(&self) -> Result<Vec<u8>, String> {
        let mut command = Command::new(&self.config.command);
        command
            .args(self.config.args.iter().flatten())
            .envs(self.config.env.iter().flatten().map(|one| (&one.name, &one.value)))
            .env("KUBERNETES_EXEC_INFO", &self.info)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| {
            let hint = self.config.install_hint.as_deref().unwrap_or_default().trim();
            let space = if hint.is_empty() { "" } else { "; " };
            format!("{error}{space}{hint}")
        })?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (output, complaint, status) =
            tokio::join!(gather(stdout), gather(stderr), child.wait());
        let status: ExitStatus = status.map_err(|error| error.to_string())?;
        if !status.success() {
            let complaint = String::from_utf8_lossy(&complaint);
            let complaint = complaint.trim();
            let start = complaint.ceil_char_boundary(complaint.len().saturating_sub(MAX_COMPLAINT));
            let colon = if complaint.is_empty() { "" } else { ": " };
            return Err(format!("{status}{colon}{}", complaint[start..].replace('\n', " | ")));
        }
        Ok(output)
    }

    fn read(&self, output: &[u8]) -> Result<Printed, String> {
        // The text of a parser's error could show the token.
        let credential: ExecCredential = serde_json::from_slice(output).map_err(|error| {
            format!("prints no ExecCredential (line {}, column {})", error.line(), error.column())
        })?;
        let version = credential.api_version.unwrap_or_default();
        if version != self.version {
            return Err(format!("is configured for {}, prints {version:?}", self.version));
        }
        let status = credential.status.ok_or("prints no status")?;
        let full = |text: Option<String>| text.filter(|text| !text.is_empty());
        let token = full(status.token);
        let identity = match (full(status.client_certificate_data), full(status.client_key_data)) {
            (Some(certificate), Some(key)) => Some(Arc::new(Identity {
                certificate: certificate.into_bytes(),
                key: key.into_bytes(),
            })),
            (None, None) => None,
            _ => return Err("prints a certificate without its key, or a key alone".to_owned()),
        };
        if token.is_none() && identity.is_none() {
            return Err("prints neither a token nor a certificate".to_owned());
        }
        let expires = match full(status.expiration_timestamp) {
            Some(text) => {
                Some(text.parse().map_err(|_| format!("expirationTimestamp {text:?} is no time"))?)
            }
            None => None,
        };
        Ok(Printed { token, identity, expires })
    }
}

/// All that comes, up to a limit; the rest is read and dropped, so that the writer does not wait.
async fn gather(from: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(mut from) = from {
        // What was read until an error is all there is.
        let _ = (&mut from).take(MAX_OUTPUT).read_to_end(&mut out).await;
        let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    }
    out
}

/// What a program is told about the cluster.
fn describe(cluster: &Cluster) -> serde_json::Value {
    let mut about = json!({ "server": cluster.server.as_deref().unwrap_or_default() });
    let mut put = |key: &str, value: Option<&str>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            about[key] = value.into();
        }
    };
    put("tls-server-name", cluster.tls_server_name.as_deref());
    put("certificate-authority-data", cluster.certificate_authority_data.as_deref());
    put("proxy-url", cluster.proxy_url.as_deref());
    if cluster.insecure_skip_tls_verify == Some(true) {
        about["insecure-skip-tls-verify"] = true.into();
    }
    let extension = cluster.extensions.iter().flatten().find(|one| one.name == EXTENSION);
    about["config"] = extension.map(|one| one.extension.clone()).unwrap_or_default();
    about
}

#[cfg(test)]
mod tests {
    use super::super::kubeconfig::ExecVariable;
    use super::*;

    fn plugin(script: &str) -> Plugin {
        let config = ExecConfig {
            command: "/bin/sh".to_owned(),
            args: Some(vec!["-c".to_owned(), script.to_owned()]),
            env: Some(vec![ExecVariable { name: "GIVEN".to_owned(), value: "abc".to_owned() }]),
            api_version: Some("client.authentication.k8s.io/v1".to_owned()),
            provide_cluster_info: true,
            ..ExecConfig::default()
        };
        let cluster = Cluster { server: Some("https://one".to_owned()), ..Cluster::default() };
        Plugin::new(config, &cluster).expect("usable")
    }

    const HEAD: &str = r#"{"apiVersion":"client.authentication.k8s.io/v1","status":"#;

    #[tokio::test]
    async fn credentials_are_read() {
        let script = format!(
            r#"echo '{HEAD}{{"token":"'$GIVEN'","expirationTimestamp":"2100-01-02T03:04:05Z"}}}}'"#
        );
        let printed = plugin(&script).run().await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(printed.token.as_deref(), Some("abc"));
        assert_eq!(printed.expires, "2100-01-02T03:04:05Z".parse().ok());
        let told = r#"case "$KUBERNETES_EXEC_INFO" in *'"server":"https://one"'*) echo told >&2; esac; exit 3"#;
        let error = plugin(told).run().await.err().unwrap_or_default();
        assert_eq!(error, "exec plugin /bin/sh: exit status: 3: told");
    }

    #[tokio::test]
    async fn mistakes_are_named() {
        for (script, complaint) in [
            ("echo a secret", "prints no ExecCredential"),
            ("echo '{}'", "is configured for"),
            (&format!("echo '{HEAD}null}}'"), "prints no status"),
            (&format!("echo '{HEAD}{{}}}}'"), "neither a token nor a certificate"),
            (&format!(r#"echo '{HEAD}{{"clientKeyData":"k"}}}}'"#), "without its key"),
            (&format!(r#"echo '{HEAD}{{"token":"t","expirationTimestamp":"x"}}}}'"#), "is no time"),
            ("echo one >&2; echo two >&2; exit 1", "exit status: 1: one | two"),
        ] {
            let error = plugin(script).run().await.err().unwrap_or_default();
            assert!(error.contains(complaint), "{script}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
