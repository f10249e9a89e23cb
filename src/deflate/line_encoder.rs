//! Encodes series lines as deflate symbols: text shared with earlier lines becomes copies.

use std::cell::OnceCell;
use std::ops::Range;

use super::identity_diff::IdentityDiffs;
use super::line_matcher::{
    Head, LineMatcher, ObjectOffsets, Reference, Rows, SHORTEST, SMALL, SavedObject,
};
use super::match_finder::MatchFinder;
use super::symbols::{SymbolSink, SymbolStream};
use crate::util::short_search::{common_prefix, first};

/// The positions of an object's lines in the text.
#[derive(Debug, Default)]
struct LineOffsets {
    /// Start of its first line.
    start: u64,
    /// For each line, the start of its rest in the text, and the end of the line in the lines of the object.
    rests: Vec<(u64, usize)>,
}

/// The encoding of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct EncodingParams<'a> {
    /// Diffs of the page's identities.
    pub(super) diffs: &'a IdentityDiffs,
    /// Current code, by [`HuffmanCode::id`](super::huffman::HuffmanCode::id); 0 if there is none yet.
    pub(super) code: u64,
    /// Enables match search for text that is not predicted by the previous objects.
    pub(super) search: bool,
}

/// The encoder of series lines.
#[derive(Debug, Default)]
pub(super) struct LineEncoder {
    text: LineMatcher,
    /// Name of the current family.
    family: Vec<u8>,
    previous: LineOffsets,
    current: LineOffsets,
    /// The last object of the previous page, and a spare buffer.
    saved: SavedObject,
    spare: SavedObject,
    starts: ObjectOffsets,
    search: Option<Box<MatchFinder>>,
}

impl LineEncoder {
    /// Writes text that is no series line.
    pub(super) fn raw(&mut self, text: &[u8], out: &mut impl SymbolSink) {
        self.text.literals(text, out);
    }

    /// Forbids copies from the text written so far.
    pub(super) fn reset(&mut self) {
        self.previous.rests.clear();
        if let Some(search) = &mut self.search {
            search.restart(self.text.at);
        }
    }

    /// Skips `text` bytes written elsewhere, and forbids copies from them.
    pub(super) fn advance(&mut self, text: u64) {
        self.text.at += text;
        self.reset();
    }

    /// Skips the remaining objects of a page, whose text was written elsewhere and ends at `at`. `last` is the slot
    /// and the lines of the last object.
    pub(super) fn skip_rows(&mut self, rows: &Rows<'_>, last: (usize, &[u8]), at: u64) {
        let (identity, lines) = (rows.identity(last.0), last.1);
        self.saved.replace(identity, lines);
        let (head, count) =
            (rows.name.len() + identity.len(), memchr::memchr_iter(b'\n', lines).count());
        let LineOffsets { start, rests } = &mut self.previous;
        *start = at - (lines.len() + count * head) as u64;
        rests.clear();
        let (mut begin, mut rest) = (0, *start);
        for newline in memchr::memchr_iter(b'\n', lines) {
            let end = newline + 1;
            rest += head as u64;
            rests.push((rest, end));
            rest += (end - begin) as u64;
            begin = end;
        }
        self.text.at = at;
    }

    /// Returns the length of the text so far.
    pub(super) fn at(&self) -> u64 {
        self.text.at
    }

    /// Writes the pending copy.
    pub(super) fn flush(&mut self, out: &mut impl SymbolSink) {
        self.text.pending_copy.flush(out);
    }

