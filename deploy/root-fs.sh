#!/usr/bin/env bash
# Creates the root file system of the images: the program, links with the originals' names, and CA certificates.
#
#   deploy/root-fs.sh PROGRAM DIR [FILE...]      further files, such as licences, go to the root
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
program=$1
root=$2
shift 2
mkdir -p "$root/bin" "$root/etc/ssl/certs"
cp "$program" "$root/kstatd"
[ $# = 0 ] || cp "$@" "$root/"
ln -s /kstatd "$root/kube-state-metrics"
ln -s /kstatd "$root/bin/statsd_exporter"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
