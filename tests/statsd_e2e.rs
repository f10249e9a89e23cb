//! Runs the recorded end-to-end cases of statsd_exporter 0.31 through a pipeline with real sockets.
//!
//! Packets are sent over loopback UDP, TCP or a Unix socket. The pipeline has a manual clock, so waiting
//! takes no time. Series, HELP and TYPE lines, own metrics and native histograms are all compared. Cases
//! marked `quirk` record defects of statsd_exporter; [`instead`] lists what is expected here.

mod support;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kstatd::exposition::message::{self, Delimited};
use kstatd::exposition::{Format, ScrapeQuery, Source as _};
use kstatd::statsd::line::ParserFlags;
use kstatd::statsd::{Clock, Listener, Pipeline, PipelineConfig, StartError};
use serde_json::Value;
use support::exposition::{self, Histogram};

fn strings(value: &Value) -> Vec<String> {
    let texts = value.as_array().map(Vec::as_slice).unwrap_or_default();
    texts.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// The expected outcome where that of statsd_exporter is a defect.
enum Instead {
    /// The flag is rejected before the pipeline starts.
    RefusedByFlags,
    /// These series.
    Series(&'static [&'static str]),
    /// The recorded series, with different own metrics.
    SameSeries,
    /// Quantiles of the values 1 to N, within the configured rank errors.
    Quantiles(f64),
}

/// Cases without a `quirk` whose outcome is a defect according to chapter 18 of the reference.
const NOT_MARKED: [&str; 1] = [
    // A container ID without a tag section is accepted.
    "tags/all/07",
];

/// Returns the outcome for each case with a `quirk`, as proposed in chapter 18 of the reference.
fn instead(name: &str) -> Option<Instead> {
    use Instead::{Quantiles, RefusedByFlags, SameSeries, Series};
    const SUMMARY_M: &[&str] = &[
        "m_count 1",
        "m_sum 0.003",
        "m{quantile=\"0.5\"} 0.003",
        "m{quantile=\"0.9\"} 0.003",
        "m{quantile=\"0.99\"} 0.003",
    ];
    macro_rules! histogram {
        ($name:literal) => {
            Series(&[
                concat!($name, "_bucket{le=\"+Inf\"} 1"),
                concat!($name, "_bucket{le=\"0.005\"} 1"),
                concat!($name, "_bucket{le=\"0.01\"} 1"),
                concat!($name, "_bucket{le=\"0.025\"} 1"),
                concat!($name, "_bucket{le=\"0.05\"} 1"),
                concat!($name, "_bucket{le=\"0.1\"} 1"),
                concat!($name, "_bucket{le=\"0.25\"} 1"),
                concat!($name, "_bucket{le=\"0.5\"} 1"),
                concat!($name, "_bucket{le=\"1\"} 1"),
                concat!($name, "_bucket{le=\"10\"} 1"),
                concat!($name, "_bucket{le=\"2.5\"} 1"),
                concat!($name, "_bucket{le=\"5\"} 1"),
                concat!($name, "_count 1"),
                concat!($name, "_sum 0.003"),
            ])
        };
    }
    Some(match name {
        // Only summaries and histograms own derived names.
        "conflict/suffix/g-then-sum-c" => Series(&["m 2", "m_sum 1"]),
        "conflict/suffix/g-then-sum-g" => Series(&["m 2", "m_sum 2"]),
        "conflict/suffix/g-then-count-c" => Series(&["m 2", "m_count 1"]),
        "conflict/suffix/g-then-count-g" => Series(&["m 2", "m_count 2"]),
        "conflict/suffix/g-then-bucket-c" => Series(&["m 2", "m_bucket 1"]),
        "conflict/suffix/g-then-bucket-g" => Series(&["m 2", "m_bucket 2"]),
        // The second of two conflicting metrics is rejected.
        "conflict/suffix/ms-then-sum-ms" => Series(SUMMARY_M),
        "conflict/hist-suffix/ms-then-sum-ms"
        | "conflict/hist-suffix/ms-then-count-ms"
        | "conflict/hist-suffix/ms-then-bucket-ms" => histogram!("m"),
        "conflict/hist-suffix-first/sum-ms-then-ms" => histogram!("m_sum"),
        // A family keeps its first help text.
        "conflict/help-different-labels" => Series(&["n{ll=\"x\"} 1", "n{mm=\"x\"} 2"]),
        "poison/empty-name-influx" => Series(&["ok 2"]),
        "poison/empty-name-signalfx"
        | "poison/empty-name-librato"
        | "poison/quantile-label-summary"
        | "poison/self-metric-counter"
        | "mapping/label-reserved" => Series(&[]),
        // There are no Go runtime metrics that could conflict.
        "poison/self-metric-gauge" | "poison/self-metric-type" => Series(&["go_goroutines 1"]),
        "poison/process-metric" => Series(&["process_open_fds 1"]),
        // Unusable options are corrected at load, with a warning.
        "poison/buckets-decreasing" => Series(&[
            "n_bucket{le=\"+Inf\"} 1",
            "n_bucket{le=\"1\"} 1",
            "n_bucket{le=\"2\"} 1",
            "n_count 1",
            "n_sum 0.001",
        ]),
        "poison/buckets-equal" => {
            Series(&["n_bucket{le=\"+Inf\"} 1", "n_bucket{le=\"1\"} 1", "n_count 1", "n_sum 0.001"])
        }
        "poison/summary-negative-max-age" => Series(&[
            "n_count 1",
            "n_sum 0.001",
            "n{quantile=\"0.5\"} 0.001",
            "n{quantile=\"0.9\"} 0.001",
            "n{quantile=\"0.99\"} 0.001",
        ]),
        "poison/quantile-out-of-range" => Series(&[
            "n_count 2",
            "n_sum 0.003",
            "n{quantile=\"0\"} 0.001",
            "n{quantile=\"1\"} 0.002",
        ]),
        "histogram/custom" => Series(&[
            "t_bucket{le=\"+Inf\"} 3",
            "t_bucket{le=\"1\"} 1",
            "t_bucket{le=\"1e+06\"} 3",
            "t_bucket{le=\"1e+21\"} 3",
            "t_bucket{le=\"1e-05\"} 0",
            "t_bucket{le=\"2.5\"} 2",
            "t_count 3",
            "t_sum 1.000003e+06",
        ]),
        "ttl/negative-default" => Series(&["a 1", "b 1"]),
        "poison/cache-size-negative-mapping" => RefusedByFlags,
        "mapping/shared-label-map-leak" => Series(&["n_c{leak=\"yes\"} 1", "n_g 2"]),
        "mapping/shared-label-map-leak-honor" => {
            Series(&["n_c{ll=\"fromcounter\"} 1", "n_g{ll=\"fromgauge\"} 2"])
        }
        "mapping/cache-random" => SameSeries,
        "tags/all/07" => Series(&["m{container_id=\"cid\"} 1"]),
        "ttl/type-conflict-survives-expiry" => Series(&["a 1"]),
        // As in statsd_exporter, a series keeps its original time to live.
        "reload/ttl-added-existing-series"
        | "reload/ttl-added-then-idle"
        | "reload/ttl-added-new-series"
        | "reload/default-ttl-added-unmapped" => SameSeries,
        "quantiles/600-values" => Quantiles(600.0),
        "quantiles/2000-values" => Quantiles(2_000.0),
        _ => return None,
    })
}

