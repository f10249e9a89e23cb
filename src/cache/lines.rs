//! Lines as deflate symbols: what a line has in common with those before it becomes copies.

use super::page::{PAGE, Page};
use super::search::{Found, Search, WINDOW, common};
use super::symbols::{Joined, Run, Stream, Symbols};
use super::tails::{Parts, Tails};

/// A copy costs about as much as four literals.
const SHORTEST: usize = 4;
/// A copy this long is taken without a look at the next place.
const ENOUGH: usize = 16;
/// So many places without a find make the search for text hastier.
const PATIENCE: usize = 8;
/// An object with less text than this (in bytes) is written in one go.
const SMALL: usize = 4 * 1024;
/// A copy from the same place of the line compared with is taken without a search if it is this long.
const LONG: usize = 24;

/// Where what an object wrote into a family stands in the text.
#[derive(Debug, Default)]
struct Places {
    /// Where its first line begins.
    start: u64,
    /// For each line, where its rest begins in the text, and where it ends in the lines of the object.
    rests: Vec<(u64, usize)>,
}

/// The text of an object that the next one's lines are compared with.
#[derive(Debug, Default)]
struct Kept {
    identity: Vec<u8>,
    lines: Vec<u8>,
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
            previous: Places::default(),
            current: Places::default(),
            kept: Kept::default(),
            spare: Kept::default(),
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
        out: &mut impl Stream,
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
        let kept = std::mem::take(&mut self.kept);
        let known = manner.tails.are_in(manner.code);
        let mut written = Written { page, slot: None, lines: &kept.lines, kept: &kept };
        // Whether the object before has lines too, so that its identity is what stands before.
        let mut behind = false;
        let mut before: &[u8] = b"";
        let mut rest = None;
        for (slot, lines) in segment.iter().enumerate() {
            if !lines.is_empty() && slot >= from {
                if out.full() {
                    rest = Some(slot);
                    break;
                }
                let parts = if behind { manner.tails.get(slot) } else { None };
                let head = Head { name, page, slot, parts, known };
                let search = search.as_deref_mut().filter(|_| manner.search);
                if behind && std::ptr::eq(lines, before) {
                    self.again(head, lines, &written, search, out);
                } else {
                    self.object(head, lines, &written, search, out);
                }
                written = Written { slot: Some(slot), lines, ..written };
            }
            behind = !lines.is_empty();
            before = lines;
        }
        self.search = search;
        self.kept = match written.slot {
            None => kept,
            Some(_) => {
                let mut new = std::mem::take(&mut self.spare);
                new.identity.clear();
                new.identity.extend_from_slice(written.identity());
                new.lines.clear();
                new.lines.extend_from_slice(written.lines);
                self.spare = kept;
                new
            }
        };
        rest
    }

    /// An object with the very lines of the one before.
    #[inline]
    fn again(
        &mut self,
        head: Head<'_>,
        lines: &[u8],
        written: &Written<'_>,
        search: Option<&mut Search>,
        out: &mut impl Stream,
    ) {
        if search.is_none()
            && let Some(parts) = head.parts.clone()
        {
            let identity = parts.len_of_text();
            let len = self.previous.rests.len() * (head.name.len() + identity) + lines.len();
            if head.is_plain(parts.clone(), (self.text.at, len), &self.starts) {
                let out = self.text.quick(len, out);
                return self.again_plain((head, parts, identity), lines, out);
            }
        }
        self.again_slowly(head, lines, written, search, out);
    }

    /// The same where nothing but known bits and copies is needed.
    #[inline]
    fn again_plain(
        &mut self,
        (head, parts, identity): (Head<'_>, Parts<'_>, usize),
        lines: &[u8],
        mut out: impl Symbols,
    ) {
        let Self { previous, starts, .. } = self;
        // A copy of its own is changed faster.
        let mut text = self.text;
        let (start, mut line_start, mut begin) = (text.at, text.at, 0);
        for (line, rest) in previous.rests.iter_mut().enumerate() {
            if line > 0 {
                let before = std::mem::replace(&mut line_start, text.at);
                text.copy_near(before, head.name.len() + identity, &mut out);
            } else {
                text.identity_plain(&head, parts.clone(), starts, &mut out);
            }
            let from = std::mem::replace(&mut rest.0, text.at);
            let same = &lines[begin..rest.1];
            if same.len() < SHORTEST {
                text.literals_here(same, &mut out);
            } else {
                text.copy_near(from, same.len(), &mut out);
            }
            begin = rest.1;
        }
        starts[head.slot] = start;
        previous.start = start;
        self.text = text;
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
        starts[head.slot] = start;
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
        let parts = head.parts.clone();
        let identity =
            parts.as_ref().map_or_else(|| head.identity().len(), |parts| parts.len_of_text());
        let begin = head.name.len() + identity;
        let plain = parts.filter(|_| !previous.rests.is_empty());
        let mut plain =
            plain.filter(|parts| head.is_plain(parts.clone(), (text.at, begin), starts));
        // Where the rest of the line before stands in the text, and what it is.
        let mut last: Option<(u64, &[u8])> = None;
        for (line, newline) in memchr::memchr_iter(b'\n', lines).enumerate() {
            let end = newline + 1;
            let rest = &lines[start..end];
            let mut search = search.as_deref_mut();
            if let Some(search) = &mut search {
                search.trim();
                [head.name, head.identity(), rest].into_iter().for_each(|part| search.push(part));
            }
            let out = &mut text.quick(begin + rest.len(), out);
            if let Some(parts) = plain.take() {
                text.identity_plain(&head, parts, starts, out);
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
        }
        starts[head.slot] = current.start;
        std::mem::swap(previous, current);
    }
}

