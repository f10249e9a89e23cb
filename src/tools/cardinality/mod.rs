//! `kstatd cardinality suggest`: suggests mapping rules against high-cardinality labels and names,
//! with the series each saves, or tries given rules.
//!
//! Captured lines or the series of a process are replayed several times: counted, sampled where
//! there are many values, and counted again with the new rules, so that the savings are measured.
//! Only counts and samples are kept in memory, and nothing is changed.

mod captured;
mod count;
mod mapped_sample;
mod names;
mod session;
mod steps;
mod suggestion;
mod template;
#[cfg(test)]
mod tests;
mod trial;
mod yaml;

use std::path::PathBuf;

use crate::kube::client::endpoint::Access;
use crate::statsd::line::ParserFlags;
use crate::tools::CommandError;
use captured::Captured;
use session::Session;

/// The origin of the series.
pub(crate) enum Origin {
    /// Lines of a file (`-` for standard input), and the enabled dialects.
    Lines(PathBuf, ParserFlags),
    /// A running process: address, access settings and user agent.
    Process(String, Access, String),
}

/// The settings of an analysis.
pub(crate) struct Options {
    /// The origin of the series.
    pub origin: Origin,
    /// The text of the current mapping.
    pub mapping: String,
    /// The text of rules to try instead of suggesting some.
    pub rules: Option<String>,
    /// The minimum number of label values, or of similar names, worth a rule.
    pub least: u32,
}

/// Suggests rules as a mapping file, or reports the effect of given ones.
///
/// # Errors
/// When the input cannot be read, or a mapping is invalid.
pub(crate) async fn run(options: Options) -> Result<String, CommandError> {
    let captured = match options.origin {
        Origin::Lines(path, flags) => Captured::lines(&path, flags)?,
        Origin::Process(address, access, user_agent) => {
            let series = Captured::exposition(&address, access, &user_agent).await;
            series.map_err(|error| format!("no series from {address}: {error}"))?
        }
    };
    let mut session = Session { captured, mapping: options.mapping };
    match options.rules {
        Some(rules) => trial::run(&mut session, &rules),
        None => suggestion::run(&mut session, options.least as usize),
    }
}
