//! `kstatd explain LINE --addr URL`: asks a running process what would become of a line.
//!
//! The process itself writes the text, so what asks need not be of the same version.

use super::ask::Asked;
use crate::server::explain::PATH;
use crate::server::query::percent_encode;
use crate::status::words::printable;

/// What a process says of a line.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
pub(crate) struct Explained {
    /// For a person to read, with a line feed at the end.
    pub(crate) text: String,
    /// Whether all of the line has an effect, or is dropped by a rule.
    pub(crate) accepted: bool,
}

/// Asks about one line; `all` asks for every rule.
///
/// # Errors
/// There is no such answer; the text says why.
pub(crate) async fn ask(process: &Asked, line: &[u8], all: bool) -> Result<Explained, String> {
    let mut target = format!("{PATH}?format=json&line={}", percent_encode(line));
    if all {
        target.push_str("&all=1");
    }
    let mut explained: Explained = process.data(&target).await?;
    explained.text = explained.text.lines().map(|line| format!("{}\n", printable(line))).collect();
    Ok(explained)
}
