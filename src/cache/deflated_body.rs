//! The body of a gzip scrape, as deflate pieces.
//!
//! Large resources are written by [`deflate::Encoder`](crate::deflate::Encoder) directly from the templated lines.
//! Small resources go through zlib once and are cached until they change; very small ones are passed on as text and
//! compressed by the server together with their neighbours.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::body::{Place, Progress, Step, Walk, expand};
use super::buffer_pool::BufferPool;
use super::code_cache::{code_builder, known_codes, little_text, store_codes};
use super::deflate_cache::{self, DeflateJob};
use super::frame_size::{FRAME, divided};
use super::resource::Resource;
use crate::deflate::{Checksum, CodeBuilder, CodeSet, Encoder, StreamSize};
use crate::exposition::{DeflatePart, Format, Piece};

/// The encoding of a resource.
#[derive(Clone, Debug)]
enum Encoding {
    /// Text, to be compressed by the server.
    Text,
    /// Compressed by zlib and cached.
    Compress,
    /// Already in the cache.
    Cached,
    /// Encoded from its templated lines.
    Templates(Arc<CodeSet>),
}

/// The pieces of a compressed body.
#[derive(Debug)]
pub(super) struct DeflatedBody {
    walk: Walk,
    format: Format,
    /// True if the body has all families and objects.
    whole: bool,
    resources: Arc<[Resource]>,
    /// Current resource and its encoding.
    encoding: Option<(usize, Encoding)>,
    /// Codes of the current resource while they are being built.
    code_builder: Option<CodeBuilder>,
    /// Current step and the next line, if the last piece ended within the step.
    rest: Option<(Step, Place)>,
    /// Text passed on to the server.
    text: Vec<u8>,
    /// Rest of a text with a long line, which precedes it.
    large: Bytes,
    /// Stream of the current resource, if it is encoded.
    encoder: Option<Encoder>,
    /// Sizes of the encoded resources. One that shares a family with others is encoded in several streams.
    sizes: BTreeMap<usize, StreamSize>,
    /// Text of the current resource, if it is compressed.
    job: Option<DeflateJob>,
    /// Rest of a cached resource.
    cached: Option<DeflatePart>,
    scratch: Vec<u8>,
    buffers: BufferPool,
    ended: bool,
}

fn take(encoder: &mut Encoder, buffers: &BufferPool) -> Piece {
    let (buffer, len, Checksum { crc, len: text_len }) = encoder.take(buffers.buffer());
    Piece::Deflated(DeflatePart { bytes: buffers.frame(buffer, len), crc, text_len })
}

impl DeflatedBody {
    pub(super) fn new(
        resources: Vec<Resource>,
        format: Format,
        names: Option<BTreeSet<String>>,
        is_grouped: bool,
    ) -> Self {
        let resources: Arc<[Resource]> = resources.into();
        Self {
            whole: names.is_none() && resources.iter().all(|resource| resource.part_of.is_none()),
            walk: Walk::new(Arc::clone(&resources), names, is_grouped),
            resources,
            encoding: None,
            code_builder: None,
            format,
            rest: None,
            text: Vec::new(),
            large: Bytes::new(),
            encoder: None,
            sizes: BTreeMap::new(),
            job: None,
            cached: None,
            scratch: Vec::new(),
            buffers: BufferPool::default(),
            ended: false,
        }
    }

    /// Returns the output so far, which may be empty, to yield to other tasks.
    fn flush(&mut self) -> Piece {
        match (&mut self.encoder, &mut self.job) {
            (Some(encoder), _) => take(encoder, &self.buffers),
            (None, Some(job)) => job.piece(),
            (None, None) => self.as_text(),
        }
    }

    /// Returns the text, or the first part of it if it has a long line.
    fn as_text(&mut self) -> Piece {
        self.large = std::mem::take(&mut self.text).into();
        Piece::Text(divided(&mut self.large))
    }

    /// Chooses the encoding of a step's resource. Returns `None` after a part of the necessary work.
    fn choose(&mut self, step: &Step) -> Option<Encoding> {
        let at = step.resource;
        if let Some((_, encoding)) = self.encoding.as_ref().filter(|(of, _)| *of == at) {
            return Some(encoding.clone());
        }
        let resource = &self.resources[at];
        let is_cached = resource.is_repeatable && self.walk.opens_all(step);
        let content = is_cached.then(|| resource.content(self.format));
        let cache = resource.stores.first().filter(|_| is_cached).map(|store| &store.deflate_cache);
        let part = content.as_ref().zip(cache).and_then(|(content, cache)| cache.of(content));
        // A part of a resource uses the codes of the whole, so both share the memo of a page.
        let whole = resource.part_of.as_deref().unwrap_or(resource);
        let wanted = |name: &str| self.walk.wants(name);
        let little = || {
            let text = little_text(whole, wanted)?;
            if resource.part_of.is_some() { little_text(resource, wanted) } else { Some(text) }
        };
        let encoding = if part.is_some() {
            self.cached = part;
            Encoding::Cached
        } else if self.code_builder.is_none()
            && let Some(text) = little()
        {
            self.job = content.filter(|_| text >= deflate_cache::MIN_TEXT).map(DeflateJob::new);
            if self.job.is_some() { Encoding::Compress } else { Encoding::Text }
        } else {
            // Another scrape may have finished building codes meanwhile: two sets of codes would replace each other's
            // memos.
            match (known_codes(whole), &mut self.code_builder) {
                (Some(codes), _) => Encoding::Templates(codes),
                (None, Some(code_builder)) => {
                    Encoding::Templates(store_codes(whole, code_builder.step()?))
                }
                (None, None) => {
                    self.code_builder = Some(code_builder(whole));
                    return None;
                }
            }
        };
        if let (Encoding::Text | Encoding::Templates(_), Some(cache)) = (&encoding, cache) {
            cache.forget();
        }
        self.code_builder = None;
        self.encoding = Some((at, encoding.clone()));
        Some(encoding)
    }

