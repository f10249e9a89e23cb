//! The exposition as deflate, written straight from the templated form.
//!
//! A general compressor finds repetitions by searching; here they are known. A line after the first of
//! an object repeats name and identity of the line before it, and the rest mostly repeats the rest of
//! the line at the same place in the object before. So each line becomes a copy or two and the few bytes
//! that are new. What gzip scrapes note with a page is, for each object, the bits of its own part of its
//! identity, and the bits between these of a few families: those in which a sample shows that the template
//! foretells too little, which are searched, and those that cost most for each byte that is noted, up to a
//! fortieth of the text.
//!
//! What pays off for a large resource (codes from a sample, noted bits) does not for one with little text: its text goes
//! through a general compressor once, until it changes. Very little is handed on as text.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::bits::BitWriter;
use super::body::{FRAME, Step, Walk, Walked, expand};
use super::codes::{Codes, Making, ResourceCodes, little_text};
use super::crc::Checksum;
use super::frames::Frames;
use super::lines::{Lines, Manner};
use super::packed::{self, Packing};
use super::page::PAGE;
use super::resource::Resource;
use super::segment::Segment;
use crate::exposition::{DeflatePart, Format, Piece};

/// How a resource is written.
#[derive(Clone, Debug)]
enum Way {
    /// As text.
    Text,
    /// By a general compressor, and kept.
    Pack,
    /// It has been compressed already, and is handed on.
    Packed,
    /// From its templates.
    Codes(Arc<ResourceCodes>),
}

/// The pieces of a body that is to be compressed.
#[derive(Debug)]
pub(super) struct Deflate {
    walk: Walk,
    format: Format,
    /// Whether the body has all families and objects.
    whole: bool,
    resources: Arc<[Resource]>,
    /// What is known of all resources.
    known: Arc<Codes>,
    /// The resource at hand, and how it is written.
    way: Option<(usize, Way)>,
    /// Its codes while they are made.
    making: Option<Making>,
    /// The step at hand and the object to go on with, if the last piece ended within it.
    rest: Option<(Step, usize)>,
    /// Text that is handed on.
    text: Vec<u8>,
    block: Option<Block>,
    packing: Option<Packing>,
    /// The rest of a resource that has been compressed already.
    packed: Option<DeflatePart>,
    scratch: Vec<u8>,
    frames: Frames,
    ended: bool,
}

/// A resource while it is being written.
#[derive(Debug)]
struct Block {
    resource: usize,
    writer: BitWriter,
    lines: Lines,
    /// Of the text since the last piece, and of the whole resource.
    sum: Checksum,
    text: Checksum,
    compressed: u64,
}

impl Block {
    fn new(resource: usize, codes: &ResourceCodes) -> Self {
        Self {
            resource,
            writer: BitWriter::new(Arc::clone(&codes.any)),
            lines: Lines::default(),
            sum: Checksum::default(),
            text: Checksum::default(),
            compressed: 0,
        }
    }

    fn add(&mut self, sum: Checksum) {
        self.sum.append(sum);
        self.text.len += sum.len;
    }

    fn take(&mut self, frames: &Frames) -> Piece {
        let (buffer, len) = self.writer.exchange(frames.buffer());
        let bytes = frames.frame(buffer, len);
        self.compressed += bytes.len() as u64;
        let Checksum { crc, len } = std::mem::take(&mut self.sum);
        Piece::Deflated(DeflatePart { bytes, crc, text_len: len })
    }
}

impl Deflate {
    pub(super) fn new(
        resources: Vec<Resource>,
        format: Format,
        names: Option<BTreeSet<String>>,
        known: Arc<Codes>,
    ) -> Self {
        let resources: Arc<[Resource]> = resources.into();
        Self {
            whole: names.is_none() && resources.iter().all(|resource| resource.part_of.is_none()),
            walk: Walk::new(Arc::clone(&resources), names),
            resources,
            known,
            way: None,
            making: None,
            format,
            rest: None,
            text: Vec::new(),
            block: None,
            packing: None,
            packed: None,
            scratch: Vec::new(),
            frames: Frames::default(),
            ended: false,
        }
    }

