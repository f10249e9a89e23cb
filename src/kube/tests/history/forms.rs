//! The other forms of a scrape, which must have the same samples: compressed, as messages, and in parts.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::cluster::NAMESPACES;
use crate::cache::Catalog;
use crate::cache::tests::inflated::inflated;
use crate::exposition::message::{self, Delimited, ProtoText};
use crate::exposition::prototext::Layout;
use crate::exposition::tests::samples::{self, Samples};
use crate::exposition::{Format, ScrapeQuery, Source, VirtualShard};
use crate::tests::hash;

/// Returns a body as text.
pub fn text(source: &impl Source, format: Format, query: &ScrapeQuery) -> Vec<u8> {
    // Byte by byte it would take a fifth of the time of a history.
    source.frames(format, query).fold(Vec::new(), |mut body, frame| {
        body.extend_from_slice(&frame);
        body
    })
}

/// Describes a sample that one of two bodies lacks.
fn difference(form: &str, have: &Samples, want: &Samples) -> Result<(), String> {
    let differs = |(key, value): &(&samples::Key, &samples::Value)| have.get(key) != Some(value);
    if let Some((key, value)) = want.iter().find(differs) {
        return Err(format!("{form}: {key:?} is {:?}, not {value:?}", have.get(key)));
    }
    match have.keys().find(|key| !want.contains_key(key)) {
        Some(key) => Err(format!("{form}: {key:?} is not in the text")),
        None => Ok(()),
    }
}

/// Compares a form that `rng` determines with the body in `format`.
///
/// # Errors
/// Describes the difference.
pub fn compare(
    catalog: &Catalog,
    format: Format,
    body: &[u8],
    rng: &mut Rng,
) -> Result<(), String> {
    let all = ScrapeQuery::default();
    if format == Format::Text {
        families(catalog, body, &mut Rng::with_seed(hash(body)))?;
    }
    match rng.u32(0..4) {
        0 => {
            let other = inflated(catalog.deflated(format, &all));
            (other == body).then_some(()).ok_or_else(|| "gzip differs from the text".to_owned())
        }
        1 => {
            let typed = catalog.typed(&all).ok_or("no typed form")?;
            let (form, samples) = if rng.bool() {
                let messages: Vec<u8> =
                    message::frames(vec![typed], Delimited::default()).flatten().collect();
                ("protobuf", samples::of_messages(&messages)?)
            } else {
                let layout = [Layout::Lines, Layout::Compact][rng.usize(0..2)];
                let text: Vec<u8> =
                    message::frames(vec![typed], ProtoText::new(layout)).flatten().collect();
                ("protobuf text", samples::of_prototext(&text)?)
            };
            difference(form, &samples, &samples::of_text(body)?)
        }
        2 => {
            let total = rng.u32(1..4);
            let mut union = Samples::new();
            for index in 0..total {
                let shard = Some(VirtualShard { index, total });
                let part = text(catalog, format, &ScrapeQuery { shard, ..ScrapeQuery::default() });
                for (key, value) in samples::of_text(&part)? {
                    if let Some(other) = union.insert(key.clone(), value) {
                        return Err(format!(
                            "{key:?} is in two virtual shards, first as {other:?}"
                        ));
                    }
                }
            }
            difference("virtual shards", &union, &samples::of_text(body)?)
        }
        _ => {
            let namespace = NAMESPACES[rng.usize(..NAMESPACES.len())];
            let namespaces = Some([namespace.to_owned()].into());
            let query = ScrapeQuery { namespaces, ..ScrapeQuery::default() };
            let part = samples::of_text(&text(catalog, format, &query))?;
            let mut expected = samples::of_text(body)?;
            expected
                .retain(|(_, labels), _| labels.get("namespace").is_some_and(|of| of == namespace));
            difference("namespace", &part, &expected)
        }
    }
}

/// Compares a scrape of some families, compressed or not, with the body of all.
fn families(catalog: &Catalog, body: &[u8], rng: &mut Rng) -> Result<(), String> {
    let text = String::from_utf8_lossy(body);
    let all = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let names: BTreeSet<String> = all.filter(|_| rng.bool()).map(str::to_owned).collect();
    let query = ScrapeQuery { names: Some(names.clone()), ..ScrapeQuery::default() };
    let part = match rng.bool() {
        true => inflated(catalog.deflated(Format::Text, &query)),
        false => self::text(catalog, Format::Text, &query),
    };
    let mut expected = samples::of_text(body)?;
    expected.retain(|(name, _), _| names.contains(name));
    difference("families", &samples::of_text(&part)?, &expected)
}
