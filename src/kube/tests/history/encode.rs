//! Objects, lists and events in every form that is asked for: protobuf and JSON, as a whole, as metadata, as a table.
//!
//! The messages are written by hand, so that fuzz targets do without all types of Kubernetes; those types are held against them.

use super::cluster::{Kind, Object, Verb};

/// How objects are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    pub protobuf: bool,
    pub part: Part,
}

/// What of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Whole,
    Metadata,
    Table,
}

impl Form {
    pub fn content_type(self, watch: bool) -> &'static str {
        match (self.protobuf, watch) {
            (true, true) => "application/vnd.kubernetes.protobuf;stream=watch",
            (true, false) => "application/vnd.kubernetes.protobuf",
            (false, _) => "application/json",
        }
    }

    fn kind(self, kind: Kind) -> &'static str {
        match self.part {
            Part::Whole => kind.name(),
            Part::Metadata => "PartialObjectMetadata",
            Part::Table => "Table",
        }
    }
}

fn varint(mut number: usize, out: &mut Vec<u8>) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn field(tag: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![tag << 3 | 2];
    varint(payload.len(), &mut out);
    out.extend_from_slice(payload);
    out
}

fn number(tag: u8, value: usize) -> Vec<u8> {
    let mut out = vec![tag << 3];
    varint(value, &mut out);
    out
}

/// An entry of a map.
fn entry(tag: u8, key: &str, value: &str) -> Vec<u8> {
    field(tag, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat())
}

fn envelope(kind: &str, raw: &[u8]) -> Vec<u8> {
    let kind = field(1, &[field(1, b"v1"), field(2, kind.as_bytes())].concat());
    [b"k8s\0".to_vec(), kind, field(2, raw), field(3, b""), field(4, b"")].concat()
}

/// `ObjectMeta`.
fn metadata(object: &Object) -> Vec<u8> {
    let Object { scope, name, uid, state, version } = object;
    [
        field(1, name.as_bytes()),
        field(3, scope.namespace.as_bytes()),
        field(5, uid.as_bytes()),
        field(6, version.to_string().as_bytes()),
        entry(11, "state", &state.to_string()),
    ]
    .concat()
}

fn protobuf(object: &Object, part: Part) -> Vec<u8> {
    let metadata = field(1, &metadata(object));
    let rest = match (part, object.scope.kind) {
        (Part::Metadata, _) | (_, Kind::ConfigMap) => Vec::new(),
        (_, Kind::Node) => field(2, &number(4, object.is_cordoned().into())),
        (_, Kind::Pod) => field(3, &field(1, object.phase().as_bytes())),
        (_, Kind::Secret) => field(3, object.secret_type().as_bytes()),
        (_, Kind::Widget) => return Vec::new(),
    };
    [metadata, rest].concat()
}

