//! Encodes a profile: pprof's protobuf for tools, an SVG for people.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::flame_graph::{self, Caption, DrawError, Extent, Folded};
use super::symbols::{Name, Symbols};
use crate::exposition::protobuf::{Binary, Field, Sink, varint};
use crate::status::words::{bytes, count};
use crate::telemetry::VERSION;

/// The counts of one call stack.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    /// The addresses of the calls, the innermost first.
    pub stack: Vec<u64>,
    /// One value for each kind of the profile.
    pub values: [i64; 2],
    /// The thread's name, if threads are distinguished.
    pub thread: Option<Arc<str>>,
    /// True if the sample is of the profile that this one is compared with. Its values are negative.
    pub of_base: bool,
}

/// The key of the label with the thread's name.
pub(super) const THREAD: &str = "thread";

/// The key of the label that `go tool pprof -diff_base` gives to the samples of the base, and reads from merged profiles.
const BASE: &str = "pprof::base";

/// Samples and their meaning.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    /// Name and unit of each value; the last is the default for display.
    pub kinds: [(&'static str, &'static str); 2],
    /// Name, unit and length of the sampling interval.
    pub period: (&'static str, &'static str, i64),
    /// The duration of sampling.
    pub duration: Option<Duration>,
    /// Remarks for the reader.
    pub comments: Vec<String>,
    /// The samples.
    pub samples: Vec<Sample>,
}

/// The fields of the message `Profile` in pprof's `profile.proto`. Those of its parts are written by their numbers there.
pub(super) mod tag {
    pub(crate) const SAMPLE_TYPE: u32 = 1;
    pub(crate) const SAMPLE: u32 = 2;
    pub(crate) const MAPPING: u32 = 3;
    pub(crate) const LOCATION: u32 = 4;
    pub(crate) const FUNCTION: u32 = 5;
    pub(crate) const STRING_TABLE: u32 = 6;
    pub(crate) const TIME_NANOS: u32 = 9;
    pub(crate) const DURATION_NANOS: u32 = 10;
    pub(crate) const PERIOD_TYPE: u32 = 11;
    pub(crate) const PERIOD: u32 = 12;
    pub(crate) const COMMENT: u32 = 13;
    pub(crate) const DEFAULT_SAMPLE_TYPE: u32 = 14;
}

/// Appends a number; 0 is the default and omitted.
fn number(message: &mut Binary<'_>, tag: u32, number: u64) {
    if number != 0 {
        message.unsigned(field(tag), number);
    }
}

/// Appends packed numbers.
fn numbers(message: &mut Binary<'_>, tag: u32, numbers: impl IntoIterator<Item = u64>) {
    message.message(field(tag), |packed| {
        numbers.into_iter().for_each(|number| varint(packed.0, number));
    });
}

/// Returns a field, whose name does not matter in the binary form.
fn field(tag: u32) -> Field {
    Field { number: tag.into(), name: "" }
}

/// The string table; number 0 is the empty string.
struct Strings(HashMap<String, u64>);

impl Strings {
    fn number(&mut self, text: &str) -> u64 {
        if let Some(number) = self.0.get(text) {
            return *number;
        }
        let number = self.0.len() as u64;
        self.0.insert(text.to_owned(), number);
        number
    }

    /// Appends two texts as a message.
    fn pair(&mut self, message: &mut Binary<'_>, tag: u32, [one, other]: [&str; 2]) {
        message.message(field(tag), |pair| {
            number(pair, 1, self.number(one));
            number(pair, 2, self.number(other));
        });
    }

    fn in_order(self) -> Vec<String> {
        let mut texts: Vec<(String, u64)> = self.0.into_iter().collect();
        texts.sort_unstable_by_key(|(_, number)| *number);
        texts.into_iter().map(|(text, _)| text).collect()
    }
}

impl Profile {
    /// Returns whether the values are CPU time.
    pub(super) fn is_cpu(&self) -> bool {
        self.kinds[1].1 == "nanoseconds"
    }

    /// Returns all addresses of all samples.
    pub(super) fn addresses(&self) -> BTreeSet<u64> {
        self.samples.iter().flat_map(|sample| &sample.stack).copied().collect()
    }

