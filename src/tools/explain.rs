//! `kstatd explain LINE`: how a StatsD line is read, which rules were tried, and the series that it leads to.
//!
//! The line is parsed by the grammar, its name held against each rule by the mapper, and the whole of it applied to an
//! empty registry. Nothing here decides anything: it writes down what those say.

use std::fmt::Write;
use std::sync::Arc;

use super::render_statsd::explanation;
use crate::exposition::{Format, ScrapeQuery};
use crate::statsd::line::{self, Event, EventKind, ParserFlags, SampleError};
use crate::statsd::mapper::{
    Action, Buffer, Mapper, MatchType, MetricType, Normaliser, ObserverType, Precedence, Rule,
    Tried, Verdict,
};
use crate::statsd::{Offline, OfflineConfig};

/// Rules shown of a name unless all are asked for: those that match and those that came nearest.
const SHOWN: usize = 20;

/// What is said of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// For a person to read, with a line feed at the end.
    pub text: String,
    /// Whether all of the line has an effect, or is dropped by a rule.
    pub accepted: bool,
}

/// Explains one line, without its line feed. `all` shows every rule of the file, however many there are.
#[must_use]
pub fn explain(mapper: &Arc<Mapper>, flags: ParserFlags, bytes: &[u8], all: bool) -> Explanation {
    let mut out = Writer { text: String::new(), mapper, all, said: Vec::new() };
    out.line(0, &printable(&String::from_utf8_lossy(bytes)));
    let mut parts = Parts::default();
    line::parse(bytes, flags, &mut parts);
    let mut parts = parts.0;
    // What else the grammar has against such a line only follows from it.
    if parts.iter().any(Part::is_of_dogstatsd) {
        parts.retain(Part::is_of_dogstatsd);
    }
    for part in &parts {
        match part {
            Part::Sample(sample) => out.sample(sample),
            Part::Refused(word, count) => out.refused(word, *count),
        }
    }
    let accepted = out.series(flags, bytes);
    Explanation { text: out.text, accepted }
}

/// The text in one line.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
    out
}

fn pairs(labels: &[(String, String)]) -> String {
    let pairs = labels.iter().map(|(name, value)| format!("{name}={value:?}"));
    pairs.collect::<Vec<_>>().join(", ")
}

fn verdict(tried: &Tried<'_>) -> String {
    match tried.verdict {
        Verdict::Decides => "matches and decides".to_owned(),
        Verdict::Behind { rule, reason } => {
            let why = match reason {
                Precedence::Earlier => "stands before it",
                Precedence::MoreSpecific => "is more specific",
                Precedence::Glob => "is a glob, and those go first",
            };
            format!("matches too, but rule {} {why}", rule + 1)
        }
        Verdict::OtherType { only } => {
            format!("matches the name, but is for the type {} alone", only.as_str())
        }
        Verdict::SegmentCount { rule, name } => {
            format!("has {rule} segments between dots, the name {name}")
        }
        Verdict::Segment { position, wanted, found } => {
            let case =
                if wanted.eq_ignore_ascii_case(found) { ": upper and lower case" } else { "" };
            format!("segment {position} is {wanted:?} there and {found:?} in the name{case}")
        }
        Verdict::NotFound => "is not found in the name".to_owned(),
    }
}

/// A part of a line.
enum Part {
    Sample(Sample),
    /// Word of the ledger, and how often it applies.
    Refused(&'static str, u64),
}

impl Part {
    fn is_of_dogstatsd(&self) -> bool {
        matches!(self, Self::Refused(word, _) if word.starts_with("dogstatsd_"))
    }
}

/// Values of one type with one set of tags.
struct Sample {
    kind: &'static str,
    metric_type: MetricType,
    name: String,
    values: Vec<String>,
    /// Name and value, sorted by name.
    tags: Vec<(String, String)>,
}

#[derive(Default)]
struct Parts(Vec<Part>);

impl line::Sink for Parts {
    fn event(&mut self, event: &Event<'_>) {
        let (kind, metric_type) = match event.kind {
            EventKind::Counter => ("counter", MetricType::Counter),
            EventKind::Gauge { .. } => ("gauge", MetricType::Gauge),
            EventKind::Observer => ("observer", MetricType::Observer),
            EventKind::Set(_) => ("set", MetricType::Gauge),
        };
        let value = match event.kind {
            EventKind::Gauge { relative: true } => format!("{:+} to what it is", event.value),
            EventKind::Set(member) => format!("{member:?}"),
            _ => event.value.to_string(),
        };
        let value = if event.weight == 1 {
            value
        } else {
            format!("{value} counted {} times", event.weight)
        };
        let before = self.0.iter_mut().rev().find_map(|part| match part {
            Part::Sample(sample) => Some(sample),
            Part::Refused(..) => None,
        });
        if let Some(sample) = before.filter(|_| event.same_series) {
            return sample.values.push(value);
        }
        let tags = event.labels.iter();
        self.0.push(Part::Sample(Sample {
            kind,
            metric_type,
            name: event.name.to_owned(),
            values: vec![value],
            tags: tags.map(|tag| (tag.name.to_string(), tag.value.to_owned())).collect(),
        }));
    }

