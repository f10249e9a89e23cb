//! `Accept` and `Accept-Encoding`: the choice is offered, and equals that of a simple implementation of the rule.
//!
//! The first byte selects a raw header, or entries that are built from two bytes each.
#![no_main]

use kstatd::exposition::negotiate::{
    Dialect, Media, OpenMetricsVersion, ProtobufEncoding, format, gzip_by_item, gzip_by_weight,
};
use libfuzzer_sys::fuzz_target;

const DIALECTS: [Dialect; 5] = [
    Dialect::KubeStateMetrics,
    Dialect::ClientGolang { protobuf: true },
    Dialect::ClientGolang { protobuf: false },
    Dialect::Native { protobuf: true },
    Dialect::Native { protobuf: false },
];

const PROTOBUF: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily";

/// Returns an `Accept` entry that all dialects understand, with its media type.
fn media(number: u8) -> (String, Option<Media>) {
    let protobuf = |encoding: &str| format!("{PROTOBUF};encoding={encoding}");
    let (text, media) = match number % 12 {
        0 => ("text/plain".to_owned(), Some(Media::Text)),
        1 => ("text/plain; version=0.0.4".to_owned(), Some(Media::Text)),
        2 => (
            "application/openmetrics-text; version=1.0.0".to_owned(),
            Some(Media::OpenMetrics(OpenMetricsVersion::V1_0_0)),
        ),
        3 => (
            "application/openmetrics-text".to_owned(),
            Some(Media::OpenMetrics(OpenMetricsVersion::V0_0_1)),
        ),
        4 => (protobuf("delimited"), Some(Media::Protobuf(ProtobufEncoding::Delimited))),
        5 => (protobuf("text"), Some(Media::Protobuf(ProtobufEncoding::Text))),
        6 => (protobuf("compact-text"), Some(Media::Protobuf(ProtobufEncoding::CompactText))),
        7 => ("*/*".to_owned(), Some(Media::Text)),
        8 => ("text/*".to_owned(), Some(Media::Text)),
        9 => ("text/html".to_owned(), None),
        10 => ("application/openmetrics-text; version=2.0.0".to_owned(), None),
        _ => (protobuf("other"), None),
    };
    (text, media)
}

/// A simple implementation: the best entry that the dialect offers, wildcards after named types, otherwise text. A native
/// client refuses what has no weight.
fn reference_choice(entries: &[(u8, u8)], dialect: Dialect) -> Media {
    let native = matches!(dialect, Dialect::Native { .. });
    let answer = |number: u8| -> Option<Media> {
        let media = media(number).1?;
        if number % 12 == 7 || number % 12 == 8 {
            return native.then_some(Media::Text);
        }
        match (media, dialect) {
            (Media::Protobuf(_), Dialect::KubeStateMetrics) => Some(Media::Text),
            (Media::OpenMetrics(_), Dialect::ClientGolang { .. }) => None,
            (
                Media::Protobuf(_),
                Dialect::ClientGolang { protobuf: false } | Dialect::Native { protobuf: false },
            ) => None,
            _ => Some(media),
        }
    };
    let wildness = |number: u8| match number % 12 {
        7 => 2,
        8 => 1,
        _ => 0,
    };
    for weight in (u8::from(native)..=10).rev() {
        for wild in 0..3 {
            for (number, of) in entries {
                if of % 11 == weight
                    && wildness(*number) == wild
                    && let Some(media) = answer(*number)
                {
                    return media;
                }
            }
        }
    }
    Media::Text
}

fn with_quality(text: &str, weight: u8) -> String {
    match weight % 11 {
        10 => text.to_owned(),
        tenths => format!("{text};q=0.{tenths}"),
    }
}

fn offered(text: &str) {
    for dialect in DIALECTS {
        let choice = format(text, dialect);
        let (protobuf, open_metrics) = match dialect {
            Dialect::KubeStateMetrics => (false, true),
            Dialect::ClientGolang { protobuf } => (protobuf, false),
            Dialect::Native { protobuf } => (protobuf, true),
        };
        let is_offered = match choice.media {
            Media::Text => true,
            Media::OpenMetrics(_) => open_metrics,
            Media::Protobuf(_) => protobuf,
        };
        assert!(is_offered, "{text:?}: {choice:?}");
        let base = match choice.media {
            Media::Text => "text/plain; version=0.0.4; charset=utf-8",
            Media::OpenMetrics(_) => "application/openmetrics-text; version=",
            Media::Protobuf(_) => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding="
            }
        };
        let content_type = choice.content_type();
        assert!(content_type.starts_with(base), "{content_type}");
        // The content type of a response is a valid request for it.
        let again = format(&content_type, dialect);
        assert_eq!((again.media, again.content_type()), (choice.media, content_type));
        assert_eq!(choice.or_text().media, Media::Text);
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, rest)) = data.split_first() else { return };
    if how & 1 == 0 {
        let Ok(text) = std::str::from_utf8(rest) else { return };
        offered(text);
        // An entry in the form that the original expects is found among others.
        let plain =
            text.split(',').any(|item| item.trim() == "gzip" || item.trim().starts_with("gzip;"));
        assert_eq!(gzip_by_item(text), plain, "{text:?}");
        // Several headers are equivalent to one with all values, if each of them is valid.
        let twice = gzip_by_weight([text, text]);
        assert_eq!(twice, gzip_by_weight([text]), "{text:?}");
        return;
    }
    let entries: Vec<(u8, u8)> =
        rest.chunks_exact(2).take(12).map(|entry| (entry[0], entry[1])).collect();
    let separator = if how & 2 == 0 { "," } else { " ,\t" };
    let header = |text: fn(u8) -> String| {
        let entries = entries.iter().map(|(number, weight)| with_quality(&text(*number), *weight));
        entries.collect::<Vec<_>>().join(separator)
    };
    let accept = header(|number| media(number).0);
    offered(&accept);
    for dialect in DIALECTS {
        assert_eq!(
            format(&accept, dialect).media,
            reference_choice(&entries, dialect),
            "{accept:?} {dialect:?}"
        );
    }
    const CODINGS: [&str; 5] = ["gzip", "identity", "*", "br", "x-gzip"];
    let encodings = header(|number| CODINGS[usize::from(number) % CODINGS.len()].to_owned());
    let best = |name: &str| {
        let of = entries.iter().filter(|(number, _)| {
            [name, "*"].contains(&CODINGS[usize::from(*number) % CODINGS.len()])
        });
        of.map(|(_, weight)| weight % 11).max().unwrap_or(0)
    };
    assert_eq!(
        gzip_by_weight([encodings.as_str()]),
        best("gzip") > best("identity"),
        "{encodings}"
    );
});
