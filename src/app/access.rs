//! Connections of commands to servers: flags, credentials and the event loop.

use tokio::runtime::{Builder, Runtime};

use crate::cli::native::AccessArgs;
use crate::config_file;
use crate::kube::client::endpoint::Access;
use crate::telemetry::VERSION;

/// Returns the `User-Agent` of commands.
pub(crate) fn user_agent() -> String {
    format!("kstatd/{VERSION}")
}

/// Builds the single-threaded runtime of a command.
///
/// # Errors
/// Returns an error if the system provides no event queue.
pub(crate) fn command_runtime() -> Result<Runtime, String> {
    let made = Builder::new_current_thread().enable_all().build();
    made.map_err(|error| format!("cannot start: {error}"))
}

/// Builds the access settings from the flags and reads the password file.
///
/// # Errors
/// Returns an error if the password file cannot be read.
pub(crate) fn access(args: AccessArgs) -> Result<Access, String> {
    let password = match &args.password_file {
        Some(path) => {
            let text = config_file::read(path);
            let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
            Some(text.trim_end_matches(['\r', '\n']).to_owned())
        }
        None => args.password,
    };
    Ok(Access {
        certificate_authority: args.certificate_authority,
        insecure_skip_tls_verify: args.insecure_skip_tls_verify,
        tls_server_name: args.tls_server_name,
        client_certificate: args.client_certificate,
        client_key: args.client_key,
        token: args.token,
        token_file: args.token_file,
        username: args.username,
        password,
    })
}
