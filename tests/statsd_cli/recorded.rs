//! The recorded cases of statsd_exporter.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

/// The maximum number of programs running at once.
const PARALLEL: usize = 4;

pub fn data() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/statsd/cli_http.json");
    let text = std::fs::read(path).expect("conformance data");
    serde_json::from_slice(&text).expect("JSON")
}

pub fn of_kind(kind: &str) -> Vec<Value> {
    let cases: Vec<Value> = data().into_iter().filter(|case| case["kind"] == kind).collect();
    assert!(!cases.is_empty(), "no cases of kind {kind}");
    cases
}

pub fn strings(value: &Value) -> Vec<String> {
    let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Runs `check` on every case in parallel and reports every failure.
pub fn each(cases: &[Value], check: impl Fn(&Value) -> Result<(), String> + Sync) {
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = check(case) {
                        let failure = format!("{}: {error}", case["name"]);
                        failures.lock().expect("failures").push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("failures");
    let (failed, all) = (failures.len(), cases.len());
    assert!(failures.is_empty(), "{failed} of {all} cases fail:\n{}", failures.join("\n"));
}

pub fn expect<T: PartialEq + std::fmt::Debug>(
    what: &str,
    got: T,
    expected: T,
) -> Result<(), String> {
    if got == expected { Ok(()) } else { Err(format!("{what}: {got:?} instead of {expected:?}")) }
}
