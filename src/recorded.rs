//! For unit tests: what was recorded of the originals, in `tests/conformance`.

use serde_json::{Value, json};

/// A file of that folder.
pub(crate) fn file(name: &str) -> Value {
    let path = format!("{}/tests/conformance/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The cases of a file, of which there are so many at least.
pub(crate) fn cases(name: &str, at_least: usize) -> Vec<Value> {
    let data = file(name);
    let cases = data.get("cases").unwrap_or(&data).as_array().expect("cases").clone();
    assert!(cases.len() >= at_least, "{name} has {} cases", cases.len());
    cases
}

/// A list of texts; null is an empty one.
pub(crate) fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| item.as_str().expect("a text").to_owned()).collect()
}

/// A number as it was recorded: JSON has neither NaN nor infinity.
pub(crate) fn number(value: f64) -> Value {
    if value.is_nan() {
        json!("NaN")
    } else if value.is_infinite() {
        json!(if value > 0.0 { "+Inf" } else { "-Inf" })
    } else {
        json!(value)
    }
}
