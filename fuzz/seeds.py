#!/usr/bin/env python3
"""Writes seeds for the fuzz targets to fuzz/corpus, generated from the recorded cases in tests/conformance.

The first byte of an input chooses options (see each target), the rest is what a stranger sends.
"""

import base64
import hashlib
import itertools
import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent
STATSD = ROOT.parent / "tests/conformance/statsd"
KSM = ROOT.parent / "tests/conformance/ksm"
CASES = sorted(KSM.glob("unit/*.json")) + sorted(KSM.glob("fuzz/*.json"))
RESOURCES = sorted({json.loads(path.read_text())["resource"] for path in CASES})
DIALECTS = ["dogstatsd", "influxdb", "librato", "signalfx"]
EVENTS = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]


def put(target, data):
    folder = ROOT / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)


def raw(text):
    return base64.b64decode(text[4:]) if text.startswith("b64:") else text.encode()


def statsd_lines():
    for case in json.loads((STATSD / "line.json").read_text()):
        line = raw(case["line"]) if "line" in case else base64.b64decode(case.get("line_b64", ""))
        flags = case.get("flags") or {}
        on = sum(1 << bit for bit, name in enumerate(DIALECTS) if flags.get(name, True))
        put("statsd_line", bytes([on]) + line)
        for mapping in (0, 64, 128):
            put("ingest", bytes([on ^ 15 | mapping]) + line + b"\0" + line)
            put("line_cost", bytes([on ^ 15 | mapping]) + line)


def mappings_and_packets():
    for case in json.loads((STATSD / "mapper.json").read_text()):
        if case.get("mapping"):
            put("mapper_yaml", case["mapping"].encode())
    for case in json.loads((STATSD / "e2e.json").read_text()):
        if case.get("mapping"):
            put("mapper_yaml", case["mapping"].encode())
        packets = (p if isinstance(p, list) else [p] for p in case.get("packets") or [])
        packets = [raw(p) for p in itertools.chain.from_iterable(packets) if isinstance(p, str)]
        for mapping in (0, 16, 64, 128, 192):
            put("ingest", bytes([mapping]) + b"\0".join(packets))
            put("line_cost", bytes([mapping]) + b"\0".join(packets))


