//! Access to the recorded data of the originals in `tests/conformance`, for unit tests.

use serde_json::{Value, json};

/// Reads a JSON file of that folder.
pub(crate) fn file(name: &str) -> Value {
    let path = format!("{}/tests/conformance/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the test cases of a file, which must have at least `at_least`.
pub(crate) fn cases(name: &str, at_least: usize) -> Vec<Value> {
    let data = file(name);
    let cases = data.get("cases").unwrap_or(&data).as_array().expect("cases").clone();
    assert!(cases.len() >= at_least, "{name} has {} cases", cases.len());
    cases
}

/// Returns a list of strings; null is an empty list.
pub(crate) fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| item.as_str().expect("a text").to_owned()).collect()
}

/// Encodes a number like the recordings: NaN and infinities, which JSON lacks, are strings.
pub(crate) fn number(value: f64) -> Value {
    if value.is_nan() {
        json!("NaN")
    } else if value.is_infinite() {
        json!(if value > 0.0 { "+Inf" } else { "-Inf" })
    } else {
        json!(value)
    }
}
