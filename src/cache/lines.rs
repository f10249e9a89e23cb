//! Lines as deflate symbols: what a line has in common with those before it becomes copies.

use std::ops::Range;

use super::page::Page;
use super::search::{Search, common, first};
use super::symbols::{Stream, Symbols};
use super::tails::Tails;
use super::text::{Head, Kept, SHORTEST, SMALL, Starts, Text, Written};

/// Where what an object wrote into a family stands in the text.
#[derive(Debug, Default)]
struct Places {
    /// Where its first line begins.
    start: u64,
    /// For each line, where its rest begins in the text, and where it ends in the lines of the object.
    rests: Vec<(u64, usize)>,
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
    previous: Places,
    current: Places,
    /// The object that wrote last, from the end of its page on; and room for the next one.
    kept: Kept,
    spare: Kept,
    starts: Starts,
    search: Option<Box<Search>>,
}

impl Default for Lines {
    fn default() -> Self {
        Self {
            text: Text::default(),
            family: Vec::new(),
            previous: Places::default(),
            current: Places::default(),
            kept: Kept::default(),
            spare: Kept::default(),
            starts: Starts::new(),
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

    /// Passes over the objects of a page behind the one that was written last: what of them is written is up to `at`.
    /// `last` is the slot of the last of them, and its lines.
    pub(super) fn skip(&mut self, name: &[u8], page: &Page, last: (usize, &[u8]), at: u64) {
        let (identity, lines) = (page.identity(last.0), last.1);
        self.kept.replace(identity, lines);
        let (head, count) =
            (name.len() + identity.len(), memchr::memchr_iter(b'\n', lines).count());
        let Places { start, rests } = &mut self.previous;
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

    /// Where the text ends so far.
    pub(super) fn at(&self) -> u64 {
        self.text.at
    }

    /// Writes what is held back.
    pub(super) fn flush(&mut self, out: &mut impl Symbols) {
        self.text.joined.flush(out);
    }

    /// The series of one family of one page, of the objects in these slots; tells where to go on if `out` became full
    /// before the last one.
    pub(super) fn segment(
        &mut self,
        name: &[u8],
        page: &Page,
        (family, range): (usize, Range<usize>),
        manner: Manner<'_>,
        out: &mut impl Stream,
    ) -> Option<usize> {
        let segment = page.family(family)?;
        if self.family != name {
            self.family.clear();
            self.family.extend_from_slice(name);
            self.previous.rests.clear();
        }
        if range.start == 0 {
            self.starts.clear();
        }
        let mut search = self.search.take();
        if manner.search {
            let search = search.get_or_insert_with(|| Box::new(Search::new()));
            if search.end() != self.text.at {
                search.restart(self.text.at);
            }
        }
        let kept = std::mem::take(&mut self.kept);
        let known = manner.tails.are_in(manner.code);
        let mut written = Written { page, slot: None, lines: &kept.lines, kept: &kept };
        // Whether the object before has lines too, so that its identity is what stands before.
        let mut behind = false;
        let mut rest = None;
        'runs: for (slots, lines) in segment.runs() {
            let end = slots.end.min(range.end);
            let mut slot = slots.start.max(range.start);
            while !lines.is_empty() && slot < end {
                if out.full() {
                    rest = Some(slot);
                    break 'runs;
                }
                behind |= slot > slots.start;
                let tails = behind.then_some(manner.tails);
                let head = Head { name, page, slot, tails, known };
                let search = search.as_deref_mut().filter(|_| manner.search);
                slot += if slot == slots.start {
                    self.object(head, lines, &written, search, out);
                    1
                } else {
                    self.again(head, slot..end, lines, &written, search, out)
                };
                written = Written { slot: Some(slot - 1), lines, ..written };
            }
            behind = !lines.is_empty();
        }
        self.search = search;
        self.kept = match written.slot {
            None => kept,
            Some(_) => {
                let mut new = std::mem::take(&mut self.spare);
                new.replace(written.identity(), written.lines);
                self.spare = kept;
                new
            }
        };
        rest
    }

    /// Objects with the very lines of the one before them; tells how many of them were written.
    #[inline]
    fn again(
        &mut self,
        head: Head<'_>,
        slots: Range<usize>,
        lines: &[u8],
        written: &Written<'_>,
        search: Option<&mut Search>,
        out: &mut impl Stream,
    ) -> usize {
        let plain = match head.plain_tails() {
            Some(tails) if search.is_none() => {
                self.again_plain(head.name, tails, slots, lines, out)
            }
            _ => 0,
        };
        if plain > 0 {
            return plain;
        }
        self.again_slowly(head, lines, written, search, out);
        1
    }

    /// The same as far as nothing but known bits and copies is needed.
    fn again_plain(
        &mut self,
        name: &[u8],
        tails: &Tails,
        slots: Range<usize>,
        lines: &[u8],
        out: &mut impl Stream,
    ) -> usize {
        let Self { previous, starts, .. } = self;
        let mut done = 0;
        let count = previous.rests.len();
        let longest = (count * (name.len() + tails.longest()) + lines.len()).max(1);
        let room = (SMALL / longest).clamp(1, slots.len());
        let out = &mut self.text.quick(longest * room, out);
        // A copy of its own is changed faster.
        let mut text = self.text;
        for slot in slots.take(room) {
            let Some(plain) = tails.plain(slot) else { break };
            let begin_len = name.len() + plain.len;
            let len = count * begin_len + lines.len();
            if len >= SMALL || !starts.reach(&plain, text.at, len) {
                break;
            }
            let (start, mut line_start, mut begin) = (text.at, text.at, 0);
            for (line, rest) in previous.rests.iter_mut().enumerate() {
                if line > 0 {
                    let before = std::mem::replace(&mut line_start, text.at);
                    text.copy_near(before, begin_len, out);
                } else {
                    text.identity_plain(name, slot, plain.parts.clone(), starts, out);
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
    fn again_slowly(
        &mut self,
        head: Head<'_>,
        lines: &[u8],
        written: &Written<'_>,
        mut search: Option<&mut Search>,
        out: &mut impl Symbols,
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
                for part in [head.name, head.identity(), same] {
                    search.push(part);
                }
            }
            if line > 0 {
                let before = std::mem::replace(&mut line_start, text.at);
                text.copy_head(before, &head, identity, out);
            } else {
                identity = text.head(&head, (previous.start, written), starts, out);
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
        written: &Written<'_>,
        mut search: Option<&mut Search>,
        out: &mut impl Stream,
    ) {
        let Self { text, previous, current, starts, .. } = self;
        current.start = text.at;
        current.rests.clear();
        let (mut line_start, mut start, mut old_start) = (text.at, 0, 0);
        let identity = head.tails.and_then(|tails| tails.len(head.slot));
        let identity = identity.unwrap_or_else(|| head.identity().len());
        let begin = head.name.len() + identity;
        let plain = head.plain_tails().filter(|_| begin < SMALL && !previous.rests.is_empty());
        let plain = plain.and_then(|tails| tails.plain(head.slot));
        let mut plain = plain.filter(|plain| starts.reach(plain, text.at, begin));
        // Where the rest of the line before stands in the text, and what it is.
        let mut last: Option<(u64, &[u8])> = None;
        let mut line = 0;
        while let Some(newline) = first(b'\n', &lines[start..]) {
            let end = start + newline + 1;
            let rest = &lines[start..end];
            let mut search = search.as_deref_mut();
            if let Some(search) = &mut search {
                search.trim();
                [head.name, head.identity(), rest].into_iter().for_each(|part| search.push(part));
            }
            let out = &mut text.quick(begin + rest.len(), out);
            if let Some(plain) = plain.take() {
                text.identity_plain(head.name, head.slot, plain.parts, starts, out);
            } else if line > 0 {
                let before = std::mem::replace(&mut line_start, text.at);
                text.copy_head(before, &head, identity, out);
            } else if previous.rests.is_empty() {
                text.literals(head.name, out);
                text.literals(head.identity(), out);
            } else {
                text.head(&head, (previous.start, written), starts, out);
            }
            current.rests.push((text.at, end));
            let old = previous.rests.get(line).map(|&(at, old_end)| {
                (at, &written.lines[std::mem::replace(&mut old_start, old_end)..old_end])
            });
            let like_old = old.map_or(0, |old| common(rest, old.1));
            match (old, last) {
                // A line that it begins with is the very same.
                (Some(old), _) if like_old == rest.len() && search.is_none() => {
                    text.copy(old.0, b"", rest, out);
                }
                (Some(old), Some(last)) => {
                    let like_last = common(rest, last.1);
                    if like_old == rest.len() || like_old >= like_last {
                        let other = Some((last, like_last));
                        text.align((b"", rest), (old, like_old), other, search, out);
                    } else {
                        let other = Some((old, like_old));
                        text.align((b"", rest), (last, like_last), other, search, out);
                    }
                }
                (None, Some(last)) => {
                    let like_last = common(rest, last.1);
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
