//! Property tests: for any input, suggested rules are valid, never add series, and produce the
//! announced number.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::Write;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::captured::Captured;
use super::count::Session;
use super::suggestion;
use crate::exposition::{Format, ScrapeQuery};
use crate::mapper::Mapper;
use crate::statsd::line::ParserFlags;
use crate::statsd::{Offline, OfflineConfig};

const MAPPING: &str = "defaults: {normalise: {id: uuid}}\n\
    mappings:\n\
    - {match: timed.*, name: timed_total, observer_type: histogram, labels: {what: $1}}\n\
    - {match: '^part\\.([^.]*)$', match_type: regex, name: part_$1, labels: {id: $1}}\n\
    - {match: own.*, name: own, labels: {id: $1}, normalise: {id: {truncate: 3}}}\n";

/// Returns the series that the pipeline makes of lines.
fn series(mapping: &str, base: &str, lines: &[u8]) -> BTreeSet<String> {
    let mapper = Mapper::combined(mapping, base).expect("a mapping");
    let reserved = std::sync::Arc::new(crate::statsd::is_own_name);
    let config = OfflineConfig { reserved, ..OfflineConfig::default() };
    let mut offline = Offline::new(mapper, config);
    offline.lines(lines);
    let text = offline.frames(Format::Text, &ScrapeQuery::default()).flatten().collect();
    let text = String::from_utf8(text).expect("UTF-8");
    let name = |line: &str| line.rsplit_once(' ').map(|(name, _)| name.to_owned());
    text.lines().filter(|line| !line.starts_with('#')).filter_map(name).collect()
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-z]{1,5}",
        3 => "[0-9]{1,11}",
        1 => "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}",
        1 => "[0-9a-f]{8,20}",
        1 => "[A-Za-z0-9]{16,30}",
        1 => "1[0-9]{9}",
        1 => "[a-z]{3}[0-9]{1,3}",
        1 => any::<String>().prop_map(|text| text.replace([',', '|', '\n', '#', ':', '\0'], "")),
    ]
}

/// Generates the form of a value: constant words and placeholders.
fn form() -> impl Strategy<Value = Vec<Option<String>>> {
    let part = prop_oneof![
        2 => proptest::sample::select(vec!["/", "?a=", "-", " ", ".", "user", "api", "$1", "'"]).prop_map(|text| Some(text.to_owned())),
        1 => Just(None),
    ];
    proptest::collection::vec(part, 1..6)
}

fn lines() -> impl Strategy<Value = String> {
    let stream = (
        proptest::sample::select(vec!["hits", "a.b", "timed.x", "part", "own", "user"]),
        proptest::sample::select(vec!["c", "g", "ms", "h"]),
        proptest::sample::select(vec!["id", "url", "who", "y"]),
        form(),
        proptest::collection::vec(word(), 1..60),
        0..3u8,
    );
    proptest::collection::vec(stream, 1..5).prop_map(|streams| {
        let mut lines = String::new();
        for (name, kind, label, form, words, place) in streams {
            let mut next = words.iter().cycle();
            for _ in 0..words.len() {
                let parts = form.iter().map(|part| part.as_ref().or_else(|| next.next()));
                let text: String = parts.flatten().map(String::as_str).collect();
                let line = match place {
                    0 => format!("{name}.{}:1|{kind}", text.replace([':', '|', ';', '[', ','], "")),
                    _ => format!("{name}:1|{kind}|#{label}:{text},code:{}", text.len() % 3),
                };
                lines += &line;
                lines.push('\n');
            }
        }
        lines
    })
}

/// Returns the number after this prefix in a text.
fn number(text: &str, before: &str) -> Option<usize> {
    let (_, rest) = text.lines().next()?.split_once(before)?;
    let digits = rest.chars().take_while(|c| c.is_ascii_digit() || *c == ',');
    digits.filter(char::is_ascii_digit).collect::<String>().parse().ok()
}

#[test]
fn suggested_rules_save_the_announced_series() {
    let mut runner = TestRunner::new(ProptestConfig::with_cases(300));
    let with_rules = Cell::new(0);
    let outcome = runner.run(&(lines(), any::<bool>()), |(lines, mapped)| {
        let base = if mapped { MAPPING } else { "" };
        let mut file = tempfile::NamedTempFile::new().expect("file");
        file.write_all(lines.as_bytes()).expect("write");
        let captured = Captured::lines(file.path(), ParserFlags::default()).expect("readable");
        let mut session = Session { captured, mapping: base.to_owned() };
        let rules = suggestion::run(&mut session, 10).expect("rules");
        let mapper = Mapper::from_yaml(&rules);
        prop_assert!(mapper.is_ok(), "{:?}\n{rules}", mapper.err());
        let before = series("", base, lines.as_bytes());
        prop_assert_eq!(number(&rules, "# "), Some(before.len()), "{}\n{}", lines, rules);
        let after = series(&rules, base, lines.as_bytes());
        let promised = number(&rules, "with these rules ");
        let expected = promised.unwrap_or(before.len());
        prop_assert_eq!(expected, after.len(), "{}\n{}\n{:?}", lines, rules, after);
        prop_assert!(after.len() <= before.len());
        with_rules.set(with_rules.get() + usize::from(promised.is_some()));
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert!(with_rules.get() > 50, "rules for {} streams alone", with_rules.get());
}
