#!/usr/bin/env bash
# Builds the API server of the oldest Kubernetes release that the end-to-end tests cover, into tests/.bin/kapi-oldest. It takes
# two to four minutes on two cores, or seconds with Go's build cache.
set -euo pipefail
cd "$(dirname "$0")/apiserver"
mkdir -p ../.bin
release=$(sed -n 's/^\tk8s.io\/kubernetes v//p' oldest.mod)
IFS=. read -r major minor _ <<<"$release"
variables=()
for package in component-base/version client-go/pkg/version; do
  variables+=("-X k8s.io/$package.gitVersion=v$release -X k8s.io/$package.gitMajor=$major -X k8s.io/$package.gitMinor=$minor")
done
# Without the clouds' volumes and credentials, which would take most of the time.
flags=(-modfile=oldest.mod -tags grpcnotrace,oldest,providerless -buildvcs=false -trimpath -gcflags=all=-dwarf=false)
../../.ci/retry go list "${flags[@]}" -deps . >/dev/null
go vet "${flags[@]}" .
go build "${flags[@]}" -ldflags "-s -w ${variables[*]}" -o ../.bin/kapi-oldest .
ls -l ../.bin/kapi-oldest
