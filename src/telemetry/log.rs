//! Log output on stderr: human-readable, JSON, and the formats of the originals.

use super::stderr::{LAST_WAIT, STDERR};
use crate::go::strconv;
use crate::util::lock::Lock;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::panic::PanicHookInfo;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// `2026-01-02T15:04:05.000Z  INFO message key=value`.
    Text,
    /// One JSON object per line with `time`, `level`, `message`, `target` and the fields.
    Json,
    /// klog, as in kube-state-metrics: `I0102 15:04:05.000000    7 file.rs:1] "message"
    /// key="value"`.
    Klog {
        /// Omits the header before the message.
        skip_headers: bool,
    },
    /// logfmt, as in statsd_exporter: `time=… level=INFO source=file.rs:1 msg="message" key=value`.
    Logfmt,
    /// The same keys as JSON.
    LogfmtJson,
}

/// The log settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// The format.
    pub format: LogFormat,
    /// The minimum level.
    pub level: Level,
}

/// Starts logging to stderr. Further calls have no effect.
pub fn init(config: LogConfig) {
    // Libraries log only warnings and errors, or up to debug level if this program traces.
    let libraries = match config.level {
        Level::TRACE => LevelFilter::DEBUG,
        Level::ERROR => LevelFilter::ERROR,
        _ => LevelFilter::WARN,
    };
    let filter = Targets::new()
        .with_default(libraries)
        .with_target("kstatd", LevelFilter::from_level(config.level));
    // Tests of this crate may have installed another subscriber.
    if tracing_subscriber::registry().with(filter).with(Lines(config.format)).try_init().is_ok() {
        // The default hook waits for room in a full pipe.
        std::panic::set_hook(Box::new(log_panic));
    }
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let location = panic.location().map(ToString::to_string).unwrap_or_default();
    let text = panic.payload_as_str().unwrap_or_default();
    let backtrace = Backtrace::capture();
    let backtrace =
        (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    tracing::error!(thread = thread.name(), backtrace, "A thread panicked at {location}: {text}");
}

/// Writes the last text of the process to stderr. It does not wait for a reader that has stopped.
pub(crate) fn print_last(text: &str) {
    STDERR.lock().write_last(format!("{text}\n").as_bytes(), LAST_WAIT);
}

/// The maximum size of [`RECENT`] in bytes.
const MAX_RECENT: usize = 256 << 10;

/// The most recent log lines, for support archives.
static RECENT: Lock<VecDeque<u8>> = Lock::new(VecDeque::new());

/// Appends a line to [`RECENT`].
fn keep(line: &[u8]) {
    let mut recent = RECENT.lock();
    recent.extend(line);
    if let Some(excess) = recent.len().checked_sub(MAX_RECENT + 1) {
        // The first line that is kept begins after a line feed.
        let end = recent.iter().skip(excess).position(|byte| *byte == b'\n');
        let end = end.map_or(recent.len(), |end| excess + end + 1);
        recent.drain(..end);
    }
}

/// Returns the most recent log lines.
pub(crate) fn recent() -> String {
    let recent = RECENT.lock();
    let bytes: Vec<u8> = recent.iter().copied().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Writes a line for each event to stderr, as far as it has room, and keeps it.
struct Lines(LogFormat);

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let line = Line {
            level: *metadata.level(),
            target: metadata.target(),
            source: metadata.file().map(|file| (file, metadata.line().unwrap_or(0))),
            fields,
        };
        let text = line.render(self.0, &jiff::Zoned::now()) + "\n";
        STDERR.lock().write(text.as_bytes(), |lost| {
            let message = "Log lines were lost because nobody read them".to_owned();
            let fields = Fields { message, rest: vec![("lines", Value::Plain(lost.to_string()))] };
            let source = Some((file!(), line!()));
            let line = Line { level: Level::WARN, target: module_path!(), source, fields };
            line.render(self.0, &jiff::Zoned::now())
        });
        keep(text.as_bytes());
    }
}

/// A field value, with the information whether it needs quotes.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Text(String),
    /// A number or a boolean: never quoted.
    Plain(String),
}