def field(number, data):
    """A length-delimited field of a protobuf message."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def protobuf(item):
    """The metadata of an object as protobuf; framing ignores the rest."""
    meta = item["metadata"]
    name, namespace = (str(meta.get(key, "")).encode() for key in ("name", "namespace"))
    fields = [(1, name), (3, namespace), (5, b"u1"), (6, b"7")]
    return field(1, b"".join(field(*entry) for entry in fields)) + field(2, b"spec")


def envelope(kind, message):
    return b"k8s\0" + field(1, field(1, b"v1") + field(2, kind.encode())) + field(2, message)


def lists_and_watches():
    for path in sorted(KSM.glob("fuzz/*.json")):
        file = json.loads(path.read_text())
        items = [case["object"] for case in file["cases"]]
        items = [item for item in items if isinstance(item.get("metadata"), dict)]
        items = [item for item in items if len(json.dumps(item)) < 3000][:12]
        kind = file["kind"]
        meta = {"resourceVersion": "12", "continue": "abc"}
        document = {"kind": kind + "List", "apiVersion": "v1", "metadata": meta, "items": items[:3]}
        for cut in (3, 15, 101):
            put("kube_wire", bytes([cut]) + json.dumps(document).encode())
        events = list(zip(EVENTS, items))
        lines = [json.dumps({"type": name, "object": item}).encode() for name, item in events]
        for cut in (3, 33):
            put("kube_wire", bytes([cut]) + b"\n".join(lines) + b"\n")
        listed = b"".join(field(2, protobuf(item)) for item in items[:4])
        listed = envelope(kind + "List", field(1, field(2, b"12") + field(3, b"abc")) + listed)
        frames = b""
        for name, item in events:
            message = field(1, name.encode()) + field(2, field(1, envelope(kind, protobuf(item))))
            frames += len(message).to_bytes(4, "big") + message
        for cut, body in ((2, listed), (14, listed), (2, frames), (40, frames)):
            put("kube_wire", bytes([cut]) + body)


def objects():
    for path in CASES:
        file = json.loads(path.read_text())
        kind = RESOURCES.index(file["resource"]) << 1
        for case in file["cases"]:
            put("object", bytes([kind]) + json.dumps(case["object"]).encode())
            if isinstance(case["object"].get("metadata"), dict):
                put("object", bytes([kind | 1]) + protobuf(case["object"]))


def headers():
    for case in json.loads((KSM / "content_negotiation.json").read_text())["cases"]:
        put("http", str(case.get("accept") or "").encode())
    for text in ("gzip;q=0.5, identity", "name%5B%5D=up&name[]=x+y", "resources=pods,nodes", "/%6d"):
        put("http", text.encode())


def patterns_and_schedules():
    def recorded(name):
        return json.loads((KSM / name).read_text())

    filters = recorded("metric_filters.json")
    for case in filters["cases"]:
        for pattern in case["metric_allowlist"] + case["metric_denylist"] + case["metric_opt_in_list"]:
            put("metric_filter", f"{pattern}\n{filters['names'][0]}".encode())
    for case in recorded("label_allowlist_flag.json")["cases"]:
        for value in case["values"]:
            put("allow_lists", value.encode())
    for case in recorded("cron.json")["cases"]:
        zone = f"\n{case['timezone']}" if case["timezone"] else ""
        put("cron", (1 << 30).to_bytes(8, "little") + (case["schedule"] + zone).encode())


def messages():
    """A family of each type, as delimited protobuf."""
    def number(tag):
        return bytes([tag << 3 | 1]) + bytes(6) + b"\xf0\x3f"

    count = b"\x08\x05"
    values = {
        0: field(3, number(1)),
        1: field(2, number(1)),
        2: field(4, count + number(2) + field(3, number(1) + number(2))),
        3: field(5, number(1)),
        4: field(7, count + number(2) + field(3, count + number(2))),
    }
    label = field(1, field(1, b"code") + field(2, b"200 \n"))
    stream = b""
    for kind, value in values.items():
        head = field(1, b"up") + field(2, b"help") + b"\x18" + bytes([kind])
        family = head + field(4, label + value) * 2
        stream += varint(len(family)) + family
    for how in (0, 1, 14, 15):
        put("prototext", bytes([how]) + stream)


def regular_expressions_and_options():
    for case in json.loads((STATSD / "mapper.json").read_text()):
        for pattern in re.findall(r"""match: ["']?(\S*[(\[^|+]\S*?)["']?\n""", case.get("mapping") or ""):
            # Two texts in the encoding of the crate `arbitrary`.
            size = len(pattern.encode())
            if size < 200:
                put("mapper_regex", pattern.encode() + b"a.b.c" + bytes([size]))
    for text in (
        "resources: {pods: {}, nodes: {}}\nshard: 1\ntotal_shards: 3\n",
        "metric_allowlist:\n  kube_pod_info: {}\nnamespaces: {default: {}}\nport: 8080\n",
        "labels_allow_list: {pods: [app, team], nodes: ['*']}\ntelemetry_host: '::'\n",
    ):
        put("options_file", text.encode())


def foretold_and_suggested():
    """Lines for a mapping, and streams with a value that never repeats."""
    packets = []
    for case in json.loads((STATSD / "e2e.json").read_text()):
        parts = (p if isinstance(p, list) else [p] for p in case.get("packets") or [])
        packets.append([raw(p) for p in itertools.chain.from_iterable(parts) if isinstance(p, str)])
    lines = list(filter(None, packets))
    lines += [[b"a.%d:1|c|#id:x" % n for n in range(6)], [b"b.%d:2|ms" % n for n in range(4)]]
    for mapping, some in itertools.product((0, 16, 64, 128, 144, 192), lines):
        if sum(map(len, some)) < 1500:
            put("foretelling", bytes([mapping]) + b"\n".join(some))
    forms = ["GET /user/%d/cart", "%08x-1111-4222-8333-444444444444", "10.0.0.%d", "k%d", "%d", "m%d@x.org", "a-%x"]
    for form, count in itertools.product(forms, (4, 12)):
        values = [form % (n * 7919) for n in range(count)]
        for text in ("hits:1|c|#url:%s,code:200", "timed.%s.get:3|ms", "part.%s:1|g", "u,id=%s:1|s"):
            some = "\n".join(text % value.replace(",", "") for value in values)
            for bits in (0, 128):
                put("suggestions", bytes([bits]) + some.encode())


def definitions():
    for path in sorted((ROOT.parent / "tests/data/crds").glob("*/*.json")):
        text = path.read_bytes()
        if len(text) < 20_000:
            put("custom_draft", text)
    charts = sorted((ROOT.parent / "tests/conformance/charts").glob("*.yaml"))
    for path in [*charts, ROOT.parent / "tests/data/check/original.yaml"]:
        put("check_manifests", path.read_bytes())
    names = "names: {kind: W, plural: ws}"
    for schema in (
        "{type: object, properties: {spec: {type: object, properties: {a: {type: integer}, 'b c': {type: string, enum: [x, 'y: z']}}}}}",
        "{x-kubernetes-preserve-unknown-fields: true}",
        "{type: object, properties: {status: {type: object, additionalProperties: {type: number}, properties: {r: {$ref: '#'}}}}}",
    ):
        version = "{name: v1, served: true, storage: true, schema: {openAPIV3Schema: %s}, " % schema
        version += "additionalPrinterColumns: [{name: A, type: integer, jsonPath: '.spec.a[0][\"b\"]'}]}"
        spec = "{group: a.io, scope: Cluster, %s, versions: [%s]}" % (names, version)
        text = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: ws.a.io}\nspec: %s\n" % spec
        put("custom_draft", text.encode())


