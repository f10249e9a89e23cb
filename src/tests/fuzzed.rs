//! Entry points for the fuzz targets to parsers of untrusted input that are not public.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame};

use crate::app::peer_answers;
use crate::exposition::reader::{Line, LineWriter};
use crate::exposition::{Format, ScrapeQuery, Source};
use crate::kube::client::endpoint::Access;
use crate::node::kubelet::{FetchError, HttpGet, JsonResponse, PollMetrics, Poller};
use crate::node::{overlay_paths, store};
use crate::server::pprof::saved::SavedProfile;
use crate::server::web_config::WebConfig;
use crate::statsd::line::ParserFlags;
use crate::statsd::{Clock, Offline, Pipeline, PipelineConfig};
use crate::tools::cardinality::{self, Captured, Session};
use crate::tools::{check, custom_draft, diff, manifests, profile};

/// Parses a web configuration file and returns its settings, or the reason why it is invalid. Files that refer to other
/// files are parsed but not loaded.
#[must_use]
pub fn web_config(path: &Path) -> Option<Result<(bool, bool), String>> {
    if !WebConfig::files(path).is_empty() {
        return None;
    }
    let config = WebConfig::load(path).map_err(|error| error.reason);
    Some(config.map(|config| (config.is_tls, config.is_http2)))
}

/// Parses an exposition given in pieces and returns its lines and whether it is complete.
///
/// # Errors
/// Returns the number of the first invalid line, and the reason.
pub fn exposition<'b>(
    pieces: impl Iterator<Item = &'b [u8]>,
) -> Result<(Vec<String>, bool), (u64, String)> {
    let mut lines = Vec::new();
    let mut reader = LineWriter::new(|line: Line<'_>| lines.push(format!("{line:?}")));
    let said = |error: crate::exposition::reader::ReadError| (error.line, error.reason);
    for piece in pieces {
        reader.feed(piece).map_err(said)?;
    }
    reader.finish().map(|ended| (lines, ended)).map_err(said)
}

/// The flame graph of a profile compared with another one as `kstatd profile diff` does, and the number of its stacks.
///
/// # Errors
/// One of them is not a profile, or they cannot be compared.
pub fn profile_change(base: &[u8], now: &[u8], normalize: bool) -> Result<(String, usize), String> {
    let read = |bytes| SavedProfile::read(bytes).map_err(|error| error.to_string());
    let (base, now) = (read(base)?, read(now)?);
    let svg = profile::compare(base, &now, normalize).map_err(|error| error.to_string())?;
    Ok((String::from_utf8(svg).expect("UTF-8"), now.stacks.len()))
}

/// Compares two files like `kstatd diff`.
///
/// # Errors
/// Returns an error if a file is not an exposition.
pub fn differ(one: &Path, other: &Path) -> Result<(bool, String), String> {
    let sides = [one, other].map(|path| path.display().to_string());
    let rules = diff::Rules {
        open_metrics: false,
        timeout: Duration::from_secs(1),
        ignore: Vec::new(),
        increases: false,
        examples: 3,
    };
    let compared = diff::run(sides, Access::default(), None, Duration::ZERO, rules, |_| ());
    let report = in_no_time(compared).map_err(|error| error.to_string())?;
    assert!(!report.json().is_empty());
    Ok((report.is_same(true), report.text(diff::Explained::Strict, false)))
}

/// Returns a scrape of a node side whose kubelet responds with a body in these pieces, which ends with an error if
/// `torn`.
#[must_use]
pub fn node(pieces: Vec<Bytes>, torn: bool) -> String {
    let store = Arc::new(store::Store::new("", true));
    let kubelet: HttpGet = Arc::new(move |_| {
        let pieces = pieces.iter().cloned().map(|piece| Ok(Frame::data(piece)));
        let end = torn.then(|| Err(FetchError("torn".to_owned())));
        let answer: JsonResponse =
            Response::new(Pieces(pieces.chain(end).collect()).boxed_unsync());
        Box::pin(std::future::ready(Ok(answer)))
    });
    let second = Duration::from_secs(1);
    let poller = Poller {
        store: Arc::clone(&store),
        kubelet,
        pods: None,
        interval: 3600 * second,
        deadline: second,
        polls: PollMetrics::default(),
    };
    let (first, _) = tokio::sync::watch::channel(false);
    let polling = poller.run(first);
    // The poll loop never ends: the first poll takes no time, the next one follows after a pause.
    let once = in_no_time(async { tokio::time::timeout(second / 2, polling).await });
    assert!(once.is_err(), "it ended by itself");
    let body: Vec<u8> = store.frames(Format::Text, &ScrapeQuery::default()).flatten().collect();
    String::from_utf8(body).expect("UTF-8")
}

/// A response body in pieces.
struct Pieces(VecDeque<Result<Frame<Bytes>, FetchError>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = FetchError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, FetchError>>> {
        Poll::Ready(self.0.pop_front())
    }
}

/// Returns the mount points and upper directories of the overlays in a mount table.
#[must_use]
pub fn overlays(table: &[u8]) -> Vec<(String, PathBuf)> {
    overlay_paths(table)
}

/// Explains a line before it is received. Returns the JSON report and whether the line is accepted.
#[must_use]
pub fn foretold(offline: &Offline, line: &[u8]) -> (String, bool) {
    let explanation = crate::statsd::explain::predict(offline, line);
    assert!(!explanation.text().is_empty());
    (serde_json::to_string(&explanation).expect("JSON"), explanation.accepted)
}

/// Applies the lines of a datagram and returns the number of steps taken.
#[must_use]
pub fn steps(offline: &mut Offline, datagram: &[u8]) -> u64 {
    crate::util::work_counter::take();
    offline.lines(datagram);
    crate::util::work_counter::take()
}

/// Runs `kstatd cardinality suggest` on a file of lines, or tries the given rules.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn suggested(
    lines: &Path,
    flags: ParserFlags,
    rules: Option<String>,
    least: u32,
) -> Result<String, String> {
    let captured = Captured::lines(lines, flags).map_err(|error| error.to_string())?;
    let mut session = Session { captured, mapping: String::new() };
    let suggested = match rules {
        Some(rules) => cardinality::try_rules(&mut session, &rules),
        None => cardinality::suggest(&mut session, least as usize),
    };
    suggested.map_err(|error| error.to_string())
}

