//! The final checks: every line is accounted for, nothing is missing, nothing has grown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kstatd_endurance::scrape;

use super::exporter::{Exporter, series};
use super::observer::Observations;
use super::senders::{LINES, MALFORMED, Sent, one_more};
use crate::figures::ends;

/// Longest wait for the program to become idle.
const PATIENCE: Duration = Duration::from_secs(60);
/// Allowed relative growth of memory from the first sixth to the last, in addition to some MB.
const GROWTH: f64 = 0.05;
/// Allowed additional descriptors, because connections come and go.
const MORE_DESCRIPTORS: f64 = 4.0;
/// Allowed additional threads: a file-reading thread ends after ten idle seconds.
const MORE_THREADS: f64 = 1.0;

/// The results, which are printed as they are found.
#[derive(Default)]
pub struct Verdict {
    wrong: Vec<String>,
}

impl Verdict {
    /// Prints a line and whether the check passed.
    pub fn line(&mut self, passed: bool, text: String) {
        println!("{} {text}", if passed { "ok   " } else { "WRONG" });
        if !passed {
            self.wrong.push(text);
        }
    }

    /// Returns whether all checks passed.
    pub fn passed(&self) -> bool {
        self.wrong.is_empty()
    }

    fn equal(&mut self, what: &str, is: f64, should: f64) {
        let text = match is == should {
            true => format!("{what}: {is}"),
            false => format!("{what}: {is} instead of {should}"),
        };
        self.line(is == should, text);
    }
}

/// Repeats `ask` until it succeeds; the last failure is the error.
fn eventually<T>(mut ask: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask() {
            Ok(found) => return Ok(found),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => sleep(Duration::from_millis(200)),
        }
    }
}

/// Checks that sent lines = accepted + rejected + dropped by the kernel, exactly.
pub fn ledger(verdict: &mut Verdict, exporter: &Exporter, sent: &Sent) -> Result<()> {
    let count = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed) as f64;
    // With it the kernel reports earlier drops.
    let own = eventually(|| {
        one_more(sent, exporter.statsd)?;
        let own = exporter.own()?;
        let lines = |listener| of(&own, "kstatd_statsd_lines_total", listener);
        let streamed = count(&sent.tcp) + count(&sent.visitors) + count(&sent.edited);
        let (udp, dropped) = udp(&own);
        let sent_udp = sent.datagrams() as f64;
        anyhow::ensure!(
            udp + dropped == sent_udp
                && lines("tcp") == streamed
                && lines("unixgram") == 2.0 * count(&sent.unix),
            "datagrams: {sent_udp} sent, {udp} taken, {dropped} dropped; lines: {streamed} sent over TCP, {} taken; \
             {} over the Unix socket, {} taken",
            lines("tcp"),
            2.0 * count(&sent.unix),
            lines("unixgram")
        );
        Ok(own)
    });
    let own = match own {
        Ok(own) => own,
        Err(error) => {
            verdict.line(false, format!("the ledger does not balance: {error:#}"));
            exporter.own()?
        }
    };
    let (taken, dropped) = udp(&own);
    let streamed = count(&sent.tcp) + count(&sent.visitors) + count(&sent.edited);
    let all = sent.datagrams() as f64 * LINES as f64 + streamed + 2.0 * count(&sent.unix);
    let outcome = |outcome: &str| of(&own, "kstatd_statsd_lines_total", outcome);
    verdict.equal(
        &format!(
            "lines: sent {all} = sampled {} + refused {} + dropped by the kernel {}",
            outcome("sampled"),
            outcome("refused"),
            dropped * LINES as f64
        ),
        outcome("sampled") + outcome("refused") + outcome("empty") + dropped * LINES as f64,
        all,
    );
    // Each datagram has a counter, so each of its lines can be compared with it regardless of drops.
    let shown = series(exporter.port)?;
    let mut wrong = Vec::new();
    let (mut received, mut refused, mut checked) = (0.0, 0.0, 0);
    for (number, sent) in (0_u64..).zip(&sent.udp) {
        let label = format!("{{d=\"{number}\"}}");
        let came = shown.get(&format!("soak_datagrams{label}")).copied().unwrap_or_default();
        if came > count(sent) {
            wrong.push(format!("datagram {number} came {came} times, sent {}", count(sent)));
        }
        received += came;
        let mut wanted = Vec::from_iter(
            (0..4).map(|k| (format!("soak_counter{{d=\"{number}\",k=\"{k}\"}}"), came)),
        );
        wanted.extend(
            (0..2)
                .map(|k| (format!("soak_gauge{{d=\"{number}\",k=\"{k}\"}}"), (number + k) as f64)),
        );
        wanted.push((format!("soak_summary_count{label}"), came));
        wanted.push((format!("soak_histogram_count{label}"), came));
        wanted.push((format!("soak_histogram_bucket{{d=\"{number}\",le=\"0.1\"}}"), came));
        if number.is_multiple_of(MALFORMED) {
            refused += came;
        } else {
            wanted.push((format!("soak_distribution_count{label}"), came));
        }
        for (series, value) in wanted {
            checked += 1;
            if shown.get(&series) != Some(&value) {
                wrong.push(format!("{series} is {:?} instead of {value}", shown.get(&series)));
            }
        }
    }
    verdict.equal("datagrams that count themselves", received, taken);
    verdict.equal("lines refused", outcome("refused"), refused);
    wrong.truncate(5);
    verdict.line(
        wrong.is_empty(),
        format!("{checked} series have the value of what was taken {wrong:?}"),
    );
    let sum = |family: &str| of(&shown, family, "");
    verdict.equal("lines over TCP in their series", sum("soak_tcp"), count(&sent.tcp));
    verdict.equal("lines over the Unix socket", sum("soak_unixgram"), count(&sent.unix));
    verdict.equal(
        "lines of the edited rule",
        sum("edited_a") + sum("edited_b"),
        count(&sent.edited),
    );
    let expired = of(&own, "kstatd_statsd_expired_series_total", "");
    let visitors = shown.keys().filter(|series| series.starts_with("visitor{")).count() as f64;
    verdict.equal(
        "names that never came again, alive or expired",
        visitors + expired,
        count(&sent.visitors),
    );
    Ok(())
}

