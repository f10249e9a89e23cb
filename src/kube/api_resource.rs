//! API resources and the URLs and headers of their list and watch requests.

use std::sync::Arc;
use std::time::Duration;

use super::follow::machine::{ListVersion, State};
use crate::resources::{Api, Representation};
use crate::util::percent::{self, UNRESERVED};

/// A built-in or custom API resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiResource {
    /// API group, empty for the core group.
    pub group: String,
    /// API version, such as `v1`.
    pub version: String,
    /// The plural name in lower case, such as `pods`.
    pub plural: String,
    /// Kind of the objects, empty if unknown.
    pub kind: String,
    /// The kind of lists of them, empty for the usual one.
    pub list_kind: String,
    /// True if objects belong to a namespace.
    pub namespaced: bool,
    /// True if the server supports protobuf. Custom resources are JSON only.
    pub protobuf: bool,
    /// The `resource` label of own metrics, such as `*v1.Pod`.
    pub label: String,
}

impl ApiResource {
    /// Returns the target of a built-in resource.
    #[must_use]
    pub fn built_in(api: &Api) -> Self {
        Self {
            group: api.group.to_owned(),
            version: api.version.to_owned(),
            plural: api.name.to_owned(),
            kind: api.kind.to_owned(),
            list_kind: String::new(),
            namespaced: api.namespaced,
            protobuf: true,
            // The name of the Go type in kube-state-metrics' own metrics, such as `*v1.Pod`.
            label: format!("*{}.{}", api.version, api.kind),
        }
    }

    /// Returns a unique name: the plural of a built-in kind, `plural.version.group` of a custom one.
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

    /// Returns the `resource` label for metrics that kube-state-metrics does not have. In those that it has, all custom
    /// kinds share one label.
    pub(super) fn unique_label(&self) -> String {
        if self.is_custom() { self.name() } else { self.label.clone() }
    }

    fn is_custom(&self) -> bool {
        // Only custom resources lack protobuf.
        !self.protobuf
    }

    /// Returns false if watches get no bookmarks: API servers send them from their caches, and have none of Kubernetes Events.
    pub(super) fn has_bookmarks(&self) -> bool {
        self.plural != "events" || !matches!(&*self.group, "" | "events.k8s.io")
    }

    /// Returns true if `kind` is the kind of a list of these objects, or of the requested representation of them. An
    /// unknown kind matches.
    pub(super) fn is_list(&self, kind: &str, representation: Representation) -> bool {
        let known = !kind.is_empty() && !self.kind.is_empty();
        !known
            || kind == self.list_kind
            || self.list_kind.is_empty() && kind.strip_suffix("List") == Some(&*self.kind)
            || match representation {
                Representation::Metadata => kind == "PartialObjectMetadataList",
                Representation::Column(_) => kind == "Table",
                Representation::Object => false,
            }
    }

    /// Returns the `Accept` header of a list or watch request for this representation. Servers that do not support the
    /// representation may send complete objects.
    pub(super) fn accept(&self, representation: Representation, watch: bool) -> &'static str {
        match representation {
            _ if !self.protobuf => "application/json",
            Representation::Metadata if watch => {
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                 application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
                 application/vnd.kubernetes.protobuf,application/json"
            }
            Representation::Metadata => {
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                 application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                 application/vnd.kubernetes.protobuf,application/json"
            }
            Representation::Column(_) => {
                "application/json;as=Table;g=meta.k8s.io;v=v1,\
                 application/vnd.kubernetes.protobuf,application/json"
            }
            Representation::Object => "application/vnd.kubernetes.protobuf,application/json",
        }
    }

    /// Returns the path of all objects, or of those in one namespace.
    fn path(&self, namespace: Option<&str>) -> String {
        let Self { group, version, plural, .. } = self;
        let namespace = namespace.map_or(String::new(), |namespace| {
            format!("/namespaces/{}", percent::encode(namespace, UNRESERVED))
        });
        match group.as_str() {
            "" => format!("/api/{version}{namespace}/{plural}"),
            group => format!("/apis/{group}/{version}{namespace}/{plural}"),
        }
    }
}

