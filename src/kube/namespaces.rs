//! Namespaces that are to be followed and do not exist: the API server answers their lists as if they were empty, so
//! that a slip of the pen in `--namespaces` would look like a quiet namespace.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::sleep;

use super::client::{Client, ClientError};
use super::pipeline::PipelineHandle;
use super::target::encode;

/// The first pause while the API server does not answer, which doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// What it grows to.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Asks once for each of these namespaces, after the first lists, and says in the log which there are not. Who may not
/// list namespaces learns nothing: where rights are by namespace, those of one that does not exist are missing as well.
pub async fn report_missing(
    client: Arc<Client>,
    handle: PipelineHandle,
    mut namespaces: Vec<String>,
) {
    namespaces.sort_unstable();
    namespaces.dedup();
    handle.ready().await;
    let mut missing = Vec::new();
    for namespace in namespaces {
        if exists(&client, &namespace).await == Some(false) {
            missing.push(namespace);
        }
    }
    if !missing.is_empty() {
        let namespaces = missing.join(", ");
        tracing::warn!(
            namespaces,
            "there is no such namespace, nothing can be shown of it until there is (--namespaces)"
        );
    }
    handle.note_missing(missing);
}

/// Whether there is such a namespace; `None` if the API server will not say. Asks until it answers.
async fn exists(client: &Client, namespace: &str) -> Option<bool> {
    #[derive(Deserialize)]
    struct List {
        items: Vec<Item>,
    }
    #[derive(Deserialize)]
    struct Item {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        name: String,
    }
    // A list, though of one: those who follow namespaces may list them, not get one.
    let mut path = "/api/v1/namespaces?fieldSelector=metadata.name%3D".to_owned();
    encode(&mut path, namespace);
    let mut pause = FIRST_PAUSE;
    loop {
        match client.fetch(&path).await {
            Ok(body) => {
                let list: List = serde_json::from_slice(&body).ok()?;
                return Some(list.items.iter().any(|item| item.metadata.name == namespace));
            }
            Err(ClientError::Refused { code: 400 | 403..=407, message, .. }) => {
                tracing::debug!(namespace, message, "it is not known whether the namespace exists");
                return None;
            }
            Err(_) => {
                sleep(pause.mul_f64(1.0 + fastrand::f64())).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}
