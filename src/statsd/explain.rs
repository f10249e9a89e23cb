//! Explains a StatsD line: the parsed samples, the rules tried and the resulting series.
//!
//! The explanation is assembled from the results of the parser, the mapper and the registry, without applying
//! the line. A running process is only read; without one, the line is applied to an empty registry.

use std::sync::Arc;

use super::ingest::{
    LoadedMapping, Mapping, Peer, Sender, enriched, merged, new_series, normaliser, render_labels,
};
use super::line::{self, DogstatsdMessage, Event, EventKind, ParserFlags, SampleError};
use super::metrics::{EventType, RejectedClaim, is_own_name};
use super::offline::{Offline, OfflineConfig};
use super::reasons::describe_reason;
use super::series::placement::{ExceededBudget, Placement, Preview};
use super::series::registry::{Registry, Reserved};
use super::series::senders::Origin;
use super::series::tree::Key;
use crate::exposition::{Format, ScrapeQuery};
use crate::mapper::{
    Action, Buffer, Mapper, MatchType, MetricType, ObserverType, Precedence, Rule, RuleResult,
    Verdict,
};
use crate::pods::{PodIndex, SenderLabels};
use crate::status::explanation::{
    self, Beyond, Explanation, Label, LineQuestion, LineSender, Part, Refusal, Sample, State,
};

/// The number of rules shown per name by default: those that match and those that come closest.
const MAX_RULES: usize = 20;

/// The maximum number of samples and rejections shown per line.
const MAX_PARTS: usize = 50;

/// The maximum number of bytes shown of a segment of a name.
const MAX_SEGMENT: usize = 100;

/// The note about a metric that no exposition has.
const HIDDEN: &str = "the metric is hidden: its name is used by another metric since a reload";

/// Explains one line, without its line feed, for the series of `registry`, or for no series as at startup.
/// With `all`, every rule of the file is listed.
pub(crate) fn explain(
    loaded: &LoadedMapping,
    flags: ParserFlags,
    registry: Option<&Registry>,
    pods: Option<&PodIndex>,
    question: &LineQuestion,
) -> Explanation {
    let (bytes, all) = (&*question.line, question.all);
    let mut sink = PartCollector::default();
    line::parse(bytes, flags, &mut sink);
    let peer = question.sender.map_or(Peer::Unknown, Peer::Address);
    let sender = pods.map(|pods| Sender::resolve(pods, peer, &sink.origin));
    let mut parts = sink.parts;
    // Other errors of such a line are consequences.
    if parts.iter().any(is_dogstatsd) {
        parts.retain(is_dogstatsd);
    }
    let further = parts.len().saturating_sub(MAX_PARTS);
    parts.truncate(MAX_PARTS);
    let mut explainer = Explainer {
        loaded,
        registry,
        labels: sender.as_ref().and_then(|sender| sender.labels.as_deref()),
        all,
        tried: Vec::new(),
        reasons: Vec::new(),
        refused: false,
    };
    let mut parts: Vec<Part> = parts.into_iter().map(|part| explainer.part(part)).collect();
    let reserved: Reserved =
        registry.map_or_else(|| Arc::new(is_own_name) as Reserved, Registry::reserved);
    // A single line gains nothing from the key cache.
    let config = OfflineConfig { flags, reserved, key_cache_size: 0, ..OfflineConfig::default() };
    let mut offline = Offline::new(Arc::clone(&loaded.mapper), config);
    let words = offline.line(bytes);
    let accepted = !explainer.refused && words.iter().all(|word| *word == "tag_error");
    if !explainer.reasons.iter().any(|word| word.starts_with("dogstatsd_")) {
        let unsaid = words.into_iter().filter(|word| !explainer.reasons.contains(word));
        parts.extend(unsaid.map(|word| Part::Refused(refusal(word, 1))));
    }
    let alone = match registry {
        Some(_) => None,
        None => {
            let frames = offline.frames(Format::Text, &ScrapeQuery::default());
            let body: Vec<u8> = frames.flatten().collect();
            let body = String::from_utf8_lossy(&body);
            let samples = body.lines().filter(|line| !line.starts_with('#'));
            Some(samples.map(str::to_owned).collect())
        }
    };
    let line = String::from_utf8_lossy(bytes).into_owned();
    let sender = sender.as_ref().map(line_sender);
    Explanation { line, accepted, parts, sender, further, alone }
}

