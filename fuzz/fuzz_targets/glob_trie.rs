//! Any small mapping and any names: the mapper finds the same rule and captures as a linear search of the file.
//!
//! The first byte sets the order of globs. Each rule has a byte for its form and one for each part, up to a zero; the
//! remaining bytes are names.
#![no_main]

use std::fmt::Write as _;

use kstatd::exposition::{Format, ScrapeQuery};
use kstatd::mapper::{Action, Buffer, Mapper, MetricType, Verdict};
use kstatd::statsd::{Offline, OfflineConfig};
use libfuzzer_sys::fuzz_target;

/// Parts of patterns; half of them are stars.
const PARTS: [&str; 8] = ["a", "*", "b", "*", "c-d", "*", "a1", "*"];
/// Parts of names, similar to the parts of patterns.
const SEGMENTS: [&str; 8] = ["a", "b", "c-d", "a1", "", "x", "*", "é"];
/// Maximum number of rules, and of parts of a pattern or a name.
const MAX_COUNT: usize = 12;

#[derive(Debug)]
struct Rule {
    kind: Option<MetricType>,
    drops: bool,
    pattern: Pattern,
}

#[derive(Debug)]
enum Pattern {
    Glob(Vec<&'static str>),
    /// `^a\.b`, `b$`, `b` or `^a\.([^.]*)$`.
    Regex(Search, String),
}

#[derive(Clone, Copy, Debug)]
enum Search {
    Begins,
    Ends,
    Within,
    /// A prefix followed by one captured segment.
    Segment,
}

impl Rule {
    fn read(form: u8, parts: &[u8]) -> Option<Self> {
        let kind = [None, None, Some(MetricType::Counter), Some(MetricType::Gauge)];
        let kind = kind[usize::from(form & 3)];
        let parts: Vec<&str> =
            parts.iter().take(MAX_COUNT).map(|part| PARTS[usize::from(part & 7)]).collect();
        if parts.is_empty() {
            return None;
        }
        let pattern = if form & 0x38 == 0x38 {
            let search = [Search::Begins, Search::Ends, Search::Within, Search::Segment];
            let literal: Vec<&str> = parts.into_iter().filter(|part| *part != "*").collect();
            Pattern::Regex(search[usize::from(form >> 6)], literal.join("."))
        } else {
            Pattern::Glob(parts)
        };
        Some(Self { kind, drops: form & 4 == 4, pattern })
    }

    /// Returns the captures if the rule matches.
    fn captures(&self, name: &str) -> Option<Vec<String>> {
        match &self.pattern {
            Pattern::Glob(parts) => {
                let segments: Vec<&str> = name.split('.').collect();
                let fits = |(part, segment): (&&str, &&str)| *part == "*" || part == segment;
                if parts.len() != segments.len() || !parts.iter().zip(&segments).all(fits) {
                    return None;
                }
                let stars = parts.iter().zip(segments).filter(|(part, _)| **part == "*");
                Some(stars.map(|(_, segment)| segment.to_owned()).collect())
            }
            Pattern::Regex(search, text) => {
                let matches = match search {
                    Search::Begins => name.starts_with(text),
                    Search::Ends => name.ends_with(text),
                    Search::Within => name.contains(text.as_str()),
                    Search::Segment => {
                        let rest = name.strip_prefix(text)?.strip_prefix('.')?;
                        return (!rest.contains('.')).then(|| vec![rest.to_owned()]);
                    }
                };
                matches.then(Vec::new)
            }
        }
    }

