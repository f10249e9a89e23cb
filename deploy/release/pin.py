"""Pins the manifests of a release to the image that it contains.

    pin.py LAYOUT OUT VERSION [REGISTRY]     OUT/chart/kstatd and OUT/manifests/kstatd-manifests-VERSION become copies of deploy/
    pin.py --check LAYOUT FILE...            fails unless each FILE names the layout's image by digest

LAYOUT is the OCI layout of the image kstatd. Its digest is that of the index in it, which a registry keeps if the image is copied
unchanged: skopeo copy --all --preserve-digests oci:LAYOUT:VERSION docker://REGISTRY/kstatd:VERSION
"""

import hashlib
import json
import pathlib
import re
import shutil
import sys

DEPLOY = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = [
    "autosharding", "base", "daemonset", "daemonset-statsd", "insecure-kubelet", "node", "node-insecure", "node-processes", "node-walk", "prometheus", "shadow",
    "standard", "standby",
]


def digest(layout):
    """The digest of the only image of a layout; verifies the digest of each blob."""
    layout = pathlib.Path(layout)
    for blob in (layout / "blobs" / "sha256").iterdir():
        if hashlib.sha256(blob.read_bytes()).hexdigest() != blob.name:
            sys.exit(f"{blob}: the content has another digest")
    manifests = json.loads((layout / "index.json").read_text())["manifests"]
    if len(manifests) != 1 or not (layout / "blobs" / manifests[0]["digest"].replace(":", "/")).exists():
        sys.exit(f"{layout}/index.json: expected one image")
    return manifests[0]["digest"]


def replace(path, pattern, text):
    """Replaces the only match of a pattern in a file."""
    changed, count = re.subn(pattern, text, path.read_text(), flags=re.MULTILINE)
    if count != 1:
        sys.exit(f"{path}: {count} matches of {pattern}, expected one")
    path.write_text(changed)


def pin(layout, out, version, registry):
    image = digest(layout)
    out = pathlib.Path(out)
    chart = out / "chart" / "kstatd"
    shutil.copytree(DEPLOY / "helm" / "kstatd", chart)
    for values in sorted((chart / "defaults").glob("*.yaml")):
        text = values.read_text()
        if re.search(r"^image: \{", text, re.MULTILINE):
            replace(values, r'^image: \{registry: "", repository: kstatd, tag: "", sha: "",', f'image: {{registry: "{registry}", repository: kstatd, tag: "{version}", sha: "{image}",')
        else:
            replace(values, r'^(image:\n(?:  .*\n)*?  registry: )""$', rf'\1"{registry}"')
            replace(values, r'^(image:\n(?:  .*\n)*?  tag: )""$', rf'\1"{version}"')
            replace(values, r'^(image:\n(?:  .*\n)*?  sha: )""$', rf'\1"{image}"')
    manifests = out / "manifests" / f"kstatd-manifests-{version}"
    manifests.mkdir(parents=True)
    shutil.copy(DEPLOY / "kustomization.yaml", manifests)
    name = f"{registry}/kstatd" if registry else "kstatd"
    for folder in FOLDERS:
        shutil.copytree(DEPLOY / folder, manifests / folder)
    for file in sorted(manifests.rglob("kustomization.yaml")):
        if "newTag:" in file.read_text():
            replace(file, r"^- name: kstatd\n  newTag: .*$", f"- name: kstatd\n  newName: {name}\n  digest: {image}")


def main():
    if sys.argv[1] == "--check":
        image = digest(sys.argv[2])
        for file in sys.argv[3:]:
            if image not in pathlib.Path(file).read_text():
                sys.exit(f"{file}: does not name the image {image}")
    else:
        pin(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4] if len(sys.argv) > 4 else "")


main()
