//! `/readyz?verbose` and `/livez?verbose`: a line for each check, in the form that components of Kubernetes give it.
//!
//! Without `verbose` these paths answer what probes of the originals' manifests are made for, whether the process may have
//! traffic at all. With it every [`Check`] counts, and `exclude=NAME` leaves one out. The paths are open to everybody, so
//! what a check says is no more than everybody may know.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::query::pairs;
use super::response::{self, Response};
use crate::go::strconv::quote;

/// Something that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What `exclude` names it by.
    pub name: String,
    /// What is wrong with it, if anything is.
    pub failure: Option<String>,
}

/// Looks at a part of the process.
pub type Look = Arc<dyn Fn() -> Vec<Check> + Send + Sync>;

/// The checks of a process.
#[derive(Clone, Default)]
pub struct Checks {
    /// Whether all that is served is complete and kept up to date.
    pub ready: Vec<Look>,
    /// Whether all that is to run does.
    pub live: Vec<Look>,
}

impl Checks {
    /// What is behind `/readyz`.
    pub fn ready(&self) -> Vec<Check> {
        looked_at(&self.ready)
    }

    /// What is behind `/livez`.
    pub fn live(&self) -> Vec<Check> {
        looked_at(&self.live)
    }
}

fn looked_at(looks: &[Look]) -> Vec<Check> {
    // Whoever reads this has an answer from the process.
    let ping = Check { name: "ping".to_owned(), failure: None };
    std::iter::once(ping).chain(looks.iter().flat_map(|look| look())).collect()
}

/// Whether a query asks for the checks.
pub fn is_verbose(query: &str) -> bool {
    has(query, "verbose")
}

/// Whether a query is about the checks at all.
pub fn is_about_checks(query: &str) -> bool {
    is_verbose(query) || has(query, "exclude")
}

fn has(query: &str, name: &str) -> bool {
    pairs(query).any(|(key, _)| key == name)
}

/// The answer of the endpoint `name`, such as `readyz`. What fails is always told line by line.
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
    async fn as_components_of_kubernetes_do() {
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
    fn what_is_asked_for() {
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
