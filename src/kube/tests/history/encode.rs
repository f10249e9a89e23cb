//! Encodes objects, lists and events in all requested formats: protobuf and JSON; complete objects, metadata and
//! tables.
//!
//! The protobuf encoding is written by hand so that fuzz targets do not need the Kubernetes types; a test compares it
//! with those.

use super::cluster::{EventType, Kind, Object};
use super::encode_status::{
    definition, definition_json, event_fields, event_json, job, job_json, node, node_json, pod,
    pod_json, time, time_text,
};
use crate::wire::varint::varint;

/// The start of 2026 in Unix seconds.
pub(super) const YEAR: u64 = 1_767_225_600;

/// The format of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseFormat {
    pub protobuf: bool,
    pub form: ObjectForm,
}

/// The representation of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectForm {
    Complete,
    Metadata,
    Table,
}

impl ResponseFormat {
    pub fn content_type(self, watch: bool) -> &'static str {
        match (self.protobuf, watch) {
            (true, true) => "application/vnd.kubernetes.protobuf;stream=watch",
            (true, false) => "application/vnd.kubernetes.protobuf",
            (false, _) => "application/json",
        }
    }

    fn kind(self, kind: Kind) -> &'static str {
        match self.form {
            ObjectForm::Complete => kind.name(),
            ObjectForm::Metadata => "PartialObjectMetadata",
            ObjectForm::Table => "Table",
        }
    }

    fn api_version(self, kind: Kind) -> &'static str {
        match self.form {
            ObjectForm::Complete => kind.api_version(),
            ObjectForm::Metadata | ObjectForm::Table => "meta.k8s.io/v1",
        }
    }
}

pub(super) fn field(tag: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint(&mut out, u64::from(tag) << 3 | 2);
    varint(&mut out, payload.len() as u64);
    out.extend_from_slice(payload);
    out
}

pub(super) fn number(tag: u8, value: usize) -> Vec<u8> {
    let mut out = vec![tag << 3];
    varint(&mut out, value as u64);
    out
}

/// Encodes a map entry.
fn entry(tag: u8, key: &str, value: &str) -> Vec<u8> {
    field(tag, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat())
}

fn envelope(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let kind = field(1, &[field(1, version.as_bytes()), field(2, kind.as_bytes())].concat());
    [b"k8s\0".to_vec(), kind, field(2, raw), field(3, b""), field(4, b"")].concat()
}

/// Encodes the fields of `ObjectMeta`.
fn metadata(object: &Object) -> Vec<u8> {
    let Object { scope, name, uid, version, .. } = object;
    let has_time = has_time(scope.kind);
    let time = |tag, is_set: bool| if is_set { time(tag, object.started()) } else { Vec::new() };
    [
        field(1, name.as_bytes()),
        field(3, scope.namespace.as_bytes()),
        field(5, uid.as_bytes()),
        field(6, version.to_string().as_bytes()),
        time(8, has_time),
        time(9, object.is_being_deleted()),
        entry(11, "state", &object.label_state().to_string()),
        owner(object),
    ]
    .concat()
}

/// Returns true if objects of a kind have a creation time, by which the ledger recognises new ones.
fn has_time(kind: Kind) -> bool {
    matches!(kind, Kind::Event | Kind::Job | Kind::Pod)
}

/// Returns the API version of an owner.
fn group(kind: &str) -> &'static str {
    if matches!(kind, "CronJob" | "Job") { "batch/v1" } else { "apps/v1" }
}

/// Encodes the owner of a pod or job, if it has one.
fn owner(object: &Object) -> Vec<u8> {
    let (Some((kind, name)), Some(uid)) = (object.owner(), object.owner_uid()) else {
        return Vec::new();
    };
    let reference = [
        field(1, kind.as_bytes()),
        field(3, name.as_bytes()),
        field(4, uid.as_bytes()),
        field(5, group(kind).as_bytes()),
        number(6, 1),
    ];
    field(13, &reference.concat())
}

fn protobuf(object: &Object, form: ObjectForm) -> Vec<u8> {
    let metadata = field(1, &metadata(object));
    let rest = match (form, object.scope.kind) {
        (ObjectForm::Metadata, _) | (_, Kind::ConfigMap) => Vec::new(),
        (_, Kind::Definition) => definition(object),
        (_, Kind::Event) => event_fields(object),
        (_, Kind::Job) => job(object),
        (_, Kind::Node) => node(object),
        (_, Kind::Pod) => pod(object),
        (_, Kind::Secret) => field(3, object.secret_type().as_bytes()),
        (_, Kind::Widget | Kind::WidgetV2) => return Vec::new(),
    };
    [metadata, rest].concat()
}

