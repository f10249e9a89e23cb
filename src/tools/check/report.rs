//! The results of the checks, as text and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use crate::status::words::printable;

/// The result of a check, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// Nothing to do.
    Ok,
    /// A difference, or something that could not be checked.
    Warning,
    /// Something that does not work after the swap.
    Failed,
}

/// The signs of the outcomes.
const SIGNS: [char; 3] = ['√', '!', '×'];

/// A check with its result.
#[derive(Debug, Serialize)]
struct Check {
    result: Outcome,
    text: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    hint: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    page: String,
}

/// Checks of one subject.
#[derive(Debug, Serialize)]
pub(crate) struct Section {
    title: String,
    checks: Vec<Check>,
}

impl Section {
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), checks: Vec::new() }
    }

    /// Adds a check without objection.
    pub(crate) fn ok(&mut self, text: impl Into<String>) {
        self.add(Outcome::Ok, text, "", "");
    }

    /// Adds a check. `page` is the path or URL of a page of the documentation.
    pub(crate) fn add(
        &mut self,
        result: Outcome,
        text: impl Into<String>,
        hint: impl Into<String>,
        page: &str,
    ) {
        let page = page.to_owned();
        self.checks.push(Check { result, text: text.into(), hint: hint.into(), page });
    }

    /// Adds the checks of another section, with a prefix.
    pub(crate) fn append(&mut self, prefix: &str, other: Self) {
        let prefixed = |check: Check| Check { text: format!("{prefix}{}", check.text), ..check };
        self.checks.extend(other.checks.into_iter().map(prefixed));
    }

    /// Returns the number of checks.
    pub(crate) fn len(&self) -> usize {
        self.checks.len()
    }

    /// Returns true if no check has objections.
    pub(crate) fn is_clean(&self) -> bool {
        self.checks.iter().all(|check| check.result == Outcome::Ok)
    }
}

/// All sections.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    sections: Vec<Section>,
}

impl Report {
    /// Adds a section unless it is empty.
    pub(crate) fn push(&mut self, section: Section) {
        self.sections.extend(Some(section).filter(|section| !section.checks.is_empty()));
    }

    fn checks(&self) -> impl Iterator<Item = &Check> {
        self.sections.iter().flat_map(|section| &section.checks)
    }

    fn count(&self, outcome: Outcome) -> usize {
        self.checks().filter(|check| check.result == outcome).count()
    }

    /// Returns true if a check failed.
    pub(crate) fn failed(&self) -> bool {
        self.count(Outcome::Failed) > 0
    }

    /// Formats the report for a terminal. Names come from strangers, so each is escaped.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        for Section { title, checks } in &self.sections {
            let title = printable(title);
            let _ = writeln!(out, "{title}\n{}", "-".repeat(title.chars().count()));
            for Check { result, text, hint, page } in checks {
                let _ = writeln!(out, "{} {}", SIGNS[*result as usize], printable(text));
                if !hint.is_empty() {
                    let _ = writeln!(out, "    hint: {}", printable(hint));
                }
                if !page.is_empty() {
                    let _ = writeln!(out, "    see {}", printable(page));
                }
            }
            out.push('\n');
        }
        let [passed, warnings, failed] =
            [Outcome::Ok, Outcome::Warning, Outcome::Failed].map(|outcome| self.count(outcome));
        let _ = writeln!(out, "{passed} passed, {warnings} warnings, {failed} failed");
        out
    }

    /// Formats the report as one JSON object.
    pub(crate) fn json(&self) -> String {
        let result = self.checks().map(|check| check.result).max().unwrap_or(Outcome::Ok);
        let value = serde_json::json!({ "result": result, "sections": self.sections });
        format!("{value:#}\n")
    }
}