fn label(name: &str, value: &str) -> Label {
    Label { name: name.to_owned(), value: value.to_owned() }
}

fn line_sender(sender: &Sender) -> LineSender {
    let labels = sender.labels.iter().flat_map(|labels| &labels.pairs);
    LineSender {
        outcome: sender.outcome.as_str(),
        pod_uid: sender.uid.as_deref().map(str::to_owned),
        labels: labels.map(|(name, value)| label(name.as_str(), value)).collect(),
        contradicted_by: sender.rejected.map(RejectedClaim::as_str),
    }
}

/// Explains a line with a mapping and no existing series.
pub fn explain_offline(
    mapper: &Arc<Mapper>,
    flags: ParserFlags,
    bytes: &[u8],
    all: bool,
) -> Explanation {
    let loaded = LoadedMapping::new(Arc::clone(mapper), 0, None);
    let question = LineQuestion { line: bytes.to_vec(), all, sender: None };
    explain(&loaded, flags, None, None, &question)
}

/// Explains a line against the series of `offline`, without applying it.
#[cfg(fuzzing)]
pub(crate) fn predict(offline: &Offline, line: &[u8]) -> Explanation {
    let shared = offline.shared();
    let question = LineQuestion { line: line.to_vec(), ..LineQuestion::default() };
    let registry = Some(&shared.registry);
    explain(&shared.mapping.load(), shared.flags, registry, shared.pods.as_deref(), &question)
}

fn refusal(reason: &'static str, times: u64) -> Refusal {
    Refusal { reason, meaning: describe_reason(reason), times }
}

fn verdict(tried: &RuleResult<'_>) -> String {
    match tried.verdict {
        Verdict::Wins => "match".to_owned(),
        Verdict::Overridden { rule, reason } => {
            let why = match reason {
                Precedence::Earlier => "it comes first",
                Precedence::MoreSpecific => "it is more specific",
                Precedence::Glob => "globs come first",
            };
            format!("match, but rule {} takes precedence: {why}", rule + 1)
        }
        Verdict::OtherType { only } => {
            format!("no match: only for type {}", only.as_str())
        }
        Verdict::SegmentCount { rule, name } => {
            format!("no match: want {rule} segments, got {name}")
        }
        Verdict::Segment { position, wanted, found } => {
            let case = if wanted.eq_ignore_ascii_case(found) { " (case differs)" } else { "" };
            let found = found.get(..found.floor_char_boundary(MAX_SEGMENT)).unwrap_or(found);
            format!("no match: segment {position}: want {wanted:?}, got {found:?}{case}")
        }
        Verdict::NoMatch => "no match".to_owned(),
    }
}

/// A part of a line as reported by the parser.
enum ParsedPart {
    Sample(ParsedSample),
    /// A reason and the number of times it applies.
    Refused(&'static str, u64),
}

fn is_dogstatsd(part: &ParsedPart) -> bool {
    matches!(part, ParsedPart::Refused(word, _) if word.starts_with("dogstatsd_"))
}

/// The values of one type.
struct ParsedSample {
    kind: EventType,
    /// What the line says of them.
    sample: Sample,
    /// The largest and the smallest value. Negative values of a counter are rejected.
    largest: f64,
    smallest: f64,
}

#[derive(Default)]
struct PartCollector {
    parts: Vec<ParsedPart>,
    /// The sections that state the origin, with the `|` before each.
    origin: Vec<u8>,
    /// The index of the sample of each type.
    samples: [Option<usize>; EventType::ALL.len()],
}

impl line::Sink for PartCollector {
    fn event(&mut self, event: &Event<'_>) {
        let kind = EventType::of(event.kind);
        let value = match event.kind {
            EventKind::Gauge { relative: true } => format!("{:+} (relative)", event.value),
            EventKind::Set(member) => format!("{member:?}"),
            _ => event.value.to_string(),
        };
        let value =
            if event.weight == 1 { value } else { format!("{value} (weight {})", event.weight) };
        let before = self.samples[kind as usize].and_then(|at| self.parts.get_mut(at));
        if let Some(ParsedPart::Sample(sample)) = before {
            sample.largest = sample.largest.max(event.value);
            sample.smallest = sample.smallest.min(event.value);
            return sample.sample.values.push(value);
        }
        self.samples[kind as usize] = Some(self.parts.len());
        self.parts.push(ParsedPart::Sample(ParsedSample {
            kind,
            sample: Sample {
                kind: kind.as_str(),
                name: event.name.to_owned(),
                values: vec![value],
                tags: event.labels.iter().map(|tag| label(&tag.name, tag.value)).collect(),
                ..Sample::default()
            },
            largest: event.value,
            smallest: event.value,
        }));
    }

