//! The exposition as deflate, written straight from the templated form.
//!
//! A general compressor finds repetitions by searching; here they are known. A line after the first of
//! an object repeats name and identity of the line before it, and the rest mostly repeats the rest of
//! the line at the same place in the object before. So each line becomes a copy or two and the few bytes
//! that are new, without a search, without the text and without a cache of compressed runs: a gzip scrape
//! leaves nothing behind in memory but, for each object, the bits of its own part of its identity. The
//! Huffman code is made from a sample of the segments, so it fits the cluster at hand.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::body::{Step, Walk, expand};
use super::catalog::Resource;
use super::crc::Checksum;
use super::huffman::{BitWriter, Code, Histogram, Joined, Run, Symbols};
use super::page::Page;
use crate::exposition::{DeflatePart, Format};

/// A part is handed out when it has this many bytes.
const PART: usize = 32 * 1024;
/// How far back deflate can copy from.
const WINDOW: u64 = 32 * 1024;
/// A copy costs about as much as four literals.
const SHORTEST: usize = 4;
/// Segments that the code is made from.
const SAMPLE: usize = 256;

/// The parts of a compressed body.
#[derive(Debug)]
pub(super) struct Deflate {
    walk: Walk,
    format: Format,
    writer: BitWriter,
    lines: Lines,
    scratch: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing has been written but the head of the block.
    Fresh,
    Running,
    Done,
}

impl Deflate {
    pub(super) fn new(
        resources: Vec<Resource>,
        format: Format,
        names: Option<BTreeSet<String>>,
        codes: &Codes,
    ) -> Self {
        let resources: Arc<[Resource]> = resources.into();
        let code = codes.get(&resources, || sample(&resources, format, names.as_ref()));
        Self {
            walk: Walk::new(resources, names),
            format,
            writer: BitWriter::new(code),
            lines: Lines::default(),
            scratch: Vec::new(),
            state: State::Fresh,
        }
    }

    /// Writes one step; tells the checksum of its text.
    fn step(&mut self, step: &Step) -> Checksum {
        match step {
            Step::Header(schema, family) => {
                self.scratch.clear();
                schema.families[*family].header(self.format, &mut self.scratch);
                self.lines.other(&self.scratch, &mut self.writer);
                Checksum::of(&self.scratch)
            }
            Step::Segment(schema, family, page) => {
                let name = schema.families[*family].name.as_bytes();
                let tails = page.tails(self.writer.code());
                self.lines.segment(name, page, *family, Some(&tails), &mut self.writer);
                page.checksum(*family, |page| {
                    self.scratch.clear();
                    expand(name, page, *family, &mut self.scratch);
                    Checksum::of(&self.scratch)
                })
            }
        }
    }
}

impl Iterator for Deflate {
    type Item = DeflatePart;

    fn next(&mut self) -> Option<DeflatePart> {
        if self.state == State::Done {
            return None;
        }
        let mut sum = Checksum::default();
        while self.writer.len() < PART {
            let Some(step) = self.walk.next() else {
                let empty = self.state == State::Fresh;
                self.state = State::Done;
                if empty {
                    return None;
                }
                self.lines.flush(&mut self.writer);
                self.writer.finish();
                break;
            };
            self.state = State::Running;
            let checksum = self.step(&step);
            sum.append(checksum);
        }
        let bytes = Bytes::from(self.writer.take());
        Some(DeflatePart { bytes, crc: sum.crc, text_len: sum.len })
    }
}

