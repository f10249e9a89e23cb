//! Connections of commands to servers: flags, credentials and the event loop.

use std::path::PathBuf;

use ::kube::config::{AuthInfo, Cluster};
use tokio::runtime::Builder;

use crate::cli::native::AccessArgs;
use crate::cli::process::{ClusterArgs, DEFAULT_ADDRESS, ProcessArgs};
use crate::config_file;
use crate::kube::client::endpoint::Access;
use crate::kube::{Client, ClientOptions};
use crate::telemetry::user_agent;
use crate::tools::CommandError;
use crate::tools::bundle::Subject;
use crate::tools::check::pods;
use crate::tools::process_client::ProcessClient;

/// The default port of own metrics and profiles.
const TELEMETRY_PORT: u16 = 8081;

/// Runs a command on this thread. Its result does not wait for name look-ups that it has given up: they cannot be cancelled.
///
/// # Errors
/// Returns an error if the system provides no event queue, and that of the command.
pub(crate) fn run_command<T>(
    command: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let result = runtime.block_on(command);
    runtime.shutdown_background();
    result
}

/// Builds the access settings from the flags and reads the password file.
///
/// # Errors
/// Returns an error if the password file cannot be read.
pub(crate) fn access(args: AccessArgs) -> Result<Access, CommandError> {
    let password = match &args.password_file {
        Some(path) => {
            let text = config_file::read(path);
            let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
            Some(text.trim_end_matches(['\r', '\n']).to_owned())
        }
        None => args.password,
    };
    let text = |path: Option<PathBuf>| path.map(|path| path.to_string_lossy().into_owned());
    let cluster = Cluster {
        certificate_authority: text(args.certificate_authority),
        insecure_skip_tls_verify: Some(args.insecure_skip_tls_verify),
        tls_server_name: args.tls_server_name,
        ..Cluster::default()
    };
    let user = AuthInfo {
        client_certificate: text(args.client_certificate),
        client_key: text(args.client_key),
        token: args.token.map(Into::into),
        token_file: text(args.token_file),
        username: args.username,
        password: password.map(Into::into),
        ..AuthInfo::default()
    };
    Ok(Access { cluster, user })
}

/// Returns the settings of kubectl for the API server.
pub(crate) fn api_server(args: ClusterArgs) -> ClientOptions {
    ClientOptions {
        kubeconfig: args.kubeconfig.or_else(default_kubeconfig),
        context: args.context,
        environment: true,
        user_agent: user_agent(),
        ..ClientOptions::default()
    }
}

/// Returns kubectl's default file, unless the variable `KUBECONFIG` names others or there is none.
fn default_kubeconfig() -> Option<PathBuf> {
    let is_named = std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty());
    let file = PathBuf::from(std::env::var_os("HOME")?).join(".kube/config");
    (!is_named && file.exists()).then_some(file)
}

/// Returns a client for the main listener of the process that the flags select. Finds its pod first, if it is one.
///
/// # Errors
/// The flags are invalid, or there is not exactly one such pod.
pub(crate) async fn process(args: ProcessArgs) -> Result<ProcessClient, CommandError> {
    if args.is_pod() {
        return Ok(subject(args, None).await?.main);
    }
    // One client: a credential in a pipe can be read once.
    let addr = args.addr.as_deref().unwrap_or(DEFAULT_ADDRESS);
    ProcessClient::new(addr, access(args.access)?)
}

/// Returns clients for all listeners of the process that the flags select.
///
/// # Errors
/// As [`process`].
pub(crate) async fn subject(
    args: ProcessArgs,
    telemetry_addr: Option<String>,
) -> Result<Subject, CommandError> {
    if args.is_pod() {
        let client = Client::new(&api_server(args.cluster)).await?;
        let pod = pods::only(&client, args.namespace, args.target.as_deref()).await?;
        return Ok(Subject::of_pod(&client, &pod));
    }
    let addr = args.addr.as_deref().unwrap_or(DEFAULT_ADDRESS);
    let telemetry_addr = telemetry_addr.unwrap_or_else(|| with_port(addr, TELEMETRY_PORT));
    let access = access(args.access)?;
    let main = ProcessClient::new(addr, access.clone())?;
    let telemetry = ProcessClient::new(&telemetry_addr, access)?;
    Ok(Subject { main, telemetry, pod: None, container: String::new() })
}

/// Returns an address with another port, without its path.
fn with_port(address: &str, port: u16) -> String {
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), address),
    };
    let host = rest.split('/').next().unwrap_or_default();
    let is_port = |port: &&(&str, &str)| port.1.bytes().all(|byte| byte.is_ascii_digit());
    let host = host.rsplit_once(':').as_ref().filter(is_port).map_or(host, |(host, _)| host);
    format!("{scheme}{host}:{port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_replaced() {
        for (address, expected) in [
            ("localhost:8080", "localhost:1"),
            ("https://me:pw@[::1]:8080/x", "https://me:pw@[::1]:1"),
            ("h", "h:1"),
            ("[::1]", "[::1]:1"),
        ] {
            assert_eq!(with_port(address, 1), expected);
        }
    }
}
