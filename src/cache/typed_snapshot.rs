//! The typed form of a snapshot, read back from the lines of its pages.
//!
//! The series of all families of one name are one family, with the description of the first, as in text that follows the
//! OpenMetrics specification. In the text of kube-state-metrics the series of later resources follow without a header.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::page::Page;
use super::resource::{self, FamilyIndex, Resource};
use super::schema::Family;
use super::snapshot_text::split_line;
use crate::exposition::frames::FRAME;
use crate::exposition::typed::{FamilyEncoder, FamilyHead, Sample, SampleValue, TypedBody};

/// The text read in one step, in bytes: less than a millisecond of work.
const STEP: usize = if cfg!(test) { 2_000 } else { 192 * 1024 };

/// The work for a page, in bytes of text.
const PAGE_WORK: usize = 64;

/// A snapshot as typed families.
pub(super) struct TypedSnapshot {
    resources: Vec<Resource>,
    /// The selected families, grouped by name.
    groups: Vec<Vec<FamilyIndex>>,
    /// The current group.
    group: usize,
    /// The current pass over it.
    pass: u8,
    /// The next line; `None` before the pass has begun.
    at: Option<Position>,
}

/// The position of a line in a group.
#[derive(Clone, Copy, Default)]
struct Position {
    /// The index of the family in the group.
    member: usize,
    store: usize,
    page: usize,
    slot: usize,
    /// The start of the line in the text of the object.
    line: usize,
}

impl TypedSnapshot {
    /// Returns the families with these names, or all.
    pub(super) fn new(resources: Vec<Resource>, names: Option<BTreeSet<String>>) -> Self {
        let groups = resource::groups(&resources, names.as_ref());
        Self { resources, groups, group: 0, pass: 0, at: None }
    }

    fn family(&self, place: FamilyIndex) -> &Family {
        &self.resources[place.resource].schema.families[place.family]
    }

    /// Returns the page at or after `at`, with the number of the family in it, and moves `at` there.
    fn page(&self, at: &mut Position) -> Option<(Arc<Page>, usize)> {
        loop {
            let place = self.groups.get(self.group)?.get(at.member)?;
            let stores = &self.resources[place.resource].stores;
            let Some(store) = stores.get(at.store) else {
                *at = Position { member: at.member + 1, ..Position::default() };
                continue;
            };
            match store.pages.get(at.page) {
                Some(page) => return Some((Arc::clone(page), place.family)),
                None => {
                    let (member, store) = (at.member, at.store + 1);
                    *at = Position { member, store, ..Position::default() };
                }
            }
        }
    }

    /// Begins the next pass, or the first one of the next family. Returns false after the last family.
    fn begin(&mut self, encoder: &mut dyn FamilyEncoder) -> bool {
        if self.pass == encoder.passes() {
            (self.group, self.pass) = (self.group + 1, 0);
        }
        let Some(&first) = self.groups.get(self.group).and_then(|group| group.first()) else {
            return false;
        };
        let Family { name, help, kind } = self.family(first);
        encoder.begin(&FamilyHead { name, help, kind: kind.typed() }, self.pass);
        self.at = Some(Position::default());
        true
    }
}

impl TypedBody for TypedSnapshot {
    fn step(&mut self, encoder: &mut dyn FamilyEncoder, out: &mut Vec<u8>) -> bool {
        let mut work = 0;
        while work < STEP && out.len() < FRAME {
            let Some(mut at) = self.at.take() else {
                match self.begin(encoder) {
                    true => continue,
                    false => return false,
                }
            };
            let Some((page, family)) = self.page(&mut at) else {
                encoder.end(out);
                self.pass += 1;
                continue;
            };
            work += PAGE_WORK + visit(&page, family, &mut at, STEP - work, encoder, out);
            self.at = Some(at);
        }
        true
    }
}

