//! Decodes paths and query strings, and parses the filters of a scrape.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::exposition::{ScrapeQuery, VirtualShard};
use crate::util::percent;
use crate::util::reasons::reason;

/// Decodes `%XX`; `None` when an escape is invalid or the result is not UTF-8.
pub fn percent_decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    String::from_utf8(percent::decode(text)?).ok().map(Cow::Owned)
}

/// Decodes a path. `None` when an escape is invalid; invalid UTF-8 becomes U+FFFD, which matches no
/// route.
pub fn decode_path(path: &str) -> Option<Cow<'_, str>> {
    if !path.contains('%') {
        return Some(Cow::Borrowed(path));
    }
    Some(Cow::Owned(String::from_utf8_lossy(&percent::decode(path)?).into_owned()))
}

/// Iterates over the pairs of a query string in order. Like Go's `net/url`, it skips pairs with an
/// invalid escape or a semicolon and accepts invalid UTF-8, here as U+FFFD.
pub fn pairs(query: &str) -> impl Iterator<Item = (String, String)> + '_ {
    byte_pairs(query).map(|(name, value)| (name, String::from_utf8_lossy(&value).into_owned()))
}

fn byte_pairs(query: &str) -> impl Iterator<Item = (String, Vec<u8>)> + '_ {
    query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')).filter_map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decode = |text: &str| percent::decode(&text.replace('+', " "));
        Some((String::from_utf8_lossy(&decode(name)?).into_owned(), decode(value)?))
    })
}

reason! {
    /// The reason why a query is refused, for the client.
    pub struct QueryError;
}

impl QueryError {
    /// Creates the error for a parameter with an invalid value.
    pub(super) fn value(name: &str, value: &str, wanted: &str) -> Self {
        let value: String = value.chars().take(100).collect();
        format!("{name}={value:?} is invalid; it must be {wanted}").into()
    }
}

/// Returns the first value of `name`.
pub fn first(query: &str, name: &str) -> Option<String> {
    pairs(query).find(|(key, _)| key == name).map(|(_, value)| value)
}

/// Parses a parameter that is 0 or 1; `None` if it is absent or empty.
pub(super) fn flag(query: &str, name: &str) -> Result<Option<bool>, QueryError> {
    match first(query, name).as_deref() {
        None | Some("") => Ok(None),
        Some("0") => Ok(Some(false)),
        Some("1") => Ok(Some(true)),
        Some(value) => Err(QueryError::value(name, value, "0 or 1")),
    }
}

/// Returns the first value of `name`, as bytes.
pub fn first_bytes(query: &str, name: &str) -> Option<Vec<u8>> {
    byte_pairs(query).find(|(key, _)| key == name).map(|(_, value)| value)
}

/// The parameters supported by a metrics path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filters {
    /// `resources` and `exclude_resources`, as in kube-state-metrics, `namespace`, `shard` and
    /// `total_shards`.
    Resources,
    /// `name[]`, as in Prometheus' Go client.
    Names,
    /// `name[]` and `namespace`.
    NamesAndNamespaces,
    /// All of them.
    All,
}

impl Filters {
    fn has_resources(self) -> bool {
        matches!(self, Self::Resources | Self::All)
    }

    fn has_names(self) -> bool {
        self != Self::Resources
    }

    /// Returns whether `namespace` is supported.
    pub fn has_namespaces(self) -> bool {
        self != Self::Names
    }
}

/// Splits a list into its items.
fn items(value: &str) -> impl Iterator<Item = String> {
    value.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned)
}

