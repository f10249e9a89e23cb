//! The contract between a pipeline that has metrics and the server that sends them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use bytes::Bytes;

use super::prototext::{Layout, Texts};

/// The text formats a body can be written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text format 0.0.4.
    Text,
    /// OpenMetrics text 1.0 (the `# EOF` trailer is written by the server, once, after the last source).
    OpenMetrics,
}

/// What a scrape asks for, apart from format and compression.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ScrapeQuery {
    /// `resources=`: only these resources, `None` for all. An empty list selects nothing.
    pub resources: Option<BTreeSet<String>>,
    /// `exclude_resources=`: resources left out, applied after `resources`.
    pub exclude_resources: BTreeSet<String>,
    /// `namespace=`: only objects of these namespaces, `None` for all objects.
    pub namespaces: Option<BTreeSet<String>>,
    /// `name[]=`: only families with exactly these names, `None` for all.
    pub names: Option<BTreeSet<String>>,
    /// Who asks, where that is known. It changes nothing of the answer.
    pub scraper: Option<IpAddr>,
}

/// A piece of a raw deflate stream (RFC 1951) with what is needed to join it to its neighbours.
///
/// Parts that follow each other are of one stream. The last of them ends on a byte boundary, without a final
/// block, and none of them copies from before the first, so that they can be joined with others into one
/// gzip member.
#[derive(Clone, Debug)]
pub struct DeflatePart {
    /// Compressed bytes.
    pub bytes: Bytes,
    /// CRC-32 (IEEE) of the text this piece stands for.
    pub crc: u32,
    /// Length in bytes of that text.
    pub text_len: u64,
}

/// A piece of a body that is to be compressed.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Text that the server compresses.
    Text(Bytes),
    /// Text that is compressed already.
    Deflated(DeflatePart),
}

/// Something that has metrics: one side of the process.
///
/// Each method takes one snapshot when it is called; what the iterator then yields is of that moment,
/// however slowly it is read, and holds no lock. To ask for the next piece is a bounded amount of work, about a
/// millisecond, however much there is of anything; an empty piece says that there are no bytes yet, and that others may
/// go first before it is asked for again.
pub trait Source: Send + Sync {
    /// The body in pieces of about 16–64 KiB.
    fn frames(&self, format: Format, query: &ScrapeQuery)
    -> Box<dyn Iterator<Item = Bytes> + Send>;

    /// The same body for a gzip response. The default leaves compressing to the server.
    fn deflated(
        &self,
        format: Format,
        query: &ScrapeQuery,
    ) -> Box<dyn Iterator<Item = Piece> + Send> {
        Box::new(self.frames(format, query).map(Piece::Text))
    }

    /// What it does not have yet and without which it is not to be seen, in words for an operator.
    fn missing(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether it has series that belong to namespaces, and gives those alone when a query names some. Any other source is
    /// left out of such an answer.
    fn has_namespaces(&self) -> bool {
        false
    }

    /// The body as length-delimited `io.prometheus.client.MetricFamily` messages; `None` when this
    /// source has no such form.
    fn protobuf_frames(
        &self,
        query: &ScrapeQuery,
    ) -> Option<Box<dyn Iterator<Item = Bytes> + Send>> {
        let _ = query;
        None
    }

    /// The same messages as protobuf text. The default makes it of [`Source::protobuf_frames`].
    fn prototext_frames(
        &self,
        layout: Layout,
        query: &ScrapeQuery,
    ) -> Option<Box<dyn Iterator<Item = Bytes> + Send>> {
        let frames = self.protobuf_frames(query)?;
        Some(Box::new(Texts::new(frames, layout)))
    }
}
