//! `/readyz?verbose` and `/livez?verbose`: one line per check, in the format of Kubernetes
//! components.
//!
//! Without `verbose`, these paths answer the probes in the originals' manifests: whether the
//! process may receive traffic at all. With it, every [`Check`] counts, and `exclude=NAME` omits
//! one. The paths are public, so checks must not reveal anything confidential.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::query::pairs;
use super::response::{self, Response};
use crate::go::strconv::quote;
use crate::util::serial_blocking::SerialBlocking;

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The name, as in `exclude`.
    pub name: String,
    /// The failure, if there is one.
    pub failure: Option<String>,
}

/// Runs the checks of a component.
pub type HealthCheck = Arc<dyn Fn() -> Vec<Check> + Send + Sync>;

/// The checks of a process.
#[derive(Clone, Default)]
pub struct Checks {
    /// Checks whether all data is complete and up to date.
    pub ready: Vec<HealthCheck>,
    /// Checks whether all components are running.
    pub live: Vec<HealthCheck>,
    /// Runs checks outside the async workers: with many namespaces they take long.
    pub(crate) worker: SerialBlocking,
}

impl Checks {
    /// Runs the checks of `/readyz`.
    pub async fn ready(&self) -> Vec<Check> {
        self.run(self.ready.clone()).await
    }

    /// Runs the checks of `/livez`.
    pub async fn live(&self) -> Vec<Check> {
        self.run(self.live.clone()).await
    }

    async fn run(&self, checks: Vec<HealthCheck>) -> Vec<Check> {
        let all = self.worker.run(move || checks.iter().flat_map(|check| check()).collect());
        // A response implies that the process is alive.
        let mut results = vec![Check { name: "ping".to_owned(), failure: None }];
        results.extend(all.await.unwrap_or_else(|error| {
            tracing::error!(%error, "The health checks failed");
            vec![Check { name: "checks".to_owned(), failure: Some("internal error".to_owned()) }]
        }));
        results
    }
}

/// Returns whether a query asks for the individual checks.
pub fn is_verbose(query: &str) -> bool {
    has(query, "verbose")
}

/// Returns whether a query concerns the checks at all.
pub fn is_about_checks(query: &str) -> bool {
    is_verbose(query) || has(query, "exclude")
}

fn has(query: &str, name: &str) -> bool {
    pairs(query).any(|(key, _)| key == name)
}

/// Returns the response of the endpoint `name`, such as `readyz`. Failures are always listed line
/// by line.
pub fn report(name: &str, query: &str, checks: &[Check]) -> Response {
    let excluded = pairs(query).filter(|(key, _)| key == "exclude").map(|(_, value)| value);
    let mut excluded: BTreeSet<String> = excluded.collect();
    let (mut lines, mut failed) = (String::new(), false);
    for Check { name, failure } in checks {
        lines.push_str(&match failure {
            _ if excluded.remove(name) => format!("[+]{name} excluded: ok\n"),
            None => format!("[+]{name} ok\n"),
            Some(reason) => {
                failed = true;
                format!("[-]{name} failed: {reason}\n")
            }
        });
    }
    if !excluded.is_empty() {
        let names: Vec<String> = excluded.iter().map(|name| quote(name)).collect();
        lines.push_str("warn: some health checks cannot be excluded: no matches for ");
        lines.push_str(&names.join(", "));
        lines.push('\n');
    }
    let (status, verdict) = if failed { (503, "failed") } else { (200, "passed") };
    let text = if failed || is_verbose(query) {
        format!("{lines}{name} check {verdict}\n")
    } else {
        "OK".to_owned()
    };
    response::nosniff(response::text(status, text))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn answer(query: &str, failing: &[&str]) -> (u16, String) {
        let check = |name: &str| Check {
            name: name.to_owned(),
            failure: failing.contains(&name).then(|| "reason".to_owned()),
        };
        let response = report("readyz", query, &["ping", "kind/pods", "kind/nodes"].map(check));
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, String::from_utf8(body.to_vec()).expect("UTF-8"))
    }

    #[tokio::test]
    async fn responses_match_kubernetes_components() {
        for (query, failing, status, text) in [
            (
                "verbose",
                &[][..],
                200,
                "[+]ping ok\n[+]kind/pods ok\n[+]kind/nodes ok\nreadyz check passed\n",
            ),
            ("exclude=kind/pods", &[], 200, "OK"),
            (
                "exclude=kind%2Fpods&verbose=false&exclude=kind/nodes",
                &["kind/pods", "kind/nodes"],
                200,
                "[+]ping ok\n[+]kind/pods excluded: ok\n[+]kind/nodes excluded: ok\nreadyz check passed\n",
            ),
            (
                "exclude=ping&exclude=z&exclude=%22",
                &["kind/pods"],
                503,
                "[+]ping excluded: ok\n[-]kind/pods failed: reason\n[+]kind/nodes ok\n\
                 warn: some health checks cannot be excluded: no matches for \"\\\"\", \"z\"\n\
                 readyz check failed\n",
            ),
        ] {
            assert_eq!(answer(query, failing).await, (status, text.to_owned()), "{query}");
        }
    }

    #[test]
    fn excluded_and_single_checks() {
        for (query, verbose, about) in [
            ("", false, false),
            ("verbose", true, true),
            ("verbose=0&x", true, true),
            ("exclude=a", false, true),
            ("xverbose&verbose;", false, false),
        ] {
            assert_eq!((is_verbose(query), is_about_checks(query)), (verbose, about), "{query}");
        }
    }
}
