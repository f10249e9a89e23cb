//! Objects, lists and events in every form that is asked for: protobuf and JSON, as a whole, as metadata, as a table.

use k8s_pb::api::core::v1::{ConfigMap, Node, NodeSpec, Pod, PodStatus, Secret};
use k8s_pb::apimachinery::pkg::apis::meta::v1::{ObjectMeta, PartialObjectMetadata};
use prost::Message as _;

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

fn field(tag: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![tag << 3 | 2];
    prost::encoding::encode_varint(payload.len() as u64, &mut out);
    out.extend_from_slice(payload);
    out
}

fn envelope(kind: &str, raw: &[u8]) -> Vec<u8> {
    let kind = field(1, &[field(1, b"v1"), field(2, kind.as_bytes())].concat());
    [b"k8s\0".to_vec(), kind, field(2, raw), field(3, b""), field(4, b"")].concat()
}

fn metadata(object: &Object) -> ObjectMeta {
    let Object { scope, name, uid, state, version } = object;
    ObjectMeta {
        name: Some(name.clone()),
        namespace: Some(scope.namespace.to_owned()),
        uid: Some(uid.clone()),
        resource_version: Some(version.to_string()),
        labels: [("state".to_owned(), state.to_string())].into(),
        ..ObjectMeta::default()
    }
}

fn protobuf(object: &Object, part: Part) -> Vec<u8> {
    let metadata = Some(metadata(object));
    match (part, object.scope.kind) {
        (Part::Metadata, _) => PartialObjectMetadata { metadata }.encode_to_vec(),
        (_, Kind::ConfigMap) => ConfigMap { metadata, ..ConfigMap::default() }.encode_to_vec(),
        (_, Kind::Node) => {
            let spec =
                NodeSpec { unschedulable: Some(object.is_cordoned()), ..NodeSpec::default() };
            Node { metadata, spec: Some(spec), ..Node::default() }.encode_to_vec()
        }
        (_, Kind::Pod) => {
            let status =
                PodStatus { phase: Some(object.phase().to_owned()), ..PodStatus::default() };
            Pod { metadata, status: Some(status), ..Pod::default() }.encode_to_vec()
        }
        (_, Kind::Secret) => {
            let r#type = Some(object.secret_type());
            Secret { metadata, r#type, ..Secret::default() }.encode_to_vec()
        }
        (_, Kind::Widget) => Vec::new(),
    }
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
        let mut metadata =
            ObjectMeta { resource_version: Some(version.to_string()), ..ObjectMeta::default() };
        if end {
            metadata.annotations.insert(END.to_owned(), "true".to_owned());
        }
        let object = PartialObjectMetadata { metadata: Some(metadata) }.encode_to_vec();
        return frame("BOOKMARK", &envelope(form.kind(kind), &object));
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

fn status_message(code: u16, reason: &str) -> Vec<u8> {
    let status = k8s_pb::apimachinery::pkg::apis::meta::v1::Status {
        code: Some(code.into()),
        status: Some("Failure".to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(format!("because of {reason}")),
        ..Default::default()
    };
    status.encode_to_vec()
}

fn status_text(code: u16, reason: &str) -> String {
    format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"because of {reason}","reason":"{reason}","code":{code}}}"#
    )
}