/// Passes the lines of a page from `at` on, until `limit` bytes of text have been read or the frame is complete. Moves
/// `at` to the next line and returns the number of bytes read.
fn visit(
    page: &Page,
    family: usize,
    at: &mut Position,
    limit: usize,
    encoder: &mut dyn FamilyEncoder,
    out: &mut Vec<u8>,
) -> usize {
    let mut work = 0;
    let lines = page.family(family).into_iter().flat_map(|segment| segment.iter());
    let mut identities = page.identities().into_iter().flat_map(|all| all.iter()).skip(at.slot);
    for (slot, lines) in lines.enumerate().skip(at.slot) {
        at.slot = slot;
        let identity = identities.next().unwrap_or_default();
        let identity = identity.strip_prefix(b"{").unwrap_or(identity);
        while let Some(rest) = lines.get(at.line..).filter(|rest| !rest.is_empty()) {
            if work >= limit || out.len() >= FRAME {
                return work;
            }
            let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
            let (labels, value) = split_line(rest.get(..end).unwrap_or(rest));
            let value = SampleValue::Number(number(value));
            encoder.sample(&Sample { labels: [identity, labels], value, created: None }, out);
            at.line += end + 1;
            work += identity.len() + end;
        }
        at.line = 0;
    }
    *at = Position { page: at.page + 1, slot: 0, line: 0, ..*at };
    work
}

