//! Lines as deflate symbols: what a line has in common with those before it becomes copies.

use super::huffman::{Joined, Run, Symbols};
use super::page::{PAGE, Page};
use super::search::{Found, Search, WINDOW, common};
use super::tails::{Part, Tails};

/// A copy costs about as much as four literals.
const SHORTEST: usize = 4;
/// A copy this long is taken without a look at the next place.
const ENOUGH: usize = 16;
/// So many places without a find make the search for text hastier.
const PATIENCE: usize = 8;
/// A copy from the same place of the line compared with is taken without a search if it is this long.
const LONG: usize = 24;

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

/// How the series of a family are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner<'a> {
    /// What is known of the identities of the page.
    pub(super) tails: &'a Tails,
    /// The code that is written with, or 0 if none is known yet.
    pub(super) code: u64,
    /// Whether text that the template does not foretell is searched for.
    pub(super) search: bool,
}

/// Turns lines into symbols.
#[derive(Debug)]
pub(super) struct Lines {
    text: Text,
    /// The name of the family that `previous` wrote into.
    family: Vec<u8>,
    previous: Written,
    current: Written,
    /// Where the lines of each object of the page begin.
    starts: [u64; PAGE],
    search: Option<Box<Search>>,
}

/// The place of an object without lines.
const NOWHERE: u64 = u64::MAX;

impl Default for Lines {
    fn default() -> Self {
        Self {
            text: Text::default(),
            family: Vec::new(),
            previous: Written::default(),
            current: Written::default(),
            starts: [NOWHERE; PAGE],
            search: None,
        }
    }
}

impl Lines {
    /// Text that is no series.
    pub(super) fn other(&mut self, text: &[u8], out: &mut impl Symbols) {
        self.text.literals(text, out);
    }

    /// Nothing that comes is to copy from what was written so far.
    pub(super) fn part(&mut self) {
        self.previous.rests.clear();
        if let Some(search) = &mut self.search {
            search.restart(self.text.at);
        }
    }

    /// So much text is written without these lines; nothing that comes copies from it.
    pub(super) fn pass(&mut self, text: u64) {
        self.text.at += text;
        self.part();
    }

    /// Writes what is held back.
    pub(super) fn flush(&mut self, out: &mut impl Symbols) {
        self.text.joined.flush(out);
    }

    /// The series of one family of one page, from the object in slot `from` on; tells where to go on if
    /// `out` became full before the last one.
    pub(super) fn segment(
        &mut self,
        name: &[u8],
        page: &Page,
        (family, from): (usize, usize),
        manner: Manner<'_>,
        out: &mut impl Symbols,
    ) -> Option<usize> {
        let segment = page.family(family)?;
        if self.family != name {
            self.family.clear();
            self.family.extend_from_slice(name);
            self.previous.rests.clear();
        }
        if from == 0 {
            self.starts = [NOWHERE; PAGE];
        }
        let mut search = self.search.take();
        if manner.search {
            let search = search.get_or_insert_with(|| Box::new(Search::new()));
            if search.end() != self.text.at {
                search.restart(self.text.at);
            }
        }
        let mut identities = page.identities().map(|identities| identities.iter());
        // Whether the object before has lines too, so that its identity is what stands before.
        let mut behind = false;
        let mut before: &[u8] = b"";
        let mut rest = None;
        for (slot, lines) in segment.iter().enumerate() {
            let identity = identities.as_mut().and_then(Iterator::next).unwrap_or(b"");
            if !lines.is_empty() && slot >= from {
                if out.full() {
                    rest = Some(slot);
                    break;
                }
                let search = search.as_deref_mut().filter(|_| manner.search);
                let head = Head { name, identity, slot, tails: behind.then_some(manner) };
                if behind && std::ptr::eq(lines, before) {
                    self.again(head, search, out);
                } else {
                    self.object(head, lines, search, out);
                }
            }
            behind = !lines.is_empty();
            before = lines;
        }
        self.search = search;
        rest
    }