    fn sample(&mut self) {}

    fn sample_error(&mut self, reason: SampleError, count: u64) {
        self.0.push(Part::Refused(reason.as_str(), count));
    }

    fn tag_errors(&mut self, count: u64) {
        self.0.push(Part::Refused("tag_error", count));
    }

    fn tags(&mut self) {}

    fn dogstatsd_event(&mut self) {
        self.0.push(Part::Refused("dogstatsd_event", 1));
    }

    fn dogstatsd_service_check(&mut self) {
        self.0.push(Part::Refused("dogstatsd_service_check", 1));
    }
}

struct Writer<'m> {
    text: String,
    mapper: &'m Arc<Mapper>,
    all: bool,
    /// Words of the ledger that stand there already.
    said: Vec<&'static str>,
}

impl Writer<'_> {
    fn refused(&mut self, word: &'static str, count: u64) {
        let times = if count == 1 { String::new() } else { format!(" {count} times") };
        self.line(1, &format!("refused{times}: {word} ({})", explanation(word)));
        self.said.push(word);
    }

    fn line(&mut self, depth: usize, text: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{:1$}{text}", "", 2 * depth);
    }

    fn sample(&mut self, sample: &Sample) {
        let Sample { kind, metric_type, name, values, tags } = sample;
        self.line(1, &format!("{kind} {name}: {}", values.join(", ")));
        if !tags.is_empty() {
            self.line(2, &format!("tags: {}", pairs(tags)));
        }
        self.rules(name, *metric_type);
        let mut buffer = Buffer::default();
        let Some(mapped) = self.mapper.map(name, *metric_type, &mut buffer) else {
            let metric = crate::statsd::name::escape(name);
            self.line(2, &format!("no rule decides: the metric is {metric}"));
            let mapper = Arc::clone(self.mapper);
            return self.normalised(&mapper.defaults().normalise, tags);
        };
        if mapped.rule.action == Action::Drop {
            return self.line(2, "the rule drops it");
        }
        let from = match mapped.unescaped_name {
            plain if plain == mapped.name => String::new(),
            plain => format!(", written for {plain:?}"),
        };
        self.line(2, &format!("metric: {}{from}", mapped.name));
        let labels: Vec<(String, String)> =
            mapped.labels().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        if !labels.is_empty() {
            self.line(2, &format!("labels of the rule: {}", pairs(&labels)));
        }
        for (name, _) in labels.iter().filter(|(name, _)| tags.iter().any(|tag| tag.0 == *name)) {
            let text = if mapped.rule.honor_labels {
                format!("{name} is that of the tag, as the rule has honor_labels")
            } else {
                format!("{name} is that of the rule; honor_labels: true would take the tag")
            };
            self.line(2, &text);
        }
        let honors = mapped.rule.honor_labels;
        let of_tag = |name: &str| tags.iter().any(|tag| tag.0 == name);
        let of_rule = |name: &str| labels.iter().any(|label| label.0 == name);
        let tags = tags.iter().filter(|tag| honors || !of_rule(&tag.0));
        let labels = labels.iter().filter(|label| !honors || !of_tag(&label.0));
        let mut all: Vec<_> = tags.chain(labels).cloned().collect();
        all.sort();
        self.normalised(&mapped.rule.normalise, &all);
        self.options(mapped.rule, sample.kind);
    }

    /// The label values that become others.
    fn normalised(&mut self, normalise: &Normaliser, labels: &[(String, String)]) {
        for (name, value) in labels {
            let normal = normalise.value(name, value);
            if normal != *value {
                self.line(2, &format!("{name} is normalised to {normal:?}"));
            }
        }
    }

    /// The rules, held against the name.
    fn rules(&mut self, name: &str, metric_type: MetricType) {
        let mut tried = self.mapper.explain(name, metric_type);
        let count = tried.len();
        if !self.all && count > SHOWN {
            // Stable: of rules that came equally near, the first in the file.
            tried.sort_by_key(|tried| std::cmp::Reverse(tried.nearness()));
            tried.truncate(SHOWN);
            tried.sort_by_key(|tried| tried.index);
        }
        for tried in &tried {
            let Some(rule) = self.mapper.rules().get(tried.index) else { continue };
            let form = match rule.match_type {
                MatchType::Glob => "",
                MatchType::Regex => "regex ",
            };
            let text = format!(
                "rule {}, line {}: {form}{}: {}",
                rule.index + 1,
                rule.line,
                rule.pattern,
                verdict(tried)
            );
            self.line(2, &text);
        }
        if tried.len() < count {
            let left_out = count - tried.len();
            self.line(2, &format!("and {left_out} rules that are further away; --all shows them"));
        }
    }

    /// What the rule says beside name and labels.
    fn options(&mut self, rule: &Rule, kind: &str) {
        let mut options = Vec::new();
        options.extend(rule.scale.map(|scale| format!("values times {scale}")));
        if !rule.ttl.is_zero() {
            options.push(format!("goes {:?} after its last event", rule.ttl));
        }
        if kind == "observer" {
            options.push(match self.mapper.observer_type(Some(rule)) {
                ObserverType::Histogram => {
                    format!("histogram with buckets {:?}", self.mapper.buckets(Some(rule)))
                }
                ObserverType::Summary => {
                    let quantiles = &self.mapper.summary_options(Some(rule)).quantiles;
                    let quantiles: Vec<f64> =
                        quantiles.iter().map(|quantile| quantile.quantile).collect();
                    format!("summary with quantiles {quantiles:?}")
                }
            });
        }
        let limits = [
            ("series of the metric", rule.limits.series),
            ("values of a label", rule.limits.values_per_label),
            ("bytes of a value", rule.limits.value_bytes),
        ];
        options.extend(limits.iter().filter_map(|(what, limit)| {
            limit.map(|limit| match limit {
                0 => format!("no limit for {what}"),
                most => format!("at most {most} {what}"),
            })
        }));
        if !options.is_empty() {
            self.line(2, &options.join("; "));
        }
    }

    /// What there is in an otherwise empty registry after the line; whether all of it was taken.
    fn series(&mut self, flags: ParserFlags, bytes: &[u8]) -> bool {
        let reserved = Arc::new(crate::statsd::is_own_name);
        let config = OfflineConfig { flags, reserved, ..OfflineConfig::default() };
        let mut offline = Offline::new(Arc::clone(self.mapper), config);
        let refused = offline.line(bytes);
        let of_dogstatsd = self.said.iter().any(|word| word.starts_with("dogstatsd_"));
        for word in refused.iter().filter(|_| !of_dogstatsd) {
            if !self.said.contains(word) {
                self.refused(word, 1);
            }
        }
        let query = ScrapeQuery::default();
        let body: Vec<u8> = offline.frames(Format::Text, &query).flatten().collect();
        let body = String::from_utf8_lossy(&body);
        let samples: Vec<&str> = body.lines().filter(|line| !line.starts_with('#')).collect();
        self.line(1, if samples.is_empty() { "no series" } else { "series, if it came alone:" });
        for sample in samples {
            self.line(2, sample);
        }
        refused.iter().all(|word| *word == "tag_error")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPPING: &str = "defaults: {ttl: 5m}\n\
        mappings:\n\
        - {match: a.*, name: two}\n\
        - {match: a.B.*, name: upper}\n\
        - {match: a.b.*, name: 'x_${1}_total', labels: {part: $1, x: rule}}\n\
        - {match: a.*.*, name: later}\n\
        - {match: '^a[.]', match_type: regex, name: regex}\n\
        - {match: gone.*, name: g, action: drop}\n\
        - {match: t.*, name: 't', observer_type: histogram, histogram_options: {buckets: [1]}, scale: 2}\n";

    fn explained(line: &str) -> (String, bool) {
        let mapper = Arc::new(Mapper::from_yaml(MAPPING).expect("mapping"));
        let flags = ParserFlags { sets: true, ..ParserFlags::default() };
        let Explanation { text, accepted } = explain(&mapper, flags, line.as_bytes(), false);
        (text, accepted)
    }

    #[test]
    fn the_whole_way_of_a_line() {
        let expected = "a.b.c-d:1|c|#x:tag,y:2\n  \
            counter a.b.c-d: 1\n    \
              tags: x=\"tag\", y=\"2\"\n    \
              rule 1, line 3: a.*: has 2 segments between dots, the name 3\n    \
              rule 2, line 4: a.B.*: segment 2 is \"B\" there and \"b\" in the name: upper and lower case\n    \
              rule 3, line 5: a.b.*: matches and decides\n    \
              rule 4, line 6: a.*.*: matches too, but rule 3 stands before it\n    \
              rule 5, line 7: regex ^a[.]: matches too, but rule 3 is a glob, and those go first\n    \
              rule 6, line 8: gone.*: segment 1 is \"gone\" there and \"a\" in the name\n    \
              rule 7, line 9: t.*: segment 1 is \"t\" there and \"a\" in the name\n    \
              metric: x_c_d_total, written for \"x_c-d_total\"\n    \
              labels of the rule: part=\"c-d\", x=\"rule\"\n    \
              x is that of the rule; honor_labels: true would take the tag\n    \
              goes 300s after its last event\n  \
            series, if it came alone:\n    \
              x_c_d_total{part=\"c-d\",x=\"rule\",y=\"2\"} 1\n";
        assert_eq!(explained("a.b.c-d:1|c|#x:tag,y:2"), (expected.to_owned(), true));
    }

    #[test]
    fn what_a_line_lacks_is_said() {
        for (line, parts, accepted) in [
            ("z:1|c", ["no rule decides: the metric is z\n", "    z 1\n"], true),
            ("gone.x:1|c", ["the rule drops it", "no series"], true),
            ("bad", ["refused: malformed_line (not NAME:VALUE|TYPE)", "no series"], false),
            ("z:1|c|#:x", ["refused: tag_error", "    z 1\n"], true),
            ("z:-1|c", ["counter z: -1", "illegal_negative_counter"], false),
            ("z:1|ms|@9", ["refused: no_event", "no series"], false),
            ("_e{1,1}:a|b", ["refused: dogstatsd_event", "no series"], false),
            ("z:+2|g", ["gauge z: +2 to what it is", "    z 2\n"], true),
            ("z:m|s", ["set z: \"m\"", "    z 1\n"], true),
            (
                "t.x:1:2|h|@0.5",
                [
                    "observer t.x: 1 counted 2 times, 2 counted 2 times",
                    "values times 2; goes 300s after its last event; histogram with buckets [1.0]",
                ],
                true,
            ),
            ("z:1|c:2|x", ["refused: illegal_event (an unknown type)", "    z 1\n"], false),
        ] {
            let (text, taken) = explained(line);
            for part in parts {
                assert!(text.contains(part), "{line}: {part:?} in {text}");
            }
            assert_eq!(taken, accepted, "{line}");
            assert_eq!(text.matches("refused").count(), text.matches(" (").count(), "{text}");
        }
    }

    #[test]
    fn values_that_become_others_and_limits_are_said() {
        let mapping = "defaults: {normalise: {url: url}}\nmappings:\n\
            - {match: a.*, name: a, labels: {id: $1}, normalise: {id: number}, limits: {series: 5, value_bytes: 0}}\n";
        let mapper = Arc::new(Mapper::from_yaml(mapping).expect("mapping"));
        let explained =
            |line: &str| explain(&mapper, ParserFlags::default(), line.as_bytes(), false).text;
        let text = explained("a.17:1|c|#url:/x?y=1,id:tag");
        for part in [
            "    id is normalised to \"<number>\"\n    url is normalised to \"/x\"\n",
            "    at most 5 series of the metric; no limit for bytes of a value\n",
            "    a{id=\"<number>\",url=\"/x\"} 1\n",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        let text = explained("b:1|c|#url:/x/5,id:17");
        assert!(text.contains("metric is b\n    url is normalised to \"/x/<id>\"\n"), "{text}");
        assert_eq!(text.matches("normalised").count(), 1, "{text}");
    }

    #[test]
    fn of_many_rules_the_nearest_are_shown() {
        let rules: String =
            (0..100).map(|n| format!("- {{match: a.b{n}.*, name: n{n}}}\n")).collect();
        let mapping = format!(
            "mappings:\n{rules}- {{match: a.b, name: n}}\n- {{match: '*.c.d', name: far}}\n"
        );
        let mapper = Arc::new(Mapper::from_yaml(&mapping).expect("mapping"));
        let flags = ParserFlags::default();
        let shown = explain(&mapper, flags, b"z.b7.d:1|c", false).text;
        assert_eq!(shown.matches("rule ").count(), SHOWN + 1, "{shown}");
        assert!(shown.contains("*.c.d: segment 2"), "{shown}");
        assert!(shown.contains("and 82 rules that are further away; --all shows them"), "{shown}");
        let all = explain(&mapper, flags, b"z.b7.d:1|c", true).text;
        assert_eq!(all.matches("    rule ").count(), 102, "{all}");
    }
}
