//! Sources of expositions: a server, a file or standard input, optionally compressed.

use std::io::{self, BufReader, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use flate2::write::MultiGzDecoder;
use http::Response;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, LOCATION};
use http_body_util::BodyExt;
use serde::Serialize;
use tokio::time::timeout;

use super::table::Table;
use crate::exposition::reader::{Line, LineWriter};
use crate::kube::client::connection::Body;
use crate::kube::client::endpoint::{Access, Endpoint};
use crate::tools::Result;
use crate::tools::process_client::{MAX_EXPOSITION, late};
use crate::util::words::words;

/// The `Accept` header.
pub(crate) const TEXT: &str = "text/plain;version=0.0.4;q=1,*/*;q=0.1";
const OPEN_METRICS: &str =
    "application/openmetrics-text;version=1.0.0;q=1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

/// The read buffer size of a file.
const PIECE: usize = 128 * 1024;

/// The magic number of gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];

words! {
    /// An exposition format.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    pub(super) enum Form {
        /// 0.0.4
        #[serde(rename = "text")]
        Text = "text",
        #[serde(rename = "openmetrics")]
        OpenMetrics = "OpenMetrics",
    }
}

/// A source of expositions.
pub(crate) enum Source {
    Server(Endpoint),
    File(PathBuf),
    Stdin,
}

impl Source {
    /// Parses a command line argument: a URL, `-`, or a file.
    ///
    /// # Errors
    /// When the argument or `access` is invalid.
    pub(super) fn new(word: &str, access: &Access) -> Result<Self> {
        if word == "-" {
            return Ok(Self::Stdin);
        }
        if word.contains("://") {
            return Ok(Self::Server(Endpoint::new(word, access.clone())?));
        }
        let path = PathBuf::from(word);
        if !path.exists() && word.contains(':') {
            return Err("no such file; the address of a server begins with http://".into());
        }
        Ok(Self::File(path))
    }

    /// Returns whether it always has the same content.
    pub(super) fn is_fixed(&self) -> bool {
        !matches!(self, Self::Server(_))
    }

    /// Reads a sample within `limit`.
    ///
    /// # Errors
    /// A description of the failure.
    pub(super) async fn read(
        &self,
        table: &mut Table,
        side: usize,
        open_metrics: bool,
        limit: Duration,
    ) -> Result<Form> {
        let in_words = |error: io::Error| error.to_string();
        let mut reading = table.read(side);
        let mut intake = LineWriter::new(|line: Line<'_>| reading.line(line));
        let mut must_end = false;
        match self {
            Self::Server(server) => {
                let accept = if open_metrics { OPEN_METRICS } else { TEXT };
                let fetched = fetch(server, accept, "gzip", limit, &mut intake).await?;
                must_end = fetched.is_open_metrics;
            }
            Self::File(path) => {
                let file = std::fs::File::open(path).map_err(in_words)?;
                of_file(file, &mut intake).map_err(in_words)?;
            }
            Self::Stdin => of_file(io::stdin().lock(), &mut intake).map_err(in_words)?,
        }
        let has_ended = intake.finish().map_err(|error| error.to_string())?;
        reading.finish();
        match has_ended {
            true => Ok(Form::OpenMetrics),
            false if must_end => Err("the response is truncated: # EOF is missing".into()),
            false => Ok(Form::Text),
        }
    }
}

/// Reads a file, which may be compressed.
fn of_file(mut file: impl Read, intake: &mut impl Write) -> io::Result<()> {
    let mut start = Vec::new();
    file.by_ref().take(GZIP.len() as u64).read_to_end(&mut start)?;
    let mut whole = BufReader::with_capacity(PIECE, start.as_slice().chain(file));
    if start == GZIP {
        let mut unpacked = MultiGzDecoder::new(intake);
        io::copy(&mut whole, &mut unpacked)?;
        unpacked.try_finish()
    } else {
        io::copy(&mut whole, intake).map(drop)
    }
}

/// The facts of a response that was read completely.
pub(crate) struct Fetched {
    pub(in crate::tools) is_open_metrics: bool,
    /// The size of the body in bytes, as transferred.
    pub transferred: u64,
}

/// Requests an exposition and writes it decompressed to `sink`, within `limit`.
///
/// # Errors
/// There is no complete response, it is not an exposition, or the sink rejects it.
pub(crate) async fn fetch(
    server: &Endpoint,
    accept: &'static str,
    coding: &'static str,
    limit: Duration,
    sink: &mut impl Write,
) -> Result<Fetched> {
    let asking = async {
        let answer = server.get(accept, coding).await?;
        receive(answer, "", Duration::MAX, sink).await
    };
    let late = |_| format!("no whole answer within {} s", limit.as_secs_f64());
    timeout(limit, asking).await.map_err(late)?
}

/// Writes the exposition in a response decompressed to `sink`. Its content type must contain `wanted`, and no pause
/// between two pieces may take longer than `patience`.
///
/// # Errors
/// As [`fetch`].
pub(crate) async fn receive(
    answer: Response<Body>,
    wanted: &str,
    patience: Duration,
    sink: &mut impl Write,
) -> Result<Fetched> {
    let header = |name| {
        let value = answer.headers().get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let status = answer.status();
    if !status.is_success() {
        let reason = status.canonical_reason().unwrap_or_default();
        let elsewhere = match header(LOCATION) {
            place if place.is_empty() => String::new(),
            place => format!(", and points to {place}"),
        };
        return Err(format!("the server returned {} {reason}{elsewhere}", status.as_u16()).into());
    }
    let kind = header(CONTENT_TYPE).to_ascii_lowercase();
    let is_open_metrics = kind.starts_with("application/openmetrics-text");
    if !(is_open_metrics || kind.starts_with("text/plain")) || !kind.contains(wanted) {
        return Err(
            format!("the response is not an exposition: its Content-Type is {kind:?}").into()
        );
    }
    let coding = header(CONTENT_ENCODING).to_ascii_lowercase();
    if !matches!(coding.as_str(), "" | "identity") {
        return Err(format!("the response is encoded as {coding}, which was not requested").into());
    }
    let (mut body, mut size) = (answer.into_body(), 0);
    while let Some(frame) = timeout(patience, body.frame()).await.map_err(|_| late(patience))? {
        let frame = frame.map_err(|error| format!("the response is truncated: {error}"))?;
        let Ok(data) = frame.into_data() else { continue };
        size += data.len() as u64;
        if size > MAX_EXPOSITION {
            return Err(format!("longer than {} GiB", MAX_EXPOSITION >> 30).into());
        }
        sink.write_all(&data).map_err(|error| error.to_string())?;
    }
    Ok(Fetched { is_open_metrics, transferred: body.compressed_bytes().unwrap_or(size) })
}