    fn origin(&mut self, section: &str) {
        self.origin.push(b'|');
        self.origin.extend_from_slice(section.as_bytes());
    }

    fn sample_error(&mut self, reason: SampleError, count: u64) {
        self.parts.push(ParsedPart::Refused(reason.as_str(), count));
    }

    fn tag_errors(&mut self, count: u64) {
        self.parts.push(ParsedPart::Refused("tag_error", count));
    }

    fn dogstatsd(&mut self, message: DogstatsdMessage) {
        self.parts.push(ParsedPart::Refused(message.as_str(), 1));
    }
}

struct Explainer<'m> {
    loaded: &'m LoadedMapping,
    registry: Option<&'m Registry>,
    /// The labels of the sender.
    labels: Option<&'m SenderLabels>,
    all: bool,
    /// The sample types whose rules have been listed. All samples of a line have the same name.
    tried: Vec<MetricType>,
    /// The reasons already listed.
    reasons: Vec<&'static str>,
    /// True if the registry rejects a sample.
    refused: bool,
}

impl<'m> Explainer<'m> {
    fn mapper(&self) -> &'m Mapper {
        &self.loaded.mapper
    }

    fn part(&mut self, part: ParsedPart) -> Part {
        match part {
            ParsedPart::Sample(parsed) => Part::Sample(Box::new(self.sample(parsed))),
            ParsedPart::Refused(word, times) => {
                self.reasons.push(word);
                Part::Refused(refusal(word, times))
            }
        }
    }

    fn sample(&mut self, parsed: ParsedSample) -> Sample {
        let ParsedSample { kind, mut sample, largest, smallest } = parsed;
        let (mapper, metric_type) = (self.mapper(), kind.metric_type());
        (sample.rules, sample.further) = self.rules(&sample.name, metric_type);
        let mut buffer = Buffer::default();
        let mapped = mapper.map(&sample.name, metric_type, &mut buffer);
        let mapping = mapped.as_ref().map_or_else(|| Mapping::none(&sample.name), Mapping::of);
        let rule = mapped.map(|mapped| mapped.rule);
        sample.mapped = rule.is_some();
        if rule.is_some_and(|rule| rule.action == Action::Drop) {
            return sample;
        }
        sample.metric = Some(mapping.name.to_string());
        let written = mapped.map(|mapped| mapped.unescaped_name);
        sample.written = written.filter(|plain| **plain != *mapping.name).map(str::to_owned);
        sample.labels = mapping.labels.iter().map(|(name, value)| label(name, value)).collect();
        let tags: Vec<line::Label<'_>> = sample
            .tags
            .iter()
            .map(|tag| line::Label { name: tag.name.as_str().into(), value: &tag.value })
            .collect();
        let (tags, mapping) = enriched(&tags, &mapping, self.labels);
        sample.notes.extend(conflict_notes(&tags, &mapping, rule));
        sample.notes.extend(normalisation_notes(&tags, &mapping, rule, mapper));
        sample.notes.extend(rule.and_then(|rule| options(mapper, rule, kind)));
        if let Some(registry) = self.registry {
            let scale = rule.and_then(|rule| rule.scale).unwrap_or(1.0);
            let only_falls =
                kind == EventType::Counter && largest * scale < 0.0 && smallest * scale < 0.0;
            sample.landing = Some(if only_falls {
                self.rejected_landing("illegal_negative_counter")
            } else {
                let (landing, is_hidden) = self.landing(registry, &tags, &mapping, kind);
                sample.notes.extend(is_hidden.then(|| HIDDEN.to_owned()));
                landing
            });
        }
        sample
    }

    /// Returns the results of the rules for a name and the number of rules omitted; `None` if they were
    /// listed for an earlier sample.
    fn rules(
        &mut self,
        name: &str,
        metric_type: MetricType,
    ) -> (Option<Vec<explanation::Tried>>, usize) {
        if self.tried.contains(&metric_type) {
            return (None, 0);
        }
        self.tried.push(metric_type);
        let mut tried = self.mapper().explain(name, metric_type);
        let count = tried.len();
        if !self.all && count > MAX_RULES {
            // The sort is stable: of equally close rules, the first ones in the file are shown.
            tried.sort_by_key(|tried| std::cmp::Reverse(tried.closeness()));
            tried.truncate(MAX_RULES);
            tried.sort_by_key(|tried| tried.index);
        }
        let results = tried.iter().filter_map(|tried| {
            let rule = self.mapper().rules().get(tried.index)?;
            Some(explanation::Tried {
                rule: rule.index + 1,
                line: rule.line,
                pattern: rule.pattern.clone(),
                regex: rule.match_type == MatchType::Regex,
                verdict: verdict(tried),
            })
        });
        let results: Vec<_> = results.collect();
        let further = count - results.len();
        (Some(results), further)
    }

    /// Returns the result for a sample rejected without asking the registry.
    fn rejected_landing(&mut self, reason: &'static str) -> explanation::Landing {
        self.refused = true;
        self.reasons.push(reason);
        explanation::Landing {
            series: None,
            state: State::Refused,
            beyond: Vec::new(),
            budgets: Vec::new(),
            refused: Some(refusal(reason, 1)),
        }
    }

    /// Returns the predicted result for the series of the sample, and whether its metric is hidden. `tags` include the
    /// labels of the sender.
    fn landing(
        &mut self,
        registry: &Registry,
        tags: &[line::Label<'_>],
        mapping: &Mapping,
        kind: EventType,
    ) -> (explanation::Landing, bool) {
        let mut labels = Vec::new();
        let (mapper, keep_empty) = (self.mapper(), registry.keeps_empty_labels);
        let label_count = render_labels(&mut labels, tags, mapping, mapper, keep_empty);
        let rule = mapping.rule.and_then(|index| self.mapper().rules().get(index));
        let key = Key { name: &mapping.name, labels: &labels, label_count };
        let Preview { placement, exceeded, usage, is_hidden } =
            registry.preview(&new_series(self.loaded, rule, kind, key, &Origin::default()));
        let series = |labels: &[u8]| match labels {
            b"" => mapping.name.to_string(),
            labels => format!("{}{{{}}}", mapping.name, String::from_utf8_lossy(labels)),
        };
        let (series, state, refused) = match placement {
            Ok(Placement::Existing(labels)) => (Some(series(&labels)), State::There, None),
            Ok(Placement::Folded(labels)) => {
                (labels.map(|labels| series(&labels)), State::Folded, None)
            }
            Ok(Placement::New(labels)) => (Some(series(&labels)), State::New, None),
            Err(rejection) => {
                self.refused = true;
                self.reasons.push(rejection.as_str());
                (None, State::Refused, Some(refusal(rejection.as_str(), 1)))
            }
        };
        let beyond = exceeded.into_iter().map(|ExceededBudget { label, limit, action }| Beyond {
            label,
            limit: limit.as_str(),
            action: action.as_str(),
        });
        let beyond = beyond.collect();
        (explanation::Landing { series, state, beyond, budgets: usage, refused }, is_hidden)
    }
}

