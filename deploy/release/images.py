"""Assembles the images as OCI layouts, without a container engine.

    images.py DOCKERFILE ROOTS OUT VERSION REVISION TIME

ROOTS/ARCH is the root of the images for an architecture (x86_64, aarch64). OUT/NAME becomes a layout for each stage of the
Dockerfile that starts from the stage `root` and has an entry point, with one image for each architecture behind one index. The
image `demo` has another root and is no part of a release. `ENTRYPOINT`, `EXPOSE`, `USER` and `LABEL` come from the Dockerfile;
the same input gives the same bytes.

Format: https://github.com/opencontainers/image-spec, image-layout.md, config.md, image-index.md.
"""

import datetime
import gzip
import hashlib
import io
import json
import os
import pathlib
import shlex
import shutil
import string
import sys
import tarfile

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

def stages(dockerfile, arguments):
    """The configuration of each stage from `root` with an entry point; a stage inherits that of its base."""
    found, current, shipped = {}, None, []
    for line in pathlib.Path(dockerfile).read_text().replace("\\\n", " ").splitlines():
        words = line.split(None, 1)
        if len(words) < 2 or line.startswith("#"):
            continue
        word, rest = words
        if word == "FROM":
            base, _, name = rest.split()
            current = {key: dict(value) if isinstance(value, dict) else value for key, value in found.get(base, {}).items()}
            found[name] = current
            if base == "root":
                shipped.append(name)
        elif word == "USER":
            current["User"] = rest.strip()
        elif word == "EXPOSE":
            current.setdefault("ExposedPorts", {}).update({port: {} for port in shlex.split(rest)})
        elif word == "LABEL":
            pairs = (pair.split("=", 1) for pair in shlex.split(rest))
            current.setdefault("Labels", {}).update({name: string.Template(value).substitute(arguments) for name, value in pairs})
        elif word == "ENTRYPOINT":
            current["Entrypoint"] = json.loads(rest)
    return {name: found[name] for name in shipped if "Entrypoint" in found[name]}


def layer(root, time):
    """The root as a tar: sorted, owned by root, with a fixed time."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(pathlib.Path(root).rglob("*")):
            info = tar.gettarinfo(path, arcname=str(path.relative_to(root)))
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            info.mtime = time
            # Hard links to files outside of the tar would be dangling.
            if path.is_file() and not path.is_symlink():
                info.type, info.linkname, info.size = tarfile.REGTYPE, "", path.stat().st_size
                info.mode = 0o755 if os.access(path, os.X_OK) and path.stat().st_mode & 0o111 else 0o644
                with path.open("rb") as file:
                    tar.addfile(info, file)
            else:
                info.mode = 0o755 if path.is_dir() else 0o777
                tar.addfile(info)
    return out.getvalue()


class Layout:
    """A folder of blobs."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.blobs = self.folder / "blobs" / "sha256"
        self.blobs.mkdir(parents=True)
        (self.folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')

    def put(self, kind, content):
        """Writes a blob and returns its descriptor."""
        if not isinstance(content, bytes):
            content = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
        digest = hashlib.sha256(content).hexdigest()
        (self.blobs / digest).write_bytes(content)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    def index(self, descriptor):
        """Writes the index of the layout."""
        index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [descriptor]}
        (self.folder / "index.json").write_text(json.dumps(index, sort_keys=True))


def main():
    dockerfile, roots, out, version, revision, time = sys.argv[1:]
    created = datetime.datetime.fromtimestamp(int(time), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    tars = {arch: layer(pathlib.Path(roots) / arch, int(time)) for arch in ARCHITECTURES if (pathlib.Path(roots) / arch).is_dir()}
    if not tars:
        sys.exit(f"{roots}: there is no root for any of {', '.join(ARCHITECTURES)}")
    packed = {arch: gzip.compress(tar, 9, mtime=0) for arch, tar in tars.items()}
    arguments = {"KSTATD_VERSION": version, "KSTATD_REVISION": revision}
    for stage, config in stages(dockerfile, arguments).items():
        labels = config["Labels"] | {"org.opencontainers.image.created": created}
        layout = Layout(pathlib.Path(out) / stage.replace("_", "-"))
        manifests = []
        for arch, tar in tars.items():
            platform = {"architecture": ARCHITECTURES[arch], "os": "linux"}
            image = layout.put(
                "config.v1+json",
                platform
                | {
                    "created": created,
                    "config": config | {"Labels": labels},
                    "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(tar).hexdigest()}"]},
                    "history": [{"created": created, "created_by": "deploy/release.sh"}],
                },
            )
            manifest = {
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": image,
                "layers": [layout.put("layer.v1.tar+gzip", packed[arch])],
                "annotations": labels,
            }
            manifests.append(layout.put("manifest.v1+json", manifest) | {"platform": platform})
        index = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": manifests,
            "annotations": labels,
        }
        layout.index(
            layout.put("index.v1+json", index) | {"annotations": {"org.opencontainers.image.ref.name": version}}
        )
        print(f"{out}/{stage.replace('_', '-')}: {', '.join(tars)}")


if __name__ == "__main__":
    main()
