//! The contract between a pipeline that has metrics and the server that sends them.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::time::Instant;

use bytes::Bytes;

use super::typed::TypedBody;

/// The text formats of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text format 0.0.4.
    Text,
    /// OpenMetrics text 1.0. The server writes the `# EOF` trailer once, after the last source.
    OpenMetrics,
}

/// One of several parts of the objects of a process, in which each object belongs to exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VirtualShard {
    /// The zero-based index, below `total`.
    pub index: u32,
    /// The number of parts.
    pub total: u32,
}

/// The selection that a scrape requests, apart from format and compression.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ScrapeQuery {
    /// `resources=`: only these resources, `None` for all. An empty list selects nothing.
    pub resources: Option<BTreeSet<String>>,
    /// `exclude_resources=`: resources to leave out, applied after `resources`.
    pub exclude_resources: BTreeSet<String>,
    /// `namespace=`: only objects of these namespaces, `None` for all objects.
    pub namespaces: Option<BTreeSet<String>>,
    /// `shard=` and `total_shards=`: only objects of this part, `None` for all objects.
    pub shard: Option<VirtualShard>,
    /// `name[]=`: only families with exactly these names, `None` for all.
    pub names: Option<BTreeSet<String>>,
    /// A hash of what tells the scraper from others, apart from the fields above: address, user agent and path. It does not
    /// affect the answer.
    pub scraper: u64,
    /// True if the request comes from a kstatd command and not from a scraper.
    pub by_a_command: bool,
}

/// A part of a raw deflate stream (RFC 1951) with the data needed to join it to its neighbours.
///
/// Consecutive parts belong to one stream. The last of them ends on a byte boundary, without a final block, and none of
/// them refers to data before the first, so they can be joined with others into one gzip member.
#[derive(Clone, Debug)]
pub struct DeflatePart {
    /// The compressed bytes.
    pub bytes: Bytes,
    /// CRC-32 (IEEE) of the uncompressed text.
    pub crc: u32,
    /// Length of the uncompressed text, in bytes.
    pub text_len: u64,
}

/// A piece of a body that is to be compressed.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Text for the server to compress.
    Text(Bytes),
    /// Compressed text.
    Deflated(DeflatePart),
}

impl Default for Piece {
    fn default() -> Self {
        Self::Text(Bytes::new())
    }
}

/// The work before a scrape.
pub type Preparation<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A source of metrics: one side of the process.
///
/// Each method takes one snapshot when it is called; the iterator yields its content, however slowly it is read, and
/// holds no lock. Computing the next piece is a bounded amount of work, about a millisecond, independent of the amount
/// of data. An empty piece means that no bytes are ready yet and that other work may run before the next call.
pub trait Source: Send + Sync {
    /// Runs before a scrape that came at `since` and may be one of kstatd's commands. A source that may be empty makes
    /// sure of it here.
    fn prepare(&self, since: Instant, by_a_command: bool) -> Option<Preparation<'_>> {
        let _ = (since, by_a_command);
        None
    }

    /// Returns the body in pieces of about 16–64 KiB.
    fn frames(&self, format: Format, query: &ScrapeQuery)
    -> Box<dyn Iterator<Item = Bytes> + Send>;

    /// Returns the same body for a gzip response. The default leaves compression to the server.
    fn deflated(
        &self,
        format: Format,
        query: &ScrapeQuery,
    ) -> Box<dyn Iterator<Item = Piece> + Send> {
        Box::new(self.frames(format, query).map(Piece::Text))
    }

    /// Returns the bytes that the last body took as a whole before its client read them; 0 if it is made while the client reads.
    fn last_size(&self) -> usize {
        0
    }

    /// Lists the data that is still missing and without which the source must not be scraped, in words for an operator.
    fn missing(&self) -> Vec<String> {
        Vec::new()
    }

    /// True if its series belong to namespaces, so that it can answer queries for some of them. Other sources are left
    /// out of such an answer.
    fn has_namespaces(&self) -> bool {
        false
    }

    /// True if it divides its objects among virtual shards. The series of other sources belong to the first shard.
    fn has_shards(&self) -> bool {
        false
    }

    /// Returns families and samples as values, for every format but text; `None` if the source has no such form.
    fn typed(&self, query: &ScrapeQuery) -> Option<Box<dyn TypedBody>> {
        let _ = query;
        None
    }
}