/// A code for the symbols of about [`SAMPLE`] segments, spread evenly.
fn sample(resources: &Arc<[Resource]>, format: Format, names: Option<&BTreeSet<String>>) -> Code {
    let segments: usize = resources
        .iter()
        .map(|resource| {
            let pages: usize = resource.stores.iter().map(|store| store.pages.len()).sum();
            pages * resource.schema.families.len()
        })
        .sum();
    let every = (segments / SAMPLE).max(1);
    let mut histogram = Histogram::new();
    let mut lines = Lines::default();
    let mut walk = Walk::new(Arc::clone(resources), names.cloned());
    let mut header = Vec::new();
    let mut seen = 0usize;
    while let Some(step) = walk.next() {
        match step {
            Step::Header(schema, family) if every == 1 => {
                header.clear();
                schema.families[family].header(format, &mut header);
                lines.other(&header, &mut histogram);
            }
            Step::Header(..) => {}
            Step::Segment(schema, family, page) => {
                if seen.is_multiple_of(every) {
                    lines.segment(
                        schema.families[family].name.as_bytes(),
                        &page,
                        family,
                        None,
                        &mut histogram,
                    );
                }
                seen += 1;
            }
        }
    }
    Code::new(&histogram)
}

/// The code that scrapes are written with: made from a sample, kept while the cluster is of that size.
#[derive(Debug, Default)]
pub(super) struct Codes(Mutex<Option<(usize, Arc<Code>)>>);

impl Codes {
    fn get(&self, resources: &[Resource], make: impl FnOnce() -> Code) -> Arc<Code> {
        let stores = resources.iter().flat_map(|resource| &resource.stores);
        let pages: usize = stores.map(|store| store.pages.len()).sum();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some((made_of, code)) if (made_of / 2..=made_of * 2).contains(&pages) => {
                Arc::clone(code)
            }
            _ => Arc::clone(&kept.insert((pages, Arc::new(make()))).1),
        }
    }
}

/// For each object of a page, how its identity differs from that of the object before: the same in every
/// family, and the bulk of what is new in most.
#[derive(Debug)]
pub(super) struct Tails {
    /// The code that the bits are of.
    code: u64,
    words: Box<[u64]>,
    objects: Box<[Difference]>,
}

/// An identity is: `same` bytes that the one before begins with, `own` bytes, `again` bytes that the one
/// before has `shift` bytes further back than its start would put them, and the rest.
#[derive(Clone, Copy, Debug)]
struct Difference {
    same: u16,
    own: u16,
    again: u16,
    shift: i16,
    /// Where the words of `own` and those of the rest end, and how many bits their last ones hold.
    own_end: u16,
    rest_end: u16,
    own_last: u8,
    rest_last: u8,
}

impl Tails {
    /// Of these identities; those too long to be noted are left out with all behind them.
    pub(super) fn new<'p>(code: &Code, identities: impl Iterator<Item = &'p [u8]>) -> Self {
        let (mut words, mut objects) = (Vec::new(), Vec::new());
        let mut before: &[u8] = b"";
        for identity in identities {
            let Some(difference) = Difference::new(code, identity, before, &mut words) else {
                break;
            };
            objects.push(difference);
            before = identity;
        }
        Self { code: code.id(), words: words.into(), objects: objects.into() }
    }

    /// Whether the bits are of this code.
    pub(super) fn are_of(&self, code: &Code) -> bool {
        self.code == code.id()
    }

    /// How the identity of `slot` differs, with the bits of its own bytes and of the rest.
    fn get(&self, slot: usize) -> Option<Tail<'_>> {
        let difference = *self.objects.get(slot)?;
        let start = slot.checked_sub(1).map_or(0, |before| self.objects[before].rest_end);
        let run = |from: u16, to: u16, last: u8| Run {
            words: &self.words[usize::from(from)..usize::from(to)],
            last: u32::from(last),
        };
        let own = run(start, difference.own_end, difference.own_last);
        let rest = run(difference.own_end, difference.rest_end, difference.rest_last);
        Some(Tail { difference, own, rest })
    }
}

#[derive(Clone, Copy, Debug)]
struct Tail<'a> {
    difference: Difference,
    own: Run<'a>,
    rest: Run<'a>,
}