/// A running pipeline and its senders.
struct Harness {
    runtime: tokio::runtime::Runtime,
    pipeline: Option<Arc<Pipeline>>,
    mapping: Option<PathBuf>,
    unixgram: PathBuf,
    sent: u64,
    _directory: tempfile::TempDir,
}

fn config(flags: &[String]) -> Option<PipelineConfig> {
    let mut config = PipelineConfig { clock: Clock::manual(), ..PipelineConfig::default() };
    for flag in flags {
        let ParserFlags { dogstatsd, influxdb, librato, signalfx, .. } = &mut config.flags;
        match flag.as_str() {
            "--no-statsd.parse-dogstatsd-tags" => *dogstatsd = false,
            "--no-statsd.parse-influxdb-tags" => *influxdb = false,
            "--no-statsd.parse-librato-tags" => *librato = false,
            "--no-statsd.parse-signalfx-tags" => *signalfx = false,
            // Flags for a cache and queues that do not exist here.
            "--statsd.cache-type=random"
            | "--statsd.event-flush-threshold=1"
            | "--statsd.event-queue-size=0"
            | "--statsd.udp-packet-queue-size=0" => {}
            other => panic!("no such flag in this harness: {other}"),
        }
    }
    Some(config)
}

impl Harness {
    fn start(case: &Value, key_cache_size: usize) -> Result<Self, StartError> {
        let directory = tempfile::tempdir().expect("a directory");
        let mapping = case["mapping"].as_str().map(|text| {
            let path = directory.path().join("mapping.yml");
            std::fs::write(&path, text).expect("written");
            path
        });
        let unixgram = directory.path().join("statsd.sock");
        let mut config = config(&strings(&case["flags"])).expect("known flags");
        config.mapping_file.clone_from(&mapping);
        config.key_cache_size = key_cache_size;
        match case["transport"].as_str() {
            None | Some("udp") => config.udp = Some("127.0.0.1:0".parse().expect("address")),
            Some("tcp") => config.tcp = Some("127.0.0.1:0".parse().expect("address")),
            Some("unixgram") => config.unixgram = Some(unixgram.display().to_string()),
            Some(other) => panic!("no such transport: {other}"),
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let pipeline = {
            let _inside = runtime.enter();
            Pipeline::start(config)?
        };
        Ok(Self {
            runtime,
            pipeline: Some(Arc::new(pipeline)),
            mapping,
            unixgram,
            sent: 0,
            _directory: directory,
        })
    }

    fn pipeline(&self) -> &Arc<Pipeline> {
        self.pipeline.as_ref().expect("running")
    }

    /// Sends packets and returns once scrapes show their effect.
    fn send(&mut self, case: &Value, packets: &Value) {
        if packets.is_null() {
            return;
        }
        let packets: Vec<Vec<Vec<u8>>> = packets
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default()
            .iter()
            .map(|packet| strings(packet).iter().map(|line| support::bytes(line)).collect())
            .collect();
        if let Some(address) = self.pipeline().tcp_address() {
            let raw = case["raw"].as_bool().unwrap_or(false);
            let mut stream = TcpStream::connect(address).expect("connected");
            for packet in packets {
                let text = if raw {
                    packet.concat()
                } else {
                    [packet.join(&b'\n'), b"\n".to_vec()].concat()
                };
                // The pipeline may have closed the connection because a line was too long.
                let _ = stream.write_all(&text);
            }
            let _ = stream.shutdown(Shutdown::Write);
            // The connection closes after all of its data has been processed.
            let mut nothing = Vec::new();
            let _ = stream.read_to_end(&mut nothing);
            return;
        }
        let packets: Vec<Vec<u8>> = packets.iter().map(|packet| packet.join(&b'\n')).collect();
        let listener = match self.pipeline().udp_address() {
            Some(address) => {
                let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
                for packet in &packets {
                    socket.send_to(packet, address).expect("sent");
                }
                Listener::Udp
            }
            None => {
                let socket = UnixDatagram::unbound().expect("a socket");
                for packet in &packets {
                    socket.send_to(packet, &self.unixgram).expect("sent");
                }
                Listener::Unixgram
            }
        };
        let lines =
            |packet: &Vec<u8>| packet.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
        self.sent += packets.iter().map(lines).sum::<u64>();
        let deadline = Instant::now() + Duration::from_secs(120);
        while self.pipeline().lines(Some(listener)) < self.sent {
            assert!(Instant::now() < deadline, "the lines did not arrive");
            std::thread::yield_now();
        }
    }

    fn text(&self, format: Format) -> String {
        let frames = self.pipeline().frames(format, &ScrapeQuery::default());
        let body: Vec<u8> = frames.flat_map(|frame| frame.to_vec()).collect();
        String::from_utf8(body).expect("UTF-8")
    }

    fn protobuf(&self) -> Vec<u8> {
        let body = self.pipeline().typed(&ScrapeQuery::default()).expect("a typed form");
        message::frames(vec![body], Delimited::default()).flatten().collect()
    }

    fn wait(&self, seconds: &Value) {
        if let Some(seconds) = seconds.as_f64() {
            self.pipeline().advance(Duration::from_secs_f64(seconds));
        }
    }

    fn reload(&self, text: &Value) {
        if let (Some(text), Some(path)) = (text.as_str(), &self.mapping) {
            std::fs::write(path, text).expect("written");
            // Some cases contain an invalid file. The counters show the result.
            let _ = self.pipeline().reload();
        }
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        if let Some(pipeline) = self.pipeline.take() {
            self.runtime.block_on(pipeline.shutdown());
        }
    }
}

fn is_own(line: &str) -> bool {
    ["statsd_exporter_", "statsd_metric_mapper_"].iter().any(|prefix| line.starts_with(prefix))
}

/// Returns the sorted samples of the users' metrics.
fn samples(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !is_own(line))
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines
}