#[derive(Default)]
struct Fields {
    message: String,
    rest: Vec<(&'static str, Value)>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        if field.name() == "message" {
            self.message = match value {
                Value::Text(text) | Value::Plain(text) => text,
            };
        } else {
            self.rest.push((field.name(), value));
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, Value::Text(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, Value::Text(value.to_owned()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, Value::Plain(value.to_string()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, Value::Plain(value.to_string()));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, Value::Plain(value.to_string()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, Value::Plain(value.to_string()));
    }
}

struct Line<'a> {
    level: Level,
    target: &'a str,
    source: Option<(&'a str, u32)>,
    fields: Fields,
}

impl Line<'_> {
    fn render(&self, format: LogFormat, now: &jiff::Zoned) -> String {
        match format {
            LogFormat::Text => self.text(now),
            LogFormat::Json => self.json([
                ("time", utc(now)),
                ("level", self.level.as_str().to_lowercase()),
                ("message", self.fields.message.clone()),
                ("target", self.target.to_owned()),
            ]),
            LogFormat::Klog { skip_headers } => self.klog(now, skip_headers),
            LogFormat::Logfmt => self.logfmt(now),
            LogFormat::LogfmtJson => self.json([
                ("time", utc(now)),
                ("level", self.level_name().to_owned()),
                ("source", self.source()),
                ("msg", self.fields.message.clone()),
            ]),
        }
    }

    fn source(&self) -> String {
        let (file, line) = self.source.unwrap_or(("unknown", 0));
        let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
        format!("{name}:{line}")
    }

    fn pairs(&self, quote: impl Fn(&str) -> String) -> String {
        let mut pairs = String::new();
        for (key, value) in &self.fields.rest {
            let text = match value {
                Value::Text(text) => quote(text),
                Value::Plain(text) => text.clone(),
            };
            pairs.push_str(&format!(" {key}={text}"));
        }
        pairs
    }

    fn text(&self, now: &jiff::Zoned) -> String {
        let (time, level, message) = (utc(now), self.level, &self.fields.message);
        // A message with line breaks must not look like several log lines.
        let message = message.replace('\n', "\n    ");
        format!("{time} {level:>5} {message}{}", self.pairs(strconv::quote_if_needed))
    }

    fn json(&self, begin: [(&str, String); 4]) -> String {
        let begin = begin.into_iter().map(|(key, text)| (key.to_owned(), text.into()));
        let mut object: serde_json::Map<_, _> = begin.collect();
        for (key, value) in &self.fields.rest {
            let value = match value {
                Value::Text(text) => text.clone().into(),
                Value::Plain(text) => {
                    serde_json::from_str(text).unwrap_or_else(|_| text.clone().into())
                }
            };
            object.insert((*key).to_owned(), value);
        }
        serde_json::Value::Object(object).to_string()
    }

    fn klog(&self, now: &jiff::Zoned, skip_headers: bool) -> String {
        let severity = match self.level {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            _ => 'I',
        };
        let mut line = String::new();
        if !skip_headers {
            let time = now.strftime("%m%d %H:%M:%S%.6f");
            let (process, source) = (std::process::id(), self.source());
            // Writing to a String cannot fail.
            let _ = write!(line, "{severity}{time} {process:>7} {source}] ");
        }
        line.push_str(&strconv::quote(&self.fields.message));
        line.push_str(&self.pairs(strconv::quote));
        line
    }

    fn logfmt(&self, now: &jiff::Zoned) -> String {
        format!(
            "time={} level={} source={} msg={}{}",
            utc(now),
            self.level_name(),
            self.source(),
            strconv::quote_if_needed(&self.fields.message),
            self.pairs(strconv::quote_if_needed)
        )
    }

    fn level_name(&self) -> &'static str {
        match self.level {
            Level::TRACE => "DEBUG",
            level => level.as_str(),
        }
    }
}

fn utc(now: &jiff::Zoned) -> String {
    format!("{:.3}", now.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line<'static> {
        Line {
            level: Level::WARN,
            target: "kstatd::x",
            source: Some(("src/cli/run.rs", 7)),
            fields: Fields {
                message: "not \"good\"".into(),
                rest: vec![
                    ("path", Value::Text("/a b".into())),
                    ("count", Value::Plain("3".into())),
                    ("signal", Value::Text("hangup".into())),
                ],
            },
        }
    }

    fn now() -> jiff::Zoned {
        "2026-01-02T15:04:05.5+00:00[UTC]".parse().expect("time")
    }

    #[test]
    fn forms() {
        let render = |format| line().render(format, &now());
        assert_eq!(
            render(LogFormat::Text),
            "2026-01-02T15:04:05.500Z  WARN not \"good\" path=\"/a b\" count=3 signal=hangup"
        );
        assert_eq!(
            render(LogFormat::Logfmt),
            "time=2026-01-02T15:04:05.500Z level=WARN source=run.rs:7 msg=\"not \\\"good\\\"\" \
             path=\"/a b\" count=3 signal=hangup"
        );
        let klog = render(LogFormat::Klog { skip_headers: false });
        let (head, rest) = klog.split_once(' ').expect("head");
        assert_eq!(head, "W0102");
        assert!(rest.starts_with("15:04:05.500000 "), "{klog}");
        assert!(
            rest.ends_with(
                "run.rs:7] \"not \\\"good\\\"\" path=\"/a b\" count=3 signal=\"hangup\""
            ),
            "{klog}"
        );
        assert!(render(LogFormat::Klog { skip_headers: true }).starts_with("\"not "));
    }

    #[test]
    fn json_forms() {
        let parse = |format| -> serde_json::Value {
            serde_json::from_str(&line().render(format, &now())).expect("JSON")
        };
        let own = parse(LogFormat::Json);
        assert_eq!((&own["level"], &own["count"]), (&"warn".into(), &3.into()));
        assert_eq!(own["message"], "not \"good\"");
        let slog = parse(LogFormat::LogfmtJson);
        assert_eq!((&slog["level"], &slog["msg"]), (&"WARN".into(), &"not \"good\"".into()));
        assert_eq!(slog["source"], "run.rs:7");
    }

    #[test]
    fn recent_lines_are_whole_and_bounded() {
        let line = |number: u32| format!("{number:05} {}\n", "x".repeat(90));
        for number in 0..10_000 {
            keep(line(number).as_bytes());
        }
        let kept = recent();
        assert!(kept.len() <= MAX_RECENT && kept.len() > MAX_RECENT - 200, "{}", kept.len());
        assert!(kept.ends_with(&line(9_999)) && kept.lines().all(|line| line.len() == 96));
        keep(&vec![b'y'; 2 * MAX_RECENT]);
        assert!(recent().is_empty());
    }

    #[test]
    fn quotes() {
        assert_eq!(strconv::quote("a\n\u{1}\u{7f}é"), "\"a\\n\\x01\\x7fé\"");
        assert_eq!(strconv::quote_if_needed(""), "\"\"");
        assert_eq!(strconv::quote_if_needed("a=b"), "\"a=b\"");
    }
}
