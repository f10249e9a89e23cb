//! What becomes of a StatsD line: how it is read, which rules are tried, and the series that it leads to.
//!
//! The line is parsed by the grammar, its name held against each rule by the mapper, what it asks for held against the
//! registry. Nothing here decides anything: it writes down what those say. Nothing changes by it either: of a running
//! process it reads alone, and what a line comes to by itself is tried on an empty registry.

use std::sync::Arc;

use super::ingest::{Loaded, new_series, render_labels};
use super::line::{self, Event, EventKind, ParserFlags, SampleError};
use super::mapcache::Mapping;
use super::mapper::{
    Action, Buffer, Mapper, MatchType, MetricType, ObserverType, Precedence, Rule, Tried, Verdict,
};
use super::meaning::meaning;
use super::metrics::{EventType, is_own_name};
use super::name;
use super::offline::{Offline, OfflineConfig};
use super::series::landing::{Landing, Preview};
use super::series::registry::{Registry, Reserved};
use super::series::senders::Origin;
use super::series::tree::Key;
use crate::exposition::{Format, ScrapeQuery};
use crate::status::explanation::{
    self, Beyond, Explanation, Label, Part, Refusal, Sample, State, Used,
};

/// Rules shown of a name unless all are asked for: those that match and those that came nearest.
const SHOWN: usize = 20;

/// Samples and refusals that are shown of a line.
const PARTS: usize = 50;

/// Bytes of a segment of a name that are shown beside a rule.
const SEGMENT: usize = 100;

/// The series that a line is held against.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Among<'a> {
    /// None, as at a start.
    Nothing,
    /// Those of a process.
    Those(&'a Registry),
}

/// Explains one line, without its line feed. `all` shows every rule of the file, however many there are.
#[must_use]
pub(crate) fn explain(
    loaded: &Loaded,
    flags: ParserFlags,
    among: Among<'_>,
    bytes: &[u8],
    all: bool,
) -> Explanation {
    let mut sink = Parts::default();
    line::parse(bytes, flags, &mut sink);
    let mut parts = sink.0;
    // What else the grammar has against such a line only follows from it.
    if parts.iter().any(is_of_dogstatsd) {
        parts.retain(is_of_dogstatsd);
    }
    let further = parts.len().saturating_sub(PARTS);
    parts.truncate(PARTS);
    let mut told =
        Teller { loaded, among, all, tried: Vec::new(), said: Vec::new(), refused: false };
    let mut parts: Vec<Part> = parts.into_iter().map(|part| told.part(part)).collect();
    let reserved: Reserved = match among {
        Among::Nothing => Arc::new(is_own_name),
        Among::Those(registry) => registry.reserved(),
    };
    // Its keys need not be remembered.
    let config = OfflineConfig { flags, reserved, key_cache_size: 0, ..OfflineConfig::default() };
    let mut offline = Offline::new(Arc::clone(&loaded.mapper), config);
    let words = offline.line(bytes);
    let accepted = !told.refused && words.iter().all(|word| *word == "tag_error");
    if !told.said.iter().any(|word| word.starts_with("dogstatsd_")) {
        let unsaid = words.into_iter().filter(|word| !told.said.contains(word));
        parts.extend(unsaid.map(|word| Part::Refused(refusal(word, 1))));
    }
    let alone = match among {
        Among::Those(_) => None,
        Among::Nothing => {
            let frames = offline.frames(Format::Text, &ScrapeQuery::default());
            let body: Vec<u8> = frames.flatten().collect();
            let body = String::from_utf8_lossy(&body);
            let samples = body.lines().filter(|line| !line.starts_with('#'));
            Some(samples.map(str::to_owned).collect())
        }
    };
    let line = String::from_utf8_lossy(bytes).into_owned();
    Explanation { line, accepted, parts, further, alone }
}

/// The same under a mapping that no process has.
#[must_use]
pub fn offline(mapper: &Arc<Mapper>, flags: ParserFlags, bytes: &[u8], all: bool) -> Explanation {
    let loaded = Loaded::new(Arc::clone(mapper), 0, None);
    explain(&loaded, flags, Among::Nothing, bytes, all)
}

