//! Exploding labels: a counter with a URL and its query as a label, compared with the original, and hostile lines
//! under budgets.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::kube::scrape_cost;
use super::programs::Programs;
use super::rows::Size;
use super::scrape;
use super::statsd::{Subject, Target, send_lines};
use super::table::{bytes, count, plain, seconds};

/// HTTP status codes, used in turn.
const CODES: [&str; 4] = ["200", "200", "404", "500"];
/// A mapping that normalises the URLs.
const RULE: &str = "defaults:\n  normalise:\n    url: url\n";

/// The lines of the counter, each with a distinct URL.
fn lines(urls: usize) -> impl Iterator<Item = String> {
    (0..urls).map(|at| {
        // Distinct values that are spread over all 64 bits (Knuth's multiplicative hash).
        let id = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!(
            "http.requests:1|c|#code:{},url:/websocket?appliance={id:016x}",
            CODES[at % CODES.len()]
        )
    })
}

/// Returns the number of series of the counter and its sum by code.
fn totals(port: u16) -> Result<(usize, BTreeMap<String, f64>)> {
    let body = scrape::body(port, "/metrics")?;
    let (mut series, mut sums) = (0, BTreeMap::new());
    for line in String::from_utf8_lossy(&body).lines() {
        let Some(rest) = line.strip_prefix("http_requests{") else { continue };
        let code = rest.split_once("code=\"").and_then(|(_, rest)| rest.split_once('"'));
        let value = rest.rsplit_once(' ').and_then(|(_, value)| value.parse::<f64>().ok());
        let (Some((code, _)), Some(value)) = (code, value) else { bail!("not a sample: {line}") };
        series += 1;
        *sums.entry(code.to_owned()).or_default() += value;
    }
    Ok((series, sums))
}

/// Measures both exporters with an exploding label; kstatd with and without budgets and normalisation.
pub fn urls(programs: &Programs, size: Size) -> Result<String> {
    let sizes: &[usize] = if size.quick { &[15_000, 100_000] } else { &[150_000, 1_000_000] };
    let rule = programs.scratch.join("explosion.yaml");
    std::fs::write(&rule, RULE)?;
    let rule = format!("--statsd.mapping-config={}", rule.display());
    let mut rows = Vec::new();
    for &urls in sizes {
        for (who, flags, name) in [
            (Subject::Peer, vec![], "statsd_exporter"),
            (Subject::Ours, vec![], "kstatd, no budgets"),
            (Subject::Ours, vec!["--limit.mode=enforce".to_owned()], "kstatd, budgets of `run`"),
            (Subject::Ours, vec![rule.clone()], "kstatd, `normalise: {url: url}`"),
        ] {
            let target = Target::start_with(who, programs, &flags)?;
            let mut each = [0.0; 2];
            for cost in &mut each {
                let before = target.server.cpu()?;
                send_lines(&target, lines(urls))?;
                *cost = (target.server.cpu()? - before) / urls as f64;
            }
            let scrape = scrape_cost(&target.server, target.web, "/metrics", false, 3)?;
            let memory = target.server.memory()?;
            let (series, sums) = totals(target.web)?;
            let mut right = BTreeMap::new();
            for at in 0..urls {
                *right.entry(CODES[at % CODES.len()].to_owned()).or_default() += 2.0;
            }
            rows.push(vec![
                count(urls as f64),
                name.to_owned(),
                count(series as f64),
                format!("{} ({} peak)", bytes(memory.resident), bytes(memory.peak)),
                format!("{} / {}", seconds(each[0]), seconds(each[1])),
                format!("{} / {}", seconds(scrape.wall), seconds(scrape.cpu)),
                bytes(scrape.bytes),
                if sums == right { "exact".to_owned() } else { format!("{sums:?}") },
            ]);
        }
    }
    let head = [
        "URLs",
        "Process",
        "Series",
        "Memory",
        "CPU of a line, first / again",
        "Scrape, wall / CPU",
        "Text",
        "Totals by code",
    ];
    Ok(plain(&head, &rows))
}

/// A deterministic pseudo-random sequence (splitmix64, Steele, Lea and Flood 2014).
pub struct Random(pub u64);