/// Parses the filters of a scrape.
///
/// # Errors
///
/// A message for the client when a namespace or a virtual shard is invalid: ignoring the filter would return other
/// data than requested.
pub fn scrape_query(query: &str, filters: Filters) -> Result<ScrapeQuery, QueryError> {
    let mut scrape = ScrapeQuery::default();
    for (name, value) in pairs(query) {
        match name.as_str() {
            "resources" if filters.has_resources() => {
                scrape.resources.get_or_insert_default().extend(items(&value));
            }
            "exclude_resources" if filters.has_resources() => {
                scrape.exclude_resources.extend(items(&value));
            }
            "name[]" if filters.has_names() => {
                scrape.names.get_or_insert_with(BTreeSet::new).insert(value);
            }
            _ => {}
        }
    }
    if filters.has_namespaces() {
        scrape.namespaces = namespaces(query)?;
    }
    if filters.has_resources() {
        scrape.shard = shard(query)?;
    }
    Ok(scrape)
}

/// The maximum number of namespaces per request, because each may need a review.
const NAMESPACES: usize = 100;

/// Returns the namespaces to which a query limits its response, `None` if it does not.
///
/// # Errors
///
/// When a name is invalid, or there are none or too many.
pub fn namespaces(query: &str) -> Result<Option<BTreeSet<String>>, QueryError> {
    let mut namespaces: Option<BTreeSet<String>> = None;
    // An undecodable pair would be skipped, and the limit with it.
    for pair in query.split('&') {
        let name = pair.split('=').next().unwrap_or_default();
        if percent_decode(name).as_deref() == Some("namespace") && pairs(pair).next().is_none() {
            return Err(format!("invalid encoding in {pair:?}").into());
        }
    }
    for (_, value) in pairs(query).filter(|(name, _)| name == "namespace") {
        let namespaces = namespaces.get_or_insert_default();
        for namespace in items(&value) {
            if !is_namespace(&namespace) {
                return Err(format!("namespace={namespace:?} is not a valid namespace name").into());
            }
            namespaces.insert(namespace);
        }
    }
    match &namespaces {
        Some(names) if names.is_empty() => Err("namespace= is empty".into()),
        Some(names) if names.len() > NAMESPACES => {
            let count = names.len();
            Err(format!("{count} namespaces exceed the maximum of {NAMESPACES}").into())
        }
        _ => Ok(namespaces),
    }
}

/// Returns whether the name is a label of RFC 1123, as required of namespaces.
fn is_namespace(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// Returns the canonical form of an absolute path: without empty, `.` or `..` segments, keeping a
/// final slash.
pub fn clean(path: &str) -> Cow<'_, str> {
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            segment => kept.push(segment),
        }
    }
    let mut clean = format!("/{}", kept.join("/"));
    if path.ends_with('/') && clean.len() > 1 {
        clean.push('/');
    }
    if clean == path { Cow::Borrowed(path) } else { Cow::Owned(clean) }
}

/// The maximum number of virtual shards.
const MAX_TOTAL: u32 = 64;

/// The name of the parameter with the index.
const SHARD: &str = "shard";

/// The name of the parameter with the number of shards.
const TOTAL: &str = "total_shards";

/// Returns the virtual shard to which a query limits its response, `None` if it does not.
///
/// # Errors
///
/// When a parameter is invalid, there several times, or without the other one.
fn shard(query: &str) -> Result<Option<VirtualShard>, QueryError> {
    let alone = |name: &str, value: String, missing: &str| {
        Err(format!("{name}={value:?} is invalid without {missing}").into())
    };
    let (index, total) = match (only(query, SHARD)?, only(query, TOTAL)?) {
        (None, None) => return Ok(None),
        (Some(value), None) => return alone(SHARD, value, TOTAL),
        (None, Some(value)) => return alone(TOTAL, value, SHARD),
        (Some(index), Some(total)) => (index, total),
    };
    let Some(of) = number(&total).filter(|of| (1..=MAX_TOTAL).contains(of)) else {
        let wanted = format!("a number from 1 to {MAX_TOTAL}");
        return Err(QueryError::value(TOTAL, &total, &wanted));
    };
    let Some(at) = number(&index).filter(|at| *at < of) else {
        let wanted = format!("a number from 0 to {}, below {TOTAL}", of - 1);
        return Err(QueryError::value(SHARD, &index, &wanted));
    };
    Ok(Some(VirtualShard { index: at, total: of }))
}