    /// Writes the series of a range of objects. Returns the next object if `out` became full before the end.
    pub(super) fn segment(
        &mut self,
        rows: Rows<'_>,
        range: Range<usize>,
        params: EncodingParams<'_>,
        out: &mut impl SymbolStream,
    ) -> Option<usize> {
        if self.family != rows.name {
            self.family.clear();
            self.family.extend_from_slice(rows.name);
            self.previous.rests.clear();
        }
        if range.start == 0 {
            self.starts.clear();
        }
        let mut search = self.search.take();
        if params.search {
            let search = search.get_or_insert_with(|| Box::new(MatchFinder::new()));
            if search.end() != self.text.at {
                search.restart(self.text.at);
            }
        }
        let saved = std::mem::take(&mut self.saved);
        let known = params.diffs.are_in(params.code);
        let mut reference = Reference { rows, slot: None, lines: &saved.lines, saved: &saved };
        // True if the previous slot has lines, so that its identity directly precedes.
        let mut behind = false;
        let mut rest = None;
        'runs: for (slots, lines) in rows.lines.runs() {
            let end = slots.end.min(range.end);
            let mut slot = slots.start.max(range.start);
            while !lines.is_empty() && slot < end {
                if out.full() {
                    rest = Some(slot);
                    break 'runs;
                }
                behind |= slot > slots.start;
                let diffs = behind.then_some(params.diffs);
                let head = Head { rows, slot, diffs, known, identity: OnceCell::new() };
                let search = search.as_deref_mut().filter(|_| params.search);
                slot += if slot == slots.start {
                    self.object(head, lines, &reference, search, out);
                    1
                } else {
                    self.repeat(head, slot..end, lines, &reference, search, out)
                };
                reference = Reference { slot: Some(slot - 1), lines, ..reference };
            }
            behind = !lines.is_empty();
        }
        self.search = search;
        self.saved = match reference.slot {
            None => saved,
            Some(_) => {
                let mut new = std::mem::take(&mut self.spare);
                new.replace(reference.identity(), reference.lines);
                self.spare = saved;
                new
            }
        };
        rest
    }

    /// Writes objects whose lines equal those of the previous object. Returns the number of objects written.
    #[inline]
    fn repeat(
        &mut self,
        head: Head<'_>,
        slots: Range<usize>,
        lines: &[u8],
        reference: &Reference<'_>,
        search: Option<&mut MatchFinder>,
        out: &mut impl SymbolStream,
    ) -> usize {
        let simple = match head.simple_diffs() {
            Some(diffs) if search.is_none() => {
                self.repeat_fast(head.rows.name, diffs, slots, lines, out)
            }
            _ => 0,
        };
        if simple > 0 {
            return simple;
        }
        self.repeat_slow(head, lines, reference, search, out);
        1
    }

    /// Writes such objects until one needs more than precomputed literals and copies. Returns the number of objects
    /// written.
    fn repeat_fast(
        &mut self,
        name: &[u8],
        diffs: &IdentityDiffs,
        slots: Range<usize>,
        lines: &[u8],
        out: &mut impl SymbolStream,
    ) -> usize {
        let Self { previous, starts, .. } = self;
        let mut done = 0;
        let count = previous.rests.len();
        let longest = (count * (name.len() + diffs.longest) + lines.len()).max(1);
        let room = (SMALL / longest).clamp(1, slots.len());
        let out = &mut self.text.reserve_text(longest * room, out);
        // A local copy can be saved in registers.
        let mut text = self.text;
        for slot in slots.take(room) {
            let Some(simple) = diffs.simple(slot) else { break };
            let begin_len = name.len() + simple.len;
            let len = count * begin_len + lines.len();
            if len >= SMALL || !starts.reach(&simple, text.at, len) {
                break;
            }
            let (start, mut line_start, mut begin) = (text.at, text.at, 0);
            for (line, rest) in previous.rests.iter_mut().enumerate() {
                if line > 0 {
                    let before = std::mem::replace(&mut line_start, text.at);
                    text.copy_near(before, begin_len, out);
                } else {
                    text.simple_identity(name, slot, simple.parts.clone(), starts, out);
                }
                let from = std::mem::replace(&mut rest.0, text.at);
                let same = &lines[begin..rest.1];
                if same.len() < SHORTEST {
                    text.literals_here(same, out);
                } else {
                    text.copy_near(from, same.len(), out);
                }
                begin = rest.1;
            }
            starts.set(slot, start);
            previous.start = start;
            done += 1;
        }
        self.text = text;
        done
    }

    #[inline(never)]
    fn repeat_slow(
        &mut self,
        head: Head<'_>,
        lines: &[u8],
        reference: &Reference<'_>,
        mut search: Option<&mut MatchFinder>,
        out: &mut impl SymbolSink,
    ) {
        let Self { text, previous, starts, .. } = self;
        let (start, mut line_start, mut begin) = (text.at, text.at, 0);
        if let Some(search) = &mut search {
            search.trim();
        }
        let mut identity = 0;
        for (line, rest) in previous.rests.iter_mut().enumerate() {
            let same = &lines[begin..rest.1];
            if let Some(search) = &mut search {
                for part in [head.rows.name, head.identity(), same] {
                    search.push(part);
                }
            }
            if line > 0 {
                let before = std::mem::replace(&mut line_start, text.at);
                text.copy_head(before, &head, identity, out);
            } else {
                identity = text.head(&head, (previous.start, reference), starts, out);
            }
            let from = std::mem::replace(&mut rest.0, text.at);
            text.copy(from, b"", same, out);
            begin = rest.1;
        }
        starts.set(head.slot, start);
        previous.start = start;
    }

    fn object(
        &mut self,
        head: Head<'_>,
        lines: &[u8],
        reference: &Reference<'_>,
        mut search: Option<&mut MatchFinder>,
        out: &mut impl SymbolStream,
    ) {
        let Self { text, previous, current, starts, .. } = self;
        current.start = text.at;
        current.rests.clear();
        let (mut line_start, mut start, mut old_start) = (text.at, 0, 0);
        let identity = head.diffs.and_then(|diffs| diffs.len(head.slot));
        let identity = identity.unwrap_or_else(|| head.identity().len());
        let begin = head.rows.name.len() + identity;
        let simple = head.simple_diffs().filter(|_| begin < SMALL && !previous.rests.is_empty());
        let simple = simple.and_then(|diffs| diffs.simple(head.slot));
        let mut simple = simple.filter(|simple| starts.reach(simple, text.at, begin));
        // Start and text of the rest of the previous line.
        let mut last: Option<(u64, &[u8])> = None;
        let mut line = 0;
        while let Some(newline) = first(b'\n', &lines[start..]) {
            let end = start + newline + 1;
            let rest = &lines[start..end];
            let mut search = search.as_deref_mut();
            if let Some(search) = &mut search {
                search.trim();
                [head.rows.name, head.identity(), rest]
                    .into_iter()
                    .for_each(|part| search.push(part));
            }
            let out = &mut text.reserve_text(begin + rest.len(), out);
            if let Some(simple) = simple.take() {
                text.simple_identity(head.rows.name, head.slot, simple.parts, starts, out);
            } else if line > 0 {
                let before = std::mem::replace(&mut line_start, text.at);
                text.copy_head(before, &head, identity, out);
            } else if previous.rests.is_empty() {
                text.literals(head.rows.name, out);
                text.literals(head.identity(), out);
            } else {
                text.head(&head, (previous.start, reference), starts, out);
            }
            current.rests.push((text.at, end));
            let old = previous.rests.get(line).map(|&(at, old_end)| {
                (at, &reference.lines[std::mem::replace(&mut old_start, old_end)..old_end])
            });
            let like_old = old.map_or(0, |old| common_prefix(rest, old.1));
            match (old, last) {
                // Equal to the line of the previous object.
                (Some(old), _) if like_old == rest.len() && search.is_none() => {
                    text.copy(old.0, b"", rest, out);
                }
                (Some(old), Some(last)) => {
                    let like_last = common_prefix(rest, last.1);
                    if like_old == rest.len() || like_old >= like_last {
                        let other = Some((last, like_last));
                        text.align((b"", rest), (old, like_old), other, search, out);
                    } else {
                        let other = Some((old, like_old));
                        text.align((b"", rest), (last, like_last), other, search, out);
                    }
                }
                (None, Some(last)) => {
                    let like_last = common_prefix(rest, last.1);
                    text.align((b"", rest), (last, like_last), None, search, out);
                }
                (Some(old), None) => {
                    text.align((b"", rest), (old, like_old), None, search, out);
                }
                (None, None) => {
                    text.align((b"", rest), ((text.at, b""), 0), None, search, out);
                }
            }
            last = current.rests.last().map(|&(at, _)| (at, rest));
            start = end;
            line += 1;
        }
        starts.set(head.slot, current.start);
        std::mem::swap(previous, current);
    }
}
