//! Doors for the fuzz targets alone, to what is no part of the library: readers of what strangers send that commands and sides
//! keep to themselves. No other program has them.

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

use crate::exposition::reader::Reader;
use crate::exposition::{Format, ScrapeQuery, Source};
use crate::kube::client::endpoint::Access;
use crate::node::kubelet::{Answer, Ask, Asking, Polls, Rhythm, poll};
use crate::node::{places, store};
use crate::server::web_config::WebConfig;
use crate::statsd::Offline;
use crate::statsd::line::ParserFlags;
use crate::tools::diff::Manner;
use crate::tools::{cardinality, diff};

/// The web configuration in a file: whether it turns TLS and HTTP/2 on, or why it cannot be used. One that names other files is
/// read, and not loaded.
#[must_use]
pub fn web_config(path: &Path) -> Option<Result<(bool, bool), String>> {
    if !WebConfig::files(path).is_empty() {
        return None;
    }
    let config = WebConfig::load(path).map_err(|error| error.reason);
    Some(config.map(|config| (config.is_tls(), config.is_http2())))
}

/// The lines of an exposition that comes in pieces, as they are understood, and whether it has an end.
///
/// # Errors
/// The number of the first line that is none, and why.
pub fn exposition<'b>(
    pieces: impl Iterator<Item = &'b [u8]>,
) -> Result<(Vec<String>, bool), (u64, String)> {
    let (mut reader, mut lines) = (Reader::default(), Vec::new());
    let said = |error: crate::exposition::reader::ReadError| (error.line, error.reason);
    for piece in pieces {
        reader.feed(piece, &mut |line| lines.push(format!("{line:?}"))).map_err(said)?;
    }
    reader.finish().map(|ended| (lines, ended)).map_err(said)
}

/// Compares two files as `kstatd diff` does: whether they are the same, and the report.
///
/// # Errors
/// One of them is no exposition.
pub fn differ(one: &Path, other: &Path) -> Result<(bool, String), String> {
    let sides = [one, other].map(|path| path.display().to_string());
    let options = diff::Options {
        sides,
        access: Access::default(),
        user_agent: String::new(),
        open_metrics: false,
        timeout: Duration::from_secs(1),
        interval: Duration::ZERO,
        watch: None,
        ignore: Vec::new(),
        manner: Manner { tolerance: 0.0, increases: false },
        examples: 3,
    };
    let report = in_no_time(diff::run(options, |_| ()))?;
    assert!(!report.json().is_empty());
    Ok((report.is_same(true), report.text(true)))
}

/// What a scrape shows of a node whose kubelet answers with a body in these pieces, with a torn end or a whole one.
#[must_use]
pub fn node(pieces: Vec<Bytes>, torn: bool) -> String {
    let store = Arc::new(store::Store::new("", true));
    let kubelet = Arc::new(Kubelet { pieces, torn });
    let second = Duration::from_secs(1);
    let rhythm = Rhythm { interval: 3600 * second, deadline: second };
    let (first, _) = tokio::sync::watch::channel(false);
    let polling = poll(Arc::clone(&store), kubelet, None, rhythm, Polls::default(), first);
    // It goes on for ever; the first poll takes no time, and the next follows after a pause.
    let once = in_no_time(async { tokio::time::timeout(second / 2, polling).await });
    assert!(once.is_err(), "it ended by itself");
    let body: Vec<u8> = store.frames(Format::Text, &ScrapeQuery::default()).flatten().collect();
    String::from_utf8(body).expect("UTF-8")
}

struct Kubelet {
    pieces: Vec<Bytes>,
    torn: bool,
}

impl Ask for Kubelet {
    fn ask<'a>(&'a self, _: &'a str) -> Asking<'a> {
        let pieces = self.pieces.iter().cloned().map(|piece| Ok(Frame::data(piece)));
        let end = self.torn.then(|| Err("torn".to_owned()));
        let answer: Answer = Response::new(Pieces(pieces.chain(end).collect()).boxed_unsync());
        Box::pin(std::future::ready(Ok(answer)))
    }
}

/// A body.
struct Pieces(VecDeque<Result<Frame<Bytes>, String>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = String;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, String>>> {
        Poll::Ready(self.0.pop_front())
    }
}

/// Where overlays are mounted and written to, by a mount table.
#[must_use]
pub fn overlays(table: &[u8]) -> Vec<(String, PathBuf)> {
    places(table)
}

/// What is said of a line before it comes, for programs to read, with whether all of it has an effect.
#[must_use]
pub fn foretold(offline: &Offline, line: &[u8]) -> (String, bool) {
    let explanation = offline.foretold(line);
    assert!(!explanation.text().is_empty());
    (serde_json::to_string(&explanation).expect("JSON"), explanation.accepted)
}

/// Rules for the lines of a file, as `kstatd cardinality suggest` finds them, or what these would change.
///
/// # Errors
/// What cannot be read.
pub fn suggested(
    lines: &Path,
    flags: ParserFlags,
    rules: Option<String>,
    least: u32,
) -> Result<String, String> {
    let origin = cardinality::Origin::Lines(lines.to_owned(), flags);
    in_no_time(cardinality::run(cardinality::Options {
        origin,
        mapping: String::new(),
        rules,
        least,
    }))
}

/// Runs something whose waits take no time.
fn in_no_time<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("an event loop");
    runtime.block_on(work)
}