    /// Appends a step to the text of the current resource, starting at `from`. Returns the next line if the piece is full.
    fn add_text(&mut self, step: &Step, from: Place) -> Option<Place> {
        let family = self.walk.family(step);
        let text = self.job.as_mut().map_or(&mut self.text, |job| &mut job.text);
        match &step.page {
            None => {
                family.header(self.format, text);
                None
            }
            Some(page) => expand(family.name.as_bytes(), page, step.family, from, text),
        }
    }

    /// Ends the current resource.
    fn close(&mut self) -> Option<Piece> {
        let resource = self.encoding.as_ref()?.0;
        if let Some(job) = self.job.take() {
            let store = self.resources[resource].stores.first()?;
            return Some(job.end(&store.deflate_cache));
        }
        let mut encoder = self.encoder.take()?;
        encoder.finish();
        let piece = take(&mut encoder, &self.buffers);
        if self.whole {
            let size = encoder.size();
            match self.sizes.get_mut(&resource) {
                Some(sum) => sum.add(&size),
                None => drop(self.sizes.insert(resource, size)),
            }
        }
        Some(piece)
    }

    /// Encodes a step, starting at object `from`. Returns the next object if the piece is full.
    fn write(&mut self, step: &Step, from: usize, codes: Arc<CodeSet>) -> Option<usize> {
        let encoder = self.encoder.get_or_insert_with(|| Encoder::new(codes));
        let family = self.walk.family(step);
        let scratch = &mut self.scratch;
        let Some(page) = &step.page else {
            scratch.clear();
            family.header(self.format, scratch);
            encoder.raw(scratch);
            return None;
        };
        let rows = page.rows(&family.name, step.family)?;
        encoder.segment(rows, page.memo(), from, || {
            let mut next_piece = |from| {
                scratch.clear();
                let next = expand(rows.name, page, step.family, from, scratch);
                (Checksum::of(scratch), next)
            };
            let (mut sum, mut next) = next_piece(Place::default());
            while let Some(from) = next {
                let piece = next_piece(from);
                sum.append(piece.0);
                next = piece.1;
            }
            sum
        })
    }
}

impl Iterator for DeflatedBody {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if !self.large.is_empty() {
            return Some(Piece::Text(divided(&mut self.large)));
        }
        while !self.ended {
            // Text of earlier resources goes first.
            if let Some(part) = self.cached.as_mut().filter(|_| self.text.is_empty()) {
                let piece = deflate_cache::split(part, FRAME);
                self.cached = self.cached.take().filter(|rest| !rest.bytes.is_empty());
                return Some(Piece::Deflated(piece));
            }
            if self.text.len() >= FRAME {
                return Some(self.as_text());
            }
            if let Some(job) = self.job.as_mut().filter(|job| job.is_full()) {
                return Some(job.piece());
            }
            if let Some(encoder) = self.encoder.as_mut().filter(|encoder| encoder.is_full()) {
                return Some(take(encoder, &self.buffers));
            }
            let (step, from) = match self.rest.take() {
                Some(rest) => rest,
                None => match self.walk.next() {
                    Progress::Step(step) => (step, Place::default()),
                    Progress::Yield => return Some(self.flush()),
                    Progress::End => {
                        self.ended = true;
                        break;
                    }
                },
            };
            let is_other = self.encoding.as_ref().is_some_and(|(of, _)| *of != step.resource);
            if is_other && (self.encoder.is_some() || self.job.is_some()) {
                self.rest = Some((step, from));
                return self.close();
            }
            let Some(encoding) = self.choose(&step) else {
                self.rest = Some((step, from));
                return Some(self.flush());
            };
            let next = match encoding {
                Encoding::Text => self.add_text(&step, from),
                // Text of earlier resources goes first.
                _ if !self.text.is_empty() => {
                    self.rest = Some((step, from));
                    return Some(self.as_text());
                }
                Encoding::Cached => {
                    self.walk.pass(step.resource);
                    None
                }
                Encoding::Compress => self.add_text(&step, from),
                Encoding::Templates(codes) => self.write(&step, from.slot, codes).map(Place::of),
            };
            self.rest = next.map(|next| (step, next));
        }
        // Either text or an unfinished resource remains, or neither.
        let last = self.close().or_else(|| (!self.text.is_empty()).then(|| self.as_text()));
        if last.is_none() {
            std::mem::take(&mut self.sizes).values().for_each(StreamSize::record);
        }
        last
    }
}
