"""Writes the krew manifest of the kubectl plugin, with the checksums of its archives.

    krew.py RELEASE VERSION URL     prints the manifest for RELEASE/kubectl-kstatd-VERSION-linux-ARCH.tar.gz, downloaded from below URL

Format: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/
"""

import hashlib
import pathlib
import sys

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
HEAD = """\
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: kstatd
spec:
  version: v{version}
  homepage: https://github.com/kstatd/kstatd
  shortDescription: Find out why kube-state-metrics or StatsD metrics are missing
  description: |
    Asks the kstatd in a cluster through the proxy of the API server: its health with the cause of a problem, the
    metrics with the most series, why an object or a StatsD line has its series, or a support archive. `check --pre`
    reports what replacing kube-state-metrics and statsd_exporter by kstatd would change.
  platforms:
"""
PLATFORM = """\
  - selector:
      matchLabels: {{os: linux, arch: {arch}}}
    uri: {url}/{name}
    sha256: {digest}
    bin: kubectl-kstatd
    files:
    - {{from: kubectl-kstatd, to: .}}
    - {{from: LICENSE, to: .}}
    - {{from: THIRD-PARTY-LICENSES.txt, to: .}}
"""


def main():
    release, version, url = sys.argv[1:]
    text = HEAD.format(version=version)
    for machine, arch in ARCHITECTURES.items():
        archive = pathlib.Path(release) / f"kubectl-kstatd-{version}-linux-{machine}.tar.gz"
        if archive.exists():
            digest = hashlib.sha256(archive.read_bytes()).hexdigest()
            text += PLATFORM.format(arch=arch, url=url.rstrip("/"), name=archive.name, digest=digest)
    print(text, end="")


main()