    /// What there is when others are to go first, if only nothing.
    fn so_far(&mut self) -> Piece {
        match (&mut self.block, &mut self.packing) {
            (Some(block), _) => block.take(&self.frames),
            (None, Some(packing)) => packing.piece(),
            (None, None) => self.as_text(),
        }
    }

    fn as_text(&mut self) -> Piece {
        Piece::Text(std::mem::take(&mut self.text).into())
    }

    /// Decides how the resource of a step is written, or does a piece of the work that this takes.
    fn choose(&mut self, step: &Step) -> Option<Way> {
        let at = step.resource;
        if let Some((_, way)) = self.way.as_ref().filter(|(of, _)| *of == at) {
            return Some(way.clone());
        }
        let resource = &self.resources[at];
        let is_whole = resource.part_of.is_none() && self.walk.opens_all(step);
        let content = is_whole.then(|| resource.content(self.format));
        let kept = resource.stores.first().filter(|_| is_whole).map(|store| &store.packed);
        let part = content.as_ref().zip(kept).and_then(|(content, kept)| kept.of(content));
        let little = || little_text(resource, |name| self.walk.wants(name));
        let way = if part.is_some() {
            self.packed = part;
            Way::Packed
        } else if self.making.is_none()
            && let Some(text) = little()
        {
            self.packing =
                content.filter(|_| text >= packed::FROM).map(|content| Packing::new(at, content));
            if self.packing.is_some() { Way::Pack } else { Way::Text }
        } else {
            // A part is written with the codes of the whole, so that what is noted with a page serves both. Another scrape
            // may have made some meanwhile: with codes of its own each of them would note everything anew.
            let whole = resource.part_of.as_deref().unwrap_or(resource);
            match (self.known.known(whole), &mut self.making) {
                (Some(codes), _) => Way::Codes(codes),
                (None, Some(making)) => Way::Codes(making.go_on(&self.known)?),
                (None, None) => {
                    self.making = Some(Making::new(whole));
                    return None;
                }
            }
        };
        if let (Way::Text | Way::Codes(_), Some(kept)) = (&way, kept) {
            kept.forget();
        }
        self.making = None;
        self.way = Some((at, way.clone()));
        Some(way)
    }

    /// Adds one step to the text that is handed on, or to that of the resource at hand.
    fn add_text(&mut self, step: &Step) {
        let family = self.walk.family(step);
        let text = self.packing.as_mut().map_or(&mut self.text, |packing| &mut packing.text);
        match &step.page {
            None => family.header(self.format, text),
            Some(page) => expand(family.name.as_bytes(), page, step.family, text),
        }
    }

    /// Ends the resource before.
    fn close(&mut self) -> Option<Piece> {
        if let Some(packing) = self.packing.take() {
            let store = self.resources[packing.resource].stores.first()?;
            return Some(packing.end(&store.packed));
        }
        let mut block = self.block.take()?;
        block.lines.flush(&mut block.writer);
        block.writer.finish();
        let piece = block.take(&self.frames);
        if let Some((_, Way::Codes(codes))) = self.way.as_ref().filter(|_| self.whole) {
            codes.came_to(block.compressed, block.text);
        }
        Some(piece)
    }

