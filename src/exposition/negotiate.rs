//! Content negotiation: format and compression from `Accept` and `Accept-Encoding`.
//!
//! Header text goes in, a [`Choice`] comes out. The two originals differ from each other and from RFC 9110, so each set
//! of rules has a [`Dialect`].

use super::Format;
use crate::util::words::words;

/// The negotiation rules of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// kube-state-metrics' main port: text or OpenMetrics. A client that prefers protobuf gets text, even if it also
    /// accepts OpenMetrics.
    KubeStateMetrics,
    /// The handler of Prometheus' Go client as statsd_exporter uses it: text or, with `protobuf`, the protobuf forms.
    /// OpenMetrics is not offered.
    ClientGolang {
        /// True if the sources have a protobuf form.
        protobuf: bool,
    },
    /// kstatd's own rules: every format that the sources have, by the client's preference.
    Native {
        /// True if the sources have a protobuf form.
        protobuf: bool,
    },
}

words! {
    /// The encoding of consecutive protobuf messages in a body.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ProtobufEncoding {
        /// Binary messages, each prefixed with its length as a varint.
        Delimited = "delimited",
        /// Protobuf text format, one field per line.
        Text = "text",
        /// Protobuf text format, one message per line.
        CompactText = "compact-text",
    }
}

/// The chosen media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// Prometheus text format 0.0.4.
    Text,
    /// OpenMetrics text in the version that the client named.
    OpenMetrics(OpenMetricsVersion),
    /// `io.prometheus.client.MetricFamily` messages.
    Protobuf(ProtobufEncoding),
}

words! {
    /// The supported versions of OpenMetrics text.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum OpenMetricsVersion {
        /// Version 0.0.1, also if the client names none.
        V0_0_1 = "0.0.1",
        /// Version 1.0.0.
        V1_0_0 = "1.0.0",
    }
}

/// The values of the `escaping` parameter, which is echoed to the client. All names are legacy names, so the body is the
/// same for every scheme.
const ESCAPINGS: [&str; 4] = ["underscores", "dots", "values", "allow-utf-8"];

/// The outcome of negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The media type to send.
    pub media: Media,
    escaping: &'static str,
    dialect: Dialect,
}

impl Choice {
    /// Returns the text format to request from a source.
    pub fn format(&self) -> Format {
        match self.media {
            Media::OpenMetrics(_) => Format::OpenMetrics,
            Media::Text | Media::Protobuf(_) => Format::Text,
        }
    }

    /// Falls back to text, for a source that turns out to have no other form.
    pub fn or_text(self) -> Self {
        Self { media: Media::Text, ..self }
    }

    /// Returns the value of the `Content-Type` header.
    pub fn content_type(&self) -> String {
        let has_escaping = !matches!(
            (self.media, self.dialect),
            (Media::Text, Dialect::KubeStateMetrics | Dialect::Native { .. })
        );
        let base = match self.media {
            Media::Text => "text/plain; version=0.0.4; charset=utf-8".to_owned(),
            Media::OpenMetrics(version) => {
                let version = version.as_str();
                format!("application/openmetrics-text; version={version}; charset=utf-8")
            }
            Media::Protobuf(encoding) => format!(
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding={}",
                encoding.as_str()
            ),
        };
        if has_escaping { format!("{base}; escaping={}", self.escaping) } else { base }
    }
}

