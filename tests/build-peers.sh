#!/usr/bin/env bash
# Builds what the end-to-end tests need beside kstatd into tests/.bin: a real kube-apiserver with its etcd, both originals,
# and helm and jsonnet for deploy/. Cold this takes 6 to 10 minutes on two cores; with Go's build cache, seconds.
set -euo pipefail
cd "$(dirname "$0")"
bin=$PWD/.bin
mkdir -p "$bin"

(cd peers
 go build -buildvcs=false -trimpath -o "$bin/statsd_exporter" github.com/prometheus/statsd_exporter
 go build -buildvcs=false -trimpath -o "$bin/kube-state-metrics" k8s.io/kube-state-metrics/v2)

(cd tools
 for program in github.com/google/go-jsonnet/cmd/jsonnet github.com/google/go-jsonnet/cmd/jsonnetfmt helm.sh/helm/v3/cmd/helm; do
   go build -buildvcs=false -trimpath -ldflags '-s -w' -o "$bin/" "$program"
 done)

# The version is what /version answers; without it clients see v0.0.0.
version=k8s.io/component-base/version
(cd apiserver
 go build -buildvcs=false -trimpath -tags grpcnotrace -gcflags=all=-dwarf=false \
   -ldflags "-s -w -X $version.gitVersion=v1.36.3 -X $version.gitMajor=1 -X $version.gitMinor=36" \
   -o "$bin/kapi" .)
ls -l "$bin"
