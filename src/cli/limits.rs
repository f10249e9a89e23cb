//! Values of the flags for budgets, `--limit.…`, which both sides have.

use crate::exposition::budget::BudgetMode;

/// What happens beyond budgets.
pub(super) fn mode(text: &str) -> Result<Option<BudgetMode>, String> {
    match BudgetMode::ALL.into_iter().find(|mode| mode.as_str() == text) {
        Some(mode) => Ok(Some(mode)),
        None => Err(format!("value {text:?} must be off, track or enforce")),
    }
}

/// A number, with a suffix for powers of 1024 as Kubernetes writes them.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = [("Ki", 10), ("Mi", 20), ("Gi", 30)]
        .into_iter()
        .find_map(|(suffix, shift)| Some((text.strip_suffix(suffix)?, shift)))
        .unwrap_or((text, 0));
    let number: Option<u64> = digits.parse().ok();
    number.and_then(|number| number.checked_mul(1 << shift)).ok_or_else(|| {
        format!("value {text:?} must be a number of bytes, such as 1024, 64Ki, 512Mi or 1Gi")
    })
}
