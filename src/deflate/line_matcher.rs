//! Finds the copies within a line by comparing it with reference lines.

use std::cell::OnceCell;

use super::identity_diff::{DiffParts, IdentityDiffs, SimpleDiff};
use super::match_finder::{Match, MatchFinder, WINDOW};
use super::segment::{PAGE, Segment};
use super::symbols::{LiteralRun, PendingCopy, SymbolSink, SymbolStream};
use crate::util::short_search::{common_prefix, first, nth};

/// Minimum length of a copy, which costs about as much as four literals.
pub(super) const SHORTEST: usize = 4;
/// Minimum length of a match that is used without lazy matching.
const ENOUGH: usize = 16;
/// Number of misses after which the search skips positions.
const PATIENCE: usize = 8;
/// Maximum size of an object that is written without checks for a full output, in bytes.
pub(super) const SMALL: usize = 4 * 1024;
/// Minimum length of an aligned copy that makes a search unnecessary.
const LONG: usize = 24;

/// The lines of one family of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a> {
    /// Name of the family.
    pub(crate) name: &'a [u8],
    /// Index of the family in the page.
    pub(crate) family: usize,
    /// Identities of the objects, if they have any.
    pub(crate) identities: Option<&'a Segment>,
    /// Lines of the objects.
    pub(crate) lines: &'a Segment,
}

impl<'a> Rows<'a> {
    #[inline]
    pub(super) fn identity(&self, slot: usize) -> &'a [u8] {
        self.identities.map_or(&[], |identities| identities.piece(slot))
    }
}

/// The start of each object's lines in the text.
#[derive(Debug)]
pub(super) struct ObjectOffsets {
    at: [u64; PAGE],
    /// Bit mask of the slots that have lines.
    present: u64,
}

impl Default for ObjectOffsets {
    fn default() -> Self {
        Self { at: [0; PAGE], present: 0 }
    }
}

impl ObjectOffsets {
    /// Marks all slots as without lines.
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

    /// Returns true if all objects that a diff copies from have lines within the deflate window of `len` bytes written
    /// at `at`.
    #[inline]
    pub(super) fn reach(&self, simple: &SimpleDiff<'_>, at: u64, len: usize) -> bool {
        let first = simple.from.trailing_zeros() as usize;
        simple.from & !self.present == 0
            && self.at.get(first).is_some_and(|start| at + len as u64 - start <= WINDOW)
    }
}

/// The text of an object, copied out of its page.
#[derive(Debug, Default)]
pub(super) struct SavedObject {
    pub(super) identity: Vec<u8>,
    pub(super) lines: Vec<u8>,
}

impl SavedObject {
    /// Replaces the saved object by a copy of this text.
    pub(super) fn replace(&mut self, identity: &[u8], lines: &[u8]) {
        self.identity.clear();
        self.identity.extend_from_slice(identity);
        self.lines.clear();
        self.lines.extend_from_slice(lines);
    }
}

/// The object that the next one is compared with.
#[derive(Clone, Copy)]
pub(super) struct Reference<'a> {
    pub(super) rows: Rows<'a>,
    /// Slot in this page; `None` for the last object of the previous page.
    pub(super) slot: Option<usize>,
    pub(super) lines: &'a [u8],
    /// Last object of the previous page.
    pub(super) saved: &'a SavedObject,
}

impl<'a> Reference<'a> {
    pub(super) fn identity(&self) -> &'a [u8] {
        self.slot.map_or(&self.saved.identity, |slot| self.rows.identity(slot))
    }
}

/// The name and identity of a line.
pub(super) struct Head<'a> {
    pub(super) rows: Rows<'a>,
    /// Slot of the object in its page.
    pub(super) slot: usize,
    /// Diffs of the identities; `None` if the previous slot has no lines.
    pub(super) diffs: Option<&'a IdentityDiffs>,
    /// True if their literal bits are valid in the current code.
    pub(super) known: bool,
    /// The identity, once it has been looked up.
    pub(super) identity: OnceCell<&'a [u8]>,
}