/// The object whose lines those of the next one are compared with.
#[derive(Clone, Copy)]
struct Written<'a> {
    page: &'a Page,
    /// Its slot, unless it is of the page before.
    slot: Option<usize>,
    lines: &'a [u8],
    /// What is kept of the page before.
    kept: &'a Kept,
}

impl<'a> Written<'a> {
    fn identity(&self) -> &'a [u8] {
        self.slot.map_or(&self.kept.identity, |slot| self.page.identity(slot))
    }
}

/// What an object's first line begins with.
struct Head<'a> {
    name: &'a [u8],
    page: &'a Page,
    /// The place of the object in its page.
    slot: usize,
    /// What is known of its identity. Given if the object before has lines too.
    parts: Option<Parts<'a>>,
    /// Whether the bits of these are of the code that is written with.
    known: bool,
}

impl<'a> Head<'a> {
    /// Whether these parts are nothing but known bits and copies within reach, also of the object before, if
    /// no more than so many bytes come from `at` on.
    #[inline]
    fn is_plain(
        &self,
        mut parts: Parts<'_>,
        (at, len): (u64, usize),
        starts: &[u64; PAGE],
    ) -> bool {
        let is_near = |back: usize| {
            let start = self.slot.checked_sub(back).map_or(NOWHERE, |slot| starts[slot]);
            start != NOWHERE && at + len as u64 - start <= WINDOW
        };
        self.known
            && len < SMALL
            && self.name.len() >= SHORTEST
            && is_near(1)
            && parts.next().is_some_and(|first| first.own == 0 && is_near(first.back))
            && parts.all(|part| part.len == 0 || part.len >= SHORTEST && is_near(part.back))
    }

    /// The identity itself, which is looked for: what is known of it does mostly without.
    fn identity(&self) -> &'a [u8] {
        self.page.identity(self.slot)
    }
}

/// The text that the symbols stand for, of which only the length is kept.
#[derive(Clone, Copy, Debug, Default)]
struct Text {
    at: u64,
    joined: Joined,
}