fn refusal(reason: &'static str, times: u64) -> Refusal {
    Refusal { reason, meaning: meaning(reason), times }
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
            let found = found.get(..found.floor_char_boundary(SEGMENT)).unwrap_or(found);
            format!("segment {position} is {wanted:?} there and {found:?} in the name{case}")
        }
        Verdict::NotFound => "is not found in the name".to_owned(),
    }
}

/// A part of a line, as the grammar gives it.
enum Said {
    Sample(Raw),
    /// Word of the ledger, and how often it applies.
    Refused(&'static str, u64),
}

fn is_of_dogstatsd(part: &Said) -> bool {
    matches!(part, Said::Refused(word, _) if word.starts_with("dogstatsd_"))
}

/// Values of one type with one set of tags.
struct Raw {
    kind: EventType,
    name: String,
    values: Vec<String>,
    tags: Vec<Label>,
}

impl Raw {
    const fn metric_type(&self) -> MetricType {
        match self.kind {
            EventType::Counter => MetricType::Counter,
            EventType::Gauge | EventType::Set => MetricType::Gauge,
            EventType::Observer => MetricType::Observer,
        }
    }

    const fn word(&self) -> &'static str {
        match self.kind {
            EventType::Counter => "counter",
            EventType::Gauge => "gauge",
            EventType::Observer => "observer",
            EventType::Set => "set",
        }
    }
}

#[derive(Default)]
struct Parts(Vec<Said>);

impl line::Sink for Parts {
    fn event(&mut self, event: &Event<'_>) {
        let kind = match event.kind {
            EventKind::Counter => EventType::Counter,
            EventKind::Gauge { .. } => EventType::Gauge,
            EventKind::Observer => EventType::Observer,
            EventKind::Set(_) => EventType::Set,
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
            Said::Sample(sample) => Some(sample),
            Said::Refused(..) => None,
        });
        if let Some(sample) = before.filter(|_| event.same_series) {
            return sample.values.push(value);
        }
        let tag = |tag: &line::Label<'_>| Label {
            name: tag.name.to_string(),
            value: tag.value.to_owned(),
        };
        self.0.push(Said::Sample(Raw {
            kind,
            name: event.name.to_owned(),
            values: vec![value],
            tags: event.labels.iter().map(tag).collect(),
        }));
    }

    fn sample(&mut self) {}

    fn sample_error(&mut self, reason: SampleError, count: u64) {
        self.0.push(Said::Refused(reason.as_str(), count));
    }

    fn tag_errors(&mut self, count: u64) {
        self.0.push(Said::Refused("tag_error", count));
    }

    fn tags(&mut self) {}

    fn dogstatsd_event(&mut self) {
        self.0.push(Said::Refused("dogstatsd_event", 1));
    }

    fn dogstatsd_service_check(&mut self) {
        self.0.push(Said::Refused("dogstatsd_service_check", 1));
    }
}

struct Teller<'m> {
    loaded: &'m Loaded,
    among: Among<'m>,
    all: bool,
    /// Types of samples whose rules have been told. All samples of a line have its name.
    tried: Vec<(MetricType, String)>,
    /// Words of the ledger that have been told.
    said: Vec<&'static str>,
    /// Whether the registry has something against a sample.
    refused: bool,
}

