//! The log of recent scrapes.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::Serialize;

use super::metric::{Counter, Labelled, own_metrics};
use crate::util::lock::Lock;
use crate::util::words::words;

/// The maximum number of logged scrapes.
const KEPT: usize = 20;

/// Seconds above which a scrape is slow, as for the alert: half of Prometheus' default timeout.
const SLOW: f64 = 5.0;

/// The maximum bytes of the user agent.
const LONGEST: usize = 100;

/// A logged scrape.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Scrape {
    /// The start time, in Unix seconds.
    pub(crate) at: f64,
    /// The address of the client.
    pub(crate) client: String,
    /// The user agent.
    pub(crate) agent: String,
    /// The path, without the query.
    pub(crate) path: String,
    /// True if the request had a query.
    pub(crate) is_filtered: bool,
    /// The product that the user agent names.
    pub(crate) scraper: &'static str,
    pub(crate) status: u16,
    /// The format of the body.
    pub(crate) form: &'static str,
    pub(crate) gzip: bool,
    /// Seconds from the request head to the last byte of the response.
    pub(crate) seconds: f64,
    /// Bytes of the body as sent.
    pub(crate) bytes: u64,
    /// Bytes of the same before compression.
    pub(crate) text_bytes: u64,
    /// True if the client received the entire body, as far as known.
    pub(crate) complete: bool,
    /// The reason for which it did not.
    pub(crate) cause: Option<Cause>,
    /// The number of the entry in its log.
    #[serde(skip)]
    pub(crate) id: u64,
}

words! {
    /// The reason for which a client did not take an entire response.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub(crate) enum Cause {
        /// The client closed the connection or reset the stream, before its scrape timeout if it
        /// announced one.
        Closed = "closed",
        /// The same at its scrape timeout.
        ScrapeTimeout = "scrape_timeout",
        /// kstatd ended the response because the client read too slowly or the connection was needed
        /// for another client.
        Server = "server",
    }
}

/// VictoriaMetrics and vmagent.
pub(crate) const VICTORIAMETRICS: &str = "victoriametrics";

/// The product of scrapers whose user agent begins with a prefix, in lower case.
const PRODUCTS: [(&str, &str); 10] = [
    ("prometheus/", "prometheus"),
    ("vm_promscrape", VICTORIAMETRICS),
    ("vmagent", VICTORIAMETRICS),
    ("victoriametrics", VICTORIAMETRICS),
    ("grafanaagent", "grafana"),
    ("grafana", "grafana"),
    ("alloy", "grafana"),
    ("otelcol", "opentelemetry"),
    ("opentelemetry", "opentelemetry"),
    ("datadog", "datadog"),
];

/// Returns the product that a user agent names: one of a few, or `other`.
pub(crate) fn product(agent: &str) -> &'static str {
    let is = |prefix: &str| {
        agent.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    PRODUCTS.iter().find(|(prefix, _)| is(prefix)).map_or("other", |(_, product)| product)
}

own_metrics! {
    /// The log of recent scrapes; clones share it.
    #[derive(Clone, Debug)]
    pub(crate) struct ScrapeLog {
        counter incomplete: Labelled<Counter, 2> ["cause", "scraper"] =
            "kstatd_http_scrapes_incomplete_total",
            "Responses of the metrics paths that their client did not take in full.";
    }
    state {
        pub(crate) kept: Arc<Lock<Kept>>,
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// The latest scrapes, newest first.
    pub(crate) scrapes: VecDeque<Scrape>,
    /// The last incomplete scrape of each product.
    pub(crate) incomplete: Vec<Scrape>,
    /// The last slow scrape of each product that took all of it.
    pub(crate) slow: Vec<Scrape>,
    noted: u64,
}

/// Keeps a scrape instead of the last one by the same product.
fn replace(kept: &mut Vec<Scrape>, scrape: &Scrape) {
    kept.retain(|earlier| earlier.scraper != scrape.scraper);
    kept.push(scrape.clone());
}

impl ScrapeLog {
    /// Logs a scrape whose response has ended; returns its entry.
    pub(crate) fn note(&self, mut scrape: Scrape) -> Scrape {
        for text in [&mut scrape.agent, &mut scrape.path] {
            text.truncate(text.floor_char_boundary(LONGEST));
        }
        let mut kept = self.kept.lock();
        kept.noted += 1;
        scrape.id = kept.noted;
        kept.scrapes.push_front(scrape.clone());
        kept.scrapes.truncate(KEPT);
        if let Some(cause) = scrape.cause {
            self.count(cause, scrape.scraper);
            replace(&mut kept.incomplete, &scrape);
        }
        if scrape.complete && scrape.seconds > SLOW {
            replace(&mut kept.slow, &scrape);
        }
        scrape
    }

    /// Corrects the entry of a scrape whose client has not read the end of the response.
    pub(crate) fn unread(&self, scrape: Scrape, cause: Cause) {
        let scrape = Scrape { complete: false, cause: Some(cause), ..scrape };
        self.count(cause, scrape.scraper);
        let mut kept = self.kept.lock();
        replace(&mut kept.incomplete, &scrape);
        kept.slow.retain(|entry| entry.id != scrape.id);
        if let Some(entry) = kept.scrapes.iter_mut().find(|entry| entry.id == scrape.id) {
            *entry = scrape;
        }
    }

    fn count(&self, cause: Cause, scraper: &str) {
        self.incomplete.with([cause.as_str(), scraper]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_scrape_is_kept_while_many_fast_ones_follow() {
        let log = ScrapeLog::default();
        let scrape = |scraper, seconds| {
            log.note(Scrape { scraper, seconds, complete: true, ..Scrape::default() })
        };
        let slow = [scrape("prometheus", 8.0), scrape("grafana", 6.0)];
        (0..2 * KEPT).for_each(|_| drop(scrape("prometheus", 0.1)));
        assert_eq!(log.kept.lock().slow, slow);
        let [_, last] = slow;
        log.unread(last, Cause::Closed);
        let later = scrape("prometheus", 7.0);
        assert_eq!(log.kept.lock().slow, [later]);
    }
}
