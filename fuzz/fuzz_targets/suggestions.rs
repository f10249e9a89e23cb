//! Any lines: the rules of `kstatd cardinality suggest` are a valid mapping, never create more series, and create the
//! stated number.
//!
//! The first byte sets the flags and the minimum number of values.
#![no_main]

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use kstatd::exposition::{Format, ScrapeQuery};
use kstatd::fuzzed;
use kstatd::statsd::line::ParserFlags;
use kstatd::mapper::Mapper;
use kstatd::statsd::{Offline, OfflineConfig, is_own_name};
use libfuzzer_sys::fuzz_target;

static FILE: LazyLock<tempfile::NamedTempFile> =
    LazyLock::new(|| tempfile::NamedTempFile::new_in("/dev/shm").expect("a file in memory"));

/// Returns the series that the pipeline creates for lines.
fn series(mapping: &str, flags: ParserFlags, lines: &[u8]) -> BTreeSet<String> {
    let mapper =
        Mapper::from_yaml(mapping).unwrap_or_else(|problems| panic!("{problems:?}\n{mapping}"));
    let config =
        OfflineConfig { flags, reserved: Arc::new(is_own_name), ..OfflineConfig::default() };
    let mut offline = Offline::new(mapper, config);
    offline.lines(lines);
    let text = offline.frames(Format::Text, &ScrapeQuery::default()).flatten().collect();
    let text = String::from_utf8(text).expect("UTF-8");
    let name = |line: &str| line.rsplit_once(' ').map(|(name, _)| name.to_owned());
    text.lines().filter(|line| !line.starts_with('#')).filter_map(name).collect()
}

/// Returns the number that follows `before` in the text.
fn number(text: &str, before: &str) -> Option<usize> {
    let (_, rest) = text.lines().next()?.split_once(before)?;
    let digits = rest.chars().take_while(|c| c.is_ascii_digit() || *c == ',');
    digits.filter(char::is_ascii_digit).collect::<String>().parse().ok()
}

fuzz_target!(|data: &[u8]| {
    let Some((&bits, lines)) = data.split_first() else { return };
    let on = |bit: u8| bits & 1 << bit == 0;
    let flags = ParserFlags {
        dogstatsd: on(0),
        influxdb: on(1),
        librato: on(2),
        signalfx: on(3),
        ..ParserFlags::default()
    };
    let least = [2, 3, 5, 10][usize::from(bits >> 6)];
    std::fs::write(FILE.path(), lines).expect("written");
    let rules = fuzzed::suggested(FILE.path(), flags, None, least).expect("a file of lines");
    let (before, after) = (series("", flags, lines), series(&rules, flags, lines));
    assert_eq!(number(&rules, "# "), Some(before.len()), "{rules}");
    let promised = number(&rules, "with these rules ");
    assert_eq!(promised.unwrap_or(before.len()), after.len(), "{rules}\n{after:?}");
    assert!(after.len() <= before.len(), "{rules}");
    let tried = fuzzed::suggested(FILE.path(), flags, Some(rules.clone()), least);
    assert!(tried.is_ok_and(|text| !text.is_empty()), "{rules}");
});