/// Returns the only value of a parameter, `None` if there is none.
fn only(query: &str, name: &str) -> Result<Option<String>, QueryError> {
    // An undecodable pair would be skipped, and the limit with it.
    for pair in query.split('&') {
        let key = pair.split(['=', ';']).next().unwrap_or_default();
        if percent_decode(key).as_deref() == Some(name) && pairs(pair).next().is_none() {
            let pair: String = pair.chars().take(100).collect();
            return Err(format!("invalid encoding in {pair:?}").into());
        }
    }
    let mut values = pairs(query).filter(|(key, _)| key == name).map(|(_, value)| value);
    match (values.next(), values.next()) {
        (Some(first), Some(second)) => {
            Err(format!("{name} is there several times, with {first:?} and {second:?}").into())
        }
        (value, _) => Ok(value),
    }
}

/// Parses decimal digits without a sign.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::cache::{Catalog, Family, MetricKind, Rendered, Schema, Store};
    use crate::exposition::{Format, Source as _};
    use crate::recorded::{cases, texts};

    #[test]
    fn scrape_filters_of_kube_state_metrics() {
        for case in cases("ksm/scrape_filter.json", 12) {
            let catalog = Catalog::new();
            for name in texts(&case["available"]) {
                // One family with one series per resource, so that the body lists the resources.
                let family =
                    Family { name: name.clone(), help: "One.".to_owned(), kind: MetricKind::Gauge };
                let schema = Arc::new(Schema { resource: name, families: vec![family] });
                let store = Store::new(Arc::clone(&schema));
                let lines = b" 1\n".to_vec();
                store.apply(&Rendered {
                    uid: vec![1],
                    ends: vec![3],
                    lines,
                    ..Rendered::default()
                });
                catalog.register(schema, vec![Arc::new(store)]);
            }
            let query = scrape_query(case["query"].as_str().expect("query"), Filters::Resources);
            let query = query.expect("filters");
            let body: Vec<u8> = catalog.frames(Format::Text, &query).flatten().collect();
            let body = String::from_utf8(body).expect("text");
            let kept: Vec<&str> = body
                .lines()
                .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" gauge"))
                .collect();
            assert_eq!(kept, texts(&case["kept"]), "{case}");
        }
    }

    #[test]
    fn names_of_families() {
        let names = |query: &str| {
            scrape_query(query, Filters::Names).expect("filters").names.map(Vec::from_iter)
        };
        assert_eq!(names("x=y"), None);
        assert_eq!(names("name=n"), None);
        assert_eq!(names("name[]=n&name%5B%5D=b"), Some(vec!["b".to_owned(), "n".to_owned()]));
        assert_eq!(names("name[]="), Some(vec![String::new()]));
        assert_eq!(names("name[]=n%20"), Some(vec!["n ".to_owned()]));
        assert_eq!(names("name[]=%zz&name[]=a;b"), None);
        assert_eq!(names("name[]=%ff"), Some(vec!["\u{fffd}".to_owned()]));
    }

    #[test]
    fn namespaces_of_a_query() {
        let of = |query: &str| namespaces(query).map(|names| names.map(Vec::from_iter));
        let some = |names: &[&str]| Ok(Some(names.iter().map(|&name| name.to_owned()).collect()));
        assert_eq!(of(""), Ok(None));
        assert_eq!(of("namespaces=a&resources=pods"), Ok(None));
        assert_eq!(of("namespace=b&namespace=a"), some(&["a", "b"]));
        assert_eq!(of("namespace=b,%20a,,b&x=;"), some(&["a", "b"]));
        assert_eq!(of("n%61mespace=kube-system"), some(&["kube-system"]));
        let longest = "x".repeat(63);
        assert_eq!(of(&format!("namespace={longest}")), some(&[&longest]));
        let many = |count: usize| {
            let names: Vec<String> = (0..count).map(|number| format!("n{number}")).collect();
            of(&format!("namespace={}", names.join(",")))
        };
        assert!(many(100).is_ok() && many(101).is_err());
        for wrong in [
            "namespace=",
            "namespace",
            "namespace=,",
            "namespace=A",
            "namespace=-a",
            "namespace=a-",
            "namespace=a.b",
            "namespace=a%00",
            "namespace=*",
            "namespace=a;b",
            "namespace=%zz",
            "namespace=%ff",
            "namespace=a&namespace=B",
            "n%61mespace=%",
            &format!("namespace={longest}x"),
            "namespace=\"a\"",
            "namespace=a/b",
            "namespace=é",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
            assert!(scrape_query(wrong, Filters::All).is_err(), "{wrong}");
            assert!(scrape_query(wrong, Filters::Names).is_ok(), "{wrong}");
        }
    }

    #[test]
    fn cleaning() {
        for (path, expected) in [
            ("/", "/"),
            ("//", "/"),
            ("//metrics", "/metrics"),
            ("/metrics/", "/metrics/"),
            ("/a//b/", "/a/b/"),
            ("/a/./b", "/a/b"),
            ("/a/../../b", "/b"),
            ("/..", "/"),
            ("metrics", "/metrics"),
            ("", "/"),
        ] {
            assert_eq!(clean(path), expected, "{path}");
        }
        assert!(matches!(clean("/debug/pprof/"), Cow::Borrowed(_)));
    }

    #[test]
    fn escapes() {
        assert_eq!(percent_decode("/%6detrics").as_deref(), Some("/metrics"));
        assert_eq!(percent_decode("%2"), None);
        assert_eq!(percent_decode("%+1"), None);
        assert_eq!(percent_decode("%ff"), None);
    }

    #[test]
    fn valid_shards() {
        assert_eq!(shard("resources=pods&shards=x&total=%zz"), Ok(None));
        for (query, index, total) in [
            ("shard=0&total_shards=1", 0, 1),
            ("total_shards=64&namespace=a&shard=63", 63, 64),
            ("%73hard=1&total%5Fshards=%32", 1, 2),
        ] {
            assert_eq!(shard(query), Ok(Some(VirtualShard { index, total })), "{query}");
        }
    }

    #[test]
    fn errors_name_the_parameter_and_its_value() {
        for (query, want) in [
            ("shard=3", "shard=\"3\" is invalid without total_shards"),
            ("total_shards=3", "total_shards=\"3\" is invalid without shard"),
            ("shard=2&total_shards=2", "shard=\"2\" is invalid; it must be a number from 0 to 1"),
            ("shard=-1&total_shards=2", "shard=\"-1\" is invalid; it must be a number from 0"),
            ("shard=%2B1&total_shards=2", "shard=\"+1\" is invalid"),
            ("shard=&total_shards=2", "shard=\"\" is invalid"),
            ("shard&total_shards=2", "shard=\"\" is invalid"),
            ("shard=0x1&total_shards=2", "shard=\"0x1\" is invalid"),
            ("shard=99999999999&total_shards=2", "shard=\"99999999999\" is invalid"),
            ("shard=0&total_shards=0", "total_shards=\"0\" is invalid; it must be a number from 1"),
            ("shard=0&total_shards=65", "total_shards=\"65\" is invalid"),
            ("shard=0&total_shards=two", "total_shards=\"two\" is invalid"),
            ("shard=0&shard=1&total_shards=2", "shard is there several times, with \"0\""),
            ("shard=0&total_shards=2&total_shards=2", "total_shards is there several times"),
            ("shard=%zz&total_shards=2", "invalid encoding in \"shard=%zz\""),
            ("shard=0;&total_shards=2", "invalid encoding in \"shard=0;\""),
            ("shard;=0&total_shards=2", "invalid encoding in \"shard;=0\""),
        ] {
            let error = shard(query).expect_err(query).to_string();
            assert!(error.starts_with(want), "{query}: {error}");
        }
    }
}