/// Parses the value of a line.
fn number(text: &[u8]) -> f64 {
    match text {
        [digit @ b'0'..=b'9'] => f64::from(digit - b'0'),
        _ => str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{Catalog, MetricKind, Rendered, Schema, Store};
    use super::*;
    use crate::exposition::frames::Frames;
    use crate::exposition::{Format, ScrapeQuery, Source, VirtualShard, header};

    /// Writes text again, in two passes that have to agree. A family without samples has no header.
    #[derive(Default)]
    struct TextAgain {
        name: String,
        head: Vec<u8>,
        pass: u8,
        first: Vec<u8>,
        second: Vec<u8>,
    }

    impl FamilyEncoder for TextAgain {
        fn passes(&self) -> u8 {
            2
        }

        fn begin(&mut self, family: &FamilyHead<'_>, pass: u8) {
            self.pass = pass;
            self.name = family.name.to_owned();
            self.head.clear();
            header::write(
                &mut self.head,
                Format::Text,
                family.name,
                family.kind.as_str(),
                family.help,
            );
        }

        fn sample(&mut self, sample: &Sample<'_>, out: &mut Vec<u8>) {
            let SampleValue::Number(value) = sample.value else { panic!("{sample:?}") };
            let labels = sample.labels.map(|part| String::from_utf8(part.to_vec()).unwrap());
            let labels = labels.into_iter().filter(|part| !part.is_empty());
            let labels = labels.collect::<Vec<_>>().join(",");
            let mut line = std::mem::take(&mut self.head);
            crate::exposition::family::sample(
                &mut line,
                (&self.name, ""),
                labels.as_bytes(),
                value,
            );
            if self.pass == 0 {
                self.first.append(&mut line);
            } else {
                self.second.extend_from_slice(&line);
                out.append(&mut line);
            }
        }

        fn end(&mut self, _out: &mut Vec<u8>) {
            if self.pass == 1 {
                assert_eq!(std::mem::take(&mut self.first), std::mem::take(&mut self.second));
            }
        }
    }

    fn family(name: &str, kind: MetricKind) -> Family {
        Family { name: name.to_owned(), help: format!("About \"{name}\"."), kind }
    }

    /// Returns an object with lines for each number of lines given.
    pub(in crate::cache) fn object(uid: usize, identity: &str, families: &[&str]) -> Rendered {
        let mut object = Rendered { uid: uid.to_le_bytes().to_vec(), ..Rendered::default() };
        object.namespace.extend_from_slice(format!("n{}", uid % 3).as_bytes());
        object.identity.extend_from_slice(identity.as_bytes());
        for lines in families {
            object.lines.extend_from_slice(lines.as_bytes());
            object.ends.push(object.lines.len() as u32);
            object.series += lines.lines().count() as u32;
        }
        object
    }

    /// Returns two resources, in two stores and in one.
    pub(in crate::cache) fn catalog() -> Catalog {
        let catalog = Catalog::strict_openmetrics();
        let schema = Arc::new(Schema {
            resource: "pods".to_owned(),
            families: vec![
                family("pod_info", MetricKind::Info),
                family("pod_restarts_total", MetricKind::Counter),
                family("pod_state", MetricKind::StateSet),
                family("pod_never", MetricKind::Gauge),
                family("shared", MetricKind::Gauge),
            ],
        });
        let stores: Vec<_> = (0..2).map(|_| Arc::new(Store::new(Arc::clone(&schema)))).collect();
        for number in 0..300 {
            let identity =
                format!("{{namespace=\"n{}\",pod=\"p\\\"{number:03}, }}\\n\"", number % 3);
            let states = ",state=\"a \"} 1\n,state=\"b\"} 0\n,state=\"\"} -1.5e-09\n";
            let restarts = format!("}} {number}\n");
            let lines =
                ["} 1\n", &restarts, states, "", if number % 2 == 0 { "} NaN\n" } else { "" }];
            stores[number % 2].apply(&object(number, &identity, &lines));
        }
        catalog.register(schema, stores);
        let schema = Arc::new(Schema {
            resource: "totals".to_owned(),
            families: vec![
                family("total", MetricKind::Gauge),
                family("total_of_label", MetricKind::Gauge),
                family("shared", MetricKind::Gauge),
            ],
        });
        let store = Arc::new(Store::new(Arc::clone(&schema)));
        let lines = [" 16\n", "{l=\"1\"} 1.6e+09\n{l=\"2\"} +Inf\n", " 5\n"];
        store.apply(&object(7, "", &lines));
        catalog.register(schema, vec![store]);
        catalog
    }

    /// Returns the text, and the text written again from the typed form, with its number of pieces.
    fn both(query: &ScrapeQuery) -> (String, String, usize) {
        let catalog = catalog();
        let text: Vec<u8> = catalog.frames(Format::Text, query).flatten().collect();
        let mut body = catalog.typed(query).expect("a typed form");
        let (mut encoder, mut pieces, mut again) = (TextAgain::default(), 0, Vec::new());
        for piece in Frames::new(|out| body.step(&mut encoder, out)) {
            pieces += 1;
            // A piece also has the names of its series, and may exceed the text read in a step by a line.
            assert!(piece.len() < 2 * STEP, "{}", piece.len());
            again.extend_from_slice(&piece);
        }
        let [text, again] = [text, again].map(|bytes| String::from_utf8(bytes).expect("UTF-8"));
        (text, again, pieces)
    }

    /// Returns the sample lines with the headers of their families, without those of empty families.
    fn with_samples(text: &str) -> Vec<&str> {
        let lines: Vec<&str> = text.lines().collect();
        let is_empty = |at: usize| match lines[at].strip_prefix("# HELP ") {
            Some(_) => lines.get(at + 2).is_none_or(|next| next.starts_with('#')),
            None => {
                lines[at].starts_with('#')
                    && lines.get(at + 1).is_none_or(|next| next.starts_with('#'))
            }
        };
        (0..lines.len()).filter(|&at| !is_empty(at)).map(|at| lines[at]).collect()
    }

    #[test]
    fn families_and_series_are_those_of_the_text() {
        let (text, again, pieces) = both(&ScrapeQuery::default());
        // Both resources have the family `shared`.
        assert!(text.contains("\nshared 5\n# HELP total "), "one group");
        assert_eq!(with_samples(&again), with_samples(&text));
        // Two passes over the text, in pieces of a bounded amount of work.
        assert!(pieces >= text.len() / STEP, "{pieces} pieces of {} bytes", text.len());
    }

    #[test]
    fn queries_select_as_in_text() {
        let set = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
        let shard = |index| Some(VirtualShard { index, total: 3 });
        let query = ScrapeQuery::default;
        for query in [
            ScrapeQuery { names: set(&["pod_state", "total", "absent"]), ..query() },
            ScrapeQuery { namespaces: set(&["n1"]), resources: set(&["pods"]), ..query() },
            ScrapeQuery { namespaces: set(&["n9"]), ..query() },
            ScrapeQuery { resources: set(&["totals"]), ..query() },
            ScrapeQuery { exclude_resources: set(&["totals"]).unwrap_or_default(), ..query() },
            ScrapeQuery { shard: shard(0), resources: set(&["pods"]), ..query() },
            ScrapeQuery { shard: shard(2), resources: set(&["pods"]), ..query() },
        ] {
            let (text, again, _) = both(&query);
            assert_eq!(with_samples(&again), with_samples(&text), "{query:?}");
        }
    }
}
