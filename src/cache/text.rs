//! The text of a body as it becomes symbols: what it copies, and from where.

use super::page::{PAGE, Page};
use super::search::{Found, Search, WINDOW, common, first, nth};
use super::symbols::{Joined, Run, Stream, Symbols};
use super::tails::{Parts, Plain, Tails};

/// A copy costs about as much as four literals.
pub(super) const SHORTEST: usize = 4;
/// A copy this long is taken without a look at the next place.
const ENOUGH: usize = 16;
/// So many places without a find make the search for text hastier.
const PATIENCE: usize = 8;
/// An object with less text than this (in bytes) is written in one go.
pub(super) const SMALL: usize = 4 * 1024;
/// A copy from the same place of the line compared with is taken without a search if it is this long.
const LONG: usize = 24;

/// Where the lines of each object of a page begin.
#[derive(Debug)]
pub(super) struct Starts {
    at: [u64; PAGE],
    /// Which of them have lines, a bit each.
    present: u64,
}

impl Starts {
    pub(super) fn new() -> Self {
        Self { at: [0; PAGE], present: 0 }
    }

    /// None has lines.
    pub(super) fn clear(&mut self) {
        self.present = 0;
    }

    #[inline]
    pub(super) fn set(&mut self, slot: usize, at: u64) {
        self.at[slot] = at;
        self.present |= 1 << slot;
    }

    fn get(&self, slot: usize) -> Option<u64> {
        (self.present >> slot & 1 == 1).then(|| self.at[slot])
    }

    /// Whether all that an identity copies from has lines within reach, also when so many bytes more are written at
    /// `at`.
    #[inline]
    pub(super) fn reach(&self, plain: &Plain<'_>, at: u64, len: usize) -> bool {
        let first = plain.from.trailing_zeros() as usize;
        plain.from & !self.present == 0
            && self.at.get(first).is_some_and(|start| at + len as u64 - start <= WINDOW)
    }
}

/// The text of an object that the next one's lines are compared with.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) identity: Vec<u8>,
    pub(super) lines: Vec<u8>,
}

impl Kept {
    /// Keeps another object.
    pub(super) fn replace(&mut self, identity: &[u8], lines: &[u8]) {
        self.identity.clear();
        self.identity.extend_from_slice(identity);
        self.lines.clear();
        self.lines.extend_from_slice(lines);
    }
}

/// The object whose lines those of the next one are compared with.
#[derive(Clone, Copy)]
pub(super) struct Written<'a> {
    pub(super) page: &'a Page,
    /// Its slot, unless it is of the page before.
    pub(super) slot: Option<usize>,
    pub(super) lines: &'a [u8],
    /// What is kept of the page before.
    pub(super) kept: &'a Kept,
}

impl<'a> Written<'a> {
    pub(super) fn identity(&self) -> &'a [u8] {
        self.slot.map_or(&self.kept.identity, |slot| self.page.identity(slot))
    }
}

/// What an object's first line begins with.
pub(super) struct Head<'a> {
    pub(super) name: &'a [u8],
    pub(super) page: &'a Page,
    /// The place of the object in its page.
    pub(super) slot: usize,
    /// What is known of identities. Given if the object before has lines too.
    pub(super) tails: Option<&'a Tails>,
    /// Whether the bits of these are of the code that is written with.
    pub(super) known: bool,
}

impl<'a> Head<'a> {
    /// What is known of identities, if plain ones can be written by it.
    #[inline]
    pub(super) fn plain_tails(&self) -> Option<&'a Tails> {
        self.tails.filter(|_| self.known && self.name.len() >= SHORTEST)
    }

    /// The identity itself, which is looked for: what is known of it does mostly without.
    pub(super) fn identity(&self) -> &'a [u8] {
        self.page.identity(self.slot)
    }
}

/// The text that the symbols stand for, of which only the length is kept.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Text {
    pub(super) at: u64,
    pub(super) joined: Joined,
}

