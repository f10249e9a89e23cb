//! Replays the recorded relay cases of statsd_exporter 0.31 through real sockets.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use kstatd::exposition::{Format, ScrapeQuery, Source as _};
use kstatd::statsd::{Listener, Pipeline, PipelineConfig, RelayConfig};
use serde_json::Value;

fn cases() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/statsd/cli_http.json");
    let text = std::fs::read_to_string(path).expect("the recorded cases");
    let Value::Array(cases) = serde_json::from_str(&text).expect("JSON") else {
        panic!("not a list of cases");
    };
    cases.into_iter().filter(|case| case["kind"] == "relay").collect()
}

fn text<'a>(case: &'a Value, field: &str) -> Vec<&'a str> {
    let texts = case[field].as_array().map(Vec::as_slice).unwrap_or_default();
    texts.iter().filter_map(Value::as_str).collect()
}

async fn run(case: &Value) -> Result<(), String> {
    let target = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let address = target.local_addr().expect("address").to_string();
    let tcp = case["transport"] == "tcp";
    let local = "127.0.0.1:0".parse().expect("address");
    let pipeline = Pipeline::start(PipelineConfig {
        udp: (!tcp).then_some(local),
        tcp: tcp.then_some(local),
        relay: Some(RelayConfig {
            address: address.clone(),
            target: address.clone(),
            packet_length: case["packet_length"].as_u64().unwrap_or(1_400) as usize,
        }),
        ..PipelineConfig::default()
    })
    .map_err(|error| error.to_string())?;
    let packets = text(case, "packets");
    if let Some(address) = pipeline.tcp_address() {
        let packets: Vec<String> = packets.iter().map(|&packet| packet.to_owned()).collect();
        tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(address).expect("connected");
            for packet in packets {
                stream.write_all(packet.as_bytes()).expect("written");
            }
            stream.shutdown(Shutdown::Write).expect("closed");
            // The peer closes once it has processed everything.
            stream.read_to_end(&mut Vec::new()).expect("end of stream");
        })
        .await
        .expect("sent");
    }
    if let Some(address) = pipeline.udp_address() {
        let sender = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let mut lines = 0;
        for packet in packets {
            sender.send_to(packet.as_bytes(), address).expect("sent");
            lines += packet.matches('\n').count() as u64 + 1;
        }
        let deadline = Instant::now() + Duration::from_secs(120);
        while pipeline.lines(Some(Listener::Udp)) < lines {
            assert!(Instant::now() < deadline, "the lines did not arrive");
            tokio::task::yield_now().await;
        }
    }
    // Sends the rest, as the ticker would.
    pipeline.shutdown().await;

    target.set_nonblocking(true).expect("non-blocking");
    let mut buffer = [0; 65_535];
    let mut relayed = Vec::new();
    while let Ok(length) = target.recv(&mut buffer) {
        relayed.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
    }
    if relayed.concat() != case["relayed_concatenated"].as_str().unwrap_or_default() {
        return Err(format!("relayed {relayed:?}"));
    }
    let sizes: Vec<u64> = relayed.iter().map(|packet| packet.len() as u64).collect();
    let want: Vec<u64> = case["relayed_packet_sizes"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
        .filter_map(Value::as_u64)
        .collect();
    if sizes != want {
        return Err(format!("datagrams of {sizes:?} bytes, not {want:?}"));
    }
    let body: Vec<u8> = pipeline
        .frames(Format::Text, &ScrapeQuery::default())
        .flat_map(|frame| frame.to_vec())
        .collect();
    let body = String::from_utf8(body).expect("UTF-8");
    for line in text(case, "metrics") {
        let line = line.replace("{target}", &address);
        if !body.lines().any(|have| have == line) {
            return Err(format!("no {line:?}"));
        }
    }
    Ok(())
}

#[tokio::test]
async fn recorded_cases() {
    let cases = cases();
    assert!(cases.len() >= 17, "{} cases", cases.len());
    let mut failures = Vec::new();
    for case in &cases {
        if let Err(error) = run(case).await {
            failures.push(format!("{}: {error}", case["name"]));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
