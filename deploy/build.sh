#!/usr/bin/env bash
# Builds what is shipped: a static program without the simulated cluster of `demo`. The Dockerfile and .ci/run use it.
#
#   deploy/build.sh DIR            writes DIR/kstatd, with the names of its functions (profiles and backtraces need
#                                  them), and DIR/kstatd.debug, the line tables that gdb, perf and addr2line look for
#   deploy/build.sh dependencies   compiles only what Cargo.lock names: a layer that outlives every edit of src
#   deploy/build.sh run PACKAGE [ARGUMENT...]    runs another program of the workspace, with the library as it is shipped
#
# For another target than the host's: CARGO_BUILD_TARGET, with KSTATD_BINUTILS as the prefix of its objcopy and readelf;
# deploy/release.sh sets both.
#
# Of the sources it needs Cargo.lock, the Cargo.toml of every package and src (for `dependencies` no src).
set -euo pipefail
cd "$(dirname "$0")/.."

# Bytes that the program may have.
most=22000000

# Naming the target keeps these flags away from build scripts and procedural macros. The second one has the linker write
# relative relocations in their short form: of 0.9 MB little is left.
host=$(rustc --version --verbose | sed -n 's/^host: //p')
target=${CARGO_BUILD_TARGET:-$host}
binutils=${KSTATD_BINUTILS:-}
export RUSTFLAGS='-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs'
# The allocator's own build asks for all that a debugger could want of each of its 200 compilations: a third of their time.
export CFLAGS=${CFLAGS:--g0}
build() {
  local command=$1 package=$2
  shift 2
  cargo "$command" --locked --profile dist --target "$target" --package "$package" "$@"
}

# Cargo wants every file that a manifest names, whether it is built or not.
manifest_files() {
  echo src/lib.rs src/main.rs tests/double/src/lib.rs tests/endurance/src/{lib,main}.rs \
    benches/compare/main.rs benches/instructions/main.rs
  sed -n '/^\[\[bench\]\]/,/^name/s|^name = "\(.*\)"|benches/\1.rs|p' Cargo.toml
}
stand_in() {
  local file
  for file in $(manifest_files); do
    [ -e "$file" ] && continue
    mkdir -p "$(dirname "$file")"
    echo 'pub fn main() {}' >"$file"
  done
}

case ${1:-} in
'')
  sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2
  exit 2
  ;;
dependencies)
  stand_in
  build build kstatd --no-default-features --lib
  # What was compiled of the stand-ins must not be taken for the program when its older files arrive.
  build clean kstatd
  ;;
run)
  build run "$2" -- "${@:3}"
  ;;
*)
  stand_in
  build build kstatd --no-default-features --bin kstatd
  mkdir -p "$1"
  out=$(cd "$1" && pwd)
  built=${CARGO_TARGET_DIR:-target}/$target/dist/kstatd
  "${binutils}objcopy" --only-keep-debug "$built" "$out/kstatd.debug"
  # The link to the debug file has no folder, so it is made where that file is.
  # Names of data, most of them made up by the compiler, are of use there alone: they would be a megabyte.
  # A function's name ends in a hash of 20 bytes, which says nothing where no other function has the same name.
  (built=$(realpath "$built") && cd "$out" &&
    "${binutils}nm" "$built" | awk '$2 ~ /^[rdb]$/ { print $3 }' | sort -u >data-names &&
    "${binutils}nm" "$built" | awk '
      { name = $NF; end = length(name) }
      $2 !~ /^[rdb]$/ && substr(name, 1, 3) == "_ZN" && substr(name, end - 19, 3) == "17h" && substr(name, end) == "E" {
        short = substr(name, 1, end - 20) "E"
        long[short] = name
        count[short]++
      }
      END { for (short in count) if (count[short] == 1) print long[short], short }' | sort >short-names &&
    "${binutils}objcopy" --strip-debug --strip-symbols=data-names --redefine-syms=short-names \
      --add-gnu-debuglink=kstatd.debug "$built" kstatd &&
    rm data-names short-names)
  chmod 644 "$out/kstatd.debug"

  # Asked of the file, not of ldd, which knows nothing of programs for other machines.
  segments=$("${binutils}readelf" --program-headers --wide "$out/kstatd")
  grep -q INTERP <<<"$segments" && { echo "$out/kstatd is not static: $segments" >&2; exit 1; }
  sections=$("${binutils}readelf" --section-headers --wide "$out/kstatd")
  grep -q ' \.symtab ' <<<"$sections" || { echo "$out/kstatd has no names of functions" >&2; exit 1; }
  size=$(stat --format=%s "$out/kstatd")
  [ "$size" -le "$most" ] || { echo "$out/kstatd has $size bytes, more than $most" >&2; exit 1; }
  echo "$out/kstatd: $size bytes, static; $out/kstatd.debug: $(stat --format=%s "$out/kstatd.debug") bytes"
  ;;
esac