/// Returns notes about labels defined by both the rule and the line.
fn conflict_notes(tags: &[line::Label<'_>], mapping: &Mapping, rule: Option<&Rule>) -> Vec<String> {
    let has_tag = |name: &str| tags.iter().any(|tag| tag.name == name);
    let both = mapping.labels.iter().filter(|(name, _)| has_tag(name));
    let text = if rule.is_some_and(|rule| rule.honor_labels) {
        "has the value of the tag, because the rule has honor_labels"
    } else {
        "has the value of the rule; to use the tag, set honor_labels: true"
    };
    both.map(|(name, _)| format!("{name} {text}")).collect()
}

/// Returns notes about label values changed by normalisation.
fn normalisation_notes(
    tags: &[line::Label<'_>],
    mapping: &Mapping,
    rule: Option<&Rule>,
    mapper: &Mapper,
) -> Vec<String> {
    let normalise = normaliser(rule, mapper);
    let notes = merged(tags, mapping, rule).filter_map(|(name, value)| {
        let normal = normalise.value(name, value);
        (normal != *value).then(|| match &*normal {
            "" => format!("{name} is omitted: its normalised value is empty"),
            normal => format!("{name} is normalised to {normal:?}"),
        })
    });
    notes.collect()
}

/// Describes the options of the rule other than name and labels.
fn options(mapper: &Mapper, rule: &Rule, kind: EventType) -> Option<String> {
    let mut options = Vec::new();
    options.extend(rule.scale.map(|scale| format!("scale {scale}")));
    if !rule.ttl.is_zero() {
        options.push(format!("ttl {:?}", rule.ttl));
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
        ("series per metric", rule.limits.series),
        ("values per label", rule.limits.values_per_label),
        ("bytes per value", rule.limits.value_bytes),
    ];
    options.extend(limits.iter().filter_map(|(what, limit)| {
        limit.map(|limit| match limit {
            0 => format!("no limit on {what}"),
            most => format!("at most {most} {what}"),
        })
    }));
    (!options.is_empty()).then(|| options.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::{Pod, Selection};

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
        let explanation = explain_offline(&mapper, flags, line.as_bytes(), false);
        (explanation.text(), explanation.accepted)
    }

    #[test]
    fn a_line_is_explained_from_parser_to_series() {
        let expected = "a.b.c-d:1|c|#x:tag,y:2\n  \
            counter a.b.c-d: 1\n    \
              tags: x=\"tag\", y=\"2\"\n    \
              rule 1, line 3: a.*: no match: want 2 segments, got 3\n    \
              rule 2, line 4: a.B.*: no match: segment 2: want \"B\", got \"b\" (case differs)\n    \
              rule 3, line 5: a.b.*: match\n    \
              rule 4, line 6: a.*.*: match, but rule 3 takes precedence: it comes first\n    \
              rule 5, line 7: regex ^a[.]: match, but rule 3 takes precedence: globs come first\n    \
              rule 6, line 8: gone.*: no match: segment 1: want \"gone\", got \"a\"\n    \
              rule 7, line 9: t.*: no match: segment 1: want \"t\", got \"a\"\n    \
              metric: x_c_d_total, escaped from \"x_c-d_total\"\n    \
              labels from the rule: part=\"c-d\", x=\"rule\"\n    \
              x has the value of the rule; to use the tag, set honor_labels: true\n    \
              ttl 300s\n  \
            resulting series:\n    \
              x_c_d_total{part=\"c-d\",x=\"rule\",y=\"2\"} 1\n";
        assert_eq!(explained("a.b.c-d:1|c|#x:tag,y:2"), (expected.to_owned(), true));
    }

    #[test]
    fn rejections_and_values_are_explained() {
        for (line, parts, accepted) in [
            ("z:1|c", ["no rule matches; metric: z\n", "    z 1\n"], true),
            ("gone.x:1|c", ["dropped by the rule", "no series"], true),
            ("bad", ["rejected: malformed_line (not NAME:VALUE|TYPE)", "no series"], false),
            ("z:1|c|#:x", ["rejected: tag_error", "    z 1\n"], true),
            ("z:-1|c", ["counter z: -1", "illegal_negative_counter"], false),
            ("z:1|ms|@9", ["rejected: no_event", "no series"], false),
            ("_e{1,1}:a|b", ["rejected: dogstatsd_event", "no series"], false),
            ("_e{z:1|c", ["counter _e{z: 1", "    _e_z 1\n"], true),
            ("z:+2|g", ["gauge z: +2 (relative)", "    z 2\n"], true),
            ("z:m|s", ["set z: \"m\"", "    z 1\n"], true),
            (
                "t.x:1:2|h|@0.5",
                [
                    "observer t.x: 1 (weight 2), 2 (weight 2)",
                    "scale 2; ttl 300s; histogram with buckets [1.0]",
                ],
                true,
            ),
            ("z:1|c:2|x", ["rejected: illegal_event (an unknown type)", "    z 1\n"], false),
        ] {
            let (text, taken) = explained(line);
            for part in parts {
                assert!(text.contains(part), "{line}: {part:?} in {text}");
            }
            assert_eq!(taken, accepted, "{line}");
            for rejection in text.lines().filter(|line| line.contains("rejected")) {
                assert!(rejection.contains(" ("), "{text}");
            }
        }
    }

    #[test]
    fn normalised_values_and_limits_are_explained() {
        let mapping = "defaults: {normalise: {url: url}}\nmappings:\n\
            - {match: a.*, name: a, labels: {id: $1}, normalise: {id: number}, limits: {series: 5, value_bytes: 0}}\n";
        let mapper = Arc::new(Mapper::from_yaml(mapping).expect("mapping"));
        let explained = |line: &str| {
            explain_offline(&mapper, ParserFlags::default(), line.as_bytes(), false).text()
        };
        let text = explained("a.17:1|c|#url:/x?y=1,id:tag");
        for part in [
            "    id is normalised to \"<number>\"\n    url is normalised to \"/x\"\n",
            "    at most 5 series per metric; no limit on bytes per value\n",
            "    a{id=\"<number>\",url=\"/x\"} 1\n",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        let text = explained("b:1|c|#url:/x/5,id:17");
        assert!(text.contains("metric: b\n    url is normalised to \"/x/<id>\"\n"), "{text}");
        assert_eq!(text.matches("normalised").count(), 1, "{text}");
    }

    /// Notes are about the labels of the series, where those of the sender have renamed others.
    #[test]
    fn labels_beside_those_of_the_sender_are_explained() {
        let mapping = "defaults: {normalise: {pod: number, exported_pod: number}}\n\
            mappings:\n\
            - {match: rule.*, name: m, labels: {pod: fixed}}\n";
        let mapper = Arc::new(Mapper::from_yaml(mapping).expect("mapping"));
        let loaded = LoadedMapping::new(Arc::clone(&mapper), 0, None);
        let pods = PodIndex::new(Selection::parse("pod").expect("a selection"));
        pods.set_list(0, Some(true));
        let address = [10, 0, 0, 1].into();
        pods.put(
            0,
            Pod {
                uid: "uid-web".into(),
                namespace: "shop".into(),
                name: "web".into(),
                node: "n".into(),
                workload: None,
                addresses: Box::new([address]),
                node_addresses: Box::default(),
                containers: Box::new([]),
                started: None,
                is_finished: false,
            },
        );
        let rule = "exported_pod has the value of the rule; to use the tag, set honor_labels: true";
        for (line, notes) in [
            ("x:1|c|#pod:17", vec!["exported_pod is normalised to \"<number>\""]),
            ("x:1|c|#pod:17,exported_pod:text", vec![]),
            ("rule.x:1|c|#pod:17", vec![rule]),
            ("rule.x:1|c", vec![]),
        ] {
            let line = line.as_bytes().to_vec();
            let question = LineQuestion { line, all: false, sender: Some(address) };
            let found = explain(&loaded, ParserFlags::default(), None, Some(&pods), &question);
            let Some(Part::Sample(sample)) = found.parts.first() else { panic!("no sample") };
            assert_eq!(sample.notes, notes, "{}", found.line);
        }
    }

    #[test]
    fn the_closest_of_many_rules_are_shown() {
        let rules: String =
            (0..100).map(|n| format!("- {{match: a.b{n}.*, name: n{n}}}\n")).collect();
        let mapping = format!(
            "mappings:\n{rules}- {{match: a.b, name: n}}\n- {{match: '*.c.d', name: far}}\n"
        );
        let mapper = Arc::new(Mapper::from_yaml(&mapping).expect("mapping"));
        let flags = ParserFlags::default();
        let shown = explain_offline(&mapper, flags, b"z.b7.d:1|c", false).text();
        assert_eq!(shown.matches("rule ").count(), MAX_RULES + 1, "{shown}");
        assert!(shown.contains("*.c.d: no match: segment 2"), "{shown}");
        assert!(shown.contains("and 82 more rules; use --all to list them"), "{shown}");
        let all = explain_offline(&mapper, flags, b"z.b7.d:1|c", true).text();
        assert_eq!(all.matches("    rule ").count(), 102, "{all}");
    }
}
