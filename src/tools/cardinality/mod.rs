//! `kstatd cardinality suggest`: rules for labels and names that explode, each with what it saves, and what rules would
//! change.
//!
//! Captured lines or the series of a process are gone through a few times: counted, sampled where there are many values, and
//! counted again with the rules, so that what is promised is what was seen to come of them. Nothing is kept but counts and
//! samples, and nothing is changed anywhere.

mod captured;
mod count;
mod names;
mod placing;
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
use captured::Captured;
use session::Session;

/// Where series come from.
pub(crate) enum Origin {
    /// Lines of a file, `-` for standard input, and which dialects they are in.
    Lines(PathBuf, ParserFlags),
    /// A running process: its address, how it is reached, and what it is told of us.
    Process(String, Access, String),
}

/// What is asked for.
pub(crate) struct Options {
    /// Where series come from.
    pub origin: Origin,
    /// The text of the mapping in use.
    pub mapping: String,
    /// The text of rules to try, instead of looking for some.
    pub rules: Option<String>,
    /// Values of a label, and metrics with names alike, from which on they are too many.
    pub least: u32,
}

/// Looks for rules, or tries some. The text is to be printed; of rules it is a mapping file.
///
/// # Errors
/// The input cannot be read, or something is no mapping.
pub(crate) async fn run(options: Options) -> Result<String, String> {
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
