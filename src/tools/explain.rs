//! `kstatd explain LINE --addr URL`: asks a running process to explain a line.
//!
//! The process itself formats the text, so the versions need not match.

use serde_json::{Map, Value};

use super::process_client::ProcessClient;
use crate::server::explain::PATH;
use crate::server::query::percent_encode;
use crate::status::words::printable;

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

/// Requests the explanation of one line; `all` includes every rule.
///
/// # Errors
/// When there is no explanation; the text contains the reason.
pub(crate) async fn ask(
    process: &ProcessClient,
    line: &[u8],
    all: bool,
) -> Result<Explained, String> {
    let mut target = format!("{PATH}?format=json&line={}", percent_encode(line));
    if all {
        target.push_str("&all=1");
    }
    let mut explained: Explained = process.data(&target).await?;
    explained.text = explained.text.lines().map(|line| format!("{}\n", printable(line))).collect();
    Ok(explained)
}