/// Returns the sorted HELP and TYPE lines of the users' metrics.
fn meta(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text
        .lines()
        .filter(|line| line.starts_with('#') && !line.split(' ').nth(2).is_some_and(is_own))
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines
}

/// Hits of the mapping cache differ, because the key cache stores lines instead of names.
const CACHE_HITS: &str = "statsd_metric_mapper_cache_hits_total";

/// Returns the own metrics other than 0, in the form of the recording.
fn own(text: &str) -> Vec<(String, String)> {
    let left_out = [
        "statsd_exporter_event_queue_flushed_total",
        "statsd_exporter_build_info",
        CACHE_HITS,
        "statsd_metric_mapper_cache_length",
    ];
    let mut metrics: Vec<(String, String)> = text
        .lines()
        .filter(|line| is_own(line) && !left_out.iter().any(|name| line.starts_with(name)))
        .filter_map(|line| line.rsplit_once(' '))
        .filter(|(_, value)| *value != "0")
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    metrics.sort();
    metrics
}

fn check_quantiles(lines: &[String], count: f64) -> Result<(), String> {
    for (label, quantile, error) in [("0.5", 0.5, 0.05), ("0.9", 0.9, 0.01), ("0.99", 0.99, 0.001)]
    {
        let value = lines
            .iter()
            .find_map(|line| line.strip_prefix(&format!("t{{quantile=\"{label}\"}} ")))
            .and_then(|value| value.parse::<f64>().ok())
            .ok_or(format!("no quantile {label}"))?;
        // The values are 1 to `count`, so each value equals its rank.
        if (value - quantile * count).abs() > error * count + 1.0 {
            return Err(format!("quantile {label} is {value} of {count}"));
        }
    }
    let sum = count * (count + 1.0) / 2.0;
    let has = |name: &str, want: f64| {
        let value = lines.iter().find_map(|line| line.strip_prefix(name));
        value.and_then(|value| value.parse().ok()) == Some(want)
    };
    if !has("t_count ", count) || !has("t_sum ", sum) {
        return Err(format!("wrong count or sum in {lines:?}"));
    }
    Ok(())
}

