#!/usr/bin/env bash
# Builds the other programs of the end-to-end tests into tests/.bin: a real kube-apiserver with its etcd, both originals, a recent
# Prometheus, helm and jsonnet for deploy/, and cAdvisor's directory walk. It takes 5 to 8 minutes on two cores, or seconds with Go's build cache.
set -euo pipefail
cd "$(dirname "$0")"
bin=$PWD/.bin
mkdir -p "$bin"
retry=$PWD/../.ci/retry
# The same flags everywhere, so that packages that several programs have are compiled once. .ci/run sets them for the end-to-end
# tests, too.
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false -gcflags=all=-dwarf=false"
# Downloads the modules of packages.
modules() { "$retry" go list -deps "$@" >/dev/null; }

(cd peers
 modules github.com/prometheus/statsd_exporter k8s.io/kube-state-metrics/v2
 go build -o "$bin/statsd_exporter" github.com/prometheus/statsd_exporter
 go build -o "$bin/kube-state-metrics" k8s.io/kube-state-metrics/v2)

# Prometheus, of the version that the end-to-end tests parse with. It is built from a copy without the plugins of clouds,
# which would take several times as long; with them gone its own go.mod and go.sum pin everything. About a minute on two cores.
(cd e2e
 "$retry" go mod download github.com/prometheus/prometheus
 copy=$(mktemp -d)
 trap 'rm -rf "$copy"' EXIT
 cp -r "$(go list -m -f '{{.Dir}}' github.com/prometheus/prometheus)/." "$copy"
 chmod -R u+w "$copy"
 cd "$copy"
 sed '/^\/\/go:build/d' plugins/minimum.go > plugins/plugins.go
 rm plugins/minimum.go
 modules ./cmd/prometheus
 go build -ldflags '-s -w' -o "$bin/prometheus" ./cmd/prometheus)

# A separate module, so that it does not affect the dependencies of the originals.
(cd peers/cadvisor
 modules .
 go build -o "$bin/cadvisor" .)

(cd tools
 programs=(github.com/google/go-jsonnet/cmd/jsonnet github.com/google/go-jsonnet/cmd/jsonnetfmt helm.sh/helm/v3/cmd/helm)
 modules "${programs[@]}"
 for program in "${programs[@]}"; do
   go build -ldflags '-s -w' -o "$bin/" "$program"
 done)

# Sets the version of /version; without it clients see v0.0.0.
version=k8s.io/component-base/version
(cd apiserver
 modules -tags grpcnotrace .
 go build -tags grpcnotrace \
   -ldflags "-s -w -X $version.gitVersion=v1.36.3 -X $version.gitMajor=1 -X $version.gitMinor=36" \
   -o "$bin/kapi" .)
ls -l "$bin"