/// The subject of one list/watch: a resource, or its part in one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scope {
    pub(super) api: ApiResource,
    pub(super) namespace: Option<String>,
    /// The field selector, empty for none.
    pub(super) selector: String,
    /// The label selector, empty for none.
    pub(super) labels: String,
    /// The time after which completed pods lose their series.
    pub(super) drop_completed_after: Option<Duration>,
}

impl Scope {
    /// Returns the selectors of requests as flags, if there are any.
    pub(super) fn selectors(&self) -> Option<String> {
        let name = self.api.name();
        let flags = [("--field-selector", &self.selector), ("--selector", &self.labels)];
        let given = flags.iter().filter(|(_, selector)| !selector.is_empty());
        let given: Vec<_> = given.map(|(flag, text)| format!("{flag} {name}={text}")).collect();
        (!given.is_empty()).then(|| given.join(" "))
    }

    /// Returns the name in log lines.
    pub(super) fn name(&self) -> Arc<str> {
        match &self.namespace {
            Some(namespace) => format!("{} in {namespace}", self.api.plural).into(),
            None => self.api.plural.as_str().into(),
        }
    }

    /// Returns path and query of the request for `state`, with parameters in the same order as Go's client.
    pub(super) fn request(&self, state: &State, limit: Option<u64>, timeout: u64) -> String {
        let mut url = self.api.path(self.namespace.as_deref());
        let streams = *state == State::Streaming;
        let watches = streams || matches!(state, State::Watching { .. });
        let (token, version) = match state {
            // A continue token contains the resource version.
            State::Listing { version: ListVersion::Any, token, .. } if token.is_empty() => {
                ("", "0")
            }
            State::Listing { token, .. } => (&**token, ""),
            State::Watching { version } => ("", &**version),
            State::Streaming | State::Checking { .. } => ("", ""),
        };
        let limit = limit.filter(|_| !watches).map(|limit| limit.to_string()).unwrap_or_default();
        let timeout = if watches { timeout.to_string() } else { String::new() };
        let when = |applies: bool, value: &'static str| if applies { value } else { "" };
        let mut separator = '?';
        for (name, value) in [
            ("allowWatchBookmarks", when(watches, "true")),
            ("continue", token),
            ("fieldSelector", &*self.selector),
            ("labelSelector", &*self.labels),
            ("limit", &*limit),
            ("resourceVersion", version),
            ("resourceVersionMatch", when(streams, "NotOlderThan")),
            ("sendInitialEvents", when(streams, "true")),
            ("timeoutSeconds", &*timeout),
            ("watch", when(watches, "true")),
        ] {
            if !value.is_empty() {
                url.push(separator);
                url.push_str(name);
                url.push('=');
                url.push_str(&percent::encode(value, UNRESERVED));
                separator = '&';
            }
        }
        url
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(group: &str, namespace: Option<&str>, selector: &str) -> Scope {
        let api = ApiResource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            plural: "things".to_owned(),
            kind: "Thing".to_owned(),
            list_kind: String::new(),
            namespaced: true,
            protobuf: true,
            label: "*v1.Thing".to_owned(),
        };
        Scope {
            api,
            namespace: namespace.map(str::to_owned),
            selector: selector.to_owned(),
            labels: String::new(),
            drop_completed_after: None,
        }
    }

    fn listing(version: ListVersion, token: &str) -> State {
        State::Listing { version, token: token.to_owned(), whole: false }
    }

    #[test]
    fn list_kinds() {
        let api = scope("", None, "").api;
        let is_list = |kind| api.is_list(kind, Representation::Object);
        assert!(is_list("ThingList") && is_list(""));
        assert!(!is_list("Thing") && !is_list("OtherList"));
        assert!(!is_list("Table") && !is_list("PartialObjectMetadataList"));
        let metadata = |kind| api.is_list(kind, Representation::Metadata);
        assert!(metadata("PartialObjectMetadataList") && metadata("ThingList"));
        assert!(!metadata("Table") && !metadata("OtherList"));
        let named = ApiResource { list_kind: "ThingCollection".to_owned(), ..api.clone() };
        assert!(named.is_list("ThingCollection", Representation::Object));
        assert!(!named.is_list("OtherList", Representation::Object));
        let unknown = ApiResource { kind: String::new(), ..api.clone() };
        assert!(unknown.is_list("OtherList", Representation::Object));
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