fn run(case: &Value, key_cache_size: usize) -> Result<(), String> {
    let name = case["name"].as_str().unwrap_or_default();
    let instead = instead(name);
    if case["quirk"].is_null() == instead.is_some() && !NOT_MARKED.contains(&name) {
        return Err("treated as a quirk, or not, against the recording".to_owned());
    }
    if matches!(instead, Some(Instead::RefusedByFlags)) {
        return Ok(());
    }
    let mut harness = Harness::start(case, key_cache_size).map_err(|error| error.to_string())?;
    harness.send(case, &case["packets"]);
    harness.reload(&case["reload"]);
    if !case["wait_s"].is_null() {
        let before = samples(&harness.text(Format::Text));
        let want = strings(&case["expected_before_wait"]);
        if matches!(instead, None | Some(Instead::SameSeries)) && before != want {
            return Err(format!("before waiting: {before:?}, not {want:?}"));
        }
        harness.wait(&case["wait_s"]);
    }
    harness.send(case, &case["packets_after"]);
    harness.wait(&case["wait_after_s"]);

    let text = harness.text(Format::Text);
    exposition::check_text(&text)?;
    exposition::check_open_metrics(&harness.text(Format::OpenMetrics))?;
    let protobuf = harness.protobuf();
    let (in_text, in_protobuf) =
        (exposition::text_samples(&text)?, exposition::protobuf_samples(&protobuf));
    if in_text != in_protobuf {
        return Err(format!("protobuf {in_protobuf:#?}, text {in_text:#?}"));
    }
    let lines = samples(&text);
    let want = match instead {
        Some(Instead::Quantiles(count)) => return check_quantiles(&lines, count),
        Some(Instead::Series(lines)) => lines.iter().map(|line| (*line).to_owned()).collect(),
        _ => strings(&case["expected"]),
    };
    if lines != want {
        return Err(format!("series {lines:#?}, not {want:#?}"));
    }
    if instead.is_some() {
        return Ok(());
    }
    let want = strings(&case["expected_meta"]);
    if meta(&text) != want {
        return Err(format!("meta {:#?}, not {want:#?}", meta(&text)));
    }
    if let Some(want) = case["self"].as_object() {
        let mut want: Vec<(String, String)> = want
            .iter()
            .filter(|(name, _)| *name != CACHE_HITS)
            .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect();
        want.sort();
        let got = own(&text);
        if got != want {
            return Err(format!("own metrics {got:#?}, not {want:#?}"));
        }
    }
    if let Some(want) = case["native"].as_array() {
        let got = exposition::histograms(&protobuf);
        let want: Vec<Histogram> = want.iter().map(Histogram::from_recording).collect();
        if got != want {
            return Err(format!("histograms {got:#?}, not {want:#?}"));
        }
    }
    Ok(())
}

fn cases() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/statsd/e2e.json");
    let text = std::fs::read_to_string(path).expect("the recorded cases");
    match serde_json::from_str(&text).expect("JSON") {
        Value::Array(cases) => cases,
        other => panic!("not a list of cases: {other}"),
    }
}

fn run_all(key_cache_size: usize) {
    let cases = cases();
    assert!(cases.len() >= 327, "{} cases", cases.len());
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            let error = run(case, key_cache_size).err()?;
            Some(format!("{}: {error}", case["name"]))
        })
        .collect();
    assert!(
        failures.is_empty(),
        "{} of {} fail:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}

#[test]
fn recorded_cases() {
    run_all(1 << 20);
}

#[test]
fn recorded_cases_without_the_key_cache() {
    run_all(0);
}
