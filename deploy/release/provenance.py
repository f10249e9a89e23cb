"""Writes, signs and checks the provenance of a release: an in-toto statement with a SLSA provenance predicate.

    provenance.py write RELEASE IMAGES VERSION REVISION > STATEMENT    subjects: the files of RELEASE and the images of IMAGES
    provenance.py sign STATEMENT KEY > ENVELOPE                        KEY is a private Ed25519 key
    provenance.py check RELEASE IMAGES STATEMENT                       fails unless the subjects are those files and images
    provenance.py check-signature STATEMENT ENVELOPE PUBLIC_KEY

Formats: https://slsa.dev/spec/v1.0/provenance, https://github.com/secure-systems-lab/dsse/blob/master/envelope.md.
"""

import base64
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

REPOSITORY = "https://github.com/kstatd/kstatd"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
# They are written after the statement, from it.
LATER = re.compile(r"SHA256SUMS(\.sig)?|.*\.(provenance\.json|intoto\.jsonl)")


def subjects(release, images):
    """The files of a release and the indexes of its images, with their digests."""
    files = sorted(path for path in pathlib.Path(release).iterdir() if not LATER.fullmatch(path.name))
    found = [{"name": path.name, "digest": {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}} for path in files]
    for layout in sorted(pathlib.Path(images).iterdir()):
        (index,) = json.loads((layout / "index.json").read_text())["manifests"]
        found.append({"name": f"pkg:oci/{layout.name}", "digest": dict([index["digest"].split(":")])})
    return found


def write(release, images, version, revision):
    toolchain = re.search(r'channel = "(.*)"', pathlib.Path("rust-toolchain.toml").read_text())[1]
    lock = hashlib.sha256(pathlib.Path("Cargo.lock").read_bytes()).hexdigest()
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects(release, images),
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{REPOSITORY}/blob/{revision}/docs/releasing.md",
                "externalParameters": {"version": version},
                "resolvedDependencies": [
                    {"uri": f"git+{REPOSITORY}@{revision}", "digest": {"gitCommit": revision}},
                    {"uri": f"{REPOSITORY}/blob/{revision}/Cargo.lock", "digest": {"sha256": lock}},
                    {"uri": f"pkg:generic/rust@{toolchain}"},
                ],
            },
            "runDetails": {"builder": {"id": f"{REPOSITORY}/blob/{revision}/deploy/release.sh"}},
        },
    }
    print(json.dumps(statement, indent=2))


def signed_bytes(payload):
    """The bytes that a signature of the envelope covers."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def openssl(command, files, *arguments):
    """Runs `openssl` with options whose values are files of these contents."""
    with tempfile.TemporaryDirectory() as folder:
        for option, content in files.items():
            path = pathlib.Path(folder) / option
            path.write_bytes(content)
            arguments += (f"-{option}", str(path))
        return subprocess.run(["openssl", command, *arguments], check=True, stdout=subprocess.PIPE).stdout


def sign(statement, key):
    payload = pathlib.Path(statement).read_bytes()
    signature = openssl("pkeyutl", {"in": signed_bytes(payload)}, "-sign", "-rawin", "-inkey", key)
    public = openssl("pkey", {}, "-in", key, "-pubout", "-outform", "DER")
    envelope = {
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": hashlib.sha256(public).hexdigest(), "sig": base64.b64encode(signature).decode()}],
    }
    print(json.dumps(envelope))


def check(release, images, statement):
    if json.loads(pathlib.Path(statement).read_text())["subject"] != subjects(release, images):
        sys.exit(f"{statement}: the subjects are not the files of {release} and the images of {images}")


def check_signature(statement, envelope, key):
    found = json.loads(pathlib.Path(envelope).read_text())
    payload = base64.b64decode(found["payload"])
    if payload != pathlib.Path(statement).read_bytes() or found["payloadType"] != PAYLOAD_TYPE:
        sys.exit(f"{envelope}: the payload is not {statement}")
    files = {"in": signed_bytes(payload), "sigfile": base64.b64decode(found["signatures"][0]["sig"])}
    openssl("pkeyutl", files, "-verify", "-rawin", "-pubin", "-inkey", key)


COMMANDS = {"write": write, "sign": sign, "check": check, "check-signature": check_signature}
COMMANDS[sys.argv[1]](*sys.argv[2:])
