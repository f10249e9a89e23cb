//! Notes on scrapes that were not taken in full, or may soon not be.

use super::facts::{Facts, Findings};
use super::words::{bytes, clock, duration, is_recent};
use crate::telemetry::scrapes::{Cause, Scrape, VICTORIAMETRICS};

/// The age in seconds up to which an incomplete scrape is mentioned.
const RECENT: f64 = 900.0;

/// The default of VictoriaMetrics' `-promscrape.maxScrapeSize` in bytes, before compression.
const DEFAULT_LIMIT: u64 = 16 << 20;

/// The next usual setting.
const RAISED_LIMIT: u64 = 32 << 20;

/// The advice against a size limit.
const SMALLER: &str =
    "drop metrics (--metric-denylist), or split the scrape by shards or resources";

/// Warns about incomplete scrapes, and notes those close to a limit.
pub(super) fn judge(facts: &Facts, found: &mut Findings) {
    let is_recent = |scrape: &&Scrape| is_recent(facts.at, scrape.at, RECENT);
    for scrape in facts.incomplete_scrapes.iter().filter(is_recent) {
        found.warning("KstatdScrapesIncomplete", incomplete(scrape, facts));
    }
    let slow = facts.slow_scrapes.iter().filter(is_recent);
    if let Some(scrape) = slow.max_by(|a, b| a.seconds.total_cmp(&b.seconds)) {
        let Scrape { client, path, scraper, seconds, .. } = scrape;
        let (took, size) = (duration(*seconds), bytes(scrape.bytes as f64));
        let text = format!(
            "a scrape of {path} by {scraper} at {client} took {took} for {size}: above the scrape timeout it is lost"
        );
        found.warning("KstatdScrapeSlow", text);
    }
    let large = facts.scrapes.iter().filter(is_recent);
    let large = large.filter(|scrape| scrape.complete && scrape.scraper == VICTORIAMETRICS);
    let largest = large.max_by_key(|scrape| scrape.text_bytes);
    largest.and_then(near_limit).into_iter().for_each(|note| found.note(note));
}

/// Describes an incomplete scrape, with the likely cause and advice.
fn incomplete(scrape: &Scrape, facts: &Facts) -> String {
    let taken = bytes(scrape.text_bytes as f64);
    let size = match total(scrape, facts) {
        Some(total) => format!("at most {taken} of about {}", bytes(total as f64)),
        None => format!("at most {taken}"),
    };
    let name = match scrape.scraper {
        "other" => scrape.agent.as_str(),
        product => product,
    };
    let advice = match scrape.cause {
        Some(Cause::ScrapeTimeout) => {
            "it gave up at its scrape timeout: raise that, enable gzip, or see KstatdScrapeSlow"
                .to_owned()
        }
        Some(Cause::Server) => {
            "kstatd ended the response because the scraper read too slowly or the connection was \
             needed: see its CPU, memory and network"
                .to_owned()
        }
        _ => {
            let limit = match scrape.scraper {
                VICTORIAMETRICS => "-promscrape.maxScrapeSize (16 MiB by default)",
                "prometheus" | "grafana" | "opentelemetry" => "body_size_limit",
                _ => "its size limit",
            };
            format!("it closed the connection, as at a size limit: raise {limit}, {SMALLER}")
        }
    };
    format!(
        "{name} at {} did not take all of {} (last at {}): {size}, uncompressed; {advice}",
        scrape.client,
        scrape.path,
        clock(scrape.at, facts.at),
    )
}

/// Returns the approximate size of the entire response before compression, if known.
fn total(scrape: &Scrape, facts: &Facts) -> Option<u64> {
    let is_same = |other: &&Scrape| {
        other.complete
            && !other.is_filtered
            && other.status == scrape.status
            && (&other.path, other.form) == (&scrape.path, scrape.form)
    };
    if scrape.is_filtered {
        return None;
    }
    let seen = facts.scrapes.iter().filter(is_same).map(|other| other.text_bytes).max();
    let kubernetes = || {
        let kinds = &facts.kubernetes.as_ref()?.kinds;
        let is_served = scrape.form != "protobuf" && scrape.path.starts_with("/metrics");
        let sizes = kinds.iter().map(|kind| kind.bytes);
        is_served.then(|| sizes.sum())
    };
    seen.or_else(kubernetes).filter(|total| *total > scrape.text_bytes)
}

/// Warns about a complete response whose size is close to a usual limit of VictoriaMetrics, or above
/// the default.
fn near_limit(scrape: &Scrape) -> Option<String> {
    let size = scrape.text_bytes;
    let is_near = |limit: u64| size >= limit / 5 * 4 && size <= limit;
    let what = if is_near(DEFAULT_LIMIT) {
        "is close to 16 MiB, the default of"
    } else if is_near(RAISED_LIMIT) {
        "is close to 32 MiB, a usual setting of"
    } else if size > DEFAULT_LIMIT && size < RAISED_LIMIT {
        "is above 16 MiB, the default of"
    } else {
        return None;
    };
    Some(format!(
        "the response of {} for {} at {} ({} uncompressed) {what} -promscrape.maxScrapeSize, above \
         which the whole scrape is lost: raise it, {SMALLER}",
        scrape.path,
        scrape.scraper,
        scrape.client,
        bytes(size as f64),
    ))
}