    /// Encodes the message `perftools.profiles.Profile`, uncompressed.
    pub(super) fn encode(&self, symbols: &Symbols) -> Vec<u8> {
        let mut strings = Strings([(String::new(), 0)].into());
        let mut bytes = Vec::new();
        let mut out = Binary(&mut bytes);
        for (kind, unit) in self.kinds {
            strings.pair(&mut out, tag::SAMPLE_TYPE, [kind, unit]);
        }
        let mut locations: BTreeMap<u64, u64> = BTreeMap::new();
        for sample in &self.samples {
            let mut ids = Vec::with_capacity(sample.stack.len());
            for address in &sample.stack {
                // Not the address itself: some readers want small numbers that begin with 1.
                let next = locations.len() as u64 + 1;
                ids.push(*locations.entry(*address).or_insert(next));
            }
            let thread = sample.thread.as_deref().map(|name| [THREAD, name]);
            let base = sample.of_base.then_some([BASE, "true"]);
            out.message(field(tag::SAMPLE), |message| {
                numbers(message, 1, ids);
                // Negative numbers, of differences, are written as their two's complement.
                numbers(message, 2, sample.values.map(|value| value as u64));
                for label in thread.into_iter().chain(base) {
                    strings.pair(message, 3, label);
                }
            });
        }
        let mut with_names = BTreeSet::new();
        let mut functions: HashMap<&Name, u64> = HashMap::new();
        for (address, id) in &locations {
            let mapping = symbols.mapping(*address);
            out.message(field(tag::LOCATION), |location| {
                number(location, 1, *id);
                number(location, 2, mapping.map_or(0, |index| index as u64 + 1));
                number(location, 3, *address);
                if let Some((mapping, name)) = mapping.zip(symbols.name(*address)) {
                    with_names.insert(mapping);
                    let next = functions.len() as u64 + 1;
                    let function = *functions.entry(name).or_insert(next);
                    location.message(field(4), |line| number(line, 1, function));
                }
            });
        }
        for (name, id) in functions {
            out.message(field(tag::FUNCTION), |function| {
                number(function, 1, id);
                number(function, 2, strings.number(&name.readable));
                number(function, 3, strings.number(&name.linked));
            });
        }
        for (index, mapping) in symbols.mappings.iter().enumerate() {
            let build_id = mapping.build_id.as_deref().unwrap_or_default();
            let (path, build_id) = (strings.number(&mapping.path), strings.number(build_id));
            let (start, end, offset) = (mapping.start, mapping.end, mapping.offset);
            let values = [index as u64 + 1, start, end, offset, path, build_id];
            out.message(field(tag::MAPPING), |message| {
                values.into_iter().zip(1..).for_each(|(value, tag)| number(message, tag, value));
                number(message, 7, with_names.contains(&index).into());
            });
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (kind, unit, period) = self.period;
        number(&mut out, tag::TIME_NANOS, nanoseconds(now));
        number(&mut out, tag::DURATION_NANOS, self.duration.map_or(0, nanoseconds));
        strings.pair(&mut out, tag::PERIOD_TYPE, [kind, unit]);
        number(&mut out, tag::PERIOD, period as u64);
        numbers(&mut out, tag::COMMENT, self.comments.iter().map(|text| strings.number(text)));
        number(&mut out, tag::DEFAULT_SAMPLE_TYPE, strings.number(self.kinds[1].0));
        for text in strings.in_order() {
            out.text(field(tag::STRING_TABLE), text.as_bytes());
        }
        bytes
    }

    /// Subtracts the samples of `base`, made comparable as [`Extent::scale`] describes.
    pub(super) fn subtract(&mut self, base: &Self, normalize: bool) {
        let scale = self.extent().scale(base.extent(), self.kinds[1].1, normalize);
        let negated = |value: i64| -(value as f64 * scale).round() as i64;
        let sample = |sample: &Sample| Sample {
            values: sample.values.map(negated),
            of_base: true,
            ..sample.clone()
        };
        self.samples.extend(base.samples.iter().map(sample));
    }

    /// Returns the memory that the profile takes, in bytes.
    pub(super) fn size(&self) -> usize {
        let of_stacks = |sample: &Sample| size_of::<Sample>() + size_of_val(&*sample.stack);
        size_of::<Self>() + self.samples.iter().map(of_stacks).sum::<usize>()
    }

    fn extent(&self) -> Extent {
        Extent { total: self.sum(1), duration: self.duration }
    }

    /// Returns the sum of a value over the samples, without those of the base.
    fn sum(&self, at: usize) -> i64 {
        let own = self.samples.iter().filter(|sample| !sample.of_base);
        own.filter_map(|sample| sample.values.get(at)).sum()
    }

    /// Returns the duration, the number of samples and the version.
    fn about(&self) -> String {
        let (samples, value) = (self.sum(0), self.sum(1));
        let watched = self.duration.map(|duration| duration.as_secs_f64());
        let text = match (watched, self.kinds[1].1) {
            (Some(watched), "nanoseconds") => {
                let busy = value as f64 / 1e9;
                let share = 100.0 * busy / watched.max(0.001);
                format!(
                    "{watched:.1} s watched, {samples} samples, {busy:.2} s of CPU time: {share:.1}% of one core. \
                     Idle time is not drawn"
                )
            }
            (watched, _) => {
                let over = watched.map_or(String::new(), |watched| format!("{watched:.0} s, "));
                let (samples, size) = (count(samples.unsigned_abs()), bytes(value as f64));
                let stacks = self.samples.iter().filter(|sample| !sample.of_base).count();
                format!("{over}{stacks} stacks, {samples} objects, {size}")
            }
        };
        format!("{text}; kstatd {VERSION}")
    }

    /// Draws a flame graph of the last value as SVG; a differential one if a base has been subtracted.
    ///
    /// # Errors
    ///
    /// When the graph cannot be drawn.
    pub(super) fn flame_graph(
        &self,
        symbols: &Symbols,
        (title, empty): (&str, &str),
        is_compared: bool,
    ) -> Result<Vec<u8>, DrawError> {
        let (mut now, mut base) = (Folded::new(), Folded::new());
        for sample in &self.samples {
            let frames = sample.stack.iter().rev().map(|address| frame(symbols, *address));
            let thread = sample.thread.iter().map(|name| flame_graph::frame(name));
            let stack: Vec<String> = thread.chain(frames).collect();
            let (stacks, sign) = if sample.of_base { (&mut base, -1) } else { (&mut now, 1) };
            *stacks.entry(stack.join(";")).or_default() += sign * sample.values[1];
        }
        let (unit, mut subtitle) = (self.kinds[1].1, self.about());
        let base = is_compared.then_some(base);
        let total = base.as_ref().and_then(flame_graph::sum);
        if let Some((base, now)) = total.zip(flame_graph::sum(&now)) {
            subtitle = format!("{}; {subtitle}", flame_graph::change(base, now, unit));
        }
        Caption { title, subtitle, unit, empty }.draw(&now, base.as_ref())
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the label of a frame in a flame graph.
fn frame(symbols: &Symbols, address: u64) -> String {
    if let Some(name) = symbols.name(address) {
        return flame_graph::frame(&name.readable);
    }
    match symbols.mapping(address).and_then(|index| symbols.mappings.get(index)) {
        Some(mapping) => format!("[{}]", mapping.short().trim_matches(['[', ']'])),
        None => "[unknown]".to_owned(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a profile of CPU time.
    pub(in crate::server::pprof) fn profile(samples: Vec<Sample>) -> Profile {
        Profile {
            kinds: [("samples", "count"), ("cpu", "nanoseconds")],
            period: ("cpu", "nanoseconds", 10),
            duration: Some(Duration::from_secs(1)),
            comments: Vec::new(),
            samples,
        }
    }

    #[test]
    fn numbers_of_any_size() {
        let mut message = Vec::new();
        let mut out = Binary(&mut message);
        number(&mut out, 1, 300);
        number(&mut out, 2, 0);
        numbers(&mut out, 3, [-1_i64 as u64]);
        let minus = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(message, [&[0x08, 0xac, 0x02, 0x1a, 10][..], &minus].concat());
    }

    #[test]
    fn an_empty_graph_has_a_notice() {
        let svg = profile(Vec::new()).flame_graph(&Symbols::default(), ("CPU", "a < b"), false);
        let svg = String::from_utf8(svg.expect("picture")).expect("UTF-8");
        assert!(svg.contains("<svg") && svg.contains("a &lt; b"), "{svg}");
        assert!(svg.contains("0 samples") && svg.contains(VERSION), "{svg}");
    }

    #[test]
    fn a_graph_names_threads_and_functions() {
        let function = Symbols::of as *const () as u64;
        let thread = Some(Arc::from("worker;1"));
        let profile = profile(vec![Sample {
            stack: vec![function, 1],
            values: [1, 10],
            thread,
            of_base: false,
        }]);
        let symbols = Symbols::of(&profile.addresses());
        let svg = profile.flame_graph(&symbols, ("CPU", ""), false).expect("picture");
        let svg = String::from_utf8(svg).expect("UTF-8");
        let about = "1.0 s watched, 1 samples, 0.00 s of CPU time: 0.0% of one core. Idle time is not drawn";
        for part in ["worker:1", "[unknown]", "kstatd::server::pprof::symbols::Symbols::of", about]
        {
            assert!(svg.contains(part), "{part} in {svg}");
        }
    }

    #[test]
    fn a_base_is_subtracted_for_tools_and_drawn_for_people() {
        let function = Symbols::of as *const () as u64;
        let sample = |stack: Vec<u64>, value| Sample {
            stack,
            values: [value / 10, value],
            thread: None,
            of_base: false,
        };
        let mut now = profile(vec![sample(vec![function, 1], 40), sample(vec![1], 10)]);
        // Three times as long, so a third of it counts.
        let base = profile(vec![sample(vec![1], 30), sample(vec![2], 3)]);
        let base = Profile { duration: Some(Duration::from_secs(3)), ..base };
        now.subtract(&base, false);
        let values: Vec<_> = now.samples.iter().map(|s| (s.values, s.of_base)).collect();
        let expected = [([4, 40], false), ([1, 10], false), ([-1, -10], true), ([0, -1], true)];
        assert_eq!(values, expected);
        let symbols = Symbols::of(&now.addresses());
        let svg = now.flame_graph(&symbols, ("CPU", ""), true).expect("picture");
        let svg = String::from_utf8(svg).expect("UTF-8");
        for part in ["Symbols::of (40 nanoseconds, 80.00%; +80.00%)", "now 0.00 s (+354.5%)"] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        let message = now.encode(&symbols);
        assert_eq!(message.windows(BASE.len()).filter(|part| *part == BASE.as_bytes()).count(), 1);
    }
}
