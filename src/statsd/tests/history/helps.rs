//! HELP texts: a family has one that a rule of its own metric has had, also when texts change with reloads and families end.

use super::model::Kind;
use super::random_rules;
use crate::mapper::DEFAULT_HELP;

/// Returns the text of this version of a metric's rules.
pub(super) fn text(metric: &str, version: usize) -> String {
    format!("about {metric}, version {version}")
}

/// Checks the texts of a scrape.
///
/// # Errors
/// Names a family with the text of another one.
pub(super) fn check(scrape: &[u8]) -> Result<(), String> {
    let scrape = String::from_utf8_lossy(scrape);
    let helps = scrape.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
    for (name, help) in helps {
        let metrics = Kind::ALL.map(Kind::metric).into_iter().chain([random_rules::PREFIXES[0]]);
        let metric = metrics.into_iter().find(|metric| name.starts_with(metric));
        let is_own = match metric {
            Some(metric) => help.starts_with(&format!("about {metric},")),
            None => help == DEFAULT_HELP,
        };
        if !is_own {
            return Err(format!("{name} has the HELP text {help:?}"));
        }
    }
    Ok(())
}
