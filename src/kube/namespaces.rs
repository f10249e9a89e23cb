//! Reports configured namespaces that do not exist. The API server answers their lists with empty lists, so a typo in
//! `--namespaces` would otherwise look like an empty namespace.

use std::sync::Arc;
use std::time::Duration;

use ::kube::Api;
use ::kube::api::ListParams;
use k8s_openapi::api::core::v1::Namespace;
use tokio::time::sleep;

use super::client::{Client, ClientError};
use super::pipeline::PipelineHandle;

/// The first pause after a failed request; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between two requests.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The number of denied requests after which the other namespaces are not looked up: usually all of them would be denied.
const MAX_DENIED: usize = 10;

/// Looks up each namespace once after the first sync and logs the missing ones. Gives up after [`MAX_DENIED`] denials: with
/// permissions per namespace, a missing namespace is indistinguishable from a forbidden one.
pub async fn warn_about_missing_namespaces(
    client: Arc<Client>,
    handle: PipelineHandle,
    mut namespaces: Vec<String>,
) {
    namespaces.sort_unstable();
    namespaces.dedup();
    handle.ready().await;
    let (mut missing, mut denied) = (Vec::new(), 0);
    for namespace in namespaces {
        match exists(&client, &namespace).await {
            Some(true) => {}
            Some(false) => missing.push(namespace),
            None => {
                denied += 1;
                if denied == MAX_DENIED {
                    break;
                }
            }
        }
    }
    if !missing.is_empty() {
        let namespaces = missing.join(", ");
        tracing::warn!(namespaces, "Namespaces do not exist (--namespaces)");
    }
    handle.set_missing_namespaces(missing);
}

/// Returns whether a namespace exists, or `None` if the API server denies the request. Retries until the server
/// answers.
async fn exists(client: &Client, namespace: &str) -> Option<bool> {
    // A list with a field selector, because the roles for `--namespaces` allow `list` but not `get`.
    let namespaces: Api<Namespace> = Api::all(client.api());
    let named = ListParams::default().fields(&format!("metadata.name={namespace}"));
    let mut pause = FIRST_PAUSE;
    loop {
        match client.answer(namespaces.list(&named)).await {
            Ok(list) => {
                let names = list.items.iter().map(|item| item.metadata.name.as_deref());
                return Some(names.flatten().any(|name| name == namespace));
            }
            Err(ClientError::Refused { code: 400 | 403..=407, message, .. }) => {
                tracing::debug!(namespace, message, "Cannot check whether the namespace exists");
                return None;
            }
            Err(_) => {
                sleep(pause.mul_f64(1.0 + fastrand::f64())).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}