impl<'a> Head<'a> {
    /// Returns the diffs, if simple ones can be written with them.
    #[inline]
    pub(super) fn simple_diffs(&self) -> Option<&'a IdentityDiffs> {
        self.diffs.filter(|_| self.known && self.rows.name.len() >= SHORTEST)
    }

    /// Returns the identity. The first call is slow; the diff mostly suffices.
    pub(super) fn identity(&self) -> &'a [u8] {
        self.identity.get_or_init(|| self.rows.identity(self.slot))
    }
}

/// The position in the output text, with a copy that is held back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineMatcher {
    pub(super) at: u64,
    pub(super) pending_copy: PendingCopy,
}

impl LineMatcher {
    /// Reserves output for the pending copy and `len` bytes of text.
    #[inline]
    pub(super) fn reserve_text<'o, S: SymbolStream>(
        &mut self,
        len: usize,
        out: &'o mut S,
    ) -> S::Reserved<'o> {
        // A pending copy of many lines may be much longer than `len`.
        if self.pending_copy.len() > SMALL {
            self.pending_copy.flush(out);
        }
        out.reserve_text(self.pending_copy.len() + len)
    }

    pub(super) fn literals(&mut self, bytes: &[u8], out: &mut impl SymbolSink) {
        self.literals_here(bytes, out);
    }

    #[inline(always)]
    pub(super) fn literals_here(&mut self, bytes: &[u8], out: &mut impl SymbolSink) {
        if !bytes.is_empty() {
            self.pending_copy.flush(out);
            out.literals(bytes);
            self.at += bytes.len() as u64;
        }
    }

    #[inline(always)]
    fn known(&mut self, bits: LiteralRun<'_>, len: usize, out: &mut impl SymbolSink) {
        self.pending_copy.flush(out);
        out.literal_run(bits);
        self.at += len as u64;
    }

    /// Writes a copy from `from`. Returns false if the copy is too short or out of reach.
    #[inline]
    fn copied(&mut self, from: u64, len: usize, out: &mut impl SymbolSink) -> bool {
        let distance = self.at - from;
        if distance > WINDOW || len < SHORTEST {
            return false;
        }
        self.at += len as u64;
        self.pending_copy.copy(len, distance as usize, out);
        true
    }

    /// Writes a copy of at least [`SHORTEST`] bytes from `from`, which must be within reach.
    #[inline(always)]
    pub(super) fn copy_near(&mut self, from: u64, len: usize, out: &mut impl SymbolSink) {
        let distance = (self.at - from) as usize;
        self.at += len as u64;
        self.pending_copy.copy(len, distance, out);
    }

    /// Writes the name and the identity of an object by its simple diff.
    #[inline(always)]
    pub(super) fn simple_identity(
        &mut self,
        name: &[u8],
        slot: usize,
        parts: DiffParts<'_>,
        starts: &ObjectOffsets,
        out: &mut impl SymbolSink,
    ) {
        // The first copy includes the name, the others follow it.
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

    /// Writes `lead` and `rest`, as a copy from `from` if possible.
    #[inline]
    pub(super) fn copy(&mut self, from: u64, lead: &[u8], rest: &[u8], out: &mut impl SymbolSink) {
        if !self.copied(from, lead.len() + rest.len(), out) {
            self.literals(lead, out);
            self.literals(rest, out);
        }
    }

    /// Writes the name and the identity of a line after the first, as a copy from `from` if possible. `identity` is
    /// the length of the identity.
    #[inline]
    pub(super) fn copy_head(
        &mut self,
        from: u64,
        head: &Head<'_>,
        identity: usize,
        out: &mut impl SymbolSink,
    ) {
        if !self.copied(from, head.rows.name.len() + identity, out) {
            self.literals(head.rows.name, out);
            self.literals(head.identity(), out);
        }
    }

    /// Writes the name and the identity of an object's first line, by its diff if possible. Returns the length of the
    /// identity.
    #[inline]
    pub(super) fn head(
        &mut self,
        head: &Head<'_>,
        (start, reference): (u64, &Reference<'_>),
        starts: &ObjectOffsets,
        out: &mut impl SymbolSink,
    ) -> usize {
        let parts = head.diffs.and_then(|diffs| diffs.get(head.slot));
        let like = parts.as_ref().and_then(|parts| head.slot.checked_sub(parts.back()?));
        let like = like.and_then(|like| starts.get(like));
        let near = like.is_some_and(|start| self.at - start <= WINDOW);
        match parts {
            Some(parts) if near => self.identity(head, parts, starts, out),
            _ => {
                let (own, old) = (head.identity(), reference.identity());
                let old = ((start + head.rows.name.len() as u64, old), common_prefix(own, old));
                self.align((head.rows.name, own), old, None, None, out);
                own.len()
            }
        }
    }

    /// Writes the name and the identity by the diff.
    #[inline]
    fn identity(
        &mut self,
        head: &Head<'_>,
        parts: DiffParts<'_>,
        starts: &ObjectOffsets,
        out: &mut impl SymbolSink,
    ) -> usize {
        let (mut lead, mut done) = (head.rows.name, 0);
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
            let skipped = if lead.is_empty() { head.rows.name.len() } else { 0 } + part.from;
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

    /// Writes `lead` and `new` with copies from `old`, aligned label by label at the quotes. `lead` precedes `old`,
    /// too. At the first difference, `other` becomes the reference if it continues like `new`. Remaining text goes
    /// through `search`. The numbers are the lengths of the common prefixes with `new`.
    pub(super) fn align<'o>(
        &mut self,
        (mut lead, new): (&[u8], &[u8]),
        (mut old, mut same): ((u64, &'o [u8]), usize),
        mut other: Option<((u64, &'o [u8]), usize)>,
        mut search: Option<&mut MatchFinder>,
        out: &mut impl SymbolSink,
    ) {
        let (mut i, mut j) = (0, 0);
        loop {
            // Lower bound of the position where `new` and `old` differ.
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
                let again = common_prefix(&new[i..], &other.1[k..]);
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
                same = common_prefix(&new[i..], &old.1[j..]);
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
            same = common_prefix(&new[i..], &old.1[j..]);
        }
    }

    /// Adds the labels of copied text to the match finder.
    fn insert_labels(&mut self, text: &[u8], search: &mut MatchFinder) {
        for at in memchr::memchr_iter(b'"', text) {
            search.insert_label(self.at + at as u64);
        }
    }

    /// Writes `new` from `i` by match search, up to a quote at or after `apart` outside any match, or to the end.
    /// Returns the position and the number of quotes passed.
    fn seek(
        &mut self,
        new: &[u8],
        i: usize,
        apart: usize,
        search: &mut MatchFinder,
        out: &mut impl SymbolSink,
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
                let Some(Match { at: from, len }) = found else {
                    // After misses, as in a hash, the search skips more and more positions.
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

    /// Writes the end of a line, with a copy of the common suffix of `old` at `old_at`.
    fn end(&mut self, new: &[u8], old_at: u64, old: &[u8], out: &mut impl SymbolSink) {
        let pairs = new.iter().rev().zip(old.iter().rev());
        let same = pairs.take_while(|(new, old)| new == old).count();
        let (own, again) = new.split_at(new.len() - same);
        self.literals(own, out);
        self.copy(old_at + (old.len() - same) as u64, b"", again, out);
    }
}

/// Returns the best match at `at`, preferring whole labels.
#[inline]
fn better(label: bool, search: &MatchFinder, at: u64) -> Option<Match> {
    label.then(|| search.find_label(at)).flatten().or_else(|| search.find(at))
}

/// Returns the position in `other` that corresponds to position `i` of `new`: the same offset in the same label.
/// `other` and `new` share a prefix of `alike` bytes.
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
