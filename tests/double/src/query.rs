//! The parts of a request for a collection: path, list options and selector.

use std::borrow::Cow;

use super::encode::Encoding;
use super::envelope::Failure;
use super::layout::Item;
use super::source::Source;
use super::world::Collection;

/// The collection in a path.
#[derive(Debug, PartialEq, Eq)]
pub struct Path<'a> {
    /// API group, empty for the core group.
    pub group: &'a str,
    /// API version.
    pub version: &'a str,
    /// Only objects of this namespace.
    pub namespace: Option<&'a str>,
    /// Plural lower-case name.
    pub resource: &'a str,
}

impl<'a> Path<'a> {
    /// Parses `/api/v1/…` and `/apis/group/version/…`.
    pub fn parse(path: &'a str) -> Option<Self> {
        let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, resource) = match rest {
            [resource] => (None, *resource),
            ["namespaces", namespace, resource] => (Some(*namespace), *resource),
            _ => return None,
        };
        Some(Self { group, version, namespace, resource })
    }
}

/// `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    /// Exactly that version.
    Exact,
    /// That version or a newer one.
    NotOlderThan,
}

/// `ListOptions`, validated like in the API server.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// True for a watch.
    pub watch: bool,
    /// True if bookmarks are accepted.
    pub bookmarks: bool,
    /// True if a watch begins with the existing objects (WatchList).
    pub initial_events: bool,
    /// The version; `None` is the newest, 0 is any.
    pub version: Option<u64>,
    /// The match rule of the version.
    pub version_match: Option<VersionMatch>,
    /// Objects per page, 0 for all.
    pub limit: usize,
    /// Token of an earlier page.
    pub next: Option<String>,
    /// Seconds after which a watch ends.
    pub timeout: Option<u64>,
    /// The text of `fieldSelector`.
    pub fields: String,
    /// The text of `labelSelector`.
    pub labels: String,
}

impl ListOptions {
    /// Parses a query string.
    ///
    /// # Errors
    ///
    /// A value is invalid, or the options exclude each other.
    pub fn parse(query: &str) -> Result<Self, Failure> {
        let mut options = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = unescape(value)
                .ok_or_else(|| Failure::bad_request(format!("invalid URL escape in {pair:?}")))?;
            let value = value.as_ref();
            match unescape(name).as_deref() {
                Some("watch") => options.watch = truth(value),
                Some("allowWatchBookmarks") => options.bookmarks = truth(value),
                Some("sendInitialEvents") => options.initial_events = truth(value),
                Some("resourceVersion") if !value.is_empty() => {
                    options.version = Some(value.parse().map_err(|_| {
                        Failure::bad_request(format!(
                            "invalid resource version: resourceVersion: Invalid value: {value:?}"
                        ))
                    })?);
                }
                Some("resourceVersionMatch") => {
                    options.version_match = match value {
                        "" => None,
                        "Exact" => Some(VersionMatch::Exact),
                        "NotOlderThan" => Some(VersionMatch::NotOlderThan),
                        _ => {
                            return Err(Failure::invalid(concat!(
                                "resourceVersionMatch: Unsupported value: ",
                                "supported values: \"Exact\", \"NotOlderThan\", \"\"",
                            )));
                        }
                    };
                }
                Some("limit") => options.limit = number(value)?.try_into().unwrap_or(0),
                Some("continue") if !value.is_empty() => options.next = Some(value.to_owned()),
                Some("timeoutSeconds") => options.timeout = number(value)?.try_into().ok(),
                Some("fieldSelector") => options.fields = value.to_owned(),
                Some("labelSelector") => options.labels = value.to_owned(),
                _ => {}
            }
        }
        options.check()?;
        Ok(options)
    }

    fn check(&self) -> Result<(), Failure> {
        let not_older = self.version_match == Some(VersionMatch::NotOlderThan);
        let problem = match (self.watch, self.initial_events, self.version_match.is_some()) {
            (true, true, _) if !not_older => concat!(
                "resourceVersionMatch: Forbidden: sendInitialEvents requires setting ",
                "resourceVersionMatch to NotOlderThan",
            ),
            (true, false, true) => concat!(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch ",
                "unless sendInitialEvents is provided",
            ),
            (false, true, _) => {
                "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"
            }
            (false, _, true) if self.version.is_none() => concat!(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless ",
                "resourceVersion is provided",
            ),
            _ => return self.check_token(),
        };
        Err(Failure::invalid(problem))
    }

    fn check_token(&self) -> Result<(), Failure> {
        if self.next.is_some() && self.version.is_some_and(|version| version > 0) {
            let message = "specifying resource version is not allowed when using continue";
            return Err(Failure::bad_request(message.to_owned()));
        }
        Ok(())
    }
}

