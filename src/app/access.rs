//! How servers are reached that a command asks: its flags, with what their files hold.

use std::fs;

use tokio::runtime::{Builder, Runtime};

use crate::cli::native::AccessArgs;
use crate::kube::client::endpoint::Access;
use crate::telemetry::VERSION;

/// What commands call themselves in requests.
pub(crate) fn user_agent() -> String {
    format!("kstatd/{VERSION}")
}

/// An event loop for what a command asks.
///
/// # Errors
/// The system has no more of what it takes.
pub(crate) fn event_loop() -> Result<Runtime, String> {
    let made = Builder::new_current_thread().enable_all().build();
    made.map_err(|error| format!("cannot start: {error}"))
}

/// What the flags say, the password read.
///
/// # Errors
/// The file with the password cannot be read.
pub(crate) fn access(args: AccessArgs) -> Result<Access, String> {
    let password = match &args.password_file {
        Some(path) => {
            let text = fs::read_to_string(path);
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