impl Random {
    /// Returns the next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns `length` random letters and digits.
    fn text(&mut self, length: usize) -> String {
        let mut text = String::with_capacity(length + 16);
        while text.len() < length {
            text.push_str(&format!("x{:015x}", self.next() >> 4));
        }
        text.truncate(length);
        text
    }

    /// Returns a line that is meant to cost memory: names, label names and values that never repeat, of every type,
    /// and occasionally a line of the maximum length.
    fn line(&mut self) -> String {
        let kind = ["c", "g", "ms", "h", "d", "s"][(self.next() % 6) as usize];
        let number = self.next() % 1_000;
        let fresh = self.text(16);
        match self.next() % 1_000 {
            // A long name with alternating types: each line is a type conflict.
            0 => {
                let name = self.text(30_000);
                format!("{name}:1|c\n{name}:1|g")
            }
            1 => format!("known:{number}|c|#tag:{}", self.text(60_000)),
            2 => format!("known:{number}|c|#{}:value", self.text(60_000)),
            3..200 => format!("{fresh}:{number}|{kind}"),
            200..400 => format!("known.{kind}:{number}|{kind}|#{fresh}:value"),
            400..500 => format!("known.c:{number}|{kind}|#tag:{fresh}"),
            _ => format!("known.{kind}:{number}|{kind}|#tag:{fresh},other:{}", number % 7),
        }
    }
}

/// Sends hostile lines for the given time, as fast as they are accepted. Returns their number and the longest
/// response time of `/-/ready` meanwhile, in seconds.
fn send_hostile_lines(target: &Target, window: Duration) -> Result<(u64, f64)> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| -> Result<f64> {
            let mut longest = Duration::ZERO;
            while !done.load(Ordering::Relaxed) {
                longest = longest.max(scrape::scrape(target.web, "/-/ready", false)?.wall);
                std::thread::sleep(Duration::from_millis(50));
            }
            Ok(longest.as_secs_f64())
        });
        let (start, mut random, mut sent) = (Instant::now(), Random(1), 0);
        let mut sending = Ok(());
        let long = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        long.connect((Ipv4Addr::LOCALHOST, target.udp))?;
        while sending.is_ok() && start.elapsed() < window {
            // A line over TCP has at most 4 KiB.
            let lines = (0..100_000).map(|_| random.line());
            let short =
                lines.filter(|line| line.len() < 4_000 || long.send(line.as_bytes()).is_err());
            sending = send_lines(target, short);
            sent += 100_000;
        }
        done.store(true, Ordering::Relaxed);
        let longest = asked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sending?;
        Ok((sent, longest?))
    })
}

/// Measures hostile lines under budgets.
pub fn hostile(programs: &Programs, size: Size) -> Result<String> {
    let mut rows = Vec::new();
    for (series, memory) in [("10000", "64Mi"), ("100000", "256Mi"), ("1000000", "1Gi")] {
        let flags = [
            "--limit.mode=enforce".to_owned(),
            format!("--limit.series={series}"),
            format!("--limit.series-per-metric={series}"),
            format!("--limit.memory={memory}"),
        ];
        let target = Target::start_with(Subject::Ours, programs, &flags)?;
        let (sent, longest) = send_hostile_lines(&target, size.hostile)?;
        let cpu = target.server.cpu()? / sent as f64;
        let used = target.server.memory()?;
        let text = scrape::body(target.web, "/metrics")?;
        let own = |line: &[u8]| {
            [&b"#"[..], b"statsd_", b"go_", b"process_", b"promhttp_"]
                .iter()
                .any(|start| line.starts_with(start))
        };
        let samples =
            text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && !own(line));
        rows.push(vec![
            format!("{} series, {memory}", count(series.parse()?)),
            count(sent as f64),
            count(samples.count() as f64),
            format!("{} ({} peak)", bytes(used.resident), bytes(used.peak)),
            seconds(cpu),
            seconds(longest),
        ]);
    }
    let head =
        ["Budgets", "Lines", "Samples", "Memory", "CPU of a line", "Longest `/-/ready` meanwhile"];
    Ok(plain(&head, &rows))
}
