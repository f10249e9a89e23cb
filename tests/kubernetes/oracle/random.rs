//! Random objects: every field of the schema, with values that metrics depend on and with arbitrary ones.

use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, RngExt};
use serde_json::{Map, Value, json};

use super::messages::{Encoded, Field, Number, Schema, Type};

/// Reorders the fields of a message and the entries of its maps; lists keep their order.
pub fn shuffle(fields: &mut [Encoded], rng: &mut StdRng) {
    for field in fields.iter_mut().filter(|field| field.map) {
        field.chunks.shuffle(rng);
    }
    fields.shuffle(rng);
}

/// Changes a few bytes, truncates, or repeats a part.
pub fn corrupt(bytes: &mut Vec<u8>, rng: &mut StdRng) {
    if bytes.is_empty() {
        return;
    }
    match rng.random_range(0..4) {
        0 => bytes.truncate(rng.random_range(0..bytes.len())),
        1 => {
            let start = rng.random_range(0..bytes.len());
            let end = rng.random_range(start..bytes.len());
            let part = bytes[start..end].to_vec();
            bytes.splice(start..start, part);
        }
        _ => {
            for _ in 0..rng.random_range(1..4) {
                let at = rng.random_range(0..bytes.len());
                bytes[at] = rng.random();
            }
        }
    }
}

/// Returns a random object of this message type.
pub fn object(schema: &Schema, message: &str, rng: &mut StdRng) -> Value {
    Value::Object(fill(schema, message, rng, 0, &mut { BUDGET }))
}

/// Maximum number of values in the nested parts of a field, such as a pod template.
const BUDGET: usize = 200;

fn fill(
    schema: &Schema,
    message: &str,
    rng: &mut StdRng,
    depth: usize,
    budget: &mut usize,
) -> Map<String, Value> {
    let mut out = Map::new();
    let mut fields: Vec<_> = schema.fields(message).iter().collect();
    fields.shuffle(rng);
    for field in fields {
        let chance = if depth < 2 { 0.85 } else { 0.6 };
        // The only time that k8s-openapi requires.
        let required = message == "meta.v1.Condition" && field.kind == Type::Time;
        if !required && (*budget == 0 || !rng.random_bool(chance)) {
            continue;
        }
        // Near the root each field has a separate budget, so that one does not starve the next.
        let mut own = BUDGET;
        let budget = if depth < 2 { &mut own } else { &mut *budget };
        if field.name == ".." {
            if let Type::Message(inner) = &field.kind {
                out.append(&mut fill(schema, inner, rng, depth, budget));
            }
            continue;
        }
        if !required && rng.random_bool(0.03) {
            out.insert(field.name.clone(), Value::Null);
            continue;
        }
        let count = if depth < 4 { rng.random_range(0..4) } else { rng.random_range(0..2) };
        let value = match field.number {
            Number::One => one(schema, message, field, rng, depth, budget),
            Number::List => (0..count)
                .map(|_| one(schema, message, field, rng, depth, budget))
                .collect::<Vec<_>>()
                .into(),
            Number::Map => {
                let mut map = Map::new();
                for _ in 0..count {
                    let keys = if field.kind == Type::Quantity { RESOURCES } else { KEYS };
                    map.insert(word(keys, rng), one(schema, message, field, rng, depth, budget));
                }
                Value::Object(map)
            }
        };
        out.insert(field.name.clone(), value);
    }
    out
}

fn one(
    schema: &Schema,
    message: &str,
    field: &Field,
    rng: &mut StdRng,
    depth: usize,
    budget: &mut usize,
) -> Value {
    *budget = budget.saturating_sub(1);
    match &field.kind {
        Type::Text => text(message, &field.name, rng).into(),
        Type::Int32 => match rng.random_range(0..6) {
            0 => 0.into(),
            1 => rng.random::<i32>().into(),
            _ => rng.random_range(1..40).into(),
        },
        Type::Int64 => match rng.random_range(0..6) {
            0 => 0.into(),
            1 => rng.random::<i64>().into(),
            _ => rng.random_range(1..40).into(),
        },
        Type::Bool => rng.random::<bool>().into(),
        Type::Bytes => {
            let bytes: Vec<u8> = (0..rng.random_range(0..40)).map(|_| rng.random()).collect();
            serde_json::to_value(k8s_openapi::ByteString(bytes)).unwrap()
        }
        Type::Time => {
            let seconds = rng.random_range(-100_000..4_000_000_000);
            jiff::Timestamp::from_second(seconds).unwrap().to_string().into()
        }
        Type::MicroTime => {
            let micros = rng.random_range(-100_000_000..4_000_000_000_000_000);
            let time = jiff::Timestamp::from_microsecond(micros).unwrap();
            format!("{time:.6}").into()
        }
        Type::Quantity => word(QUANTITIES, rng).into(),
        Type::IntOrString if rng.random() => rng.random_range(-5..200).into(),
        Type::IntOrString => word(&["25%", "150%", "-3%", "ten", "", "7", "%"], rng).into(),
        Type::Raw => json!({ "f:metadata": {} }),
        Type::Texts => json!([word(NONSENSE, rng), word(NONSENSE, rng)]),
        Type::Message(name) => Value::Object(fill(schema, name, rng, depth + 1, budget)),
    }
}