fn number(value: &str) -> Result<i64, Failure> {
    let message = || format!("strconv.ParseInt: parsing {value:?}: invalid syntax");
    value.parse().map_err(|_| Failure::bad_request(message()))
}

/// Any value except these two enables an option.
fn truth(value: &str) -> bool {
    !matches!(value, "false" | "0")
}

/// Decodes the escapes of a query string; `None` if malformed.
fn unescape(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(Cow::Borrowed(text));
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                (digit()? << 4 | digit()?) as u8
            }
            _ => byte,
        });
    }
    String::from_utf8(out).ok().map(Cow::Owned)
}

/// A selection of the objects of a collection.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    terms: Vec<Term>,
}

#[derive(Clone, Debug)]
struct Term {
    field: Field,
    equal: bool,
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    Node,
    Phase,
    AppLabel,
}

impl Selector {
    /// Selects the objects of `namespace` that match a field selector and a label selector, which supports the label
    /// `app` of pods.
    ///
    /// # Errors
    ///
    /// A selector is malformed or has an unsupported field.
    pub fn new(
        namespace: Option<&str>,
        (fields, labels): (&str, &str),
        resource: &str,
    ) -> Result<Self, Failure> {
        let mut terms = Vec::new();
        if let Some(value) = namespace {
            terms.push(Term { field: Field::Namespace, equal: true, value: value.to_owned() });
        }
        let fields = fields.split(',').map(|term| (term, false));
        let all = fields.chain(labels.split(',').map(|term| (term, true)));
        for (term, is_label) in all.filter(|(term, _)| !term.is_empty()) {
            let (name, equal, value) = if let Some((name, value)) = term.split_once("!=") {
                (name, false, value)
            } else if let Some((name, value)) = term.split_once("==") {
                (name, true, value)
            } else if let Some((name, value)) = term.split_once('=') {
                (name, true, value)
            } else {
                return Err(Failure::bad_request(format!(
                    "invalid field selector {term:?}: no operator"
                )));
            };
            let field = match name {
                "app" if is_label && resource == "pods" => Field::AppLabel,
                _ if is_label => {
                    let message = format!("labelSelector {term:?}: not supported here");
                    return Err(Failure::bad_request(message));
                }
                "status.phase" if resource == "pods" => Field::Phase,
                "metadata.name" => Field::Name,
                "metadata.namespace" => Field::Namespace,
                "spec.nodeName" if resource == "pods" => Field::Node,
                _ => {
                    return Err(Failure::bad_request(format!(
                        "{name:?} is not a known field selector of {resource}"
                    )));
                }
            };
            terms.push(Term { field, equal, value: value.to_owned() });
        }
        Ok(Self { terms })
    }

    /// Returns whether it selects every object.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns whether it only restricts the namespace, so that the selected objects can be counted cheaply.
    pub fn only_namespace(&self) -> bool {
        self.terms.iter().all(|term| term.field == Field::Namespace && term.equal)
    }

    /// Returns whether it selects this object.
    pub fn takes(&self, source: &Source, collection: &Collection, item: &Item) -> bool {
        if self.terms.is_empty() {
            return true;
        }
        let name = collection.name(source, item);
        self.terms.iter().all(|term| {
            let same = match term.field {
                Field::Name => name.name == term.value,
                Field::Namespace => name.namespace.unwrap_or_default() == term.value,
                Field::Node => source.node_name(item) == term.value,
                Field::Phase => source.phase(item) == term.value,
                Field::AppLabel => source.app(item) == term.value,
            };
            same == term.equal
        })
    }
}

