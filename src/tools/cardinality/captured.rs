//! Input of the cardinality analysis: captured StatsD lines, or the exposition of a running
//! process.
//!
//! The input is read several times, so it is never held in memory. Input that can be read only once
//! (a pipe, a response) is spooled to an unnamed temporary file.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::Response;
use tokio::time::{Instant, timeout_at};

use crate::exposition::labels;
use crate::exposition::reader::{Line, LineWriter, Sample};
use crate::kube::TransportError;
use crate::kube::client::connection::Body;
use crate::kube::client::endpoint::{Access, Endpoint};
use crate::mapper::MetricType;
use crate::statsd::line::{self, Event, EventKind, ParserFlags};
use crate::tools::Result;
use crate::tools::diff::{TEXT, receive};
use crate::tools::process_client::late;

/// The time within which a response must begin.
const BEGIN: Duration = Duration::from_secs(10);

/// The path of the StatsD series alone, on processes with both sides.
const STATSD_ALONE: &str = "/metrics/statsd";
const METRICS: &str = "/metrics";
/// Prefixes of an exporter's own metrics, which no mapping affects.
const OWN: [&str; 6] =
    ["go_", "process_", "promhttp_", "kstatd_", "statsd_exporter_", "statsd_metric_mapper_"];
/// The time without data after which a server counts as unresponsive.
const PATIENCE: Duration = Duration::from_secs(60);
/// The maximum length of a line, far above that of a datagram.
const MAX_LINE: u64 = 1 << 20;
/// The read buffer size of a file.
const PIECE: usize = 128 * 1024;

/// A sample that leads to a series.
#[derive(Clone, Copy, Debug)]
pub(super) struct CapturedSample<'a> {
    /// The StatsD name, or the name of a family.
    pub name: &'a str,
    /// The type that selects the rules.
    pub kind: MetricType,
    /// True if it is a member of a set, which rules treat as a gauge.
    pub is_set: bool,
    /// True if it is a counter decrement, which is rejected.
    pub is_negative: bool,
    /// The tags, or the labels of a series without `le` and `quantile`; with names as exposed.
    pub labels: &'a [(&'a str, &'a str)],
    /// The suffix and bound that distinguish the series of a label set; expositions only.
    pub part: Option<&'a str>,
}

/// The format of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// StatsD lines.
    Lines(ParserFlags),
    /// An exposition.
    Exposition,
}

/// The captured input.
pub(crate) struct Captured {
    file: File,
    start: u64,
    pub(super) form: Form,
    /// It may have own metrics of its program.
    has_own: bool,
}

