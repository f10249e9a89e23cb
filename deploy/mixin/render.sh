#!/usr/bin/env bash
# Renders the mixin: rules for Prometheus, the same as a PrometheusRule, and dashboards.
#
#   deploy/mixin/render.sh          writes deploy/mixin/rendered anew
#   deploy/mixin/render.sh DIR      writes there, and leaves rendered as it is
#
# jsonnet is the one in PATH, or the one that tests/build-peers.sh built.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/rendered}
jsonnet=$(command -v jsonnet || echo "$here/../../tests/.bin/jsonnet")
[ -x "$jsonnet" ] || { echo "there is no jsonnet; tests/build-peers.sh builds it" >&2; exit 1; }
# Nothing stays of a dashboard that is no longer in the source.
rm -rf "$out"
mkdir -p "$out"
"$jsonnet" --string --create-output-dirs --multi "$out" "$here/rendered.jsonnet" >/dev/null
