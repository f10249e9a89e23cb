"""Lists the crates in the shipped program, from the output of `cargo metadata`.

It knows nothing of what is made of the list.
"""

import json
import pathlib


def shipped(metadata_path):
    """The packages that are linked into kstatd, kstatd first, then by name and version.

    Crates for tests and builds are left out: only normal dependencies of the features that cargo resolved are followed.
    Procedural macros stay in: what they write is in the program.
    """
    metadata = json.loads(pathlib.Path(metadata_path).read_text())
    packages = {package["id"]: package for package in metadata["packages"]}
    edges = {
        node["id"]: [
            dependency["pkg"]
            for dependency in node["deps"]
            if any(kind["kind"] is None for kind in dependency["dep_kinds"])
        ]
        for node in metadata["resolve"]["nodes"]
    }
    (root,) = [package["id"] for package in metadata["packages"] if package["name"] == "kstatd" and package["source"] is None]
    reached, waiting = set(), [root]
    while waiting:
        package = waiting.pop()
        if package not in reached:
            reached.add(package)
            waiting.extend(edges[package])
    others = sorted(reached - {root}, key=lambda package: (packages[package]["name"], packages[package]["version"]))
    dependencies = {package: [other for other in edges[package] if other in reached] for package in reached}
    return [packages[package] for package in [root, *others]], dependencies


def purl(package):
    """The package URL of a crate."""
    return f"pkg:cargo/{package['name']}@{package['version']}"
