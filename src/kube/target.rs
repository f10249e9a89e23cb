//! What is listed and watched, and the requests for it.

use std::fmt::Write as _;
use std::sync::Arc;

use super::follow::machine::{ListVersion, State};
use crate::resources::{Needs, Resource};

/// A resource of the API, built in or custom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// API group, empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural lower-case name.
    pub plural: String,
    /// Kind of the objects, empty if it is not known.
    pub kind: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether the server may answer in protobuf; custom resources come in JSON only.
    pub protobuf: bool,
    /// What `resource` says in our own metrics, such as `*v1.Pod`.
    pub label: String,
}

impl Target {
    /// The target of a built-in resource.
    #[must_use]
    pub fn built_in(resource: &'static dyn Resource) -> Self {
        let api = resource.api();
        Self {
            group: api.group.to_owned(),
            version: api.version.to_owned(),
            plural: api.name.to_owned(),
            kind: api.kind.to_owned(),
            namespaced: api.namespaced,
            protobuf: true,
            label: resource.go_type(),
        }
    }

    /// What it is called where kinds are told apart: the plural of a built-in kind, `plural.version.group` of a custom one.
    #[must_use]
    pub fn name(&self) -> String {
        let Self { group, version, plural, .. } = self;
        if !self.is_custom() {
            plural.clone()
        } else if group.is_empty() {
            format!("{plural}.{version}")
        } else {
            format!("{plural}.{version}.{group}")
        }
    }

    /// What `resource` says in the metrics that the original does not have: there all custom kinds share one label.
    pub(super) fn own_label(&self) -> String {
        if self.is_custom() { self.name() } else { self.label.clone() }
    }

    fn is_custom(&self) -> bool {
        // The server has them in JSON only.
        !self.protobuf
    }

    /// Whether a list of this kind is one of its objects, or of the part of them that is needed; an unknown
    /// kind may be.
    pub(super) fn is_list(&self, kind: &str, needs: Needs) -> bool {
        let known = !kind.is_empty() && !self.kind.is_empty();
        !known
            || kind.strip_suffix("List") == Some(&*self.kind)
            || match needs {
                Needs::Metadata => kind == "PartialObjectMetadataList",
                Needs::Column(_) => kind == "Table",
                Needs::Object => false,
            }
    }

    /// The `Accept` header of a request for what is needed of the objects, a watch or a list. Where a server
    /// cannot give the part, it gives the whole.
    pub(super) fn accept(&self, needs: Needs, watch: bool) -> &'static str {
        match needs {
            _ if !self.protobuf => "application/json",
            Needs::Metadata if watch => {
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                 application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                 application/vnd.kubernetes.protobuf,application/json"
            }
            Needs::Metadata => {
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                 application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                 application/vnd.kubernetes.protobuf,application/json"
            }
            Needs::Column(_) => {
                "application/json;as=Table;g=meta.k8s.io;v=v1,\
                 application/vnd.kubernetes.protobuf,application/json"
            }
            Needs::Object => "application/vnd.kubernetes.protobuf,application/json",
        }
    }

    /// The path of all objects, or of those in one namespace.
    fn path(&self, namespace: Option<&str>) -> String {
        let Self { group, version, plural, .. } = self;
        let mut path = match group.as_str() {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        if let Some(namespace) = namespace {
            path.push_str("/namespaces/");
            encode(&mut path, namespace);
        }
        path.push('/');
        path.push_str(plural);
        path
    }
}

/// One list/watch: a target, or the part of it in one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scope {
    pub(super) target: Target,
    pub(super) namespace: Option<String>,
    /// Field selector, empty for none.
    pub(super) selector: String,
}

impl Scope {
    /// How the log names it.
    pub(super) fn name(&self) -> Arc<str> {
        match &self.namespace {
            Some(namespace) => format!("{} in {namespace}", self.target.plural).into(),
            None => self.target.plural.as_str().into(),
        }
    }

