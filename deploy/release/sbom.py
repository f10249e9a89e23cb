"""Writes the bill of materials of the program, as CycloneDX 1.5.

    sbom.py METADATA CARGO_LOCK REVISION TIME > kstatd.cdx.json

METADATA is the output of `cargo metadata`, TIME the time of the release in Unix seconds.
"""

import datetime
import json
import pathlib
import sys
import tomllib
import uuid

import crates


def component(package, hashes, kind):
    """One crate."""
    found = {
        "type": kind,
        "bom-ref": crates.purl(package),
        "name": package["name"],
        "version": package["version"],
        "purl": crates.purl(package),
    }
    if package["license"]:
        # In older crates a slash means OR.
        found["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    checksum = hashes.get((package["name"], package["version"]))
    if checksum:
        found["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        found["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return found


def main():
    metadata, lock, revision, time = sys.argv[1:]
    packages, dependencies = crates.shipped(metadata)
    locked = tomllib.loads(pathlib.Path(lock).read_text())["package"]
    hashes = {(package["name"], package["version"]): package.get("checksum") for package in locked}
    by_id = {package["id"]: crates.purl(package) for package in packages}
    root, others = packages[0], packages[1:]
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        # The serial number is the same for the same release.
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, f"{crates.purl(root)}?revision={revision}").urn,
        "version": 1,
        "metadata": {
            "timestamp": datetime.datetime.fromtimestamp(int(time), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": component(root, hashes, "application")
            | {"properties": [{"name": "revision", "value": revision}]},
        },
        "components": [component(package, hashes, "library") for package in others],
        "dependencies": [
            {"ref": by_id[package["id"]], "dependsOn": sorted(by_id[other] for other in dependencies[package["id"]])}
            for package in packages
        ],
    }
    json.dump(bom, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