impl Difference {
    fn new(code: &Code, new: &[u8], old: &[u8], words: &mut Vec<u64>) -> Option<Self> {
        let same = common(new, old);
        let quote = |text: &[u8]| memchr::memchr(b'"', &text[same..]).map(|at| same + at);
        let (own_end, again, shift) = match (quote(new), quote(old)) {
            (Some(at), Some(old_at)) => {
                let again = common(&new[at..], &old[old_at..]);
                let again = if again < SHORTEST { 0 } else { again };
                (at, again, i16::try_from(at as i64 - old_at as i64).ok()?)
            }
            _ => (new.len(), 0, 0),
        };
        let own_last = code.run(&new[same..own_end], words);
        let own_words = words.len();
        let rest_last = code.run(&new[own_end + again..], words);
        Some(Self {
            same: u16::try_from(same).ok()?,
            own: u16::try_from(own_end - same).ok()?,
            again: u16::try_from(again).ok()?,
            shift,
            own_end: u16::try_from(own_words).ok()?,
            rest_end: u16::try_from(words.len()).ok()?,
            own_last: own_last as u8,
            rest_last: rest_last as u8,
        })
    }
}

/// What an object wrote into a family: what the next one's lines are compared with.
#[derive(Debug, Default)]
struct Written {
    identity: Vec<u8>,
    lines: Vec<u8>,
    /// Where its first line begins in the text.
    start: u64,
    /// For each line, where its rest begins in the text, and where it ends in `lines`.
    rests: Vec<(u64, usize)>,
}

impl Written {
    fn rest(&self, line: usize) -> Option<(u64, &[u8])> {
        let &(at, end) = self.rests.get(line)?;
        let start = line.checked_sub(1).map_or(0, |before| self.rests[before].1);
        Some((at, &self.lines[start..end]))
    }
}

/// Turns lines into symbols.
#[derive(Debug, Default)]
struct Lines {
    text: Text,
    /// The name of the family that `previous` wrote into.
    family: Vec<u8>,
    previous: Written,
    current: Written,
}

impl Lines {
    /// Text that is no series.
    fn other(&mut self, text: &[u8], out: &mut impl Symbols) {
        self.text.literals(text, out);
    }

    /// Writes what is held back.
    fn flush(&mut self, out: &mut impl Symbols) {
        self.text.joined.flush(out);
    }

    /// The series of one family of one page.
    fn segment(
        &mut self,
        name: &[u8],
        page: &Page,
        family: usize,
        tails: Option<&Tails>,
        out: &mut impl Symbols,
    ) {
        let Some(segment) = page.family(family) else { return };
        if self.family != name {
            self.family.clear();
            self.family.extend_from_slice(name);
            self.previous.rests.clear();
        }
        let mut identities = page.identities().map(|identities| identities.iter());
        // Whether the object before has lines too, so that its identity is what stands before.
        let mut behind = false;
        for (slot, lines) in segment.iter().enumerate() {
            let identity = identities.as_mut().and_then(Iterator::next).unwrap_or(b"");
            if !lines.is_empty() {
                let tail = tails.filter(|_| behind).and_then(|tails| tails.get(slot));
                self.object(name, identity, lines, tail, out);
            }
            behind = !lines.is_empty();
        }
    }

    fn object(
        &mut self,
        name: &[u8],
        identity: &[u8],
        lines: &[u8],
        tail: Option<Tail<'_>>,
        out: &mut impl Symbols,
    ) {
        let Self { text, previous, current, .. } = self;
        current.start = text.at;
        current.rests.clear();
        let (mut line_start, mut start) = (text.at, 0);
        // Where the rest of the line before stands in the text, and what it is.
        let mut last: Option<(u64, &[u8])> = None;
        for (line, newline) in memchr::memchr_iter(b'\n', lines).enumerate() {
            let end = newline + 1;
            if line > 0 {
                let before = std::mem::replace(&mut line_start, text.at);
                text.copy(before, name, identity, out);
            } else if previous.rests.is_empty() {
                text.literals(name, out);
                text.literals(identity, out);
            } else if let Some(tail) = tail {
                text.identity(name, identity, previous.start, tail, out);
            } else {
                text.align(name, identity, &previous.identity, previous.start, out);
            }
            current.rests.push((text.at, end));
            let rest = &lines[start..end];
            let same_place = previous.rest(line).filter(|(_, old)| shares_more(rest, old, last));
            match same_place.or(last) {
                Some((at, old)) => text.align(b"", rest, old, at, out),
                None => text.literals(rest, out),
            }
            last = current.rests.last().map(|&(at, _)| (at, rest));
            start = end;
        }
        current.identity.clear();
        current.identity.extend_from_slice(identity);
        current.lines.clear();
        current.lines.extend_from_slice(lines);
        std::mem::swap(previous, current);
    }
}