impl<'m> Teller<'m> {
    fn mapper(&self) -> &'m Mapper {
        &self.loaded.mapper
    }

    fn part(&mut self, part: Said) -> Part {
        match part {
            Said::Sample(raw) => Part::Sample(Box::new(self.sample(raw))),
            Said::Refused(word, times) => {
                self.said.push(word);
                Part::Refused(refusal(word, times))
            }
        }
    }

    fn sample(&mut self, raw: Raw) -> Sample {
        let (mapper, metric_type, kind) = (self.mapper(), raw.metric_type(), raw.word());
        let (rules, further) = self.rules(&raw.name, metric_type);
        let mut buffer = Buffer::default();
        let mapped = mapper.map(&raw.name, metric_type, &mut buffer);
        let mapping = mapped.as_ref().map_or_else(
            || Mapping { rule: None, name: name::escape(&raw.name).into(), labels: Box::default() },
            Mapping::of,
        );
        let rule = mapped.map(|mapped| mapped.rule);
        let written = mapped.map(|mapped| mapped.unescaped_name);
        let mut sample = Sample {
            kind,
            mapped: rule.is_some(),
            metric: Some(mapping.name.to_string()),
            written: written.filter(|plain| **plain != *mapping.name).map(str::to_owned),
            labels: Vec::new(),
            notes: Vec::new(),
            landing: None,
            rules,
            further,
            name: raw.name,
            values: raw.values,
            tags: raw.tags,
        };
        if rule.is_some_and(|rule| rule.action == Action::Drop) {
            (sample.metric, sample.written) = (None, None);
            return sample;
        }
        let label = |(name, value): &(Box<str>, Box<str>)| Label {
            name: name.to_string(),
            value: value.to_string(),
        };
        sample.labels = mapping.labels.iter().map(label).collect();
        let (honored, normalised) = (self.honored(&sample, rule), self.normalised(&sample, rule));
        sample.notes.extend(honored.into_iter().chain(normalised));
        sample.notes.extend(rule.and_then(|rule| options(mapper, rule, raw.kind)));
        if let Among::Those(registry) = self.among {
            sample.landing = Some(self.landing(registry, &sample.tags, &mapping, raw.kind));
        }
        sample
    }

    /// The rules, held against the name, and how many are not shown. None where they were before.
    fn rules(
        &mut self,
        name: &str,
        metric_type: MetricType,
    ) -> (Option<Vec<explanation::Tried>>, usize) {
        let told = |(of, told): &(MetricType, String)| *of == metric_type && told == name;
        if self.tried.iter().any(told) {
            return (None, 0);
        }
        self.tried.push((metric_type, name.to_owned()));
        let mut tried = self.mapper().explain(name, metric_type);
        let count = tried.len();
        if !self.all && count > SHOWN {
            // Stable: of rules that came equally near, the first in the file.
            tried.sort_by_key(|tried| std::cmp::Reverse(tried.nearness()));
            tried.truncate(SHOWN);
            tried.sort_by_key(|tried| tried.index);
        }
        let told = tried.iter().filter_map(|tried| {
            let rule = self.mapper().rules().get(tried.index)?;
            Some(explanation::Tried {
                rule: rule.index + 1,
                line: rule.line,
                pattern: rule.pattern.clone(),
                regex: rule.match_type == MatchType::Regex,
                verdict: verdict(tried),
            })
        });
        let told: Vec<_> = told.collect();
        let further = count - told.len();
        (Some(told), further)
    }

    /// Labels that both the rule and the line have.
    fn honored(&self, sample: &Sample, rule: Option<&Rule>) -> Vec<String> {
        let both = sample.labels.iter().filter(|label| has(&sample.tags, &label.name));
        let text = if rule.is_some_and(|rule| rule.honor_labels) {
            "is that of the tag, as the rule has honor_labels"
        } else {
            "is that of the rule; honor_labels: true would take the tag"
        };
        both.map(|Label { name, .. }| format!("{name} {text}")).collect()
    }

    /// The label values that become others.
    fn normalised(&self, sample: &Sample, rule: Option<&Rule>) -> Vec<String> {
        let normalise = rule.map_or(&self.mapper().defaults().normalise, |rule| &rule.normalise);
        let honors = rule.is_some_and(|rule| rule.honor_labels);
        let tags = sample.tags.iter().filter(|tag| honors || !has(&sample.labels, &tag.name));
        let own = sample.labels.iter().filter(|own| !honors || !has(&sample.tags, &own.name));
        let mut all: Vec<&Label> = tags.chain(own).collect();
        all.sort_by_key(|label| &label.name);
        let normal = all.into_iter().filter_map(|Label { name, value }| {
            let normal = normalise.value(name, value);
            (normal != *value).then(|| format!("{name} is normalised to {normal:?}"))
        });
        normal.collect()
    }

    /// Where the sample lands.
    fn landing(
        &mut self,
        registry: &Registry,
        tags: &[Label],
        mapping: &Mapping,
        kind: EventType,
    ) -> explanation::Landing {
        let tags: Vec<line::Label<'_>> = tags
            .iter()
            .map(|tag| line::Label { name: tag.name.as_str().into(), value: &tag.value })
            .collect();
        let mut labels = Vec::new();
        let label_count = render_labels(&mut labels, &tags, mapping, self.mapper());
        let rule = mapping.rule.and_then(|index| self.mapper().rules().get(index));
        let key = Key { name: &mapping.name, labels: &labels, label_count };
        let Preview { landing, beyond, used } =
            registry.preview(&new_series(self.loaded, rule, kind, key, &Origin::default()));
        let series = |labels: &[u8]| match labels {
            b"" => mapping.name.to_string(),
            labels => format!("{}{{{}}}", mapping.name, String::from_utf8_lossy(labels)),
        };
        let (series, state, refused) = match landing {
            Ok(Landing::There(labels)) => (Some(series(&labels)), State::There, None),
            Ok(Landing::FoldedBefore(labels)) => {
                (labels.map(|labels| series(&labels)), State::Folded, None)
            }
            Ok(Landing::New(labels)) => (Some(series(&labels)), State::New, None),
            Err(rejection) => {
                self.refused = true;
                self.said.push(rejection.as_str());
                (None, State::Refused, Some(refusal(rejection.as_str(), 1)))
            }
        };
        let beyond = beyond.into_iter().map(|beyond| Beyond {
            label: beyond.label,
            limit: beyond.limit.as_str(),
            action: beyond.action.as_str(),
        });
        let budgets = used.into_iter().map(|used| Used {
            limit: used.limit.as_str(),
            label: used.label,
            used: used.used,
            most: used.most,
        });
        let (beyond, budgets) = (beyond.collect(), budgets.collect());
        explanation::Landing { series, state, beyond, budgets, refused }
    }
}

