//! The journal of a history: each request, response, fault and scrape in order, and a page that shows it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The topic of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// The start of a fault with this number.
    Begin(usize),
    /// The end of a fault with this number.
    End(usize),
    Request,
    /// A piece of a response body, such as a watch event.
    Response,
    /// Lines of a history that has StatsD senders, too, and changes of the shard.
    Line,
    Scrape,
    Violation,
}

/// What happened at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The simulated time since the start.
    pub at: Duration,
    pub topic: Topic,
    pub text: String,
}

/// Returns the seed of a history of this kind, its violation and the path of its timeline, which it writes.
pub fn describe(kind: &str, seed: u64, violation: &str, journal: &[Entry]) -> String {
    let timeline = write_timeline(&format!("{kind}-{seed}"), journal);
    format!("KSTATD_SEED={seed}: {violation}\n    timeline: {timeline:?}\n")
}

/// Writes the timeline of a history with a violation into `target/histories` and returns its path.
fn write_timeline(name: &str, journal: &[Entry]) -> std::io::Result<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/histories");
    std::fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{name}.html"));
    std::fs::write(&path, timeline(name, journal))?;
    Ok(path)
}

/// Returns a page with a bar for each fault, the requests and scrapes below them, and the entries as a table.
fn timeline(name: &str, journal: &[Entry]) -> String {
    const WIDTH: f64 = 1500.0;
    const ROW: usize = 16;
    let end = journal.last().map_or(1.0, |entry| entry.at.as_secs_f64()).max(0.001);
    let x = |at: Duration| at.as_secs_f64() / end * WIDTH;
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;");
    let (mut bars, mut rows) = (String::new(), 0);
    for entry in journal {
        let Topic::Begin(id) = entry.topic else { continue };
        let ended = journal.iter().find(|other| other.topic == Topic::End(id));
        let until = ended.map_or(WIDTH, |ended| x(ended.at));
        let (from, y) = (x(entry.at), rows * ROW);
        let (width, label) = ((until - from).max(2.0), escape(&entry.text));
        let _ = writeln!(
            bars,
            "<rect x='{from:.1}' y='{y}' width='{width:.1}' height='12' fill='#e9a'/>\
             <text x='{from:.1}' y='{}'>{label}</text>",
            y + 10
        );
        rows += 1;
    }
    let ticks = [
        (Topic::Request, "requests", "#48c"),
        (Topic::Response, "responses and events", "#8a4"),
        (Topic::Line, "lines", "#bbb"),
        (Topic::Scrape, "scrapes", "#555"),
        (Topic::Violation, "first wrong answer", "#d00"),
    ];
    for (topic, label, colour) in ticks {
        let y = rows * ROW;
        let _ = writeln!(bars, "<text x='{WIDTH}' y='{}'> {label}</text>", y + 10);
        for entry in journal.iter().filter(|entry| entry.topic == topic) {
            let at = x(entry.at);
            let title = escape(&entry.text);
            let _ = writeln!(
                bars,
                "<rect x='{at:.1}' y='{y}' width='1.5' height='12' fill='{colour}'><title>{:.3} s: {title}</title></rect>",
                entry.at.as_secs_f64()
            );
        }
        rows += 1;
    }
    let mut table = String::new();
    for Entry { at, topic, text } in journal {
        let (class, text) = (format!("{topic:?}"), escape(text));
        let class = class.split('(').next().unwrap_or_default();
        let at = at.as_secs_f64();
        let _ = writeln!(
            table,
            "<tr class='{class}'><td>{at:.3}</td><td>{class}</td><td><pre>{text}</pre></td></tr>"
        );
    }
    format!(
        "<!doctype html><meta charset='utf-8'><title>{name}</title>\n\
         <style>body{{font:13px sans-serif}}pre{{margin:0;white-space:pre-wrap}}text{{font-size:10px}}\
         .Begin,.End{{background:#fde}}.Scrape{{background:#eee}}.Violation{{background:#d00;color:#fff}}</style>\n\
         <h1>{name}</h1>\n<svg width='{}' height='{}'>{bars}</svg>\n<table>{table}</table>\n",
        WIDTH + 160.0,
        rows * ROW + 10
    )
}

#[test]
fn a_timeline_shows_faults_requests_and_the_violation() {
    let entry = |at, topic, text: &str| Entry {
        at: Duration::from_millis(at),
        topic,
        text: text.to_owned(),
    };
    let page = timeline(
        "seed 7",
        &[
            entry(0, Topic::Request, "/api/v1/pods"),
            entry(1_000, Topic::Begin(3), "Reset begins"),
            entry(2_000, Topic::End(3), "Reset ends"),
            entry(4_000, Topic::Violation, "more [\"a<b\"]"),
        ],
    );
    assert!(
        page.contains("<rect x='375.0' y='0' width='375.0' height='12' fill='#e9a'/>"),
        "{page}"
    );
    assert!(page.contains("<title>4.000 s: more [\"a&lt;b\"]</title>"), "{page}");
    assert_eq!(page.matches("<tr ").count(), 4);
}