def web_configurations():
    key = (ROOT.parent / "tests/web_config/keys").glob("*")
    keys = {path.name: path.read_text() for path in key if path.is_file() and path.stat().st_size < 4000}
    for case in json.loads((KSM / "web_config.json").read_text())["cases"]:
        for text in filter(lambda text: isinstance(text, str), case.get("files", {}).values()):
            put("web_config", re.sub(r"\{\{(.*?)\}\}", r"/no/\1", text).encode())
            written = re.sub(r"(cert|key|client_ca)_file: \S+", r"\1: none", text)
            put("web_config", re.sub(r"\{\{(.*?)\}\}", r"/no/\1", written).encode())
    for name, text in keys.items():
        lines = "".join(f"    {line}\n" for line in text.splitlines())
        put("web_config", f"tls_server_config:\n  cert: |\n{lines}  key: |\n{lines}".encode())


def negotiation():
    headers = [case.get("accept") for case in json.loads((KSM / "content_negotiation.json").read_text())["cases"]]
    headers += [case.get("accept_encoding") for case in json.loads((KSM / "compression.json").read_text())["cases"]]
    for header in filter(None, headers):
        put("accept", b"\0" + header.encode())
    for entries in ((0, 10), (4, 10, 0, 5), (2, 9, 3, 9, 7, 1), (5, 0, 8, 10, 10, 10)):
        put("accept", b"\1" + bytes(entries))


def expositions():
    for case in json.loads((KSM / "exposition.json").read_text())["cases"]:
        for cut in (1, 30):
            put("exposition_reader", bytes([cut]) + case["body"].encode())
    for case in json.loads((STATSD / "e2e.json").read_text()):
        samples = [line for line in case.get("expected") or [] if isinstance(line, str)]
        meta = [line for line in case.get("expected_meta") or [] if isinstance(line, str)]
        if samples and len(samples) < 40:
            put("exposition_reader", b"\7" + "\n".join(meta + samples + [""]).encode())
    put("exposition_reader", b'\3a_bucket{le="1",x="q\\"\\\\"} 17 # {trace_id="k"} 0.67 12\na 1e3 1395066363000\n# EOF\n')


def nodes():
    summary = json.loads((ROOT.parent / "tests/data/kubelet/summary.json").read_text())
    summary["pods"] = summary.get("pods", [])[:2]
    text = json.dumps(summary).encode()
    for how in (2, 3, 6, 42, 130, 255):
        put("node_summary", bytes([how]) + text)
    number = b"0123456789abcdef" * 4
    table = (
        b"22 1 0:5 / / rw shared:1 - ext4 /dev/vda rw\n"
        b"30 22 0:40 / /run/merged\\040x rw - overlay overlay rw,lowerdir=/l,upperdir=/u/1/fs,workdir=/w\n"
        b"31 22 0:40 / /run/k8s.io/" + number + b"/rootfs rw - overlay overlay rw,upperdir=/u/1/fs\n"
        b"33 22 0:42 / /other rw - overlay overlay rw,upperdir=/u/2\\054/fs\n"
    )
    put("node_summary", b"\0" + table)
    put("node_summary", b"\1run/x\0var/lib/a b\0run/y\0var/lib/c,d\\e")