/// Chooses the format for the value of an `Accept` header (empty if absent).
pub fn format(accept: &str, dialect: Dialect) -> Choice {
    let mut escaping = ESCAPINGS[0];
    let is_native = matches!(dialect, Dialect::Native { .. });
    for range in media_ranges(accept) {
        // The client refuses these. The originals send them if nothing else matches.
        if is_native && range.quality <= 0.0 {
            continue;
        }
        let named = |known: &&str| range.parameter("escaping") == Some(*known);
        escaping = ESCAPINGS.into_iter().find(named).unwrap_or(escaping);
        let media = match range.media {
            "application/vnd.google.protobuf" => protobuf(&range),
            "application/openmetrics-text" => match range.parameter("version") {
                None | Some("") => Some(Media::OpenMetrics(OpenMetricsVersion::V0_0_1)),
                Some(version) => OpenMetricsVersion::parse(version).map(Media::OpenMetrics),
            },
            "text/plain" => match range.parameter("version") {
                None | Some("" | "0.0.4") => Some(Media::Text),
                Some(_) => None,
            },
            "*/*" | "text/*" if is_native => Some(Media::Text),
            _ => None,
        };
        if let Some(media) = media.and_then(|media| offered(media, dialect)) {
            return Choice { media, escaping, dialect };
        }
    }
    Choice { media: Media::Text, escaping, dialect }
}

fn protobuf(range: &MediaRange<'_>) -> Option<Media> {
    if range.parameter("proto") != Some("io.prometheus.client.MetricFamily") {
        return None;
    }
    ProtobufEncoding::parse(range.parameter("encoding")?).map(Media::Protobuf)
}

/// Returns the dialect's answer to a client that accepts `media`; `None` continues with its next preference.
fn offered(media: Media, dialect: Dialect) -> Option<Media> {
    match (media, dialect) {
        (Media::Text, _) => Some(media),
        (Media::OpenMetrics(_), Dialect::ClientGolang { .. }) => None,
        (Media::OpenMetrics(_), _) => Some(media),
        (Media::Protobuf(_), Dialect::KubeStateMetrics) => Some(Media::Text),
        (Media::Protobuf(_), Dialect::ClientGolang { protobuf } | Dialect::Native { protobuf }) => {
            protobuf.then_some(media)
        }
    }
}

/// One entry of an `Accept` header.
struct MediaRange<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f32,
}

impl MediaRange<'_> {
    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().rev().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }
}

/// Returns the entries of an `Accept` header, best first. Equal ones keep the order of the header, except that a
/// wildcard follows the types it covers.
fn media_ranges(accept: &str) -> Vec<MediaRange<'_>> {
    let mut ranges: Vec<MediaRange<'_>> = accept.split(',').filter_map(media_range).collect();
    ranges.sort_by(|a, b| {
        b.quality
            .total_cmp(&a.quality)
            .then_with(|| a.media.starts_with('*').cmp(&b.media.starts_with('*')))
            .then_with(|| a.media.ends_with("/*").cmp(&b.media.ends_with("/*")))
    });
    ranges
}

fn media_range(entry: &str) -> Option<MediaRange<'_>> {
    let mut fields = entry.split(';');
    let media = fields.next()?.trim();
    if media.matches('/').count() != 1 {
        return None;
    }
    let mut range = MediaRange { media, parameters: Vec::new(), quality: 1.0 };
    for (name, value) in fields.filter_map(|field| field.split_once('=')) {
        match (name.trim(), value.trim()) {
            ("q", quality) => {
                range.quality = quality.parse().ok().filter(|q: &f32| q.is_finite()).unwrap_or(0.0);
            }
            parameter => range.parameters.push(parameter),
        }
    }
    Some(range)
}

/// True if kube-state-metrics compresses for this `Accept-Encoding`: one item is `gzip` or begins with `gzip;`, with
/// any weight. Used only where compression is enabled.
pub fn gzip_by_item(accept_encoding: &str) -> bool {
    accept_encoding
        .split(',')
        .map(str::trim)
        .any(|item| item == "gzip" || item.starts_with("gzip;"))
}

/// True if gzip is preferred by weight, given all `Accept-Encoding` headers: its weight exceeds that of the identity
/// encoding, each being the highest of the items that name it or `*`. Parsing of a header stops at the first malformed
/// item. These are the rules of the handler of Prometheus' Go client.
pub fn gzip_by_weight<'a>(headers: impl IntoIterator<Item = &'a str>) -> bool {
    let (mut gzip, mut identity) = (0.0f32, 0.0f32);
    for header in headers {
        let mut rest = Some(header);
        while let Some((name, weight, tail)) = rest.and_then(coding) {
            if matches!(name, "gzip" | "*") {
                gzip = gzip.max(weight);
            }
            if matches!(name, "identity" | "*") {
                identity = identity.max(weight);
            }
            rest = tail.trim_start().strip_prefix(',');
        }
    }
    gzip > identity
}

