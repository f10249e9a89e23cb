//! `kstatd explain LINE --addr URL` and `kstatd explain object`: asks a running process to explain a line or an object.
//!
//! The process itself formats the text, so the versions need not match.

use std::net::IpAddr;

use serde_json::{Map, Value};

use super::process_client::ProcessClient;
use crate::server::explain::{OBJECT_PATH, PATH};
use crate::status::words::printable_lines;
use crate::tools::Result;
use crate::util::percent::{self, UNRESERVED};

/// Said of a process that cannot explain lines.
const NO_LINES: &str =
    "does not receive StatsD lines; use the main port of a kstatd with the StatsD side enabled";

/// Said of a process that cannot explain objects.
const NO_OBJECTS: &str =
    "has no objects of Kubernetes; use the main port of a kstatd with the Kubernetes side enabled";

/// The explanation of a line or an object by a process.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
pub(crate) struct Explained {
    /// The text for a terminal, ending with a line feed.
    pub(crate) text: String,
    /// All other fields.
    #[serde(flatten)]
    pub(crate) fields: Map<String, Value>,
}

impl Explained {
    /// Returns true if all of the line takes effect or is dropped by a rule.
    pub(crate) fn is_accepted(&self) -> bool {
        self.fields.get("accepted") == Some(&Value::Bool(true))
    }

    /// Returns whether the object has series.
    pub(crate) fn has_series(&self) -> bool {
        self.fields.get("series").and_then(Value::as_u64).is_some_and(|series| series > 0)
    }
}

/// Requests the explanation of one line from this sender; `all` includes every rule.
///
/// # Errors
/// When there is no explanation; the text contains the reason.
pub(crate) async fn ask(
    process: &ProcessClient,
    line: &[u8],
    all: bool,
    sender: Option<IpAddr>,
) -> Result<Explained> {
    let mut target = format!("{PATH}?format=json&line={}", percent::encode(line, UNRESERVED));
    if all {
        target.push_str("&all=1");
    }
    if let Some(sender) = sender {
        target.push_str(&format!("&sender={sender}"));
    }
    let absent = || format!("{} {NO_LINES}", process.address());
    let mut explained: Explained = process.data_at(&target).await?.ok_or_else(absent)?;
    explained.text = printable_lines(&explained.text);
    Ok(explained)
}

/// Requests the explanation of an object, `[NAMESPACE/]NAME`.
///
/// # Errors
/// When there is no explanation; the text contains the reason.
pub(crate) async fn ask_about_object(
    process: &ProcessClient,
    resource: &str,
    object: &str,
) -> Result<Explained> {
    let (namespace, name) = object.split_once('/').unwrap_or(("", object));
    let [resource, namespace, name] =
        [resource, namespace, name].map(|text| percent::encode(text, UNRESERVED));
    let query = format!("format=json&resource={resource}&namespace={namespace}&name={name}");
    let target = format!("{OBJECT_PATH}?{query}");
    let mut explained: Explained = process.data(&target, NO_OBJECTS).await?;
    explained.text = printable_lines(&explained.text);
    Ok(explained)
}