def peers():
    """Answers of a replica, whole and as their numbers, and the own metrics of a pod."""
    replica = {"id": 7, "group": "0/1", "started": 1, "active_since": 5, "synced": True, "leaving": False}
    answers = b""
    for first, text in ((3, b""), (3, b"a:1|c\nb:2|g\n"), (9, b"a:1|c\n")):
        head = {"protocol": 1, "replica": replica, "version": 2, "first": first, "next": first + text.count(b"\n")}
        answers += json.dumps(head).encode() + b"\n" + text + b"\0"
    put("peer_answers", b"\0" + answers)
    put("peer_answers", b"\1\3\2\1\1\1\1\1\1a:1|c\0\5\3\1\1\1\1\1\1b:2|g\nc:1|ms\0\xff\2\1\1\1\1\1\1d:1|c")
    for text in (b'{total="3"} 2\n', b'{total="2"} 1\n', b'{total="3",version="2"} 1\n'):
        put("peer_answers", b"\3# TYPE x gauge\nkstatd_kubernetes_shard_stage" + text)


def profiles():
    """A CPU profile with two threads, inlined calls and a location without a function, next to a grown one."""
    strings = b"".join(field(6, text) for text in (b"", b"cpu", b"nanoseconds", b"thread", b"a", b"main", b"f;g", b"/lib/x.so"))
    kind = field(1, b"\x08\x01\x10\x02")
    tables = field(3, b"\x08\x01\x28\x07") + field(5, b"\x08\x01\x10\x05") + field(5, b"\x08\x02\x10\x06")
    tables += field(4, b"\x08\x01\x10\x01\x22\x02\x08\x02\x22\x02\x08\x01") + field(4, b"\x08\x02\x10\x01\x18\x10")

    def profile(value):
        samples = field(2, field(1, b"\x01\x02") + field(2, varint(value)) + field(3, b"\x08\x03\x10\x04"))
        return kind + samples + field(2, b"\x08\x02\x10\x07") + tables + strings + b"\x50\x80\x94\xeb\xdc\x03\x70\x01"

    for how in (0, 1, 2, 3):
        one, other = profile(10), profile(3000)
        put("saved_profile", bytes([how]) + len(one).to_bytes(2, "little") + one + other)


def rules_and_histories():
    # Rules a.*, *.b and a.b in both orders, a type, an action and a regular expression; then names.
    names = b"\x08\x09\0\x08\x08\0\x09\x0a\0\x08\x09\x0a\0"
    rules = [b"\x01\x10\x11\0", b"\x01\x11\x12\0", b"\x02\x10\x12\0", b"\x04\x11\x11\0", b"\xf8\x10\0"]
    for order, chosen in itertools.product((0, 1), itertools.permutations(rules, 3)):
        put("glob_trie", bytes([len(chosen) * 2 + order]) + b"".join(chosen) + names)
    # Every fault alone and with two others, over HTTP/1.1 and HTTP/2, with changes in between.
    for fault, how in itertools.product(range(34), (8, 33, 82, 4)):
        changes = bytes(byte for n in range(6) for byte in (n * 5 % 96, fault * 7 + n & 255, 64 + n))
        for second in ((), (128, how, 70), (133, 0, 1)):
            put("watch_model", bytes([how]) + changes[:9] + bytes([128 + fault, fault, 130, *second]) + changes[9:])


statsd_lines()
mappings_and_packets()
foretold_and_suggested()
definitions()
web_configurations()
negotiation()
expositions()
nodes()
peers()
profiles()
rules_and_histories()
lists_and_watches()
objects()
headers()
patterns_and_schedules()
messages()
regular_expressions_and_options()
for folder in sorted((ROOT / "corpus").iterdir()):
    print(folder.name, len(list(folder.iterdir())))