/// The text that the symbols stand for, of which only the length is kept.
#[derive(Debug, Default)]
struct Text {
    at: u64,
    joined: Joined,
}

impl Text {
    fn literals(&mut self, bytes: &[u8], out: &mut impl Symbols) {
        if !bytes.is_empty() {
            self.joined.flush(out);
            out.literals(bytes);
            self.at += bytes.len() as u64;
        }
    }

    fn known(&mut self, bits: Run<'_>, bytes: &[u8], out: &mut impl Symbols) {
        if !bytes.is_empty() {
            self.joined.flush(out);
            out.known(bits, bytes);
            self.at += bytes.len() as u64;
        }
    }

    /// `lead` and `rest`, which also stand one behind the other at `from`.
    #[inline]
    fn copy(&mut self, from: u64, lead: &[u8], rest: &[u8], out: &mut impl Symbols) {
        let (distance, len) = (self.at - from, lead.len() + rest.len());
        if distance > WINDOW || len < SHORTEST {
            self.literals(lead, out);
            return self.literals(rest, out);
        }
        self.at += len as u64;
        self.joined.copy(len, distance as usize, out);
    }

    /// The name and the identity of an object's first line; the object before begins at `from`.
    #[inline]
    fn identity(
        &mut self,
        name: &[u8],
        new: &[u8],
        from: u64,
        tail: Tail<'_>,
        out: &mut impl Symbols,
    ) {
        let Difference { same, own, again, shift, .. } = tail.difference;
        let start = self.at;
        let (head, new) = new.split_at(usize::from(same));
        self.copy(from, name, head, out);
        let (own, new) = new.split_at(usize::from(own));
        self.known(tail.own, own, out);
        let (again, rest) = new.split_at(usize::from(again));
        if !again.is_empty() {
            // As far back as the first lines are apart, and as the identities differ in length so far.
            let distance = (start - from).saturating_add_signed(i64::from(shift));
            self.copy(self.at.saturating_sub(distance), again, b"", out);
        }
        self.known(tail.rest, rest, out);
    }

    /// Writes `lead` and `new`, copying what `old` has at the same place: label by label, as a quote
    /// ends each name and each value. At `from` stand `lead` and `old`.
    fn align(&mut self, lead: &[u8], new: &[u8], old: &[u8], from: u64, out: &mut impl Symbols) {
        let (mut i, mut j) = (0, 0);
        let (mut lead, mut from) = (lead, from);
        let old_at = from + lead.len() as u64;
        loop {
            let same = common(&new[i..], &old[j..]);
            self.copy(from, lead, &new[i..i + same], out);
            (i, j) = (i + same, j + same);
            if i == new.len() {
                return;
            }
            let Some(old_quote) = memchr::memchr(b'"', &old[j..]) else {
                return self.literals(&new[i..], out);
            };
            let literals = memchr::memchr(b'"', &new[i..]).unwrap_or(new.len() - i);
            self.literals(&new[i..i + literals], out);
            i += literals;
            j += old_quote;
            (lead, from) = (b"", old_at + j as u64);
        }
    }
}

/// Whether `new` begins with at least as much of `old` as of the line before.
#[inline]
fn shares_more(new: &[u8], old: &[u8], last: Option<(u64, &[u8])>) -> bool {
    new == old || last.is_none_or(|(_, last)| common(new, old) >= common(new, last))
}

/// How many bytes at the start of both are equal.
#[inline]
fn common(a: &[u8], b: &[u8]) -> usize {
    let mut len = 0;
    for (x, y) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        let difference = word(x) ^ word(y);
        if difference != 0 {
            return len + (difference.trailing_zeros() / 8) as usize;
        }
        len += 8;
    }
    len + a[len..].iter().zip(&b[len..]).take_while(|(x, y)| x == y).count()
}

fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