/// Returns the preferred supported encoding of an `Accept` header; JSON without a header. Other representations
/// (`as=Table`) are skipped.
pub fn negotiate(accept: Option<&str>) -> Option<Encoding> {
    let Some(accept) = accept.filter(|accept| !accept.trim().is_empty()) else {
        return Some(Encoding::Json);
    };
    let mut best: Option<(f32, Encoding)> = None;
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let encoding = match parts.next().unwrap_or_default() {
            "application/vnd.kubernetes.protobuf" => Encoding::Protobuf,
            "application/json" | "application/*" | "*/*" => Encoding::Json,
            _ => continue,
        };
        let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        if parameters.iter().any(|(name, _)| *name == "as") {
            continue;
        }
        let quality = parameters.iter().find(|(name, _)| *name == "q");
        let quality = quality.map_or(1.0, |(_, value)| value.parse().unwrap_or(0.0));
        if quality > 0.0 && best.is_none_or(|(best, _)| quality > best) {
            best = Some((quality, encoding));
        }
    }
    best.map(|(_, encoding)| encoding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let path = |group, version, namespace, resource| {
            Some(Path { group, version, namespace, resource })
        };
        assert_eq!(Path::parse("/api/v1/pods"), path("", "v1", None, "pods"));
        assert_eq!(
            Path::parse("/apis/apps/v1/namespaces/a/deployments"),
            path("apps", "v1", Some("a"), "deployments")
        );
        assert_eq!(Path::parse("/api/v1/namespaces"), path("", "v1", None, "namespaces"));
        assert_eq!(Path::parse("/api/v1/namespaces/a"), None);
        assert_eq!(Path::parse("/metrics"), None);
    }

    #[test]
    fn options_are_read_and_checked() {
        let options = ListOptions::parse(concat!(
            "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&timeoutSeconds=9",
            "&resourceVersionMatch=NotOlderThan&fieldSelector=metadata.name%3Da",
        ))
        .unwrap();
        assert!(options.watch && options.bookmarks && options.initial_events);
        assert_eq!((options.timeout, options.fields.as_str()), (Some(9), "metadata.name=a"));
        for (query, code) in [
            ("limit=x", 400),
            ("resourceVersion=x", 400),
            ("continue=a&resourceVersion=5", 400),
            ("fieldSelector=%zz", 400),
            ("watch=1&sendInitialEvents=true", 422),
            ("watch=1&resourceVersionMatch=NotOlderThan", 422),
            ("sendInitialEvents=true", 422),
            ("resourceVersionMatch=Exact", 422),
            ("resourceVersionMatch=Sometimes&resourceVersion=1", 422),
        ] {
            assert_eq!(ListOptions::parse(query).unwrap_err().code, code, "{query}");
        }
    }

    #[test]
    fn accept_headers() {
        let pb = "application/vnd.kubernetes.protobuf";
        assert_eq!(negotiate(None), Some(Encoding::Json));
        assert_eq!(negotiate(Some(&format!("{pb},application/json"))), Some(Encoding::Protobuf));
        assert_eq!(negotiate(Some(&format!("{pb};q=0.5,application/json"))), Some(Encoding::Json));
        assert_eq!(negotiate(Some(&format!("{pb};stream=watch"))), Some(Encoding::Protobuf));
        assert_eq!(
            negotiate(Some("application/json;as=Table;v=v1;g=meta.k8s.io,application/json")),
            Some(Encoding::Json)
        );
        assert_eq!(negotiate(Some("text/plain")), None);
    }

    #[test]
    fn unknown_selectors_are_refused() {
        assert_eq!(Selector::new(None, ("spec.nodeName=a", ""), "services").unwrap_err().code, 400);
        assert_eq!(Selector::new(None, ("metadata.name", ""), "pods").unwrap_err().code, 400);
        assert!(
            Selector::new(None, ("spec.nodeName!=a,metadata.name==b", "app=c"), "pods").is_ok()
        );
    }
}