fn json(object: &Object, form: ObjectForm) -> String {
    let Object { scope, name, uid, state, version, .. } = object;
    let namespace = scope.namespace;
    let (api, kind) = match form {
        ObjectForm::Complete => (scope.kind.api_version(), scope.kind.name()),
        ObjectForm::Metadata | ObjectForm::Table => ("meta.k8s.io/v1", "PartialObjectMetadata"),
    };
    let owner = object.owner().zip(object.owner_uid()).map_or(String::new(), |owner| {
        let ((kind, name), uid) = owner;
        format!(
            r#","ownerReferences":[{{"kind":"{kind}","name":"{name}","uid":"{uid}","apiVersion":"{}","controller":true}}]"#,
            group(kind)
        )
    });
    let time = |name: &str, is_set: bool| {
        if is_set {
            format!(r#","{name}":"{}""#, time_text(object.started()))
        } else {
            String::new()
        }
    };
    let times = time("creationTimestamp", has_time(scope.kind))
        + &time("deletionTimestamp", object.is_being_deleted());
    let label = object.label_state();
    let metadata = format!(
        r#""metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{version}","labels":{{"state":"{label}"}}{times}{owner}}}"#
    );
    let rest = match (form, scope.kind) {
        (ObjectForm::Metadata | ObjectForm::Table, _) | (_, Kind::ConfigMap) => String::new(),
        (_, Kind::Definition) => definition_json(object),
        (_, Kind::Event) => event_json(object),
        (_, Kind::Job) => job_json(object),
        (_, Kind::Node) => node_json(object),
        (_, Kind::Pod) => pod_json(object),
        (_, Kind::Secret) => format!(r#","type":"{}","data":{{"k":"dg=="}}"#, object.secret_type()),
        (_, Kind::Widget | Kind::WidgetV2) => {
            let back = backwards(name);
            let part = format!(r#"{{"state":"{state}"}}"#);
            format!(r#","spec":{{"state":"{state}","back":"{back}","parts":[{part},{part}]}}"#)
        }
    };
    format!(r#"{{"kind":"{kind}","apiVersion":"{api}",{metadata}{rest}}}"#)
}

/// Returns a name with other digits, so that a name that comes later than another one usually comes earlier.
fn backwards(name: &str) -> String {
    let back = |char: char| char.to_digit(10).map_or(char, |digit| (b'9' - digit as u8) as char);
    name.chars().map(back).collect()
}

const COLUMNS: &str = r#"[{"name":"Name","type":"string"},{"name":"Type","type":"string"}]"#;

fn row(object: &Object) -> String {
    let (name, kind, partial) =
        (&object.name, object.secret_type(), json(object, ObjectForm::Table));
    format!(r#"{{"cells":["{name}","{kind}"],"object":{partial}}}"#)
}

/// Encodes a page of a list with the continue token of the next one.
pub fn list(
    format: ResponseFormat,
    kind: Kind,
    version: u64,
    (token, rest): (&str, Option<usize>),
    objects: &[Object],
) -> Vec<u8> {
    if format.protobuf {
        let rest = rest.map(|rest| number(4, rest)).unwrap_or_default();
        let version = field(2, version.to_string().as_bytes());
        let meta = [version, field(3, token.as_bytes()), rest].concat();
        let items = objects.iter().map(|object| field(2, &protobuf(object, format.form)));
        let raw = [field(1, &meta)].into_iter().chain(items).collect::<Vec<_>>().concat();
        let list = format!("{}List", format.kind(kind));
        return envelope(format.api_version(kind), &list, &raw);
    }
    let rest = rest.map(|rest| format!(r#","remainingItemCount":{rest}"#)).unwrap_or_default();
    let meta =
        format!(r#""metadata":{{"resourceVersion":"{version}","continue":"{token}"{rest}}}"#);
    let joined = |each: fn(&Object, ObjectForm) -> String| {
        let items = objects.iter().map(|object| each(object, format.form));
        items.collect::<Vec<_>>().join(",")
    };
    let text = match format.form {
        ObjectForm::Table => format!(
            r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1",{meta},"columnDefinitions":{COLUMNS},"rows":[{}]}}"#,
            joined(|object, _| row(object))
        ),
        _ => format!(
            r#"{{"kind":"{}List","apiVersion":"{}",{meta},"items":[{}]}}"#,
            format.kind(kind),
            format.api_version(kind),
            joined(json)
        ),
    };
    text.into_bytes()
}

fn frame(event_type: &str, object: &[u8]) -> Vec<u8> {
    let object = field(2, &field(1, object));
    let frame = [field(1, event_type.as_bytes()), object].concat();
    [&(frame.len() as u32).to_be_bytes()[..], &frame].concat()
}

fn line(event_type: &str, object: &str) -> Vec<u8> {
    format!("{{\"type\":\"{event_type}\",\"object\":{object}}}\n").into_bytes()
}

/// Encodes an event. The first event of a table watch `has_columns`: the column definitions.
pub fn event(
    format: ResponseFormat,
    event_type: EventType,
    object: &Object,
    has_columns: bool,
) -> Vec<u8> {
    let event_type = match event_type {
        EventType::Added => "ADDED",
        EventType::Modified => "MODIFIED",
        EventType::Deleted => "DELETED",
    };
    if format.protobuf {
        let (kind, api) = (format.kind(object.scope.kind), format.api_version(object.scope.kind));
        return frame(event_type, &envelope(api, kind, &protobuf(object, format.form)));
    }
    match format.form {
        ObjectForm::Table => {
            let columns = if has_columns { COLUMNS } else { "null" };
            let (version, row) = (object.version, row(object));
            let table = format!(
                r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"{version}"}},"columnDefinitions":{columns},"rows":[{row}]}}"#
            );
            line(event_type, &table)
        }
        form => line(event_type, &json(object, form)),
    }
}

/// The contents of a bookmark.
pub struct Bookmark {
    pub version: u64,
    /// Marks the end of the initial state of a streaming list.
    pub ends_initial_events: bool,
    /// Includes column definitions, like the first event of a table watch.
    pub has_columns: bool,
}

/// Encodes a bookmark as a watch event.
pub fn bookmark(format: ResponseFormat, kind: Kind, bookmark: &Bookmark) -> Vec<u8> {
    let &Bookmark { version, ends_initial_events, has_columns } = bookmark;
    const END: &str = "k8s.io/initial-events-end";
    if format.protobuf {
        let mut metadata = field(6, version.to_string().as_bytes());
        if ends_initial_events {
            metadata.extend(entry(12, END, "true"));
        }
        let (api, kind) = (format.api_version(kind), format.kind(kind));
        return frame("BOOKMARK", &envelope(api, kind, &field(1, &metadata)));
    }
    let annotations = if ends_initial_events {
        format!(r#","annotations":{{"{END}":"true"}}"#)
    } else {
        String::new()
    };
    let metadata = format!(r#""metadata":{{"resourceVersion":"{version}"{annotations}}}"#);
    let object = match format.form {
        ObjectForm::Table => {
            let columns = if has_columns { COLUMNS } else { "null" };
            let row = format!(
                r#"{{"cells":["",""],"object":{{"kind":"PartialObjectMetadata",{metadata}}}}}"#
            );
            format!(
                r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"{version}"}},"columnDefinitions":{columns},"rows":[{row}]}}"#
            )
        }
        _ => format!(
            r#"{{"kind":"{}","apiVersion":"{}",{metadata}}}"#,
            kind.name(),
            kind.api_version()
        ),
    };
    line("BOOKMARK", &object)
}

/// Encodes a `Status` as a response body.
pub fn status(protobuf: bool, code: u16, reason: &str) -> Vec<u8> {
    if protobuf {
        envelope("v1", "Status", &status_message(code, reason))
    } else {
        status_text(code, reason).into_bytes()
    }
}

/// Returns the content type and the body of a response that is not a list of this kind.
pub fn unrelated_body(number: usize, kind: Kind) -> (&'static str, Vec<u8>) {
    let format = ResponseFormat { protobuf: true, form: ObjectForm::Complete };
    let protobuf = format.content_type(false);
    match number {
        0 => ("application/json", status(false, 500, "InternalError")),
        1 => (protobuf, status(true, 500, "InternalError")),
        2 => ("application/json", b"{}".to_vec()),
        3 => ("application/json", b"[]".to_vec()),
        4 => ("text/html", b"<html>log in</html>".to_vec()),
        5 => ("application/json", b"<html>log in</html>".to_vec()),
        6 => {
            let other = if kind == Kind::Pod { Kind::Node } else { Kind::Pod };
            (protobuf, list(format, other, 5000, ("", None), &[]))
        }
        7 => ("application/json", br#"{"items":[],"metadata":{}}"#.to_vec()),
        _ => (protobuf, Vec::new()),
    }
}

/// Encodes a `Status` as an event that ends a watch.
pub fn error(format: ResponseFormat, code: u16, reason: &str) -> Vec<u8> {
    if format.protobuf {
        frame("ERROR", &envelope("v1", "Status", &status_message(code, reason)))
    } else {
        line("ERROR", &status_text(code, reason))
    }
}

/// Returns the error event that fails a flapping watch.
pub fn flap_error(format: ResponseFormat, code: u16) -> Vec<u8> {
    let reason = match code {
        403 => "Forbidden",
        410 => "Expired",
        _ => "InternalError",
    };
    error(format, code, reason)
}

/// Encodes the fields of `Status`.
fn status_message(code: u16, reason: &str) -> Vec<u8> {
    [
        field(2, b"Failure"),
        field(3, format!("because of {reason}").as_bytes()),
        field(4, reason.as_bytes()),
        number(6, code.into()),
    ]
    .concat()
}

fn status_text(code: u16, reason: &str) -> String {
    format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"because of {reason}","reason":"{reason}","code":{code}}}"#
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_pb::api::core::v1::{
        ConfigMap, Container, Node, NodeSpec, NodeStatus, Pod, PodCondition, PodIp, PodSpec,
        PodStatus, Secret, Taint,
    };
    use k8s_pb::apimachinery::pkg::apis::meta::v1::{
        ObjectMeta, OwnerReference, PartialObjectMetadata, Status, Time,
    };
    use prost::Message as _;

    use super::super::cluster::Scope;
    use super::*;

    /// The handwritten encoding equals that of the Kubernetes types.
    #[test]
    fn encoding_equals_the_kubernetes_types() {
        let object = |kind, namespace| Object {
            scope: Scope { kind, namespace },
            name: "o".repeat(200) + "5",
            uid: "uid-1".to_owned(),
            state: 301,
            version: 1234,
            status: Arc::default(),
            subject: None,
        };
        let check = |kind, form, bytes: Vec<u8>| {
            let namespace = if kind == Kind::Node { "" } else { "east" };
            assert_eq!(protobuf(&object(kind, namespace), form), bytes, "{kind:?} {form:?}");
        };
        let metadata = |namespace: &str| {
            Some(ObjectMeta {
                name: Some("o".repeat(200) + "5"),
                namespace: Some(namespace.to_owned()),
                uid: Some("uid-1".to_owned()),
                resource_version: Some("1234".to_owned()),
                labels: [("state".to_owned(), "301".to_owned())].into(),
                ..ObjectMeta::default()
            })
        };
        let owner = OwnerReference {
            kind: Some("StatefulSet".to_owned()),
            name: Some("db2".to_owned()),
            uid: Some("owner-db2".to_owned()),
            api_version: Some("apps/v1".to_owned()),
            controller: Some(true),
            ..OwnerReference::default()
        };
        let start = Some(Time { seconds: Some(YEAR as i64 + 1), ..Time::default() });
        let of_pod = metadata("east").map(|metadata| ObjectMeta {
            creation_timestamp: start,
            owner_references: vec![owner],
            ..metadata
        });
        let partial = PartialObjectMetadata { metadata: of_pod.clone() };
        check(Kind::Pod, ObjectForm::Metadata, partial.encode_to_vec());
        let map = ConfigMap { metadata: metadata("east"), ..ConfigMap::default() };
        check(Kind::ConfigMap, ObjectForm::Complete, map.encode_to_vec());
        let taint = |key: &str| Taint {
            key: Some(key.to_owned()),
            effect: Some("NoSchedule".to_owned()),
            ..Taint::default()
        };
        let taints = ["t0", "t1"].map(taint).to_vec();
        let spec = Some(NodeSpec { unschedulable: Some(true), taints, ..NodeSpec::default() });
        let node = Node { metadata: metadata(""), spec, status: Some(NodeStatus::default()) };
        check(Kind::Node, ObjectForm::Complete, node.encode_to_vec());
        let phase = Some(object(Kind::Pod, "east").phase().to_owned());
        let called_off = PodCondition {
            r#type: Some("DisruptionTarget".to_owned()),
            status: Some("False".to_owned()),
            reason: Some("PreemptionByScheduler".to_owned()),
            ..PodCondition::default()
        };
        let status = Some(PodStatus {
            phase,
            conditions: vec![called_off],
            host_ip: Some("127.9.0.1".to_owned()),
            pod_ip: Some("127.1.0.5".to_owned()),
            pod_ips: vec![PodIp { ip: Some("127.1.0.5".to_owned()) }],
            start_time: start,
            ..PodStatus::default()
        });
        let container = Container { name: Some("app".to_owned()), ..Container::default() };
        let node_name = Some("node-1".to_owned());
        let spec = Some(PodSpec { node_name, containers: vec![container], ..PodSpec::default() });
        let pod = Pod { metadata: of_pod, spec, status };
        check(Kind::Pod, ObjectForm::Complete, pod.encode_to_vec());
        let r#type = Some("example.com/t301".to_owned());
        let secret = Secret { metadata: metadata("east"), r#type, ..Secret::default() };
        check(Kind::Secret, ObjectForm::Complete, secret.encode_to_vec());
        let status = Status {
            code: Some(410),
            status: Some("Failure".to_owned()),
            reason: Some("Expired".to_owned()),
            message: Some("because of Expired".to_owned()),
            ..Status::default()
        };
        assert_eq!(status_message(410, "Expired"), status.encode_to_vec());
    }
}
