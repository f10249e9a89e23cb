//! The exposition as deflate, written straight from the templated form.
//!
//! A general compressor finds repetitions by searching; here they are known. A line after the first of
//! an object repeats name and identity of the line before it, and the rest mostly repeats the rest of
//! the line at the same place in the object before. So each line becomes a copy or two and the few bytes
//! that are new, without a search, without the text and without a cache of compressed runs: a gzip scrape
//! leaves nothing behind in memory but, for each object, the bits of its own part of its identity. The
//! Huffman codes are made from a sample of the pages, so they fit the cluster at hand: a resource with many
//! objects has codes of its own, and each family of it with much text has a block of its own, whose code differs
//! from those of the other families in what copies cost.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::body::{Step, Walk, Walked, expand};
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
/// Pages of a resource that its codes are made from.
const SAMPLE: usize = 16;
/// A resource with so many pages has codes of its own.
const LARGE: usize = 8;
/// A family with so many symbols has a block of its own: it saves about 5% of some five bits for each
/// symbol, and the head of a block costs 180 bytes.
const WORTH_A_BLOCK: u64 = 20_000;

/// The parts of a compressed body.
#[derive(Debug)]
pub(super) struct Deflate {
    walk: Walk,
    format: Format,
    /// For each resource, the codes of its text.
    codes: Vec<Arc<ResourceCodes>>,
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
        let codes = codes.of(&resources, format);
        let first =
            codes.first().map_or_else(|| Arc::new(ResourceCodes::new(&[], format)), Arc::clone);
        Self {
            walk: Walk::new(resources, names),
            format,
            writer: BitWriter::new(Arc::clone(&first.any)),
            codes,
            lines: Lines::default(),
            scratch: Vec::new(),
            state: State::Fresh,
        }
    }

    /// Writes one step; tells the checksum of its text.
    fn step(&mut self, step: &Step) -> Checksum {
        let family = self.walk.family(step);
        let Some(page) = &step.page else {
            self.scratch.clear();
            family.header(self.format, &mut self.scratch);
            self.lines.other(&self.scratch, &mut self.writer);
            return Checksum::of(&self.scratch);
        };
        let codes = &self.codes[step.resource];
        let (current, own) = (self.writer.code(), codes.families.get(step.family));
        let change = match own.and_then(Option::as_ref) {
            Some(own) => (!Arc::ptr_eq(own, current)).then_some(own),
            // A block of its own is not worth it, that of the family before will do.
            None if own.is_some() && codes.any.id() == current.id() => None,
            None => (!Arc::ptr_eq(&codes.any, current)).then_some(&codes.any),
        };
        if let Some(code) = change {
            self.lines.flush(&mut self.writer);
            self.writer.change(Arc::clone(code));
        }
        let name = family.name.as_bytes();
        let tails = page.tails(self.writer.code());
        self.lines.segment(name, page, step.family, Some(&tails), &mut self.writer);
        page.checksum(step.family, |page| {
            self.scratch.clear();
            expand(name, page, step.family, &mut self.scratch);
            Checksum::of(&self.scratch)
        })
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
            let step = match self.walk.next() {
                Walked::To(step) => Some(step),
                // A body that stays without text is no block at all.
                Walked::OverNothing if self.state == State::Fresh => {
                    return Some(DeflatePart { bytes: Bytes::new(), crc: 0, text_len: 0 });
                }
                Walked::OverNothing => break,
                Walked::Out => None,
            };
            let Some(step) = step else {
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

fn pages(resource: &Resource) -> usize {
    resource.stores.iter().map(|store| store.pages.len()).sum()
}

/// The codes of a resource, which agree on literals.
#[derive(Debug)]
struct ResourceCodes {
    /// For text of any of its families.
    any: Arc<Code>,
    /// For each family, its own code if that is worth a block.
    families: Vec<Option<Arc<Code>>>,
}

impl ResourceCodes {
    /// From a sample of the pages of some resources. Only those of one resource have codes for families.
    fn new(resources: &[Resource], format: Format) -> Self {
        let mut histograms = Vec::new();
        let mut symbols = Vec::new();
        let mut header = Vec::new();
        for resource in resources {
            let every = (pages(resource) / SAMPLE).max(1);
            for (family, head) in resource.schema.families.iter().enumerate() {
                let mut histogram = Histogram::new();
                let mut lines = Lines::default();
                let pages = resource.stores.iter().flat_map(|store| store.pages.iter());
                for page in pages.step_by(every) {
                    lines.segment(head.name.as_bytes(), page, family, None, &mut histogram);
                }
                symbols.push(histogram.symbols() * every as u64);
                if every == 1 {
                    header.clear();
                    head.header(format, &mut header);
                    histogram.literals(&header);
                }
                histograms.push(histogram);
            }
        }
        let (any, codes) = Code::agreeing(&histograms);
        let apart = resources.len() == 1;
        let families = codes
            .into_iter()
            .zip(symbols)
            .map(|(code, symbols)| (apart && symbols >= WORTH_A_BLOCK).then(|| Arc::new(code)));
        Self { any: Arc::new(any), families: families.collect() }
    }

    /// For resources that are too small for codes of their own.
    fn for_others(&self) -> Self {
        Self { any: Arc::clone(&self.any), families: Vec::new() }
    }
}

/// The codes that scrapes are written with: made from a sample, kept while what they are for is of that
/// size. The key is the resource, or empty for the code of whatever comes before the first large one.
#[derive(Debug, Default)]
pub(super) struct Codes(Mutex<HashMap<String, (usize, Arc<ResourceCodes>)>>);

impl Codes {
    /// The resource has other families from here on, or is gone.
    pub(super) fn forget(&self, resource: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(resource);
    }

    /// The codes of each resource: its own if it is large, else those of the one before it.
    fn of(&self, resources: &[Resource], format: Format) -> Vec<Arc<ResourceCodes>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut get = |name: &str, resources: &[Resource]| {
            let pages = resources.iter().map(pages).sum();
            match kept.get(name) {
                Some((made_of, codes)) if (made_of / 2..=made_of * 2).contains(&pages) => {
                    Arc::clone(codes)
                }
                _ => {
                    let codes = Arc::new(ResourceCodes::new(resources, format));
                    kept.insert(name.to_owned(), (pages, Arc::clone(&codes)));
                    codes
                }
            }
        };
        let mut all: Vec<Arc<ResourceCodes>> = Vec::with_capacity(resources.len());
        for resource in resources {
            all.push(match all.last() {
                _ if pages(resource) >= LARGE => {
                    get(&resource.schema.resource, std::slice::from_ref(resource))
                }
                Some(codes) => Arc::new(codes.for_others()),
                None => Arc::new(get("", resources).for_others()),
            });
        }
        all
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
        let mut before: &[u8] = b"";
        for (slot, lines) in segment.iter().enumerate() {
            let identity = identities.as_mut().and_then(Iterator::next).unwrap_or(b"");
            if !lines.is_empty() {
                let tail = tails.filter(|_| behind).and_then(|tails| tails.get(slot));
                if behind && std::ptr::eq(lines, before) {
                    self.again(name, identity, tail, out);
                } else {
                    self.object(name, identity, lines, tail, out);
                }
            }
            behind = !lines.is_empty();
            before = lines;
        }
    }

    /// An object with the very lines of the one before.
    fn again(
        &mut self,
        name: &[u8],
        identity: &[u8],
        tail: Option<Tail<'_>>,
        out: &mut impl Symbols,
    ) {
        let Self { text, previous, .. } = self;
        let (start, mut line_start, mut begin) = (text.at, text.at, 0);
        for (line, rest) in previous.rests.iter_mut().enumerate() {
            if line > 0 {
                let before = std::mem::replace(&mut line_start, text.at);
                text.copy(before, name, identity, out);
            } else {
                text.head(name, identity, (previous.start, &previous.identity), tail, out);
            }
            let (from, end) = (std::mem::replace(&mut rest.0, text.at), rest.1);
            text.copy(from, b"", &previous.lines[begin..end], out);
            begin = end;
        }
        previous.start = start;
        previous.identity.clear();
        previous.identity.extend_from_slice(identity);
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
            } else {
                text.head(name, identity, (previous.start, &previous.identity), tail, out);
            }
            current.rests.push((text.at, end));
            let rest = &lines[start..end];
            match (previous.rest(line), last) {
                (Some(old), Some(last)) if shares_more(rest, old.1, last.1) => {
                    text.align(b"", rest, old, Some(last), out);
                }
                (other, Some(last)) => text.align(b"", rest, last, other, out),
                (Some(old), None) => text.align(b"", rest, old, None, out),
                (None, None) => text.literals(rest, out),
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

    /// The name and the identity of an object's first line, of which the object before has `old` with its
    /// start; by its tail where that is known.
    #[inline]
    fn head(
        &mut self,
        name: &[u8],
        identity: &[u8],
        (start, old): (u64, &[u8]),
        tail: Option<Tail<'_>>,
        out: &mut impl Symbols,
    ) {
        match tail {
            Some(tail) => self.identity(name, identity, start, tail, out),
            None => self.align(name, identity, (start + name.len() as u64, old), None, out),
        }
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
    /// ends each name and each value. `lead` stands before `old`, too. From where `new` first differs,
    /// `other` is copied from if it goes on like `new` there.
    fn align<'o>(
        &mut self,
        mut lead: &[u8],
        new: &[u8],
        mut old: (u64, &'o [u8]),
        mut other: Option<(u64, &'o [u8])>,
        out: &mut impl Symbols,
    ) {
        let (mut i, mut j) = (0, 0);
        loop {
            let same = common(&new[i..], &old.1[j..]);
            let from = old.0 + j as u64 - lead.len() as u64;
            self.copy(from, lead, &new[i..i + same], out);
            lead = b"";
            (i, j) = (i + same, j + same);
            if i == new.len() {
                return;
            }
            if let Some(other) = other.take()
                && let Some(k) = counterpart(new, i, other.1)
                && common(&new[i..], &other.1[k..]) >= SHORTEST
            {
                (old, j) = (other, k);
                continue;
            }
            let quotes = (memchr::memchr(b'"', &new[i..]), memchr::memchr(b'"', &old.1[j..]));
            let (Some(literals), Some(skipped)) = quotes else {
                return self.end(&new[i..], old.0 + j as u64, &old.1[j..], out);
            };
            self.literals(&new[i..i + literals], out);
            i += literals;
            j += skipped;
        }
    }

    /// Writes the end of a line, whose last bytes may be those of `old`, which stands at `old_at`.
    fn end(&mut self, new: &[u8], old_at: u64, old: &[u8], out: &mut impl Symbols) {
        let pairs = new.iter().rev().zip(old.iter().rev());
        let same = pairs.take_while(|(new, old)| new == old).count();
        let (own, again) = new.split_at(new.len() - same);
        self.literals(own, out);
        self.copy(old_at + (old.len() - same) as u64, b"", again, out);
    }
}

/// Where in `other` the label stands in which `new` is at `i`, as far behind the quote before it.
fn counterpart(new: &[u8], i: usize, other: &[u8]) -> Option<usize> {
    let quotes = memchr::memchr_iter(b'"', &new[..i]);
    let at = match quotes.enumerate().last() {
        None => i,
        Some((n, quote)) => memchr::memchr_iter(b'"', other).nth(n)? + i - quote,
    };
    (at <= other.len()).then_some(at)
}

/// Whether `new` begins with at least as much of `old` as of the line before.
#[inline]
fn shares_more(new: &[u8], old: &[u8], last: &[u8]) -> bool {
    new == old || common(new, old) >= common(new, last)
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