    /// An object with the very lines of the one before.
    fn again(&mut self, head: Head<'_>, mut search: Option<&mut Search>, out: &mut impl Symbols) {
        let Self { text, previous, starts, .. } = self;
        let (start, mut line_start, mut begin) = (text.at, text.at, 0);
        if let Some(search) = &mut search {
            search.trim();
        }
        for (line, rest) in previous.rests.iter_mut().enumerate() {
            let end = rest.1;
            if let Some(search) = &mut search {
                for part in [head.name, head.identity, &previous.lines[begin..end]] {
                    search.push(part);
                }
            }
            if line > 0 {
                let before = std::mem::replace(&mut line_start, text.at);
                text.copy(before, head.name, head.identity, out);
            } else {
                text.head(head, (previous.start, &previous.identity), starts, out);
            }
            let from = std::mem::replace(&mut rest.0, text.at);
            text.copy(from, b"", &previous.lines[begin..end], out);
            begin = end;
        }
        starts[head.slot] = start;
        previous.start = start;
        previous.identity.clear();
        previous.identity.extend_from_slice(head.identity);
    }

    fn object(
        &mut self,
        head: Head<'_>,
        lines: &[u8],
        mut search: Option<&mut Search>,
        out: &mut impl Symbols,
    ) {
        let Self { text, previous, current, starts, .. } = self;
        current.start = text.at;
        current.rests.clear();
        let (mut line_start, mut start) = (text.at, 0);
        // Where the rest of the line before stands in the text, and what it is.
        let mut last: Option<(u64, &[u8])> = None;
        for (line, newline) in memchr::memchr_iter(b'\n', lines).enumerate() {
            let end = newline + 1;
            let rest = &lines[start..end];
            let mut search = search.as_deref_mut();
            if let Some(search) = &mut search {
                search.trim();
                [head.name, head.identity, rest].into_iter().for_each(|part| search.push(part));
            }
            if line > 0 {
                let before = std::mem::replace(&mut line_start, text.at);
                text.copy(before, head.name, head.identity, out);
            } else if previous.rests.is_empty() {
                text.literals(head.name, out);
                text.literals(head.identity, out);
            } else {
                text.head(head, (previous.start, &previous.identity), starts, out);
            }
            current.rests.push((text.at, end));
            match (previous.rest(line), last) {
                (Some(old), Some(last)) if shares_more(rest, old.1, last.1) => {
                    text.align((b"", rest), old, Some(last), search, out);
                }
                (other, Some(last)) => text.align((b"", rest), last, other, search, out),
                (Some(old), None) => text.align((b"", rest), old, None, search, out),
                (None, None) => text.align((b"", rest), (text.at, b""), None, search, out),
            }
            last = current.rests.last().map(|&(at, _)| (at, rest));
            start = end;
        }
        starts[head.slot] = current.start;
        current.identity.clear();
        current.identity.extend_from_slice(head.identity);
        current.lines.clear();
        current.lines.extend_from_slice(lines);
        std::mem::swap(previous, current);
    }
}