impl Text {
    /// Goes on with what is held back and so many bytes of text.
    #[inline]
    fn quick<'o, S: Stream>(&mut self, len: usize, out: &'o mut S) -> S::Quick<'o> {
        // A copy of many lines may be much longer than what comes now.
        if self.joined.len() > SMALL {
            self.joined.flush(out);
        }
        out.quick(self.joined.len() + len)
    }

    fn literals(&mut self, bytes: &[u8], out: &mut impl Symbols) {
        self.literals_here(bytes, out);
    }

    #[inline(always)]
    fn literals_here(&mut self, bytes: &[u8], out: &mut impl Symbols) {
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
    fn copy_near(&mut self, from: u64, len: usize, out: &mut impl Symbols) {
        let distance = (self.at - from) as usize;
        self.at += len as u64;
        self.joined.copy(len, distance, out);
    }

    /// The name and the identity of an object whose parts are plain.
    #[inline(always)]
    fn identity_plain(
        &mut self,
        head: &Head<'_>,
        parts: Parts<'_>,
        starts: &[u64; PAGE],
        out: &mut impl Symbols,
    ) {
        // The first copy begins with the name, the others behind it.
        let (mut lead, mut skipped) = (head.name.len(), 0);
        for part in parts {
            if part.own > 0 {
                self.known(part.bits, part.own, out);
            }
            let len = std::mem::take(&mut lead) + part.len;
            if len > 0 {
                let start = starts[head.slot - part.back];
                self.copy_near(start + (skipped + part.from) as u64, len, out);
            }
            skipped = head.name.len();
        }
    }

    /// `lead` and `rest`, which also stand one behind the other at `from`.
    #[inline]
    fn copy(&mut self, from: u64, lead: &[u8], rest: &[u8], out: &mut impl Symbols) {
        if !self.copied(from, lead.len() + rest.len(), out) {
            self.literals(lead, out);
            self.literals(rest, out);
        }
    }

    /// The name and the identity, of so many bytes, of a line behind the first, which begins like the one at
    /// `from`.
    #[inline]
    fn copy_head(&mut self, from: u64, head: &Head<'_>, identity: usize, out: &mut impl Symbols) {
        if !self.copied(from, head.name.len() + identity, out) {
            self.literals(head.name, out);
            self.literals(head.identity(), out);
        }
    }

    /// The name and the identity of an object's first line, of which the object before has its own at the
    /// start; by what is known of it where there is something. Tells the length of the identity.
    #[inline]
    fn head(
        &mut self,
        head: &Head<'_>,
        (start, written): (u64, &Written<'_>),
        starts: &[u64; PAGE],
        out: &mut impl Symbols,
    ) -> usize {
        let like = head.parts.as_ref().and_then(|parts| head.slot.checked_sub(parts.back()?));
        let near = like.is_some_and(|like| {
            let start = starts[like];
            start != NOWHERE && self.at - start <= WINDOW
        });
        match &head.parts {
            Some(parts) if near => self.identity(head, parts.clone(), starts, out),
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
        starts: &[u64; PAGE],
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
            let start = head.slot.checked_sub(part.back).map_or(NOWHERE, |slot| starts[slot]);
            let from = start.saturating_add(skipped as u64);
            if start == NOWHERE || !self.copied(from, lead.len() + part.len, out) {
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
    fn align<'o>(
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
                same = common(&new[i..], &old.1[j..]);
                continue;
            }
            let literals = memchr::memchr(b'"', &new[i..]);
            let skipped = literals.and_then(|_| memchr::memchr(b'"', &old.1[j..]));
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
    let at = match memchr::memrchr(b'"', &new[..i]) {
        Some(quote) if alike <= quote => {
            let passed = memchr::memchr_iter(b'"', &new[..quote]).count();
            memchr::memchr_iter(b'"', other).nth(passed)? + i - quote
        }
        _ => i,
    };
    (at <= other.len()).then_some(at)
}
