//! Every recorded object of kube-state-metrics through `kstatd render kube`.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde_json::Value;

/// Concurrent programs.
const PARALLEL: usize = 4;

struct Case {
    place: String,
    resource: String,
    case: Value,
}

fn cases() -> Vec<Case> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/ksm");
    let mut cases = Vec::new();
    for folder in ["unit", "fuzz"] {
        let mut files: Vec<PathBuf> = std::fs::read_dir(data.join(folder))
            .expect("conformance data")
            .map(|entry| entry.expect("entry").path())
            .collect();
        files.sort();
        for file in files {
            let text = std::fs::read(&file).expect("read");
            let data: Value = serde_json::from_slice(&text).expect("JSON");
            for case in data["cases"].as_array().expect("cases") {
                let name = case["name"].as_str().expect("name");
                let resource = data["resource"].as_str().expect("resource").to_owned();
                let place = format!("{folder} {resource}: {name}");
                cases.push(Case { place, resource, case: case.clone() });
            }
        }
    }
    cases
}

fn check(case: &Case, options: &Path) -> Result<(), String> {
    let Case { resource, case, .. } = case;
    let mut file =
        serde_json::json!({"metric_opt_in_list": {".*": {}}, "resources": {resource: {}}});
    for list in ["labels", "annotations"] {
        let keys = &case[format!("{list}_allowlist")];
        if keys.as_array().is_some_and(|keys| !keys.is_empty()) {
            file[format!("{list}_allow_list")] = serde_json::json!({resource: keys});
        }
    }
    std::fs::write(options, file.to_string()).expect("write");
    let config = format!("--config={}", options.display());
    let args = ["render", "kube", "--compat.duplicate-series", &config];
    let output = common::run_with_input("kstatd", args, case["object"].to_string().as_bytes());
    if !output.status.success() {
        return Err(output.stderr);
    }
    let mut got: Vec<&str> = output.stdout.lines().filter(|line| !line.starts_with('#')).collect();
    let mut expected: Vec<&str> =
        case["expected"].as_array().expect("expected").iter().filter_map(Value::as_str).collect();
    got.sort_unstable();
    expected.sort_unstable();
    let missing: Vec<_> = expected.iter().filter(|line| !got.contains(line)).collect();
    let extra: Vec<_> = got.iter().filter(|line| !expected.contains(line)).collect();
    if got == expected { Ok(()) } else { Err(format!("missing {missing:#?}\nextra {extra:#?}")) }
}

#[test]
fn recorded_objects_through_the_program() {
    let cases = cases();
    let failures = Mutex::new(Vec::new());
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                let options = tempfile::NamedTempFile::new().expect("file");
                while let Some(case) =
                    cases.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    if let Err(error) = check(case, options.path()) {
                        let failure = format!("{}: {error}", case.place);
                        failures.lock().expect("failures").push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("failures");
    assert!(cases.len() >= 1_766, "only {} cases", cases.len());
    assert!(
        failures.is_empty(),
        "{} of {} cases fail\n{}",
        failures.len(),
        cases.len(),
        failures.iter().take(5).cloned().collect::<Vec<_>>().join("\n")
    );
}

/// Returns the sample lines of one object.
fn samples(object: &Value) -> Vec<String> {
    let output =
        common::run_with_input("kstatd", ["render", "kube"], object.to_string().as_bytes());
    assert!(output.status.success(), "{output:?}");
    common::valid_text(&output.stdout).into_iter().map(Into::into).collect()
}

#[test]
fn times_at_both_ends_of_the_calendar() {
    let pod = |time: &str| {
        let metadata = serde_json::json!({"name": "p", "namespace": "n",
            "creationTimestamp": time, "deletionTimestamp": time});
        samples(&serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}))
    };
    let value = |lines: &[String], name: &str| -> Option<String> {
        let line = lines.iter().find(|line| line.starts_with(&format!("{name}{{")))?;
        line.rsplit(' ').next().map(str::to_owned)
    };
    for (time, expected) in [
        ("9999-12-31T23:59:59Z", Some("2.53402300799e+11")),
        ("9999-12-31T23:59:59-24:00", Some("2.53402387199e+11")),
        ("0000-01-01T00:00:00Z", Some("-6.21672192e+10")),
        ("0001-01-01T00:00:00.5Z", Some("-6.21355968e+10")),
        ("0001-01-01T00:00:00Z", None),
        ("0001-01-01T01:00:00+01:00", None),
    ] {
        let lines = pod(time);
        for name in ["kube_pod_created", "kube_pod_deletion_timestamp"] {
            assert_eq!(value(&lines, name).as_deref(), expected, "{time}: {name}");
        }
    }
    let cron_job = |created: &str, last: &str| {
        let lines = samples(&serde_json::json!({
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"name": "c", "namespace": "n", "creationTimestamp": created},
            "spec": {"schedule": "* * * * *", "timeZone": "UTC"},
            "status": {"lastScheduleTime": last},
        }));
        value(&lines, "kube_cronjob_next_schedule_time")
    };
    let (zero, usual) = ("0001-01-01T00:00:00Z", "2024-01-01T00:00:00Z");
    assert_eq!(cron_job(zero, zero), None);
    assert_eq!(cron_job(usual, zero).as_deref(), Some("1.70406726e+09"));
    assert_eq!(cron_job(usual, "9999-12-31T23:59:59Z").as_deref(), Some("2.534023008e+11"));
}
