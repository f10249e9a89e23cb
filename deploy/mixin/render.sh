#!/usr/bin/env bash
# Renders the mixin: rules for Prometheus, the same rules as a PrometheusRule, and dashboards.
#
#   deploy/mixin/render.sh          replaces deploy/mixin/rendered and its copy in the chart, and writes the alerts and
#                                   dashboards of deploy/custom-resources
#   deploy/mixin/render.sh DIR      writes to DIR only
#
# jsonnet is the one in PATH, or the one that tests/build-peers.sh built.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/rendered}
jsonnet=$(command -v jsonnet || echo "$here/../../tests/.bin/jsonnet")
[ -x "$jsonnet" ] || { echo "jsonnet is missing; tests/build-peers.sh builds it" >&2; exit 1; }
# Removes dashboards that are no longer in the source.
rm -rf "$out"
mkdir -p "$out"
"$jsonnet" --string --create-output-dirs --multi "$out" "$here/rendered.jsonnet" >/dev/null
# The chart needs copies: helm follows no links out of it, and a checkout may not support links.
if [ $# = 0 ]; then
  chart=$here/../helm/kstatd/rendered
  rm -rf "$chart"
  mkdir -p "$chart"
  cp -R "$out/alerts.yaml" "$out/dashboards" "$chart/"
  packs=$here/../custom-resources
  "$jsonnet" --string --create-output-dirs --multi "$packs" "$packs/rendered.jsonnet" >/dev/null
fi
