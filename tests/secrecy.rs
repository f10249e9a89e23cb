//! Secrets are never visible: neither data of Secrets nor kstatd's own credentials, at any log level.

mod common;

use common::cluster::Cluster;
use common::{Program, get, until};
use kstatd_double::{Options, objects};

const TOKEN: &str = "token-that-nobody-may-see-d41d8cd98f00b204";

/// Returns the Base64 text of all data of all Secrets of the cluster.
fn data(pods: u32) -> Vec<String> {
    let options = Options { pods, ..Options::default() };
    let secrets = objects(&options, "secrets", true, 0);
    let values = secrets.iter().flat_map(|object| {
        let object: serde_json::Value = serde_json::from_slice(object).expect("JSON");
        let data = object.get("data").and_then(|data| data.as_object().cloned());
        data.into_iter().flatten().filter(|(key, _)| key == "password").map(|(_, value)| value)
    });
    values.map(|value| value.as_str().expect("text").to_owned()).collect()
}

fn decoded(base64: &str) -> String {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let (mut text, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for byte in base64.bytes().filter(|byte| *byte != b'=') {
        (bits, count) = (bits << 6 | u32::from(digit(byte)), count + 6);
        if count >= 8 {
            count -= 8;
            text.push((bits >> count) as u8);
        }
    }
    String::from_utf8(text).expect("text")
}

#[test]
fn secrets_and_tokens_are_neither_logged_nor_exposed() {
    const PODS: u32 = 100;
    let cluster = Cluster::new(PODS);
    let directory = tempfile::tempdir().expect("directory");
    let kubeconfig = directory.path().join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: c, cluster: {{server: \"{}\"}}}}]\n\
         users: [{{name: u, user: {{token: {TOKEN}}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n",
        cluster.double.url()
    );
    std::fs::write(&kubeconfig, text).expect("write");
    let program = Program::start(
        "kstatd",
        [
            format!("--kubeconfig={}", kubeconfig.display()),
            "--log-level=trace".to_owned(),
            "--listen=127.0.0.1:0".to_owned(),
            "--telemetry-listen=127.0.0.1:0".to_owned(),
            "--statsd.listen-udp=".to_owned(),
            "--statsd.listen-tcp=".to_owned(),
        ],
    );
    let main = program.address(&["Started metrics server"], "address");
    let telemetry = program.address(&["Started self metrics server"], "address");
    let shown = until("secrets are listed", || {
        let answer = get(main, "/metrics");
        let text = answer.text();
        text.contains("\nkube_secret_info{").then_some(text)
    });
    // The cluster changes, so that watch events occur too.
    cluster.double.set_events_per_second(200.0);
    until("events have come", || (cluster.double.changes() > 200).then_some(()));
    let mut seen = vec![("/metrics", shown)];
    seen.push(("/metrics of its own", get(telemetry, "/metrics").text()));
    for path in ["/status", "/status?format=json", "/api/v1/status/tsdb"] {
        seen.push((path, get(main, path).text()));
    }
    let log = program.log();
    let is_talkative = log.iter().any(|line| line.contains("TRACE"))
        || log.iter().any(|line| line.contains("DEBUG"));
    assert!(is_talkative, "{log:#?}");
    seen.push(("the log", log.join("\n")));
    let passwords = data(PODS);
    assert!(passwords.len() > 5, "{passwords:?}");
    let hidden = passwords.iter().flat_map(|base64| [base64.clone(), decoded(base64)]);
    for value in hidden.chain([TOKEN.to_owned()]) {
        assert!(value.len() > 20, "{value} may be there by chance");
        for (place, text) in &seen {
            assert!(!text.contains(&value), "{value} is in {place}");
        }
    }
}
