//! The values of the budget flags `--limit.…`, which both sides have.

use super::flag::{ValueType, kinds, store};
use super::usage_error::UsageError;
use crate::exposition::budget::BudgetMode;

/// The budget of a label value and of a name, in bytes.
pub(super) const TEXT_BYTES: u64 = 1_024;

kinds! {
    /// The action of budgets; unset, the name of the program decides.
    LimitMode: Option<BudgetMode> = None, ValueType::Text("string"), |text, into| store(into, mode(text));
    /// The label value that replaces folded values.
    FoldValue: String = String::new(), ValueType::Text("string"),
        |text, into| store(into, fold_value(text));
}

/// Parses the action of budgets.
fn mode(text: &str) -> Result<Option<BudgetMode>, UsageError> {
    let error = || format!("value {text:?} must be off, track or enforce").into();
    BudgetMode::parse(text).map(Some).ok_or_else(error)
}

/// Parses the label value that replaces folded values.
fn fold_value(text: &str) -> Result<String, UsageError> {
    match text {
        "" => Err(
            "value \"\" must not be empty: Prometheus takes a label with an empty value for none"
                .into(),
        ),
        text => Ok(text.to_owned()),
    }
}

/// Parses a number of bytes with an optional binary suffix, in Kubernetes notation.
pub(super) fn bytes(text: &str) -> Result<u64, UsageError> {
    let (digits, shift) = [("Ki", 10), ("Mi", 20), ("Gi", 30)]
        .into_iter()
        .find_map(|(suffix, shift)| Some((text.strip_suffix(suffix)?, shift)))
        .unwrap_or((text, 0));
    let number: Option<u64> = digits.parse().ok();
    number.and_then(|number| number.checked_mul(1 << shift)).ok_or_else(|| {
        format!("value {text:?} must be a number of bytes, such as 1024, 64Ki, 512Mi or 1Gi").into()
    })
}
