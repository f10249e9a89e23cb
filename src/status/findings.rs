//! The findings of a judgement, by severity.

use super::facts::Problem;

/// The findings by severity.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) reasons: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
    pub(super) notes: Vec<String>,
}

impl Findings {
    /// Adds a reason for being degraded, with its runbook page.
    pub(super) fn reason(&mut self, page: &str, text: String) {
        self.reasons.push(Problem::new(page, text));
    }

    /// Adds a warning, with its runbook page.
    pub(super) fn warning(&mut self, page: &str, text: String) {
        self.warnings.push(Problem::new(page, text));
    }

    /// Adds a hint.
    pub(super) fn note(&mut self, text: String) {
        self.notes.push(text);
    }
}
