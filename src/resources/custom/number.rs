//! Conversion of object values to numbers, by the rules of kube-state-metrics.

use crate::go;
use crate::resources::values::quantity::Quantity;
use crate::resources::values::time;
use crate::util::words::words;

use super::tree::Json;

words! {
    /// The reason why a value has no series.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Reason {
        /// The value is missing or null.
        Nothing = "nothing",
        /// A string that is not a number.
        NotANumber = "not_a_number",
        /// A list or map in place of a scalar, or another type in place of a string.
        WrongType = "wrong_type",
    }
}

/// Converts a value to a number.
pub(super) fn of(value: &Json<'_>) -> Result<f64, Reason> {
    match value {
        Json::Bool(on) => Ok(f64::from(u8::from(*on))),
        Json::Int(number) => Ok(*number as f64),
        Json::Float(number) => Ok(*number),
        Json::Text(text) => of_text(text),
        Json::Null => Err(Reason::Nothing),
        Json::List(_) | Json::Map(_) => Err(Reason::WrongType),
    }
}

/// Converts a string to a number: a boolean, a time, a quantity, a percentage or a number, the first that fits.
/// Quantities precede numbers, so `5m` is 0.005 and `3.14159` is rounded up.
pub(super) fn of_text(text: &str) -> Result<f64, Reason> {
    let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is(&["true", "yes"]) {
        return Ok(1.0);
    }
    if is(&["false", "no", "unknown"]) {
        return Ok(0.0);
    }
    if let Ok((seconds, _)) = time::parse(text) {
        return Ok(seconds as f64);
    }
    if let Some(quantity) = Quantity::parse(text) {
        return Ok(quantity.approximate());
    }
    if let Some(digits) = text.strip_suffix('%')
        && !digits.is_empty()
        && digits.bytes().all(|digit| digit.is_ascii_digit())
        && let Ok(percent) = digits.parse::<f64>()
    {
        return Ok(percent / 100.0);
    }
    go::float::parse(text.as_bytes()).map_err(|_| Reason::NotANumber)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from kube-state-metrics 2.20.0.
    #[test]
    fn texts() {
        for (text, want) in [
            ("TrUe", 1.0),
            ("nO", 0.0),
            ("UNKNOWN", 0.0),
            ("1969-12-31T23:59:59.5Z", -1.0),
            ("5m", 0.005),
            ("3.14159", 3.1415900000000003),
            ("12e-1", 1.2000000000000002),
            ("1E", 1e18),
            ("1Ei", 1.152921504606847e18),
            ("1e-10", 1e-9),
            ("1e-400", 1e-9),
            ("1e400", f64::INFINITY),
            ("1e9999999999999", f64::INFINITY),
            ("-", 0.0),
            (".", 0.0),
            ("001%", 0.01),
            ("2147483648%", 2.147483648e7),
            ("99999999999999999999%", 1e18),
            ("0x1P4", 16.0),
            ("-INFINITY", f64::NEG_INFINITY),
            ("1_000", 1000.0),
        ] {
            assert_eq!(of_text(text), Ok(want), "{text}");
        }
        assert!(of_text("nan").is_ok_and(f64::is_nan));
        for text in ["1__0", "İ", "+NaN", "+5%", "-5%", "5%%", "%", "12.5%", "", " 5 ", "1K"] {
            assert_eq!(of_text(text), Err(Reason::NotANumber), "{text}");
        }
    }
}
