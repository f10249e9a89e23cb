#!/usr/bin/env bash
# Builds the previous release from its commit, which tests/previous-release names, into tests/.bin/kstatd-previous, for
# the end-to-end tests of upgrade and rollback. It is a debug build that shares the dependencies of this one: one to two
# minutes on two cores, nothing if it is there already.
set -euo pipefail
cd "$(dirname "$0")/.."
commit=$(cat tests/previous-release)
program=$PWD/tests/.bin/kstatd-previous
target=${CARGO_TARGET_DIR:-$PWD/target}
mkdir -p tests/.bin "$target"
target=$(cd "$target" && pwd)

if [ "$(cat "$program.commit" 2>/dev/null)" = "$commit" ] && [ -x "$program" ]; then
  echo "$program is of $commit already"
  exit
fi
if ! git cat-file -e "$commit^{commit}" 2>/dev/null; then
  echo "commit $commit is not in this clone, fetching it"
  git fetch --quiet --no-tags --depth=1 origin "$commit" || {
    echo "tests/previous-release: commit $commit is neither in this clone nor at origin." >&2
    echo "Fetch the history (git fetch --unshallow), or name a commit that exists." >&2
    exit 1
  }
fi

source=$target/previous/source
rm -rf "$source"
mkdir -p "$source"
# With the present time: cargo compiles what is newer than its last build.
git archive "$commit" | tar -x -m -C "$source"
# Two packages with the same name in one build directory differ by their profile only. Without debug information the
# previous release has its own files there, and target/debug/kstatd stays that of this commit. The test selects the
# features of `cargo test`, whose dependencies are then used again.
(
  cd "$source"
  "$OLDPWD/.ci/retry" cargo fetch --locked
  KSTATD_REVISION=$commit CARGO_BUILD_BUILD_DIR=$target CARGO_TARGET_DIR=$target/previous cargo \
    --config profile.dev.package.kstatd.debug=false --config profile.dev.package.kstatd-double.debug=false \
    --config profile.dev.package.clap_builder.opt-level=0 --config profile.dev.package.k8s-openapi.opt-level=0 \
    build --locked --bin kstatd --test house
)
"$target/previous/debug/kstatd" statsd_exporter --version | grep -qF "$commit" || {
  echo "$target/previous/debug/kstatd does not name commit $commit as its revision" >&2
  exit 1
}
cp "$target/previous/debug/kstatd" "$program"
echo "$commit" >"$program.commit"