/// Parses the first item of an `Accept-Encoding` header; returns the coding, its weight, and the rest.
fn coding(header: &str) -> Option<(&str, f32, &str)> {
    let header = header.trim_start();
    let is_name = |byte: u8| byte.is_ascii_graphic() && !b"()<>@,;:\\\"[]?={}".contains(&byte);
    let end = header.bytes().position(|byte| !is_name(byte)).unwrap_or(header.len());
    let (name, rest) = header.split_at_checked(end).filter(|(name, _)| !name.is_empty())?;
    match rest.trim_start().strip_prefix(';') {
        None => Some((name, 1.0, rest)),
        Some(parameter) => {
            let (weight, rest) = weight(parameter.trim_start().strip_prefix("q=")?)?;
            Some((name, weight, rest))
        }
    }
}

/// Parses a weight (`0`, `1`, `0.5`) at the start of a text; returns it and the rest.
fn weight(text: &str) -> Option<(f32, &str)> {
    let whole = text.get(..1).filter(|digit| matches!(*digit, "0" | "1"))?;
    let rest = text.get(1..)?;
    let Some(decimals) = rest.strip_prefix('.') else {
        return Some((if whole == "1" { 1.0 } else { 0.0 }, rest));
    };
    let end = decimals.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(decimals.len());
    let (digits, rest) = decimals.split_at_checked(end)?;
    Some((format!("{whole}.{digits}").parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cases(file: &str) -> Vec<serde_json::Value> {
        crate::recorded::cases(file, 1)
    }

    #[test]
    fn kube_state_metrics_content_negotiation() {
        for case in cases("ksm/content_negotiation.json") {
            let accept = case["accept"].as_str().expect("accept");
            let choice = format(accept, Dialect::KubeStateMetrics);
            assert_eq!(
                choice.content_type(),
                case["content_type"].as_str().expect("type"),
                "{accept}"
            );
            assert_eq!(
                choice.format() == Format::OpenMetrics,
                case["eof"].as_bool().expect("eof"),
                "{accept}"
            );
        }
    }

    #[test]
    fn kube_state_metrics_compression() {
        for case in cases("ksm/compression.json") {
            let header = case["accept_encoding"].as_str().expect("header");
            let enabled = case["enable_gzip_encoding"].as_bool().expect("flag");
            let expected = case["content_encoding"].as_str().expect("encoding") == "gzip";
            assert_eq!(enabled && gzip_by_item(header), expected, "{header}");
        }
    }

    /// Recorded from statsd_exporter 0.31 and the telemetry port of kube-state-metrics 2.20.
    #[test]
    fn compression_by_weight() {
        for header in [
            "gzip",
            "identity;q=0.5,gzip",
            "*;q=0,gzip",
            "*;q=0.5,gzip",
            "gzip,*;q=0.5",
            "gzip,gzip;q=0",
            "gzip;q=0,gzip",
            "gzip;q=0.5x",
            "gzip; q=1",
            "gzip ; q=1",
            "gzip;\tq=1",
            "gzip;q=1 , x",
            "gzip;q=1.",
            "gzip;q=1.5",
            "gzip;q=0.0001",
            "gzip;q=0.12345678901",
            "gzip;q=1e0",
            "gzip;q=1;foo=1",
            "gzip;q=0.5;foo=1,identity;q=0.1",
            "gzip gzip",
            "gzip,;",
            "zstd,gzip",
            "br;q=1,gzip",
            "identity;q=0.4,gzip;q=0.6,*;q=0.5",
            "gzip;q=0.6,identity;q=0.5,gzip;q=0.1",
            "\tgzip",
            "gzip\t",
        ] {
            assert!(gzip_by_weight([header]), "{header:?}");
        }
        for header in [
            "",
            "gzip, identity",
            "identity, gzip",
            "gzip;q=0.5, identity;q=0.5",
            "*, gzip",
            "gzip,*",
            "gzip;q=0.5,*",
            "*",
            "identity;q=0",
            "gzip;foo=1",
            "gzip;foo=1, gzip",
            "br;foo=1, gzip",
            "br;, gzip",
            "br;q=x,gzip",
            "gzip;",
            "gzip;Q=1",
            "gzip;q =1",
            "gzip;q=x",
            "gzip;q=.5",
            "gzip;q=2",
            "gzip;q=-1",
            "gzip;q=",
            "gzip;q= 1",
            "gzip;q=0.",
            "gzip;q=0.000",
            "gzip;q=00",
            "gzip;q=01",
            "gzip/x",
            "\"gzip\"",
            ",gzip",
            " ,gzip",
            "br,,gzip",
            "br, ,gzip",
            "@,gzip",
            "GZIP",
        ] {
            assert!(!gzip_by_weight([header]), "{header:?}");
        }
        assert!(gzip_by_weight(["br", "gzip"]));
        assert!(gzip_by_weight(["br;foo", "gzip"]));
        assert!(!gzip_by_weight(["identity", "gzip"]));
        assert!(!gzip_by_weight(["gzip", "identity"]));
        assert!(!gzip_by_weight([]));
    }

    #[test]
    fn statsd_exporter_negotiation() {
        let mut seen = 0;
        for case in cases("statsd/cli_http.json") {
            if !case["name"].as_str().is_some_and(|name| name.starts_with("negotiation/")) {
                continue;
            }
            seen += 1;
            let header = |name: &str| case["request_headers"][name].as_str().unwrap_or_default();
            let choice = format(header("Accept"), Dialect::ClientGolang { protobuf: true });
            assert_eq!(
                choice.content_type(),
                case["content_type"].as_str().expect("type"),
                "{case}"
            );
            let gzip = case["content_encoding"].as_str() == Some("gzip");
            assert_eq!(gzip_by_weight([header("Accept-Encoding")]), gzip, "{case}");
        }
        assert_eq!(seen, 37);
    }

    #[test]
    fn a_native_client_falls_back_if_protobuf_is_missing() {
        let prometheus = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
            encoding=delimited;q=0.7,application/openmetrics-text;version=1.0.0;q=0.6,text/plain;q=0.5";
        let media = |protobuf| format(prometheus, Dialect::Native { protobuf }).media;
        assert_eq!(media(false), Media::OpenMetrics(OpenMetricsVersion::V1_0_0));
        assert_eq!(media(true), Media::Protobuf(ProtobufEncoding::Delimited));
    }

    /// The originals answer with a refused type if nothing else matches.
    #[test]
    fn a_native_client_gets_no_type_that_it_refuses() {
        let metrics = "application/openmetrics-text;version=1.0.0";
        let protobuf = "application/vnd.google.protobuf;\
            proto=io.prometheus.client.MetricFamily;encoding=delimited";
        let native = Dialect::Native { protobuf: true };
        let version = Media::OpenMetrics(OpenMetricsVersion::V1_0_0);
        for (accept, dialect, media) in [
            (format!("application/json,{metrics};q=0"), native, Media::Text),
            (format!("{protobuf};q=0,{metrics};q=0.0"), native, Media::Text),
            (format!("{protobuf};q=0,{metrics};q=0.1"), native, version),
            (format!("{metrics};q=0"), Dialect::KubeStateMetrics, version),
        ] {
            assert_eq!(super::format(&accept, dialect).media, media, "{accept}");
        }
    }

    #[test]
    fn a_browser_gets_text() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        assert_eq!(format(browser, Dialect::Native { protobuf: true }).media, Media::Text);
    }
}
