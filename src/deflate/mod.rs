//! Writes templated lines as deflate streams.
//!
//! A general-purpose compressor searches for repetitions. Here they are known from the page layout: a series line is
//! metric name + identity + rest, all lines of an object share the identity, and the rest is mostly equal to that of
//! the previous object. The encoder turns each line into one or two copies and a few literals, and memoizes bits that
//! do not change between scrapes. It knows neither resources nor metrics; the cache is its only user.
//!
//! **Input.** A [`Segment`] is a column of up to [`PAGE`] texts with repeats removed. [`Rows`] is one family of a
//! page: the metric name, the identities and the lines, as two segments.
//!
//! **Codes.** A [`CodeBuilder`] samples pages ([`PageSample`]), one of every [`CodeBuilder::sampling_step`], and
//! returns a [`CodeSet`] after some bounded calls of [`CodeBuilder::step`]. [`CodeSet::fits`] tells when it should be
//! rebuilt: the number of pages has halved or doubled, or the compression ratio has deteriorated by 1/16.
//!
//! **Output.** An [`Encoder`] writes one resource, or a part of it:
//! - [`Encoder::raw`] writes other text, such as family headers.
//! - [`Encoder::segment`] writes the lines of a page from an object on. It returns the next object if the output is
//!   full.
//! - [`Encoder::take`] hands out complete bytes with the [`Checksum`] of their text, in exchange for an empty buffer.
//! - [`Encoder::finish`] ends the last block at a byte boundary, so that streams can be concatenated.
//! - [`StreamSize::record`] reports a complete resource, of one stream or several, to its codes.
//!
//! **Memoization.** Each page owns a [`PageMemo`]: checksums, identity diffs and encoded segments. The page must call
//! [`PageMemo::forget`] when a family changes and [`PageMemo::clear`] when identities change.
//!
//! The work per call is bounded by the size of a page, so a scrape never blocks an async worker for long. The format is
//! that of [RFC 1951](https://www.rfc-editor.org/rfc/rfc1951).

mod bit_writer;
mod code_builder;
mod crc32;
mod encoded_segment;
mod encoder;
mod huffman;
mod identity_diff;
mod line_encoder;
mod line_matcher;
mod match_finder;
mod memo;
mod segment;
mod symbols;

pub(crate) use code_builder::{CodeBuilder, CodeSet, PageSample};
pub(crate) use crc32::Checksum;
pub(crate) use encoder::{Encoder, StreamSize};
pub(crate) use line_matcher::Rows;
pub(crate) use memo::PageMemo;
pub use segment::PAGE;
pub(crate) use segment::{Scratch, Segment, padded, set};