impl Text {
    /// Goes on with what is held back and so many bytes of text.
    #[inline]
    pub(super) fn quick<'o, S: Stream>(&mut self, len: usize, out: &'o mut S) -> S::Quick<'o> {
        // A copy of many lines may be much longer than what comes now.
        if self.joined.len() > SMALL {
            self.joined.flush(out);
        }
        out.quick(self.joined.len() + len)
    }

    pub(super) fn literals(&mut self, bytes: &[u8], out: &mut impl Symbols) {
        self.literals_here(bytes, out);
    }

    #[inline(always)]
    pub(super) fn literals_here(&mut self, bytes: &[u8], out: &mut impl Symbols) {
        if !bytes.is_empty() {
            self.joined.flush(out);
            out.literals(bytes);
            self.at += bytes.len() as u64;
        }
    }

    #[inline(always)]
    fn known(&mut self, bits: Run<'_>, len: usize, out: &mut impl Symbols) {
        self.joined.flush(out);
        out.known(bits);
        self.at += len as u64;
    }

    /// So many bytes, which also stand at `from`. Tells whether they were written: few of them, or those of
    /// a place out of reach, are no copy.
    #[inline]
    fn copied(&mut self, from: u64, len: usize, out: &mut impl Symbols) -> bool {
        let distance = self.at - from;
        if distance > WINDOW || len < SHORTEST {
            return false;
        }
        self.at += len as u64;
        self.joined.copy(len, distance as usize, out);
        true
    }

    /// So many bytes, at least [`SHORTEST`], that also stand at `from`, which is within reach.
    #[inline(always)]
    pub(super) fn copy_near(&mut self, from: u64, len: usize, out: &mut impl Symbols) {
        let distance = (self.at - from) as usize;
        self.at += len as u64;
        self.joined.copy(len, distance, out);
    }

    /// The name and the identity of an object whose parts are plain.
    #[inline(always)]
    pub(super) fn identity_plain(
        &mut self,
        name: &[u8],
        slot: usize,
        parts: Parts<'_>,
        starts: &Starts,
        out: &mut impl Symbols,
    ) {
        // The first copy begins with the name, the others behind it.
        let (mut lead, mut skipped) = (name.len(), 0);
        for part in parts {
            if part.own > 0 {
                self.known(part.bits, part.own, out);
            }
            let len = std::mem::take(&mut lead) + part.len;
            if len > 0 {
                let start = starts.at[slot - part.back];
                self.copy_near(start + (skipped + part.from) as u64, len, out);
            }
            skipped = name.len();
        }
    }

    /// `lead` and `rest`, which also stand one behind the other at `from`.
    #[inline]
    pub(super) fn copy(&mut self, from: u64, lead: &[u8], rest: &[u8], out: &mut impl Symbols) {
        if !self.copied(from, lead.len() + rest.len(), out) {
            self.literals(lead, out);
            self.literals(rest, out);
        }
    }

    /// The name and the identity, of so many bytes, of a line behind the first, which begins like the one at
    /// `from`.
    #[inline]
    pub(super) fn copy_head(
        &mut self,
        from: u64,
        head: &Head<'_>,
        identity: usize,
        out: &mut impl Symbols,
    ) {
        if !self.copied(from, head.name.len() + identity, out) {
            self.literals(head.name, out);
            self.literals(head.identity(), out);
        }
    }

    /// The name and the identity of an object's first line, of which the object before has its own at the
    /// start; by what is known of it where there is something. Tells the length of the identity.
    #[inline]
    pub(super) fn head(
        &mut self,
        head: &Head<'_>,
        (start, written): (u64, &Written<'_>),
        starts: &Starts,
        out: &mut impl Symbols,
    ) -> usize {
        let parts = head.tails.and_then(|tails| tails.get(head.slot));
        let like = parts.as_ref().and_then(|parts| head.slot.checked_sub(parts.back()?));
        let like = like.and_then(|like| starts.get(like));
        let near = like.is_some_and(|start| self.at - start <= WINDOW);
        match parts {
            Some(parts) if near => self.identity(head, parts, starts, out),
            _ => {
                let (own, old) = (head.identity(), written.identity());
                let old = ((start + head.name.len() as u64, old), common(own, old));
                self.align((head.name, own), old, None, None, out);
                own.len()
            }
        }
    }

    /// The same by the parts that are known.
    #[inline]
    fn identity(
        &mut self,
        head: &Head<'_>,
        parts: Parts<'_>,
        starts: &Starts,
        out: &mut impl Symbols,
    ) -> usize {
        let (mut lead, mut done) = (head.name, 0);
        for part in parts {
            if part.own > 0 {
                let own = done..done + part.own;
                match head.known {
                    true => self.known(part.bits, part.own, out),
                    false => self.literals(&head.identity()[own], out),
                }
                done += part.own;
            }
            let again = done..done + part.len;
            done += part.len;
            let skipped = if lead.is_empty() { head.name.len() } else { 0 } + part.from;
            let lead = std::mem::take(&mut lead);
            let start = head.slot.checked_sub(part.back).and_then(|slot| starts.get(slot));
            let from = start.map(|start| start + skipped as u64);
            if !from.is_some_and(|from| self.copied(from, lead.len() + part.len, out)) {
                self.literals(lead, out);
                if part.len > 0 {
                    self.literals(&head.identity()[again], out);
                }
            }
        }
        done
    }

    /// Writes `lead` and `new`, copying what `old` has at the same place: label by label, as a quote
    /// ends each name and each value. `lead` stands before `old`, too. From where `new` first differs,
    /// `other` is copied from if it goes on like `new` there. What neither has may be searched for. Beside
    /// both is how many bytes they begin with of `new`.
    pub(super) fn align<'o>(
        &mut self,
        (mut lead, new): (&[u8], &[u8]),
        (mut old, mut same): ((u64, &'o [u8]), usize),
        mut other: Option<((u64, &'o [u8]), usize)>,
        mut search: Option<&mut Search>,
        out: &mut impl Symbols,
    ) {
        let (mut i, mut j) = (0, 0);
        loop {
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
            if let Some((other, alike)) = other.take()
                && let Some(k) = counterpart(new, i, (other.1, alike))
            {
                let again = common(&new[i..], &other.1[k..]);
                if again >= SHORTEST {
                    (old, j, same) = (other, k, again);
                    continue;
                }
            }
            let last = || first(b'"', &new[i..]).is_none();
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
                same = common(&new[i..], &old.1[j..]);
                continue;
            }
            let literals = first(b'"', &new[i..]);
            let skipped = literals.and_then(|_| first(b'"', &old.1[j..]));
            let (Some(literals), Some(skipped)) = (literals, skipped) else {
                return self.end(&new[i..], old.0 + j as u64, &old.1[j..], out);
            };
            self.literals(&new[i..i + literals], out);
            i += literals;
            j += skipped;
            same = common(&new[i..], &old.1[j..]);
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

/// Where in `other`, which begins with `alike` bytes of `new`, the label stands in which `new` is at `i`, as
/// far behind the quote before it.
fn counterpart(new: &[u8], i: usize, (other, alike): (&[u8], usize)) -> Option<usize> {
    let at = match new[..i].iter().rposition(|&byte| byte == b'"') {
        Some(quote) if alike <= quote => {
            let passed = memchr::memchr_iter(b'"', &new[..quote]).count();
            nth(b'"', other, passed)? + i - quote
        }
        _ => i,
    };
    (at <= other.len()).then_some(at)
}
