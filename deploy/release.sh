#!/usr/bin/env bash
# Makes a release: static programs for x86_64 and aarch64 with manual pages and completions, their debug files, licences,
# a list of what is in them, checksums, and images as OCI layouts.
#
#   deploy/release.sh DIR              all of it
#   deploy/release.sh build DIR ARCH   DIR/build/ARCH/kstatd and kstatd.debug (ARCH: x86_64, aarch64)
#   deploy/release.sh assemble DIR     DIR/release and DIR/images, of what is in DIR/build
#
# What it needs beside Rust: python3, binutils, ca-certificates. For the other architecture also
#
#   rustup target add aarch64-unknown-linux-gnu
#   apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross binutils-aarch64-linux-gnu qemu-user-static
#
# The same commit gives the same archives and images, for the same programs.
set -euo pipefail
cd "$(dirname "$0")/.."

architectures='x86_64 aarch64'
host=$(uname -m)
version=$(sed -n '/^\[package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
revision=$(git rev-parse HEAD)
time=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}

usage() {
  sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

build() {
  local out=$1/build/$2 arch=$2
  case " $architectures " in
  *" $arch "*) ;;
  *) usage ;;
  esac
  export CARGO_BUILD_TARGET=$arch-unknown-linux-gnu
  if [ "$arch" != "$host" ]; then
    local prefix=$arch-linux-gnu-
    command -v "${prefix}gcc" >/dev/null || { echo "there is no ${prefix}gcc, see the top of $0" >&2; exit 1; }
    export KSTATD_BINUTILS=$prefix
    # cargo and the cc crate look for variables with the target in their names.
    local name=${CARGO_BUILD_TARGET//-/_}
    export "CARGO_TARGET_${name^^}_LINKER=${prefix}gcc" "CC_$name=${prefix}gcc" "AR_$name=${prefix}ar"
  fi
  # Kernels for this architecture have pages of 4, 16 or 64 KiB, and an allocator made for small ones dies on large ones.
  [ "$arch" != aarch64 ] || export JEMALLOC_SYS_WITH_LG_PAGE=16
  deploy/build.sh "$out"
}

# Runs a program of the architecture; foreign ones run in an emulator of their instructions.
runs() {
  local arch=$1
  shift
  if [ "$arch" = "$host" ]; then "$@"; else "qemu-$arch-static" "$@"; fi
}

# Whether a program of the architecture works.
smoke() {
  local program=$1 arch=$2 said
  said=$(runs "$arch" "$program" render statsd <<<'smoke.test:3|c|#arch:'"$arch")
  grep -qxF "smoke_test{arch=\"$arch\"} 3" <<<"$said" || { echo "$program says: $said" >&2; exit 1; }
  [ "$(runs "$arch" "$program" --version)" = "kstatd $version" ] || { echo "$program is not version $version" >&2; exit 1; }
}

# Manual pages and completions, which a program makes itself.
extras() {
  local program=$1 arch=$2 to=$3 shell
  runs "$arch" "$program" man --out "$to/man"
  mkdir -p "$to/completions"
  for shell in bash zsh fish; do
    runs "$arch" "$program" completion "$shell" >"$to/completions/kstatd.$shell"
  done
}

# An archive that says nothing of when and by whom it was made.
archive() {
  local to=$1 from=$2
  tar --create --directory="$from" --sort=name --mtime="@$time" --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw,a-s . |
    gzip --no-name --best >"$to"
}

assemble() {
  local dir=$1 arch found=0
  local out=$dir/release work
  rm -rf "$out" "$dir/images"
  mkdir -p "$out" "$dir/images"
  work=$(mktemp -d)
  # shellcheck disable=SC2064 # the folder of now
  trap "rm -rf '$work'" EXIT
  cargo metadata --locked --format-version=1 --no-default-features --filter-platform=x86_64-unknown-linux-gnu >"$work/metadata.json"
  python3 -B deploy/release/notices.py "$work/metadata.json" >"$work/THIRD-PARTY-LICENSES.txt"
  python3 -B deploy/release/sbom.py "$work/metadata.json" Cargo.lock "$revision" "$time" >"$out/kstatd-$version.cdx.json"
  for arch in $architectures; do
    local built=$dir/build/$arch
    [ -e "$built/kstatd" ] || continue
    found=1
    smoke "$built/kstatd" "$arch"
    local name=kstatd-$version-linux-$arch
    mkdir -p "$work/$name/$name" "$work/debug-$arch/$name"
    cp "$built/kstatd" LICENSE "$work/THIRD-PARTY-LICENSES.txt" deploy/systemd/kstatd.service deploy/systemd/kstatd.env "$work/$name/$name/"
    extras "$built/kstatd" "$arch" "$work/$name/$name"
    archive "$out/$name.tar.gz" "$work/$name"
    cp "$built/kstatd.debug" "$work/debug-$arch/$name/"
    archive "$out/$name-debug.tar.gz" "$work/debug-$arch"
    deploy/root-fs.sh "$built/kstatd" "$work/roots/$arch" LICENSE "$work/THIRD-PARTY-LICENSES.txt"
  done
  [ "$found" = 1 ] || { echo "$dir/build has no program: run \`deploy/release.sh build\` first" >&2; exit 1; }
  cp "$work/THIRD-PARTY-LICENSES.txt" "$out/"
  python3 -B deploy/release/images.py Dockerfile "$work/roots" "$dir/images" "$version" "$revision" "$time"
  (cd "$out" && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
}

case ${1:-} in
build)
  [ $# = 3 ] || usage
  build "$2" "$3"
  ;;
assemble)
  [ $# = 2 ] || usage
  assemble "$2"
  ;;
'' | -*) usage ;;
*)
  for arch in $architectures; do
    # In a process of its own: its variables are for one target.
    "$0" build "$1" "$arch"
  done
  assemble "$1"
  ;;
esac
