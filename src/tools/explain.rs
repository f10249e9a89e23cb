//! `kstatd explain LINE --addr URL` and `kstatd explain object`: asks a running process to explain a line or an object.
//!
//! The process itself formats the text, so the versions need not match.

use std::net::IpAddr;

use serde_json::{Map, Value};

use super::process_client::ProcessClient;
use crate::server::cardinality::KSTATD_PREFIX;
use crate::server::explain::PATH;
use crate::server::explain_object::OBJECT_PATH;
use crate::status::words::printable;
use crate::util::percent::{self, UNRESERVED};

/// The explanation of an object by a process.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
pub(crate) struct ExplainedObject {
    /// The text for a terminal, ending with a line feed.
    pub(crate) text: String,
    /// The number of series of the object.
    pub(crate) series: u64,
    /// All other fields.
    #[serde(flatten)]
    fields: Map<String, Value>,
}

impl ExplainedObject {
    /// Returns the explanation as JSON, without its text.
    pub(crate) fn json(self) -> Value {
        let mut fields = self.fields;
        fields.insert("series".to_owned(), self.series.into());
        Value::Object(fields)
    }
}

/// The explanation of a line by a process.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
pub(crate) struct Explained {
    /// The text for a terminal, ending with a line feed.
    pub(crate) text: String,
    /// True if all of the line takes effect or is dropped by a rule.
    pub(crate) accepted: bool,
    /// All other fields.
    #[serde(flatten)]
    fields: Map<String, Value>,
}

impl Explained {
    /// Returns the explanation as JSON, without its text.
    pub(crate) fn json(self) -> Value {
        let mut fields = self.fields;
        fields.insert("accepted".to_owned(), self.accepted.into());
        Value::Object(fields)
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
) -> Result<Explained, String> {
    let mut target = format!("{PATH}?format=json&line={}", percent::encode(line, UNRESERVED));
    if all {
        target.push_str("&all=1");
    }
    if let Some(sender) = sender {
        target.push_str(&format!("&sender={sender}"));
    }
    let mut explained: Explained = process.data(&target).await?;
    explained.text = printable_lines(&explained.text);
    Ok(explained)
}

/// Requests the explanation of an object, `[NAMESPACE/]NAME`. Under the name kube-state-metrics the path has a prefix.
///
/// # Errors
/// When there is no explanation; the text contains the reason.
pub(crate) async fn ask_about_object(
    process: &ProcessClient,
    resource: &str,
    object: &str,
) -> Result<ExplainedObject, String> {
    let (namespace, name) = object.split_once('/').unwrap_or(("", object));
    let [resource, namespace, name] =
        [resource, namespace, name].map(|text| percent::encode(text, UNRESERVED));
    let query = format!("format=json&resource={resource}&namespace={namespace}&name={name}");
    let asked = process.data(&format!("{OBJECT_PATH}?{query}")).await;
    let mut explained: ExplainedObject = match asked {
        Ok(explained) => explained,
        Err(error) => {
            let below = process.data(&format!("{KSTATD_PREFIX}{OBJECT_PATH}?{query}")).await;
            below.map_err(|_| error)?
        }
    };
    explained.text = printable_lines(&explained.text);
    Ok(explained)
}

fn printable_lines(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", printable(line))).collect()
}
