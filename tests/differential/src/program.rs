//! The programs under comparison.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use kstatd_endurance::process::Server;
use kstatd_endurance::scrape;

/// Time for a program to start.
const START: Duration = Duration::from_secs(30);

/// The paths of the programs.
#[derive(Clone, Debug)]
pub struct Binaries {
    pub kstatd: PathBuf,
    pub statsd_exporter: PathBuf,
    pub kube_state_metrics: PathBuf,
}

/// One of the two sides of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Original,
    Kstatd,
}

impl Side {
    pub const BOTH: [Self; 2] = [Self::Original, Self::Kstatd];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Original => "original",
            Self::Kstatd => "kstatd",
        }
    }
}

/// The way in which a comparison takes a difference into account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Nothing is generated that meets it: the original crashes, never returns, or fails every later scrape.
    NotGenerated,
    /// Lines, rules or fields that meet it are found by a model of the original and left out.
    LeftOut,
    /// The original gets another line, or its answer is changed, with which it must be that of kstatd.
    Rewritten,
}

/// Starts an original, or kstatd under its name, and waits until `ready` on `port` answers. Returns `None` if the program
/// ends, because it rejects its input.
///
/// # Errors
///
/// The program cannot be started, or does not answer.
pub fn start(
    binaries: &Binaries,
    (side, name): (Side, &str),
    arguments: &[String],
    (port, ready): (u16, &str),
    directory: &Path,
) -> Result<Option<Server>> {
    let mut all = arguments.to_vec();
    let program = match (side, name) {
        (Side::Original, "statsd_exporter") => &binaries.statsd_exporter,
        (Side::Original, _) => &binaries.kube_state_metrics,
        (Side::Kstatd, _) => {
            all.insert(0, name.to_owned());
            &binaries.kstatd
        }
    };
    let server = Server::start(side.name(), program, &all, directory)?;
    let deadline = Instant::now() + START;
    while let Err(error) = body(port, ready, "*/*") {
        // An ended process has no memory.
        if server.memory().is_err() {
            return Ok(None);
        }
        if Instant::now() > deadline {
            let log = server.output().unwrap_or_default();
            return Err(error.context(format!("{} {all:?}:\n{log}", program.display())));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(Some(server))
}

/// Returns the body of a response.
///
/// # Errors
///
/// There is no successful response.
pub fn body(port: u16, path: &str, accept: &str) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    let headers = format!("Accept: {accept}\r\n");
    scrape::get(port, path, &headers, |part| body.extend_from_slice(part))?;
    Ok(body)
}

/// Returns the lines of either list that are not in the other, marked with the side that has them, or the first place where
/// their order differs; `None` if the lists are equal.
pub fn difference(original: &[String], kstatd: &[String]) -> Option<String> {
    let missing = |from: &[String], of: &[String], side: Side| {
        let mut left = of.to_vec();
        let mut out = Vec::new();
        for line in from {
            match left.iter().position(|other| other == line) {
                Some(at) => drop(left.swap_remove(at)),
                None => out.push(format!("  {:8} {line}", side.name())),
            }
        }
        out
    };
    if original == kstatd {
        return None;
    }
    let mut lines = missing(original, kstatd, Side::Original);
    lines.extend(missing(kstatd, original, Side::Kstatd));
    if lines.is_empty() {
        let both = original.iter().zip(kstatd);
        let at = both.into_iter().find(|(one, other)| order_key(one) != order_key(other));
        lines.push(at.map(|(one, other)| format!("  another order: {one} | {other}"))?);
    }
    let count = lines.len();
    lines.truncate(20);
    if count > 20 {
        lines.push(format!("  and {} more", count - 20));
    }
    Some(lines.join("\n"))
}

/// Returns what the place of a line in an exposition depends on: the originals order the series of a family by the values of
/// their labels. Series that have the same values under different names come in any order.
fn order_key(line: &str) -> String {
    let (series, _) = line.rsplit_once(' ').unwrap_or((line, ""));
    let Some((name, labels)) = series.split_once('{') else { return series.to_owned() };
    let (mut out, mut in_value, mut escaped) = (format!("{name}{{"), false, false);
    for character in labels.chars() {
        let is_quote = character == '"' && !escaped;
        escaped = character == '\\' && !escaped;
        if in_value || is_quote {
            out.push(character);
        }
        in_value ^= is_quote;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_the_side() {
        let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(difference(&lines("a b"), &lines("a b")), None);
        let found = difference(&lines("a b b"), &lines("b c a"));
        assert_eq!(found.as_deref(), Some("  original b\n  kstatd   c"));
        let found = difference(&lines("a b"), &lines("b a"));
        assert_eq!(found.as_deref(), Some("  another order: a | b"));
        let series = |name: &str, value: u32| format!("m{{{name}=\"v\"}} {value}");
        let same_values = [series("a", 1), series("b", 2)];
        let reversed = [series("b", 2), series("a", 1)];
        assert_eq!(difference(&same_values, &reversed), None);
    }
}