/// Returns the received and the dropped datagrams.
fn udp(own: &BTreeMap<String, f64>) -> (f64, f64) {
    let value = |name: &str| own.get(name).copied().unwrap_or_default();
    let dropped = of(own, "kstatd_statsd_kernel_drops_total", "\"udp\"");
    (value("statsd_exporter_udp_packets_total"), dropped)
}

/// Returns the sum of the series of a family whose labels contain this text.
fn of(series: &BTreeMap<String, f64>, family: &str, labels: &str) -> f64 {
    let of = series.iter().filter(|(name, _)| {
        name.strip_prefix(family)
            .is_some_and(|rest| (rest.is_empty() || rest.starts_with('{')) && rest.contains(labels))
    });
    of.fold(0.0, |sum, (_, value)| sum + value)
}

/// Returns the sorted lines of the cluster.
fn cluster_lines(port: u16) -> Result<BTreeSet<String>> {
    let text = String::from_utf8(scrape::body(port, "/metrics")?)?;
    let lines = text.lines().filter(|line| line.starts_with("kube_"));
    Ok(lines.map(str::to_owned).collect())
}

/// Checks that the exposed cluster equals that of a program started now.
pub fn cluster(verdict: &mut Verdict, exporter: &Exporter, fresh: u16, pods: usize) -> Result<()> {
    let compared = eventually(|| {
        let (shown, truth) = (cluster_lines(exporter.port)?, cluster_lines(fresh)?);
        let missing = Vec::from_iter(truth.difference(&shown).take(3));
        let surplus = Vec::from_iter(shown.difference(&truth).take(3));
        anyhow::ensure!(
            missing.is_empty() && surplus.is_empty(),
            "missing {missing:?}, beyond {surplus:?}"
        );
        let infos = shown.iter().filter(|line| line.starts_with("kube_pod_info{")).count();
        anyhow::ensure!(infos == pods, "{infos} pods instead of {pods}");
        Ok(shown.len())
    });
    match compared {
        Ok(lines) => verdict
            .line(true, format!("{lines} series of the cluster are those that a fresh list gives")),
        Err(error) => verdict.line(false, format!("the cluster: {error:#}")),
    }
    Ok(())
}

/// Checks that the program reports no failure.
pub fn health(verdict: &mut Verdict, exporter: &Exporter, edits: usize) -> Result<()> {
    let own = exporter.own()?;
    for family in [
        "kstatd_kubernetes_restarts_total",
        "kstatd_statsd_thread_restarts_total",
        "kstatd_statsd_read_errors_total",
        "kstatd_statsd_accept_errors_total",
        "kstatd_statsd_truncated_datagrams_total",
        "kstatd_statsd_tcp_closed_connections_total",
        "kstatd_http_connections_refused_total",
    ] {
        verdict.equal(family, of(&own, family, ""), 0.0);
    }
    let reloads = |outcome: &str| of(&own, "statsd_exporter_config_reloads_total", outcome);
    verdict.line(
        reloads("success") >= edits as f64 && reloads("failure") == 0.0,
        format!("{edits} edits: the mapping was loaded {} times", reloads("success")),
    );
    let options = of(&own, "kube_state_metrics_last_config_reload_successful", "\"config\"");
    verdict.equal("the options file is in force", options, 1.0);
    let output = exporter.server.output()?;
    let bad = output.lines().find(|line| line.contains("panicked") || line.contains("ERROR"));
    verdict.line(bad.is_none(), format!("nothing in the log at level error {bad:?}"));
    Ok(())
}

/// Checks that memory, descriptors and threads have not grown.
pub fn level(
    verdict: &mut Verdict,
    seen: &Observations,
    warm_up: Duration,
    may_grow: f64,
) -> Result<()> {
    let last = seen.memory.last().context("nothing was seen")?.0;
    println!(
        "medians of the first and the last sixth of {:.0} s behind {:.0} s:",
        last.as_secs_f64(),
        warm_up.as_secs_f64()
    );
    let (first, last) = ends(&seen.memory, warm_up);
    let peak = seen.memory.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    verdict.line(
        last <= first * (1.0 + GROWTH) + may_grow,
        format!("memory {first:.1} → {last:.1} MB, at most {peak:.1} MB"),
    );
    let (first, last) = ends(&seen.descriptors, warm_up);
    verdict.line(last <= first + MORE_DESCRIPTORS, format!("descriptors {first} → {last}"));
    let (first, last) = ends(&seen.threads, warm_up);
    verdict.line(last <= first + MORE_THREADS, format!("threads {first} → {last}"));
    Ok(())
}