fn word(words: &[&str], rng: &mut StdRng) -> String {
    (*words.choose(rng).unwrap()).to_owned()
}

/// Returns a text for a field, usually one that metrics depend on.
fn text(message: &str, field: &str, rng: &mut StdRng) -> String {
    let known: &[&str] = match field {
        "type" => match message {
            "api.batch.v1.JobCondition" => &["Complete", "Failed", "Suspended"],
            "api.certificates.v1.CertificateSigningRequestCondition" => {
                &["Approved", "Denied", "Failed"]
            }
            "api.core.v1.NodeAddress" => &["InternalIP", "Hostname"],
            "api.core.v1.PodCondition" => {
                &["Ready", "Initialized", "ContainersReady", "PodScheduled", "DisruptionTarget"]
            }
            "api.autoscaling.v2.MetricSpec" | "api.autoscaling.v2.MetricStatus" => {
                &["Object", "Pods", "Resource", "ContainerResource", "External", "Other"]
            }
            _ => &["Progressing", "MemoryPressure", "Container", "ClusterIP", "Opaque"],
        },
        "status" => &["True", "False", "Unknown", "true"],
        "phase" => &["Active", "Terminating", "Pending", "Running", "Failed", "Lost", "Bound"],
        "reason" => REASONS,
        // Few names, so that parts of an object refer to each other.
        "name" => &["a", "b", "c"],
        "ip" => &["10.0.0.1", "fe80::1%eth0", "::ffff:1.2.3.4", "010.0.0.1", "x"],
        "qosClass" => &["BestEffort", "Burstable", "Guaranteed"],
        "resourceVersion" => &["1", "123456789", "0x10p2", "inf", "x"],
        "schedule" => &["*/5 * * * *", "@hourly", "0 0 13 * 5", "61 * * * *", "@every 90s", ""],
        "timeZone" => &["Europe/Vienna", "Etc/UTC", "Nowhere/Land", "America/New_York"],
        _ => &[],
    };
    match rng.random_range(0..20) {
        0 => String::new(),
        1 => (0..rng.random_range(0..12)).map(|_| character(rng)).collect(),
        2 | 3 => word(NONSENSE, rng),
        _ if known.is_empty() => word(NONSENSE, rng),
        _ => word(known, rng),
    }
}

fn character(rng: &mut impl Rng) -> char {
    match rng.random_range(0..4) {
        0 => rng.random(),
        1 => char::from(rng.random_range(0..0x20u8)),
        _ => char::from(rng.random_range(0x20..0x7fu8)),
    }
}

const NONSENSE: &[&str] = &[
    "web",
    "ns-1",
    "10.0.0.7",
    "quote\"inside",
    "back\\slash",
    "new\nline",
    "tab\t",
    "ünïcödé",
    "\u{202e}right",
    "{a=\"b\"}",
    "NaN",
    "-1",
    "null",
    " ",
    "x,y",
    "🎬",
];

const REASONS: &[&str] = &[
    "Evicted",
    "NodeLost",
    "Shutdown",
    "TerminationByKubelet",
    "PreemptionByScheduler",
    "DeletionByPodGC",
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "NewReplicaSetAvailable",
    "MinimumReplicasAvailable",
    "OOMKilled",
    "CrashLoopBackOff",
];

const KEYS: &[&str] = &[
    "app",
    "app.kubernetes.io/name",
    "camelCase",
    "camel-case",
    "camel_case",
    "a.b/c",
    "",
    "é",
    "kubernetes.io/ingress.class",
    "volume.beta.kubernetes.io/storage-class",
    "mounter",
    "mapOptions",
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/",
    "HTTPServer",
];

const RESOURCES: &[&str] = &[
    "cpu",
    "memory",
    "storage",
    "ephemeral-storage",
    "pods",
    "hugepages-2Mi",
    "nvidia.com/gpu",
    "attachable-volumes-aws-ebs",
    "requests.cpu",
    "count/x",
    "example.com/Foo",
];

const QUANTITIES: &[&str] = &[
    "0",
    "1",
    "100m",
    "1.5",
    "0.3Gi",
    "2Ki",
    "1e3",
    "5E",
    "10n",
    "999999u",
    "-3",
    "12k",
    "7Ti",
    "1.0000001",
];