    /// Writes one step from an object on; tells with which object to go on when there is enough for a
    /// piece.
    fn write(&mut self, step: &Step, from: usize, codes: &ResourceCodes) -> Option<usize> {
        let block = self.block.get_or_insert_with(|| Block::new(step.resource, codes));
        let family = self.walk.family(step);
        let Some(page) = &step.page else {
            self.scratch.clear();
            family.header(self.format, &mut self.scratch);
            block.lines.other(&self.scratch, &mut block.writer);
            block.add(Checksum::of(&self.scratch));
            return None;
        };
        let own = codes.families.get(step.family);
        let (code, search) = own.map_or((&codes.any, false), |own| (&own.code, own.search));
        let noted = own.is_some_and(|own| own.noted) && page.is_noted(step.family);
        // One that agrees on literals and is at hand will do for a family that has no code of its own.
        let at_hand = block.writer.code();
        let agrees = !noted && Arc::ptr_eq(code, &codes.any) && at_hand.id() == code.id();
        if !agrees && !Arc::ptr_eq(code, at_hand) {
            block.lines.flush(&mut block.writer);
            block.writer.change(Arc::clone(code));
        }
        let name = family.name.as_bytes();
        let scratch = &mut self.scratch;
        let mut sum = || {
            page.checksum(step.family, |page| {
                scratch.clear();
                expand(name, page, step.family, scratch);
                Checksum::of(scratch)
            })
        };
        let tails = page.tails(&codes.any);
        if noted {
            let sum = sum();
            let Block { lines, writer, .. } = block;
            let manner = Manner { tails: &tails, code: code.id(), search };
            let objects = |slots| (step.family, slots);
            // What is searched copies from nothing before the page. Else only the first object is compared with the page
            // before, and where the bits of the others stand in the text makes no difference to them.
            let ends = page.family(step.family).and_then(Segment::ends).filter(|_| !search);
            let first = ends.map_or(0, |(first, ..)| first + 1);
            let end = lines.at() + sum.len;
            lines.segment(name, page, objects(0..first), manner, writer);
            lines.flush(writer);
            let encoded = page.encoded(step.family, code, || {
                let mut apart = Lines::default();
                let mut unused = BitWriter::apart(Arc::clone(code));
                apart.segment(name, page, objects(0..first), manner, &mut unused);
                apart.flush(&mut unused);
                let mut writer = BitWriter::apart(Arc::clone(code));
                apart.segment(name, page, objects(first..PAGE), manner, &mut writer);
                apart.flush(&mut writer);
                writer.encoded()
            });
            writer.append(&encoded, &tails);
            match ends {
                Some((_, last, rest)) => lines.skip(name, page, (last, rest), end),
                None => lines.pass(sum.len),
            }
            block.add(sum);
            return None;
        }
        let manner = Manner { tails: &tails, code: block.writer.code().id(), search };
        let position = (step.family, from..PAGE);
        let rest = block.lines.segment(name, page, position, manner, &mut block.writer);
        if rest.is_none() {
            block.add(sum());
        }
        rest
    }
}

impl Iterator for Deflate {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        while !self.ended {
            // It was chosen behind text, which goes first.
            if let Some(part) = self.packed.as_mut().filter(|_| self.text.is_empty()) {
                let piece = packed::split(part, FRAME);
                self.packed = self.packed.take().filter(|rest| !rest.bytes.is_empty());
                return Some(Piece::Deflated(piece));
            }
            if self.text.len() >= FRAME {
                return Some(self.as_text());
            }
            if let Some(packing) = self.packing.as_mut().filter(|it| it.text.len() >= FRAME) {
                return Some(packing.piece());
            }
            if let Some(block) = self.block.as_mut().filter(|block| block.writer.is_full()) {
                return Some(block.take(&self.frames));
            }
            let (step, from) = match self.rest.take() {
                Some(rest) => rest,
                None => match self.walk.next() {
                    Walked::To(step) => (step, 0),
                    Walked::OverNothing => return Some(self.so_far()),
                    Walked::Out => {
                        self.ended = true;
                        break;
                    }
                },
            };
            let block = self.block.as_ref().map(|block| block.resource);
            let before = block.or(self.packing.as_ref().map(|packing| packing.resource));
            if before.is_some_and(|before| before != step.resource) {
                self.rest = Some((step, from));
                return self.close();
            }
            let Some(way) = self.choose(&step) else {
                self.rest = Some((step, from));
                return Some(self.so_far());
            };
            match way {
                Way::Text => self.add_text(&step),
                // Text of resources before goes first.
                _ if !self.text.is_empty() => {
                    self.rest = Some((step, from));
                    return Some(self.as_text());
                }
                Way::Packed => self.walk.pass(step.resource),
                Way::Pack => self.add_text(&step),
                Way::Codes(codes) => {
                    if let Some(from) = self.write(&step, from, &codes) {
                        self.rest = Some((step, from));
                    }
                }
            }
        }
        // At the end there is either text or a resource that is not ended, or neither.
        self.close().or_else(|| (!self.text.is_empty()).then(|| self.as_text()))
    }
}