/// Drafts a configuration from definitions, as `kstatd custom draft` does.
///
/// # Errors
///
/// The input is not a list of definitions.
pub fn drafted(text: &str) -> Result<String, String> {
    let mut manifests = Vec::new();
    manifests::parse("input", text, &mut manifests).map_err(|error| error.to_string())?;
    custom_draft::draft(&manifests).map_err(|error| error.to_string())
}

/// Checks manifests as `kstatd check -f` does, and returns the report.
///
/// # Errors
///
/// The input is not a list of objects.
pub fn checked(text: &str) -> Result<String, String> {
    let mut inventory = check::inventory::Inventory::default();
    manifests::parse("input", text, &mut inventory.objects).map_err(|error| error.to_string())?;
    let report = in_no_time(check::before(&inventory, &Default::default(), None));
    let report = report.map_err(|error| error.to_string())?;
    assert!(!report.json().is_empty());
    Ok(report.text())
}

/// Takes the answers of another replica in order, as one with `--standby` does. Returns the number of rejected answers,
/// the number of applied lines, and the resulting series.
///
/// # Panics
///
/// Panics if this replica does not expose its metrics once the other one no longer answers.
#[must_use]
pub fn standby_peer(answers: &[Bytes]) -> (usize, u64, String) {
    let (clock, key_cache_size) = (Clock::manual(), 1 << 12);
    let config = PipelineConfig { clock, key_cache_size, ..PipelineConfig::default() };
    let lines = Arc::new(Pipeline::start(config).expect("a pipeline without listeners"));
    let outcome = in_no_time(peer_answers::take(answers, Some(Arc::clone(&lines))));
    let body: Vec<u8> = lines.frames(Format::Text, &ScrapeQuery::default()).flatten().collect();
    (outcome.errors.len(), outcome.applied, String::from_utf8(body).expect("UTF-8"))
}

/// Reads the stage of a resharding to `total` shards from the metrics of a pod.
#[must_use]
pub fn stage_from_metrics(metrics: &str, total: i64) -> Option<i64> {
    crate::kube::stage_from_metrics(metrics, total)
}

/// Runs a future with paused time.
fn in_no_time<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("an event loop");
    runtime.block_on(work)
}
