//! A metrics path: content negotiation, filters, and the bodies of one or several sources as one.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::FixedState;
use hyper::Method;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, USER_AGENT,
};

use super::body::Body;
use super::connection::Peer;
use super::gzip::Member;
use super::query::{self, Filters};
use super::response::{self, Response};
use super::router::Call;
use crate::exposition::message::{self, Delimited, ProtoText};
use crate::exposition::negotiate::{self, Dialect, Media, ProtobufEncoding};
use crate::exposition::prototext::Layout;
use crate::exposition::{Format, Piece, ScrapeQuery, Source};

/// The last line of an OpenMetrics body.
const EOF: &[u8] = b"# EOF\n";

/// The rule for compressing a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gzip {
    /// Never.
    Off,
    /// Like kube-state-metrics interprets `Accept-Encoding`.
    ByItem,
    /// By the weights in `Accept-Encoding`.
    ByWeight,
}

/// The sources and rules of a metrics path.
#[derive(Clone)]
pub struct Scrape {
    /// The sources, served in order as one body.
    pub sources: Vec<Arc<dyn Source>>,
    /// The rules of content negotiation.
    pub dialect: Dialect,
    /// The supported query parameters.
    pub filters: Filters,
    /// The rule for compression.
    pub gzip: Gzip,
}

type Frames = Box<dyn Iterator<Item = Bytes> + Send>;
type Pieces = Box<dyn Iterator<Item = Piece> + Send>;

impl Scrape {
    /// Lets the sources that a request asks for prepare the scrape.
    pub async fn prepare(&self, call: &Call) {
        // Taken once, so that the sources share what one of them finds out.
        let since = tokio::time::Instant::now().into_std();
        // An invalid query is answered without the sources.
        let Ok(query) = query::scrape_query(call.query(), self.filters) else { return };
        for source in self.asked(&query) {
            if let Some(preparation) = source.prepare(since, call.is_from_command()) {
                preparation.await;
            }
        }
    }