impl Captured {
    /// Opens a file of lines; `-` is standard input.
    ///
    /// # Errors
    /// When it cannot be read, or a pipe cannot be spooled.
    pub(crate) fn lines(path: &Path, flags: ParserFlags) -> Result<Self> {
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        let mut file = if path == Path::new("-") {
            File::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?)
        } else {
            File::open(path).map_err(failed)?
        };
        let form = Form::Lines(flags);
        if file.metadata().map_err(failed)?.is_file() {
            let start = file.stream_position().map_err(failed)?;
            return Ok(Self { file, start, form, has_own: false });
        }
        let mut kept = without_name()?;
        io::copy(&mut file, &mut kept).map_err(failed)?;
        Ok(Self { file: kept, start: 0, form, has_own: false })
    }

    /// Fetches the series of a running process. For an address without a path, those of the StatsD
    /// side are preferred.
    ///
    /// # Errors
    /// When the response is not an exposition, or cannot be spooled.
    pub(crate) async fn exposition(address: &str, access: Access) -> Result<Self> {
        let series = Self::fetch(address, access).await;
        series.map_err(|error| format!("no series from {address}: {error}").into())
    }

    async fn fetch(address: &str, access: Access) -> Result<Self> {
        let url =
            if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        let host = url.find("://").map_or(0, |at| at + 3);
        let path = url.get(host..).and_then(|rest| rest.split_once('/')).map(|(_, path)| path);
        let server = Endpoint::new(&url, access)?;
        // Both requests share one timeout.
        let end = Instant::now() + BEGIN;
        let (file, has_own) = if path.is_some_and(|path| !path.is_empty()) {
            (fetched(server.get(TEXT, "identity"), end).await?, true)
        } else {
            match fetched(server.get_at(STATSD_ALONE, TEXT, "identity"), end).await {
                Ok(file) => (file, false),
                // The originals have a different page there, or none.
                Err(_) => (fetched(server.get_at(METRICS, TEXT, "identity"), end).await?, true),
            }
        };
        Ok(Self { file, start: 0, form: Form::Exposition, has_own })
    }

    /// Passes all samples to `each`, in order, and returns the number of lines or samples.
    ///
    /// # Errors
    /// When the input cannot be read, or is not an exposition.
    pub(super) fn replay(&mut self, each: &mut dyn FnMut(&CapturedSample<'_>)) -> Result<u64> {
        self.file.seek(SeekFrom::Start(self.start)).map_err(|error| error.to_string())?;
        match self.form {
            Form::Lines(flags) => {
                self.replay_lines(flags, each).map_err(|error| error.to_string().into())
            }
            Form::Exposition => self.replay_exposition(each),
        }
    }

    fn replay_lines(
        &mut self,
        flags: ParserFlags,
        each: &mut dyn FnMut(&CapturedSample<'_>),
    ) -> io::Result<u64> {
        let mut input = BufReader::with_capacity(PIECE, &mut self.file);
        let mut sink = Lines { each };
        let (mut buffer, mut count) = (Vec::new(), 0);
        loop {
            buffer.clear();
            if (&mut input).take(MAX_LINE).read_until(b'\n', &mut buffer)? == 0 {
                return Ok(count);
            }
            count += 1;
            match buffer.strip_suffix(b"\n") {
                Some(text) => line::parse(text, flags, &mut sink),
                None if (buffer.len() as u64) < MAX_LINE => line::parse(&buffer, flags, &mut sink),
                // No client sends lines that long, and the remainder is not a line either.
                None => drop(input.skip_until(b'\n')?),
            }
        }
    }

    fn replay_exposition(&mut self, each: &mut dyn FnMut(&CapturedSample<'_>)) -> Result<u64> {
        let (name, kind) = (String::new(), String::new());
        let mut families = Families { each, has_own: self.has_own, name, kind, samples: 0 };
        let mut writer = LineWriter::new(|line: Line<'_>| families.line(&line));
        let mut input = BufReader::with_capacity(PIECE, &mut self.file);
        io::copy(&mut input, &mut writer).map_err(|error| error.to_string())?;
        writer.finish().map_err(|error| error.to_string())?;
        Ok(families.samples)
    }
}

/// Creates an unnamed temporary file, which vanishes with the process.
fn without_name() -> Result<File> {
    let folder = std::env::temp_dir();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let path = folder.join(format!("kstatd-captured-{}-{now}", std::process::id()));
    let mut options = OpenOptions::new();
    let made = options.read(true).write(true).create_new(true).mode(0o600).open(&path);
    let file = made.and_then(|file| std::fs::remove_file(&path).map(|()| file));
    file.map_err(|error| {
        let folder = folder.display();
        format!("cannot save the input to {folder}: {error}; set TMPDIR or give a file").into()
    })
}

/// Returns the response, if it is an exposition and begins before `end`.
async fn fetched(
    answer: impl Future<Output = Result<Response<Body>, TransportError>>,
    end: Instant,
) -> Result<File> {
    let answer = timeout_at(end, answer).await.map_err(|_| late(BEGIN))??;
    let mut file = without_name()?;
    // Another program may have a plain page there.
    let received = receive(answer, "version=", PATIENCE, &mut file).await?;
    if received.is_open_metrics {
        return Err("the response is OpenMetrics, which was not requested".into());
    }
    Ok(file)
}

/// Receives the events of StatsD lines.
struct Lines<'e> {
    each: &'e mut dyn FnMut(&CapturedSample<'_>),
}

impl line::Sink for Lines<'_> {
    fn event(&mut self, event: &Event<'_>) {
        if event.weight == 0 {
            return;
        }
        let kind = match event.kind {
            EventKind::Counter => MetricType::Counter,
            EventKind::Gauge { .. } | EventKind::Set(_) => MetricType::Gauge,
            EventKind::Observer => MetricType::Observer,
        };
        let labels: Vec<_> = event.labels.iter().map(|tag| (&*tag.name, tag.value)).collect();
        (self.each)(&CapturedSample {
            name: event.name,
            kind,
            is_set: matches!(event.kind, EventKind::Set(_)),
            is_negative: event.value < 0.0,
            labels: &labels,
            part: None,
        });
    }
}

/// Receives the lines of an exposition.
struct Families<'e> {
    each: &'e mut dyn FnMut(&CapturedSample<'_>),
    /// The current family and its type.
    has_own: bool,
    name: String,
    kind: String,
    samples: u64,
}

impl Families<'_> {
    fn line(&mut self, line: &Line<'_>) {
        match line {
            Line::Type { name, kind } => {
                (*name).clone_into(&mut self.name);
                (*kind).clone_into(&mut self.kind);
            }
            Line::Sample(sample) => self.sample(sample),
            Line::Help { .. } | Line::End => {}
        }
    }

    fn sample(&mut self, sample: &Sample<'_>) {
        if self.has_own && OWN.iter().any(|prefix| sample.name.starts_with(prefix)) {
            return;
        }
        self.samples += 1;
        let of_family = sample.name.strip_prefix(self.name.as_str());
        let kind = match of_family {
            Some("" | "_sum" | "_count" | "_bucket") => self.kind.as_str(),
            _ => "",
        };
        let (kind, own) = match kind {
            "histogram" => (MetricType::Observer, "le"),
            "summary" => (MetricType::Observer, "quantile"),
            "gauge" => (MetricType::Gauge, ""),
            _ => (MetricType::Counter, ""),
        };
        let name = if own.is_empty() { sample.name } else { self.name.as_str() };
        let plain: Vec<(&str, Cow<'_, str>)> = sample
            .labels
            .iter()
            .filter(|(name, _)| own.is_empty() || *name != own)
            .map(|(name, value)| (*name, labels::plain_text(value)))
            .collect();
        let mut labels: Vec<(&str, &str)> =
            plain.iter().map(|(name, value)| (*name, &**value)).collect();
        labels.sort_unstable();
        let bound = sample.labels.iter().find(|(name, _)| *name == own).map(|(_, value)| *value);
        let part = format!("{}\0{}", sample.name, bound.unwrap_or_default());
        let part = if own.is_empty() { "" } else { part.as_str() };
        (self.each)(&CapturedSample {
            name,
            kind,
            is_set: false,
            is_negative: false,
            labels: &labels,
            part: Some(part),
        });
    }
}