/// What an object's first line begins with.
#[derive(Clone, Copy)]
struct Head<'a> {
    name: &'a [u8],
    identity: &'a [u8],
    /// The place of the object in its page.
    slot: usize,
    /// Given if the object before has lines too.
    tails: Option<Manner<'a>>,
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
    /// start; by what is known of it where there is something.
    #[inline]
    fn head(
        &mut self,
        head: Head<'_>,
        (start, old): (u64, &[u8]),
        starts: &[u64; PAGE],
        out: &mut impl Symbols,
    ) {
        let Head { name, identity, slot, tails } = head;
        let mut parts =
            tails.and_then(|manner| manner.tails.get(slot, manner.code)).map(Iterator::peekable);
        let like = parts.as_mut().and_then(|parts| slot.checked_sub(parts.peek()?.back));
        let near = like.is_some_and(|like| {
            let start = starts[like];
            start != NOWHERE && self.at - start <= WINDOW
        });
        match parts.filter(|_| near) {
            Some(parts) => self.identity(head, parts, starts, out),
            None => {
                let old = (start + name.len() as u64, old);
                self.align((name, identity), old, None, None, out);
            }
        }
    }

    /// The same by the parts that are known.
    #[inline]
    fn identity<'p>(
        &mut self,
        head: Head<'_>,
        parts: impl Iterator<Item = Part<'p>>,
        starts: &[u64; PAGE],
        out: &mut impl Symbols,
    ) {
        let Head { name, mut identity, slot, .. } = head;
        let mut lead = name;
        for part in parts {
            let own = take(&mut identity, part.own);
            match part.bits {
                Some(bits) => self.known(bits, own, out),
                None => self.literals(own, out),
            }
            let again = take(&mut identity, part.len);
            let skipped = if lead.is_empty() { name.len() } else { 0 } + part.from;
            let lead = std::mem::take(&mut lead);
            match slot.checked_sub(part.back).map(|slot| starts[slot]) {
                Some(start) if start != NOWHERE => {
                    self.copy(start + skipped as u64, lead, again, out);
                }
                _ => {
                    self.literals(lead, out);
                    self.literals(again, out);
                }
            }
        }
    }

    /// Writes `lead` and `new`, copying what `old` has at the same place: label by label, as a quote
    /// ends each name and each value. `lead` stands before `old`, too. From where `new` first differs,
    /// `other` is copied from if it goes on like `new` there. What neither has may be searched for.
    fn align<'o>(
        &mut self,
        (mut lead, new): (&[u8], &[u8]),
        mut old: (u64, &'o [u8]),
        mut other: Option<(u64, &'o [u8])>,
        mut search: Option<&mut Search>,
        out: &mut impl Symbols,
    ) {
        let (mut i, mut j) = (0, 0);
        loop {
            let mut same = common(&new[i..], &old.1[j..]);
            // How far text is not that of `old`, at least.
            let mut apart = if j < old.1.len() { i + same } else { i + 1 };
            if let Some(search) = search.as_deref_mut() {
                let short = same < LONG && i + same < new.len();
                match search.find_label(self.at).filter(|found| short && found.len > same + 3) {
                    Some(_) => (same, apart) = (0, i + 1),
                    None => self.insert_labels(&new[i..i + same], search),
                }
            }
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
            let last = || memchr::memchr(b'"', &new[i..]).is_none();
            if let Some(search) = search.as_deref_mut()
                && !(new.len() - i < LONG && last())
            {
                let passed;
                (i, passed) = self.seek(new, i, apart, search, out);
                if i == new.len() {
                    return;
                }
                let quote = memchr::memchr_iter(b'"', &old.1[j..]).nth(passed);
                j = quote.map_or(old.1.len(), |at| j + at);
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

    /// Makes the labels of a text that is copied known.
    fn insert_labels(&mut self, text: &[u8], search: &mut Search) {
        for at in memchr::memchr_iter(b'"', text) {
            search.insert_label(self.at + at as u64);
        }
    }

    /// Writes `new` from `i` on, by search, up to the first quote at `apart` or behind it that no copy
    /// passes, or to the end. Tells where that is, and how many quotes were passed.
    fn seek(
        &mut self,
        new: &[u8],
        i: usize,
        apart: usize,
        search: &mut Search,
        out: &mut impl Symbols,
    ) -> (usize, usize) {
        let line = self.at - i as u64;
        let (mut at, mut written, mut apart) = (i, i, apart.max(i));
        let mut missed = 0;
        loop {
            let stop = memchr::memchr(b'"', &new[apart..]).map_or(new.len(), |quote| apart + quote);
            while at < stop {
                let here = line + at as u64;
                let mut found = better(new[at] == b'"', search, here);
                search.insert(here);
                if new[at] == b'"' {
                    search.insert_label(here);
                }
                if let Some(first) = found
                    && first.len < ENOUGH
                    && let Some(next) = search.find(here + 1)
                    && next.len > first.len + 1
                {
                    found = None;
                }
                let Some(Found { at: from, len }) = found else {
                    // In text that nothing is found of, such as a hash, fewer and fewer places are tried.
                    missed += 1;
                    at = (at + 1 + missed / PATIENCE).min(stop);
                    continue;
                };
                missed = 0;
                let len = len.min(new.len() - at);
                self.literals(&new[written..at], out);
                self.copy(from, b"", &new[at..at + len], out);
                for (behind, byte) in (here + 1..).zip(&new[at + 1..at + len]) {
                    search.insert(behind);
                    if *byte == b'"' {
                        search.insert_label(behind);
                    }
                }
                at += len;
                written = at;
            }
            if at == new.len() || new[at] == b'"' {
                self.literals(&new[written..at], out);
                return (at, memchr::memchr_iter(b'"', &new[i..at]).count());
            }
            apart = at;
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

/// What is found at `at`, which may be the start of a label.
#[inline]
fn better(label: bool, search: &Search, at: u64) -> Option<Found> {
    label.then(|| search.find_label(at)).flatten().or_else(|| search.find(at))
}

/// Takes the first `len` bytes off.
fn take<'t>(text: &mut &'t [u8], len: usize) -> &'t [u8] {
    let (first, rest) = text.split_at(len.min(text.len()));
    *text = rest;
    first
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