    /// Answers one scrape. The snapshot is taken here; the body is produced while the client reads.
    pub fn respond(&self, call: &Call) -> Response {
        let choice = match self.dialect {
            // The originals consider only the first header.
            Dialect::KubeStateMetrics | Dialect::ClientGolang { .. } => {
                negotiate::format(call.header(ACCEPT), self.dialect)
            }
            Dialect::Native { .. } => {
                let wishes: Vec<&str> = call.headers(ACCEPT).collect();
                negotiate::format(&wishes.join(", "), self.dialect)
            }
        };
        let compressed = match self.gzip {
            Gzip::Off => false,
            Gzip::ByItem => negotiate::gzip_by_item(call.header(ACCEPT_ENCODING)),
            Gzip::ByWeight => negotiate::gzip_by_weight(call.headers(ACCEPT_ENCODING)),
        };
        let mut query = match query::scrape_query(call.query(), self.filters) {
            Ok(query) => query,
            Err(error) => return response::error(400, format!("{error}\n")),
        };
        let address = call.head.extensions.get::<Peer>().and_then(Peer::address);
        let scraper = (address, call.header(USER_AGENT), &call.path);
        query.scraper = FixedState::default().hash_one(scraper);
        query.by_a_command = call.is_from_command();
        let missing: Vec<String> = self.asked(&query).flat_map(|source| source.missing()).collect();
        if !missing.is_empty() {
            return response::waiting_for(&missing);
        }
        let typed = match choice.media {
            Media::Protobuf(encoding) => self.protobuf(encoding, &query),
            _ => None,
        };
        let has_no_protobuf = typed.is_none() && matches!(choice.media, Media::Protobuf(_));
        let choice = if has_no_protobuf { choice.or_text() } else { choice };
        let body = match typed {
            // The body of a HEAD is never read, so it is not produced.
            _ if call.head.method == Method::HEAD => Body::empty(),
            Some(frames) if compressed => {
                Body::member(Member::new(Box::new(frames.map(Piece::Text))))
            }
            Some(frames) => Body::frames(frames),
            None => self.text(choice.format(), &query, compressed),
        };
        let mut answer = response::with_type(200, "text/plain; charset=utf-8", body);
        if let Ok(content_type) = HeaderValue::from_str(&choice.content_type()) {
            answer = response::header(answer, CONTENT_TYPE, content_type);
        }
        if compressed {
            answer = response::header(answer, CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        answer
    }

    fn text(&self, format: Format, query: &ScrapeQuery, compressed: bool) -> Body {
        let end = (format == Format::OpenMetrics).then_some(Bytes::from_static(EOF));
        if compressed {
            let bodies: Vec<Pieces> =
                self.asked(query).map(|source| source.deflated(format, query)).collect();
            let pieces = bodies.into_iter().flatten().chain(end.map(Piece::Text));
            Body::member(Member::new(Box::new(pieces)))
        } else {
            let bodies: Vec<Frames> =
                self.asked(query).map(|source| source.frames(format, query)).collect();
            Body::frames(Box::new(bodies.into_iter().flatten().chain(end)))
        }
    }

    /// Returns the sources that match the query.
    fn asked(&self, query: &ScrapeQuery) -> impl Iterator<Item = &Arc<dyn Source>> {
        let all = query.namespaces.is_none();
        let first = query.shard.is_none_or(|shard| shard.index == 0);
        self.sources.iter().filter(move |source| {
            (all || source.has_namespaces()) && (first || source.has_shards())
        })
    }

    /// Returns a protobuf body, if every source supports it.
    fn protobuf(&self, encoding: ProtobufEncoding, query: &ScrapeQuery) -> Option<Frames> {
        let bodies: Option<Vec<_>> = self.asked(query).map(|source| source.typed(query)).collect();
        let bodies = bodies?;
        let layout = match encoding {
            ProtobufEncoding::Delimited => {
                return Some(Box::new(message::frames(bodies, Delimited::default())));
            }
            ProtobufEncoding::Text => Layout::Lines,
            ProtobufEncoding::CompactText => Layout::Compact,
        };
        Some(Box::new(message::frames(bodies, ProtoText::new(layout))))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;
    use std::time::Instant;

    use hyper::Request;

    use super::*;
    use crate::exposition::Preparation;

    /// Remembers the scrapes that it was prepared for.
    #[derive(Default)]
    struct Prepared {
        has_shards: bool,
        scrapes: Mutex<Vec<(Instant, bool)>>,
    }

    impl Source for Prepared {
        fn prepare(&self, since: Instant, by_a_command: bool) -> Option<Preparation<'_>> {
            Some(Box::pin(async move {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                self.scrapes.lock().expect("no panic").push((since, by_a_command));
            }))
        }

        fn has_shards(&self) -> bool {
            self.has_shards
        }

        fn frames(&self, _: Format, _: &ScrapeQuery) -> Box<dyn Iterator<Item = Bytes> + Send> {
            Box::new(std::iter::empty())
        }
    }

    /// A standby asks the active replica once for all its sources, and not for sources that are not exposed.
    #[tokio::test]
    async fn sources_of_one_scrape_are_prepared_for_one_time() {
        let sources = [true, true, false]
            .map(|has_shards| Arc::new(Prepared { has_shards, ..Prepared::default() }));
        let scrape = Scrape {
            sources: sources.iter().map(|source| Arc::clone(source) as Arc<dyn Source>).collect(),
            dialect: Dialect::KubeStateMetrics,
            filters: Filters::Resources,
            gzip: Gzip::Off,
        };
        for (query, prepared) in [
            ("", [1, 1, 1]),
            ("?shard=1&total_shards=2", [1, 1, 0]),
            ("?shard=2&total_shards=2", [0, 0, 0]),
        ] {
            let request = Request::get(format!("/metrics{query}")).body(()).expect("a request");
            let (head, ()) = request.into_parts();
            scrape.prepare(&Call { head, path: "/metrics".to_owned() }).await;
            let scrapes = sources
                .each_ref()
                .map(|source| std::mem::take(&mut *source.scrapes.lock().expect("no panic")));
            assert_eq!(scrapes.each_ref().map(Vec::len), prepared, "{query}");
            let times: BTreeSet<_> = scrapes.iter().flatten().map(|(since, _)| since).collect();
            assert!(times.len() <= 1, "{query}: {times:?}");
        }
    }

    /// Remembers who asked.
    #[derive(Default)]
    struct Asked(Mutex<BTreeSet<u64>>);

    impl Source for Asked {
        fn frames(&self, _: Format, query: &ScrapeQuery) -> Box<dyn Iterator<Item = Bytes> + Send> {
            self.0.lock().expect("no panic").insert(query.scraper);
            Box::new(std::iter::empty())
        }
    }

    #[test]
    fn scrapers_behind_one_address_are_told_apart() {
        let asked = Arc::new(Asked::default());
        let scrape = Scrape {
            sources: vec![Arc::clone(&asked) as _],
            dialect: Dialect::KubeStateMetrics,
            filters: Filters::Resources,
            gzip: Gzip::Off,
        };
        for _ in 0..2 {
            for (agent, path) in [("a/1", "/metrics"), ("b/1", "/metrics"), ("b/1", "/m")] {
                let request = Request::get(path).header(USER_AGENT, agent).body(());
                let (head, ()) = request.expect("a request").into_parts();
                let answer = scrape.respond(&Call { head, path: path.to_owned() });
                assert_eq!(answer.status(), 200);
            }
        }
        assert_eq!(asked.0.lock().expect("no panic").len(), 3);
    }
}