fn json(object: &Object, part: Part) -> String {
    let Object { scope, name, uid, state, version } = object;
    let namespace = scope.namespace;
    let kind = if part == Part::Whole { scope.kind.name() } else { "PartialObjectMetadata" };
    let metadata = format!(
        r#""metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{version}","labels":{{"state":"{state}"}}}}"#
    );
    let rest = match (part, scope.kind) {
        (Part::Metadata | Part::Table, _) | (_, Kind::ConfigMap) => String::new(),
        (_, Kind::Node) => format!(r#","spec":{{"unschedulable":{}}}"#, object.is_cordoned()),
        (_, Kind::Pod) => format!(r#","status":{{"phase":"{}"}}"#, object.phase()),
        (_, Kind::Secret) => format!(r#","type":"{}","data":{{"k":"dg=="}}"#, object.secret_type()),
        (_, Kind::Widget) => format!(r#","spec":{{"state":"{state}"}}"#),
    };
    format!(r#"{{"kind":"{kind}","apiVersion":"v1",{metadata}{rest}}}"#)
}

const COLUMNS: &str = r#"[{"name":"Name","type":"string"},{"name":"Type","type":"string"}]"#;

fn row(object: &Object) -> String {
    let (name, kind, partial) = (&object.name, object.secret_type(), json(object, Part::Table));
    format!(r#"{{"cells":["{name}","{kind}"],"object":{partial}}}"#)
}

/// A page of a list, with the token of the next one.
pub fn list(form: Form, kind: Kind, version: u64, token: &str, objects: &[Object]) -> Vec<u8> {
    if form.protobuf {
        let meta = [field(2, version.to_string().as_bytes()), field(3, token.as_bytes())].concat();
        let items = objects.iter().map(|object| field(2, &protobuf(object, form.part)));
        let raw = [field(1, &meta)].into_iter().chain(items).collect::<Vec<_>>().concat();
        return envelope(&format!("{}List", form.kind(kind)), &raw);
    }
    let meta = format!(r#""metadata":{{"resourceVersion":"{version}","continue":"{token}"}}"#);
    let joined = |each: fn(&Object, Part) -> String| {
        let items = objects.iter().map(|object| each(object, form.part));
        items.collect::<Vec<_>>().join(",")
    };
    let text = match form.part {
        Part::Table => format!(
            r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1",{meta},"columnDefinitions":{COLUMNS},"rows":[{}]}}"#,
            joined(|object, _| row(object))
        ),
        _ => format!(
            r#"{{"kind":"{}List","apiVersion":"v1",{meta},"items":[{}]}}"#,
            form.kind(kind),
            joined(json)
        ),
    };
    text.into_bytes()
}

fn frame(verb: &str, object: &[u8]) -> Vec<u8> {
    let object = field(2, &field(1, object));
    let frame = [field(1, verb.as_bytes()), object].concat();
    [&(frame.len() as u32).to_be_bytes()[..], &frame].concat()
}

fn line(verb: &str, object: &str) -> Vec<u8> {
    format!("{{\"type\":\"{verb}\",\"object\":{object}}}\n").into_bytes()
}

/// An event; `first` ones of a table say what its columns are.
pub fn event(form: Form, verb: Verb, object: &Object, first: bool) -> Vec<u8> {
    let verb = match verb {
        Verb::Added => "ADDED",
        Verb::Modified => "MODIFIED",
        Verb::Deleted => "DELETED",
    };
    if form.protobuf {
        let kind = form.kind(object.scope.kind);
        return frame(verb, &envelope(kind, &protobuf(object, form.part)));
    }
    match form.part {
        Part::Table => {
            let columns = if first { COLUMNS } else { "null" };
            let (version, row) = (object.version, row(object));
            let table = format!(
                r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"{version}"}},"columnDefinitions":{columns},"rows":[{row}]}}"#
            );
            line(verb, &table)
        }
        part => line(verb, &json(object, part)),
    }
}

/// A bookmark; `end` is that of a streaming list.
pub fn bookmark(form: Form, kind: Kind, version: u64, end: bool, first: bool) -> Vec<u8> {
    const END: &str = "k8s.io/initial-events-end";
    if form.protobuf {
        let mut metadata = field(6, version.to_string().as_bytes());
        if end {
            metadata.extend(entry(12, END, "true"));
        }
        return frame("BOOKMARK", &envelope(form.kind(kind), &field(1, &metadata)));
    }
    let annotations =
        if end { format!(r#","annotations":{{"{END}":"true"}}"#) } else { String::new() };
    let metadata = format!(r#""metadata":{{"resourceVersion":"{version}"{annotations}}}"#);
    let object = match form.part {
        Part::Table => {
            let columns = if first { COLUMNS } else { "null" };
            let row = format!(
                r#"{{"cells":["",""],"object":{{"kind":"PartialObjectMetadata",{metadata}}}}}"#
            );
            format!(
                r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"{version}"}},"columnDefinitions":{columns},"rows":[{row}]}}"#
            )
        }
        _ => format!(r#"{{"kind":"{}","apiVersion":"v1",{metadata}}}"#, kind.name()),
    };
    line("BOOKMARK", &object)
}

/// A `Status`, as the body of an answer.
pub fn status(protobuf: bool, code: u16, reason: &str) -> Vec<u8> {
    if protobuf {
        envelope("Status", &status_message(code, reason))
    } else {
        status_text(code, reason).into_bytes()
    }
}

/// The same as an event that ends a watch.
pub fn error(form: Form, code: u16, reason: &str) -> Vec<u8> {
    if form.protobuf {
        frame("ERROR", &envelope("Status", &status_message(code, reason)))
    } else {
        line("ERROR", &status_text(code, reason))
    }
}

/// `Status`.
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
    use k8s_pb::api::core::v1::{ConfigMap, Node, NodeSpec, Pod, PodStatus, Secret};
    use k8s_pb::apimachinery::pkg::apis::meta::v1::{ObjectMeta, PartialObjectMetadata, Status};
    use prost::Message as _;

    use super::super::cluster::Scope;
    use super::*;

    /// What is written by hand is what the types of Kubernetes are written as.
    #[test]
    fn messages_are_those_of_kubernetes() {
        let object = |kind, namespace| Object {
            scope: Scope { kind, namespace },
            name: "o".repeat(200),
            uid: "uid-1".to_owned(),
            state: 301,
            version: 1234,
        };
        let check = |kind, part, bytes: Vec<u8>| {
            let namespace = if kind == Kind::Node { "" } else { "east" };
            assert_eq!(protobuf(&object(kind, namespace), part), bytes, "{kind:?} {part:?}");
        };
        let metadata = |namespace: &str| {
            Some(ObjectMeta {
                name: Some("o".repeat(200)),
                namespace: Some(namespace.to_owned()),
                uid: Some("uid-1".to_owned()),
                resource_version: Some("1234".to_owned()),
                labels: [("state".to_owned(), "301".to_owned())].into(),
                ..ObjectMeta::default()
            })
        };
        let partial = PartialObjectMetadata { metadata: metadata("east") };
        check(Kind::Pod, Part::Metadata, partial.encode_to_vec());
        let map = ConfigMap { metadata: metadata("east"), ..ConfigMap::default() };
        check(Kind::ConfigMap, Part::Whole, map.encode_to_vec());
        let spec = Some(NodeSpec { unschedulable: Some(true), ..NodeSpec::default() });
        let node = Node { metadata: metadata(""), spec, ..Node::default() };
        check(Kind::Node, Part::Whole, node.encode_to_vec());
        let phase = Some(object(Kind::Pod, "east").phase().to_owned());
        let status = Some(PodStatus { phase, ..PodStatus::default() });
        let pod = Pod { metadata: metadata("east"), status, ..Pod::default() };
        check(Kind::Pod, Part::Whole, pod.encode_to_vec());
        let r#type = Some("example.com/t301".to_owned());
        let secret = Secret { metadata: metadata("east"), r#type, ..Secret::default() };
        check(Kind::Secret, Part::Whole, secret.encode_to_vec());
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