fn has(labels: &[Label], name: &str) -> bool {
    labels.iter().any(|label| label.name == name)
}

/// What the rule says beside name and labels.
fn options(mapper: &Mapper, rule: &Rule, kind: EventType) -> Option<String> {
    let mut options = Vec::new();
    options.extend(rule.scale.map(|scale| format!("values times {scale}")));
    if !rule.ttl.is_zero() {
        options.push(format!("goes {:?} after its last event", rule.ttl));
    }
    if kind == EventType::Observer {
        options.push(match mapper.observer_type(Some(rule)) {
            ObserverType::Histogram => {
                format!("histogram with buckets {:?}", mapper.buckets(Some(rule)))
            }
            ObserverType::Summary => {
                let quantiles = &mapper.summary_options(Some(rule)).quantiles;
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
    (!options.is_empty()).then(|| options.join("; "))
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
        let explanation = offline(&mapper, flags, line.as_bytes(), false);
        (explanation.text(), explanation.accepted)
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
            ("_e{z:1|c", ["counter _e{z: 1", "    _e_z 1\n"], true),
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
            |line: &str| offline(&mapper, ParserFlags::default(), line.as_bytes(), false).text();
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
        let shown = offline(&mapper, flags, b"z.b7.d:1|c", false).text();
        assert_eq!(shown.matches("rule ").count(), SHOWN + 1, "{shown}");
        assert!(shown.contains("*.c.d: segment 2"), "{shown}");
        assert!(shown.contains("and 82 rules that are further away; --all shows them"), "{shown}");
        let all = offline(&mapper, flags, b"z.b7.d:1|c", true).text();
        assert_eq!(all.matches("    rule ").count(), 102, "{all}");
    }
}