    fn write(&self, number: usize, out: &mut String) {
        let (pattern, form, captures) = match &self.pattern {
            Pattern::Glob(parts) => {
                let stars = parts.iter().filter(|part| **part == "*").count();
                (parts.join("."), "glob", stars)
            }
            Pattern::Regex(search, text) => {
                let text = text.replace('.', r"\.");
                match search {
                    Search::Begins => (format!("^{text}"), "regex", 0),
                    Search::Ends => (format!("{text}$"), "regex", 0),
                    Search::Within => (text, "regex", 0),
                    Search::Segment => (format!(r"^{text}\.([^.]*)$"), "regex", 1),
                }
            }
        };
        let action = if self.drops { "drop" } else { "map" };
        let _ = write!(
            out,
            "- {{match: '{pattern}', match_type: {form}, name: 'r{number}', action: {action}"
        );
        if let Some(kind) = self.kind {
            let _ = write!(out, ", match_metric_type: {}", kind.as_str());
        }
        let labels = (1..=captures).map(|at| format!("c{at}: '<${{{at}}}>'"));
        let _ = writeln!(out, ", labels: {{{}}}}}", labels.collect::<Vec<_>>().join(", "));
    }
}

/// Returns the rule that applies, as documented: globs before regular expressions. Of globs, the first one in the
/// file or, unordered, the one with a literal where another has a star, from left to right; of regular expressions,
/// the first one.
fn matching_rule<'r>(
    rules: &'r [Rule],
    ordered: bool,
    name: &str,
    kind: MetricType,
) -> Option<(usize, &'r Rule)> {
    let fits = |(_, rule): &(usize, &Rule)| {
        rule.kind.is_none_or(|of| of == kind) && rule.captures(name).is_some()
    };
    let fitting: Vec<(usize, &Rule)> = rules.iter().enumerate().filter(fits).collect();
    let stars = |rule: &Rule| -> Vec<bool> {
        match &rule.pattern {
            Pattern::Glob(parts) => parts.iter().map(|part| *part == "*").collect(),
            Pattern::Regex(..) => Vec::new(),
        }
    };
    let globs = fitting.iter().filter(|(_, rule)| matches!(rule.pattern, Pattern::Glob(_)));
    let glob = if ordered {
        globs.copied().next()
    } else {
        globs.copied().min_by_key(|(at, rule)| (stars(rule), *at))
    };
    glob.or_else(|| fitting.first().copied())
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, mut rest)) = data.split_first() else { return };
    let ordered = how & 1 == 0;
    let mut rules = Vec::new();
    for _ in 0..usize::from(how >> 1) % MAX_COUNT {
        let Some((&form, after)) = rest.split_first() else { break };
        let end = after.iter().position(|byte| *byte == 0).unwrap_or(after.len());
        rules.extend(Rule::read(form, &after[..end]));
        rest = after.get(end + 1..).unwrap_or_default();
    }
    let mut text = format!("defaults: {{glob_disable_ordering: {}}}\nmappings:\n", !ordered);
    rules.iter().enumerate().for_each(|(number, rule)| rule.write(number, &mut text));
    let mapper = Mapper::from_yaml(&text).unwrap_or_else(|problems| panic!("{text}{problems:?}"));
    let mapper = std::sync::Arc::new(mapper);

    let mut buffer = Buffer::default();
    for name in rest.split(|byte| *byte == 0).take(8) {
        let name: Vec<&str> =
            name.iter().take(MAX_COUNT).map(|at| SEGMENTS[usize::from(at & 7)]).collect();
        let name = name.join(".");
        for kind in MetricType::ALL {
            let want = matching_rule(&rules, ordered, &name, kind);
            let found = mapper.map(&name, kind, &mut buffer);
            let found = found.map(|mapped| {
                let captures = mapped.labels().map(|(_, value)| value.to_owned()).collect();
                (
                    mapped.rule.index,
                    mapped.rule.action == Action::Drop,
                    mapped.name.to_owned(),
                    captures,
                )
            });
            let want = want.map(|(number, rule)| {
                let captures = rule.captures(&name).expect("it matches");
                let mut captures: Vec<(usize, String)> = captures.into_iter().enumerate().collect();
                // Labels are sorted by name, and 10 precedes 2.
                captures.sort_by_key(|(at, _)| format!("c{}", at + 1));
                let captures: Vec<String> =
                    captures.into_iter().map(|(_, text)| format!("<{text}>")).collect();
                (number, rule.drops, format!("r{number}"), captures)
            });
            assert_eq!(found, want, "{name:?} {kind:?} by\n{text}");

            for tried in mapper.explain(&name, kind) {
                let rule = &rules[tried.index];
                let is_first = want.as_ref().is_some_and(|(number, ..)| *number == tried.index);
                let fits = rule.captures(&name).is_some();
                let of_type = rule.kind.is_none_or(|of| of == kind);
                let as_told = match tried.verdict {
                    Verdict::Wins => is_first,
                    Verdict::Overridden { rule, .. } => {
                        let first = want.as_ref().map(|(number, ..)| *number);
                        fits && of_type && !is_first && first == Some(rule)
                    }
                    Verdict::OtherType { .. } => fits && !of_type,
                    _ => !fits,
                };
                assert!(as_told, "{tried:?} of {name:?} {kind:?} by\n{text}");
            }
        }
        // The same through the whole pipeline, where names are already known.
        if name.is_empty() || rules.is_empty() {
            continue;
        }
        let mut offline = Offline::new(std::sync::Arc::clone(&mapper), OfflineConfig::default());
        for _ in 0..2 {
            offline.line(format!("{name}:1|c").as_bytes());
        }
        let body: Vec<u8> =
            offline.frames(Format::Text, &ScrapeQuery::default()).flatten().collect();
        let body = String::from_utf8(body).expect("UTF-8");
        match matching_rule(&rules, ordered, &name, MetricType::Counter) {
            Some((_, rule)) if rule.drops => assert_eq!(body, "", "{name} by\n{text}"),
            Some((number, _)) => {
                let sample = body.lines().find(|line| !line.starts_with('#')).unwrap_or_default();
                let is_its = sample.starts_with(&format!("r{number}{{"))
                    || sample.starts_with(&format!("r{number} "));
                assert!(is_its && sample.ends_with(" 2"), "{name}: {body} by\n{text}");
            }
            None => assert!(!body.contains("TYPE r"), "{name}: {body} by\n{text}"),
        }
    }
});