    /// The request for `state`: path and query, in the order that Go's client has.
    pub(super) fn request(&self, state: &State, limit: Option<u64>, timeout: u64) -> String {
        let mut query = Query(self.target.path(self.namespace.as_deref()), '?');
        let timeout = timeout.to_string();
        match state {
            State::Streaming => {
                query.add("allowWatchBookmarks", "true");
                query.add("fieldSelector", &self.selector);
                query.add("resourceVersionMatch", "NotOlderThan");
                query.add("sendInitialEvents", "true");
                query.add("timeoutSeconds", &timeout);
                query.add("watch", "true");
            }
            State::Listing { version, token, .. } => {
                query.add("continue", token);
                query.add("fieldSelector", &self.selector);
                query.add("limit", &limit.map(|limit| limit.to_string()).unwrap_or_default());
                // A token holds its version.
                if *version == ListVersion::Any && token.is_empty() {
                    query.add("resourceVersion", "0");
                }
            }
            State::Checking { .. } => {
                query.add("fieldSelector", &self.selector);
                query.add("limit", &limit.map(|limit| limit.to_string()).unwrap_or_default());
            }
            State::Watching { version } => {
                query.add("allowWatchBookmarks", "true");
                query.add("fieldSelector", &self.selector);
                query.add("resourceVersion", version);
                query.add("timeoutSeconds", &timeout);
                query.add("watch", "true");
            }
        }
        query.0
    }
}

/// A URL under construction, and what stands before the next parameter.
struct Query(String, char);

impl Query {
    /// Adds a parameter, unless it is empty.
    fn add(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.0.push(self.1);
            self.0.push_str(name);
            self.0.push('=');
            encode(&mut self.0, value);
            self.1 = '&';
        }
    }
}

/// Percent-encodes everything but the unreserved characters of RFC 3986.
pub(super) fn encode(out: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(group: &str, namespace: Option<&str>, selector: &str) -> Scope {
        let target = Target {
            group: group.to_owned(),
            version: "v1".to_owned(),
            plural: "things".to_owned(),
            kind: "Thing".to_owned(),
            namespaced: true,
            protobuf: true,
            label: "*v1.Thing".to_owned(),
        };
        Scope { target, namespace: namespace.map(str::to_owned), selector: selector.to_owned() }
    }

    fn listing(version: ListVersion, token: &str) -> State {
        State::Listing { version, token: token.to_owned(), whole: false }
    }

    #[test]
    fn kinds_of_lists() {
        let target = scope("", None, "").target;
        let is_list = |kind| target.is_list(kind, Needs::Object);
        assert!(is_list("ThingList") && is_list(""));
        assert!(!is_list("Thing") && !is_list("OtherList"));
        assert!(!is_list("Table") && !is_list("PartialObjectMetadataList"));
        let metadata = |kind| target.is_list(kind, Needs::Metadata);
        assert!(metadata("PartialObjectMetadataList") && metadata("ThingList"));
        assert!(!metadata("Table") && !metadata("OtherList"));
        let unknown = Target { kind: String::new(), ..target.clone() };
        assert!(unknown.is_list("OtherList", Needs::Object));
    }

    #[test]
    fn requests() {
        let all = scope("", None, "");
        assert_eq!(
            all.request(&State::Streaming, Some(500), 305),
            "/api/v1/things?allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan\
             &sendInitialEvents=true&timeoutSeconds=305&watch=true"
        );
        assert_eq!(
            all.request(&listing(ListVersion::Any, ""), Some(500), 1),
            "/api/v1/things?limit=500&resourceVersion=0"
        );
        assert_eq!(all.request(&listing(ListVersion::Latest, ""), None, 1), "/api/v1/things");
        assert_eq!(
            all.request(&listing(ListVersion::Any, "a=/+"), Some(500), 1),
            "/api/v1/things?continue=a%3D%2F%2B&limit=500"
        );
        let some = scope("apps", Some("a/ü"), "metadata.namespace!=x,spec.nodeName=n");
        assert_eq!(
            some.request(&State::Watching { version: "12".to_owned() }, None, 400),
            "/apis/apps/v1/namespaces/a%2F%C3%BC/things?allowWatchBookmarks=true\
             &fieldSelector=metadata.namespace%21%3Dx%2Cspec.nodeName%3Dn\
             &resourceVersion=12&timeoutSeconds=400&watch=true"
        );
    }
}
