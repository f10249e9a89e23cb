#!/usr/bin/env bash
# Builds what the end-to-end tests need beside kstatd into tests/.bin: a real kube-apiserver with its etcd, both originals,
# helm and jsonnet for deploy/, and cAdvisor's walk through a directory. Cold this takes 6 to 10 minutes on two cores; with Go's build cache, seconds.
set -euo pipefail
cd "$(dirname "$0")"
bin=$PWD/.bin
mkdir -p "$bin"
retry=$PWD/../.ci/retry
# Fetches the modules that packages need.
modules() { "$retry" go list -deps "$@" >/dev/null; }

(cd peers
 modules github.com/prometheus/statsd_exporter k8s.io/kube-state-metrics/v2
 go build -buildvcs=false -trimpath -o "$bin/statsd_exporter" github.com/prometheus/statsd_exporter
 go build -buildvcs=false -trimpath -o "$bin/kube-state-metrics" k8s.io/kube-state-metrics/v2)

# A module of its own: it is not to change what the originals are built with.
(cd peers/cadvisor
 modules .
 go build -buildvcs=false -trimpath -o "$bin/cadvisor" .)

(cd tools
 programs=(github.com/google/go-jsonnet/cmd/jsonnet github.com/google/go-jsonnet/cmd/jsonnetfmt helm.sh/helm/v3/cmd/helm)
 modules "${programs[@]}"
 for program in "${programs[@]}"; do
   go build -buildvcs=false -trimpath -ldflags '-s -w' -o "$bin/" "$program"
 done)

# The version is what /version answers; without it clients see v0.0.0.
version=k8s.io/component-base/version
(cd apiserver
 modules -tags grpcnotrace .
 go build -buildvcs=false -trimpath -tags grpcnotrace -gcflags=all=-dwarf=false \
   -ldflags "-s -w -X $version.gitVersion=v1.36.3 -X $version.gitMajor=1 -X $version.gitMinor=36" \
   -o "$bin/kapi" .)
ls -l "$bin"
